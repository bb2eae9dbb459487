use proptest::prelude::*;

use super::*;

/// NUMA nodes of so many CPUs, so many of them free.
fn nodes(all: &[(u16, u16)]) -> Vec<NumaNode> {
    all.iter().map(|(cpus, free)| NumaNode { cpus: *cpus, allocatable: *cpus, free: *free }).collect()
}

fn topology(policy: NumaPolicy, all: &[(u16, u16)]) -> NumaTopology {
    NumaTopology::new(Some(policy), nodes(all)).unwrap()
}

/// How many pods fit whose containers have so many CPUs each.
fn count(policy: NumaPolicy, all: &[(u16, u16)], cpus: &[u32]) -> u64 {
    let claim = NumaClaim { policy, cpus: cpus.to_vec() };
    FreeCpus::of_topology(Some(&topology(policy, all))).count_pods(&claim, 99)
}

fn free_of(topology: &NumaTopology) -> Vec<u16> {
    topology.nodes().iter().map(|node| node.free).collect()
}

#[test]
fn single_numa_node_wants_each_container_in_one_numa_node() {
    let one = NumaPolicy::SingleNumaNode;
    assert_eq!(count(one, &[(8, 8), (8, 8)], &[6]), 2);
    assert_eq!(count(one, &[(8, 5), (8, 5)], &[6]), 0, "of ten in all");
    assert_eq!(count(one, &[(8, 8), (8, 8)], &[9]), 0);
    assert_eq!(count(one, &[(8, 8), (8, 8)], &[6, 6]), 1, "each container in another");
}

#[test]
fn restricted_takes_the_fewest_numa_nodes_that_could_hold_it_and_refuses_where_these_are_not_free() {
    let few = NumaPolicy::Restricted;
    assert_eq!(count(few, &[(8, 8), (8, 8), (8, 8), (8, 8)], &[12]), 2);
    assert_eq!(count(few, &[(8, 5), (8, 5)], &[6]), 0, "one could hold it, so two must not");
    assert_eq!(count(few, &[(8, 5), (8, 5)], &[10]), 1, "none could hold it, so two may");
    assert_eq!(count(few, &[(8, 8), (8, 8)], &[17]), 0);
}

#[test]
fn best_effort_refuses_nothing_and_neither_does_a_node_that_reports_nothing() {
    assert_eq!(count(NumaPolicy::BestEffort, &[(8, 0)], &[6]), 99);
    let claim = NumaClaim { policy: NumaPolicy::SingleNumaNode, cpus: vec![6] };
    assert_eq!(FreeCpus::of_topology(None).count_pods(&claim, 99), 99);
    assert_eq!(count(NumaPolicy::SingleNumaNode, &[(8, 0)], &[]), 99, "a pod without whole CPUs");
}

#[test]
fn containers_take_the_numa_nodes_with_the_lowest_numbers() {
    let here = topology(NumaPolicy::SingleNumaNode, &[(8, 4), (8, 8)]);
    let left = |cpus: &[u32]| {
        let claim = NumaClaim { policy: NumaPolicy::SingleNumaNode, cpus: cpus.to_vec() };
        free_of(&here.with_free_cpus(&FreeCpus::of_topology(Some(&here)).take_pods(&claim, 1)))
    };
    assert_eq!(left(&[3, 3]), [1, 5]);
    assert_eq!(left(&[5]), [4, 3]);
    assert_eq!(left(&[9]), [4, 8], "what does not fit takes nothing");
    assert_eq!(left(&[5, 5]), [4, 8]);
}

#[test]
fn cpus_come_back_where_just_so_many_are_taken() {
    let here = topology(NumaPolicy::Restricted, &[(16, 4), (16, 6), (16, 16)]);
    let back = |cpus| free_of(&here.with_returned_cpus(cpus));
    assert_eq!(back(10), [4, 16, 16]);
    assert_eq!(back(11), [15, 6, 16]);
    assert_eq!(back(14), [16, 8, 16]);
    assert_eq!(back(99), [16, 16, 16]);
    assert_eq!(free_of(&here.emptied()), [16, 16, 16]);
}

