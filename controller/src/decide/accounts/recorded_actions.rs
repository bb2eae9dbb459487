//! Which of what people do is recorded in the [`history`](crate::history), each once.
//!
//! Rule: an action is what the webhook stamped on an object ([`caldera_crds::action`]), and an eviction that was
//! written. It is recorded when the object is told with another stamp than is recorded, also after the controller was
//! away. A stamp of the future counts for nothing: its user may have written it himself while the webhook was away.
//! What is deleted can have no stamp: of a reservation and of the settings it is recorded when it is seen, and not by
//! whom, which only the API server's own audit log knows.

use std::collections::VecDeque;

use caldera_core::queue::preemption::EvictionRecord;
use caldera_crds::action::{Action, SETTINGS};
use caldera_runtime::{watch::Event, write::Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    decide::{bindings::eviction::find_who_wanted, deadlines::add_wait},
    history::{ADMIN_ACTIONS, History, JOB_ACTIONS, RecordedAction},
    observe::{Binding, CommandTarget, Input},
};

/// Who did what nobody is known for.
const NOT_KNOWN: &str = "?";
/// How far two machines' clocks may be apart.
const MOST_AHEAD: SignedDuration = SignedDuration::from_secs(15);
/// Actions that are kept for a history that is not read yet.
const MOST_EARLY: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct RecordedActions {
    /// What admins did, and what was done to jobs.
    histories: [History<RecordedAction>; 2],
    is_read: bool,
    early: VecDeque<RecordedAction>,
}

impl Default for RecordedActions {
    fn default() -> Self {
        let histories = [ADMIN_ACTIONS, JOB_ACTIONS].map(History::new);
        Self { histories, is_read: false, early: VecDeque::new() }
    }
}

impl RecordedActions {
    /// Takes in what earlier controllers wrote.
    pub(crate) fn merge_history(&mut self, read: [History<RecordedAction>; 2]) {
        if !std::mem::replace(&mut self.is_read, true) {
            self.histories = read;
            std::mem::take(&mut self.early).into_iter().for_each(|action| self.add(action));
        }
    }

    /// Takes in what the stamps of objects say that are told.
    pub(crate) fn observe_input(&mut self, input: &Input, now: Timestamp) {
        match input {
            Input::Workloads(_, event) => self.observe_each(event, now, |it| {
                let reference = &it.reference;
                Some(RecordedAction::new(it.acted.as_deref()?, &reference.kind, &reference.namespace, &reference.name))
            }),
            Input::Queues(event) => self.observe_each(event, now, |it| {
                Some(RecordedAction::new(it.acted.as_deref()?, "Queue", "", it.spec.name.as_str()))
            }),
            Input::Clusters(event) => self.observe_each(event, now, |it| {
                Some(RecordedAction::new(it.acted.as_deref()?, "Cluster", "", &it.cluster.name))
            }),
            Input::Commands(event) => self.observe_each(event, now, |it| {
                let acted = it.acted.as_deref()?;
                Some(match &it.target {
                    CommandTarget::Queue(queue) => RecordedAction::new(acted, "Queue", "", queue.as_str()),
                    CommandTarget::Job(job) => RecordedAction::new(acted, "Job", &job.namespace, &job.name),
                })
            }),
            Input::CapacityReservations(event) => {
                self.observe_each(event, now, |it| {
                    let (name, annotations) = (it.metadata.name.as_deref()?, it.metadata.annotations.as_ref()?);
                    let acted = Action::read(|name| annotations.get(name).map(String::as_str))?;
                    Some(RecordedAction::new(&acted, "CapacityReservation", "", name))
                });
                if let Event::Deleted(it) = event {
                    self.record_deletion(
                        "CapacityReservation",
                        "",
                        it.metadata.name.as_deref().unwrap_or_default(),
                        now,
                    );
                }
            }
            _ => {}
        }
    }

    /// Takes in what the stamps of the ConfigMap say by which an admin changes settings; null where it was deleted.
    pub(crate) fn observe_settings(&mut self, map: &Value, namespace: &str, now: Timestamp) {
        if map.is_null() {
            return self.record_deletion("ConfigMap", namespace, SETTINGS, now);
        }
        let text = |pointer: &str| map.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let action = Action::of_object(map).map(|action| {
            RecordedAction::new(&action, "ConfigMap", text("/metadata/namespace"), text("/metadata/name"))
        });
        action.into_iter().for_each(|action| self.record(action, now));
    }

    /// Takes in that a binding was evicted.
    pub(crate) fn record_eviction(&mut self, binding: &Binding, eviction: &EvictionRecord, now: Timestamp) {
        let workload = &binding.workload;
        let by = match find_who_wanted(eviction) {
            // Who that is, the action before it says.
            "user" => "caldera, for its user",
            _ => "caldera",
        };
        self.record(
            RecordedAction {
                at: now,
                by: by.to_owned(),
                did: format!("evicted ({}): {}", eviction.reason, eviction.message).chars().take(400).collect(),
                kind: workload.kind.clone(),
                namespace: workload.namespace.clone(),
                name: workload.name.clone(),
            },
            now,
        );
    }

    fn record_deletion(&mut self, kind: &str, namespace: &str, name: &str, now: Timestamp) {
        let (by, did) = (NOT_KNOWN.to_owned(), "deleted".to_owned());
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.record(RecordedAction { at: now, by, did, kind, namespace, name }, now);
    }

    fn observe_each<T>(&mut self, event: &Event<T>, now: Timestamp, read: impl Fn(&T) -> Option<RecordedAction>) {
        let reported = match event {
            Event::Reset(all) => all.as_slice(),
            Event::Applied(one) => std::slice::from_ref(one),
            Event::Deleted(_) => &[],
        };
        reported.iter().filter_map(read).for_each(|action| self.record(action, now));
    }

    fn record(&mut self, action: RecordedAction, now: Timestamp) {
        if action.at > add_wait(now, MOST_AHEAD) {
            return;
        }
        if self.is_read {
            return self.add(action);
        }
        self.early.push_back(action);
        // The history may never be readable.
        while self.early.len() > MOST_EARLY {
            self.early.pop_front();
        }
    }

    fn add(&mut self, action: RecordedAction) {
        let is_admins = ["Queue", "Cluster", "ConfigMap", "CapacityReservation"].contains(&action.kind.as_str());
        let history = &mut self.histories[usize::from(!is_admins)];
        if history.find_newest_forgotten().is_none_or(|until| action.at > until) {
            history.add(&action);
        }
    }

    /// Whether there is something to write.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.is_read && self.histories.iter().any(History::has_unsaved)
    }

    /// The pages to write.
    pub(crate) fn take_writes(&mut self, namespace: &str) -> Vec<Write> {
        if !self.is_read {
            return Vec::new();
        }
        self.histories.iter_mut().flat_map(|history| history.take_writes(namespace)).collect()
    }
}
