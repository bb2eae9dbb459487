//! By which rules jobs and queues go before each other: the policy, and what of the past it looks at.

use crate::{
    queue::{
        pending::job_order::{DominantShare, OrderPolicy},
        quota::{
            history::{Decay, KeptFraction},
            slot::Slot,
        },
    },
    time::EpochSeconds,
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderRules {
    policy: OrderPolicy,
    decay: Decay,
    /// When history counted last, if it does no more.
    counted_until: Option<EpochSeconds>,
    /// What tenants used lately is not known.
    ignores_tenant_history: bool,
}

impl OrderRules {
    pub(crate) const fn policy(&self) -> OrderPolicy {
        self.policy
    }

    /// Has another policy count from now on. The part of what was used before that still counts, where it did not count
    /// for a while: what was used meanwhile nobody knows.
    pub(crate) fn set_policy(&mut self, policy: OrderPolicy, now: EpochSeconds) -> Option<KeptFraction> {
        if self.counts_history() {
            self.counted_until = Some(now);
        }
        self.policy = policy;
        self.decay = Decay::new(self.decay.half_life());
        let until = self.counted_until.take_if(|_| policy == OrderPolicy::FairHistory)?;
        Some(self.keep_after(now.seconds_since(until)))
    }

    /// Whether age alone counts.
    pub(crate) fn is_fifo(&self) -> bool {
        self.policy == OrderPolicy::Fifo
    }

    /// Whether what was used lately counts.
    pub(crate) fn counts_history(&self) -> bool {
        self.policy == OrderPolicy::FairHistory
    }

    /// Whether what tenants used lately counts among those of a queue.
    pub(crate) fn counts_tenant_history(&self) -> bool {
        self.counts_history() && !self.ignores_tenant_history
    }

    pub(crate) fn ignore_tenant_history(&mut self) {
        self.ignores_tenant_history = true;
    }

    /// The part of what was used so many seconds ago that still counts.
    pub(crate) fn keep_after(&self, seconds: i64) -> KeptFraction {
        self.decay.keep_after(seconds)
    }

    /// The priority of a queue that says this one.
    pub(crate) fn queue_priority(&self, said: i32) -> i32 {
        if self.is_fifo() { 0 } else { said }
    }

    pub(crate) fn share_of(&self, slot: &Slot) -> DominantShare {
        match self.policy {
            OrderPolicy::Share => DominantShare::of_usage(&slot.used, &slot.deserved),
            // What it has now counts as much as what it had: else one queue would be given all that comes free in a
            // tick.
            OrderPolicy::FairHistory => {
                DominantShare::of_usage(&slot.used.zip(&slot.mean_used, |now, mean| now.midpoint(mean)), &slot.deserved)
            }
            OrderPolicy::Strict | OrderPolicy::Fifo => DominantShare::default(),
        }
    }

    /// Sets after how many seconds what queues used counts half, where it counts.
    pub(crate) fn set_half_life(&mut self, seconds: i64) {
        if self.decay.half_life() != seconds {
            self.decay = Decay::new(seconds);
        }
    }

    /// Seconds after which what queues used counts half; `None` where that does not count.
    pub(crate) fn half_life(&self) -> Option<i64> {
        self.counts_history().then(|| self.decay.half_life())
    }

    /// The part of what queues used that still counts after the ticks up to `now`; `None` if it is all, or if that does
    /// not count.
    pub(crate) fn decay_until(&mut self, now: EpochSeconds) -> Option<KeptFraction> {
        if self.counts_history() { self.decay.advance_to(now) } else { None }
    }
}
