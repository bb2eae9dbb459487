//! How many pods or sets fit, and how many pods of a workload are unschedulable: pure.
//!
//! Rule: node by node, as the member's scheduler would: free is what nodes have left after all pods bound to them, less
//! what was given to the cluster and is not bound yet. Sets are counted whole. Karmada's own server puts set after set,
//! and each pod on the first node that takes it. This takes the best of several orders of the components, and where
//! none packs a few pods it tries: for those (24 pods, 48 nodes) it never says less than Karmada's; beyond them seldom.
//!
//! A pod is unschedulable if its condition `PodScheduled` has said so for the threshold that the question names; it is
//! of the workload by its owner.

use caldera_core::{
    gang::{Gang, Task, WorkloadRef},
    inventory::Capacity,
    plan::PinnedDomains,
    split::{self, count_pods_that_fit, subtract_assumed_pods},
};
use caldera_crds::inventory::read_pod;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use caldera_crds::estimator::{convert::build_all_or_nothing_gang, messages::ObjectReferenceMessage};

/// Pods of a task that fit.
#[must_use]
pub fn count_replicas(capacity: &Capacity, task: Task) -> i32 {
    let fit = count_pods_that_fit(&build_all_or_nothing_gang(vec![task]), capacity);
    i32::try_from(fit).unwrap_or(i32::MAX)
}

/// Whole sets that fit; of nothing, as many as one likes.
#[must_use]
pub fn count_sets(capacity: &Capacity, set: &Gang) -> i32 {
    let asked = || set.tasks.iter().filter(|task| task.replicas > 0);
    let alone = |task: &Task| {
        let one = Task { replicas: 1, min_available: 1, ..task.clone() };
        count_pods_that_fit(&build_all_or_nothing_gang(vec![one]), capacity) / u64::from(task.replicas)
    };
    let Some(bound) = asked().map(alone).min() else { return i32::MAX };
    let pods = u64::from(set.replicas());
    let most = bound.min(u64::from(u32::MAX) / pods.max(1)).min(i32::MAX as u64);
    if asked().count() == 1 {
        return i32::try_from(most).unwrap_or(i32::MAX);
    }
    let fits = |sets: u64| {
        let times = |task: &Task| {
            let replicas = task.replicas.saturating_mul(u32::try_from(sets).unwrap_or(u32::MAX));
            Task { replicas, min_available: replicas, ..task.clone() }
        };
        split::gang_fits(&build_all_or_nothing_gang(asked().map(times).collect()), capacity)
    };
    let (mut least, mut beyond) = (0, most + 1);
    while beyond - least > 1 {
        let middle = least + (beyond - least) / 2;
        if fits(middle) { least = middle } else { beyond = middle }
    }
    i32::try_from(least).unwrap_or(i32::MAX)
}

/// The capacity without what was given to the cluster and is not bound yet.
#[must_use]
pub fn subtract_assumed(capacity: &Capacity, assumed: &[Gang]) -> Capacity {
    let taken = |capacity: Capacity, gang: &Gang| {
        let pods: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
        subtract_assumed_pods(capacity, gang, &pods, &PinnedDomains::default())
    };
    assumed.iter().fold(capacity.clone(), taken)
}

