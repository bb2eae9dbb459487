//! Runs that take as long as they may: their users are warned, and then they are ended.
//!
//! Rule: Slurm's time limit ([`caldera_core::run_limit`]). The limit is part of the admission record, so a restart
//! forgets none; it may warn a second time. At the end a job is taken off its clusters as one that its user suspends,
//! with reason `RunTimeExceeded`: its charge returns. The eviction record names the workload by its UID. As long as it
//! does, nothing has the job in line again: neither a Command nor an annotation. A new workload of the same name is
//! another one. A Volcano Job says that it was Terminated once its copies are gone, and its TTL counts from then. Other
//! kinds have no such phase: they stay off their clusters. A job that was placed nowhere until then has not run: it is
//! requeued instead.
//!
//! That a status says that the job has ended, or that its user suspended the binding, does not keep a run that is in
//! clusters from its end: its pods may run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    queue::ledger::AdmissionStage,
    reason::Reason,
    run_limit::{RunLimit, RunTime},
    time::EpochSeconds,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{clock::format_time, event::EventType};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{NOT_PLACED, RUN_TIME_EXCEEDED, requeue_binding, withdraw_binding},
            eviction_wait::copies_known_at,
            jobs::{JobPhase, Jobs},
        },
        deadlines::add_wait,
    },
    observe::{Binding, Key, Objects, Workload},
    write::{Decision, EndCause},
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);
/// A write is answered, or the object seen, by then: the end is sent again for another version alone before.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// While the last write to the binding was not seen in the watch.
const UNCONFIRMED: SignedDuration = SignedDuration::from_millis(250);
/// Event: the job is ended soon, since it ran for almost as long as it may.
const RUN_TIME_ENDING: &str = "RunTimeEnding";

/// What is to be done next about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunStep {
    /// Tell its user that it is about to be ended.
    Warn(RunLimit),
    /// Take it off its clusters.
    End(RunLimit),
    /// Its copies are gone: say that it ended.
    Close,
}

/// Bindings whose runs have a limit, what is to be done next about each, and when.
#[derive(Debug, Default)]
pub(crate) struct RunLimits {
    steps: BTreeMap<Key, (Timestamp, RunStep)>,
    /// The version of each binding for which its end was last sent.
    sent: BTreeMap<Key, Arc<str>>,
    due: BTreeSet<(Timestamp, Key)>,
}

impl RunLimits {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.sent.remove(key);
        if let Some((at, _)) = self.steps.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    fn set(&mut self, key: &Key, at: Timestamp, step: RunStep) {
        if let Some((at, _)) = self.steps.get(key) {
            self.due.remove(&(*at, key.clone()));
        }
        self.steps.insert(key.clone(), (at, step));
        self.due.insert((at, key.clone()));
    }

    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        phase: &JobPhase,
        now: Timestamp,
    ) {
        let Some(first) = decide_first_step(binding, workload, phase) else { return self.forget(&binding.key) };
        let known = self.steps.get(&binding.key).map(|(_, step)| *step);
        match (first, known) {
            // Whoever changes the binding all the time does not outlast its end: each change is another attempt.
            (RunStep::Warn(limit), Some(RunStep::End(known)))
                if limit == known
                    && now >= to_timestamp(known.ends_at())
                    && self.sent.get(&binding.key) != Some(&binding.resource_version) =>
            {
                self.set(&binding.key, now, RunStep::End(known));
            }
            // Its time runs on, however often the binding changes.
            (RunStep::Warn(limit), Some(RunStep::Warn(known) | RunStep::End(known))) if limit == known => {}
            (RunStep::Close, Some(RunStep::Close)) => {}
            (RunStep::Warn(limit) | RunStep::End(limit), _) => {
                self.set(&binding.key, to_timestamp(limit.warns_at()), first);
            }
            (RunStep::Close, _) => self.set(&binding.key, copies_known_at(binding, now), first),
        }
    }

    /// Takes the next step of each.
    pub(crate) fn warn_and_end_runs(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let due: Vec<Key> = self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key.clone()).collect();
        let mut decisions = Vec::new();
        for key in due {
            let Some((_, step)) = self.steps.get(&key).copied() else { continue };
            let next = match step {
                RunStep::Warn(limit) if now < to_timestamp(limit.ends_at()) => {
                    self.set(&key, to_timestamp(limit.ends_at()), RunStep::End(limit));
                    build_warning_event(objects, &key, limit, now)
                }
                RunStep::Warn(limit) | RunStep::End(limit) => {
                    let binding = jobs.find_confirmed(objects, &key);
                    self.set(&key, add_wait(now, binding.map_or(UNCONFIRMED, |_| WRITE_TIMEOUT)), RunStep::End(limit));
                    binding.map(|binding| {
                        self.sent.insert(key, Arc::clone(&binding.resource_version));
                        end_run(binding, limit, now)
                    })
                }
                RunStep::Close => {
                    self.set(&key, add_wait(now, RETRY_AFTER_WRITE), step);
                    objects.bindings.get(&key).and_then(|binding| objects.workload_of(binding)).map(mark_job_ended)
                }
            };
            decisions.extend(next);
        }
        decisions
    }
}

