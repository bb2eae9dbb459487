//! What a binding waits for or holds: out of scope, blocked, backing off, pending in its queue, or holding quota.
//!
//! Rule: a function of the binding, its workload and a [`JobContext`], without state of its own. The gate annotation
//! says whose the suspension is: `closed` is ours to lift; a suspension with the gate open, or without a gate, is
//! somebody else's.
//!
//! Two values of the context are not in API objects alone. `copies`, of a duplicated job, follows from the clusters
//! that the fleet has now. `ceiling`, the most that may be charged, is from the grant history
//! ([`forged_record`](crate::decide::admission::forged_record)), which is kept in memory. After a restart that is
//! derived from the first lists, and may differ for a while.
//!
//! `BackingOff` is not decided here but in [`assess`](crate::decide::admission::assess).

use std::sync::Arc;

use caldera_core::{
    gang::{ClusterName, Gang, QueueName},
    place::AffinityGroup,
    pod_group,
    queue::{
        Ask, Counted, FitClass, Job, TaskAsk,
        ledger::{self, AdmissionStage, Charge, ChargeFacts},
    },
    reason::Reason,
    resources::Resources,
    time::EpochSeconds,
};
use caldera_crds::{binding::Gate, names::caldera::HOLD, workload::WorkloadKind};

use super::{
    eviction::RUN_TIME_EXCEEDED,
    resize::{Resize, Wanted, decide_resize, needs_more},
};
use crate::observe::{Binding, Workload, admitted_gang, fingerprint};

/// Characters of a member's words that are told.
const WORDS: usize = 400;

/// What a binding waits for or holds.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once, and none is kept")]
pub enum BindingState {
    /// Not ours: no kind in scope, or nobody asked for a queue.
    OutOfScope,
    /// Not pending in its queue, for this reason.
    Blocked(Reason),
    /// Requeued after a backoff, for this reason, since then (seconds since 1970): it still ranks
    /// ([`Engine::back_off_job`]).
    ///
    /// [`Engine::back_off_job`]: caldera_core::queue::Engine::back_off_job
    BackingOff(Job, Reason, EpochSeconds),
    /// Pending in its queue.
    Pending(Job),
    /// Holds quota.
    Holding {
        /// Of this queue.
        queue: QueueName,
        /// How much, and how.
        charge: Charge,
        /// What to say.
        reason: Reason,
        /// What should become of its record.
        resize: Option<Resize>,
    },
}

/// What the state of a binding depends on, besides itself and its workload.
#[derive(Debug, Clone, Copy)]
pub struct JobContext<'a> {
    /// The job's priority.
    pub priority: i32,
    /// Clusters that each run all of it.
    pub copies: u32,
    /// The namespace asks for queueing.
    pub opted_in: bool,
    /// The most that it may be charged, where that is known.
    pub ceiling: Option<&'a Resources>,
    /// There is no webhook that gates: what is in scope counts as gated.
    pub is_shadow: bool,
}

/// Assesses a binding. `priority_of` gives a PriorityClass's value, for the tasks.
#[must_use]
pub fn assess_binding(
    binding: &Binding,
    workload: Option<&Workload>,
    context: JobContext<'_>,
    priority_of_class: impl Fn(&str) -> i32,
) -> BindingState {
    if !in_scope(binding, workload, context.opted_in) {
        return BindingState::OutOfScope;
    }
    let gang = workload.and_then(|workload| admitted_gang(binding, workload));
    let gang = gang.as_ref();
    let facts = ChargeFacts {
        gang: gang.map(Arc::as_ref),
        replica_request: Some(&binding.replica_request),
        admission: binding.admission.as_deref(),
        clusters: &binding.clusters,
        plan: binding.plan.as_deref(),
        finished_pods: workload
            .zip(gang)
            .map(|(workload, gang)| binding.ended_pods.confirm(&workload.progress.finished, gang))
            .unwrap_or_default(),
        ended: binding.ended_everywhere && workload.is_some_and(|workload| workload.progress.ended.is_some()),
        ceiling: context.ceiling,
    };
    let charge = ledger::compute_charge(&facts);
    let queue = match (workload, &binding.admission) {
        // A record that names another queue is forged, or its user has changed the queue since.
        (Some(workload), _) => workload.queue.clone(),
        (None, Some(admission)) => admission.queue.clone(),
        (None, None) => QueueName::from(caldera_crds::names::volcano::DEFAULT_QUEUE),
    };
    if charge.stage != AdmissionStage::Waiting {
        let reason = describe_holding(binding, workload, &queue, &charge, gang.map(Arc::as_ref), context.copies);
        let resize = decide_record_resize(binding, workload, &charge, context.copies, priority_of_class);
        return BindingState::Holding { queue, charge, reason, resize };
    }
    match (find_block_reason(binding, workload, context.is_shadow), workload, gang) {
        (Some(reason), _, _) => BindingState::Blocked(reason),
        (None, Some(workload), Some(gang)) => BindingState::Pending(Job {
            id: binding.id.clone(),
            queue,
            priority: context.priority,
            created: workload.submit_time_of(binding),
            deadline: workload.deadline_of(binding),
            ask: Arc::new(build_ask(binding, workload, gang, context.copies, priority_of_class)),
        }),
        _ => BindingState::Blocked(Reason::NoWorkload),
    }
}

