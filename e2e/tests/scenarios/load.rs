//! Jobs leave a cluster whose nodes are really hot, by what its members measure.

use anyhow::{Context, ensure};
use caldera_core::load_aware::LoadPolicy;
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_configured, skip,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// NodeMetrics as objects that somebody writes, in the place of a metrics-server.
fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "nodes.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "metrics.k8s.io", "scope": "Cluster",
            "names": {"plural": "nodes", "singular": "nodemetrics", "kind": "NodeMetrics", "listKind": "NodeMetricsList"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Has all nodes of a member measure that they use this much of what they have.
async fn measure(s: &Scenario, member: &str, percent: i64) -> anyhow::Result<()> {
    for node in s.list_in_member(member, Kind::Node, None).await {
        let name = node["metadata"]["name"].as_str().context("a node has no name")?;
        let has = |resource: &str| node["status"]["allocatable"][resource].as_str()?.parse().ok();
        let of = |amount: caldera_core::quantity::Quantity| {
            let part = amount.as_nano() * i128::from(percent) / 100;
            caldera_core::quantity::Quantity::from_nano(part).to_string()
        };
        let cpu = of(has("cpu").with_context(|| format!("node {name} has no cpu"))?);
        let measured = json!({"timestamp": Timestamp::now().to_string(), "usage": {"cpu": cpu, "memory": "1Mi"}});
        if s.get_in_member(member, Kind::NodeMetrics, name).await?.is_some() {
            s.patch_in_member(member, Kind::NodeMetrics, name, &measured).await?;
            continue;
        }
        let mut object =
            json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": name}});
        for (key, value) in measured.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        s.create_in_member(member, Kind::NodeMetrics, object).await?;
    }
    Ok(())
}

fn move_jobs(config: &mut caldera_controller::Config) {
    config.load = LoadPolicy { enabled: true, interval: 10, samples: 1, moves: 1, ..LoadPolicy::default() };
}

#[test]
fn a_job_leaves_a_hot_cluster_and_runs_in_a_cold_one() {
    run_configured("load", move_jobs, async |s| {
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        for member in &members {
            if !s.list_in_member(member, Kind::NodeMetrics, None).await.is_empty() {
                return skip("the members measure what their nodes use, and say what they like");
            }
        }
        s.create_shared_in_members(Kind::Definition, &definition()).await?;
        let established = |definition: &Value| definition["status"]["conditions"].to_string().contains("Established");
        for member in &members {
            s.until_in_member(member, Kind::Definition, "nodes.metrics.k8s.io", "is established", established).await?;
        }
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let submit = async |name: &str, preemptable: &str| {
            let mut job = job(name, &queue, &[task("a", 1, "100m", "sleep 600")]);
            job["metadata"]["annotations"] = json!({"volcano.sh/preemptable": preemptable});
            s.submit(Kind::Job, job, &aggregated()).await?;
            let clusters = s.until_placed(&format!("{name}-job")).await?;
            s.until_phase(name, "Running").await?;
            Ok::<_, anyhow::Error>(clusters[0].0.clone())
        };
        let hot = submit("moves", "true").await?;
        for member in &members {
            measure(&s, member, if *member == hot { 95 } else { 5 }).await?;
        }
        // It reads what members measure when it starts, and then each half minute.
        s.kill(Component::Controller).await;
        s.resume(Component::Controller).await?;
        s.until_told("moves", "Rescheduled").await?;
        measure(&s, &hot, 5).await?;
        let elsewhere = |binding: &Value| {
            let cluster = &binding["spec"]["clusters"][0]["name"];
            cluster.is_string() && *cluster != hot
        };
        s.until(Kind::Binding, "moves-job", "is in another cluster", elsewhere).await?;
        s.until_phase("moves", "Running").await?;
        let record = s.get(Kind::Binding, "moves-job").await?.context("it has a binding")?;
        let record = record["metadata"]["annotations"]["caldera.dev/eviction"].as_str().unwrap_or_default().to_owned();
        ensure!(record.contains(&format!("cluster {hot} really uses 9")), "{record}");
        for member in &members {
            s.delete_in_member(member, Kind::Definition, "nodes.metrics.k8s.io").await?;
        }
        Ok(())
    });
}
