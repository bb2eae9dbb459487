//! How long a run may take: its limit, the warning, the end, and attempts to gain time.

mod attacks;

use caldera_crds::names::caldera::{ADMISSION, EVICTION, GATE, MAX_RUN_TIME};
use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::World;
use crate::decide::decide;

const US: &str = "3.me";

/// Queue `q` of four cpus, whose runs may take so long.
fn world(limit: &str) -> World {
    let mut world = World::new(4);
    world.controller.jobs.epoch = Some(US.into());
    limit_queue(&mut world, "q", limit);
    world
}

fn limit_queue(world: &mut World, queue: &str, limit: &str) {
    world.patch("Queue", queue, &json!({"metadata": {"annotations": {MAX_RUN_TIME: limit}}}));
}

fn limit_job(world: &mut World, job: &str, limit: &str) {
    world.patch("Job", job, &json!({"metadata": {"annotations": {MAX_RUN_TIME: limit}}}));
}

/// A job of so many pods that runs.
fn run(world: &mut World, job: &str, pods: u32) {
    world.job(job, "q", pods);
    world.settle();
    start(world, job, pods);
}

fn start(world: &mut World, job: &str, pods: u32) {
    world.place(&format!("{job}-job"), pods);
    world.phase(job, "Running");
    world.settle();
}

fn annotation<'a>(world: &'a World, job: &str, name: &str) -> &'a Value {
    &world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"][name]
}

