//! HyperJobs: several Volcano Jobs, each in a cluster of its own choice, that are one training.

use anyhow::ensure;
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

fn template(queue: &str, command: &str) -> Value {
    job("of-a-template", queue, &[task("worker", 2, "100m", command)])["spec"].clone()
}

fn hyper_job(replicated: Value) -> Value {
    json!({
        "apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "metadata": {"name": "train"},
        "spec": {"replicatedJobs": replicated},
    })
}

fn is_true(hyper_job: &Value, kind: &str) -> bool {
    let mut conditions = hyper_job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

#[test]
fn a2_37_the_jobs_of_a_hyper_job_run_once_and_go_with_it() {
    run("hyperjob", async |s| {
        let queue = s.queue("q", json!({"cpu": "2"})).await?;
        let replicated = json!([
            {"name": "trainer", "replicas": 2, "templateSpec": template(&queue, "sleep 1")},
            {"name": "eval", "templateSpec": template(&queue, "sleep 600"), "clusterNames": ["no-such-cluster"]},
        ]);
        s.create(Kind::HyperJob, hyper_job(replicated)).await?;
        for name in ["train-trainer-0", "train-trainer-1"] {
            let clusters = s.until_placed(&format!("{name}-job")).await?;
            ensure!(clusters.len() == 1, "{name} is in {clusters:?}");
            s.until_phase(name, "Completed").await?;
        }
        // What prefers a cluster that there is not goes elsewhere.
        let child = s.until_phase("train-eval-0", "Running").await?;
        let maker = s.get(Kind::HyperJob, "train").await?.unwrap_or_default();
        let submitter = |of: &Value| of["metadata"]["annotations"]["caldera.dev/submitter"].clone();
        ensure!(submitter(&maker).is_string() && submitter(&child) == submitter(&maker), "{child}, {maker}");
        let counted = |it: &Value| it["status"]["replicatedJobsStatus"][0]["succeeded"] == 4;
        s.until(Kind::HyperJob, "train", "has counted what succeeded", counted).await?;
        s.until(Kind::HyperJob, "train", "runs", |it| is_true(it, "Running")).await?;
        s.delete(Kind::Job, "train-trainer-0").await?;
        s.until_gone(Kind::Job, "train-trainer-0").await?;
        // One that did not end is made anew.
        let uid = |job: &Value| job["metadata"]["uid"].clone();
        let before = s.until_phase("train-eval-0", "Running").await?;
        s.delete(Kind::Job, "train-eval-0").await?;
        s.until(Kind::Job, "train-eval-0", "is another one", |job| uid(job) != uid(&before)).await?;
        s.until_phase("train-eval-0", "Running").await?;
        ensure!(s.get(Kind::Job, "train-trainer-0").await?.is_none(), "what was completed is made again");
        s.patch(Kind::Job, "train-eval-0", &json!({"metadata": {"annotations": {"caldera.dev/end-as": "Completed"}}}))
            .await?;
        let ended = s.until(Kind::HyperJob, "train", "is completed", |it| is_true(it, "Completed")).await?;
        let states = &ended["status"]["replicatedJobsStatus"][0]["jobStates"];
        ensure!(states["train-trainer-0"]["phase"] == "Completed", "{states}");
        s.delete(Kind::HyperJob, "train").await?;
        s.until_gone(Kind::Job, "train-trainer-1").await?;
        s.until_gone(Kind::Policy, "train-trainer-1").await
    });
}

/// Each would fit alone, as long as the first job runs. Both start once it has gone.
#[test]
fn the_jobs_of_a_hyper_job_start_together_or_not_at_all() {
    run("hyperjob-gang", async |s| {
        let queue = s.queue("q", json!({"cpu": "500m"})).await?;
        let first = job("first", &queue, &[task("worker", 3, "100m", "sleep 600")]);
        s.submit(Kind::Job, first, &aggregated()).await?;
        s.until_phase("first", "Running").await?;
        let replicated = json!([{"name": "rank", "replicas": 2, "templateSpec": template(&queue, "sleep 600")}]);
        s.create(Kind::HyperJob, hyper_job(replicated)).await?;
        for name in ["train-rank-0", "train-rank-1"] {
            let says = |it: &Value| {
                let state = &it["status"]["state"];
                let message = state["message"].as_str().unwrap_or_default();
                state["reason"] == "WaitingForQuota"
                    && message.contains("needs cpu 0.4, used 0.3 of 0.5")
                    && message.contains("one of 2 jobs of HyperJob train that start together")
            };
            s.until(Kind::Job, name, "says that it waits with the other", says).await?;
        }
        let says = |it: &Value| {
            let mut conditions = it["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|it| {
                let message = it["message"].as_str().unwrap_or_default();
                it["type"] == "Admitted" && it["status"] == "False" && message.contains("needs cpu 0.4")
            })
        };
        s.until(Kind::HyperJob, "train", "says why it waits", says).await?;
        s.delete(Kind::Job, "first").await?;
        for name in ["train-rank-0", "train-rank-1"] {
            s.until_phase(name, "Running").await?;
        }
        s.until(Kind::HyperJob, "train", "is admitted", |it| is_true(it, "Admitted")).await?;
        // Charged once each.
        let used = |it: &Value| it["status"]["allocated"]["cpu"] == "0.4";
        s.until(Kind::Queue, &queue, "has both", used).await?;
        // One that fails is not made again, and the other runs on.
        let failed = json!({"metadata": {"annotations": {"caldera.dev/end-as": "Terminated"}}});
        s.patch(Kind::Job, "train-rank-0", &failed).await?;
        s.until_phase("train-rank-0", "Terminated").await?;
        let counts =
            |it: &Value| it["status"]["replicatedJobsStatus"][0]["jobStates"]["train-rank-0"]["phase"] == "Terminated";
        s.until(Kind::HyperJob, "train", "says how it ended", counts).await?;
        s.until_phase("train-rank-1", "Running").await?;
        s.delete(Kind::HyperJob, "train").await?;
        s.until_gone(Kind::Job, "train-rank-1").await?;
        s.until_gone(Kind::Policy, "train-rank-1").await
    });
}

