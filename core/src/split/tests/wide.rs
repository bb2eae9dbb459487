//! Everything that a gang and its members may say at once: partitions, selectors, taints, weights, bounds, pins, what
//! is placed and what was. Against a packer and a brute force that share nothing with the split.

use std::collections::BTreeMap;

use proptest::{prelude::*, strategy::Strategy as Generate};

use super::{Strategy, properties::check_numbers, *};
use crate::{
    gang::{Operator, Requirement, Taint, Toleration},
    plan::PlannedDomain,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    cpu: i64,
    gpu: i64,
    pods: i64,
    ssd: bool,
    tainted: bool,
}

#[derive(Debug, Clone)]
struct Case {
    gang: Gang,
    clusters: Vec<Vec<Node>>,
    weights: Vec<u64>,
    strategy: Strategy,
    limit: Option<u32>,
}

const DISK: &str = "disk";

fn ssd() -> Requirement {
    Requirement { key: DISK.into(), operator: Operator::In, values: vec!["ssd".into()] }
}

fn capacity_of(cluster: usize, nodes: &[Node]) -> Capacity {
    let shape = |(at, node): (usize, &Node)| {
        let amounts = [("cpu", node.cpu), ("gpu", node.gpu), ("pods", node.pods)];
        let free: Amounts = amounts.map(|(name, n)| (name.into(), Quantity::from_units(n))).into();
        let labels: BTreeMap<String, String> =
            node.ssd.then(|| (DISK.to_owned(), "ssd".to_owned())).into_iter().collect();
        let taint = Taint { key: "dedicated".into(), value: String::new(), effect: "NoSchedule".into() };
        NodeShape {
            labels: Some(Arc::new(labels)),
            taints: node.tainted.then_some(taint).into_iter().collect(),
            allocatable: Arc::new(free.clone()),
            free: Arc::new(free),
            nodes: vec![format!("n{cluster}-{at}").into()],
            ..NodeShape::default()
        }
    };
    Capacity::new(nodes.iter().enumerate().map(shape).collect(), Source::Nodes)
}

impl Case {
    fn world(&self) -> World {
        World {
            names: (0..self.clusters.len()).map(|i| ClusterName::from(format!("m{i}"))).collect(),
            capacities: self.clusters.iter().enumerate().map(|(at, nodes)| capacity_of(at, nodes)).collect(),
        }
    }

    fn problem<'a>(&'a self, world: &'a World) -> SplitProblem<'a> {
        let mut problem = super::problem(&self.gang, world, self.strategy);
        problem.candidates.iter_mut().zip(&self.weights).for_each(|(one, weight)| one.weight = *weight);
        problem.most_clusters = self.limit;
        problem
    }

    fn split_gang(&self) -> Result<Plan, GangRefusal> {
        split_gang(&self.problem(&self.world()))
    }

    /// What holds for a plan of a gang that held nothing before.
    fn check(&self, plan: &Plan) -> Result<(), TestCaseError> {
        check_numbers(plan, &self.gang, self.strategy)?;
        let duplicated = self.strategy == Strategy::Duplicated;
        prop_assert!(duplicated || self.limit.is_none_or(|limit| plan.clusters.len() <= limit as usize));
        for (name, share) in &plan.clusters {
            let at = place_of(name);
            prop_assert!(self.strategy != Strategy::StaticWeight || self.weights[at] > 0, "{name} has no weight");
            prop_assert!(fits(&self.gang, &[&self.clusters[at]], &pods_of_share(&self.gang, Some(share))), "{name}");
        }
        Ok(())
    }

    /// Whether the gang's minimum finds a place in some clusters that may be used together.
    fn could_fit(&self) -> bool {
        let usable = |at: &usize| self.strategy != Strategy::StaticWeight || self.weights[*at] > 0;
        let usable: Vec<usize> = (0..self.clusters.len()).filter(usable).collect();
        let together = if self.gang.one_cluster.is_some() { 1 } else { self.limit.map_or(usize::MAX, |n| n as usize) };
        let sizes = minimums(&self.gang);
        (1..1_u32 << usable.len()).any(|set| {
            let nodes: Vec<&Vec<Node>> =
                (0..usable.len()).filter(|at| set >> at & 1 == 1).map(|at| &self.clusters[usable[at]]).collect();
            nodes.len() <= together && sizes.iter().any(|size| fits(&self.gang, &nodes, size))
        })
    }
}

