//! How many pods of a binding its clusters say have ended.
//!
//! Rule: a pod gives its quota back once two say that it has ended: the status of its workload, and what Karmada
//! aggregated on the binding from the clusters that the workload is in now. The status alone may be of an earlier run,
//! or written by its user. A copy that has ended as a whole may have forgotten its counts (volcano#4616): all of its
//! pods have ended.

use std::collections::BTreeMap;

use caldera_core::gang::{ClusterName, TaskName};
use caldera_crds::{
    binding::BindingView,
    workload::progress::{has_copy_ended, read_ended_pods},
};

/// Pods that ended, as the clusters of a binding tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPods {
    by_task: BTreeMap<TaskName, u32>,
    /// Of copies that have ended as a whole, of whatever task.
    of_ended_copies: u32,
}

impl EndedPods {
    /// Counts them.
    #[must_use]
    pub fn count(binding: BindingView<'_>) -> Self {
        let mut ended = Self::default();
        let Some(kind) = binding.workload_kind() else { return ended };
        let mut clusters: BTreeMap<ClusterName, u32> = binding.clusters().collect();
        for item in binding.status.into_iter().flat_map(|status| &status.aggregated_status) {
            let Some(status) = &item.status else { continue };
            // Of each cluster one word counts.
            let Some(replicas) = clusters.remove(item.cluster_name.as_str()) else { continue };
            if has_copy_ended(kind, status) {
                // Zero replicas mean a whole copy.
                let pods = if replicas == 0 { u32::MAX } else { replicas };
                ended.of_ended_copies = ended.of_ended_copies.saturating_add(pods);
                continue;
            }
            for (task, pods) in read_ended_pods(kind, status) {
                let sum = ended.by_task.entry(task).or_default();
                *sum = sum.saturating_add(pods);
            }
        }
        ended
    }

    /// What the workload says has ended, as far as the clusters say so too.
    #[must_use]
    pub fn confirm(&self, finished: &BTreeMap<TaskName, u32>) -> BTreeMap<TaskName, u32> {
        let count_reported =
            |task: &TaskName| self.by_task.get(task).copied().unwrap_or(0).saturating_add(self.of_ended_copies);
        finished.iter().map(|(task, pods)| (task.clone(), count_reported(task).min(*pods))).collect()
    }
}
