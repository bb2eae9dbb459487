//! What placing one binding costs: Karmada's division alone, and whole decisions (filters, scores, selection,
//! division).
//!
//! `divide_*` are the sizes at which karmada-scheduler's `AssignReplicas` was measured (clusters x replicas, one
//! binding): Aggregated 2.6, 56, 533, 862 us; dynamic weight 1000x4096 2,678 us; static weight 1000x8 9,145 us.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{cmp::Reverse, sync::Arc};

use caldera_core::{
    gang::{Gang, NodeClaim, Operator, Requirement, Task, Toleration},
    inventory::{Amounts, Capacity, NodeShape, Source},
    place::{
        Affinity, Binding, Cluster, Division, Placement, Request, Spread, SpreadBy, Target, WeightRule, place_binding,
        replica_division, spread_constraints::ScoredCluster,
    },
    quantity::Quantity,
};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

const SIZES: [(usize, i64); 6] = [(3, 8), (100, 256), (100, 4096), (1000, 256), (1000, 4096), (1000, 100_000)];

fn clusters(count: usize) -> Vec<Cluster> {
    let cluster = |i: usize| Cluster {
        name: format!("member-{i:04}"),
        labels: [("tier".to_owned(), ["gold", "silver"][i % 2].to_owned()), ("env".to_owned(), "prod".to_owned())]
            .into(),
        region: format!("region-{}", i % 8),
        ready: true,
        serves: ["apps/v1", "batch/v1", "batch.volcano.sh/v1alpha1", "v1"]
            .iter()
            .flat_map(|version| (0..12).map(|kind| ((*version).to_owned(), format!("Kind{kind}"))))
            .chain([("apps/v1".to_owned(), "Deployment".to_owned())])
            .collect(),
        ..Cluster::default()
    };
    (0..count).map(cluster).collect()
}

fn binding(replicas: i64, division: Division) -> Binding {
    Binding {
        uid: "7c9e6679-7425-40de-944b-e07fc1f90ae7".into(),
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        replicas,
        divisible: true,
        is_workload: true,
        placement: Placement { division: Some(division), ..Placement::default() },
        ..Binding::default()
    }
}

/// Room that differs by cluster, in all about twice what is asked for; the roomiest first, as the selection leaves
/// them.
fn candidates(clusters: &[Cluster], replicas: i64) -> Vec<ScoredCluster<'_>> {
    let share = replicas / i64::try_from(clusters.len()).unwrap() + 2;
    let free = |i: usize| share + i64::try_from(i * 7919 % 13).unwrap() * share / 6;
    let candidate = |(i, cluster): (usize, _)| ScoredCluster {
        cluster,
        score: 0,
        tier: 0,
        allocatable: free(i),
        available: free(i),
    };
    let mut candidates: Vec<ScoredCluster<'_>> = clusters.iter().enumerate().map(candidate).collect();
    candidates.sort_by_key(|candidate| Reverse(candidate.available));
    candidates
}

