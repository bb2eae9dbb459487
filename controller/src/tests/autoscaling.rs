//! Node groups that may grow: who is released onto nodes that have to come, and who is told that it never starts.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
    resources::Resources,
};
use caldera_runtime::clock::format_time;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{job_gangs::gang_of, world::World};
use crate::{
    decide::{bindings::job_gangs::PlacementBudget, decide},
    explain::{Verdict, explain_job},
    observe::{Input, Key},
    settings::Settings,
};

fn cores(cpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(100))].into_iter().collect()
}

fn node(name: &str) -> Update {
    let labels = [("pool".to_owned(), "gpu".to_owned())].into();
    let node = Node { name: name.into(), labels, allocatable: cores(4), ready: true, ..Node::default() };
    Update::Change(Change::Node(node))
}

fn see(world: &mut World, member: &str, update: Update) {
    world.controller.observe(Input::Member(member.into(), update), world.now);
}

/// A member with one node of four cores, of a group that may have so many.
fn member(world: &mut World, name: &str, max: u32) {
    world.cluster(name, "4");
    let nodes = Update::Change(Change::Nodes(vec![]));
    for update in [Update::Up, nodes, Update::Change(Change::Pods(vec![])), node("n")] {
        see(world, name, update);
    }
    grow(world, name, max);
}

/// A job of so many pods, each of so many cores.
fn of_cores(name: &str, pods: u32, cores: u32) -> Value {
    let mut job = super::world::job(name, "q", pods);
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        cores.to_string().into();
    job
}

fn grow(world: &mut World, name: &str, max: u32) {
    let groups = json!([{
        "name": "gpu", "nodes": {"pool": "gpu"}, "max": max, "resources": {"cpu": "4", "pods": "100"}, "delay": "10m",
    }]);
    let annotations = json!({"metadata": {"annotations": {"caldera.dev/autoscaled-groups": groups.to_string()}}});
    world.patch("Cluster", name, &annotations);
}

fn world(max: u32) -> World {
    let mut world = World::new(1000);
    member(&mut world, "m1", max);
    world.settle();
    world
}

/// A job of ten cores with an annotation of so many seconds.
fn submit_with(world: &mut World, name: &str, annotation: &str, seconds: i64) {
    let mut job = super::world::job(name, "q", 10);
    job["metadata"]["annotations"] = json!({format!("caldera.dev/{annotation}"): format!("{seconds}s")});
    let job = world.put(job);
    world.bind(&job, 10, true);
}

fn ask(world: &mut World, job: &str) -> (Verdict, Vec<String>) {
    let key = Key::new("ns", &format!("{job}-job"));
    let explanation = explain_job(&mut world.controller, &key, world.now).unwrap();
    (explanation.verdict, explanation.notes)
}

fn goes_to(world: &World, job: &str) -> Vec<String> {
    let binding = &world.controller.objects.bindings[&Key::new("ns", &format!("{job}-job"))];
    world.controller.capacity.list_assumed_clusters(binding.id.as_str())
}

#[test]
fn a_gang_that_fits_only_once_nodes_have_come_is_released_onto_them_and_nobody_else_gets_them() {
    let mut world = world(4);
    world.job("a", "q", 10);
    assert_eq!(world.settle(), ["a-job"]);
    let (verdict, notes) = ask(&mut world, "a");
    assert_eq!(verdict, Verdict::Admitted);
    assert!(notes.contains(&"waits for 2 more nodes of group gpu in m1, about 10m".to_owned()), "{notes:?}");
    let large = world.put(of_cores("b", 2, 3));
    world.bind(&large, 2, true);
    assert!(world.pass(3).is_empty(), "a node and a half are left");
    let (reason, message) = world.says("b");
    assert_eq!(reason, "InsufficientCapacity", "{message}");
    world.job("c", "q", 6);
    assert_eq!(world.settle(), ["c-job"]);
    assert!(world.used("q") == "16" && world.settle().is_empty());
    // Once a has ended there is room again, though nobody knows on which nodes.
    world.place("a-job", 10);
    world.phase("a", "Completed");
    assert_eq!(world.pass(3), ["b-job"]);
}

