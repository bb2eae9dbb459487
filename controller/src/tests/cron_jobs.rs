//! CronJobs: which runs are made, once, and what becomes of their jobs.

use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use super::world::World;
use crate::observe::CronJobFacts;

/// The world's CronJob `c`, every minute, with what its spec says beside that.
fn world(spec: Value) -> World {
    let mut world = World::new(100);
    let mut all = json!({
        "schedule": "* * * * *",
        "jobTemplate": {"metadata": {"labels": {"app": "report"}}, "spec": {"queue": "q", "tasks": [{
            "name": "t", "replicas": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }]}},
    });
    json_patch::merge(&mut all, &spec);
    world.put(json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "ns", "generation": 1}, "spec": all,
    }));
    world.settle();
    world
}

fn jobs(world: &World) -> Vec<String> {
    let of_kind = world.objects.keys().filter(|key| key.0 == "Job");
    of_kind.map(|key| key.2.clone()).collect()
}

fn status(world: &World) -> &Value {
    &world.get("CronJob", "c")["status"]
}

fn end(world: &mut World, job: &str, phase: &str) {
    let at = caldera_runtime::clock::format_time(world.now);
    let state = json!({"phase": phase, "lastTransitionTime": at});
    world.patch("Job", job, &json!({"status": {"state": state, "running": 0}}));
    world.settle();
}

fn reported(world: &World) -> Vec<String> {
    let events = world.objects.values().filter(|object| object["kind"] == "Event" && object["reason"] == "RunNotMade");
    events.map(|event| event["note"].as_str().or(event["message"].as_str()).unwrap_or_default().to_owned()).collect()
}

#[test]
fn each_time_of_the_schedule_makes_one_job_as_the_template_has_it() {
    let mut world = world(json!({}));
    assert_eq!(jobs(&world), Vec::<String>::new(), "nothing was due since it was made");
    world.pass(125);
    let made = jobs(&world);
    assert_eq!(made.len(), 2, "{made:?}");
    let job = world.get("Job", &made[1]);
    assert_eq!(job["metadata"]["labels"], json!({"app": "report"}));
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], world.get("CronJob", "c")["metadata"]["uid"]);
    assert_eq!(job["spec"]["queue"], "q");
    let scheduled = &job["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled.as_str().unwrap()[..19], status(&world)["lastScheduleTime"].as_str().unwrap()[..19]);
    let active: Vec<&str> =
        status(&world)["active"].as_array().unwrap().iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(active, made);
}

#[test]
fn nothing_is_written_of_a_cron_job_before_its_first_run() {
    let world = world(json!({"schedule": "0 0 1 1 *"}));
    assert!(status(&world).is_null(), "{}", status(&world));
}

#[test]
fn a_large_template_is_kept_as_text_and_a_job_is_made_of_all_of_it() {
    let object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1", "managedFields": [{}]},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"metadata": {"labels": {"volcano.sh/queue-name": "q"}}}},
    });
    let facts = CronJobFacts::read(object.clone()).unwrap();
    assert!(facts.object["spec"]["jobTemplate"].is_null() && facts.object["metadata"]["managedFields"].is_null());
    assert_eq!(facts.whole_object()["spec"], object["spec"]);
}

#[test]
fn a_run_is_made_once_through_a_crash_after_each_write() {
    for writes in 0..6 {
        let mut world = world(json!({"concurrencyPolicy": "Forbid"}));
        world.budget = Some(writes);
        world.pass(25);
        world.budget = None;
        world.restart();
        world.settle();
        world.pass(25);
        let made = jobs(&world);
        assert_eq!(made.len(), 1, "after {writes} writes: {made:?}");
        assert!(status(&world)["lastScheduleTime"].is_string(), "after {writes} writes");
        // One that ended and is gone is not made again.
        end(&mut world, &made[0], "Completed");
        world.delete("Job", &made[0]);
        world.settle();
        assert_eq!(jobs(&world), Vec::<String>::new(), "after {writes} writes");
    }
}

#[test]
fn of_runs_that_were_missed_the_last_is_made_if_it_is_not_too_late() {
    let late = |spec: Value, seconds: i64| {
        let mut world = world(spec);
        world.now = world.now.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
        world.settle();
        jobs(&world).len()
    };
    assert_eq!(late(json!({"schedule": "0 * * * *"}), 5 * 3600), 1);
    assert_eq!(late(json!({"schedule": "0 0 1 1 *", "startingDeadlineSeconds": 60}), 366 * 86_400 + 3600), 0);
    assert_eq!(late(json!({"suspend": true}), 3600), 0);
}

#[test]
fn a_run_waits_for_the_one_before_it_or_takes_its_place_as_the_policy_says() {
    let mut forbid = world(json!({"concurrencyPolicy": "Forbid"}));
    forbid.pass(185);
    let first = jobs(&forbid);
    assert_eq!(first.len(), 1, "{first:?}");
    end(&mut forbid, &first[0], "Completed");
    assert_eq!(jobs(&forbid).len(), 2, "the last of those that were missed is made");

    let mut replace = world(json!({"concurrencyPolicy": "Replace"}));
    replace.pass(65);
    let first = jobs(&replace);
    replace.pass(60);
    let second = jobs(&replace);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
}

