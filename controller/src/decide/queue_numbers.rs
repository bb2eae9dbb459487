//! The numbers of a queue's status: what it is charged, and its PodGroups by phase.
//!
//! A job that starts changes them three times in a second or two, so they are written when they have settled, and not
//! again for a few seconds. Nothing that says the same is ever written again.

use std::collections::BTreeMap;

use caldera_core::gang::QueueName;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{
    deadlines::{after, earliest},
    jobs::Jobs,
    phase_counts::PhaseCounts,
};
use crate::{
    observe::{Objects, QueueNumbers},
    write::Decision,
};

/// Between two writes of one queue's numbers.
const BETWEEN: SignedDuration = SignedDuration::from_secs(3);
/// From a change of a queue's numbers to their write.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// What is known of the writes to one queue's numbers.
#[derive(Debug, Default)]
struct NumbersWrite {
    in_flight: bool,
    last_write: Option<Timestamp>,
    changed_at: Option<Timestamp>,
    refused: Option<QueueNumbers>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct QueueNumbersWrites {
    writes: BTreeMap<QueueName, NumbersWrite>,
    due: Option<Timestamp>,
}

impl QueueNumbersWrites {
    /// Has all queues looked at.
    pub(crate) const fn look_now(&mut self, now: Timestamp) {
        self.due = Some(now);
    }

    pub(crate) const fn next_due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Whether a write of a queue's numbers is under way.
    pub(crate) fn is_in_flight(&self, name: &QueueName) -> bool {
        self.writes.get(name).is_some_and(|write| write.in_flight)
    }

    pub(crate) fn forget(&mut self, name: &QueueName) {
        self.writes.remove(name);
    }

    /// Takes in the answer to a write; `refused` says that the server will not have it.
    pub(crate) fn follow_answer(&mut self, name: &QueueName, refused: bool) {
        let write = self.writes.entry(name.clone()).or_default();
        write.in_flight = false;
        if !refused {
            write.refused = None;
        }
    }

    /// Writes the numbers that are due. `is_busy` says that another write of this queue is under way.
    pub(crate) fn write_due(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        counts: &PhaseCounts,
        is_busy: impl Fn(&QueueName) -> bool,
        now: Timestamp,
    ) -> Vec<Decision> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut decisions = Vec::new();
        for (name, queue) in &objects.queues {
            let numbers = QueueNumbers { allocated: jobs.engine.usage_of(name).used, ..counts.counts_of(name) };
            let write = self.writes.entry(name.clone()).or_default();
            let same = queue.status == numbers;
            if same {
                write.changed_at = None;
            }
            if same || write.in_flight || is_busy(name) || write.refused.as_ref() == Some(&numbers) {
                continue;
            }
            let settled = after(*write.changed_at.get_or_insert(now), SETTLED);
            let due = write.last_write.map_or(now, |last| after(last, BETWEEN)).max(settled);
            if due > now {
                self.due = earliest(self.due, Some(due));
                continue;
            }
            let patch = json!({"status": {
                "allocated": patch_amounts(&queue.status, &numbers),
                "pending": numbers.pending, "inqueue": numbers.inqueue,
                "running": numbers.running, "completed": numbers.completed,
            }});
            *write = NumbersWrite { in_flight: true, last_write: Some(now), changed_at: None, refused: Some(numbers) };
            decisions.push(Decision::QueueNumbers { name: name.clone(), patch });
        }
        decisions
    }
}

/// The amounts, with a null for every name that is gone: a merge patch leaves the others alone.
fn patch_amounts(there: &QueueNumbers, wanted: &QueueNumbers) -> Value {
    let gone = there.allocated.iter().map(|(name, _)| (name.to_string(), Value::Null));
    let now = wanted.allocated.iter().map(|(name, amount)| (name.to_string(), Value::from(amount.to_string())));
    Value::Object(gone.chain(now).collect::<Map<String, Value>>())
}
