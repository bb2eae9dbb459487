//! Jobs as their users write them, applied as they are.
//!
//! The files are in `fixtures/examples`, or in the folder `examples` of `CALDERA_SHARED_DIR`.

use anyhow::{Context, ensure};
use caldera_e2e::{Scenario, kinds::Kind, run};
use serde_json::{Value, json};

fn read_documents(file: &str) -> anyhow::Result<Vec<Value>> {
    let path = caldera_fixtures::find_folder("CALDERA_SHARED_DIR", "").join("examples").join(file);
    let documents = caldera_cli::manifests::parse_documents(&caldera_fixtures::read_text(&path));
    documents.with_context(|| format!("failed to read {}", path.display()))
}

/// Every workload of the namespace goes to one cluster or several.
fn catch_all() -> Value {
    let select = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "all"},
        "spec": {
            "resourceSelectors": [select("batch.volcano.sh/v1alpha1", "Job"), select("apps/v1", "Deployment")],
            "placement": caldera_e2e::manifest::aggregated(),
        },
    })
}

/// Creates a queue that the file names but does not bring; it may be there from another scenario.
async fn ensure_queue(s: &Scenario, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().context("a queue without a name")?;
    if s.get(Kind::Queue, name).await?.is_none() {
        s.create_shared(Kind::Queue, object.clone()).await?;
    }
    s.until(Kind::Queue, name, "is open", |queue| queue["status"]["state"] == "Open").await?;
    Ok(())
}

/// The queue that a workload names.
fn queue_of(object: &Value) -> Option<&str> {
    let annotated = object.pointer("/spec/template/metadata/annotations/scheduling.volcano.sh~1queue-name");
    object.pointer("/spec/queue").or(annotated).and_then(Value::as_str)
}

async fn goes_through(s: &Scenario, file: &str) -> anyhow::Result<()> {
    let documents = read_documents(file)?;
    ensure!(!documents.is_empty(), "{file} is empty");
    let brings_policy = documents.iter().any(|document| document["kind"] == "PropagationPolicy");
    if !brings_policy {
        s.create(Kind::Policy, catch_all()).await?;
    }
    let mut workloads = Vec::new();
    for document in documents {
        let kind = match document["kind"].as_str() {
            Some("Queue") => {
                ensure_queue(s, &document).await?;
                continue;
            }
            Some("Job") => Kind::Job,
            Some("Deployment") => Kind::Deployment,
            Some("PropagationPolicy") => Kind::Policy,
            other => anyhow::bail!("{file} has a {other:?}"),
        };
        if let Some(queue) = queue_of(&document).filter(|queue| *queue != "default") {
            let plain = caldera_e2e::manifest::queue(queue, &json!({}));
            ensure_queue(s, &plain).await?;
        }
        let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        s.create(kind, document).await.with_context(|| format!("{name} of {file} was refused"))?;
        workloads.push((kind, name));
    }
    for (kind, name) in workloads {
        match kind {
            Kind::Job if s.is_simulated() => drop(s.until_phase(&name, "Completed").await?),
            // A web server never ends: on real nodes it is enough that it got there.
            Kind::Job => {
                s.until(kind, &name, "runs", |job| {
                    matches!(job["status"]["state"]["phase"].as_str(), Some("Running" | "Completed"))
                })
                .await?;
            }
            Kind::Deployment => {
                s.until(kind, &name, "is ready", |it| it["status"]["readyReplicas"] == it["spec"]["replicas"]).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

macro_rules! examples {
    ($($test:ident, $name:literal, $file:literal;)*) => {$(
        #[test]
        fn $test() {
            run($name, async |s| goes_through(&s, $file).await);
        }
    )*};
}

examples! {
    example_deployment_queue, "exdq", "deployment-queue.yaml";
    example_deployment, "exdeploy", "deployment.yaml";
    example_hierarchical_queues, "exhq", "hierarchical-queues.yaml";
    example_hierarchical_jobs, "exhj", "hierarchical-jobs.yaml";
    example_job_plugin, "explugin", "job-plugin.yaml";
    example_job, "exjob", "job.yaml";
    example_mindspore, "exmind", "mindspore-cpu.yaml";
    example_mpi, "exmpi", "mpi-example.yaml";
    example_dependency, "exdep", "task-start-dependency.yaml";
    example_tensorflow, "extf", "tf-dist-mnist-example.yaml";
    example_volcano_global, "exvg", "volcano-global-mindspore-cpu.yaml";
    example_policy, "expolicy", "volcano-global-propagationpolicy.yaml";
}

#[test]
fn example_more_minimum_than_replicas_is_refused() {
    run("exdeny", async |s| {
        for document in read_documents("minAvailable-webhook-deny.yaml")? {
            match s.create(Kind::Job, document).await {
                Ok(_) => anyhow::bail!("it was accepted"),
                Err(error) => {
                    let text = error.to_string();
                    ensure!(text.contains("minAvailable") && text.contains("replicas"), "unclear: {text:?}");
                }
            }
        }
        Ok(())
    });
}
