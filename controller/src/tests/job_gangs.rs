//! The jobs of a HyperJob are one gang.

use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::{
    hyper_jobs::{edit, end},
    world::World,
};
use crate::decide::{bindings::job_gangs::PlacementBudget, decide};

/// HyperJob `h` of `jobs` jobs of `pods` pods of a cpu each, and their gated bindings.
pub(super) fn gang_of(world: &mut World, jobs: i64, pods: u32) {
    let spec = super::world::job("", "q", pods)["spec"].clone();
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob",
        "metadata": {"name": "h", "namespace": "ns", "generation": 1},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": jobs, "templateSpec": spec}]},
    }));
    world.settle();
    for index in 0..jobs {
        bind_child(world, index, pods);
    }
}

fn bind_child(world: &mut World, index: i64, pods: u32) {
    let job = world.get("Job", &format!("h-a-{index}")).clone();
    assert!(job.is_object(), "h-a-{index} is not made");
    world.bind(&job, pods, true);
}

/// Its policy is that of a HyperJob: one cluster.
fn keep_whole(world: &mut World, job: &str) {
    let one = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
    let spec = json!({"spec": {"placement": {"spreadConstraints": one}}});
    world.patch("ResourceBinding", &format!("{job}-job"), &spec);
}

fn is_admitted(world: &World, job: &str) -> bool {
    world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"]["caldera.dev/admission"].is_string()
}

fn run_child(world: &mut World, job: &str, pods: u32) {
    let binding = format!("{job}-job");
    world.place(&binding, pods);
    let scheduled = json!({"status": {"lastScheduledTime": caldera_runtime::clock::format_time(world.now)}});
    world.patch("ResourceBinding", &binding, &scheduled);
    world.phase(job, "Running");
    world.settle();
}

/// Of two jobs of three cpus in a queue of six the first is admitted and runs. When the next controller begins, what
/// the other would have had is gone.
fn admit_half(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(6);
    gang_of(&mut world, 2, 3);
    world.budget = Some(1);
    world.settle();
    world.queue("q", &json!({"capability": {"cpu": "3"}}));
    world.budget = None;
    change(&mut world);
    world.restart();
    world
}

#[test]
fn all_jobs_of_a_hyper_job_are_admitted_or_none_is() {
    let mut world = World::new(10);
    world.job("first", "q", 6);
    world.settle();
    gang_of(&mut world, 2, 3);
    assert_eq!(world.pass(5), Vec::<String>::new(), "one of them would fit");
    for job in ["h-a-0", "h-a-1"] {
        let (reason, message) = world.says(job);
        assert_eq!(reason, "WaitingForQuota");
        assert!(message.contains("position 1 of 1: needs cpu 6, used 6 of 10"), "{message}");
        assert!(message.contains("one of 2 jobs of HyperJob h that start together or not at all"), "{message}");
    }
    // The line has one entry, which asks for both.
    let line = crate::explain::list_waiting_jobs(&world.controller, &"q".into(), 10);
    let reported: Vec<_> =
        line.iter().map(|it| (it.workload.name.as_str(), it.minimum.get("cpu").to_string())).collect();
    assert_eq!(reported, [("h-a-0", "6".to_owned())]);
    world.delete("ResourceBinding", "first-job");
    assert_eq!(world.pass(2), ["h-a-0-job", "h-a-1-job"]);
    // Each is charged once, for itself.
    assert_eq!(world.used("q"), "6");
    for job in ["h-a-0", "h-a-1"] {
        let record = &world.get("ResourceBinding", &format!("{job}-job"))["metadata"]["annotations"];
        let record: Value = serde_json::from_str(record["caldera.dev/admission"].as_str().unwrap()).unwrap();
        assert_eq!((&record["tasks"], &record["charged"]["cpu"]), (&json!({"worker": 3}), &json!("3")));
    }
    world.restart();
    world.settle();
    assert_eq!(world.used("q"), "6");
}

#[test]
fn two_hyper_jobs_never_hold_half_of_each_other() {
    let mut world = World::new(100);
    for cluster in ["m1", "m2"] {
        world.cluster(cluster, "5");
    }
    gang_of(&mut world, 2, 2);
    world.pass(2);
    let mut other = world.get("HyperJob", "h").clone();
    other["metadata"] = json!({"name": "g", "namespace": "ns", "generation": 1});
    other["spec"]["replicatedJobs"][0]["templateSpec"] = super::world::job("", "q", 3)["spec"].clone();
    world.put(other);
    world.settle();
    for name in ["g-a-0", "g-a-1"] {
        let job = world.get("Job", name).clone();
        world.bind(&job, 3, true);
        keep_whole(&mut world, name);
    }
    world.pass(3);
    let admitted = ["h-a-0", "h-a-1", "g-a-0", "g-a-1"].map(|job| is_admitted(&world, job));
    assert_eq!(admitted, [true, true, false, false]);
    let (reason, message) = world.says("g-a-1");
    assert_eq!(reason, "InsufficientCapacity");
    assert!(message.contains("there is room for 1 of 2 jobs that start together"), "{message}");
}

