//! Why no more pods of a task fit, for a refusal: no node matches, nodes take only so many pods of the task each, their
//! NUMA nodes take fewer than their resources would, or which resource is the tightest, with what is free of it and the
//! most that one node has.

use super::Lack;
use crate::{
    gang::ClusterName,
    split::packing::{FreeNodes, GangRequests, quantity_of_packing_units},
};

impl GangRequests<'_> {
    /// Why no more pods of a task fit in these clusters: the tightest resource over all nodes it may run on. `None`
    /// where there is no such node.
    pub(crate) fn find_shortage(&self, task: usize, free_by_cluster: &[(&ClusterName, FreeNodes)]) -> Option<Lack> {
        let (resources, width) = (self.resources(), self.row_width());
        let mut matching = 0_u64;
        let mut fits = vec![0_u64; width];
        let mut free = vec![0_i128; width];
        let mut largest: Vec<Option<(i64, &ClusterName)>> = vec![None; width];
        for (cluster, free_nodes) in free_by_cluster {
            for group in 0..free_nodes.groups.len() {
                if !free_nodes.group_admits(self, group, task) {
                    continue;
                }
                let nodes = u64::from(free_nodes.groups[group].nodes);
                matching += nodes;
                for (column, amount) in free_nodes.free_of(self, group).iter().enumerate() {
                    free[column] = free[column].saturating_add(i128::from(*amount) * i128::from(nodes));
                    if largest[column].is_none_or(|(most, _)| *amount > most) {
                        largest[column] = Some((*amount, *cluster));
                    }
                    let asked = self.request_row(task)[column];
                    if asked > 0 {
                        fits[column] =
                            fits[column].saturating_add((amount / asked).unsigned_abs().saturating_mul(nodes));
                    }
                }
            }
        }
        if matching == 0 {
            return None;
        }
        if let Some(lack) = self.find_numa_shortage(task, free_by_cluster, matching) {
            return Some(lack);
        }
        let tightest =
            (0..width).filter(|column| self.request_row(task)[*column] > 0).min_by_key(|column| fits[*column]);
        Some(match tightest? {
            column if column >= resources.len() => {
                Lack::Apart { most: self.apart[column - resources.len()].1, nodes: matching }
            }
            column => Lack::Resource {
                name: resources[column].clone(),
                each: self.gang.tasks[task].request.get(resources[column].as_str()),
                free: quantity_of_packing_units(&resources[column], free[column]),
                largest: largest[column].filter(|_| fits[column] == 0).map(|(most, cluster)| {
                    (quantity_of_packing_units(&resources[column], i128::from(most.max(0))), cluster.clone())
                }),
            },
        })
    }

    /// That the NUMA nodes of these clusters take fewer pods of a task than amounts let them, where that is so.
    fn find_numa_shortage(
        &self,
        task: usize,
        free_by_cluster: &[(&ClusterName, FreeNodes)],
        nodes: u64,
    ) -> Option<Lack> {
        let claim = self.numa_claim(task)?;
        let asked = *claim.cpus.iter().max()?;
        let (mut is_short, mut most) = (false, None::<(i64, &ClusterName)>);
        for (cluster, free_nodes) in free_by_cluster {
            for group in (0..free_nodes.groups.len()).filter(|group| free_nodes.group_admits(self, *group, task)) {
                let here = self.count_alignable_cpus(claim, asked, free_nodes.free_of(self, group));
                if most.is_none_or(|(most, _)| here > most) {
                    most = Some((here, *cluster));
                }
                let by_amounts = free_nodes.per_node_by_amounts(self, group, task);
                is_short |= free_nodes.groups[group].nodes > 0 && free_nodes.per_node(self, group, task) < by_amounts;
            }
        }
        let most = most.filter(|(most, _)| *most < i64::from(asked)).map(|(most, cluster)| (most, cluster.clone()));
        is_short.then_some(Lack::Numa { policy: claim.policy, asked, most, nodes })
    }
}
