//! The whole fleet in a few numbers.

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;

use super::{cluster::Member, job::JobView, state::State};

/// What the members have of a resource together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetAmount {
    /// Of what.
    pub resource: String,
    /// Allocated there, by whomever.
    pub used: Quantity,
    /// All.
    pub all: Quantity,
}

/// Sums over members, cpu and memory first; no sum of pods.
#[must_use]
pub fn sum_members<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<FleetAmount> {
    let mut sums: BTreeMap<&str, (Quantity, Quantity)> = BTreeMap::new();
    for member in members {
        for name in member.amounts.keys().filter(|name| *name != "pods") {
            let Some((used, all)) = member.amount(name) else { continue };
            let sum = sums.entry(name).or_default();
            *sum = (sum.0.saturating_add(used), sum.1.saturating_add(all));
        }
    }
    let amount =
        |(name, (used, all)): (&str, (Quantity, Quantity))| FleetAmount { resource: name.to_owned(), used, all };
    let mut amounts: Vec<FleetAmount> = sums.into_iter().filter(|(_, (_, all))| !all.is_zero()).map(amount).collect();
    amounts.sort_by_key(|amount| match amount.resource.as_str() {
        "cpu" => 0,
        "memory" => 1,
        // Cards before disks.
        name if name.contains('/') => 2,
        _ => 3,
    });
    amounts
}

/// Jobs by where they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Their gate is closed.
    pub waiting: usize,
    /// Released, their minimum does not run yet.
    pub starting: usize,
    /// They run.
    pub running: usize,
    /// They ended.
    pub over: usize,
    /// Nobody queues them.
    pub others: usize,
}

/// Counts jobs, and for each member the gangs that are there and their pods.
#[must_use]
pub fn count_jobs<'a>(jobs: impl Iterator<Item = JobView<'a>>) -> (JobCounts, BTreeMap<&'a str, (usize, u64)>) {
    let (mut counts, mut gangs) = (JobCounts::default(), BTreeMap::new());
    for job in jobs {
        let count = match job.state {
            state if state.is_gate_closed() => &mut counts.waiting,
            State::Admitted | State::Starting => &mut counts.starting,
            State::Running => &mut counts.running,
            state if state.is_over() => &mut counts.over,
            _ => &mut counts.others,
        };
        *count += 1;
        for (cluster, pods) in job.clusters().iter().filter(|_| !job.state.is_over()) {
            let there: &mut (usize, u64) = gangs.entry(cluster.as_str()).or_default();
            *there = (there.0 + 1, there.1 + pods);
        }
    }
    (counts, gangs)
}
