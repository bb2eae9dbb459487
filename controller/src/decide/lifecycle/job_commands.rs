//! Commands for Volcano Jobs: `vcctl job suspend`, `vcctl job resume`, and what else Volcano's job controller obeys.
//!
//! Rule: Volcano's `pkg/controllers/job/state`, for the whole job over all its clusters.
//!
//! | action | does |
//! |---|---|
//! | `AbortJob` | suspends the job (annotation `caldera.dev/suspended`) |
//! | `ResumeJob` | takes that away; of a job that its own policies aborted, copies are made anew |
//! | `RestartJob` | takes the job off its clusters, and has it wait in line with its age |
//! | `TerminateJob`, `CompleteJob` | ends the job for good (annotation `caldera.dev/end-as`) |
//!
//! `RestartTask`, `RestartPod` and `RestartPartition` are refused: a Command has no field that names a part. A member's
//! Volcano looks for the pods of the task without a name, finds none, and counts a retry (`handleCommands` and
//! `killPods`, `pkg/controllers/job`). So is what Volcano lets pass in silence: a Command for a job that ended, and all
//! but `ResumeJob` for one that is suspended. [`withdrawal`](super::withdrawal) does what the annotations say.
//!
//! Volcano deletes a Command first, and loses it in a crash. Here it is deleted when it is done. One that was done and
//! is still there after a crash finds its work done: the annotation, or the record of the eviction, which has the
//! Command's UID. Of one job a Command is carried out each second at most, the oldest first, and a limited number in
//! one pass: a flood of them delays its own job. A Command concerns a job of its own namespace only, and the API server
//! asks whether its writer may update that job (`commands.caldera.dev`).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use caldera_core::{gang::WorkloadRef, queue::ledger::AdmissionStage};
use caldera_crds::{
    names::caldera::{END_AS, SUSPENDED},
    workload::WorkloadKind,
};
use caldera_runtime::{
    event::{EventType, Regarding},
    watch::Event,
};
use jiff::{SignedDuration, Timestamp};

use super::withdrawal::is_suspended_by_another;
use crate::{
    decide::{
        bindings::{
            binding_state::find_run_time_exceeded,
            eviction::{RESTARTED, withdraw_binding},
            jobs::Jobs,
        },
        deadlines::add_wait,
    },
    observe::{Binding, CommandFacts, Key, Objects, Workload},
    write::Decision,
};

/// A Command may come before the job that it is for, as both are watched by themselves.
const WAIT_FOR_JOB: SignedDuration = SignedDuration::from_secs(60);
/// Nor is one refused, or taken to be done already, before its job is surely seen as its writer saw it.
const WAIT_FOR_STATE: SignedDuration = SignedDuration::from_secs(3);
/// By then a write has been answered.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// After a write that failed.
const RETRY_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
/// After one that the server refuses.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);
/// Between two Commands of one job.
const COMMAND_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Jobs that are looked at in one pass.
const JOBS_PER_PASS: usize = 64;
/// Event on a job: a Command for it was carried out, or had nothing left to do.
const COMMAND_ISSUED: &str = "CommandIssued";
/// Event on a job: a Command for it was refused, and why.
const COMMAND_REFUSED: &str = "CommandRefused";
/// Event on a Command: its job does not exist, or is another one by now; nothing was done.
const JOB_NOT_FOUND: &str = "JobNotFound";

