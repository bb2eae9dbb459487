//! Where a gang's pods go: which clusters, how many of each task in each, in which domain, and the minimum each must hold.
//!
//! All or nothing: less than the gang's minimum is never placed. Every new pod fits its cluster node by node (`pack`).
//! The sums over clusters are the gang's: replicas (fewer, but never below the minimum, where the full size does not
//! fit), and every minimum (`minimum`). What is placed stays where it is, and a partitioned task as it is: a member's Volcano
//! lets nobody resize it, so that partitions are added only where there is no copy yet. Whole gang first, then its minimum and
//! as many more as fit, then a refusal with numbers (`refusal`).
//!
//! Of all that is possible the least [`Key`] is taken (`objective`): among a few clusters by trying every set of them (`few`),
//! among many by taking the roomiest until one holds the rest (`many`). A policy that divides by weight has that done instead
//! (`weighted`). How close pods must be, and which domains that leaves, is in `reach`.

mod allowed_tiers;
mod assumed;
mod cluster_sets;
mod exact_packing;
mod federation_topology;
mod greedy;
mod minimums;
mod node_scope;
mod objective;
mod packing;
mod partition_domains;
mod priced_packing;
mod refusal;
mod reschedule;
mod scale_down;
mod single_spot;
mod upper_bounds;
mod weighted_division;

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeMap,
};

use allowed_tiers::Reach;
use node_scope::Where;
use objective::Choice;
use packing::{Kit, ORDERS, Room};
use upper_bounds::Bounds;

pub use self::{
    assumed::take_assumed,
    federation_topology::{FederationTopology, Level, Link, LinkTier, LinkedGroups},
    objective::{Distance, Key},
    refusal::{DomainMiss, Lack, Refusal, Shortage, TaskShortage},
    scale_down::scale_down,
};
use crate::{
    gang::{ClusterName, Gang, TaskName},
    inventory::{Capacity, DomainId},
    plan::{Domain, Part, Plan, Share},
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
    /// What is free there for this gang: without what others were promised, and without what the gang itself holds
    /// there already ([`Problem::previous`]).
    pub capacity: &'a Capacity,
}

/// Clusters that may be used together by their regions: one of each, and so many besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regions<'a> {
    /// Each candidate's region, in their order.
    pub of: &'a [u32],
    /// Clusters beside the first of each region.
    pub more: u32,
}

/// One question: where may this gang go now?
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// What to place.
    pub gang: &'a Gang,
    /// Where it may go; the order does not matter.
    pub candidates: Vec<Candidate<'a>>,
    /// How to divide.
    pub strategy: Strategy,
    /// What it holds already. Kept where it can be: placed pods do not move.
    pub previous: Option<&'a Plan>,
    /// The plan that made the copies that are there, where it is not kept (`previous`): nobody may change a copy's template, so
    /// that in a cluster that has one the domain stays.
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
/// [`Refusal`], with what is short, where and by how much.
pub fn split_gang(problem: &Problem<'_>) -> Result<Plan, Refusal> {
    let gang = problem.gang;
    // Of a partition nothing is placed or all.
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas / task.unit() * task.unit()).collect();
    if let Some(copies) =
        problem.copies.filter(|copies| problem.previous.is_none() && reschedule::has_partitions(problem, copies))
    {
        return reschedule::place(problem, copies);
    }
    if total(&whole) == 0 {
        return if problem.previous.is_some() { Ok(Plan::default()) } else { Err(Refusal::NoPods) };
    }
    let search = Search::new(problem);
    if search.sites.is_empty() {
        return Err(Refusal::NoCandidates);
    }
    if problem.strategy == Strategy::Duplicated {
        return duplicated(problem, &search);
    }
    let want = search.missing(&whole);
    let choice = search.choose(&want).ok_or_else(|| refusal::refuse(&search, &want))?;
    Ok(search.plan(&choice))
}

/// How many pods fit a capacity: of the task for a gang of one, of the whole gang else, by the best of several orders.
#[must_use]
pub fn pods_that_fit(gang: &Gang, capacity: &Capacity) -> u64 {
    let kit = Kit::close(gang, &[]);
    let room = kit.room(capacity, Where::Cluster);
    if kit.tasks() == 1 {
        return room.most(&kit, 0);
    }
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    let wanted = total(&whole);
    let mut most = 0;
    for order in ORDERS {
        let order = kit.order(&[&room], order);
        most = most.max(total(&room.clone().fill(&kit, &whole, &order)));
        if most == wanted {
            break;
        }
    }
    most
}

