//! What is said on a Queue itself: what is wrong with it, and which amounts count where these are not the ones in its
//! spec.
//!
//! The Queue's status has no fields for this, so it is one annotation, `{"deserved": .., "guarantee": .., "faults":
//! [..]}`, without what is just as in `spec`, and none at all where nothing is left. What is used is in
//! `status.allocated`, who waits in `status.pending`; neither is repeated here, as it would be old most of the time. A
//! change of the annotation goes to every member with the queue, so it is written seldom: only after the tree or the
//! fleet has changed, each queue's every half minute at most and every five minutes where amounts alone changed, none
//! of them by a tenth, ten in a second at most. What is wrong is also recorded as an event, once.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    card_quota::CardQuota,
    gang::QueueName,
    quantity::Quantity,
    queue::{Engine, FleetResources},
    reason::QueueProblem,
    resources::{ResourceName, Resources},
};
use caldera_crds::{
    allowed_classes::AllowedClasses,
    largest_job::LargestJob,
    longest_run::LongestRun,
    names::{
        caldera::{MAX_JOB, MAX_RUN_TIME, NAMESPACE_SELECTOR, PRIORITY_CLASSES},
        volcano::{CARD_QUOTA, ROOT_QUEUE},
    },
    tenancy::NamespaceSelector,
};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{phase_counts::PhaseCounts, queue_numbers::is_near};
use crate::{
    decide::deadlines::{add_wait, earliest},
    observe::{Objects, QueueFacts},
    write::Decision,
};

/// From a change to its annotation: a tree of queues is made in one go, in any order.
const COALESCE_TIME: SignedDuration = SignedDuration::from_secs(2);
/// Between two writes of one queue's annotation, and before a refused one is tried again.
const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The same if only amounts differ, by less than a tenth: those by weight all follow every change of the fleet.
const LONG_REST: SignedDuration = SignedDuration::from_mins(5);
/// Annotations written in one pass at most, and the time to the next pass.
const WRITES_PER_PASS: usize = 10;
const PASS_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// What was said, and when there is more to say.
#[derive(Debug, Default)]
pub(crate) struct QueueAnnotations {
    due: Option<Timestamp>,
    /// The capacity of every cluster is known.
    fleet_known: bool,
    writes: BTreeMap<QueueName, AnnotationWrite>,
    /// By queue: the faults that were recorded as events, by subject.
    recorded: BTreeMap<QueueName, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct AnnotationWrite {
    in_flight: bool,
    last: Option<Timestamp>,
}

/// How the write of an annotation was answered.
pub(crate) enum AnnotationOutcome {
    Written,
    Gone,
    Refused,
    Failed,
}

impl QueueAnnotations {
    /// Takes in that queues or their amounts changed.
    pub(crate) fn observe_tree(&mut self, now: Timestamp) {
        self.schedule_check(add_wait(now, COALESCE_TIME));
    }

    /// Takes in that the fleet changed.
    pub(crate) fn observe_fleet(&mut self, fleet: &FleetResources, now: Timestamp) {
        self.fleet_known = fleet.whole.is_some();
        self.observe_tree(now);
    }

    /// Forgets a queue that is gone; others may deserve more.
    pub(crate) fn forget(&mut self, name: &QueueName, now: Timestamp) {
        self.writes.remove(name);
        self.recorded.remove(name);
        self.observe_tree(now);
    }

    pub(crate) const fn next_due(&self) -> Option<Timestamp> {
        self.due
    }

    fn schedule_check(&mut self, at: Timestamp) {
        self.due = earliest(self.due, Some(at));
    }

    /// Takes in the answer to a write.
    pub(crate) fn apply_write_answer(&mut self, name: &QueueName, outcome: &AnnotationOutcome, now: Timestamp) {
        let Some(write) = self.writes.get_mut(name) else { return };
        write.in_flight = false;
        let wait = match outcome {
            // What changed in between.
            AnnotationOutcome::Written => COALESCE_TIME,
            AnnotationOutcome::Gone => return,
            AnnotationOutcome::Refused => WRITE_INTERVAL,
            AnnotationOutcome::Failed => {
                write.last = None;
                COALESCE_TIME
            }
        };
        self.schedule_check(add_wait(now, wait));
    }

