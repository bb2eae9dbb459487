//! Dividing replicas over the selected clusters, for kinds that are not gangs.
//!
//! Rule: karmada-scheduler's `AssignReplicas` (`pkg/scheduler/core/assignment.go`, `division_algorithm.go`):
//! Duplicated, static weights (capacity ignored, no memory), dynamic weights and Aggregated (all or nothing on the
//! total; what is assigned stays while replicas grow). A term with overflow is filled tier by tier, each up to what it
//! has. Deliberate difference: sums do not wrap at 2^31. Everything is by the candidates' indices, so that names are
//! copied once, at the end, for those that get something.

use std::cmp::Reverse;

use super::{
    Binding, Cluster, Division, Target, WeightRule, filter::Selector, lookup::Lookup, spread_constraints::ScoredCluster,
};
use crate::webster::{self, Tie};

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

/// `spec.clusters` for the binding, by name. `empty_workloads`: clusters that get nothing are listed with 0 replicas.
///
/// # Errors
/// [`DivideError`], in Karmada's words.
pub fn assign_replicas(
    binding: &Binding,
    candidates: &[ScoredCluster<'_>],
    empty_workloads: bool,
) -> Result<Vec<Target>, DivideError> {
    if candidates.is_empty() {
        return Err(DivideError::Other("no clusters available to schedule".to_owned()));
    }
    let divided = binding.divisible && binding.components <= 1;
    let replicas =
        if divided { ReplicaDivision::new(binding, candidates).divide_replicas()? } else { vec![0; candidates.len()] };
    let all = !divided || empty_workloads;
    let mut targets: Vec<Target> = candidates
        .iter()
        .zip(replicas)
        .filter(|(_, replicas)| all || *replicas > 0)
        .map(|(candidate, replicas)| Target { cluster: candidate.cluster.name.clone(), replicas })
        .collect();
    targets.sort_unstable();
    Ok(targets)
}

/// What one of the binding's clusters has.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// In `spec.clusters`.
    position: usize,
    replicas: i64,
}

/// Replicas to divide over candidates.
struct ReplicaDivision<'a> {
    binding: &'a Binding,
    replicas: i64,
    candidates: &'a [ScoredCluster<'a>],
    /// By candidate; empty where the binding has no clusters.
    held: Vec<Option<Held>>,
}

