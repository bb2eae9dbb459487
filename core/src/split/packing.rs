//! Whether pods fit node by node: vector bin packing over shapes instead of single nodes.
//!
//! A cluster is a list of groups of equal nodes; placing `n` equal pods fills whole groups by division and splits at
//! most one group, so the cost depends on the number of shapes and not of pods or nodes. For one task the count is
//! exact. For several tasks it is first-fit over tasks, tightest nodes first: what it packs does fit; what it can not
//! pack might, in rare cases, fit with a cleverer arrangement. Several orders of the tasks are tried; what they miss,
//! `exact_packing` and `priced_packing` look for. Partitions that must each lie in one domain are in `blocks`.

mod blocks;
mod gang_requests;
mod numa;
mod preferences;

use std::collections::BTreeMap;

pub(super) use self::blocks::Block;
pub use self::preferences::UnmetPreferences;
use super::federation_topology::Level;
use crate::{gang::Gang, inventory::packing_scale, numa::NumaClaim, resources::ResourceName};

/// A gang's requests as numbers: one column for each resource that any task asks for, then one for each task of which a
/// node takes only so many pods, which all nodes have so much of, then those of `numa`.
#[derive(Debug)]
pub(crate) struct GangRequests<'a> {
    pub gang: &'a Gang,
    resources: Vec<ResourceName>,
    /// Row-major: task, resource.
    requests: Vec<i64>,
    /// Some task tells nodes apart by name.
    by_name: bool,
    /// Labels that tasks select on.
    labels: Vec<&'a str>,
    /// The most pods of a task that one node takes, by task.
    pub(super) apart: Vec<(usize, i64)>,
    /// What each task wants of NUMA nodes; empty where none wants anything.
    numa: Vec<Option<&'a NumaClaim>>,
    /// Tasks that every node takes alike: the first of them, and how many they are.
    kinds: Vec<(usize, usize)>,
    /// The place of each task's kind among these.
    kind_of: Vec<usize>,
    /// Levels of clusters, where partitions that must be close are heeded.
    close: Option<&'a [Level]>,
}

/// Free capacity of one cluster while it is being filled.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeNodes {
    pub(super) groups: Vec<NodeGroup>,
    /// Row-major: group, resource.
    pub(super) free: Vec<i64>,
    /// Row-major: class, task: may the task's pods run there?
    pub(super) admits: std::sync::Arc<[bool]>,
    /// The same: the block of its cluster that a partition of the task there must not leave. Empty where there are
    /// none.
    pub(super) blocks: std::sync::Arc<[Block]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct NodeGroup {
    pub nodes: u32,
    pub class: u32,
    /// Place of the cluster among those that were joined.
    pub site: u32,
}

/// Pods by task and class.
pub(super) type Classes = BTreeMap<(usize, u32), u32>;

/// Which tasks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskOrder {
    Scarcest,
    Spec,
    Reverse,
}

/// Tried in turn until one packs everything.
pub(crate) const ORDERS: [TaskOrder; 3] = [TaskOrder::Scarcest, TaskOrder::Spec, TaskOrder::Reverse];

impl FreeNodes {
    /// Each group's class and number of nodes: first the shapes that it was made of, then what was split off
    /// them.
    pub(super) fn classes_and_sizes(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + '_ {
        self.groups.iter().map(|group| (group.class as usize, group.nodes as usize))
    }

