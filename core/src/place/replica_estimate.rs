//! How many replicas of one kind of pod a cluster takes, node by node.
//!
//! The same number as [`split::count_pods_that_fit`], for a gang of one task, without copying the cluster's free
//! capacity: a decision asks it of every cluster that passes the filters. Of a cluster of which no more than Karmada's
//! summary is known, at most what Karmada's own estimate gives ([`ClusterSummary::max_replicas_by_known_models`]).

#[cfg(doc)]
use crate::place::ClusterSummary;
use crate::{
    gang::{Gang, Task},
    inventory::{Capacity, NodeShape, Source},
    place::Cluster,
    resources::ResourceName,
    split,
};

/// What a replica asks for, ready to be held against many clusters.
#[derive(Debug, Clone)]
pub struct ReplicaEstimate<'a> {
    gang: &'a Gang,
    /// The task, where it is the only one, does not tell nodes apart by name, and wants nothing of NUMA nodes.
    sole: Option<&'a Task>,
    /// What it asks for in billionths, by name: cores in whole thousandths, the rest in whole units.
    asked: Vec<(&'a ResourceName, i128)>,
}

impl<'a> ReplicaEstimate<'a> {
    /// For the gang's task; for several tasks the replicas of the whole gang are counted.
    #[must_use]
    pub fn new(gang: &'a Gang) -> Self {
        let sole = match gang.tasks.as_slice() {
            [task] if !task.node.selects_by_node_name() && task.node.numa.is_none() => Some(task),
            _ => None,
        };
        let asked = sole.into_iter().flat_map(|task| task.request.iter()).filter(|(_, amount)| amount.as_nano() > 0);
        let whole = |(name, amount): (&'a ResourceName, crate::quantity::Quantity)| {
            let unit = if name.as_str() == ResourceName::CPU { 1_000_000 } else { 1_000_000_000 };
            (name, -(-amount.as_nano()).div_euclid(unit) * unit)
        };
        Self { gang, sole, asked: asked.map(whole).collect() }
    }

    /// Replicas that fit what is free in the cluster.
    #[must_use]
    pub fn estimate_max_available_replicas(&self, cluster: &Cluster, capacity: &Capacity) -> u64 {
        let fit = self.count_fitting(capacity);
        match (self.gang.tasks.as_slice(), &cluster.published, capacity.source) {
            ([task], Some(published), Source::Summary) => {
                fit.min(u64::try_from(published.max_replicas_by_known_models(Some(&task.request))).unwrap_or(0))
            }
            _ => fit,
        }
    }

    fn count_fitting(&self, capacity: &Capacity) -> u64 {
        let by_shape = |task: &&Task| task.node.selected_label_keys().all(|label| capacity.carries_label(label));
        let Some(task) = self.sole.filter(by_shape) else { return split::count_pods_that_fit(self.gang, capacity) };
        let on_shape = |shape: &NodeShape| {
            // Fields are out of the question here, so that the name does not matter.
            let admitted = shape.labels.as_ref().is_none_or(|labels| task.node.admits("", labels, &shape.taints));
            if admitted { self.per_node(shape).saturating_mul(shape.nodes.len() as u64) } else { 0 }
        };
        capacity.shapes.iter().map(on_shape).fold(0, u64::saturating_add)
    }

    fn per_node(&self, shape: &NodeShape) -> u64 {
        // Without labels it is no node, but the sum of all.
        let apart = self.sole.filter(|_| shape.labels.is_some()).and_then(|task| task.node.most_per_node);
        let mut most = i128::from(apart.unwrap_or(u32::MAX));
        let mut free = shape.free.iter();
        for (name, asked) in &self.asked {
            // Both are in the order of names.
            let amount = free.by_ref().find(|(offered, _)| offered >= name).filter(|(offered, _)| offered == name);
            let amount = amount.map_or(0, |(_, amount)| amount.as_nano());
            if amount < asked.saturating_mul(most) {
                most = (amount / asked).max(0);
            }
        }
        u64::try_from(most).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        gang::{NodeClaim, Taint},
        place::general_estimator::{ClusterSummary, Grade},
        quantity::Quantity,
        resources::Resources,
    };

