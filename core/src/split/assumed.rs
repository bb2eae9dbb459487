//! What is left of a capacity when assumed pods, which are not seen there yet, hold a part of it.
//!
//! Rule: the pods are packed as the split packed them: by one order of the tasks, by the minimum first and then the
//! rest, by `exact_packing`, or by `priced_packing`. They go only into the domains that the plan pins them to, or there
//! first where a domain is only preferred. What does not fit any more takes nothing.

use std::{borrow::Cow, cell::Cell, collections::BTreeMap, sync::Arc};

use super::{
    exact_packing,
    node_scope::NodeScope,
    packing::{Classes, FreeNodes, GangRequests, NodeGroup, ORDERS, quantity_of_packing_units},
    priced_packing, sum_pods,
};
use crate::{
    gang::{Gang, Task, TaskName},
    inventory::{Capacity, NodeShape, ReducedNodes},
    plan::{Part, PinnedDomains, PlannedDomain},
};

/// The capacity after these pods were put on it, as far as they fit (they count even if the inventory has changed
/// since): only into the domains that they are kept in, or there first where it is only preferred. And the pods of each
/// task that did not fit.
fn subtract_assumed_in_domains(
    capacity: &Capacity,
    gang: &Gang,
    pods: &[u32],
    within: &PinnedDomains,
) -> (Capacity, Vec<u32>) {
    if within.parts.is_empty() {
        return take_in_one_domain(&GangRequests::new(gang), capacity, pods, within.domain.as_ref());
    }
    let (by_part, pods, tasks) = split_tasks_by_part(gang, pods, &within.parts);
    let (capacity, left) = take_in_one_domain(&GangRequests::new(&by_part), capacity, &pods, within.domain.as_ref());
    let mut left_of_tasks = vec![0; gang.tasks.len()];
    tasks.into_iter().zip(left).for_each(|(task, left)| left_of_tasks[task] += left);
    (capacity, left_of_tasks)
}

/// The same, of a capacity that nobody needs any more: nodes that stay as they are are not copied. A fleet holds a
/// thousand bindings' pods one after the other.
#[must_use]
pub fn subtract_assumed_pods(capacity: Capacity, gang: &Gang, pods: &[u32], pinned: &PinnedDomains) -> Capacity {
    subtract_assumed_that_fit(capacity, gang, pods, pinned).0
}

/// The same, and the pods of each task that did not fit.
pub(crate) fn subtract_assumed_that_fit(
    capacity: Capacity,
    gang: &Gang,
    pods: &[u32],
    pinned: &PinnedDomains,
) -> (Capacity, Vec<u32>) {
    let requests = GangRequests::new(gang);
    if !pinned.parts.is_empty() || pinned.domain.is_some() || requests.needs_single_nodes(&capacity) {
        return subtract_assumed_in_domains(&capacity, gang, pods, pinned);
    }
    let original = requests.free_nodes(&capacity, NodeScope::Cluster);
    let before = original.classes_and_sizes().len();
    let Packed { free_nodes, left, .. } = pack_pods(&requests, &original, pods, |_| 1);
    let changed = free_nodes.classes_and_sizes().enumerate().skip(before).filter(|(_, (_, nodes))| *nodes > 0);
    let reduced = |(index, (class, nodes)): (usize, (usize, usize))| {
        let amounts = original.free_of(&requests, class).iter().zip(free_nodes.free_of(&requests, index));
        let used = requests.resources().iter().cloned().zip(amounts.map(|(before, now)| before - now)).collect();
        let numa = requests.left_numa_topology(&capacity.shapes[class], free_nodes.free_of(&requests, index));
        ReducedNodes { shape: class, nodes, used, numa }
    };
    let less: Vec<ReducedNodes> = changed.map(reduced).collect();
    (capacity.with_reduced_nodes(&less), left)
}

