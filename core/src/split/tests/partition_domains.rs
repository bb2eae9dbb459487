//! Partitions that must each lie in one domain: packed, pinned and held there, against a brute force on small cases.

use proptest::{prelude::*, strategy::Strategy as Generate};

use super::{
    Strategy,
    topology::{member, racked},
    *,
};

fn close(tier: u32) -> Topology {
    Topology { hard: true, highest_tier: Some(tier), highest_tier_name: None }
}

/// Partitions of `size` pods of two cores, so many of them needed.
fn workers(total: u32, size: u32, min: u32, topology: Option<Topology>) -> Gang {
    let mut gang = gang(vec![task("w", total * size, min * size, 2, 0)], min * size);
    gang.tasks[0].partition = Some(Partition { total, size, min, topology });
    gang
}

/// `m0: r0-0 x1, r0-1 x2` by cluster.
fn parts(plan: &Plan) -> Vec<String> {
    let one = |(cluster, share): (&ClusterName, &ClusterShare)| {
        let parts = share.parts.values().flatten().map(|part| format!("{} x{}", part.domain.name, part.partitions));
        format!("{cluster}: {}", parts.collect::<Vec<_>>().join(", "))
    };
    plan.clusters.iter().map(one).collect()
}

fn solved(gang: &Gang, world: &World) -> Result<Vec<String>, String> {
    let plan = split_gang(&problem(gang, world, Strategy::Aggregated));
    plan.map(|plan| parts(&plan)).map_err(|refusal| refusal.to_string())
}

#[test]
fn each_partition_lies_in_one_domain_of_the_tier_and_several_in_several() {
    let world = racked(&[&[&[8, 4], &[4, 2], &[2, 2]]]);
    // 6, 3 and 2 pods fit the racks: two partitions of three and one of them.
    assert_eq!(solved(&workers(3, 3, 3, Some(close(1))), &world).unwrap(), ["m0: r0-0 x2, r0-1 x1"]);
    // Without the racks there would be room for a third one of four.
    assert_eq!(solved(&workers(2, 4, 2, None), &world).unwrap(), ["m0: "]);
    assert_eq!(
        solved(&workers(2, 4, 2, Some(close(1))), &world).unwrap_err(),
        "needs 8 pods at once; 4 fit now in 1 cluster; best cluster m0 takes 4; task w: 4 of 8 fit, each partition of 4 must \
         be in one domain of tier 1 or lower and the roomiest takes 6 pods"
    );
    // A spine holds two racks.
    assert_eq!(solved(&workers(2, 4, 2, Some(close(2))), &world).unwrap(), ["m0: s0-0 x2"]);
    // The whole cluster is one tier above.
    assert_eq!(solved(&workers(2, 4, 2, Some(close(3))), &world).unwrap(), ["m0: "]);
}

#[test]
fn a_task_goes_over_clusters_at_the_boundary_of_partitions() {
    let world = racked(&[&[&[6], &[4]], &[&[6], &[3]]]);
    assert_eq!(solved(&workers(2, 3, 2, Some(close(1))), &world).unwrap(), ["m0: r0-0 x1", "m1: r1-0 x1"]);
    let refusal = solved(&workers(3, 3, 3, Some(close(1))), &world).unwrap_err();
    assert!(refusal.contains("task w: 6 of 9 fit, each partition of 3 must be in one domain"), "{refusal}");
    // As many partitions as fit, where fewer are enough.
    assert_eq!(solved(&workers(3, 3, 1, Some(close(1))), &world).unwrap(), ["m0: r0-0 x1", "m1: r1-0 x1"]);
}

#[test]
fn a_domain_holds_a_partition_node_by_node_and_nodes_of_no_domain_hold_none() {
    // Five cores in two nodes hold two pods of two.
    let world = racked(&[&[&[3, 3], &[5]]]);
    assert!(solved(&workers(1, 3, 1, Some(close(1))), &world).is_err());
    assert_eq!(solved(&workers(2, 2, 2, Some(close(1))), &world).unwrap(), ["m0: r0-0 x1, r0-1 x1"]);
    let bare = World { names: vec!["m0".into()], capacities: vec![capacity(0, &[(40, 0)])] };
    assert!(solved(&workers(1, 2, 1, Some(close(0))), &bare).is_err());
    let named = Topology { hard: true, highest_tier: None, highest_tier_name: Some("rack".into()) };
    let refusal = solved(&workers(1, 2, 1, Some(named.clone())), &bare).unwrap_err();
    assert!(refusal.contains("in one domain of tier rack or lower and the roomiest takes 0 pods"), "{refusal}");
    assert_eq!(solved(&workers(1, 2, 1, Some(named)), &world).unwrap(), ["m0: r0-0 x1"]);
}

