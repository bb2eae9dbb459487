//! Deployments and batch Jobs under quota.

use anyhow::{Context, bail, ensure};
use caldera_crds::names::caldera::{SUBMITTED, SUBMITTER};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, duplicated, policy},
    run,
};
use serde_json::{Value, json};

#[test]
fn a_deployment_that_names_a_queue_is_charged_to_it() {
    run("service", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        submit_as_another(&s, &queue).await?;
        s.submit(Kind::Deployment, deployment("web", Some(&queue), 3, "200m"), &aggregated()).await?;
        s.until_placed("web-deployment").await?;
        s.until(Kind::Deployment, "web", "is ready", |web| web["status"]["readyReplicas"] == 3).await?;
        s.until(Kind::Queue, &queue, "is charged", |queue| queue["status"]["allocated"]["cpu"] == "0.6").await?;
        let second = s.submit(Kind::Deployment, deployment("more", Some(&queue), 3, "200m"), &aggregated()).await?;
        s.until_podgroup(&second, "waits", |group| group["status"]["conditions"].to_string().contains("cpu")).await?;
        s.delete(Kind::Deployment, "web").await?;
        s.until(Kind::Deployment, "more", "is ready", |web| web["status"]["readyReplicas"] == 3).await?;
        Ok(())
    });
}

/// A Deployment that says when another submitted it. No outage of the webhook stops it, so that one may come late.
async fn submit_as_another(s: &Scenario, queue: &str) -> anyhow::Result<()> {
    let (at, user) = ("2020-01-01T00:00:00.000000Z", "eve");
    for turn in 0..5 {
        let name = format!("forged-{turn}");
        let mut object = deployment(&name, Some(queue), 1, "10m");
        (object["metadata"]["annotations"][SUBMITTED], object["metadata"]["annotations"][SUBMITTER]) =
            (at.into(), user.into());
        s.create(Kind::Deployment, object).await?;
        let stored = s.get(Kind::Deployment, &name).await?.context("it is gone")?;
        s.delete(Kind::Deployment, &name).await?;
        let says = |name: &str| stored["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned();
        if says(SUBMITTED).as_str() > at && ![user, ""].contains(&says(SUBMITTER).as_str()) {
            return Ok(());
        }
    }
    bail!("nobody stamped five Deployments")
}

#[test]
fn a_deployment_that_is_scaled_up_runs_on_until_the_rest_is_admitted_and_gives_back_when_scaled_down() {
    run("scaled", async |s| scale_beyond_the_quota_and_back(&s, None).await);
}

pub(super) fn count_placed(binding: &Value) -> u64 {
    let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|cluster| cluster["replicas"].as_u64()).sum()
}

/// `refusal`: what its binding says of the placement that was refused, where one was tried.
pub(super) async fn scale_beyond_the_quota_and_back(s: &Scenario, refusal: Option<&str>) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({"cpu": "1"})).await?;
    s.submit(Kind::Deployment, deployment("other", Some(&queue), 2, "200m"), &aggregated()).await?;
    s.until_placed("other-deployment").await?;
    let web = s.submit(Kind::Deployment, deployment("web", Some(&queue), 2, "200m"), &aggregated()).await?;
    s.until(Kind::Deployment, "web", "is ready", |web| web["status"]["readyReplicas"] == 2).await?;
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    s.patch(Kind::Deployment, "web", &scale(5)).await?;
    if let Some(words) = refusal {
        let says = |binding: &Value| binding["status"]["conditions"].to_string().contains(words);
        s.until(Kind::Binding, "web-deployment", "was refused more", says).await?;
    }
    s.until_podgroup(&web, "waits for the rest", |group| {
        let conditions = group["status"]["conditions"].to_string();
        conditions.contains("ScaledBeyondAdmission") && conditions.contains("waits: ")
    })
    .await?;
    let binding = s.get(Kind::Binding, "web-deployment").await?.context("no binding")?;
    ensure!(count_placed(&binding) == 2, "{}", binding["spec"]["clusters"]);
    s.patch(Kind::Deployment, "other", &scale(0)).await?;
    s.until(Kind::Binding, "web-deployment", "has all", |binding| count_placed(binding) == 5).await?;
    s.until(Kind::Deployment, "web", "is ready", |web| web["status"]["readyReplicas"] == 5).await?;
    s.until(Kind::Queue, &queue, "is charged", |queue| queue["status"]["allocated"]["cpu"] == "1").await?;
    s.patch(Kind::Deployment, "web", &scale(1)).await?;
    s.until(Kind::Queue, &queue, "has it back", |queue| queue["status"]["allocated"]["cpu"] == "0.2").await?;
    Ok(())
}

