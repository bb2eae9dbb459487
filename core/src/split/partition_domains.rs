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

use super::{SplitSearch, Spot, assumed, node_scope::NodeScope, packing::Block};
use crate::{
    gang::{Task, TaskName},
    inventory::DomainId,
    plan::{Part, PlannedDomain},
};

/// At most so many values of labels are written to pin a share's partitions; beyond that they are not pinned.
const MOST_VALUES: usize = 2000;

fn block_domain(block: Block) -> Option<DomainId> {
    block.checked_sub(1).map(DomainId::at)
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
        let free_nodes = own.as_ref().unwrap_or_else(|| self.free_nodes_of_site(spot.site));
        let Some(classes) = assumed::node_classes(requests, free_nodes, pods) else { return BTreeMap::new() };
        let mut parts = BTreeMap::new();
        let mut values = 0;
        for task in tasks {
            let mut by_block: BTreeMap<Block, u32> = BTreeMap::new();
            for ((_, class), pods) in classes.iter().filter(|((of, _), _)| *of == task) {
                *by_block.entry(free_nodes.block_of(requests, *class, task)).or_default() += pods;
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
