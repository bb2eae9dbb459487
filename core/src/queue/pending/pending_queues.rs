//! The lines of all queues, and the search for their inadmissible jobs that have enough quota again.
//!
//! A shape that lacks quota is in [`ShortOfQuota`] as long as its line says so. The rule of the search is told where it
//! is made, by the engine's `requeue`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Index,
};

use crate::queue::{
    pending::{
        inadmissible::Inadmissible, job_order::JobKey, line::PendingLine, queue_order::Head, shape_table::ShapeId,
        short_of_quota::ShortOfQuota,
    },
    quota::{amount::Amount, amounts::Dim, queue_table::QueueTable, slot::QueueIndex},
};

/// So often the eligible jobs are compared after quota came free: if it is enough for more of them, it is cheaper to
/// consider the first of every queue.
const COMPARISONS: usize = if cfg!(test) { 2 } else { 64 };

/// An inadmissible shape that has enough quota, with its first job and what must be free for it.
#[derive(Debug, Clone)]
pub(crate) struct Eligible {
    pub(crate) shape: ShapeId,
    pub(crate) head: Head,
    pub(crate) needed: (QueueIndex, Dim, Amount),
}

/// See the module. The index is a queue, of which it gives the line.
#[derive(Debug, Clone)]
pub(crate) struct PendingQueues {
    lines: Vec<PendingLine>,
    short_of_quota: ShortOfQuota,
    /// Queues where quota came free.
    freed: BTreeSet<QueueIndex>,
    /// Queues of which another inadmissible job may have enough quota now.
    search: BTreeSet<QueueIndex>,
    /// By queue, the first inadmissible job that has enough quota.
    eligible: BTreeMap<QueueIndex, Eligible>,
    /// How often they were compared since quota came free.
    comparisons: usize,
}

impl Default for PendingQueues {
    /// The root has a line.
    fn default() -> Self {
        Self {
            lines: vec![PendingLine::default()],
            short_of_quota: ShortOfQuota::default(),
            freed: BTreeSet::new(),
            search: BTreeSet::new(),
            eligible: BTreeMap::new(),
            comparisons: 0,
        }
    }
}

impl Index<QueueIndex> for PendingQueues {
    type Output = PendingLine;

    fn index(&self, node: QueueIndex) -> &PendingLine {
        &self.lines[node.index()]
    }
}

/// Lines.
impl PendingQueues {
    /// A queue has a place in the table of queues from now on.
    pub(crate) fn add_line(&mut self, node: QueueIndex) {
        match self.lines.get_mut(node.index()) {
            Some(old) => *old = PendingLine::default(),
            None => self.lines.push(PendingLine::default()),
        }
    }

    pub(crate) fn insert_job(&mut self, node: QueueIndex, key: JobKey, shape: ShapeId, tenants: &[Dim]) {
        self.lines[node.index()].insert(key, shape, tenants);
    }

    /// Takes a job out of line. A shape whose last job it is must not be inadmissible.
    pub(crate) fn remove_job(&mut self, node: QueueIndex, key: &JobKey) {
        self.lines[node.index()].remove(key);
        self.search.insert(node);
    }

    /// A shape becomes inadmissible.
    pub(crate) fn set_inadmissible(
        &mut self,
        table: &QueueTable,
        node: QueueIndex,
        shape: ShapeId,
        cause: Inadmissible,
    ) {
        self.lines[node.index()].mark_inadmissible(shape, cause);
        self.short_of_quota.insert(table, node, shape, cause);
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

    /// Whether an inadmissible shape can ever start.
    pub(crate) fn set_unsatisfiable(&mut self, node: QueueIndex, shape: ShapeId, unsatisfiable: bool) {
        self.lines[node.index()].set_unsatisfiable(shape, unsatisfiable);
    }

    /// Every shape that lacks quota, with its queue and the ceiling.
    pub(crate) fn list_short_of_quota(&self) -> impl Iterator<Item = (QueueIndex, ShapeId, (QueueIndex, Dim))> {
        self.short_of_quota.iter()
    }

    /// Whether the ceiling that makes a shape wait has as much free as it needs.
    pub(crate) fn has_enough_quota(&self, table: &QueueTable, node: QueueIndex, shape: ShapeId) -> bool {
        let cause = self[node].inadmissible_cause(shape);
        cause.and_then(Inadmissible::find_missing_quota).is_some_and(|needed| table.has_free_quota(needed))
    }
}

/// The search for those who have enough quota again.
impl PendingQueues {
    /// Another inadmissible job of a queue may have enough now.
    pub(crate) fn schedule_search(&mut self, node: QueueIndex) {
        self.search.insert(node);
    }

