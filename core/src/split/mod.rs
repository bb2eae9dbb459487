//! Where a gang's pods go: which clusters, how many of each task in each, and the minimum each must hold.
//!
//! All or nothing: less than the gang's minimum is never placed. Every new pod fits its cluster node by node (`pack`).
//! The sums over clusters are the gang's: replicas (fewer, but never below the minimum, where the full size does not
//! fit), and every minimum (`minimum`). What is placed stays where it is. Whole gang first, then its minimum and as many
//! more as fit, then a refusal with numbers (`refusal`).

mod minimum;
mod pack;
mod refusal;
mod spread;

use std::cmp::Reverse;

use pack::{Kit, ORDERS, Room};
use spread::{Pods, Search, add, total};

pub use self::refusal::{Lack, Refusal, Shortage};
use crate::{
    gang::{ClusterName, Gang},
    inventory::Capacity,
    plan::{Plan, Share},
    webster::{Tie, divide},
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
    /// For [`Strategy::StaticWeight`]; zero keeps the cluster out of it.
    pub weight: u64,
    /// What is free there for this gang: without what others were promised, and without what the gang itself holds
    /// there already ([`Problem::previous`]).
    pub capacity: &'a Capacity,
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
    /// At most so many clusters, where the policy says so.
    pub most_clusters: Option<u32>,
    /// Which of two equal clusters wins.
    pub tie: Tie,
}

/// Where the gang goes, or why nowhere.
///
/// # Errors
/// [`Refusal`], with what is short, where and by how much.
pub fn solve(problem: &Problem<'_>) -> Result<Plan, Refusal> {
    let gang = problem.gang;
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    if total(&whole) == 0 {
        return if problem.previous.is_some() { Ok(Plan::default()) } else { Err(Refusal::NoPods) };
    }
    let search = search(problem);
    if search.names.is_empty() {
        return Err(Refusal::NoCandidates);
    }
    if problem.strategy == Strategy::Duplicated {
        return duplicated(&search);
    }
    let want = missing(&whole, &search.kept);
    let mut rooms = search.rooms.clone();
    let pods = match search.all(&want, &mut rooms) {
        Some(pods) => pods,
        None => elastic(&search, &want).ok_or_else(|| refusal::refuse(&search, &want))?,
    };
    let mut placed = search.kept.clone();
    add(&mut placed, &pods);
    Ok(minimum::plan(gang, &search.names, &placed, search.tie))
}

/// Pods of a gang's share taken out of a capacity: what was promised but is not seen bound yet.
#[must_use]
pub fn without(capacity: &Capacity, gang: &Gang, pods: &[u32]) -> Capacity {
    pack::without(capacity, gang, pods)
}

/// How many pods fit a capacity: of the task for a gang of one, of the whole gang else.
#[must_use]
pub fn pods_that_fit(gang: &Gang, capacity: &Capacity) -> u64 {
    let kit = Kit::new(gang);
    let mut room = kit.room(capacity);
    if kit.tasks() == 1 {
        return room.most(&kit, 0);
    }
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    let order = kit.order(std::slice::from_ref(&room), ORDERS[0]);
    total(&room.fill(&kit, &whole, &order))
}

/// Each task's own minimum, where it counts.
fn needs(gang: &Gang) -> Vec<u32> {
    let binds = gang.task_minimums_bind();
    let need = |task: &crate::gang::Task| {
        let least = if binds { task.min_available.min(task.replicas) } else { 0 };
        // A partition is placed whole.
        least.next_multiple_of(task.partition.map_or(1, |partition| partition.size.max(1)))
    };
    gang.tasks.iter().map(need).collect()
}

/// Pods that must be placed in all.
fn minimum_pods(gang: &Gang) -> u64 {
    u64::from(gang.min_available.min(gang.replicas())).max(total(&needs(gang))).max(1)
}

fn missing(wanted: &[u32], have: &Pods) -> Vec<u32> {
    let held = |task: usize| have.iter().map(|site| site[task]).fold(0, u32::saturating_add);
    wanted.iter().enumerate().map(|(task, wanted)| wanted.saturating_sub(held(task))).collect()
}

/// The problem with its clusters by name, so that their order can not matter.
fn search<'a>(problem: &Problem<'a>) -> Search<'a> {
    let gang = problem.gang;
    let kit = Kit::new(gang);
    let mut candidates: Vec<&Candidate<'a>> = problem.candidates.iter().collect();
    candidates.sort_by(|a, b| a.name.cmp(b.name));
    candidates.dedup_by(|a, b| a.name == b.name);
    let rooms: Vec<Room> = candidates.iter().map(|candidate| kit.room(candidate.capacity)).collect();
    let held = |candidate: &&Candidate<'_>| {
        let share = problem.previous.and_then(|plan| plan.clusters.get(candidate.name));
        share_pods(gang, share)
    };
    let mut kept: Pods = candidates.iter().map(held).collect();
    let together = gang.one_cluster.is_some() || gang.topology.as_ref().is_some_and(|topology| topology.hard);
    let limit = if together { Some(1) } else { problem.most_clusters };
    let mut search = Search {
        kit,
        names: candidates.iter().map(|candidate| candidate.name).collect(),
        weights: candidates.iter().map(|candidate| candidate.weight).collect(),
        rooms,
        kept: Vec::new(),
        strategy: problem.strategy,
        limit: limit.map_or(usize::MAX, |limit| limit as usize),
        tie: problem.tie,
    };
    if problem.strategy != Strategy::Duplicated {
        shrink(&search, &mut kept);
    }
    search.kept = kept;
    search
}

