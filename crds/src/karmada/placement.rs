//! Where a workload may go: the part that policies and bindings share (`policy.karmada.io/v1alpha1`).

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::wire::{api_types, words};

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

api_types! {
    /// Selects clusters by provider, region or zone.
    pub struct FieldSelector {
        /// All must match.
        pub match_expressions: Vec<NodeSelectorRequirement>,
    }

    /// A named set of clusters that takes what does not fit.
    pub struct OverflowAffinityTerm {
        /// The group's name, unique in the policy.
        #[schemars(extend("minLength" = 1, "maxLength" = 32))]
        pub affinity_name: String,
        /// Which clusters.
        #[serde(flatten)]
        pub affinity: ClusterAffinity,
    }

    /// A named set of clusters, with sets that take the overflow.
    pub struct ClusterAffinityTerm {
        /// The group's name, unique in the policy.
        #[schemars(extend("minLength" = 1, "maxLength" = 32))]
        pub affinity_name: String,
        /// Which clusters.
        #[serde(flatten)]
        pub affinity: ClusterAffinity,
        /// Further groups that take what does not fit.
        pub overflow_affinities: Vec<OverflowAffinityTerm>,
    }

    /// A set of clusters.
    pub struct ClusterAffinity {
        /// By name.
        pub cluster_names: Vec<String>,
        /// Never these.
        pub exclude: Vec<String>,
        /// By provider, region or zone.
        pub field_selector: Option<FieldSelector>,
        /// By label.
        pub label_selector: Option<LabelSelector>,
    }

    /// One weight.
    pub struct StaticClusterWeight {
        /// Which clusters.
        pub target_cluster: ClusterAffinity,
        /// Their weight.
        #[schemars(extend("minimum" = 1))]
        pub weight: i64,
    }

    /// Weights of a division.
    pub struct ClusterPreferences {
        /// Weights computed from the clusters.
        pub dynamic_weight: Option<DynamicWeight>,
        /// Weights given by hand.
        pub static_weight_list: Vec<StaticClusterWeight>,
    }

    /// How replicas are divided.
    pub struct ReplicaSchedulingStrategy {
        /// How to divide.
        pub replica_division_preference: Option<ReplicaDivisionPreference>,
        /// Whether each cluster gets all replicas or a part.
        #[schemars(extend("default" = "Divided"))]
        pub replica_scheduling_type: Option<ReplicaSchedulingType>,
        /// Weights of the division.
        pub weight_preference: Option<ClusterPreferences>,
    }

    /// How many groups of clusters.
    pub struct SpreadConstraint {
        /// At most so many groups.
        #[schemars(extend("format" = null))]
        pub max_groups: Option<i64>,
        /// At least so many groups.
        #[schemars(extend("format" = null))]
        pub min_groups: Option<i64>,
        /// What a group is.
        pub spread_by_field: Option<SpreadField>,
        /// What a group is, by a cluster label.
        pub spread_by_label: Option<String>,
    }

    /// A group of workloads.
    pub struct WorkloadAffinityTerm {
        /// Workloads with the same value of this label are a group.
        pub group_by_label_key: String,
    }

    /// Workloads to be near to or far from.
    pub struct WorkloadAffinity {
        /// To be near to.
        pub affinity: Option<WorkloadAffinityTerm>,
        /// To be far from.
        pub anti_affinity: Option<WorkloadAffinityTerm>,
    }

    /// Where a workload may go.
    pub struct Placement {
        /// Groups of candidate clusters, tried in order.
        pub cluster_affinities: Vec<ClusterAffinityTerm>,
        /// The one group of candidate clusters.
        pub cluster_affinity: Option<ClusterAffinity>,
        /// Cluster taints that the workload stands.
        pub cluster_tolerations: Vec<Toleration>,
        /// How replicas are divided; absent means duplicated.
        pub replica_scheduling: Option<ReplicaSchedulingStrategy>,
        /// How many groups of clusters to use.
        pub spread_constraints: Vec<SpreadConstraint>,
        /// Workloads to be near to or far from.
        pub workload_affinity: Option<WorkloadAffinity>,
    }
}
