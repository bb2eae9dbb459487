//! What the controller keeps of a PodGroup of its own: enough to compare it with what it should be.

use std::sync::Arc;

use caldera_crds::volcano::scheduling::PodGroup;

use super::{binding::Key, fingerprint::fingerprint};

/// A PodGroup of ours, as far as we compare it with what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct PodGroupFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// UID of its workload.
    pub owner: Arc<str>,
    /// Of its spec (see [`fingerprint`]).
    pub spec: u64,
    /// Its status.
    pub status: PodGroupStatus,
}

/// What a PodGroup's status says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGroupStatus {
    /// `Pending`, `Inqueue`, `Running` or `Completed`.
    pub phase: String,
    /// `Unschedulable` or `Scheduled`.
    pub condition: String,
    /// Token.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// Since when.
    pub since: String,
    /// Pods.
    pub running: i32,
    /// Pods.
    pub succeeded: i32,
    /// Pods.
    pub failed: i32,
}

impl PodGroupFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &PodGroup) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let condition = status.conditions.first().cloned().unwrap_or_default();
        Self {
            key: Key::from_metadata(&object.metadata),
            uid: object.metadata.uid.as_deref().unwrap_or("").into(),
            owner: object
                .metadata
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.as_str().into())
                .next()
                .unwrap_or_default(),
            spec: fingerprint(&object.spec),
            status: PodGroupStatus {
                phase: status.phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default(),
                condition: condition.type_.unwrap_or_default(),
                reason: condition.reason.unwrap_or_default(),
                message: condition.message.unwrap_or_default(),
                since: condition
                    .last_transition_time
                    .map(|time| caldera_runtime::clock::format_time(time.0))
                    .unwrap_or_default(),
                running: status.running.unwrap_or(0),
                succeeded: status.succeeded.unwrap_or(0),
                failed: status.failed.unwrap_or(0),
            },
        }
    }
}
