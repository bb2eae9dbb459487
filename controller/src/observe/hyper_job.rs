//! What the controller keeps of HyperJobs, and of the policies and Volcano Jobs that were made for them.
//!
//! Rule: a PropagationPolicy is kept if the label of a HyperJob's name is on it. Anybody can set that label, so the
//! controlling owner reference, with its UID, tells whose it is. A Volcano Job is a child only by that reference.

use std::sync::Arc;

use caldera_crds::{
    names::volcano::{HYPER_JOB_NAME, POLICY_HASH, TEMPLATE_HASH},
    workload::find_hyper_job,
};
use serde_json::Value;

use super::binding::Key;

/// A HyperJob, as written: what is not known of it goes into its jobs all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct HyperJobFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// All of it.
    pub object: Arc<Value>,
}

impl HyperJobFacts {
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
}

/// A PropagationPolicy that names its HyperJob by a label. Anybody can set the label: the owner reference decides.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// The HyperJob's name.
    pub hyper_job: Arc<str>,
    /// The UID of the HyperJob that owns it, if one does.
    pub owner: Option<Arc<str>>,
    /// What it was last made like.
    pub hash: Arc<str>,
    /// Being deleted.
    pub deleting: bool,
}

impl PolicyFacts {
    /// Reads one; `None` if it is of no HyperJob.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        Some(Self {
            key: key_of(object)?,
            uid: metadata["uid"].as_str()?.into(),
            resource_version: metadata["resourceVersion"].as_str()?.into(),
            hyper_job: metadata["labels"][HYPER_JOB_NAME].as_str()?.into(),
            owner: find_hyper_job(object).map(|(_, uid)| uid.into()),
            hash: metadata["labels"][POLICY_HASH].as_str().unwrap_or_default().into(),
            deleting: metadata["deletionTimestamp"].is_string(),
        })
    }
}

/// The fields of a job's status that count its pods.
pub const COUNTS: [&str; 6] = ["pending", "running", "succeeded", "failed", "terminating", "unknown"];

/// What a HyperJob that owns a Volcano Job knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildFacts {
    /// The HyperJob's name.
    pub hyper_job: Arc<str>,
    /// The HyperJob's UID.
    pub owner: Arc<str>,
    /// Which template it was last made like.
    pub hash: Arc<str>,
    /// `status.state`.
    pub state: Value,
    /// As [`COUNTS`] has them.
    pub counts: [i64; COUNTS.len()],
}

impl ChildFacts {
    /// Reads them; `None` of a job that no HyperJob owns.
    #[must_use]
    pub fn read(job: &Value) -> Option<Self> {
        let (name, uid) = find_hyper_job(job)?;
        Some(Self {
            hyper_job: name.into(),
            owner: uid.into(),
            hash: job["metadata"]["labels"][TEMPLATE_HASH].as_str().unwrap_or_default().into(),
            state: job["status"]["state"].clone(),
            counts: COUNTS.map(|field| job["status"][field].as_i64().unwrap_or(0)),
        })
    }
}

pub(super) fn key_of(object: &Value) -> Option<Key> {
    Some(Key::new(object["metadata"]["namespace"].as_str()?, object["metadata"]["name"].as_str()?))
}
