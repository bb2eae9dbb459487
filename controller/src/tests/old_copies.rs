//! Old copies of jobs that are in line again: nothing starts before their pods are gone and members forgot them.

use caldera_core::inventory::Change;
use caldera_runtime::write::Failure;
use serde_json::json;

use super::{
    fleet::{members, on, pod, report},
    job_commands::send,
    world::{World, job},
};

/// Job `a` of four pods that run in m1, of two members.
fn running() -> World {
    let mut world = members(&["m1", "m2"]);
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    on(&mut world, "a", "m1", 4);
    world
}

/// Takes job `a` off its clusters for this reason, with a backoff. Karmada lists no copy that is on its way out.
fn evict(world: &mut World, reason: &str, backoff: i64, avoid: &[&str]) {
    let at = world.now.as_second();
    let record = json!({
        "count": 0, "requeues": 1, "at": at, "until": at + backoff, "preemptor": "", "reason": reason,
        "message": "it was taken off its clusters", "avoid": avoid,
    });
    let annotations = json!({
        "caldera.dev/eviction": record.to_string(), "caldera.dev/admission": null, "caldera.dev/plan": null,
        "caldera.dev/gate": "closed",
    });
    let spec = json!({"clusters": [], "suspension": {"scheduling": true}});
    world.patch("Job", "a", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
    let (metadata, status) = (json!({"annotations": annotations}), json!({"aggregatedStatus": null}));
    world.patch("ResourceBinding", "a-job", &json!({"metadata": metadata, "spec": spec, "status": status}));
}

fn end_pods(world: &mut World) {
    for i in 0..4 {
        report(world, "m1", Change::PodGone("ns".into(), format!("a-worker-{i}")));
    }
}

const WAYS_BACK: [&str; 11] = [
    "NotPlaced",
    "PodsReadyTimeout",
    "ForgedRecord",
    "QueueChanged",
    "Suspended",
    "Restarted",
    "RestartedByPolicy",
    "CopyRefused",
    "MemberLost",
    "Reclaimed",
    "Preempted",
];

#[test]
fn whatever_took_a_job_off_its_clusters_it_waits_as_long_again_as_its_old_pods_took() {
    for reason in WAYS_BACK {
        let mut world = running();
        evict(&mut world, reason, 0, &[]);
        assert!(world.pass(30).is_empty(), "{reason}: its old pods are there");
        end_pods(&mut world);
        assert!(world.pass(29).is_empty(), "{reason}: m1 would forget the new copy with the old one");
        let (_, message) = world.says("a");
        assert!(message.contains("have forgotten them"), "{reason}: {message}");
        assert_eq!(world.pass(4), ["a-job"], "{reason}");
    }
}

/// Karmada may make a copy all the same of what left its clusters a moment after it was placed there.
#[test]
fn a_job_that_left_its_clusters_before_a_copy_was_listed_waits_until_one_would_be() {
    for reason in WAYS_BACK {
        let placed = || {
            let mut world = members(&["m1", "m2"]);
            world.job("a", "q", 4);
            assert_eq!(world.settle(), ["a-job"]);
            world.place("a-job", 4);
            world.settle();
            evict(&mut world, reason, 0, &[]);
            world
        };
        let mut world = placed();
        assert!(world.pass(4).is_empty(), "{reason}");
        assert_eq!(world.pass(2), ["a-job"], "{reason}");
        let mut world = placed();
        assert!(world.pass(2).is_empty(), "{reason}");
        let listed = json!([{"clusterName": "m1", "applied": true}]);
        world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": listed}}));
        assert!(world.pass(8).is_empty(), "{reason}: its copy is there");
    }
}

#[test]
fn a_job_whose_backoff_ends_before_its_old_pods_do_waits_for_them() {
    for reason in WAYS_BACK {
        let mut world = running();
        evict(&mut world, reason, 20, &[]);
        assert!(world.pass(50).is_empty(), "{reason}: its old pods are there");
        end_pods(&mut world);
        assert!(world.pass(49).is_empty(), "{reason}");
        assert_eq!(world.pass(4), ["a-job"], "{reason}");
    }
}

#[test]
fn nobody_waits_for_old_pods_that_are_there_for_ten_minutes() {
    for reason in WAYS_BACK {
        let mut world = running();
        evict(&mut world, reason, 0, &[]);
        assert!(world.pass(598).is_empty(), "{reason}");
        assert_eq!(world.pass(4), ["a-job"], "{reason}");
    }
}

#[test]
fn a_part_that_did_not_start_in_time_holds_the_gang_back_no_longer_than_its_backoff() {
    let mut world = running();
    evict(&mut world, "PodsReadyTimeout", 20, &["m1"]);
    assert!(world.pass(19).is_empty());
    assert_eq!(world.pass(3), ["a-job"]);
    // A part elsewhere did start.
    let mut world = running();
    pod(&mut world, "m2", "a-worker-4", 1, Some("a"));
    evict(&mut world, "PodsReadyTimeout", 20, &["m1"]);
    assert!(world.pass(40).is_empty());
    report(&mut world, "m2", Change::PodGone("ns".into(), "a-worker-4".into()));
    assert!(world.pass(38).is_empty(), "m2 would forget a new copy with the old one");
    assert_eq!(world.pass(6), ["a-job"]);
}

#[test]
fn nobody_waits_after_the_pods_of_a_part_that_did_not_start_in_time() {
    let mut world = running();
    evict(&mut world, "PodsReadyTimeout", 20, &["m1"]);
    assert!(world.pass(18).is_empty());
    end_pods(&mut world);
    assert_eq!(world.pass(4), ["a-job"]);
}

/// Deletes job `a` and makes another of its name.
fn make_anew(world: &mut World) {
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    assert!(world.pass(5).is_empty());
    world.job("a", "q", 4);
}

#[test]
fn a_job_made_anew_under_its_name_waits_until_members_have_forgotten_the_old_one() {
    let mut world = running();
    make_anew(&mut world);
    assert!(world.pass(24).is_empty(), "the old pods are there");
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.starts_with("an earlier job of this name was deleted"), "{message}");
    end_pods(&mut world);
    assert!(world.pass(29).is_empty(), "m1 would forget it with the old one");
    assert_eq!(world.pass(4), ["a-job"]);
}

