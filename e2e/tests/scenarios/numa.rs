//! A task with a NUMA policy goes where nodes report that they align pods so.

use std::time::Duration;

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone, skip,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// CPUs of a NUMA node, of which each node here reports two.
const CPUS: u64 = 2;

fn named(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// What a node with this policy reports while no pod has CPUs for itself.
fn report(node: &Value, policy: &str) -> Value {
    let cpu = |number: u64| {
        let socket = number / CPUS;
        (number.to_string(), json!({"numa": socket, "socket": socket, "core": number}))
    };
    json!({
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology", "metadata": {"name": named(node)},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": policy},
            "numares": {"cpu": {"allocatable": format!("0-{}", 2 * CPUS - 1), "capacity": 2 * CPUS}},
            "cpuDetail": (0..2 * CPUS).map(cpu).collect::<serde_json::Map<_, _>>(),
        },
    })
}

/// A job of Guaranteed pods with so many CPUs that must lie in one NUMA node.
fn aligned(name: &str, queue: &str, pods: u32, cpus: u64) -> Value {
    let mut worker = task("worker", pods, &cpus.to_string(), "sleep 600");
    let amounts = json!({"cpu": cpus.to_string(), "memory": "16Mi"});
    worker["template"]["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    worker["topologyPolicy"] = "single-numa-node".into();
    job(name, queue, &[worker])
}

/// A pod that is larger than the NUMA nodes fits nowhere, once it is known what the nodes report: that comes as an
/// event, or with what a collector publishes next.
async fn refuse_wide(s: &Scenario, queue: &str, policy: &Value, same: &str) -> anyhow::Result<()> {
    let cpus = CPUS + 1;
    let why = format!(
        "each pod asks for {cpus} cpu aligned by topologyPolicy single-numa-node; at most {CPUS} are free so on a node \
         of {same}"
    );
    let says = |group: &Value| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| message.contains(&why))
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    for attempt in 0.. {
        let name = format!("wide-{attempt}");
        let wide = s.submit(Kind::Job, aligned(&name, queue, 1, cpus), policy).await?;
        let binding = format!("{name}-job");
        tokio::select! {
            biased;
            refused = s.until_podgroup(&wide, "says what NUMA nodes have free", says) => return refused.map(drop),
            placed = s.until_placed(&binding) => {
                ensure!(Instant::now() < deadline, "{attempt} jobs were placed, this one in {:?}", placed?);
                s.delete(Kind::Job, &name).await?;
            }
        }
    }
    Ok(())
}

async fn play(s: &Scenario, other: &str, same: &str) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({})).await?;
    let mut policy = aggregated();
    policy["clusterAffinity"] = json!({"clusterNames": [other, same]});
    refuse_wide(s, &queue, &policy, same).await?;
    s.submit(Kind::Job, aligned("narrow", &queue, 2, CPUS), &policy).await?;
    let clusters = s.until_placed("narrow-job").await?;
    ensure!(clusters == [(same.to_owned(), 2)], "{clusters:?}");
    Ok(())
}

/// Nodes of a member that have so many CPUs as they are going to report.
async fn list_large_nodes(s: &Scenario, member: &str) -> Vec<Value> {
    let cores = |node: &Value| node["status"]["allocatable"]["cpu"].as_str().and_then(|cpu| cpu.parse::<u64>().ok());
    let nodes = s.list_in_member(member, Kind::Node, None).await;
    nodes.into_iter().filter(|node| cores(node).is_some_and(|cores| cores >= 2 * CPUS)).collect()
}

#[test]
fn a_guaranteed_job_with_a_numa_policy_goes_where_nodes_align_it_and_one_that_none_aligns_says_why() {
    run_alone("numa", async |s| {
        let mut members = Vec::new();
        for member in s.members() {
            let nodes = list_large_nodes(&s, member).await;
            if !nodes.is_empty() && s.list_in_member(member, Kind::Numatopology, None).await.is_empty() {
                members.push((member.to_owned(), nodes));
            }
        }
        let [(other, others), (same, nodes), ..] = &members[..] else {
            return skip("no two members have large nodes that report no NUMA nodes yet");
        };
        let mut reported = Vec::new();
        let mut result = Ok(());
        for (member, nodes, policy) in [(other, others, "restricted"), (same, nodes, "single-numa-node")] {
            for node in nodes {
                result = match result {
                    Ok(()) => s.create_in_member(member, Kind::Numatopology, report(node, policy)).await,
                    Err(error) => Err(error),
                };
                reported.push((member, named(node)));
            }
        }
        if result.is_ok() {
            result = play(&s, other, same).await;
        }
        for (member, node) in reported {
            s.delete_in_member(member, Kind::Numatopology, node).await?;
        }
        result
    });
}