#[test]
fn a2_42_a_hyper_job_of_which_no_job_could_be_made_is_refused() {
    run("hyperjob-bad", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let same = json!({"name": "a", "templateSpec": template(&queue, "sleep 1")});
        let refused = s.create(Kind::HyperJob, hyper_job(json!([{"name": "a", "templateSpec": {"tasks": []}}]))).await;
        let error = format!("{:#}", refused.err().unwrap_or_else(|| anyhow::anyhow!("it is taken")));
        ensure!(error.contains("spec.replicatedJobs[0].templateSpec.tasks"), "{error}");
        s.create(Kind::HyperJob, hyper_job(json!([same]))).await?;
        let image = json!({"spec": {"replicatedJobs": [{"name": "a", "templateSpec": template(&queue, "sleep 2")}]}});
        let refused = s.patch(Kind::HyperJob, "train", &image).await;
        let error = format!("{:#}", refused.err().unwrap_or_else(|| anyhow::anyhow!("it is taken")));
        ensure!(error.contains("spec.replicatedJobs[0].templateSpec.tasks[0]"), "{error}");
        Ok(())
    });
}

/// Two jobs of two pods with two cards each.
#[test]
fn the_accelerators_of_a_hyper_job_are_those_that_its_pods_request() {
    run("hyperjob-cards", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut template = template(&queue, "sleep 1");
        let resources = &mut template["tasks"][0]["template"]["spec"]["containers"][0]["resources"];
        *resources = json!({"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": 2}});
        let with = |accelerators: u32| {
            let policy = json!({"mode": "auto", "acceleratorType": "nvidia.com/gpu", "accelerators": accelerators});
            let mut object =
                hyper_job(json!([{"name": "a", "replicas": 2, "templateSpec": template, "splitPolicy": policy}]));
            object["spec"]["maxDomains"] = 2.into();
            object
        };
        let refused = s.create(Kind::HyperJob, with(4)).await;
        let error = format!("{:#}", refused.err().unwrap_or_else(|| anyhow::anyhow!("it is taken")));
        let words = "spec.replicatedJobs[0].splitPolicy.accelerators: 4 is not the 8 nvidia.com/gpu of its jobs";
        ensure!(error.contains(words), "{error}");
        s.create(Kind::HyperJob, with(8)).await?;
        for name in ["train-a-0", "train-a-1"] {
            let over_two = |policy: &Value| policy["spec"]["placement"]["spreadConstraints"][0]["maxGroups"] == 2;
            s.until(Kind::Policy, name, "lets it be split over two clusters", over_two).await?;
            s.until(Kind::Job, name, "is made", |_| true).await?;
        }
        Ok(())
    });
}
