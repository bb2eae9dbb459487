//! Copies that Karmada believes are in their member.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
};
use caldera_runtime::write::Body;
use serde_json::{Value, json};

use super::world::World;
use crate::observe::Input;

fn member(world: &mut World, update: Update) {
    world.controller.observe(Input::Member("m1".into(), update), world.now);
}

/// All of m1 is seen.
fn seen(quota: i64) -> World {
    let mut world = World::new(quota);
    let cpu = [("cpu", Quantity::from_units(50)), ("pods", Quantity::from_units(100))];
    let node = Node { name: "n".into(), allocatable: cpu.into_iter().collect(), ready: true, ..Node::default() };
    member(&mut world, Update::Up);
    member(&mut world, Update::Change(Change::Nodes(vec![node])));
    member(&mut world, Update::Change(Change::Pods(vec![])));
    world
}

fn pod(group: &str, job: &str, number: u32) -> Update {
    let task = (group == "batch.volcano.sh").then(|| "worker".into());
    let owner = Owner { group: group.into(), kind: "Job".into(), name: job.into(), task };
    Update::Change(Change::Pod(Pod {
        namespace: "ns".into(),
        name: format!("{job}-{number}"),
        node: Some("n".into()),
        request: [("cpu", Quantity::from_units(1))].into_iter().collect(),
        finished: false,
        owner: Some(owner),
    }))
}

fn touches(world: &World) -> Vec<(String, String, Value)> {
    let works = world.writes.iter().filter(|write| write.resource.kind == "Work");
    let body = |body: &Body| if let Body::JsonPatch(patch) = body { patch.clone() } else { Value::Null };
    works.map(|write| (write.namespace.clone(), write.name.clone(), body(&write.body))).collect()
}

/// Its name would be part of the path of a write.
#[test]
fn a_copy_in_what_is_no_cluster_is_not_applied_again() {
    let mut world = seen(10);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    for name in ["../../kube-system", "m1/works", "gone"] {
        let silent = json!([{"clusterName": name, "applied": true, "health": "Unknown"}]);
        let clusters = json!([{"name": name, "replicas": 2}]);
        let patch = json!({"spec": {"clusters": clusters}, "status": {"aggregatedStatus": silent}});
        world.patch("ResourceBinding", "a-job", &patch);
        world.pass(200);
        assert!(touches(&world).is_empty(), "{name}");
    }
}

#[test]
fn a_copy_that_says_nothing_for_a_minute_and_has_no_pods_is_applied_again() {
    let mut world = seen(10);
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    let silent = json!({"status": {"aggregatedStatus": [{"clusterName": "m1", "applied": true, "health": "Unknown"}]}});
    world.patch("ResourceBinding", "a-job", &silent);
    world.settle();
    world.pass(58);
    assert!(touches(&world).is_empty());
    world.pass(4);
    let all = touches(&world);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].0, "karmada-es-m1");
    let last = all[0].2.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last, json!({"op": "add", "path": "/spec/suspendDispatching", "value": false}));
    let unsuspended = json!({"op": "test", "path": "/spec/suspendDispatching", "value": null});
    assert!(all[0].2.as_array().unwrap().contains(&unsuspended), "a user may have suspended it");
    // The next time it is taken away again: each is a change of the spec.
    world.pass(130);
    let all = touches(&world);
    assert_eq!(all[1].2.as_array().unwrap().last().unwrap()["op"], "remove", "{all:?}");
    // Its status came.
    world.phase("a", "Pending");
    let before = touches(&world).len();
    world.pass(1000);
    assert_eq!(touches(&world).len(), before);
}

#[test]
fn a_copy_with_pods_is_left_alone() {
    let mut world = seen(10);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    let silent = json!({"status": {"aggregatedStatus": [{"clusterName": "m1", "applied": true, "health": "Unknown"}]}});
    world.patch("ResourceBinding", "a-job", &silent);
    member(&mut world, pod("batch.volcano.sh", "a", 0));
    world.pass(200);
    assert!(touches(&world).is_empty());
}

/// A Work that is not touched stays as it is: the first touch of all adds what the second takes away.
#[test]
fn only_a_work_that_was_touched_counts_as_touched() {
    let mut world = seen(10);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    let silent = json!({"status": {"aggregatedStatus": [{"clusterName": "m1", "applied": true, "health": "Unknown"}]}});
    world.patch("ResourceBinding", "a-job", &silent);
    member(&mut world, pod("batch.volcano.sh", "a", 0));
    world.pass(70);
    assert!(touches(&world).is_empty());
    member(&mut world, Update::Change(Change::Pods(vec![])));
    world.pass(60);
    let all = touches(&world);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].2.as_array().unwrap().last().unwrap()["op"], "add");
}

#[test]
fn a_batch_jobs_pods_run_once_they_are_on_nodes() {
    let mut world = seen(10);
    let job = world.put(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }));
    world.bind(&job, 2, true);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    world.patch("Job", "a", &json!({"status": {"active": 2, "startTime": "1970-01-12T13:46:40Z"}}));
    world.pass(60);
    let phase = |world: &World| {
        let group = world.objects.iter().find(|(name, _)| name.0 == "PodGroup").unwrap().1;
        (group["status"]["phase"].as_str().unwrap_or("").to_owned(), group["status"]["running"].clone())
    };
    assert_eq!(phase(&world), ("Inqueue".to_owned(), json!(0)), "its pods are pending in the member");
    member(&mut world, pod("batch", "a", 0));
    member(&mut world, pod("batch", "a", 1));
    world.pass(60);
    assert_eq!(phase(&world), ("Running".to_owned(), json!(2)));
    // What the member listed anew has none of them on a node.
    member(&mut world, Update::Change(Change::Pods(vec![])));
    world.pass(60);
    assert_eq!(phase(&world).1, json!(0));
}