#[test]
fn soft_closeness_of_partitions_is_left_to_the_member() {
    let soft = Topology { hard: false, highest_tier: Some(1), highest_tier_name: None };
    let world = racked(&[&[&[4], &[4]]]);
    assert_eq!(solved(&workers(1, 3, 1, Some(soft)), &world).unwrap(), ["m0: "]);
    assert!(solved(&workers(1, 3, 1, Some(close(1))), &world).is_err());
}

#[test]
fn what_is_assumed_of_partitions_is_held_in_their_domains() {
    let world = racked(&[&[&[8], &[4], &[9]]]);
    let gang = workers(2, 2, 2, Some(close(1)));
    let plan = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap();
    assert_eq!(parts(&plan), ["m0: r0-0 x1, r0-1 x1"]);
    let share = &plan.clusters["m0"];
    assert_eq!(share.parts["w"][0].domain.nodes[0][0].values, ["r0-0"]);
    let free = |pods: &[u32]| {
        let left = subtract_assumed_pods(world.capacities[0].clone(), &gang, pods, &share.pinned_domains());
        ["r0-0", "r0-1", "r0-2"].map(|rack| {
            let is_its = |shape: &&NodeShape| shape.nodes[0].label("rack") == Some(rack);
            let free = |shape: &NodeShape| shape.free.get("cpu").unwrap().units_ceil() * shape.nodes.len() as i128;
            left.shapes.iter().filter(is_its).map(free).sum::<i128>()
        })
    };
    assert_eq!(free(&[4]), [4, 0, 9]);
    // The first partition was seen; of the second one pod.
    assert_eq!(free(&[1]), [8, 2, 9]);
}

/// Volcano lets nobody change the number of partitions of a copy that is there.
#[test]
fn more_partitions_go_to_other_clusters_and_those_that_run_keep_their_domains() {
    let gang = workers(3, 2, 1, Some(close(1)));
    let before = split_gang(&problem(&gang, &racked(&[&[&[4], &[2]], &[&[2]]]), Strategy::Aggregated)).unwrap();
    assert_eq!(parts(&before), ["m0: r0-0 x1"]);
    let world = racked(&[&[&[8], &[8]], &[&[4]]]);
    let mut again = problem(&gang, &world, Strategy::Aggregated);
    again.previous = Some(&before);
    assert_eq!(parts(&split_gang(&again).unwrap()), ["m0: r0-0 x1", "m1: r1-0 x1"]);
}

/// Nodes of (cpu, rack); racks are 1 and 2, 0 is none.
type Nodes = Vec<(i64, u8)>;

#[derive(Debug, Clone)]
struct Case {
    clusters: Vec<Nodes>,
    /// Partitions of so many pods of so many cores, at least so many.
    total: u32,
    size: u32,
    cpu: i64,
    min: u32,
    /// Pods of another task, and their cores.
    others: (u32, i64),
}

impl Case {
    fn gang(&self) -> Gang {
        let mut tasks = vec![task("w", self.total * self.size, self.min * self.size, self.cpu, 0)];
        tasks[0].partition =
            Some(Partition { total: self.total, size: self.size, min: self.min, topology: Some(close(1)) });
        if self.others.0 > 0 {
            tasks.push(task("o", self.others.0, self.others.0, self.others.1, 0));
        }
        gang(tasks, (self.min * self.size + self.others.0).max(1))
    }

    /// The third rack is taken away: its nodes are in none.
    fn world(&self) -> World {
        let capacity = |(at, nodes): (usize, &Nodes)| {
            let of = |rack: u8| nodes.iter().filter(|node| node.1 == rack).map(|node| node.0).collect::<Vec<_>>();
            let racks = [of(1), of(2), of(0)];
            let mut inventory = member(at, &[&racks[0], &racks[1], &racks[2]]);
            inventory.apply_change(crate::inventory::Change::HyperNodeGone(format!("r{at}-2")));
            inventory.capacity()
        };
        World {
            names: (0..self.clusters.len()).map(|i| ClusterName::from(format!("m{i}"))).collect(),
            capacities: self.clusters.iter().enumerate().map(capacity).collect(),
        }
    }

    /// Whether these partitions, by rack (cluster, rack), and the other task's pods fit.
    fn packs(&self, chosen: &[(usize, u8)]) -> bool {
        let all: Vec<(usize, i64, u8)> = self
            .clusters
            .iter()
            .enumerate()
            .flat_map(|(at, nodes)| nodes.iter().map(move |node| (at, node.0, node.1)))
            .collect();
        let mut pods: Vec<(i64, Option<(usize, u8)>)> =
            chosen.iter().flat_map(|rack| vec![(self.cpu, Some(*rack)); self.size as usize]).collect();
        pods.extend(vec![(self.others.1, None); self.others.0 as usize]);
        fn place(nodes: &mut Vec<(usize, i64, u8)>, pods: &[(i64, Option<(usize, u8)>)]) -> bool {
            let Some(((cpu, rack), rest)) = pods.split_first() else { return true };
            for at in 0..nodes.len() {
                let (cluster, free, own) = nodes[at];
                if free < *cpu || rack.is_some_and(|rack| rack != (cluster, own)) {
                    continue;
                }
                nodes[at].1 -= cpu;
                if place(nodes, rest) {
                    return true;
                }
                nodes[at].1 += cpu;
            }
            false
        }
        place(&mut all.clone(), &pods)
    }

