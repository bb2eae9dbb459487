//! The whole decision: filters, affinity terms with fallback, selection, then division or the gang-aware split.
//!
//! Rule: karmada-scheduler's `scheduleResourceBindingWithClusterAffinities` and `genericScheduler.Schedule`: terms are
//! tried from the observed one on (from the first after a reschedule was triggered), the first that works wins, and the
//! first term's failure is the one reported. Beyond Karmada: a cluster that is not Ready takes nothing new whatever its
//! taints, nor does one where a maintenance window is in the way, required data is not, that its queue may not use, or
//! that its user keeps it out of; and a gang is placed whole or not at all.

mod closeness_levels;
mod refusal_reasons;
mod region_sets;
#[cfg(test)]
mod tests;

use closeness_levels::build_closeness_levels;
pub use refusal_reasons::{append_reasons, describe_lasting_reasons, describe_maintenance};

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Affinity, AffinityTerm, Binding, Cluster, Division, Spread, SpreadBy, Target,
    data_locality::compute_data_costs,
    filter::{self, Filter, FilterReason, PassedCluster},
    maintenance_windows::build_planned_domain,
    replica_division::{self, DivideError, compute_static_weights},
    replica_estimate::ReplicaEstimate,
    score::FeasibleCluster,
    spread_constraints::{self, ScoredCluster, is_duplicated},
};
use crate::{
    gang::{ClusterName, Gang, Requirement},
    inventory::Capacity,
    maintenance::ExpectedRun,
    plan::Plan,
    split::{self, GangRefusal, LinkedGroups, SplitProblem, Strategy},
    webster::Tie,
};

/// Clusters that a refusal names for one reason.
const MOST_NAMED_CLUSTERS: usize = 3;

/// What to place, and everything known about where.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// What it asks for. A kind without tasks is a gang of one task.
    pub gang: &'a Gang,
    /// Whether it must be placed as a gang (Volcano's kinds) or is divided as Karmada would.
    pub whole: bool,
    /// The plan it was placed by before, if any.
    pub previous: Option<&'a Plan>,
    /// All clusters with what is free in each for this binding: without what is assumed for others, and without what it
    /// holds itself (with it, for a binding that starts afresh).
    pub clusters: Vec<(&'a Cluster, &'a Capacity)>,
    /// Which clusters are close by declared links, from near to far.
    pub linked: &'a [LinkedGroups],
    /// When it would run, for maintenance windows; `None` where they do not count.
    pub run: Option<ExpectedRun>,
}

impl Request<'_> {
    /// The filter for the binding, with the affinity term that is in use.
    fn build_filter<'a>(&'a self, binding: &'a Binding) -> Filter<'a> {
        Filter::new(binding).with_run(self.run_of_pods(), self.gang, self.whole)
    }

    /// Maintenance windows keep out pods, and not the objects that they need.
    fn run_of_pods(&self) -> Option<ExpectedRun> {
        self.run.filter(|_| self.whole || self.binding.is_workload)
    }
}

/// Where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// For `spec.clusters`, by name.
    pub targets: Vec<Target>,
    /// For the plan annotation; `None` for kinds whose copies are not rewritten.
    pub plan: Option<Plan>,
    /// The affinity term that was used, with `clusterAffinities`.
    pub affinity: Option<String>,
}

impl Decision {
    /// Pods of each task by cluster: by the plan, else by the replicas of the one task; all of several.
    #[must_use]
    pub fn count_pods_by_cluster(&self, gang: &Gang) -> BTreeMap<String, Vec<u32>> {
        let by_plan = |cluster: &str| {
            let share = self.plan.as_ref()?.clusters.get(cluster)?;
            Some(gang.tasks.iter().map(|task| share.tasks.get(&task.name).map_or(0, |share| share.replicas)).collect())
        };
        let by_replicas = |replicas: i64| match gang.tasks.as_slice() {
            [_] if replicas > 0 => vec![u32::try_from(replicas).unwrap_or(u32::MAX)],
            tasks => tasks.iter().map(|task| task.replicas).collect(),
        };
        let pods = |target: &Target| by_plan(&target.cluster).unwrap_or_else(|| by_replicas(target.replicas));
        self.targets.iter().map(|target| (target.cluster.clone(), pods(target))).collect()
    }
}

/// Why it goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPlaced {
    /// No cluster passes the filters (Karmada's `FitError`): what it has is taken away.
    #[error("{0}")]
    NoClusterFits(String),
    /// Not enough capacity (Karmada's `UnschedulableError`).
    #[error("{0}")]
    Unschedulable(String),
    /// Not enough capacity for the gang.
    #[error("{0}")]
    Gang(GangRefusal),
    /// The policy can not be carried out.
    #[error("{0}")]
    Unsupported(String),
}