/// The gang with a task for the pods in each part of a task, which ask for its domain as the member's copy does, how
/// many there are of each, and of which task they are a part. Which partitions the pods are of that are not seen yet is
/// not known: most likely the last.
fn split_tasks_by_part(
    gang: &Gang,
    pods: &[u32],
    parts: &BTreeMap<TaskName, Vec<Part>>,
) -> (Gang, Vec<u32>, Vec<usize>) {
    let mut by_part = Gang { tasks: Vec::new(), ..gang.clone() };
    let (mut counts, mut tasks) = (Vec::new(), Vec::new());
    for (at, (task, pods)) in gang.tasks.iter().zip(pods).enumerate() {
        let mut left = *pods;
        for part in parts.get(&task.name).into_iter().flatten().rev() {
            let own = part.partitions.saturating_mul(task.partition_size()).min(left);
            left -= own;
            let node = task.node.restrict_to(&part.domain.nodes);
            by_part.tasks.push(Task { replicas: own, min_available: own, node, ..task.clone() });
            counts.push(own);
            tasks.push(at);
        }
        by_part.tasks.push(Task { replicas: left, min_available: task.min_available.min(left), ..task.clone() });
        counts.push(left);
        tasks.push(at);
    }
    (by_part, counts, tasks)
}

fn take_in_one_domain(
    requests: &GangRequests<'_>,
    capacity: &Capacity,
    pods: &[u32],
    domain: Option<&PlannedDomain>,
) -> (Capacity, Vec<u32>) {
    let Some(domain) = domain else {
        let (shapes, left) = fill_nodes(requests, capacity, pods);
        return (capacity.with_shapes(shapes), left);
    };
    let preferred = capacity.domains.iter().find(|(_, known)| *known.name == *domain.name).map(|(id, _)| id);
    let place = match preferred {
        _ if !domain.nodes.is_empty() => NodeScope::Pinned(&domain.nodes),
        Some(id) => NodeScope::Domain(id),
        None => NodeScope::Cluster,
    };
    let (inside, outside) = place.split_nodes(capacity);
    let (mut shapes, left) = fill_nodes(requests, &capacity.with_shapes(inside), pods);
    let (outside, left) = match domain.nodes.is_empty() {
        true => fill_nodes(requests, &capacity.with_shapes(outside), &left),
        false => (outside, left),
    };
    shapes.extend(outside);
    (capacity.with_shapes(shapes), left)
}

/// These nodes with the pods on them, and the pods that did not fit.
fn fill_nodes(requests: &GangRequests<'_>, capacity: &Capacity, pods: &[u32]) -> (Vec<NodeShape>, Vec<u32>) {
    let mut shapes = Cow::Borrowed(capacity);
    if requests.needs_single_nodes(capacity) {
        shapes = Cow::Owned(capacity.with_shapes(capacity.shapes.iter().flat_map(single_nodes).collect()));
    }
    let original = requests.free_nodes(&shapes, NodeScope::Cluster);
    let before = original.classes_and_sizes().len();
    let Packed { free_nodes, left, .. } = pack_pods(requests, &original, pods, |_| 1);
    let mut names: Vec<_> = shapes.shapes.iter().map(NodeShape::nodes_with_domains).collect();
    let mut parts = Vec::with_capacity(free_nodes.classes_and_sizes().len());
    for (index, (class, nodes)) in free_nodes.classes_and_sizes().enumerate() {
        let mut part = shapes.shapes[class].of_nodes(names[class].by_ref().take(nodes));
        if part.nodes.is_empty() {
            continue;
        }
        if index >= before {
            let (before, now) = (original.free_of(requests, class), free_nodes.free_of(requests, index));
            part.numa = requests.left_numa_topology(&part, now);
            let free = Arc::make_mut(&mut part.free);
            for (resource, used) in
                requests.resources().iter().zip(before.iter().zip(now).map(|(before, now)| before - now))
            {
                if let Some(amount) = free.get_mut(resource) {
                    *amount = amount.saturating_sub(quantity_of_packing_units(resource, i128::from(used)));
                }
            }
        }
        parts.push(part);
    }
    (parts, left)
}

