//! What the controller keeps of a CronJob of Volcano, and of a job that one made.

use std::sync::Arc;

use caldera_crds::names::karmada::{CLUSTER_POLICY_ID, POLICY_ID};
use serde_json::Value;

use super::{binding::Key, hyper_job::key_of};

/// A CronJob, as written.
#[derive(Debug, Clone, PartialEq)]
pub struct CronJobFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// All of it.
    pub object: Arc<Value>,
}

impl CronJobFacts {
    /// Reads one; `None` if it has no name.
    #[must_use]
    pub fn read(object: Value) -> Option<Self> {
        Some(Self {
            key: key_of(&object)?,
            uid: object["metadata"]["uid"].as_str()?.into(),
            resource_version: object["metadata"]["resourceVersion"].as_str()?.into(),
            object: Arc::new(object),
        })
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

/// The CronJob that controls a Volcano Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronOwner {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
}

impl CronOwner {
    /// Reads it; `None` of a job that no CronJob owns.
    #[must_use]
    pub fn read(job: &Value) -> Option<Self> {
        let mut owners = job["metadata"]["ownerReferences"].as_array()?.iter();
        let owner = owners.find(|owner| {
            let group = owner["apiVersion"].as_str().unwrap_or_default();
            owner["controller"] == true && owner["kind"] == "CronJob" && group.starts_with("batch.volcano.sh/")
        })?;
        Some(Self { name: owner["name"].as_str()?.into(), uid: owner["uid"].as_str()?.into() })
    }
}
