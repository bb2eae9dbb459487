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

/// A job of so many pods with these groups, gated.
fn grouped(world: &mut World, name: &str, pods: u32, groups: &Value) -> Vec<String> {
    let object = world.put(job(name, "q", pods));
    world.bind(&object, pods, true);
    world.patch("ResourceBinding", &format!("{name}-job"), &json!({"spec": {"workloadAffinityGroups": groups}}));
    world.settle()
}

fn apart() -> Value {
    json!({"antiAffinityGroup": "app=a"})
}

/// The peer released what its own scheduler then refused.
#[test]
fn a_job_whose_anti_affinity_peer_holds_the_only_cluster_is_not_released_and_says_so_with_names() {
    let mut world = World::new(100);
    assert_eq!(grouped(&mut world, "first", 2, &apart()), ["first-job"]);
    // Released and not placed yet: its place counts already.
    assert!(grouped(&mut world, "second", 2, &apart()).is_empty());
    world.place("first-job", 2);
    assert!(world.settle().is_empty());
    world.pass(3);
    let (reason, message) = world.says("second");
    assert_eq!(reason, "InsufficientCapacity", "{message}");
    for part in ["same anti-affinity group", "m1 has ns/first-job of its anti-affinity group"] {
        assert!(message.contains(part), "{message}");
    }
    // Another group, or none, is not concerned.
    assert_eq!(grouped(&mut world, "other", 2, &json!({"antiAffinityGroup": "app=b"})), ["other-job"]);
    world.job("none", "q", 2);
    assert_eq!(world.settle(), ["none-job"]);
    // It goes as soon as the other has left, whether or not pods have.
    world.delete("ResourceBinding", "first-job");
    assert_eq!(world.settle(), ["second-job"]);
}

#[test]
fn another_cluster_is_open_to_an_anti_affinity_peer_and_what_it_waits_for_survives_a_restart() {
    let mut world = World::new(100);
    world.cluster("m2", "100");
    assert_eq!(grouped(&mut world, "first", 2, &apart()), ["first-job"]);
    assert_eq!(grouped(&mut world, "second", 2, &apart()), ["second-job"]);
    world.place("first-job", 2);
    let there = json!({"spec": {"clusters": [{"name": "m2", "replicas": 2}]}});
    world.patch("ResourceBinding", "second-job", &there);
    assert!(grouped(&mut world, "third", 2, &apart()).is_empty());
    world.restart();
    assert!(world.settle().is_empty());
    world.patch("ResourceBinding", "second-job", &json!({"spec": {"clusters": [{"name": "m1", "replicas": 2}]}}));
    assert_eq!(world.settle(), ["third-job"], "m2 has none of its group any more");
}

#[test]
fn a_job_goes_with_its_affinity_group_or_waits_for_room_there() {
    let with = json!({"affinityGroup": "app=a"});
    let mut world = World::empty();
    world.cluster("m1", "4");
    world.cluster("m2", "40");
    world.queue("q", &json!({}));
    let object = world.put(job("first", "q", 4));
    world.bind(&object, 4, false);
    world.patch("ResourceBinding", "first-job", &json!({"spec": {"workloadAffinityGroups": with}}));
    world.place("first-job", 4);
    assert!(grouped(&mut world, "second", 2, &with).is_empty(), "m2 has room, and is elsewhere");
    world.pass(3);
    let (_, message) = world.says("second");
    assert!(
        message.contains("of its affinity group ns/first-job is placed, and all of the group are in m1"),
        "{message}"
    );
    world.patch("ResourceBinding", "first-job", &json!({"spec": {"clusters": [{"name": "m2", "replicas": 4}]}}));
    assert_eq!(world.settle(), ["second-job"]);
}

/// The scheduler places what is not queued too, and holds its place until its pods are seen.
#[test]
fn what_is_assumed_of_unqueued_bindings_is_not_released_to_others() {
    let deployment = |world: &mut World, scheduler: &str| {
        let object = world.put(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain", "namespace": "ns"},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}}},
        }));
        world.bind(&object, 3, false);
        world.patch("ResourceBinding", "plain-deployment", &json!({"spec": {"schedulerName": scheduler}}));
        world.place("plain-deployment", 3);
    };
    for (scheduler, released) in [("caldera", 0), ("default-scheduler", 1)] {
        let mut world = World::empty();
        world.cluster("m1", "4");
        world.queue("q", &json!({}));
        deployment(&mut world, scheduler);
        world.job("a", "q", 2);
        assert_eq!(world.settle().len(), released, "{scheduler}");
        world.delete("ResourceBinding", "plain-deployment");
        assert_eq!(world.settle().len(), 1 - released, "{scheduler}");
    }
}
