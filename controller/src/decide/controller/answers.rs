//! What the answer to each write means for the state.
//!
//! Each answer comes back with the [`Tag`] of its write:
//! - `Release`, for a resize too: one that may have been stored keeps its charge until the watch shows what became of
//!   it, however late. A conflict says that the binding has changed, maybe by this very release sent before. Until then
//!   the same patch is sent again, now and then: its precondition lets it succeed once only. A refusal gives it up.
//! - `Evict`, for a cut of surplus too: what was stored is told in an event; what failed is decided anew.
//! - `PodGroup`, `WaitingState`, `QueueNumbers`, `QueueState`, `QueueAnnotation`: what was stored is taken in as if the
//!   watch had shown it. What failed is decided again after a wait; numbers that the server refuses are not sent again.
//! - `Command`, `JobCommand`: a deletion that failed is tried again. That it is gone, the watch says.
//! - `AnnotateJob`: the Command that it was for is marked as carried out, or tried again.
//! - `DeleteJob`: a deletion for a TTL that failed is tried again.
//! - `HyperJob`: what was made or changed is taken in; a refusal is told in a condition of the HyperJob.
//! - `DefaultQueue`: tried again after a backoff, unless the queue exists.
//! - `FailJob`, `EndJob`, `DropHeldCopies`, `Unrepeated`: a failure is logged and no more; what still matters is
//!   decided anew by its own module.

use std::sync::Arc;

use caldera_core::gang::QueueName;
use caldera_crds::{
    karmada::work::ResourceBinding,
    volcano::scheduling::{PodGroup, Queue},
};
use caldera_runtime::{
    event::EventType,
    watch::Event,
    write::{Failure, WriteOutcome},
};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Controller;
use crate::{
    decide::{
        bindings::{eviction::describe_eviction_event, jobs::ReleaseOutcome},
        deadlines::{add_wait, compute_backoff},
        kinds::{cron_jobs, hyper_jobs},
        queues::{queue_annotations::AnnotationOutcome, queue_lifecycle::WriteFailure},
    },
    observe::{Binding, DataClaimFacts, DataSourceFacts, Input, Key, PodGroupFacts, QueueFacts, Workload},
    write::{Decision, Tag, data_claim::DataTarget},
};

impl Controller {
    /// Takes in the answer to a write, at this time.
    pub fn apply_write_answer(&mut self, done: WriteOutcome<Tag>, now: Timestamp) {
        self.now = now;
        if let Err(failure) = &done.result {
            self.sent_writes.observe_failure(&done.tag, failure, now);
        }
        match done.tag {
            Tag::Release(key, version) => self.apply_release_answer(&key, &version, done.result),
            Tag::Evict(key) => self.apply_eviction_answer(&key, done.result),
            Tag::PodGroup(key, group) => self.apply_pod_group_answer(&key, &group, done.result),
            Tag::QueueNumbers(name) => self.apply_queue_numbers_answer(&name, done.result),
            Tag::QueueState(name, version) => self.apply_queue_state_answer(&name, &version, done.result),
            Tag::QueueAnnotation(name) => self.apply_queue_annotation_answer(&name, done.result),
            Tag::Command(queue, uid) => {
                let failure = done.result.err().map(|error| classify_failure(&error, &queue, "delete a Command of"));
                self.queues.lifecycle.apply_deletion_answer(&queue, &uid, failure.as_ref(), now);
            }
            Tag::AnnotateJob(key) => match done.result {
                Ok(object) => {
                    if let Some(job) = Workload::read(&object) {
                        self.observe(Input::Workloads(job.kind, Event::Applied(job)), now);
                    }
                    self.commands.mark_annotation_written(&key, now);
                }
                Err(error) => self.apply_failed_command(&key, &error),
            },
            Tag::WaitingState(key) => self.apply_waiting_state_answer(&key, done.result),
            Tag::JobCommand(key) => match done.result {
                // The watch says that it is gone.
                Ok(_) | Err(Failure::Gone(_)) => {}
                Err(error) => self.apply_failed_command(&key, &error),
            },
            Tag::DeleteJob(key) => {
                if let Err(error) = done.result {
                    let is_refused = matches!(error, Failure::Refused { .. });
                    tracing::debug!(job = %key, %error, "a job whose TTL is over was not deleted");
                    self.expiries.postpone_after_failure(&key, is_refused, now);
                }
            }
            Tag::HyperJob(key, target, is_deletion) => {
                let failure = done.result.as_ref().err().cloned();
                // What was deleted, the watch tells.
                let written = done.result.ok().filter(|_| !is_deletion);
                let written = written.and_then(|object| hyper_jobs::convert_written_object(&target, object));
                if let Some(input) = written {
                    self.observe(input, now);
                }
                self.hyper_jobs.apply_write_answer(&key, target, failure.as_ref(), now);
            }
            Tag::Data(target, is_deletion) => {
                let failure = done.result.as_ref().err().cloned();
                // What was deleted, the watch tells.
                if let Some(object) = done.result.ok().filter(|_| !is_deletion) {
                    self.store_data_answer(&target, object);
                }
                self.data_claims.apply_write_answer(&target, failure.as_ref(), now);
            }
            Tag::CronJob(key, target, is_deletion) => {
                let failure = done.result.as_ref().err().cloned();
                // What was deleted, the watch tells.
                let written = done.result.ok().filter(|_| !is_deletion);
                if let Some(input) = written.and_then(|object| cron_jobs::convert_written_object(&target, object)) {
                    self.observe(input, now);
                }
                self.cron_jobs.apply_write_answer(&key, target, failure.as_ref(), now);
            }
            Tag::DefaultQueue => match done.result {
                Ok(_) | Err(Failure::Exists(_)) => {}
                Err(error) => {
                    let first = if matches!(error, Failure::Transient(_)) { 1 } else { 60 };
                    let asked = &mut self.default_queue;
                    asked.failures = asked.failures.saturating_add(1);
                    let wait = compute_backoff(SignedDuration::from_secs(first), asked.failures);
                    asked.again = Some(add_wait(now, wait));
                    tracing::warn!(%error, again_after = %wait, "failed to create the default queue");
                }
            },
            Tag::Unrepeated | Tag::FailJob(_) | Tag::EndJob(_) | Tag::DropHeldCopies(_) => {
                if let Err(error) = done.result {
                    tracing::debug!(%error, "a write that is decided anew, if it matters yet, failed");
                }
            }
        }
    }

