//! Suspend and resume, and the end by a user's word.

use caldera_runtime::write::{Failure, WriteOutcome};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    decide::decide,
    write::{Decision, Tag},
};

fn annotate(world: &mut World, job: &str, name: &str, value: &Value) {
    world.patch("Job", job, &json!({"metadata": {"annotations": {name: value}}}));
}

fn suspend(world: &mut World, job: &str, suspended: bool) {
    annotate(world, job, "caldera.dev/suspended", &if suspended { json!("true") } else { json!(null) });
}

/// A job of so many pods that runs.
fn run(world: &mut World, job: &str, pods: u32) {
    world.job(job, "q", pods);
    world.settle();
    world.place(&format!("{job}-job"), pods);
    world.phase(job, "Running");
    world.pass(2);
}

/// Its copies are gone, and Karmada says so.
fn lose_copies(world: &mut World, job: &str) {
    world.patch("ResourceBinding", &format!("{job}-job"), &json!({"status": {"aggregatedStatus": null}}));
    world.patch("Job", job, &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
}

fn annotation<'a>(world: &'a World, job: &str, name: &str) -> &'a Value {
    &world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"][name]
}

fn clusters(world: &World, job: &str) -> usize {
    world.get("ResourceBinding", &format!("{job}-job"))["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_suspended_job_is_not_admitted_and_keeps_its_age() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    suspend(&mut world, "a", true);
    world.job("b", "q", 4);
    world.job("c", "q", 4);
    assert_eq!(world.pass(3), ["b-job"]);
    let (reason, message) = world.says("a");
    assert_eq!(reason, "SuspendedByUser");
    assert!(message.starts_with("suspended by its user: take the annotation caldera.dev/suspended away"), "{message}");
    suspend(&mut world, "a", false);
    world.delete("ResourceBinding", "b-job");
    assert_eq!(world.pass(3), ["a-job"], "it came before c");
}

#[test]
fn a_running_job_that_is_suspended_gives_its_charge_back_and_others_start() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    world.job("b", "q", 4);
    world.pass(3);
    assert_eq!(world.used("q"), "4");
    suspend(&mut world, "a", true);
    assert_eq!(world.pass(3), ["b-job"]);
    assert_eq!((world.used("q").as_str(), clusters(&world, "a")), ("4", 0));
    assert_eq!(annotation(&world, "a", "caldera.dev/gate"), "closed");
    assert!(annotation(&world, "a", "caldera.dev/admission").is_null());
    let record: Value =
        serde_json::from_str(annotation(&world, "a", "caldera.dev/eviction").as_str().unwrap()).unwrap();
    assert_eq!(
        (&record["reason"], &record["count"], &record["requeues"]),
        (&json!("Suspended"), &json!(0), &Value::Null),
        "it gave way to nobody"
    );
    assert!(world.events().contains(&("Normal".into(), "Suspended".into())), "{:?}", world.events());
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    let before = world.writes.len();
    world.pass(60);
    let after: Vec<_> = world.writes[before..].iter().filter(|write| write.resource.plural != "podgroups").collect();
    assert!(after.len() <= 2, "a suspended job is written about once: {after:?}");
}

#[test]
fn a_resumed_job_waits_until_its_old_copies_are_gone_and_forgotten_and_for_nothing_else() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    suspend(&mut world, "a", true);
    world.pass(2);
    suspend(&mut world, "a", false);
    assert!(world.pass(30).is_empty(), "its old copies are there");
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains("was suspended and resumed by its user"), "{message}");
    lose_copies(&mut world, "a");
    assert!(world.pass(30).is_empty(), "its member's Volcano may forget a new copy with the old one");
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn a_copy_that_never_goes_keeps_a_resumed_job_back_for_ten_minutes() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    suspend(&mut world, "a", true);
    world.pass(2);
    suspend(&mut world, "a", false);
    assert!(world.pass(590).is_empty());
    assert_eq!(world.pass(12), ["a-job"]);
}

