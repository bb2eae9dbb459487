//! Groups of nodes that a queue uses, by its `spec.affinity` as Volcano has it.

use std::sync::Arc;

use anyhow::ensure;
use caldera_core::node_groups::NODE_GROUP;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, queue, task},
    run_alone, skip,
};
use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn named(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn cores(node: &Value) -> u32 {
    node["status"]["allocatable"]["cpu"].as_str().and_then(|cpu| cpu.parse().ok()).unwrap_or(0)
}

/// A member with two nodes or more, the largest first; `None` where there is none.
async fn roomy(s: &Scenario) -> Option<(String, Vec<Value>)> {
    for member in s.members() {
        let mut nodes = s.list_in_member(member, Kind::Node, None).await;
        nodes.sort_by_key(|node| (std::cmp::Reverse(cores(node)), named(node)));
        if nodes.len() >= 2 {
            return Some((member.to_owned(), nodes));
        }
    }
    None
}

async fn put_in_group(s: &Scenario, member: &str, node: &str, group: Option<&str>) -> anyhow::Result<()> {
    s.patch_in_member(member, Kind::Node, node, &json!({"metadata": {"labels": {NODE_GROUP: group}}})).await
}

/// The nodes that a workload's pods are on, once they all are on one.
async fn nodes_of_pods(s: &Scenario, member: &str, name: &str, pods: usize) -> anyhow::Result<Vec<String>> {
    let look = async {
        loop {
            let all = s.list_in_member(member, Kind::Pod, Some(&s.namespace)).await;
            let mine = all.iter().filter(|pod| named(pod).starts_with(name));
            let bound: Vec<String> =
                mine.filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned())).collect();
            if bound.len() == pods {
                return bound;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    Ok(tokio::time::timeout(std::time::Duration::from_secs(60), look).await?)
}

fn expressions(pod: &Value) -> &Value {
    &pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchExpressions"]
}

async fn play(s: &Scenario, member: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let (group, first, second) = (s.own("g"), named(&nodes[0]), named(&nodes[1]));
    let (mine, other) = (s.own("mine"), s.queue("other", json!({})).await?);
    let mut object = queue(&mine, &json!({}));
    object["spec"]["affinity"] = json!({"nodeGroupAntiAffinity": {REQUIRED: [group]}});
    let refused = s.create(Kind::Queue, object.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("spec.affinity: it names groups to avoid and none to use"), "{refused}");
    object["spec"]["affinity"] = json!({"nodeGroupAffinity": {REQUIRED: [group]}});
    s.create(Kind::Queue, object).await?;
    s.until(Kind::Queue, &mine, "is open", |queue| queue["status"]["state"] == "Open").await?;

    // No node is in the group yet. A job of 100m fits any.
    let small = |name: &str, queue: &str| job(name, queue, &[task("a", 2, "100m", "sleep 600")]);
    let waits = s.submit(Kind::Job, small("mine", &mine), &aggregated()).await?;
    let says = |words: String| move |group: &Value| group["status"]["conditions"].to_string().contains(&words);
    let words = format!("queue {mine} uses only nodes of the groups {group}");
    s.until_podgroup(&waits, "says where its queue keeps it", says(words.clone())).await?;

    // One is: it runs there, and so do pods of another kind; those of a queue without a word on groups keep off it.
    put_in_group(s, member, &first, Some(&group)).await?;
    ensure!(s.until_placed("mine-job").await? == [(member.to_owned(), 2)]);
    ensure!(nodes_of_pods(s, member, "mine", 2).await? == [first.clone(), first.clone()]);
    let copy = s.until_in_member(member, Kind::Job, "mine", "is there", |_| true).await?;
    let wanted = json!([{"key": NODE_GROUP, "operator": "In", "values": [group]}]);
    ensure!(*expressions(&copy["spec"]["tasks"][0]["template"]["spec"]) == wanted, "{copy}");
    s.submit(Kind::Deployment, deployment("web", Some(&mine), 1, "100m"), &aggregated()).await?;
    ensure!(nodes_of_pods(s, member, "web", 1).await? == std::slice::from_ref(&first));
    let mut only = aggregated();
    only["clusterAffinity"] = json!({"clusterNames": [member]});
    s.submit(Kind::Job, small("free", &other), &only).await?;
    let free = nodes_of_pods(s, member, "free", 2).await?;
    ensure!(free.iter().all(|node| *node != first), "{free:?}");

    // More than the node holds, though not more than the member does: it waits until another node is in the group.
    let wide = job("wide", &mine, &[task("a", cores(&nodes[0]), "1", "sleep 600")]);
    let wide = s.submit(Kind::Job, wide, &aggregated()).await?;
    s.until_podgroup(&wide, "says where its queue keeps it", says(words)).await?;
    put_in_group(s, member, &second, Some(&group)).await?;
    s.until_placed("wide-job").await?;
    let wide = nodes_of_pods(s, member, "wide", cores(&nodes[0]) as usize).await?;
    ensure!(wide.iter().all(|node| [&first, &second].contains(&node)), "{wide:?}");
    Ok(())
}

#[test]
fn jobs_run_on_the_nodes_of_their_queues_groups_and_others_keep_off_them() {
    run_alone("node-groups", async |s: Arc<Scenario>| {
        let Some((member, nodes)) = roomy(&s).await else {
            return skip("no member has two nodes");
        };
        let result = play(&s, &member, &nodes).await;
        for node in &nodes[..2] {
            put_in_group(&s, &member, &named(node), None).await?;
        }
        result
    });
}