    /// When it is due: compares what every queue's annotation says with what it should.
    pub(crate) fn write_due(
        &mut self,
        objects: &Objects,
        engine: &Engine,
        counts: &PhaseCounts,
        now: Timestamp,
    ) -> Vec<Decision> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut decisions = Vec::new();
        let mut left = WRITES_PER_PASS;
        for (name, queue) in objects.queues.iter().filter(|(name, _)| name.as_str() != ROOT_QUEUE) {
            let faults = list_faults(engine, counts, queue);
            let before = WrittenAnnotation::parse(queue.annotation.as_deref());
            decisions.extend(self.record_faults(queue, &faults, &before));
            let annotation = self.build_annotation(engine, queue, &faults, &before);
            if annotation.as_deref() == queue.annotation.as_deref() {
                continue;
            }
            let write = self.writes.entry(name.clone()).or_default();
            if write.in_flight {
                continue;
            }
            let are_faults_said = faults.iter().map(|(_, sentence)| sentence).eq(&before.faults);
            let is_slight = are_faults_said && before.is_near(&WrittenAnnotation::parse(annotation.as_deref()), queue);
            let rest = if is_slight { LONG_REST } else { WRITE_INTERVAL };
            let rested = write.last.map_or(now, |last| add_wait(last, rest));
            if rested > now || left == 0 {
                self.schedule_check(if rested > now { rested } else { add_wait(now, PASS_INTERVAL) });
                continue;
            }
            left -= 1;
            *write = AnnotationWrite { in_flight: true, last: Some(now) };
            decisions.push(Decision::QueueAnnotation { name: name.clone(), annotation });
        }
        decisions
    }

    /// Records what was not recorded yet, by this process or, as the annotation says, by one before it.
    fn record_faults(
        &mut self,
        queue: &QueueFacts,
        faults: &[(String, String)],
        before: &WrittenAnnotation,
    ) -> Option<Decision> {
        let had = self.recorded.remove(&queue.spec.name).unwrap_or_default();
        let new: Vec<&str> = faults
            .iter()
            .filter(|(subject, sentence)| !had.contains(subject) && !before.faults.contains(sentence))
            .map(|(_, sentence)| sentence.as_str())
            .collect();
        if !faults.is_empty() {
            let subjects = faults.iter().map(|(subject, _)| subject.clone()).collect();
            self.recorded.insert(queue.spec.name.clone(), subjects);
        }
        let event = || Decision::build_queue_event(queue, EventType::Warning, "QueueMisconfigured", new.join("; "));
        (!new.is_empty()).then(event)
    }

    /// The annotation as it should be; `None` for none.
    fn build_annotation(
        &self,
        engine: &Engine,
        queue: &QueueFacts,
        faults: &[(String, String)],
        before: &WrittenAnnotation,
    ) -> Option<String> {
        let mut annotation = Map::new();
        let counts = engine.entitlement_of(&queue.spec.name);
        let amounts = [counts.deserved, counts.guarantee].into_iter().zip(list_own_amounts(queue));
        for ((name, old), (counts, says)) in AMOUNTS.iter().zip(&before.amounts).zip(amounts) {
            // What a fleet would give that is not all seen yet is not worth saying.
            if !self.fleet_known {
                if !old.is_null() {
                    annotation.insert((*name).to_owned(), old.clone());
                }
            } else if counts != says {
                let counts = counts.iter().map(|(name, amount)| (name.to_string(), Value::from(amount.to_string())));
                annotation.insert((*name).to_owned(), counts.collect::<Map<_, _>>().into());
            }
        }
        if !faults.is_empty() {
            let sentences: Vec<&String> = faults.iter().map(|(_, sentence)| sentence).collect();
            annotation.insert("faults".to_owned(), json!(sentences));
        }
        (!annotation.is_empty()).then(|| Value::from(annotation).to_string())
    }
}

const AMOUNTS: [&str; 2] = ["deserved", "guarantee"];

/// What the annotation that was written last says.
#[derive(Debug, Default)]
struct WrittenAnnotation {
    amounts: [Value; 2],
    faults: Vec<String>,
}

