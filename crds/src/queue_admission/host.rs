//! The host's checks of a queue: every rule of Volcano at once, each with field, value and limit. A change is refused
//! only for what it makes worse.
//!
//! Rule: as [`super::list_volcano_creation_refusals`] (`validate_queue.go`), so that no member refuses what the host
//! accepted. The ranges of `weight` and `priority` are in the schema. Our own annotations have to be readable, and some
//! group of nodes usable where groups are named. Four checks are stricter, because members could not have such a tree:
//! parents must not form a circle (Volcano walks up without looking for the queue itself), the depth counts the queues
//! below a queue that moves, a zero capability of an extended resource is a limit, and resource names that no pod can
//! request are refused: `requests.cpu`, which Volcano drops, and those of one card model, whose quota is an annotation.
//!
//! A queue `root` is nobody's to create or to change on the host, and may be deleted: it is the fleet itself. The name
//! `default` means the queue of jobs that name none, and is a queue like any other but that it stays.
//!
//! Ratcheting: a fault that the old object already has does not stop a change, unless the fault grows or concerns
//! another queue. So old objects stay editable, and so does a queue that is `Closing`, of which Volcano refuses every
//! change.

use std::collections::BTreeMap;

use caldera_core::{quantity::Quantity, resources::ResourceName};
use serde_json::Value;

use super::{
    MOST_LEVELS,
    amounts::{Amounts, check_amount, read_amounts},
    check_hierarchy, name_of, parent_of, state_refusal,
    tree::{find_queue, is_root, list_child_queues, read_allocated_pods, read_requestable_amounts},
};
use crate::{
    action::ACTION_STAMPS,
    names::{
        caldera::{
            ALL_JOBS_PREEMPTABLE, CLUSTER_SELECTOR, FORCE_DELETE, MAX_JOB, MAX_RUN_TIME, MAX_RUNNING_JOBS,
            MAX_RUNNING_JOBS_PER_NAMESPACE, MAX_RUNNING_JOBS_PER_USER, MAX_WAITING_JOBS,
            MAX_WAITING_JOBS_PER_NAMESPACE, MAX_WAITING_JOBS_PER_USER, NAMESPACE_SELECTOR, PAUSED, PREFIX,
            PRIORITY_AGING, PRIORITY_CLASSES, QUEUE_STATUS, RESERVATION_AFTER, TENANT_ORDER,
        },
        volcano::ROOT_QUEUE,
    },
    node_groups::list_problems_of,
    tenancy::list_unreadable_annotations,
};

/// Annotations of ours that mean something on a queue.
const OF_QUEUES: [&str; 18] = [
    ALL_JOBS_PREEMPTABLE,
    CLUSTER_SELECTOR,
    FORCE_DELETE,
    MAX_JOB,
    MAX_RUN_TIME,
    MAX_RUNNING_JOBS,
    MAX_RUNNING_JOBS_PER_NAMESPACE,
    MAX_RUNNING_JOBS_PER_USER,
    MAX_WAITING_JOBS,
    MAX_WAITING_JOBS_PER_NAMESPACE,
    MAX_WAITING_JOBS_PER_USER,
    NAMESPACE_SELECTOR,
    PAUSED,
    PRIORITY_AGING,
    PRIORITY_CLASSES,
    QUEUE_STATUS,
    RESERVATION_AFTER,
    TENANT_ORDER,
];

/// `field: what is wrong`, for each thing wrong with a new queue beside those `there` are.
#[must_use]
pub fn list_host_creation_problems(queue: &Value, there: &[&Value]) -> Vec<String> {
    if name_of(queue) == ROOT_QUEUE {
        return vec![format!("metadata.name: {ROOT_RESERVED}")];
    }
    find_faults(queue, there).into_iter().map(Fault::sentence).collect()
}

/// A sentence for each annotation of a queue with a name of ours that means nothing there.
#[must_use]
pub fn list_unknown_annotations(queue: &Value) -> Vec<String> {
    let names = queue.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let unknown = names.map(|(name, _)| name).filter(|name| {
        let name = name.as_str();
        // What the webhook writes there itself, whatever a user wrote, is not a user's mistake.
        name.starts_with(PREFIX) && !OF_QUEUES.contains(&name) && !ACTION_STAMPS.contains(&name)
    });
    unknown.map(|name| format!("annotation {name} is not known on queues: it is not looked at")).collect()
}

