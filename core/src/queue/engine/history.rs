//! What queues and their tenants used lately, where that counts (order `fair-history`): told, taken over from another
//! engine, and brought up to date. The rule is in [`crate::queue::quota::history`].

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        engine::Engine,
        pending::queue_order::Touch,
        quota::{
            amount::Amount,
            amounts::{Dim, DimAmounts},
            history::KeptFraction,
            slot::{QueueIndex, Slot},
        },
        tenant_order::TenantOrder,
    },
    resources::{ResourceName, Resources},
    tenant::Tenant,
    time::EpochSeconds,
};

/// What queues used lately, and the tenants of those where they take turns: means in which what is longer ago counts
/// less.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FairHistory {
    /// When they were these.
    pub at: EpochSeconds,
    /// Of what each queue deserves.
    pub queues: BTreeMap<QueueName, Resources>,
    /// Of each queue.
    pub tenants: BTreeMap<QueueName, BTreeMap<Tenant, Resources>>,
}

impl Engine {
    /// In how many seconds what was used counts half, where it counts.
    pub fn set_history_half_life(&mut self, seconds: i64) {
        self.rules.set_half_life(seconds);
    }

    /// Seconds after which what was used counts half; `None` where that does not count.
    #[must_use]
    pub fn history_half_life(&self) -> Option<i64> {
        self.rules.half_life()
    }

    /// What tenants used is not known here: their shares are of what they have now.
    pub fn ignore_tenant_history(&mut self) {
        self.rules.ignore_tenant_history();
    }

    /// Whether what tenants used lately is in their shares.
    #[must_use]
    pub fn counts_tenant_history(&self) -> bool {
        self.rules.counts_tenant_history()
    }

    /// Goes on from what another engine told. Until now nobody used anything since.
    pub fn add_fair_history(&mut self, history: &FairHistory) {
        let kept = self.rules.keep_after(self.now.seconds_since(history.at));
        for (queue, mean) in &history.queues {
            let (node, mean) = (self.intern_queue(queue), self.intern_mean(mean, kept));
            self.queues.add_mean_used(node, &mean);
            self.queue_order.mark_touched(node, Touch::Share);
        }
        for (queue, means) in &history.tenants {
            let node = self.intern_queue(queue);
            for (tenant, mean) in means {
                let (tenant, mean) = (self.queues.dims.intern_tenant(tenant), self.intern_mean(mean, kept));
                self.queues.add_tenant_mean(node, tenant, &mean);
            }
            self.mark_head_changed(node);
            self.pending.schedule_search(node);
        }
    }

    fn intern_mean(&mut self, mean: &Resources, kept: KeptFraction) -> DimAmounts {
        let mut amounts = DimAmounts::default();
        for (dim, mean) in self.queues.dims.intern_amounts(mean).iter() {
            amounts.set(*dim, kept.age_mean(*mean, Amount::ZERO));
        }
        amounts
    }

    /// What was used lately, in four digits; nothing where that does not count. Of tenants those are in it that are
    /// `kept`, which is asked of whoever used the largest share of a queue first.
    #[must_use]
    pub fn fair_history(&self, mut kept: impl FnMut(&QueueName, &Tenant, &Resources) -> bool) -> FairHistory {
        if !self.rules.counts_history() {
            return FairHistory::default();
        }
        let slots = self.queues.slots().iter().filter(|slot| slot.spec.is_some());
        let queues = slots.map(|slot| (slot.name.clone(), self.mean_of_slot(slot))).collect();
        let mut tenants: BTreeMap<QueueName, BTreeMap<Tenant, Resources>> = BTreeMap::new();
        for (queue, tenant, mean) in self.list_tenants_by_mean() {
            if kept(queue, tenant, &mean) {
                tenants.entry(queue.clone()).or_default().insert(tenant.clone(), mean);
            }
        }
        FairHistory { at: self.now, queues, tenants }
    }

    /// What one queue used lately.
    #[must_use]
    pub fn mean_used_of(&self, queue: &QueueName) -> Option<Resources> {
        self.history_half_life()?;
        let slot = &self.queues[self.queues.find_node(queue)?];
        slot.spec.as_ref().map(|_| self.mean_of_slot(slot))
    }

    fn mean_of_slot(&self, slot: &Slot) -> Resources {
        slot.deserved.iter().map(|(dim, _)| self.name_mean(*dim, slot.mean_used.get(*dim))).collect()
    }

    /// What each tenant used lately where they take turns, the largest share of a queue first.
    fn list_tenants_by_mean(&self) -> Vec<(&QueueName, &Tenant, Resources)> {
        let mut all = Vec::new();
        for node in self.queues.nodes() {
            let Some(turns) = self.find_tenant_order(node) else { continue };
            let slot = &self.queues[node];
            let with_history = slot.of_tenants.iter().filter(|(_, charge)| !charge.mean().is_empty());
            for (dim, charge) in with_history.filter(|(dim, _)| turns.counts_tenant(**dim)) {
                let mean = charge.mean().iter().map(|(dim, mean)| self.name_mean(dim, mean)).collect();
                let tenant = self.queues.dims.tenant(*dim);
                all.extend(tenant.map(|tenant| (charge.share_of_mean(&slot.real), &slot.name, tenant, mean)));
            }
        }
        all.sort_by(|a, b| (Reverse(a.0), a.1, a.2).cmp(&(Reverse(b.0), b.1, b.2)));
        all.into_iter().map(|(_, queue, tenant, mean)| (queue, tenant, mean)).collect()
    }

    fn name_mean(&self, dim: Dim, mean: Amount) -> (ResourceName, Quantity) {
        self.queues.dims.name_amount(dim, mean.round_to_digits())
    }

    /// Time has passed: what was used longer ago counts less from now on.
    pub(crate) fn decay_history(&mut self) {
        let Some(kept) = self.rules.decay_until(self.now) else { return };
        let turns: BTreeMap<QueueIndex, TenantOrder> =
            self.queues.nodes().filter_map(|node| Some((node, self.find_tenant_order(node)?))).collect();
        self.queues.decay_means(kept, &turns);
        self.update_after_tenant_decay(&turns);
        self.rebuild_queue_order();
        self.reservations.mark_all_dirty();
    }
}