    /// The most partitions that fit with all else, if the minimum does.
    fn brute(&self) -> Option<u32> {
        let racks: Vec<(usize, u8)> = (0..self.clusters.len()).flat_map(|at| [(at, 1), (at, 2)]).collect();
        fn any(case: &Case, racks: &[(usize, u8)], chosen: &mut Vec<(usize, u8)>, count: u32) -> bool {
            if chosen.len() == count as usize {
                return case.packs(chosen);
            }
            (0..racks.len()).any(|at| {
                chosen.push(racks[at]);
                let found = any(case, &racks[at..], chosen, count);
                chosen.pop();
                found
            })
        }
        let least = if self.min == 0 && self.others.0 == 0 { 1 } else { self.min };
        (least..=self.total).rev().find(|count| any(self, &racks, &mut Vec::new(), *count))
    }
}

fn any_case() -> impl Generate<Value = Case> {
    let nodes = prop::collection::vec((0..7i64, 0..3u8), 0..4);
    let gang = (1..4u32, 1..4u32, 1..4i64, 0..4u32, (0..3u32, 1..5i64));
    (prop::collection::vec(nodes, 1..4), gang).prop_map(|(clusters, (total, size, cpu, min, others))| Case {
        clusters,
        total,
        size,
        cpu,
        min: min.min(total),
        others,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// As many partitions are placed as a brute force places, each in one rack, and all fits node by node.
    #[test]
    fn partitions_are_placed_where_and_only_where_a_domain_holds_them(case in any_case()) {
        let (gang, world) = (case.gang(), case.world());
        let found = split_gang(&problem(&gang, &world, Strategy::Aggregated));
        let Some(most) = case.brute() else {
            prop_assert!(found.is_err(), "{:?}", found);
            return Ok(());
        };
        let plan = found.map_err(|refusal| TestCaseError::fail(format!("{refusal}; {most} partitions fit")))?;
        let placed: u32 = plan.clusters.values().map(|share| share.tasks["w"].replicas).sum();
        prop_assert_eq!(placed, most * case.size);
        let mut chosen = Vec::new();
        for (cluster, share) in &plan.clusters {
            let pods = share.tasks["w"].replicas;
            let parts = share.parts.get("w").map(Vec::as_slice).unwrap_or_default();
            prop_assert_eq!(parts.iter().map(|part| part.partitions * case.size).sum::<u32>(), pods, "{:?}", share);
            for part in parts {
                let (at, rack) = part.domain.name[1..].split_once('-').unwrap();
                prop_assert_eq!(&cluster.as_str()[1..], at);
                chosen.extend(vec![(at.parse().unwrap(), rack.parse::<u8>().unwrap() + 1); part.partitions as usize]);
            }
        }
        prop_assert!(case.packs(&chosen), "{:?}", chosen);
    }

    /// What is placed is held whole, where it was placed, and stays there.
    #[test]
    fn partitions_that_are_placed_are_held_and_stay(case in any_case()) {
        let (gang, mut world) = (case.gang(), case.world());
        let Ok(plan) = split_gang(&problem(&gang, &world, Strategy::Aggregated)) else { return Ok(()) };
        for (name, capacity) in world.names.iter().zip(&mut world.capacities) {
            let Some(share) = plan.clusters.get(name) else { continue };
            let pods = pods_of_share(&gang, Some(share));
            let before = capacity.sum_free();
            *capacity = subtract_assumed_pods(capacity.clone(), &gang, &pods, &share.pinned_domains());
            let asked: i64 = gang.tasks.iter().zip(&pods).map(|(task, pods)| {
                i64::try_from(task.request.get("cpu").units_ceil()).unwrap() * i64::from(*pods)
            }).sum();
            let now = capacity.sum_free().get("cpu").saturating_add(Quantity::from_units(asked));
            prop_assert_eq!(now, before.get("cpu"), "held whole in {}", name);
        }
        let mut again = problem(&gang, &world, Strategy::Aggregated);
        again.previous = Some(&plan);
        let again = split_gang(&again).unwrap();
        for (name, share) in &plan.clusters {
            prop_assert_eq!(&again.clusters[name].parts, &share.parts);
            prop_assert_eq!(again.clusters[name].tasks["w"].replicas, share.tasks["w"].replicas);
        }
    }
}

/// Two partitions of four in one cluster, of four in all.
fn half_placed() -> (Gang, Plan) {
    let gang = |replicas| {
        let mut gang = gang(vec![task("w", replicas, 8, 1, 0)], 8);
        gang.tasks[0].partition = Some(Partition { total: replicas / 4, size: 4, min: 2, topology: None });
        gang
    };
    let before = split(&gang(8), &[vec![(8, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&before), ["m0: w 8/8 (min 8)"]);
    (gang(16), before)
}

/// Volcano's admission lets nobody resize a partitioned task: `partitionPolicy` is frozen, and the replicas are its
/// product.
#[test]
fn partitions_are_added_only_where_there_is_no_copy_yet() {
    let (gang, before) = half_placed();
    for strategy in [Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight, Strategy::Duplicated] {
        let grown = |clusters: &[Vec<(i64, i64)>]| {
            let world = world(clusters);
            let mut problem = problem(&gang, &world, strategy);
            problem.previous = Some(&before);
            problem.candidates.truncate(if strategy == Strategy::Duplicated { 1 } else { 9 });
            shown(&split_gang(&problem).unwrap())
        };
        assert_eq!(grown(&[vec![(90, 0)], vec![(3, 0)]]), ["m0: w 8/8 (min 8)"], "{strategy:?}");
        if strategy != Strategy::Duplicated {
            // The minimum is as frozen as the size.
            let spread = ["m0: w 8/8 (min 8)", "m1: w 4/0 (min 1)"];
            assert_eq!(grown(&[vec![(90, 0)], vec![(7, 0)]]), spread, "{strategy:?}");
        }
    }
}

/// Which is what a cluster's copy would stay like, whatever the plan says.
#[test]
fn partitions_that_are_placed_are_not_taken_away() {
    let (_, before) = half_placed();
    let mut gang = gang(vec![task("w", 4, 4, 1, 0), task("x", 0, 0, 1, 0)], 4);
    gang.tasks[0].partition = Some(Partition { total: 1, size: 4, min: 1, topology: None });
    for strategy in [Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight, Strategy::Duplicated] {
        let world = world(&[vec![(0, 0)]]);
        let mut problem = problem(&gang, &world, strategy);
        problem.previous = Some(&before);
        assert_eq!(split_gang(&problem).unwrap().clusters["m0"].tasks["w"].replicas, 8, "{strategy:?}");
    }
}

#[test]
fn partitions_that_start_afresh_move_as_a_whole_or_stay_as_they_are() {
    let (gang, before) = half_placed();
    let afresh = |clusters: &[Vec<(i64, i64)>]| {
        let world = world(clusters);
        let mut problem = problem(&gang, &world, Strategy::Aggregated);
        problem.copies = Some(&before);
        shown(&split_gang(&problem).unwrap())
    };
    // What it holds itself (8) is free for it. One cluster for all of it is better than two.
    assert_eq!(afresh(&[vec![(20, 0)], vec![(8, 0), (8, 0)]]), ["m1: w 16/8 (min 8)"]);
    assert_eq!(afresh(&[vec![(20, 0)], vec![(12, 0)]]), ["m0: w 8/8 (min 8)", "m1: w 8/0 (min 1)"]);
    assert_eq!(afresh(&[vec![(20, 0)], vec![(8, 0)], vec![(8, 0)]]), ["m0: w 8/8 (min 8)", "m1: w 8/0 (min 1)"]);
    assert_eq!(afresh(&[vec![(20, 0)]]), ["m0: w 8/8 (min 8)"]);
}

/// Whoever grants pods may not know of partitions: what is no whole one is left out, not waited for.
#[test]
fn pods_that_make_no_whole_partition_are_not_placed() {
    let mut gang = gang(vec![task("w", 14, 12, 1, 0), task("x", 2, 1, 1, 0)], 13);
    gang.tasks[0].partition = Some(Partition { total: 4, size: 4, min: 3, topology: None });
    let clusters = [vec![(9, 0)], vec![(9, 0)]];
    for strategy in [Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight] {
        assert_eq!(split(&gang, &clusters, strategy).unwrap().replicas(), 14, "{strategy:?}");
    }
    gang.tasks.pop();
    gang.min_available = 12;
    assert_eq!(
        shown(&split(&gang, &clusters, Strategy::Aggregated).unwrap()),
        ["m0: w 8/8 (min 8)", "m1: w 4/4 (min 4)"]
    );
    // The job needs one more than its whole partitions are.
    gang.min_available = 13;
    assert!(split(&gang, &clusters, Strategy::Aggregated).is_err());
    // Three partitions are needed, two and a half were granted.
    gang.tasks[0].replicas = 10;
    gang.tasks[0].min_available = 10;
    gang.min_available = 10;
    assert!(split(&gang, &clusters, Strategy::Aggregated).is_err());
}
