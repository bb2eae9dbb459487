//! Tasks with a NUMA policy.

use super::*;
use crate::numa::{FreeCpus, NumaClaim, NumaNode, NumaPolicy, NumaTopology};

const SINGLE: NumaPolicy = NumaPolicy::SingleNumaNode;

/// Pods of one container with so many CPUs.
fn aligned_task(name: &str, replicas: u32, cpu: u32, policy: NumaPolicy) -> Task {
    let mut task = task(name, replicas, replicas, cpu.into(), 0);
    task.node.numa = Some(Arc::new(NumaClaim { policy, cpus: vec![cpu] }));
    task
}

/// Nodes with NUMA nodes of eight CPUs, of which so many are free.
fn reporting_capacity(cluster: usize, policy: NumaPolicy, nodes: &[&[u16]]) -> Capacity {
    let all = nodes.iter().map(|free| (8 * i64::try_from(free.len()).unwrap(), 0));
    let mut capacity = capacity(cluster, &all.collect::<Vec<_>>());
    let single = |shape: &NodeShape| -> Vec<NodeShape> {
        shape.nodes_with_domains().map(|one| shape.of_nodes(std::iter::once(one))).collect()
    };
    capacity.shapes = capacity.shapes.iter().flat_map(single).collect();
    capacity.shapes.sort_by(|a, b| a.nodes.cmp(&b.nodes));
    for (shape, free) in capacity.shapes.iter_mut().zip(nodes) {
        let nodes = free.iter().map(|free| NumaNode { cpus: 8, allocatable: 8, free: *free });
        shape.numa = NumaTopology::new(Some(policy), nodes.collect()).map(Arc::new);
    }
    capacity.reports_numa = true;
    capacity
}

fn split_over(gang: &Gang, capacities: Vec<Capacity>) -> Result<Plan, GangRefusal> {
    let names = (0..capacities.len()).map(|at| ClusterName::from(format!("m{at}"))).collect();
    split_gang(&problem(gang, &World { names, capacities }, Strategy::Aggregated))
}

fn free_by_node(capacity: &Capacity) -> Vec<Vec<u16>> {
    let mut all: Vec<_> = capacity.shapes.iter().map(|shape| (shape.nodes.clone(), shape.numa.clone())).collect();
    all.sort();
    all.iter().map(|(_, numa)| numa.iter().flat_map(|numa| numa.nodes()).map(|node| node.free).collect()).collect()
}

#[test]
fn a_policy_is_met_by_nodes_that_report_the_same_and_by_as_many_pods_as_their_numa_nodes_take() {
    let other = || reporting_capacity(0, NumaPolicy::Restricted, &[&[8, 8], &[8, 8], &[8, 8]]);
    let same = || reporting_capacity(1, SINGLE, &[&[8, 8], &[8, 5]]);
    let gang_of = |pods| gang(vec![aligned_task("w", pods, 6, SINGLE)], pods);
    let plan = split_over(&gang_of(3), vec![other(), same()]).unwrap();
    assert_eq!(shown(&plan), ["m1: w 3/3 (min 3)"]);
    let refusal = split_over(&gang_of(4), vec![other(), same()]).unwrap_err().to_string();
    let why = "task w: 3 of 4 fit, topologyPolicy single-numa-node aligns each pod, and the NUMA nodes of the nodes \
               that match (2) take no more";
    assert!(refusal.ends_with(why), "{refusal}");
}

#[test]
fn a_pod_that_no_numa_node_holds_is_refused_with_what_is_free() {
    let gang = gang(vec![aligned_task("w", 1, 12, SINGLE)], 1);
    let refusal = split_over(&gang, vec![reporting_capacity(0, SINGLE, &[&[8, 8], &[8, 7]])]).unwrap_err().to_string();
    let why = "task w: 0 of 1 fit, each pod asks for 12 cpu aligned by topologyPolicy single-numa-node; at most 8 are \
               free so on a node of m0";
    assert!(refusal.ends_with(why), "{refusal}");
    let other = reporting_capacity(0, NumaPolicy::Restricted, &[&[8, 8], &[8, 8]]);
    let refusal = split_over(&gang, vec![other]).unwrap_err().to_string();
    let why = "no node matches its selector and tolerations: 2 nodes of m0 lack topologyPolicy single-numa-node";
    assert!(refusal.ends_with(why), "{refusal}");
}

#[test]
fn a_cluster_that_reports_nothing_is_judged_by_amounts_alone_and_in_one_that_does_silent_nodes_count_for_nothing() {
    let gang = gang(vec![aligned_task("w", 1, 12, SINGLE)], 1);
    let plan = split_over(&gang, vec![capacity(0, &[(16, 0)])]).unwrap();
    assert_eq!(shown(&plan), ["m0: w 1/1 (min 1)"]);
    let mut half = reporting_capacity(0, SINGLE, &[&[8, 8], &[8, 8]]);
    half.shapes[0].numa = None;
    assert!(split_over(&gang, vec![half]).is_err());
}

