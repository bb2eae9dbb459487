//! What is known about the quota of one queue: the slot that it has in the engine's table.

use std::collections::BTreeMap;

use crate::{
    gang::QueueName,
    queue::{
        quota::{
            amount::Amount,
            amounts::{Ceilings, Dim, DimAmounts, Sparse},
            history::KeptFraction,
            tenant_share::TenantCharge,
        },
        spec::{Dequeue, QueueSpec},
        tenant_order::TenantOrder,
    },
    reason::QueueProblem,
};

/// A queue's place in the engine's table. The root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueIndex(pub(crate) u32);

impl QueueIndex {
    pub(crate) const ROOT: Self = Self(0);
    pub(crate) const LAST: Self = Self(u32::MAX);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Tenants without jobs of which it is known what they used lately, at most: those who used most.
const MOST_REMEMBERED: usize = 1000;

/// The name of the queue above all queues.
pub(crate) const ROOT: &str = "root";

/// What is known about the quota of one queue. A name that only jobs know has no `spec`.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) name: QueueName,
    pub(crate) spec: Option<QueueSpec>,
    /// The queue itself first, the root last: where its jobs are charged.
    pub(crate) path: Box<[QueueIndex]>,
    /// The queue above it, among whose children it counts; `None` for the root and outside the tree.
    pub(crate) parent: Option<QueueIndex>,
    /// The queues above it when that was last known.
    pub(crate) last_ancestors: Option<LastAncestors>,
    /// In the order of their names.
    pub(crate) children: Box<[QueueIndex]>,
    pub(crate) problem: Option<QueueProblem>,
    /// Its own `capability`.
    pub(crate) capability: Ceilings,
    /// What siblings' guarantees leave to it; for the root, what the clusters have.
    pub(crate) left: Ceilings,
    /// The smallest of both and of everything above.
    pub(crate) real: Ceilings,
    /// The most it can have while queues are as they are: if nothing ran and no cluster were away.
    pub(crate) reach: Ceilings,
    /// Kept free for it and all below, as far as that can be.
    pub(crate) guarantee: DimAmounts,
    /// What it is entitled to; nothing where it deserves nothing.
    pub(crate) deserved: Sparse,
    pub(crate) asked: QuotaRequest,
    /// What its own jobs are charged.
    pub(crate) own: DimAmounts,
    /// Of that, what those of each tenant are, and what they used lately.
    pub(crate) of_tenants: BTreeMap<Dim, TenantCharge>,
    /// The same with all queues below.
    pub(crate) used: DimAmounts,
    /// Its own jobs that are charged.
    pub(crate) own_running: DimAmounts,
    /// The same with all queues below.
    pub(crate) running: DimAmounts,
    /// The mean of that over the last time, where it counts.
    pub(crate) mean_used: DimAmounts,
}

impl Slot {
    pub(crate) fn new(name: QueueName, node: QueueIndex) -> Self {
        let path = if node == QueueIndex::ROOT { vec![node] } else { vec![node, QueueIndex::ROOT] };
        let left = if node == QueueIndex::ROOT { Ceilings::nothing() } else { Ceilings::default() };
        let problem = if node == QueueIndex::ROOT { QueueProblem::Root } else { QueueProblem::Missing };
        Self {
            name,
            spec: None,
            path: path.into(),
            parent: None,
            last_ancestors: None,
            children: Box::default(),
            problem: Some(problem),
            capability: Ceilings::default(),
            left,
            real: Ceilings::default(),
            reach: Ceilings::default(),
            guarantee: DimAmounts::default(),
            deserved: Sparse::default(),
            asked: QuotaRequest::default(),
            own: DimAmounts::default(),
            of_tenants: BTreeMap::new(),
            used: DimAmounts::default(),
            own_running: DimAmounts::default(),
            running: DimAmounts::default(),
            mean_used: DimAmounts::default(),
        }
    }

