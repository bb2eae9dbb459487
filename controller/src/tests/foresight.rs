//! Who is released fits by what the scheduler goes by: declared links, and what others hold or are near to.

use serde_json::{Value, json};

use super::world::{World, job};

/// Three clusters of four cores; the first and the last are declared to be near.
fn linked() -> World {
    let mut world = World::empty();
    for name in ["m0", "m1", "m2"] {
        world.cluster(name, "4");
    }
    world.queue("q", &json!({}));
    world.put(json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology", "metadata": {"name": "links"},
        "spec": {
            "tiers": [{"name": "campus", "maxLatencyMicroseconds": 500}],
            "links": [{"from": ["m0", "m2"], "latencyMicroseconds": 200}],
        },
    }));
    world.settle();
    world
}

fn near(name: &str, pods: u32) -> Value {
    let mut object = job(name, "q", pods);
    object["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": "campus"});
    object
}

fn submit(world: &mut World, object: Value, pods: u32) -> Vec<String> {
    let object = world.put(object);
    world.bind(&object, pods, true);
    world.settle()
}

#[test]
fn a_hard_gang_is_released_where_near_clusters_hold_it_and_waits_with_numbers_where_none_do() {
    let mut world = linked();
    assert_eq!(submit(&mut world, near("fits", 6), 6), ["fits-job"]);
    let mut world = linked();
    assert!(submit(&mut world, near("wide", 9), 9).is_empty());
    world.pass(3);
    let (_, message) = world.says("wide");
    for part in ["1 group of close clusters of tier campus or lower none holds it", "best close clusters m0, m2 take 8"]
    {
        assert!(message.contains(part), "{message}");
    }
    // Another link, and all three are near each other.
    let spec = json!({"spec": {"links": [{"from": ["m0", "m1", "m2"], "latencyMicroseconds": 300}]}});
    world.patch("FederationTopology", "links", &spec);
    assert_eq!(world.settle(), ["wide-job"]);
}

#[test]
fn a_gang_that_waits_for_a_link_is_released_when_it_is_declared() {
    let mut world = linked();
    world.delete("FederationTopology", "links");
    assert!(submit(&mut world, near("early", 6), 6).is_empty());
    let object = json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology", "metadata": {"name": "links"},
        "spec": {"tiers": [{"name": "campus"}], "links": [{"from": ["m0"], "to": ["m1", "m0"]}]},
    });
    world.put(object);
    assert_eq!(world.settle(), ["early-job"]);
}
