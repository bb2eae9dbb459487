//! Which inadmissible jobs are considered again after quota came free.
//!
//! Rule: Kueue's requeue of inadmissible workloads, one job at a time. Pending jobs that ask for the same are one
//! shape, and a shape that did not fit remembers the ceiling that it would have broken and how much must be free there
//! ([`crate::queue::pending::short_of_quota`]). When quota comes free at a ceiling, of all queues of which a shape
//! needs no more than is free there the first such job in order is considered again, and then the first of those that
//! still have enough: what the first one took, nobody looks for. The decisions are those of considering every job again
//! after every event.

use crate::queue::{
    engine::Engine,
    pending::{inadmissible::Inadmissible, pending_queues::Eligible, queue_order::Head},
    quota::slot::QueueIndex,
};

impl Engine {
    /// Considers again the first in order of those that have enough quota, unless an admissible job goes before it.
    pub(crate) fn requeue_eligible(&mut self) {
        for node in self.pending.take_search(&self.queues) {
            let first = self.find_first_eligible(node);
            self.pending.set_eligible(node, first);
        }
        if let Some(all) = self.pending.take_all_eligible() {
            return all.into_iter().for_each(|(node, job)| self.requeue_shape(node, job.shape));
        }
        let next = self.find_first_queue().and_then(|node| Some((node, self.queue_order.find_best_head_below(node)?)));
        let path = |node: QueueIndex| &*self.queues[node].path;
        let compare = |a: (QueueIndex, &Head), b: (QueueIndex, &Head)| {
            self.queue_order.compare_jobs((path(a.0), a.1), (path(b.0), b.1))
        };
        let first = self.pending.list_eligible().min_by(|a, b| compare(*a, *b));
        let first = first.filter(|first| next.is_none_or(|next| compare(*first, next).is_lt()));
        if let Some(node) = first.map(|(node, _)| node)
            && let Some(job) = self.pending.take_eligible(node)
        {
            self.requeue_shape(node, job.shape);
        }
    }

    /// The first in line of a queue that was short of quota and has enough now. Of a fifo queue only the head counts.
    pub(crate) fn find_first_eligible(&self, node: QueueIndex) -> Option<Eligible> {
        let (slot, line) = (&self.queues[node], &self.pending[node]);
        if !self.pending.may_have_enough(&self.queues, node) {
            return None;
        }
        let needed = |shape| {
            let needed = line.inadmissible_cause(shape).and_then(Inadmissible::find_missing_quota);
            needed.filter(|needed| self.queues.has_free_quota(*needed))
        };
        let (job, shape, needed) = if let Some(order) = self.find_tenant_order(node) {
            let firsts = line.list_first_inadmissible_jobs_by_tenants().filter_map(|(tenants, firsts)| {
                let first = firsts.iter().find_map(|(job, shape)| Some((job, *shape, needed(*shape)?)));
                let (job, shape, needed) = first?;
                Some(((job.priority, self.share_of_tenants(order, node, tenants), job), shape, needed))
            });
            let ((.., job), shape, needed) = firsts.min_by(|a, b| a.0.cmp(&b.0))?;
            (job, shape, needed)
        } else if slot.is_fifo() {
            line.list_head_entries().find_map(|(job, shape)| Some((job, shape, needed(shape)?)))?
        } else {
            line.list_first_inadmissible_jobs().find_map(|(job, shape)| Some((job, *shape, needed(*shape)?)))?
        };
        Some(Eligible { shape, head: self.make_head(node, job, shape)?, needed })
    }

    /// Ceilings are others than they were: all queues are searched, and who waits for a queue no longer above is
    /// requeued.
    pub(crate) fn schedule_full_search(&mut self) {
        for (node, shape, (at, _)) in self.pending.list_short_of_quota().collect::<Vec<_>>() {
            if !self.queues[node].path.contains(&at) {
                self.requeue_shape(node, shape);
            }
        }
        self.pending.restart_search(&self.queues);
    }
}
