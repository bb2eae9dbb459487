//! What each queue enters the queue order with under each policy, and when it is entered again.

use std::cmp::Reverse;

use crate::{
    queue::{
        engine::{Engine, JobRank},
        pending::{
            inadmissible::Inadmissible,
            job_order::{JobId, JobKey, OrderPolicy},
            queue_order::{Head, Touch},
            shape_table::ShapeId,
        },
        quota::{slot::QueueIndex, tenant_share::TenantShare},
        reservation::ReservationId,
        spec::Dequeue,
    },
    time::SubmitTime,
};

impl Engine {
    /// Who goes first from now on; those that wait are put in order anew.
    pub fn set_order_policy(&mut self, policy: OrderPolicy) {
        if self.rules.policy() == policy {
            return;
        }
        for (node, shape, _) in self.pending.list_short_of_quota().collect::<Vec<_>>() {
            self.requeue_shape(node, shape);
        }
        if let Some(kept) = self.rules.set_policy(policy, self.now) {
            self.queues.age_means(kept);
        }
        self.queues.mark_tree_outdated();
        let mut jobs = std::mem::take(&mut self.jobs);
        for (node, rank, key, shape) in jobs.keys_mut() {
            let new = self.job_key(node, key.id.clone(), key.created, rank);
            if let Some(shape) = shape {
                self.remove_pending(node, key);
                self.pending.insert_job(node, new.clone(), shape, &self.shapes[shape].tenants);
            }
            *key = new;
        }
        self.jobs = jobs;
    }

    /// Who goes first.
    #[must_use]
    pub fn order_policy(&self) -> OrderPolicy {
        self.rules.policy()
    }

    pub(crate) fn job_key(&self, node: QueueIndex, id: JobId, created: SubmitTime, rank: JobRank) -> JobKey {
        match self.rules.policy() {
            OrderPolicy::Fifo => JobKey { priority: Reverse(0), deadline: JobKey::NO_DEADLINE, created, id },
            OrderPolicy::Share | OrderPolicy::FairHistory | OrderPolicy::Strict => JobKey {
                priority: Reverse(rank.priority.saturating_add(self.compute_aging_points(node, created))),
                deadline: rank.deadline.unwrap_or(JobKey::NO_DEADLINE),
                created,
                id,
            },
        }
    }

    /// The tree was worked out anew.
    pub(crate) fn rebuild_queue_order(&mut self) {
        let mut order = std::mem::take(&mut self.queue_order);
        let enter = |node: QueueIndex| (self.next_head(node), self.rules.share_of(&self.queues[node]));
        order.rebuild_order(self.queues.len(), |node| &self.queues[node].children, enter);
        self.queue_order = order;
    }

    /// The queue whose next job goes first.
    pub(crate) fn find_first_queue(&mut self) -> Option<QueueIndex> {
        while let Some((node, what)) = self.queue_order.take_touched() {
            let head = self.next_head(node);
            let share = |node: QueueIndex| self.rules.share_of(&self.queues[node]);
            self.queue_order.reenter_queue(&self.queues[node].path, head, what, share);
        }
        self.queue_order.find_next_leaf()
    }

    /// What a queue enters with.
    fn next_head(&self, node: QueueIndex) -> Option<Head> {
        let (job, shape) = self.find_first_candidate(node)?;
        self.make_head(node, job, shape)
    }

    /// The job of a queue to look at next, before any that has a reservation.
    pub(crate) fn find_first_candidate(&self, node: QueueIndex) -> Option<(&JobKey, ShapeId)> {
        let (slot, line) = (&self.queues[node], &self.pending[node]);
        match self.find_tenant_order(node) {
            Some(order) => line.find_next_by_share(|tenants| self.share_of_tenants(order, node, tenants)),
            None => line.find_next_candidate(slot.spec.as_ref().map_or(Dequeue::Traverse, |spec| spec.dequeue)),
        }
    }

    /// What a queue would enter with for this job; `None` if its jobs may not start.
    pub(super) fn make_head(&self, node: QueueIndex, job: &JobKey, shape: ShapeId) -> Option<Head> {
        let slot = &self.queues[node];
        let spec = slot.spec.as_ref().filter(|_| slot.problem.is_none())?;
        let priority = self.rules.queue_priority(spec.priority);
        let order = self.find_tenant_order(node);
        let share = order.map_or(TenantShare::NOTHING, |order| self.tenant_share(order, node, shape));
        Some(Head { priority, share, job: job.clone() })
    }

    /// The next job of a queue may have changed.
    pub(crate) fn mark_head_changed(&mut self, node: QueueIndex) {
        self.queue_order.mark_touched(node, Touch::Head);
        let (slot, line) = (&self.queues[node], &self.pending[node]);
        // Of a fifo queue only the head counts, whatever it lacks.
        if slot.is_fifo() {
            let causes = line.list_head_entries().filter_map(|(_, shape)| line.inadmissible_cause(shape));
            let front =
                causes.filter_map(Inadmissible::reservation_cause).map(|cause| ReservationId { cause, queue: node });
            self.reservations.dirty.extend(front);
            self.reservations.dirty.extend(self.reservations.of_queue(node));
            self.pending.schedule_search(node);
        }
    }
}
