//! `cluster.karmada.io/v1alpha1`: Cluster. An aggregated API server serves it, so there is no CRD of it in a real
//! Karmada; the sandbox serves the CRD of this type in its place.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{ResourceList, null_is_default, object, words};

/// Condition type: the cluster answers and is healthy.
pub const READY: &str = "Ready";

words! {
    /// Who brings objects into the cluster.
    SyncMode { Push = "Push", Pull = "Pull", }
}

object! {
    /// A member cluster.
    Cluster, "cluster.karmada.io", "v1alpha1", "clusters", ClusterResourceScope
    { spec: ClusterSpec } { status: ClusterStatus }
}

/// How to reach the member, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The UID of the member's kube-system namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Who brings objects into the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_mode: Option<SyncMode>,
    /// URL of the member's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// Secret with keys `token` and `caBundle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecretReference>,
    /// Secret with the token of the impersonator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,
    /// Whether the certificate goes unchecked.
    #[serde(default, rename = "insecureSkipTLSVerification", skip_serializing_if = "Option::is_none")]
    pub insecure_skip_tls_verification: Option<bool>,
    /// Through this proxy.
    #[serde(default, rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// Headers for that proxy.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_header: BTreeMap<String, String>,
    /// Cloud provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Deprecated; see `zones`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Zones.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Taints that placements must stand.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Classes of nodes, for Karmada's estimates.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_models: Vec<ResourceModel>,
}

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalSecretReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A class of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModel {
    /// Its number.
    #[schemars(extend("format" = null, "minimum" = null))]
    pub grade: u64,
    /// Its bounds.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ResourceModelRange>,
}

/// From `min` (in) to `max` (out) of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModelRange {
    /// The resource.
    pub name: String,
    /// In.
    pub min: Quantity,
    /// Out.
    pub max: Quantity,
}

/// What is known of the member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The API server's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Kinds that the member serves.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<ApiEnablement>,
    /// `Ready` and others.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// Sums over the nodes; absent until first collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// What remedies ask for.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub remedy_actions: Vec<String>,
}

/// Kinds of one API group and version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// `group/version`.
    pub group_version: String,
    /// Its kinds.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ApiResource>,
}

/// One kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// Plural.
    pub name: String,
    /// Kind.
    pub kind: String,
}

/// Number of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// All.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_num: Option<i32>,
    /// Ready ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_num: Option<i32>,
}

/// Sums over the nodes and pods of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// Over all nodes, not ready and cordoned ones too.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "ResourceList::is_empty")]
    pub allocatable: ResourceList,
    /// Requests of pods without a node.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "ResourceList::is_empty")]
    pub allocating: ResourceList,
    /// Requests of pods with a node that are not finished.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "ResourceList::is_empty")]
    pub allocated: ResourceList,
    /// Free nodes by class.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// Free nodes of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatableModeling {
    /// The class.
    #[schemars(extend("format" = null, "minimum" = null))]
    pub grade: u64,
    /// How many.
    #[schemars(extend("format" = null))]
    pub count: i64,
}
