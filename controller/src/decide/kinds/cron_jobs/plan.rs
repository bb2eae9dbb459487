//! Plans the writes for one CronJob: creates the job of the run that is due, deletes old jobs, updates the status.
//!
//! Rule: Volcano `pkg/controllers/cronjob/cronjob_controller_handler.go`. Besides: a CronJob whose jobs would not be
//! queued is left alone. A CronJob that a policy propagates to members starts no run here. No job is made
//! while 100 jobs of the CronJob have not ended. An ended job is deleted only after the status has recorded its run,
//! or the run would be made again. After a crash, the jobs that exist tell which runs were made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    cron_schedule::{CronSchedule, seconds_before},
    gang::WorkloadRef,
};
use caldera_crds::{
    cron_job::{build_run, due_time_of, name_run, read_schedule},
    workload::WorkloadKind,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    observe::{CronJobFacts, Key, Objects, Workload},
    write::{cron_job::CronJobWrite, merge_status},
};

/// Volcano's defaults, by how jobs ended.
const DEFAULT_HISTORY_LIMITS: [(&str, &[&str], i64); 2] =
    [("successfulJobsHistoryLimit", &["Completed"], 3), ("failedJobsHistoryLimit", &["Failed", "Terminated"], 1)];

/// Jobs that have not ended, of one CronJob at most: its status names each.
const MOST_ACTIVE: usize = 100;

/// One CronJob and what there is of it.
pub(super) struct CronJobView<'a> {
    pub(super) facts: &'a CronJobFacts,
    pub(super) objects: &'a Objects,
    /// The names of its jobs.
    pub(super) jobs: Option<&'a BTreeSet<Arc<str>>>,
    pub(super) waits: &'a BTreeMap<Option<Arc<str>>, Timestamp>,
}

/// What comes of it.
#[derive(Debug, Default)]
pub(super) struct CronJobPlan {
    pub(super) writes: Vec<CronJobWrite>,
    /// When the next run is due.
    pub(super) next: Option<Timestamp>,
    /// Why nothing is made, as a sentence.
    pub(super) problem: Option<String>,
}

/// A job of a run.
struct Run<'a> {
    due: Timestamp,
    job: &'a Workload,
}

impl Run<'_> {
    fn name(&self) -> &str {
        &self.job.reference.name
    }

    /// As what it ended. One that is aborted may be resumed.
    fn end(&self) -> Option<&str> {
        self.job.progress.ended.as_deref().filter(|end| *end != "Aborted")
    }
}

/// When the CronJob says that a run was last due.
pub(super) fn last_schedule_time(cron_job: &Value) -> Option<Timestamp> {
    cron_job["status"]["lastScheduleTime"].as_str()?.parse().ok()
}

