//! Where a gang's pods go: which clusters, how many pods of each task in each, in which domain, and each cluster's
//! minimum.
//!
//! The rule:
//! - All or nothing. Less than the gang's minimum is never placed. The whole gang is tried first, then its minimum and
//!   as many more pods as fit. Otherwise the answer is a refusal with numbers.
//! - Every new pod fits its cluster node by node. The shares of all clusters sum up to the gang's replicas and
//!   minimums.
//! - Placed pods do not move. A member's Volcano resizes no partitioned task, so partitions are added only where the
//!   cluster has no copy of the job.
//! - Of all placements that are possible the least [`ObjectiveKey`] wins. A policy that divides by weight is followed
//!   instead.
//!
//! | module | decides |
//! |---|---|
//! | `objective` | which of two placements is better |
//! | `single_spot` | one cluster or domain that takes the gang |
//! | `cluster_sets` | the best set of a few clusters, by trying every set |
//! | `greedy` | a set of many clusters: the emptiest first, the tightest last |
//! | `task_topology` | which cluster gets which pods of tasks that want to be together or apart |
//! | `weighted_division` | the shares by static or dynamic weight |
//! | `minimums` | each cluster's part of every minimum |
//! | `given_counts` | which tasks are where, once somebody else has counted pods out to clusters |
//! | `scale_down`, `reschedule` | what of a placed gang stays when it asks for less, or starts afresh |
//! | `packing` | whether pods fit node by node; `exact_packing` and `priced_packing` try what first-fit misses |
//! | `gang_fit` | how many of a gang's pods fit one capacity, and how many are enough |
//! | `upper_bounds` | from a few sums, which clusters need not be packed |
//! | `allowed_tiers`, `partition_domains` | which domains `networkTopology` of a job or of its partitions leaves |
//! | `broken_link` | whether a link keeps clusters from being as close as a gang asks for |
//! | `federation_topology`, `measured_links` | which clusters are close to each other, by links that are declared and measured |
//! | `node_scope`, `assumed` | which nodes count, and what is left of them beside assumed pods |
//! | `refusal` | why nothing fits, in a sentence |

mod allowed_tiers;
mod assumed;
mod broken_link;
mod cluster_sets;
mod exact_packing;
mod federation_topology;
mod gang_fit;
mod given_counts;
mod greedy;
mod measured_links;
mod minimums;
mod node_miss;
mod node_scope;
mod objective;
mod packing;
mod partition_domains;
mod priced_packing;
mod refusal;
mod reschedule;
mod scale_down;
mod single_spot;
mod task_topology;
mod upper_bounds;
mod weighted_division;

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeMap,
};

use allowed_tiers::AllowedTiers;
pub(crate) use assumed::subtract_assumed_that_fit;
use gang_fit::{minimum_pods, task_minimums};
use node_scope::NodeScope;
use objective::Assignment;
use packing::{FreeNodes, GangRequests};
use upper_bounds::UpperBounds;

pub use self::{
    assumed::subtract_assumed_pods,
    broken_link::BrokenLink,
    federation_topology::{FederationTopology, Level, Link, LinkTier, LinkedGroups},
    gang_fit::{count_pods_that_fit, gang_fits, might_hold_minimum, most_of_each_task},
    given_counts::{CountsRefusal, plan_given_counts},
    measured_links::{MOST_MEASURED_LINKS, MeasuredLink, add_measured_links},
    node_miss::NodeMiss,
    objective::{Distance, ObjectiveKey},
    packing::UnmetPreferences,
    refusal::{DomainMiss, GangRefusal, Lack, Shortage, TaskShortage},
    scale_down::scale_down,
};
use crate::{
    gang::{ClusterName, Gang, TaskName},
    inventory::{Capacity, DomainId},
    plan::{ClusterShare, Part, Plan, PlannedDomain},
    webster::Tie,
};

/// How to divide, as the policy says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// The whole gang in every candidate.
    Duplicated,
    /// As few clusters as possible.
    #[default]
    Aggregated,
    /// By [`Candidate::weight`], as far as it fits.
    StaticWeight,
    /// By what is free.
    DynamicWeight,
}