impl<'a> ReplicaDivision<'a> {
    fn new(binding: &'a Binding, candidates: &'a [ScoredCluster<'a>]) -> Self {
        let targets = binding.previous.iter().enumerate();
        let held = |(position, target): (usize, &'a Target)| {
            (target.cluster.as_str(), Held { position, replicas: target.replicas })
        };
        let previous = Lookup::new(targets.map(held));
        let held = if previous.is_empty() {
            Vec::new()
        } else {
            candidates.iter().map(|candidate| previous.get(&candidate.cluster.name)).collect()
        };
        Self { binding, replicas: binding.replicas, candidates, held }
    }

    fn held_by(&self, candidate: usize) -> Option<Held> {
        self.held.get(candidate).copied().flatten()
    }

    fn replicas_held(&self, candidate: usize) -> i64 {
        self.held_by(candidate).map_or(0, |held| held.replicas)
    }

    /// Replicas by candidate.
    fn divide_replicas(&self) -> Result<Vec<i64>, DivideError> {
        let tiered = self.binding.placement.affinity.is_none()
            && self.binding.current_affinity_term().is_some_and(|term| !term.overflow.is_empty());
        if tiered { self.divide_by_tier() } else { self.divide_by_strategy() }
    }

    /// Fills the tiers of an affinity term in order, each up to what it has.
    fn divide_by_tier(&self) -> Result<Vec<i64>, DivideError> {
        let mut tiers: Vec<u32> = self.candidates.iter().map(|candidate| candidate.tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        let mut left = self.replicas;
        let mut replicas = vec![0; self.candidates.len()];
        for tier in tiers {
            if left <= 0 {
                break;
            }
            let of_tier = |index: &usize| self.candidates[*index].tier == tier;
            let members: Vec<usize> = (0..self.candidates.len()).filter(of_tier).collect();
            let available = members.iter().map(|i| self.candidates[*i].available).fold(0, i64::saturating_add);
            if available <= 0 {
                continue;
            }
            let candidates: Vec<ScoredCluster<'_>> = members.iter().map(|i| self.candidates[*i]).collect();
            let held = members.iter().map(|i| self.held_by(*i)).collect();
            let part =
                ReplicaDivision { binding: self.binding, replicas: left.min(available), candidates: &candidates, held };
            for (member, got) in members.into_iter().zip(part.divide_by_strategy()?) {
                replicas[member] = got;
            }
            left -= part.replicas;
        }
        if left > 0 {
            let message = "Clusters available replicas are not enough to schedule.";
            return Err(DivideError::Unschedulable(message.to_owned()));
        }
        Ok(replicas)
    }

    fn divide_by_strategy(&self) -> Result<Vec<i64>, DivideError> {
        match &self.binding.placement.division {
            None | Some(Division::Duplicated) => Ok(vec![self.replicas; self.candidates.len()]),
            Some(Division::StaticWeight { rules, .. }) => {
                let weights = compute_static_weights(rules, self.candidates.iter().map(|candidate| candidate.cluster));
                Ok(self.divide_by_votes(self.replicas, weights.into_iter().enumerate()))
            }
            Some(Division::Aggregated) => self.divide_by_capacity(true),
            Some(Division::DynamicWeight) => self.divide_by_capacity(false),
            Some(Division::Unsupported) => Err(DivideError::Other(
                "unsupported replica scheduling strategy, replicaSchedulingType: Divided, replicaDivisionPreference: \
                 , please try another scheduling strategy"
                    .to_owned(),
            )),
        }
    }

    /// By what is free, with what is assigned staying where it is: Fresh, down, the same, or up.
    fn divide_by_capacity(&self, aggregated: bool) -> Result<Vec<i64>, DivideError> {
        let fewest = |order: ClusterOrder| if aggregated { Some(order) } else { None };
        let all = 0..self.candidates.len();
        if self.binding.fresh {
            let own = all.map(|i| self.candidates[i].allocatable.saturating_add(self.replicas_held(i))).collect();
            return self
                .divide_by_available(self.replicas, own, fewest(ClusterOrder::Candidates))
                .map_err(|error| with_context("failed to do fresh scale", error));
        }
        let assigned: i64 = all.clone().map(|i| self.replicas_held(i)).fold(0, i64::saturating_add);
        if assigned > self.replicas {
            return self
                .divide_by_available(
                    self.replicas,
                    all.map(|i| self.replicas_held(i)).collect(),
                    fewest(ClusterOrder::Targets),
                )
                .map_err(|error| with_context("failed to scale down", error));
        }
        if assigned == self.replicas {
            return Ok(all.map(|i| self.replicas_held(i)).collect());
        }
        let free = self.candidates.iter().map(|candidate| candidate.allocatable).collect();
        let mut replicas = self
            .divide_by_available(self.replicas - assigned, free, fewest(ClusterOrder::UsedFirst))
            .map_err(|error| with_context("failed to scale up", error))?;
        for (i, replicas) in replicas.iter_mut().enumerate() {
            *replicas += self.replicas_held(i);
        }
        Ok(replicas)
    }

    /// `replicas` over what is available: over everybody, or over the fewest in an order.
    fn divide_by_available(
        &self,
        replicas: i64,
        available: Vec<i64>,
        fewest: Option<ClusterOrder>,
    ) -> Result<Vec<i64>, DivideError> {
        let total = available.iter().copied().fold(0, i64::saturating_add);
        if total < replicas {
            let message = format!("Clusters available replicas {total} are not enough to schedule.");
            return Err(DivideError::Unschedulable(message));
        }
        let votes = |free: i64| u64::try_from(free).unwrap_or(0);
        let Some(order) = fewest else {
            return Ok(self.divide_by_votes(replicas, available.into_iter().map(votes).enumerate()));
        };
        let ranked = !self.binding.ranking.is_empty();
        let mut places: Vec<RankedCluster> = available
            .into_iter()
            .enumerate()
            .map(|(candidate, free)| RankedCluster {
                later: order == ClusterOrder::UsedFirst && self.replicas_held(candidate) <= 0,
                rank: Reverse(if ranked && order != ClusterOrder::Targets {
                    self.candidates[candidate].score
                } else {
                    0
                }),
                free: Reverse(votes(free)),
                turn: if order == ClusterOrder::Targets {
                    self.held_by(candidate).map_or(0, |h| h.position)
                } else {
                    candidate
                },
                candidate,
            })
            .collect();
        let chosen = find_shortest_prefix(&mut places, votes(replicas));
        Ok(self.divide_by_votes(replicas, chosen.iter().map(|place| (place.candidate, place.free.0))))
    }

    /// Webster over some of the candidates, each with its votes.
    fn divide_by_votes(&self, replicas: i64, votes: impl Iterator<Item = (usize, u64)>) -> Vec<i64> {
        let (chosen, claims): (Vec<usize>, Vec<(u64, &str)>) = votes
            .map(|(candidate, votes)| (candidate, (votes, self.candidates[candidate].cluster.name.as_str())))
            .unzip();
        let seats =
            webster::divide_seats(u64::try_from(replicas).unwrap_or(0), &claims, Tie::of_uid(&self.binding.uid));
        let mut replicas = vec![0; self.candidates.len()];
        for (candidate, seats) in chosen.into_iter().zip(seats) {
            replicas[candidate] = i64::try_from(seats).unwrap_or(i64::MAX);
        }
        replicas
    }
}

fn with_context(what: &str, error: DivideError) -> DivideError {
    match error {
        DivideError::Unschedulable(why) => DivideError::Unschedulable(format!("{what}: {why}")),
        DivideError::Other(why) => DivideError::Other(format!("{what}: {why}")),
    }
}

/// In which order clusters are used until the replicas fit; always the one with most free first (after the best scored,
/// where the policy ranks clusters and something is added).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClusterOrder {
    /// Equals as the candidates come.
    Candidates,
    /// Equals as `spec.clusters` lists them.
    Targets,
    /// Those that have some already before all others.
    UsedFirst,
}

/// A cluster in line to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedCluster {
    later: bool,
    /// By score, where the policy ranks clusters.
    rank: Reverse<i64>,
    free: Reverse<u64>,
    turn: usize,
    candidate: usize,
}

