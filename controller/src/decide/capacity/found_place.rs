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
        Self { pods: pods_of(decision, gang), within }
    }

    /// Pods in all.
    #[must_use]
    pub fn count_pods(&self) -> u64 {
        self.pods.values().flatten().map(|pods| u64::from(*pods)).sum()
    }
}

/// Pods of each task by cluster: by the plan, else (one task) by the replicas.
fn pods_of(decision: &Decision, gang: &Gang) -> BTreeMap<String, Vec<u32>> {
    let by_plan = |cluster: &str| {
        let share = decision.plan.as_ref()?.clusters.get(cluster)?;
        Some(gang.tasks.iter().map(|task| share.tasks.get(&task.name).map_or(0, |share| share.replicas)).collect())
    };
    let by_replicas = |replicas: i64| match gang.tasks.as_slice() {
        [_] if replicas > 0 => vec![u32::try_from(replicas).unwrap_or(u32::MAX)],
        tasks => tasks.iter().map(|task| task.replicas).collect(),
    };
    let targets = decision.targets.iter();
    targets
        .map(|target| {
            (target.cluster.clone(), by_plan(&target.cluster).unwrap_or_else(|| by_replicas(target.replicas)))
        })
        .collect()
}
