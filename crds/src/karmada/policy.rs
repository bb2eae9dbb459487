//! `policy.karmada.io/v1alpha1`: what goes where, with which edits, and under which quota.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{ResourceList, null_is_default, object, words};

pub use super::{overrides::*, placement::*};

words! {
    /// What to do with an object that is already in the member.
    ConflictResolution { Abort = "Abort", Overwrite = "Overwrite", }
}
object! {
    /// What of one namespace goes where.
    PropagationPolicy, "policy.karmada.io", "v1alpha1", "propagationpolicies", NamespaceResourceScope
    { spec: PropagationSpec } {  }
}
object! {
    /// What of every namespace, and which cluster-wide objects, go where.
    ClusterPropagationPolicy, "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", ClusterResourceScope
    { spec: PropagationSpec } {  }
}
object! {
    /// A namespace's quota over all clusters.
    FederatedResourceQuota, "policy.karmada.io", "v1alpha1", "federatedresourcequotas", NamespaceResourceScope
    { spec: FederatedResourceQuotaSpec } { status: FederatedResourceQuotaStatus }
}

/// When it counts as failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// Unhealthy for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 300))]
    pub toleration_seconds: Option<i32>,
}

/// One label made from one status field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// The label.
    pub alias_label_name: String,
    /// Where in the status its value is.
    pub json_path: String,
}

/// State carried to the next cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// One label each.
    #[serde(deserialize_with = "null_is_default")]
    pub rules: Vec<StatePreservationRule>,
}

/// Upon the workload's failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    /// When it counts as failed.
    pub decision_conditions: DecisionConditions,
    /// How long to wait for the new place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// When its copy goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Gracefully", "enum" = ["Directly", "Gracefully", "Never"]))]
    pub purge_mode: Option<String>,
    /// What to carry over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// Upon the cluster's failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// When its copy goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Gracefully", "enum" = ["Directly", "Gracefully"]))]
    pub purge_mode: Option<String>,
    /// What to carry over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What happens upon failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverBehavior {
    /// Upon the workload's failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    /// Upon the cluster's failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
}

/// Selects templates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// By name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Where the priority comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// The class.
    pub priority_class_name: String,
    /// Only `KubePriorityClass` works.
    #[schemars(extend("enum" = ["KubePriorityClass"]))]
    pub priority_class_source: String,
}

/// A list of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// By name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// What is on hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Nothing is sent to any cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// Nothing is sent to these clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Spec of a PropagationPolicy and of its cluster-wide twin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationSpec {
    /// `Lazy`: changes of the policy wait for the next change of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Lazy"]))]
    pub activation_preference: Option<String>,
    /// Deprecated; see `propagate_deps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<bool>,
    /// What to do with an object that is already in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Abort"))]
    pub conflict_resolution: Option<ConflictResolution>,
    /// Override policies that must be there first.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    /// What happens when a cluster or the workload fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverBehavior>,
    /// Where it may go; absent on a dependency's binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Whether it may take templates from another policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Never", "enum" = ["Always", "Never"]))]
    pub preemption: Option<String>,
    /// Members keep their objects when the template goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Which of several matching policies wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,
    /// ConfigMaps, Secrets and the like follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// What the policy selects.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("minItems" = 1))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Who is placed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
    /// Who chooses clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default-scheduler"))]
    pub scheduler_name: Option<String>,
    /// What is on hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
}

/// One cluster's fixed part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterAssignment {
    /// Which cluster.
    pub cluster_name: String,
    /// Limits.
    #[serde(deserialize_with = "null_is_default")]
    pub hard: ResourceList,
}

/// A namespace's quota over all clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaSpec {
    /// Hard limits.
    #[serde(deserialize_with = "null_is_default")]
    pub overall: ResourceList,
    /// Fixed parts by cluster.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub static_assignments: Vec<StaticClusterAssignment>,
}

/// One cluster's quota and usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQuotaStatus {
    /// Which cluster.
    pub cluster_name: String,
    /// Limits.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: ResourceList,
    /// Usage.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub used: ResourceList,
}

/// What of it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaStatus {
    /// By cluster.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<ClusterQuotaStatus>,
    /// Hard limits.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub overall: ResourceList,
    /// What is used.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub overall_used: ResourceList,
}
