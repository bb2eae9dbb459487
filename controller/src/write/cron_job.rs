//! What is written for a CronJob: the jobs of its runs, and its status.

use std::sync::Arc;

use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Write},
};
use kube::api::ApiResource;
use serde_json::Value;

use crate::observe::CronKey;

/// One write for a CronJob.
#[derive(Debug, Clone, PartialEq)]
pub enum CronJobWrite {
    /// Creates the job of a run.
    Create(Arc<str>, Value),
    /// Deletes the job with this UID.
    Delete(Arc<str>, Arc<str>),
    /// Merge patch of the status: a report, behind which no decision waits.
    Status(Value),
}

impl CronJobWrite {
    /// The job that it is about, or the CronJob's status.
    #[must_use]
    pub fn target(&self) -> Option<Arc<str>> {
        match self {
            Self::Create(name, _) | Self::Delete(name, _) => Some(Arc::clone(name)),
            Self::Status(_) => None,
        }
    }
}

/// What to ask the server for: CronJobs whose jobs are of this kind.
#[must_use]
pub fn cron_job_resource(kind: WorkloadKind) -> ApiResource {
    let jobs = kind.api_resource();
    api_resource(&jobs.group, &jobs.version, "CronJob", "cronjobs")
}

pub(super) fn build_cron_job_write((kind, key): &CronKey, write: &CronJobWrite) -> Write {
    let of_job = |name: &str, body: Body| Write {
        resource: kind.api_resource(),
        namespace: key.namespace.to_string(),
        name: name.to_owned(),
        subresource: None,
        body,
    };
    match write {
        CronJobWrite::Create(name, job) => of_job(name, Body::Create(job.clone())),
        CronJobWrite::Delete(name, uid) => of_job(name, Body::Delete { uid: Some(uid.to_string()) }),
        CronJobWrite::Status(patch) => Write {
            resource: cron_job_resource(*kind),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            subresource: Some("status"),
            body: Body::MergePatch(patch.clone()),
        },
    }
}