    fn gang(request: Resources, selector: &[(&str, &str)]) -> Gang {
        let selector = selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let task = Task {
            name: "pods".into(),
            replicas: 1,
            min_available: 1,
            request,
            node: NodeClaim { selector, ..NodeClaim::default() },
            priority_class: String::new(),
            partition: None,
        };
        Gang::new(vec![task], 1)
    }

    fn amounts() -> impl Strategy<Value = Vec<(&'static str, i64)>> {
        let names = prop::sample::subsequence(vec!["cpu", "memory", "nvidia.com/gpu", "pods", "zinc"], 0..=5);
        names.prop_flat_map(|names| {
            let count = names.len();
            (Just(names), prop::collection::vec(-2..40i64, count)).prop_map(|(n, a)| n.into_iter().zip(a).collect())
        })
    }

    proptest! {
        #[test]
        fn as_many_as_the_packer_of_gangs_says(
            request in amounts(), odd: bool, most in prop::option::of(0..4u32),
            shapes in prop::collection::vec((amounts(), 1..5usize, any::<bool>(), any::<bool>()), 0..5),
        ) {
            // Thousandths of a thousandth, so that rounding shows.
            let exact = |list: &[(&'static str, i64)], part: i128| -> Resources {
                list.iter().map(|(name, a)| (*name, Quantity::from_nano(i128::from(*a) * 1_000_000_000 / part))).collect()
            };
            let shape = |(free, nodes, labelled, tainted): &(Vec<(&'static str, i64)>, usize, bool, bool)| NodeShape {
                labels: labelled.then(|| Arc::new([("pool".to_owned(), "a".to_owned())].into())),
                taints: tainted
                    .then(|| Taint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() })
                    .into_iter()
                    .collect(),
                allocatable: Arc::default(),
                free: Arc::new(exact(free, 1).iter().map(|(name, amount)| (name.clone(), amount)).collect()),
                domains: Vec::new(),
                nodes: (0..*nodes).map(|node| format!("n{node}").into()).collect(),
                numa: None,
            };
            let capacity = Capacity::new(shapes.iter().map(shape).collect(), Source::Nodes);
            for selector in [&[][..], &[("pool", "a")], &[("kubernetes.io/hostname", "n1")]] {
                let mut gang = gang(exact(&request, if odd { 300_007 } else { 3 }), selector);
                gang.tasks[0].node.most_per_node = most;
                let ours = ReplicaEstimate::new(&gang).estimate_max_available_replicas(&Cluster::default(), &capacity);
                prop_assert_eq!(ours, split::count_pods_that_fit(&gang, &capacity));
            }
        }
    }

    #[test]
    fn of_a_cluster_that_only_publishes_numbers_no_more_than_karmada_s_estimate() {
        let list = |amounts: &[(&str, i64)]| -> Resources {
            amounts.iter().map(|(name, amount)| (*name, Quantity::from_units(*amount))).collect()
        };
        // Four free nodes of 12 cores each, in a grade that begins at 8.
        let allocatable = list(&[("cpu", 48), ("nvidia.com/gpu", 4), ("pods", 100)]);
        let grades = vec![Grade { count: 4, least: Some(list(&[("cpu", 8)])) }];
        let capacity = Capacity::from_summary(&allocatable, &Resources::new(), &Resources::new());
        let published = ClusterSummary { allocatable, grades, ..ClusterSummary::default() };
        let cluster = Cluster { published: Some(Arc::new(published)), ..Cluster::default() };
        let replicas = |request: &[(&str, i64)], capacity: &Capacity| {
            ReplicaEstimate::new(&gang(list(request), &[])).estimate_max_available_replicas(&cluster, capacity)
        };
        assert_eq!(replicas(&[("cpu", 5), ("pods", 1)], &capacity), 4, "one on each node");
        assert_eq!(replicas(&[("cpu", 5), ("nvidia.com/gpu", 2), ("pods", 1)], &capacity), 2, "no model names GPUs");
        let nodes = Capacity::new(capacity.shapes, Source::Nodes);
        assert_eq!(replicas(&[("cpu", 5), ("pods", 1)], &nodes), 9, "what is seen counts, not what is published");
    }
}
