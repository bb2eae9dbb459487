//! Gangs that are placed and do not start.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
};
use caldera_runtime::clock::format_time;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    explain::{Verdict, explain_job},
    observe::{Input, Key},
};

/// Two members of which everything is seen.
fn world() -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    for member in ["m1", "m2"] {
        let cpu = |units| [("cpu", Quantity::from_units(units)), ("pods", Quantity::from_units(100))];
        let node =
            Node { name: "n".into(), allocatable: cpu(50).into_iter().collect(), ready: true, ..Node::default() };
        for update in [Update::Up, Update::Change(Change::Nodes(vec![node])), Update::Change(Change::Pods(vec![]))] {
            world.controller.observe(Input::Member(member.into(), update), world.now);
        }
    }
    world
}

/// `pods` more pods of the job are on a node.
fn starts(world: &mut World, member: &str, job: &str, pods: u32) {
    for pod in 0..pods {
        let owner = Owner {
            group: "batch.volcano.sh".into(),
            kind: "Job".into(),
            name: job.into(),
            task: Some("worker".into()),
        };
        let pod = Pod {
            namespace: "ns".into(),
            name: format!("{job}-worker-{pod}"),
            node: Some("n".into()),
            request: [("cpu", Quantity::from_units(1))].into_iter().collect(),
            finished: false,
            owner: Some(owner),
        };
        world.controller.observe(Input::Member(member.into(), Update::Change(Change::Pod(pod))), world.now);
    }
}

#[test]
fn who_was_requeued_was_evicted_no_more_often_than_before() {
    let mut world = world();
    split(&mut world);
    world.pass(301);
    let read = |world: &World| -> Value {
        let text = &world.get("ResourceBinding", "a-job")["metadata"]["annotations"]["caldera.dev/eviction"];
        serde_json::from_str(text.as_str().unwrap_or("null")).unwrap()
    };
    assert_eq!((&read(&world)["count"], &read(&world)["requeues"]), (&json!(0), &json!(1)), "{}", read(&world));
}

/// Three pods in m1 and two in m2, placed now.
fn split(world: &mut World) {
    world.job("a", "q", 5);
    assert_eq!(world.settle(), ["a-job"]);
    place_split(world);
}

fn place_split(world: &mut World) {
    let share =
        |pods: u32| json!({"tasks": {"worker": {"replicas": pods, "minAvailable": pods}}, "minAvailable": pods});
    let plan = json!({"clusters": {"m1": share(3), "m2": share(2)}});
    let placed = json!({
        "metadata": {"annotations": {"caldera.dev/plan": plan.to_string()}},
        "spec": {"clusters": [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 2}]},
        "status": {"lastScheduledTime": format_time(world.now)},
    });
    world.patch("ResourceBinding", "a-job", &placed);
    world.settle();
}

fn eviction(world: &World) -> Value {
    let record = &world.get("ResourceBinding", "a-job")["metadata"]["annotations"]["caldera.dev/eviction"];
    record.as_str().map_or(Value::Null, |record| serde_json::from_str(record).unwrap())
}

#[test]
fn a_gang_of_which_a_part_does_not_start_is_withdrawn_as_a_whole() {
    let mut world = world();
    split(&mut world);
    starts(&mut world, "m1", "a", 3);
    world.pass(298);
    assert!(eviction(&world).is_null());
    world.pass(5);
    let record = eviction(&world);
    assert_eq!((&record["reason"], &record["avoid"]), (&json!("PodsReadyTimeout"), &json!(["m2"])));
    let binding = world.get("ResourceBinding", "a-job");
    assert!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
    assert_eq!(binding["spec"]["suspension"]["scheduling"], true);
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains("0 of the 2 pods needed in m2 are on nodes"), "{message}");
    // In line again after a while, with its age. Its part in m1 did start, and ends in that time.
    assert!(world.pass(20).is_empty());
    for pod in 0..3 {
        let gone = Change::PodGone("ns".into(), format!("a-worker-{pod}"));
        world.controller.observe(Input::Member("m1".into(), Update::Change(gone)), world.now);
    }
    assert_eq!(world.pass(100), ["a-job"]);
}

