//! Amounts that are kept for a time: which jobs are released, and what others are told.

use caldera_runtime::clock::format_time;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::{World, job};
use crate::{decide::decide, explain::explain_job, observe::Key};

/// Of 100 cores so many are kept, from and until so many seconds from now on, with a notice of a minute.
fn keep(world: &mut World, cores: u32, (start, end): (i64, i64), queues: &[&str]) {
    let at = |seconds| format_time(world.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap());
    world.put(json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "CapacityReservation", "metadata": {"name": "upgrade"},
        "spec": {
            "amounts": {"cpu": cores.to_string()}, "start": at(start), "end": at(end), "queues": queues,
            "noticeSeconds": 60, "reason": "new model",
        },
    }));
}

/// A job of so many pods that says how long it runs.
fn bounded(world: &mut World, name: &str, pods: u32, seconds: i64) {
    let mut job = job(name, "q", pods);
    job["metadata"]["annotations"] = json!({"caldera.dev/max-run-time": format!("{seconds}s")});
    let job = world.put(job);
    world.bind(&job, pods, true);
}

#[test]
fn a_job_that_would_run_into_the_time_leaves_free_what_is_kept_and_says_so() {
    let mut world = World::new(1000);
    keep(&mut world, 98, (100, 200), &["ops"]);
    bounded(&mut world, "long", 3, 101);
    bounded(&mut world, "short", 3, 50);
    assert_eq!(world.settle(), ["short-job"]);
    world.place("short-job", 3);
    world.phase("short", "Completed");
    world.pass(3);
    let (reason, message) = world.says("long");
    assert_eq!(reason, "CapacityReserved");
    assert!(
        message.contains("there is quota, but reservation upgrade is from ")
            && message.contains("(new model) for all but jobs of queue ops, and it runs for 1m41s: ")
            && message.ends_with("of cpu 100 in the fleet 0 will still be held then, 98 are kept, and it needs 3"),
        "{message}"
    );
    let key = Key::new("ns", "long-job");
    let told = explain_job(&mut world.controller, &key, world.now).unwrap();
    assert_eq!(told.token, "CapacityReserved", "who asks by himself is told the same");
    assert!(world.pass(190).is_empty());
    let next = decide(&mut world.controller, world.now).next.unwrap();
    assert!(next <= world.now.saturating_add(SignedDuration::from_secs(7)).unwrap(), "it asked to be woken: {next}");
    assert_eq!(world.pass(7), ["long-job"]);
}

#[test]
fn jobs_of_its_queues_take_the_amount_and_it_may_be_changed_and_deleted() {
    let mut world = World::new(1000);
    world.queue("ops", &json!({"capability": {"cpu": "1000"}}));
    keep(&mut world, 100, (0, 1000), &["ops"]);
    world.job("theirs", "ops", 2);
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["theirs-job"]);
    let less = json!({"spec": {"amounts": {"cpu": "50"}}});
    world.patch("CapacityReservation", "upgrade", &less);
    assert_eq!(world.settle(), ["a-job"]);
    world.job("b", "q", 60);
    assert!(world.settle().is_empty());
    world.delete("CapacityReservation", "upgrade");
    assert_eq!(world.settle(), ["b-job"]);
}

#[test]
fn a_restarted_controller_decides_nothing_before_it_knows_what_is_kept() {
    let mut world = World::new(1000);
    keep(&mut world, 100, (0, 1000), &[]);
    world.job("a", "q", 1);
    assert!(world.settle().is_empty());
    world.restart();
    assert!(world.pass(60).is_empty());
}

#[test]
fn an_object_that_is_no_reservation_keeps_nothing() {
    let mut world = World::new(1000);
    keep(&mut world, 100, (0, 1000), &[]);
    world.patch("CapacityReservation", "upgrade", &json!({"spec": {"end": Value::Null}}));
    world.job("a", "q", 1);
    assert_eq!(world.settle(), ["a-job"]);
}
