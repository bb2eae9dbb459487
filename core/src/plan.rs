//! Where a gang goes: per cluster, how many pods of each task, and the minimum that cluster must hold.
//!
//! The global scheduler writes a plan on the ResourceBinding (annotation `caldera.dev/plan`, JSON); the webhook rewrites
//! each Work from its cluster's [`Share`]. The sums over clusters of replicas and of every minimum equal the gang's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gang::{ClusterName, TaskName};

/// A gang's shares by cluster. A cluster that gets nothing is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shares by cluster.
    pub clusters: BTreeMap<ClusterName, Share>,
}

/// One cluster's part of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Share {
    /// Every task of the gang is here, with zeros where this cluster gets none of it.
    pub tasks: BTreeMap<TaskName, TaskShare>,
    /// The job's minimum in this cluster.
    pub min_available: u32,
    /// The job's `minSuccess` in this cluster, where the job has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<u32>,
}

/// One task's part in one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskShare {
    /// Pods.
    pub replicas: u32,
    /// Pods needed, at most `replicas`.
    pub min_available: u32,
}

impl Share {
    /// Pods of all tasks.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.tasks.values().fold(0, |sum, task| sum.saturating_add(task.replicas))
    }
}

impl Plan {
    /// Pods over all clusters.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.clusters.values().fold(0, |sum, share| sum.saturating_add(share.replicas()))
    }

    /// Pods by cluster, as `spec.clusters` of a ResourceBinding lists them.
    pub fn by_cluster(&self) -> impl Iterator<Item = (&ClusterName, u32)> {
        self.clusters.iter().map(|(cluster, share)| (cluster, share.replicas()))
    }
}