/// Nothing else says why: its member makes no pod that could.
#[test]
fn who_does_not_start_and_names_a_class_that_there_is_not_is_told_of_it() {
    let mut world = world();
    let mut a = super::world::job("a", "q", 5);
    a["spec"]["priorityClassName"] = "nowhere".into();
    let a = world.put(a);
    world.bind(&a, 5, true);
    assert_eq!(world.settle(), ["a-job"]);
    place_split(&mut world);
    world.pass(303);
    let message = eviction(&world)["message"].as_str().unwrap_or_default().to_owned();
    let why = " s; PriorityClass nowhere does not exist: priority 0 is assumed, and members without it refuse its pods";
    assert!(message.contains(why), "{message}");
}

/// As Karmada's taint manager does; karmada-scheduler finds no other place for the rest.
#[test]
fn a_gang_of_which_a_cluster_was_taken_away_is_withdrawn_where_karmada_scheduler_places_too() {
    let mut world = world();
    world.controller.objects.admits_whole_gangs = true;
    split(&mut world);
    starts(&mut world, "m1", "a", 3);
    starts(&mut world, "m2", "a", 2);
    world.patch("Job", "a", &json!({"status": {"state": {"phase": "Running"}, "running": 5}}));
    world.pass(1000);
    assert!(eviction(&world).is_null());
    world.controller.observe(Input::Member("m2".into(), Update::Change(Change::Pods(vec![]))), world.now);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m1", "replicas": 3}]}}));
    world.patch("Job", "a", &json!({"status": {"state": {"phase": "Running"}, "running": 3}}));
    world.pass(120);
    assert_eq!(eviction(&world)["reason"], "PodsReadyTimeout");
    let binding = world.get("ResourceBinding", "a-job");
    assert!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
}

/// Found by a reader: of a gang that hung half started nobody said which part, and until when it is waited for.
#[test]
fn an_explanation_says_how_many_pods_are_on_nodes_and_until_when_the_others_have_time() {
    let mut world = world();
    split(&mut world);
    let placed: jiff::Timestamp =
        world.get("ResourceBinding", "a-job")["status"]["lastScheduledTime"].as_str().unwrap().parse().unwrap();
    starts(&mut world, "m1", "a", 3);
    world.pass(10);
    let explain = |world: &mut World| explain_job(&mut world.controller, &Key::new("ns", "a-job"), world.now).unwrap();
    let said = explain(&mut world);
    let parts: Vec<_> = said.placed.iter().map(|part| (part.cluster.as_str(), part.replicas, part.on_nodes)).collect();
    assert_eq!(parts, [("m1", 3, Some(3)), ("m2", 2, Some(0))]);
    let until = format_time(placed + SignedDuration::from_secs(300));
    assert_eq!((said.verdict, said.ready_by), (Verdict::Placed, Some(until)));
    starts(&mut world, "m2", "a", 2);
    assert_eq!(explain(&mut world).ready_by, None);
}

#[test]
fn how_long_a_part_has_can_be_said() {
    let mut world = world();
    world.controller.deadlines.start.set_timeout(SignedDuration::from_secs(5));
    split(&mut world);
    starts(&mut world, "m1", "a", 3);
    world.pass(4);
    assert!(eviction(&world).is_null());
    world.pass(2);
    assert_eq!(eviction(&world)["avoid"], json!(["m2"]));
}

#[test]
fn a_gang_that_starts_in_time_or_whose_pods_only_pull_their_images_stays() {
    let mut world = world();
    split(&mut world);
    starts(&mut world, "m1", "a", 3);
    world.pass(200);
    starts(&mut world, "m2", "a", 2);
    world.pass(2000);
    assert!(eviction(&world).is_null());
}

#[test]
fn what_runs_is_not_withdrawn_for_a_part_that_its_member_restarts() {
    let mut world = world();
    split(&mut world);
    world.phase("a", "Running");
    world.pass(2000);
    assert!(eviction(&world).is_null());
}

#[test]
fn where_pods_can_not_be_seen_the_phase_must_do_and_gets_longer() {
    let mut world = world();
    split(&mut world);
    starts(&mut world, "m1", "a", 3);
    world.controller.observe(Input::Member("m2".into(), Update::Down("away".into())), world.now);
    world.pass(1700);
    assert!(eviction(&world).is_null());
    world.pass(200);
    assert_eq!(eviction(&world)["avoid"], json!(["m2"]));
}

#[test]
fn a_restarted_controller_looks_before_it_withdraws() {
    let mut world = world();
    split(&mut world);
    world.pass(299);
    world.restart();
    world.pass(30);
    assert!(eviction(&world).is_null(), "nothing of the members was seen yet");
}
