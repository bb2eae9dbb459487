//! Which gangs run in clusters that have become too far apart for them.
//!
//! Rule: who leaves is decided by `caldera_core::link_aware`; [`super::load_aware`] asks when it is time. Only a gang
//! that is in several clusters and names a `hard` tier can be.

use std::collections::BTreeMap;

use caldera_core::{gang::ClusterName, link_aware::DistantGang, split::BrokenLink};
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
    // Gangs that ask for the same in the same clusters share one look at the links.
    let mut known = BTreeMap::new();
    let describe = |one: (&Binding, &JobState)| describe_distant(objects, jobs, capacity, one, &mut known, now);
    list_bindings(objects, jobs).filter_map(describe).collect()
}

/// By what is asked for, and where.
type KnownLinks = BTreeMap<(Option<u32>, Option<String>, Vec<ClusterName>), Option<BrokenLink>>;

fn describe_distant(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    (binding, state): (&Binding, &JobState),
    known: &mut KnownLinks,
    now: Timestamp,
) -> Option<DistantGang> {
    let workload = objects.workload_of(binding)?;
    let topology = workload.gang.as_ref().ok()?.topology.as_ref().filter(|topology| topology.hard)?;
    let placed = describe_placed_job(objects, jobs, capacity, binding, state, now)?;
    let clusters: Vec<ClusterName> = placed.asks.keys().map(|name| name.as_str().into()).collect();
    let key = (topology.highest_tier, topology.highest_tier_name.clone(), clusters);
    let broken = match known.get(&key) {
        Some(broken) => broken.clone(),
        None => {
            let broken = capacity.fleet().links().find_broken_link(topology, &key.2);
            known.entry(key).or_insert(broken).clone()
        }
    }?;
    let began = workload.progress.started.or(placed.job.started);
    let ends = began.and_then(|began| estimate_end(binding, workload, began));
    Some(DistantGang { placed, broken, ends })
}
