//! Which inadmissible jobs are considered again after quota came free.
//!
//! Rule: Kueue's requeue of inadmissible workloads, one job at a time. Pending jobs that ask for the same are one
//! shape, and a shape that did not fit remembers the ceiling that it would have broken and how much must be free there.
//! [`ShortOfQuota`] has the shapes by that. When quota comes free at a ceiling, of all queues of which a shape needs no
//! more than is free there the first such job in order is considered again, and then the first of those that still have
//! enough: what the first one took, nobody looks for. The decisions are those of considering every job again after
//! every event.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use crate::queue::{
    engine::Engine,
    pending::{line::Inadmissible, queue_order::Head, shape_table::ShapeId},
    quota::{admission, amounts::Dim, queue_table::QueueTable, slot::QueueIndex},
};

/// So often the eligible jobs are compared after quota came free: if it is enough for more of them, it is cheaper to
/// consider the first of every queue.
const COMPARISONS: usize = if cfg!(test) { 2 } else { 64 };

/// An inadmissible shape that has enough quota, with its first job and what must be free for it.
#[derive(Debug, Clone)]
pub(crate) struct Eligible {
    pub(crate) shape: ShapeId,
    head: Head,
    needed: (QueueIndex, Dim, i128),
}

/// A resource at a ceiling, and the queue whose jobs lack it.
type Ceiling = (QueueIndex, QueueIndex, Dim);

/// Shapes by the ceiling that they would break, and by how much must be free there.
type ByCeiling = BTreeMap<Ceiling, BTreeSet<(i128, ShapeId)>>;

/// The shapes that lack quota.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShortOfQuota {
    /// Those that may have enough when quota comes free.
    waiting: ByCeiling,
    /// Those that need more than the whole ceiling: nothing that comes free helps them, and they are looked at once
    /// ceilings change. Tenants make up names of resources, of which every ceiling is nothing.
    beyond: ByCeiling,
}

impl ShortOfQuota {
    fn insert(&mut self, queues: &QueueTable, queue: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        if let Some((at, dim, needed)) = cause.needed_quota() {
            let ceiling = admission::find_ceiling(&queues[at], dim);
            let is_beyond = ceiling.is_some_and(|ceiling| needed > ceiling);
            let shapes = if is_beyond { &mut self.beyond } else { &mut self.waiting };
            shapes.entry((at, queue, dim)).or_default().insert((needed, shape));
        }
    }

    fn remove(&mut self, queue: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        let Some((at, dim, needed)) = cause.needed_quota() else { return };
        for shapes in [&mut self.waiting, &mut self.beyond] {
            if let Some(by_need) = shapes.get_mut(&(at, queue, dim))
                && by_need.remove(&(needed, shape))
                && by_need.is_empty()
            {
                shapes.remove(&(at, queue, dim));
            }
        }
    }

    /// Every shape, with its queue and the ceiling.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (QueueIndex, ShapeId, (QueueIndex, Dim))> {
        self.waiting
            .iter()
            .chain(&self.beyond)
            .flat_map(|((at, queue, dim), by_need)| by_need.iter().map(|(_, shape)| (*queue, *shape, (*at, *dim))))
    }

    /// Those of these queues of which a shape needs no more than is free at this ceiling.
    pub(crate) fn queues_with_enough(
        &self,
        table: &QueueTable,
        at: QueueIndex,
        queues: RangeInclusive<QueueIndex>,
    ) -> impl Iterator<Item = QueueIndex> {
        let short = self.waiting.range((at, *queues.start(), Dim::FIRST)..=(at, *queues.end(), Dim::LAST));
        let enough = short.filter(move |((_, _, dim), by_need)| {
            by_need.first().is_some_and(|(least, _)| table.has_free_quota((at, *dim, *least)))
        });
        enough.map(|((_, queue, _), _)| *queue)
    }
}

impl Engine {
    /// A shape becomes inadmissible.
    pub(crate) fn set_inadmissible(&mut self, node: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        self.lines[node.index()].mark_inadmissible(shape, cause);
        self.short_of_quota.insert(&self.queues, node, shape, cause);
    }