impl WrittenAnnotation {
    fn parse(text: Option<&str>) -> Self {
        let value: Value = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let faults = value["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Self { amounts: AMOUNTS.map(|name| value[name].clone()), faults: faults.collect() }
    }

    /// Whether no amount is other than here by a tenth. An amount that is not said is the one of the spec.
    fn is_near(&self, other: &Self, queue: &QueueFacts) -> bool {
        let lists = self.amounts.iter().zip(&other.amounts).zip(list_own_amounts(queue));
        lists.into_iter().all(|((before, now), own)| {
            let [before, now] = [before, now].map(|said| read_amounts(said).unwrap_or_else(|| own.clone()));
            let mut names = before.iter().chain(now.iter()).map(|(name, _)| name.as_str());
            names.all(|name| is_near(before.get(name).as_nano(), now.get(name).as_nano()))
        })
    }
}

/// Deserved and guarantee as the queue's spec says.
fn list_own_amounts(queue: &QueueFacts) -> [Resources; 2] {
    let deserved = queue.spec.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect();
    [deserved, queue.spec.guarantee.clone()]
}

/// The amounts that an annotation says, if it says any.
fn read_amounts(said: &Value) -> Option<Resources> {
    let amount = |(name, amount): (&String, &Value)| {
        Some((ResourceName::from(name.as_str()), amount.as_str()?.parse::<Quantity>().ok()?))
    };
    Some(said.as_object()?.iter().filter_map(amount).collect())
}

/// What is wrong with a queue: the subject without numbers, and the sentence.
fn list_faults(engine: &Engine, counts: &PhaseCounts, queue: &QueueFacts) -> Vec<(String, String)> {
    let name = &queue.spec.name;
    let problem = match engine.queue_problem(name) {
        Some(QueueProblem::ParentMissing(parent)) => {
            Some(format!("spec.parent leads to queue {parent}, which does not exist: its jobs wait"))
        }
        Some(QueueProblem::Cycle) => Some("spec.parent leads back to the queue itself: its jobs wait".to_owned()),
        Some(QueueProblem::NotLeaf(child)) if counts.has_own_jobs(name) => Some(format!(
            "it has queues below it, as {child}, and jobs of its own: those that wait can not start, those that run are \
             charged to it"
        )),
        _ => None,
    };
    let same = |text: String| (text.clone(), text);
    let wrong = queue.wrong.iter().map(|wrong| same(format!("{wrong}: it counts as 0")));
    let places = queue.wrong_places.iter().map(|(field, why)| same(format!("{field}: {why}")));
    let selector = queue.namespaces.as_ref().and_then(NamespaceSelector::problem);
    let selector = selector.map(|problem| {
        same(format!("metadata.annotations[{NAMESPACE_SELECTOR}]: {problem}: it takes no namespace's jobs"))
    });
    let largest = queue.largest_job.as_ref().and_then(LargestJob::problem);
    let largest = largest.map(|problem| same(format!("metadata.annotations[{MAX_JOB}]: {problem}: it takes no job")));
    let longest = queue.longest_run.as_ref().and_then(LongestRun::problem);
    let longest =
        longest.map(|problem| same(format!("metadata.annotations[{MAX_RUN_TIME}]: {problem}: it takes no job")));
    let classes = queue.allowed_classes.as_ref().and_then(AllowedClasses::problem);
    let classes = classes.map(|problem| {
        same(format!("metadata.annotations[{PRIORITY_CLASSES}]: {problem}: it takes no job that names a class"))
    });
    let cards = queue.card_quota.as_ref().and_then(CardQuota::problem);
    let cards = cards.map(|problem| same(format!("metadata.annotations[{CARD_QUOTA}]: {problem}: it takes no job")));
    let amounts = engine.queue_faults(name);
    let amounts = amounts.iter().map(|fault| (format!("{:?}", fault.subject()), fault.to_string()));
    problem
        .map(same)
        .into_iter()
        .chain(wrong)
        .chain(places)
        .chain(selector)
        .chain(largest)
        .chain(longest)
        .chain(classes)
        .chain(cards)
        .chain(amounts)
        .collect()
}