/// A cluster that passed every filter.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Name.
    pub name: &'a ClusterName,
    /// For [`Strategy::StaticWeight`]; with zero the cluster gets nothing, as in Karmada.
    pub weight: u64,
    /// How much of the gang's data is not there; not below zero.
    pub data: i64,
    /// What using the cluster costs, by its policy's scores. Less is better.
    pub cost: i64,
    /// How much of what the pods would pull is not there, in tenths.
    pub missing_images: u64,
    /// What is free there for this gang: without what is assumed for others, and without what the gang itself holds
    /// there already ([`SplitProblem::previous`]).
    pub capacity: &'a Capacity,
}

/// Which clusters may be used together: one of each region, and so many more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regions<'a> {
    /// Each candidate's region, in their order.
    pub of: &'a [u32],
    /// Clusters beside the first of each region.
    pub more: u32,
}

/// One question: where may this gang go now?
#[derive(Debug, Clone)]
pub struct SplitProblem<'a> {
    /// What to place.
    pub gang: &'a Gang,
    /// Where it may go; the order does not matter.
    pub candidates: Vec<Candidate<'a>>,
    /// How to divide.
    pub strategy: Strategy,
    /// What it holds already. Kept where it can be: placed pods do not move.
    pub previous: Option<&'a Plan>,
    /// The plan that made the copies that are there, where it is not kept (`previous`): nobody may change a copy's
    /// template, so that in a cluster that has one the domain stays.
    pub copies: Option<&'a Plan>,
    /// At most so many clusters, where the policy says so.
    pub most_clusters: Option<u32>,
    /// Of each region at most so many, where the policy says so.
    pub regions: Option<Regions<'a>>,
    /// How close the candidates are to each other, from near to far.
    pub levels: &'a [Level],
    /// Which of two equal clusters wins.
    pub tie: Tie,
}

/// Where the gang goes, or why nowhere.
///
/// # Errors
/// [`GangRefusal`], with what is short, where and by how much.
pub fn split_gang(problem: &SplitProblem<'_>) -> Result<Plan, GangRefusal> {
    let gang = problem.gang;
    // Of a partition nothing is placed or all.
    let whole: Vec<u32> =
        gang.tasks.iter().map(|task| task.replicas / task.partition_size() * task.partition_size()).collect();
    if let Some(copies) =
        problem.copies.filter(|copies| problem.previous.is_none() && reschedule::has_partitioned_copy(problem, copies))
    {
        return reschedule::reschedule_partitioned_gang(problem, copies);
    }
    if sum_pods(&whole) == 0 {
        return if problem.previous.is_some() { Ok(Plan::default()) } else { Err(GangRefusal::NoPods) };
    }
    let search = SplitSearch::new(problem);
    if search.sites.is_empty() {
        return Err(GangRefusal::NoCandidates);
    }
    if problem.strategy == Strategy::Duplicated {
        return place_in_every_cluster(problem, &search);
    }
    let want = search.count_missing_pods(&whole);
    let choice = search.choose_assignment(&want).ok_or_else(|| refusal::explain_refusal(&search, &want))?;
    Ok(search.build_plan(&choice))
}

/// Pods by cluster, then task.
type Pods = Vec<Vec<u32>>;

fn sum_pods(pods: &[u32]) -> u64 {
    pods.iter().copied().map(u64::from).sum()
}

/// A candidate while it is looked at.
struct Site<'a> {
    name: &'a ClusterName,
    weight: u64,
    data: i64,
    cost: i64,
    missing_images: u64,
    capacity: &'a Capacity,
    /// It has a copy of the job, whose template can not be changed.
    copied: bool,
    /// The domain that the copy is pinned to.
    domain: Option<&'a PlannedDomain>,
    /// The domains that its partitions are pinned to.
    parts: Option<&'a BTreeMap<TaskName, Vec<Part>>>,
    reach: AllowedTiers,
    free_nodes: OnceCell<FreeNodes>,
    unmet_preferences: OnceCell<UnmetPreferences>,
}

impl Site<'_> {
    /// What of the data is missing there, and what it costs.
    const fn data_and_cost(&self) -> (i64, i64) {
        (self.data, self.cost)
    }
}

/// Nodes of one cluster among which pods may be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    site: usize,
    /// `None` for all that the cluster offers this gang.
    domain: Option<DomainId>,
}

