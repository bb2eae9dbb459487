mod apart;
mod numa;
mod objective;
mod partition_domains;
mod planted;
mod preferences;
mod properties;
mod task_topology;
mod topology;
mod wide;

use std::sync::Arc;

use super::{Strategy, *};
use crate::{
    gang::{NodeClaim, Partition, Task, Topology},
    inventory::{Amounts, NodeRef, NodeShape, Source},
    plan::PinnedDomains,
    quantity::Quantity,
    resources::Resources,
};
/// The capacity with these pods on it.
pub(crate) fn without(capacity: &Capacity, gang: &Gang, pods: &[u32]) -> Capacity {
    subtract_assumed_pods(capacity.clone(), gang, pods, &PinnedDomains::default())
}

fn request(cpu: i64, gpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("gpu", Quantity::from_units(gpu)), ("pods", Quantity::from_units(1))]
        .into_iter()
        .collect()
}

pub(super) fn task(name: &str, replicas: u32, min_available: u32, cpu: i64, gpu: i64) -> Task {
    Task {
        name: name.into(),
        replicas,
        min_available,
        request: request(cpu, gpu),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    }
}

pub(super) fn gang(tasks: Vec<Task>, min_available: u32) -> Gang {
    Gang::new(tasks, min_available)
}

/// Nodes of (cpu, gpu), each with its own name, 10 pods each.
fn capacity(cluster: usize, nodes: &[(i64, i64)]) -> Capacity {
    let amounts = |cpu, gpu| -> Amounts {
        [("cpu", cpu), ("gpu", gpu), ("pods", 10)].map(|(name, n)| (name.into(), Quantity::from_units(n))).into()
    };
    let mut shapes: Vec<NodeShape> = Vec::new();
    for (index, (cpu, gpu)) in nodes.iter().enumerate() {
        let free = amounts(*cpu, *gpu);
        let name = NodeRef::from(format!("n{cluster}-{index}"));
        match shapes.iter_mut().find(|shape| *shape.free == free) {
            Some(shape) => shape.nodes.push(name),
            None => shapes.push(NodeShape {
                labels: Some(Arc::default()),
                allocatable: Arc::new(free.clone()),
                free: Arc::new(free),
                nodes: vec![name],
                ..NodeShape::default()
            }),
        }
    }
    Capacity::new(shapes, Source::Nodes)
}

struct World {
    names: Vec<ClusterName>,
    capacities: Vec<Capacity>,
}

fn world(clusters: &[Vec<(i64, i64)>]) -> World {
    World {
        names: (0..clusters.len()).map(|i| ClusterName::from(format!("m{i}"))).collect(),
        capacities: clusters.iter().enumerate().map(|(i, nodes)| capacity(i, nodes)).collect(),
    }
}

fn problem<'a>(gang: &'a Gang, world: &'a World, strategy: Strategy) -> SplitProblem<'a> {
    let candidates = world.names.iter().zip(&world.capacities);
    SplitProblem {
        candidates: candidates
            .map(|(name, capacity)| Candidate { name, weight: 1, data: 0, cost: 0, missing_images: 0, capacity })
            .collect(),
        strategy,
        ..problem_in_no_cluster(gang)
    }
}

pub(super) fn problem_in_one_cluster<'a>(
    gang: &'a Gang,
    name: &'a ClusterName,
    capacity: &'a Capacity,
) -> SplitProblem<'a> {
    let candidates = vec![Candidate { name, weight: 1, data: 0, cost: 0, missing_images: 0, capacity }];
    SplitProblem { candidates, ..problem_in_no_cluster(gang) }
}

fn problem_in_no_cluster(gang: &Gang) -> SplitProblem<'_> {
    SplitProblem {
        gang,
        candidates: Vec::new(),
        strategy: Strategy::Aggregated,
        previous: None,
        copies: None,
        most_clusters: None,
        regions: None,
        levels: &[],
        tie: Tie::Ascending,
    }
}