/// Whether a whole gang fits a capacity: by some order, or (a few pods on a few nodes) by trying.
#[must_use]
pub fn fits(gang: &Gang, capacity: &Capacity) -> bool {
    let kit = Kit::new(gang);
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    pods_that_fit(gang, capacity) >= total(&whole)
        || exact_packing::packed(&kit, &kit.room(capacity, Where::Cluster), &whole, &Cell::new(STEPS)).is_some()
}

/// How many pods of each task find a place in a capacity, each task alone.
#[must_use]
pub fn most_of_each_task(gang: &Gang, capacity: &Capacity) -> Vec<u64> {
    let kit = Kit::new(gang);
    let room = kit.room(capacity, Where::Cluster);
    (0..kit.tasks()).map(|task| room.most(&kit, task)).collect()
}

/// False only if so many pods of each task can not be the gang's minimum.
#[must_use]
pub fn might_be_enough(gang: &Gang, most: &[u64]) -> bool {
    let all = gang.tasks.iter().zip(most).map(|(task, most)| u64::from(task.replicas).min(*most));
    needs(gang).iter().zip(most).all(|(need, most)| u64::from(*need) <= *most)
        && all.fold(0, u64::saturating_add) >= minimum_pods(gang)
}

/// Each task's own minimum, where it counts.
fn needs(gang: &Gang) -> Vec<u32> {
    let binds = gang.task_minimums_bind();
    let need = |task: &crate::gang::Task| {
        let least = if binds { task.min_available.min(task.replicas) } else { 0 };
        // A partition is placed whole.
        least.next_multiple_of(task.unit())
    };
    gang.tasks.iter().map(need).collect()
}

/// Pods that must be placed in all.
fn minimum_pods(gang: &Gang) -> u64 {
    u64::from(gang.min_available.min(gang.replicas())).max(total(&needs(gang))).max(1)
}

/// Pods by cluster, then task.
type Pods = Vec<Vec<u32>>;

fn total(pods: &[u32]) -> u64 {
    pods.iter().copied().map(u64::from).sum()
}

/// A candidate while it is looked at.
struct Site<'a> {
    name: &'a ClusterName,
    weight: u64,
    data: i64,
    cost: i64,
    capacity: &'a Capacity,
    /// It has a copy of the job, whose template can not be changed.
    copied: bool,
    /// The domain that the copy is pinned to.
    domain: Option<&'a Domain>,
    /// The domains that its partitions are pinned to.
    parts: Option<&'a BTreeMap<TaskName, Vec<Part>>>,
    reach: Reach,
    room: OnceCell<Room>,
}

impl Site<'_> {
    /// What of the data is missing there, and what it costs.
    const fn price(&self) -> (i64, i64) {
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
struct Search<'a> {
    kit: Kit<'a>,
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
    /// Groups of sites that are close, by level, as far as the gang may be spread; then whether it may be spread farther.
    levels: Vec<Vec<Vec<usize>>>,
    far: bool,
    tie: Tie,
    bounds: Bounds<'a>,
    /// Steps of exact packing that are left.
    steps: Cell<u32>,
}

/// Steps of exact packing in one decision.
const STEPS: u32 = 50_000;

