//! Gangs that must be close: one HyperNode of one member, chosen here and kept to there.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use caldera_cli::args::{Args, Command};
use caldera_e2e::{
    Scenario, is_skipped_on_given,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone, run_in, skip,
    world::{self, World},
};
use caldera_runtime::{client::WriteCounts, members::collector};
use caldera_sandbox::fleet::Fleet;
use clap::Parser as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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
            return skip("no member has three nodes");
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

/// Workers of two cores in partitions of so many pods that must each be in one rack, and a pod that may be anywhere.
fn partitioned(s: &Scenario, name: &str, queue: &str, partitions: u64, size: u64) -> Value {
    let pods = u32::try_from(partitions * size).unwrap_or(u32::MAX);
    let mut worker = task("worker", pods, "2", "sleep 1");
    let near = json!({"mode": "hard", "highestTierName": s.own("rack")});
    worker["partitionPolicy"] = json!({"totalPartitions": partitions, "partitionSize": size, "networkTopology": near});
    let mut workload = job(name, queue, &[worker, task("free", 1, "1", "sleep 1")]);
    workload["spec"]["minAvailable"] = (pods + 1).into();
    workload
}

async fn play_partitions(s: &Scenario, member: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({})).await?;
    let large = &nodes[nodes.len() - 2..];
    let most: u64 = large.iter().map(|node| cores(node) / 2).sum();
    // More than the small rack holds, and than one node of the large one does.
    let size = most - 1;
    s.submit(Kind::Job, partitioned(s, "parts", &queue, 1, size), &aggregated()).await?;
    let clusters = s.until_placed("parts-job").await?;
    ensure!(clusters == [(member.to_owned(), size + 1)], "{clusters:?}");
    let binding = s.get(Kind::Binding, "parts-job").await?.context("it has a binding")?;
    let plan = binding["metadata"]["annotations"]["caldera.dev/plan"].as_str().unwrap_or_default();
    let plan: Value = serde_json::from_str(plan)?;
    let part = &plan["clusters"][member]["parts"]["worker"][0];
    ensure!(part["partitions"] == 1 && part["domain"]["name"] == s.own("a"), "{plan}");
    let copy = s.until_in_member(member, Kind::Job, "parts", "is there", |_| true).await?;
    let pin = |task: usize| &copy["spec"]["tasks"][task]["template"]["spec"]["affinity"]["nodeAffinity"];
    ensure!(pin(0).is_object() && pin(1).is_null(), "{copy}");
    for index in 0..size {
        let bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
        let pod = s.until_in_member(member, Kind::Pod, &format!("parts-worker-{index}"), "is bound", bound).await?;
        ensure!(large.iter().any(|node| pod["spec"]["nodeName"] == named(node)), "{pod}");
    }
    s.until_phase("parts", "Completed").await?;
    // A larger one than any rack holds; the member has more nodes.
    let wide = s.submit(Kind::Job, partitioned(s, "wide", &queue, 1, most + 1), &aggregated()).await?;
    let told = format!("each partition of {} must be in one domain of tier {} or lower", most + 1, s.own("rack"));
    let says = |group: &Value| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| message.contains(&told) && message.contains(&format!("the roomiest takes {most} pods")))
    };
    s.until_podgroup(&wide, "says what the roomiest rack takes", says).await?;
    Ok(())
}

#[test]
fn a_partition_runs_in_one_hyper_node_and_the_rest_of_its_job_anywhere() {
    run_alone("partitions", async |s: Arc<Scenario>| {
        let Some((member, nodes)) = roomy(&s).await else {
            return skip("no member has three nodes");
        };
        rack(&s, &member, "a", &nodes[nodes.len() - 2..]).await?;
        rack(&s, &member, "b", &nodes[..1]).await?;
        let result = play_partitions(&s, &member, &nodes).await;
        for name in ["a", "b"] {
            s.delete_in_member(&member, Kind::HyperNode, &s.own(name)).await?;
        }
        result
    });
}

/// The label by which a node is found.
const HOST: &str = "kubernetes.io/hostname";

