//! `work.karmada.io`: ResourceBindings of templates to clusters (v1alpha2), and Works (v1alpha1), the manifests of one
//! member. Also the names that Karmada gives to the binding and the Works of a template.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use serde_json::Value;

use crate::{
    karmada::policy::{ConflictResolution, FailoverBehavior, Placement, SuspendClusters},
    schema::{REASON, any_object, any_objects},
    wire::{ResourceList, api_types, object, words},
};

/// The name of the binding of a template (`GenerateBindingName`, `pkg/util/names/names.go`): kind, not group, tells
/// templates of one name apart.
#[must_use]
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{kind}").to_lowercase().replace(':', ".")
}

/// The name of the Work of a template, the same in every execution namespace (`GenerateWorkName`,
/// `pkg/util/names/names.go`): the template's, and 32-bit FNV-1a of namespace, name and kind in
/// `k8s.io/apimachinery/pkg/util/rand`'s safe letters.
#[must_use]
pub fn work_name(kind: &str, name: &str, namespace: &str) -> String {
    let name = name.replace(':', ".").to_lowercase();
    let subject = if namespace.is_empty() { format!("{name}-{kind}") } else { format!("{namespace}-{name}-{kind}") };
    format!("{name}-{}", hash_to_safe_letters(&subject.to_lowercase()))
}

/// FNV-1a of a text, its decimal digits spelled in safe letters.
#[must_use]
pub fn hash_to_safe_letters(text: &str) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619)).to_string();
    hash.bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

words! {
    /// As the resource interpreter judges.
    ResourceHealth { Healthy = "Healthy", Unhealthy = "Unhealthy", Unknown = "Unknown", }
}
object! {
    /// The binding of a namespaced template to clusters.
    ResourceBinding, "work.karmada.io", "v1alpha2", "resourcebindings", NamespaceResourceScope
    { spec: ResourceBindingSpec } { status: ResourceBindingStatus }
}
object! {
    /// The binding of a cluster-wide template to clusters.
    ClusterResourceBinding, "work.karmada.io", "v1alpha2", "clusterresourcebindings", ClusterResourceScope
    { spec: ResourceBindingSpec } { status: ResourceBindingStatus }
}
object! {
    /// The manifests of one member, in its namespace `karmada-es-<cluster>`.
    Work, "work.karmada.io", "v1alpha1", "works", NamespaceResourceScope
    { spec: WorkSpec } { status: WorkStatus }
}

