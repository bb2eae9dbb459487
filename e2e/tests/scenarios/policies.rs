//! Policies of a split job: what one cluster's pods bring about is for all of it.

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

/// A job with a task that runs in one member and one in another, whose pod is to fail; returns these members.
async fn submit_split(s: &Scenario, name: &str, queue: &str, policies: Value) -> anyhow::Result<[String; 2]> {
    let mut tasks = [task("long", 2, "100m", "sleep 600"), task("broken", 1, "100m", "sleep 600")];
    let members = pin_tasks(s, &mut tasks, &[0, 1]).await?;
    let mut workload = job(name, queue, &tasks);
    workload["spec"]["policies"] = policies;
    workload["spec"]["maxRetry"] = 2.into();
    s.submit(Kind::Job, workload, &aggregated()).await?;
    Ok(members)
}

/// Has each task run in one of two members, the first or the second; returns these.
async fn pin_tasks(s: &Scenario, tasks: &mut [Value], homes: &[usize]) -> anyhow::Result<[String; 2]> {
    let members: Vec<String> = s.members().take(2).map(str::to_owned).collect();
    let members = <[String; 2]>::try_from(members).ok().context("splitting needs two members")?;
    for (task, home) in tasks.iter_mut().zip(homes) {
        let nodes = s.list_in_member(&members[*home], Kind::Node, None).await;
        let node = nodes.first().context("a member without nodes")?["metadata"]["name"].clone();
        task["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    Ok(members)
}

/// Once all of the job runs: a pod that fails while its Volcano still counts it as starting has the copy fail before
/// its policy is looked at.
async fn fail_broken_pod(s: &Scenario, member: &str, name: &str) -> anyhow::Result<()> {
    s.until(Kind::Job, name, "runs in both clusters", |job| {
        job["status"]["state"]["phase"] == "Running" && job["status"]["running"] == 3
    })
    .await?;
    s.end_pod_in_member(member, &format!("{name}-broken-0"), 3).await
}

async fn holds_nothing(s: &Scenario, queue: &str) -> anyhow::Result<()> {
    s.until(Kind::Queue, queue, "holds nothing", |queue| {
        queue["status"]["allocated"]["cpu"].as_str().is_none_or(|cpu| cpu == "0")
    })
    .await?;
    Ok(())
}

#[test]
fn a_pod_that_fails_restarts_the_whole_split_job_until_its_max_retry() {
    run("retry", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let [long, broken] =
            submit_split(&s, "again", &queue, json!([{"event": "PodFailed", "action": "RestartJob"}])).await?;
        let first = s.until_in_member(&long, Kind::Job, "again", "is there", |_| true).await?;
        fail_broken_pod(&s, &broken, "again").await?;
        s.until(Kind::Binding, "again-job", "has restarted once", |binding| {
            let record = binding["metadata"]["annotations"]["caldera.dev/eviction"].as_str().unwrap_or_default();
            record.contains("RestartedByPolicy") && record.contains("\"restarts\":1")
        })
        .await?;
        // Not before both old copies are gone, so the pod that runs in the other cluster then is the new copy's.
        s.until_in_member(&long, Kind::Job, "again", "is made anew", |copy| {
            copy["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await?;
        fail_broken_pod(&s, &broken, "again").await?;
        let failed = s.until_phase("again", "Failed").await?;
        ensure!(failed["status"]["retryCount"] == 2, "{}", failed["status"]);
        // Its last copy has one try left, and may say that it failed before the whole job is taken off.
        let reason = failed["status"]["state"]["reason"].as_str();
        ensure!(reason.is_none_or(|reason| reason == "MaxRetryReached"), "{}", failed["status"]);
        s.until_gone_in_member(&long, Kind::Job, "again").await?;
        holds_nothing(&s, &queue).await
    });
}

#[test]
fn a_pod_that_fails_aborts_or_ends_the_whole_split_job_as_its_policies_say() {
    run("ends", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        for (name, policy, phase) in [
            ("aborts", json!({"event": "PodFailed", "action": "AbortJob"}), "Aborted"),
            ("exits", json!({"exitCode": 3, "action": "TerminateJob"}), "Terminated"),
        ] {
            let [long, broken] = submit_split(&s, name, &queue, json!([policy])).await?;
            fail_broken_pod(&s, &broken, name).await?;
            s.until_phase(name, phase).await?;
            s.until_gone_in_member(&long, Kind::Job, name).await?;
            holds_nothing(&s, &queue).await?;
        }
        Ok(())
    });
}

#[test]
fn a_split_job_completes_once_enough_of_its_pods_succeeded_in_whichever_clusters() {
    run("min-success", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        // Two successes of two wanted, all of them in one cluster.
        let mut tasks = [task("quick", 2, "100m", "sleep 5"), task("long", 2, "100m", "sleep 600")];
        let [quick, long] = pin_tasks(&s, &mut tasks, &[0, 1]).await?;
        let mut workload = job("one-side", &queue, &tasks);
        workload["spec"]["minSuccess"] = 2.into();
        s.submit(Kind::Job, workload, &aggregated()).await?;
        s.until_in_member(&long, Kind::Job, "one-side", "is there", |_| true).await?;
        let done = s.until_phase("one-side", "Completed").await?;
        ensure!(done["status"]["state"]["reason"] == "MinSuccessReached", "{}", done["status"]);
        ensure!(done["status"]["succeeded"] == 2, "{}", done["status"]);
        s.until_gone_in_member(&long, Kind::Job, "one-side").await?;
        s.until_in_member(&quick, Kind::Job, "one-side", "stays, for its logs", |copy| {
            copy["status"]["state"]["phase"] == "Completed"
        })
        .await?;
        holds_nothing(&s, &queue).await?;
        // One in each: no copy has enough by itself.
        let long = ["left", "right"].map(|name| task(name, 1, "100m", "sleep 600"));
        let quick = ["east", "west"].map(|name| task(name, 1, "100m", "sleep 5"));
        let mut tasks: Vec<Value> = long.into_iter().chain(quick).collect();
        let members = pin_tasks(&s, &mut tasks, &[0, 1, 0, 1]).await?;
        let mut workload = job("both-sides", &queue, &tasks);
        workload["spec"]["minSuccess"] = 2.into();
        s.submit(Kind::Job, workload, &aggregated()).await?;
        for member in &members {
            s.until_in_member(member, Kind::Job, "both-sides", "is there", |_| true).await?;
        }
        let done = s.until_phase("both-sides", "Completed").await?;
        ensure!(done["status"]["state"]["reason"] == "MinSuccessReached", "{}", done["status"]);
        for member in &members {
            s.until_gone_in_member(member, Kind::Job, "both-sides").await?;
        }
        holds_nothing(&s, &queue).await
    });
}
