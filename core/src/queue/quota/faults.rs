//! What is wrong with a queue's amounts, and what counts instead: nobody else is stopped by it.
//!
//! Rule: what Volcano's webhook refuses (`validate_queue.go`: guarantee <= deserved <= capability <= every ancestor's,
//! and the children's sums within the parent's) and its scheduler only logs (`capacity.go:1514-1551`). A queue that was
//! there before a rule, or before its parent changed, is read with [`super::entitlement`]'s rules; this says so with
//! numbers.

use std::fmt;

use crate::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        quota::{
            amounts::Dims,
            slot::{QueueIndex, Slot},
        },
        spec::{MOST_WEIGHT, QueueSpec},
    },
    resources::ResourceName,
};

/// Amounts of a queue, as its object names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueField {
    /// The ceiling.
    Capability,
    /// The entitlement.
    Deserved,
    /// What is kept free.
    Guarantee,
}

impl fmt::Display for QueueField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Capability => "spec.capability",
            Self::Deserved => "spec.deserved",
            Self::Guarantee => "spec.guarantee.resource",
        })
    }
}

/// Something that a queue asks for and does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueFault {
    /// Below 1 or above 65535.
    Weight {
        /// `spec.weight`.
        value: u32,
    },
    /// Of something that nothing asks for by this name.
    NotCounted {
        /// Where.
        field: QueueField,
        /// Of what.
        resource: ResourceName,
    },
    /// Below zero.
    Negative {
        /// Where.
        field: QueueField,
        /// Of what.
        resource: ResourceName,
        /// As written.
        value: Quantity,
    },
    /// More than another amount of the same queue.
    AboveOwn {
        /// Where.
        field: QueueField,
        /// Of what.
        resource: ResourceName,
        /// As written.
        value: Quantity,
        /// The other amount.
        of: QueueField,
        /// How much that is.
        limit: Quantity,
    },
    /// A capability above that of a queue further up.
    AboveAncestor {
        /// Of what.
        resource: ResourceName,
        /// As written.
        value: Quantity,
        /// The nearest that limits it.
        queue: QueueName,
        /// To how much.
        limit: Quantity,
    },
    /// The queues below have more together than this one.
    ChildrenAbove {
        /// Guarantee or deserved.
        field: QueueField,
        /// Of what.
        resource: ResourceName,
        /// All of them.
        sum: Quantity,
        /// This queue's own.
        limit: Quantity,
    },
    /// A guarantee that could not be kept if everything were idle.
    NeverKept {
        /// Of what.
        resource: ResourceName,
        /// Guaranteed to this queue, or to those below it together.
        value: Quantity,
        /// The most there is above it.
        limit: Quantity,
    },
    /// Guarantees of the queues below that can not all be kept even if everything were idle.
    NotAllKept {
        /// Of what.
        resource: ResourceName,
        /// All of them.
        sum: Quantity,
        /// The most there is.
        limit: Quantity,
    },
}

impl QueueFault {
    /// What it is about, whatever the numbers are: who was told once need not be told again.
    #[must_use]
    pub const fn subject(&self) -> (&'static str, Option<QueueField>, Option<&ResourceName>) {
        match self {
            Self::Weight { .. } => ("Weight", None, None),
            Self::NotCounted { field, resource } => ("NotCounted", Some(*field), Some(resource)),
            Self::Negative { field, resource, .. } => ("Negative", Some(*field), Some(resource)),
            Self::AboveOwn { field, resource, .. } => ("AboveOwn", Some(*field), Some(resource)),
            Self::AboveAncestor { resource, .. } => ("AboveAncestor", None, Some(resource)),
            Self::ChildrenAbove { field, resource, .. } => ("ChildrenAbove", Some(*field), Some(resource)),
            Self::NeverKept { resource, .. } => ("NeverKept", None, Some(resource)),
            Self::NotAllKept { resource, .. } => ("NotAllKept", None, Some(resource)),
        }
    }
}

impl fmt::Display for QueueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight { value } => {
                let counts = value.clamp(&1, &MOST_WEIGHT);
                write!(f, "spec.weight is {value}, not 1 to {MOST_WEIGHT}: it counts as {counts}")
            }
            Self::NotCounted { field, resource } => {
                write!(f, "{field}.{resource} counts for nothing: pods ask for resources by their own name, as cpu")
            }
            Self::Negative { field, resource, value } => {
                write!(f, "{field}.{resource} is {value}, below 0: it counts as ")?;
                let unlimited = matches!(resource.as_str(), ResourceName::CPU | ResourceName::MEMORY);
                f.write_str(if *field == QueueField::Capability && unlimited { "no limit" } else { "0" })
            }
            Self::AboveOwn { field, resource, value, of, limit } => {
                write!(f, "{field}.{resource} is {value}, more than {of}.{resource}, which is {limit}: ")?;
                match of {
                    QueueField::Deserved => write!(f, "{of}.{resource} counts as that"),
                    _ => write!(f, "it counts as {limit}"),
                }
            }
            Self::AboveAncestor { resource, value, queue, limit } => {
                let of = if resource.is_card() { "the quota of " } else { "spec.capability." };
                write!(
                    f,
                    "{of}{resource} is {value}, more than that of queue {queue}, which is {limit}: it counts as {limit}"
                )
            }
            Self::ChildrenAbove { field, resource, sum, limit } => {
                write!(
                    f,
                    "{field}.{resource} is {limit}, less than that of the queues below together, which is {sum}: "
                )?;
                match field {
                    QueueField::Guarantee => write!(f, "{sum} is kept free"),
                    _ => write!(f, "the largest of theirs count as less"),
                }
            }
            Self::NeverKept { resource, value, limit } => write!(
                f,
                "a guarantee of {resource} {value} is more than {limit}, all that there is above the queue: nothing is \
                 kept free for it"
            ),
            Self::NotAllKept { resource, sum, limit } => write!(
                f,
                "the queues below are guaranteed {resource} {sum} together, more than {limit}, all that there is: the \
                 largest guarantees count as less"
            ),
        }
    }
}

