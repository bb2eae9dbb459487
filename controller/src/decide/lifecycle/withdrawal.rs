//! Workloads that are suspended or ended by annotation or field: off their clusters, and out of line.
//!
//! Rule: Kueue's `spec.suspend` and Volcano's `AbortJob` for a whole gang. Annotation `caldera.dev/suspended`, or the
//! field by which a kind is suspended, such as `spec.suspend` of a batch Job, takes a workload from all clusters in one
//! patch, as an eviction with reason `Suspended`: its charge returns, and it keeps its age. It is in line again once it
//! is resumed and its old copies are gone. Volcano resumes a job in its place and counts that as a retry; here nothing
//! is counted, since copies are made anew.
//!
//! Annotation `caldera.dev/end-as` ends a Volcano Job for good, with reason `Ended`: once Karmada lists no copy any
//! more, its status says so. Karmada's next aggregation keeps that (`caldera_core::status`), and the TTL counts from
//! then. The annotation is its user's word, or that of a Command; `Failed` is written by
//! [`policy_restart`](super::policy_restart) when the job's own policies restarted it `maxRetry` times. Then the cause
//! in the status is `MaxRetryReached`, not `EndedByUser`. [`min_success`](super::min_success) writes `Completed`.
//!
//! All of it is on the workload itself, so a restart forgets nothing. A binding that somebody else suspended is not
//! touched.

use std::sync::Arc;

use caldera_core::{queue::ledger::AdmissionStage, reason::Reason};
use caldera_crds::binding::Gate;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{ENDED, SUSPENDED, withdraw_binding},
            eviction_wait::copies_known_at,
            jobs::{JobPhase, Jobs},
        },
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, Workload},
    write::{Decision, EndCause},
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);

/// What is to be done next about a workload that its user withdrew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithdrawalStep {
    /// Take it off its clusters.
    Withdraw,
    /// Its copies are gone: say that it ended.
    End,
}

/// Bindings of workloads that their users withdrew, the version that each is at, and what is to be done next.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals(pub(crate) Deadlines<(WithdrawalStep, Arc<str>)>);

impl Withdrawals {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        phase: &JobPhase,
        now: Timestamp,
    ) {
        let Some(step) = workload.and_then(|workload| decide_next_step(binding, workload, phase)) else {
            return self.0.forget(&binding.key);
        };
        let of_now = (step, Arc::clone(&binding.resource_version));
        if self.0.get_mut(&binding.key).is_none_or(|(_, known)| *known != of_now) {
            let at = if step == WithdrawalStep::End { copies_known_at(binding, now) } else { now };
            self.0.set(&binding.key, at, of_now);
        }
    }

    /// Takes the next step of each job that its user withdraws or ends.
    pub(crate) fn advance_withdrawals(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
            let Some((_, (step, _))) = self.0.get_mut(&key) else { continue };
            let step = *step;
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let Some(workload) = objects.workload_of(binding) else { continue };
            match (step, workload.end_as) {
                (WithdrawalStep::Withdraw, end) => {
                    let reason = if end.is_some() { ENDED } else { SUSPENDED };
                    let by = workload.suspended.unwrap_or_default();
                    let why = match end {
                        None => format!("suspended by its user ({by})"),
                        Some("Failed") if binding.count_policy_restarts() >= workload.max_retry => {
                            "it has failed as a whole".to_owned()
                        }
                        Some("Completed") if workload.enough_succeeded => {
                            "enough of its pods succeeded: it will be Completed".to_owned()
                        }
                        Some(phase) => format!("ended by its user: it will be {phase}"),
                    };
                    decisions.push(withdraw_binding(binding, reason, why, "", now));
                }
                (WithdrawalStep::End, Some(phase)) => decisions.push(Decision::EndJob {
                    key: Key::new(&workload.reference.namespace, &workload.reference.name),
                    resource_version: Arc::clone(&workload.resource_version),
                    phase,
                    cause: match phase {
                        "Failed" if binding.count_policy_restarts() >= workload.max_retry => EndCause::MaxRetry,
                        "Completed" if workload.enough_succeeded => EndCause::MinSuccess,
                        _ => EndCause::User,
                    },
                }),
                (WithdrawalStep::End, None) => {}
            }
        }
        decisions
    }
}

fn decide_next_step(binding: &Binding, workload: &Workload, phase: &JobPhase) -> Option<WithdrawalStep> {
    if binding.deleting || workload.deleting || workload.progress.ended.is_some() || !workload.is_withdrawn() {
        return None;
    }
    match phase {
        JobPhase::Holding {
            stage: AdmissionStage::Admitted | AdmissionStage::Placed | AdmissionStage::Foreign,
            ..
        } => (!is_suspended_by_another(binding)).then_some(WithdrawalStep::Withdraw),
        JobPhase::Blocked(reason) if matches!(**reason, Reason::Ending { .. }) => {
            (binding.clusters.is_empty() && !binding.has_copies).then_some(WithdrawalStep::End)
        }
        _ => None,
    }
}

/// A closed gate is ours, whatever clusters there are behind it.
pub(crate) fn is_suspended_by_another(binding: &Binding) -> bool {
    binding.suspended && binding.gate != Some(Gate::Closed)
}