/// A record on the binding of a job.
fn record(world: &World, job: &str, name: &str) -> Value {
    annotation(world, job, name).as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

fn run_of(world: &World, job: &str) -> Value {
    record(world, job, ADMISSION)["run"].clone()
}

fn clusters(world: &World, job: &str) -> usize {
    world.get("ResourceBinding", &format!("{job}-job"))["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

fn count_events(world: &World, reason: &str) -> usize {
    world.events().iter().filter(|(kind, reported)| kind == "Warning" && reported == reason).count()
}

/// Its copies are gone, and Karmada says so.
fn lose_copies(world: &mut World, job: &str) {
    world.patch("ResourceBinding", &format!("{job}-job"), &json!({"status": {"aggregatedStatus": null}}));
    world.patch("Job", job, &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
}

fn assert_ended_by_its_limit(world: &World, job: &str) {
    assert_eq!((clusters(world, job), annotation(world, job, GATE)), (0, &json!("closed")), "{job}");
    assert_eq!(record(world, job, EVICTION)["reason"], "RunTimeExceeded");
}

/// Found by a reader: while their pods ended, the controller looked at all of them in each pass.
#[test]
fn hundreds_of_runs_that_end_together_leave_the_controller_at_rest_while_their_pods_end() {
    let mut world = World::new(200);
    world.cluster("m1", "200");
    world.controller.jobs.epoch = Some(US.into());
    limit_queue(&mut world, "q", "60s");
    (0..150).for_each(|at| world.job(&format!("j{at}"), "q", 1));
    world.settle();
    (0..150).for_each(|at| start(&mut world, &format!("j{at}"), 1));
    world.pass(70);
    (0..150).for_each(|at| assert_ended_by_its_limit(&world, &format!("j{at}")));
    world.pass(30);
    let written = world.writes.len();
    for _ in 0..3 {
        let decisions = decide(&mut world.controller, world.now);
        assert!(decisions.writes.is_empty(), "{:?}", decisions.writes.first());
        assert!(decisions.next.is_none_or(|next| next > world.now), "there is more to do at once");
    }
    world.pass(20);
    assert_eq!(world.writes.len(), written);
}

/// Found by a reader: a job that the scheduler had not placed in time was ended for good.
#[test]
fn a_job_that_was_never_placed_has_not_run_and_is_requeued() {
    let mut world = world("60s");
    world.job("a", "q", 4);
    world.settle();
    world.pass(70);
    assert_eq!(record(&world, "a", EVICTION)["reason"], "NotPlaced");
    assert_eq!(count_events(&world, "RunTimeExceeded"), 0);
}

#[test]
fn a_run_is_warned_at_nine_tenths_then_ended_and_others_start() {
    let mut world = world("100s");
    run(&mut world, "a", 4);
    world.job("b", "q", 4);
    let from = run_of(&world, "a")["from"].as_i64().unwrap();
    assert_eq!(run_of(&world, "a"), json!({"from": from, "seconds": 100}));
    assert!(world.pass(5).is_empty());
    assert!(world.says("a").1.contains("; it may run for 1m40s and is ended at 1970-"), "{:?}", world.says("a"));
    assert!(world.pass(from + 89 - world.now.as_second()).is_empty());
    assert_eq!(count_events(&world, "RunTimeEnding"), 0);
    world.pass(1);
    assert_eq!(count_events(&world, "RunTimeEnding"), 1);
    assert!(world.pass(9).is_empty());
    assert_eq!((clusters(&world, "a"), count_events(&world, "RunTimeEnding")), (1, 1));
    assert_eq!(world.pass(2), ["b-job"]);
    assert_ended_by_its_limit(&world, "a");
    assert_eq!((world.used("q").as_str(), count_events(&world, "RunTimeExceeded")), ("4", 1));
    let (reason, message) = world.says("a");
    assert_eq!(reason, "RunTimeExceeded");
    assert!(message.starts_with("it ran for 1m40s, as long as it may: it was ended"), "{message}");
}

#[test]
fn a_volcano_job_says_that_it_was_terminated_once_its_copies_are_gone_and_its_ttl_counts_from_then() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": 30}}));
    world.pass(12);
    assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], "Running", "its copies are there");
    lose_copies(&mut world, "a");
    world.begin_anew();
    world.pass(7);
    let state = &world.get("Job", "a")["status"]["state"];
    assert_eq!((&state["phase"], &state["reason"]), (&json!("Terminated"), &json!("RunTimeExceeded")));
    assert_eq!(world.says("a").0, "Finished");
    assert!(world.pass(20).is_empty());
    world.pass(12);
    assert!(world.get("Job", "a").is_null());
}

#[test]
fn a_restart_forgets_no_limit() {
    let mut world = world("100s");
    run(&mut world, "a", 4);
    let run = run_of(&world, "a");
    world.pass(50);
    world.begin_anew();
    world.pass(45);
    assert_eq!((run_of(&world, "a"), count_events(&world, "RunTimeEnding")), (run, 1));
    world.begin_anew();
    world.pass(6);
    assert_ended_by_its_limit(&world, "a");
    world.begin_anew();
    assert!(world.pass(700).is_empty());
    assert_eq!(clusters(&world, "a"), 0);
}

#[test]
fn a_run_that_ended_while_no_controller_ran_is_ended_at_once() {
    let mut world = world("100s");
    run(&mut world, "a", 4);
    world.now = world.now.saturating_add(jiff::SignedDuration::from_secs(500)).unwrap();
    world.begin_anew();
    world.settle();
    assert_ended_by_its_limit(&world, "a");
}

#[test]
fn an_end_that_is_refused_is_tried_again() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.refuse_evictions = vec![Failure::Transient("not now".into())];
    world.pass(11);
    assert_eq!((clusters(&world, "a"), world.used("q").as_str()), (1, "4"));
    world.pass(20);
    assert_ended_by_its_limit(&world, "a");
}

#[test]
fn the_smallest_limit_of_job_queue_and_parents_counts() {
    let mut world = world("60s");
    world.queue("leaf", &json!({"parent": "q"}));
    limit_queue(&mut world, "leaf", "2h");
    for (name, own, seconds) in [("a", None, 60), ("b", Some("30s"), 30), ("c", Some("soon"), 60)] {
        world.job(name, "leaf", 1);
        own.into_iter().for_each(|own| limit_job(&mut world, name, own));
        world.settle();
        assert_eq!(run_of(&world, name)["seconds"], seconds, "{name}");
    }
}

