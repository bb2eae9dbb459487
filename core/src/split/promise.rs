//! What is left of a capacity when pods hold a part of it that are not seen there yet.

use std::{borrow::Cow, cell::Cell, sync::Arc};

use super::{
    ORDERS, exact,
    pack::{Kit, Room, Where, units},
};
use crate::{
    gang::Gang,
    inventory::{Capacity, Shape},
    plan::Domain,
};

/// The capacity after these pods were put on it, as far as they fit (others hold what they were promised, even if the
/// inventory has changed since): only into the domain that they are kept in, or there first where it is only preferred.
pub(super) fn without(capacity: &Capacity, gang: &Gang, pods: &[u32], domain: Option<&Domain>) -> Capacity {
    let kit = Kit::new(gang);
    let Some(domain) = domain else { return capacity.with(filled(&kit, capacity, pods).0) };
    let preferred = capacity.domains.iter().find(|(_, known)| *known.name == *domain.name).map(|(id, _)| id);
    let place = match preferred {
        _ if !domain.nodes.is_empty() => Where::Pinned(&domain.nodes),
        Some(id) => Where::Domain(id),
        None => Where::Cluster,
    };
    let (inside, outside) = place.parted(capacity);
    let (mut shapes, left) = filled(&kit, &capacity.with(inside), pods);
    let outside = if domain.nodes.is_empty() { filled(&kit, &capacity.with(outside), &left).0 } else { outside };
    shapes.extend(outside);
    capacity.with(shapes)
}

/// These nodes with the pods on them, and the pods that did not fit.
fn filled(kit: &Kit<'_>, capacity: &Capacity, pods: &[u32]) -> (Vec<Shape>, Vec<u32>) {
    let mut shapes = Cow::Borrowed(capacity);
    if kit.parts_shapes(capacity) {
        shapes = Cow::Owned(capacity.with(capacity.shapes.iter().flat_map(single_nodes).collect()));
    }
    let original = kit.room(&shapes, Where::Cluster);
    let before = original.groups().len();
    let (room, left) = packed(kit, &original, pods);
    let mut names: Vec<_> = shapes.shapes.iter().map(Shape::with_domains).collect();
    let mut parts = Vec::with_capacity(room.groups().len());
    for (index, (class, nodes)) in room.groups().enumerate() {
        let mut part = shapes.shapes[class].of_nodes(names[class].by_ref().take(nodes));
        if part.nodes.is_empty() {
            continue;
        }
        if index >= before {
            let free = Arc::make_mut(&mut part.free);
            let (before, now) = (original.free_of(kit, class), room.free_of(kit, index));
            for (resource, used) in kit.resources().iter().zip(before.iter().zip(now).map(|(before, now)| before - now))
            {
                if let Some(amount) = free.get_mut(resource) {
                    *amount = amount.saturating_sub(units(resource, i128::from(used)));
                }
            }
        }
        parts.push(part);
    }
    (parts, left)
}

/// Up to so many tasks are packed in every order.
const TASKS: usize = 4;
/// Steps of exact packing.
const STEPS: u32 = 20_000;

/// The room with these pods in it, as the split found them a place (all by one order, or the gang's minimum first and
/// then the rest, or by trying), and the pods that found none. Where nothing packs them all, what packs most.
fn packed(kit: &Kit<'_>, room: &Room, pods: &[u32]) -> (Room, Vec<u32>) {
    let wanted: Vec<u32> = (0..kit.tasks()).map(|task| pods.get(task).copied().unwrap_or(0)).collect();
    let needed = kit.gang.tasks.iter().zip(&wanted).map(|(task, pods)| task.min_available.min(*pods)).collect();
    let mut best: Option<(u64, Room, Vec<u32>)> = None;
    let steps = [vec![0; kit.tasks()], needed];
    for (order, first) in orders(kit, room).iter().flat_map(|order| steps.iter().map(move |first| (order, first))) {
        let mut trial = room.clone();
        let mut left = wanted.clone();
        let rest: Vec<u32> = wanted.iter().zip(first).map(|(wanted, first)| wanted - first).collect();
        for step in [first, &rest] {
            for task in order {
                left[*task] -= trial.put(kit, *task, step[*task], 1);
            }
        }
        let missing = left.iter().map(|pods| u64::from(*pods)).sum();
        if missing == 0 {
            return (trial, left);
        }
        if best.as_ref().is_none_or(|(least, ..)| missing < *least) {
            best = Some((missing, trial, left));
        }
    }
    if let Some(room) = exact::packed(kit, room, &wanted, &Cell::new(STEPS)) {
        return (room, vec![0; wanted.len()]);
    }
    best.map_or_else(|| (room.clone(), wanted), |(_, room, left)| (room, left))
}

/// Orders of the tasks: those that the split tries, then all others of a few tasks (it may have looked at several clusters
/// when it ordered them).
fn orders(kit: &Kit<'_>, room: &Room) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = ORDERS.iter().map(|order| kit.order(&[room], *order)).collect();
    if (3..=TASKS).contains(&kit.tasks()) {
        let mut all = vec![Vec::new()];
        for task in 0..kit.tasks() {
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

fn single_nodes(shape: &Shape) -> Vec<Shape> {
    shape.with_domains().map(|one| shape.of_nodes(std::iter::once(one))).collect()
}
