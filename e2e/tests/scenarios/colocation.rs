//! Batch jobs beside services: oversold resources of nodes, and best-effort jobs that give way first.

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

const BATCH_CPU: &str = "kubernetes.io/batch-cpu";

/// A task of best-effort pods.
fn best_effort(pods: u32, cpu: &str) -> Value {
    let mut task = task("crunch", pods, cpu, "sleep 600");
    task["template"]["metadata"]["annotations"] = json!({"volcano.sh/qos-level": "BE"});
    task
}

/// A job of best-effort pods with so many thousandths of oversold cores each.
fn on_oversold(name: &str, queue: &str, pods: u32, millis: u64) -> Value {
    let mut crunch = best_effort(pods, "10m");
    let resources = &mut crunch["template"]["spec"]["containers"][0]["resources"];
    resources["requests"][BATCH_CPU] = millis.to_string().into();
    resources["limits"] = json!({BATCH_CPU: millis.to_string()});
    job(name, queue, &[crunch])
}

/// What the agent of a node writes when it measured what services leave.
async fn sell(s: &Scenario, member: &str, node: &str, millis: Option<u64>) -> anyhow::Result<()> {
    let amount = json!({BATCH_CPU: millis.map(|millis| millis.to_string())});
    s.write_status_in_member(member, Kind::Node, node, &json!({"capacity": amount, "allocatable": amount})).await
}

fn says(word: String) -> impl Fn(&Value) -> bool {
    move |group| group["status"]["conditions"].to_string().contains(&word)
}

async fn play_oversold(s: &Scenario, member: &str, node: &str) -> anyhow::Result<()> {
    // More than is sold: what each queue deserves follows what there is.
    let queue = s.queue("q", json!({BATCH_CPU: "100000"})).await?;
    sell(s, member, node, Some(4000)).await?;
    s.submit(Kind::Job, on_oversold("crunch", &queue, 2, 1500), &aggregated()).await?;
    let clusters = s.until_placed("crunch-job").await?;
    ensure!(clusters == [(member.to_owned(), 2)], "{clusters:?}");
    s.until_phase("crunch", "Running").await?;
    let more = s.submit(Kind::Job, on_oversold("more", &queue, 1, 1200), &aggregated()).await?;
    s.until_podgroup(&more, "lacks oversold cores", says(BATCH_CPU.to_owned())).await?;
    // The services want some of it back, and what runs stays: that is for the agent of the node.
    sell(s, member, node, Some(2000)).await?;
    s.delete(Kind::Job, "crunch").await?;
    s.until_placed("more-job").await?;
    let last = s.submit(Kind::Job, on_oversold("last", &queue, 1, 1000), &aggregated()).await?;
    s.until_podgroup(&last, "lacks oversold cores", says(BATCH_CPU.to_owned())).await?;
    sell(s, member, node, Some(4000)).await?;
    s.until_placed("last-job").await?;
    Ok(())
}

#[test]
fn best_effort_jobs_run_on_what_services_leave_and_no_more() {
    run("oversold", async |s| {
        let member = s.members().next().context("no member")?.to_owned();
        let nodes = s.list_in_member(&member, Kind::Node, None).await;
        let is_schedulable =
            |node: &&Value| node["spec"]["unschedulable"].is_null() && node["spec"]["taints"].is_null();
        let node = nodes.iter().find(is_schedulable).context("no node takes pods")?;
        let node = node["metadata"]["name"].as_str().unwrap_or_default();
        let played = play_oversold(&s, &member, node).await;
        sell(&s, &member, node, None).await?;
        played
    });
}

#[test]
fn best_effort_jobs_give_way_first_whatever_their_priority() {
    run("bestfirst", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let class = async |name: &str, value: i32| {
            let class = s.own(name);
            let object = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class},
                "value": value,
            });
            s.create(Kind::PriorityClass, object).await?;
            Ok::<_, anyhow::Error>(class)
        };
        let (middle, urgent) = (class("middle", 500).await?, class("urgent", 1000).await?);
        let mut kept = job("kept", &queue, &[task("a", 1, "500m", "sleep 600")]);
        kept["metadata"]["annotations"] = json!({"volcano.sh/preemptable": "true"});
        let mut gives = job("gives", &queue, &[best_effort(1, "500m")]);
        gives["spec"]["priorityClassName"] = middle.as_str().into();
        let mut high = job("high", &queue, &[task("a", 1, "500m", "sleep 1")]);
        high["spec"]["priorityClassName"] = urgent.as_str().into();
        for (name, object) in [("kept", kept), ("gives", gives)] {
            s.submit(Kind::Job, object, &aggregated()).await?;
            s.until_placed(&format!("{name}-job")).await?;
            s.until_phase(name, "Running").await?;
        }
        s.submit(Kind::Job, high, &aggregated()).await?;
        s.until_told("gives", "Preempted").await?;
        s.until_phase("high", "Completed").await?;
        let kept = s.get(Kind::Binding, "kept-job").await?.context("no binding")?;
        ensure!(kept["spec"]["clusters"].as_array().is_some_and(|clusters| clusters.len() == 1), "{kept}");
        ensure!(kept["metadata"]["annotations"]["caldera.dev/eviction"].is_null(), "{kept}");
        Ok(())
    });
}
