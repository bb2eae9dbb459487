//! `ttlSecondsAfterFinished`: when a job goes, and when not.

use caldera_runtime::{clock::format_time, write::Failure};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::World;
use crate::decide::decide;

/// A job with this TTL that runs.
fn running(ttl: &Value) -> World {
    let mut world = World::new(10);
    world.job("a", "q", 2);
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": ttl}}));
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Running");
    world.pass(2);
    world
}

/// Its clusters say that it ended, now.
fn end(world: &mut World, phase: &str) {
    world.phase("a", phase);
    let now = format_time(world.now);
    world.patch("Job", "a", &json!({"status": {"state": {"lastTransitionTime": now}}}));
}

fn is_there(world: &World) -> bool {
    !world.get("Job", "a").is_null()
}

#[test]
fn a_job_goes_when_its_ttl_is_over_and_not_a_second_before() {
    for phase in ["Completed", "Failed", "Terminated"] {
        let mut world = running(&json!(30));
        world.pass(100);
        assert!(is_there(&world), "it runs");
        end(&mut world, phase);
        world.pass(29);
        assert!(is_there(&world), "{phase}");
        world.pass(1);
        assert!(!is_there(&world), "{phase}");
    }
}

#[test]
fn a_ttl_of_nothing_is_at_once_and_none_is_never() {
    let mut world = running(&json!(0));
    end(&mut world, "Completed");
    world.settle();
    assert!(!is_there(&world));
    for none in [json!(null), json!(-1), json!("30")] {
        let mut world = running(&none);
        end(&mut world, "Completed");
        world.pass(100);
        assert!(is_there(&world), "{none}");
    }
}

#[test]
fn an_aborted_job_has_not_ended() {
    let mut world = running(&json!(1));
    end(&mut world, "Aborted");
    world.pass(100);
    assert!(is_there(&world));
}

#[test]
fn a_restart_changes_nothing_of_a_ttl() {
    let mut world = running(&json!(30));
    end(&mut world, "Completed");
    world.pass(20);
    world.restart();
    world.pass(9);
    assert!(is_there(&world));
    world.pass(1);
    assert!(!is_there(&world));
}

#[test]
fn a_ttl_that_is_over_while_no_controller_runs_is_over_at_its_start() {
    let mut world = running(&json!(30));
    end(&mut world, "Completed");
    world.now = world.now.saturating_add(SignedDuration::from_secs(1000)).unwrap();
    world.restart();
    world.settle();
    assert!(!is_there(&world));
}

#[test]
fn a_ttl_that_is_edited_counts_as_it_is_now() {
    let mut world = running(&json!(10));
    end(&mut world, "Completed");
    world.pass(5);
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": 30}}));
    world.pass(24);
    assert!(is_there(&world));
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": 3}}));
    world.settle();
    assert!(!is_there(&world));
}

#[test]
fn a_job_that_is_being_deleted_is_left_alone() {
    let mut world = running(&json!(1));
    world.patch("Job", "a", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    end(&mut world, "Completed");
    world.pass(10);
    assert!(is_there(&world));
}

#[test]
fn a_deletion_that_fails_or_meets_a_changed_job_is_decided_anew() {
    let mut world = running(&json!(10));
    end(&mut world, "Completed");
    world.fail = vec![("jobs", Failure::Transient("not now".into())), ("jobs", Failure::Conflict("changed".into()))];
    world.pass(12);
    assert!(!is_there(&world), "two failures cost two seconds");
    assert!(world.fail.is_empty());
}

#[test]
fn a_job_that_was_made_anew_under_the_name_is_not_deleted_for_the_old_one() {
    let mut world = running(&json!(10));
    end(&mut world, "Completed");
    world.pass(9);
    // Its successor came, and nobody has told it yet.
    let mut new = world.get("Job", "a").clone();
    new["metadata"]["uid"] = "another".into();
    new["metadata"]["resourceVersion"] = "9999".into();
    let name = ("Job".to_owned(), "ns".to_owned(), "a".to_owned());
    world.objects.insert(name, new);
    world.pass(60);
    assert!(is_there(&world));
}

/// Nothing wakes the controller but the times that it asked for itself; a restart forgets those, and two deletions
/// fail.
#[test]
fn a_job_goes_within_five_seconds_of_its_ttl_by_the_controllers_own_alarm_through_a_restart_and_failures() {
    let mut world = running(&json!(3600));
    end(&mut world, "Completed");
    let ended = world.now;
    world.settle();
    world.fail = vec![("jobs", Failure::Transient("not now".into())), ("jobs", Failure::Transient("nor now".into()))];
    let (mut restarts, mut wakes) = (0, 0);
    while is_there(&world) {
        let next = decide(&mut world.controller, world.now).next.expect("it waits for something");
        assert!(next > world.now && wakes < 10_000, "it makes progress");
        world.now = next;
        wakes += 1;
        if restarts == 0 && world.now.duration_since(ended) >= SignedDuration::from_secs(1800) {
            world.restart();
            restarts += 1;
        }
        world.settle();
    }
    let late = world.now.duration_since(ended) - SignedDuration::from_secs(3600);
    assert!((0..=5).contains(&late.as_secs()), "{late:?} after its TTL, by {wakes} wakes");
    assert_eq!((restarts, world.fail.len()), (1, 0));
}
