//! `batch.volcano.sh/v1alpha1`: Job.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    schema::{DNS_LABEL, DNS_SUBDOMAIN},
    wire::{null_is_default, object, words},
};

words! {
    /// Phases of a job.
    JobPhase {
        Pending = "Pending",
        Aborting = "Aborting",
        Aborted = "Aborted",
        Running = "Running",
        Restarting = "Restarting",
        Completing = "Completing",
        Completed = "Completed",
        Terminating = "Terminating",
        Terminated = "Terminated",
        Failed = "Failed",
    }
}
words! {
    /// What a lifecycle policy waits for.
    LifecycleEvent {
        Any = "*",
        PodPending = "PodPending",
        PodRunning = "PodRunning",
        PodFailed = "PodFailed",
        PodEvicted = "PodEvicted",
        Unknown = "Unknown",
        TaskCompleted = "TaskCompleted",
        OutOfSync = "OutOfSync",
        CommandIssued = "CommandIssued",
        JobUpdated = "JobUpdated",
        TaskFailed = "TaskFailed",
    }
}
words! {
    /// Whether a network topology is a must.
    NetworkTopologyMode { Hard = "hard", Soft = "soft", }
}
object! {
    /// A batch job of one or more tasks.
    Job, "batch.volcano.sh", "v1alpha1", "jobs", NamespaceResourceScope
    { spec: JobSpec } { status: JobStatus }
}

/// How close pods must be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTopologySpec {
    /// The highest tier (lower is closer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = null, "minimum" = 0))]
    pub highest_tier_allowed: Option<i64>,
    /// The same by name; give one of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 253))]
    pub highest_tier_name: Option<String>,
    /// Whether it is a must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "hard"))]
    pub mode: Option<NetworkTopologyMode>,
}

/// What to do upon an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecyclePolicy {
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Upon this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<LifecycleEvent>,
    /// Upon any of these.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<LifecycleEvent>,
    /// Instead of an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Wait so long before acting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// Tasks that must be ready before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependsOn {
    /// `any` or `all` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<String>,
    /// The tasks.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub name: Vec<String>,
}

/// Sizes that must not be cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionPolicySpec {
    /// How many are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0, "minimum" = 0))]
    pub min_partitions: Option<i32>,
    /// How close its pods must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// Pods of each.
    #[schemars(extend("minimum" = 1))]
    pub partition_size: i32,
    /// How many.
    #[schemars(extend("minimum" = 1))]
    pub total_partitions: i32,
}

/// A pod template and its replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Tasks that must be ready before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// Restarts before it counts as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub max_retry: Option<i32>,
    /// Pods needed; absent means all replicas, or the needed partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub min_available: Option<i32>,
    /// Unique in the job; Volcano writes `default<i>` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 63, "pattern" = DNS_LABEL))]
    pub name: Option<String>,
    /// Sizes that must not be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_policy: Option<PartitionPolicySpec>,
    /// What to do upon events.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<LifecyclePolicy>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub replicas: Option<i32>,
    /// Of every pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    /// NUMA policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["none", "best-effort", "restricted", "single-numa-node"]))]
    pub topology_policy: Option<String>,
}

/// A volume in every pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Where.
    #[schemars(extend("minLength" = 1, "pattern" = "^[^:]+$"))]
    pub mount_path: String,
    /// A claim made for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<PersistentVolumeClaimSpec>,
    /// A claim that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 253))]
    pub volume_claim_name: Option<String>,
}

/// A batch job of one or more tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// Restarts before it counts as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 3, "minimum" = 0))]
    pub max_retry: Option<i32>,
    /// Pods that must start together; absent and 0 mean the sum over the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub min_available: Option<i32>,
    /// Pods that must succeed for the job to be complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1))]
    pub min_success: Option<i32>,
    /// How close its pods must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// Plugins and their arguments.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, Vec<String>>,
    /// What to do upon events.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<LifecyclePolicy>,
    /// Its priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
    pub priority_class_name: Option<String>,
    /// The queue that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default", "maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
    pub queue: Option<String>,
    /// How long it should run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_estimate: Option<String>,
    /// The member's scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 63))]
    pub scheduler_name: Option<String>,
    /// The pod templates.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("minItems" = 1))]
    pub tasks: Vec<TaskSpec>,
    /// How long it is kept once finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// In every pod.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeSpec>,
}

/// When a phase was entered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The phase.
    pub status: String,
}

/// The phase, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobState {
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// Why, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Pods by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskState {
    /// Pods by pod phase.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub phase: BTreeMap<String, i32>,
}

/// Where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Every phase it entered, and when.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<JobCondition>,
    /// What the job controller made for it.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub controlled_resources: BTreeMap<String, String>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub failed: Option<i32>,
    /// As in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub min_available: Option<i32>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub pending: Option<i32>,
    /// Restarts so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub retry_count: Option<i32>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub running: Option<i32>,
    /// How long it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_duration: Option<String>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub succeeded: Option<i32>,
    /// Pods by task and phase.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub task_status_count: BTreeMap<String, TaskState>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub terminating: Option<i32>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub unknown: Option<i32>,
    /// Raised when its pods are killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub version: Option<i32>,
}
