//! What follows from the outcomes of writes.
//!
//! Rules: what is placed is told, with the generation that the write returned. After a conflict the binding is decided
//! again once its new state is here; after a failure of the server, after a wait that doubles; what the server refuses
//! is told as the reason, unless it is the status that it refuses.

use caldera_core::place::{Decision, Target};
use caldera_runtime::write::{Failure, WriteOutcome};
use serde_json::Value;
use tokio::time::Instant;

use super::{RECHECK_PERIOD, Scheduler, Tag};
use crate::{
    decide::placement::{QUOTA_EXCEEDED, SCHEDULER_ERROR},
    observe::binding::{Binding, BindingKey},
    write::binding_writes,
};

impl Scheduler {
    pub(crate) fn apply_outcome(&mut self, WriteOutcome { tag, result }: WriteOutcome<Tag>) {
        self.confirmations.note_answered_write();
        match (tag, result) {
            (Tag::Event, Err(error)) => tracing::debug!(%error, "an event was not recorded"),
            (Tag::Event | Tag::Topology(_), Ok(_)) => {}
            (Tag::Topology(name), Err(failure)) => {
                tracing::warn!(name, %failure, "the status of a topology was not written");
                self.topology_status.forget_status(&name);
                self.recheck_at.get_or_insert_with(|| Instant::now() + RECHECK_PERIOD);
            }
            (Tag::Place(key, decision), Ok(object)) => self.apply_placement_outcome(&key, &decision, &object),
            (Tag::Clear(key, reason, message), Ok(object)) => {
                self.in_flight.remove(&key);
                if self.store_written_binding(&object) {
                    self.write_refusal(&key, reason, &message);
                } else {
                    self.cache.mark_due(&key);
                }
            }
            (Tag::Status(key), Ok(object)) => {
                self.in_flight.remove(&key);
                self.store_written_binding(&object);
                let is_scheduled = |binding: &Binding| {
                    binding.status.scheduled_condition().is_some_and(|(status, ..)| status == "True")
                };
                if self.cache.bindings.get(&key).is_some_and(is_scheduled) {
                    self.retries.forget(&key);
                    self.first_statuses.forget(&key);
                }
                self.cache.mark_due(&key);
            }
            (Tag::Place(key, _) | Tag::Clear(key, ..), Err(failure)) => {
                if let Some((reason, message)) = self.apply_write_failure(&key, failure) {
                    self.write_refusal(&key, reason, &message);
                }
            }
            (Tag::Status(key), Err(failure)) => {
                // A status that says why would be refused as this one was.
                if let Some((reason, message)) = self.apply_write_failure(&key, failure) {
                    tracing::warn!(binding = %key, reason, message, "a status was refused; trying again later");
                }
            }
        }
    }

    /// Whether the answer is about the binding that is there now.
    fn store_written_binding(&mut self, object: &Value) -> bool {
        Binding::parse_binding(object).is_some_and(|binding| self.cache.store_written_binding(binding))
    }

    /// The clusters are written: now the status, with the generation that the write returned, and the Events.
    fn apply_placement_outcome(&mut self, key: &BindingKey, decision: &Decision, object: &Value) {
        if let Some((_, since)) = self.in_flight.remove(key) {
            self.first_statuses.observe_write(since.elapsed());
        }
        self.refused_at.remove(key);
        if !self.store_written_binding(object) {
            return self.cache.mark_due(key);
        }
        let Some(binding) = self.cache.bindings.get(key) else { return };
        let now = self.clock.now();
        let targets: &[Target] = &decision.targets;
        let message = binding_writes::describe_success(targets);
        tracing::info!(binding = %key, result = message, "placed");
        // Where a queued job is that found a place at once, its PodGroup says.
        let is_news = binding.is_unqueued() || binding.status.scheduled_condition().is_some();
        let is_recorded = is_news && self.event_budget.take_event(Instant::now());
        let events = is_recorded.then(|| binding_writes::build_schedule_events(binding, true, &message, now));
        self.first_statuses.observe_placement(binding, now, Instant::now());
        self.queue_scheduled_status(key, decision.affinity.clone(), true);
        self.write_events(events.unwrap_or_default());
    }

    /// What was assumed is not so: back to what the binding itself shows, and decide again when that makes sense. The
    /// reason and the message if the server refused the write.
    fn apply_write_failure(&mut self, key: &BindingKey, failure: Failure) -> Option<(&'static str, String)> {
        let decided_on = self.in_flight.remove(key).map(|(version, _)| version).unwrap_or_default();
        self.cache.update_assumed_pods(key);
        // Of one that is gone nothing is to be tried again.
        let is_newer = self.cache.bindings.get(key)?.resource_version != decided_on;
        match failure {
            Failure::Conflict(_) | Failure::Exists(_) => {
                self.metrics.conflicts.inc();
                if is_newer {
                    self.cache.mark_due(key);
                } else {
                    // Its event is on the way and will make it due; the timer is for the case that it is lost.
                    self.retries.add_failure(key, false, Instant::now());
                }
            }
            // One that was made anew under the same name was not decided while the write was in flight.
            Failure::Gone(_) if is_newer => self.cache.mark_due(key),
            Failure::Gone(_) => {}
            Failure::Transient(why) => {
                tracing::warn!(binding = %key, why, "a write did not get through; trying again");
                self.retries.add_failure(key, true, Instant::now());
            }
            Failure::Refused { reason, message, .. } => {
                let reason = if reason == QUOTA_EXCEEDED { QUOTA_EXCEEDED } else { SCHEDULER_ERROR };
                self.retries.add_failure(key, true, Instant::now());
                return Some((reason, message));
            }
        }
        None
    }
}
