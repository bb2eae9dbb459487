//! Jobs leave clusters whose nodes are really hot.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, NodeUse, Pod},
    load_aware::LoadPolicy,
    quantity::Quantity,
    time::EpochSeconds,
};
use caldera_crds::names::caldera::EVICTION;
use serde_json::{Value, json};

use super::{
    fleet::report,
    world::{World, job},
};
use crate::observe::Input;

const INTERVAL: i64 = 60;

/// Two members of one node of 100 cpus each, of which everything is seen, and in m1 a job of 40 pods beside one that
/// stays.
fn world() -> World {
    let mut world = World::empty();
    world.queue("q", &json!({}));
    for name in ["m1", "m2"] {
        world.cluster(name, "100");
    }
    see_members(&mut world);
    choose(&mut world, true);
    submit(&mut world, "a", json!({"volcano.sh/preemptable": "true"}));
    submit(&mut world, "stays", json!({"volcano.sh/preemptable": "false"}));
    world
}

fn see_members(world: &mut World) {
    for name in ["m1", "m2"] {
        world.controller.observe(Input::Member(name.into(), Update::Up), world.now);
        let allocatable = [("cpu", 100), ("memory", 1_000), ("pods", 1_000)];
        let allocatable = allocatable.into_iter().map(|(name, amount)| (name, Quantity::from_units(amount))).collect();
        let node = Node { name: "n".into(), allocatable, ready: true, ..Node::default() };
        report(world, name, Change::Nodes(vec![node]));
        report(world, name, Change::Pods(vec![]));
    }
    world.pass(5);
}

fn choose(world: &mut World, enabled: bool) {
    let policy = LoadPolicy { enabled, interval: INTERVAL, samples: 2, ..LoadPolicy::default() };
    world.controller.load_aware.set_policy(policy);
}

fn submit(world: &mut World, name: &str, annotations: Value) {
    let mut one = job(name, "q", 40);
    one["metadata"]["annotations"] = annotations;
    let one = world.put(one);
    world.bind(&one, 40, true);
    let binding = format!("{name}-job");
    assert_eq!(world.settle(), [binding.as_str()]);
    world.place(&binding, 40);
    world.phase(name, "Running");
    world.settle();
}

/// Goes on for so many seconds, in which the members' nodes use so many cpus.
fn run(world: &mut World, seconds: i64, used: [i64; 2]) {
    for _ in 0..seconds / 30 {
        for (name, cpu) in ["m1", "m2"].into_iter().zip(used) {
            let (cpu, memory) = (Quantity::from_units(cpu), Quantity::from_units(1));
            let measured = vec![NodeUse { node: "n".into(), cpu, memory }];
            let update = Update::NodeUse(measured, EpochSeconds::new(world.now.as_second()));
            world.controller.observe(Input::Member(name.into(), update), world.now);
        }
        world.pass(30);
    }
}

fn eviction(world: &World, binding: &str) -> Value {
    let record = &world.get("ResourceBinding", binding)["metadata"]["annotations"][EVICTION];
    record.as_str().map_or(Value::Null, |record| serde_json::from_str(record).unwrap())
}

#[test]
fn a_job_leaves_a_hot_cluster_with_a_record_an_event_and_a_reason_and_starts_elsewhere() {
    let mut world = world();
    run(&mut world, 3 * INTERVAL, [80, 0]);
    assert!(eviction(&world, "a-job").is_null(), "that is not above the target");
    run(&mut world, 2 * INTERVAL, [90, 0]);
    let record = eviction(&world, "a-job");
    assert_eq!((&record["reason"], &record["avoid"]), (&json!("Rescheduled"), &json!(["m1"])), "{record}");
    let why = "cluster m1 really uses 90 % of its cpu, and 80 % is hot; there is room in m2";
    assert_eq!(record["message"], why);
    assert!(world.get("ResourceBinding", "a-job")["spec"]["clusters"].as_array().is_none_or(Vec::is_empty));
    let reported = world.events();
    assert!(reported.contains(&("Normal".to_owned(), "Rescheduled".to_owned())), "{reported:?}");
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains(why) && message.contains("once its old copies are gone"), "{message}");
    // Once these are gone, and their member has forgotten them.
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    assert_eq!(world.pass(200), ["a-job"]);
}

