//! Copies that members refuse.

use caldera_crds::names::caldera::EVICTION;
use caldera_runtime::write::{Body, Failure};
use serde_json::{Value, json};

use super::world::{World, job};

const DENIED: &str =
    "Failed to apply all manifests (0/1): admission webhook \"policy.m1\" denied the request: no such image";
const NO_QUEUE: &str = "Failed to apply all manifests (0/1): admission webhook \"validatejob.volcano.sh\" denied the \
                        request: unable to find job queue: queues.scheduling.volcano.sh \"q\" not found";

/// A job of two pods, placed in m1 of two members.
fn placed() -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    world.settle();
    world
}

fn refuse(world: &mut World, cluster: &str, words: &str) {
    let item = json!({"clusterName": cluster, "applied": false, "appliedMessage": words, "health": "Unknown"});
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": [item]}}));
    world.settle();
}

fn copies_go(world: &mut World) -> Vec<String> {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.pass(10)
}

fn eviction(world: &World) -> Value {
    let record = &world.get("ResourceBinding", "a-job")["metadata"]["annotations"][EVICTION];
    record.as_str().map_or(Value::Null, |record| serde_json::from_str(record).unwrap())
}

fn events(world: &World) -> Vec<String> {
    let events = world.writes.iter().filter(|write| write.resource.kind == "Event");
    let bodies = events.filter_map(|write| match &write.body {
        Body::Create(event) => Some(event),
        _ => None,
    });
    bodies.filter(|event| event["reason"] == "CopyRefused").map(|event| event["message"].to_string()).collect()
}

#[test]
fn what_a_member_refuses_is_told_at_once_in_its_own_words() {
    let mut world = placed();
    refuse(&mut world, "m1", NO_QUEUE);
    world.pass(2);
    let (reason, message) = world.says("a");
    assert_eq!(reason, "CopyRefused");
    assert!(message.contains("m1 refuses its copy: ") && message.contains("unable to find job queue"), "{message}");
    assert!(eviction(&world).is_null(), "a queue that is not there yet comes");
    refuse(&mut world, "m1", NO_QUEUE);
    world.pass(60);
    assert_eq!(events(&world).len(), 1, "{:?}", events(&world));
    // Karmada tried again, and it was taken.
    let taken = json!([{"clusterName": "m1", "applied": true, "status": {"state": {"phase": "Pending"}}}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": taken}}));
    world.pass(5);
    assert_eq!(world.says("a").0, "Placed");
}

#[test]
fn a_final_refusal_moves_the_gang_elsewhere_at_once() {
    let mut world = placed();
    refuse(&mut world, "m1", DENIED);
    let record = eviction(&world);
    assert_eq!((&record["reason"], &record["avoid"]), (&json!("CopyRefused"), &json!(["m1"])), "{record}");
    assert!(events(&world)[0].contains("no such image"), "{:?}", events(&world));
    world.pass(5);
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains("no such image"), "{message}");
    // Not before its old copies are gone and forgotten, and then without a wait.
    assert_eq!(copies_go(&mut world), ["a-job"]);
}

#[test]
fn a_cluster_that_refuses_again_costs_a_wait_and_another_does_not() {
    let mut world = placed();
    refuse(&mut world, "m1", DENIED);
    assert_eq!(copies_go(&mut world), ["a-job"]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m2", "replicas": 2}]}}));
    refuse(&mut world, "m2", DENIED);
    assert_eq!(eviction(&world)["avoid"], json!(["m1", "m2"]));
    assert_eq!(copies_go(&mut world), ["a-job"]);
    world.place("a-job", 2);
    refuse(&mut world, "m1", DENIED);
    assert!(copies_go(&mut world).is_empty());
    assert!(world.pass(40).is_empty(), "each refusal would cost a release");
    assert_eq!(world.pass(20), ["a-job"]);
}

#[test]
fn what_runs_is_not_moved_for_a_change_that_its_member_refuses() {
    let mut world = placed();
    world.phase("a", "Running");
    refuse(&mut world, "m1", DENIED);
    world.pass(10);
    assert!(eviction(&world).is_null());
    assert_eq!(world.says("a").0, "CopyRefused");
    // Once nothing of it runs any more the same refusal keeps it from starting.
    world.patch("Job", "a", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
    world.pass(70);
    assert_eq!(eviction(&world)["reason"], "CopyRefused");
}

#[test]
fn a_name_with_queue_in_it_does_not_make_a_final_refusal_pass() {
    let mut world = placed();
    refuse(&mut world, "m1", &DENIED.replace("policy.m1", "queue-policy.m1"));
    assert_eq!(eviction(&world)["avoid"], json!(["m1"]));
}

/// It was said to be told, and nobody was told of it.
#[test]
fn a_refusal_that_comes_while_a_larger_record_is_written_is_told_after_it() {
    let mut world = placed();
    world.fail = vec![("resourcebindings", Failure::Transient("no answer".into()))];
    world.patch("Job", "a", &json!({"spec": job("a", "q", 3)["spec"]}));
    let item = json!({"clusterName": "m1", "applied": false, "appliedMessage": NO_QUEUE, "health": "Unknown"});
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"replicas": 3}, "status": {"aggregatedStatus": [item]}}));
    world.settle();
    assert!(world.fail.is_empty(), "a larger record was written");
    assert!(events(&world).is_empty(), "{:?}", events(&world));
    world.pass(10);
    assert_eq!(events(&world).len(), 1, "{:?}", events(&world));
}
