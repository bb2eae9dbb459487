//! Copies that a member refuses: told at once in the member's own words, and mended by another place where no waiting
//! helps.
//!
//! Rule: Karmada says in the binding's status which Work was not applied, and why (`assembleWorkStatus`,
//! `pkg/util/helper/workstatus.go`), and tries again for ever. What a member's admission or validation refuses it
//! refuses each time. A gang of which a part is refused so, and of which not enough runs, is taken from all clusters in
//! one patch and goes elsewhere. A cluster that refused is avoided, and costs the gang no wait; one that was avoided
//! and refuses again does. What may pass is told and left to Karmada: a queue that is not there yet, a webhook that
//! does not answer. A part whose pods are on nodes is left alone: only a change of it was refused.

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{gang::ClusterName, queue::ledger::AdmissionStage};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use super::pods_ready::has_started;
use crate::{
    decide::{
        bindings::{
            binding_state::describe_refusals,
            eviction::{COPY_REFUSED, requeue_binding, requeue_without_backoff},
            jobs::Jobs,
        },
        deadlines::{Deadlines, add_wait},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects, Workload},
    write::Decision,
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);

/// What a member says where asking it again gives the same answer: its admission, its schema, its quota.
const FINAL: [&str; 4] = ["denied the request", " is invalid: ", " is forbidden: ", "no matches for kind"];
/// Parts of such answers that pass by themselves: Volcano's webhook does not know the queue yet, or it is not open
/// (`pkg/webhooks/admission/jobs/validate/admit_job.go`); a namespace is going; a quota is not counted yet.
const PASSING: [&str; 6] = [
    "unable to find job queue",
    "to queue with state `Open`",
    "being terminated",
    "not yet ready",
    "failed calling webhook",
    "timed out",
];
/// Until a final refusal that costs the gang nothing now is judged again: what runs in the cluster may have ended.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Bindings with refused copies: what was told of them, and when to look.
#[derive(Debug, Default)]
pub(crate) struct RefusedCopies(pub(crate) Deadlines<Refusals>);

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    now: Arc<str>,
    reported: Option<Arc<str>>,
}

impl RefusedCopies {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        let concerns =
            stage == Some(AdmissionStage::Placed) && !binding.suspended && !binding.refused_copies.is_empty();
        if !concerns || workload.is_none_or(|workload| workload.deleting || workload.progress.ended.is_some()) {
            return self.0.forget(&binding.key);
        }
        let says: Arc<str> = describe_refusals(binding).into();
        let (due, known) = self.0.entry_or_insert(&binding.key, Refusals::default());
        if known.now != says {
            (*due, known.now) = (Some(now), says);
        }
    }

    /// Tells of those that are new, and requeues what no waiting mends.
    pub(crate) fn requeue_refused(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            let Some(binding) = jobs.find_confirmed(objects, &key) else {
                self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
                continue;
            };
            let Some((due, refusals)) = self.0.get_mut(&key) else { continue };
            *due = None;
            let is_new = refusals.reported.as_ref() != Some(&refusals.now);
            refusals.reported = Some(Arc::clone(&refusals.now));
            let says = Arc::clone(&refusals.now);
            if binding.refused_copies.iter().any(|(_, words)| is_final(words)) {
                *due = Some(add_wait(now, LOOK_AGAIN));
            }
            let Some(workload) = objects.workload_of(binding) else { continue };
            let refusing = list_final_refusals(binding, workload, capacity);
            if is_new && refusing.is_empty() {
                let said = format!("{says}; Karmada tries again");
                decisions.push(Decision::build_workload_event(workload, EventType::Warning, COPY_REFUSED, said));
            }
            if !refusing.is_empty() {
                self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
                decisions.push(requeue_avoiding_clusters(binding, refusing, says.to_string(), now));
            }
        }
        decisions
    }
}

/// Without a wait where each cluster refuses for the first time.
fn requeue_avoiding_clusters(
    binding: &Binding,
    refusing: BTreeSet<String>,
    message: String,
    now: Timestamp,
) -> Decision {
    let before = binding.eviction.as_deref().filter(|before| before.reason == COPY_REFUSED);
    let avoided: BTreeSet<String> = before.into_iter().flat_map(|before| before.avoid.iter().cloned()).collect();
    let again = !refusing.is_disjoint(&avoided);
    let avoid = refusing.into_iter().chain(avoided).collect::<BTreeSet<_>>().into_iter().collect();
    match again {
        true => requeue_binding(binding, COPY_REFUSED, message, avoid, now),
        false => requeue_without_backoff(binding, COPY_REFUSED, message, avoid, now),
    }
}

/// Clusters that refuse for good what does not run there; none where enough of the gang runs.
fn list_final_refusals(binding: &Binding, workload: &Workload, capacity: &FleetCapacity) -> BTreeSet<String> {
    if has_started(workload) {
        return BTreeSet::new();
    }
    let runs = |cluster: &ClusterName| {
        capacity.count_pods_on_nodes(cluster.as_str(), &binding.workload).is_some_and(|pods| pods > 0)
    };
    let refused = binding.refused_copies.iter().filter(|(cluster, words)| is_final(words) && !runs(cluster));
    refused.map(|(cluster, _)| cluster.to_string()).collect()
}

fn is_final(words: &str) -> bool {
    FINAL.iter().any(|one| words.contains(one)) && !PASSING.iter().any(|one| words.contains(one))
}
