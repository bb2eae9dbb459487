//! Maintenance windows of clusters: which jobs are released before, during and after one.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node},
    quantity::Quantity,
};
use caldera_runtime::clock::format_time;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::{World, job};
use crate::{
    explain::{ClusterView, explain_job},
    observe::{Input, Key},
};

/// Seconds from now on.
fn keep(world: &mut World, cluster: &str, start: i64, end: i64) {
    let at = |seconds| format_time(world.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    let windows = json!([{"start": at(start), "end": at(end), "reason": "new kernels", "notice": "60s"}]);
    let annotations = json!({"metadata": {"annotations": {"caldera.dev/maintenance": windows.to_string()}}});
    world.patch("Cluster", cluster, &annotations);
}

/// A job of one pod that says how long it runs.
fn bounded(world: &mut World, name: &str, seconds: i64) {
    let mut job = job(name, "q", 1);
    job["metadata"]["annotations"] = json!({"caldera.dev/max-run-time": format!("{seconds}s")});
    let job = world.put(job);
    world.bind(&job, 1, true);
}

#[test]
fn a_job_that_would_run_into_a_window_waits_with_the_reason_and_starts_when_the_window_ends() {
    let mut world = World::new(10);
    keep(&mut world, "m1", 100, 200);
    bounded(&mut world, "long", 101);
    bounded(&mut world, "short", 50);
    assert_eq!(world.settle(), ["short-job"], "the two are alike but for how long they run");
    world.place("short-job", 1);
    world.phase("short", "Completed");
    world.pass(3);
    let (reason, message) = world.says("long");
    assert_eq!(reason, "InsufficientCapacity");
    let window = "cluster m1 is under maintenance from 1970-01-12T13:48:20Z to 1970-01-12T13:50:00Z (new kernels): it \
                  would run until 1970-01-12T13:48:2";
    assert!(message.contains(window), "{message}");
    assert!(world.pass(190).is_empty());
    // Nothing else happens than that time passes: the controller asked to be woken.
    let next = crate::decide::decide(&mut world.controller, world.now).next.unwrap();
    assert!(next <= world.now.saturating_add(SignedDuration::from_secs(7)).unwrap(), "{next}");
    assert_eq!(world.pass(7), ["long-job"]);
}

#[test]
fn a_job_that_would_run_into_a_window_is_released_into_the_other_cluster() {
    let mut world = World::new(300);
    keep(&mut world, "m1", 100, 200);
    world.cluster("m2", "100");
    world.job("a", "q", 60);
    world.job("b", "q", 60);
    bounded(&mut world, "c", 9);
    assert_eq!(
        world.settle(),
        ["a-job", "b-job", "c-job"],
        "who does not say how long it runs starts until the notice"
    );
    let mut world = World::new(300);
    keep(&mut world, "m1", 50, 200);
    world.cluster("m2", "100");
    world.job("a", "q", 60);
    world.job("b", "q", 60);
    assert_eq!(world.settle(), ["a-job"], "there is room for one beside the cluster with the window");
    world.pass(3);
    assert!(world.says("b").1.contains("it does not say for how long it runs"), "{:?}", world.says("b"));
}

#[test]
fn what_was_admitted_before_a_window_is_left_alone_in_it() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 4);
    world.phase("a", "Running");
    keep(&mut world, "m1", 1, 200);
    world.pass(150);
    let binding = world.get("ResourceBinding", "a-job");
    assert_eq!(binding["spec"]["clusters"], json!([{"name": "m1", "replicas": 4}]));
    assert_eq!(binding["spec"]["suspension"], json!({"scheduling": false}));
}

#[test]
fn a_window_that_is_taken_away_or_can_not_be_read_keeps_nobody_out() {
    let mut world = World::new(10);
    keep(&mut world, "m1", 0, 1_000);
    world.job("a", "q", 1);
    assert!(world.pass(3).is_empty());
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": null}}}));
    assert_eq!(world.pass(1), ["a-job"]);
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": "tomorrow"}}}));
    world.job("b", "q", 1);
    assert_eq!(world.pass(1), ["b-job"]);
}