    /// It is inadmissible no more; what it lacked, if it was.
    pub(crate) fn set_admissible(&mut self, node: QueueIndex, shape: ShapeId) -> Option<Inadmissible> {
        let cause = self.lines[node.index()].requeue_shape(shape)?;
        self.short_of_quota.remove(node, shape, cause);
        if self.eligible.get(&node).is_some_and(|job| job.shape == shape) {
            self.search.insert(node);
        }
        Some(cause)
    }

    /// Considers again the first in order of those that have enough quota, unless an admissible job goes before it.
    pub(crate) fn requeue_eligible(&mut self) {
        if !self.freed.is_empty() {
            self.comparisons = 0;
        }
        for at in std::mem::take(&mut self.freed) {
            self.search.extend(self.short_of_quota.queues_with_enough(
                &self.queues,
                at,
                QueueIndex::ROOT..=QueueIndex::LAST,
            ));
        }
        let mut search = std::mem::take(&mut self.search);
        search.extend(
            self.eligible.iter().filter(|(_, job)| !self.queues.has_free_quota(job.needed)).map(|(node, _)| *node),
        );
        for node in search {
            match self.find_first_eligible(node) {
                Some(job) => drop(self.eligible.insert(node, job)),
                None => drop(self.eligible.remove(&node)),
            }
        }
        if self.eligible.len() < 2 || self.comparisons >= COMPARISONS {
            let all = std::mem::take(&mut self.eligible);
            return all.into_iter().for_each(|(node, job)| self.requeue_shape(node, job.shape));
        }
        self.comparisons += 1;
        let next = self.find_first_queue().and_then(|node| Some((node, self.queue_order.find_best_head_below(node)?)));
        let path = |node: QueueIndex| &*self.queues[node].path;
        let compare = |a: (QueueIndex, &Head), b: (QueueIndex, &Head)| {
            self.queue_order.compare_jobs((path(a.0), a.1), (path(b.0), b.1))
        };
        let first = self.eligible.iter().map(|(node, job)| (*node, &job.head)).min_by(|a, b| compare(*a, *b));
        let first = first.filter(|first| next.is_none_or(|next| compare(*first, next).is_lt()));
        if let Some(node) = first.map(|(node, _)| node)
            && let Some(job) = self.eligible.remove(&node)
        {
            self.requeue_shape(node, job.shape);
        }
    }

    /// The first in line of a queue that was short of quota and has enough now. Of a fifo queue only the head counts.
    pub(crate) fn find_first_eligible(&self, node: QueueIndex) -> Option<Eligible> {
        let (slot, line) = (&self.queues[node], &self.lines[node.index()]);
        let mut enough =
            slot.path.iter().flat_map(|at| self.short_of_quota.queues_with_enough(&self.queues, *at, node..=node));
        enough.next()?;
        let needed = |shape| {
            let needed = line.inadmissible_cause(shape).and_then(Inadmissible::needed_quota);
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
        for (node, shape, (at, _)) in self.short_of_quota.iter().collect::<Vec<_>>() {
            let cause = self.lines[node.index()].inadmissible_cause(shape);
            if !self.queues[node].path.contains(&at) {
                self.requeue_shape(node, shape);
            } else if let Some(cause) = cause {
                self.short_of_quota.remove(node, shape, cause);
                self.short_of_quota.insert(&self.queues, node, shape, cause);
            }
        }
        self.freed.clear();
        self.eligible.clear();
        self.comparisons = 0;
        self.search = self.queues.nodes().collect();
    }

    /// Whether the ceiling that makes a shape wait has as much free as it needs.
    pub(crate) fn has_enough_quota(&self, node: QueueIndex, shape: ShapeId) -> bool {
        let cause = self.lines[node.index()].inadmissible_cause(shape);
        cause.and_then(Inadmissible::needed_quota).is_some_and(|needed| self.queues.has_free_quota(needed))
    }
}