fn share_pods(gang: &Gang, share: Option<&Share>) -> Vec<u32> {
    let replicas =
        |task: &crate::gang::Task| share.and_then(|share| share.tasks.get(&task.name)).map_or(0, |t| t.replicas);
    gang.tasks.iter().map(replicas).collect()
}

/// Takes away pods that the gang does not want any more.
fn shrink(search: &Search<'_>, kept: &mut Pods) {
    let wanted: Vec<u32> = search.kit.gang.tasks.iter().map(|task| task.replicas).collect();
    cut(search.strategy, search.tie, &search.names, &wanted, kept);
}

/// Cuts a placed gang down to `wanted` pods of each task: from the smallest parts, or by weight from all. `placed` is by
/// site (in the order of `names`, which is the alphabet's), then task. This is what [`solve`] keeps of a gang that asks
/// for less than it holds, so that others can tell beforehand where the pods will go.
pub fn cut(strategy: Strategy, tie: Tie, names: &[&ClusterName], wanted: &[u32], placed: &mut [Vec<u32>]) {
    for (task, wanted) in wanted.iter().enumerate() {
        let held: u64 = placed.iter().map(|site| u64::from(site[task])).sum();
        let mut over = u32::try_from(held.saturating_sub(u64::from(*wanted))).unwrap_or(u32::MAX);
        if over == 0 {
            continue;
        }
        if strategy == Strategy::Aggregated {
            let mut sites: Vec<usize> = (0..placed.len()).filter(|site| placed[*site][task] > 0).collect();
            sites.sort_by(|a, b| (total(&placed[*a]), Reverse(*a)).cmp(&(total(&placed[*b]), Reverse(*b))));
            for site in sites {
                let less = over.min(placed[site][task]);
                placed[site][task] -= less;
                over -= less;
            }
        } else {
            let claims: Vec<(u64, &ClusterName)> =
                placed.iter().zip(names).map(|(site, name)| (u64::from(site[task]), *name)).collect();
            for (site, seats) in divide(u64::from(*wanted), &claims, tie).into_iter().enumerate() {
                placed[site][task] = u32::try_from(seats).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The whole gang does not fit: its minimum, and then as many more as do.
fn elastic(search: &Search<'_>, want: &[u32]) -> Option<Pods> {
    let gang = search.kit.gang;
    let need = missing(&needs(gang), &search.kept);
    // All of it was tried; in one cluster it is tried differently below.
    if search.limit > 1 && need == want {
        return None;
    }
    let held: u64 = search.kept.iter().map(|pods| total(pods)).sum();
    let enough = |pods: &Pods| held + pods.iter().map(|pods| total(pods)).sum::<u64>() >= minimum_pods(gang);
    if search.limit == 1 {
        return one_part(search, want, &need).filter(enough);
    }
    for order in ORDERS {
        let mut rooms = search.rooms.clone();
        let mut pods = search.all(&need, &mut rooms)?;
        search.grow(&missing(want, &pods), &mut pods, &mut rooms, order);
        if enough(&pods) {
            return Some(pods);
        }
    }
    None
}

/// The one cluster that takes most beyond the minimum; the tightest of those.
fn one_part(search: &Search<'_>, want: &[u32], need: &[u32]) -> Option<Pods> {
    let mut best: Option<(u64, usize, Vec<u32>)> = None;
    for site in search.usable() {
        for order in ORDERS {
            let order = search.kit.order(&search.rooms[site..=site], order);
            let mut room = search.rooms[site].clone();
            let mut pods = room.fill(&search.kit, need, &order);
            if pods != need {
                continue;
            }
            let rest: Vec<u32> = want.iter().zip(&pods).map(|(want, pods)| want.saturating_sub(*pods)).collect();
            for (pods, more) in pods.iter_mut().zip(room.fill(&search.kit, &rest, &order)) {
                *pods += more;
            }
            let better = best
                .as_ref()
                .is_none_or(|(most, best, _)| (total(&pods), search.holds(site)) > (*most, search.holds(*best)));
            if better {
                best = Some((total(&pods), site, pods));
            }
        }
    }
    let (_, site, pods) = best?;
    let mut placed = vec![vec![0; want.len()]; search.names.len()];
    placed[site] = pods;
    Some(placed)
}

/// The whole gang in every cluster (what it already holds somewhere stays), each as [`elastic`] as it must be.
fn duplicated(search: &Search<'_>) -> Result<Plan, Refusal> {
    let gang = search.kit.gang;
    let mut plan = Plan::default();
    for site in 0..search.names.len() {
        let kept: Vec<u32> =
            search.kept[site].iter().zip(&gang.tasks).map(|(kept, task)| (*kept).min(task.replicas)).collect();
        let here = Search {
            kit: Kit::new(gang),
            names: vec![search.names[site]],
            weights: vec![1],
            rooms: vec![search.rooms[site].clone()],
            kept: vec![kept],
            strategy: Strategy::Aggregated,
            limit: 1,
            tie: search.tie,
        };
        let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
        let want = missing(&whole, &here.kept);
        let mut placed = match here.all(&want, &mut here.rooms.clone()) {
            Some(pods) => pods,
            None => elastic(&here, &want).ok_or_else(|| refusal::refuse(&here, &want).everywhere())?,
        };
        add(&mut placed, &here.kept);
        plan.clusters.extend(minimum::plan(gang, &here.names, &placed, here.tie).clusters);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