fn split(gang: &Gang, clusters: &[Vec<(i64, i64)>], strategy: Strategy) -> Result<Plan, GangRefusal> {
    split_gang(&problem(gang, &world(clusters), strategy))
}

/// `m0: worker 3/2, master 1/1 (min 3)`, one line for each cluster.
fn shown(plan: &Plan) -> Vec<String> {
    let share = |share: &ClusterShare| {
        let tasks: Vec<String> =
            share.tasks.iter().map(|(name, task)| format!("{name} {}/{}", task.replicas, task.min_available)).collect();
        format!("{} (min {})", tasks.join(", "), share.min_available)
    };
    plan.clusters.iter().map(|(cluster, one)| format!("{cluster}: {}", share(one))).collect()
}

#[test]
fn one_cluster_is_used_where_one_is_enough_and_the_tightest_wins() {
    let gang = gang(vec![task("w", 4, 4, 2, 0)], 4);
    let plan = split(&gang, &[vec![(20, 0)], vec![(8, 0)], vec![(6, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m1: w 4/4 (min 4)"]);
}

#[test]
fn aggregated_uses_the_fewest_clusters_and_the_tightest_for_the_rest() {
    let gang = gang(vec![task("w", 10, 10, 1, 0)], 10);
    let plan = split(&gang, &[vec![(3, 0)], vec![(8, 0)], vec![(9, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m1: w 8/8 (min 8)", "m3: w 2/2 (min 2)"]);
}

#[test]
fn fragments_do_not_add_up() {
    let gang = gang(vec![task("w", 1, 1, 1, 8)], 1);
    let refusal = split(&gang, &[vec![(8, 4), (8, 4)], vec![(8, 6)]], Strategy::Aggregated).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "needs 1 pod at once; 0 fit now in 2 clusters; task w: 0 of 1 fit, each pod asks for 8 gpu on one node; the largest \
         has 6 free in m1"
    );
}

#[test]
fn less_than_the_minimum_is_never_placed() {
    let gang = gang(vec![task("w", 8, 6, 1, 0)], 6);
    let GangRefusal::Short(short) = split(&gang, &[vec![(3, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap_err()
    else {
        panic!("not short");
    };
    assert_eq!((short.needed, short.placeable), (6, 5));
    assert_eq!(short.best, Some(("m0".into(), 3)));
}

#[test]
fn between_minimum_and_full_size_as_many_as_fit_are_placed() {
    let gang = gang(vec![task("w", 8, 4, 1, 0)], 4);
    for strategy in [Strategy::Aggregated, Strategy::DynamicWeight, Strategy::StaticWeight] {
        let plan = split(&gang, &[vec![(3, 0)], vec![(2, 0)]], strategy).unwrap();
        assert_eq!(plan.replicas(), 5, "{strategy:?}");
        let minimums: u32 = plan.clusters.values().map(|share| share.min_available).sum();
        assert_eq!(minimums, 4, "{strategy:?}");
    }
}

#[test]
fn elastic_pods_of_one_task_never_take_the_minimum_of_another() {
    let gang = gang(vec![task("big", 10, 1, 1, 0), task("late", 4, 4, 2, 0)], 5);
    let plan = split(&gang, &[vec![(6, 0)], vec![(5, 0)]], Strategy::Aggregated).unwrap();
    let late: u32 = plan.clusters.values().map(|share| share.tasks["late"].replicas).sum();
    assert_eq!(late, 4);
    assert!(plan.replicas() >= 5);
}

#[test]
fn static_weights_give_every_task_and_the_totals_their_part() {
    let gang = gang(vec![task("a", 3, 3, 1, 0), task("b", 6, 6, 1, 0)], 9);
    let world = world(&[vec![(50, 0)], vec![(50, 0)]]);
    let mut problem = problem(&gang, &world, Strategy::StaticWeight);
    problem.candidates[0].weight = 2;
    let plan = split_gang(&problem).unwrap();
    assert_eq!(shown(&plan), ["m0: a 2/2, b 4/4 (min 6)", "m1: a 1/1, b 2/2 (min 3)"]);
}

#[test]
fn static_weights_divide_a_gang_of_a_small_minimum_as_any_other() {
    for (least, a, b) in [(6, 4, 2), (1, 4, 2), (1, 0, 0), (2, 1, 1)] {
        let gang = gang(vec![task("a", 4, a, 1, 0), task("b", 2, b, 1, 0)], least);
        let plan = split(&gang, &[vec![(50, 0)], vec![(50, 0)]], Strategy::StaticWeight).unwrap();
        let replicas: Vec<u32> = plan.clusters.values().map(ClusterShare::replicas).collect();
        assert_eq!(replicas, [3, 3], "{least} {a} {b}: {:?}", shown(&plan));
    }
}

#[test]
fn static_weight_gives_way_where_a_cluster_is_full() {
    let gang = gang(vec![task("a", 8, 8, 1, 0)], 8);
    let plan = split(&gang, &[vec![(2, 0)], vec![(50, 0)]], Strategy::StaticWeight).unwrap();
    assert_eq!(shown(&plan), ["m0: a 2/2 (min 2)", "m1: a 6/6 (min 6)"]);
}

#[test]
fn dynamic_weights_follow_what_is_free() {
    let gang = gang(vec![task("a", 9, 9, 1, 0)], 9);
    let plan = split(&gang, &[vec![(9, 0), (9, 0)], vec![(9, 0)]], Strategy::DynamicWeight).unwrap();
    assert_eq!(shown(&plan), ["m0: a 6/6 (min 6)", "m1: a 3/3 (min 3)"]);
}

#[test]
fn duplicated_puts_the_whole_gang_everywhere_or_says_where_it_can_not() {
    let gang = gang(vec![task("a", 4, 4, 1, 0)], 4);
    let plan = split(&gang, &[vec![(4, 0)], vec![(9, 0)]], Strategy::Duplicated).unwrap();
    assert_eq!(shown(&plan), ["m0: a 4/4 (min 4)", "m1: a 4/4 (min 4)"]);
    let refusal = split(&gang, &[vec![(4, 0)], vec![(3, 0)]], Strategy::Duplicated).unwrap_err().to_string();
    assert!(refusal.contains("in every selected cluster") && refusal.contains("m1 takes 3"), "{refusal}");
}

#[test]
fn a_gang_that_must_stay_together_uses_one_cluster_or_none() {
    let mut gang = gang(vec![task("master", 1, 1, 1, 0), task("worker", 4, 4, 2, 0)], 5);
    gang.one_cluster = Some("plugin pytorch builds ranks".into());
    let plan = split(&gang, &[vec![(8, 0)], vec![(9, 0)]], Strategy::StaticWeight).unwrap();
    assert_eq!(shown(&plan), ["m1: master 1/1, worker 4/4 (min 5)"]);
    let refusal = split(&gang, &[vec![(8, 0)], vec![(7, 0)]], Strategy::Aggregated).unwrap_err().to_string();
    assert!(refusal.contains("all must be in one: plugin pytorch builds ranks"), "{refusal}");
    gang.one_cluster = None;
    gang.topology = Some(Topology { hard: true, highest_tier: Some(1), highest_tier_name: None });
    assert!(split(&gang, &[vec![(8, 0)], vec![(7, 0)]], Strategy::Aggregated).is_err());
}

#[test]
fn an_elastic_gang_in_one_cluster_goes_where_most_of_it_fits() {
    let mut gang = gang(vec![task("w", 9, 2, 1, 0)], 2);
    gang.one_cluster = Some("svc".into());
    let plan = split(&gang, &[vec![(3, 0)], vec![(6, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m1: w 6/2 (min 2)"]);
}

#[test]
fn partitions_are_never_cut() {
    let mut gang = gang(vec![task("w", 6, 6, 1, 0)], 6);
    gang.tasks[0].partition = Some(Partition { total: 3, size: 2, min: 3, topology: None });
    for strategy in [Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight] {
        let plan = split(&gang, &[vec![(3, 0)], vec![(5, 0)]], strategy).unwrap();
        assert_eq!(shown(&plan), ["m0: w 2/2 (min 2)", "m1: w 4/4 (min 4)"], "{strategy:?}");
    }
    assert!(split(&gang, &[vec![(3, 0)], vec![(3, 0)]], Strategy::Aggregated).is_err());
}

/// A cluster that the policy gives no weight (it is not in the list) gets nothing, as in Karmada.
#[test]
fn a_cluster_without_weight_takes_no_gang_however_close_it_must_be() {
    let one = |why: Option<&str>, topology: Option<Topology>, most: Option<u32>| {
        let gang = gang(vec![task("w", 4, 4, 1, 0)], 4);
        let gang = Gang { one_cluster: why.map(Into::into), topology, ..gang };
        let world = world(&[vec![(4, 0)], vec![(9, 0)], vec![(4, 0)]]);
        let mut problem = problem(&gang, &world, Strategy::StaticWeight);
        problem.candidates[0].weight = 0;
        problem.candidates[2].weight = 0;
        problem.most_clusters = most;
        let wide = split_gang(&problem).map(|plan| shown(&plan));
        problem.candidates[1].weight = 0;
        (wide.unwrap(), split_gang(&problem))
    };
    let hard = Topology { hard: true, highest_tier: None, highest_tier_name: Some("cluster".into()) };
    for (why, topology, most) in [(Some("ranks"), None, None), (None, Some(hard), None), (None, None, Some(1))] {
        assert_eq!(one(why, topology, most), (vec!["m1: w 4/4 (min 4)".into()], Err(GangRefusal::NoCandidates)));
    }
}

#[test]
fn a_cluster_that_lost_its_weight_keeps_what_it_has() {
    let world = world(&[vec![(0, 0)], vec![(9, 0)]]);
    let before = split(&gang(vec![task("w", 3, 3, 1, 0)], 3), &[vec![(3, 0)]], Strategy::Aggregated).unwrap();
    let grown = gang(vec![task("w", 5, 5, 1, 0)], 5);
    let mut problem = problem(&grown, &world, Strategy::StaticWeight);
    problem.candidates[0].weight = 0;
    problem.previous = Some(&before);
    assert_eq!(shown(&split_gang(&problem).unwrap()), ["m0: w 3/3 (min 3)", "m1: w 2/2 (min 2)"]);
}

/// What a member says of its nodes may be anything.
#[test]
fn no_amount_is_too_large_to_be_counted() {
    let mut gang = gang(vec![task("w", 2, 2, 0, 1)], 2);
    gang.tasks[0].request = [("memory", Quantity::from_nano(1))].into_iter().collect();
    let free: Amounts = [("memory".into(), Quantity::from_units(i64::MAX))].into();
    let nodes = (0..3).map(|n| format!("n{n}").as_str().into()).collect();
    let shape = NodeShape { allocatable: Arc::new(free.clone()), free: Arc::new(free), nodes, ..NodeShape::default() };
    let capacity = Capacity::new(vec![shape], Source::Nodes);
    let requests = GangRequests::new(&gang);
    let room = requests.free_nodes(&capacity, NodeScope::Cluster);
    assert!(matches!(requests.find_shortage(0, &[(&"m".into(), room)]), Some(Lack::Resource { .. })));
}

/// The peer left `minAvailable` whole in every copy, which a member's admission refuses (volcano-global's RIC).
#[test]
fn minimums_are_divided_with_the_replicas() {
    let gang = gang(vec![task("a", 4, 3, 1, 0), task("b", 4, 1, 1, 0)], 6);
    let plan = split(&gang, &[vec![(4, 0)], vec![(4, 0)]], Strategy::StaticWeight).unwrap();
    assert_eq!(shown(&plan), ["m0: a 2/2, b 2/1 (min 4)", "m1: a 2/1, b 2/0 (min 2)"]);
}

/// Job minimum 0 would be re-defaulted to everything, or let a part of failed pods count as completed.
#[test]
fn every_part_needs_at_least_one_pod() {
    let gang = gang(vec![task("pod", 2, 2, 1, 0)], 1);
    let plan = split(&gang, &[vec![(1, 0)], vec![(1, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m0: pod 1/1 (min 1)", "m1: pod 1/1 (min 1)"]);
}

#[test]
fn a_part_ends_when_all_its_pods_succeeded_or_as_many_as_the_job_wants() {
    let mut gang = gang(vec![task("w", 6, 6, 1, 0)], 6);
    gang.min_success = Some(3);
    let plan = split(&gang, &[vec![(4, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap();
    let success: Vec<Option<u32>> = plan.clusters.values().map(|share| share.min_success).collect();
    assert_eq!(success, [Some(3), Some(2)]);
}

/// A member's Volcano lets nobody change it.
#[test]
fn a_copy_that_grows_keeps_its_min_success() {
    let mut gang = gang(vec![task("w", 6, 2, 1, 0)], 2);
    gang.min_success = Some(5);
    let first = split(&gang, &[vec![(1, 0)], vec![(1, 0)]], Strategy::Aggregated).unwrap();
    let room = world(&[vec![(2, 0)], vec![(2, 0)]]);
    let problem = SplitProblem { previous: Some(&first), ..problem(&gang, &room, Strategy::Aggregated) };
    let grown = split_gang(&problem).unwrap();
    let own: Vec<(u32, Option<u32>)> = grown.clusters.values().map(|s| (s.replicas(), s.min_success)).collect();
    assert_eq!(own, [(3, Some(1)), (3, Some(1))]);
}

#[test]
fn selectors_taints_and_names_are_honoured_node_by_node() {
    let mut gang = gang(vec![task("w", 2, 2, 1, 0)], 2);
    gang.tasks[0].node.selector.insert("kubernetes.io/hostname".into(), "n1-1".into());
    let plan = split(&gang, &[vec![(9, 0)], vec![(2, 0), (2, 0)]], Strategy::Aggregated).unwrap();
    assert_eq!(shown(&plan), ["m1: w 2/2 (min 2)"]);
    gang.tasks[0].replicas = 3;
    assert_eq!(split(&gang, &[vec![(9, 0)], vec![(2, 0), (2, 0)]], Strategy::Aggregated).unwrap().replicas(), 2);
    gang.tasks[0].node.selector.insert("disk".into(), "ssd".into());
    let refusal = split(&gang, &[vec![(9, 0)]], Strategy::Aggregated).unwrap_err().to_string();
    let miss = "no node matches its selector and tolerations: 1 node of m0 lacks disk=ssd, kubernetes.io/hostname=n1-1";
    assert!(refusal.contains(miss), "{refusal}");
}

#[test]
fn a_refusal_names_the_taints_that_keep_nodes_out_and_the_closest_selector_miss() {
    let mut gang = gang(vec![task("w", 2, 2, 1, 0)], 2);
    gang.tasks[0].node.selector = [("disk", "ssd"), ("zone", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let mut world = world(&[vec![(9, 0), (8, 0)], vec![(9, 0), (9, 0), (7, 0)]]);
    let set = |capacity: &mut Capacity, at: usize, labels: &[(&str, &str)], taints: &[(&str, &str, &str)]| {
        let mut shapes = capacity.shapes.clone();
        shapes[at].labels = Some(Arc::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()));
        let taint = |(key, value, effect): &(&str, &str, &str)| crate::gang::Taint {
            key: (*key).into(),
            value: (*value).into(),
            effect: (*effect).into(),
        };
        shapes[at].taints = taints.iter().map(taint).collect();
        *capacity = Capacity::new(shapes, Source::Nodes);
    };
    let both = [("disk", "ssd"), ("zone", "a")];
    set(&mut world.capacities[0], 0, &both, &[("soft", "", "PreferNoSchedule"), ("infra", "yes", "NoSchedule")]);
    set(&mut world.capacities[0], 1, &[("zone", "b")], &[]);
    set(&mut world.capacities[1], 0, &both, &[("gpu", "team-acme", "NoExecute")]);
    set(&mut world.capacities[1], 1, &[("zone", "a")], &[("gpu", "", "NoExecute")]);
    let refusal = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap_err().to_string();
    let why = "no node matches its selector and tolerations: taint gpu:NoExecute keeps 2 nodes of m1 out, taint \
               infra:NoSchedule keeps 1 node of m0 out, 1 node of m1 lacks disk=ssd";
    assert!(refusal.contains(why), "{refusal}");
    gang.tasks[0].node = NodeClaim::default();
    set(&mut world.capacities[0], 0, &[], &[("a", "", "NoSchedule")]);
    set(&mut world.capacities[0], 1, &[], &[("b", "", "NoSchedule")]);
    set(&mut world.capacities[1], 0, &[], &[("c", "", "NoSchedule")]);
    set(&mut world.capacities[1], 1, &[], &[("d", "", "NoSchedule")]);
    let refusal = split_gang(&problem(&gang, &world, Strategy::Aggregated)).unwrap_err().to_string();
    assert!(refusal.ends_with("taint b:NoSchedule keeps 1 node of m0 out and 1 more"), "bounded: {refusal}");
}

#[test]
fn pods_that_ask_for_nothing_are_bounded_by_pods() {
    let mut gang = gang(vec![task("w", 25, 25, 0, 0)], 25);
    gang.tasks[0].request = [("pods", Quantity::from_units(1))].into_iter().collect();
    assert_eq!(split(&gang, &[vec![(0, 0), (0, 0)], vec![(0, 0)]], Strategy::Aggregated).unwrap().clusters.len(), 2);
    gang.tasks[0].replicas = 31;
    gang.tasks[0].min_available = 31;
    gang.min_available = 31;
    assert!(split(&gang, &[vec![(0, 0), (0, 0)], vec![(0, 0)]], Strategy::Aggregated).is_err());
}

#[test]
fn growing_keeps_what_runs_and_adds_the_rest() {
    let world = world(&[vec![(0, 0)], vec![(9, 0)]]);
    let grown = gang(vec![task("w", 5, 5, 1, 0)], 5);
    let before = split(&gang(vec![task("w", 3, 3, 1, 0)], 3), &[vec![(3, 0)]], Strategy::Aggregated).unwrap();
    let mut problem = problem(&grown, &world, Strategy::Aggregated);
    problem.previous = Some(&before);
    assert_eq!(shown(&split_gang(&problem).unwrap()), ["m0: w 3/3 (min 3)", "m1: w 2/2 (min 2)"]);
}

#[test]
fn shrinking_empties_the_smallest_part_first() {
    let big = gang(vec![task("w", 6, 6, 1, 0)], 6);
    let before = split(&big, &[vec![(4, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap();
    let small = gang(vec![task("w", 3, 3, 1, 0)], 3);
    let world = world(&[vec![(0, 0)], vec![(0, 0)]]);
    let mut problem = problem(&small, &world, Strategy::Aggregated);
    problem.previous = Some(&before);
    assert_eq!(shown(&split_gang(&problem).unwrap()), ["m0: w 3/3 (min 3)"]);
}

#[test]
fn a_lost_cluster_is_replaced_and_the_others_stay() {
    let gang = gang(vec![task("w", 6, 6, 1, 0)], 6);
    let before = split(&gang, &[vec![(4, 0)], vec![(2, 0)]], Strategy::Aggregated).unwrap();
    let world = world(&[vec![(0, 0)], vec![(0, 0)], vec![(7, 0)]]);
    let mut problem = problem(&gang, &world, Strategy::Aggregated);
    problem.previous = Some(&before);
    problem.candidates.remove(1);
    assert_eq!(shown(&split_gang(&problem).unwrap()), ["m0: w 4/4 (min 4)", "m2: w 2/2 (min 2)"]);
}

/// The scarcest task first takes the larger node apart; the other order, by which it was placed, does not.
#[test]
fn assumed_pods_are_held_whole_by_the_order_that_packs_them() {
    let gang = gang(vec![task("master", 1, 1, 0, 3), task("worker", 2, 2, 0, 2)], 3);
    let nodes = [(4, 3), (4, 4)];
    assert_eq!(shown(&split(&gang, &[nodes.to_vec()], Strategy::Aggregated).unwrap()).len(), 1);
    assert_eq!(without(&capacity(0, &nodes), &gang, &[1, 2]).sum_free().get("gpu"), Quantity::ZERO);
}

/// Beyond its minimum a gang is packed in two steps, which no single order repeats.
#[test]
fn assumed_pods_beyond_the_minimum_are_held_whole() {
    let gang = self::gang(vec![task("ps", 2, 0, 0, 3), task("worker", 2, 1, 3, 1)], 1);
    let nodes = [(4, 3), (4, 3), (5, 4)];
    let plan = split(&gang, &[nodes.to_vec()], Strategy::Aggregated).unwrap();
    let share = plan.clusters.values().next().unwrap();
    let pods: Vec<u32> = gang.tasks.iter().map(|task| share.tasks[&task.name].replicas).collect();
    let asked: i64 = i64::from(pods[0]) * 3 + i64::from(pods[1]);
    assert_eq!(without(&capacity(0, &nodes), &gang, &pods).sum_free().get("gpu"), Quantity::from_units(10 - asked));
}

#[test]
fn assumed_pods_are_taken_out_node_by_node() {
    let gang = gang(vec![task("w", 3, 3, 2, 0)], 3);
    let left = without(&capacity(0, &[(4, 0), (4, 0), (5, 1)]), &gang, &[3]);
    assert_eq!(left.sum_free().get("cpu"), Quantity::from_units(7));
    assert_eq!(left.shapes.iter().map(|shape| shape.nodes.len()).sum::<usize>(), 3);
    assert!(split(&gang, &[vec![(4, 0)]], Strategy::Aggregated).is_err());
}

#[test]
fn empty_problems_are_refused_in_words() {
    let nothing = gang(vec![], 0);
    assert_eq!(split(&nothing, &[vec![(1, 0)]], Strategy::Aggregated), Err(GangRefusal::NoPods));
    let one = gang(vec![task("w", 1, 1, 1, 0)], 1);
    assert_eq!(split(&one, &[], Strategy::Aggregated), Err(GangRefusal::NoCandidates));
}

/// Least is free for `a`, so that it comes first, and takes half of what only two of `b` would fill.
#[test]
fn pods_that_fit_are_those_of_the_best_order() {
    for tasks in [[("a", 1, 3, 0), ("b", 2, 2, 1)], [("b", 2, 2, 1), ("a", 1, 3, 0)]] {
        let tasks = tasks.map(|(name, replicas, cpu, gpu)| task(name, replicas, 0, cpu, gpu));
        let gang = gang(tasks.to_vec(), 0);
        assert_eq!(count_pods_that_fit(&gang, &capacity(0, &[(3, 2), (4, 3)])), 3);
        assert!(gang_fits(&gang, &capacity(0, &[(3, 2), (4, 3)])));
        assert!(!gang_fits(&gang, &capacity(0, &[(3, 2), (3, 3)])));
    }
}
