//! `batch.volcano.sh/v1alpha1`: Job.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    schema::{DNS_LABEL, DNS_SUBDOMAIN},
    wire::{api_types, object, words},
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

api_types! {
    /// How close pods must be.
    pub struct NetworkTopologySpec {
        /// The highest tier (lower is closer).
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub highest_tier_allowed: Option<i64>,
        /// The same by name; give one of both.
        #[schemars(extend("maxLength" = 253))]
        pub highest_tier_name: Option<String>,
        /// Whether it is a must.
        #[schemars(extend("default" = "hard"))]
        pub mode: Option<NetworkTopologyMode>,
    }

    /// What to do upon an event.
    pub struct LifecyclePolicy {
        /// What to do.
        pub action: Option<String>,
        /// Upon this.
        pub event: Option<LifecycleEvent>,
        /// Upon any of these.
        pub events: Vec<LifecycleEvent>,
        /// Instead of an event.
        pub exit_code: Option<i32>,
        /// Wait so long before acting.
        pub timeout: Option<String>,
    }

    /// Tasks that must be ready before.
    pub struct DependsOn {
        /// `any` or `all` of them.
        pub iteration: Option<String>,
        /// The tasks.
        pub name: Vec<String>,
    }

    /// Sizes that must not be cut.
    pub struct PartitionPolicySpec {
        /// How many are needed.
        #[schemars(extend("default" = 0, "minimum" = 0))]
        pub min_partitions: Option<i32>,
        /// How close its pods must be.
        pub network_topology: Option<NetworkTopologySpec>,
        /// Pods of each.
        #[schemars(extend("minimum" = 1))]
        pub partition_size: i32,
        /// How many.
        #[schemars(extend("minimum" = 1))]
        pub total_partitions: i32,
    }

    /// A pod template and its replicas.
    pub struct TaskSpec {
        /// Tasks that must be ready before.
        pub depends_on: Option<DependsOn>,
        /// Restarts before it counts as failed.
        #[schemars(extend("minimum" = 0))]
        pub max_retry: Option<i32>,
        /// Pods needed; absent means all replicas, or the needed partitions.
        #[schemars(extend("minimum" = 0))]
        pub min_available: Option<i32>,
        /// Unique in the job; Volcano writes `default<i>` if there is none.
        #[schemars(extend("maxLength" = 63, "pattern" = DNS_LABEL))]
        pub name: Option<String>,
        /// Sizes that must not be cut.
        pub partition_policy: Option<PartitionPolicySpec>,
        /// What to do upon events.
        pub policies: Vec<LifecyclePolicy>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub replicas: Option<i32>,
        /// Of every pod.
        pub template: Option<PodTemplateSpec>,
        /// NUMA policy.
        #[schemars(extend("enum" = ["none", "best-effort", "restricted", "single-numa-node"]))]
        pub topology_policy: Option<String>,
    }

    /// A volume in every pod.
    pub struct VolumeSpec {
        /// Where.
        #[schemars(extend("minLength" = 1, "pattern" = "^[^:]+$"))]
        pub mount_path: String,
        /// A claim made for the job.
        pub volume_claim: Option<PersistentVolumeClaimSpec>,
        /// A claim that is there.
        #[schemars(extend("maxLength" = 253))]
        pub volume_claim_name: Option<String>,
    }

    /// A batch job of one or more tasks.
    pub struct JobSpec {
        /// Restarts before it counts as failed.
        #[schemars(extend("default" = 3, "minimum" = 0))]
        pub max_retry: Option<i32>,
        /// Pods that must start together; absent and 0 mean the sum over the tasks.
        #[schemars(extend("minimum" = 0))]
        pub min_available: Option<i32>,
        /// Pods that must succeed for the job to be complete.
        #[schemars(extend("minimum" = 1))]
        pub min_success: Option<i32>,
        /// How close its pods must be.
        pub network_topology: Option<NetworkTopologySpec>,
        /// Plugins and their arguments.
        pub plugins: BTreeMap<String, Vec<String>>,
        /// What to do upon events.
        pub policies: Vec<LifecyclePolicy>,
        /// Its priority.
        #[schemars(extend("maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
        pub priority_class_name: Option<String>,
        /// The queue that is charged.
        #[schemars(extend("default" = "default", "maxLength" = 253, "pattern" = DNS_SUBDOMAIN))]
        pub queue: Option<String>,
        /// How long it should run.
        pub running_estimate: Option<String>,
        /// The member's scheduler.
        #[schemars(extend("maxLength" = 63))]
        pub scheduler_name: Option<String>,
        /// The pod templates.
        #[schemars(extend("minItems" = 1))]
        pub tasks: Vec<TaskSpec>,
        /// How long it is kept once finished.
        #[schemars(extend("minimum" = 0))]
        pub ttl_seconds_after_finished: Option<i32>,
        /// In every pod.
        pub volumes: Vec<VolumeSpec>,
    }

    /// When a phase was entered.
    pub struct JobCondition {
        /// When.
        pub last_transition_time: Option<Time>,
        /// The phase.
        pub status: String,
    }

    /// The phase, and why.
    pub struct JobState {
        /// Since when.
        pub last_transition_time: Option<Time>,
        /// Why, as a sentence.
        pub message: Option<String>,
        /// The phase.
        pub phase: Option<JobPhase>,
        /// Why, as one word.
        pub reason: Option<String>,
    }

    /// Pods by phase.
    pub struct TaskState {
        /// Pods by pod phase.
        pub phase: BTreeMap<String, i32>,
    }

    /// Where it stands.
    pub struct JobStatus {
        /// Every phase it entered, and when.
        pub conditions: Vec<JobCondition>,
        /// What the job controller made for it.
        pub controlled_resources: BTreeMap<String, String>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub failed: Option<i32>,
        /// As in the spec.
        #[schemars(extend("minimum" = 0))]
        pub min_available: Option<i32>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub pending: Option<i32>,
        /// Restarts so far.
        #[schemars(extend("minimum" = 0))]
        pub retry_count: Option<i32>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub running: Option<i32>,
        /// How long it has run.
        pub running_duration: Option<String>,
        /// Where it stands.
        pub state: Option<JobState>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub succeeded: Option<i32>,
        /// Pods by task and phase.
        pub task_status_count: BTreeMap<String, TaskState>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub terminating: Option<i32>,
        /// Pods.
        #[schemars(extend("minimum" = 0))]
        pub unknown: Option<i32>,
        /// Raised when its pods are killed.
        #[schemars(extend("minimum" = 0))]
        pub version: Option<i32>,
    }
}