#[test]
fn a_gang_of_jobs_has_one_reservation() {
    let mut world = World::new(4);
    world.job("first", "q", 3);
    world.settle();
    gang_of(&mut world, 2, 2);
    world.pass(70);
    world.job("small", "q", 1);
    assert_eq!(world.pass(3), Vec::<String>::new(), "what the gang lacks is reserved for it");
    let (reason, _) = world.says("small");
    assert_eq!(reason, "BlockedByReservation");
    for job in ["h-a-0", "h-a-1"] {
        assert!(world.says(job).1.contains("what it lacks is reserved for it"), "{:?}", world.says(job));
    }
    world.delete("ResourceBinding", "first-job");
    assert_eq!(world.pass(2), ["h-a-0-job", "h-a-1-job"]);
}

#[test]
fn what_can_never_fit_together_is_reported() {
    let mut world = World::new(100);
    world.cluster("m1", "6");
    world.settle();
    gang_of(&mut world, 3, 3);
    world.pass(2);
    assert_eq!(world.says("h-a-2").0, "ExceedsFleet");
    // The sum fits, the pieces do not.
    let mut world = World::new(100);
    world.cluster("m1", "4");
    world.cluster("m2", "2");
    world.settle();
    gang_of(&mut world, 2, 3);
    ["h-a-0", "h-a-1"].iter().for_each(|name| keep_whole(&mut world, name));
    world.pass(5);
    assert_eq!(world.says("h-a-0").0, "NeverFits", "{:?}", world.says("h-a-0"));
}

#[test]
fn a_crash_between_two_releases_of_a_gang_ends_with_all_of_it() {
    let mut world = World::new(10);
    gang_of(&mut world, 3, 2);
    world.budget = Some(1);
    assert_eq!(world.settle(), ["h-a-0-job"]);
    assert!(is_admitted(&world, "h-a-0") && !is_admitted(&world, "h-a-1"));
    world.budget = None;
    world.restart();
    assert_eq!(world.pass(2), ["h-a-1-job", "h-a-2-job"]);
    assert_eq!(world.used("q"), "6");
}