/// What is wrong with a queue of the tree, by field and resource.
pub(crate) fn find_faults(slots: &[Slot], dims: &Dims, node: QueueIndex) -> Vec<QueueFault> {
    let slot = &slots[node.index()];
    let mut faults = Vec::new();
    let shown = |dim, amount| dims.name_amount(dim, amount);
    if let Some(spec) = &slot.spec {
        faults.extend(find_own_faults(spec));
        faults.extend(find_capability_above_ancestor(slots, slot, spec));
        faults.extend(find_child_sums_above_own(slots, slot, spec));
    }
    faults.extend(slot.asked.never.iter().filter_map(|(dim, value)| {
        let limit = slots[slot.parent?.index()].asked.most_of(*dim)?;
        let ((resource, value), (_, limit)) = (shown(*dim, *value), shown(*dim, limit));
        Some(QueueFault::NeverKept { resource, value, limit })
    }));
    faults.extend(slot.asked.too_much.iter().filter_map(|(dim, sum)| {
        let ((resource, sum), (_, limit)) = (shown(*dim, *sum), shown(*dim, slot.asked.most_of(*dim)?));
        Some(QueueFault::NotAllKept { resource, sum, limit })
    }));
    faults
}

/// What a queue's own amounts say against each other.
fn find_own_faults(spec: &QueueSpec) -> Vec<QueueFault> {
    use QueueField::{Capability, Deserved, Guarantee};

    let mut faults = Vec::new();
    if spec.weight != spec.effective_weight() {
        faults.push(QueueFault::Weight { value: spec.weight });
    }
    let fields = [
        (Capability, spec.capability.iter().collect::<Vec<_>>()),
        (Deserved, spec.deserved.iter().collect()),
        (Guarantee, spec.guarantee.iter().collect()),
    ];
    for (field, resource, value) in
        fields.iter().flat_map(|(field, all)| all.iter().map(move |(r, v)| (*field, *r, *v)))
    {
        // A ceiling of one card model is by its annotation.
        let counts = if field == Capability { resource.is_counted() } else { resource.counts_in_queues() };
        if !counts {
            faults.push(QueueFault::NotCounted { field, resource: resource.clone() });
            continue;
        }
        if value.is_negative() {
            faults.push(QueueFault::Negative { field, resource: resource.clone(), value });
        }
        let capability = spec.ceilings().find(|(name, _)| *name == resource).map(|(_, limit)| limit);
        let deserved = spec.deserved.get(resource.as_str());
        let deserved = deserved.or_else(|| (!spec.deserved.is_unlimited()).then_some(Quantity::ZERO));
        let limits = match field {
            Capability => [None, None],
            Deserved => [capability.map(|limit| (Capability, limit)), None],
            Guarantee => [capability.map(|limit| (Capability, limit)), deserved.map(|limit| (Deserved, limit))],
        };
        for (of, limit) in limits.into_iter().flatten().filter(|(_, limit)| value > *limit) {
            faults.push(QueueFault::AboveOwn { field, resource: resource.clone(), value, of, limit });
        }
    }
    faults
}

fn find_capability_above_ancestor(slots: &[Slot], slot: &Slot, spec: &QueueSpec) -> Vec<QueueFault> {
    let fault = |(resource, value): (&ResourceName, Quantity)| {
        let mut above = slot.path.iter().skip(1).filter_map(|node| slots[node.index()].spec.as_ref());
        let limits = above.find_map(|spec| Some((spec, spec.ceilings().find(|(name, _)| *name == resource)?.1)));
        let (spec, limit) = limits.filter(|(_, limit)| value > *limit)?;
        Some(QueueFault::AboveAncestor { resource: resource.clone(), value, queue: spec.name.clone(), limit })
    };
    spec.ceilings().filter_map(fault).collect()
}

/// Only where this queue names an amount: one that it does not name follows from theirs.
fn find_child_sums_above_own(slots: &[Slot], slot: &Slot, spec: &QueueSpec) -> Vec<QueueFault> {
    let children = || slot.children.iter().filter_map(|child| slots[child.index()].spec.as_ref());
    let sum = |of: &dyn Fn(&QueueSpec) -> Quantity| {
        children().map(|child| of(child).max(Quantity::ZERO)).fold(Quantity::ZERO, Quantity::saturating_add)
    };
    let guarantees = spec.guarantee.iter().map(|(resource, limit)| {
        (QueueField::Guarantee, resource.clone(), limit, sum(&|child| child.guarantee.get(resource.as_str())))
    });
    let mut deserved: Vec<ResourceName> =
        children().flat_map(|child| child.deserved.iter()).map(|(r, _)| r.clone()).collect();
    deserved.retain(|_| !spec.deserved.is_unlimited());
    deserved.sort_unstable();
    deserved.dedup();
    let deserved = deserved.into_iter().map(|resource| {
        let of = |spec: &QueueSpec| spec.deserved.get(resource.as_str()).unwrap_or(Quantity::ZERO);
        let (limit, sum) = (of(spec), sum(&of));
        (QueueField::Deserved, resource, limit, sum)
    });
    let above = guarantees.chain(deserved).filter(|(_, _, limit, sum)| *sum > (*limit).max(Quantity::ZERO));
    above.map(|(field, resource, limit, sum)| QueueFault::ChildrenAbove { field, resource, sum, limit }).collect()
}