/// A Command and what we did about it.
#[derive(Debug)]
struct TrackedJobCommand {
    facts: CommandFacts<Key>,
    /// Its annotation was written. Whatever the job says now, it is not written again.
    written: bool,
    /// Nothing more is to be done but to delete it.
    done: bool,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct JobCommands {
    /// By job, the oldest first. They stay until the watch says that they are gone, so that none is carried out again.
    commands: BTreeMap<Key, Vec<TrackedJobCommand>>,
    /// When to look at a job.
    looks: BTreeMap<Key, Timestamp>,
}

/// What comes of a Command now.
enum Outcome {
    /// It was carried out, and this is to be said.
    Done(String),
    /// The job is as it asks for, or has nothing that it could concern.
    Nothing(String),
    /// It is not carried out, for this reason.
    Refuse(String),
    /// There is no such job.
    NoJob,
    /// This is to be written, and to be seen.
    Write(Box<Decision>),
    /// Something else is being written.
    Wait,
}

/// Events and answers in.
impl JobCommands {
    /// Takes in Commands.
    pub(crate) fn observe_commands(&mut self, event: Event<CommandFacts<Key>>, now: Timestamp) {
        match event {
            Event::Applied(command) => self.add_command(command, false, now),
            Event::Deleted(command) => {
                let Some(all) = self.commands.get_mut(&command.target) else { return };
                all.retain(|known| known.facts.uid != command.uid);
                if all.is_empty() {
                    self.commands.remove(&command.target);
                    self.looks.remove(&command.target);
                } else {
                    self.looks.insert(command.target, add_wait(now, COMMAND_INTERVAL));
                }
            }
            Event::Reset(all) => {
                self.looks.clear();
                let old = mem::take(&mut self.commands).into_values().flatten();
                let done: BTreeSet<Arc<str>> =
                    old.filter(|command| command.done).map(|command| command.facts.uid).collect();
                for command in all {
                    let done = done.contains(&command.uid);
                    self.add_command(command, done, now);
                }
            }
        }
    }

    fn add_command(&mut self, facts: CommandFacts<Key>, done: bool, now: Timestamp) {
        let of_job = self.commands.entry(facts.target.clone()).or_default();
        if let Some(known) = of_job.iter_mut().find(|known| known.facts.uid == facts.uid) {
            known.facts.deleting |= facts.deleting;
        } else {
            let at = of_job.partition_point(|known| known.facts.rank_by_age() < facts.rank_by_age());
            of_job.insert(at, TrackedJobCommand { facts: facts.clone(), written: false, done });
        }
        self.looks.entry(facts.target).or_insert(now);
    }

    /// Takes in that a job or its binding changed.
    pub(crate) fn observe_job(&mut self, job: &WorkloadRef, now: Timestamp) {
        if self.commands.is_empty() {
            return;
        }
        let key = Key::new(&job.namespace, &job.name);
        if self.commands.contains_key(&key) {
            self.looks.insert(key, now);
        }
    }

    /// Takes in that a write for a job failed, for good or for now.
    pub(crate) fn postpone_after_failure(&mut self, job: &Key, is_refused: bool, now: Timestamp) {
        if let Some(at) = self.looks.get_mut(job) {
            *at = add_wait(now, if is_refused { RETRY_AFTER_REFUSAL } else { RETRY_AFTER_FAILURE });
        }
    }