/// The nodes of an InfiniBand network, by label, as an admin or a discovery of the fabric writes it.
async fn infiniband(s: &Scenario, member: &str, name: &str, nodes: &[Value]) -> anyhow::Result<()> {
    let hosts: Vec<&Value> = nodes.iter().map(|node| &node["metadata"]["labels"][HOST]).collect();
    let of = json!({"matchExpressions": [{"key": HOST, "operator": "In", "values": hosts}]});
    let members = json!([{"type": "Node", "selector": {"labelMatch": of}}]);
    let object = json!({
        "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": s.own(name)},
        "spec": {"tier": 1, "tierName": s.own("infiniband"), "members": members},
    });
    s.create_in_member(member, Kind::HyperNode, object).await
}

/// A job of three tasks that must be in one InfiniBand network: two of one pod, and workers.
fn training(s: &Scenario, name: &str, queue: &str, pods: u64) -> Value {
    let workers = u32::try_from(pods.saturating_sub(2)).unwrap_or(u32::MAX);
    let tasks =
        [task("ps", 1, "2", "sleep 1"), task("eval", 1, "2", "sleep 1"), task("worker", workers, "2", "sleep 1")];
    let mut workload = job(name, queue, &tasks);
    workload["spec"]["minAvailable"] = pods.into();
    workload["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": s.own("infiniband")});
    workload
}

async fn play_infiniband(s: &Scenario, networks: &[(String, Vec<Value>)]) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({})).await?;
    let size = |nodes: &[Value]| nodes.iter().map(|node| cores(node) / 2).sum::<u64>();
    let mut sizes: Vec<(u64, &(String, Vec<Value>))> = networks.iter().map(|one| (size(&one.1), one)).collect();
    sizes.sort_by_key(|(size, _)| *size);
    let [.., (second, _), (largest, (member, nodes))] = sizes.as_slice() else { return Ok(()) };
    // One network alone holds it; of no node's size.
    let pods = (second + 1).max(3);
    s.submit(Kind::Job, training(s, "train", &queue, pods), &aggregated()).await?;
    let clusters = s.until_placed("train-job").await?;
    ensure!(clusters == [(member.clone(), pods)], "{clusters:?}");
    let names: Vec<String> = nodes.iter().map(named).collect();
    for (task, count) in [("ps", 1), ("eval", 1), ("worker", pods - 2)] {
        for index in 0..count {
            let pod = format!("train-{task}-{index}");
            let bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
            let pod = s.until_in_member(member, Kind::Pod, &pod, "is bound", bound).await?;
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            ensure!(names.iter().any(|name| name == node), "{pod}");
        }
    }
    s.until_phase("train", "Completed").await?;
    // The networks together would hold it.
    let wide = s.submit(Kind::Job, training(s, "wide", &queue, largest + 1), &aggregated()).await?;
    let says = |group: &Value| {
        let conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| message.contains("none holds it") && message.contains(&format!("takes {largest}")))
    };
    s.until_podgroup(&wide, "says what the best network takes", says).await?;
    let binding = s.get(Kind::Binding, "wide-job").await?.context("it has a binding")?;
    ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
    Ok(())
}

#[test]
fn a_job_of_three_tasks_runs_in_one_infiniband_network_of_all_members() {
    run_alone("infiniband", async |s: Arc<Scenario>| {
        let mut networks = Vec::new();
        for member in s.members() {
            let mut nodes = s.list_in_member(member, Kind::Node, None).await;
            nodes.retain(|node| node["metadata"]["labels"][HOST].is_string());
            nodes.sort_by_key(|node| (cores(node), named(node)));
            // The largest, so that some nodes are in none.
            let nodes = nodes.split_off(nodes.len().saturating_sub(2));
            if nodes.len() == 2 {
                networks.push((member.to_owned(), nodes));
            }
        }
        let size = |nodes: &[Value]| nodes.iter().map(cores).sum::<u64>();
        let largest = networks.iter().map(|(_, nodes)| size(nodes)).max().unwrap_or(0);
        if networks.iter().filter(|(_, nodes)| size(nodes) == largest).count() != 1 || networks.len() < 2 {
            return skip("no two networks of different sizes");
        }
        for (at, (member, nodes)) in networks.iter().enumerate() {
            infiniband(&s, member, &format!("ib-{at}"), nodes).await?;
        }
        let result = play_infiniband(&s, &networks).await;
        for (at, (member, _)) in networks.iter().enumerate() {
            s.delete_in_member(member, Kind::HyperNode, &s.own(&format!("ib-{at}"))).await?;
        }
        result
    });
}

/// The label that says in which rack a node is, and what the tier is called that it makes.
const RACK: &str = "example.org/rack";

