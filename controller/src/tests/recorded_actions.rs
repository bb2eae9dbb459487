//! The audit trail: what the stamps of objects say, and what was evicted, each once.

use caldera_crds::{action::Action, capacity_reservation::CapacityReservation, names::caldera::HOLD};
use caldera_runtime::{
    watch::Event,
    write::{Body, Write},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::world::{World, job};
use crate::{
    history::{ADMIN_ACTIONS, History, JOB_ACTIONS, RecordedAction},
    observe::Input,
};

fn stamps(by: &str, did: &str, at: Timestamp) -> Value {
    let action = Action { at, by: by.to_owned(), did: did.to_owned() };
    action
        .to_stamps()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn read_back(writes: &[Write]) -> [History<RecordedAction>; 2] {
    let mut read = [ADMIN_ACTIONS, JOB_ACTIONS].map(History::new);
    for write in writes {
        let Body::Apply { object, .. } = &write.body else { panic!("{write:?}") };
        let (prefix, page) = write.name.rsplit_once('-').unwrap();
        let at = usize::from(prefix != ADMIN_ACTIONS.prefix);
        read[at].read_page(page.parse().unwrap(), object).unwrap();
    }
    read
}

/// What is recorded: admins' actions before those on jobs.
fn save(world: &mut World) -> Vec<(String, String, String)> {
    let writes = world.controller.actions.take_writes("ns");
    let lines = read_back(&writes).into_iter().flat_map(|history| history.list_lines());
    lines.map(|line| (line.by, line.did, line.name)).collect()
}

fn begin(world: &mut World) {
    let none = [ADMIN_ACTIONS, JOB_ACTIONS].map(History::new);
    world.controller.observe(Input::Actions(none), world.now);
}

fn reported(by: &str, did: &str, name: &str) -> (String, String, String) {
    (by.to_owned(), did.to_owned(), name.to_owned())
}

#[test]
fn what_somebody_does_to_a_job_a_queue_or_a_member_is_recorded_once_also_when_it_is_reported_again() {
    let mut world = World::new(8);
    let at = world.now;
    world.job("a", "q", 1);
    let mut held = stamps("ada", "held", at);
    held[HOLD] = "true".into();
    world.patch("Job", "a", &json!({"metadata": {"annotations": held}}));
    world.patch("Queue", "q", &json!({"metadata": {"annotations": stamps("root", "set weight to 2", at)}}));
    world.patch("Cluster", "m1", &json!({"metadata": {"annotations": stamps("root", "cordoned", at)}}));
    assert!(world.controller.actions.take_writes("ns").is_empty(), "what was kept before is not read yet");
    assert!(!world.controller.actions.has_unsaved());
    begin(&mut world);
    world.patch("Job", "a", &json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(world.controller.actions.has_unsaved());
    let all = save(&mut world);
    assert!(!world.controller.actions.has_unsaved());
    assert_eq!(
        all,
        [reported("root", "set weight to 2", "q"), reported("root", "cordoned", "m1"), reported("ada", "held", "a")]
    );
    world.patch("Queue", "q", &json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(world.controller.actions.take_writes("ns").is_empty());
}

#[test]
fn who_made_a_command_is_recorded_with_what_it_is_for() {
    let mut world = World::new(8);
    begin(&mut world);
    let at = world.now;
    world.put(json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
        "metadata": {
            "namespace": "default", "name": "c", "annotations": stamps("root", "CloseQueue of Queue q", at),
        },
        "action": "CloseQueue",
        "target": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "q", "uid": ""},
    }));
    assert_eq!(save(&mut world), [reported("root", "CloseQueue of Queue q", "q")]);
}

#[test]
fn after_a_restart_nothing_is_recorded_twice_and_what_was_done_meanwhile_is() {
    let mut world = World::new(8);
    begin(&mut world);
    let at = world.now;
    world.patch("Queue", "q", &json!({"metadata": {"annotations": stamps("root", "set weight to 2", at)}}));
    let kept = read_back(&world.controller.actions.take_writes("ns"));
    world.restart();
    world.controller.observe(Input::Actions(kept), world.now);
    assert!(world.controller.actions.take_writes("ns").is_empty());
    let later = at.saturating_add(SignedDuration::from_secs(5)).unwrap();
    world.patch("Queue", "q", &json!({"metadata": {"annotations": stamps("eve", "set weight to 3", later)}}));
    assert_eq!(save(&mut world).len(), 2, "the page has the line before, too");
}

#[test]
fn a_stamp_of_the_future_counts_for_nothing() {
    let mut world = World::new(8);
    begin(&mut world);
    let far = world.now.saturating_add(SignedDuration::from_hours(1)).unwrap();
    world.patch("Queue", "q", &json!({"metadata": {"annotations": stamps("eve", "set weight to 9", far)}}));
    assert!(world.controller.actions.take_writes("ns").is_empty());
    let settings =
        |at| json!({"metadata": {"name": "caldera-settings", "annotations": stamps("root", "set order", at)}});
    world.controller.actions.observe_settings(&settings(far), "ns", world.now);
    world.controller.actions.observe_settings(&settings(world.now), "ns", world.now);
    assert_eq!(save(&mut world), [reported("root", "set order", "caldera-settings")]);
}

#[test]
fn settings_and_reservations_that_are_deleted_are_recorded_by_nobody_known() {
    let mut world = World::new(8);
    begin(&mut world);
    let object = json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "CapacityReservation",
        "metadata": {"name": "launch", "annotations": stamps("root", "created", world.now)},
        "spec": {"amounts": {"cpu": "2"}, "start": "2026-11-26T08:00:00Z", "end": "2026-11-26T12:00:00Z"},
    });
    let reservation: CapacityReservation = serde_json::from_value(object).unwrap();
    let later = world.now.saturating_add(SignedDuration::from_secs(5)).unwrap();
    for (event, at) in [(Event::Applied(reservation.clone()), world.now), (Event::Deleted(reservation), later)] {
        world.controller.observe(Input::CapacityReservations(event), at);
    }
    world.controller.actions.observe_settings(&Value::Null, "ns", later);
    let all = save(&mut world);
    assert_eq!(
        all,
        [
            reported("root", "created", "launch"),
            reported("?", "deleted", "launch"),
            reported("?", "deleted", "caldera-settings")
        ]
    );
}