fn job_reference(kind: WorkloadKind, namespace: &str, name: &str) -> WorkloadRef {
    WorkloadRef {
        group: kind.group().to_owned(),
        kind: kind.kind().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

impl CronJobView<'_> {
    pub(super) fn plan(&self, now: Timestamp) -> CronJobPlan {
        let mut plan = CronJobPlan::default();
        if !self.is_queued() {
            return plan;
        }
        let runs = self.list_runs(now);
        let made = runs.last().map(|run| run.due);
        let last = last_schedule_time(&self.facts.object).max(made);
        match read_schedule(&self.facts.object) {
            Err(error) => plan.problem = Some(error.to_string()),
            Ok(_) if self.facts.is_propagated() => {
                let problem = "a policy sends it to members, where no queue would be charged: no copy of it goes out, \
                               and no job of it is made here";
                plan.problem = Some(problem.to_owned());
            }
            Ok(_) if self.facts.object["spec"]["suspend"] == true => {}
            Ok(schedule) => {
                self.start_run(&mut plan, &schedule, &runs, (last, now));
                plan.next = schedule.next_after(now);
            }
        }
        self.delete_old(&mut plan, &runs);
        let status = self.build_status(&runs, last);
        let said = Some(&self.facts.object["status"]).filter(|said| !said.is_null());
        let said = said.cloned().unwrap_or_else(|| json!({}));
        if said != status && !self.waits.contains_key(&None) {
            plan.writes.push(CronJobWrite::Status(merge_status(&self.facts.resource_version, &said, &status)));
        }
        plan
    }

    /// Whether its jobs would wait in line.
    fn is_queued(&self) -> bool {
        let (kind, key) = &self.facts.key;
        *kind == WorkloadKind::VolcanoJob || self.objects.is_opted_in(&key.namespace) || self.facts.names_queue
    }

    /// Its jobs, the earliest run first.
    fn list_runs(&self, now: Timestamp) -> Vec<Run<'_>> {
        let (kind, Key { namespace, name }) = &self.facts.key;
        let find = |job: &Arc<str>| {
            let due = due_time_of(name, job).filter(|due| *due <= now)?;
            let job = self.objects.workloads.get(&job_reference(*kind, namespace, job))?;
            let is_own = job.cron_job.as_ref().is_some_and(|owner| owner.uid == self.facts.uid);
            is_own.then_some(Run { due, job })
        };
        let mut runs: Vec<Run<'_>> = self.jobs.into_iter().flatten().filter_map(find).collect();
        runs.sort_by_key(|run| run.due);
        runs
    }

    /// Makes the job of the last run that was due since, as far as its policy lets it.
    fn start_run(
        &self,
        plan: &mut CronJobPlan,
        schedule: &CronSchedule,
        runs: &[Run<'_>],
        (last, now): (Option<Timestamp>, Timestamp),
    ) {
        let (spec, (kind, key)) = (&self.facts.object["spec"], &self.facts.key);
        let created = self.facts.object["metadata"]["creationTimestamp"].as_str().and_then(|time| time.parse().ok());
        let deadline = spec["startingDeadlineSeconds"].as_i64().map(|seconds| seconds_before(now, seconds));
        let since = last.or(created).max(deadline).unwrap_or(now);
        let Some(due) = schedule.latest_between(since, now) else { return };
        let name: Arc<str> = name_run(&key.name, due).into();
        if self.waits.contains_key(&Some(Arc::clone(&name))) {
            return;
        }
        if self.objects.workloads.contains_key(&job_reference(*kind, &key.namespace, &name)) {
            plan.problem = Some(format!("a job {name:?} that this CronJob does not own is there; it is left alone"));
            return;
        }
        let active: Vec<&Run<'_>> = runs.iter().filter(|run| run.end().is_none()).collect();
        match spec["concurrencyPolicy"].as_str() {
            Some("Forbid") if !active.is_empty() => {}
            // What it replaces is gone before it is made.
            Some("Replace") if !active.is_empty() => active.iter().for_each(|run| self.delete_run(plan, run)),
            _ if active.len() >= MOST_ACTIVE => {
                plan.problem =
                    Some(format!("{MOST_ACTIVE} of its jobs have not ended: no other is made before one has"));
            }
            _ => plan.writes.push(CronJobWrite::Create(name, build_run(&self.facts.whole_object(), schedule, due))),
        }
    }

    fn delete_run(&self, plan: &mut CronJobPlan, run: &Run<'_>) {
        let name: Arc<str> = run.name().into();
        if !run.job.deleting && !self.waits.contains_key(&Some(Arc::clone(&name))) {
            plan.writes.push(CronJobWrite::Delete(name, Arc::clone(&run.job.uid)));
        }
    }

    /// Jobs that ended, but for the latest: not before the status has their runs, or they would be made again.
    fn delete_old(&self, plan: &mut CronJobPlan, runs: &[Run<'_>]) {
        let recorded = last_schedule_time(&self.facts.object);
        for (limit, ends, default) in DEFAULT_HISTORY_LIMITS {
            let kept = self.facts.object["spec"][limit].as_i64().unwrap_or(default);
            let ended = runs.iter().rev().filter(|run| run.end().is_some_and(|end| ends.contains(&end)));
            let old = ended.skip(usize::try_from(kept).unwrap_or(0)).filter(|run| Some(run.due) <= recorded);
            old.for_each(|run| self.delete_run(plan, run));
        }
    }

    fn build_status(&self, runs: &[Run<'_>], last: Option<Timestamp>) -> Value {
        let mut status = Map::new();
        let active = runs.iter().filter(|run| run.end().is_none()).map(|run| {
            json!({
                "apiVersion": &*run.job.api_version, "kind": "Job", "namespace": &*self.facts.key.1.namespace,
                "name": run.name(), "uid": &*run.job.uid,
            })
        });
        let active: Vec<Value> = active.collect();
        if !active.is_empty() {
            status.insert("active".to_owned(), active.into());
        }
        let completed = runs.iter().filter(|run| run.end() == Some("Completed"));
        let succeeded = completed.filter_map(|run| run.job.cron_job.as_ref()?.completed_at).max();
        let before = self.facts.object["status"]["lastSuccessfulTime"].as_str().and_then(|time| time.parse().ok());
        for (field, time) in [("lastScheduleTime", last), ("lastSuccessfulTime", succeeded.max(before))] {
            status.extend(time.map(|time| (field.to_owned(), time.to_string().into())));
        }
        status.into()
    }
}
