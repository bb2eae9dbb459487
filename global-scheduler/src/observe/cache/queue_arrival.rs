//! Queues that are on their way to members: what was admitted to one waits for it, for a while.
//!
//! Rule (Volcano `pkg/webhooks/admission/jobs/validate/admit_job.go`): a member refuses a job
//! whose queue it does not have, or has and not yet Open. Karmada brings a queue and its first job side by side, and
//! tries what was refused again after a backoff only. So a new part of a gang goes where its queue is Open. After
//! [`WAIT_AT_MOST`] it goes all the same: whoever brings queues to members may not be Karmada, and the refusal is told.
//! Of a member whose queues are not known, or that can not be read, nothing is waited for: nobody would tell. Each
//! Volcano has a queue `root`, and where it is seen all are.

use std::collections::BTreeMap;

use caldera_core::place::Target;
use jiff::{SignedDuration, Timestamp};

use super::{
    super::binding::{Binding, BindingKey},
    Cache,
};

/// How long a queue may take to its members: an inventory that is read from the host is some seconds old.
const WAIT_AT_MOST: SignedDuration = SignedDuration::from_secs(30);
/// The queue that each Volcano makes for itself.
const ROOT: &str = "root";

/// Until when bindings wait for their queue.
#[derive(Debug, Default)]
pub struct QueueArrivals {
    until: BTreeMap<BindingKey, Timestamp>,
}

impl QueueArrivals {
    /// When a wait is over next.
    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.values().filter(|until| **until > now).min().copied()
    }

    /// Those whose wait was over in this time.
    pub(super) fn list_over(&self, after: Timestamp, now: Timestamp) -> Vec<BindingKey> {
        let over = self.until.iter().filter(|(_, until)| **until > after && **until <= now);
        over.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn forget(&mut self, key: &BindingKey) {
        self.until.remove(key);
    }
}

impl Cache {
    /// Whether a decision is not carried out yet, since a member that would get a new part has not got the queue.
    pub fn start_or_check_queue_wait(&mut self, key: &BindingKey, targets: &[Target]) -> bool {
        let lacks = self.bindings.get(key).is_some_and(|binding| {
            let mut new = targets.iter().filter(|target| !binding.place.is_target(&target.cluster));
            new.any(|target| self.lacks_queue(binding, &target.cluster))
        });
        if !lacks {
            self.arrivals.forget(key);
            return false;
        }
        let now = self.deadlines.now;
        *self.arrivals.until.entry(key.clone()).or_insert(now + WAIT_AT_MOST) > now
    }

    /// Whether a member's Volcano would refuse the binding's job for want of its queue.
    fn lacks_queue(&self, binding: &Binding, cluster: &str) -> bool {
        let Some(admission) = binding.admission.as_ref().filter(|_| binding.is_volcano_job()) else { return false };
        let is_down = self.fleet.list_unreadable_clusters().any(|down| down.name == cluster);
        let is_known = self.fleet.member_queue(cluster, ROOT).is_some() && !is_down;
        let queue = self.fleet.member_queue(cluster, admission.queue.as_str());
        is_known && queue.is_none_or(|queue| queue.state.is_empty())
    }
}
