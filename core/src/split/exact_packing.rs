//! Packing a few pods of several tasks for certain: by backtracking, where no order of the tasks packs them.
//!
//! Rule: pods one by one, those of a task onto nodes in their order (equal pods need no other), nodes that are alike
//! tried once; a partition stays in its cluster, or in its block (`partition_domains`). Bounded by the numbers of pods
//! and nodes and by steps, so that it answers soon; beyond them "no" is only what first fit says.

use std::cell::Cell;

use super::packing::{Classes, FreeNodes, GangRequests};

/// Most pods that are tried.
const MOST_PODS: u32 = 24;
/// Most nodes that are tried.
const MOST_NODES: usize = 48;
/// What a step counts where each try has to look at NUMA nodes.
const STEPS_WITH_NUMA: u32 = 8;
struct FreeNode {
    site: u32,
    class: u32,
    free: Vec<i64>,
}

struct Trial<'a> {
    requests: &'a GangRequests<'a>,
    free_nodes: &'a FreeNodes,
    nodes: Vec<FreeNode>,
    /// Tasks of the pods, in the order in which they are placed.
    pods: Vec<usize>,
    chosen: Vec<usize>,
    steps: &'a Cell<u32>,
}

/// All of `pods` over joined clusters: by cluster, then task. `None` if they do not fit, or too many would have to be
/// tried.
pub(super) fn pack_clusters(
    requests: &GangRequests<'_>,
    free_nodes: &FreeNodes,
    pods: &[u32],
    sites: usize,
    steps: &Cell<u32>,
) -> Option<Vec<Vec<u32>>> {
    let trial = search_packing(requests, free_nodes, pods, steps)?;
    let mut placed = vec![vec![0; requests.count_tasks()]; sites];
    for (task, node) in trial.pods.iter().zip(&trial.chosen) {
        placed[trial.nodes[*node].site as usize][*task] += 1;
    }
    Some(placed)
}

/// The free nodes of one cluster with all of `pods` on them, and how many of each task are on nodes of each class.
pub(super) fn pack_pods(
    requests: &GangRequests<'_>,
    free_nodes: &FreeNodes,
    pods: &[u32],
    steps: &Cell<u32>,
) -> Option<(FreeNodes, Classes)> {
    let trial = search_packing(requests, free_nodes, pods, steps)?;
    let mut classes = Classes::new();
    for (task, node) in trial.pods.iter().zip(&trial.chosen) {
        *classes.entry((*task, trial.nodes[*node].class)).or_default() += 1;
    }
    Some((free_nodes.as_single_nodes(trial.nodes.into_iter().map(|node| (node.class, node.free))), classes))
}

fn search_packing<'a>(
    requests: &'a GangRequests<'a>,
    free_nodes: &'a FreeNodes,
    pods: &[u32],
    steps: &'a Cell<u32>,
) -> Option<Trial<'a>> {
    if pods.iter().fold(0, |sum: u32, pods| sum.saturating_add(*pods)) > MOST_PODS {
        return None;
    }
    let nodes = free_nodes.single_nodes(requests, MOST_NODES)?;
    let nodes = nodes.into_iter().map(|(site, class, free)| FreeNode { site, class, free }).collect();
    // The pods that fewest nodes take come first: they fail soonest.
    let mut tasks: Vec<usize> = (0..requests.count_tasks()).collect();
    tasks.sort_by_key(|task| free_nodes.max_pods(requests, *task));
    let pods = tasks.into_iter().flat_map(|task| std::iter::repeat_n(task, pods[task] as usize)).collect();
    let mut trial = Trial { requests, free_nodes, nodes, pods, chosen: Vec::new(), steps };
    trial.place_next(0).then_some(trial)
}

impl Trial<'_> {
    /// Whether the pods from `pod` on find a place.
    fn place_next(&mut self, pod: usize) -> bool {
        let Some(task) = self.pods.get(pod).copied() else { return true };
        let cost = if self.requests.has_numa_claims() { STEPS_WITH_NUMA } else { 1 };
        self.steps.set(self.steps.get().saturating_sub(cost));
        let unit = self.requests.partition_size_of(task) as usize;
        let first = self.pods.iter().position(|other| *other == task).unwrap_or(pod);
        let begins = (pod - first).is_multiple_of(unit);
        // Equal pods are placed in the order of the nodes; partitions in the order of their first pods.
        let from = match (begins, unit) {
            (false, _) => self.chosen[pod - 1],
            (true, unit) if pod > first => self.chosen[pod - unit],
            _ => 0,
        };
        let home = |node: &FreeNode| (node.site, self.free_nodes.block_of(self.requests, node.class, task));
        let first_at = (!begins).then(|| home(&self.nodes[self.chosen[pod - 1]]));
        for node in from..self.nodes.len() {
            if self.steps.get() == 0 {
                return false;
            }
            if first_at.is_some_and(|first| home(&self.nodes[node]) != first) || !self.fits_node(node, task) {
                continue;
            }
            if (from..node).any(|other| self.are_equal_nodes(other, node)) {
                continue;
            }
            let before = self.requests.has_numa_claims().then(|| self.nodes[node].free.clone());
            self.change_free(node, task, -1);
            self.chosen.push(node);
            if self.place_next(pod + 1) {
                return true;
            }
            self.chosen.pop();
            match before {
                Some(before) => self.nodes[node].free = before,
                None => self.change_free(node, task, 1),
            }
        }
        false
    }

    fn fits_node(&self, node: usize, task: usize) -> bool {
        let node = &self.nodes[node];
        self.free_nodes.class_admits(self.requests, node.class, task)
            && self.requests.request_row(task).iter().zip(&node.free).all(|(asked, free)| asked <= free)
            && self.requests.count_aligned_pods(task, &node.free, 1) > 0
    }

    fn are_equal_nodes(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.nodes[a], &self.nodes[b]);
        a.site == b.site && a.class == b.class && a.free == b.free
    }

    fn change_free(&mut self, node: usize, task: usize, sign: i64) {
        for (free, asked) in self.nodes[node].free.iter_mut().zip(self.requests.request_row(task)) {
            *free += sign * asked;
        }
        if sign < 0 {
            self.requests.take_numa_cpus(task, 1, &mut self.nodes[node].free);
        }
    }
}
