//! The state of a binding by all that is known now: its objects, the fleet, the rules of its queues, refusals and
//! evictions.
//!
//! [`binding_state`](crate::decide::bindings::binding_state) says what the binding waits for or holds by its own
//! objects. Of one that would be pending this checks more, in this order: its queue and those above select its
//! namespace, take a job of its size, one that runs for as long, of its priority class, and of its card models; the
//! data that it needs is somewhere; the API server did not refuse its release a moment ago; no eviction or requeue
//! keeps it out of its queue. The first that does not hold is its reason. What holds quota and would grow, and whose
//! queue takes its namespace, its size, its priority class or its card models no more, stays as it is.
//!
//! Here are also the estimates of how long a job runs and when it ends: the least of what it says and of its limits.

use std::sync::Arc;

use caldera_core::{
    admission::Admission,
    card_choice::choose_cards,
    gang::{Gang, QueueName},
    maintenance::ExpectedRun,
    place::spread_constraints::is_duplicated,
    queue::{Ask, CardChoice, FitClass, Job},
    reason::Reason,
    resources::Resources,
    time::EpochSeconds,
};
use caldera_crds::binding::Gate;
use jiff::Timestamp;

use crate::{
    decide::{
        bindings::{
            binding_state::{BindingState, JobContext, assess_binding, build_ask},
            eviction_wait::explain_eviction_wait,
            jobs::Jobs,
            resize::Resize,
        },
        fleet::{affinity::build_binding_with_peers, capacity::FleetCapacity},
    },
    observe::{Binding, Objects, Workload, admitted_gang, fingerprint},
};

/// Assesses a binding by what is known of it now.
pub(crate) fn assess_with_admission_checks(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    now: Timestamp,
) -> BindingState {
    let (workload, exclusive) = (objects.workload_of(binding), capacity.has_exclusive_clusters());
    let context = build_context(objects, jobs, capacity, binding);
    let state = assess_binding(binding, workload, context, |name| objects.priority_of_class(name));
    let mut job = match state {
        BindingState::Pending(mut job) => {
            let ask = Arc::make_mut(&mut job.ask);
            ask.counted = objects.classify_for_running_limits(&job.queue, binding);
            ask.run_for = workload.and_then(|workload| estimate_run(objects, workload));
            let run_for = workload.and_then(|workload| workload.run_for);
            let limit = workload.and_then(|workload| objects.find_max_run_time(workload));
            if capacity.next_maintenance_end(now).is_some() {
                ask.fit = FitClass(fingerprint(&(ask.fit, run_for, limit)));
            } else if limit.is_some() && capacity.has_declared_groups() {
                ask.fit = FitClass(fingerprint(&(ask.fit, limit)));
            }
            ask.fit = objects.fit_with_restrictions(binding, exclusive, ask.fit);
            job
        }
        // What runs runs on, and gets no more of a queue that does not take its namespace or priority class any more.
        BindingState::Holding { queue, charge, reason, resize: Some(Resize::Grow(_)) }
            if objects.check_namespace(&queue, &binding.key.namespace).is_some()
                || objects.check_job_size(&queue, || demand_of(workload, context.copies)).is_some()
                || workload.is_some_and(|workload| objects.check_priority_class(&queue, workload).is_some())
                || is_refused_by_card(objects, &queue, binding, workload) =>
        {
            return BindingState::Holding { queue, charge, reason, resize: None };
        }
        // Nor is it charged less by card model while its new pods, which name none, stay on the host.
        BindingState::Holding { queue, charge, reason, resize: Some(Resize::Shrink(less)) }
            if binding.admission.as_ref().is_some_and(|record| {
                let gang = workload.and_then(|new| admitted_gang(binding, new));
                is_charged_less_by_model(&less, record)
                    && gang.is_some_and(|gang| record.find_uncharged(&gang).is_some())
            }) && is_refused_by_card(objects, &queue, binding, workload) =>
        {
            return BindingState::Holding { queue, charge, reason, resize: None };
        }
        BindingState::Holding { queue, charge, reason, resize: Some(Resize::Grow(mut more)) } => {
            more.ask.fit = objects.fit_with_restrictions(binding, exclusive, more.ask.fit);
            return BindingState::Holding { queue, charge, reason, resize: Some(Resize::Grow(more)) };
        }
        state => return state,
    };
    let refusal = find_refusal(objects, binding, workload, context.copies, &mut job);
    if let Some(refusal) = refusal {
        return BindingState::Blocked(refusal);
    }
    // Seconds at most, and each refusal another: what is always refused keeps nothing from others.
    if let Some(detail) = jobs.states.get(&binding.key).and_then(|state| state.refusal(now)) {
        return BindingState::Blocked(Reason::NotReleased { detail: detail.to_owned() });
    }
    match explain_eviction_wait(objects, jobs, capacity, binding, now) {
        None => BindingState::Pending(job),
        Some(reason @ Reason::Requeued { .. }) => {
            BindingState::BackingOff(job, reason, binding.eviction.as_ref().map_or(binding.created, |record| record.at))
        }
        // Nothing is reserved for it of what was taken from it for another.
        Some(reason) => BindingState::Blocked(reason),
    }
}