#[test]
fn a_restart_forgets_no_suspension() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    suspend(&mut world, "a", true);
    world.budget = Some(0);
    world.settle();
    // The process is gone before it wrote anything.
    world.budget = None;
    world.begin_anew();
    world.pass(2);
    assert_eq!((world.used("q").as_str(), clusters(&world, "a")), ("0", 0));
    lose_copies(&mut world, "a");
    world.begin_anew();
    assert!(world.pass(5).is_empty());
    suspend(&mut world, "a", false);
    assert_eq!(world.pass(2), ["a-job"]);
}

#[test]
fn an_eviction_of_a_suspended_job_that_is_refused_is_tried_again() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    world.refuse_evictions = vec![Failure::Transient("not now".into())];
    suspend(&mut world, "a", true);
    world.settle();
    assert_eq!(world.used("q"), "4", "what is not written is charged");
    world.pass(6);
    assert_eq!(world.used("q"), "0");
}

#[test]
fn spec_suspend_of_a_batch_job_is_its_users_suspension() {
    let mut world = World::new(4);
    let workload = world.put(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "k", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"parallelism": 2, "completions": 2, "suspend": true, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }));
    world.bind(&workload, 2, true);
    assert!(world.pass(3).is_empty());
    let (reason, message) = world.says("k");
    assert_eq!(reason, "SuspendedByUser");
    assert!(message.contains("when spec.suspend is false"), "{message}");
    world.patch("Job", "k", &json!({"spec": {"suspend": false}}));
    assert_eq!(world.pass(2), ["k-job"]);
    world.place("k-job", 2);
    world.pass(2);
    world.patch("Job", "k", &json!({"spec": {"suspend": true}}));
    world.pass(2);
    assert_eq!((world.used("q").as_str(), clusters(&world, "k")), ("0", 0));
}

#[test]
fn a_binding_that_somebody_else_suspended_is_not_touched() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    suspend(&mut world, "a", true);
    world.pass(10);
    assert_eq!((annotation(&world, "a", "caldera.dev/gate"), clusters(&world, "a")), (&json!("open"), 1));
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": false}}}));
    world.pass(2);
    assert_eq!(clusters(&world, "a"), 0);
}

#[test]
fn a_suspended_job_that_has_ended_or_goes_is_left_alone() {
    for phase in ["Completed", "Failed"] {
        let mut world = World::new(4);
        run(&mut world, "a", 4);
        world.phase("a", phase);
        suspend(&mut world, "a", true);
        world.pass(10);
        assert_eq!(clusters(&world, "a"), 1, "{phase}");
    }
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    world.patch("Job", "a", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    suspend(&mut world, "a", true);
    world.pass(10);
    assert_eq!(clusters(&world, "a"), 1);
}

#[test]
fn a_job_that_is_ended_says_so_once_its_copies_are_gone_and_never_runs_again() {
    for phase in ["Terminated", "Completed", "Failed"] {
        let mut world = World::new(4);
        run(&mut world, "a", 4);
        annotate(&mut world, "a", "caldera.dev/end-as", &json!(phase));
        world.pass(3);
        assert_eq!((world.used("q").as_str(), clusters(&world, "a")), ("0", 0));
        assert_eq!(world.says("a").0, "Ending");
        assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], "Running", "its copies are there");
        lose_copies(&mut world, "a");
        world.begin_anew();
        world.pass(3);
        let status = &world.get("Job", "a")["status"];
        assert_eq!((&status["state"]["phase"], &status["state"]["reason"]), (&json!(phase), &json!("EndedByUser")));
        assert!(status["state"]["lastTransitionTime"].is_string() && status["running"].is_null(), "{status}");
        assert_eq!(world.says("a").0, "Finished");
        world.begin_anew();
        assert!(world.pass(30).is_empty());
        assert_eq!(clusters(&world, "a"), 0);
    }
}