fn place_of(name: &ClusterName) -> usize {
    name.as_str()[1..].parse().unwrap()
}

/// The least numbers of pods by task that make the minimum.
fn minimums(gang: &Gang) -> Vec<Vec<u32>> {
    let binds = gang.enforces_task_minimums();
    let mut sizes: Vec<Vec<u32>> = vec![vec![]];
    for task in &gang.tasks {
        let least = if binds { task.min_available } else { 0 };
        let counts =
            (least..=task.replicas).filter(|pods| pods.is_multiple_of(task.partition_size())).collect::<Vec<_>>();
        let longer =
            |size: &Vec<u32>| counts.iter().map(|pods| [size.as_slice(), &[*pods]].concat()).collect::<Vec<_>>();
        sizes = sizes.iter().flat_map(longer).collect();
    }
    let least = u64::from(gang.min_available).max(1);
    sizes.retain(|size| sum_pods(size) >= least);
    // One pod or partition fewer would do: the smaller size is looked at as well.
    let all = sizes.clone();
    sizes.retain(|size| {
        !all.iter().any(|other| other != size && other.iter().zip(size).all(|(other, this)| other <= this))
    });
    sizes
}

/// Whether so many pods of each task fit these clusters' nodes, partitions within one cluster: by trying.
fn fits(gang: &Gang, clusters: &[&Vec<Node>], pods: &[u32]) -> bool {
    let mut list: Vec<(usize, bool)> = Vec::new();
    for (task, count) in pods.iter().enumerate() {
        let unit = gang.tasks[task].partition_size();
        list.extend((0..*count).map(|pod| (task, pod % unit == 0)));
    }
    let mut nodes: Vec<(usize, Node)> =
        clusters.iter().enumerate().flat_map(|(at, nodes)| nodes.iter().map(move |node| (at, *node))).collect();
    packs(gang, &mut nodes, &list, None)
}

fn packs(gang: &Gang, nodes: &mut [(usize, Node)], pods: &[(usize, bool)], within: Option<usize>) -> bool {
    let Some(((task, begins), rest)) = pods.split_first() else { return true };
    let asks = &gang.tasks[*task];
    let units = |name| i64::try_from(asks.request.get(name).units_ceil()).unwrap();
    let (cpu, gpu) = (units("cpu"), units("gpu"));
    let mut tried = Vec::new();
    for at in 0..nodes.len() {
        let (cluster, node) = nodes[at];
        let open = (asks.node.selector.is_empty() || node.ssd) && (!asks.node.tolerations.is_empty() || !node.tainted);
        let there = *begins || within == Some(cluster);
        if !open || !there || node.cpu < cpu || node.gpu < gpu || node.pods < 1 || tried.contains(&(cluster, node)) {
            continue;
        }
        tried.push((cluster, node));
        nodes[at].1 = Node { cpu: node.cpu - cpu, gpu: node.gpu - gpu, pods: node.pods - 1, ..node };
        let fits = packs(gang, nodes, rest, Some(cluster));
        nodes[at].1 = node;
        if fits {
            return true;
        }
    }
    false
}

fn any_task() -> impl Generate<Value = Task> {
    let size = prop::sample::select(vec![1, 1, 2, 3]);
    (size, 0..4u32, 0..4u32, 0..2u32, (1..4i64, 0..2i64), (0..4u8, 0..3u8), 0..4u32).prop_map(
        |(size, count, min, rule, (cpu, gpu), (disk, taint), granted)| {
            let replicas = if size > 1 { count.clamp(1, 3) * size } else { count };
            let mut task = task("t", replicas, min.min(replicas), cpu, gpu);
            if size > 1 {
                // With needed partitions Volcano knows no other minimum.
                let min = if rule == 0 { 0 } else { min.min(replicas / size) };
                task.partition = Some(Partition { total: replicas / size, size, min, topology: None });
                task.min_available = if min > 0 { min * size } else { task.min_available };
                // Who granted less than all may not have known of partitions.
                task.replicas = replicas.saturating_sub(if granted < 2 { 0 } else { granted }).max(task.min_available);
            }
            if disk == 0 {
                task.node.selector.insert(DISK.into(), "ssd".into());
            }
            if taint == 0 {
                task.node.tolerations.push(Toleration {
                    key: "dedicated".into(),
                    exists: true,
                    ..Toleration::default()
                });
            }
            task
        },
    )
}