#[test]
fn what_users_do_to_jobs_pushes_out_nothing_that_admins_did() {
    let mut world = World::new(8);
    begin(&mut world);
    let mut at = world.now;
    world.patch("Queue", "q", &json!({"metadata": {"annotations": stamps("root", "set weight to 2", at)}}));
    let held = "h".repeat(390);
    for _ in 0..6_000 {
        at = at.saturating_add(SignedDuration::from_millis(1)).unwrap();
        let mut object = job("a", "q", 1);
        object["metadata"]["annotations"] = stamps("tenant", &held, at);
        let Input::Workloads(kind, Event::Applied(workload)) = super::world::input(&object, false) else {
            panic!("it is a workload")
        };
        let input = Input::Workloads(kind, Event::Applied(workload));
        world.controller.actions.observe_input(&input, at);
    }
    let writes = world.controller.actions.take_writes("ns");
    assert!(writes.len() <= ADMIN_ACTIONS.count + JOB_ACTIONS.count);
    let [admins, jobs] = read_back(&writes);
    assert_eq!(admins.list_lines().len(), 1);
    assert!(jobs.list_lines().len() < 6_000);
}

#[test]
fn an_eviction_is_recorded_when_it_is_written() {
    let mut world = World::new(8);
    begin(&mut world);
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Running");
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.pass(2);
    let all = save(&mut world);
    let [(by, did, name)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((by.as_str(), name.as_str()), ("caldera, for its user", "a"));
    assert!(did.starts_with("evicted (Suspended"), "{did}");
}