    /// Takes in that the oldest Command of a job was written into its annotation.
    pub(crate) fn mark_annotation_written(&mut self, job: &Key, now: Timestamp) {
        if let Some(command) = self.commands.get_mut(job).and_then(|all| all.iter_mut().find(|it| !it.facts.deleting)) {
            command.written = true;
            self.looks.insert(job.clone(), now);
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.looks.values().min().copied()
    }
}

/// Decisions.
impl JobCommands {
    /// Takes the next step of the oldest Command of each job that is to be looked at.
    pub(crate) fn carry_out_commands(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let due: Vec<Key> =
            self.looks.iter().filter(|(_, at)| **at <= now).map(|(job, _)| job.clone()).take(JOBS_PER_PASS).collect();
        let mut decisions = Vec::new();
        for job in due {
            let command = self.commands.get_mut(&job).and_then(|all| all.iter_mut().find(|it| !it.facts.deleting));
            let Some(command) = command else {
                self.looks.remove(&job);
                continue;
            };
            let facts = &command.facts;
            let age = now.duration_since(facts.created.to_timestamp().unwrap_or(now));
            let mut next = WRITE_TIMEOUT;
            if !command.done {
                let outcome = match decide_command_outcome(objects, jobs, facts, now) {
                    Outcome::Write(_) if command.written => Outcome::Done("it was carried out".to_owned()),
                    outcome => outcome,
                };
                let too_soon = match &outcome {
                    Outcome::NoJob => WAIT_FOR_JOB,
                    Outcome::Nothing(_) | Outcome::Refuse(_) if !command.written => WAIT_FOR_STATE,
                    _ => SignedDuration::ZERO,
                };
                match outcome {
                    _ if age < too_soon => next = too_soon.saturating_sub(age),
                    Outcome::Wait => next = RETRY_AFTER_FAILURE,
                    Outcome::Write(decision) => decisions.push(*decision),
                    Outcome::Done(said) | Outcome::Nothing(said) => {
                        decisions.push(build_command_event(objects, facts, EventType::Normal, COMMAND_ISSUED, &said));
                        command.done = true;
                    }
                    Outcome::Refuse(said) => {
                        let said = format!("not carried out: {said}");
                        decisions.push(build_command_event(objects, facts, EventType::Warning, COMMAND_REFUSED, &said));
                        command.done = true;
                    }
                    Outcome::NoJob => {
                        let said = format!("there is no job {job}, or it is another one by now: nothing was done");
                        decisions.push(build_command_event(objects, facts, EventType::Warning, JOB_NOT_FOUND, &said));
                        command.done = true;
                    }
                }
            }
            if command.done {
                decisions.push(Decision::DeleteJobCommand {
                    key: command.facts.key.clone(),
                    job: job.clone(),
                    uid: Arc::clone(&command.facts.uid),
                });
            }
            self.looks.insert(job, add_wait(now, next));
        }
        decisions
    }
}

fn find_job<'a>(objects: &'a Objects, command: &CommandFacts<Key>) -> Option<&'a Workload> {
    let kind = WorkloadKind::VolcanoJob;
    let reference = WorkloadRef {
        group: kind.api_resource().group,
        kind: kind.kind().to_owned(),
        namespace: command.target.namespace.to_string(),
        name: command.target.name.to_string(),
    };
    let job = objects.workloads.get(&reference)?;
    (!job.deleting && (command.target_uid.is_empty() || command.target_uid == job.uid)).then_some(job)
}