fn any_nodes() -> impl Generate<Value = Vec<Node>> {
    let node = (0..7i64, 0..3i64, 1..4i64, any::<bool>(), 0..4u8).prop_map(|(cpu, gpu, pods, ssd, taint)| Node {
        cpu,
        gpu,
        pods,
        ssd,
        tainted: taint == 0,
    });
    prop::collection::vec(node, 0..4)
}

fn any_case() -> impl Generate<Value = Case> {
    let gang = (prop::collection::vec(any_task(), 1..3), 0..9u32, 0..6u8).prop_map(|(mut tasks, min, together)| {
        tasks.iter_mut().enumerate().for_each(|(at, task)| task.name = format!("t{at}").into());
        let mut gang = super::gang(tasks, 0);
        gang.min_available = min.clamp(1.min(gang.replicas()), gang.replicas().max(1));
        gang.one_cluster = (together == 0).then(|| "ranks".to_owned());
        gang
    });
    let strategies = [Strategy::Duplicated, Strategy::Aggregated, Strategy::StaticWeight, Strategy::DynamicWeight];
    let clusters = prop::collection::vec((any_nodes(), 0..4u64), 1..5);
    let limit = prop::option::of(1..4u32);
    (gang, clusters, prop::sample::select(strategies.to_vec()), limit).prop_map(|(gang, clusters, strategy, limit)| {
        Case {
            gang,
            weights: clusters.iter().map(|(_, weight)| *weight).collect(),
            clusters: clusters.into_iter().map(|(nodes, _)| nodes).collect(),
            strategy,
            limit,
        }
    })
}

/// What becomes of a placed gang: replicas by task that it wants then, a cluster that is lost, a node that is new, and
/// whether the copies are pinned to nodes with SSDs.
#[derive(Debug, Clone)]
struct After {
    replicas: Vec<u32>,
    lost: Option<usize>,
    node: (usize, Node),
    pinned: bool,
}

