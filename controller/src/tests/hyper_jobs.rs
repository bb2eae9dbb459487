//! HyperJobs: what they are made of, and the defects of the peer that are not ours.

use caldera_runtime::write::{Body, Failure};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    decide::decide,
    write::{Decision, hyper_job::HyperJobWrite},
};

fn template(pods: u32) -> Value {
    json!({"queue": "q", "tasks": [{
        "name": "t", "replicas": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    }]})
}

/// HyperJob `h` with two jobs of `a` and one of `b`.
fn world() -> World {
    let mut world = World::new(100);
    put_hyper_job(&mut world);
    world.settle();
    world
}

fn put_hyper_job(world: &mut World) {
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob",
        "metadata": {"name": "h", "namespace": "ns", "generation": 1},
        "spec": {"replicatedJobs": [
            {"name": "a", "replicas": 2, "templateSpec": template(1), "clusterNames": ["m1"]},
            {"name": "b", "templateSpec": template(2)},
        ]},
    }));
}

fn names(world: &World, kind: &str) -> Vec<String> {
    let of_kind = world.objects.keys().filter(|key| key.0 == kind);
    of_kind.map(|key| key.2.clone()).collect()
}

fn condition<'a>(world: &'a World, kind: &str) -> &'a Value {
    let all = world.get("HyperJob", "h")["status"]["conditions"].as_array().unwrap();
    all.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn says(world: &World, kind: &str) -> (String, String) {
    let text = |field: &str| condition(world, kind)[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

pub fn end(world: &mut World, job: &str, phase: &str) {
    world.patch("Job", job, &json!({"status": {"state": {"phase": phase}, "running": 0, "succeeded": 1}}));
    world.settle();
}

pub fn edit(world: &mut World, change: impl Fn(&mut Value)) {
    let mut object = world.get("HyperJob", "h").clone();
    change(&mut object);
    world.put(object);
    world.settle();
}

#[test]
fn every_replica_is_a_job_and_a_policy_that_it_owns() {
    let world = world();
    assert_eq!(names(&world, "Job"), ["h-a-0", "h-a-1", "h-b-0"]);
    assert_eq!(names(&world, "PropagationPolicy"), ["h-a-0", "h-a-1", "h-b-0"]);
    for kind in ["Job", "PropagationPolicy"] {
        let metadata = &world.get(kind, "h-a-1")["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], world.get("HyperJob", "h")["metadata"]["uid"]);
        assert_eq!(metadata["labels"]["volcano.sh/hyperjob-name"], "h");
        assert_eq!(metadata["labels"]["volcano.sh/replicatedjob-name"], "a");
    }
    let spec = &world.get("PropagationPolicy", "h-a-1")["spec"];
    assert_eq!(spec["resourceSelectors"][0]["name"], "h-a-1");
    assert_eq!(spec["propagateDeps"], true);
    assert_eq!(world.get("HyperJob", "h")["status"]["splitCount"], 3);
}

#[test]
fn a_job_says_who_submitted_its_hyper_job() {
    let mut world = World::new(100);
    let created = "2026-05-01T00:30:00Z";
    let stamps = json!({"caldera.dev/submitted": created, "caldera.dev/submitter": "ada"});
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob",
        "metadata": {"name": "h", "namespace": "ns", "creationTimestamp": created, "annotations": stamps},
        "spec": {"replicatedJobs": [{"name": "a", "templateSpec": template(1)}]},
    }));
    world.settle();
    assert_eq!(world.get("Job", "h-a-0")["metadata"]["annotations"]["caldera.dev/submitter"], "ada");
}

#[test]
fn a44_a_job_comes_after_its_policy() {
    let world = world();
    let at = |plural: &str| {
        let creates = |write: &caldera_runtime::write::Write| {
            matches!(write.body, Body::Create(_)) && write.resource.plural == plural && write.name == "h-a-0"
        };
        world.writes.iter().position(creates).unwrap()
    };
    assert!(at("propagationpolicies") < at("jobs"));
}

/// A JSON patch is a decision to the writer, and a status of hundreds of jobs is written often.
#[test]
fn no_release_waits_behind_the_status_of_a_hyper_job() {
    let mut world = world();
    end(&mut world, "h-a-0", "Completed");
    let statuses = || world.writes.iter().filter(|write| write.resource.kind == "HyperJob");
    assert!(statuses().count() > 1);
    for write in statuses() {
        let Body::MergePatch(patch) = &write.body else { panic!("{write:?}") };
        assert!(patch["metadata"]["resourceVersion"].is_string(), "{patch}");
    }
    // What somebody else wrote there goes, as before.
    edit(&mut world, |object| object["status"]["odd"] = 1.into());
    assert!(world.get("HyperJob", "h")["status"].get("odd").is_none());
}

