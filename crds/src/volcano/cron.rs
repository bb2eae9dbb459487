//! `batch.volcano.sh/v1alpha1`: CronJob.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};

use crate::{
    volcano::batch::JobSpec,
    wire::{api_types, object, words},
};

words! {
    /// What to do when a run is due and an earlier one has not ended.
    ConcurrencyPolicy { Allow = "Allow", Forbid = "Forbid", Replace = "Replace", }
}
object! {
    /// A Volcano Job at each time of a schedule.
    CronJob, "batch.volcano.sh", "v1alpha1", "cronjobs", NamespaceResourceScope
    { spec: CronJobSpec } { status: CronJobStatus }
}

api_types! {
    /// What its jobs have beside a name.
    pub struct JobTemplateMeta {
        /// Annotations.
        pub annotations: BTreeMap<String, String>,
        /// Labels.
        pub labels: BTreeMap<String, String>,
    }

    /// What jobs are made of.
    pub struct JobTemplateSpec {
        /// Labels and annotations.
        pub metadata: Option<JobTemplateMeta>,
        /// The job.
        pub spec: JobSpec,
    }

    /// A Volcano Job at each time of a schedule.
    pub struct CronJobSpec {
        /// What to do when an earlier run has not ended.
        #[schemars(extend("default" = "Allow"))]
        pub concurrency_policy: Option<ConcurrencyPolicy>,
        /// Jobs that failed and are kept.
        #[schemars(extend("default" = 1, "minimum" = 0))]
        pub failed_jobs_history_limit: Option<i32>,
        /// What jobs are made of.
        pub job_template: JobTemplateSpec,
        /// Minute, hour, day, month and day of the week.
        #[schemars(extend("maxLength" = 512))]
        pub schedule: String,
        /// Seconds that a run may start late.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub starting_deadline_seconds: Option<i64>,
        /// Jobs that succeeded and are kept.
        #[schemars(extend("default" = 3, "minimum" = 0))]
        pub successful_jobs_history_limit: Option<i32>,
        /// No further runs start.
        #[schemars(extend("default" = false))]
        pub suspend: Option<bool>,
        /// Of the schedule; UTC if absent.
        #[schemars(extend("maxLength" = 256))]
        pub time_zone: Option<String>,
    }

    /// Where it stands.
    pub struct CronJobStatus {
        /// Jobs that have not ended.
        pub active: Vec<ObjectReference>,
        /// When a run was last due and its job made.
        pub last_schedule_time: Option<Time>,
        /// When a job last completed.
        pub last_successful_time: Option<Time>,
    }
}