/// The job of a binding that holds quota as it would be if it gave that back and waited; `None` where it would not be
/// in line then: what is refused to those who wait is not held against those who run.
pub(crate) fn assess_as_waiting(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
) -> Option<Job> {
    let (admission, plan, eviction, clusters) = (None, None, None, Vec::new());
    let gate = Some(Gate::Closed);
    let waiting = Binding { gate, suspended: true, admission, plan, eviction, clusters, ..binding.clone() };
    let (workload, context) = (objects.workload_of(binding), build_context(objects, jobs, capacity, &waiting));
    match assess_binding(&waiting, workload, context, |name| objects.priority_of_class(name)) {
        BindingState::Pending(mut job) => {
            find_refusal(objects, &waiting, workload, context.copies, &mut job).is_none().then_some(job)
        }
        _ => None,
    }
}

fn build_context<'a>(objects: &Objects, jobs: &'a Jobs, capacity: &FleetCapacity, binding: &Binding) -> JobContext<'a> {
    let workload = objects.workload_of(binding);
    JobContext {
        priority: workload.map_or(0, |workload| objects.priority_of_class(&workload.class)),
        copies: count_expected_copies(objects, capacity, binding),
        opted_in: objects.is_opted_in(&binding.key.namespace),
        ceiling: jobs.states.get(&binding.key).and_then(|state| state.grant.ceiling()),
        is_shadow: jobs.shadow.is_some(),
    }
}

/// Why a queue does not take a job that waits, or its data is nowhere; else it asks for its card models from here on.
fn find_refusal(
    objects: &Objects,
    binding: &Binding,
    workload: Option<&Workload>,
    copies: u32,
    job: &mut Job,
) -> Option<Reason> {
    let refusal = objects.check_namespace(&job.queue, &binding.key.namespace);
    let refusal = refusal.or_else(|| objects.check_job_size(&job.queue, || demand_of(workload, copies)));
    let refusal = refusal.or_else(|| objects.check_run_time(&job.queue, workload?));
    let refusal = refusal.or_else(|| objects.check_priority_class(&job.queue, workload?));
    let refusal =
        refusal.or_else(|| choose_card_models(objects, job, workload?.gang.as_ref().ok()?).err().map(|why| *why));
    refusal.or_else(|| {
        let detail = objects.data.index.find_locality(&binding.workload)?.describe_wait()?;
        Some(Reason::WaitingForData { detail })
    })
}

/// Whether a record charges less of some card model than another one.
fn is_charged_less_by_model(less: &Admission, record: &Admission) -> bool {
    let mut cards = record.charged.iter().filter(|(name, _)| name.is_card());
    cards.any(|(name, charged)| less.charged.get(name.as_str()) < charged)
}

