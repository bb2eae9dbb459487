//! What waits and what runs, as plain values: what a simulation of "what if" starts from.
//!
//! Read it from a controller that was filled with lists and not decided on yet. Left out are jobs that no queue counts,
//! jobs that ended, and all that is blocked: held, suspended, refused by a queue's rules, or evicted or requeued and
//! not back in their queue. What is placed without a record of ours is in it as placed. Jobs that start together are
//! in it each for itself, once enough of them are in line.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    capacity_reservation::CapacityReservation,
    live_job::LiveJob,
    place,
    queue::{QueueSpec, ledger::AdmissionStage},
    split::FederationTopology,
};

use crate::{
    decide::{
        Controller,
        bindings::jobs::{JobPhase, JobState},
        fleet::affinity::find_data_and_choice,
    },
    observe::{Binding, Key, admitted_gang},
};

/// All of it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Queues, by name.
    pub queues: Vec<QueueSpec>,
    /// Clusters, by name.
    pub clusters: Vec<place::Cluster>,
    /// The links that are declared between clusters.
    pub links: FederationTopology,
    /// Amounts that are kept for a time.
    pub reservations: Vec<CapacityReservation>,
    /// Jobs that wait or hold something, by the name of their bindings.
    pub jobs: Vec<LiveJob>,
}

/// Reads what waits and what runs.
#[must_use]
pub fn take_snapshot(controller: &Controller) -> Snapshot {
    let objects = &controller.objects;
    let in_line = controller.map_queued_bindings_to_leaders();
    let job = |binding: &Binding| {
        describe_snapshot_job(controller, binding, controller.jobs.states.get(&binding.key)?, &in_line)
    };
    Snapshot {
        queues: objects.queues.values().map(|queue| queue.spec.clone()).collect(),
        clusters: controller.capacity.list_clusters(),
        links: controller.capacity.fleet().links().clone(),
        reservations: objects.capacity_reservations.list_kept(),
        jobs: objects.bindings.values().filter_map(|binding| job(binding)).collect(),
    }
}

fn describe_snapshot_job(
    controller: &Controller,
    binding: &Binding,
    state: &JobState,
    in_line: &BTreeMap<Key, Option<Key>>,
) -> Option<LiveJob> {
    let objects = &controller.objects;
    let placed = match &state.phase {
        JobPhase::Pending => false,
        // Its gang is not looked at yet.
        JobPhase::Blocked(_) if in_line.contains_key(&binding.key) => false,
        JobPhase::Holding { stage: AdmissionStage::Placed | AdmissionStage::Foreign, .. } => true,
        JobPhase::Holding { stage: AdmissionStage::Admitted, .. } => false,
        JobPhase::Holding { .. } | JobPhase::Blocked(_) | JobPhase::OutOfScope => return None,
    };
    let workload = objects.workload_of(binding)?;
    let began = workload.progress.started.or(binding.scheduled).filter(|_| placed);
    let limit = match began {
        Some(began) => {
            let run = binding.admission.as_ref().and_then(|record| record.run);
            run.map(|run| run.ends_at().seconds_since(began))
        }
        None => objects.find_max_run_time(workload),
    };
    Some(LiveJob {
        name: binding.key.to_string().into(),
        workload: (*binding.workload).clone(),
        queue: objects.queue_of(binding)?.clone(),
        priority: objects.priority_of_class(&workload.class),
        created: workload.submit_time_of(binding),
        began,
        placed,
        run_for: workload.run_for,
        limit,
        gang: admitted_gang(binding, workload)?,
        binding: place_with_data(controller, binding)?,
        whole: workload.kind.has_tasks(),
        submitter: workload.submitter.clone(),
        checkpoint_interval: workload.checkpoint_interval,
        preemptable: workload.preemptable,
        best_effort: workload.best_effort,
        never_preempts: objects.never_preempts(&workload.class),
        starts_with: in_line.get(&binding.key).and_then(|first| Some(first.as_ref()?.to_string().into())),
    })
}

/// As placement sees it, with where its data is now and what its user chose.
fn place_with_data(controller: &Controller, binding: &Binding) -> Option<Arc<place::Binding>> {
    let placement = binding.placement.as_ref()?;
    Some(match find_data_and_choice(&controller.objects, binding) {
        (None, None) => Arc::clone(placement),
        (data, choice) => Arc::new(place::Binding { data, choice, ..place::Binding::clone(placement) }),
    })
}