api_types! {
    /// Replicas of one pod template.
    pub struct TargetComponent {
        /// The pod template's name.
        pub name: String,
        /// Its replicas in this cluster.
        pub replicas: i32,
    }

    /// A chosen cluster.
    pub struct TargetCluster {
        /// Replicas by pod template; Karmada writes it and reads it nowhere.
        pub components: Vec<TargetComponent>,
        /// The cluster.
        pub name: String,
        /// Its replicas.
        pub replicas: Option<i32>,
    }

    /// Which nodes.
    pub struct NodeClaim {
        /// Required node affinity.
        pub hard_node_affinity: Option<NodeSelector>,
        /// Node labels.
        pub node_selector: BTreeMap<String, String>,
        /// Node taints it stands.
        pub tolerations: Vec<Toleration>,
    }

    /// What one of its replicas needs.
    pub struct ComponentReplicaRequirements {
        /// Which nodes.
        pub node_claim: Option<NodeClaim>,
        /// Its priority.
        pub priority_class_name: Option<String>,
        /// Of one replica.
        pub resource_request: ResourceList,
    }

    /// One pod template of several.
    pub struct Component {
        /// The pod template's name.
        #[schemars(extend("maxLength" = 32))]
        pub name: String,
        /// What one of its replicas needs.
        pub replica_requirements: Option<ComponentReplicaRequirements>,
        /// Its replicas.
        pub replicas: i32,
    }

    /// A cluster that is being left.
    pub struct GracefulEvictionTask {
        /// Where it was before.
        pub clusters_before_failover: Vec<String>,
        /// When the task was made.
        pub creation_timestamp: Option<Time>,
        /// The cluster that is left.
        pub from_cluster: String,
        /// How long to wait for the new place.
        pub grace_period_seconds: Option<i32>,
        /// Why, as a sentence.
        #[schemars(extend("maxLength" = 1024))]
        pub message: Option<String>,
        /// Labels for the next cluster.
        pub preserved_label_state: BTreeMap<String, String>,
        /// Who asked.
        pub producer: String,
        /// When its copy goes.
        #[schemars(extend("enum" = ["Directly", "Gracefully", "Never"]))]
        pub purge_mode: Option<String>,
        /// Why, as one word.
        #[schemars(extend("minLength" = 1, "maxLength" = 32, "pattern" = REASON))]
        pub reason: String,
        /// How many it had there.
        pub replicas: Option<i32>,
        /// Wait for the user before deleting.
        pub suppress_deletion: Option<bool>,
    }

    /// What one replica needs.
    pub struct ReplicaRequirements {
        /// The template's namespace.
        pub namespace: Option<String>,
        /// Which nodes.
        pub node_claim: Option<NodeClaim>,
        /// Its priority.
        pub priority_class_name: Option<String>,
        /// Of one replica.
        pub resource_request: ResourceList,
    }

    /// Where a dependent binding is.
    pub struct BindingSnapshot {
        /// Where it is.
        pub clusters: Vec<TargetCluster>,
        /// The binding's name.
        pub name: String,
        /// The binding's namespace.
        pub namespace: Option<String>,
    }

    /// The template.
    pub struct ObjectReference {
        /// `group/version`.
        pub api_version: String,
        /// Kind.
        pub kind: String,
        /// Name.
        pub name: String,
        /// Namespace, if it has one.
        pub namespace: Option<String>,
        /// When the binding was last made from it.
        pub resource_version: Option<String>,
        /// UID.
        pub uid: Option<String>,
    }

    /// The priority as a number.
    pub struct BindingSchedulePriority {
        /// Higher is first.
        #[schemars(extend("default" = 0))]
        pub priority: Option<i32>,
    }

    /// What is on hold.
    pub struct BindingSuspension {
        /// Nothing is sent to any cluster.
        pub dispatching: Option<bool>,
        /// Nothing is sent to these clusters.
        pub dispatching_on_clusters: Option<SuspendClusters>,
        /// No clusters are chosen: the gate.
        pub scheduling: Option<bool>,
    }

    /// The groups it is in.
    pub struct WorkloadAffinityGroups {
        /// To be near to.
        pub affinity_group: Option<String>,
        /// To be far from.
        pub anti_affinity_group: Option<String>,
    }

    /// A template, and the clusters it goes to.
    pub struct ResourceBindingSpec {
        /// The chosen clusters.
        pub clusters: Vec<TargetCluster>,
        /// Pod templates of a job with several.
        pub components: Vec<Component>,
        /// What to do with an object that is already in the member.
        #[schemars(extend("default" = "Abort"))]
        pub conflict_resolution: Option<ConflictResolution>,
        /// What happens when a cluster or the workload fails.
        pub failover: Option<FailoverBehavior>,
        /// Clusters that are being left.
        pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
        /// Where it may go; absent on a dependency's binding.
        pub placement: Option<Placement>,
        /// Members keep their objects when the template goes.
        pub preserve_resources_on_deletion: Option<bool>,
        /// ConfigMaps, Secrets and the like follow.
        pub propagate_deps: Option<bool>,
        /// What one replica needs.
        pub replica_requirements: Option<ReplicaRequirements>,
        /// Replicas of the template.
        pub replicas: Option<i32>,
        /// Bindings that depend on this one, and where they are.
        pub required_by: Vec<BindingSnapshot>,
        /// When a fresh schedule was asked for.
        pub reschedule_triggered_at: Option<Time>,
        /// The template.
        pub resource: ObjectReference,
        /// Who is placed first.
        pub schedule_priority: Option<BindingSchedulePriority>,
        /// Who chooses clusters.
        pub scheduler_name: Option<String>,
        /// What is on hold.
        pub suspension: Option<BindingSuspension>,
        /// The groups it is in.
        pub workload_affinity_groups: Option<WorkloadAffinityGroups>,
    }

    /// The status in one cluster.
    pub struct AggregatedStatusItem {
        /// Whether the member has the object.
        pub applied: Option<bool>,
        /// Why it has not.
        pub applied_message: Option<String>,
        /// Which cluster.
        pub cluster_name: String,
        /// As the interpreter judges.
        pub health: Option<ResourceHealth>,
        /// Its status there, as the interpreter tells.
        #[schemars(schema_with = "any_object")]
        pub status: Option<Value>,
    }

    /// What became of it.
    pub struct ResourceBindingStatus {
        /// By cluster.
        pub aggregated_status: Vec<AggregatedStatusItem>,
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
        /// When clusters were last chosen.
        pub last_scheduled_time: Option<Time>,
        /// The generation that the scheduler has seen.
        pub scheduler_observed_generation: Option<i64>,
        /// The affinity group in use (the JSON name really is "observing").
        pub scheduler_observing_affinity_name: Option<String>,
    }

    /// The objects.
    pub struct WorkloadTemplate {
        /// The objects for the member.
        #[schemars(schema_with = "any_objects")]
        pub manifests: Vec<Value>,
    }

    /// Objects for one member.
    pub struct WorkSpec {
        /// Members keep their objects when the template goes.
        pub preserve_resources_on_deletion: Option<bool>,
        /// Do not apply for now.
        pub suspend_dispatching: Option<bool>,
        /// What to apply.
        pub workload: Option<WorkloadTemplate>,
    }

    /// Which object.
    pub struct ResourceIdentifier {
        /// API group.
        pub group: Option<String>,
        /// Kind.
        pub kind: String,
        /// Name.
        pub name: String,
        /// Namespace, if it has one.
        pub namespace: Option<String>,
        /// Place in the list of manifests.
        #[schemars(extend("format" = null))]
        pub ordinal: i64,
        /// Plural.
        pub resource: String,
        /// API version.
        pub version: String,
    }

    /// The status of one object in the member.
    pub struct ManifestStatus {
        /// As the interpreter judges.
        pub health: Option<ResourceHealth>,
        /// Which manifest.
        pub identifier: ResourceIdentifier,
        /// Its status, as the interpreter tells.
        #[schemars(schema_with = "any_object")]
        pub status: Option<Value>,
    }

    /// What became of them.
    pub struct WorkStatus {
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
        /// By manifest.
        pub manifest_statuses: Vec<ManifestStatus>,
    }
}
