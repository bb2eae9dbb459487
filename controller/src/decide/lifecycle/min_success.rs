//! Split jobs of which enough pods succeeded (`minSuccess`) before any copy ended: they end as Completed.
//!
//! Rule: Volcano completes a job as soon as `succeeded` reaches `minSuccess`, and kills the rest
//! (`pkg/controllers/job/state/running.go`). A member counts its own copy only. The successes of all are added up in
//! the merged status ([`caldera_core::status`]), which says so with reason `MinSuccessReached`. Where a copy has ended,
//! the scheduler has the job leave the others (`ended_job`), and that copy stays for its logs. Where none has, or where
//! karmada-scheduler places, the job is ended here (`caldera.dev/end-as`), as by Command `CompleteJob`.

use std::sync::Arc;

use caldera_core::queue::ledger::AdmissionStage;
use caldera_crds::names::caldera::END_AS;
use jiff::{SignedDuration, Timestamp};

use super::withdrawal::is_suspended_by_another;
use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, Workload},
    write::Decision,
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);

/// Bindings of such jobs, and the version that each is at.
#[derive(Debug, Default)]
pub(crate) struct EnoughSuccesses(pub(crate) Deadlines<Arc<str>>);

impl EnoughSuccesses {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        if !workload.is_some_and(|workload| is_to_be_ended(binding, workload, stage)) {
            return self.0.forget(&binding.key);
        }
        if self.0.get_mut(&binding.key).is_none_or(|(_, version)| *version != binding.resource_version) {
            self.0.set(&binding.key, now, Arc::clone(&binding.resource_version));
        }
    }

    /// Says on each job that it is to end.
    pub(crate) fn end_jobs(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let Some(workload) = objects.workload_of(binding) else { continue };
            let stage = jobs.states.get(&key).and_then(|state| state.stage());
            if is_to_be_ended(binding, workload, stage) {
                decisions.push(Decision::AnnotateJob {
                    key: Key::new(&workload.reference.namespace, &workload.reference.name),
                    resource_version: Arc::clone(&workload.resource_version),
                    name: END_AS,
                    value: Some("Completed"),
                });
            }
        }
        decisions
    }
}

fn is_to_be_ended(binding: &Binding, workload: &Workload, stage: Option<AdmissionStage>) -> bool {
    let is_over = binding.deleting || workload.deleting || workload.is_withdrawn();
    let has_ended_copy = !binding.ended_in.is_empty() || !binding.failed_copies.is_empty();
    stage == Some(AdmissionStage::Placed)
        && workload.enough_succeeded
        && !is_over
        && !is_suspended_by_another(binding)
        && !(binding.ours && has_ended_copy)
}
