//! Where a binding is assumed to be until its pods are seen.
//!
//! Rule: as kube-scheduler's cache. What is placed is assumed where its plan says; what was released and is not placed
//! yet, in the place that was found for it at the release; what waits, nowhere.

use caldera_core::queue::ledger::AdmissionStage;

use crate::{
    decide::{
        bindings::jobs::{JobPhase, Jobs},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects},
};

/// Tells the capacity what a binding tolerates and selects, and where it is assumed to be.
pub(crate) fn update_assumed_place(objects: &Objects, jobs: &Jobs, capacity: &mut FleetCapacity, binding: &Binding) {
    let Some(state) = jobs.states.get(&binding.key) else { return };
    let stage = state.stage();
    let counts = stage.is_some_and(|stage| stage != AdmissionStage::Finished) || state.phase == JobPhase::Pending;
    let tolerations = binding.placement.as_deref().filter(|_| counts);
    capacity.set_tolerations(&binding.id, tolerations.map(|binding| binding.placement.tolerations.as_slice()));
    let workload = objects.workload_of(binding);
    let gang = workload.and_then(|workload| workload.gang.as_deref().ok());
    let nodes = workload.map(|workload| objects.nodes_of_binding(binding, workload)).unwrap_or_default();
    capacity.set_selected_labels(binding.id.as_str(), gang, &nodes.required);
    // What is not queued is the scheduler's to place all the same, and is assumed where that put it.
    let unqueued = state.phase == JobPhase::OutOfScope && binding.ours && !binding.clusters.is_empty();
    let is_queued = matches!(stage, Some(AdmissionStage::Placed | AdmissionStage::Foreign));
    let placed = workload.filter(|_| is_queued || (stage.is_none() && unqueued));
    match placed.and_then(|workload| objects.gang_to_place(binding, workload)) {
        Some(gang) => capacity.assume_placed(binding, &gang, is_queued),
        // The place that was found at the release.
        None if stage == Some(AdmissionStage::Admitted) => {}
        None => capacity.retire_assumed(binding.id.as_str()),
    }
}
