//! What one placement costs: Karmada's division, the gang-aware split, and a whole decision.
//!
//! The same sizes as measured for karmada-scheduler (clusters x replicas, microseconds for one binding).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use caldera_core::{
    gang::{ClusterName, Gang, NodeClaim, Operator, Requirement, Task, Topology},
    inventory::{Amounts, Capacity, Change, HyperNode, HyperNodeMember, Inventory, Node, NodeShape, Pod, Source},
    place::{
        Binding, Cluster, Division, Placement, Request, WeightRule, place_binding, replica_division,
        spread_constraints::ScoredCluster,
    },
    quantity::Quantity,
    resources::Resources,
    split::{self, SplitProblem, Strategy, split_gang},
    webster::Tie,
};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

const SIZES: [(usize, i64); 4] = [(3, 8), (100, 256), (100, 4096), (1000, 4096)];

fn clusters(count: usize) -> Vec<Cluster> {
    let cluster = |i: usize| Cluster {
        name: format!("member-{i:04}"),
        ready: true,
        region: format!("region-{}", i % 20),
        provider: format!("provider-{}", i % 3),
        serves: [("batch.volcano.sh/v1alpha1".to_owned(), "Job".to_owned())].into(),
        ..Cluster::default()
    };
    (0..count).map(cluster).collect()
}

/// Room that differs by cluster, in all a little more than what is asked for.
fn candidates(clusters: &[Cluster], replicas: i64) -> Vec<ScoredCluster<'_>> {
    let share = replicas / i64::try_from(clusters.len()).unwrap() + 2;
    let free = |i: usize| share + i64::try_from(i * 7919 % 13).unwrap();
    let candidate = |(i, cluster): (usize, _)| ScoredCluster {
        cluster,
        score: 0,
        tier: 0,
        allocatable: free(i),
        available: free(i),
    };
    clusters.iter().enumerate().map(candidate).collect()
}

fn division(bencher: Bencher<'_, '_>, (count, replicas): (usize, i64), division: Division) {
    let clusters = clusters(count);
    let candidates = candidates(&clusters, replicas);
    let binding = Binding {
        uid: "8a4d".into(),
        replicas,
        divisible: true,
        is_workload: true,
        placement: Placement { division: Some(division), ..Placement::default() },
        ..Binding::default()
    };
    bencher
        .bench_local(|| replica_division::assign_replicas(black_box(&binding), black_box(&candidates), false).unwrap());
}

#[divan::bench(args = SIZES)]
fn divide_aggregated(bencher: Bencher<'_, '_>, size: (usize, i64)) {
    division(bencher, size, Division::Aggregated);
}

#[divan::bench(args = SIZES)]
fn divide_dynamic_weight(bencher: Bencher<'_, '_>, size: (usize, i64)) {
    division(bencher, size, Division::DynamicWeight);
}

#[divan::bench(args = [(1000, 8)])]
fn divide_static_weight(bencher: Bencher<'_, '_>, size: (usize, i64)) {
    let rule = |i: i64| WeightRule {
        clusters: caldera_core::place::Affinity { exclude: vec![format!("member-{i:04}")], ..Default::default() },
        weight: i + 1,
    };
    division(bencher, size, Division::StaticWeight { rules: (0..3).map(rule).collect(), preference: true });
}

fn request(cpu: i64, gpu: i64) -> Resources {
    let memory = Quantity::from_units((cpu * 4) << 30);
    [
        ("cpu", Quantity::from_units(cpu)),
        ("memory", memory),
        ("nvidia.com/gpu", Quantity::from_units(gpu)),
        ("pods", Quantity::from_units(1)),
    ]
    .into_iter()
    .collect()
}

fn task(name: &str, replicas: u32, cpu: i64, gpu: i64) -> Task {
    Task {
        name: name.into(),
        replicas,
        min_available: replicas,
        request: request(cpu, gpu),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    }
}

fn gang(tasks: Vec<Task>) -> Gang {
    let min_available = tasks.iter().map(|task| task.replicas).sum();
    Gang::new(tasks, min_available)
}

