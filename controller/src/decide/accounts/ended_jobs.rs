//! Which ends of jobs are recorded in the [`history`](crate::history), each once.
//!
//! Rule: an admitted job is recorded when its status says that it ended, or when it is deleted before that. One that
//! was taken off its clusters to end, as by its time limit or a `TerminateJob`, is recorded with the grant that it ran
//! under last, as far as this controller saw that, and ran until that grant went. A job that had ended before this
//! controller started is recorded only if its end is later than the newest one that the history has already dropped.
//! Its status is its user's to write: an end in the future is taken to be now, and of a job that ends in several ways
//! one run counts for [past runs](caldera_core::past_runs), the first.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, QueueName},
    past_runs::PastRuns,
    resources::Resources,
    time::EpochSeconds,
};
use caldera_runtime::write::Write;
use jiff::Timestamp;

use crate::{
    history::{DELETED, EndedJob, JobHistory},
    observe::{Binding, Key, Workload},
    published_runs::publish_runs,
};

/// Ends that are kept for a history that is not read yet.
const MOST_EARLY: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EndedJobs {
    history: JobHistory,
    /// How long those ran that are in it.
    past: PastRuns,
    /// They are others than were written last.
    is_past_changed: bool,
    /// What earlier controllers wrote has been read: before that nothing is written.
    is_read: bool,
    /// Ends seen before that, and whether they were there when this controller began.
    early: VecDeque<(EndedJob, bool)>,
    /// Bindings of jobs whose end was taken in, by the job's UID.
    taken: BTreeMap<Key, Arc<str>>,
    /// Runs of jobs that have not ended: one that is deleted, or ends off its clusters, says no more.
    runs: BTreeMap<Key, LastRun>,
}

/// The run of a job that it has, or had last.
#[derive(Debug)]
struct LastRun {
    workload: Arc<str>,
    admission: Arc<Admission>,
    clusters: Vec<ClusterName>,
    facts: RunFacts,
    /// When the admission was gone, if it is.
    stopped: Option<Timestamp>,
}

/// What its workload says of a run.
#[derive(Debug, Default)]
struct RunFacts {
    /// When it began, in seconds since 1970, if it did.
    began: Option<EpochSeconds>,
    /// Seconds that it says it runs.
    said: Option<u64>,
    /// Who submitted it, where that is known.
    user: Option<Arc<str>>,
}

impl EndedJobs {
    /// Takes in what earlier controllers wrote.
    pub(crate) fn merge_history(&mut self, read: JobHistory) {
        if mem::replace(&mut self.is_read, true) {
            return;
        }
        let mut known = BTreeSet::new();
        for job in read.list_lines() {
            if known.insert(job.uid.clone()) {
                self.remember_past_run(&job);
            }
        }
        self.history = read;
        mem::take(&mut self.early).into_iter().for_each(|(job, is_old)| self.record(job, is_old));
    }

