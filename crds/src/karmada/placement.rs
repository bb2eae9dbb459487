//! Where a workload may go: the part that policies and bindings share (`policy.karmada.io/v1alpha1`).

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{null_is_default, words};

words! {
    /// Whether each cluster gets all replicas or a part.
    ReplicaSchedulingType { Duplicated = "Duplicated", Divided = "Divided", }
}
words! {
    /// How replicas are divided.
    ReplicaDivisionPreference { Aggregated = "Aggregated", Weighted = "Weighted", }
}
words! {
    /// Weights computed from the clusters.
    DynamicWeight { AvailableReplicas = "AvailableReplicas", }
}
words! {
    /// What a spread constraint groups clusters by.
    SpreadField { Cluster = "cluster", Region = "region", Zone = "zone", Provider = "provider", }
}

/// Selects clusters by provider, region or zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// All must match.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// A named set of clusters that takes what does not fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinityTerm {
    /// The group's name, unique in the policy.
    #[schemars(extend("minLength" = 1, "maxLength" = 32))]
    pub affinity_name: String,
    /// By name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Never these.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// By provider, region or zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// A named set of clusters, with sets that take the overflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// The group's name, unique in the policy.
    #[schemars(extend("minLength" = 1, "maxLength" = 32))]
    pub affinity_name: String,
    /// By name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Never these.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// By provider, region or zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Further groups that take what does not fit.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<OverflowAffinityTerm>,
}

/// A set of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// By name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Never these.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// By provider, region or zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// One weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// Which clusters.
    pub target_cluster: ClusterAffinity,
    /// Their weight.
    #[schemars(extend("minimum" = 1))]
    pub weight: i64,
}

/// Weights of a division.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Weights computed from the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
    /// Weights given by hand.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticClusterWeight>,
}

/// How replicas are divided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSchedulingStrategy {
    /// How to divide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// Whether each cluster gets all replicas or a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Divided"))]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,
    /// Weights of the division.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
}

/// How many groups of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// At most so many groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = null))]
    pub max_groups: Option<i64>,
    /// At least so many groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = null))]
    pub min_groups: Option<i64>,
    /// What a group is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadField>,
    /// What a group is, by a cluster label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_label: Option<String>,
}

/// A group of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityTerm {
    /// Workloads with the same value of this label are a group.
    pub group_by_label_key: String,
}

/// Workloads to be near to or far from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinity {
    /// To be near to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// To be far from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// Where a workload may go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Groups of candidate clusters, tried in order.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    /// The one group of candidate clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Cluster taints that the workload stands.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    /// How replicas are divided; absent means duplicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,
    /// How many groups of clusters to use.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// Workloads to be near to or far from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}