    fn apply_failed_command(&mut self, job: &Key, error: &Failure) {
        let is_refused = matches!(error, Failure::Refused { .. });
        tracing::info!(%job, %error, is_refused, "a Command is not carried out yet");
        self.commands.postpone_after_failure(job, is_refused, self.now);
    }

    fn apply_release_answer(&mut self, key: &Key, version: &str, result: Result<Value, Failure>) {
        if !self.jobs.is_assumed_at(key, version) {
            return;
        }
        let outcome = match result {
            Ok(object) => return self.observe_written_binding(key, object),
            Err(Failure::Gone(_)) => return self.forget_gone_binding(key),
            Err(Failure::Transient(error)) => {
                tracing::debug!(binding = %key, %error, "whether the release was stored is not known; sending it again");
                ReleaseOutcome::Unknown
            }
            Err(Failure::Conflict(_)) => ReleaseOutcome::Conflict,
            Err(error) => {
                tracing::warn!(binding = %key, %error, "the release was refused");
                ReleaseOutcome::Refused(error.to_string())
            }
        };
        let Some(binding) = self.objects.bindings.get(key) else { return };
        if self.jobs.apply_failed_release(binding, version, outcome, self.now) {
            self.reassess_binding(key);
        }
    }

    fn apply_eviction_answer(&mut self, key: &Key, result: Result<Value, Failure>) {
        let written = result.is_ok();
        self.jobs.end_eviction(key);
        match result {
            Ok(object) => {
                self.observe_written_binding(key, object);
                if let Some(binding) = self.objects.bindings.get(key)
                    && let Some(eviction) = binding.eviction.as_deref()
                {
                    self.actions.record_eviction(binding, eviction, self.now);
                }
            }
            Err(error) => {
                tracing::info!(binding = %key, %error, "a job was not evicted; deciding anew");
                if matches!(error, Failure::Gone(_)) {
                    self.forget_gone_binding(key);
                }
            }
        }
        let binding = self.objects.bindings.get(key);
        let requeue = || {
            let record = binding.filter(|_| written)?.eviction.as_deref()?;
            describe_eviction_event(record).map(|(kind, said)| (kind, record.reason.clone(), said))
        };
        let evicted = self.preemption.apply_write_answer(key, written);
        let said = evicted.map(|(reason, said)| (EventType::Normal, reason, said)).or_else(requeue);
        let workload = binding.and_then(|binding| self.objects.workload_of(binding));
        let event = said
            .zip(workload)
            .map(|((kind, reason, said), it)| Decision::build_workload_event(it, kind, &reason, said));
        self.outbox.extend(event);
    }

    fn observe_written_binding(&mut self, key: &Key, object: Value) {
        match serde_json::from_value::<ResourceBinding>(object) {
            Ok(object) => self.observe(Input::Bindings(Event::Applied(Binding::read(&object))), self.now),
            Err(error) => tracing::warn!(binding = %key, %error, "a binding that we wrote does not parse"),
        }
    }

    fn forget_gone_binding(&mut self, key: &Key) {
        let gone = self.objects.remove_binding(key);
        self.propagate_changes(gone.into_iter().collect());
    }

