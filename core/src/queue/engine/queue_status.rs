//! What a queue is entitled to and what it has, for its status and for preemption.

use crate::{
    gang::QueueName,
    queue::{
        engine::Engine,
        quota::{
            amount::Amount,
            faults::{QueueFault, find_faults},
        },
    },
    resources::Resources,
};

/// A queue's amounts as they count, after everything above it and beside it. Nothing for a queue without a place in the
/// tree, except what it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entitlement {
    /// Kept free for it and all below.
    pub guarantee: Resources,
    /// What it may take back up to. Said by it, or its part by weight.
    pub deserved: Resources,
    /// The most it can have: its capability, what is above, what others' guarantees leave.
    pub real: Resources,
    /// Charged, with all queues below.
    pub used: Resources,
    /// Used beyond what it deserves, of the resources of which it deserves anything; all of it if it deserves nothing.
    pub borrowed: Resources,
}

/// Questions about a queue's amounts. They answer for the state after the last [`Engine::release_next_by_fit`] or
/// [`Engine::resolve_quota`].
impl Engine {
    /// What a queue is entitled to, and what it has.
    #[must_use]
    pub fn entitlement_of(&self, queue: &QueueName) -> Entitlement {
        let Some(node) = self.queues.find_node(queue) else { return Entitlement::default() };
        let slot = &self.queues[node];
        let shown = |dim, amount| self.queues.dims.name_amount(dim, amount);
        let deserved = || slot.deserved.iter().copied();
        let over =
            deserved().map(|(dim, amount)| shown(dim, (slot.used.get(dim) - amount).max(Amount::ZERO))).collect();
        let used = slot.used.resources(&self.queues.dims);
        Entitlement {
            guarantee: slot.guarantee.resources(&self.queues.dims),
            deserved: deserved().map(|(dim, amount)| shown(dim, amount)).collect(),
            real: slot.real.iter().map(|(dim, amount)| shown(dim, amount)).collect(),
            borrowed: if slot.deserved.is_empty() { used.clone() } else { over },
            used,
        }
    }

    /// Whether jobs of this queue itself, not of those below, hold anything.
    #[must_use]
    pub fn holds_own_charge(&self, queue: &QueueName) -> bool {
        self.queues.find_node(queue).is_some_and(|node| !self.queues[node].own.resources(&self.queues.dims).is_empty())
    }

    /// What is wrong with a queue's amounts, and what counts instead.
    #[must_use]
    pub fn queue_faults(&self, queue: &QueueName) -> Vec<QueueFault> {
        self.queues
            .find_node(queue)
            .map_or_else(Vec::new, |node| find_faults(self.queues.slots(), &self.queues.dims, node))
    }
}