/// The problem with its clusters by name, so that their order can not matter.
struct SplitSearch<'a> {
    requests: GangRequests<'a>,
    sites: Vec<Site<'a>>,
    /// Pods that stay, of the sites that hold some.
    kept: Vec<(usize, Vec<u32>)>,
    /// The plan that made the copies that are there.
    copies: Option<&'a Plan>,
    strategy: Strategy,
    /// Clusters that may be used in all.
    limit: usize,
    /// Each site's region, and how many sites may be used beside the first of each.
    regions: Option<(Vec<u32>, usize)>,
    /// Groups of sites that are close, by level, as far as the gang may be spread; then whether it may be spread
    /// farther.
    levels: Vec<Vec<Vec<usize>>>,
    far: bool,
    all_levels: &'a [Level],
    tie: Tie,
    bounds: UpperBounds<'a>,
    /// Steps of exact packing that are left.
    steps: Cell<u32>,
    /// Looks at divisions of tasks that want to be together or apart, that are left.
    looks: Cell<u32>,
}

/// Steps of exact packing in one decision.
const PACKING_STEPS: u32 = 50_000;

impl<'a> SplitSearch<'a> {
    fn new(problem: &SplitProblem<'a>) -> Self {
        let gang = problem.gang;
        let requests = GangRequests::with_topology(gang, problem.levels);
        let holds = |name: &ClusterName| problem.previous.is_some_and(|plan| plan.clusters.contains_key(name));
        let weighs = |candidate: &Candidate<'_>| problem.strategy != Strategy::StaticWeight || candidate.weight > 0;
        let mut order: Vec<usize> = (0..problem.candidates.len())
            .filter(|index| weighs(&problem.candidates[*index]) || holds(problem.candidates[*index].name))
            .collect();
        order.sort_by_key(|index| problem.candidates[*index].name);
        order.dedup_by_key(|index| problem.candidates[*index].name);
        let copies = problem.previous.or(problem.copies);
        let share = |name: &ClusterName| copies.and_then(|plan| plan.clusters.get(name));
        let site = |index: &usize| {
            let candidate = &problem.candidates[*index];
            Site {
                name: candidate.name,
                weight: candidate.weight,
                data: candidate.data,
                cost: candidate.cost,
                missing_images: candidate.missing_images,
                capacity: candidate.capacity,
                copied: share(candidate.name).is_some(),
                domain: share(candidate.name).and_then(|share| share.domain.as_ref()),
                parts: problem.previous.and_then(|plan| plan.clusters.get(candidate.name)).map(|share| &share.parts),
                reach: AllowedTiers::from_topology(gang.topology.as_ref(), candidate.capacity, problem.levels),
                free_nodes: OnceCell::new(),
                unmet_preferences: OnceCell::new(),
            }
        };
        let sites: Vec<Site<'a>> = order.iter().map(site).collect();
        let kept = problem.previous.map(|plan| list_pods_that_stay(problem, plan, &sites)).unwrap_or_default();
        let bounds = UpperBounds::new(&requests, sites.iter().map(|site| site.capacity));
        let (levels, far) = allowed_tiers::admitted_levels(gang.topology.as_ref(), problem.levels, &order);
        let together = gang.one_cluster.is_some() || (levels.is_empty() && !far);
        let limit = if together { 1 } else { problem.most_clusters.map_or(usize::MAX, |limit| limit as usize) };
        let region = |of: &[u32]| order.iter().map(|index| of.get(*index).copied().unwrap_or(u32::MAX)).collect();
        let regions = problem.regions.map(|regions| (region(regions.of), regions.more as usize));
        let (strategy, tie, steps) = (problem.strategy, problem.tie, Cell::new(PACKING_STEPS));
        let looks = Cell::new(task_topology::MOST_PAIRS);
        let all_levels = problem.levels;
        Self {
            requests,
            sites,
            kept,
            copies,
            strategy,
            limit,
            regions,
            levels,
            far,
            all_levels,
            tie,
            bounds,
            steps,
            looks,
        }
    }

    fn holds_pods(&self, site: usize) -> bool {
        self.kept.iter().any(|(held, _)| *held == site)
    }

    /// Sites that hold pods already.
    fn sites_in_use(&self) -> Vec<usize> {
        self.kept.iter().map(|(site, _)| *site).collect()
    }