/// What comes of a Command for the state that its job is in.
fn decide_command_outcome(objects: &Objects, jobs: &Jobs, command: &CommandFacts<Key>, now: Timestamp) -> Outcome {
    let Some(job) = find_job(objects, command) else { return Outcome::NoJob };
    let ended = job.progress.ended.as_deref();
    let is_aborted = ended == Some("Aborted");
    let annotate = |name: &'static str, value: Option<&'static str>| {
        Outcome::Write(Box::new(Decision::AnnotateJob {
            key: command.target.clone(),
            resource_version: Arc::clone(&job.resource_version),
            name,
            value,
        }))
    };
    let end = |action: &str| if action == "TerminateJob" { "Terminated" } else { "Completed" };
    match &*command.action {
        "RestartTask" | "RestartPod" | "RestartPartition" => Outcome::Refuse(
            "it is for a part of a job, and does not say which; RestartJob restarts all of it, policies of the job's tasks \
             restart parts in their cluster"
                .to_owned(),
        ),
        action @ ("TerminateJob" | "CompleteJob") if job.end_as == Some(end(action)) => {
            Outcome::Nothing(format!("nothing to do: the job is {} once its copies are gone", end(action)))
        }
        "AbortJob" | "ResumeJob" | "RestartJob" | "TerminateJob" | "CompleteJob"
            if job.end_as.is_some() || (ended.is_some() && !is_aborted) =>
        {
            Outcome::Refuse(format!("the job has ended, or ends, as {}", ended.or(job.end_as).unwrap_or_default()))
        }
        "AbortJob" | "ResumeJob" | "RestartJob" | "TerminateJob" | "CompleteJob"
            if objects.binding_of(&job.reference).and_then(find_run_time_exceeded).is_some() =>
        {
            Outcome::Refuse("the job ran for as long as it may, and is Terminated once its copies are gone".to_owned())
        }
        "AbortJob" if job.suspended.is_some() || is_aborted => Outcome::Nothing("nothing to do: the job is suspended".to_owned()),
        "AbortJob" => annotate(SUSPENDED, Some("true")),
        "ResumeJob" if job.suspended.is_some() => annotate(SUSPENDED, None),
        "ResumeJob" if is_aborted => decide_restart(objects, jobs, job, command, now),
        "ResumeJob" => Outcome::Nothing("nothing to do: the job is not suspended".to_owned()),
        "RestartJob" | "TerminateJob" | "CompleteJob" if is_aborted || job.suspended.is_some() => {
            Outcome::Refuse("the job is suspended: only ResumeJob is for one that is".to_owned())
        }
        // Karmada tells the binding first that a job has ended. Then it is not begun anew: the job will say so.
        "RestartJob" if objects.binding_of(&job.reference).is_some_and(has_ended_in_clusters) => Outcome::Wait,
        "RestartJob" => decide_restart(objects, jobs, job, command, now),
        action @ ("TerminateJob" | "CompleteJob") => annotate(END_AS, Some(end(action))),
        action => Outcome::Refuse(format!("{action:?} is no action of a job")),
    }
}

fn has_ended_in_clusters(binding: &Binding) -> bool {
    binding.ended_everywhere && !binding.clusters.is_empty()
}

/// Takes a job off its clusters, if this very Command has not done so before.
fn decide_restart(
    objects: &Objects,
    jobs: &Jobs,
    job: &Workload,
    command: &CommandFacts<Key>,
    now: Timestamp,
) -> Outcome {
    let nothing = || Outcome::Nothing("nothing to do: the job has no clusters".to_owned());
    let Some(binding) = objects.binding_of(&job.reference) else { return nothing() };
    if !jobs.is_confirmed(&binding.key) {
        return Outcome::Wait;
    }
    let record = binding.eviction.as_deref();
    if record.is_some_and(|record| record.reason == RESTARTED && record.preemptor == *command.uid) {
        return Outcome::Done("the job was taken off its clusters, and waits in line with its age".to_owned());
    }
    match jobs.states.get(&binding.key).and_then(|state| state.stage()) {
        None => nothing(),
        // One that its own policies aborted holds nothing, and has its copies.
        Some(AdmissionStage::Finished) if binding.clusters.is_empty() => nothing(),
        Some(_) if is_suspended_by_another(binding) => {
            Outcome::Refuse("somebody else has suspended its binding".to_owned())
        }
        Some(_) => {
            let why = format!("restarted by Command {}", command.key);
            Outcome::Write(Box::new(withdraw_binding(binding, RESTARTED, why, &command.uid, now)))
        }
    }
}

/// An event on the job, or on the Command where there is no job.
fn build_command_event(
    objects: &Objects,
    command: &CommandFacts<Key>,
    event_type: EventType,
    reason: &str,
    message: &str,
) -> Decision {
    let message = format!("Command {} ({}): {message}", command.key.name, command.action);
    if let Some(job) = find_job(objects, command) {
        return Decision::build_workload_event(job, event_type, reason, message);
    }
    Decision::RecordEvent {
        regarding: Regarding {
            api_version: "bus.volcano.sh/v1alpha1".to_owned(),
            kind: "Command".to_owned(),
            namespace: command.key.namespace.to_string(),
            name: command.key.name.to_string(),
            uid: command.uid.to_string(),
        },
        event_type,
        reason: reason.to_owned(),
        message,
    }
}
