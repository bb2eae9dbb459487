//! What the controller keeps of a Command: one watch shows those for queues and those for Volcano Jobs.

use std::sync::Arc;

use caldera_core::{gang::QueueName, time::EpochSeconds};
use caldera_crds::{action::Action, volcano::bus::Command, workload::WorkloadKind};

use super::{binding::Key, cluster::read_action};

/// What a Command is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTarget {
    /// A queue.
    Queue(QueueName),
    /// A Volcano Job of the Command's own namespace: there is no other that it could name.
    Job(Key),
}

/// A Command, as far as it is for something that we carry it out on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFacts<T = CommandTarget> {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// When it was made.
    pub created: EpochSeconds,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// What it is for.
    pub target: T,
    /// The UID of that, empty for whichever has the name.
    pub target_uid: Arc<str>,
    /// `OpenQueue`, `AbortJob`, ..., if it is one that there is.
    pub action: Arc<str>,
    /// Somebody deletes it already.
    pub deleting: bool,
    /// Who made it.
    pub acted: Option<Box<Action>>,
}

impl CommandFacts {
    /// Reads one; `None` if it is for something else.
    #[must_use]
    pub fn read(object: &Command) -> Option<Self> {
        let target = object.target.as_ref()?;
        let job = WorkloadKind::VolcanoJob;
        let metadata = &object.metadata;
        let key = Key::from_metadata(metadata);
        let of = match (&*target.kind, &*target.api_version) {
            ("Queue", "scheduling.volcano.sh/v1beta1") => CommandTarget::Queue(target.name.as_str().into()),
            (kind, version) if kind == job.kind() && version == job.api_version() => {
                CommandTarget::Job(Key::new(&key.namespace, &target.name))
            }
            _ => return None,
        };
        Some(Self {
            key,
            uid: metadata.uid.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0.into()).unwrap_or_default(),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            target: of,
            target_uid: target.uid.as_str().into(),
            action: object.action.as_deref().unwrap_or("").into(),
            deleting: metadata.deletion_timestamp.is_some(),
            acted: read_action(metadata),
        })
    }

    /// The same, if it is for a queue.
    pub(crate) fn for_queue(self) -> Option<CommandFacts<QueueName>> {
        let CommandTarget::Queue(queue) = &self.target else { return None };
        let queue = queue.clone();
        Some(self.with_target(queue))
    }

    /// The same, if it is for a Volcano Job.
    pub(crate) fn for_job(self) -> Option<CommandFacts<Key>> {
        let CommandTarget::Job(job) = &self.target else { return None };
        let job = job.clone();
        Some(self.with_target(job))
    }
}

impl<T> CommandFacts<T> {
    fn with_target<U>(self, target: U) -> CommandFacts<U> {
        let Self { key, uid, created, resource_version, target: _, target_uid, action, deleting, acted } = self;
        CommandFacts { key, uid, created, resource_version, target, target_uid, action, deleting, acted }
    }

    /// Orders Commands by age, to the last tie.
    pub(crate) fn rank_by_age(&self) -> (EpochSeconds, u64, &str) {
        (self.created, self.resource_version.parse().unwrap_or(u64::MAX), &self.uid)
    }
}