/// The first places, in order, that together hold `replicas`. Halves are set apart and only the one with the end in it
/// is looked at again, so that not all has to be sorted.
fn find_shortest_prefix(places: &mut [RankedCluster], replicas: u64) -> &[RankedCluster] {
    let (mut start, mut end, mut left) = (0, places.len(), replicas);
    while end - start > 8 {
        let middle = start + (end - start) / 2;
        places[start..end].select_nth_unstable(middle - start);
        let held = places[start..middle].iter().fold(0, |sum: u64, place| sum.saturating_add(place.free.0));
        if held >= left {
            end = middle;
        } else {
            left -= held;
            start = middle;
        }
    }
    places[start..end].sort_unstable();
    let enough = places[start..end].iter().position(|place| {
        left = left.saturating_sub(place.free.0);
        left == 0
    });
    &places[..enough.map_or(end, |last| start + last + 1)]
}

/// Each cluster's static weight, the largest of the rules that select it; all 1 where no rule gives anybody any.
#[must_use]
pub fn compute_static_weights<'a>(rules: &[WeightRule], clusters: impl Iterator<Item = &'a Cluster>) -> Vec<u64> {
    let weight = |rule: &WeightRule| u64::try_from(rule.weight).unwrap_or(0);
    // Rules that do no more than name clusters are looked up by the name, the others asked one by one.
    let (named, asked): (Vec<&WeightRule>, Vec<&WeightRule>) = rules.iter().partition(|rule| {
        let clusters = &rule.clusters;
        !clusters.invalid
            && clusters.labels.is_empty()
            && clusters.fields.is_empty()
            && clusters.exclude.is_empty()
            && !clusters.names.is_empty()
    });
    let mut by_name: Vec<(&str, u64)> =
        named.iter().flat_map(|rule| rule.clusters.names.iter().map(|name| (name.as_str(), weight(rule)))).collect();
    // Of equal names the first is found: the largest.
    by_name.sort_by_key(|(_, weight)| Reverse(*weight));
    let by_name = Lookup::new(by_name.into_iter());
    let asked: Vec<(Selector<'_>, u64)> =
        asked.into_iter().map(|rule| (Selector::new(&rule.clusters), weight(rule))).collect();
    let weights: Vec<u64> = clusters
        .map(|cluster| {
            let matching = asked.iter().filter(|(selector, _)| selector.selects(cluster)).map(|(_, weight)| *weight);
            matching.chain(by_name.get(&cluster.name)).max().unwrap_or(0)
        })
        .collect();
    if weights.iter().all(|weight| *weight == 0) { vec![1; weights.len()] } else { weights }
}