/// Two jobs ran: one took three CPUs of the first NUMA node, who took the others is not ours.
#[test]
fn where_it_is_asked_whether_a_pod_can_ever_start_cpus_come_back_wherever_they_may() {
    let here = topology(NumaPolicy::SingleNumaNode, &[(8, 4), (4, 1)]);
    assert_eq!(free_of(&here.with_returned_cpus(3)), [4, 4]);
    assert_eq!(free_of(&here.with_cpus_returned_anywhere(3)), [7, 4]);
    assert_eq!(free_of(&here.with_cpus_returned_anywhere(u16::MAX)), [8, 4]);
}

#[test]
fn a_topology_that_can_not_be_is_none() {
    let of = |policy, nodes| NumaTopology::new(policy, nodes).is_some();
    let one = Some(NumaPolicy::Restricted);
    assert!(of(None, vec![]) && of(one, nodes(&[(8, 8)])) && of(one, nodes(&[(1, 0); MOST_NUMA_NODES])));
    assert!(!of(one, vec![]) && !of(None, nodes(&[(8, 8)])) && !of(one, nodes(&[(1, 0); MOST_NUMA_NODES + 1])));
    assert!(of(one, nodes(&[(2047, 0), (1, 0)])) && !of(one, nodes(&[(2047, 0), (2, 0)])));
    assert!(!of(one, nodes(&[(8, 9)])) && !of(one, nodes(&[(0, 0)])));
    assert!(!of(one, vec![NumaNode { cpus: 8, allocatable: 9, free: 0 }]));
}

/// What is left after a container, by all hints that Volcano makes of masks.
fn take_by_masks(policy: NumaPolicy, asked: i64, cpus: &[i64], free: &[i64]) -> Option<Vec<i64>> {
    let sum = |mask: u32, of: &[i64]| (0..of.len()).filter(|at| mask >> at & 1 == 1).map(|at| of[at]).sum::<i64>();
    let masks = || 1..1_u32 << cpus.len();
    let could_hold = masks().filter(|mask| sum(*mask, cpus) >= asked).map(u32::count_ones);
    let least = could_hold.min().unwrap_or(u32::MAX).min(cpus.len() as u32);
    let hints = masks().filter(|mask| sum(*mask, free) >= asked);
    let preferred = hints.filter(|mask| mask.count_ones() == least);
    let admitted = preferred.filter(|mask| policy == NumaPolicy::Restricted || mask.count_ones() == 1);
    let best = admitted.min_by_key(|mask| (mask.count_ones(), *mask))?;
    let (mut left, mut rest) = (free.to_vec(), asked);
    for at in (0..left.len()).filter(|at| best >> at & 1 == 1) {
        let taken = rest.min(left[at]);
        (left[at], rest) = (left[at] - taken, rest - taken);
    }
    Some(left)
}

proptest! {
    #[test]
    fn pods_fit_as_volcanos_masks_let_them(
        is_single in any::<bool>(),
        all in prop::collection::vec((1u16..12, 0u16..12), 1..6),
        cpus in prop::collection::vec(1u32..16, 1..4),
        most in 1u64..9,
    ) {
        let policy = if is_single { NumaPolicy::SingleNumaNode } else { NumaPolicy::Restricted };
        let all: Vec<(u16, u16)> = all.into_iter().map(|(cpus, free)| (cpus, free.min(cpus))).collect();
        let sizes: Vec<i64> = all.iter().map(|(cpus, _)| i64::from(*cpus)).collect();
        let mut free: Vec<i64> = all.iter().map(|(_, free)| i64::from(*free)).collect();
        let mut fits = 0;
        while fits < most {
            let by_container = |left: Vec<i64>, asked: &u32| take_by_masks(policy, i64::from(*asked), &sizes, &left);
            let Some(left) = cpus.iter().try_fold(free.clone(), by_container) else { break };
            (free, fits) = (left, fits + 1);
        }
        let claim = NumaClaim { policy, cpus };
        let here = FreeCpus::of_topology(Some(&topology(policy, &all)));
        prop_assert_eq!(here.count_pods(&claim, most), fits);
        let left = here.take_pods(&claim, most);
        prop_assert_eq!(&left.free[..free.len()], &free[..]);
        prop_assert_eq!(FreeCpus::from_columns(&left.columns().collect::<Vec<_>>()), left);
    }
}
