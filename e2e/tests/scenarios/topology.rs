//! Gangs that must be close: one HyperNode of one member, chosen here and kept to there.

use std::sync::Arc;

use anyhow::{Context, ensure};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone,
};
use serde_json::{Value, json};

/// Cores that a node offers.
fn cores(node: &Value) -> u64 {
    node["status"]["allocatable"]["cpu"].as_str().and_then(|cpu| cpu.parse().ok()).unwrap_or(0)
}

fn named(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A member with three nodes or more, the smallest first; `None` where there is none.
async fn roomy(s: &Scenario) -> Option<(String, Vec<Value>)> {
    for member in s.members() {
        let mut nodes = s.list_in_member(member, Kind::Node, None).await;
        nodes.sort_by_key(|node| (cores(node), named(node)));
        if nodes.len() >= 3 {
            return Some((member.to_owned(), nodes));
        }
    }
    None
}

/// Two racks of a member: the smallest node alone, and the two largest.
async fn rack(s: &Scenario, member: &str, name: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let select = |node: &Value| json!({"type": "Node", "selector": {"exactMatch": {"name": named(node)}}});
    let members: Vec<Value> = nodes.iter().map(select).collect();
    let spec = json!({"tier": 1, "tierName": s.own("rack"), "members": members});
    let object = json!({
        "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": s.own(name)}, "spec": spec,
    });
    s.create_in_member(member, Kind::HyperNode, object).await
}

fn hard(s: &Scenario, name: &str, queue: &str, pods: u64) -> Value {
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    let mut workload = job(name, queue, &[task("worker", pods, "2", "sleep 1")]);
    workload["spec"]["minAvailable"] = pods.into();
    workload["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": s.own("rack")});
    workload
}

async fn play(s: &Scenario, member: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({})).await?;
    let (small, large) = (&nodes[0], &nodes[nodes.len() - 2..]);
    // Both racks hold it. The member would take the first by name; the tighter one is the better choice.
    let pods = (cores(small) / 2).saturating_sub(1).max(1);
    s.submit(Kind::Job, hard(s, "near", &queue, pods), &aggregated()).await?;
    let clusters = s.until_placed("near-job").await?;
    ensure!(clusters == [(member.to_owned(), pods)], "{clusters:?}");
    let copy = s.until_in_member(member, Kind::Job, "near", "is there", |_| true).await?;
    let terms = &copy["spec"]["tasks"][0]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    ensure!(terms[0]["matchExpressions"][0]["values"] == json!([named(small)]), "{copy}");
    for index in 0..pods {
        let pod = format!("near-worker-{index}");
        let pod =
            s.until_in_member(member, Kind::Pod, &pod, "is bound", |pod| pod["spec"]["nodeName"].is_string()).await?;
        ensure!(pod["spec"]["nodeName"] == named(small), "{pod}");
    }
    s.until_phase("near", "Completed").await?;

    // More than any rack holds, though not more than the member does.
    let most: u64 = large.iter().map(|node| cores(node) / 2).sum();
    let wide = s.submit(Kind::Job, hard(s, "wide", &queue, most + 1), &aggregated()).await?;
    let says = |group: &Value| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| message.contains("none holds it") && message.contains(&format!("takes {most}")))
    };
    s.until_podgroup(&wide, "says what the best domain takes", says).await?;
    let binding = s.get(Kind::Binding, "wide-job").await?.context("it has a binding")?;
    ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
    Ok(())
}

#[test]
fn a_hard_gang_runs_in_one_hyper_node_that_is_pinned_in_its_copy() {
    run_alone("topology", async |s: Arc<Scenario>| {
        let Some((member, nodes)) = roomy(&s).await else {
            println!("topology: skipped, no member has three nodes");
            return Ok(());
        };
        rack(&s, &member, "a", &nodes[nodes.len() - 2..]).await?;
        rack(&s, &member, "b", &nodes[..1]).await?;
        let result = play(&s, &member, &nodes).await;
        for name in ["a", "b"] {
            s.delete_in_member(&member, Kind::HyperNode, &s.own(name)).await?;
        }
        result
    });
}