#[test]
fn what_has_no_limit_runs_on_and_its_record_says_nothing_of_one() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    assert!(run_of(&world, "a").is_null());
    // What its user says later counts for later runs.
    limit_job(&mut world, "a", "5s");
    world.pass(60);
    assert_eq!(clusters(&world, "a"), 1);
}

#[test]
fn a_job_of_a_priority_class_that_its_queue_does_not_take_by_now_is_blocked_and_says_which_it_takes() {
    let mut world = World::new(4);
    world.job("full", "q", 4);
    world.settle();
    world.job("a", "q", 4);
    world.patch("Job", "a", &json!({"spec": {"priorityClassName": "urgent"}}));
    world.pass(2);
    let allow = |world: &mut World, classes: &str| {
        world.patch("Queue", "q", &json!({"metadata": {"annotations": {"caldera.dev/priority-classes": classes}}}));
    };
    allow(&mut world, "batch");
    world.delete("ResourceBinding", "full-job");
    assert!(world.pass(3).is_empty());
    let reported = "queue q takes no jobs of priority class urgent: of batch alone";
    let (reason, message) = world.says("a");
    assert!(reason == "PriorityClassNotAllowed" && message.starts_with(reported), "{reason}: {message}");
    allow(&mut world, "batch urgent");
    assert!(world.pass(40).is_empty());
    let status = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(status.contains("is no name of a priority class"), "{status}");
    allow(&mut world, "batch,urgent");
    assert_eq!(world.pass(3), ["a-job"]);
}

#[test]
fn a_job_that_runs_gets_no_more_by_a_priority_class_that_its_queue_does_not_take() {
    let mut world = World::new(8);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Running");
    let classes = |classes: &str| json!({"metadata": {"annotations": {"caldera.dev/priority-classes": classes}}});
    world.patch("Queue", "q", &classes("batch"));
    world.patch("Job", "a", &json!({"spec": {"priorityClassName": "urgent"}}));
    let mut larger = world.get("Job", "a")["spec"]["tasks"].clone();
    larger[0]["replicas"] = 4.into();
    world.patch("Job", "a", &json!({"spec": {"tasks": larger, "minAvailable": 4}}));
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"replicas": 4}}));
    assert!(world.pass(60).is_empty());
    assert_eq!(world.used("q"), "2");
    world.patch("Queue", "q", &classes("urgent"));
    world.pass(5);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_job_that_asks_for_longer_than_its_queue_allows_by_now_is_blocked_and_one_that_cannot_be_read_takes_none() {
    let mut world = World::new(4);
    world.job("full", "q", 4);
    world.settle();
    world.job("a", "q", 4);
    limit_job(&mut world, "a", "3h");
    world.pass(2);
    limit_queue(&mut world, "q", "2h");
    world.delete("ResourceBinding", "full-job");
    assert!(world.pass(3).is_empty());
    assert_eq!(
        world.says("a"),
        ("ExceedsMaxRunTime".into(), "asks to run for 3h, longer than the 2h that queue q allows".into())
    );
    limit_queue(&mut world, "q", "2 hours");
    limit_job(&mut world, "a", "1h");
    assert!(world.pass(40).is_empty());
    assert_eq!(world.says("a").1, "queue q takes no job: how long one may run can not be read");
    let status = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(status.contains("is no time that a job may run"), "{status}");
    limit_queue(&mut world, "q", "2h");
    assert_eq!(world.pass(3), ["a-job"]);
    assert_eq!(run_of(&world, "a")["seconds"], 3600);
}

#[test]
fn a_limit_that_a_queue_has_later_counts_for_new_runs_only() {
    let mut world = world("100s");
    run(&mut world, "a", 2);
    limit_queue(&mut world, "q", "10s");
    run(&mut world, "b", 2);
    world.pass(15);
    assert_ended_by_its_limit(&world, "b");
    assert_eq!((clusters(&world, "a"), &run_of(&world, "a")["seconds"]), (1, &json!(100)));
}

