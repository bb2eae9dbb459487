//! What a preemption attempt has to know of the queues: who may want one, what it lacks, and whether its quota would
//! do.
//!
//! Rule: a job wants others evicted if it waits for quota or capacity and no reservation blocks it, for what came free
//! would then go to the reserving job. One that may use several card models wants it for the first on which it could
//! ever start. By reclaim only a queue gains that has less than it deserves, or one below such
//! a queue; and what limits its own queue alone nobody else can give it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        Engine, JobId,
        engine::capacity_reservations::KeptBound,
        preemption::{QueueAccount, Victim},
        quota::slot::QueueIndex,
    },
    reason::{Bound, Reason},
    resources::{Limits, ResourceName, Resources},
};

/// A job near the head of its queue for which others could be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionCandidate {
    /// Which.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// What it asks for at least, on the card model that [`Engine::pending_card`] names.
    pub asks: Resources,
    /// Its queue, or one above it, has less than it deserves, and that is what the job waits for.
    pub may_reclaim: bool,
}

/// The quota on a job's path, to be asked with victims gone.
#[derive(Debug, Clone)]
pub(super) struct QuotaAfterEvictions {
    asks: Resources,
    path: Vec<PathQuota>,
}

#[derive(Debug, Clone)]
struct PathQuota {
    used: Resources,
    /// Of what the job asks for.
    real: Limits,
    /// The queue and those below it.
    queues: BTreeSet<QueueName>,
}

impl QuotaAfterEvictions {
    /// Whether every queue on the path has enough once these are evicted.
    pub(super) fn is_enough(&self, victims: &[&Victim]) -> bool {
        self.path.iter().all(|PathQuota { used, real, queues }| {
            self.asks.iter().all(|(name, asked)| {
                let name = name.as_str();
                let gone = victims.iter().filter(|victim| queues.contains(&victim.queue));
                let freed = gone.fold(Quantity::ZERO, |sum, victim| sum.saturating_add(victim.frees.get(name)));
                let would = used.get(name).signed_sub(freed).saturating_add(asked);
                real.get(name).is_none_or(|most| would <= most)
            })
        })
    }
}

impl Engine {
    /// The first `each` jobs of each queue that wait for quota or capacity and that no reservation blocks.
    #[must_use]
    pub fn list_preemption_candidates(&self, each: usize) -> Vec<PreemptionCandidate> {
        let mut deserving: BTreeMap<QueueName, bool> = BTreeMap::new();
        let candidate = |(entry, position): (&JobId, _)| {
            let reason = self.explain_entry_at(entry.as_str(), position)?;
            let (Reason::Quota { queue, .. }
            | Reason::InsufficientCapacity { queue, .. }
            | Reason::ClustersReserved { queue, .. }
            | Reason::CapacityReserved { queue, .. }) = &reason
            else {
                return None;
            };
            if self.contends_with_reservation(entry.as_str()) || !self.may_evict_beside_kept(entry.as_str()) {
                return None;
            }
            let asks = self.pending_ask(entry.as_str())?.minimum();
            let own =
                matches!(&reason, Reason::Quota { bound: Bound::Queue(at) | Bound::Guaranteed(at), .. } if at == queue);
            let may_reclaim = !own && *deserving.entry(queue.clone()).or_insert_with(|| self.deserves_more(queue));
            Some(PreemptionCandidate { id: entry.job(), queue: queue.clone(), asks, may_reclaim })
        };
        self.queue_heads(each).filter_map(candidate).collect()
    }

    /// Whether a queue, or one above it, has less than it deserves of something.
    fn deserves_more(&self, queue: &QueueName) -> bool {
        let below_root = self.path_of(queue).iter().filter(|node| **node != QueueIndex::ROOT);
        below_root.copied().any(|node| {
            let slot = &self.queues[node];
            slot.deserved.iter().any(|(dim, deserved)| slot.used.get(*dim) < *deserved)
        })
    }

