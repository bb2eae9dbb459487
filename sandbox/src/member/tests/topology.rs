//! Gangs with hard topology, as Volcano binds and refuses them.

use super::*;

/// Four nodes of 4 cores; racks `a` (nodes 0 and 1, by name) and `b` (2 and 3, by pattern), spine `s` over both.
fn racked() -> Cluster {
    let mut cluster = Cluster::new(4, "4");
    let node = |name: &str| json!({"type": "Node", "selector": {"exactMatch": {"name": name}}});
    let below = |name: &str| json!({"type": "HyperNode", "selector": {"exactMatch": {"name": name}}});
    let pattern = json!({"type": "Node", "selector": {"regexMatch": {"pattern": "^node-[23]$"}}});
    for (name, tier, tier_name, members) in [
        ("a", 1, "rack", vec![node("node-0"), node("node-1")]),
        ("b", 1, "rack", vec![pattern]),
        ("s", 2, "spine", vec![below("a"), below("b")]),
    ] {
        let spec = json!({"tier": tier, "tierName": tier_name, "members": members});
        cluster.put(Kind::HyperNode, json!({"metadata": {"name": name}, "spec": spec}));
    }
    cluster
}

fn hard(name: &str, replicas: u32, topology: Value) -> Value {
    let mut job = volcano_job(name, replicas, replicas, "2", "sleep 60");
    job["spec"]["networkTopology"] = topology;
    job
}

fn nodes(cluster: &Cluster, job: &str) -> Vec<String> {
    let its = |(key, pod): (&super::super::object::Key, &super::super::facts::PodFacts)| {
        (pod.holds() && key.1.starts_with(job)).then(|| pod.node.clone())
    };
    let mut nodes: Vec<String> = cluster.world.pods().filter_map(its).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

#[test]
fn a_hard_gang_is_bound_in_one_hyper_node_or_not_at_all() {
    let mut cluster = racked();
    cluster.submit(hard("j", 4, json!({"mode": "hard", "highestTierAllowed": 1}))).unwrap();
    cluster.submit(hard("k", 3, json!({"mode": "hard", "highestTierName": "rack"}))).unwrap();
    cluster.submit(hard("wide", 5, json!({"mode": "hard", "highestTierAllowed": 1}))).unwrap();
    cluster.settle();
    assert_eq!(nodes(&cluster, "j-"), ["node-0", "node-1"]);
    assert_eq!(nodes(&cluster, "k-"), ["node-2", "node-3"]);
    assert_eq!(nodes(&cluster, "wide-"), [""; 0]);
}

#[test]
fn a_higher_tier_a_soft_mode_and_an_unknown_name_allow_more() {
    for topology in [
        json!({"mode": "hard", "highestTierAllowed": 2}),
        json!({"mode": "hard", "highestTierAllowed": 3}),
        json!({"mode": "soft", "highestTierAllowed": 1}),
        json!({"mode": "hard", "highestTierName": "region"}),
    ] {
        let mut cluster = racked();
        cluster.submit(hard("j", 7, topology)).unwrap();
        cluster.settle();
        assert_eq!(nodes(&cluster, "j-").len(), 4);
    }
}

#[test]
fn more_pods_of_a_hard_gang_follow_the_first() {
    let mut cluster = racked();
    let mut job = hard("j", 6, json!({"mode": "hard", "highestTierAllowed": 1}));
    job["spec"]["minAvailable"] = 2.into();
    job["spec"]["tasks"][0]["minAvailable"] = 2.into();
    cluster.submit(job).unwrap();
    cluster.settle();
    assert_eq!((nodes(&cluster, "j-"), cluster.bound()), (vec!["node-0".to_owned(), "node-1".to_owned()], 4));
}

/// What the federation pins is honoured: the lowest HyperNode that the affinity allows is taken, not the first that is
/// free.
#[test]
fn a_pin_decides_which_hyper_node_is_taken() {
    let mut cluster = racked();
    let mut job = hard("j", 4, json!({"mode": "hard", "highestTierAllowed": 1}));
    job["spec"]["tasks"][0]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2", "node-3"]},
        ]}]},
    }});
    cluster.submit(job).unwrap();
    cluster.settle();
    assert_eq!(nodes(&cluster, "j-"), ["node-2", "node-3"]);
}
