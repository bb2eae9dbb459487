//! Packing many pods of several tasks where no order of the tasks packs them: node by node, by prices.
//!
//! Rule (a relaxation of vector packing by multipliers): each task has a price, and every node takes the mix of pods
//! that is worth most; a task of which pods are left over becomes dearer, and all is packed anew. What it packs does
//! fit; that it finds nothing proves nothing (how often it errs is measured: `tests/planted.rs`). Bounded by rounds,
//! mixes of a node, and steps.

use std::cell::Cell;

use super::{
    packing::{FreeNodes, GangRequests, NodeGroup},
    sum_pods,
};

/// Most tasks that are mixed.
const MOST_TASKS: usize = 4;
/// Packings that are tried.
const MOST_ROUNDS: u64 = 32;
/// Most mixes of pods on one node.
const MOST_MIXES: usize = 256;
/// Mixes that are valued in one step.
const A_STEP: usize = 8;
/// Steps of whatever is valued.
const A_PICK: usize = 4;
/// The price of all that is free of a resource.
const PRICE_OF_ALL: i128 = 1 << 40;
/// Prices are between these, so that they can be compared and summed.
const LEAST_PRICE: u64 = 1 << 16;
const HIGHEST_PRICE: u64 = 1 << 44;

/// So many pods of each task on each of so many nodes of a group.
#[derive(Debug, Clone)]
pub(super) struct NodeMix {
    pub group: usize,
    pub nodes: u32,
    pub mix: Vec<u32>,
}

/// Where pods find a place, and those that find none.
#[derive(Debug, Clone)]
pub(super) struct Packing {
    pub picks: Vec<NodeMix>,
    pub left: Vec<u32>,
}

impl Packing {
    pub(super) fn places_all_pods(&self) -> bool {
        sum_pods(&self.left) == 0
    }
}

/// A group of equal nodes, and what one of them may take: pods of each task, as much as fits.
struct GroupMixes {
    group: usize,
    nodes: u32,
    mixes: Vec<Vec<u32>>,
}

/// Where these pods find a place, all or the most that is found; `None` if it was not looked for. Single pods: of
/// partitions it knows nothing.
pub(super) fn pack_by_price(
    requests: &GangRequests<'_>,
    free_nodes: &FreeNodes,
    pods: &[u32],
    steps: &Cell<u32>,
) -> Option<Packing> {
    let mut tasks: Vec<usize> = (0..requests.count_tasks()).filter(|task| pods[*task] > 0).collect();
    // Where a node takes too many mixes to look at, it is those with most of what fits fewest.
    tasks.sort_by_cached_key(|task| free_nodes.max_pods(requests, *task));
    // Which pods NUMA nodes take together no sum says.
    if free_nodes.may_refuse_for_numa(requests) || !(2..=MOST_TASKS).contains(&tasks.len()) || steps.get() == 0 {
        return None;
    }
    let groups = list_mixes(requests, free_nodes, pods, &tasks);
    spend_steps(steps, groups.iter().map(|group| group.mixes.len()).sum())?;
    let mut prices = compute_first_prices(requests, free_nodes, pods);
    let mut best: Option<Packing> = None;
    for round in 1..=MOST_ROUNDS {
        let Some(packing) = pack_most_valuable_mixes(&groups, pods, &prices, steps) else { return best };
        if packing.places_all_pods() {
            return Some(packing);
        }
        let left = packing.left.clone();
        if best.as_ref().is_none_or(|best| sum_pods(&left) < sum_pods(&best.left)) {
            best = Some(packing);
        }
        for ((price, left), pods) in prices.iter_mut().zip(&left).zip(pods).filter(|((_, left), _)| **left > 0) {
            // Less from round to round, so that it settles.
            let more = *price / u64::from(*pods) * u64::from(*left) * 4;
            *price = (*price + more.clamp(*price / 16, *price) / round.isqrt()).min(HIGHEST_PRICE);
        }
    }
    best
}

/// `None` if they are used up.
fn spend_steps(steps: &Cell<u32>, mixes: usize) -> Option<()> {
    let used = u32::try_from(mixes / A_STEP + A_PICK).unwrap_or(u32::MAX);
    let left = steps.get().checked_sub(used);
    steps.set(left.unwrap_or(0));
    left.map(|_| ())
}

