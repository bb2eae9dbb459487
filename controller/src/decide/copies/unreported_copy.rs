//! Placed bindings to which Karmada never aggregated what the Work of a cluster says.
//!
//! Rule: Karmada aggregates when the status of a Work changes, or when `spec.resource.resourceVersion` of a binding
//! with a `lastScheduledTime` does (`pkg/controllers/status/common.go`). A binding that is made anew takes the Works of
//! the one before. If the copy ended a moment earlier, no status changes any more: the job would stay placed, and
//! charged, for ever. So where a cluster has no item in `aggregatedStatus` for a minute, that version is taken away, or
//! set to none if it is absent. Nobody else reads it, and Karmada writes it again when the workload changes. It is
//! tried again, less and less often, each ten minutes at last: a tenant who empties a status costs that much.

use caldera_core::queue::ledger::AdmissionStage;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Objects},
    write::Decision,
};

/// How long Karmada may take for the first item of a cluster.
const REPORTS_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Bindings without items of some clusters: when Karmada is asked for them, and how often it was.
#[derive(Debug, Default)]
pub(crate) struct UnreportedCopies(pub(crate) Deadlines<u32>);

impl UnreportedCopies {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(&mut self, binding: &Binding, stage: Option<AdmissionStage>, now: Timestamp) {
        let is_placed = stage == Some(AdmissionStage::Placed) && !binding.suspended && binding.scheduled.is_some();
        let concerns = is_placed && binding.misses_reports;
        self.0.start_or_end(&binding.key, concerns, add_wait(now, REPORTS_WITHIN));
    }

    /// Has Karmada aggregate the status of bindings that miss some of it.
    pub(crate) fn request_reports(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, REPORTS_WITHIN));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            self.0.record_try(&key, REPORTS_WITHIN, now);
            decisions.push(Decision::RequestReport {
                key,
                resource_version: binding.resource_version.clone(),
                adds: !binding.names_workload_version,
            });
        }
        decisions
    }
}