/// Where the binding goes now, or why nowhere.
///
/// # Errors
/// [`NotPlaced`], in a sentence with numbers.
pub fn place_binding(request: &Request<'_>) -> Result<Decision, NotPlaced> {
    if request.run_of_pods().is_some_and(ExpectedRun::ends_before_nodes_come) {
        return Err(NotPlaced::Unschedulable("its run would be over before its nodes have come".to_owned()));
    }
    let mut first = None;
    for binding in list_bindings_by_term(request.binding) {
        match place_by_term(request, &binding) {
            Ok(decision) => {
                let affinity = matches!(binding, Cow::Owned(_)).then(|| binding.observed_affinity.clone());
                return Ok(Decision { affinity, ..decision });
            }
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.unwrap_or_else(|| NotPlaced::Unsupported("no affinity term to try".to_owned())))
}

/// The binding with each affinity term that is tried, in turn; as it is where it has no terms.
fn list_bindings_by_term(binding: &Binding) -> impl Iterator<Item = Cow<'_, Binding>> {
    let placement = &binding.placement;
    let terms = if placement.affinity.is_some() { &[] } else { placement.affinities.as_slice() };
    let observed = terms.iter().position(|term| term.name == binding.observed_affinity);
    let start = if binding.fresh { 0 } else { observed.unwrap_or(0) };
    let with_term = |term: &AffinityTerm| Binding { observed_affinity: term.name.clone(), ..binding.clone() };
    let as_it_is = terms.is_empty().then_some(Cow::Borrowed(binding));
    as_it_is.into_iter().chain(terms[start..].iter().map(move |term| Cow::Owned(with_term(term))))
}

/// Clusters that each get all of a duplicated binding, as its filters, its affinity terms and its spread constraints
/// choose them, whatever is free there; `None` if they choose none.
#[must_use]
pub fn count_copies<'a>(binding: &Binding, clusters: impl Iterator<Item = &'a Cluster>) -> Option<usize> {
    let clusters: Vec<&Cluster> = clusters.filter(|cluster| !cluster.deleting).collect();
    let chosen = |binding: &Binding| {
        let filter = Filter::new(binding);
        let most = i64::from(i32::MAX);
        let candidate = |cluster: &&'a Cluster| {
            let PassedCluster { tier, held } = filter.check(cluster).ok()?;
            let score = if held.is_some() { 100 } else { 0 };
            (cluster.ready || held.is_some()).then_some(ScoredCluster {
                cluster,
                score,
                tier,
                allocatable: most,
                available: most,
            })
        };
        let candidates: Vec<ScoredCluster<'_>> = clusters.iter().filter_map(candidate).collect();
        let chosen =
            if candidates.is_empty() { None } else { spread_constraints::select_clusters(binding, candidates).ok() };
        chosen.map(|chosen| chosen.len()).filter(|chosen| *chosen > 0)
    };
    list_bindings_by_term(binding).find_map(|binding| chosen(&binding))
}

/// True if some affinity of the placement may ever select the cluster, whatever its state.
#[must_use]
pub fn may_select(binding: &Binding, cluster: &Cluster) -> bool {
    let selected = |affinity: &Affinity| filter::selects(affinity, cluster);
    let placement = &binding.placement;
    binding.is_target(&cluster.name)
        || match &placement.affinity {
            Some(affinity) => selected(affinity),
            None if placement.affinities.is_empty() => true,
            None => {
                placement.affinities.iter().any(|term| selected(&term.affinity) || term.overflow.iter().any(selected))
            }
        }
}

/// A fitting cluster and what it can take.
#[derive(Debug)]
struct FittingCluster<'a> {
    cluster: &'a Cluster,
    capacity: Cow<'a, Capacity>,
    passed: PassedCluster,
    /// On which of its nodes pods are to be kept, where maintenance windows leave only some.
    outside: Option<Requirement>,
}

impl<'a> FittingCluster<'a> {
    /// Whether it has pods of the binding that do not move.
    fn stays_placed(&self, binding: &Binding) -> bool {
        !binding.fresh && self.passed.held.is_some()
    }

    fn as_feasible_cluster(&self) -> FeasibleCluster<'_> {
        FeasibleCluster { cluster: self.cluster, capacity: &self.capacity }
    }
}

