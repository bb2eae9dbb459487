//! A place that was found for a gang.

use std::collections::BTreeMap;

use caldera_core::{
    gang::Gang,
    place::Decision,
    plan::{PinnedDomains, Plan},
};

/// A place that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Pods of each task by cluster.
    pub pods: BTreeMap<String, Vec<u32>>,
    /// Where in them, for clusters where it is smaller than the cluster.
    pub within: BTreeMap<String, PinnedDomains>,
}

impl Place {
    /// Where a decision puts a gang.
    #[must_use]
    pub fn from_decision(decision: &Decision, gang: &Gang) -> Self {
        let within = decision.plan.as_ref().map(Plan::pinned_domains).unwrap_or_default();
        Self { pods: decision.count_pods_by_cluster(gang), within }
    }

    /// Pods in all.
    #[must_use]
    pub fn count_pods(&self) -> u64 {
        self.pods.values().flatten().map(|pods| u64::from(*pods)).sum()
    }
}
