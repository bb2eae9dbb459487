//! What the controller keeps of a CronJob, of Volcano or of Kubernetes, and of a job that one made.

use std::sync::Arc;

use caldera_crds::{
    cron_job::{find_kind, names_queue},
    names::karmada::{CLUSTER_POLICY_ID, POLICY_ID},
    workload::WorkloadKind,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{binding::Key, hyper_job::key_of};

/// Which CronJob, or which job of one: the kind of its jobs, and its own name.
pub type CronKey = (WorkloadKind, Key);

/// A CronJob, as written.
#[derive(Debug, Clone, PartialEq)]
pub struct CronJobFacts {
    /// Which.
    pub key: CronKey,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// All of it but its template, and who wrote which field.
    pub object: Arc<Value>,
    /// The template of its jobs, as JSON: parsed, a large one takes far more memory.
    template: Arc<str>,
    /// Whether the template names a queue.
    pub names_queue: bool,
}

impl CronJobFacts {
    /// Reads one; `None` if it is none.
    #[must_use]
    pub fn read(mut object: Value) -> Option<Self> {
        let names_queue = names_queue(&object);
        let template = object.get_mut("spec").and_then(Value::as_object_mut)?.remove("jobTemplate").unwrap_or_default();
        object["metadata"].as_object_mut()?.remove("managedFields");
        Some(Self {
            template: template.to_string().into(),
            names_queue,
            key: (find_kind(&object)?, key_of(&object)?),
            uid: object["metadata"]["uid"].as_str()?.into(),
            resource_version: object["metadata"]["resourceVersion"].as_str()?.into(),
            object: Arc::new(object),
        })
    }

    /// The CronJob with its template, as a job is made of it.
    #[must_use]
    pub fn whole_object(&self) -> Value {
        let mut whole = Value::clone(&self.object);
        whole["spec"]["jobTemplate"] = serde_json::from_str(&self.template).unwrap_or_default();
        whole
    }

    /// Being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }

    /// Whether a policy sends it to members: they run it.
    #[must_use]
    pub fn is_propagated(&self) -> bool {
        [POLICY_ID, CLUSTER_POLICY_ID].iter().any(|label| self.object["metadata"]["labels"][label].is_string())
    }
}

/// The CronJob that controls a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronOwner {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// When the job completed, or entered the phase that it is in.
    pub completed_at: Option<Timestamp>,
}

impl CronOwner {
    /// Reads it; `None` of a job that no CronJob owns.
    #[must_use]
    pub fn read(job: &Value) -> Option<Self> {
        let mut owners = job["metadata"]["ownerReferences"].as_array()?.iter();
        let owner = owners.find(|owner| {
            owner["controller"] == true
                && find_kind(owner).is_some_and(|kind| WorkloadKind::of_object(job) == Some(kind))
        })?;
        let status = &job["status"];
        let times = [&status["completionTime"], &status["state"]["lastTransitionTime"]];
        Some(Self {
            name: owner["name"].as_str()?.into(),
            uid: owner["uid"].as_str()?.into(),
            completed_at: times.into_iter().find_map(|time| time.as_str()?.parse().ok()),
        })
    }
}
