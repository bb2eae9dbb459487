//! A queue as its object says it, and the fleet above all queues.
//!
//! Rule: Volcano's `Queue` (`scheduling.volcano.sh/v1beta1`): `capability` is a ceiling per resource, where a missing
//! name is inherited from the queue above, and so are `cpu` and `memory` of zero or less (`capacity.go:1095-1102`,
//! `1495-1512`); `guarantee` is kept free for the queue even when idle; `deserved` is its entitlement. Names that
//! nothing asks for ([`ResourceName::is_counted`]) count nowhere.

use std::collections::BTreeSet;

use crate::{
    gang::{QueueName, Requirement},
    node_groups::NodeGroupAffinity,
    quantity::Quantity,
    queue::{aging::PriorityAging, tenant_order::TenantOrder, waiting::ReservationWait},
    resources::{Limits, ResourceName, Resources},
};

/// Whether a queue starts jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueState {
    /// It does.
    #[default]
    Open,
    /// It does not; jobs that run go on.
    Closing,
    /// It does not, and none runs.
    Closed,
    /// It does not: somebody wrote a state that there is none, and nobody has decided since.
    Unknown,
}

impl QueueState {
    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Closing => "Closing",
            Self::Closed => "Closed",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a job at the head that can not start means for those behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dequeue {
    /// They may start if they fit.
    #[default]
    Traverse,
    /// They wait.
    Fifo,
}

/// How many jobs may run in a queue and those below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningLimits {
    /// In all.
    pub all: Option<u32>,
    /// Of one namespace.
    pub of_namespace: Option<u32>,
    /// Of one user.
    pub of_user: Option<u32>,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// Name.
    pub name: QueueName,
    /// The queue above; `None` is the root.
    pub parent: Option<QueueName>,
    /// Larger goes first.
    pub priority: i32,
    /// Its part of what is left where it sets no `deserved`: 1 to 65535.
    pub weight: u32,
    /// Ceiling.
    pub capability: Limits,
    /// Resources whose ceiling can not be parsed. It counts as zero until it is corrected, so that no job starts on an
    /// unknown limit.
    pub unreadable: Vec<ResourceName>,
    /// Kept free for it.
    pub guarantee: Resources,
    /// Entitlement; where it names nothing at all, its weight decides.
    pub deserved: Limits,
    /// Jobs that may run in it and in those below it.
    pub running: RunningLimits,
    /// When its blocked jobs, and those of queues below it, get a reservation; `None` where it says nothing.
    pub reservation_wait: Option<ReservationWait>,
    /// How priorities of its jobs, and of those of queues below it, rise while they wait; `None` where it says nothing.
    pub aging: Option<PriorityAging>,
    /// Whether the tenants of it, and of queues below it, take turns; `None` where it says nothing.
    pub tenant_order: Option<TenantOrder>,
    /// Whether others may take back what it borrowed.
    pub reclaimable: bool,
    /// Order of leaving.
    pub dequeue: Dequeue,
    /// Whether it starts jobs.
    pub state: QueueState,
    /// Which groups of nodes its jobs use; `None` where it says nothing. Placement goes by it, and no quota does.
    pub affinity: Option<NodeGroupAffinity>,
    /// What must hold of the labels of clusters that its jobs, and those of queues below it, go to. The same holds.
    pub clusters: Vec<Requirement>,
}

impl QueueSpec {
    /// A queue below the root without any limit.
    #[must_use]
    pub fn unlimited(name: impl Into<QueueName>) -> Self {
        Self {
            name: name.into(),
            parent: None,
            priority: 0,
            weight: 1,
            capability: Limits::unlimited(),
            unreadable: Vec::new(),
            guarantee: Resources::new(),
            deserved: Limits::unlimited(),
            running: RunningLimits::default(),
            reservation_wait: None,
            aging: None,
            tenant_order: None,
            reclaimable: true,
            dequeue: Dequeue::Traverse,
            state: QueueState::Open,
            affinity: None,
            clusters: Vec::new(),
        }
    }

    /// Whether its affinity names groups of nodes.
    #[must_use]
    pub fn names_node_groups(&self) -> bool {
        self.affinity.as_ref().is_some_and(|affinity| !affinity.is_empty())
    }

    /// The weight that counts.
    pub(crate) fn effective_weight(&self) -> u32 {
        self.weight.clamp(1, MOST_WEIGHT)
    }

    /// The resources that it has an amount of.
    pub(crate) fn list_resources(&self) -> impl Iterator<Item = &ResourceName> {
        let amounts = self.guarantee.iter().chain(self.deserved.iter()).map(|(name, _)| name);
        self.ceilings().map(|(name, _)| name).chain(amounts)
    }

    /// The ceilings that count: without `cpu` and `memory` of zero or less; other negative ones, and those that nobody
    /// can read, are zero.
    pub(crate) fn ceilings(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        let unreadable = || self.unreadable.iter().filter(|name| name.is_counted());
        let read = self.capability.iter().filter(|(name, _)| name.is_counted() && !self.unreadable.contains(name));
        let read = read.filter_map(|(name, limit)| {
            let inherited =
                limit <= Quantity::ZERO && matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY);
            (!inherited).then(|| (name, limit.max(Quantity::ZERO)))
        });
        read.chain(unreadable().map(|name| (name, Quantity::ZERO)))
    }
}

/// The affinity for groups of nodes that counts for a queue: its own, else that of the nearest queue above with one.
#[must_use]
pub fn find_affinity<'a>(
    queue: &QueueName,
    find: impl Fn(&QueueName) -> Option<&'a QueueSpec>,
) -> Option<&'a NodeGroupAffinity> {
    let (mut seen, mut next) = (BTreeSet::new(), find(queue));
    while let Some(spec) = next.filter(|spec| seen.insert(&spec.name)) {
        if spec.affinity.is_some() {
            return spec.affinity.as_ref();
        }
        // Parents may lead in a circle.
        next = spec.parent.as_ref().and_then(&find);
    }
    None
}

/// The largest `spec.weight`.
pub(crate) const MOST_WEIGHT: u32 = 65535;

/// What the clusters have, all together. Nothing is known at first: nothing can start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetResources {
    /// Of all clusters that are ready and take new pods.
    pub ready: Resources,
    /// The same with clusters that may come back; `None` while one of them is unknown, so that nobody can say "never".
    pub whole: Option<Resources>,
    /// Number of ready clusters.
    pub ready_clusters: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_says_nothing_has_the_affinity_of_the_nearest_above_also_an_empty_one() {
        let queue = |name: &str, parent: Option<&str>, affinity| QueueSpec {
            parent: parent.map(QueueName::from),
            affinity,
            ..QueueSpec::unlimited(name)
        };
        let some = NodeGroupAffinity { required: ["a".to_owned()].into(), ..NodeGroupAffinity::default() };
        let queues = [
            queue("top", None, Some(some.clone())),
            queue("empty", Some("top"), Some(NodeGroupAffinity::default())),
            queue("leaf", Some("middle"), None),
            queue("middle", Some("top"), None),
            queue("free", Some("empty"), None),
            queue("circle", Some("circle"), None),
        ];
        let of = |name: &str| find_affinity(&name.into(), |name| queues.iter().find(|queue| queue.name == *name));
        assert_eq!([of("top"), of("leaf"), of("middle")], [Some(&some); 3]);
        assert_eq!([of("empty"), of("free")], [Some(&NodeGroupAffinity::default()); 2]);
        assert_eq!([of("circle"), of("other")], [None; 2]);
    }
}
