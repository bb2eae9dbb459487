//! The table of all queues: their names, the tree that their objects make, and what is charged to each.
//!
//! A name that a queue or a job has is interned once and keeps its [`QueueIndex`] as long as anybody has it. What the
//! tree says is of when it was resolved last: until then [`QueueTable::is_tree_outdated`] says that queues are others
//! now. What is charged, and when that is expected to end, is always up to date on the whole path.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Index,
};

use crate::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        quota::{
            admission::{self, JobShape},
            amount::Amount,
            amounts::{Dim, DimAmounts, Dims},
            expected_ends::ExpectedEnds,
            history::KeptFraction,
            slot::{self, QueueIndex, Slot},
            tree,
        },
        spec::{FleetResources, QueueSpec},
        tenant_order::TenantOrder,
    },
    reason::{Bound, Reason},
    resources::Resources,
    time::EpochSeconds,
};

/// See the module. The index of a table is a queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueTable {
    slots: Vec<Slot>,
    index: BTreeMap<QueueName, QueueIndex>,
    unused: Vec<QueueIndex>,
    pub(crate) dims: Dims,
    fleet: FleetResources,
    ends: ExpectedEnds,
    /// Counts changes of what is charged, and of when that ends.
    version: u64,
    /// Queues or the fleet changed since the tree was resolved.
    is_quota_outdated: bool,
    /// Of that: queues, or who goes before whom.
    is_tree_outdated: bool,
}

impl Default for QueueTable {
    fn default() -> Self {
        let root = QueueName::from(slot::ROOT);
        Self {
            slots: vec![Slot::new(root.clone(), QueueIndex::ROOT)],
            index: [(root, QueueIndex::ROOT)].into(),
            unused: Vec::new(),
            dims: Dims::default(),
            fleet: FleetResources::default(),
            ends: ExpectedEnds::default(),
            version: 0,
            is_quota_outdated: false,
            is_tree_outdated: false,
        }
    }
}

impl Index<QueueIndex> for QueueTable {
    type Output = Slot;

    fn index(&self, node: QueueIndex) -> &Slot {
        &self.slots[node.index()]
    }
}