#[test]
fn tasks_of_one_gang_share_numa_nodes() {
    let of = |small| gang(vec![aligned_task("big", 2, 5, SINGLE), aligned_task("small", small, 3, SINGLE)], 2 + small);
    let here = || reporting_capacity(0, SINGLE, &[&[8, 8]]);
    assert!(split_over(&of(2), vec![here()]).is_ok());
    assert!(split_over(&of(3), vec![here()]).is_err());
    let four = gang(vec![aligned_task("big", 2, 5, SINGLE), aligned_task("small", 1, 4, SINGLE)], 3);
    assert!(split_over(&four, vec![here()]).is_err(), "14 of 16, and none holds it");
}

#[test]
fn assumed_pods_hold_numa_nodes_and_pods_without_a_policy_hold_none() {
    let here = reporting_capacity(0, SINGLE, &[&[8, 8]]);
    let aligned = gang(vec![aligned_task("w", 1, 6, SINGLE)], 1);
    assert_eq!(free_by_node(&without(&here, &aligned, &[1])), [[2, 8]]);
    let plain = gang(vec![task("w", 1, 1, 6, 0)], 1);
    let left = without(&here, &plain, &[1]);
    assert_eq!(free_by_node(&left), [[8, 8]]);
    assert_eq!(left.sum_free().get("cpu"), Quantity::from_units(10));
}

/// Two tasks of more pods than are tried one by one, which no order packs: prices do.
#[test]
fn a_policy_takes_nothing_from_who_is_packed_where_no_node_may_refuse_for_it() {
    let policy = |gang: &Gang, policy: NumaPolicy| {
        let mut gang = gang.clone();
        for task in &mut gang.tasks {
            task.node.numa = Some(Arc::new(NumaClaim { policy, cpus: vec![1] }));
        }
        gang
    };
    let plain = gang(vec![task("a", 20, 20, 3, 0), task("b", 10, 10, 4, 0)], 30);
    let nodes = vec![(10, 0); 10];
    let requests = |gang: &Gang, capacity: Capacity| {
        let requests = GangRequests::new(gang);
        let free_nodes = requests.free_nodes(&capacity, NodeScope::Cluster);
        priced_packing::pack_by_price(&requests, &free_nodes, &[20, 10], &Cell::new(50_000)).is_some()
    };
    assert!(requests(&plain, capacity(0, &nodes)));
    assert!(requests(&policy(&plain, SINGLE), capacity(0, &nodes)), "none of its nodes reports anything");
    let reports = |policy| reporting_capacity(0, policy, &[&[8_u16, 8][..]; 10]);
    assert!(requests(&policy(&plain, NumaPolicy::BestEffort), reports(NumaPolicy::BestEffort)));
    assert!(!requests(&policy(&plain, SINGLE), reports(SINGLE)));
}

/// Pods in each order of the tasks on each node in turn, one by one.
fn brute(tasks: &[(u32, u32)], nodes: &[FreeCpus], policy: NumaPolicy) -> bool {
    if tasks.iter().all(|(pods, _)| *pods == 0) {
        return true;
    }
    (0..tasks.len()).filter(|task| tasks[*task].0 > 0).any(|task| {
        let mut rest = tasks.to_vec();
        rest[task].0 -= 1;
        let claim = NumaClaim { policy, cpus: vec![tasks[task].1] };
        (0..nodes.len()).any(|node| {
            let mut nodes = nodes.to_vec();
            let fits = nodes[node].count_pods(&claim, 1) == 1;
            nodes[node] = nodes[node].take_pods(&claim, 1);
            fits && brute(&rest, &nodes, policy)
        })
    })
}

proptest::proptest! {
    #[test]
    fn what_is_placed_is_held_by_numa_nodes_and_of_one_task_all_that_they_hold_is_found(
        is_single in proptest::prelude::any::<bool>(),
        nodes in proptest::collection::vec(proptest::collection::vec(0u16..9, 1..3), 1..3),
        tasks in proptest::collection::vec((1u32..4, 1u32..12), 1..3),
    ) {
        let policy = if is_single { SINGLE } else { NumaPolicy::Restricted };
        let gang_tasks: Vec<Task> = tasks.iter().enumerate()
            .map(|(at, (pods, cpu))| aligned_task(&format!("t{at}"), *pods, *cpu, policy)).collect();
        let pods: Vec<u32> = tasks.iter().map(|(pods, _)| *pods).collect();
        let gang = gang(gang_tasks, pods.iter().sum());
        let free: Vec<&[u16]> = nodes.iter().map(Vec::as_slice).collect();
        let here = reporting_capacity(0, policy, &free);
        let of_shape = |shape: &NodeShape| FreeCpus::of_topology(shape.numa.as_deref());
        let fits = brute(&tasks, &here.shapes.iter().map(of_shape).collect::<Vec<_>>(), policy);
        let placed = split_over(&gang, vec![here.clone()]).is_ok();
        proptest::prop_assert!(fits || !placed);
        proptest::prop_assert_eq!(super::gang_fits(&gang, &here), placed);
        if tasks.len() == 1 {
            proptest::prop_assert_eq!(placed, fits);
        }
        let sum = |capacity: &Capacity| free_by_node(capacity).concat().into_iter().map(u32::from).sum::<u32>();
        let asked: u32 = tasks.iter().map(|(pods, cpu)| pods * cpu).sum();
        let left = without(&here, &gang, &pods);
        proptest::prop_assert!(!placed || sum(&here) - sum(&left) == asked);
    }
}
