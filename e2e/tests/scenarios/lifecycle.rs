//! Deletion, failure, and what stays behind: nothing.

use anyhow::ensure;
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

fn empty(queue: &Value) -> bool {
    let cpu = &queue["status"]["allocated"]["cpu"];
    cpu.is_null() || cpu == "0"
}

#[test]
fn deleting_a_waiting_job_leaves_nothing() {
    run("delwait", async |s| {
        let queue = s.queue("q", json!({"cpu": "100m"})).await?;
        let workload =
            s.submit(Kind::Job, job("never", &queue, &[task("a", 2, "1", "sleep 1")]), &aggregated()).await?;
        let group = s.until_podgroup(&workload, "waits", |group| group["status"]["conditions"][0].is_object()).await?;
        anyhow::ensure!(group["metadata"]["name"] == "never-vcjob", "a name that people can type: {group}");
        s.delete(Kind::Job, "never").await?;
        s.until_gone(Kind::Binding, "never-job").await?;
        s.until_gone(Kind::PodGroup, group["metadata"]["name"].as_str().unwrap_or_default()).await?;
        Ok(())
    });
}

#[test]
fn deleting_a_running_job_gives_its_quota_back_and_cleans_the_members() {
    run("delrun", async |s| {
        let queue = s.queue("q", json!({"cpu": "400m"})).await?;
        s.submit(Kind::Job, job("long", &queue, &[task("a", 2, "200m", "sleep 600")]), &aggregated()).await?;
        let clusters = s.until_placed("long-job").await?;
        s.until_phase("long", "Running").await?;
        s.submit(Kind::Job, job("next", &queue, &[task("a", 2, "200m", "sleep 1")]), &aggregated()).await?;
        s.delete(Kind::Job, "long").await?;
        for (member, _) in &clusters {
            s.until_gone_in_member(member, Kind::Job, "long").await?;
        }
        s.until_phase("next", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

#[test]
fn a2_17_a_recreated_job_of_the_same_name_is_a_new_job() {
    run("again", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let workload = || job("twice", &queue, &[task("a", 1, "200m", "sleep 1")]);
        s.submit(Kind::Job, workload(), &aggregated()).await?;
        s.until_phase("twice", "Completed").await?;
        s.delete(Kind::Job, "twice").await?;
        s.until_gone(Kind::Job, "twice").await?;
        s.until_gone(Kind::Binding, "twice-job").await?;
        s.create(Kind::Job, workload()).await?;
        s.until_phase("twice", "Completed").await?;
        Ok(())
    });
}

/// Its user waits for nobody; the new one waits until its members have forgotten the old one.
#[test]
fn a_job_made_anew_at_once_under_its_name_is_a_new_job_in_its_members() {
    run("anew", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let workload = |seconds: u32| job("same", &queue, &[task("a", 2, "100m", &format!("sleep {seconds}"))]);
        let old = s.submit(Kind::Job, workload(600), &aggregated()).await?;
        s.until_phase("same", "Running").await?;
        let before = s.until_placed("same-job").await?;
        s.delete(Kind::Job, "same").await?;
        s.until_gone(Kind::Job, "same").await?;
        let new = s.create(Kind::Job, workload(1)).await?;
        ensure!(new["metadata"]["uid"] != old["metadata"]["uid"], "{new}");
        let done = s.until_phase("same", "Completed").await?;
        ensure!(done["metadata"]["uid"] == new["metadata"]["uid"], "{}", done["metadata"]);
        ensure!(done["status"]["succeeded"] == 2, "what the old one told is not the new one's: {}", done["status"]);
        let after = s.until_placed("same-job").await?;
        for (member, _) in before.iter().filter(|(member, _)| after.iter().all(|(other, _)| other != member)) {
            s.until_gone_in_member(member, Kind::Job, "same").await?;
        }
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

/// Its member's Volcano takes the old one out of its cache by name, some time after the old pods have gone.
#[test]
fn a_job_made_anew_when_the_old_pods_are_gone_is_not_forgotten_with_the_old_one() {
    run("forgotten", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let workload = |seconds: u32| {
            let mut job = job("slow", &queue, &[task("a", 2, "100m", &format!("sleep {seconds}"))]);
            job["metadata"]["annotations"] = json!({"sim.caldera.dev/stops-in": "6"});
            job
        };
        s.submit(Kind::Job, workload(600), &aggregated()).await?;
        s.until_phase("slow", "Running").await?;
        let before = s.until_placed("slow-job").await?;
        s.delete(Kind::Job, "slow").await?;
        for (member, _) in &before {
            s.until_gone_in_member(member, Kind::Pod, "slow-a-0").await?;
            s.until_gone_in_member(member, Kind::Pod, "slow-a-1").await?;
        }
        s.until_gone(Kind::Binding, "slow-job").await?;
        s.create(Kind::Job, workload(1)).await?;
        s.until_phase("slow", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a_failed_job_is_failed_and_gives_its_quota_back() {
    run("failed", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.submit(Kind::Job, job("broken", &queue, &[task("a", 1, "200m", "sleep 1; exit 3")]), &aggregated()).await?;
        s.until_phase("broken", "Failed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        s.submit(Kind::Job, job("fine", &queue, &[task("a", 1, "200m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("fine", "Completed").await?;
        Ok(())
    });
}

#[test]
fn the_podgroup_follows_the_job_through_its_life() {
    // Long enough that a busy member says in time that it runs.
    run("podgroup", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut workload =
            job("followed", &queue, &[task("a", 2, "100m", "sleep 60"), task("b", 1, "100m", "sleep 60")]);
        workload["spec"]["minAvailable"] = 3.into();
        let workload = s.submit(Kind::Job, workload, &aggregated()).await?;
        let group = s.until_podgroup(&workload, "runs", |group| group["status"]["phase"] == "Running").await?;
        ensure!(group["spec"]["minMember"] == 3, "{}", group["spec"]);
        ensure!(group["spec"]["minTaskMember"] == json!({"a": 2, "b": 1}), "{}", group["spec"]);
        ensure!(group["spec"]["minResources"]["cpu"] == "300m", "{}", group["spec"]);
        ensure!(group["spec"]["queue"] == queue.as_str(), "{}", group["spec"]);
        ensure!(group["metadata"]["ownerReferences"][0]["uid"] == workload["metadata"]["uid"], "{}", group["metadata"]);
        s.until_podgroup(&workload, "is completed", |group| group["status"]["phase"] == "Completed").await?;
        Ok(())
    });
}

#[test]
fn tasks_that_depend_on_others_start_after_them() {
    run("depends", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut second = task("second", 1, "100m", "sleep 1");
        second["dependsOn"] = json!({"name": ["first"]});
        let mut workload = job("chain", &queue, &[task("first", 1, "100m", "sleep 1"), second]);
        workload["spec"]["minAvailable"] = 1.into();
        s.submit(Kind::Job, workload, &aggregated()).await?;
        s.until_phase("chain", "Completed").await?;
        Ok(())
    });
}
