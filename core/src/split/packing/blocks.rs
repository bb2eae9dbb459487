//! Blocks: the largest domains of a cluster that may each hold a whole partition.
//!
//! Rule: see [`partition_domains`](super::super::partition_domains). A partition lies in one block; partitions of one
//! task may lie in several, the tightest first. Nodes outside all blocks take none.

use std::collections::BTreeMap;

use super::{FreeNodes, GangRequests, NodeGroup};
use crate::{
    inventory::{Capacity, DomainId},
    split::allowed_tiers::AllowedTiers,
};

/// A block of a cluster: its domain's place and one, or 0 for the whole cluster.
pub(in crate::split) type Block = u32;

/// The blocks of the tasks that a node of this domain belongs to. Where it belongs to none, the task is not
/// admitted.
pub(in crate::split) fn assign_blocks(
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

impl GangRequests<'_> {
    /// What of a cluster is close enough for a partition of each task; `None` where it need not be close.
    pub(in crate::split) fn allowed_tiers_by_task(&self, capacity: &Capacity) -> Vec<Option<AllowedTiers>> {
        let reach = |task| {
            self.closeness(task).map(|(topology, levels)| AllowedTiers::from_topology(Some(topology), capacity, levels))
        };
        (0..self.count_tasks()).map(reach).collect()
    }
}

impl FreeNodes {
    /// The block of a class's nodes, for a task.
    pub(in crate::split) fn block_of(&self, requests: &GangRequests<'_>, class: u32, task: usize) -> Block {
        self.blocks.get(class as usize * requests.count_tasks() + task).copied().unwrap_or(0)
    }

    /// The most pods of this task alone that fit in one block, whole partitions or not.
    pub(in crate::split) fn max_pods_in_one_block(&self, requests: &GangRequests<'_>, task: usize) -> u64 {
        self.pods_by_block(requests, task).into_values().max().unwrap_or(0)
    }

    /// The most pods of this task alone that fit in each block of each cluster, in whole partitions.
    pub(in crate::split) fn max_partition_pods_by_block(
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
    pub(in crate::split) fn place_whole_partitions(
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
