//! Partitions that must each lie in one domain (`partitionPolicy.networkTopology`).
//!
//! Rule (Volcano, `network-topology-aware` over sub-jobs): mode `hard` with a highest tier allows for each partition
//! one HyperNode of that tier or a lower one. Who is in a lower one is in those around it too, so all that matters is
//! the largest domains that are allowed: a cluster's *blocks*, which do not overlap. A partition lies in one block,
//! partitions of one task may lie in several, and nodes outside all blocks take none. How a tier is given is read as
//! for the whole job (`allowed_tiers`); where the whole cluster is close enough, it is one block. Mode `soft` is left
//! to the member.
//!
//! A task's pods share one template, so its partitions can not be pinned each to its own: they are pinned to the
//! domains that hold any of them together, and the member's own scheduler puts each in one. Where that would take too
//! many label values, they are not pinned.

use std::collections::BTreeMap;

use super::{
    SplitSearch, Spot,
    allowed_tiers::AllowedTiers,
    assumed,
    node_scope::NodeScope,
    packing::{FreeNodes, GangRequests, NodeGroup},
};
use crate::{
    gang::{Task, TaskName},
    inventory::{Capacity, DomainId},
    plan::{Part, PlannedDomain},
};

/// A block of a cluster: its domain's place and one, or 0 for the whole cluster.
pub(super) type Block = u32;

/// At most so many values of labels are written to pin a share's partitions; beyond that they are not pinned.
const MOST_VALUES: usize = 2000;

/// The blocks of the tasks that a node of this domain belongs to. Where it belongs to none, the task is not
/// admitted.
pub(super) fn assign_blocks(
    reaches: &[Option<AllowedTiers>],
    capacity: &Capacity,
    id: Option<DomainId>,
    admits: &mut [bool],
) -> Vec<Block> {
    let block = |(reach, admits): (&Option<AllowedTiers>, &mut bool)| {
        let Some(reach) = reach.filter(|reach| !reach.cluster) else { return 0 };
        let allowed = |id: &DomainId| {
            capacity.domains.get(*id).is_some_and(|domain| reach.tier.is_some_and(|highest| domain.tier <= highest))
        };
        let around = id.into_iter().flat_map(|id| capacity.domains.self_and_ancestors(id));
        let largest = around.take_while(allowed).last();
        *admits &= largest.is_some();
        largest.map_or(0, |id| u32::try_from(id.index()).map_or(0, |index| index + 1))
    };
    reaches.iter().zip(admits).map(block).collect()
}

fn block_domain(block: Block) -> Option<DomainId> {
    block.checked_sub(1).map(DomainId::at)
}

impl GangRequests<'_> {
    /// What of a cluster is close enough for a partition of each task; `None` where it need not be close.
    pub(super) fn allowed_tiers_by_task(&self, capacity: &Capacity) -> Vec<Option<AllowedTiers>> {
        let reach = |task| {
            self.closeness(task).map(|(topology, levels)| AllowedTiers::from_topology(Some(topology), capacity, levels))
        };
        (0..self.count_tasks()).map(reach).collect()
    }
}

impl FreeNodes {
    /// The block of a class's nodes, for a task.
    pub(super) fn block_of(&self, requests: &GangRequests<'_>, class: u32, task: usize) -> Block {
        self.blocks.get(class as usize * requests.count_tasks() + task).copied().unwrap_or(0)
    }

    /// The most pods of this task alone that fit in one block, whole partitions or not.
    pub(super) fn max_pods_in_one_block(&self, requests: &GangRequests<'_>, task: usize) -> u64 {
        self.pods_by_block(requests, task).into_values().max().unwrap_or(0)
    }

    /// The most pods of this task alone that fit in each block of each cluster, in whole partitions.
    pub(super) fn max_partition_pods_by_block(
        &self,
        requests: &GangRequests<'_>,
        task: usize,
    ) -> BTreeMap<(u32, Block), u64> {
        let unit = u64::from(requests.partition_size_of(task));
        let mut most = self.pods_by_block(requests, task);
        most.values_mut().for_each(|pods| *pods -= *pods % unit);
        most
    }

    fn pods_by_block(&self, requests: &GangRequests<'_>, task: usize) -> BTreeMap<(u32, Block), u64> {
        let mut most: BTreeMap<(u32, Block), u64> = BTreeMap::new();
        for (index, group) in self.list_groups().enumerate() {
            let sum = most.entry((group.site, self.block_of(requests, group.class, task))).or_default();
            *sum = sum.saturating_add(self.pods_in_group(requests, index, task));
        }
        most
    }