/// The same for what is wrong, or worse than before, in `new`.
#[must_use]
pub fn list_host_update_problems(old: &Value, new: &Value, there: &[&Value]) -> Vec<String> {
    let before: BTreeMap<Kind, Quantity> =
        find_faults(old, there).into_iter().map(|fault| (fault.kind, fault.by)).collect();
    let worse = find_faults(new, there)
        .into_iter()
        .filter(|fault| before.get(&fault.kind).is_none_or(|before| fault.by > *before));
    worse.chain(check_root_unchanged(old, new)).map(Fault::sentence).collect()
}

/// One thing wrong with a queue.
#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// By how much; zero where there is no more or less.
    by: Quantity,
    why: String,
}

/// Which thing: two objects have the same fault if this is equal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    field: String,
    rule: Rule,
    /// The other queue, or the value where a fault has no amount.
    with: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Malformed,
    NotCounted,
    Annotation,
    NodeGroups,
    Negative,
    GuaranteeWithinCapability,
    GuaranteeWithinDeserved,
    DeservedWithinCapability,
    State,
    Hierarchy,
    Place,
    WithinAncestor,
    AboveDescendants,
    WithinParent,
    HoldsChildren,
    RootProtected,
}

impl Fault {
    fn new(rule: Rule, field: String, with: &str, by: Quantity, why: String) -> Self {
        Self { kind: Kind { field, rule, with: with.to_owned() }, by, why }
    }

    fn sentence(self) -> String {
        format!("{}: {}", self.kind.field, self.why)
    }
}

/// A queue's amounts, each with the path of its field.
const CAPABILITY: (&str, &str) = ("capability", "spec.capability");
const DESERVED: (&str, &str) = ("deserved", "spec.deserved");
const GUARANTEE: (&str, &str) = ("guarantee/resource", "spec.guarantee.resource");

fn find_faults(queue: &Value, there: &[&Value]) -> Vec<Fault> {
    // As it would be: with this version of the queue and no other.
    let there: Vec<&Value> =
        there.iter().copied().filter(|other| name_of(other) != name_of(queue)).chain([queue]).collect();
    let there = there.as_slice();
    let mut faults = list_amount_faults(queue);
    faults.extend(state_refusal(queue).map(|refusal| {
        let state = queue.pointer("/status/state").and_then(Value::as_str).unwrap_or("");
        Fault::new(Rule::State, refusal.field, state, Quantity::ZERO, refusal.why)
    }));
    faults.extend(
        check_hierarchy(queue, there).map(|refusal| {
            Fault::new(Rule::Hierarchy, refusal.field, &refusal.why.clone(), Quantity::ZERO, refusal.why)
        }),
    );
    if name_of(queue) == ROOT_QUEUE {
        return faults;
    }
    faults.extend(annotation_faults(queue));
    faults.extend(find_node_group_faults(queue));
    faults.extend(find_parent_fault(queue, there));
    faults.extend(check_capability_within_ancestor(queue, there));
    faults.extend(check_capability_above_descendants(queue, there));
    faults.extend(check_sibling_sums(queue, there));
    faults
}

/// What can not be read of our own annotations.
fn annotation_faults(queue: &Value) -> impl Iterator<Item = Fault> {
    list_unreadable_annotations(queue).into_iter().map(|(name, problem)| {
        Fault::new(Rule::Annotation, format!("metadata.annotations[{name}]"), &problem.clone(), Quantity::ZERO, problem)
    })
}

/// What is wrong with the groups of nodes that it names.
fn find_node_group_faults(queue: &Value) -> impl Iterator<Item = Fault> {
    let problems = list_problems_of(queue).into_iter();
    problems.map(|(field, why)| Fault::new(Rule::NodeGroups, field, &why.clone(), Quantity::ZERO, why))
}

