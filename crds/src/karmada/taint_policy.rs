//! `ClusterTaintPolicy`: taints of clusters by their conditions.

use crate::{
    karmada::placement::ClusterAffinity,
    wire::{api_types, null_is_default, object},
};

object! {
    /// Taints clusters while their conditions say so.
    ClusterTaintPolicy, "policy.karmada.io", "v1alpha1", "clustertaintpolicies", ClusterResourceScope
    { spec: ClusterTaintPolicySpec } {  }
}

api_types! {
    /// A condition of a cluster.
    pub struct MatchCondition {
        pub condition_type: String,
        pub operator: String,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub status_values: Vec<String>,
    }

    /// A taint to be.
    pub struct PolicyTaint {
        pub effect: String,
        pub key: String,
        pub value: Option<String>,
    }

    /// When which clusters are tainted, and how.
    pub struct ClusterTaintPolicySpec {
        pub add_on_conditions: Vec<MatchCondition>,
        pub remove_on_conditions: Vec<MatchCondition>,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        #[schemars(extend("minItems" = 1))]
        pub taints: Vec<PolicyTaint>,
        /// Which clusters.
        pub target_clusters: Option<ClusterAffinity>,
    }
}
