//! Gangs leave clusters whose link has become worse than they allow.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node},
    load_aware::LoadPolicy,
    quantity::Quantity,
};
use caldera_crds::names::caldera::EVICTION;
use serde_json::{Value, json};

use super::{
    fleet::report,
    world::{World, job},
};
use crate::observe::Input;

const INTERVAL: i64 = 60;

/// Three members of one node of 100 cpus each, all near each other, and a gang over the first two that says how long
/// it runs.
fn world(annotations: &Value) -> World {
    let mut world = World::empty();
    world.queue("q", &json!({}));
    for name in ["m1", "m2", "m3"] {
        world.cluster(name, "100");
        world.controller.observe(Input::Member(name.into(), Update::Up), world.now);
        let allocatable = [("cpu", 100), ("memory", 1_000), ("pods", 1_000)];
        let allocatable = allocatable.into_iter().map(|(name, amount)| (name, Quantity::from_units(amount))).collect();
        let node = Node { name: "n".into(), allocatable, ready: true, ..Node::default() };
        report(&mut world, name, Change::Nodes(vec![node]));
        report(&mut world, name, Change::Pods(vec![]));
    }
    world.put(json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology", "metadata": {"name": "links"},
        "spec": {
            "tiers": [{"name": "campus", "maxLatencyMicroseconds": 500}],
            "links": [{"from": ["m1", "m2", "m3"], "latencyMicroseconds": 200}],
        },
    }));
    world.settle();
    choose(&mut world, true);
    let mut gang = job("a", "q", 40);
    gang["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": "campus"});
    gang["metadata"]["annotations"] = annotations.clone();
    let gang = world.put(gang);
    world.bind(&gang, 40, true);
    assert_eq!(world.settle(), ["a-job"]);
    let clusters = json!([{"name": "m1", "replicas": 20}, {"name": "m2", "replicas": 20}]);
    let placed = json!({"spec": {"clusters": clusters}, "status": {"lastScheduledTime": world.now.to_string()}});
    world.patch("ResourceBinding", "a-job", &placed);
    world.phase("a", "Running");
    world.settle();
    world
}

fn choose(world: &mut World, links: bool) {
    let policy = LoadPolicy { links, interval: INTERVAL, samples: 2, ..LoadPolicy::default() };
    world.controller.load_aware.set_policy(policy);
}

/// The link between the first two is as slow as that.
fn degrade(world: &mut World, latency: u64) {
    let links = json!([
        {"from": ["m1"], "to": ["m2"], "latencyMicroseconds": latency},
        {"from": ["m1", "m2"], "to": ["m3"], "latencyMicroseconds": 200},
    ]);
    world.patch("FederationTopology", "links", &json!({"spec": {"links": links}}));
}

fn evicted(world: &World) -> Option<Value> {
    let record = world.get("ResourceBinding", "a-job")["metadata"]["annotations"][EVICTION].as_str()?;
    serde_json::from_str(record).ok()
}

fn says_it_runs(seconds: &str) -> Value {
    json!({"volcano.sh/preemptable": "true", "caldera.dev/running-estimate": seconds})
}

#[test]
fn a_gang_leaves_clusters_whose_link_became_worse_and_says_so() {
    let mut world = world(&says_it_runs("2h"));
    world.pass(4 * INTERVAL);
    assert_eq!(evicted(&world), None, "its link is good enough");
    degrade(&mut world, 80_000);
    world.pass(INTERVAL);
    assert_eq!(evicted(&world), None, "once is not for long");
    world.pass(2 * INTERVAL);
    let record = evicted(&world).expect("it left");
    assert_eq!(record["reason"], "Rescheduled");
    let why =
        "the link of clusters m1 and m2 has a latency of 80000 us, and tier campus allows 500 us; there is room in ";
    assert!(record["message"].as_str().is_some_and(|message| message.starts_with(why)), "{record}");
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains(why), "{message}");
}

#[test]
fn a_gang_stays_unless_an_admin_chose_it_and_what_is_left_is_longer_than_what_it_lost() {
    let leaves = |annotations: &Value, links: bool, latency: u64| {
        let mut world = world(annotations);
        choose(&mut world, links);
        degrade(&mut world, latency);
        world.pass(6 * INTERVAL);
        evicted(&world).is_some()
    };
    assert!(leaves(&says_it_runs("2h"), true, 80_000));
    assert!(!leaves(&says_it_runs("2h"), false, 80_000));
    assert!(!leaves(&says_it_runs("2h"), true, 400));
    let mut short = says_it_runs("200s");
    assert!(!leaves(&short, true, 80_000), "after the second round it would lose more than is left");
    short["caldera.dev/checkpoint-interval"] = "5s".into();
    assert!(leaves(&short, true, 80_000), "it has saved all but five seconds");
    assert!(!leaves(&json!({"volcano.sh/preemptable": "true"}), true, 80_000), "nobody knows how long it runs");
    assert!(!leaves(&json!({"caldera.dev/running-estimate": "2h"}), true, 80_000), "it may not be evicted");
}
