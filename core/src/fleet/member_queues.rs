//! A member's own Volcano queues, as far as they bound what may start there.
//!
//! Rule (Volcano `pkg/scheduler/plugins/capacity`): nothing new starts in a queue that is Closed or Closing (its webhook
//! refuses jobs for it), nor beyond its capability; a resource that the capability does not name is not bounded. A queue
//! that is not there bounds nothing: whoever brings the job may bring the queue.

use std::collections::BTreeMap;

use super::Fleet;
use crate::resources::{Limits, Resources};

/// Queues by name.
pub type Queues = BTreeMap<String, Queue>;

/// A queue of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// As in its status, empty before its controller has seen it.
    pub state: String,
    /// The most that its pods may hold, of what is bounded.
    pub capability: Limits,
    /// What they hold of that.
    pub allocated: Resources,
}

impl Queue {
    /// Whether nothing new starts in it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state.as_str(), "Closed" | "Closing")
    }

    /// What more its pods may hold, of what is bounded.
    #[must_use]
    pub fn left(&self) -> Limits {
        let mut left = Limits::unlimited();
        for (name, most) in self.capability.iter() {
            left.set(name.clone(), most.saturating_sub(self.allocated.get(name.as_str())));
        }
        left
    }
}

impl Fleet {
    /// A queue of a cluster's own Volcano, where it was seen.
    #[must_use]
    pub fn queue(&self, cluster: &str, queue: &str) -> Option<&Queue> {
        self.members.get(cluster)?.queues.get(queue)
    }
}
