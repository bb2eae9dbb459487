//! What is said on a Queue itself: what is wrong with it, and what counts where that is not what it says.
//!
//! The Queue's status has no fields for this, so that it is one annotation, `{"deserved": .., "guarantee": .., "faults":
//! [..]}`, without what is just as in `spec`, and none at all where nothing is left. What is used is in `status.allocated`,
//! who waits in `status.pending`; neither is repeated here, as it would be old most of the time. A change of the
//! annotation goes to every member with the queue, so that it is written seldom: only after the tree or the fleet has
//! changed, each queue's every half minute at most and every five minutes for amounts alone, ten in a second at most. What is wrong is also told in an event, once.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::QueueName, queue::Fleet, reason::QueueProblem, resources::Resources};
use caldera_crds::{names::volcano::ROOT_QUEUE, volcano::scheduling::Queue};
use caldera_runtime::{event::EventType, write::Failure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::{
    effect::Effect,
    facts::QueueFacts,
    index::{Index, Tag},
    plan::Plan,
};

/// From a change to its note: a tree of queues is made in one go, in any order.
const SETTLES: SignedDuration = SignedDuration::from_secs(2);
/// Between two notes on one queue, and before a refused one is tried again.
const REST: SignedDuration = SignedDuration::from_secs(30);
/// The same if only amounts differ: those by weight all follow every change of the fleet.
const LONG_REST: SignedDuration = SignedDuration::from_mins(5);
/// Notes written in one turn at most, and the time to the next turn.
const NOTES: usize = 10;
const TURN: SignedDuration = SignedDuration::from_secs(1);

/// What was said, and when there is more to say.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    due: Option<Timestamp>,
    /// The capacity of every cluster is known.
    fleet_known: bool,
    written: BTreeMap<QueueName, Written>,
    /// By queue: what was told, by subject.
    told: BTreeMap<QueueName, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Written {
    in_flight: bool,
    last: Option<Timestamp>,
}

impl Notes {
    /// Queues or their amounts changed.
    pub(crate) fn tree_changed(&mut self, now: Timestamp) {
        self.look(now.saturating_add(SETTLES).unwrap_or(now));
    }

    /// The fleet changed.
    pub(crate) fn fleet_changed(&mut self, fleet: &Fleet, now: Timestamp) {
        self.fleet_known = fleet.whole.is_some();
        self.tree_changed(now);
    }

    /// A queue is gone; others may deserve more.
    pub(crate) fn queue_gone(&mut self, name: &QueueName, now: Timestamp) {
        self.written.remove(name);
        self.told.remove(name);
        self.tree_changed(now);
    }

    /// When to ask again if nothing happens.
    pub(crate) const fn due(&self) -> Option<Timestamp> {
        self.due
    }

    fn look(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// When it is due: compares what every queue's annotation says with what it should.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    if index.notes.due.is_none_or(|due| due > now) {
        return;
    }
    index.notes.due = None;
    let mut left = NOTES;
    for (name, queue) in &index.queues {
        if name.as_str() == ROOT_QUEUE {
            continue;
        }
        let faults = faults(index, queue);
        let before = Before::read(queue.note.as_deref());
        tell(&mut index.notes.told, queue, &faults, &before, plan);
        let note = note(index, queue, &faults, &before);
        if note.as_deref() == queue.note.as_deref() {
            continue;
        }
        let written = index.notes.written.entry(name.clone()).or_default();
        let rest = if is_about_amounts(&faults, &before) { LONG_REST } else { REST };
        let rested = written.last.and_then(|last| last.saturating_add(rest).ok()).unwrap_or(now);
        if written.in_flight {
            continue;
        }
        if rested > now || left == 0 {
            index.notes.look(if rested > now { rested } else { now.saturating_add(TURN).unwrap_or(now) });
            continue;
        }
        left -= 1;
        *written = Written { in_flight: true, last: Some(now) };
        plan.effects.push((Tag::QueueNote(name.clone()), Effect::QueueNote { name: name.clone(), note }));
    }
}

/// What an annotation of ours says.
#[derive(Debug, Default)]
struct Before {
    amounts: [Value; 2],
    faults: Vec<String>,
}

impl Before {
    fn read(note: Option<&str>) -> Self {
        let note: Value = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
        let faults = note["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Self { amounts: AMOUNTS.map(|name| note[name].clone()), faults: faults.collect() }
    }
}

/// Nothing else is new.
fn is_about_amounts(faults: &[(String, String)], before: &Before) -> bool {
    faults.iter().map(|(_, sentence)| sentence).eq(&before.faults)
}

const AMOUNTS: [&str; 2] = ["deserved", "guarantee"];

/// What is wrong with a queue: the subject without numbers, and the sentence.
fn faults(index: &Index, queue: &QueueFacts) -> Vec<(String, String)> {
    let name = &queue.spec.name;
    let amounts = index.engine.queue_faults(name);
    let problem = match index.engine.queue_problem(name) {
        Some(QueueProblem::ParentMissing(parent)) => {
            Some(format!("spec.parent leads to queue {parent}, which does not exist: its jobs wait"))
        }
        Some(QueueProblem::Cycle) => Some("spec.parent leads back to the queue itself: its jobs wait".to_owned()),
        Some(QueueProblem::NotLeaf(child)) if index.has_jobs_of_its_own(name) => Some(format!(
            "it has queues below it, as {child}, and jobs of its own: those that wait can not start, those that run are \
             charged to it"
        )),
        _ => None,
    };
    let same = |text: String| (text.clone(), text);
    let wrong = queue.wrong.iter().map(|wrong| same(format!("{wrong}: it counts as 0")));
    let amounts = amounts.iter().map(|fault| (format!("{:?}", fault.subject()), fault.to_string()));
    problem.map(same).into_iter().chain(wrong).chain(amounts).collect()
}

/// Tells what was not told yet, by this process or, as the annotation says, by one before it.
fn tell(
    told: &mut BTreeMap<QueueName, BTreeSet<String>>,
    queue: &QueueFacts,
    faults: &[(String, String)],
    before: &Before,
    plan: &mut Plan,
) {
    let had = told.remove(&queue.spec.name).unwrap_or_default();
    let new: Vec<&str> = faults
        .iter()
        .filter(|(subject, sentence)| !had.contains(subject) && !before.faults.contains(sentence))
        .map(|(_, sentence)| sentence.as_str())
        .collect();
    if !new.is_empty() {
        let effect = Effect::Tell {
            regarding: queue.regarding(),
            event_type: EventType::Warning,
            reason: "QueueMisconfigured".to_owned(),
            message: new.join("; "),
        };
        plan.effects.push((Tag::Tell, effect));
    }
    if !faults.is_empty() {
        told.insert(queue.spec.name.clone(), faults.iter().map(|(subject, _)| subject.clone()).collect());
    }
}

/// The annotation as it should be; `None` for none.
fn note(index: &Index, queue: &QueueFacts, faults: &[(String, String)], before: &Before) -> Option<String> {
    let mut note = Map::new();
    let entitled = index.engine.entitlement_of(&queue.spec.name);
    let deserved: Resources = queue.spec.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect();
    let amounts = [(entitled.deserved, &deserved), (entitled.guarantee, &queue.spec.guarantee)];
    for ((name, old), (counts, says)) in AMOUNTS.iter().zip(&before.amounts).zip(amounts) {
        // What a fleet would give that is not all seen yet is not worth saying.
        if !index.notes.fleet_known {
            if !old.is_null() {
                note.insert((*name).to_owned(), old.clone());
            }
        } else if counts != *says {
            let counts = counts.iter().map(|(name, amount)| (name.to_string(), Value::from(amount.to_string())));
            note.insert((*name).to_owned(), counts.collect::<Map<_, _>>().into());
        }
    }
    if !faults.is_empty() {
        note.insert("faults".to_owned(), json!(faults.iter().map(|(_, sentence)| sentence).collect::<Vec<_>>()));
    }
    (!note.is_empty()).then(|| Value::from(note).to_string())
}

/// Answers.
impl Index {
    /// A note was written, or not.
    pub(crate) fn queue_note_written(&mut self, name: &QueueName, result: Result<Value, Failure>) {
        let Some(written) = self.notes.written.get_mut(name) else { return };
        written.in_flight = false;
        let wait = match result {
            Ok(object) => {
                if let Ok(object) = serde_json::from_value::<Queue>(object) {
                    self.queue(QueueFacts::read(&object));
                }
                // What changed in between.
                SETTLES
            }
            Err(Failure::Gone(_)) => return,
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to note on a queue what counts");
                REST
            }
            Err(_) => {
                written.last = None;
                SETTLES
            }
        };
        self.notes.look(self.now.saturating_add(wait).unwrap_or(self.now));
    }
}
