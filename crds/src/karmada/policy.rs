//! `policy.karmada.io/v1alpha1`: propagation policies, override policies and federated quotas.

use crate::wire::{ResourceList, api_types, null_is_default, object, words};

pub use super::{overrides::*, placement::*, resource_selector::*, taint_policy::*};

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

api_types! {
    /// When it counts as failed.
    pub struct DecisionConditions {
        /// Unhealthy for so long.
        #[schemars(extend("default" = 300))]
        pub toleration_seconds: Option<i32>,
    }

    /// One label made from one status field.
    pub struct StatePreservationRule {
        /// The label.
        pub alias_label_name: String,
        /// Where in the status its value is.
        pub json_path: String,
    }

    /// State carried to the next cluster.
    pub struct StatePreservation {
        /// One label each.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub rules: Vec<StatePreservationRule>,
    }

    /// Upon the workload's failure.
    pub struct ApplicationFailover {
        /// When it counts as failed.
        pub decision_conditions: DecisionConditions,
        /// How long to wait for the new place.
        pub grace_period_seconds: Option<i32>,
        /// When its copy goes.
        #[schemars(extend("default" = "Gracefully", "enum" = ["Directly", "Gracefully", "Never"]))]
        pub purge_mode: Option<String>,
        /// What to carry over.
        pub state_preservation: Option<StatePreservation>,
    }

    /// Upon the cluster's failure.
    pub struct ClusterFailover {
        /// When its copy goes.
        #[schemars(extend("default" = "Gracefully", "enum" = ["Directly", "Gracefully"]))]
        pub purge_mode: Option<String>,
        /// What to carry over.
        pub state_preservation: Option<StatePreservation>,
    }

    /// What happens upon failure.
    pub struct FailoverBehavior {
        /// Upon the workload's failure.
        pub application: Option<ApplicationFailover>,
        /// Upon the cluster's failure.
        pub cluster: Option<ClusterFailover>,
    }

    /// Where the priority comes from.
    pub struct SchedulePriority {
        /// The class.
        pub priority_class_name: String,
        /// Only `KubePriorityClass` works.
        #[schemars(extend("enum" = ["KubePriorityClass"]))]
        pub priority_class_source: String,
    }

    /// A list of clusters.
    pub struct SuspendClusters {
        /// By name.
        pub cluster_names: Vec<String>,
    }

    /// What is on hold.
    pub struct Suspension {
        /// Nothing is sent to any cluster.
        pub dispatching: Option<bool>,
        /// Nothing is sent to these clusters.
        pub dispatching_on_clusters: Option<SuspendClusters>,
    }

    /// Spec of a PropagationPolicy and of its cluster-wide twin.
    pub struct PropagationSpec {
        /// `Lazy`: changes of the policy wait for the next change of the template.
        #[schemars(extend("enum" = ["Lazy"]))]
        pub activation_preference: Option<String>,
        /// Deprecated; see `propagate_deps`.
        pub association: Option<bool>,
        /// What to do with an object that is already in the member.
        #[schemars(extend("default" = "Abort"))]
        pub conflict_resolution: Option<ConflictResolution>,
        /// Override policies that must be there first.
        pub dependent_overrides: Vec<String>,
        /// What happens when a cluster or the workload fails.
        pub failover: Option<FailoverBehavior>,
        /// Where it may go; absent on a dependency's binding.
        pub placement: Option<Placement>,
        /// Whether it may take templates from another policy.
        #[schemars(extend("default" = "Never", "enum" = ["Always", "Never"]))]
        pub preemption: Option<String>,
        /// Members keep their objects when the template goes.
        pub preserve_resources_on_deletion: Option<bool>,
        /// Which of several matching policies wins.
        #[schemars(extend("default" = 0))]
        pub priority: Option<i32>,
        /// ConfigMaps, Secrets and the like follow.
        pub propagate_deps: Option<bool>,
        /// What the policy selects.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        #[schemars(extend("minItems" = 1))]
        pub resource_selectors: Vec<ResourceSelector>,
        /// Who is placed first.
        pub schedule_priority: Option<SchedulePriority>,
        /// Who chooses clusters.
        #[schemars(extend("default" = "default-scheduler"))]
        pub scheduler_name: Option<String>,
        /// What is on hold.
        pub suspension: Option<Suspension>,
    }

    /// One cluster's fixed part.
    pub struct StaticClusterAssignment {
        /// Which cluster.
        pub cluster_name: String,
        /// Limits.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub hard: ResourceList,
    }

    /// A namespace's quota over all clusters.
    pub struct FederatedResourceQuotaSpec {
        /// Hard limits.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub overall: ResourceList,
        /// Fixed parts by cluster.
        pub static_assignments: Vec<StaticClusterAssignment>,
    }

    /// One cluster's quota and usage.
    pub struct ClusterQuotaStatus {
        /// Which cluster.
        pub cluster_name: String,
        /// Limits.
        pub hard: ResourceList,
        /// Usage.
        pub used: ResourceList,
    }

    /// What of it is used.
    pub struct FederatedResourceQuotaStatus {
        /// By cluster.
        pub aggregated_status: Vec<ClusterQuotaStatus>,
        /// Hard limits.
        pub overall: ResourceList,
        /// What is used.
        pub overall_used: ResourceList,
    }
}
