//! The numbers of a queue's status: what it is charged, and its PodGroups by phase.
//!
//! A job that starts changes them three times in a second or two, so they are written when they have settled, and not
//! again for a few seconds; nothing that says the same is ever written again.

use caldera_core::gang::QueueName;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::{
    effect::Effect,
    facts::QueueNumbers,
    index::{Index, QueueWriting, Tag},
    plan::Plan,
};

/// Between two writes of one queue's numbers.
const BETWEEN: SignedDuration = SignedDuration::from_secs(3);
/// From a change of a queue's numbers to their write: a job that starts changes them three times in a second or two.
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// Writes the numbers that are due.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    if index.numbers_due.is_none_or(|due| due > now) {
        return;
    }
    index.numbers_due = None;
    for name in index.queues.keys().cloned().collect::<Vec<_>>() {
        let numbers = index.numbers_of(&name);
        write(index, &name, numbers, now, plan);
    }
}

fn write(index: &mut Index, name: &QueueName, numbers: QueueNumbers, now: Timestamp, plan: &mut Plan) {
    let Some(queue) = index.queues.get(name) else { return };
    let writing = index.queue_writes.entry(name.clone()).or_default();
    let same = queue.status == numbers;
    if same {
        writing.changed_at = None;
    }
    if same || writing.in_flight || index.lifecycle.is_writing(name) || writing.refused.as_ref() == Some(&numbers) {
        return;
    }
    let changed = *writing.changed_at.get_or_insert(now);
    let after = |from: Timestamp, wait| from.saturating_add(wait).unwrap_or(now);
    let due = writing.last_write.map_or(now, |last| after(last, BETWEEN)).max(after(changed, SETTLED));
    if due > now {
        index.numbers_due = Some(index.numbers_due.map_or(due, |other| other.min(due)));
        return;
    }
    let patch = json!({"status": {
        "allocated": allocated(&queue.status, &numbers),
        "pending": numbers.pending, "inqueue": numbers.inqueue,
        "running": numbers.running, "completed": numbers.completed,
    }});
    *writing = QueueWriting { in_flight: true, last_write: Some(now), changed_at: None, refused: Some(numbers) };
    plan.effects.push((Tag::Queue(name.clone()), Effect::QueueStatus { name: name.clone(), patch }));
}

/// The amounts, with a null for every name that is gone: a merge patch leaves the others alone.
fn allocated(there: &QueueNumbers, wanted: &QueueNumbers) -> Value {
    let gone = there.allocated.iter().map(|(name, _)| (name.to_string(), Value::Null));
    let now = wanted.allocated.iter().map(|(name, amount)| (name.to_string(), Value::from(amount.to_string())));
    Value::Object(gone.chain(now).collect::<Map<String, Value>>())
}