/// A gate makes it ours. Without one it is ours to account for if it is of a kind in scope and asks for a queue: always
/// for Volcano Jobs, by its own words or its namespace's for the others. Dependencies' bindings have no placement.
fn in_scope(binding: &Binding, workload: Option<&Workload>, opted_in: bool) -> bool {
    let Some(kind) = WorkloadKind::from_group_and_kind(&binding.workload.group, &binding.workload.kind) else {
        return false;
    };
    binding.placement.is_some()
        && (matches!(binding.gate, Some(Gate::Closed | Gate::Open))
            || binding.admission.is_some()
            || kind == WorkloadKind::VolcanoJob
            || opted_in
            || workload.is_some_and(|workload| workload.names_queue))
}

/// Why a binding that waits is not pending in its queue.
fn find_block_reason(binding: &Binding, workload: Option<&Workload>, is_shadow: bool) -> Option<Reason> {
    let Some(workload) = workload else { return Some(Reason::NoWorkload) };
    if binding.deleting || workload.deleting {
        return Some(Reason::Deleting);
    }
    if binding.gate != Some(Gate::Closed) && !is_shadow {
        return Some(if binding.suspended { Reason::Suspended } else { Reason::NotGated });
    }
    if let Some(detail) = find_run_time_exceeded(binding) {
        return Some(Reason::RunTimeExceeded { detail: detail.to_owned() });
    }
    if let Some(phase) = workload.end_as {
        return Some(Reason::Ending { phase });
    }
    if let Some(field) = workload.suspended {
        return Some(Reason::SuspendedByUser { field });
    }
    if workload.held {
        return Some(Reason::OnHold { annotation: HOLD });
    }
    let error = workload.gang.as_ref().err()?;
    Some(Reason::Invalid { problem: error.to_string() })
}

/// What a waiting gang asks for. Only Volcano's kinds may be granted in part: members know what to do with a job of
/// fewer replicas and the same minimum, but a Deployment's replicas are what its user counts on.
pub(crate) fn build_ask(
    binding: &Binding,
    workload: &Workload,
    gang: &Arc<Gang>,
    copies: u32,
    priority_of_class: impl Fn(&str) -> i32,
) -> Ask {
    let kind = workload.kind;
    let elastic = kind == WorkloadKind::VolcanoJob;
    let minimum = pod_group::compute_pod_group_minimum(gang, priority_of_class);
    let tasks = gang
        .tasks
        .iter()
        .zip(minimum.pods)
        .map(|(task, min)| {
            // A partition is placed whole.
            let min = min.next_multiple_of(task.partition_size());
            TaskAsk {
                name: task.name.clone(),
                request: task.charge().into_owned(),
                min: if elastic { min.min(task.replicas) } else { task.replicas },
                most: task.replicas,
                step: task.partition_size(),
            }
        })
        .collect();
    let placement = binding.placement.as_deref();
    let rules = placement.map(|placement| (&placement.placement, &placement.evicting, placement.replicas));
    let fit = FitClass(fingerprint(&(
        kind,
        gang,
        rules,
        placement.map(|placement| placement.components),
        find_affinity_groups(binding),
    )));
    Ask { tasks, copies, fit, run_for: workload.run_for, counted: Counted::Job, card: None }
}

/// Its affinity groups: they end at the namespace.
fn find_affinity_groups(binding: &Binding) -> Option<(&str, &[AffinityGroup])> {
    (!binding.groups.is_empty()).then_some((&*binding.key.namespace, binding.groups.as_slice()))
}

