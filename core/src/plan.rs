//! Where a gang goes: per cluster, how many pods of each task, and the minimum that cluster must hold.
//!
//! The global scheduler writes a plan on the ResourceBinding (annotation `caldera.dev/plan`, JSON); the webhook
//! rewrites each Work from its cluster's [`ClusterShare`]. The sums over clusters of replicas and of every minimum
//! equal the gang's; `min_success` is no minimum of a part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gang::{ClusterName, Requirement, TaskName};

/// A gang's shares by cluster. A cluster that gets nothing is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shares by cluster.
    pub clusters: BTreeMap<ClusterName, ClusterShare>,
}

/// One cluster's part of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterShare {
    /// Every task of the gang is here, with zeros where this cluster gets none of it.
    pub tasks: BTreeMap<TaskName, TaskShare>,
    /// The job's minimum in this cluster.
    pub min_available: u32,
    /// `minSuccess` of the copy in this cluster, where the job has one: no part of the job's, which counts over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success: Option<u32>,
    /// The network domain that its pods are kept in, where it is smaller than the cluster. Chosen once: a member's
    /// Volcano lets nobody change the template of a job that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<PlannedDomain>,
    /// The domains that partitions are kept in, of tasks whose partitions must each lie in one smaller than the
    /// cluster. Chosen once, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<TaskName, Vec<Part>>,
}

/// Partitions of a task in one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    /// Where they are.
    pub domain: PlannedDomain,
    /// How many.
    pub partitions: u32,
}

/// Where in a cluster pods are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinnedDomains {
    /// As [`ClusterShare::domain`].
    pub domain: Option<PlannedDomain>,
    /// As [`ClusterShare::parts`].
    pub parts: BTreeMap<TaskName, Vec<Part>>,
}

impl From<Option<&PlannedDomain>> for PinnedDomains {
    fn from(domain: Option<&PlannedDomain>) -> Self {
        Self { domain: domain.cloned(), parts: BTreeMap::new() }
    }
}

/// A network domain within a cluster (Volcano's HyperNode).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlannedDomain {
    /// The HyperNode.
    pub name: String,
    /// Its tier; lower is closer.
    pub tier: u32,
    /// What selects its nodes by label, as alternatives; pods must be on one of them. None where the domain is only
    /// preferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Vec<Requirement>>,
    /// The same where the domain is only preferred: the member's scheduler should begin there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<Vec<Requirement>>,
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

impl ClusterShare {
    /// Where its pods are kept.
    #[must_use]
    pub fn pinned_domains(&self) -> PinnedDomains {
        PinnedDomains { domain: self.domain.clone(), parts: self.parts.clone() }
    }

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

    /// Whether more than one cluster gets pods.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.clusters.values().filter(|share| share.replicas() > 0).count() > 1
    }

    /// Where pods are kept, for clusters where it is smaller than the cluster.
    #[must_use]
    pub fn pinned_domains(&self) -> BTreeMap<String, PinnedDomains> {
        let some = |(_, share): &(&ClusterName, &ClusterShare)| share.domain.is_some() || !share.parts.is_empty();
        self.clusters.iter().filter(some).map(|(name, share)| (name.to_string(), share.pinned_domains())).collect()
    }

    /// Pods by cluster, as `spec.clusters` of a ResourceBinding lists them.
    pub fn by_cluster(&self) -> impl Iterator<Item = (&ClusterName, u32)> {
        self.clusters.iter().map(|(cluster, share)| (cluster, share.replicas()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gang::Operator;

    #[test]
    fn a_plan_from_before_domains_is_read_and_one_without_is_written_as_before() {
        let text = r#"{"clusters":{"m1":{"tasks":{"w":{"replicas":2,"minAvailable":1}},"minAvailable":1}}}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        assert_eq!(plan.clusters["m1"].domain, None);
        assert_eq!(serde_json::to_string(&plan).unwrap(), text);
    }

    #[test]
    fn a_domain_is_written_as_kubernetes_writes_node_selector_terms() {
        let label = Requirement { key: "rack".into(), operator: Operator::In, values: vec!["r1".into()] };
        let domain = PlannedDomain { name: "rack-1".into(), tier: 1, nodes: vec![vec![label]], preferred: vec![] };
        let text = r#"{"name":"rack-1","tier":1,"nodes":[[{"key":"rack","operator":"In","values":["r1"]}]]}"#;
        assert_eq!(serde_json::to_string(&domain).unwrap(), text);
        assert_eq!(serde_json::from_str::<PlannedDomain>(text).unwrap(), domain);
    }
}
