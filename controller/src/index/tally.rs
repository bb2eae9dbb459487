//! PodGroups of each queue by phase, kept up to date one binding at a time: a sweep over all of them would hold up
//! whatever was freed meanwhile.

use std::collections::BTreeMap;

use caldera_core::{gang::QueueName, queue::ledger::Stage, reason::QueueProblem};

use super::{Index, State};
use crate::{
    facts::{Key, QueueNumbers},
    podgroup,
};

/// Counts by queue and phase.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    by_queue: BTreeMap<QueueName, QueueNumbers>,
    counted: BTreeMap<Key, (QueueName, &'static str)>,
}

impl Tally {
    /// Counts a binding, and tells the queues that have jobs from now on, or none any more.
    fn count(&mut self, key: &Key, now: Option<(QueueName, &'static str)>) -> Vec<QueueName> {
        let mut turned = Vec::new();
        let before = match &now {
            Some(now) if self.counted.get(key) == Some(now) => return turned,
            Some(now) => self.counted.insert(key.clone(), now.clone()),
            None => self.counted.remove(key),
        };
        for (counted, by) in [(before, -1), (now, 1)] {
            let Some((queue, phase)) = counted else { continue };
            let numbers = self.by_queue.entry(queue.clone()).or_default();
            let had = is_used(numbers);
            *phase_of(numbers, phase) += by;
            let has = is_used(numbers);
            if *numbers == QueueNumbers::default() {
                self.by_queue.remove(&queue);
            }
            if had != has {
                turned.push(queue);
            }
        }
        turned
    }
}

/// Somebody waits or runs.
const fn is_used(numbers: &QueueNumbers) -> bool {
    numbers.pending + numbers.inqueue + numbers.running > 0
}

fn phase_of<'a>(numbers: &'a mut QueueNumbers, phase: &str) -> &'a mut i32 {
    match phase {
        "Pending" => &mut numbers.pending,
        "Inqueue" => &mut numbers.inqueue,
        "Running" => &mut numbers.running,
        _ => &mut numbers.completed,
    }
}

impl Index {
    /// Counts a binding where it stands now.
    pub(crate) fn recount(&mut self, key: &Key) {
        let now = self.counts_as(key);
        for queue in self.tally.count(key, now) {
            if matches!(self.engine.queue_problem(&queue), Some(QueueProblem::NotLeaf(_))) {
                self.notes.tree_changed(self.now);
            }
        }
    }

    /// Jobs in this very queue wait or run.
    pub(crate) fn has_jobs_of_its_own(&self, queue: &QueueName) -> bool {
        self.tally.by_queue.get(queue).is_some_and(is_used)
    }

    fn counts_as(&self, key: &Key) -> Option<(QueueName, &'static str)> {
        let entry = self.entries.get(key)?;
        let workload = self.workload_of(&entry.binding)?;
        let queue = entry.binding.admission.as_ref().map_or(&workload.queue, |admission| &admission.queue);
        let stage = match (&entry.assumed, &entry.state) {
            (Some(_), _) => Some(Stage::Admitted),
            (None, State::OutOfScope) => return None,
            (None, State::Holding { stage, .. }) => Some(*stage),
            (None, State::Blocked(_) | State::InLine) => None,
        };
        Some((queue.clone(), podgroup::phase(workload, stage)))
    }

    /// What a queue's status says.
    pub(crate) fn numbers_of(&self, queue: &QueueName) -> QueueNumbers {
        let counts = self.tally.by_queue.get(queue).cloned().unwrap_or_default();
        QueueNumbers { allocated: self.engine.usage_of(queue).used, ..counts }
    }
}