#[test]
fn a_gang_is_not_released_onto_nodes_that_come_too_late_before_a_window() {
    let mut world = world(4);
    let now = world.now;
    let at = |seconds| format_time(now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    let windows = json!([{"start": at(900), "end": at(1_000)}]).to_string();
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": windows}}}));
    submit_with(&mut world, "long", "running-estimate", 310);
    assert!(world.pass(3).is_empty());
    let (_, message) = world.says("long");
    let end = format!("it would run until {}, since its nodes take 10m to come", at(911));
    assert!(message.contains(&format!("cluster m1 is under maintenance from {}", at(900))), "{message}");
    assert!(message.contains(&end), "{message}");
    submit_with(&mut world, "short", "running-estimate", 250);
    assert_eq!(world.settle(), ["short-job"]);
}

#[test]
fn a_gang_is_not_released_onto_nodes_that_come_once_its_run_is_over() {
    let mut world = world(4);
    submit_with(&mut world, "short", "max-run-time", 600);
    assert!(world.pass(3).is_empty());
    let (reason, message) = world.says("short");
    assert_eq!(reason, "InsufficientCapacity", "{message}");
    assert!(
        message.contains("it waits for no more nodes in m1: they take 10m, and its run is ended after 10m"),
        "{message}"
    );
    submit_with(&mut world, "long", "max-run-time", 601);
    assert_eq!(world.settle(), ["long-job"]);
}

#[test]
fn a_run_limit_is_of_the_release_and_not_of_when_nodes_have_come() {
    let mut world = world(4);
    let now = world.now;
    let at = |seconds| format_time(now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    let windows = json!([{"start": at(900), "end": at(1_000)}]).to_string();
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {"caldera.dev/maintenance": windows}}}));
    submit_with(&mut world, "a", "max-run-time", 800);
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn what_fits_now_goes_where_it_need_not_wait_for_nodes() {
    let mut world = world(9);
    member(&mut world, "m2", 1);
    see(&mut world, "m2", node("n2"));
    world.job("a", "q", 6);
    world.job("b", "q", 7);
    assert_eq!(world.settle(), ["a-job", "b-job"]);
    assert_eq!(goes_to(&world, "a"), ["m2"]);
    assert!(ask(&mut world, "a").1.is_empty());
    assert_eq!(goes_to(&world, "b"), ["m1"], "its four cores and the two that are left of m2's would not do");
}

#[test]
fn a_job_is_never_told_that_it_never_starts_while_a_group_could_grow_enough_for_it() {
    let mut world = world(2);
    world.job("a", "q", 12);
    assert!(world.pass(3).is_empty());
    assert_eq!(ask(&mut world, "a").0, Verdict::CanNeverStart);
    assert_eq!(world.says("a").0, "ExceedsFleet");
    grow(&mut world, "m1", 3);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 12);
    world.phase("a", "Running");
    world.job("b", "q", 12);
    world.pass(3);
    assert_eq!(ask(&mut world, "b").0, Verdict::Waiting);
    // A member of which nobody knows the nodes may have all that its group may have.
    see(&mut world, "m1", Update::Down("it does not answer".into()));
    world.pass(3);
    assert_eq!(ask(&mut world, "b").0, Verdict::Waiting);
    // One pod that no node of the group takes never starts.
    let mut world = self::world(9);
    let large = world.put(of_cores("c", 1, 5));
    world.bind(&large, 1, true);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.says("c").0, "NeverFits", "{:?}", world.says("c"));
}