#[test]
fn a_job_that_was_moved_is_left_alone_for_the_cooldown_also_after_a_restart() {
    let mut world = world();
    run(&mut world, 3 * INTERVAL, [90, 0]);
    let first = eviction(&world, "a-job");
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    assert_eq!(world.pass(200), ["a-job"]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m2", "replicas": 40}]}}));
    world.phase("a", "Running");
    world.restart();
    see_members(&mut world);
    choose(&mut world, true);
    let request = [("cpu", Quantity::from_units(40)), ("pods", Quantity::from_units(1))].into_iter().collect();
    let (name, node) = ("other".to_owned(), Some("n".to_owned()));
    report(&mut world, "m2", Change::Pod(Pod { name, node, request, ..Pod::default() }));
    run(&mut world, 4 * INTERVAL, [0, 95]);
    assert_eq!(eviction(&world, "a-job"), first);
    // After it, it does not go back to where it came from.
    let policy = LoadPolicy { enabled: true, interval: INTERVAL, samples: 2, cooldown: 0, ..LoadPolicy::default() };
    world.controller.load_aware.set_policy(policy);
    run(&mut world, 4 * INTERVAL, [0, 95]);
    assert_eq!(eviction(&world, "a-job"), first);
    // That is all that keeps it.
    let record = json!({"metadata": {"annotations": {EVICTION: first.to_string().replace("[\"m1\"]", "[]")}}});
    world.patch("ResourceBinding", "a-job", &record);
    run(&mut world, 4 * INTERVAL, [0, 95]);
    assert_eq!(eviction(&world, "a-job")["avoid"], json!(["m2"]));
}

#[test]
fn nobody_is_moved_unless_an_admin_chose_it_and_it_may_go_where_there_is_room() {
    let moved = |change: fn(&mut World)| {
        let mut world = world();
        change(&mut world);
        run(&mut world, 4 * INTERVAL, [90, 0]);
        eviction(&world, "a-job")["reason"] == "Rescheduled"
    };
    assert!(moved(|_| {}));
    assert!(!moved(|world| choose(world, false)));
    assert!(!moved(|world| {
        // It has room for less than the job.
        let request = [("cpu", Quantity::from_units(70)), ("pods", Quantity::from_units(1))].into_iter().collect();
        let node = Some("n".to_owned());
        report(world, "m2", Change::Pod(Pod { name: "x".into(), node, request, ..Pod::default() }));
    }));
    assert!(!moved(|world| {
        world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/clusters": "m1"}}}));
    }));
    assert!(!moved(|world| {
        world.patch("Job", "a", &json!({"metadata": {"annotations": {"volcano.sh/preemptable": "false"}}}));
    }));
    assert!(!moved(|world| {
        let taints = json!([{"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}]);
        world.patch("Cluster", "m2", &json!({"spec": {"taints": taints}}));
    }));
    // Who runs keeps what its queue would not give it again.
    assert!(!moved(|world| world.queue("q", &json!({"capability": {"cpu": "70"}}))));
    assert!(moved(|world| world.queue("q", &json!({"capability": {"cpu": "80"}}))));
    assert!(!moved(|world| {
        let only = json!({"metadata": {"annotations": {"caldera.dev/max-job": "cpu=39"}}});
        world.patch("Queue", "q", &only);
    }));
    assert!(!moved(|world| {
        let paused = json!({"metadata": {"annotations": {"caldera.dev/paused": "upgrade"}}});
        world.queue("default", &json!({}));
        world.patch("Queue", "default", &paused);
    }));
}

#[test]
fn what_a_job_avoids_since_it_was_moved_is_kept_when_it_is_taken_off_its_clusters_for_another_reason() {
    let mut world = world();
    run(&mut world, 3 * INTERVAL, [90, 0]);
    let first = eviction(&world, "a-job");
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    assert_eq!(world.pass(200), ["a-job"]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m2", "replicas": 40}]}}));
    world.phase("a", "Running");
    let suspended = |world: &mut World, value: Value| {
        world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}}));
        world.pass(5);
    };
    suspended(&mut world, json!("true"));
    suspended(&mut world, json!(null));
    let later = eviction(&world, "a-job");
    assert_eq!((&later["reason"], later.get("avoid")), (&json!("Suspended"), None));
    assert_eq!(later["moved"], json!({"at": first["at"], "avoid": ["m1"]}), "{later}");
}
