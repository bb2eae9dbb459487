//! Which inadmissible jobs are considered again after quota came free.
//!
//! Rule: Kueue's requeue of inadmissible workloads, one job of each queue at a time. Pending jobs that ask for the same are
//! one shape, and a shape that did not fit remembers the ceiling that it would have broken and what must be free there.
//! When quota comes free, the shapes of all queues below are scanned, and of each queue the first in line that has enough
//! is considered again. Whether it was released or did not fit after all, its queue is then scanned for the next one.
//! The decisions are those of considering every job again after every event. `docs/benchmarks.md` says what a scan costs.

use crate::queue::{
    engine::Engine,
    pending::line::{Inadmissible, ShapeId},
    quota::{admission, amounts::Dim, tree::Node},
};

impl Engine {
    /// Considers again, of each queue where quota came free, the first in line that has enough.
    pub(crate) fn requeue_eligible(&mut self) {
        if !self.freed.is_empty() {
            let freed = std::mem::take(&mut self.freed);
            let is_below = |node: &Node| self.slots[node.index()].path.iter().any(|at| freed.contains(at));
            self.rescan.extend(self.index.values().copied().filter(is_below));
        }
        while let Some(node) = self.rescan.pop_first() {
            let first = self.find_first_eligible(node);
            self.slots[node.index()].line.may_have_eligible = first.is_some();
            if let Some(shape) = first {
                self.requeue_shape(node, shape);
            }
        }
    }

    /// The first in line of a queue that was short of quota and has enough now. Of a fifo queue only the head counts.
    fn find_first_eligible(&self, node: Node) -> Option<ShapeId> {
        let slot = &self.slots[node.index()];
        if slot.problem.is_some() {
            return None;
        }
        if slot.is_fifo() {
            let (_, head) = slot.line.first_satisfiable()?;
            return self.has_enough_quota(node, head).then_some(head);
        }
        let eligible = slot.line.inadmissible_shapes().filter(|(_, cause)| self.is_quota_free(*cause));
        eligible.min_by_key(|(shape, _)| slot.line.first_of(*shape)).map(|(shape, _)| shape)
    }

    /// A job of a queue was considered, or left it: others of the queue may still have enough.
    pub(crate) fn rescan_for_more(&mut self, node: Node) {
        if self.slots[node.index()].line.may_have_eligible {
            self.rescan.insert(node);
        }
    }

    /// Ceilings are others than they were: all queues are scanned, and who waits for a queue no longer above is requeued.
    pub(crate) fn rescan_all_queues(&mut self) {
        for (node, shape, (at, _)) in self.short_of_quota() {
            if !self.slots[node.index()].path.contains(&at) {
                self.requeue_shape(node, shape);
            }
        }
        self.freed.clear();
        self.rescan = self.index.values().copied().collect();
    }

    /// Every shape that a ceiling makes wait, with its queue and the ceiling.
    pub(crate) fn short_of_quota(&self) -> Vec<(Node, ShapeId, (Node, Dim))> {
        let of_queue = |node: &Node| {
            let node = *node;
            self.slots[node.index()].line.inadmissible_shapes().filter_map(move |(shape, cause)| match cause {
                Inadmissible::Quota(at, dim, _) | Inadmissible::Reserved(at, dim, _) => Some((node, shape, (at, dim))),
                Inadmissible::BehindReservation(_) | Inadmissible::Capacity | Inadmissible::Never => None,
            })
        };
        self.index.values().flat_map(of_queue).collect()
    }

    /// Whether the ceiling that makes a shape wait has as much free as it needs.
    pub(crate) fn has_enough_quota(&self, node: Node, shape: ShapeId) -> bool {
        self.slots[node.index()].line.inadmissible_cause(shape).is_some_and(|cause| self.is_quota_free(cause))
    }

    fn is_quota_free(&self, cause: Inadmissible) -> bool {
        match cause {
            Inadmissible::Quota(at, dim, needed) | Inadmissible::Reserved(at, dim, needed) => {
                admission::free_quota(&self.slots[at.index()], dim).is_none_or(|free| needed <= free)
            }
            Inadmissible::BehindReservation(_) | Inadmissible::Capacity | Inadmissible::Never => false,
        }
    }
}
