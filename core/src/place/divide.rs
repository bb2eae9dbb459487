//! Dividing replicas over the selected clusters, for kinds that are not gangs.
//!
//! Rule: karmada-scheduler's `AssignReplicas` (`pkg/scheduler/core/assignment.go`, `division_algorithm.go`): Duplicated,
//! static weights (capacity ignored, no memory), dynamic weights and Aggregated (all or nothing on the total; what is
//! assigned stays while replicas grow). Deliberate differences: sums do not wrap at 2^31, and weights above 2^53 are
//! compared exactly.

use std::collections::BTreeMap;

use super::{Binding, Division, Target, WeightRule, filter::selects, select::Candidate};
use crate::webster::{Tie, divide};

/// Why replicas can not be divided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DivideError {
    /// Not enough is free (Karmada's UnschedulableError).
    #[error("{0}")]
    Unschedulable(String),
    /// Nothing to choose from, or a policy that says too little.
    #[error("{0}")]
    Other(String),
}

/// `spec.clusters` for the binding. `empty_workloads`: clusters that get nothing are listed with 0 replicas.
///
/// # Errors
/// [`DivideError`], in Karmada's words.
pub fn assign(
    binding: &Binding,
    candidates: &[Candidate<'_>],
    empty_workloads: bool,
) -> Result<Vec<Target>, DivideError> {
    let mut targets = assign_present(binding, candidates)?;
    if empty_workloads {
        for candidate in candidates {
            if !targets.iter().any(|target| target.cluster == candidate.cluster.name) {
                targets.push(Target { cluster: candidate.cluster.name.clone(), replicas: 0 });
            }
        }
    }
    targets.sort();
    Ok(targets)
}

fn assign_present(binding: &Binding, candidates: &[Candidate<'_>]) -> Result<Vec<Target>, DivideError> {
    if candidates.is_empty() {
        return Err(DivideError::Other("no clusters available to schedule".to_owned()));
    }
    if !(binding.divisible && binding.components <= 1) {
        return Ok(candidates.iter().map(|candidate| target(candidate, 0)).collect());
    }
    let tiered = binding.placement.affinity.is_none() && binding.term().is_some_and(|term| !term.overflow.is_empty());
    let mut targets = if tiered { by_tier(binding, candidates)? } else { by_strategy(binding, candidates)? };
    targets.retain(|target| target.replicas > 0);
    Ok(targets)
}

fn target(candidate: &Candidate<'_>, replicas: i64) -> Target {
    Target { cluster: candidate.cluster.name.clone(), replicas }
}

fn by_strategy(binding: &Binding, candidates: &[Candidate<'_>]) -> Result<Vec<Target>, DivideError> {
    match &binding.placement.division {
        None | Some(Division::Duplicated) => Ok(candidates.iter().map(|one| target(one, binding.replicas)).collect()),
        Some(Division::StaticWeight { rules, .. }) => Ok(static_weight(binding, candidates, rules)),
        Some(Division::Aggregated) => dynamic(binding, candidates, true),
        Some(Division::DynamicWeight) => dynamic(binding, candidates, false),
        Some(Division::Unsupported) => Err(DivideError::Other(
            "unsupported replica scheduling strategy, replicaSchedulingType: Divided, replicaDivisionPreference: , \
             please try another scheduling strategy"
                .to_owned(),
        )),
    }
}

/// Fills the tiers of an affinity term in order, each up to what it has.
fn by_tier(binding: &Binding, candidates: &[Candidate<'_>]) -> Result<Vec<Target>, DivideError> {
    let mut tiers: Vec<u32> = candidates.iter().map(|candidate| candidate.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let mut left = binding.replicas;
    let mut targets = Vec::new();
    for tier in tiers {
        if left <= 0 {
            break;
        }
        let members: Vec<Candidate<'_>> = candidates.iter().filter(|one| one.tier == tier).cloned().collect();
        let available: i64 = members.iter().map(|one| one.available).fold(0, i64::saturating_add);
        if available <= 0 {
            continue;
        }
        let part = Binding { replicas: left.min(available), ..binding.clone() };
        targets.extend(by_strategy(&part, &members)?);
        left -= part.replicas;
    }
    if left > 0 {
        let message = "Clusters available replicas are not enough to schedule.";
        return Err(DivideError::Unschedulable(message.to_owned()));
    }
    Ok(targets)
}

/// A cluster's static weight: the largest of the rules that select it.
#[must_use]
pub fn static_weight_of(rules: &[WeightRule], cluster: &super::Cluster) -> u64 {
    let matching = rules.iter().filter(|rule| selects(&rule.clusters, cluster));
    matching.map(|rule| u64::try_from(rule.weight).unwrap_or(0)).max().unwrap_or(0)
}

/// Each candidate's static weight; all 1 where no rule gives anybody any.
#[must_use]
pub fn static_weights<'a>(rules: &[WeightRule], clusters: impl Iterator<Item = &'a super::Cluster>) -> Vec<u64> {
    let weights: Vec<u64> = clusters.map(|cluster| static_weight_of(rules, cluster)).collect();
    if weights.iter().all(|weight| *weight == 0) { vec![1; weights.len()] } else { weights }
}

fn static_weight(binding: &Binding, candidates: &[Candidate<'_>], rules: &[WeightRule]) -> Vec<Target> {
    let weights = static_weights(rules, candidates.iter().map(|candidate| candidate.cluster));
    let claims: Vec<(u64, &str)> =
        weights.into_iter().zip(candidates).map(|(weight, one)| (weight, one.cluster.name.as_str())).collect();
    webster(binding, binding.replicas, &claims)
}

fn webster(binding: &Binding, house: i64, claims: &[(u64, &str)]) -> Vec<Target> {
    let seats = divide(u64::try_from(house).unwrap_or(0), claims, Tie::of_uid(&binding.uid));
    let named = claims.iter().zip(seats);
    named
        .map(|((_, name), seats)| Target {
            cluster: (*name).to_owned(),
            replicas: i64::try_from(seats).unwrap_or(i64::MAX),
        })
        .collect()
}

fn dynamic(binding: &Binding, candidates: &[Candidate<'_>], aggregated: bool) -> Result<Vec<Target>, DivideError> {
    let scheduled: Vec<&Target> = binding
        .previous
        .iter()
        .filter(|target| candidates.iter().any(|candidate| candidate.cluster.name == target.cluster))
        .collect();
    let assigned: i64 = scheduled.iter().map(|target| target.replicas).sum();
    let free = |candidate: &Candidate<'_>| (candidate.allocatable, candidate.cluster.name.clone());
    if binding.fresh {
        let own = |candidate: &Candidate<'_>| {
            (candidate.allocatable + binding.assigned(&candidate.cluster.name), candidate.cluster.name.clone())
        };
        return share(binding, candidates.iter().map(own).collect(), binding.replicas, &[], aggregated)
            .map_err(|error| within("failed to do fresh scale", error));
    }
    if assigned > binding.replicas {
        let held = scheduled.iter().map(|target| (target.replicas, target.cluster.clone())).collect();
        return share(binding, held, binding.replicas, &[], aggregated)
            .map_err(|error| within("failed to scale down", error));
    }
    if assigned == binding.replicas {
        return Ok(scheduled.into_iter().cloned().collect());
    }
    let more =
        share(binding, candidates.iter().map(free).collect(), binding.replicas - assigned, &scheduled, aggregated)
            .map_err(|error| within("failed to scale up", error))?;
    if scheduled.is_empty() {
        return Ok(more);
    }
    let mut targets: BTreeMap<String, i64> =
        scheduled.into_iter().map(|target| (target.cluster.clone(), target.replicas)).collect();
    for new in more {
        *targets.entry(new.cluster).or_default() += new.replicas;
    }
    Ok(targets.into_iter().map(|(cluster, replicas)| Target { cluster, replicas }).collect())
}

fn within(what: &str, error: DivideError) -> DivideError {
    match error {
        DivideError::Unschedulable(why) => DivideError::Unschedulable(format!("{what}: {why}")),
        DivideError::Other(why) => DivideError::Other(format!("{what}: {why}")),
    }
}

/// `house` replicas over what is available: over everybody, or over the fewest (those who have some already first).
fn share(
    binding: &Binding,
    mut available: Vec<(i64, String)>,
    house: i64,
    scheduled: &[&Target],
    aggregated: bool,
) -> Result<Vec<Target>, DivideError> {
    // Karmada sorts by capacity alone and keeps the candidates' order among equals.
    available.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
    let total = available.iter().map(|(free, _)| *free).fold(0, i64::saturating_add);
    if total < house {
        let message = format!("Clusters available replicas {total} are not enough to schedule.");
        return Err(DivideError::Unschedulable(message));
    }
    if aggregated {
        let prior = |name: &str| scheduled.iter().any(|target| target.replicas > 0 && target.cluster == name);
        available.sort_by_key(|(_, name)| !prior(name));
        let mut sum = 0_i64;
        let enough = available.iter().position(|(free, _)| {
            sum = sum.saturating_add(*free);
            sum >= house
        });
        available.truncate(enough.map_or(available.len(), |last| last + 1));
    }
    let claims: Vec<(u64, &str)> =
        available.iter().map(|(free, name)| (u64::try_from(*free).unwrap_or(0), name.as_str())).collect();
    Ok(webster(binding, house, &claims))
}