fn plan_window(world: &mut World, cluster: &str, more: &Value) {
    let at = |seconds| format_time(world.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    let mut window = json!({"start": at(-1), "end": at(500)});
    json_patch::merge(&mut window, more);
    let annotations = json!({"metadata": {"annotations": {"caldera.dev/maintenance": json!([window]).to_string()}}});
    world.patch("Cluster", cluster, &annotations);
}

/// What who asks is told of m1.
fn look(world: &mut World, job: &str) -> ClusterView {
    let key = Key::new("ns", &format!("{job}-job"));
    explain_job(&mut world.controller, &key, world.now).unwrap().clusters.remove(0)
}

#[test]
fn who_asks_is_told_of_no_room_on_nodes_of_which_nobody_knows_whether_they_are_in_the_window() {
    let mut world = World::new(10);
    world.job("a", "q", 1);
    plan_window(&mut world, "m1", &json!({"nodeGroups": ["a100"]}));
    assert!(world.pass(3).is_empty(), "its summary says nothing of nodes");
    let seen = look(&mut world, "a");
    assert_eq!((seen.fit, seen.free.get("cpu")), (0, Quantity::ZERO));
}

#[test]
fn of_two_windows_the_one_is_told_that_keeps_a_job_out() {
    let mut world = World::new(10);
    let at = |seconds| format_time(world.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    let windows = json!([{"start": at(-9), "end": at(500), "nodeGroups": ["a100"]}, {"start": at(-1), "end": at(500)}])
        .to_string();
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": windows}}}));
    world.job("a", "q", 1);
    assert!(world.pass(3).is_empty());
    let refusal = look(&mut world, "a").refusal.unwrap();
    assert!(refusal.starts_with("cluster m1 is under maintenance from "), "{refusal}");
}

#[test]
fn in_a_window_that_is_kept_for_a_queue_its_jobs_start_and_others_wait_and_are_reported() {
    let mut world = World::new(10);
    world.queue("ops", &json!({}));
    world.queue("kernels", &json!({"parent": "ops"}));
    plan_window(&mut world, "m1", &json!({"queues": ["ops"]}));
    world.job("theirs", "kernels", 1);
    world.job("other", "q", 1);
    assert_eq!(world.settle(), ["theirs-job"]);
    world.pass(3);
    let said = world.says("other").1;
    assert!(said.contains("for all but jobs of queue ops: nothing else starts there until then"), "{said}");
    plan_window(&mut world, "m1", &json!({"queues": ["ops", "q"]}));
    assert_eq!(world.pass(1), ["other-job"]);
}

#[test]
fn in_a_window_of_a_node_group_jobs_start_on_the_nodes_that_are_in_none() {
    let mut world = World::new(20);
    let node = |name: &str, group: Option<&str>| Node {
        name: name.into(),
        labels: group.into_iter().map(|group| ("volcano.sh/nodegroup-name".into(), group.into())).collect(),
        allocatable: [("cpu", 4), ("pods", 100)]
            .map(|(name, amount)| (name, Quantity::from_units(amount)))
            .into_iter()
            .collect(),
        ready: true,
        ..Node::default()
    };
    let nodes = Change::Nodes(vec![node("n0", Some("a100")), node("n1", None)]);
    for update in [Update::Up, Update::Change(nodes), Update::Change(Change::Pods(vec![]))] {
        world.controller.observe(Input::Member("m1".into(), update), world.now);
    }
    plan_window(&mut world, "m1", &json!({"nodeGroups": ["a100"]}));
    world.job("wide", "q", 5);
    assert!(world.pass(3).is_empty());
    let said = world.says("wide").1;
    assert!(said.contains("in cluster m1 maintenance is from ") && said.contains(" of the node groups a100"), "{said}");
    world.job("fits", "q", 4);
    assert_eq!(world.settle(), ["fits-job"]);
    // What is assumed for the first is on the nodes that are not under maintenance: the others are free.
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": null}}}));
    world.job("last", "q", 4);
    assert_eq!(world.pass(1), ["last-job"]);
}
