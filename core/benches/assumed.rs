//! What a decision costs after it is made: what is assumed of it is held in a cluster where a thousand others are not
//! seen yet.
//!
//! `cargo bench -p caldera-core --bench assumed`. One cluster of 1,000 nodes, most of which differ in what they have
//! free.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use caldera_core::{
    fleet::{AssumedPods, Fleet, Update},
    gang::{Gang, NodeClaim, Task, WorkloadRef},
    inventory::{Capacity, Change, Node, Pod},
    place::Cluster,
    quantity::Quantity,
    resources::Resources,
};
use divan::Bencher;

fn main() {
    divan::main();
}

const NODES: i64 = 1_000;

fn amounts(milli: i64, pods: i64) -> Resources {
    let cpu = Quantity::from_nano(i128::from(milli) * 1_000_000);
    let memory = Quantity::from_units(milli << 22);
    [("cpu", cpu), ("memory", memory), ("pods", Quantity::from_units(pods))].into_iter().collect()
}

fn assume(number: usize) -> (String, AssumedPods) {
    let task = Task {
        name: "w".into(),
        replicas: 4,
        min_available: 4,
        request: amounts(1_000, 1),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    let gang = Gang::new(vec![task], 4);
    let name = format!("job-{number:05}");
    let workload = WorkloadRef {
        group: "batch.volcano.sh".into(),
        kind: "Job".into(),
        namespace: "ns".into(),
        name: name.clone(),
    };
    let pods = [("m".to_owned(), vec![4])].into();
    (format!("ns/{name}-job"), AssumedPods { workload, gang: Arc::new(gang), pods, pinned: Default::default() })
}

/// So many assumed jobs of which no pod is seen.
fn fleet(unseen: usize) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.set_cluster(Cluster { name: "m".into(), ready: true, ..Cluster::default() }, Capacity::default());
    let node = |n| Node { name: format!("n{n:04}"), allocatable: amounts(64_000, 110), ready: true, ..Node::default() };
    let pod = |n: i64| Pod {
        namespace: "kube-system".into(),
        name: format!("p{n}"),
        node: Some(format!("n{n:04}")),
        request: amounts(n, 1),
        ..Pod::default()
    };
    fleet.apply_update("m", Update::Change(Change::Nodes((0..NODES).map(node).collect())));
    fleet.apply_update("m", Update::Change(Change::Pods((0..NODES).map(pod).collect())));
    for number in 0..unseen {
        let (key, assumed) = assume(number);
        fleet.assume_pods(&key, assumed);
    }
    refreshed(&mut fleet);
    fleet
}

/// Every capacity as a decision looks at it.
fn refreshed(fleet: &mut Fleet) {
    fleet.refresh_capacities();
    fleet.clusters().for_each(|(_, capacity)| _ = capacity.profile());
}

const UNSEEN: [usize; 3] = [0, 100, 1_000];

#[divan::bench(args = UNSEEN, sample_count = 20, sample_size = 1)]
fn one_more_is_assumed(bencher: Bencher<'_, '_>, unseen: usize) {
    let base = fleet(unseen);
    bencher.with_inputs(|| base.clone()).bench_local_values(|mut fleet| {
        let (key, assumed) = assume(unseen);
        fleet.assume_pods(&key, assumed);
        refreshed(&mut fleet);
        fleet
    });
}

#[divan::bench(args = UNSEEN, sample_count = 5, sample_size = 1)]
fn one_is_withdrawn(bencher: Bencher<'_, '_>, unseen: usize) {
    let base = fleet(unseen.max(1));
    bencher.with_inputs(|| base.clone()).bench_local_values(|mut fleet| {
        fleet.forget_assumed(&assume(0).0);
        refreshed(&mut fleet);
        fleet
    });
}
