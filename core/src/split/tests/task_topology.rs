//! Tasks that want to be together or apart: the choice against every division of every set of clusters.

use proptest::{prelude::*, strategy::Strategy as Generate};

use super::{Strategy, properties::share_fits, *};
use crate::task_topology::TaskTopology;

type Nodes = Vec<(i64, i64)>;

fn wishing(tasks: Vec<Task>, affine: &[&[usize]], anti_affine: &[&[usize]]) -> Gang {
    let groups = |groups: &[&[usize]]| groups.iter().map(|group| group.to_vec()).collect();
    let all = tasks.iter().map(|task| task.replicas).sum();
    let task_topology = TaskTopology { affine: groups(affine), anti_affine: groups(anti_affine) };
    Gang { task_topology, ..gang(tasks, all) }
}

/// Pods of each task, by cluster.
fn shares(plan: &Plan, gang: &Gang) -> Pods {
    plan.clusters.values().map(|share| pods_of_share(gang, Some(share))).collect()
}

#[test]
fn a_job_of_ps_and_workers_is_not_split_into_ps_here_and_all_workers_there() {
    let tasks = || vec![task("worker", 8, 8, 1, 0), task("ps", 2, 2, 1, 0)];
    // The workers alone fill the first cluster, the parameter servers alone would fit the second.
    let clusters = [vec![(8, 0)], vec![(4, 0)]];
    let plan = split(&wishing(tasks(), &[&[0, 1]], &[]), &clusters, Strategy::Aggregated).unwrap();
    let gang = wishing(tasks(), &[&[0, 1]], &[]);
    let pods = shares(&plan, &gang);
    assert_eq!(gang.task_topology.count_unmet(&pods), 4, "{pods:?}");
    // Without the wish it may be.
    let plain = Gang { task_topology: TaskTopology::none(), ..gang.clone() };
    let pods = shares(&split(&plain, &clusters, Strategy::Aggregated).unwrap(), &plain);
    assert!(gang.task_topology.count_unmet(&pods) > 4, "{pods:?}");
    // With room for all it is one cluster.
    let plan = split(&gang, &[vec![(8, 0)], vec![(10, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(plan.clusters.len(), 1);
}

#[test]
fn more_clusters_are_used_where_that_cuts_fewer_affine_pairs() {
    // Two clusters hold the gang by parting both pairs; three keep one of them together.
    let tasks = vec![task("a", 2, 2, 3, 0), task("b", 2, 2, 1, 3)];
    let gang = wishing(tasks, &[&[0, 1]], &[]);
    let clusters = [vec![(6, 0)], vec![(2, 6)], vec![(4, 3)]];
    let plan = split(&gang, &clusters, Strategy::Aggregated).unwrap();
    assert_eq!(gang.task_topology.count_unmet(&shares(&plan, &gang)), 3, "{plan:?}");
    assert_eq!(plan.clusters.len(), 3);
}

#[test]
fn anti_affine_tasks_are_apart_where_a_gang_is_split_anyway() {
    let tasks = || vec![task("a", 2, 2, 1, 0), task("b", 2, 2, 1, 0)];
    let clusters = [vec![(3, 0)], vec![(3, 0)]];
    for anti_affine in [&[0_usize, 1] as &[usize], &[0]] {
        let gang = wishing(tasks(), &[], &[anti_affine]);
        let plan = split(&gang, &clusters, Strategy::Aggregated).unwrap();
        assert_eq!(gang.task_topology.count_unmet(&shares(&plan, &gang)), 0, "{plan:?}");
    }
}

#[test]
fn ps_and_workers_of_thousands_of_pods_are_mixed_evenly_over_the_clusters_that_they_fill() {
    let tasks = vec![task("ps", 400, 400, 1, 0), task("worker", 3200, 3200, 1, 1)];
    let clusters = vec![vec![(9, 9); 50]; 10];
    let gang = wishing(tasks, &[&[0, 1]], &[]);
    let plan = split(&gang, &clusters, Strategy::Aggregated).unwrap();
    let pods = shares(&plan, &gang);
    let (unmet, all) = (gang.task_topology.count_unmet(&pods), 400 * 3200);
    // Each of the eight that they fill has as many of both as every other: fewer can not be cut.
    assert_eq!(unmet, all / 8 * 7, "{pods:?}");
}

/// The least unmet pairs with the distance they have, over every division of every set of clusters.
fn brute(gang: &Gang, clusters: &[Nodes]) -> Option<(bool, u64)> {
    fn divide(gang: &Gang, clusters: &[Nodes], given: &mut Pods, left: &[u32], best: &mut Option<(bool, u64)>) {
        if given.len() == clusters.len() {
            if sum_pods(left) == 0 {
                let used = given.iter().filter(|pods| sum_pods(pods) > 0).count();
                let key = (used > 1, gang.task_topology.count_unmet(given));
                if best.is_none_or(|known| key < known) {
                    *best = Some(key);
                }
            }
            return;
        }
        let mut sizes: Pods = vec![vec![]];
        for left in left {
            sizes = sizes.iter().flat_map(|size| (0..=*left).map(move |n| [size.as_slice(), &[n]].concat())).collect();
        }
        for size in sizes {
            if share_fits(&clusters[given.len()], gang, &size) {
                let rest: Vec<u32> = left.iter().zip(&size).map(|(left, size)| left - size).collect();
                given.push(size);
                divide(gang, clusters, given, &rest, best);
                given.pop();
            }
        }
    }
    let mut best = None;
    let all: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    divide(gang, clusters, &mut Vec::new(), &all, &mut best);
    best
}

fn any_wishing_gang() -> impl Generate<Value = Gang> {
    let groups = || prop::collection::vec(prop::sample::subsequence(vec![0_usize, 1], 1..=2), 0..2);
    let tasks = prop::collection::vec((1..4_u32, 1..4_i64, 0..2_i64), 2);
    (tasks, groups(), groups()).prop_map(|(tasks, affine, anti_affine)| {
        let tasks = tasks.into_iter().enumerate();
        let tasks = tasks.map(|(at, (replicas, cpu, gpu))| task(&format!("t{at}"), replicas, replicas, cpu, gpu));
        let gang = wishing(tasks.collect(), &[], &[]);
        Gang { task_topology: TaskTopology { affine, anti_affine }, ..gang }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn up_to_four_clusters_no_division_leaves_fewer_pairs_unmet(
        gang in any_wishing_gang(),
        clusters in prop::collection::vec(prop::collection::vec((0..7_i64, 0..3_i64), 0..3), 1..5),
    ) {
        match (split(&gang, &clusters, Strategy::Aggregated), brute(&gang, &clusters)) {
            (Ok(plan), Some((split, unmet))) => {
                let pods = shares(&plan, &gang);
                prop_assert_eq!(plan.clusters.len() > 1, split);
                if split {
                    prop_assert_eq!(gang.task_topology.count_unmet(&pods), unmet, "{:?}", plan);
                }
                for (name, share) in &plan.clusters {
                    let at: usize = name.as_str()[1..].parse().unwrap();
                    prop_assert!(share_fits(&clusters[at], &gang, &pods_of_share(&gang, Some(share))), "{:?}", plan);
                }
            }
            (Err(_), None) => {}
            (found, best) => prop_assert!(false, "{:?} {:?}", found, best),
        }
    }
}
