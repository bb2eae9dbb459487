//! What the controller keeps of a Command for a Volcano Job.

use std::sync::Arc;

use caldera_crds::{volcano::bus::Command, workload::WorkloadKind};

use super::binding::Key;

/// A Command, as far as it is about a Volcano Job of its own namespace: there is no other that it could name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCommandFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// Seconds since 1970.
    pub created: i64,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// The job.
    pub job: Key,
    /// The job's UID, empty for whichever has the name.
    pub job_uid: Arc<str>,
    /// `AbortJob`, ..., if it is one that there is.
    pub action: Arc<str>,
    /// Somebody deletes it already.
    pub deleting: bool,
}

impl JobCommandFacts {
    /// Reads one; `None` if it is about no Volcano Job.
    #[must_use]
    pub fn read(object: &Command) -> Option<Self> {
        let target = object.target.as_ref()?;
        let kind = WorkloadKind::VolcanoJob;
        let metadata = &object.metadata;
        let key = Key::from_metadata(metadata);
        (target.kind == kind.kind() && target.api_version == kind.api_version()).then(|| Self {
            job: Key::new(&key.namespace, &target.name),
            key,
            uid: metadata.uid.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            job_uid: target.uid.as_str().into(),
            action: object.action.as_deref().unwrap_or("").into(),
            deleting: metadata.deletion_timestamp.is_some(),
        })
    }

    /// Orders Commands by age, to the last tie.
    pub(crate) fn rank_by_age(&self) -> (i64, u64, &str) {
        (self.created, self.resource_version.parse().unwrap_or(u64::MAX), &self.uid)
    }
}