#[test]
fn neither_commands_nor_annotations_start_it_again_and_a_new_job_of_its_name_does() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.pass(12);
    lose_copies(&mut world, "a");
    // Not even its user who says that it has ended otherwise, or not at all.
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/end-as": "Completed"}}}));
    world.pass(3);
    assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], "Terminated");
    world.patch("Job", "a", &json!({"status": {"state": {"phase": "Pending"}}}));
    for (name, value) in [
        ("caldera.dev/end-as", json!(null)),
        ("caldera.dev/suspended", json!("true")),
        ("caldera.dev/suspended", json!(null)),
        (MAX_RUN_TIME, json!("90h")),
    ] {
        world.patch("Job", "a", &json!({"metadata": {"annotations": {name: value}}}));
        assert!(world.pass(5).is_empty(), "{name}");
    }
    for action in ["ResumeJob", "RestartJob", "AbortJob", "ResumeJob"] {
        world.put(json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
            "metadata": {"namespace": "ns", "name": action.to_lowercase()}, "action": action,
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": ""},
        }));
        assert!(world.pass(10).is_empty(), "{action}");
    }
    assert!(count_events(&world, "CommandRefused") > 0, "they are told why");
    limit_queue(&mut world, "q", "100h");
    world.begin_anew();
    assert!(world.pass(700).is_empty());
    world.delete("Job", "a");
    let new = world.put(super::world::job("a", "q", 4));
    let uid = &new["metadata"]["uid"];
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"resource": {"uid": uid}}}));
    assert_eq!(world.pass(3), ["a-job"], "it was submitted anew");
}

#[test]
fn what_is_of_another_kind_stays_off_its_clusters() {
    let mut world = world("10s");
    let workload = world.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }));
    world.bind(&workload, 2, true);
    world.settle();
    world.place("d-deployment", 2);
    world.pass(12);
    assert_eq!(world.used("q"), "0");
    world.patch("ResourceBinding", "d-deployment", &json!({"status": {"aggregatedStatus": null}}));
    world.begin_anew();
    assert!(world.pass(700).is_empty());
    assert_eq!(world.says("d").0, "RunTimeExceeded");
    let before = world.writes.len();
    world.pass(60);
    let writes: Vec<_> = world.writes[before..].iter().filter(|write| write.resource.plural != "podgroups").collect();
    assert!(writes.is_empty(), "nothing more is written about it: {writes:?}");
}

#[test]
fn a_job_that_ended_in_time_is_left_alone() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.phase("a", "Completed");
    world.pass(60);
    assert_eq!((clusters(&world, "a"), count_events(&world, "RunTimeEnding")), (1, 0));
}

#[test]
fn a_job_that_is_requeued_begins_a_new_run() {
    let mut world = world("100s");
    run(&mut world, "a", 4);
    world.pass(50);
    for suspended in [json!("true"), json!(null)] {
        world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": suspended}}}));
        world.pass(2);
    }
    lose_copies(&mut world, "a");
    assert_eq!(world.pass(6), ["a-job"]);
    let (from, now) = (run_of(&world, "a")["from"].as_i64().unwrap(), world.now.as_second());
    assert!((now - 6..=now).contains(&from));
}

/// Found by a simulation: a job was placed as its time ended, and Karmada listed its copy after it was Terminated.
#[test]
fn a_job_that_was_placed_a_moment_before_its_end_is_terminated_once_its_copies_can_be_known() {
    let mut world = world("10s");
    run(&mut world, "a", 4);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.pass(10);
    assert_eq!(clusters(&world, "a"), 0);
    world.pass(3);
    assert_ne!(world.get("Job", "a")["status"]["state"]["phase"], "Terminated");
    world.pass(4);
    assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], "Terminated");
}