/// Up to so many tasks are packed in every order.
const MOST_PERMUTED_TASKS: usize = 4;
/// Steps of exact packing.
const PACKING_STEPS: u32 = 50_000;

/// Pods on free nodes.
struct Packed {
    free_nodes: FreeNodes,
    /// Those that found no place, by task.
    left: Vec<u32>,
    /// Those on nodes of each class, by task and class.
    classes: Classes,
}

/// The classes of nodes that the split found a place for these pods on; `None` if that is not found again.
pub(super) fn node_classes(requests: &GangRequests<'_>, free_nodes: &FreeNodes, pods: &[u32]) -> Option<Classes> {
    let packed = pack_pods(requests, free_nodes, pods, |task| requests.partition_size_of(task));
    packed.left.iter().all(|left| *left == 0).then_some(packed.classes)
}

/// The free nodes with these pods on them, in steps of `unit` for each task, as the split found them a place (all by
/// one order, or the gang's minimum first and then the rest, or by trying). Where nothing packs them all, what packs
/// most.
fn pack_pods(requests: &GangRequests<'_>, free_nodes: &FreeNodes, pods: &[u32], unit: impl Fn(usize) -> u32) -> Packed {
    let wanted: Vec<u32> = (0..requests.count_tasks()).map(|task| pods.get(task).copied().unwrap_or(0)).collect();
    let needed = requests.gang.tasks.iter().zip(&wanted).map(|(task, pods)| task.min_available.min(*pods)).collect();
    let mut best: Option<(u64, Packed)> = None;
    let steps = [vec![0; requests.count_tasks()], needed];
    for (order, first) in
        task_orders(requests, free_nodes).iter().flat_map(|order| steps.iter().map(move |first| (order, first)))
    {
        let mut trial = free_nodes.clone();
        let (mut left, mut classes) = (wanted.clone(), Classes::new());
        let rest: Vec<u32> = wanted.iter().zip(first).map(|(wanted, first)| wanted - first).collect();
        for step in [first, &rest] {
            for task in order {
                let took = &mut |group: NodeGroup, pods| *classes.entry((*task, group.class)).or_default() += pods;
                left[*task] -= trial.place_pods_in(requests, *task, step[*task], unit(*task), None, took);
            }
        }
        let missing = left.iter().map(|pods| u64::from(*pods)).sum();
        if missing == 0 {
            return Packed { free_nodes: trial, left, classes };
        }
        if best.as_ref().is_none_or(|(least, _)| missing < *least) {
            best = Some((missing, Packed { free_nodes: trial, left, classes }));
        }
    }
    if let Some((free_nodes, classes)) =
        exact_packing::pack_pods(requests, free_nodes, &wanted, &Cell::new(PACKING_STEPS))
    {
        return Packed { free_nodes, left: vec![0; wanted.len()], classes };
    }
    if let Some(packed) = pack_by_price(requests, free_nodes, &wanted, unit)
        && best.as_ref().is_none_or(|(least, _)| sum_pods(&packed.left) < *least)
    {
        return packed;
    }
    let none = || Packed { free_nodes: free_nodes.clone(), left: wanted, classes: Classes::new() };
    best.map_or_else(none, |(_, best)| best)
}

/// Single pods by prices, as the split packs many; `None` if there are partitions.
fn pack_by_price(
    requests: &GangRequests<'_>,
    free_nodes: &FreeNodes,
    wanted: &[u32],
    unit: impl Fn(usize) -> u32,
) -> Option<Packed> {
    if (0..wanted.len()).any(|task| unit(task) > 1) {
        return None;
    }
    let packing = priced_packing::pack_by_price(requests, free_nodes, wanted, &Cell::new(PACKING_STEPS))?;
    let (mut free_nodes, mut classes) = (free_nodes.clone(), Classes::new());
    for pick in &packing.picks {
        let class = free_nodes.class_of(pick.group);
        for (task, pods) in pick.mix.iter().enumerate().filter(|(_, pods)| **pods > 0) {
            *classes.entry((task, class)).or_default() += pods * pick.nodes;
        }
        free_nodes.put_mix_on_nodes(requests, pick.group, pick.nodes, &pick.mix);
    }
    Some(Packed { free_nodes, left: packing.left, classes })
}

