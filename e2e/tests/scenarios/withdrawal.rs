//! What users do with jobs that they submitted: suspend, resume, restart, end, and let expire.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use caldera_crds::names::caldera::CLUSTERS;
use caldera_e2e::{
    PATIENCE,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
    scenario::Scenario,
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

/// What `vcctl job suspend` and its like create.
async fn send(s: &Scenario, action: &str, target: &Value) -> anyhow::Result<String> {
    let job = target["metadata"]["name"].as_str().unwrap_or_default();
    let name = format!("{job}-{}", action.to_lowercase());
    let command = json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": name}, "action": action,
        "target": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": target["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        },
    });
    s.create(Kind::Command, command).await?;
    Ok(name)
}

/// A job of two pods that runs until it is ended, and the clusters that it is in.
async fn start_long_job(s: &Scenario, name: &str, queue: &str) -> anyhow::Result<(Value, Vec<(String, u64)>)> {
    let workload = job(name, queue, &[task("a", 2, "100m", "sleep 600")]);
    let workload = s.submit(Kind::Job, workload, &aggregated()).await?;
    let clusters = s.until_placed(&format!("{name}-job")).await?;
    s.until_phase(name, "Running").await?;
    Ok((workload, clusters))
}

fn reason(group: &Value) -> &str {
    group["status"]["conditions"][0]["reason"].as_str().unwrap_or_default()
}

/// Waits until the job is in no cluster.
async fn until_off(s: &Scenario, name: &str, clusters: &[(String, u64)]) -> anyhow::Result<()> {
    for (member, _) in clusters {
        s.until_gone_in_member(member, Kind::Job, name).await?;
    }
    let binding = s.get(Kind::Binding, &format!("{name}-job")).await?.context("no binding")?;
    let left = binding["spec"]["clusters"].as_array().map_or(0, Vec::len);
    ensure!(left == 0, "{}", binding["spec"]["clusters"]);
    Ok(())
}

#[test]
fn a_job_goes_with_its_copies_when_its_ttl_is_over() {
    run("ttl", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut workload = job("brief", &queue, &[task("a", 2, "100m", "sleep 1")]);
        workload["spec"]["ttlSecondsAfterFinished"] = 6.into();
        s.submit(Kind::Job, workload, &aggregated()).await?;
        let clusters = s.until_placed("brief-job").await?;
        let done = s.until_phase("brief", "Completed").await?;
        let ended = done["status"]["state"]["lastTransitionTime"].as_str().context("no time of the end")?;
        let ended: Timestamp = ended.parse()?;
        s.until_gone(Kind::Job, "brief").await?;
        let after = Timestamp::now().duration_since(ended).as_secs();
        eprintln!("gone {after} s after its end, with a TTL of 6 s");
        // A minute more on a machine that is busy with much else.
        ensure!((6..66).contains(&after), "gone {after} s after its end, with a TTL of 6 s");
        s.until_gone(Kind::Binding, "brief-job").await?;
        for (member, _) in &clusters {
            s.until_gone_in_member(member, Kind::Job, "brief").await?;
        }
        Ok(())
    });
}

#[test]
fn a_suspended_job_leaves_its_clusters_and_comes_back() {
    run("suspend", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (workload, clusters) = start_long_job(&s, "long", &queue).await?;
        s.submit(Kind::Job, job("next", &queue, &[task("a", 2, "100m", "sleep 1")]), &aggregated()).await?;
        let suspended = |value: Value| json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}});
        s.patch(Kind::Job, "long", &suspended(json!("true"))).await?;
        s.until_podgroup(&workload, "says who suspended it", |group| reason(group) == "SuspendedByUser").await?;
        until_off(&s, "long", &clusters).await?;
        s.until_phase("next", "Completed").await?;
        s.until_phase("long", "Aborted").await?;
        s.patch(Kind::Job, "long", &suspended(json!(null))).await?;
        s.until_placed("long-job").await?;
        s.until_phase("long", "Running").await?;
        Ok(())
    });
}

/// Karmada's own words, in its place.
async fn list_copies(s: &Scenario, binding: &str, items: &Value) -> anyhow::Result<()> {
    let namespace = s.get(Kind::Binding, binding).await?.context("no binding")?["metadata"]["namespace"].clone();
    let namespace = namespace.as_str().context("no namespace")?;
    let api: Api<DynamicObject> = Api::namespaced_with(s.host(), namespace, &Kind::Binding.resource());
    let patch = Patch::Merge(json!({"status": {"aggregatedStatus": items}}));
    api.patch_status(binding, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[test]
fn karmada_is_asked_to_look_again_where_it_lists_a_copy_that_is_to_be_gone() {
    run("orphan", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (_, clusters) = start_long_job(&s, "long", &queue).await?;
        let suspended = |value: Value| json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}});
        s.patch(Kind::Job, "long", &suspended(json!("true"))).await?;
        until_off(&s, "long", &clusters).await?;
        let no_copies = |binding: &Value| binding["status"]["aggregatedStatus"].as_array().is_none_or(Vec::is_empty);
        s.until(Kind::Binding, "long-job", "has no copies", no_copies).await?;
        let copies = json!([{"clusterName": clusters[0].0, "applied": true}]);
        let began = Instant::now();
        loop {
            let binding = s.get(Kind::Binding, "long-job").await?.context("no binding")?;
            if binding["spec"]["suspension"]["dispatching"] == false {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "nobody touched it: {binding}");
            // Karmada may have had something left to say.
            if no_copies(&binding) {
                list_copies(&s, "long-job", &copies).await?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        list_copies(&s, "long-job", &Value::Null).await?;
        s.patch(Kind::Job, "long", &suspended(json!(null))).await?;
        s.until_placed("long-job").await?;
        s.until_phase("long", "Running").await?;
        Ok(())
    });
}

