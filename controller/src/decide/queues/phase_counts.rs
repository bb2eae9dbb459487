//! PodGroups of each queue by phase, kept up to date one binding at a time.
//!
//! A count over all of them would hold up whatever came free meanwhile.

use std::collections::BTreeMap;

use caldera_core::{gang::QueueName, queue::ledger::AdmissionStage};

use crate::{
    decide::bindings::jobs::{JobPhase, Jobs},
    observe::{Key, Objects, QueueNumbers},
    write::pod_group::phase_of,
};

/// Counts by queue and phase.
#[derive(Debug, Default)]
pub(crate) struct PhaseCounts {
    by_queue: BTreeMap<QueueName, QueueNumbers>,
    counted: BTreeMap<Key, (QueueName, &'static str)>,
}

impl PhaseCounts {
    /// Counts a binding as it is now, and gives back the queues that have jobs from now on, or none any more.
    pub(crate) fn recount(&mut self, objects: &Objects, jobs: &Jobs, key: &Key) -> Vec<QueueName> {
        let now = find_queue_and_phase(objects, jobs, key);
        let before = match &now {
            Some(now) if self.counted.get(key) == Some(now) => return Vec::new(),
            Some(now) => self.counted.insert(key.clone(), now.clone()),
            None => self.counted.remove(key),
        };
        let mut turned = Vec::new();
        for (counted, by) in [(before, -1), (now, 1)] {
            let Some((queue, phase)) = counted else { continue };
            let numbers = self.by_queue.entry(queue.clone()).or_default();
            let had = has_jobs(numbers);
            *phase_field(numbers, phase) += by;
            let has = has_jobs(numbers);
            if *numbers == QueueNumbers::default() {
                self.by_queue.remove(&queue);
            }
            turned.extend((had != has).then_some(queue));
        }
        turned
    }

    /// Whether jobs in this very queue wait or run.
    pub(crate) fn has_own_jobs(&self, queue: &QueueName) -> bool {
        self.by_queue.get(queue).is_some_and(has_jobs)
    }

    /// The counts of a queue, without what it is charged.
    pub(crate) fn counts_of(&self, queue: &QueueName) -> QueueNumbers {
        self.by_queue.get(queue).cloned().unwrap_or_default()
    }
}

const fn has_jobs(numbers: &QueueNumbers) -> bool {
    numbers.pending + numbers.inqueue + numbers.running > 0
}

fn phase_field<'a>(numbers: &'a mut QueueNumbers, phase: &str) -> &'a mut i32 {
    match phase {
        "Pending" => &mut numbers.pending,
        "Inqueue" => &mut numbers.inqueue,
        "Running" => &mut numbers.running,
        _ => &mut numbers.completed,
    }
}

fn find_queue_and_phase(objects: &Objects, jobs: &Jobs, key: &Key) -> Option<(QueueName, &'static str)> {
    let (binding, state) = (objects.bindings.get(key)?, jobs.states.get(key)?);
    let workload = objects.workload_of(binding)?;
    let stage = match (&state.assumed, &state.phase) {
        (Some(_), _) => Some(AdmissionStage::Admitted),
        (None, JobPhase::OutOfScope) => return None,
        (None, _) => state.stage(),
    };
    Some((objects.queue_of(binding)?.clone(), phase_of(workload, stage)))
}
