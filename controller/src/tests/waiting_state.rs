//! What a job says of itself while it waits.

use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::World;

fn state<'a>(world: &'a World, job: &str) -> &'a Value {
    &world.get("Job", job)["status"]["state"]
}

/// A job that takes all of `q`, and runs.
fn fill(world: &mut World) {
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.phase("a", "Running");
}

/// How often statuses of jobs were written.
fn count_writes(world: &World) -> usize {
    let of_jobs =
        |write: &&caldera_runtime::write::Write| write.resource.plural == "jobs" && write.subresource.is_some();
    world.writes.iter().filter(of_jobs).count()
}

#[test]
fn a_job_that_waits_says_so_on_itself_within_two_seconds_with_an_event() {
    let mut world = World::new(4);
    fill(&mut world);
    world.job("b", "q", 4);
    world.settle();
    assert!(state(&world, "b").is_null(), "it may start at once");
    world.pass(2);
    let (reason, message) = world.says("b");
    assert_eq!(reason, "WaitingForQuota");
    let said = state(&world, "b");
    assert_eq!(said["phase"], "Pending");
    assert_eq!((said["reason"].as_str(), said["message"].as_str()), (Some(reason.as_str()), Some(message.as_str())));
    assert!(said["lastTransitionTime"].is_string());
    let of_b = world.objects.values().filter(|it| it["kind"] == "Event" && it["involvedObject"]["name"] == "b");
    let recorded: Vec<&Value> = of_b.map(|event| &event["reason"]).collect();
    assert_eq!(recorded, [&json!("WaitingForQuota")]);
    assert_eq!(count_writes(&world), 1);
    // After a minute it has a reservation, which is told once.
    world.pass(70);
    assert_eq!(count_writes(&world), 2, "{}", state(&world, "b"));
    world.pass(300);
    assert_eq!(count_writes(&world), 2, "an idle fleet writes nothing");
}

#[test]
fn of_many_jobs_that_begin_to_wait_each_says_so_in_two_seconds_and_their_events_follow_in_turn() {
    let mut world = World::new(4);
    fill(&mut world);
    (0..60).for_each(|at| world.job(&format!("w{at}"), "q", 4));
    world.settle();
    world.pass(2);
    (0..60).for_each(|at| assert_eq!(state(&world, &format!("w{at}"))["phase"], "Pending"));
    assert!((1..=10).contains(&world.events().len()), "{} events", world.events().len());
    // One of them waits no more.
    world.delete("Job", "w59");
    world.delete("ResourceBinding", "w59-job");
    world.pass(120);
    let waits = |event: &&Value| event["kind"] == "Event" && event["reason"] == "WaitingForQuota";
    let mut reported: Vec<&Value> =
        world.objects.values().filter(waits).map(|event| &event["involvedObject"]["name"]).collect();
    assert_eq!(reported.len(), 59);
    reported.sort_by_key(|name| name.to_string());
    reported.dedup();
    assert_eq!(reported.len(), 59, "each once");
}

#[test]
fn a_job_that_starts_at_once_costs_no_write() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.phase("a", "Running");
    world.pass(10);
    assert_eq!(count_writes(&world), 0);
    world.job("b", "q", 4);
    world.pass(1);
    world.delete("ResourceBinding", "a-job");
    world.settle();
    world.place("b-job", 4);
    world.phase("b", "Running");
    world.pass(10);
    assert_eq!(count_writes(&world), 0, "it waited for a second");
}

#[test]
fn a_job_that_a_cluster_has_is_karmadas_to_speak_of() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.phase("a", "Pending");
    world.pass(60);
    assert_eq!(count_writes(&world), 0);
    assert_eq!(*state(&world, "a"), json!({"phase": "Pending"}));
    // Its user suspends it: as long as copies are listed, and it is said to run, nothing is said over that.
    world.phase("a", "Running");
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.pass(10);
    assert_eq!(count_writes(&world), 0);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.pass(10);
    assert_eq!(state(&world, "a")["phase"], "Running", "Karmada has not said yet that it is gone");
    world.patch("Job", "a", &json!({"status": {"state": {"phase": "Pending"}, "running": 0}}));
    world.pass(2);
    assert_eq!((&state(&world, "a")["reason"], count_writes(&world)), (&json!("SuspendedByUser"), 1));
}

