//! The queues as a tree: which is above which, what each holds, and why a queue starts no jobs.
//!
//! Rule: Volcano's hierarchical capacity (`capacity.go:1212-1556`): jobs are in leaves and charged on the whole path,
//! where every ancestor's ceiling holds ([`super::entitlement`]). Two differences on purpose. The root is bounded by
//! the fleet (Volcano leaves that to the nodes). And a queue with a missing parent or in a cycle stops only its own
//! jobs (Volcano refuses every job of every queue, `1226-1243`); what its jobs hold stays charged where it was last.

use std::collections::BTreeMap;

use crate::{
    gang::QueueName,
    queue::{
        quota::{
            amounts::{DimAmounts, Dims},
            entitlement,
            slot::{LastAncestors, QueueIndex, Slot},
            tenant_share::TenantCharge,
        },
        spec::{FleetResources, QueueState},
    },
    reason::QueueProblem,
};

/// Works out paths, problems, ceilings and sums anew, after queues or the fleet changed.
pub(crate) fn resolve_tree(
    slots: &mut [Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    dims: &mut Dims,
    fleet: &FleetResources,
) {
    resolve_paths(slots, index);
    set_queue_problems(slots);
    entitlement::resolve_entitlements(slots, dims, fleet);
    for slot in slots.iter_mut() {
        slot.used = DimAmounts::default();
        slot.running = DimAmounts::default();
        slot.of_tenants.values_mut().for_each(TenantCharge::forget_share);
    }
    for i in 0..slots.len() {
        let (own, own_running) = (std::mem::take(&mut slots[i].own), std::mem::take(&mut slots[i].own_running));
        for node in slots[i].path.clone() {
            slots[node.index()].used.add_all(&own);
            slots[node.index()].running.add_all(&own_running);
        }
        (slots[i].own, slots[i].own_running) = (own, own_running);
    }
}

/// Sets paths, children and the problems of paths.
fn resolve_paths(slots: &mut [Slot], index: &BTreeMap<QueueName, QueueIndex>) {
    let mut children = vec![Vec::new(); slots.len()];
    let mut lost = Vec::new();
    for node in index.values().copied().filter(|node| *node != QueueIndex::ROOT) {
        let (path, problem) = resolve_path(slots, index, node);
        let counts = slots[node.index()].spec.is_some() && !matches!(problem, Some(QueueProblem::Cycle));
        if counts {
            children[path[1].index()].push(node);
        }
        let above = path[1..path.len() - 1].iter().map(|at| slots[at.index()].name.clone()).collect();
        let slot = &mut slots[node.index()];
        slot.parent = counts.then_some(path[1]);
        slot.path = path.into();
        slot.problem = if slot.spec.is_none() { Some(QueueProblem::Missing) } else { problem };
        match slot.problem {
            None => slot.last_ancestors = Some(LastAncestors::FromQueues(above)),
            Some(_) => lost.push(node),
        }
    }
    let paths: Vec<_> =
        lost.iter().filter_map(|node| Some((*node, find_last_known_path(slots, index, *node)?))).collect();
    for (node, path) in paths {
        slots[node.index()].path = path.into();
    }
    for (slot, children) in slots.iter_mut().zip(children) {
        slot.children = children.into();
    }
}

/// Where a queue without a sound path was, as far as those above it are still there: from the first that has one, where
/// that one is now.
fn find_last_known_path(
    slots: &[Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    node: QueueIndex,
) -> Option<Vec<QueueIndex>> {
    let mut path = vec![node];
    for at in slots[node.index()].last_ancestors.as_ref()?.list_above().iter().filter_map(|name| index.get(name)) {
        let slot = &slots[at.index()];
        if slot.problem.is_none() {
            path.extend(&slot.path);
            return Some(path);
        }
        if slot.spec.is_some() {
            path.push(*at);
        }
    }
    path.push(QueueIndex::ROOT);
    Some(path)
}

fn resolve_path(
    slots: &[Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    node: QueueIndex,
) -> (Vec<QueueIndex>, Option<QueueProblem>) {
    let mut path = vec![node];
    let mut at = node;
    let mut problem = None;
    while let Some(parent) = slots[at.index()].parent_in_spec() {
        match index.get(parent).filter(|parent| slots[parent.index()].spec.is_some()) {
            None => {
                problem = Some(QueueProblem::ParentMissing(parent.clone()));
                break;
            }
            Some(parent) if path.contains(parent) => return (vec![node, QueueIndex::ROOT], Some(QueueProblem::Cycle)),
            Some(parent) => {
                path.push(*parent);
                at = *parent;
            }
        }
    }
    path.push(QueueIndex::ROOT);
    (path, problem)
}

fn set_queue_problems(slots: &mut [Slot]) {
    for i in 0..slots.len() {
        if slots[i].problem.as_ref().is_some_and(|problem| *problem != QueueProblem::Root) {
            continue;
        }
        let closed = slots[i].path.iter().find_map(|node| {
            let spec = slots[node.index()].spec.as_ref()?;
            let state = spec.state;
            (state != QueueState::Open)
                .then(|| QueueProblem::NotOpen { queue: spec.name.clone(), state: state.as_str() })
        });
        let not_leaf =
            || slots[i].children.first().map(|child| QueueProblem::NotLeaf(slots[child.index()].name.clone()));
        let root = (i == QueueIndex::ROOT.index()).then_some(QueueProblem::Root);
        slots[i].problem = root.or(closed).or_else(not_leaf);
    }
}
