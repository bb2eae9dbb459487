//! Node groups of a member that may grow.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use caldera_core::quantity::Quantity;
use caldera_crds::names::caldera::AUTOSCALED_GROUPS;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone,
};
use serde_json::{Value, json};

/// By which nodes of the group are known: none is there until the scenario makes one.
const POOL: &str = "example.org/pool";

/// What the largest node of a member has, with one core more: no pod of that size fits now.
fn larger_than_any(nodes: &[Value]) -> Option<u64> {
    let cores = |node: &Value| -> Option<i128> {
        Some(node["status"]["allocatable"]["cpu"].as_str()?.parse::<Quantity>().ok()?.units_ceil())
    };
    nodes.iter().filter_map(cores).max().and_then(|cores| u64::try_from(cores + 1).ok())
}

async fn grow(s: &Scenario, cluster: &str, groups: Option<&Value>) -> anyhow::Result<()> {
    let groups = groups.map(ToString::to_string);
    s.patch(Kind::Cluster, cluster, &json!({"metadata": {"annotations": {AUTOSCALED_GROUPS: groups}}})).await?;
    Ok(())
}

async fn play(s: &Scenario, member: &str, cores: u64) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({})).await?;
    let mut only = aggregated();
    only["clusterAffinity"] = json!({"clusterNames": [member]});
    let large = |name: &str| job(name, &queue, &[task("a", 1, &cores.to_string(), "sleep 600")]);
    let first = s.submit(Kind::Job, large("first"), &only).await?;
    s.until_podgroup(&first, "says that no node takes it", |group| {
        let told = group["status"]["conditions"].to_string();
        // Where a member can not be read nobody knows that it never fits.
        ["NeverFits", "ExceedsFleet", "InsufficientCapacity"].iter().any(|reason| told.contains(reason))
    })
    .await?;
    s.write_unreadable_annotation(member, AUTOSCALED_GROUPS).await?;
    // Its admin says that one node may come that does: the first has it, and nobody else.
    let node = json!({"cpu": (cores + 1).to_string(), "memory": "64Gi", "pods": "20"});
    let groups = json!([{"name": "large", "nodes": {POOL: "large"}, "max": 1, "resources": node, "delay": "5m"}]);
    grow(s, member, Some(&groups)).await?;
    let placed = s.until_placed("first-job").await?;
    ensure!(placed == [(member.to_owned(), 1)], "{placed:?}");
    let second = s.submit(Kind::Job, large("second"), &only).await?;
    s.until_podgroup(&second, "waits, though it may start some day", |group| {
        group["status"]["conditions"].to_string().contains("InsufficientCapacity")
    })
    .await
    .map(drop)
}

#[test]
fn a_gang_is_placed_where_a_node_may_come_for_it_and_the_next_one_waits() {
    run_alone("autoscaling", async |s| {
        let mut by_cores: BTreeMap<u64, String> = BTreeMap::new();
        for member in s.members() {
            let nodes = s.list_in_member(member, Kind::Node, None).await;
            by_cores.extend(larger_than_any(&nodes).map(|cores| (cores, member.to_owned())));
        }
        let (cores, member) = by_cores.pop_last().context("no member has nodes")?;
        let result = play(&s, &member, cores).await;
        grow(&s, &member, None).await?;
        result
    });
}