/// Whether a queue does not take the pods of what holds quota there, on the card model that it was admitted to.
fn is_refused_by_card(objects: &Objects, queue: &QueueName, binding: &Binding, workload: Option<&Workload>) -> bool {
    let gang = workload.and_then(|workload| admitted_gang(binding, workload));
    gang.is_some_and(|gang| objects.check_card_models(queue, &gang).is_some())
}

/// Has a job ask for each of the card models that it may use, the best first; or says why its queue takes it on none.
fn choose_card_models(objects: &Objects, job: &mut Job, gang: &Gang) -> Result<(), Box<Reason>> {
    let mut ask = None;
    for (card, kept) in choose_cards(gang, |gang| objects.check_card_models(&job.queue, gang))?.into_iter().rev() {
        let mut one = Ask::clone(&job.ask);
        for (asked, task) in one.tasks.iter_mut().zip(&kept.tasks) {
            asked.request = task.charge().into_owned();
        }
        one.fit = FitClass(fingerprint(&(one.fit, &card)));
        one.card = Some(CardChoice { card, otherwise: ask });
        ask = Some(Arc::new(one));
    }
    job.ask = ask.unwrap_or_else(|| Arc::clone(&job.ask));
    Ok(())
}

/// Seconds that a workload which waits will run at most: as it says, or until it is ended.
pub(crate) fn estimate_run(objects: &Objects, workload: &Workload) -> Option<i64> {
    workload.run_for.into_iter().chain(objects.find_max_run_time(workload)).min()
}

/// When a workload that waits would run if it started now.
pub(crate) fn predict_run(objects: &Objects, workload: &Workload, now: Timestamp) -> ExpectedRun {
    let from = EpochSeconds::from(now);
    let after = |seconds| from.saturating_add(seconds);
    let (ends, limit) = (workload.run_for.map(after), objects.find_max_run_time(workload).map(after));
    ExpectedRun { from, ends, limit, delay: 0 }
}

/// When pods would run that start now beside those that a workload has.
pub(crate) fn predict_remaining_run(binding: &Binding, workload: &Workload, now: Timestamp) -> ExpectedRun {
    let from = EpochSeconds::from(now);
    let began = workload.progress.started.unwrap_or(from);
    let limit = binding.admission.as_ref().and_then(|record| record.run).map(|run| run.ends_at());
    ExpectedRun { from, ends: workload.run_for.map(|seconds| began.saturating_add(seconds)), limit, delay: 0 }
}

/// When a binding that holds quota will have ended: as its workload says, which began then, or
/// when its run is ended.
pub(crate) fn estimate_end(binding: &Binding, workload: &Workload, began: EpochSeconds) -> Option<EpochSeconds> {
    let said = workload.run_for.map(|run_for| began.saturating_add(run_for));
    let limit = binding.admission.as_ref().and_then(|record| record.run);
    said.into_iter().chain(limit.map(|run| run.ends_at())).min()
}

/// What all its pods and copies ask for.
pub(crate) fn demand_of(workload: Option<&Workload>, copies: u32) -> Resources {
    let gang = workload.and_then(|workload| workload.gang.as_ref().ok());
    gang.map(|gang| gang.sum_full_demand().times(u64::from(copies))).unwrap_or_default()
}

/// Clusters that each run all of it.
fn count_expected_copies(objects: &Objects, capacity: &FleetCapacity, binding: &Binding) -> u32 {
    let division = binding.placement.as_deref().and_then(|placement| placement.placement.division.as_ref());
    if !is_duplicated(division) {
        return 1;
    }
    build_binding_with_peers(objects, capacity, binding).map_or(1, |placement| capacity.count_copies(&placement))
}

/// What the workload of a binding asks for, as its queue is asked.
pub(crate) fn ask_of(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
) -> Option<caldera_core::queue::Ask> {
    let workload = objects.workload_of(binding)?;
    let (gang, copies) = (workload.gang.as_ref().ok()?, count_expected_copies(objects, capacity, binding));
    Some(build_ask(binding, workload, gang, copies, |class| objects.priority_of_class(class)))
}
