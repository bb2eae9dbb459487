//! `training.volcano.sh/v1alpha1`: HyperJob.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    volcano::batch::{JobSpec, JobState},
    wire::{api_types, object, words},
};

words! {
    /// Who says over how many clusters a replicated job is split.
    SplitMode { Static = "static", Auto = "auto", }
}
object! {
    /// Volcano Jobs that are one training.
    HyperJob, "training.volcano.sh", "v1alpha1", "hyperjobs", NamespaceResourceScope
    { spec: HyperJobSpec } { status: HyperJobStatus }
}

api_types! {
    /// Over how many clusters a replicated job is split.
    pub struct SplitPolicy {
        /// The kind of accelerator that the numbers are about.
        pub accelerator_type: Option<String>,
        /// Accelerators of all replicas together.
        #[schemars(extend("format" = null))]
        pub accelerators: Option<i64>,
        /// `static`: each replica is one cluster's. `auto`: each may be split.
        pub mode: Option<SplitMode>,
    }

    /// A template, and how many jobs are made of it.
    pub struct ReplicatedJob {
        /// Clusters that are preferred.
        pub cluster_names: Vec<String>,
        /// Unique in the HyperJob.
        pub name: String,
        /// Jobs.
        #[schemars(extend("default" = 1))]
        pub replicas: Option<i32>,
        /// Over how many clusters each is split.
        pub split_policy: Option<SplitPolicy>,
        /// Of each job.
        pub template_spec: JobSpec,
    }

    /// Volcano Jobs that are one training.
    pub struct HyperJobSpec {
        /// Clusters that a job is split over at most.
        pub max_domains: Option<i32>,
        /// Jobs that are needed; absent means all.
        pub min_available: Option<i32>,
        /// Plugins and their arguments.
        pub plugins: BTreeMap<String, Vec<String>>,
        /// The templates.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
        pub replicated_jobs: Vec<ReplicatedJob>,
    }

    /// Where the jobs of one template stand; the numbers are pods.
    pub struct ReplicatedJobStatus {
        /// Pods.
        pub failed: Option<i32>,
        /// By the name of the job. What ended stays here when its job is gone.
        pub job_states: BTreeMap<String, JobState>,
        /// As in the spec.
        pub name: String,
        /// Pods.
        pub pending: Option<i32>,
        /// Pods.
        pub running: Option<i32>,
        /// Pods.
        pub succeeded: Option<i32>,
        /// Pods.
        pub terminating: Option<i32>,
        /// Pods.
        pub unknown: Option<i32>,
    }

    /// Where it stands.
    pub struct HyperJobStatus {
        /// What is the case, and since when.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        pub conditions: Vec<Condition>,
        /// What of the spec this is about.
        pub observed_generation: Option<i64>,
        /// By template.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
        pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
        /// Jobs in all.
        pub split_count: Option<i32>,
    }
}
