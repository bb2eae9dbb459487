//! Batch Jobs that failed in their clusters, and whose own status can not say so.
//!
//! Rule: an API server takes the condition `Failed` of a Job only beside `FailureTarget`
//! (`RejectFailedJobWithoutFailureTarget`, `pkg/apis/batch/validation/validation.go`), and none of a Job with active
//! pods. Karmada aggregates `Failed` alone (`ParsingJobStatus`, `pkg/util/helper/job.go`): it is refused each time, so
//! the Job on the host never ends, and its charge stays. So once each cluster says that its copy has ended, and one of
//! them that it failed, both conditions are written, in the words of the first that failed. Karmada leaves the status
//! of a Job that has ended as it is (`aggregateJobStatus`). Where the API server takes what Karmada writes, that comes
//! first, and nothing is written here.

use std::sync::Arc;

use caldera_core::queue::ledger::AdmissionStage;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, Workload},
    write::Decision,
};

/// Jobs in one pass.
const JOBS_PER_PASS: usize = 64;
/// How long Karmada has to say it; also, growing, after a write that may have failed.
const KARMADA_WAIT: SignedDuration = SignedDuration::from_secs(3);

/// Bindings of Jobs that failed in their clusters, when that is written, and how often it was.
#[derive(Debug, Default)]
pub(crate) struct FailedJobs(pub(crate) Deadlines<u32>);

impl FailedJobs {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        let is_open = workload.is_some_and(|workload| !workload.deleting && workload.progress.ended.is_none());
        let concerns = stage == Some(AdmissionStage::Placed) && is_open && binding.failure.is_some();
        self.0.start_or_end(&binding.key, concerns, add_wait(now, KARMADA_WAIT));
    }

    /// Says on each Job that it failed.
    pub(crate) fn end_failed_jobs(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now).into_iter().take(JOBS_PER_PASS) {
            self.0.postpone(&key, add_wait(now, KARMADA_WAIT));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let (Some(job), Some(failure)) = (objects.workload_of(binding), &binding.failure) else { continue };
            self.0.record_try(&key, KARMADA_WAIT, now);
            let mut failure = (**failure).clone();
            // Neither count falls, and a start is said once.
            failure.succeeded = failure.succeeded.max(job.progress.succeeded);
            failure.failed = failure.failed.max(job.progress.failed);
            failure.started.take_if(|_| job.progress.started.is_some());
            decisions.push(Decision::FailBatchJob {
                key: Key::new(&job.reference.namespace, &job.reference.name),
                resource_version: Arc::clone(&job.resource_version),
                failure,
            });
        }
        decisions
    }
}