#[test]
fn a_suspended_job_is_aborted_and_a_resumed_one_waits_and_runs() {
    let suspended = |value: Value| json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}});
    let mut world = World::new(4);
    fill(&mut world);
    world.job("b", "q", 4);
    world.pass(3);
    let since = state(&world, "b")["lastTransitionTime"].clone();
    world.patch("Job", "b", &suspended(json!("true")));
    world.pass(3);
    let said = state(&world, "b").clone();
    assert_eq!((&said["phase"], &said["reason"]), (&json!("Aborted"), &json!("SuspendedByUser")), "{said}");
    assert_ne!(said["lastTransitionTime"], since, "it is in this phase since now");
    assert_eq!(world.says("b").0, "SuspendedByUser", "it has not ended");
    let writes = count_writes(&world);
    world.pass(60);
    assert_eq!(count_writes(&world), writes, "it is said once");
    world.patch("Job", "b", &suspended(json!(null)));
    world.pass(5);
    assert_eq!((&state(&world, "b")["phase"], world.says("b").0.as_str()), (&json!("Pending"), "WaitingForQuota"));
}

#[test]
fn what_it_says_follows_its_pod_group_and_ends_with_the_wait() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 2);
    world.job("c", "q", 2);
    world.pass(3);
    assert!(state(&world, "c")["message"].as_str().unwrap().contains("2 of 2"), "{}", state(&world, "c"));
    world.delete("ResourceBinding", "b-job");
    world.pass(40);
    let message = state(&world, "c")["message"].as_str().unwrap();
    assert_eq!(message, world.says("c").1);
    assert!(message.contains("1 of 1"), "{message}");
    let before = count_writes(&world);
    world.delete("ResourceBinding", "a-job");
    world.settle();
    world.place("c-job", 2);
    world.phase("c", "Running");
    world.pass(10);
    assert_eq!(count_writes(&world), before);
}

#[test]
fn a_write_that_failed_is_tried_again_and_one_that_was_refused_later() {
    let mut world = World::new(4);
    fill(&mut world);
    world.job("b", "q", 4);
    world.settle();
    world.fail = vec![("jobs", Failure::Conflict("changed".into())), ("jobs", Failure::Transient("away".into()))];
    world.pass(2);
    assert!(state(&world, "b").is_null());
    world.pass(2);
    assert_eq!(state(&world, "b")["phase"], "Pending");
    let refused = || Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.job("c", "q", 4);
    world.fail = vec![("jobs", refused())];
    world.pass(30);
    assert!(state(&world, "c").is_null());
    world.pass(35);
    assert_eq!(state(&world, "c")["phase"], "Pending");
}

#[test]
fn a_restart_says_nothing_again() {
    let mut world = World::new(4);
    fill(&mut world);
    world.job("b", "q", 4);
    world.pass(5);
    let before = count_writes(&world);
    assert!(before > 0);
    world.begin_anew();
    world.pass(10);
    assert_eq!(count_writes(&world), before);
}

#[test]
fn on_a_slow_server_jobs_say_in_turn_that_they_wait_and_one_that_starts_meanwhile_says_nothing() {
    let mut world = World::new(4);
    fill(&mut world);
    (0..60).for_each(|at| world.job(&format!("w{at:02}"), "q", 4));
    world.settle();
    world.pass(1);
    let latency = jiff::SignedDuration::from_millis(500);
    (0..100).for_each(|_| world.controller.pod_groups.budget.observe_write(latency));
    world.pass(1);
    let say = |world: &World| (0..60).filter(|at| state(world, &format!("w{at:02}"))["phase"] == "Pending").count();
    assert!((10..=11).contains(&say(&world)), "{} of 60", say(&world));
    world.delete("ResourceBinding", "w59-job");
    world.pass(120);
    assert_eq!(say(&world), 59);
    assert!(state(&world, "w59").is_null());
}