#[test]
fn a_job_made_anew_of_which_the_binding_is_seen_first_waits_too() {
    let mut world = running();
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    assert!(world.pass(5).is_empty());
    let mut anew = job("a", "q", 4);
    anew["metadata"]["uid"] = "anew".into();
    world.bind(&anew, 4, true);
    assert!(world.pass(1).is_empty());
    world.put(anew);
    assert!(world.pass(23).is_empty(), "the old pods are there");
    end_pods(&mut world);
    assert!(world.pass(29).is_empty(), "m1 would forget it with the old one");
    assert_eq!(world.pass(4), ["a-job"]);
}

#[test]
fn a_job_made_anew_when_the_old_pods_are_gone_waits_for_the_rest_of_that_time() {
    let mut world = running();
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    world.pass(30);
    end_pods(&mut world);
    world.pass(10);
    world.job("a", "q", 4);
    assert!(world.pass(18).is_empty(), "m1 would forget it with the old one");
    assert_eq!(world.pass(4), ["a-job"]);
}

#[test]
fn a_job_made_anew_long_after_the_old_pods_went_waits_for_nothing() {
    let mut world = running();
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    world.pass(20);
    end_pods(&mut world);
    world.pass(25);
    assert!(world.controller.jobs.cleanups.next_look().is_none(), "nothing is kept of it");
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn a_job_made_anew_after_one_that_ended_or_never_ran_waits_for_nothing() {
    let mut world = members(&["m1"]);
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"], "it was placed nowhere");
    on(&mut world, "a", "m1", 4);
    end_pods(&mut world);
    world.phase("a", "Completed");
    make_anew(&mut world);
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn a_job_of_another_name_waits_for_nobody() {
    let mut world = running();
    world.delete("Job", "a");
    world.delete("ResourceBinding", "a-job");
    world.job("b", "q", 4);
    assert_eq!(world.pass(2), ["b-job"]);
}

#[test]
fn a_job_that_waits_for_something_else_beside_its_old_pods_is_not_decided_about_again_and_again() {
    let changes = [
        ("Job", json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}})),
        ("Job", json!({"metadata": {"annotations": {"caldera.dev/hold": "true"}}})),
        ("Job", json!({"metadata": {"annotations": {"caldera.dev/end-as": "Completed"}}})),
        ("Job", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ("ResourceBinding", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ("no Job", json!({})),
    ];
    for (reason, (kind, change)) in WAYS_BACK.iter().flat_map(|reason| changes.iter().map(move |it| (reason, it))) {
        let mut world = running();
        evict(&mut world, reason, 0, &[]);
        match *kind {
            "Job" => world.patch(kind, "a", change),
            "ResourceBinding" => world.patch(kind, "a-job", change),
            _ => world.delete("Job", "a"),
        }
        // A Command for it is done, and its deletion fails for minutes.
        let failed = || ("commands", Failure::Transient("there is no answer".into()));
        world.fail.extend(std::iter::repeat_with(failed).take(1000));
        send(&mut world, "stop", "AbortJob", "a");
        assert!(world.pass(30).is_empty(), "{reason}, {kind} {change}");
    }
}
