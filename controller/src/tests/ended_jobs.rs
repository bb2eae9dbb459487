//! How jobs ended is kept after them.

use caldera_core::past_runs::{FEWEST, PastRuns};
use caldera_crds::names::caldera::{SUBMITTED, SUBMITTER};
use caldera_runtime::write::{Body, Write};
use serde_json::json;

use super::world::{World, job};
use crate::{
    history::{EndedJob, JobHistory},
    observe::Input,
    published_runs,
    usage::UsageHistory,
};

fn begin() -> World {
    let mut world = World::new(4);
    let now = world.now;
    world.controller.observe(Input::JobHistory(JobHistory::default()), now);
    world
}

fn runs(world: &mut World, job: &str, pods: u32) {
    world.job(job, "q", pods);
    world.settle();
    world.place(&format!("{job}-job"), pods);
    world.phase(job, "Running");
}

/// Found by a user: the number of failed pods was gone once the job restarted.
#[test]
fn pods_that_failed_are_told_to_the_end_though_the_members_forget_them() {
    let mut world = begin();
    runs(&mut world, "a", 3);
    for (failed, told) in [(1, 1), (0, 1), (2, 2), (0, 2)] {
        world.patch("Job", "a", &json!({"status": {"failed": failed}}));
        world.pass(60);
        assert_eq!(world.group("a")["status"]["failed"], told, "{failed}");
    }
    world.phase("a", "Completed");
    world.pass(60);
    assert_eq!(world.group("a")["status"]["failed"], 2);
}

/// What is written now, as it is read again: the history, and how long jobs ran.
fn save_all(world: &mut World) -> (JobHistory, Option<PastRuns>) {
    let (mut read, mut past) = (JobHistory::default(), None);
    for write in world.controller.ended_jobs.take_writes("caldera-system") {
        let Write { name, body: Body::Apply { object, .. }, .. } = write else { panic!("{write:?}") };
        match name.strip_prefix("caldera-history-") {
            Some(page) => read.read_page(page.parse().unwrap(), &object).unwrap(),
            None => past = Some(published_runs::read_runs(&object).unwrap()),
        }
    }
    (read, past)
}

fn save(world: &mut World) -> JobHistory {
    save_all(world).0
}

fn reported(history: &JobHistory) -> Vec<(String, String)> {
    history.list_lines().into_iter().map(|EndedJob { name, result, .. }| (name, result)).collect()
}

fn count_admissions(world: &mut World) -> u64 {
    let now = world.now;
    world.controller.observe(Input::UsageHistory(UsageHistory::default()), now);
    let write = world.controller.usage.write_history("caldera-system", now);
    let Some(Write { body: Body::Apply { object, .. }, .. }) = write else { panic!("{write:?}") };
    let months = UsageHistory::read_config_map(&object).unwrap().months;
    months.values().flatten().map(|(_, usage)| usage.admissions).sum()
}

fn line(name: &str, result: &str) -> (String, String) {
    (name.to_owned(), result.to_owned())
}

#[test]
fn each_end_of_a_job_that_was_given_quota_is_recorded_once_with_what_it_was_charged() {
    let mut world = begin();
    runs(&mut world, "a", 3);
    world.phase("a", "Completed");
    world.pass(3);
    let jobs = save(&mut world).list_lines();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((&*job.namespace, &*job.name, &*job.kind, &*job.queue.to_string()), ("ns", "a", "Job", "q"));
    assert_eq!((&*job.result, &job.clusters), ("Completed", &vec!["m1".to_owned()]));
    assert_eq!(job.charged.get("cpu").to_string(), "3");
    world.patch("ResourceBinding", "a-job", &json!({"metadata": {"labels": {"seen": "again"}}}));
    world.delete("Job", "a");
    world.pass(1);
    world.delete("ResourceBinding", "a-job");
    world.pass(3);
    assert_eq!(save(&mut world), JobHistory::default(), "nothing new");
    assert_eq!(count_admissions(&mut world), 1, "its binding outlived it");
}