#[test]
fn a_job_that_never_ran_can_be_ended_and_its_ttl_counts_from_then() {
    let mut world = World::new(4);
    world.job("a", "q", 9);
    world.patch("Job", "a", &json!({"spec": {"ttlSecondsAfterFinished": 10}}));
    world.pass(2);
    annotate(&mut world, "a", "caldera.dev/end-as", &json!("Terminated"));
    world.pass(2);
    assert_eq!(world.get("Job", "a")["status"]["state"]["phase"], "Terminated");
    world.pass(11);
    assert!(world.get("Job", "a").is_null());
}

#[test]
fn an_end_that_is_none_is_nothing() {
    let mut world = World::new(4);
    run(&mut world, "a", 4);
    for word in [json!("Aborted"), json!("completed"), json!("")] {
        annotate(&mut world, "a", "caldera.dev/end-as", &word);
        annotate(&mut world, "a", "caldera.dev/suspended", &json!("yes"));
        world.pass(3);
        assert_eq!(clusters(&world, "a"), 1, "{word}");
    }
}

/// Whatever users, scheduler and members do in whatever order, what is charged is what the records of the bindings say
/// that have not ended, and never more than the queue may hold.
#[test]
fn a_charge_is_returned_exactly_once_in_every_order_of_events() {
    for seed in 1..=40_u64 {
        let mut world = World::new(6);
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let jobs = ["a", "b", "c", "d"];
        for (name, pods) in jobs.into_iter().zip([4, 3, 2, 1]) {
            world.job(name, "q", pods);
        }
        for step in 0..60 {
            let job = jobs[usize::try_from(draw(4)).unwrap()];
            let binding = format!("{job}-job");
            let has_record = annotation(&world, job, "caldera.dev/admission").is_string();
            match draw(8) {
                0 | 1 => suspend(&mut world, job, true),
                2 | 3 => suspend(&mut world, job, false),
                4 if has_record && clusters(&world, job) == 0 => {
                    let pods = world.get("Job", job)["spec"]["minAvailable"].as_u64().unwrap();
                    world.place(&binding, u32::try_from(pods).unwrap());
                    world.phase(job, "Running");
                }
                5 if clusters(&world, job) == 0 => lose_copies(&mut world, job),
                6 if step > 40 && clusters(&world, job) == 1 => world.phase(job, "Completed"),
                7 => world.begin_anew(),
                _ => {}
            }
            world.pass(1);
            let sum: u64 = jobs
                .iter()
                .filter(|job| {
                    let has_ended = world.get("Job", job)["status"]["state"]["phase"] == "Completed";
                    annotation(&world, job, "caldera.dev/admission").is_string() && !has_ended
                })
                .map(|job| world.get("Job", job)["spec"]["minAvailable"].as_u64().unwrap())
                .sum();
            assert_eq!(world.used("q"), sum.to_string(), "seed {seed}, step {step}");
            assert!(sum <= 6, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn an_eviction_that_is_not_answered_is_not_sent_again_and_one_that_failed_is() {
    let mut world = World::new(10);
    run(&mut world, "a", 4);
    suspend(&mut world, "a", true);
    let mut sent = 0;
    let mut pass = |world: &mut World| {
        for _ in 0..60 {
            world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
            let writes = decide(&mut world.controller, world.now).writes;
            sent += writes.iter().filter(|write| matches!(write, Decision::Evict { .. })).count();
        }
        std::mem::take(&mut sent)
    };
    assert_eq!(pass(&mut world), 1, "a minute without an answer");
    let key = crate::observe::Key::new("ns", "a-job");
    let answer = WriteOutcome { tag: Tag::Evict(key), result: Err(Failure::Transient("there is no answer".into())) };
    world.controller.apply_write_answer(answer, world.now);
    assert_eq!(pass(&mut world), 1);
}