/// Pods of a workload that no node has taken for at least so long.
#[must_use]
pub fn count_unschedulable(
    pods: &[Value],
    of: &ObjectReferenceMessage,
    threshold: SignedDuration,
    now: Timestamp,
) -> i32 {
    let group = of.api_version.split_once('/').map_or("", |(group, _)| group);
    let workload = WorkloadRef {
        group: group.to_owned(),
        kind: of.kind.clone(),
        namespace: of.namespace.clone(),
        name: of.name.clone(),
    };
    let is_its = |object: &Value| {
        let owner = read_pod(object).and_then(|pod| Some(pod.owner?.workload(&pod.namespace)));
        owner.as_ref() == Some(&workload)
    };
    let is_stuck = |object: &Value| {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let unscheduled = conditions.into_iter().flatten().find(|condition| {
            condition["type"] == "PodScheduled"
                && condition["status"] == "False"
                && condition["reason"] == "Unschedulable"
        });
        let since: Option<Timestamp> =
            unscheduled.and_then(|condition| condition["lastTransitionTime"].as_str()?.parse().ok());
        since.is_some_and(|since| now.duration_since(since) >= threshold)
    };
    i32::try_from(pods.iter().filter(|pod| is_stuck(pod) && is_its(pod)).count()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        gang::NodeClaim,
        inventory::{Change, Inventory, Node},
        quantity::Quantity,
        resources::Resources,
    };
    use serde_json::json;

    use super::*;

    fn amounts(cpu: i64, gpu: i64, pods: i64) -> Resources {
        let entries = [("cpu", cpu), ("nvidia.com/gpu", gpu), ("pods", pods)];
        entries.into_iter().map(|(name, amount)| (name, Quantity::from_units(amount))).collect()
    }

    /// Nodes of so many cores and cards each.
    fn capacity(nodes: &[(i64, i64)]) -> Capacity {
        let node = |(at, (cpu, gpu)): (usize, &(i64, i64))| Node {
            name: format!("n{at}"),
            allocatable: amounts(*cpu, *gpu, 110),
            ready: true,
            ..Node::default()
        };
        let mut inventory = Inventory::default();
        inventory.apply_change(Change::Nodes(nodes.iter().enumerate().map(node).collect()));
        inventory.apply_change(Change::Pods(vec![]));
        inventory.capacity()
    }

    fn task(name: &str, replicas: u32, cpu: i64, gpu: i64) -> Task {
        Task {
            name: name.into(),
            replicas,
            min_available: replicas,
            request: amounts(cpu, gpu, 1),
            node: NodeClaim::default(),
            priority_class: String::new(),
            partition: None,
        }
    }

    #[test]
    fn fragments_do_not_add_up() {
        let capacity = capacity(&[(8, 0), (8, 0), (3, 0)]);
        assert_eq!(count_replicas(&capacity, task("a", 1, 5, 0)), 2);
        assert_eq!(count_replicas(&capacity, task("a", 1, 0, 1)), 0);
    }

    #[test]
    fn sets_are_counted_whole() {
        // Two nodes of 8 cores and 4 cards: a set is a master of 2 cores and two workers of 1 core and 2 cards.
        let set = build_all_or_nothing_gang(vec![task("master", 1, 2, 0), task("worker", 2, 1, 2)]);
        assert_eq!(count_sets(&capacity(&[(8, 4), (8, 4)]), &set), 2);
        assert_eq!(count_sets(&capacity(&[(8, 3), (8, 3)]), &set), 1);
        assert_eq!(count_sets(&capacity(&[(2, 4)]), &set), 0);
        assert_eq!(count_sets(&capacity(&[(2, 4)]), &build_all_or_nothing_gang(vec![])), i32::MAX);
    }

    /// Set after set, each pod on the first node that takes it, as Karmada's server has it.
    fn karmadas(nodes: &[(i64, i64)], set: &Gang) -> i32 {
        let asked = |task: &Task, name| task.request.get(name).units_ceil();
        let mut free: Vec<[i128; 2]> = nodes.iter().map(|(cpu, gpu)| [i128::from(*cpu), i128::from(*gpu)]).collect();
        for sets in 0.. {
            for task in set.tasks.iter().flat_map(|task| std::iter::repeat_n(task, task.replicas as usize)) {
                let each = [asked(task, "cpu"), asked(task, "nvidia.com/gpu")];
                let takes = |free: &&mut [i128; 2]| free.iter().zip(&each).all(|(free, each)| free >= each);
                let Some(node) = free.iter_mut().find(takes) else { return sets };
                node.iter_mut().zip(&each).for_each(|(free, each)| *free -= each);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_few_sets_are_never_fewer_than_karmadas_server_says() {
        let mut state = 7_u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((state >> 33) % most).unwrap()
        };
        let mut more = 0;
        for _ in 0..500 {
            let nodes: Vec<(i64, i64)> = (0..3).map(|_| (below(12), below(6))).collect();
            let mut one = |name: &str| task(name, u32::try_from(1 + below(2)).unwrap(), 1 + below(4), below(4));
            let set = build_all_or_nothing_gang(vec![one("a"), one("b"), one("c")]);
            let (ours, theirs) = (count_sets(&capacity(&nodes), &set), karmadas(&nodes, &set));
            assert!(ours >= theirs, "{ours} < {theirs}: {nodes:?} {set:?}");
            more += i32::from(ours > theirs);
        }
        assert!(more > 0);
    }

    #[test]
    fn what_is_given_already_is_not_free() {
        let capacity = capacity(&[(8, 0), (8, 0)]);
        let given = build_all_or_nothing_gang(vec![task("a", 1, 5, 0)]);
        assert_eq!(count_replicas(&subtract_assumed(&capacity, std::slice::from_ref(&given)), task("b", 1, 4, 0)), 2);
        assert_eq!(count_replicas(&subtract_assumed(&capacity, &[given.clone(), given]), task("b", 1, 4, 0)), 0);
    }

    #[test]
    fn pods_count_as_stuck_after_the_threshold_only() {
        let pod = |name: &str, reason: &str, since: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "ns", "labels": {"pod-template-hash": "h"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h", "controller": true}],
                },
                "spec": {"containers": []},
                "status": {"conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": since},
                ]},
            })
        };
        let pods = [
            pod("a", "Unschedulable", "2026-01-01T00:00:00Z"),
            pod("b", "Unschedulable", "2026-01-01T00:00:50Z"),
            pod("c", "SchedulingGated", "2026-01-01T00:00:00Z"),
        ];
        let count = |name: &str, seconds| {
            let (api_version, kind, namespace, name) =
                ("apps/v1".into(), "Deployment".into(), "ns".into(), name.into());
            let of = ObjectReferenceMessage { api_version, kind, namespace, name };
            let now = "2026-01-01T00:01:00Z".parse().unwrap();
            count_unschedulable(&pods, &of, SignedDuration::from_secs(seconds), now)
        };
        assert_eq!([count("web", 60), count("web", 5), count("other", 5)], [1, 2, 0]);
    }
}