/// Places all of a job in m1, as the scheduler does.
fn place(world: &mut World, job: &str, pods: u32) {
    let share = json!({"tasks": {"worker": {"replicas": pods, "minAvailable": pods}}, "minAvailable": pods});
    let placed = json!({
        "metadata": {"annotations": {"caldera.dev/plan": json!({"clusters": {"m1": share}}).to_string()}},
        "spec": {"clusters": [{"name": "m1", "replicas": pods}]},
        "status": {"lastScheduledTime": format_time(world.now)},
    });
    world.patch("ResourceBinding", &format!("{job}-job"), &placed);
    world.settle();
}

fn eviction(world: &World, job: &str) -> Value {
    world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"]["caldera.dev/eviction"].clone()
}

#[test]
fn a_gang_that_waits_for_nodes_has_their_delay_beside_the_time_to_start() {
    let mut world = world(4);
    world.job("a", "q", 10);
    world.settle();
    place(&mut world, "a", 10);
    world.pass(600);
    assert!(eviction(&world, "a").is_null());
    // They came at last, and its pods start: nothing is late then.
    (1..=2).for_each(|at| see(&mut world, "m1", node(&format!("n{at}"))));
    assert!(ask(&mut world, "a").1.is_empty(), "it waits for no node");
    world.pass(290);
    assert!(eviction(&world, "a").is_null());
    world.pass(75);
    let record: Value = serde_json::from_str(eviction(&world, "a").as_str().unwrap()).unwrap();
    assert_eq!(record["reason"], "PodsReadyTimeout", "{record}");
}

#[test]
fn pods_that_are_bound_wait_for_no_node_and_the_next_job_gets_what_may_come() {
    let mut world = world(2);
    world.job("a", "q", 4);
    world.settle();
    place(&mut world, "a", 4);
    for pod in 0..4 {
        let owner = Owner {
            group: "batch.volcano.sh".into(),
            kind: "Job".into(),
            name: "a".into(),
            task: Some("worker".into()),
        };
        let pod = Pod {
            namespace: "ns".into(),
            name: format!("a-worker-{pod}"),
            node: Some("n".into()),
            request: [("cpu", Quantity::from_units(1))].into_iter().collect(),
            finished: false,
            owner: Some(owner),
        };
        see(&mut world, "m1", Update::Change(Change::Pod(pod)));
    }
    world.job("b", "q", 4);
    assert_eq!(world.settle(), ["b-job"]);
    assert_eq!(ask(&mut world, "b").1, ["waits for 1 more node of group gpu in m1, about 10m"]);
}

/// Its question has no answer, and the one before it took two placements.
#[test]
fn a_gang_of_which_a_job_is_gone_costs_a_pass_one_placement_of_each() {
    let mut world = world(4);
    world.job("a", "q", 10);
    assert_eq!(world.settle(), ["a-job"]);
    gang_of(&mut world, 2, 1);
    world.controller.objects.workloads.retain(|reference, _| reference.name != "h-a-1");
    world.controller.jobs.gangs.budget = PlacementBudget::of(3);
    let decisions = decide(&mut world.controller, world.now);
    assert_eq!((decisions.releases, decisions.is_unfinished), (0, false));
}

#[test]
fn groups_that_can_not_be_read_and_those_that_karmada_scheduler_would_not_know_count_for_nothing() {
    let mut world = world(4);
    let wrong = json!({"metadata": {"annotations": {"caldera.dev/autoscaled-groups": "[{}]"}}});
    world.patch("Cluster", "m1", &wrong);
    world.job("a", "q", 10);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.says("a").0, "ExceedsFleet");
    grow(&mut world, "m1", 4);
    assert_eq!(world.settle(), ["a-job"]);
    let mut other = self::world(4);
    Settings { stock_scheduler: true, ..Settings::default() }.apply_to(&mut other.controller);
    other.job("a", "q", 10);
    assert!(other.pass(3).is_empty());
    assert_eq!(ask(&mut other, "a").0, Verdict::CanNeverStart);
}
