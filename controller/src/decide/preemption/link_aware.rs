//! Which gangs run in clusters that have become too far apart for them.
//!
//! Rule: who leaves is decided by `caldera_core::link_aware`; [`super::load_aware`] asks when it is time. Only a gang
//! that is in several clusters and names a `hard` tier can be.

use caldera_core::{gang::ClusterName, link_aware::DistantGang};
use jiff::Timestamp;

use super::{attempt::list_bindings, placed_job::describe_placed_job};
use crate::{
    decide::{
        admission::assess::estimate_end,
        bindings::jobs::{JobState, Jobs},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects},
};

pub(super) fn list_distant_gangs(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    now: Timestamp,
) -> Vec<DistantGang> {
    let describe =
        |(binding, state): (&Binding, &JobState)| describe_distant(objects, jobs, capacity, binding, state, now);
    list_bindings(objects, jobs).filter_map(describe).collect()
}

fn describe_distant(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    state: &JobState,
    now: Timestamp,
) -> Option<DistantGang> {
    let workload = objects.workload_of(binding)?;
    let topology = workload.gang.as_ref().ok()?.topology.as_ref().filter(|topology| topology.hard)?;
    let placed = describe_placed_job(objects, jobs, capacity, binding, state, now)?;
    let clusters: Vec<ClusterName> = placed.asks.keys().map(|name| name.as_str().into()).collect();
    let broken = capacity.fleet().links().find_broken_link(topology, &clusters)?;
    let began = workload.progress.started.or(placed.job.started);
    let ends = began.and_then(|began| estimate_end(binding, workload, began));
    Some(DistantGang { placed, broken, ends })
}