#[test]
fn a_job_that_ended_and_is_being_deleted_is_not_admitted_once_more_whatever_its_status_says() {
    let mut world = begin();
    runs(&mut world, "a", 3);
    world.phase("a", "Completed");
    world.pass(3);
    world.patch("Job", "a", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    // Karmada merges what is left of its copies.
    world.phase("a", "Running");
    world.pass(3);
    assert_eq!(count_admissions(&mut world), 1);
}

/// As [`runs`], and it says when it began.
fn begins(world: &mut World, job: &str) {
    runs(world, job, 1);
    let condition = json!({"status": "Running", "lastTransitionTime": world.now.to_string()});
    world.patch("Job", job, &json!({"status": {"conditions": [condition]}}));
}

fn end_by_command(world: &mut World, job: &str) {
    world.put(json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"namespace": "ns", "name": "end"},
        "action": "TerminateJob", "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job},
    }));
    world.pass(3);
    let binding = format!("{job}-job");
    world.patch("ResourceBinding", &binding, &json!({"status": {"aggregatedStatus": null}}));
    world.pass(3);
}

#[test]
fn how_long_the_jobs_of_a_queue_ran_is_published_and_known_again_after_a_restart() {
    let mut world = begin();
    for at in 0..FEWEST {
        let name = format!("a{at}");
        begins(&mut world, &name);
        world.pass(40);
        world.phase(&name, "Completed");
        world.pass(3);
    }
    let (kept, published) = save_all(&mut world);
    let published = published.unwrap();
    let ran = published.expect_run(&"q".into(), None, None).unwrap();
    assert!((40..=44).contains(&ran), "{published:?}");
    assert_eq!(save_all(&mut world), (JobHistory::default(), None), "nothing new");
    world.controller.ended_jobs = Default::default();
    let now = world.now;
    world.controller.observe(Input::JobHistory(kept), now);
    assert_eq!(save_all(&mut world).1, Some(published));
}

/// Twelve minutes are its queue's, not its own.
#[test]
fn a_limit_is_not_what_a_job_says_of_its_run() {
    let mut world = begin();
    world.patch("Queue", "q", &json!({"metadata": {"annotations": {"caldera.dev/max-run-time": "12m"}}}));
    for (name, said) in [("silent", json!(null)), ("says", json!("1h"))] {
        world.job(name, "q", 1);
        world.patch("Job", name, &json!({"metadata": {"annotations": {"caldera.dev/running-estimate": said}}}));
        world.settle();
        world.place(&format!("{name}-job"), 1);
        world.phase(name, "Running");
        world.phase(name, "Completed");
        world.pass(3);
    }
    let jobs = save(&mut world).list_lines();
    let said: Vec<_> = jobs.iter().map(|job| (&*job.name, job.running_estimate)).collect();
    assert_eq!(said, [("silent", None), ("says", Some(3_600))]);
}

#[test]
fn a_job_ran_until_it_was_taken_off_its_clusters_however_long_it_waited_then() {
    let mut world = begin();
    begins(&mut world, "a");
    world.pass(40);
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.pass(5);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    runs(&mut world, "b", 4);
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": null}}}));
    world.pass(500);
    end_by_command(&mut world, "a");
    let jobs = save(&mut world).list_lines();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert!((40..=45).contains(&job.count_run_seconds().unwrap()), "{job:?}");
    assert!(job.ended.as_second() - job.started.unwrap().as_second() > 500, "{job:?}");
}

#[test]
fn an_end_in_the_future_is_now_and_a_job_that_ends_in_two_ways_ran_once() {
    let mut world = begin();
    for at in 0..FEWEST - 1 {
        begins(&mut world, &format!("a{at}"));
        world.pass(40);
        for phase in ["Completed", "Running", "Failed"] {
            let state = json!({"phase": phase, "lastTransitionTime": "2999-01-01T00:00:00Z"});
            world.patch("Job", &format!("a{at}"), &json!({"status": {"state": state, "running": 0}}));
            world.pass(1);
        }
        world.pass(3);
    }
    let (kept, published) = save_all(&mut world);
    assert!(kept.list_lines().iter().all(|job| job.ended <= world.now), "{kept:?}");
    assert_eq!(kept.list_lines().len(), 2 * (FEWEST - 1));
    // One fewer than are needed.
    assert_eq!(published, Some(PastRuns::default()));
    world.controller.ended_jobs = Default::default();
    let now = world.now;
    world.controller.observe(Input::JobHistory(kept), now);
    assert_eq!(save_all(&mut world).1, Some(PastRuns::default()));
}