/// What comes first for a binding as it is; `None` where its run has no limit.
fn decide_first_step(binding: &Binding, workload: Option<&Workload>, phase: &JobPhase) -> Option<RunStep> {
    if binding.deleting {
        return None;
    }
    match phase {
        JobPhase::Holding { stage, .. } => get_current_run_limit(binding, Some(*stage)).map(RunStep::Warn),
        JobPhase::Blocked(reason) if matches!(**reason, Reason::RunTimeExceeded { .. }) => {
            let workload = workload.filter(|workload| workload.kind == WorkloadKind::VolcanoJob)?;
            let is_open = workload.progress.ended.is_none() && !workload.deleting;
            (is_open && binding.clusters.is_empty() && !binding.has_copies).then_some(RunStep::Close)
        }
        _ => None,
    }
}

fn build_warning_event(objects: &Objects, key: &Key, limit: RunLimit, now: Timestamp) -> Option<Decision> {
    let workload = objects.bindings.get(key).and_then(|binding| objects.workload_of(binding))?;
    let left = limit.ends_at().seconds_since(EpochSeconds::from(now));
    let message = format!(
        "it may run for {}, and is ended in {}, at {}; it does not start again by itself",
        RunTime(limit.seconds),
        RunTime(left),
        format_time(to_timestamp(limit.ends_at()))
    );
    Some(Decision::build_workload_event(workload, EventType::Warning, RUN_TIME_ENDING, message))
}

/// The end of a run. What was never placed has not run, and is put back in line.
fn end_run(binding: &Binding, limit: RunLimit, now: Timestamp) -> Decision {
    if binding.clusters.is_empty() {
        let why = format!("it was placed nowhere for {}, as long as it may run", RunTime(limit.seconds));
        return requeue_binding(binding, NOT_PLACED, why, Vec::new(), now);
    }
    let why = format!("it ran for {}, as long as it may", RunTime(limit.seconds));
    withdraw_binding(binding, RUN_TIME_EXCEEDED, why, &binding.workload_uid, now)
}

fn mark_job_ended(workload: &Workload) -> Decision {
    Decision::EndJob {
        key: Key::new(&workload.reference.namespace, &workload.reference.name),
        resource_version: Arc::clone(&workload.resource_version),
        phase: "Terminated",
        cause: EndCause::RunTime,
    }
}

/// When the run of a binding is ended, for its user to read; nothing of one that is over.
pub(crate) fn describe_limit(binding: &Binding, stage: Option<AdmissionStage>) -> Option<String> {
    let run = get_current_run_limit(binding, stage)?;
    let (limit, end) = (RunTime(run.seconds), format_time(to_timestamp(run.ends_at())));
    Some(format!("it may run for {limit} and is ended at {end}"))
}

/// The limit of a run that goes on.
pub(crate) fn get_current_run_limit(binding: &Binding, stage: Option<AdmissionStage>) -> Option<RunLimit> {
    let goes_on = matches!(stage, Some(AdmissionStage::Admitted | AdmissionStage::Placed));
    binding.admission.as_ref().filter(|_| goes_on)?.run
}

/// The first or last of all times where it is before or after them.
pub(crate) fn to_timestamp(time: EpochSeconds) -> Timestamp {
    let beyond = if time.as_seconds() < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_second(time.as_seconds()).unwrap_or(beyond)
}
