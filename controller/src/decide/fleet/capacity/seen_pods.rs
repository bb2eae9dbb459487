//! Which pods of a workload are seen in members.
//!
//! Rule: a member that can not be read hides its pods. Where that matters, the answer is `None`, or the question says
//! that it is about what can be seen.

use caldera_core::gang::{ClusterName, WorkloadRef};

use super::FleetCapacity;
use crate::observe::Binding;

impl FleetCapacity {
    /// Pods of a workload that reached nodes in a cluster; `None` where its pods can not be seen.
    #[must_use]
    pub fn count_pods_on_nodes(&self, cluster: &str, workload: &WorkloadRef) -> Option<u32> {
        self.fleet.count_pods_that_reached_nodes(cluster, workload)
    }

    /// Pods of a workload that are on nodes of a cluster and have not ended; `None` where its pods can not be seen.
    #[must_use]
    pub fn count_live_pods_in(&self, cluster: &str, workload: &WorkloadRef) -> Option<u32> {
        self.fleet.count_pods_on_nodes(cluster, workload)
    }

    /// Clusters where pods of a workload were seen that have not gone from there, and whether they can be seen now.
    pub fn list_clusters_with_pods(&self, workload: &WorkloadRef) -> impl Iterator<Item = (&str, bool)> {
        self.fleet.list_members_with_pods(workload)
    }

    /// Pods of a binding that are on nodes and have not ended; `None` if one of its clusters can not be seen.
    #[must_use]
    pub fn count_live_pods(&self, binding: &Binding) -> Option<u32> {
        let seen =
            |(cluster, _): &(ClusterName, u32)| self.fleet.count_pods_on_nodes(cluster.as_str(), &binding.workload);
        binding.clusters.iter().map(seen).sum()
    }

    /// True if pods of a workload are seen in some member.
    #[must_use]
    pub fn runs_anywhere(&self, workload: &WorkloadRef) -> bool {
        self.fleet.runs_anywhere(workload)
    }

    /// Whether all pods of a binding that were seen have finished.
    #[must_use]
    pub fn has_only_finished_pods(&self, binding: &Binding) -> bool {
        self.fleet
            .has_only_finished_pods(binding.clusters.iter().map(|(cluster, _)| cluster.as_str()), &binding.workload)
    }
}
