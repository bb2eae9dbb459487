//! `work.karmada.io/v1alpha1` bindings: served but not stored; here because the CRD lists it.


use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::{
    schema::any_object,
    wire::{api_types, ResourceList, object},
};

object! {
    /// The binding of a namespaced template to clusters.
    ResourceBinding, "work.karmada.io", "v1alpha1", "resourcebindings", NamespaceResourceScope
    { spec: ResourceBindingSpec } { status: ResourceBindingStatus }
}
object! {
    /// The binding of a cluster-wide template to clusters.
    ClusterResourceBinding, "work.karmada.io", "v1alpha1", "clusterresourcebindings", ClusterResourceScope
    { spec: ResourceBindingSpec } { status: ResourceBindingStatus }
}

api_types! {
    /// A chosen cluster.
    pub struct TargetCluster {
        pub name: String,
        /// Its replicas.
        pub replicas: Option<i32>,
    }

    /// The template.
    pub struct ObjectReference {
        pub api_version: String,
        pub kind: String,
        pub name: String,
        pub namespace: Option<String>,
        pub replicas: Option<i32>,
        pub resource_per_replicas: ResourceList,
        pub resource_version: Option<String>,
    }

    /// Spec of the older version.
    pub struct ResourceBindingSpec {
        /// The chosen clusters.
        pub clusters: Vec<TargetCluster>,
        /// The template.
        pub resource: ObjectReference,
    }

    /// The status in one cluster.
    pub struct AggregatedStatusItem {
        /// Whether the member has the object.
        pub applied: Option<bool>,
        /// Why it has not.
        pub applied_message: Option<String>,
        /// Which cluster.
        pub cluster_name: String,
        #[schemars(schema_with = "any_object")]
        pub status: Option<Value>,
    }

    /// Status of the older version.
    pub struct ResourceBindingStatus {
        /// By cluster.
        pub aggregated_status: Vec<AggregatedStatusItem>,
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
    }
}