#[test]
fn an_idle_hyper_job_writes_nothing() {
    let mut world = world();
    let before = world.writes.len();
    world.pass(90);
    let kinds = ["HyperJob", "Job", "PropagationPolicy"];
    let about: Vec<_> =
        world.writes[before..].iter().filter(|write| kinds.contains(&write.resource.kind.as_str())).collect();
    assert!(about.is_empty(), "{about:?}");
}

#[test]
fn a37_a_job_that_ended_is_not_made_again_whoever_deletes_it() {
    let mut world = world();
    end(&mut world, "h-a-0", "Completed");
    world.delete("Job", "h-a-0");
    world.pass(90);
    assert_eq!(names(&world, "Job"), ["h-a-1", "h-b-0"]);
    let states = &world.get("HyperJob", "h")["status"]["replicatedJobsStatus"][0]["jobStates"];
    assert_eq!(states["h-a-0"]["phase"], "Completed");
    // Nor after a restart: the HyperJob says it.
    world.restart();
    world.settle();
    world.pass(90);
    assert_eq!(names(&world, "Job"), ["h-a-1", "h-b-0"]);
    for job in ["h-a-1", "h-b-0"] {
        end(&mut world, job, "Completed");
        world.delete("Job", job);
    }
    world.pass(90);
    assert_eq!(names(&world, "Job"), Vec::<String>::new());
    assert_eq!(says(&world, "Completed"), ("True".to_owned(), "EnoughCompleted".to_owned()));
}

#[test]
fn a_job_that_had_not_ended_is_made_again_when_it_is_deleted() {
    let mut world = world();
    world.delete("Job", "h-a-0");
    world.settle();
    assert_eq!(names(&world, "Job"), ["h-a-0", "h-a-1", "h-b-0"]);
}

#[test]
fn a41_what_somebody_else_owns_is_left_alone_and_told() {
    let mut world = World::new(100);
    let foreign = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "h-a-0", "namespace": "ns", "labels": {"volcano.sh/hyperjob-name": "h"}},
        "spec": template(7),
    });
    let foreign = world.put(foreign);
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": "h", "namespace": "ns"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 2, "templateSpec": template(1)}]},
    }));
    world.settle();
    assert_eq!(world.get("Job", "h-a-0")["spec"], foreign["spec"]);
    assert_eq!(names(&world, "PropagationPolicy"), ["h-a-1"], "it would place what is another's");
    assert_eq!(says(&world, "JobsCreated"), ("False".to_owned(), "JobRefused".to_owned()));
    assert!(condition(&world, "JobsCreated")["message"].as_str().unwrap().contains("h-a-0"));
    // Once the name is free, it is taken.
    world.delete("Job", "h-a-0");
    world.settle();
    assert_eq!(names(&world, "PropagationPolicy"), ["h-a-0", "h-a-1"]);
    assert_eq!(says(&world, "JobsCreated").0, "True");
}

#[test]
fn scaling_down_deletes_the_last_and_scaling_up_makes_new_ones() {
    let mut world = world();
    edit(&mut world, |it| it["spec"]["replicatedJobs"][0]["replicas"] = 1.into());
    for kind in ["Job", "PropagationPolicy"] {
        assert_eq!(names(&world, kind), ["h-a-0", "h-b-0"]);
    }
    edit(&mut world, |it| it["spec"]["replicatedJobs"][1]["replicas"] = 2.into());
    assert_eq!(names(&world, "Job"), ["h-a-0", "h-b-0", "h-b-1"]);
    edit(&mut world, |it| drop(it["spec"]["replicatedJobs"].as_array_mut().unwrap().remove(0)));
    assert_eq!(names(&world, "Job"), ["h-b-0", "h-b-1"]);
}

#[test]
fn a45_more_pods_of_a_task_are_needed_too() {
    let mut world = world();
    edit(&mut world, |it| it["spec"]["replicatedJobs"][1]["templateSpec"]["tasks"][0]["replicas"] = 5.into());
    let spec = &world.get("Job", "h-b-0")["spec"];
    assert_eq!((&spec["tasks"][0]["replicas"], &spec["minAvailable"]), (&json!(5), &json!(5)));
}