/// Orders of the tasks: those that the split tries, then all others of a few tasks (it may have looked at several
/// clusters when it ordered them).
fn task_orders(requests: &GangRequests<'_>, free_nodes: &FreeNodes) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = ORDERS.iter().map(|order| requests.order_tasks(&[free_nodes], *order)).collect();
    if (3..=MOST_PERMUTED_TASKS).contains(&requests.count_tasks()) {
        let mut all = vec![Vec::new()];
        for task in 0..requests.count_tasks() {
            let longer = |order: &Vec<usize>| {
                let order = order.clone();
                (0..=order.len()).map(move |at| [&order[..at], &[task], &order[at..]].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        orders.extend(all);
    }
    orders
}

fn single_nodes(shape: &NodeShape) -> Vec<NodeShape> {
    shape.nodes_with_domains().map(|one| shape.of_nodes(std::iter::once(one))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        inventory::{Change, HyperNode, HyperNodeMember, Inventory, Node},
        quantity::Quantity,
        split::tests::{gang, task},
    };

    /// Nodes of so many (cpu, gpu); the second and third make a domain, the fourth another within it.
    fn capacity(nodes: &[(i64, i64)]) -> Capacity {
        let node = |(at, (cpu, gpu)): (usize, &(i64, i64))| Node {
            name: format!("n{at}"),
            allocatable: [("cpu", *cpu), ("gpu", *gpu), ("pods", 10)]
                .map(|(name, amount)| (name, Quantity::from_units(amount)))
                .into_iter()
                .collect(),
            ready: true,
            ..Node::default()
        };
        let domain = |name: &str, tier, members: &[HyperNodeMember]| HyperNode {
            name: name.into(),
            tier,
            tier_name: String::new(),
            members: members.to_vec(),
        };
        let node_of = |name: &str| HyperNodeMember::Node(name.into());
        let mut inventory = Inventory::default();
        inventory.apply_change(Change::HyperNodes(vec![
            domain("leaf", 1, &[node_of("n3")]),
            domain("rack", 2, &[node_of("n1"), node_of("n2"), HyperNodeMember::HyperNode("leaf".into())]),
        ]));
        inventory.apply_change(Change::Nodes(nodes.iter().enumerate().map(node).collect()));
        inventory.apply_change(Change::Pods(vec![]));
        inventory.capacity()
    }

    proptest! {
        /// Shapes in the same order, and the profile that is worked out anew.
        #[test]
        fn what_is_held_in_place_is_what_is_held_in_a_copy(
            nodes in prop::collection::vec((0i64..4, 0i64..3), 1..8),
            held in prop::collection::vec(
                prop::collection::vec((0u32..4, 0i64..3, 0i64..2, prop::option::of(1u32..3)), 1..3), 1..5,
            ),
        ) {
            let (mut now, mut copy) = (capacity(&nodes), capacity(&nodes));
            for tasks in held {
                let task = |(at, (pods, cpu, gpu, most)): (usize, &(u32, i64, i64, Option<u32>))| {
                    let mut task = task(&format!("t{at}"), *pods, *pods, *cpu, *gpu);
                    task.node.most_per_node = *most;
                    task
                };
                let tasks: Vec<Task> = tasks.iter().enumerate().map(task).collect();
                let pods: Vec<u32> = tasks.iter().map(|task| task.replicas).collect();
                let gang = gang(tasks, pods.iter().sum());
                now = super::subtract_assumed_pods(now, &gang, &pods, &PinnedDomains::default());
                copy = subtract_assumed_in_domains(&copy, &gang, &pods, &PinnedDomains::default()).0;
                prop_assert_eq!(&now, &copy);
                let anew = copy.with_shapes(copy.shapes.clone());
                prop_assert_eq!(now.profile(), anew.profile());
            }
        }
    }
}