#[test]
fn spec_suspend_of_a_batch_job_holds_it_and_lets_it_go() {
    run("batchsus", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let workload = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "plain", "labels": {"volcano.sh/queue-name": queue}},
            "spec": {"parallelism": 2, "completions": 2, "suspend": true, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 1"],
                    "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                }],
            }}},
        });
        let workload = s.submit(Kind::BatchJob, workload, &aggregated()).await?;
        s.until_podgroup(&workload, "says who suspended it", |group| reason(group) == "SuspendedByUser").await?;
        s.patch(Kind::BatchJob, "plain", &json!({"spec": {"suspend": false}})).await?;
        s.until(Kind::BatchJob, "plain", "is complete", |job| {
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Complete" && one["status"] == "True")
        })
        .await?;
        Ok(())
    });
}

#[test]
fn abort_and_resume_by_commands_as_vcctl_sends_them() {
    run("abort", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (workload, clusters) = start_long_job(&s, "long", &queue).await?;
        let command = send(&s, "AbortJob", &workload).await?;
        s.until_podgroup(&workload, "says who suspended it", |group| reason(group) == "SuspendedByUser").await?;
        until_off(&s, "long", &clusters).await?;
        s.until_gone(Kind::Command, &command).await?;
        s.until_told("long", "CommandIssued").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| {
            let cpu = &queue["status"]["allocated"]["cpu"];
            cpu.is_null() || cpu == "0"
        })
        .await?;
        let command = send(&s, "ResumeJob", &workload).await?;
        s.until_placed("long-job").await?;
        s.until_phase("long", "Running").await?;
        s.until_gone(Kind::Command, &command).await?;
        Ok(())
    });
}

#[test]
fn terminate_and_complete_end_a_job_for_good() {
    run("terminate", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        for (name, action, phase) in [("one", "TerminateJob", "Terminated"), ("two", "CompleteJob", "Completed")] {
            let (workload, clusters) = start_long_job(&s, name, &queue).await?;
            let command = send(&s, action, &workload).await?;
            s.until_phase(name, phase).await?;
            until_off(&s, name, &clusters).await?;
            s.until_gone(Kind::Command, &command).await?;
            s.until_podgroup(&workload, "has ended", |group| group["status"]["phase"] == "Completed").await?;
        }
        Ok(())
    });
}

#[test]
fn restart_by_a_command_makes_the_copies_anew() {
    run("restart", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (workload, clusters) = start_long_job(&s, "long", &queue).await?;
        let mut old = Vec::new();
        for (member, _) in &clusters {
            let copy = s.get_in_member(member, Kind::Job, "long").await?.context("no copy")?;
            old.push(copy["metadata"]["uid"].clone());
        }
        let command = send(&s, "RestartJob", &workload).await?;
        s.until_gone(Kind::Command, &command).await?;
        s.until(Kind::Binding, "long-job", "was restarted", |binding| {
            let record = binding["metadata"]["annotations"]["caldera.dev/eviction"].as_str().unwrap_or_default();
            record.contains(r#""reason":"Restarted""#)
        })
        .await?;
        for (member, _) in &s.until_placed("long-job").await? {
            s.until_in_member(member, Kind::Job, "long", "is a new one that runs", |copy| {
                !old.contains(&copy["metadata"]["uid"]) && copy["status"]["state"]["phase"] == "Running"
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn a_command_for_a_part_of_a_job_is_refused_and_the_job_runs_on() {
    run("part", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (workload, _) = start_long_job(&s, "long", &queue).await?;
        let command = send(&s, "RestartTask", &workload).await?;
        s.until_gone(Kind::Command, &command).await?;
        s.until_told("long", "CommandRefused").await?;
        let job = s.get(Kind::Job, "long").await?.context("no job")?;
        ensure!(job["status"]["state"]["phase"] == "Running", "{}", job["status"]);
        Ok(())
    });
}

#[test]
fn a_job_that_is_moved_leaves_its_cluster_and_runs_where_its_user_chose() {
    run("moved", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let (workload, before) = start_long_job(&s, "moved", &queue).await?;
        let left: Vec<&str> = before.iter().map(|(cluster, _)| cluster.as_str()).collect();
        let other = s.members().find(|name| !left.contains(name)).context("all members have a part of it")?.to_owned();
        let choice = json!({"metadata": {"annotations": {CLUSTERS: other}}});
        s.patch(Kind::Job, "moved", &choice).await?;
        let binding = s.get(Kind::Binding, "moved-job").await?.context("no binding")?;
        ensure!(binding["spec"]["clusters"][0]["name"] == left[0], "what runs stays: {}", binding["spec"]["clusters"]);
        send(&s, "RestartJob", &workload).await?;
        s.until(Kind::Binding, "moved-job", "it is where its user chose", |binding| {
            binding["spec"]["clusters"][0]["name"] == other.as_str()
        })
        .await?;
        s.until_phase("moved", "Running").await?;
        Ok(())
    });
}