    /// Places up to `pods` of the task in whole partitions, each in one block: in the tightest blocks first.
    pub(super) fn place_whole_partitions(
        &mut self,
        requests: &GangRequests<'_>,
        task: usize,
        pods: u32,
        here: &dyn Fn(&NodeGroup) -> bool,
        took: &mut dyn FnMut(NodeGroup, u32),
    ) -> u32 {
        let unit = requests.partition_size_of(task);
        let mut blocks: Vec<(u64, (u32, Block))> =
            self.max_partition_pods_by_block(requests, task).into_iter().map(|(block, pods)| (pods, block)).collect();
        blocks.sort_unstable();
        let (mut left, blocks_of) = (pods / unit * unit, std::sync::Arc::clone(&self.blocks));
        let block_of = |group: &NodeGroup| {
            blocks_of.get(group.class as usize * requests.count_tasks() + task).copied().unwrap_or(0)
        };
        for (most, (site, block)) in blocks {
            let fits = u32::try_from(most).unwrap_or(u32::MAX).min(left);
            let among = |group: &NodeGroup| here(group) && group.site == site && block_of(group) == block;
            left -= self.place_pods_among(requests, task, fits, unit, &among, took);
        }
        pods / unit * unit - left
    }
}

impl SplitSearch<'_> {
    /// The domains that new partitions of a site are kept in, by task: those of tasks that ask for it.
    pub(super) fn plan_partition_domains(&self, spot: Spot, pods: &[u32]) -> BTreeMap<TaskName, Vec<Part>> {
        let requests = &self.requests;
        let close = |task: &usize| requests.closeness(*task).is_some() && pods[*task] > 0;
        let tasks: Vec<usize> = (0..requests.count_tasks()).filter(close).collect();
        if tasks.is_empty() {
            return BTreeMap::new();
        }
        let capacity = self.sites[spot.site].capacity;
        let own = spot.domain.map(|domain| requests.free_nodes(capacity, NodeScope::Domain(domain)));
        let room = own.as_ref().unwrap_or_else(|| self.free_nodes_of_site(spot.site));
        let Some(classes) = assumed::node_classes(requests, room, pods) else { return BTreeMap::new() };
        let mut parts = BTreeMap::new();
        let mut values = 0;
        for task in tasks {
            let mut by_block: BTreeMap<Block, u32> = BTreeMap::new();
            for ((_, class), pods) in classes.iter().filter(|((of, _), _)| *of == task) {
                *by_block.entry(room.block_of(requests, *class, task)).or_default() += pods;
            }
            let part = |(block, pods): (Block, u32)| {
                let id = block_domain(block)?;
                let known = capacity.domains.get(id)?;
                let nodes = capacity.node_selectors(id);
                values += nodes.iter().flatten().map(|one| one.values.len()).sum::<usize>();
                let domain =
                    PlannedDomain { name: known.name.to_string(), tier: known.tier, nodes, preferred: Vec::new() };
                Some(Part { domain, partitions: pods / requests.partition_size_of(task) })
            };
            // A cluster that is one block pins nobody.
            if let Some(own) = by_block.into_iter().map(part).collect::<Option<Vec<Part>>>() {
                parts.insert(requests.gang.tasks[task].name.clone(), own);
            }
        }
        if values > MOST_VALUES {
            parts.values_mut().flatten().for_each(|part| part.domain.nodes.clear());
        }
        parts
    }

    /// The parts of partitions that stay at a site, which were these before.
    pub(super) fn kept_partition_domains(
        &self,
        site: usize,
        before: &BTreeMap<TaskName, Vec<Part>>,
    ) -> BTreeMap<TaskName, Vec<Part>> {
        let kept = self.kept.iter().find(|(held, _)| *held == site).map(|(_, pods)| pods);
        let tasks = self.requests.gang.tasks.iter().enumerate();
        let of = |(index, task): (usize, &Task)| {
            let mut left = kept.map_or(0, |pods| pods[index] / task.partition_size());
            let keep = |part: &Part| {
                let partitions = part.partitions.min(left);
                left -= partitions;
                (partitions > 0).then(|| Part { partitions, ..part.clone() })
            };
            let parts: Vec<Part> = before.get(&task.name)?.iter().filter_map(keep).collect();
            (!parts.is_empty()).then(|| (task.name.clone(), parts))
        };
        tasks.filter_map(of).collect()
    }
}
