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
        let (mut matching, mut fits_by_amounts, mut fits_aligned) = (0_u64, 0_u64, 0_u64);
        let mut most_aligned: Option<(i64, &ClusterName)> = None;
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
                if let Some((_, most)) = self.find_aligned_cpus(task, free_nodes.free_of(self, group)) {
                    let by_amounts = free_nodes.per_node_by_amounts(self, group, task);
                    fits_by_amounts = fits_by_amounts.saturating_add(by_amounts.saturating_mul(nodes));
                    fits_aligned = fits_aligned.saturating_add(free_nodes.pods_in_group(self, group, task));
                    if most_aligned.is_none_or(|(known, _)| most > known) {
                        most_aligned = Some((most, *cluster));
                    }
                }
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
        if fits_aligned < fits_by_amounts
            && let Some(claim) = self.numa_claim(task)
        {
            let asked = claim.cpus.iter().max().copied().unwrap_or(0);
            let most = most_aligned.filter(|(most, _)| *most < i64::from(asked));
            let most = most.map(|(most, cluster)| (most, cluster.clone()));
            return Some(Lack::Numa { policy: claim.policy, asked, most, nodes: matching });
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
}