/// Nothing broken or negative, and guarantee <= deserved <= capability.
fn list_amount_faults(queue: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let [capability, deserved, guarantee] = [CAPABILITY, DESERVED, GUARANTEE].map(|(kind, field)| {
        let all = read_amounts(queue, kind).unwrap_or_else(|refusal| {
            let with = refusal.why.clone();
            faults.push(Fault::new(Rule::Malformed, refusal.field, &with, Quantity::ZERO, refusal.why));
            Amounts::new()
        });
        let uncounted = all.keys().filter(|resource| !ResourceName::from(resource.as_str()).counts_in_queues());
        faults.extend(uncounted.map(|resource| {
            let why =
                "counts for nothing: pods ask for resources by their own name, as cpu or nvidia.com/gpu".to_owned();
            Fault::new(Rule::NotCounted, format!("{field}.{resource}"), "", Quantity::ZERO, why)
        }));
        for (resource, amount) in &all {
            let Some(refusal) = check_amount(kind, resource, *amount) else { continue };
            let field = format!("{field}.{resource}");
            faults.push(if amount.is_negative() {
                Fault::new(Rule::Negative, field, "", Quantity::ZERO.signed_sub(*amount), refusal.why)
            } else {
                Fault::new(Rule::Malformed, field, &amount.to_string(), Quantity::ZERO, refusal.why)
            });
        }
        all
    });
    let mut within =
        |rule, (_, field): (&str, &str), amounts: &Amounts, (_, limit_field): (&str, &str), limits: &Amounts| {
            for (resource, amount) in amounts {
                let missing = (rule == Rule::GuaranteeWithinDeserved).then_some(Quantity::ZERO);
                let Some(limit) = limits.get(resource).copied().or(missing).filter(|limit| amount > limit) else {
                    continue;
                };
                let set = if limits.contains_key(resource) { "" } else { " (not set)" };
                let why = format!("{amount} is more than {limit_field}.{resource}, which is {limit}{set}");
                faults.push(Fault::new(rule, format!("{field}.{resource}"), "", amount.signed_sub(limit), why));
            }
        };
    within(Rule::GuaranteeWithinDeserved, GUARANTEE, &guarantee, DESERVED, &deserved);
    within(Rule::GuaranteeWithinCapability, GUARANTEE, &guarantee, CAPABILITY, &capability);
    within(Rule::DeservedWithinCapability, DESERVED, &deserved, CAPABILITY, &capability);
    faults
}

/// Whether it may be where its parent puts it.
fn find_parent_fault(queue: &Value, there: &[&Value]) -> Option<Fault> {
    let (own, above) = (name_of(queue), parent_of(queue));
    let fault = |why| Some(Fault::new(Rule::Place, "spec.parent".into(), above, Quantity::ZERO, why));
    let mut levels = 1 + levels_below(own, there, MOST_LEVELS);
    let mut next = above;
    for _ in 0..=there.len() {
        if is_root(next) {
            break;
        }
        if next == own {
            return fault(match above == own {
                true => "a queue can not be its own parent".into(),
                false => format!("queue {above:?} is below {own:?}: a queue can not be below itself"),
            });
        }
        let Some(found) = find_queue(next, there) else { return fault(format!("queue {next:?} does not exist")) };
        next = parent_of(found);
        levels += 1;
    }
    if !is_root(next) {
        return fault(format!("the parents of queue {above:?} lead in a circle"));
    }
    if levels > MOST_LEVELS {
        return fault(format!(
            "below {above:?} there would be {levels} queues on one way to the root, more than {MOST_LEVELS}"
        ));
    }
    let found = find_queue(above, there).filter(|_| !is_root(above))?;
    let (pods, siblings) =
        (read_allocated_pods(found), list_child_queues(above, there).any(|child| name_of(child) != own));
    if pods > Quantity::ZERO && !siblings {
        return fault(format!(
            "queue {above:?} has {pods} running pods, more than the 0 of a queue that is to be a parent"
        ));
    }
    None
}

/// Queues on the longest way down from a queue, itself not counted.
fn levels_below(queue: &str, there: &[&Value], most: usize) -> usize {
    if most == 0 {
        return 0;
    }
    list_child_queues(queue, there).map(|child| 1 + levels_below(name_of(child), there, most - 1)).max().unwrap_or(0)
}

/// No more capability than the nearest queue above that limits the resource.
fn check_capability_within_ancestor(queue: &Value, there: &[&Value]) -> Vec<Fault> {
    let fault = |(resource, amount): (&String, &Quantity)| {
        let mut at = parent_of(queue);
        for _ in 0..=there.len() {
            let above = find_queue(at, there).filter(|_| !is_root(at) && at != name_of(queue))?;
            if let Some(limit) = capability_limits(above).get(resource) {
                let why = format!("{amount} is more than that of queue {at:?} above it, which is {limit}");
                let field = format!("{}.{resource}", CAPABILITY.1);
                return (amount > limit)
                    .then(|| Fault::new(Rule::WithinAncestor, field, at, amount.signed_sub(*limit), why));
            }
            at = parent_of(above);
        }
        None
    };
    capability_limits(queue).iter().filter_map(fault).collect()
}