#[test]
fn a2_26_a_deployment_without_a_queue_is_not_ours() {
    run("plain", async |s| {
        s.submit(Kind::Deployment, deployment("plain", None, 2, "50m"), &aggregated()).await?;
        s.until_placed("plain-deployment").await?;
        let binding = s.get(Kind::Binding, "plain-deployment").await?.context("no binding")?;
        ensure!(binding["spec"]["schedulerName"] == "default-scheduler", "{}", binding["spec"]["schedulerName"]);
        ensure!(binding["metadata"]["annotations"]["caldera.dev/gate"].is_null());
        s.until(Kind::Deployment, "plain", "is ready", |web| web["status"]["readyReplicas"] == 2).await?;
        Ok(())
    });
}

#[test]
fn what_is_not_queued_is_placed_too_where_its_policy_names_our_scheduler() {
    run("unqueued", async |s| {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "blue"},
        });
        let web = deployment("web", None, 2, "50m");
        for (kind, object, placement) in
            [(Kind::ConfigMap, &config, duplicated()), (Kind::Deployment, &web, aggregated())]
        {
            let mut policy = policy(object, &placement);
            policy["spec"]["schedulerName"] = "caldera".into();
            s.create(Kind::Policy, policy).await?;
            s.create(kind, object.clone()).await?;
        }
        for name in ["settings-configmap", "web-deployment"] {
            s.until_placed(name).await?;
            let binding = s.get(Kind::Binding, name).await?.context("no binding")?;
            ensure!(binding["spec"]["schedulerName"] == "caldera", "{}", binding["spec"]["schedulerName"]);
            ensure!(binding["metadata"]["annotations"]["caldera.dev/gate"].is_null());
        }
        s.until(Kind::Deployment, "web", "is ready", |web| web["status"]["readyReplicas"] == 2).await?;
        Ok(())
    });
}

#[test]
fn a_batch_job_that_names_a_queue_is_queued_and_completes() {
    run("batchjob", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let object = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "report", "labels": {"volcano.sh/queue-name": queue}},
            "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 1"],
                    "resources": {"requests": {"cpu": "300m", "memory": "16Mi"}},
                }],
            }}},
        });
        s.submit(Kind::BatchJob, object, &aggregated()).await?;
        s.until_placed("report-job").await?;
        let done = s.until(Kind::BatchJob, "report", "is complete", |job| job["status"]["succeeded"] == 2).await?;
        ensure!(done["status"]["failed"].as_u64().unwrap_or(0) == 0, "{}", done["status"]);
        s.until(Kind::Queue, &queue, "is empty again", |queue| {
            let cpu = &queue["status"]["allocated"]["cpu"];
            cpu.is_null() || cpu == "0"
        })
        .await?;
        Ok(())
    });
}

#[test]
fn a_batch_job_that_fails_in_its_member_says_so_on_the_host_and_gives_its_quota_back() {
    run("batchfail", async |s| {
        let queue = s.queue("q", json!({"cpu": "300m"})).await?;
        let job = |name: &str, command: &str| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "labels": {"volcano.sh/queue-name": queue}},
                "spec": {"backoffLimit": 0, "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", command],
                        "resources": {"requests": {"cpu": "300m", "memory": "16Mi"}},
                    }],
                }}},
            })
        };
        s.submit(Kind::BatchJob, job("broken", "sleep 1; exit 3"), &aggregated()).await?;
        s.until_placed("broken-job").await?;
        s.submit(Kind::BatchJob, job("next", "sleep 1"), &aggregated()).await?;
        let holds = |job: &Value, kind: &str| {
            let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        let failed = s.until(Kind::BatchJob, "broken", "has failed", |job| holds(job, "Failed")).await?;
        ensure!(holds(&failed, "FailureTarget") && failed["status"]["failed"] == 1, "{}", failed["status"]);
        s.until(Kind::BatchJob, "next", "has the quota", |job| holds(job, "Complete")).await?;
        Ok(())
    });
}