    /// Whether these sites may be used together, by their number and their regions.
    fn may_use_together(&self, sites: &[usize]) -> bool {
        let Some((of, more)) = &self.regions else { return sites.len() <= self.limit };
        let mut regions: Vec<u32> = sites.iter().map(|site| of[*site]).collect();
        regions.sort_unstable();
        regions.dedup();
        sites.len() <= self.limit && sites.len() - regions.len() <= *more
    }

    /// Whether one more may be used beside these.
    fn may_add_site(&self, used: &[usize], site: usize) -> bool {
        match &self.regions {
            None => used.len() < self.limit,
            Some(_) => self.may_use_together(&used.iter().copied().chain([site]).collect::<Vec<_>>()),
        }
    }

    /// Pods that a site holds already.
    fn count_kept_pods_at(&self, site: usize) -> u64 {
        self.kept.iter().find(|(held, _)| *held == site).map_or(0, |(_, pods)| sum_pods(pods))
    }

    /// Pods that are held in all.
    fn kept_pods(&self) -> u64 {
        self.kept.iter().map(|(_, pods)| sum_pods(pods)).sum()
    }

    /// What is wanted of each task beyond what is held.
    fn count_missing_pods(&self, wanted: &[u32]) -> Vec<u32> {
        let held = |task: usize| self.kept.iter().map(|(_, pods)| pods[task]).fold(0, u32::saturating_add);
        wanted.iter().enumerate().map(|(task, wanted)| wanted.saturating_sub(held(task))).collect()
    }

    /// What a site offers the gang: where its pods are kept in a domain, that domain.
    fn free_nodes_of_site(&self, site: usize) -> &FreeNodes {
        let site = &self.sites[site];
        let place = match site.domain {
            Some(domain) if !domain.nodes.is_empty() => NodeScope::Pinned(&domain.nodes),
            _ => NodeScope::Cluster,
        };
        site.free_nodes.get_or_init(|| {
            let free_nodes = self.requests.free_nodes(site.capacity, place);
            if site.copied { free_nodes.without_partitions(&self.requests) } else { free_nodes }
        })
    }

    /// The best of what is possible: the whole gang, else its minimum and as much more as fits. A gang that must be
    /// close is not divided by weight, and one that finds no place that way goes where it fits.
    fn choose_assignment(&self, want: &[u32]) -> Option<Assignment> {
        if sum_pods(want) == 0 {
            return Some(Assignment::default());
        }
        let need = self.count_missing_pods(&task_minimums(self.requests.gang));
        // Of partitions that were not granted whole less is placed than was granted, which may be too little.
        if need.iter().zip(want).any(|(need, want)| need > want) || sum_pods(want) < self.least_pods_to_add() {
            return None;
        }
        // A gang that has what it needs stays as it is where nothing more fits.
        let stay = || (self.least_pods_to_add() == 0 && sum_pods(&need) == 0).then(Assignment::default);
        if matches!(self.strategy, Strategy::StaticWeight | Strategy::DynamicWeight) && self.limit > 1 && self.far {
            let whole = self
                .place_by_weight(want)
                .or_else(|| self.place_in_one_spot(want))
                .or_else(|| self.place_in_several_clusters(want));
            let elastic = || {
                let (weighed, most) = (self.place_elastic_by_weight(want, &need), self.place_elastic(want, &need));
                let more = |most: &Assignment| {
                    weighed.as_ref().is_none_or(|weighed| weighed.placed_pods() < most.placed_pods())
                };
                most.filter(more).or(weighed)
            };
            return whole.or_else(elastic).or_else(stay);
        }
        self.place_in_one_spot(want)
            .or_else(|| self.place_in_several_clusters(want))
            .or_else(|| self.place_elastic(want, &need))
            .or_else(stay)
    }

    /// Pods that must be added in all.
    fn least_pods_to_add(&self) -> u64 {
        minimum_pods(self.requests.gang).saturating_sub(self.kept_pods())
    }

    /// Names of two sites in the order in which they win.
    fn compare_names(&self, a: usize, b: usize) -> std::cmp::Ordering {
        self.tie.compare_in_tie_order(&a, &b)
    }