    pub(super) fn list_groups(&self) -> impl Iterator<Item = NodeGroup> + '_ {
        self.groups.iter().copied()
    }

    /// What a group's nodes have free.
    pub(super) fn free_of(&self, requests: &GangRequests<'_>, group: usize) -> &[i64] {
        self.free(group, requests.row_width())
    }

    fn free(&self, group: usize, width: usize) -> &[i64] {
        &self.free[group * width..(group + 1) * width]
    }

    pub(super) fn group_admits(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> bool {
        self.admits[self.groups[group].class as usize * requests.count_tasks() + task]
    }

    /// Pods of the task that one node of the group takes.
    pub(super) fn per_node(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> u64 {
        let most = self.per_node_by_amounts(requests, group, task);
        requests.count_aligned_pods(task, self.free(group, requests.row_width()), most)
    }

    /// Whether one takes a pod of the task.
    fn takes_pod(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> bool {
        let free = self.free(group, requests.row_width());
        self.group_admits(requests, group, task)
            && requests.request_row(task).iter().zip(free).all(|(asked, free)| asked <= free)
            && requests.count_aligned_pods(task, free, 1) > 0
    }

    /// The same, wherever the CPUs lie.
    pub(super) fn per_node_by_amounts(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> u64 {
        if !self.group_admits(requests, group, task) {
            return 0;
        }
        let mut most = i64::from(u32::MAX);
        for (free, asked) in self.free(group, requests.row_width()).iter().zip(requests.request_row(task)) {
            // A division takes as long as all the rest.
            if *asked > 0 && asked.checked_mul(most).is_none_or(|all| *free < all) {
                most = most.min(free / asked).max(0);
            }
        }
        most.unsigned_abs()
    }

    /// The most pods of this task alone that fit.
    pub(crate) fn max_pods(&self, requests: &GangRequests<'_>, task: usize) -> u64 {
        if requests.closeness(task).is_some() {
            return self.max_partition_pods_by_block(requests, task).into_values().fold(0, u64::saturating_add);
        }
        (0..self.groups.len()).map(|group| self.pods_in_group(requests, group, task)).fold(0, u64::saturating_add)
    }

    /// Pods of the task that a group takes.
    pub(super) fn pods_in_group(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> u64 {
        self.per_node(requests, group, task).saturating_mul(u64::from(self.groups[group].nodes))
    }

    /// Places up to `pods` of the task in steps of `unit`, on the tightest nodes first; how many fitted.
    pub(crate) fn place_pods(&mut self, requests: &GangRequests<'_>, task: usize, pods: u32, unit: u32) -> u32 {
        self.place_pods_in(requests, task, pods, unit, None, &mut |_, _| {})
    }

    /// [`Self::place_pods`], in one of the clusters that were joined or in all, telling how many pods each group takes.
    pub(super) fn place_pods_in(
        &mut self,
        requests: &GangRequests<'_>,
        task: usize,
        pods: u32,
        unit: u32,
        only: Option<u32>,
        took: &mut dyn FnMut(NodeGroup, u32),
    ) -> u32 {
        let here = |group: &NodeGroup| only.is_none_or(|site| group.site == site);
        match requests.closeness(task) {
            Some(_) => self.place_whole_partitions(requests, task, pods, &here, took),
            None => self.place_pods_among(requests, task, pods, unit, &here, took),
        }
    }

    /// [`Self::place_pods`] on the nodes of some groups.
    pub(super) fn place_pods_among(
        &mut self,
        requests: &GangRequests<'_>,
        task: usize,
        pods: u32,
        unit: u32,
        among: &dyn Fn(&NodeGroup) -> bool,
        took: &mut dyn FnMut(NodeGroup, u32),
    ) -> u32 {
        let mut nodes: Vec<(usize, u64, usize)> = (0..self.groups.len())
            .filter(|group| self.groups[*group].nodes > 0 && among(&self.groups[*group]))
            .filter_map(|group| match self.per_node(requests, group, task) {
                0 => None,
                fits => Some((self.count_other_tasks_fitting(requests, group, task), fits, group)),
            })
            .collect();
        let free_nodes = nodes.iter().fold(0_u64, |sum, (_, fits, group)| {
            sum.saturating_add(fits.saturating_mul(u64::from(self.groups[*group].nodes)))
        });
        let unit = unit.max(1);
        let pods = u32::try_from(free_nodes.min(u64::from(pods))).unwrap_or(pods) / unit * unit;
        nodes.sort_unstable();
        let mut left = u64::from(pods);
        for (_, fits, group) in nodes {
            if left == 0 {
                break;
            }
            let before = left;
            let full = (left / fits).min(u64::from(self.groups[group].nodes));
            self.put_pods_on_nodes(requests, group, task, u32::try_from(full).unwrap_or(u32::MAX), fits);
            left -= full * fits;
            // What remains is less than a node of this group takes, or the group is used up.
            if self.groups[group].nodes > 0 && left > 0 && left < fits {
                self.put_pods_on_nodes(requests, group, task, 1, left);
                left = 0;
            }
            took(self.groups[group], u32::try_from(before - left).unwrap_or(u32::MAX));
        }
        pods
    }

    /// The free nodes of several clusters as one, which remembers whose each node is.
    pub(crate) fn join_clusters<'r>(free_by_cluster: impl Iterator<Item = &'r Self>) -> Self {
        let (mut all, mut admits, mut blocks) = (Self::default(), Vec::new(), Vec::new());
        let mut classes = 0;
        for (site, free_nodes) in (0..).zip(free_by_cluster) {
            let group = |group: &NodeGroup| NodeGroup { class: group.class + classes, site, ..*group };
            all.groups.extend(free_nodes.groups.iter().map(group));
            all.free.extend_from_slice(&free_nodes.free);
            admits.extend_from_slice(&free_nodes.admits);
            blocks.extend_from_slice(&free_nodes.blocks);
            classes += free_nodes.groups.iter().map(|group| group.class + 1).max().unwrap_or(0);
        }
        all.admits = admits.into();
        all.blocks = blocks.into();
        all
    }

    /// Places all of `pods` over joined clusters, task by task in this order; by cluster, then task. `None` if some
    /// task does not fit.
    pub(crate) fn fill_joined(
        &mut self,
        requests: &GangRequests<'_>,
        pods: &[u32],
        order: &[usize],
        sites: usize,
    ) -> Option<Vec<Vec<u32>>> {
        let mut placed = vec![vec![0; pods.len()]; sites];
        for task in order {
            let unit = requests.partition_size_of(*task);
            let mut left = pods[*task];
            let mut took = |group: NodeGroup, pods: u32| placed[group.site as usize][*task] += pods;
            if unit == 1 {
                left -= self.place_pods_in(requests, *task, left, 1, None, &mut took);
            } else {
                for site in (0..).take(sites) {
                    left -= self.place_pods_in(requests, *task, left, unit, Some(site), &mut took);
                }
            }
            if left > 0 {
                return None;
            }
        }
        Some(placed)
    }

    /// Places as much more of `pods` as fits over joined clusters, task by task in this order, and counts it in
    /// `placed`.
    pub(crate) fn fill_joined_with_more(
        &mut self,
        requests: &GangRequests<'_>,
        pods: &[u32],
        order: &[usize],
        placed: &mut [Vec<u32>],
    ) {
        for task in order {
            let mut left = pods[*task];
            for site in (0..).take(placed.len()) {
                left -= self.place_pods_in(
                    requests,
                    *task,
                    left,
                    requests.partition_size_of(*task),
                    Some(site),
                    &mut |group, pods| {
                        placed[group.site as usize][*task] += pods;
                    },
                );
            }
        }
    }

    /// The most pods of this task alone that fit in each of the clusters that were joined.
    pub(crate) fn most_by_site(&self, requests: &GangRequests<'_>, task: usize, sites: usize) -> Vec<u64> {
        let mut most = vec![0_u64; sites];
        let mut add = |site: u32, pods: u64| most[site as usize] = most[site as usize].saturating_add(pods);
        if requests.closeness(task).is_some() {
            self.max_partition_pods_by_block(requests, task).into_iter().for_each(|((site, _), pods)| add(site, pods));
        } else {
            let groups = self.groups.iter().enumerate();
            groups.for_each(|(index, group)| add(group.site, self.pods_in_group(requests, index, task)));
        }
        most
    }

    /// Each node by itself: its cluster, its class, and what it has free. `None` if there are more than `most`.
    pub(super) fn single_nodes(&self, requests: &GangRequests<'_>, most: usize) -> Option<Vec<(u32, u32, Vec<i64>)>> {
        let width = requests.row_width();
        let mut nodes = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            if nodes.len() + group.nodes as usize > most {
                return None;
            }
            let one = (group.site, group.class, self.free(index, width).to_vec());
            nodes.extend(std::iter::repeat_n(one, group.nodes as usize));
        }
        Some(nodes)
    }

    /// The same free nodes of one cluster, each node by itself with what it has free now.
    pub(super) fn as_single_nodes(&self, nodes: impl Iterator<Item = (u32, Vec<i64>)>) -> Self {
        let mut free_nodes = self.clone();
        free_nodes.groups.iter_mut().for_each(|group| group.nodes = 0);
        for (class, free) in nodes {
            free_nodes.groups.push(NodeGroup { nodes: 1, class, site: 0 });
            free_nodes.free.extend(free);
        }
        free_nodes
    }

    /// The same free nodes with no place for partitioned tasks.
    pub(super) fn without_partitions(mut self, requests: &GangRequests<'_>) -> Self {
        let tasks = &requests.gang.tasks;
        if tasks.iter().any(|task| task.partition.is_some()) {
            let open = |(at, admits): (usize, &bool)| *admits && tasks[at % tasks.len()].partition.is_none();
            self.admits = self.admits.iter().enumerate().map(open).collect();
        }
        self
    }

    /// Whether nodes of a class may run the task's pods.
    pub(super) fn class_admits(&self, requests: &GangRequests<'_>, class: u32, task: usize) -> bool {
        self.admits[class as usize * requests.count_tasks() + task]
    }

    /// Other tasks of the gang that could use the node: those nodes are left for later. Asked once for each kind, so
    /// that thousands of tasks that are alike cost what one does.
    fn count_other_tasks_fitting(&self, requests: &GangRequests<'_>, group: usize, task: usize) -> usize {
        let own = requests.kind_of[task];
        let kinds = requests.kinds.iter().enumerate();
        let useful = kinds.filter(|(_, (first, _))| self.takes_pod(requests, group, *first));
        useful.map(|(kind, (_, tasks))| tasks - usize::from(kind == own)).sum()
    }

    /// Puts `each` pods on `nodes` nodes of the group, which become a group of their own.
    fn put_pods_on_nodes(&mut self, requests: &GangRequests<'_>, group: usize, task: usize, nodes: u32, each: u64) {
        if nodes == 0 || each == 0 {
            return;
        }
        let width = requests.row_width();
        let pods = i64::try_from(each).unwrap_or(i64::MAX);
        self.groups[group].nodes -= nodes;
        let NodeGroup { class, site, .. } = self.groups[group];
        self.groups.push(NodeGroup { nodes, class, site });
        for column in 0..width {
            let left = self.free[group * width + column] - requests.request_row(task)[column].saturating_mul(pods);
            self.free.push(left);
        }
        let row = self.free.len() - width;
        requests.take_numa_cpus(task, each, &mut self.free[row..]);
    }

    /// Places up to `pods[task]` of each task in this order; how many of each fitted.
    pub(crate) fn fill_in_order(&mut self, requests: &GangRequests<'_>, pods: &[u32], order: &[usize]) -> Vec<u32> {
        let mut placed = vec![0; pods.len()];
        for task in order {
            placed[*task] = self.place_pods(requests, *task, pods[*task], requests.partition_size_of(*task));
        }
        placed
    }
}

pub(super) fn quantity_of_packing_units(name: &ResourceName, amount: i128) -> crate::quantity::Quantity {
    crate::quantity::Quantity::from_nano(amount.saturating_mul(packing_scale(name)))
}
