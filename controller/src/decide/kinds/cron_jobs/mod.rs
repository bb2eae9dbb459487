//! CronJobs, of Volcano and of Kubernetes: a job at each time of a schedule, which waits in line like any other.
//!
//! Rules (Volcano `pkg/controllers/cronjob`, Kubernetes `pkg/controller/cronjob`):
//! - The job of a run is named by the run's minute, so that it is made once, whoever else tries. Of several runs that
//!   were missed the last is made, if it is not later than `startingDeadlineSeconds`.
//! - `Forbid` lets a run wait for the one before it, `Replace` deletes that first.
//! - A job that ended is kept as the history limits say, and not deleted before the status has its run: it would be
//!   made again.
//! - Its jobs have the labels of its template, by which a policy of its user selects them.
//! - One that a policy sends to members is run by them, and not here. One of Kubernetes whose jobs would not be queued,
//!   as they name no queue and their namespace did not opt in, is nobody's here.
//!
//! What goes wrong is told by an event on the CronJob, once. A host need not have CronJobs.

mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::gang::WorkloadRef;
use caldera_crds::{cron_job::due_time_of, tenancy::NamespaceFacts, workload::WorkloadKind};
use caldera_runtime::{
    event::{EventType, Regarding},
    watch::Event,
    write::Failure,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::plan::{CronJobView, last_schedule_time};
use crate::{
    decide::deadlines::add_wait,
    observe::{CronJobFacts, CronKey, CronOwner, Input, Key, Objects, Workload},
    write::Decision,
};

/// Event: no job is made of a run of a CronJob, and why.
const RUN_NOT_MADE: &str = "RunNotMade";
/// By then a write has been answered, and its answer seen.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// After a write that failed.
const RETRY_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
/// After one that the server refuses.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);
/// CronJobs that are looked at in one pass.
const CRON_JOBS_PER_PASS: usize = 16;

/// The name of a job, or the status where there is none.
type CronTarget = Option<Arc<str>>;

/// One CronJob, and what is under way for it.
#[derive(Debug)]
struct TrackedCronJob {
    facts: CronJobFacts,
    /// What is not written again before this time.
    waits: BTreeMap<CronTarget, Timestamp>,
    /// What the server said no to last.
    refused: Option<String>,
    /// The problem that was told last.
    reported: Option<String>,
}

/// All that is known of them.
#[derive(Debug, Default)]
pub(crate) struct CronJobs {
    all: BTreeMap<CronKey, TrackedCronJob>,
    /// Jobs that a CronJob of this name owns.
    jobs: BTreeMap<CronKey, BTreeSet<Arc<str>>>,
    /// The CronJobs of jobs that are there.
    parents: BTreeMap<CronKey, CronKey>,
    /// When to look at one.
    looks: BTreeMap<CronKey, Timestamp>,
}

/// Events and answers in.
impl CronJobs {
    pub(crate) fn observe_cron_jobs(&mut self, kind: WorkloadKind, event: Event<CronJobFacts>, now: Timestamp) {
        match event {
            Event::Applied(facts) => self.set_cron_job(facts, now),
            Event::Deleted(facts) => self.forget(&facts.key),
            Event::Reset(all) => {
                let there: BTreeSet<&CronKey> = all.iter().map(|facts| &facts.key).collect();
                let gone = self.all.keys().filter(|key| key.0 == kind && !there.contains(key));
                let gone: Vec<CronKey> = gone.cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
                all.into_iter().for_each(|facts| self.set_cron_job(facts, now));
            }
        }
    }

    fn set_cron_job(&mut self, facts: CronJobFacts, now: Timestamp) {
        self.looks.insert(facts.key.clone(), now);
        match self.all.get_mut(&facts.key) {
            // Another one of its name has nothing under way.
            Some(known) if known.facts.uid == facts.uid => known.facts = facts,
            _ => {
                let key = facts.key.clone();
                self.all.insert(key, TrackedCronJob { facts, waits: BTreeMap::new(), refused: None, reported: None });
            }
        }
    }

    fn forget(&mut self, key: &CronKey) {
        self.all.remove(key);
        self.looks.remove(key);
    }

    /// Takes in that namespaces may have opted in, or out: then the jobs of Kubernetes' CronJobs are queued, or not.
    pub(crate) fn observe_namespaces(&mut self, event: &Event<(String, NamespaceFacts)>, now: Timestamp) {
        let is_meant = |namespace: &str| match event {
            Event::Applied((name, _)) | Event::Deleted((name, _)) => name == namespace,
            Event::Reset(_) => true,
        };
        let keys = self.all.keys().filter(|(kind, key)| *kind == WorkloadKind::BatchJob && is_meant(&key.namespace));
        self.looks.extend(keys.map(|key| (key.clone(), now)));
    }

    /// Takes in that a job of this kind is new, changed or gone.
    pub(crate) fn observe_job(
        &mut self,
        kind: WorkloadKind,
        reference: &WorkloadRef,
        job: Option<&Workload>,
        now: Timestamp,
    ) {
        let key = (kind, Key::new(&reference.namespace, &reference.name));
        let owner = job.and_then(|job| job.cron_job.as_ref());
        let of = owner.map(|owner| (kind, Key::new(&reference.namespace, &owner.name)));
        let before = self.parents.remove(&key);
        if let Some(before) = before.filter(|before| of.as_ref() != Some(before)) {
            if let Some(jobs) = self.jobs.get_mut(&before) {
                jobs.remove(&key.1.name);
                if jobs.is_empty() {
                    self.jobs.remove(&before);
                }
            }
            self.schedule_look(&before, now);
        }
        if let Some(of) = of {
            self.jobs.entry(of.clone()).or_default().insert(Arc::clone(&key.1.name));
            self.schedule_look(&of, now);
            self.parents.insert(key, of);
        }
    }

    fn schedule_look(&mut self, key: &CronKey, now: Timestamp) {
        if self.all.contains_key(key) {
            self.looks.insert(key.clone(), now);
        }
    }

    /// Whether the CronJob of a Volcano Job does not say yet that its run was: gone, it would be made again.
    pub(crate) fn is_run_unrecorded(&self, job: &Key, owner: &CronOwner) -> bool {
        let parent = self.all.get(&(WorkloadKind::VolcanoJob, Key::new(&job.namespace, &owner.name)));
        parent.filter(|parent| parent.facts.uid == owner.uid && !parent.facts.is_deleting()).is_some_and(|parent| {
            due_time_of(&owner.name, &job.name).is_some_and(|due| Some(due) > last_schedule_time(&parent.facts.object))
        })
    }

    /// Takes in the answer to a write.
    pub(crate) fn apply_write_answer(
        &mut self,
        key: &CronKey,
        target: CronTarget,
        failure: Option<&Failure>,
        now: Timestamp,
    ) {
        let Some(tracked) = self.all.get_mut(key) else { return };
        let wait = match failure {
            None => None,
            Some(Failure::Refused { message, .. }) => {
                tracing::warn!(cron_job = %key.1, ?target, error = message, "a write for a CronJob is refused");
                tracked.refused = Some(message.clone());
                Some(RETRY_AFTER_REFUSAL)
            }
            Some(failure) => {
                tracing::debug!(cron_job = %key.1, ?target, %failure, "a write for a CronJob failed");
                Some(RETRY_AFTER_FAILURE)
            }
        };
        match wait {
            Some(wait) => drop(tracked.waits.insert(target, add_wait(now, wait))),
            None => drop(tracked.waits.remove(&target)),
        }
        self.looks.insert(key.clone(), now);
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.looks.values().min().copied()
    }
}

/// Decisions.
impl CronJobs {
    /// What is to be written for the CronJobs that are to be looked at.
    pub(crate) fn advance_cron_jobs(&mut self, objects: &Objects, now: Timestamp) -> Vec<Decision> {
        // Whoever waits longest goes first, whatever its name.
        let mut due: Vec<(Timestamp, CronKey)> =
            self.looks.iter().filter(|(_, at)| **at <= now).map(|(key, at)| (*at, key.clone())).collect();
        due.sort_unstable();
        let mut decisions = Vec::new();
        for (_, key) in due.into_iter().take(CRON_JOBS_PER_PASS) {
            self.looks.remove(&key);
            let Some(tracked) = self.all.get_mut(&key) else { continue };
            if tracked.facts.is_deleting() {
                continue;
            }
            tracked.waits.retain(|_, until| *until > now);
            let view = CronJobView { facts: &tracked.facts, objects, jobs: self.jobs.get(&key), waits: &tracked.waits };
            let plan = view.plan(now);
            let problem = plan.problem.or_else(|| tracked.refused.take());
            if problem.is_some() && problem != tracked.reported {
                decisions.extend(problem.as_deref().map(|problem| build_problem_event(&tracked.facts, problem)));
                tracked.reported = problem;
            }
            for write in plan.writes {
                tracked.waits.insert(write.target(), add_wait(now, WRITE_TIMEOUT));
                decisions.push(Decision::CronJob { key: key.clone(), write });
            }
            let next = tracked.waits.values().copied().chain(plan.next).min();
            self.looks.extend(next.map(|at| (key, at)));
        }
        decisions
    }
}

fn build_problem_event(facts: &CronJobFacts, problem: &str) -> Decision {
    Decision::RecordEvent {
        regarding: Regarding {
            api_version: facts.key.0.api_version(),
            kind: "CronJob".to_owned(),
            namespace: facts.key.1.namespace.to_string(),
            name: facts.key.1.name.to_string(),
            uid: facts.uid.to_string(),
        },
        event_type: EventType::Warning,
        reason: RUN_NOT_MADE.to_owned(),
        message: problem.to_owned(),
    }
}

/// Tells the next decision what a write left.
pub(in crate::decide) fn convert_written_object(target: &CronTarget, object: Value) -> Option<Input> {
    match target {
        None => CronJobFacts::read(object).map(|facts| Input::CronJobs(facts.key.0, Event::Applied(facts))),
        Some(_) => Workload::read(&object).map(|job| Input::Workloads(job.kind, Event::Applied(job))),
    }
}
