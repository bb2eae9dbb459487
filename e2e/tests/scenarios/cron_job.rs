//! CronJobs, of Volcano and of Kubernetes: the jobs of their runs wait in line and are placed like any other.

use anyhow::{Context, ensure};
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

/// Each minute, in jobs that one policy selects by their label.
fn cron_job(queue: &str) -> Value {
    let template = job("of-a-template", queue, &[task("worker", 2, "100m", "sleep 600")])["spec"].clone();
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "report"},
        "spec": {
            "schedule": "* * * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {"labels": {"app": "report"}}, "spec": template},
        },
    })
}

fn policy(api_version: &str) -> Value {
    let selector = json!({
        "apiVersion": api_version, "kind": "Job", "labelSelector": {"matchLabels": {"app": "report"}},
    });
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "reports"},
        "spec": {"resourceSelectors": [selector], "placement": aggregated()},
    })
}

#[test]
fn a_run_of_a_cron_job_is_queued_placed_evicted_and_ended_like_any_job() {
    run("cronjob", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let mut wrong = cron_job(&queue);
        wrong["spec"]["schedule"] = "@every 5m".into();
        let refused = s.create(Kind::CronJob, wrong).await;
        ensure!(refused.is_err_and(|error| format!("{error:#}").contains("spec.schedule")), "it was not refused");
        s.create(Kind::Policy, policy("batch.volcano.sh/v1alpha1")).await?;
        // What holds the queue makes the run wait.
        let holder = job("holder", &queue, &[task("a", 1, "200m", "sleep 600")]);
        s.submit(Kind::Job, holder, &aggregated()).await?;
        s.until_placed("holder-job").await?;
        s.create(Kind::CronJob, cron_job(&queue)).await?;
        let is_made = |it: &Value| it["status"]["active"][0]["name"].is_string();
        let made = s.until(Kind::CronJob, "report", "has made a job", is_made).await?;
        let name = made["status"]["active"][0]["name"].as_str().context("no name")?;
        let waits = s.get(Kind::Job, name).await?.context("no job")?;
        s.until_podgroup(&waits, "waits for quota", |group| group["status"]["conditions"].to_string().contains("cpu"))
            .await?;
        s.delete(Kind::Job, "holder").await?;
        s.until_placed(&format!("{name}-job")).await?;
        s.until_phase(name, "Running").await?;
        let suspend = |value: Value| json!({"metadata": {"annotations": {"caldera.dev/suspended": value}}});
        s.patch(Kind::Job, name, &suspend("true".into())).await?;
        s.until(Kind::Queue, &queue, "is charged nothing", |queue| queue["status"]["allocated"]["cpu"] != "0.2")
            .await?;
        s.patch(Kind::Job, name, &suspend(Value::Null)).await?;
        s.until_phase(name, "Running").await?;
        s.patch(Kind::CronJob, "report", &json!({"spec": {"suspend": true}})).await?;
        s.patch(Kind::Job, name, &json!({"metadata": {"annotations": {"caldera.dev/end-as": "Completed"}}})).await?;
        s.until_phase(name, "Completed").await?;
        let is_told = |it: &Value| it["status"]["lastSuccessfulTime"].is_string() && !is_made(it);
        s.until(Kind::CronJob, "report", "says that it completed", is_told).await?;
        // Its job goes with it.
        s.delete(Kind::CronJob, "report").await?;
        s.until_gone(Kind::Job, name).await?;
        Ok(())
    });
}

/// Each minute, in jobs of Kubernetes with these labels.
fn batch_cron_job(name: &str, labels: &Value) -> Value {
    let container = json!({
        "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 1"],
        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
    });
    // A member need have no other scheduler than Volcano's.
    let template = json!({"spec": {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [container]}});
    let spec = json!({
        "schedule": "* * * * *", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"metadata": {"labels": labels}, "spec": {"template": template}},
    });
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_run_of_a_cron_job_of_kubernetes_is_queued_placed_and_ended_where_its_jobs_name_a_queue() {
    run("batchcron", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.create(Kind::Policy, policy("batch/v1")).await?;
        let cron_job = batch_cron_job("report", &json!({"app": "report", "volcano.sh/queue-name": queue}));
        s.create(Kind::BatchCronJob, cron_job).await?;
        let is_made = |it: &Value| it["status"]["active"][0]["name"].is_string();
        let made = s.until(Kind::BatchCronJob, "report", "has made a job", is_made).await?;
        let name = made["status"]["active"][0]["name"].as_str().context("no name")?;
        s.until_placed(&format!("{name}-job")).await?;
        let is_told = |it: &Value| it["status"]["lastSuccessfulTime"].is_string();
        s.until(Kind::BatchCronJob, "report", "says that it completed", is_told).await?;
        Ok(())
    });
}

#[test]
fn a_cron_job_goes_to_no_member_where_its_jobs_would_be_queued() {
    run("cronmember", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let member = s.members().next().context("no member")?.to_owned();
        // What nobody queues is no concern of ours: it goes, and shows that this member takes CronJobs.
        for (name, labels) in [("queued", json!({"volcano.sh/queue-name": queue})), ("plain", json!({}))] {
            let mut cron_job = batch_cron_job(name, &labels);
            cron_job["spec"]["suspend"] = true.into();
            let only = json!({"clusterAffinity": {"clusterNames": [member]}});
            s.submit(Kind::BatchCronJob, cron_job, &only).await?;
            if name == "queued" {
                let words =
                    "does not go to members, where no queue would be charged for its jobs, and its jobs name a queue";
                s.until_told_that(name, "SyncWorkFailed", words).await?;
            }
        }
        s.until_in_member(&member, Kind::BatchCronJob, "plain", "is there", |_| true).await?;
        ensure!(s.get_in_member(&member, Kind::BatchCronJob, "queued").await?.is_none(), "a member runs it");
        Ok(())
    });
}