    /// Quota came free at these queues.
    pub(crate) fn note_freed(&mut self, path: &[QueueIndex]) {
        self.freed.extend(path);
    }

    /// The queues to be searched now: of each the first inadmissible job that has enough is to be set.
    pub(crate) fn take_search(&mut self, table: &QueueTable) -> BTreeSet<QueueIndex> {
        if !self.freed.is_empty() {
            self.comparisons = 0;
        }
        let mut search = std::mem::take(&mut self.search);
        for at in std::mem::take(&mut self.freed) {
            let all = QueueIndex::ROOT..=QueueIndex::LAST;
            search.extend(self.short_of_quota.queues_with_enough(table, at, all));
        }
        search.extend(self.eligible.iter().filter(|(_, job)| !table.has_free_quota(job.needed)).map(|(node, _)| *node));
        search
    }

    pub(crate) fn set_eligible(&mut self, node: QueueIndex, job: Option<Eligible>) {
        match job {
            Some(job) => drop(self.eligible.insert(node, job)),
            None => drop(self.eligible.remove(&node)),
        }
    }

    /// Whether one of a queue's shapes that lack quota may have enough now.
    pub(crate) fn may_have_enough(&self, table: &QueueTable, node: QueueIndex) -> bool {
        let with_enough = |at: &QueueIndex| self.short_of_quota.queues_with_enough(table, *at, node..=node).next();
        table[node].path.iter().any(|at| with_enough(at).is_some())
    }

    /// The eligible job of each queue, to be compared.
    pub(crate) fn list_eligible(&self) -> impl Iterator<Item = (QueueIndex, &Head)> {
        self.eligible.iter().map(|(node, job)| (*node, &job.head))
    }

    pub(crate) fn take_eligible(&mut self, node: QueueIndex) -> Option<Eligible> {
        self.eligible.remove(&node)
    }

    /// All of them, where it is cheaper to consider them than to compare them once more; else that counts.
    pub(crate) fn take_all_eligible(&mut self) -> Option<BTreeMap<QueueIndex, Eligible>> {
        if self.eligible.len() < 2 || self.comparisons >= COMPARISONS {
            return Some(std::mem::take(&mut self.eligible));
        }
        self.comparisons += 1;
        None
    }

    /// Ceilings are others than they were: all queues are to be searched.
    pub(crate) fn restart_search(&mut self, table: &QueueTable) {
        for (node, shape, _) in self.short_of_quota.iter().collect::<Vec<_>>() {
            if let Some(cause) = self[node].inadmissible_cause(shape) {
                self.short_of_quota.remove(node, shape, cause);
                self.short_of_quota.insert(table, node, shape, cause);
            }
        }
        self.freed.clear();
        self.eligible.clear();
        self.comparisons = 0;
        self.search = table.nodes().collect();
    }

    /// The queues that are searched next because quota came free, or for another reason.
    #[cfg(test)]
    pub(crate) fn list_search(&self, table: &QueueTable) -> BTreeSet<QueueIndex> {
        let all = || QueueIndex::ROOT..=QueueIndex::LAST;
        let freed = self.freed.iter().flat_map(|at| self.short_of_quota.queues_with_enough(table, *at, all()));
        freed.chain(self.search.iter().copied()).collect()
    }

    #[cfg(test)]
    pub(crate) fn eligible(&self, node: QueueIndex) -> Option<&Eligible> {
        self.eligible.get(&node)
    }
}
