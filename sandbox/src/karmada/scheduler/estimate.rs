//! How many replicas, or sets of components, Karmada believes a cluster can take: the estimate of
//! `caldera_core::place::general_estimator`, of objects.
//!
//! Rule for sets: `GeneralEstimator.MaxAvailableComponentSets` (`pkg/estimator/client/component.go`): free pods, sums,
//! and where there are models as many whole sets as first fit packs on their nodes.

use caldera_core::{
    place::general_estimator::{ClusterSummary, Grade},
    quantity::Quantity,
    resources::Resources,
};
use caldera_crds::{karmada::cluster::Cluster, placement};
use serde_json::Value;

use crate::karmada::object::ObjectExt;

/// Sets that are counted at most: one is asked for.
const MOST_SETS: i64 = 1000;

/// What is asked of a cluster.
#[derive(Debug, Clone, Copy)]
pub enum Demand<'a> {
    /// Replicas of one kind of pod, with its requirements.
    Replicas(Option<&'a Value>),
    /// One of each set of these components (`spec.components`).
    Sets(&'a [Value]),
}

impl Demand<'_> {
    /// How often a cluster can take it.
    #[must_use]
    pub fn estimate_cluster(self, cluster: &Value) -> i64 {
        let cluster = serde_json::from_value::<Cluster>(cluster.clone()).ok();
        let Some(published) = cluster.as_ref().and_then(placement::read_general_estimator_input) else { return 0 };
        match self {
            Self::Replicas(requirements) => {
                published.estimate_max_available_replicas(requirements.map(read_request).as_ref())
            }
            Self::Sets(components) => estimate_sets(&published, components),
        }
    }
}

fn read_request(requirements: &Value) -> Resources {
    let amount = |amount: &Value| amount.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO);
    let list = requirements["resourceRequest"].as_object().into_iter().flatten();
    list.map(|(name, value)| (name.as_str(), amount(value))).collect()
}

/// Pods of one set, and what each asks for.
fn pods_of_components(components: &[Value]) -> Vec<(i64, Resources)> {
    components.iter().map(|one| (one.number("/replicas"), read_request(&one["replicaRequirements"]))).collect()
}

fn estimate_sets(published: &ClusterSummary, components: &[Value]) -> i64 {
    let pods = pods_of_components(components);
    let count: i64 = pods.iter().map(|(replicas, _)| replicas).sum();
    let mut set = Resources::default();
    for (replicas, request) in &pods {
        for (name, amount) in request.iter() {
            let nano = amount.as_nano().saturating_mul((*replicas).into());
            set.set(name.as_str(), Quantity::from_nano(set.get(name.as_str()).as_nano().saturating_add(nano)));
        }
    }
    let free_pods = published.estimate_max_available_replicas(None);
    if free_pods <= 0 {
        return 0;
    }
    let sums = ClusterSummary { grades: Vec::new(), ..published.clone() };
    let most = sums.estimate_max_available_replicas(Some(&set)).min(free_pods / count.max(1)).min(MOST_SETS);
    if published.grades.is_empty() { most } else { pack_sets(&published.grades, &pods, most) }
}

/// Sets that fit on the models' nodes, pod by pod, each on the first node with room: at most so many.
fn pack_sets(grades: &[Grade], pods: &[(i64, Resources)], most: i64) -> i64 {
    let nodes = |grade: &Grade| usize::try_from(grade.count.clamp(0, MOST_SETS)).unwrap_or(0);
    let mut nodes: Vec<Resources> = grades
        .iter()
        .filter_map(|grade| Some((nodes(grade), grade.least.clone()?)))
        .flat_map(|(count, least)| std::iter::repeat_n(least, count))
        .collect();
    for set in 0..most {
        for (replicas, request) in pods {
            for _ in 0..*replicas {
                let room = |node: &&mut Resources| {
                    request.iter().all(|(name, amount)| node.get(name.as_str()).as_nano() >= amount.as_nano())
                };
                let Some(node) = nodes.iter_mut().find(room) else { return set };
                for (name, amount) in request.iter() {
                    let left = node.get(name.as_str()).as_nano().saturating_sub(amount.as_nano());
                    node.set(name.as_str(), Quantity::from_nano(left));
                }
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::karmada::cluster::plan::default_models;

    fn cluster(models: &[Value]) -> Value {
        let counts: Vec<Value> =
            (0..models.len()).map(|grade| json!({"grade": grade, "count": i64::from(grade == 5)})).collect();
        json!({"spec": {"resourceModels": models}, "status": {"resourceSummary": {
            "allocatable": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"}, "allocatableModelings": counts}}})
    }

    fn replicas(cluster: &Value, requirements: Option<&Value>) -> i64 {
        Demand::Replicas(requirements).estimate_cluster(cluster)
    }

    fn component(replicas: i64, request: &Value) -> Value {
        json!({"name": "c", "replicas": replicas, "replicaRequirements": {"resourceRequest": request}})
    }

    #[test]
    fn a_node_is_as_small_as_its_grade_allows() {
        let request = json!({"resourceRequest": {"cpu": "500m", "memory": "256Mi"}});
        assert_eq!(replicas(&cluster(&default_models()), Some(&request)), 32, "16 cpus of a node of 32");
        assert_eq!(replicas(&cluster(&[]), Some(&request)), 64);
    }

    #[test]
    fn gpus_are_not_in_the_default_models() {
        let request = json!({"resourceRequest": {"cpu": "1", "nvidia.com/gpu": "1"}});
        assert_eq!(replicas(&cluster(&default_models()), Some(&request)), 0);
        assert_eq!(replicas(&cluster(&[]), Some(&request)), 8);
    }

    #[test]
    fn whole_sets_are_packed_on_the_nodes_of_the_models() {
        let set = [component(1, &json!({"cpu": "1"})), component(2, &json!({"cpu": "6"}))];
        assert_eq!(Demand::Sets(&set).estimate_cluster(&cluster(&default_models())), 1, "13 of 16 cpus, twice");
        assert_eq!(Demand::Sets(&set).estimate_cluster(&cluster(&[])), 2, "26 of 32");
        let card = [component(1, &json!({"cpu": "1", "nvidia.com/gpu": "1"}))];
        assert_eq!(Demand::Sets(&card).estimate_cluster(&cluster(&default_models())), 0, "no model has GPUs");
        assert_eq!(
            Demand::Sets(&[component(111, &json!({}))]).estimate_cluster(&cluster(&[])),
            0,
            "more pods than the cluster has"
        );
    }

    #[test]
    fn nothing_is_known_before_the_first_summary() {
        assert_eq!(replicas(&json!({"metadata": {"name": "m"}, "spec": {}}), None), 0);
    }
}
