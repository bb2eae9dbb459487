//! NUMA nodes of nodes while pods are put on them: columns beside those of the resources, for gangs with NUMA policies.
//!
//! Rule: see [`crate::numa`]. No pod asks for any of these columns: what is left of them is worked out pod by pod.

use std::sync::Arc;

use super::{FreeNodes, GangRequests};
use crate::{
    gang::Gang,
    inventory::{Capacity, NodeShape},
    numa::{COLUMNS, FreeCpus, NumaClaim, NumaTopology},
};

/// What each task wants of NUMA nodes; nothing where no task wants anything.
pub(super) fn list_numa_claims(gang: &Gang) -> Vec<Option<&NumaClaim>> {
    let claims = gang.tasks.iter().map(|task| task.node.numa.as_deref());
    if gang.tasks.iter().any(|task| task.node.numa.is_some()) { claims.collect() } else { Vec::new() }
}

impl GangRequests<'_> {
    /// What a task wants of NUMA nodes.
    pub(in crate::split) fn numa_claim(&self, task: usize) -> Option<&NumaClaim> {
        *self.numa.get(task)?
    }

    /// Whether some task wants anything of NUMA nodes.
    pub(in crate::split) const fn has_numa_claims(&self) -> bool {
        !self.numa.is_empty()
    }

    /// Columns of a row for NUMA nodes, the last.
    pub(super) const fn numa_width(&self) -> usize {
        if self.has_numa_claims() { COLUMNS } else { 0 }
    }

    fn numa_columns_begin(&self) -> usize {
        self.row_width() - self.numa_width()
    }

    /// Pods of the task that the NUMA nodes of a node take, at most `most`.
    pub(in crate::split) fn count_aligned_pods(&self, task: usize, row: &[i64], most: u64) -> u64 {
        match self.numa_claim(task) {
            Some(claim) if most > 0 => {
                FreeCpus::from_columns(&row[self.numa_columns_begin()..]).count_pods(claim, most)
            }
            _ => most,
        }
    }

    /// Takes what so many pods of the task have of NUMA nodes off a node.
    pub(in crate::split) fn take_numa_cpus(&self, task: usize, pods: u64, row: &mut [i64]) {
        if let Some(claim) = self.numa_claim(task) {
            let columns = &mut row[self.numa_columns_begin()..];
            let left = FreeCpus::from_columns(columns).take_pods(claim, pods);
            columns.iter_mut().zip(left.columns()).for_each(|(column, left)| *column = left);
        }
    }

    /// What a node of this shape reports, with what is left of it in this row.
    pub(in crate::split) fn left_numa_topology(&self, shape: &NodeShape, row: &[i64]) -> Option<Arc<NumaTopology>> {
        let numa = shape.numa.as_ref()?;
        if !self.has_numa_claims() {
            return Some(Arc::clone(numa));
        }
        Some(Arc::new(numa.with_free_cpus(&FreeCpus::from_columns(&row[self.numa_columns_begin()..]))))
    }

    /// What a node of this shape has free by NUMA node, as a row begins with it.
    pub(super) fn append_numa_columns(&self, shape: &NodeShape, row: &mut Vec<i64>) {
        if self.has_numa_claims() {
            row.extend(FreeCpus::of_topology(shape.numa.as_deref()).columns());
        }
    }

    /// Pods of the task that the NUMA nodes of a node of this shape take, at most `most`.
    pub(super) fn count_aligned_pods_on(&self, capacity: &Capacity, shape: &NodeShape, task: usize, most: u64) -> u64 {
        match self.numa_claim(task) {
            Some(claim) if capacity.aligns_pods(shape, Some(claim)) => {
                FreeCpus::of_topology(shape.numa.as_deref()).count_pods(claim, most)
            }
            Some(_) => 0,
            None => most,
        }
    }

    /// The most CPUs that a container that asks for so many finds free on a node with this row, in as many NUMA nodes
    /// as it may be in.
    pub(in crate::split) fn count_alignable_cpus(&self, claim: &NumaClaim, asked: u32, row: &[i64]) -> i64 {
        FreeCpus::from_columns(&row[self.numa_columns_begin()..]).most_for_container(claim.policy, asked)
    }
}

impl FreeNodes {
    /// Whether some node reports NUMA nodes and refuses pods for them.
    pub(in crate::split) fn may_refuse_for_numa(&self, requests: &GangRequests<'_>) -> bool {
        let begin = requests.numa_columns_begin();
        let reports = |group: usize| self.free_of(requests, group)[begin..].first().is_some_and(|cpus| *cpus > 0);
        requests.numa.iter().flatten().any(|claim| claim.may_be_refused())
            && (0..self.classes_and_sizes().len()).any(reports)
    }
}