#[test]
fn who_submitted_a_job_is_recorded_as_our_webhook_stamped_it() {
    let mut world = begin();
    let mut stamped = job("a", "q", 1);
    let created = world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    stamped["metadata"]["creationTimestamp"] = created.as_str().into();
    stamped["metadata"]["annotations"] = json!({SUBMITTED: created, SUBMITTER: "ada"});
    let stored = world.put(stamped);
    world.bind(&stored, 1, true);
    world.settle();
    world.place("a-job", 1);
    world.phase("a", "Running");
    world.phase("a", "Completed");
    world.pass(3);
    let jobs = save(&mut world).list_lines();
    assert_eq!(jobs.iter().map(|job| job.user.as_deref()).collect::<Vec<_>>(), [Some("ada")]);
}

#[test]
fn a_job_that_is_deleted_while_it_is_charged_ends_as_deleted_and_one_that_waits_is_not_recorded() {
    let mut world = begin();
    runs(&mut world, "a", 4);
    world.job("waits", "q", 4);
    world.pass(3);
    for job in ["a", "waits"] {
        world.delete("Job", job);
        world.delete("ResourceBinding", &format!("{job}-job"));
    }
    world.pass(3);
    assert_eq!(reported(&save(&mut world)), [line("a", "Deleted")]);
}

#[test]
fn a_job_that_is_taken_off_its_clusters_to_end_is_recorded_with_the_run_that_it_had() {
    let mut world = begin();
    runs(&mut world, "a", 3);
    world.pass(2);
    end_by_command(&mut world, "a");
    let jobs = save(&mut world).list_lines();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((&*job.result, &job.clusters, &*job.queue.to_string()), ("Terminated", &vec!["m1".to_owned()], "q"));
    assert_eq!(job.charged.get("cpu").to_string(), "3");
}

#[test]
fn a_binding_that_is_made_again_is_no_end_of_its_job() {
    let mut world = begin();
    runs(&mut world, "a", 4);
    world.delete("ResourceBinding", "a-job");
    world.pass(3);
    assert_eq!(reported(&save(&mut world)), []);
}

#[test]
fn before_what_was_kept_is_read_nothing_is_written_and_nothing_is_recorded_twice() {
    let mut world = begin();
    runs(&mut world, "a", 1);
    world.phase("a", "Completed");
    world.pass(3);
    let kept = save(&mut world);
    world.begin_anew();
    world.pass(3);
    runs(&mut world, "b", 1);
    world.phase("b", "Failed");
    world.pass(3);
    assert_eq!(save(&mut world), JobHistory::default());
    let now = world.now;
    world.controller.observe(Input::JobHistory(kept), now);
    assert_eq!(reported(&save(&mut world)), [line("a", "Completed"), line("b", "Failed")]);
}

#[test]
fn what_ended_after_the_last_write_of_a_controller_is_recorded_by_the_next_whichever_list_it_reads_first() {
    let mut world = begin();
    runs(&mut world, "a", 1);
    world.phase("a", "Completed");
    world.pass(3);
    let kept = save(&mut world);
    runs(&mut world, "b", 1);
    world.phase("b", "Failed");
    world.pass(3);
    world.begin_anew_with(kept);
    world.pass(3);
    assert_eq!(reported(&save(&mut world)), [line("a", "Completed"), line("b", "Failed")]);
}

/// A tenant may write a record on a binding; what it says was never charged.
#[test]
fn a_forged_record_makes_no_history() {
    let mut world = begin();
    runs(&mut world, "a", 4);
    world.job("b", "q", 2);
    world.settle();
    let record = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {}, "charged": {"cpu": "1000000"}});
    let annotations = json!({"caldera.dev/admission": record.to_string()});
    world.patch("ResourceBinding", "b-job", &json!({"metadata": {"annotations": annotations}}));
    world.delete("Job", "b");
    world.delete("ResourceBinding", "b-job");
    world.pass(3);
    assert_eq!(reported(&save(&mut world)), []);
}

/// Volcano says a later time of phase Running with each pod that ends.
#[test]
fn a_job_began_when_it_first_ran_however_often_its_counts_changed() {
    for ends in [true, false] {
        let mut world = begin();
        runs(&mut world, "a", 2);
        let first = world.now;
        for _ in 0..3 {
            let condition = json!({"status": "Running", "lastTransitionTime": world.now.to_string()});
            world.patch("Job", "a", &json!({"status": {"conditions": [condition]}}));
            world.pass(60);
        }
        if ends {
            world.phase("a", "Completed");
        } else {
            world.delete("Job", "a");
            world.delete("ResourceBinding", "a-job");
        }
        world.pass(3);
        let jobs = save(&mut world).list_lines();
        assert_eq!(jobs[0].started.map(|at| at.as_second()), Some(first.as_second()), "{jobs:?}");
    }
}