    /// Whether it says what it deserves, so that its weight does not.
    pub(crate) fn sets_deserved(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.deserved.iter().any(|(name, _)| name.counts_in_queues()))
    }

    /// Charges its own jobs these amounts so many times; -1 takes them back. What is no resource counts jobs.
    pub(crate) fn charge_own(&mut self, amounts: &[(Dim, Amount)], times: i64) {
        add_charge((&mut self.own, &mut self.own_running), amounts, times);
        let (resources, counts) = split_counts(amounts);
        for (tenant, _) in counts.iter().filter(|(dim, _)| *dim != Dim::JOBS) {
            self.of_tenants.entry(*tenant).or_default().add_times(resources, times);
            self.drop_tenant_without_use(*tenant);
        }
    }

    /// Forgets a tenant without jobs that used nothing lately.
    fn drop_tenant_without_use(&mut self, tenant: Dim) {
        let has_used = self.of_tenants.get(&tenant).is_some_and(|charge| !charge.mean().is_empty());
        if !has_used && self.own_running.get(tenant).is_zero() {
            self.of_tenants.remove(&tenant);
        }
    }

    /// A tenant used this lately beside what is known.
    pub(crate) fn add_tenant_mean(&mut self, tenant: Dim, more: &DimAmounts) {
        self.of_tenants.entry(tenant).or_default().add_mean(more);
        self.drop_tenant_without_use(tenant);
    }

    /// Brings up to date what it and its tenants used lately, where these take turns.
    pub(crate) fn decay_means(&mut self, kept: KeptFraction, turns: Option<TenantOrder>) {
        self.mean_used = self.mean_used.zip(&self.used, |mean, used| kept.age_mean(mean, used));
        for (tenant, charge) in &mut self.of_tenants {
            let counts = turns.is_some_and(|turns| turns.counts_tenant(*tenant));
            if counts || !charge.mean().is_empty() {
                charge.decay_mean(kept, counts, &self.real);
            }
        }
        self.drop_tenants_without_use();
    }

    /// Time has passed in which nobody is known to have used anything.
    pub(crate) fn age_means(&mut self, kept: KeptFraction) {
        self.mean_used = self.mean_used.zip(&DimAmounts::default(), |mean, none| kept.age_mean(mean, none));
        self.of_tenants.values_mut().for_each(|charge| charge.decay_mean(kept, false, &self.real));
        self.drop_tenants_without_use();
    }

    /// Begins without a history.
    pub(crate) fn forget_means(&mut self) {
        self.mean_used = DimAmounts::default();
        self.of_tenants.values_mut().for_each(|charge| charge.set_mean(DimAmounts::default()));
        self.drop_tenants_without_use();
    }

    fn drop_tenants_without_use(&mut self) {
        let running = &self.own_running;
        self.of_tenants.retain(|tenant, charge| !charge.mean().is_empty() || !running.get(*tenant).is_zero());
        if self.of_tenants.len() <= MOST_REMEMBERED {
            return;
        }
        let idle = self.of_tenants.iter().filter(|(tenant, _)| running.get(**tenant).is_zero());
        let mut idle: Vec<_> = idle.map(|(tenant, charge)| (charge.share_of_mean(&self.real), *tenant)).collect();
        idle.sort_unstable();
        let more = idle.len().saturating_sub(MOST_REMEMBERED);
        idle.into_iter().take(more).for_each(|(_, tenant)| drop(self.of_tenants.remove(&tenant)));
    }

    /// The resources and tenants of its history.
    pub(crate) fn list_history_dims(&self) -> impl Iterator<Item = Dim> {
        let of_tenants = self
            .of_tenants
            .iter()
            .flat_map(|(tenant, charge)| charge.mean().iter().map(|(dim, _)| dim).chain([*tenant]));
        self.mean_used.iter().map(|(dim, _)| dim).chain(of_tenants)
    }

    /// The same of its own jobs and those below it.
    pub(crate) fn charge_subtree(&mut self, amounts: &[(Dim, Amount)], times: i64) {
        add_charge((&mut self.used, &mut self.running), amounts, times);
    }

    /// How many amounts are kept of it.
    #[cfg(test)]
    pub(crate) fn count_amounts(&self) -> usize {
        let ceilings = [&self.capability, &self.left, &self.real, &self.reach, &self.asked.most, &self.asked.granted];
        let amounts = [&self.guarantee, &self.asked.guarantee, &self.own, &self.used, &self.mean_used];
        ceilings.map(Ceilings::size).iter().chain(&amounts.map(DimAmounts::size)).sum()
    }

    /// Whether only the head may start.
    pub(crate) fn is_fifo(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.dequeue == Dequeue::Fifo)
    }

    /// The most of `dim` that it can have now.
    pub(crate) fn real_capability(&self, dim: Dim) -> Amount {
        self.real.get(dim).unwrap_or(Self::UNBOUNDED)
    }

    /// More than any quantity, and small enough to be added up and multiplied.
    const UNBOUNDED: Amount = Amount(1 << 94);

    /// Takes down what a record says about the queues above, unless more is known; true if that changes anything.
    pub(crate) fn record_ancestors(&mut self, above: &[QueueName]) -> bool {
        let recorded = (!above.is_empty()).then(|| LastAncestors::FromRecord(above.into()));
        // Of several records always the same one, in whatever order they come.
        let is_news = recorded > self.last_ancestors;
        if is_news {
            self.last_ancestors = recorded;
        }
        is_news
    }

    pub(super) fn parent_in_spec(&self) -> Option<&QueueName> {
        let parent = self.spec.as_ref().and_then(|spec| spec.parent.as_ref());
        parent.filter(|parent| !matches!(parent.as_str(), "" | ROOT))
    }
}

fn add_charge((used, running): (&mut DimAmounts, &mut DimAmounts), amounts: &[(Dim, Amount)], times: i64) {
    let (resources, counts) = split_counts(amounts);
    used.add_times(resources, times);
    running.add_times(counts, times);
}

type SparseRef<'a> = &'a [(Dim, Amount)];

/// A charge has its resources first, then what it counts as.
pub(crate) fn split_counts(amounts: &[(Dim, Amount)]) -> (SparseRef<'_>, SparseRef<'_>) {
    amounts.split_at(amounts.partition_point(|(dim, _)| !dim.counts_jobs()))
}

/// The queues above one when that was last known, nearest first and without the root. What it was charged with stays
/// charged there while its object is gone, or its parents are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LastAncestors {
    /// By the record of one of its jobs.
    FromRecord(Box<[QueueName]>),
    /// By the queues.
    FromQueues(Box<[QueueName]>),
}

impl LastAncestors {
    pub(super) fn list_above(&self) -> &[QueueName] {
        let (Self::FromRecord(above) | Self::FromQueues(above)) = self;
        above
    }
}

/// What a queue and those below it ask for, before it is known what there is.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuotaRequest {
    /// The most it could have if everything else were idle and no cluster away.
    pub(super) most: Ceilings,
    /// To be kept free.
    pub(super) guarantee: DimAmounts,
    /// As it or its children set it; empty if none of them does.
    pub(super) deserved: Ceilings,
    /// What it deserves in the end.
    pub(super) granted: Ceilings,
    /// A guarantee that is more than there can ever be.
    pub(crate) never: Vec<(Dim, Amount)>,
    /// What all children are guaranteed together, where it is more than there can ever be.
    pub(crate) too_much: Vec<(Dim, Amount)>,
}

impl QuotaRequest {
    pub(crate) fn most_of(&self, dim: Dim) -> Option<Amount> {
        self.most.get(dim)
    }
}