/// What should become of the record of a binding that holds quota. It asks for more only where all is well with what it
/// has.
fn decide_record_resize(
    binding: &Binding,
    workload: Option<&Workload>,
    charge: &Charge,
    copies: u32,
    priority_of_class: impl Fn(&str) -> i32,
) -> Option<Resize> {
    let (record, workload) = (binding.admission.as_deref()?, workload?);
    let gang = &admitted_gang(binding, workload)?;
    let goes = binding.deleting || workload.deleting || workload.is_withdrawn();
    if goes || workload.progress.ended.is_some() {
        return None;
    }
    // Members go on with what they were sent: a smaller record would give back what runs.
    if binding.undispatched && charge.stage == AdmissionStage::Placed {
        return None;
    }
    let minimum = pod_group::compute_pod_group_minimum(gang, priority_of_class).pods;
    let elastic = workload.kind == WorkloadKind::VolcanoJob;
    let mut resize = decide_resize(Wanted { gang, elastic, minimum: &minimum, copies }, record)?;
    if matches!(resize, Resize::Shrink(_)) && charge.stage == AdmissionStage::Placed && workload.kind.keeps_pods() {
        return None;
    }
    if let Resize::Grow(more) = &mut resize {
        if charge.stage != AdmissionStage::Placed || charge.over_record || workload.held || binding.suspended {
            return None;
        }
        let class =
            (workload.kind, gang, &binding.placement, &binding.plan, &binding.clusters, &record.tasks, &record.card);
        more.ask.fit = FitClass(fingerprint(&("more", class, find_affinity_groups(binding))));
    }
    Some(resize)
}

/// What to say about a binding that holds quota.
fn describe_holding(
    binding: &Binding,
    workload: Option<&Workload>,
    queue: &QueueName,
    charge: &Charge,
    gang: Option<&Gang>,
    copies: u32,
) -> Reason {
    let queue = queue.clone();
    let charged = charge.amount.clone();
    let ended = workload.and_then(|workload| workload.progress.ended.clone());
    if let Some(phase) = ended.filter(|_| charge.stage == AdmissionStage::Finished) {
        return Reason::Finished { phase, queue };
    }
    if binding.suspended {
        return Reason::Suspended;
    }
    match (charge.stage, &binding.admission) {
        (AdmissionStage::Placed, Some(admission)) if charge.over_record => {
            Reason::OverRecord { queue, held: charged, admitted: admission.charged.clone() }
        }
        (AdmissionStage::Placed | AdmissionStage::Admitted, Some(admission)) => {
            let asked = gang.map(|gang| gang.sum_full_charge().times(u64::from(copies))).unwrap_or_default();
            let elastic = workload.is_some_and(|workload| workload.kind == WorkloadKind::VolcanoJob);
            let wants_more = gang.is_some_and(|gang| needs_more(gang, elastic, admission));
            match &binding.refused {
                _ if wants_more => Reason::ScaledUp { asked, admitted: admission.charged.clone() },
                Some(detail) if charge.stage == AdmissionStage::Admitted => {
                    Reason::NotPlaced { detail: detail.to_string() }
                }
                _ if charge.stage == AdmissionStage::Admitted => Reason::Admitted { queue, charged },
                _ if !binding.refused_copies.is_empty() => {
                    Reason::CopyRefused { detail: describe_refusals(binding), queue, charged }
                }
                _ => Reason::Placed { clusters: format_clusters(binding), queue, charged },
            }
        }
        _ => Reason::Foreign { clusters: format_clusters(binding), queue, charged },
    }
}

fn format_clusters(binding: &Binding) -> String {
    let one = |(cluster, replicas): &(ClusterName, u32)| match replicas {
        0 => cluster.to_string(),
        replicas => format!("{cluster}:{replicas}"),
    };
    let all: Vec<String> = binding.clusters.iter().map(one).collect();
    all.join(", ")
}

/// Which clusters refuse, and what each says.
pub(crate) fn describe_refusals(binding: &Binding) -> String {
    let one = |(cluster, words): &(ClusterName, Arc<str>)| {
        let words: String = words.chars().take(WORDS).collect();
        format!("{cluster} refuses its copy: {words}")
    };
    let all: Vec<String> = binding.refused_copies.iter().map(one).collect();
    all.join("; ")
}

/// What a binding says of the run that was ended, while it is of the same workload.
pub(crate) fn find_run_time_exceeded(binding: &Binding) -> Option<&str> {
    let record = binding.eviction.as_deref()?;
    let is_its_own = record.reason == RUN_TIME_EXCEEDED && *record.preemptor == *binding.workload_uid;
    is_its_own.then_some(record.message.as_str())
}