impl<'a> Search<'a> {
    fn new(problem: &Problem<'a>) -> Self {
        let gang = problem.gang;
        let kit = Kit::close(gang, problem.levels);
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
                capacity: candidate.capacity,
                copied: share(candidate.name).is_some(),
                domain: share(candidate.name).and_then(|share| share.domain.as_ref()),
                parts: problem.previous.and_then(|plan| plan.clusters.get(candidate.name)).map(|share| &share.parts),
                reach: Reach::of(gang.topology.as_ref(), candidate.capacity, problem.levels),
                room: OnceCell::new(),
            }
        };
        let sites: Vec<Site<'a>> = order.iter().map(site).collect();
        let kept = problem.previous.map(|plan| kept(problem, plan, &sites)).unwrap_or_default();
        let bounds = Bounds::new(&kit, sites.iter().map(|site| site.capacity));
        let (levels, far) = allowed_tiers::levels(gang.topology.as_ref(), problem.levels, &order);
        let together = gang.one_cluster.is_some() || (levels.is_empty() && !far);
        let limit = if together { 1 } else { problem.most_clusters.map_or(usize::MAX, |limit| limit as usize) };
        let region = |of: &[u32]| order.iter().map(|index| of.get(*index).copied().unwrap_or(u32::MAX)).collect();
        let regions = problem.regions.map(|regions| (region(regions.of), regions.more as usize));
        let (strategy, tie, steps) = (problem.strategy, problem.tie, Cell::new(STEPS));
        Self { kit, sites, kept, copies, strategy, limit, regions, levels, far, tie, bounds, steps }
    }

    fn holds(&self, site: usize) -> bool {
        self.kept.iter().any(|(held, _)| *held == site)
    }

    /// Sites that hold pods already.
    fn held(&self) -> Vec<usize> {
        self.kept.iter().map(|(site, _)| *site).collect()
    }

    /// Whether these sites may be used together, by their number and their regions.
    fn may_use(&self, sites: &[usize]) -> bool {
        let Some((of, more)) = &self.regions else { return sites.len() <= self.limit };
        let mut regions: Vec<u32> = sites.iter().map(|site| of[*site]).collect();
        regions.sort_unstable();
        regions.dedup();
        sites.len() <= self.limit && sites.len() - regions.len() <= *more
    }

    /// Whether one more may be used beside these.
    fn may_open(&self, used: &[usize], site: usize) -> bool {
        match &self.regions {
            None => used.len() < self.limit,
            Some(_) => self.may_use(&used.iter().copied().chain([site]).collect::<Vec<_>>()),
        }
    }

    /// Pods that a site holds already.
    fn kept_at(&self, site: usize) -> u64 {
        self.kept.iter().find(|(held, _)| *held == site).map_or(0, |(_, pods)| total(pods))
    }

    /// Pods that are held in all.
    fn kept_pods(&self) -> u64 {
        self.kept.iter().map(|(_, pods)| total(pods)).sum()
    }

    /// What is wanted of each task beyond what is held.
    fn missing(&self, wanted: &[u32]) -> Vec<u32> {
        let held = |task: usize| self.kept.iter().map(|(_, pods)| pods[task]).fold(0, u32::saturating_add);
        wanted.iter().enumerate().map(|(task, wanted)| wanted.saturating_sub(held(task))).collect()
    }

    /// What a site offers the gang: where its pods are kept in a domain, that domain.
    fn room(&self, site: usize) -> &Room {
        let site = &self.sites[site];
        let place = match site.domain {
            Some(domain) if !domain.nodes.is_empty() => Where::Pinned(&domain.nodes),
            _ => Where::Cluster,
        };
        site.room.get_or_init(|| {
            let room = self.kit.room(site.capacity, place);
            if site.copied { room.without_partitions(&self.kit) } else { room }
        })
    }

    /// The best of what is possible: the whole gang, else its minimum and as much more as fits. A gang that must be close is not
    /// divided by weight, and one that finds no place that way goes where it fits.
    fn choose(&self, want: &[u32]) -> Option<Choice> {
        if total(want) == 0 {
            return Some(Choice::default());
        }
        let need = self.missing(&needs(self.kit.gang));
        // Of partitions that were not granted whole less is placed than was granted, which may be too little.
        if need.iter().zip(want).any(|(need, want)| need > want) || total(want) < self.at_least() {
            return None;
        }
        // A gang that has what it needs stays as it is where nothing more fits.
        let stay = || (self.at_least() == 0 && total(&need) == 0).then(Choice::default);
        if matches!(self.strategy, Strategy::StaticWeight | Strategy::DynamicWeight) && self.limit > 1 && self.far {
            let whole = self.by_weight(want).or_else(|| self.one(want)).or_else(|| self.several(want));
            let elastic = || {
                let (weighed, most) = (self.elastic_by_weight(want, &need), self.elastic(want, &need));
                let more = |most: &Choice| weighed.as_ref().is_none_or(|weighed| weighed.placed() < most.placed());
                most.filter(more).or(weighed)
            };
            return whole.or_else(elastic).or_else(stay);
        }
        self.one(want).or_else(|| self.several(want)).or_else(|| self.elastic(want, &need)).or_else(stay)
    }

    /// Pods that must be added in all.
    fn at_least(&self) -> u64 {
        minimum_pods(self.kit.gang).saturating_sub(self.kept_pods())
    }

    /// Names of two sites in the order in which they win.
    fn rank(&self, a: usize, b: usize) -> std::cmp::Ordering {
        self.tie.order(&a, &b)
    }

    /// The plan that a choice makes, with what stays.
    fn plan(&self, choice: &Choice) -> Plan {
        let mut placed: BTreeMap<usize, Vec<u32>> = self.kept.iter().cloned().collect();
        for (spot, pods) in choice.spots.iter().zip(&choice.pods) {
            let all = placed.entry(spot.site).or_insert_with(|| vec![0; pods.len()]);
            all.iter_mut().zip(pods).for_each(|(all, more)| *all += more);
        }
        let names: Vec<&ClusterName> = placed.keys().map(|site| self.sites[*site].name).collect();
        let sites: Vec<usize> = placed.keys().copied().collect();
        let pods: Pods = placed.into_values().collect();
        let mut plan = minimums::plan(self.kit.gang, &names, &pods, self.copies, self.tie);
        for site in sites {
            let chosen = choice.spots.iter().zip(&choice.pods).find(|(spot, _)| spot.site == site);
            let known = &self.sites[site];
            let mut parts = chosen.map(|(spot, pods)| self.parts(*spot, pods)).unwrap_or_default();
            if let Some(before) = known.parts {
                parts.extend(self.kept_parts(site, before));
            }
            if let Some(share) = plan.clusters.get_mut(known.name) {
                share.domain = known.domain.cloned().or_else(|| self.domain(*chosen?.0));
                share.parts = parts;
            }
        }
        plan
    }

    /// A spot's domain as the plan says it: pods that must be there are pinned, others are led there.
    fn domain(&self, spot: Spot) -> Option<Domain> {
        let capacity = self.sites[spot.site].capacity;
        let domain = capacity.domains.get(spot.domain?)?;
        let hard = self.kit.gang.topology.as_ref().is_some_and(|topology| topology.hard);
        let nodes = capacity.pin(spot.domain?);
        let (nodes, preferred) = if hard { (nodes, Vec::new()) } else { (Vec::new(), nodes) };
        Some(Domain { name: domain.name.to_string(), tier: domain.tier, nodes, preferred })
    }
}

