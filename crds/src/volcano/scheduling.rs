//! `scheduling.volcano.sh/v1beta1`: Queue and PodGroup.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use crate::{
    schema::DNS_SUBDOMAIN,
    volcano::batch::NetworkTopologySpec,
    wire::{ResourceList, api_types, object, words},
};

words! {
    /// Phases of a PodGroup.
    PodGroupPhase {
        Pending = "Pending",
        Running = "Running",
        Unknown = "Unknown",
        Inqueue = "Inqueue",
        Completed = "Completed",
    }
}
words! {
    /// States of a queue.
    QueueState { Open = "Open", Closed = "Closed", Closing = "Closing", Unknown = "Unknown", }
}
words! {
    /// Whether a blocked head blocks the rest.
    DequeueStrategy { Fifo = "fifo", Traverse = "traverse", }
}
object! {
    /// Pods that start together. There is no status subresource: status is written with the rest.
    PodGroup, "scheduling.volcano.sh", "v1beta1", "podgroups", NamespaceResourceScope
    { spec: PodGroupSpec } { status: PodGroupStatus }
}
object! {
    /// A queue and its quota.
    Queue, "scheduling.volcano.sh", "v1beta1", "queues", ClusterResourceScope
    { spec: QueueSpec } { status: QueueStatus }
}

api_types! {
    /// Parts of a group that must be close.
    pub struct SubGroupPolicySpec {
        /// Its pods.
        pub label_selector: Option<LabelSelector>,
        /// Pods with the same values are one group.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        pub match_label_keys: Vec<String>,
        /// Groups needed.
        #[schemars(extend("default" = 0, "minimum" = 0))]
        pub min_sub_groups: Option<i32>,
        /// The task's name.
        #[schemars(extend("maxLength" = 253))]
        pub name: Option<String>,
        /// How close its pods must be.
        pub network_topology: Option<NetworkTopologySpec>,
        /// Pods of one group.
        #[schemars(extend("default" = 1, "minimum" = 1))]
        pub sub_group_size: Option<i32>,
    }

    /// Pods that start together.
    pub struct PodGroupSpec {
        /// Pods that must start together.
        #[schemars(extend("minimum" = 0))]
        pub min_member: Option<i32>,
        /// What those pods need.
        pub min_resources: ResourceList,
        /// The same by task.
        pub min_task_member: BTreeMap<String, i32>,
        /// How close its pods must be.
        pub network_topology: Option<NetworkTopologySpec>,
        /// Its priority.
        #[schemars(extend("maxLength" = 253))]
        pub priority_class_name: Option<String>,
        /// The queue that is charged.
        #[schemars(extend("default" = "default", "maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
        pub queue: Option<String>,
        /// Parts that must be close.
        pub sub_group_policy: Vec<SubGroupPolicySpec>,
    }

    /// What is the case.
    pub struct PodGroupCondition {
        /// Since when.
        pub last_transition_time: Option<Time>,
        /// As a sentence.
        pub message: Option<String>,
        /// As one word.
        pub reason: Option<String>,
        /// `True`, `False` or `Unknown`.
        pub status: Option<String>,
        /// The scheduling session's.
        #[serde(rename = "transitionID")]
        pub transition_id: Option<String>,
        /// `Unschedulable` or `Scheduled`.
        #[serde(rename = "type")]
        pub type_: Option<String>,
    }

    /// Where they stand.
    pub struct PodGroupStatus {
        /// What is the case, and since when.
        pub conditions: Vec<PodGroupCondition>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub failed: Option<i32>,
        /// The phase.
        pub phase: Option<PodGroupPhase>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub running: Option<i32>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub succeeded: Option<i32>,
    }

    /// Node groups, required or preferred.
    pub struct NodeGroupAffinity {
        /// Better these.
        pub preferred_during_scheduling_ignored_during_execution: Vec<String>,
        /// Only these.
        pub required_during_scheduling_ignored_during_execution: Vec<String>,
    }

    /// Node groups of the queue.
    pub struct QueueAffinity {
        /// In these.
        pub node_group_affinity: Option<NodeGroupAffinity>,
        /// Not in these.
        pub node_group_anti_affinity: Option<NodeGroupAffinity>,
    }

    /// Legacy forwarding to a cluster.
    pub struct ExtendCluster {
        /// Its size.
        pub capacity: ResourceList,
        /// The cluster.
        pub name: Option<String>,
        /// Its weight.
        pub weight: Option<i32>,
    }

    /// Resources kept free even when idle.
    pub struct Guarantee {
        /// How much.
        pub resource: ResourceList,
    }

    /// A queue and its quota.
    pub struct QueueSpec {
        /// Node groups of the queue.
        pub affinity: Option<QueueAffinity>,
        /// Hard limit; an absent name has none.
        pub capability: ResourceList,
        /// Whether a blocked head blocks the rest.
        #[schemars(extend("default" = "traverse"))]
        pub dequeue_strategy: Option<DequeueStrategy>,
        /// Entitlement; above it, reclaimable.
        pub deserved: ResourceList,
        /// Legacy forwarding.
        pub extend_clusters: Vec<ExtendCluster>,
        /// Kept free even when idle.
        pub guarantee: Option<Guarantee>,
        /// The queue above; empty means root.
        #[schemars(extend("maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
        pub parent: Option<String>,
        /// Higher is served first.
        #[schemars(extend("minimum" = 0))]
        pub priority: Option<i32>,
        /// Absent means yes.
        pub reclaimable: Option<bool>,
        /// Free text.
        #[serde(rename = "type")]
        #[schemars(extend("maxLength" = 253))]
        pub type_: Option<String>,
        /// Share where there is no `deserved`.
        #[schemars(extend("default" = 1, "minimum" = 1, "maximum" = 65535))]
        pub weight: Option<i32>,
    }

    /// Nodes kept for the queue.
    pub struct Reservation {
        /// Which.
        pub nodes: Vec<String>,
        /// How much they have.
        pub resource: ResourceList,
    }

    /// What it holds.
    pub struct QueueStatus {
        /// What its pods hold.
        pub allocated: ResourceList,
        /// PodGroups.
        #[schemars(extend("minimum" = 0))]
        pub completed: Option<i32>,
        /// PodGroups.
        #[schemars(extend("minimum" = 0))]
        pub inqueue: Option<i32>,
        /// PodGroups.
        #[schemars(extend("minimum" = 0))]
        pub pending: Option<i32>,
        /// Nodes kept for it.
        pub reservation: Option<Reservation>,
        /// PodGroups.
        #[schemars(extend("minimum" = 0))]
        pub running: Option<i32>,
        /// Whether it takes jobs.
        pub state: Option<QueueState>,
        /// PodGroups.
        #[schemars(extend("minimum" = 0))]
        pub unknown: Option<i32>,
    }
}
