//! Which events say that a job was admitted after a wait.
//!
//! Rule: a job that waited for [`WORTH_REPORTING`] gets one event; of a job that hardly waited the PodGroup alone says
//! where it runs. They follow a budget, as the texts of waiting jobs do ([`refresh_budget`](super::refresh_budget)):
//! where thousands of jobs waited they would take the API server's time from releases. Those without a budget follow
//! in turn, one in a second at least, as far as their jobs still hold quota then, and the [`MOST_WAITING_EVENTS`]
//! newest.

use std::collections::VecDeque;

use caldera_core::{queue::ledger::AdmissionStage, time::EpochSeconds};
use caldera_runtime::event::EventType;
use jiff::Timestamp;

use super::refresh_budget::RefreshBudget;
use crate::{
    decide::bindings::jobs::Jobs,
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// Seconds that a job must have waited before its user is told that the wait is over.
const WORTH_REPORTING: i64 = 30;
/// Events that wait for a budget at most: an older one would come when its job is long done.
const MOST_WAITING_EVENTS: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AdmissionEvents {
    /// Bindings whose admission is to be told, and the seconds that they waited for it.
    untold: VecDeque<(Key, i64)>,
    budget: RefreshBudget,
}

impl AdmissionEvents {
    /// Writes take as long as those that another budget observes.
    pub(crate) const fn set_latency_from(&mut self, other: &RefreshBudget) {
        self.budget.set_latency_from(other);
    }

    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.untold.front().map(|_| self.budget.next_at(now))
    }

    /// Takes in that a binding was released.
    pub(crate) fn observe_release(&mut self, binding: &Binding, now: Timestamp) {
        let waited = EpochSeconds::from(now).seconds_since(binding.created);
        if waited >= WORTH_REPORTING {
            self.untold.push_back((binding.key.clone(), waited));
            let beyond = self.untold.len().saturating_sub(MOST_WAITING_EVENTS);
            self.untold.drain(..beyond);
        }
    }

    /// The events for which there is a budget.
    pub(crate) fn record_due(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut events = Vec::new();
        while let Some((key, waited)) = self.untold.front() {
            if let Some(event) = build_admission_event(objects, jobs, key, *waited) {
                if self.budget.take_one(now).is_err() {
                    break;
                }
                events.push(event);
            }
            self.untold.pop_front();
        }
        events
    }
}

/// The event, if the job still holds what it was admitted for.
fn build_admission_event(objects: &Objects, jobs: &Jobs, key: &Key, waited: i64) -> Option<Decision> {
    let binding = objects.bindings.get(key)?;
    let stage = jobs.states.get(key)?.stage();
    stage.filter(|stage| matches!(stage, AdmissionStage::Admitted | AdmissionStage::Placed))?;
    let (admission, workload) = (binding.admission.as_ref()?, objects.workload_of(binding)?);
    let message = format!("queue {} is charged {}; waited {waited} s", admission.queue, admission.charged);
    Some(Decision::build_workload_event(workload, EventType::Normal, "Admitted", message))
}