/// Pods that stay: what the gang holds, without what it does not want any more. Partitions stay whatever it wants.
fn kept(problem: &Problem<'_>, previous: &Plan, sites: &[Site<'_>]) -> Vec<(usize, Vec<u32>)> {
    let gang = problem.gang;
    let held = |(at, site): (usize, &Site<'_>)| Some((at, share_pods(gang, Some(previous.clusters.get(site.name)?))));
    let (held, mut pods): (Vec<usize>, Pods) = sites.iter().enumerate().filter_map(held).unzip();
    if problem.strategy != Strategy::Duplicated {
        let wanted = gang.tasks.iter().map(|task| if task.partition.is_some() { u32::MAX } else { task.replicas });
        let wanted: Vec<u32> = wanted.collect();
        let names: Vec<&ClusterName> = held.iter().map(|site| sites[*site].name).collect();
        scale_down(problem.strategy, problem.tie, &names, &wanted, &mut pods);
    }
    held.into_iter().zip(pods).filter(|(_, pods)| total(pods) > 0).collect()
}

fn share_pods(gang: &Gang, share: Option<&Share>) -> Vec<u32> {
    let replicas =
        |task: &crate::gang::Task| share.and_then(|share| share.tasks.get(&task.name)).map_or(0, |t| t.replicas);
    gang.tasks.iter().map(replicas).collect()
}

/// The whole gang in every cluster (what it already holds somewhere stays), each as if it were the only one.
fn duplicated(problem: &Problem<'_>, search: &Search<'_>) -> Result<Plan, Refusal> {
    let mut plan = Plan::default();
    for site in &search.sites {
        let candidates = problem.candidates.iter().find(|candidate| candidate.name == site.name).cloned();
        let previous = problem.previous.and_then(|plan| plan.clusters.get_key_value(site.name));
        let own = previous.map(|(name, share)| Plan { clusters: [(name.clone(), share.clone())].into() });
        let here = Problem {
            candidates: candidates.into_iter().collect(),
            strategy: Strategy::Aggregated,
            previous: own.as_ref(),
            most_clusters: Some(1),
            ..problem.clone()
        };
        plan.clusters.extend(split_gang(&here).map_err(Refusal::everywhere)?.clusters);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