fn place_by_term(request: &Request<'_>, binding: &Binding) -> Result<Decision, NotPlaced> {
    let filter = request.build_filter(binding);
    let mut fitting = Vec::with_capacity(request.clusters.len());
    let mut reasons = Vec::new();
    for (cluster, capacity) in request.clusters.iter().filter(|(cluster, _)| !cluster.deleting) {
        match filter.check(cluster) {
            Ok(PassedCluster { held: None, .. }) if !cluster.ready => reasons.push(FilterReason::NotReady),
            Ok(passed) => {
                let takes_more = cluster.ready
                    && !filter.has_maintenance_conflict(cluster)
                    && binding.lasting_reasons(cluster).next().is_none();
                let outside = filter.find_nodes_outside_windows(cluster).filter(|_| takes_more);
                let capacity = match takes_more {
                    true => filter.keep_outside_windows(cluster, capacity),
                    false => Cow::Owned(Capacity::default()),
                };
                fitting.push(FittingCluster { cluster, capacity, passed, outside });
            }
            Err(reason) => reasons.push(reason),
        }
    }
    if fitting.is_empty() {
        return Err(NotPlaced::NoClusterFits(filter::fit_error(request.clusters.len(), reasons)));
    }
    if request.whole { place_gang(request, binding, &fitting) } else { place_replicas(request, binding, &fitting) }
}

fn score_candidates<'a>(
    request: &Request<'_>,
    binding: &Binding,
    fitting: &[FittingCluster<'a>],
) -> Vec<ScoredCluster<'a>> {
    let estimate = ReplicaEstimate::new(request.gang);
    let ranked = if binding.ranking.is_empty() {
        Vec::new()
    } else {
        binding
            .ranking
            .scores(request.gang, &fitting.iter().map(FittingCluster::as_feasible_cluster).collect::<Vec<_>>())
    };
    let candidate = |(index, fitting): (usize, &FittingCluster<'a>)| {
        let fits = estimate.estimate_max_available_replicas(fitting.cluster, &fitting.capacity);
        let allocatable = i64::try_from(fits).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
        let PassedCluster { tier, held } = fitting.passed;
        ScoredCluster {
            cluster: fitting.cluster,
            score: if held.is_some() { 100 } else { 0 } + ranked.get(index).copied().unwrap_or(0),
            tier,
            allocatable,
            available: allocatable + held.unwrap_or(0),
        }
    };
    fitting.iter().enumerate().map(candidate).collect()
}

/// The candidates that the spread constraints leave, in the order in which Karmada divides over them.
fn select_candidates<'a>(
    request: &Request<'_>,
    binding: &Binding,
    fitting: &[FittingCluster<'a>],
) -> Result<Vec<ScoredCluster<'a>>, NotPlaced> {
    let candidates = score_candidates(request, binding, fitting);
    let in_order = candidates.is_sorted_by(|a, b| a.cluster.name <= b.cluster.name);
    if in_order && spread_constraints::keeps_all(binding) && !spread_constraints::order_matters(binding) {
        return Ok(candidates);
    }
    spread_constraints::select_clusters(binding, candidates).map_err(NotPlaced::Unsupported)
}

/// Pods that a member starts only together are not divided: it counts those of its own part alone.
fn aggregate_in_one_cluster(binding: &Binding) -> Binding {
    let mut binding = binding.clone();
    binding.placement.division = Some(Division::Aggregated);
    binding.placement.spread.retain(|spread| spread.by != SpreadBy::Cluster);
    binding.placement.spread.push(Spread { by: SpreadBy::Cluster, min: 1, max: 1 });
    binding
}