/// Names.
impl QueueTable {
    /// Places in the table, used or not.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find_node(&self, name: &QueueName) -> Option<QueueIndex> {
        self.index.get(name).copied()
    }

    /// All queues, in the order of their names.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = QueueIndex> {
        self.index.values().copied()
    }

    /// The same with their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&QueueName, QueueIndex)> {
        self.index.iter().map(|(name, node)| (name, *node))
    }

    /// All places, those that are not used among them.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// A place for a name that has none.
    pub(crate) fn add_name(&mut self, name: &QueueName) -> QueueIndex {
        let node = self.unused.pop().unwrap_or(QueueIndex(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        let slot = Slot::new(name.clone(), node);
        match self.slots.get_mut(node.index()) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        self.index.insert(name.clone(), node);
        node
    }

    /// Forgets names that neither a queue nor a job has any more; `held` are those of jobs.
    fn drop_unused_queues(&mut self, held: &BTreeSet<QueueIndex>) {
        let (slots, unused) = (&self.slots, &mut self.unused);
        self.index.retain(|_, node| {
            let used = *node == QueueIndex::ROOT || slots[node.index()].spec.is_some() || held.contains(node);
            if !used {
                unused.push(*node);
            }
            used
        });
    }

    /// Forgets the names of resources and of namespaces that neither jobs, whose are `used`, nor queues nor the fleet
    /// have. Nothing else changes: what queues may have is of names that queues and clusters have.
    pub(crate) fn drop_unused_dims(&mut self, mut used: BTreeSet<Dim>) {
        let fleet = self.fleet.whole.iter().chain([&self.fleet.ready]).flat_map(Resources::iter).map(|(name, _)| name);
        let specs = self.slots.iter().filter_map(|slot| slot.spec.as_ref()).flat_map(QueueSpec::list_resources);
        used.extend(fleet.chain(specs).filter_map(|name| self.dims.find_dim(name)));
        used.extend(self.slots.iter().flat_map(Slot::list_history_dims));
        self.dims.retain(&used);
    }
}

/// The tree.
impl QueueTable {
    pub(crate) fn set_spec(&mut self, node: QueueIndex, spec: QueueSpec) {
        let slot = &mut self.slots[node.index()];
        if slot.spec.as_ref() != Some(&spec) {
            slot.spec = Some(spec);
            self.mark_tree_outdated();
        }
    }

    pub(crate) fn remove_spec(&mut self, node: QueueIndex) {
        let slot = &mut self.slots[node.index()];
        slot.forget_means();
        if slot.spec.take().is_some() {
            self.mark_tree_outdated();
        }
    }

    /// Takes down which queues were above one, by the record of one of its jobs.
    pub(crate) fn record_ancestors(&mut self, node: QueueIndex, above: &[QueueName]) {
        if self.slots[node.index()].record_ancestors(above) {
            self.mark_tree_outdated();
        }
    }

    pub(crate) fn set_fleet(&mut self, fleet: FleetResources) {
        if self.fleet != fleet {
            self.fleet = fleet;
            self.is_quota_outdated = true;
        }
    }

    pub(crate) fn fleet(&self) -> &FleetResources {
        &self.fleet
    }

    /// Queues are others than they were, or who goes before whom.
    pub(crate) fn mark_tree_outdated(&mut self) {
        (self.is_quota_outdated, self.is_tree_outdated) = (true, true);
    }

    pub(crate) fn is_quota_outdated(&self) -> bool {
        self.is_quota_outdated
    }

    pub(crate) fn is_tree_outdated(&self) -> bool {
        self.is_tree_outdated
    }

    /// Resolves the tree anew, without names that neither a queue nor a job has, whose are `held`. True if queues, or
    /// who goes before whom, are others than before.
    pub(crate) fn resolve_tree(&mut self, held: &BTreeSet<QueueIndex>) -> bool {
        self.drop_unused_queues(held);
        tree::resolve_tree(&mut self.slots, &self.index, &mut self.dims, &self.fleet);
        self.version += 1;
        self.is_quota_outdated = false;
        std::mem::take(&mut self.is_tree_outdated)
    }

    /// What the nearest queue on the way to the root says that says something.
    pub(crate) fn find_setting<T>(&self, node: QueueIndex, said: impl Fn(&QueueSpec) -> Option<T>) -> Option<T> {
        self[node].path.iter().find_map(|at| said(self[*at].spec.as_ref()?))
    }
}

/// Quota.
impl QueueTable {
    /// What is free of `dim` at this queue alone; `None` without a ceiling.
    pub(crate) fn free_quota(&self, at: QueueIndex, dim: Dim) -> Option<Amount> {
        admission::free_quota(&self[at], dim)
    }

    /// Whether so much is free at this queue alone.
    pub(crate) fn has_free_quota(&self, (at, dim, needed): (QueueIndex, Dim, Amount)) -> bool {
        self.free_quota(at, dim).is_none_or(|free| needed <= free)
    }

    /// The first ceiling on the way up that `asked` would break.
    pub(crate) fn find_first_short_quota(
        &self,
        path: &[QueueIndex],
        asked: &[(Dim, Amount)],
    ) -> Option<(QueueIndex, Dim, Amount)> {
        admission::find_first_short_quota(&self.slots, path, asked)
    }

    /// [`admission::explain_unsatisfiable`].
    pub(crate) fn explain_unsatisfiable(
        &self,
        node: QueueIndex,
        shape: &JobShape,
        holds: impl Fn(QueueIndex, Dim) -> Amount,
    ) -> Option<Reason> {
        admission::explain_unsatisfiable(&self.slots, &self.dims, &self.fleet, node, shape, holds)
    }

    /// Whose ceiling limits a resource at a queue, and how high it is.
    pub(crate) fn find_limiting_bound(&self, at: QueueIndex, dim: Dim) -> (Bound, Quantity) {
        admission::find_limiting_bound(&self.slots, &self.dims, &self.fleet, at, dim)
    }
}

/// Charges.
impl QueueTable {
    /// Counts changes of what is charged, and of when that ends.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Charges a queue, and all above it, these amounts so many times; -1 takes them back.
    pub(crate) fn charge_path(&mut self, node: QueueIndex, amounts: &[(Dim, Amount)], times: i64) {
        self.version += 1;
        self.slots[node.index()].charge_own(amounts, times);
        for i in 0..self[node].path.len() {
            let at = self[node].path[i];
            self.slots[at.index()].charge_subtree(amounts, times);
        }
    }

    /// Of what is charged to a queue, so much was expected to end then, and so much is.
    pub(crate) fn replace_ending_amount(
        &mut self,
        node: QueueIndex,
        end: EpochSeconds,
        was: &[(Dim, Amount)],
        is: &[(Dim, Amount)],
    ) {
        self.version += 1;
        self.ends.replace_ending_amount(&self.slots[node.index()].path, end, was, is);
    }

    /// Queues are elsewhere in the tree than when ends were told: they are all told again.
    pub(crate) fn forget_expected_ends(&mut self) {
        self.ends = ExpectedEnds::default();
    }

    /// When this much of what is charged there will have ended, after `now`.
    pub(crate) fn find_time_when_freed(
        &self,
        at: QueueIndex,
        dim: Dim,
        lacks: Amount,
        now: EpochSeconds,
    ) -> Option<EpochSeconds> {
        self.ends.find_time_when_freed(at, dim, lacks, now)
    }

    /// What is charged to a queue and those below it and is not known to end by then. Who should have ended by now and
    /// has not did not say when it will.
    pub(crate) fn held_beyond(&self, at: QueueIndex, dim: Dim, now: EpochSeconds, then: EpochSeconds) -> Amount {
        self[at].used.get(dim) - self.ends.sum_ending_until(at, dim, now, then)
    }

    pub(crate) fn add_mean_used(&mut self, node: QueueIndex, more: &DimAmounts) {
        let slot = &mut self.slots[node.index()];
        slot.mean_used = slot.mean_used.zip(more, Amount::saturating_add);
    }

    pub(crate) fn add_tenant_mean(&mut self, node: QueueIndex, tenant: Dim, more: &DimAmounts) {
        self.slots[node.index()].add_tenant_mean(tenant, more);
    }

    /// Time has passed in which nobody is known to have used anything.
    pub(crate) fn age_means(&mut self, kept: KeptFraction) {
        self.slots.iter_mut().for_each(|slot| slot.age_means(kept));
    }

    /// Brings up to date what queues that exist used lately, and their tenants where they take `turns`.
    pub(crate) fn decay_means(&mut self, kept: KeptFraction, turns: &BTreeMap<QueueIndex, TenantOrder>) {
        for node in self.index.values() {
            let slot = &mut self.slots[node.index()];
            if slot.spec.is_some() {
                slot.decay_means(kept, turns.get(node).copied());
            }
        }
    }
}
