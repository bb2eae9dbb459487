//! `cluster.karmada.io/v1alpha1`: Cluster. An aggregated API server serves it, so there is no CRD of it in a real
//! Karmada; the sandbox serves the CRD of this type in its place.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};

use crate::wire::{ResourceList, api_types, object, words};

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

api_types! {
    /// How to reach the member, and where it is.
    pub struct ClusterSpec {
        /// The UID of the member's kube-system namespace.
        pub id: Option<String>,
        /// Who brings objects into the cluster.
        pub sync_mode: Option<SyncMode>,
        /// URL of the member's API server.
        pub api_endpoint: Option<String>,
        /// Secret with keys `token` and `caBundle`.
        pub secret_ref: Option<LocalSecretReference>,
        /// Secret with the token of the impersonator.
        pub impersonator_secret_ref: Option<LocalSecretReference>,
        /// Whether the certificate goes unchecked.
        #[serde(rename = "insecureSkipTLSVerification")]
        pub insecure_skip_tls_verification: Option<bool>,
        /// Through this proxy.
        #[serde(rename = "proxyURL")]
        pub proxy_url: Option<String>,
        /// Headers for that proxy.
        pub proxy_header: BTreeMap<String, String>,
        /// Cloud provider.
        pub provider: Option<String>,
        /// Region.
        pub region: Option<String>,
        /// Deprecated; see `zones`.
        pub zone: Option<String>,
        /// Zones.
        pub zones: Vec<String>,
        /// Taints that placements must stand.
        pub taints: Vec<Taint>,
        /// Classes of nodes, for Karmada's estimates.
        pub resource_models: Vec<ResourceModel>,
    }

    /// A Secret.
    pub struct LocalSecretReference {
        /// Namespace.
        pub namespace: String,
        /// Name.
        pub name: String,
    }

    /// A class of nodes.
    pub struct ResourceModel {
        /// Its number.
        #[schemars(extend("format" = null, "minimum" = null))]
        pub grade: u64,
        /// Its bounds.
        pub ranges: Vec<ResourceModelRange>,
    }

    /// From `min` (in) to `max` (out) of one resource.
    pub struct ResourceModelRange {
        /// The resource.
        pub name: String,
        /// In.
        pub min: Quantity,
        /// Out.
        pub max: Quantity,
    }

    /// What is known of the member.
    pub struct ClusterStatus {
        /// The API server's version.
        pub kubernetes_version: Option<String>,
        /// Kinds that the member serves.
        pub api_enablements: Vec<ApiEnablement>,
        /// `Ready` and others.
        pub conditions: Vec<Condition>,
        /// Number of nodes.
        pub node_summary: Option<NodeSummary>,
        /// Sums over the nodes; absent until first collected.
        pub resource_summary: Option<ResourceSummary>,
        /// What remedies ask for.
        pub remedy_actions: Vec<String>,
    }

    /// Kinds of one API group and version.
    pub struct ApiEnablement {
        /// `group/version`.
        pub group_version: String,
        /// Its kinds.
        pub resources: Vec<ApiResource>,
    }

    /// One kind.
    pub struct ApiResource {
        /// Plural.
        pub name: String,
        /// Kind.
        pub kind: String,
    }

    /// Number of nodes.
    pub struct NodeSummary {
        /// All.
        pub total_num: Option<i32>,
        /// Ready ones.
        pub ready_num: Option<i32>,
    }

    /// Sums over the nodes and pods of a member.
    pub struct ResourceSummary {
        /// Over all nodes, not ready and cordoned ones too.
        pub allocatable: ResourceList,
        /// Requests of pods without a node.
        pub allocating: ResourceList,
        /// Requests of pods with a node that are not finished.
        pub allocated: ResourceList,
        /// Free nodes by class.
        pub allocatable_modelings: Vec<AllocatableModeling>,
    }

    /// Free nodes of one class.
    pub struct AllocatableModeling {
        /// The class.
        #[schemars(extend("format" = null, "minimum" = null))]
        pub grade: u64,
        /// How many.
        #[schemars(extend("format" = null))]
        pub count: i64,
    }
}
