//! Copies that Karmada believes are in their member, and are not.
//!
//! Rule: Karmada takes a create that timed out for success (`AppliedSuccessful`) and looks at the Work again only when
//! its spec changes (`GenerationChangedPredicate`, `pkg/controllers/execution/execution_controller.go`). A copy that is
//! in its member tells a status within seconds. Where none has for a minute, in a member that can be seen and where no
//! pod of it is, the Work is touched: `suspendDispatching: false` is set, or taken away again, which says the same and
//! has Karmada apply it once more. One that is there is none the worse for it. It is tried again, less and less often.

use caldera_core::{gang::ClusterName, queue::ledger::AdmissionStage};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects},
    write::Decision,
};

/// How long a copy may say nothing.
const SILENT_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Bindings with copies that say nothing: since when they are looked at, and how often their Works were touched.
#[derive(Debug, Default)]
pub(crate) struct SilentCopies(pub(crate) Deadlines<u32>);

impl SilentCopies {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(&mut self, binding: &Binding, stage: Option<AdmissionStage>, now: Timestamp) {
        let concerns = stage == Some(AdmissionStage::Placed) && !binding.suspended && !binding.silent_copies.is_empty();
        self.0.start_or_end(&binding.key, concerns, add_wait(now, SILENT_FOR));
    }

    /// Touches Works whose copies nobody has seen.
    pub(crate) fn touch_silent(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, SILENT_FOR));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let unseen =
                |cluster: &&ClusterName| capacity.count_pods_on_nodes(cluster.as_str(), &binding.workload) == Some(0);
            let clusters: Vec<&ClusterName> = binding.silent_copies.iter().filter(unseen).collect();
            if clusters.is_empty() {
                continue;
            }
            let adds = self.0.record_try(&key, SILENT_FOR, now) % 2 == 1;
            for cluster in clusters {
                let (cluster, workload) = (cluster.clone(), (*binding.workload).clone());
                decisions.push(Decision::TouchWork { cluster, workload, binding: key.clone(), adds });
            }
        }
        decisions
    }
}
