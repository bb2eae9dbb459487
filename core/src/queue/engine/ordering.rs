//! What each queue enters the queue order with under each policy, and when it is entered again.

use std::cmp::Reverse;

use crate::queue::{
    engine::{Engine, JobRank, JobState},
    pending::{
        job_order::{JobId, JobKey, OrderPolicy, Share},
        line::Inadmissible,
        queue_order::{Head, Touch},
    },
    quota::tree::{Node, Slot},
    reservation::ReservationId,
};

impl Engine {
    /// Who goes first from now on; those that wait are put in order anew.
    pub fn set_order_policy(&mut self, policy: OrderPolicy) {
        if self.policy == policy {
            return;
        }
        for (node, shape, _) in self.short_of_quota.iter().collect::<Vec<_>>() {
            self.requeue_shape(node, shape);
        }
        self.policy = policy;
        (self.is_quota_outdated, self.is_tree_outdated) = (true, true);
        let mut jobs = std::mem::take(&mut self.jobs);
        for standing in jobs.values_mut() {
            if let JobState::BackingOff { key, rank, .. } = standing {
                *key = self.job_key(key.id.clone(), key.created, *rank);
            }
            let JobState::Pending { node, key, shape, rank } = standing else { continue };
            self.remove_pending(*node, key);
            *key = self.job_key(key.id.clone(), key.created, *rank);
            self.slots[node.index()].line.insert(key.clone(), *shape);
        }
        self.jobs = jobs;
    }

    /// Who goes first.
    #[must_use]
    pub fn order_policy(&self) -> OrderPolicy {
        self.policy
    }

    pub(crate) fn job_key(&self, id: JobId, created: i64, rank: JobRank) -> JobKey {
        match self.policy {
            OrderPolicy::Fifo => JobKey { priority: Reverse(0), deadline: JobKey::NO_DEADLINE, created, id },
            OrderPolicy::Share | OrderPolicy::Strict => JobKey {
                priority: Reverse(rank.priority),
                deadline: rank.deadline.unwrap_or(JobKey::NO_DEADLINE),
                created,
                id,
            },
        }
    }

    /// The tree was worked out anew.
    pub(crate) fn restart_order(&mut self) {
        let slots = &self.slots;
        let enter = |node: Node| (head(self.policy, &slots[node.index()]), share(self.policy, &slots[node.index()]));
        self.queue_order.restart(slots.len(), |node| &slots[node.index()].children, enter);
    }

    /// The queue whose next job goes first.
    pub(crate) fn first_queue(&mut self) -> Option<Node> {
        while let Some((node, what)) = self.queue_order.touched() {
            let slot = &self.slots[node.index()];
            let share = |node: Node| share(self.policy, &self.slots[node.index()]);
            self.queue_order.enter(&slot.path, head(self.policy, slot), what, share);
        }
        self.queue_order.best()
    }

    /// The next job of a queue may have changed.
    pub(crate) fn refresh_head(&mut self, node: Node) {
        self.queue_order.touch(node, Touch::Head);
        let slot = &self.slots[node.index()];
        // Of a fifo queue only the head counts, whatever it lacks.
        if slot.is_fifo() {
            let cause = slot.line.first_satisfiable().and_then(|(_, shape)| slot.line.inadmissible_cause(shape));
            self.search.insert(node);
            let front = cause.and_then(Inadmissible::cause).map(|cause| ReservationId { cause, queue: node });
            self.reservations.dirty.extend(front);
            self.reservations.dirty.extend(self.reservations.of_queue(node));
        }
    }
}

fn head(policy: OrderPolicy, slot: &Slot) -> Option<Head> {
    let (job, _) = slot.line.next_candidate(slot.spec.as_ref()?.dequeue)?;
    head_of(policy, slot, job)
}

/// What a queue would enter with for this job; `None` if its jobs may not start.
pub(super) fn head_of(policy: OrderPolicy, slot: &Slot, job: &JobKey) -> Option<Head> {
    let spec = slot.spec.as_ref().filter(|_| slot.problem.is_none())?;
    let priority = if policy == OrderPolicy::Fifo { 0 } else { spec.priority };
    Some(Head { priority, job: job.clone() })
}

fn share(policy: OrderPolicy, slot: &Slot) -> Share {
    match policy {
        OrderPolicy::Share => Share::of(&slot.used, &slot.deserved),
        OrderPolicy::Strict | OrderPolicy::Fifo => Share::default(),
    }
}
