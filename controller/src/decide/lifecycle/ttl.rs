//! Volcano Jobs that ended are deleted when their time is over.
//!
//! Rule: Volcano's garbage collector (`pkg/controllers/garbagecollector`). A job that is Completed, Failed or
//! Terminated goes `ttlSecondsAfterFinished` after `status.state.lastTransitionTime`, and what it owns before it. On
//! the host that is the merged end: Karmada strips the TTL from copies, so no member counts for itself, and deletes the
//! copies with the job. Everything is read from the job, so a restart changes nothing. The deletion names UID and
//! version: one that was decided for another state is refused, and decided anew. Batch Jobs are deleted by Karmada's
//! kube-controller-manager (`ttl-after-finished`). A job of a HyperJob stays until that says how it ended, one of
//! a CronJob until that says that its run was.

use std::sync::Arc;

use caldera_core::gang::WorkloadRef;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        deadlines::{Deadlines, add_wait},
        kinds::{cron_jobs::CronJobs, hyper_jobs::HyperJobs},
    },
    observe::{Key, Objects, Workload},
    write::Decision,
};

/// By then a deletion has been answered.
const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);
/// After a deletion that failed.
const RETRY_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
/// After one that the server refuses.
const RETRY_AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(60);

/// Jobs that ended and have a TTL, by namespace and name, and when they go.
#[derive(Debug, Default)]
pub(crate) struct Expiries(pub(crate) Deadlines<Arc<WorkloadRef>>);

impl Expiries {
    /// Takes in that a Volcano Job is new, changed or gone.
    pub(crate) fn observe_job(&mut self, reference: &Arc<WorkloadRef>, job: Option<&Workload>) {
        let key = Key::new(&reference.namespace, &reference.name);
        match job.and_then(compute_expiry) {
            Some(at) => self.0.set(&key, at, Arc::clone(reference)),
            None => self.0.forget(&key),
        }
    }

    /// Deletes those whose time is over.
    pub(crate) fn delete_expired(
        &mut self,
        objects: &Objects,
        (hyper_jobs, cron_jobs): (&HyperJobs, &CronJobs),
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, WRITE_TIMEOUT));
            let Some((_, reference)) = self.0.get_mut(&key) else { continue };
            let Some(job) = objects.workloads.get(reference) else { continue };
            let is_run_unrecorded = job.cron_job.as_ref().is_some_and(|owner| cron_jobs.is_run_unrecorded(&key, owner));
            if is_run_unrecorded || job.child.as_ref().is_some_and(|child| hyper_jobs.is_end_unrecorded(&key, child)) {
                self.0.postpone(&key, add_wait(now, RETRY_AFTER_FAILURE));
                continue;
            }
            decisions.push(Decision::DeleteJob {
                key,
                uid: Arc::clone(&job.uid),
                resource_version: Arc::clone(&job.resource_version),
            });
        }
        decisions
    }

    /// Takes in that a deletion failed, for good or for now.
    pub(crate) fn postpone_after_failure(&mut self, key: &Key, is_refused: bool, now: Timestamp) {
        self.0.postpone(key, add_wait(now, if is_refused { RETRY_AFTER_REFUSAL } else { RETRY_AFTER_FAILURE }));
    }
}

/// When a job goes: never one that is being deleted, or that has not ended.
fn compute_expiry(job: &Workload) -> Option<Timestamp> {
    let (ended, ttl) = (job.progress.ended_at?, job.ttl?);
    let at = ended.checked_add(ttl)?.to_timestamp()?;
    (!job.deleting).then_some(at)
}