/// No less capability than any queue below that sets it.
fn check_capability_above_descendants(queue: &Value, there: &[&Value]) -> Vec<Fault> {
    let fault = |(resource, amount): (&String, &Quantity)| {
        let (most, below) = find_largest_capability_below(queue, resource, there, MOST_LEVELS)?;
        let why = format!("{amount} is less than that of queue {below:?} below it, which is {most}");
        let field = format!("{}.{resource}", CAPABILITY.1);
        (*amount < most).then(|| Fault::new(Rule::AboveDescendants, field, "", most.signed_sub(*amount), why))
    };
    capability_limits(queue).iter().filter_map(fault).collect()
}

/// The largest capability below, and whose: of each way down the first that sets it.
fn find_largest_capability_below<'a>(
    queue: &Value,
    resource: &str,
    there: &[&'a Value],
    levels: usize,
) -> Option<(Quantity, &'a str)> {
    let levels = levels.checked_sub(1)?;
    let of = |child: &&'a Value| match capability_limits(child).get(resource) {
        Some(own) => Some((*own, name_of(child))),
        None => find_largest_capability_below(child, resource, there, levels),
    };
    list_child_queues(name_of(queue), there).filter_map(|child| of(&child)).max()
}

/// What siblings are guaranteed and deserve together stays within the parent's, and what the children do within its
/// own. What a parent does not name is nothing; the root is exempt.
fn check_sibling_sums(queue: &Value, there: &[&Value]) -> Vec<Fault> {
    let (own, above) = (name_of(queue), parent_of(queue));
    let mut faults = Vec::new();
    for (kind, field) in [GUARANTEE, DESERVED] {
        let mine = read_requestable_amounts(queue, kind);
        if let Some(parent) = find_queue(above, there).filter(|_| !is_root(above) && above != own) {
            let limits = read_requestable_amounts(parent, kind);
            let siblings = list_child_queues(above, there).filter(|sibling| name_of(sibling) != own);
            let others = sum_amounts(siblings, kind);
            for (resource, amount) in mine.iter().filter(|(_, amount)| **amount > Quantity::ZERO) {
                let others = others.get(resource).copied().unwrap_or_default();
                let (all, limit) = (others.saturating_add(*amount), limits.get(resource).copied().unwrap_or_default());
                let why = format!(
                    "{amount} and the {others} of its siblings are {all} together, more than {field}.{resource} of queue \
                     {above:?}, which is {limit}"
                );
                if all > limit {
                    let by = all.signed_sub(limit);
                    faults.push(Fault::new(Rule::WithinParent, format!("{field}.{resource}"), above, by, why));
                }
            }
        }
        for (resource, all) in sum_amounts(list_child_queues(own, there).filter(|child| name_of(child) != own), kind) {
            let limit = mine.get(&resource).copied().unwrap_or_default();
            let why = format!("{limit} is less than that of the queues below it together, which is {all}");
            if all > limit {
                let by = all.signed_sub(limit);
                faults.push(Fault::new(Rule::HoldsChildren, format!("{field}.{resource}"), "", by, why));
            }
        }
    }
    faults
}

fn sum_amounts<'a>(queues: impl Iterator<Item = &'a Value>, kind: &str) -> Amounts {
    let mut sum = Amounts::new();
    for (resource, amount) in
        queues.flat_map(|queue| read_requestable_amounts(queue, kind)).filter(|(_, amount)| *amount > Quantity::ZERO)
    {
        let entry = sum.entry(resource).or_default();
        *entry = entry.saturating_add(amount);
    }
    sum
}

/// Why nobody makes, or sets, a queue of that name on the host: Volcano has one in each member, but none has a word in
/// what the fleet has.
const ROOT_RESERVED: &str = "queue \"root\" is the whole fleet: what its clusters have is its limit, and no object sets \
                             it; limit the queues below it, and delete an object of that name";

/// The fleet is what the root has: an object of that name counts for nothing, and is there to be deleted.
fn check_root_unchanged(old: &Value, new: &Value) -> Option<Fault> {
    let changes = name_of(new) == ROOT_QUEUE && old.get("spec") != new.get("spec");
    changes.then(|| Fault::new(Rule::RootProtected, "spec".to_owned(), "", Quantity::ZERO, ROOT_RESERVED.to_owned()))
}

/// The capabilities that count: cpu and memory of zero or less have no limit of their own.
fn capability_limits(queue: &Value) -> Amounts {
    let mut ceilings = read_requestable_amounts(queue, CAPABILITY.0);
    ceilings.retain(|resource, limit| *limit > Quantity::ZERO || !matches!(resource.as_str(), "cpu" | "memory"));
    ceilings
}

#[cfg(test)]
mod tests;