/// Karmada's division with our capacity.
fn place_replicas(
    request: &Request<'_>,
    binding: &Binding,
    fitting: &[FittingCluster<'_>],
) -> Result<Decision, NotPlaced> {
    let divided = !spread_constraints::is_duplicated(binding.placement.division.as_ref());
    let one = (divided && request.gang.one_cluster.is_some()).then(|| aggregate_in_one_cluster(binding));
    let binding = one.as_ref().unwrap_or(binding);
    let candidates = select_candidates(request, binding, fitting)?;
    let targets = replica_division::assign_replicas(binding, &candidates, binding.empty_workloads).map_err(
        |error| match error {
            DivideError::Unschedulable(why) => NotPlaced::Unschedulable(why),
            DivideError::Other(why) => NotPlaced::Unsupported(why),
        },
    )?;
    Ok(Decision { targets, plan: None, affinity: None })
}

/// As many of its pods as can be in clusters that the spread constraints permit: in those that Karmada would choose,
/// and where these do not hold it whole, in others.
fn place_gang(request: &Request<'_>, binding: &Binding, fitting: &[FittingCluster<'_>]) -> Result<Decision, NotPlaced> {
    let among = apply_spread_constraints(request, binding, fitting)?;
    let pods = |decision: &Decision| decision.plan.as_ref().map_or(0, Plan::replicas);
    let keeps = fitting.iter().filter(|one| one.stays_placed(binding)).all(|one| among.has_cluster(&one.cluster.name));
    let mut best = place_gang_among(request, binding, &among);
    if !among.by_region || best.as_ref().is_ok_and(|best| keeps && pods(best) >= request.gang.replicas()) {
        return best;
    }
    // What is placed does not move to where Karmada would go now.
    let mut stays = keeps;
    for among in region_sets::list_region_sets(request, binding, fitting) {
        let Ok(found) = place_gang_among(request, binding, &among) else { continue };
        if !stays || best.as_ref().map_or(0, pods) < pods(&found) {
            (best, stays) = (Ok(found), true);
        }
        if best.as_ref().is_ok_and(|best| pods(best) >= request.gang.replicas()) {
            break;
        }
    }
    best
}

/// Clusters that a gang may use.
#[derive(Debug)]
struct PermittedClusters<'a, 'b> {
    clusters: Vec<&'b FittingCluster<'a>>,
    /// So many of them together.
    most: Option<u32>,
    /// Each one's region, and how many may be used beside the first of each.
    regions: Option<(Vec<u32>, u32)>,
    /// They are what Karmada would choose by region.
    by_region: bool,
}

impl PermittedClusters<'_, '_> {
    fn has_cluster(&self, name: &str) -> bool {
        self.clusters.iter().any(|one| one.cluster.name == name)
    }
}

