//! What the inventory of a large fleet takes: memory, and the time of an update until every capacity shows it.
//!
//! `cargo run --release -p caldera-core --example inventory -- 200 1000 3 1 1` (clusters, nodes in each, pods on each
//! node, labels that each node has for itself beside its hostname, and 1 if nearly every node is to have something else
//! free).

#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::{collections::BTreeMap, time::Instant};

use caldera_core::{
    fleet::{Fleet, Update},
    gang::{Gang, NodeClaim, Operator, Requirement, Task},
    inventory::{Capacity, Change, HyperNode, HyperNodeMember, Node, Owner, Pod},
    place::Cluster,
    quantity::Quantity,
    resources::Resources,
    split::count_pods_that_fit,
};

const RACKS: usize = 16;

fn main() {
    let number = |at: usize, default| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (clusters, nodes, pods) = (number(1, 200), number(2, 1000), number(3, 3));
    let world = World { own_labels: number(4, 1), mixed: number(5, 0) > 0 };
    let (node, pod) = (|c, n| world.node(c, n), |c, p, n| world.pod(c, p, n));
    let before = resident();
    let mut fleet = Fleet::default();
    for cluster in 0..clusters {
        let name = format!("member-{cluster:03}");
        fleet.set_cluster(Cluster { name: name.clone(), ready: true, ..Cluster::default() }, Capacity::default());
        let mut report = |change| _ = fleet.apply_update(&name, Update::Change(change));
        report(Change::HyperNodes(hyper_nodes()));
        report(Change::Nodes((0..nodes).map(|n| node(cluster, n)).collect()));
        report(Change::Pods((0..nodes * pods).map(|p| pod(cluster, p, p % nodes)).collect()));
    }
    fleet.refresh_capacities();
    let shapes: usize = fleet.clusters().map(|(_, capacity)| capacity.shapes.len()).sum();
    profiled(&fleet);
    let (pods_each, own) = (nodes * pods, world.own_labels);
    println!(
        "{clusters} clusters of {nodes} nodes and {pods_each} pods, {own} labels of its own a node, {shapes} shapes"
    );
    println!("memory: {} MB", (resident() - before) >> 20);
    let gang = selecting("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
    let fit = |fleet: &Fleet| fleet.clusters().map(|(_, capacity)| count_pods_that_fit(&gang, capacity)).sum::<u64>();
    let start = Instant::now();
    let looked_up = fit(&fleet);
    println!("a job selects on a label that no shape carries: {} ms for all clusters", start.elapsed().as_millis());
    let start = Instant::now();
    fleet.set_selected_labels("job", Some(&gang));
    fleet.refresh_capacities();
    profiled(&fleet);
    println!("shapes carry it: made anew in {} ms", start.elapsed().as_millis());
    let start = Instant::now();
    assert_eq!(fit(&fleet), looked_up);
    println!("a job selects on it: {} ms for all clusters", start.elapsed().as_millis());
    let mut timed = |what: &str, changes: Vec<Change>| {
        let mut times: Vec<u128> = Vec::new();
        for (at, change) in changes.into_iter().enumerate() {
            let start = Instant::now();
            fleet.apply_update(&format!("member-{:03}", at % clusters), Update::Change(change));
            fleet.refresh_capacities();
            profiled(&fleet);
            times.push(start.elapsed().as_micros());
        }
        times.sort_unstable();
        println!("{what}: median {} us, most {} us", times[times.len() / 2], times[times.len() - 1]);
    };
    let bound = |p: usize| pod(p % clusters, nodes * pods + p, p * 7 % nodes);
    timed("a pod is bound", (0..1000).map(|p| Change::Pod(bound(p))).collect());
    timed("a pod ends", (0..1000).map(|p| Change::Pod(Pod { finished: true, ..bound(p) })).collect());
    timed(
        "a node is cordoned",
        (0..1000).map(|n| Change::Node(Node { unschedulable: true, ..node(n % clusters, n % nodes) })).collect(),
    );
    let renamed = |h: usize| HyperNode { tier_name: h.to_string(), ..hyper_nodes().swap_remove(0) };
    let relabelled = |n: usize| {
        let mut node = node(n % clusters, n % nodes);
        node.labels.insert("example.com/serial-0".into(), format!("changed-{n}"));
        node
    };
    timed("a node's own label changes", (0..1000).map(|n| Change::Node(relabelled(n))).collect());
    timed("a HyperNode changes", (0..200).map(|h| Change::HyperNode(renamed(h))).collect());
}

/// One pod of a card on nodes with this label.
fn selecting(label: &str, value: &str) -> Gang {
    let selector = [(label.to_owned(), value.to_owned())].into();
    let task = Task {
        name: "worker".into(),
        replicas: 1,
        min_available: 1,
        request: amounts(1, 1, 1),
        node: NodeClaim { selector, ..NodeClaim::default() },
        priority_class: String::new(),
        partition: None,
    };
    Gang::new(vec![task], 1)
}

/// How nodes and pods differ.
struct World {
    own_labels: usize,
    mixed: bool,
}

/// Profiles are worked out when they are asked for.
fn profiled(fleet: &Fleet) -> u32 {
    fleet.clusters().map(|(_, capacity)| capacity.profile().nodes(0)).sum()
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn hyper_nodes() -> Vec<HyperNode> {
    let rack = |r: usize| HyperNode {
        name: format!("rack-{r:02}"),
        tier: 1,
        tier_name: "rack".into(),
        members: vec![HyperNodeMember::Labels(vec![Requirement {
            key: "topology.example.com/rack".into(),
            operator: Operator::In,
            values: vec![r.to_string()],
        }])],
    };
    let spine = |s: usize| HyperNode {
        name: format!("spine-{s}"),
        tier: 2,
        members: (4 * s..4 * s + 4).map(|r| HyperNodeMember::HyperNode(format!("rack-{r:02}"))).collect(),
        ..HyperNode::default()
    };
    (0..RACKS).map(rack).chain((0..RACKS / 4).map(spine)).collect()
}

fn amounts(cpu: i64, gpu: i64, pods: i64) -> Resources {
    let amounts = [
        ("cpu", cpu),
        ("memory", cpu << 32),
        ("nvidia.com/gpu", gpu),
        ("pods", pods),
        ("ephemeral-storage", cpu << 30),
    ];
    amounts.map(|(name, amount)| (name, Quantity::from_units(amount))).into_iter().collect()
}

impl World {
    /// A node with the labels that a cloud gives it.
    fn node(&self, cluster: usize, n: usize) -> Node {
        let name = format!("member-{cluster:03}-worker-{n:04}.internal.example.com");
        let mut labels: BTreeMap<String, String> = [
            ("beta.kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/os", "linux"),
            ("node.kubernetes.io/instance-type", "p5.48xlarge"),
            ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
            ("nvidia.com/gpu.count", "8"),
            ("feature.node.kubernetes.io/rdma.capable", "true"),
            ("topology.kubernetes.io/region", "region-1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        labels.insert("kubernetes.io/hostname".into(), name.clone());
        labels.insert("topology.kubernetes.io/zone".into(), format!("region-1{}", n % 3));
        labels.insert("topology.example.com/rack".into(), (n % RACKS).to_string());
        for own in 0..self.own_labels {
            labels.insert(format!("example.com/serial-{own}"), format!("{cluster:03}-{n:04}-{own}-9f86d081884c7d65"));
        }
        Node { name, labels, allocatable: amounts(192, 8, 250), ready: true, ..Node::default() }
    }

    fn pod(&self, cluster: usize, p: usize, n: usize) -> Pod {
        let job = format!("training-{}", p / 64);
        let owner = Owner {
            group: "batch.volcano.sh".into(),
            kind: "Job".into(),
            name: job.clone(),
            task: Some("worker".into()),
        };
        let kind = if self.mixed { (p.wrapping_mul(2_654_435_761) >> 7) % 97 } else { p };
        let mut request = amounts(16 + i64::try_from(kind % 5).unwrap() * 8, i64::try_from(kind % 3).unwrap(), 1);
        if self.mixed {
            request.set("memory", Quantity::from_units((i64::try_from(kind).unwrap() + 1) << 30));
        }
        Pod {
            namespace: format!("team-{}", p % 7),
            name: format!("{job}-worker-{p}"),
            node: Some(Self { own_labels: 0, mixed: false }.node(cluster, n).name),
            request,
            finished: false,
            owner: Some(owner),
        }
    }
}