    fn apply_pod_group_answer(&mut self, key: &Key, group: &Key, result: Result<Value, Failure>) {
        let wait = match result {
            Ok(object) => {
                match serde_json::from_value::<PodGroup>(object) {
                    Ok(object) => {
                        self.observe(Input::PodGroups(Event::Applied(PodGroupFacts::read(&object))), self.now);
                    }
                    Err(error) => tracing::warn!(binding = %key, %error, "a PodGroup that we wrote does not parse"),
                }
                None
            }
            Err(Failure::Gone(_)) => {
                self.objects.pod_groups.remove(group);
                Some(1)
            }
            // It is ours, and will be seen; or somebody else's.
            Err(Failure::Exists(_)) => {
                self.pod_groups.observe_taken_name(key);
                Some(5)
            }
            Err(Failure::Transient(_) | Failure::Conflict(_)) => Some(1),
            // Its job goes too.
            Err(error) if error.is_of_ending_namespace() => {
                tracing::debug!(binding = %key, %error, "a job in a namespace that is being deleted gets no PodGroup");
                Some(60)
            }
            Err(error) => {
                tracing::warn!(binding = %key, %error, "failed to write a PodGroup");
                Some(60)
            }
        };
        self.pod_groups.apply_write_answer(key, wait, self.now);
    }

    fn apply_waiting_state_answer(&mut self, key: &Key, result: Result<Value, Failure>) {
        let wait = match result {
            Ok(object) => {
                if let Some(job) = Workload::read(&object) {
                    self.observe(Input::Workloads(job.kind, Event::Applied(job)), self.now);
                }
                None
            }
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(binding = %key, error = message, "failed to say on a job why it waits");
                Some(60)
            }
            // The watch says what it is by now, or that it is gone.
            Err(error) => {
                tracing::debug!(binding = %key, %error, "a job does not say yet why it waits");
                Some(1)
            }
        };
        self.waiting_states.apply_write_answer(&self.objects, &self.jobs, key, wait, self.now);
    }

    fn apply_queue_numbers_answer(&mut self, name: &QueueName, result: Result<Value, Failure>) {
        self.queues.lifecycle.observe_queue(name, false);
        let refused = matches!(result, Err(Failure::Refused { .. }));
        self.queues.numbers.apply_write_answer(name, refused);
        match result {
            Ok(object) => self.observe_written_queue(object),
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to write the status of a queue");
            }
            // Gone queues are forgotten by their event; all else is tried again with the next sweep.
            Err(_) => self.jobs.changed = true,
        }
    }

    fn apply_queue_state_answer(&mut self, name: &QueueName, version: &Arc<str>, result: Result<Value, Failure>) {
        // Its numbers may have waited for this.
        self.jobs.changed = true;
        let failure = match result {
            Ok(object) => {
                self.observe_written_queue(object);
                None
            }
            Err(error) => Some(classify_failure(&error, name, "open or close")),
        };
        self.queues.lifecycle.apply_state_answer(name, version, failure.as_ref(), self.now);
    }

    fn apply_queue_annotation_answer(&mut self, name: &QueueName, result: Result<Value, Failure>) {
        let outcome = match result {
            Ok(object) => {
                self.observe_written_queue(object);
                AnnotationOutcome::Written
            }
            Err(Failure::Gone(_)) => AnnotationOutcome::Gone,
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to say on a queue which amounts count");
                AnnotationOutcome::Refused
            }
            Err(_) => AnnotationOutcome::Failed,
        };
        self.queues.annotations.apply_write_answer(name, &outcome, self.now);
    }

    fn store_data_answer(&mut self, target: &DataTarget, object: Value) {
        let data = &mut self.objects.data;
        match target {
            DataTarget::Claim(_) => {
                let written = parse_written(object).map(|object| DataClaimFacts::read(&object));
                written.into_iter().for_each(|facts| data.store_claim_answer(facts));
            }
            DataTarget::Source(_) => {
                let written = parse_written(object).map(|object| DataSourceFacts::read(&object));
                written.into_iter().for_each(|facts| data.store_source_answer(facts));
            }
        }
    }

    fn observe_written_queue(&mut self, object: Value) {
        if let Some(object) = parse_written::<Queue>(object) {
            self.observe(Input::Queues(Event::Applied(QueueFacts::read(&object))), self.now);
        }
    }
}

fn parse_written<T: DeserializeOwned>(object: Value) -> Option<T> {
    let parsed = serde_json::from_value(object);
    parsed.inspect_err(|error| tracing::warn!(%error, "an object that we wrote does not parse")).ok()
}

fn classify_failure(error: &Failure, queue: &QueueName, what: &str) -> WriteFailure {
    match error {
        Failure::Gone(_) | Failure::Conflict(_) => WriteFailure::Changed,
        Failure::Transient(_) | Failure::Exists(_) => WriteFailure::Transient,
        Failure::Refused { message, .. } => {
            tracing::warn!(%queue, error = message, "failed to {what} a queue");
            WriteFailure::Refused
        }
    }
}
