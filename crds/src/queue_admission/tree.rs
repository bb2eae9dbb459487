//! Checks a queue's place in the tree, and its amounts against the queues around it (Volcano,
//! `validateHierarchicalQueue*`).
//!
//! Rule:
//! - Place: the parent exists, is not the queue itself, is at most [`MOST_LEVELS`] below the root, and has no pods
//!   unless it has children already.
//! - Capability: of each resource no more than the nearest queue above that states it, no less than any below.
//! - Guarantee and deserved: the sum over the children is at most the parent's, and what the parent does not name is
//!   nothing.
//!
//! Not checked: a queue right below the root against its parent, and the root's own amounts (the callers leave it out).

use caldera_core::quantity::Quantity;
use serde_json::Value;

use super::{
    MOST_LEVELS,
    amounts::{Amounts, add_amounts, exceeds_limit, format_amounts, keep_requestable_amounts, read_amounts},
    name_of, parent_of,
};
use crate::{job_admission::Refusal, names::volcano::ROOT_QUEUE};

/// Why `queue` may not be where its parent puts it.
pub(super) fn check_parent(queue: &Value, there: &[&Value]) -> Option<Refusal> {
    let (own, above) = (name_of(queue), parent_of(queue));
    if is_root(above) {
        return None;
    }
    let refusal = |volcano: String, why: String| Some(Refusal::new("spec.parent", volcano, why));
    if above == own {
        return refusal(format!("queue {own} cannot use itself as parent"), "a queue can not be its own parent".into());
    }
    let mut level = 1;
    let mut next = above;
    while !is_root(next) {
        level += 1;
        if level > MOST_LEVELS {
            return refusal(
                format!("queue {own} exceeds the maximum allowed depth of {MOST_LEVELS}"),
                format!("there would be more than {MOST_LEVELS} queues on the way from {own:?} to the root"),
            );
        }
        let Some(found) = find_queue(next, there) else {
            return refusal(
                format!(
                    "failed to get parent queue {next} of queue {own}: queue.scheduling.volcano.sh \"{next}\" not found"
                ),
                format!("parent queue {next:?} does not exist"),
            );
        };
        next = parent_of(found);
    }
    let pods = find_queue(above, there).map(read_allocated_pods).unwrap_or_default();
    if pods > Quantity::ZERO && list_child_queues(above, there).next().is_none() {
        return refusal(
            format!("queue {above} cannot be the parent queue of queue {own} because it has allocated Pods: {pods}"),
            format!("queue {above:?} has {pods} running pods; a queue with pods can not become a parent"),
        );
    }
    None
}

/// Why `queue` may not have what it asks for among its ancestors, siblings and descendants.
pub(super) fn check_resources_in_tree(queue: &Value, there: &[&Value]) -> Option<Refusal> {
    let (own, above) = (name_of(queue), parent_of(queue));
    if !is_root(above) {
        let Some(parent) = find_queue(above, there) else {
            return Some(Refusal::new(
                "spec.parent",
                format!("parent queue {above} not found: queue.scheduling.volcano.sh \"{above}\" not found"),
                format!("parent queue {above:?} does not exist"),
            ));
        };
        let siblings: Vec<&Value> = list_child_queues(above, there).filter(|sibling| name_of(sibling) != own).collect();
        let sums = check_children_sums(&format!("parent queue {above}"), parent, siblings.into_iter().chain([queue]));
        if let Some(refusal) = check_capability_within_ancestor(queue, there).or(sums) {
            return Some(refusal);
        }
    }
    let below: Vec<&Value> = list_child_queues(own, there).collect();
    if below.is_empty() {
        return None;
    }
    check_capability_above_descendants(queue, &below, there)
        .or_else(|| check_children_sums(&format!("queue {own}"), queue, below.iter().copied()))
}

/// No more capability than the nearest ancestor that limits the resource.
fn check_capability_within_ancestor(queue: &Value, there: &[&Value]) -> Option<Refusal> {
    let own = name_of(queue);
    read_requestable_amounts(queue, "capability").iter().find_map(|(resource, amount)| {
        let limit = find_nearest_capability(queue, resource, there).filter(|limit| amount > limit)?;
        Some(Refusal::new(
            format!("spec.capability.{resource}"),
            format!("queue {own} capability[{resource}]={amount} exceeds its ancestor's capability={limit}"),
            format!("{amount} is more than the {limit} of the queue above"),
        ))
    })
}

