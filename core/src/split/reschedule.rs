//! Gangs with partitions that start afresh while their copies are there.
//!
//! A member's Volcano lets nobody resize a partitioned task (`admit_job.go`), so that a cluster which keeps its copy
//! keeps its partitions. Such a gang leaves all the clusters that have some of it, or stays in all of them; what is
//! between is not looked at.

use std::cmp::Reverse;

use super::{Candidate, GangRefusal, SplitProblem, pods_of_share, split_gang, subtract_assumed_pods};
use crate::{
    gang::{ClusterName, Gang},
    inventory::Capacity,
    plan::Plan,
};

/// Whether a candidate has a copy with partitions.
pub(super) fn has_partitioned_copy(problem: &SplitProblem<'_>, copies: &Plan) -> bool {
    problem.candidates.iter().any(|candidate| holds_partitions(problem.gang, copies, candidate.name))
}

fn holds_partitions(gang: &Gang, copies: &Plan, cluster: &ClusterName) -> bool {
    let pods = pods_of_share(gang, copies.clusters.get(cluster));
    gang.tasks.iter().zip(pods).any(|(task, pods)| task.partition.is_some() && pods > 0)
}

/// A gang whose copies have partitions, which nobody can resize: it leaves all their clusters, or stays in all of them.
/// It leaves only where more of it, or all of it in fewer clusters, can be elsewhere.
pub(super) fn reschedule_partitioned_gang(problem: &SplitProblem<'_>, copies: &Plan) -> Result<Plan, GangRefusal> {
    let gang = problem.gang;
    let left = |candidate: &&Candidate<'_>| !holds_partitions(gang, copies, candidate.name);
    let moved = split_gang(&SplitProblem {
        candidates: problem.candidates.iter().filter(left).cloned().collect(),
        ..problem.clone()
    });
    // What it holds there is not free for it if it stays.
    let without = |candidate: &Candidate<'_>| {
        let share = copies.clusters.get(candidate.name)?;
        Some(subtract_assumed_pods(
            candidate.capacity.clone(),
            gang,
            &pods_of_share(gang, Some(share)),
            &share.pinned_domains(),
        ))
    };
    let capacities: Vec<Option<Capacity>> = problem.candidates.iter().map(without).collect();
    let candidates = problem.candidates.iter().zip(&capacities);
    let candidates = candidates.map(|(candidate, without)| Candidate {
        capacity: without.as_ref().unwrap_or(candidate.capacity),
        ..candidate.clone()
    });
    let stays =
        split_gang(&SplitProblem { candidates: candidates.collect(), previous: Some(copies), ..problem.clone() });
    let size = |plan: &Plan| (Reverse(plan.replicas()), plan.clusters.len());
    match (stays, moved) {
        (Ok(stays), Ok(moved)) => Ok(if size(&moved) < size(&stays) { moved } else { stays }),
        (stays, moved) => stays.or(moved),
    }
}