#[test]
fn half_a_gang_of_jobs_is_given_up_when_the_rest_does_not_follow() {
    let mut world = admit_half(|_| {});
    run_child(&mut world, "h-a-0", 3);
    assert_eq!(world.pass(290), Vec::<String>::new());
    assert!(is_admitted(&world, "h-a-0"));
    world.pass(15);
    assert!(!is_admitted(&world, "h-a-0"), "it would hold its quota for nothing");
    assert!(world.events().contains(&("Warning".into(), "JobsMissing".into())), "{:?}", world.events());
    let (reason, message) = world.says("h-a-0");
    assert_eq!(reason, "Requeued");
    assert!(message.contains("h-a-1, without which it is not to run, has waited for 300 s"), "{message}");
    world.queue("q", &json!({"capability": {"cpu": "6"}}));
    world.patch("ResourceBinding", "h-a-0-job", &json!({"status": {"aggregatedStatus": null}}));
    world.patch("Job", "h-a-0", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
    let released = world.pass(200);
    assert_eq!(released, ["h-a-0-job", "h-a-1-job"]);
}

#[test]
fn a_pass_asks_for_no_more_placements_of_gangs_than_its_budget_and_the_next_goes_on() {
    let mut world = World::new(100);
    gang_of(&mut world, 2, 2);
    world.job("single", "q", 1);
    world.controller.jobs.gangs.budget = PlacementBudget::of(1);
    let first = decide(&mut world.controller, world.now);
    assert_eq!((first.releases, first.is_unfinished, first.next), (2, true, Some(world.now)));
    let second = decide(&mut world.controller, world.now);
    assert_eq!((second.releases, second.is_unfinished), (1, false));
}

#[test]
fn a_gang_of_jobs_is_evicted_as_a_whole() {
    let mut world = World::empty();
    world.cluster("m1", "8");
    for name in ["q", "mine"] {
        world.queue(name, &json!({"deserved": {"cpu": "4", "pods": "4"}}));
    }
    world.pass(10);
    gang_of(&mut world, 2, 3);
    world.pass(1);
    for job in ["h-a-0", "h-a-1"] {
        run_child(&mut world, job, 3);
    }
    world.job("claims", "mine", 4);
    world.pass(5);
    assert_eq!(["h-a-0", "h-a-1"].map(|job| is_admitted(&world, job)), [false; 2]);
    let reported: Vec<_> = world.events().into_iter().map(|(_, reason)| reason).collect();
    assert!(["Reclaimed", "JobsMissing"].iter().all(|reason| reported.iter().any(|it| it == reason)), "{reported:?}");
    let waits = ["h-a-0", "h-a-1"].map(|job| world.says(job).1);
    let of = |job: &str| format!("{job}, without which it is not to run, was evicted");
    assert!(waits.iter().any(|why| why.contains(&of("h-a-0")) || why.contains(&of("h-a-1"))), "{waits:?}");
}

#[test]
fn a_gang_of_jobs_that_is_larger_than_its_queue_takes_waits_for_a_change() {
    let mut world = World::new(10);
    let limit = |cpus: i64| json!({"metadata": {"annotations": {"caldera.dev/max-job": format!("cpu={cpus}")}}});
    world.patch("Queue", "q", &limit(5));
    gang_of(&mut world, 2, 3);
    assert_eq!(world.pass(5), Vec::<String>::new());
    let (reason, message) = world.says("h-a-1");
    assert_eq!(reason, "ExceedsMaxJob");
    assert!(message.contains("asks for cpu 6, more than 5"), "{message}");
    world.restart();
    assert!(world.pass(60).is_empty());
    world.patch("Queue", "q", &limit(6));
    assert_eq!(world.pass(5), ["h-a-0-job", "h-a-1-job"]);
}

#[test]
fn a_release_of_a_gang_that_the_server_refuses_is_made_up_for() {
    let mut world = World::new(6);
    gang_of(&mut world, 2, 3);
    let refused = || Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".to_owned() };
    world.refuse = vec![refused()];
    world.settle();
    assert_eq!((is_admitted(&world, "h-a-0"), is_admitted(&world, "h-a-1")), (false, true));
    assert_eq!(world.used("q"), "3");
    world.pass(12);
    assert!(is_admitted(&world, "h-a-0"));
    assert_eq!(world.used("q"), "6");
}

#[test]
fn a_job_that_is_made_anew_or_added_waits_for_itself_and_takes_nothing_from_those_that_run() {
    let mut world = World::new(6);
    gang_of(&mut world, 2, 3);
    world.settle();
    for job in ["h-a-0", "h-a-1"] {
        run_child(&mut world, job, 3);
    }
    world.pass(5);
    edit(&mut world, |h| h["spec"]["replicatedJobs"][0]["replicas"] = 3.into());
    bind_child(&mut world, 2, 3);
    world.pass(400);
    let admitted = ["h-a-0", "h-a-1", "h-a-2"].map(|job| is_admitted(&world, job));
    assert_eq!(admitted, [true, true, false]);
    end(&mut world, "h-a-0", "Completed");
    world.phase("h-a-0", "Completed");
    world.pass(5);
    assert!(is_admitted(&world, "h-a-2"), "{:?}", world.says("h-a-2"));
}

#[test]
fn of_a_suspended_job_its_gang_waits_and_says_so() {
    let mut world = World::new(10);
    gang_of(&mut world, 2, 2);
    world.patch("Job", "h-a-1", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    assert_eq!(world.pass(3), Vec::<String>::new());
    let (reason, message) = world.says("h-a-0");
    assert_eq!(reason, "WaitingForJobs");
    assert!(message.contains("not in line: h-a-1"), "{message}");
    world.patch("Job", "h-a-1", &json!({"metadata": {"annotations": {"caldera.dev/suspended": null}}}));
    assert_eq!(world.pass(3), ["h-a-0-job", "h-a-1-job"]);
}

/// A controller that knew of no gangs wrote this record, or another controller admitted the job by itself.
fn admit_alone(world: &mut World, job: &str) {
    let binding = format!("{job}-job");
    let record = &world.get("ResourceBinding", &binding)["metadata"]["annotations"]["caldera.dev/admission"];
    let mut record: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
    assert!(record["together"].is_i64(), "{record}");
    record.as_object_mut().unwrap().remove("together");
    let annotations = json!({"caldera.dev/admission": record.to_string()});
    world.patch("ResourceBinding", &binding, &json!({"metadata": {"annotations": annotations}}));
}

#[test]
fn what_was_admitted_by_itself_before_an_upgrade_runs_on_while_the_rest_waits() {
    let mut world = admit_half(|world| {
        run_child(world, "h-a-0", 3);
        admit_alone(world, "h-a-0");
    });
    world.pass(700);
    assert!(is_admitted(&world, "h-a-0"), "{:?}", world.says("h-a-0"));
    world.queue("q", &json!({"capability": {"cpu": "6"}}));
    assert_eq!(world.pass(5), ["h-a-1-job"]);
}
