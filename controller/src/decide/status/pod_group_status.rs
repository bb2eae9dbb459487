//! What the PodGroup of a binding should say: its stage, its reason, and what else its user should know.
//!
//! Rule: the sentence is worked out from the live state of the queue engine whenever somebody asks, never from a text
//! that was stored. It names the limit or the cluster that is short, the reservation, the preemption attempt that
//! failed, and what of the workload does not count as it was written.

use caldera_core::{
    gang::ClusterName,
    queue::{JobId, ledger::AdmissionStage},
    reason::Reason,
    time::EpochSeconds,
};
use caldera_runtime::clock::format_time;

use crate::{
    decide::{
        admission::assess::demand_of,
        bindings::jobs::{JobPhase, JobState, Jobs},
        preemption::attempt::Preemption,
    },
    observe::{Binding, Key, Objects, Workload, admitted_gang},
};

/// Stage, while it holds quota, and reason of a binding; `None` out of scope. `known` is the reason where the caller
/// has it.
pub(crate) fn find_stage_and_reason(
    jobs: &Jobs,
    key: &Key,
    known: Option<Reason>,
) -> Option<(Option<AdmissionStage>, Reason)> {
    let state = jobs.states.get(key)?;
    if let Some(assumed) = state.assumed.as_deref().filter(|assumed| !assumed.resizes) {
        let admission = &assumed.admission;
        let reason = Reason::Admitted { queue: admission.queue.clone(), charged: admission.charged.clone() };
        return Some((Some(AdmissionStage::Admitted), reason));
    }
    match &state.phase {
        JobPhase::OutOfScope => None,
        JobPhase::Blocked(reason) => Some((None, (**reason).clone())),
        JobPhase::Pending => Some((None, known.or_else(|| jobs.explain_pending(key))?)),
        JobPhase::Holding { stage, reason } => Some((Some(*stage), jobs.holding_reason(state, reason).into_owned())),
    }
}

/// What follows the sentence.
pub(crate) fn describe_details(
    objects: &Objects,
    jobs: &Jobs,
    preemption: &Preemption,
    binding: &Binding,
    state: &JobState,
    workload: &Workload,
) -> String {
    let id = jobs.find_queued_job_id(&binding.key).unwrap_or(&binding.id);
    let mut text = describe_reservation(jobs, id);
    let mut add = |detail: &str| {
        text += "; ";
        text += detail;
    };
    // Where it can never be had, that is the sentence itself.
    if jobs.find_impossible_increase(state).is_none() {
        jobs.describe_increase(state).iter().for_each(|rest| add(rest));
    }
    jobs.gangs.describe_gang_of_job(&binding.key).iter().for_each(|unit| add(unit));
    if jobs.engine.is_pending(id.as_str()) {
        preemption.describe_failure(id).into_iter().for_each(&mut add);
    }
    objects.describe_unknown_class(workload).iter().for_each(|unknown| add(unknown));
    if let Some(refusal) = state.stage().filter(|stage| *stage != AdmissionStage::Finished).and_then(|_| {
        let copies = binding.admission.as_ref().map_or(1, |record| record.copies);
        let refusal = objects.check_namespace(&workload.queue, &binding.key.namespace);
        let refusal = refusal.or_else(|| objects.check_job_size(&workload.queue, || demand_of(Some(workload), copies)));
        let refusal = refusal.or_else(|| objects.check_priority_class(&workload.queue, workload));
        refusal.or_else(|| objects.check_card_models(&workload.queue, &*admitted_gang(binding, workload)?))
    }) {
        add(&format!("{refusal}: it gets no more"));
    }
    for wrong in objects.queues.get(&workload.queue).into_iter().flat_map(|queue| &queue.wrong) {
        add(&format!("queue {}: {wrong}: taken for 0", workload.queue));
    }
    text
}

/// What is reserved for a job, and when it starts at the latest.
fn describe_reservation(jobs: &Jobs, id: &JobId) -> String {
    let Some(reservation) = jobs.engine.reservation_of(id.as_str()) else { return String::new() };
    let time = |at: EpochSeconds| at.to_timestamp().map_or_else(String::new, format_time);
    let mut text = format!("; since {} what it lacks is reserved for it", time(reservation.since));
    if !reservation.clusters.is_empty() {
        let clusters: Vec<&str> = reservation.clusters.iter().map(ClusterName::as_str).collect();
        text += &format!(" in {}", clusters.join(", "));
    }
    if let Ok(start) = reservation.start {
        text += &format!("; by what running jobs say of themselves it starts at {} at the latest", time(start));
    }
    text
}