    /// Takes in how far the job of a binding is. `is_old`: this controller has only begun to look.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        is_old: bool,
        now: Timestamp,
    ) {
        // One that is gone says no more.
        let Some(workload) = workload.filter(|workload| workload.uid == binding.workload_uid) else { return };
        let Some(result) = workload.progress.ended.as_ref() else {
            self.taken.remove(&binding.key);
            self.remember_run(binding, workload, now);
            return;
        };
        let last = self.runs.remove(&binding.key).filter(|run| run.workload == workload.uid);
        if self.taken.get(&binding.key) == Some(&workload.uid) {
            return;
        }
        let progress = &workload.progress;
        let said = progress.ended_at.and_then(EpochSeconds::to_timestamp);
        self.taken.insert(binding.key.clone(), Arc::clone(&workload.uid));
        let Some(at) = said.map(|at| at.min(now)).or((!is_old).then_some(now)) else { return };
        let run = match (&binding.admission, last) {
            (Some(admission), _) => LastRun::read(binding, admission, workload),
            (None, Some(last)) => last,
            (None, None) => return,
        };
        let charge = (run.admission.queue.clone(), run.admission.charged.clone());
        let ended = build_ended_job(binding, charge, &run.clusters, &run.facts, (result, at));
        self.record(EndedJob { stopped: run.stopped.filter(|stopped| *stopped < at), ..ended }, is_old);
    }

    fn remember_run(&mut self, binding: &Binding, workload: &Workload, now: Timestamp) {
        let known = self.runs.get_mut(&binding.key).filter(|run| run.workload == workload.uid);
        let Some(admission) = &binding.admission else {
            // It waits, or is about to end: what it says from now on is of no run.
            if let Some(run) = known {
                run.stopped.get_or_insert(now);
            }
            return;
        };
        let is_same = |run: &&mut LastRun| {
            run.admission == *admission && run.clusters.iter().eq(binding.clusters.iter().map(|(cluster, _)| cluster))
        };
        match known.filter(is_same) {
            Some(run) => (run.facts, run.stopped) = (RunFacts::read(workload), None),
            None => {
                let run = LastRun::read(binding, admission, workload);
                self.runs.insert(binding.key.clone(), run);
            }
        }
    }

    /// Takes in that a binding is gone, for which this was charged. Where its workload stays, it is made again.
    pub(crate) fn record_deleted_job(
        &mut self,
        binding: &Binding,
        charge: Option<(QueueName, Resources)>,
        is_there: bool,
        now: Timestamp,
    ) {
        let is_taken = self.taken.remove(&binding.key).is_some();
        let last = self.runs.remove(&binding.key);
        let facts = last.map(|run| run.facts).unwrap_or_default();
        if let Some(charge) = charge.filter(|_| !is_taken && !is_there) {
            let clusters: Vec<ClusterName> = binding.clusters.iter().map(|(cluster, _)| cluster.clone()).collect();
            self.record(build_ended_job(binding, charge, &clusters, &facts, (DELETED, now)), false);
        }
    }

    fn record(&mut self, job: EndedJob, is_old: bool) {
        if !self.is_read {
            self.early.push_back((job, is_old));
            // The history may never be readable.
            while self.early.len() > MOST_EARLY {
                self.early.pop_front();
            }
            return;
        }
        let is_new = !is_old || self.history.find_newest_forgotten().is_none_or(|until| job.ended > until);
        let is_first = !self.history.has_line_of(&job.uid);
        if is_new && self.history.add(&job) && is_first {
            self.remember_past_run(&job);
        }
    }

    fn remember_past_run(&mut self, job: &EndedJob) {
        if let Some(ran) = job.count_run_seconds() {
            self.past.record_run(&job.queue, ran, job.running_estimate);
            self.is_past_changed = true;
        }
    }

    /// The pages to write, and what the last runs are.
    pub(crate) fn take_writes(&mut self, namespace: &str) -> Vec<Write> {
        if !self.is_read {
            return Vec::new();
        }
        let mut writes = self.history.take_writes(namespace);
        writes.extend(mem::take(&mut self.is_past_changed).then(|| publish_runs(&self.past, namespace)));
        writes
    }
}

impl LastRun {
    fn read(binding: &Binding, admission: &Arc<Admission>, workload: &Workload) -> Self {
        Self {
            workload: Arc::clone(&binding.workload_uid),
            admission: Arc::clone(admission),
            clusters: binding.clusters.iter().map(|(cluster, _)| cluster.clone()).collect(),
            facts: RunFacts::read(workload),
            stopped: None,
        }
    }
}

impl RunFacts {
    fn read(workload: &Workload) -> Self {
        let said = workload.run_for.and_then(|seconds| u64::try_from(seconds).ok());
        Self { began: workload.progress.started, said, user: workload.submitter.clone() }
    }
}

fn build_ended_job(
    binding: &Binding,
    (queue, charged): (QueueName, Resources),
    clusters: &[ClusterName],
    run: &RunFacts,
    (result, ended): (&str, Timestamp),
) -> EndedJob {
    let reference = &binding.workload;
    EndedJob {
        namespace: reference.namespace.clone(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        uid: binding.workload_uid.to_string(),
        user: run.user.as_deref().map(str::to_owned),
        queue,
        result: result.to_owned(),
        clusters: clusters.iter().map(ToString::to_string).collect(),
        charged,
        running_estimate: run.said,
        submitted: binding.created.to_timestamp().unwrap_or(ended),
        started: run.began.and_then(EpochSeconds::to_timestamp),
        stopped: None,
        ended,
    }
}
