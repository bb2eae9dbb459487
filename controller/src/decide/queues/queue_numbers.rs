//! The numbers of a queue's status: what it is charged, and its PodGroups by phase.
//!
//! A job that starts changes them three times in a second or two, so they are written when they have settled, and not
//! again for ten seconds, or a second for each queue that was written in the last minute, whichever is longer, up to a
//! minute: however many change, about one in a second is written. Where none of them changed by a tenth, and of how
//! many jobs have ended, they are written once a minute. Nothing that says the same is ever written again. Of what a
//! queue names nothing is used until it is: a list shows 0 and no blank. These zeros go with other writes.

use std::collections::BTreeMap;

use caldera_core::gang::QueueName;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::phase_counts::PhaseCounts;
use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{add_wait, earliest},
    },
    observe::{Objects, QueueFacts, QueueNumbers},
    write::Decision,
};

/// Between two writes of one queue's numbers, where few change.
const WRITE_INTERVAL_SECONDS: i64 = 10;
/// The same where they changed by less than a tenth, and at most.
const SLIGHT_CHANGE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// From a change of a queue's numbers to their write.
const COALESCE_TIME: SignedDuration = SignedDuration::from_secs(2);

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
    pub(crate) const fn mark_all_due(&mut self, now: Timestamp) {
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
    pub(crate) fn apply_write_answer(&mut self, name: &QueueName, refused: bool) {
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
        let is_recent =
            |write: &&NumbersWrite| write.last_write.is_some_and(|last| add_wait(last, SLIGHT_CHANGE_INTERVAL) > now);
        let busy = i64::try_from(self.writes.values().filter(is_recent).count()).unwrap_or(i64::MAX);
        let between = SignedDuration::from_secs(busy.clamp(WRITE_INTERVAL_SECONDS, SLIGHT_CHANGE_INTERVAL.as_secs()));
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
            let settled = add_wait(*write.changed_at.get_or_insert(now), COALESCE_TIME);
            let between = if is_slight(&queue.status, &numbers) { SLIGHT_CHANGE_INTERVAL } else { between };
            let due = write.last_write.map_or(now, |last| add_wait(last, between)).max(settled);
            if due > now {
                self.due = earliest(self.due, Some(due));
                continue;
            }
            let patch = json!({"status": {
                "allocated": patch_amounts(queue, &numbers),
                "pending": numbers.pending, "inqueue": numbers.inqueue,
                "running": numbers.running, "completed": numbers.completed,
            }});
            *write = NumbersWrite { in_flight: true, last_write: Some(now), changed_at: None, refused: Some(numbers) };
            decisions.push(Decision::QueueNumbers { name: name.clone(), patch });
        }
        decisions
    }
}

/// Whether an amount is other than it was by less than a tenth.
pub(super) const fn is_near(before: i128, now: i128) -> bool {
    before == now || before.abs_diff(now) * 10 < before.unsigned_abs()
}

/// None of them is other than it was by a tenth.
fn is_slight(there: &QueueNumbers, now: &QueueNumbers) -> bool {
    let counts = [(there.pending, now.pending), (there.inqueue, now.inqueue), (there.running, now.running)];
    let names = there.allocated.iter().chain(now.allocated.iter()).map(|(name, _)| name.as_str());
    let amounts = names.map(|name| (there.allocated.get(name).as_nano(), now.allocated.get(name).as_nano()));
    counts.into_iter().map(|(before, now)| (before.into(), now.into())).chain(amounts).all(|(a, b)| is_near(a, b))
}

/// The numbers of a queue in which nothing has happened yet.
pub(super) fn build_first_numbers(queue: &QueueFacts) -> Value {
    let allocated = patch_amounts(queue, &QueueNumbers::default());
    json!({"allocated": allocated, "pending": 0, "inqueue": 0, "running": 0, "completed": 0})
}

/// The amounts, with a null for every other name that is gone: a merge patch leaves the others alone.
fn patch_amounts(queue: &QueueFacts, wanted: &QueueNumbers) -> Value {
    let there = queue.status.allocated.iter().map(|(name, _)| name);
    let gone = there.map(|name| (name.to_string(), Value::Null));
    let named = queue.spec.deserved.iter().chain(queue.spec.capability.iter()).map(|(name, _)| name.to_string());
    let zeros = named.chain(["cpu".to_owned()]).map(|name| (name, Value::from("0")));
    let now =
        wanted.allocated.iter().map(|(name, amount)| (name.to_string(), Value::from(amount.decimal().to_string())));
    Value::Object(gone.chain(zeros).chain(now).collect::<Map<String, Value>>())
}