fn find_nearest_capability(queue: &Value, resource: &str, there: &[&Value]) -> Option<Quantity> {
    let mut next = parent_of(queue);
    for _ in 0..=there.len() {
        if is_root(next) {
            return None;
        }
        let found = find_queue(next, there)?;
        let own = read_requestable_amounts(found, "capability").get(resource).copied().unwrap_or_default();
        if own > Quantity::ZERO {
            return Some(own);
        }
        next = parent_of(found);
    }
    None
}

/// No less capability than any descendant that sets it.
fn check_capability_above_descendants(queue: &Value, below: &[&Value], there: &[&Value]) -> Option<Refusal> {
    let own = name_of(queue);
    read_requestable_amounts(queue, "capability").iter().find_map(|(resource, amount)| {
        let most = below
            .iter()
            .map(|child| find_own_or_largest_capability_below(child, resource, there, MOST_LEVELS))
            .max()
            .unwrap_or_default();
        (*amount < most).then(|| {
            Refusal::new(
                format!("spec.capability.{resource}"),
                format!(
                    "queue {own} capability[{resource}]={amount} is smaller than its descendants' max capability={most}"
                ),
                format!("{amount} is less than the {most} of a queue below"),
            )
        })
    })
}

/// The capability of a queue, or where it has none the largest below it.
fn find_own_or_largest_capability_below(queue: &Value, resource: &str, there: &[&Value], levels: usize) -> Quantity {
    let own = read_requestable_amounts(queue, "capability").get(resource).copied().unwrap_or_default();
    if own > Quantity::ZERO || levels == 0 {
        return own;
    }
    list_child_queues(name_of(queue), there)
        .map(|child| find_own_or_largest_capability_below(child, resource, there, levels - 1))
        .max()
        .unwrap_or_default()
}

/// The children's guarantees within the parent's, and the same of what they deserve. What the parent does not name is
/// nothing: children of a parent without `deserved` may have none.
fn check_children_sums<'a>(who: &str, parent: &Value, children: impl Iterator<Item = &'a Value>) -> Option<Refusal> {
    let kinds = [("guarantee", "guarantee/resource"), ("deserved", "deserved")];
    let mut sums = [Amounts::new(), Amounts::new()];
    for child in children {
        for ((what, kind), sum) in kinds.iter().zip(&mut sums) {
            add_amounts(sum, &read_requestable_amounts(child, kind));
            let limit = read_requestable_amounts(parent, kind);
            if exceeds_limit(sum, &limit) {
                let (sum, limit) = (format_amounts(sum), format_amounts(&limit));
                return Some(Refusal::new(
                    format!("spec.{what}"),
                    format!(
                        "{who} validation failed: sum of children's {what} ({sum}) exceeds parent's {what} limit ({limit})"
                    ),
                    format!(
                        "the children of {who} would have {sum} {what} in all, more than the {limit} of the parent"
                    ),
                ));
            }
        }
    }
    None
}

/// What the scheduler keeps of a queue's amounts.
pub(super) fn read_requestable_amounts(queue: &Value, kind: &str) -> Amounts {
    read_amounts(queue, kind).map(|amounts| keep_requestable_amounts(&amounts)).unwrap_or_default()
}

pub(super) fn is_root(name: &str) -> bool {
    matches!(name, "" | ROOT_QUEUE)
}

pub(super) fn find_queue<'a>(wanted: &str, there: &[&'a Value]) -> Option<&'a Value> {
    there.iter().copied().find(|queue| name_of(queue) == wanted)
}

pub(super) fn list_child_queues<'a>(of: &str, there: &[&'a Value]) -> impl Iterator<Item = &'a Value> {
    there.iter().copied().filter(move |queue| parent_of(queue) == of)
}

pub(super) fn read_allocated_pods(queue: &Value) -> Quantity {
    let pods = queue.pointer("/status/allocated/pods").cloned().unwrap_or_default();
    serde_json::from_value(pods).unwrap_or_default()
}