#[test]
fn jobs_that_ended_are_kept_as_the_history_limits_say() {
    let mut world = world(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}));
    for phase in ["Completed", "Failed", "Completed"] {
        world.pass(60);
        let made = jobs(&world);
        end(&mut world, made.last().unwrap(), phase);
    }
    world.pass(15);
    let left = jobs(&world);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(world.get("Job", &left[0])["status"]["state"]["phase"], "Completed");
    assert!(status(&world)["lastSuccessfulTime"].is_string() && status(&world)["active"].is_null());
}

#[test]
fn a_job_whose_time_is_over_stays_until_the_status_has_its_run() {
    let mut world = world(json!({"jobTemplate": {"spec": {"ttlSecondsAfterFinished": 0}}}));
    world.fail = vec![("cronjobs", Failure::Transient("no".into())); 45];
    world.pass(60);
    let made = jobs(&world);
    end(&mut world, &made[0], "Completed");
    world.pass(2);
    assert_eq!(jobs(&world), made);
    world.pass(15);
    assert_eq!(jobs(&world), Vec::<String>::new(), "it is deleted once that is written");
    assert!(status(&world)["lastScheduleTime"].is_string());
}

#[test]
fn what_is_anothers_is_left_alone_and_what_goes_wrong_is_reported_once() {
    let mut world = world(json!({}));
    world.put(super::world::job("c-16667", "q", 1));
    world.pass(25);
    assert_eq!(world.get("Job", "c-16667")["metadata"]["ownerReferences"], Value::Null);
    assert!(reported(&world).len() == 1 && reported(&world)[0].contains("c-16667"), "{:?}", reported(&world));
    world.delete("Job", "c-16667");
    let mut world = self::world(json!({}));
    world.fail =
        vec![("jobs", Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no such queue".into() })];
    world.pass(70);
    assert_eq!((jobs(&world).len(), reported(&world)), (0, vec!["no such queue".to_owned()]));
    world.pass(60);
    assert_eq!(jobs(&world).len(), 1, "it is tried again");
}

#[test]
fn one_that_a_policy_sends_to_members_is_theirs_to_run() {
    let mut world = world(json!({"suspend": true}));
    let claimed = json!({"metadata": {"labels": {"propagationpolicy.karmada.io/permanent-id": "x"}}});
    world.patch("CronJob", "c", &claimed);
    world.patch("CronJob", "c", &json!({"spec": {"suspend": false}}));
    world.pass(125);
    assert_eq!((jobs(&world).len(), reported(&world).len()), (0, 1));
}

/// The same in a namespace that opted in or not, with jobs of Kubernetes.
fn opt_in(world: &mut World, opted_in: bool) {
    let facts = caldera_crds::tenancy::NamespaceFacts { opted_in, ..Default::default() };
    let namespace = caldera_runtime::watch::Event::Applied(("ns".to_owned(), facts));
    world.controller.observe(crate::observe::Input::Namespaces(namespace), world.now);
}

fn batch_world(template: Value, opted_in: bool) -> World {
    let mut world = World::new(100);
    opt_in(&mut world, opted_in);
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut all = json!({"spec": {"template": pod}});
    json_patch::merge(&mut all, &template);
    world.put(json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "ns", "generation": 1},
        "spec": {"schedule": "* * * * *", "jobTemplate": all},
    }));
    world.settle();
    world
}

#[test]
fn a_namespace_that_opts_in_has_its_cron_jobs_run_and_none_is_asked_about_before() {
    let mut world = batch_world(json!({}), false);
    world.pass(65);
    assert_eq!((jobs(&world).len(), world.controller.cron_jobs.next_due()), (0, None));
    opt_in(&mut world, true);
    world.pass(65);
    assert!(!jobs(&world).is_empty());
}

#[test]
fn a_cron_job_of_kubernetes_is_run_where_its_jobs_are_queued() {
    let queued = json!({"metadata": {"labels": {"volcano.sh/queue-name": "q"}}});
    for (template, opted_in, want) in [(json!({}), false, 0), (json!({}), true, 1), (queued, false, 1)] {
        let mut world = batch_world(template, opted_in);
        world.pass(25);
        assert_eq!(jobs(&world).len(), want, "{opted_in}");
        let Some(name) = jobs(&world).pop() else { continue };
        assert_eq!(world.get("Job", &name)["apiVersion"], "batch/v1");
        let ended = json!({"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1,
            "completionTime": "1970-01-12T13:47:30Z"});
        world.patch("Job", &name, &json!({"status": ended}));
        world.settle();
        assert_eq!(status(&world)["lastSuccessfulTime"], "1970-01-12T13:47:30Z");
        assert!(status(&world)["active"].is_null());
    }
}

#[test]
fn an_idle_cron_job_writes_nothing() {
    let mut world = world(json!({"schedule": "@yearly"}));
    let before = world.writes.len();
    world.pass(90);
    let about: Vec<_> = world.writes[before..].iter().filter(|write| write.resource.kind == "CronJob").collect();
    assert!(about.is_empty(), "{about:?}");
}
