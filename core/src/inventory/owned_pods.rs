//! What a workload's pods on nodes amount to: how many have ended, and what the others hold.

use std::sync::Arc;

use super::Amounts;

/// Pods of a workload (or task) that reached a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenPods {
    /// Bound and not finished.
    pub bound: u32,
    /// Succeeded or failed.
    pub finished: u32,
}

impl SeenPods {
    pub(super) const fn count_mut(&mut self, finished: bool) -> &mut u32 {
        if finished { &mut self.finished } else { &mut self.bound }
    }
}

/// The pods of a workload (or task) that reached a node, and what those hold that are bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnedPods {
    pub(super) seen: SeenPods,
    pub(super) held: Arc<Amounts>,
}