    /// Every queue but the root.
    pub(super) fn queue_accounts(&self) -> BTreeMap<QueueName, QueueAccount> {
        let root = &self.queues[QueueIndex::ROOT].name;
        let account = |queue: &crate::queue::QueueSpec| {
            let is = self.entitlement_of(&queue.name);
            let account = QueueAccount {
                parent: queue.parent.clone().filter(|parent| parent != root),
                guarantee: is.guarantee,
                deserved: is.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect(),
                used: is.used,
                reclaimable: queue.reclaimable,
                priority: queue.priority,
            };
            (queue.name.clone(), account)
        };
        self.queue_specs().filter(|queue| &queue.name != root).map(account).collect()
    }

    /// Of what a job asks for, the resources of which there is too little: of quota on its path, or `free` in the
    /// clusters.
    pub(crate) fn list_missing_resources(
        &self,
        queue: &QueueName,
        asks: &Resources,
        free: &Resources,
    ) -> BTreeSet<ResourceName> {
        let quota = self.compute_quota_after_evictions(queue, asks.clone()).path;
        let is_short = |name: &ResourceName, asked: Quantity| {
            let over = |at: &PathQuota| {
                let would = at.used.get(name.as_str()).saturating_add(asked);
                at.real.get(name.as_str()).is_some_and(|most| would > most)
            };
            (asked > free.get(name.as_str()) && !name.is_card()) || quota.iter().any(over)
        };
        asks.iter().filter(|(name, asked)| is_short(name, *asked)).map(|(name, _)| name.clone()).collect()
    }

    /// The quota on the path of a queue for a job that asks for so much.
    pub(super) fn compute_quota_after_evictions(&self, queue: &QueueName, asks: Resources) -> QuotaAfterEvictions {
        let quota = |at: &QueueIndex| {
            let slot = &self.queues[*at];
            let used = slot.used.resources(&self.queues.dims);
            // Any amount of a card model that no queue limits, and nothing else that has no ceiling.
            let most = |name: &ResourceName| {
                let most = self.queues.dims.find_dim(name).and_then(|dim| slot.real.get(dim));
                most.map(|most| most.to_quantity_of(name)).or_else(|| (!name.is_card()).then_some(Quantity::ZERO))
            };
            let real = asks.iter().filter_map(|(name, _)| Some((name.clone(), most(name)?))).collect();
            let below = self.queues.names().filter(|(_, node)| self.queues[*node].path.contains(at));
            PathQuota { used, real, queues: below.map(|(name, _)| name.clone()).collect() }
        };
        let mut path: Vec<PathQuota> = self.path_of(queue).iter().map(quota).collect();
        path.extend(self.queues.find_node(queue).into_iter().flat_map(|node| self.list_quota_beside_kept(node, &asks)));
        QuotaAfterEvictions { asks, path }
    }

    /// What the fleet leaves beside amounts that are kept now. What their own queues give back is kept for these.
    fn list_quota_beside_kept(&self, node: QueueIndex, asks: &Resources) -> Vec<PathQuota> {
        let dims = asks.iter().filter_map(|(name, _)| self.queues.dims.find_dim(name)).collect();
        let beside = |(bound, owners): (KeptBound, BTreeSet<QueueIndex>)| {
            let is_its = |node: &QueueIndex| self.queues[*node].path.iter().any(|above| owners.contains(above));
            let others = self.queues.names().filter(|(_, node)| !is_its(node));
            let [used, real] =
                [bound.held(), bound.limit_beside_kept()].map(|it| self.queues.dims.name_amount(bound.dim, it));
            PathQuota {
                used: [used].into_iter().collect(),
                real: [real].into_iter().collect(),
                queues: others.map(|(name, _)| name.clone()).collect(),
            }
        };
        self.list_kept_now(node, &dims).into_iter().map(beside).collect()
    }

    fn path_of(&self, queue: &QueueName) -> &[QueueIndex] {
        self.queues.find_node(queue).map_or(&[], |node| &self.queues[node].path)
    }
}
