//! Jobs that might be moved to other clusters while they run, as `caldera_core::load_aware` looks at them.
//!
//! Rule: only what has a gang, runs to its end and starts alone is moved: a service would be away for a moment, and a
//! job that starts together with others would leave without them.

use std::collections::BTreeMap;

use caldera_core::{
    load_aware::PlacedJob, place::spread_constraints::is_duplicated, queue::ledger::AdmissionStage,
    resources::Resources,
};
use jiff::Timestamp;

use super::attempt::describe_charged_job;
use crate::{
    decide::{
        bindings::{
            eviction::find_last_move,
            job_gangs::GangKey,
            jobs::{JobState, Jobs},
        },
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects},
};

/// A job that might leave, with what its pods ask for in each cluster.
pub(super) fn describe_placed_job(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    state: &JobState,
    now: Timestamp,
) -> Option<PlacedJob> {
    let workload = objects.workload_of(binding).filter(|workload| workload.kind.runs_to_its_end())?;
    let division = binding.placement.as_deref()?.placement.division.as_ref();
    if state.stage() != Some(AdmissionStage::Placed)
        || GangKey::of_workload(workload).is_some()
        || is_duplicated(division)
        || binding.undispatched
    {
        return None;
    }
    let gang = objects.gang_to_place(binding, workload)?;
    let mut asks: BTreeMap<String, Resources> = BTreeMap::new();
    for (task, pods) in gang.tasks.iter().zip(binding.count_pods_by_cluster(&gang)) {
        for (cluster, pods) in pods.into_iter().filter(|(_, pods)| *pods > 0) {
            asks.entry(cluster.to_string()).or_default().add(&task.charge().times(pods.into()));
        }
    }
    let job = describe_charged_job(objects, jobs, capacity, binding, state, now)?;
    let moved = binding.eviction.as_deref().and_then(find_last_move);
    let moved_at = moved.as_ref().map(|moved| moved.at);
    let avoid = moved.map(|moved| moved.avoid.into_iter().collect()).unwrap_or_default();
    Some(PlacedJob { job, asks, moved_at, avoid })
}