fn division(bencher: Bencher<'_, '_>, (count, replicas): (usize, i64), division: Division) {
    let (clusters, binding) = (clusters(count), binding(replicas, division));
    let candidates = candidates(&clusters, replicas);
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

/// As measured for Karmada: no preference, so equal weights.
#[divan::bench(args = [(100, 256), (1000, 8), (1000, 100_000)])]
fn divide_static_weight(bencher: Bencher<'_, '_>, size: (usize, i64)) {
    division(bencher, size, Division::StaticWeight { rules: Vec::new(), preference: false });
}

/// One rule for each cluster.
#[divan::bench(args = [(1000, 8), (1000, 4096)])]
fn divide_static_weight_by_names(bencher: Bencher<'_, '_>, size: (usize, i64)) {
    let rule = |i: usize| WeightRule {
        clusters: Affinity { names: vec![format!("member-{i:04}")], ..Affinity::default() },
        weight: i64::try_from(i % 7 + 1).unwrap(),
    };
    division(bencher, size, Division::StaticWeight { rules: (0..size.0).map(rule).collect(), preference: true });
}

/// What is placed in every second cluster grows by a half.
#[divan::bench(args = [(100, 256), (1000, 4096)])]
fn divide_growth_of_what_is_placed(bencher: Bencher<'_, '_>, (count, replicas): (usize, i64)) {
    let (clusters, mut binding) = (clusters(count), binding(replicas, Division::Aggregated));
    let each = replicas * 4 / 3 / i64::try_from(count).unwrap();
    let target = |cluster: &Cluster| Target { cluster: cluster.name.clone(), replicas: each };
    binding.previous = clusters.iter().step_by(2).map(target).collect();
    let candidates = candidates(&clusters, replicas);
    bencher
        .bench_local(|| replica_division::assign_replicas(black_box(&binding), black_box(&candidates), false).unwrap());
}

/// Clusters of eight node shapes each, four nodes of every shape.
fn capacities(count: usize) -> Vec<Capacity> {
    let shape = |cluster: usize, i: i64| {
        let cpu = 8 + 8 * ((i + i64::try_from(cluster).unwrap()) % 4);
        let gpu = if i % 2 == 0 { 8 - i } else { 0 };
        let free: Amounts = [
            ("cpu", cpu),
            ("ephemeral-storage", 100 << 30),
            ("memory", (cpu * 4) << 30),
            ("nvidia.com/gpu", gpu),
            ("pods", 110),
        ]
        .map(|(name, amount)| (name.into(), Quantity::from_units(amount)))
        .into();
        NodeShape {
            labels: Some(Arc::new([("pool".to_owned(), format!("p{i}"))].into())),
            allocatable: Arc::new(free.clone()),
            free: Arc::new(free),
            nodes: (0..4).map(|node| format!("n-{i}-{node}").into()).collect(),
            ..NodeShape::default()
        }
    };
    (0..count).map(|cluster| Capacity::new((0..8).map(|i| shape(cluster, i)).collect(), Source::Nodes)).collect()
}

fn deployment(replicas: u32) -> Gang {
    let request = [("cpu", 2), ("memory", 4 << 30), ("pods", 1)]
        .into_iter()
        .map(|(name, amount)| (name, Quantity::from_units(amount)))
        .collect();
    let task = Task {
        name: "pods".into(),
        replicas,
        min_available: replicas,
        request,
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    Gang::new(vec![task], replicas)
}

fn decision(bencher: Bencher<'_, '_>, count: usize, binding: &Binding) {
    let (clusters, capacities) = (clusters(count), capacities(count));
    let gang = deployment(u32::try_from(binding.replicas).unwrap());
    bencher.bench_local(|| {
        let clusters = clusters.iter().zip(&capacities).collect();
        let request = Request {
            binding: black_box(binding),
            gang: &gang,
            whole: false,
            previous: None,
            clusters,
            linked: &[],
            run: None,
        };
        place_binding(&request).unwrap()
    });
}

/// A first placement without constraints.
#[divan::bench(args = [3, 100, 1000])]
fn decide_aggregated(bencher: Bencher<'_, '_>, count: usize) {
    decision(bencher, count, &binding(256, Division::Aggregated));
}

#[divan::bench(args = [1000])]
fn decide_dynamic_weight(bencher: Bencher<'_, '_>, count: usize) {
    decision(bencher, count, &binding(4096, Division::DynamicWeight));
}

/// Everything that a policy can say at once: labels, names, tolerations, spread over regions and clusters, and clusters
/// that it has already.
#[divan::bench(args = [100, 1000])]
fn decide_with_constraints(bencher: Bencher<'_, '_>, count: usize) {
    let mut binding = binding(256, Division::Aggregated);
    let requirement = |key: &str, value: &str| Requirement {
        key: key.into(),
        operator: Operator::In,
        values: vec![value.to_owned()],
    };
    binding.placement.affinity = Some(Affinity {
        labels: vec![requirement("tier", "gold"), requirement("env", "prod")],
        names: (0..count).map(|i| format!("member-{i:04}")).collect(),
        exclude: vec!["member-0002".into()],
        ..Affinity::default()
    });
    binding.placement.tolerations = vec![Toleration { key: "gpu".into(), exists: true, ..Toleration::default() }];
    binding.placement.spread =
        vec![Spread { by: SpreadBy::Cluster, min: 2, max: 10 }, Spread { by: SpreadBy::Region, min: 2, max: 3 }];
    binding.previous = vec![Target { cluster: "member-0004".into(), replicas: 100 }];
    decision(bencher, count, &binding);
}