/// Where the gang goes among these.
fn place_gang_among(
    request: &Request<'_>,
    binding: &Binding,
    among: &PermittedClusters<'_, '_>,
) -> Result<Decision, NotPlaced> {
    let division = binding.placement.division.as_ref();
    let strategy = match division {
        None | Some(Division::Duplicated) => Strategy::Duplicated,
        Some(Division::Aggregated) => Strategy::Aggregated,
        Some(Division::StaticWeight { .. }) => Strategy::StaticWeight,
        Some(Division::DynamicWeight) => Strategy::DynamicWeight,
        // Karmada refuses a division without a preference; a gang without one stays as close together as it can.
        Some(Division::Unsupported) => Strategy::Aggregated,
    };
    let (chosen, most_clusters) = (&among.clusters, among.most);
    let names: Vec<ClusterName> = chosen.iter().map(|one| ClusterName::from(one.cluster.name.as_str())).collect();
    let weights = match division {
        Some(Division::StaticWeight { rules, .. }) => {
            compute_static_weights(rules, chosen.iter().map(|one| one.cluster))
        }
        _ => vec![1; chosen.len()],
    };
    let costs =
        binding.ranking.costs(request.gang, &chosen.iter().map(|one| one.as_feasible_cluster()).collect::<Vec<_>>());
    let says_where = request.gang.data.is_some();
    let all: Vec<&Cluster> = request.clusters.iter().filter(|_| says_where).map(|(cluster, _)| *cluster).collect();
    let may_go: Vec<&Cluster> = chosen.iter().map(|one| one.cluster).collect();
    let data = compute_data_costs(request.gang, binding, &may_go, &all).of;
    let by_score = binding.ranking.weights.puts_scores_first();
    let turns = if by_score { rank_by_cost(chosen, &costs, &data) } else { vec![0; chosen.len()] };
    let previous = if binding.fresh { None } else { request.previous };
    // With the clusters of the first tiers, and of those the first so many by score.
    let solve = |tier: u32, most: usize| {
        let usable = |index: &usize| {
            let PassedCluster { tier: own, held } = chosen[*index].passed;
            held.is_some() || (own <= tier && turns[*index] < most)
        };
        let candidate = |index: usize| split::Candidate {
            name: &names[index],
            weight: weights[index],
            data: data[index],
            cost: costs[index],
            missing_images: binding.count_missing_images(chosen[index].cluster),
            capacity: &chosen[index].capacity,
        };
        let sites: Vec<usize> = (0..chosen.len()).filter(usable).collect();
        let regions = among.regions.as_ref();
        let regions = regions.map(|(of, more)| (sites.iter().map(|site| of[*site]).collect::<Vec<u32>>(), *more));
        split::split_gang(&SplitProblem {
            gang: request.gang,
            candidates: sites.iter().copied().map(candidate).collect(),
            strategy,
            previous,
            copies: request.previous,
            most_clusters,
            regions: regions.as_ref().map(|(of, more)| split::Regions { of, more: *more }),
            levels: &build_closeness_levels(
                request.linked,
                sites.iter().map(|site| (&names[*site], chosen[*site].cluster)),
            ),
            tie: Tie::of_uid(&binding.uid),
        })
    };
    let mut tiers: Vec<u32> = chosen.iter().map(|one| one.passed.tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let last = tiers.pop().unwrap_or(0);
    let whole = |plan: &Plan| plan.replicas() >= request.gang.replicas();
    let all = chosen.len();
    let wholly = |tier: u32| {
        let best = |most: usize| solve(tier, most).ok().filter(whole);
        if by_score { search_least_count(all, best) } else { best(all) }
    };
    let early = tiers.into_iter().find_map(&wholly);
    let early = early.or_else(|| if by_score { wholly(last) } else { None });
    let mut plan = early.map_or_else(|| solve(last, all), Ok).map_err(NotPlaced::Gang)?;
    for (one, name) in chosen.iter().zip(&names) {
        if let (Some(share), Some(outside)) = (plan.clusters.get_mut(name), &one.outside) {
            share.domain.get_or_insert_with(|| build_planned_domain(outside));
        }
    }
    let target = |(cluster, replicas): (&ClusterName, u32)| Target {
        cluster: cluster.as_str().to_owned(),
        replicas: i64::from(replicas),
    };
    Ok(Decision { targets: plan.by_cluster().map(target).collect(), plan: Some(plan), affinity: None })
}

/// Each cluster's turn by cost, then what of the data it lacks, then name.
fn rank_by_cost(chosen: &[&FittingCluster<'_>], costs: &[i64], data: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    order.sort_by_key(|index| (costs[*index], data[*index], &chosen[*index].cluster.name));
    let mut turns = vec![0; chosen.len()];
    for (turn, index) in order.into_iter().enumerate() {
        turns[index] = turn;
    }
    turns
}

/// What the least number (at most `all`) gives anything for, where more never gives less.
fn search_least_count<T>(all: usize, of: impl Fn(usize) -> Option<T>) -> Option<T> {
    let (mut none, mut some, mut found) = (0, all, of(all)?);
    while some - none > 1 {
        let middle = none + (some - none) / 2;
        match of(middle) {
            Some(better) => (some, found) = (middle, better),
            None => none = middle,
        }
    }
    Some(found)
}

/// The clusters that a gang may use under its spread constraints. Which ones is left to the split where the number is
/// all that is constrained; regions (and which clusters get a duplicate) are first chosen as Karmada does.
fn apply_spread_constraints<'a, 'b>(
    request: &Request<'_>,
    binding: &Binding,
    fitting: &'b [FittingCluster<'a>],
) -> Result<PermittedClusters<'a, 'b>, NotPlaced> {
    let constraints = &binding.placement.spread;
    let by = |by: SpreadBy| constraints.iter().rev().find(|spread| spread.by == by);
    let all = |most| PermittedClusters { clusters: fitting.iter().collect(), most, regions: None, by_region: false };
    if constraints.is_empty() {
        return Ok(all(None));
    }
    let duplicated = is_duplicated(binding.placement.division.as_ref());
    if let (Some(cluster), None, false) = (by(SpreadBy::Cluster), by(SpreadBy::Region), duplicated) {
        if i64::try_from(fitting.len()).unwrap_or(i64::MAX) < cluster.min {
            let message = "the number of feasible clusters is less than spreadConstraint.MinGroups";
            return Err(NotPlaced::Unsupported(message.to_owned()));
        }
        let most = u32::try_from(cluster.max).unwrap_or(0);
        if most == 0 {
            return Err(NotPlaced::Unsupported("no enough resource when selecting 0 clusters".to_owned()));
        }
        return Ok(all(Some(most)));
    }
    let selected = select_candidates(request, binding, fitting)?;
    let selected: BTreeSet<&str> = selected.iter().map(|one| one.cluster.name.as_str()).collect();
    let by_region = by(SpreadBy::Region).is_some() && !duplicated && !spread_constraints::keeps_all(binding);
    let chosen = fitting.iter().filter(|fitting| selected.contains(fitting.cluster.name.as_str()));
    Ok(PermittedClusters { clusters: chosen.collect(), by_region, ..all(None) })
}