/// Starts the collector that this command line runs, but for its clients.
fn start_collector(host: &Fleet, member: &str, stop: CancellationToken) -> anyhow::Result<()> {
    let line = ["caldera", "inventory", "--cluster", member, "--topology-labels", RACK];
    let Command::Inventory(args) = Args::try_parse_from(line)?.command else { bail!("another command") };
    let pace = collector::Pace { least: Duration::from_millis(500), ..collector::Pace::default() };
    let topology_labels = args.topology_labels;
    let config = collector::Config { pace, topology_labels, ..collector::Config::new(&args.member.cluster) };
    let client = host.host.client("inventory", &WriteCounts::default())?;
    tokio::spawn(collector::run_collector(config, client, stop));
    Ok(())
}

/// Names of the domains that are published of a member.
fn published(part: &Value) -> Vec<&str> {
    let domains = part["spec"]["part"]["domains"].as_array().into_iter().flatten();
    domains.filter_map(|domain| domain["name"].as_str()).collect()
}

async fn play_labels(s: &Scenario, host: &Fleet, stop: &CancellationToken) -> anyhow::Result<()> {
    let (member, nodes) = roomy(s).await.context("no member has three nodes")?;
    let (small, large) = (&nodes[0], &nodes[nodes.len() - 2..]);
    for (node, rack) in [(small, "b"), (&large[0], "a"), (&large[1], "a")] {
        let labels = json!({"metadata": {"labels": {RACK: rack}}});
        s.patch_in_member(&member, Kind::Node, &named(node), &labels).await?;
    }
    let queue = s.queue("q", json!({})).await?;
    // More than one node takes, and no more than two.
    let pods = large.iter().map(|node| cores(node) / 2).max().unwrap_or(0) + 1;
    let mut near = hard(s, "near", &queue, pods);
    near["spec"]["networkTopology"]["highestTierName"] = RACK.into();
    let near = s.submit(Kind::Job, near, &aggregated()).await?;
    // Labels alone are no domains.
    let waits = |group: &Value| group["status"]["conditions"].to_string().contains(&format!("tier {RACK} or lower"));
    s.until_podgroup(&near, "says that it must be in one domain", waits).await?;
    start_collector(host, &member, stop.child_token())?;
    let part = format!("{member}.0");
    s.until(Kind::Inventory, &part, "has a domain for each rack", |part| published(part) == ["rack-a", "rack-b"])
        .await?;
    let clusters = s.until_placed("near-job").await?;
    ensure!(clusters == [(member.clone(), pods)], "{clusters:?}");
    let copy = s.until_in_member(&member, Kind::Job, "near", "is there", |_| true).await?;
    let terms = &copy["spec"]["tasks"][0]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let pinned = json!([{"matchExpressions": [{"key": RACK, "operator": "In", "values": ["a"]}]}]);
    ensure!(*terms == pinned, "{copy}");
    for index in 0..pods {
        let bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
        let pod = s.until_in_member(&member, Kind::Pod, &format!("near-worker-{index}"), "is bound", bound).await?;
        ensure!(large.iter().any(|node| pod["spec"]["nodeName"] == named(node)), "{pod}");
    }
    s.until_phase("near", "Completed").await?;
    // Volcano's own discoverer, or an admin, knows better.
    rack(s, &member, "own", &nodes[..1]).await?;
    s.until(Kind::Inventory, &part, "has the member's HyperNode alone", |part| published(part) == [s.own("own")])
        .await?;
    Ok(())
}

#[test]
fn a_hard_gang_runs_in_one_domain_that_labels_of_nodes_make_while_there_are_no_hyper_nodes() {
    if is_skipped_on_given("topology-labels", "a collector with labels is started beside the sandbox's host") {
        return;
    }
    let (fleet, stop) = (Arc::new(OnceLock::new()), CancellationToken::new());
    let (started, ends) = (fleet.clone(), stop.clone());
    let start = async move {
        let fleet = world::fleet(3, &ends).await?;
        let world: World = world::of_fleet(&fleet, ends).await?;
        ensure!(started.set(fleet).is_ok(), "it is started once");
        Ok(world)
    };
    run_in("topology-labels", start, async |s: Arc<Scenario>| {
        play_labels(&s, fleet.get().context("there is no fleet")?, &stop).await
    });
}