/// Clusters of eight node shapes each, with a few nodes of every shape.
fn capacities(count: usize, shapes: i64) -> (Vec<ClusterName>, Vec<Capacity>) {
    let shape = |cluster: usize, i: i64| {
        let cpu = 8 + 8 * ((i + i64::try_from(cluster).unwrap()) % 4);
        let gpu = if i % 2 == 0 { 8 - i } else { 0 };
        let free: Amounts = [("cpu", cpu), ("memory", (cpu * 4) << 30), ("nvidia.com/gpu", gpu), ("pods", 110)]
            .map(|(name, amount)| (name.into(), Quantity::from_units(amount)))
            .into();
        NodeShape {
            labels: Some(Arc::default()),
            allocatable: Arc::new(free.clone()),
            free: Arc::new(free),
            nodes: (0..4).map(|node| format!("n-{i}-{node}").into()).collect(),
            ..NodeShape::default()
        }
    };
    let capacity = |cluster| Capacity::new((0..shapes).map(|i| shape(cluster, i)).collect(), Source::Nodes);
    ((0..count).map(|i| format!("member-{i:04}").into()).collect(), (0..count).map(capacity).collect())
}

/// Clusters of eight node shapes in each of sixteen racks, with as much in use as differs from rack to rack.
fn racks(count: usize) -> (Vec<ClusterName>, Vec<Capacity>) {
    let number = |number: usize| i64::try_from(number).unwrap();
    let amounts = |cpu: i64, gpu: i64, pods: i64| -> Resources {
        [("cpu", cpu), ("memory", (cpu * 4) << 30), ("nvidia.com/gpu", gpu), ("pods", pods)]
            .map(|(name, amount)| (name, Quantity::from_units(amount)))
            .into_iter()
            .collect()
    };
    let capacity = |cluster: usize| {
        let mut inventory = Inventory::default();
        let rack = |r: usize| HyperNode {
            name: format!("rack-{r:02}"),
            tier: 1,
            tier_name: "rack".into(),
            members: vec![HyperNodeMember::Labels(vec![Requirement {
                key: "rack".into(),
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
        inventory.apply_change(Change::HyperNodes((0..16).map(rack).chain((0..4).map(spine)).collect()));
        let node = |(r, i): (usize, usize)| Node {
            name: format!("n-{r}-{i}"),
            labels: [("rack".to_owned(), r.to_string())].into(),
            allocatable: amounts(32, if i.is_multiple_of(2) { 8 } else { 0 }, 110),
            ready: true,
            ..Node::default()
        };
        let all = || (0..16).flat_map(|r| (0..8).map(move |i| (r, i)));
        inventory.apply_change(Change::Nodes(all().map(node).collect()));
        let pod = |(r, i): (usize, usize)| Pod {
            namespace: "ns".into(),
            name: format!("p-{r}-{i}"),
            node: Some(format!("n-{r}-{i}")),
            request: amounts(4 * number((cluster + i) % 4), number((cluster + r + i) % 3), 1),
            ..Pod::default()
        };
        inventory.apply_change(Change::Pods(all().map(pod).collect()));
        inventory.capacity()
    };
    ((0..count).map(|i| format!("member-{i:04}").into()).collect(), (0..count).map(capacity).collect())
}

fn problem<'a>(
    gang: &'a Gang,
    capacities: &'a (Vec<ClusterName>, Vec<Capacity>),
    strategy: Strategy,
) -> SplitProblem<'a> {
    let candidates = capacities.0.iter().zip(&capacities.1);
    SplitProblem {
        gang,
        candidates: candidates
            .map(|(name, capacity)| split::Candidate { name, weight: 1, data: 0, cost: 0, missing_images: 0, capacity })
            .collect(),
        strategy,
        previous: None,
        copies: None,
        most_clusters: None,
        regions: None,
        levels: &[],
        tie: Tie::Ascending,
    }
}

/// Three tasks that fill a few clusters.
fn training(scale: u32) -> Gang {
    gang(vec![task("ps", 4 * scale, 4, 0), task("worker", 16 * scale, 8, 2), task("eval", 2 * scale, 2, 0)])
}

#[divan::bench(args = [3, 100, 1000])]
fn split_gang_of_three_tasks(bencher: Bencher<'_, '_>, count: usize) {
    let (gang, capacities) = (training(10), capacities(count, 8));
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    bencher.bench_local(|| split_gang(black_box(&problem)).is_ok());
}

/// The same, with parameter servers that want to be with their workers.
#[divan::bench(args = [3, 100, 1000])]
fn split_gang_of_affine_tasks(bencher: Bencher<'_, '_>, count: usize) {
    let (mut gang, capacities) = (training(10), capacities(count, 8));
    gang.task_topology.affine = vec![vec![0, 1]];
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    bencher.bench_local(|| split_gang(black_box(&problem)).is_ok());
}

#[divan::bench(args = [3, 100, 1000])]
fn split_gang_that_fits_one_cluster(bencher: Bencher<'_, '_>, count: usize) {
    let (gang, capacities) = (training(1), capacities(count, 8));
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    bencher.bench_local(|| split_gang(black_box(&problem)).unwrap());
}

#[divan::bench(args = [3, 100, 1000])]
fn split_gang_by_dynamic_weight(bencher: Bencher<'_, '_>, count: usize) {
    let (gang, capacities) = (training(10), capacities(count, 8));
    let problem = problem(&gang, &capacities, Strategy::DynamicWeight);
    bencher.bench_local(|| split_gang(black_box(&problem)).is_ok());
}

/// Pods of three tasks in one cluster: there are GPUs enough in each, and places for each task alone; not for all.
#[divan::bench(args = [3, 100, 1000])]
fn split_gang_refused_by_fragments(bencher: Bencher<'_, '_>, count: usize) {
    let (mut gang, capacities) =
        (gang(vec![task("a", 10, 1, 4), task("b", 9, 2, 4), task("c", 8, 1, 0)]), capacities(count, 8));
    gang.one_cluster = Some("ranks".into());
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    assert!(split_gang(&problem).is_err());
    bencher.bench_local(|| split_gang(black_box(&problem)).is_err());
}

/// What a gang of three tasks asks of a fleet with sixteen racks in each cluster.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// Fits one cluster.
    Cluster,
    /// One rack.
    Rack,
    /// A rack at best.
    Soft,
    /// Several clusters.
    Clusters,
    /// As many GPUs in one rack as no rack has.
    TooMuch,
}

#[divan::bench(args = [Asks::Cluster, Asks::Rack, Asks::Soft, Asks::Clusters, Asks::TooMuch], consts = [1000])]
fn split_gang_by_topology<const CLUSTERS: usize>(bencher: Bencher<'_, '_>, asks: Asks) {
    let scale = match asks {
        Asks::Clusters => 40,
        Asks::TooMuch => 2,
        _ => 1,
    };
    let topology = match asks {
        Asks::Rack | Asks::TooMuch => Some(Topology { hard: true, highest_tier: Some(1), highest_tier_name: None }),
        Asks::Soft => Some(Topology { hard: false, highest_tier: None, highest_tier_name: None }),
        Asks::Cluster | Asks::Clusters => None,
    };
    let gang = gang(vec![task("ps", 2 * scale, 4, 0), task("worker", 8 * scale, 4, 2), task("eval", scale, 2, 0)]);
    let (gang, capacities) = (Gang { topology, ..gang }, racks(CLUSTERS));
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    println!(
        "{asks:?}: {:?}",
        split_gang(&problem).map(|plan| (plan.clusters.len(), plan.replicas())).map_err(|e| e.to_string())
    );
    bencher.bench_local(|| split_gang(black_box(&problem)).is_ok());
}

/// Filters, selection and split together.
#[divan::bench(args = [3, 100, 1000])]
fn whole_decision(bencher: Bencher<'_, '_>, count: usize) {
    let (gang, capacities, clusters) = (training(1), capacities(count, 8), clusters(count));
    let binding = Binding {
        uid: "8a4d".into(),
        api_version: "batch.volcano.sh/v1alpha1".into(),
        kind: "Job".into(),
        replicas: 22,
        divisible: true,
        is_workload: true,
        placement: Placement { division: Some(Division::Aggregated), ..Placement::default() },
        ..Binding::default()
    };
    let request = Request {
        binding: &binding,
        gang: &gang,
        whole: true,
        previous: None,
        clusters: clusters.iter().zip(&capacities.1).collect(),
        linked: &[],
        run: None,
    };
    bencher.bench_local(|| place_binding(black_box(&request)).unwrap());
}

/// One cluster of 4,000 nodes of two kinds, of which each is in one of so many states: what is used of CPU and memory.
fn worn_nodes(states: usize) -> (Vec<ClusterName>, Vec<Capacity>) {
    let number = |number: usize| i64::try_from(number).unwrap();
    let amounts = |millis: i64, mebibytes: i64, gpu: i64, pods: i64| -> Resources {
        [
            ("cpu", Quantity::from_milli(millis)),
            ("memory", Quantity::from_units(mebibytes << 20)),
            ("nvidia.com/gpu", Quantity::from_units(gpu)),
            ("pods", Quantity::from_units(pods)),
        ]
        .into_iter()
        .collect()
    };
    let mut inventory = Inventory::default();
    let node = |i: usize| Node {
        name: format!("n-{i}"),
        allocatable: amounts(64_000, 262_144, if i.is_multiple_of(2) { 8 } else { 0 }, 110),
        ready: true,
        ..Node::default()
    };
    inventory.apply_change(Change::Nodes((0..4_000).map(node).collect()));
    let pod = |i: usize| Pod {
        namespace: "ns".into(),
        name: format!("p-{i}"),
        node: Some(format!("n-{i}")),
        request: amounts(
            60_000 - 100 * number(i % states % 23),
            200_000 + 512 * number(i % states / 23),
            if i.is_multiple_of(2) { number(i % states % 7) + 1 } else { 0 },
            1,
        ),
        ..Pod::default()
    };
    inventory.apply_change(Change::Pods((0..4_000).map(pod).collect()));
    (vec!["member".into()], vec![inventory.capacity()])
}

/// What one asks who waits beside worn nodes.
#[derive(Debug, Clone, Copy)]
enum Waits {
    /// One pod, which fits.
    Pod,
    /// Sixteen with a GPU each: they fit.
    Workers,
    /// Eight GPUs for a pod: no node has them.
    Whole,
    /// Parameter servers and workers: they fit.
    Training,
    /// More of them than there are places for; sums and the largest node would do.
    Fragments,
}

#[divan::bench(
    args = [Waits::Pod, Waits::Workers, Waits::Whole, Waits::Training, Waits::Fragments], consts = [100, 400, 800]
)]
fn ask_4000_nodes<const STATES: usize>(bencher: Bencher<'_, '_>, waits: Waits) {
    let tasks = match waits {
        Waits::Pod => vec![task("one", 1, 2, 0)],
        Waits::Workers => vec![task("worker", 16, 2, 1)],
        Waits::Whole => vec![task("worker", 4, 2, 8)],
        Waits::Training => vec![task("ps", 4, 4, 0), task("worker", 16, 2, 2)],
        Waits::Fragments => vec![task("ps", 400, 4, 0), task("worker", 900, 4, 6)],
    };
    let (gang, capacities) = (gang(tasks), worn_nodes(STATES));
    let problem = problem(&gang, &capacities, Strategy::Aggregated);
    let states = capacities.1[0].shapes.len();
    println!(
        "{waits:?}: {states} states, {:?}",
        split_gang(&problem).map(|plan| plan.replicas()).map_err(|e| e.to_string())
    );
    bencher.bench_local(|| split_gang(black_box(&problem)).is_ok());
}