/// Those that fit fewer tasks first, for others may have more to take from them.
fn list_mixes(requests: &GangRequests<'_>, free_nodes: &FreeNodes, pods: &[u32], tasks: &[usize]) -> Vec<GroupMixes> {
    let mut groups: Vec<(usize, GroupMixes)> = Vec::new();
    for (group, (class, nodes)) in free_nodes.classes_and_sizes().enumerate() {
        let mut mixes = Vec::new();
        let open: Vec<usize> =
            tasks.iter().copied().filter(|task| free_nodes.class_admits(requests, class as u32, *task)).collect();
        let mut free = free_nodes.free_of(requests, group).to_vec();
        list_maximal_mixes(requests, pods, &open, &open, &mut free, &mut vec![0; requests.count_tasks()], &mut mixes);
        let fits = open.iter().filter(|task| mixes.iter().any(|mix| mix[**task] > 0)).count();
        if fits > 0 && nodes > 0 {
            groups.push((fits, GroupMixes { group, nodes: u32::try_from(nodes).unwrap_or(u32::MAX), mixes }));
        }
    }
    groups.sort_by_key(|(fits, _)| *fits);
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Every mix of these tasks that leaves no capacity for more of any.
fn list_maximal_mixes(
    requests: &GangRequests<'_>,
    pods: &[u32],
    open: &[usize],
    tasks: &[usize],
    free: &mut Vec<i64>,
    so_far: &mut Vec<u32>,
    all: &mut Vec<Vec<u32>>,
) {
    let Some((task, rest)) = tasks.split_first() else {
        let more = |task: usize| {
            let fits = free.iter().zip(requests.request_row(task)).all(|(free, asked)| asked <= free);
            fits && so_far[task] < pods[task]
        };
        if sum_pods(so_far) > 0 && !open.iter().any(|task| more(*task)) {
            all.push(so_far.clone());
        }
        return;
    };
    let asked = requests.request_row(*task);
    let fits = free.iter().zip(asked).filter(|(_, asked)| **asked > 0).map(|(free, asked)| free / asked).min();
    let most = fits.map_or(u32::MAX, |fits| u32::try_from(fits).unwrap_or(u32::MAX)).min(pods[*task]);
    let least = if rest.is_empty() { most } else { 0 };
    for count in (least..=most).rev() {
        if all.len() >= MOST_MIXES {
            return;
        }
        change_free(free, asked, -i64::from(count));
        so_far[*task] = count;
        list_maximal_mixes(requests, pods, open, rest, free, so_far, all);
        change_free(free, asked, i64::from(count));
    }
    so_far[*task] = 0;
}

fn change_free(free: &mut [i64], asked: &[i64], times: i64) {
    free.iter_mut().zip(asked).for_each(|(free, asked)| *free = free.saturating_add(asked.saturating_mul(times)));
}

/// A pod's price at first: its part of all that is free.
fn compute_first_prices(requests: &GangRequests<'_>, free_nodes: &FreeNodes, pods: &[u32]) -> Vec<u64> {
    let mut free = vec![0_i128; requests.resources().len()];
    for (group, (_, nodes)) in free_nodes.classes_and_sizes().enumerate() {
        for (sum, amount) in free.iter_mut().zip(free_nodes.free_of(requests, group)) {
            *sum = sum.saturating_add(i128::from(*amount).saturating_mul(nodes as i128));
        }
    }
    let price = |task: usize| {
        let parts = requests.request_row(task).iter().zip(&free).filter(|(_, free)| **free > 0);
        let sum: i128 = parts.map(|(asked, free)| i128::from(*asked) * PRICE_OF_ALL / free).sum();
        u64::try_from(sum).unwrap_or(HIGHEST_PRICE).clamp(LEAST_PRICE, HIGHEST_PRICE)
    };
    (0..pods.len()).map(price).collect()
}

/// Every node's most valuable mix of what is left, and what is left after all; `None` if the steps are used up.
fn pack_most_valuable_mixes(groups: &[GroupMixes], pods: &[u32], prices: &[u64], steps: &Cell<u32>) -> Option<Packing> {
    let (mut picks, mut left) = (Vec::new(), pods.to_vec());
    for group in groups {
        let mut nodes = group.nodes;
        while nodes > 0 && sum_pods(&left) > 0 {
            spend_steps(steps, group.mixes.len())?;
            // What is nearly placed is worth less than what is not.
            let each = |task: usize| prices[task] / u64::from(pods[task].max(1)) * u64::from(pods[task] + left[task]);
            let each: Vec<u64> = (0..pods.len()).map(each).collect();
            let worth = |mix: &&Vec<u32>| -> u64 {
                let parts = mix.iter().zip(&left).zip(&each);
                parts
                    .map(|((mix, left), each)| u64::from(*mix.min(left)).saturating_mul(*each))
                    .fold(0, u64::saturating_add)
            };
            let Some(best) = group.mixes.iter().rev().max_by_key(worth) else { break };
            let mix: Vec<u32> = best.iter().zip(&left).map(|(mix, left)| *mix.min(left)).collect();
            let most = mix.iter().zip(&left).filter(|(mix, _)| **mix > 0).map(|(mix, left)| left / mix).min();
            let Some(most) = most else { break };
            let count = most.min(nodes.div_ceil(4)).max(1);
            left.iter_mut().zip(&mix).for_each(|(left, mix)| *left -= mix * count);
            nodes -= count;
            picks.push(NodeMix { group: group.group, nodes: count, mix });
        }
    }
    Some(Packing { picks, left })
}

impl FreeNodes {
    /// Of the clusters that were joined, whose a group's nodes are.
    pub(super) fn site_of(&self, group: usize) -> usize {
        self.groups[group].site as usize
    }

    /// One of the clusters that were joined.
    pub(super) fn only_site(&self, site: usize) -> Self {
        let width = self.free.len() / self.groups.len().max(1);
        let mut own = Self { groups: Vec::new(), free: Vec::new(), ..self.clone() };
        for (group, free) in self.groups.iter().zip(self.free.chunks(width.max(1))) {
            if group.site as usize == site {
                own.groups.push(NodeGroup { site: 0, ..*group });
                own.free.extend_from_slice(free);
            }
        }
        own
    }

    pub(super) fn class_of(&self, group: usize) -> u32 {
        self.groups[group].class
    }

    /// Puts a mix of pods on so many nodes of a group, which become a group of their own.
    pub(super) fn put_mix_on_nodes(&mut self, requests: &GangRequests<'_>, group: usize, nodes: u32, mix: &[u32]) {
        let NodeGroup { class, site, .. } = self.groups[group];
        self.groups[group].nodes -= nodes;
        self.groups.push(NodeGroup { nodes, class, site });
        let width = requests.request_row(0).len();
        let used = |column: usize| {
            let of = |(task, pods): (usize, &u32)| requests.request_row(task)[column].saturating_mul(i64::from(*pods));
            mix.iter().enumerate().map(of).fold(0, i64::saturating_add)
        };
        let left: Vec<i64> = (0..width).map(|column| self.free[group * width + column] - used(column)).collect();
        self.free.extend(left);
    }
}