    /// The plan that a choice makes, with what stays.
    fn build_plan(&self, choice: &Assignment) -> Plan {
        let mut placed: BTreeMap<usize, Vec<u32>> = self.kept.iter().cloned().collect();
        for (spot, pods) in choice.spots.iter().zip(&choice.pods) {
            let all = placed.entry(spot.site).or_insert_with(|| vec![0; pods.len()]);
            all.iter_mut().zip(pods).for_each(|(all, more)| *all += more);
        }
        let names: Vec<&ClusterName> = placed.keys().map(|site| self.sites[*site].name).collect();
        let sites: Vec<usize> = placed.keys().copied().collect();
        let pods: Pods = placed.into_values().collect();
        let mut plan = minimums::divide_minimums(self.requests.gang, &names, &pods, self.copies, self.tie);
        for site in sites {
            let chosen = choice.spots.iter().zip(&choice.pods).find(|(spot, _)| spot.site == site);
            let known = &self.sites[site];
            let mut parts = chosen.map(|(spot, pods)| self.plan_partition_domains(*spot, pods)).unwrap_or_default();
            if let Some(before) = known.parts {
                parts.extend(self.kept_partition_domains(site, before));
            }
            if let Some(share) = plan.clusters.get_mut(known.name) {
                share.domain = known.domain.cloned().or_else(|| self.planned_domain(*chosen?.0));
                share.parts = parts;
            }
        }
        plan
    }

    /// A spot's domain as the plan says it: pods that must be there are pinned, others are led there.
    fn planned_domain(&self, spot: Spot) -> Option<PlannedDomain> {
        let capacity = self.sites[spot.site].capacity;
        let domain = capacity.domains.get(spot.domain?)?;
        let hard = self.requests.gang.topology.as_ref().is_some_and(|topology| topology.hard);
        let nodes = capacity.node_selectors(spot.domain?);
        let (nodes, preferred) = if hard { (nodes, Vec::new()) } else { (Vec::new(), nodes) };
        Some(PlannedDomain { name: domain.name.to_string(), tier: domain.tier, nodes, preferred })
    }
}

/// Pods that stay: what the gang holds, without what it does not want any more. Partitions stay whatever it wants.
fn list_pods_that_stay(problem: &SplitProblem<'_>, previous: &Plan, sites: &[Site<'_>]) -> Vec<(usize, Vec<u32>)> {
    let gang = problem.gang;
    let held =
        |(at, site): (usize, &Site<'_>)| Some((at, pods_of_share(gang, Some(previous.clusters.get(site.name)?))));
    let (held, mut pods): (Vec<usize>, Pods) = sites.iter().enumerate().filter_map(held).unzip();
    if problem.strategy != Strategy::Duplicated {
        let wanted = gang.tasks.iter().map(|task| if task.partition.is_some() { u32::MAX } else { task.replicas });
        let wanted: Vec<u32> = wanted.collect();
        let names: Vec<&ClusterName> = held.iter().map(|site| sites[*site].name).collect();
        scale_down(problem.strategy, problem.tie, &names, &wanted, &mut pods);
    }
    held.into_iter().zip(pods).filter(|(_, pods)| sum_pods(pods) > 0).collect()
}

fn pods_of_share(gang: &Gang, share: Option<&ClusterShare>) -> Vec<u32> {
    let replicas =
        |task: &crate::gang::Task| share.and_then(|share| share.tasks.get(&task.name)).map_or(0, |t| t.replicas);
    gang.tasks.iter().map(replicas).collect()
}

/// The whole gang in every cluster (what it already holds somewhere stays), each as if it were the only one.
fn place_in_every_cluster(problem: &SplitProblem<'_>, search: &SplitSearch<'_>) -> Result<Plan, GangRefusal> {
    let mut plan = Plan::default();
    for site in &search.sites {
        let candidates = problem.candidates.iter().find(|candidate| candidate.name == site.name).cloned();
        let previous = problem.previous.and_then(|plan| plan.clusters.get_key_value(site.name));
        let own = previous.map(|(name, share)| Plan { clusters: [(name.clone(), share.clone())].into() });
        let here = SplitProblem {
            candidates: candidates.into_iter().collect(),
            strategy: Strategy::Aggregated,
            previous: own.as_ref(),
            most_clusters: Some(1),
            ..problem.clone()
        };
        plan.clusters.extend(split_gang(&here).map_err(GangRefusal::mark_every_cluster)?.clusters);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
