//! What each queue enters the queue order with under each policy, and when it is entered again.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    gang::QueueName,
    queue::{
        engine::{Engine, JobRank},
        pending::{
            job_order::{JobId, JobKey, OrderPolicy},
            line::Inadmissible,
            queue_order::{Head, Touch},
            shape_table::ShapeId,
        },
        quota::{
            amount::Amount,
            amounts::{Dim, DimAmounts},
            slot::{QueueIndex, Slot},
            tenant_share::TenantShare,
        },
        reservation::ReservationId,
        spec::Dequeue,
    },
    resources::Resources,
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
        self.rules.set_policy(policy);
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

    /// In how many seconds what queues used counts half, where it counts ([`OrderPolicy::FairHistory`]).
    pub fn set_history_half_life(&mut self, seconds: i64) {
        self.rules.set_half_life(seconds);
    }

    /// What a queue used lately, as it was told when this was last asked of another engine.
    pub fn set_mean_used(&mut self, queue: &QueueName, mean: &Resources) {
        let node = self.intern_queue(queue);
        let mut amounts = DimAmounts::default();
        amounts.add(&self.queues.dims.intern_amounts(mean));
        self.queues.set_mean_used(node, amounts);
        self.queue_order.mark_touched(node, Touch::Share);
    }

    /// What queues that exist used lately, of what they deserve, in four digits; nothing where that does not count.
    #[must_use]
    pub fn mean_used(&self) -> BTreeMap<QueueName, Resources> {
        let slots = self.queues.slots().iter().filter(|slot| slot.spec.is_some() && self.history_half_life().is_some());
        slots.map(|slot| (slot.name.clone(), self.mean_of_slot(slot))).collect()
    }

    /// The same of one queue.
    #[must_use]
    pub fn mean_used_of(&self, queue: &QueueName) -> Option<Resources> {
        self.history_half_life()?;
        let slot = &self.queues[self.queues.find_node(queue)?];
        slot.spec.as_ref().map(|_| self.mean_of_slot(slot))
    }

    fn mean_of_slot(&self, slot: &Slot) -> Resources {
        let shown = |dim: Dim, mean: Amount| self.queues.dims.name_amount(dim, mean.round_to_digits());
        slot.deserved.iter().map(|(dim, _)| shown(*dim, slot.mean_used.get(*dim))).collect()
    }

    /// Seconds after which what queues used counts half; `None` where that does not count.
    #[must_use]
    pub fn history_half_life(&self) -> Option<i64> {
        self.rules.half_life()
    }

    /// Time has passed: what was used longer ago counts less from now on.
    pub(crate) fn decay_mean_usage(&mut self) {
        let Some(kept) = self.rules.decay_until(self.now) else { return };
        self.queues.decay_means(kept);
        self.rebuild_queue_order();
        self.reservations.mark_all_dirty();
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