#[test]
fn a40_what_the_server_refuses_is_reported_and_not_repeated_at_once() {
    let mut world = World::new(100);
    let message = "no".to_owned();
    world.fail = vec![("jobs", Failure::Refused { code: 403, reason: "Forbidden".into(), message })];
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": "h", "namespace": "ns"},
        "spec": {"replicatedJobs": [{"name": "a", "templateSpec": template(1)}]},
    }));
    world.settle();
    world.pass(50);
    assert_eq!(names(&world, "Job"), Vec::<String>::new());
    assert_eq!(condition(&world, "JobsCreated")["message"], "no");
    world.pass(30);
    assert_eq!(names(&world, "Job"), ["h-a-0"]);
    assert_eq!(says(&world, "JobsCreated").0, "True");
}

#[test]
fn one_that_asks_for_too_many_jobs_behind_the_webhooks_back_makes_none_and_says_so() {
    let mut world = World::new(100);
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": "h", "namespace": "ns"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": i64::MAX, "templateSpec": template(1)}]},
    }));
    world.settle();
    assert_eq!(names(&world, "PropagationPolicy"), Vec::<String>::new());
    assert!(condition(&world, "JobsCreated")["message"].as_str().unwrap().contains("may have 500"));
}

/// Without our label it is not in our watch, and the create was tried each second without a word.
#[test]
fn a_name_that_is_taken_by_what_nobody_sees_is_reported_and_tried_each_minute() {
    let mut world = World::new(100);
    let taken = || ("propagationpolicies", Failure::Exists("there".into()));
    world.fail = vec![taken(), taken()];
    world.put(json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": "h", "namespace": "ns"},
        "spec": {"replicatedJobs": [{"name": "a", "templateSpec": template(1)}]},
    }));
    world.settle();
    world.pass(30);
    assert_eq!(names(&world, "PropagationPolicy"), Vec::<String>::new());
    assert_eq!(says(&world, "JobsCreated"), ("False".to_owned(), "JobRefused".to_owned()));
    assert!(condition(&world, "JobsCreated")["message"].as_str().unwrap().contains("\"h-a-0\""));
    world.pass(60);
    assert_eq!((names(&world, "Job"), says(&world, "JobsCreated").0), (vec!["h-a-0".to_owned()], "True".to_owned()));
}

#[test]
fn running_says_whether_enough_jobs_run() {
    let mut world = world();
    edit(&mut world, |it| it["spec"]["minAvailable"] = 2.into());
    assert_eq!(says(&world, "Running"), ("False".to_owned(), "TooFewRun".to_owned()));
    for job in ["h-a-0", "h-b-0"] {
        world.patch("Job", job, &json!({"status": {"state": {"phase": "Running"}, "running": 1, "pending": 1}}));
    }
    world.settle();
    assert_eq!(says(&world, "Running"), ("True".to_owned(), "EnoughRun".to_owned()));
    let message = condition(&world, "Running")["message"].as_str().unwrap();
    assert_eq!(message, "of 3 jobs 2 running, 0 completed, 0 failed; 2 needed");
    let b = &world.get("HyperJob", "h")["status"]["replicatedJobsStatus"][1];
    assert_eq!((&b["running"], &b["pending"], &b["failed"]), (&json!(1), &json!(1), &json!(0)));
}

#[test]
fn min_available_completed_are_enough_and_one_fewer_is_a_failure() {
    for (least, kind) in [(2, "Completed"), (3, "Failed")] {
        let mut world = world();
        edit(&mut world, |it| it["spec"]["minAvailable"] = least.into());
        end(&mut world, "h-a-0", "Failed");
        end(&mut world, "h-a-1", "Completed");
        assert_eq!(condition(&world, kind), &Value::Null, "one runs yet");
        end(&mut world, "h-b-0", "Completed");
        assert_eq!(says(&world, kind).0, "True");
    }
}