fn any_after() -> impl Generate<Value = After> {
    let node = (1..9i64, 0..5i64, any::<bool>());
    (prop::collection::vec(0..7u32, 2), prop::option::of(0..4usize), (0..4usize, node), any::<bool>()).prop_map(
        |(replicas, lost, (cluster, (cpu, gpu, ssd)), pinned)| After {
            replicas,
            lost,
            node: (cluster, Node { cpu, gpu, pods: 9, ssd, tainted: false }),
            pinned,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_a_plan_keeps_sums_minimums_partitions_weights_and_nodes(case in any_case()) {
        if let Ok(plan) = case.split_gang() {
            case.check(&plan)?;
        }
    }

    /// A few pods are packed by trying: they are refused only where nothing holds their minimum.
    #[test]
    fn whatever_is_asked_nothing_that_fits_is_refused(case in any_case()) {
        if case.strategy != Strategy::Duplicated && case.gang.replicas() > 0 && case.split_gang().is_err() {
            prop_assert!(!case.could_fit());
        }
    }

    #[test]
    fn whatever_is_asked_more_room_never_refuses(mut case in any_case(), at in 0..4usize, more in any_nodes()) {
        let before = case.split_gang();
        let count = case.clusters.len();
        case.clusters[at % count].extend(more);
        prop_assert!(before.is_err() || case.split_gang().is_ok());
    }

    #[test]
    fn whatever_is_asked_the_order_of_clusters_does_not_matter(case in any_case(), turn in 0..4usize) {
        let world = case.world();
        let mut turned = case.problem(&world);
        let count = turned.candidates.len();
        turned.candidates.rotate_left(turn % count);
        prop_assert_eq!(split_gang(&turned), split_gang(&case.problem(&world)));
    }

    /// Pods that are placed stay, partitions also where fewer are wanted; what is new fits what is free, within the
    /// pin.
    #[test]
    fn whatever_happens_what_is_placed_stays(case in any_case(), after in any_after()) {
        let Ok(mut plan) = case.split_gang() else { return Ok(()) };
        if after.pinned {
            let domain = PlannedDomain { name: "d".into(), tier: 1, nodes: vec![vec![ssd()]], preferred: vec![] };
            plan.clusters.values_mut().for_each(|share| share.domain = Some(domain.clone()));
        }
        let mut next = case.clone();
        next.clusters[after.node.0 % case.clusters.len()].push(after.node.1);
        for (task, replicas) in next.gang.tasks.iter_mut().zip(&after.replicas).filter(|(task, _)| task.partition.is_none()) {
            task.replicas = *replicas;
            task.min_available = task.min_available.min(*replicas);
        }
        next.gang.min_available = next.gang.min_available.min(next.gang.replicas());
        let mut world = next.world();
        for (name, capacity) in world.names.iter().zip(&mut world.capacities) {
            let pods = pods_of_share(&case.gang, plan.clusters.get(name));
            *capacity = without(capacity, &case.gang, &pods);
        }
        let mut problem = next.problem(&world);
        problem.previous = Some(&plan);
        problem.candidates.retain(|one| after.lost != Some(place_of(one.name)));
        let Ok(found) = split_gang(&problem) else { return Ok(()) };
        for (at, name) in world.names.iter().enumerate().filter(|(at, _)| after.lost != Some(*at)) {
            let (before, now) = (plan.clusters.get(name), found.clusters.get(name));
            let (before, now) = (pods_of_share(&next.gang, before), pods_of_share(&next.gang, now));
            let pinned = after.pinned && plan.clusters.contains_key(name);
            let mut more = vec![0; now.len()];
            for (task, (before, now)) in before.iter().zip(&now).enumerate() {
                let wanted = &next.gang.tasks[task];
                prop_assert!(now.is_multiple_of(wanted.partition_size()));
                if plan.clusters.contains_key(name) && wanted.partition.is_some() {
                    prop_assert_eq!(before, now, "a partitioned task of a copy is frozen");
                }
                let held: u32 = plan.clusters.values().map(|share| share.tasks[&wanted.name].replicas).sum();
                prop_assert!(now >= before || held > wanted.replicas, "{} moved", name);
                more[task] = now.saturating_sub(*before);
            }
            let free = free_nodes(&next.clusters[at], &world.capacities[at], pinned);
            prop_assert!(fits(&next.gang, &[&free], &more), "{} {:?} {:?}", name, more, free);
        }
    }

    /// Who starts afresh may go anywhere, but not change a partitioned task of a copy that it keeps.
    #[test]
    fn who_starts_afresh_changes_no_partitions_of_a_copy(case in any_case(), more in any_nodes()) {
        let Ok(plan) = case.split_gang() else { return Ok(()) };
        let mut next = case.clone();
        next.clusters[0].extend(more);
        let world = next.world();
        let mut problem = next.problem(&world);
        problem.copies = Some(&plan);
        let found = split_gang(&problem).unwrap();
        prop_assert!(found.replicas() >= case.gang.min_available);
        for (name, share) in &found.clusters {
            prop_assert!(fits(&case.gang, &[&next.clusters[place_of(name)]], &pods_of_share(&case.gang, Some(share))));
            let Some(copy) = plan.clusters.get(name) else { continue };
            for task in case.gang.tasks.iter().filter(|task| task.partition.is_some()) {
                prop_assert_eq!(share.tasks[&task.name], copy.tasks[&task.name]);
            }
        }
    }
}

/// What a capacity has free, node by node, with what is known of each.
fn free_nodes(nodes: &[Node], capacity: &Capacity, pinned: bool) -> Vec<Node> {
    let mut free = Vec::new();
    for shape in &capacity.shapes {
        for name in &shape.nodes {
            let at: usize = name.split_once('-').unwrap().1.parse().unwrap();
            let units =
                |name: &str| shape.free.get(name).map_or(0, |amount| i64::try_from(amount.units_ceil()).unwrap());
            free.push(Node { cpu: units("cpu"), gpu: units("gpu"), pods: units("pods"), ..nodes[at] });
        }
    }
    free.retain(|node| !pinned || node.ssd);
    free
}