#[test]
fn a41_one_that_is_deleted_makes_nothing_more() {
    let mut world = world();
    edit(&mut world, |it| it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    world.delete("Job", "h-a-0");
    world.pass(90);
    assert_eq!(names(&world, "Job"), ["h-a-1", "h-b-0"]);
}

#[test]
fn an_index_that_ended_and_was_scaled_away_and_back_is_new() {
    let mut world = world();
    end(&mut world, "h-a-1", "Completed");
    edit(&mut world, |object| object["spec"]["replicatedJobs"][0]["replicas"] = 1.into());
    assert_eq!(names(&world, "Job"), ["h-a-0", "h-b-0"]);
    edit(&mut world, |object| object["spec"]["replicatedJobs"][0]["replicas"] = 2.into());
    assert_eq!(names(&world, "Job"), ["h-a-0", "h-a-1", "h-b-0"]);
}

#[test]
fn what_succeeded_stays_counted_when_its_job_is_deleted() {
    let mut world = world();
    end(&mut world, "h-a-0", "Completed");
    world.delete("Job", "h-a-0");
    world.settle();
    let status = &world.get("HyperJob", "h")["status"]["replicatedJobsStatus"][0];
    assert_eq!((&status["succeeded"], status["jobStates"]["h-a-0"]["phase"].as_str()), (&json!(1), Some("Completed")));
}

#[test]
fn jobs_are_created_once_all_are_made() {
    let world = world();
    let of_jobs = |write: &&caldera_runtime::write::Write| write.subresource.is_some() && write.name == "h";
    let first = world.writes.iter().find(of_jobs).map(|write| &write.body);
    let Some(Body::MergePatch(patch)) = first else { panic!("{:?}", world.writes) };
    let reported = &patch["status"]["conditions"][0];
    assert_eq!((&reported["type"], &reported["status"]), (&json!("JobsCreated"), &json!("False")), "{patch}");
    assert_eq!(reported["message"], "0 of 3 jobs made");
    assert_eq!(says(&world, "JobsCreated"), ("True".into(), "Created".into()));
}

#[test]
fn a_job_whose_end_is_not_recorded_yet_outlives_its_ttl() {
    let mut world = world();
    world.patch("Job", "h-a-0", &json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    world.settle();
    // The HyperJob's status can not be written.
    let object = world.get("HyperJob", "h").clone();
    let child = world.controller.objects.workloads.values().find(|job| &*job.reference.name == "h-a-0");
    let child = child.and_then(|job| job.child.clone()).unwrap();
    let key = crate::observe::Key::new("ns", "h-a-0");
    assert!(world.controller.hyper_jobs.is_end_unrecorded(&key, &child), "{object}");
    let now = caldera_runtime::clock::format_time(world.now);
    let ended = json!({"phase": "Completed", "lastTransitionTime": now});
    world.patch("Job", "h-a-0", &json!({"status": {"state": ended, "running": 0, "succeeded": 1}}));
    world.settle();
    world.pass(3);
    assert_eq!(names(&world, "Job"), ["h-a-1", "h-b-0"], "it goes once the HyperJob says how it ended");
    assert!(!world.controller.hyper_jobs.is_end_unrecorded(&key, &child));
    let status = &world.get("HyperJob", "h")["status"]["replicatedJobsStatus"][0];
    assert_eq!(status["jobStates"]["h-a-0"]["phase"], "Completed");
}

#[test]
fn jobs_of_hyper_jobs_that_there_are_not_leave_nothing_behind() {
    let mut world = World::new(100);
    for n in 0..3 {
        let mut job = super::world::job(&format!("j{n}"), "q", 1);
        job["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "name": format!("none-{n}"), "uid": "u",
            "controller": true,
        }]);
        job["status"]["state"]["phase"] = "Completed".into();
        world.put(job);
        world.settle();
        world.delete("Job", &format!("j{n}"));
        world.settle();
    }
    assert_eq!(world.controller.hyper_jobs.count_children(), 0);
}

#[test]
fn of_however_many_jobs_few_are_under_way_at_once() {
    let mut world = World::new(10);
    let hyper_job = |name: &str| {
        json!({
            "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob",
            "metadata": {"name": name, "namespace": "ns", "generation": 1},
            "spec": {"replicatedJobs": [{"name": "a", "replicas": 300, "templateSpec": template(1)}]},
        })
    };
    for name in ["g", "h", "i"] {
        let object = world.put(hyper_job(name));
        world.report(&object, false);
    }
    let made = |world: &mut World| {
        let writes = decide(&mut world.controller, world.now).writes;
        let heavy = writes.iter().filter(
            |write| matches!(write, Decision::HyperJob { write, .. } if !matches!(write, HyperJobWrite::Status(_))),
        );
        heavy.count()
    };
    let (mut first, mut more) = (0, 0);
    for _ in 0..5 {
        first += made(&mut world);
    }
    world.now = world.now.saturating_add(SignedDuration::from_secs(2)).unwrap();
    for _ in 0..5 {
        more += made(&mut world);
    }
    assert_eq!((first, more), (16, 0), "none of them is answered yet");
}

#[test]
fn all_jobs_of_a_large_one_are_made_in_the_end() {
    let mut world = world();
    edit(&mut world, |h| h["spec"]["replicatedJobs"][0]["replicas"] = 40.into());
    world.pass(20);
    assert_eq!(names(&world, "Job").len(), 41);
}

#[test]
fn while_the_policies_are_not_listed_the_controller_rests() {
    let mut world = World::new(100);
    world.controller.hyper_jobs = crate::decide::kinds::hyper_jobs::HyperJobs::default();
    put_hyper_job(&mut world);
    world.pass(5);
    assert!(names(&world, "Job").is_empty());
}
