//! The tag of each write: which decision its answer belongs to, and for what.
//!
//! Releases and states of queues carry the version that they were decided for, so that a late answer is told from one
//! about the write under way. What is decided anew as long as it is not so has no tag of its own: its failure is
//! logged.

use std::sync::Arc;

use caldera_core::gang::QueueName;

use super::{
    cron_job::CronJobWrite,
    data_claim::DataTarget,
    decision::Decision,
    hyper_job::{ChildKind, HyperJobWrite},
};
use crate::observe::{CronKey, Key};

/// What a write was about: its answer comes back with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// [`Decision::Release`] or [`Decision::Resize`], for this version of the binding.
    Release(Key, Arc<str>),
    /// [`Decision::Evict`], [`Decision::Shrink`], or [`Decision::DropHeldCopies`] that restarts a job.
    Evict(Key),
    /// [`Decision::WritePodGroup`]: for this binding, the PodGroup of this name.
    PodGroup(Key, Key),
    /// [`Decision::QueueNumbers`].
    QueueNumbers(QueueName),
    /// [`Decision::QueueState`] or [`Decision::QueueMark`], for this version of the queue.
    QueueState(QueueName, Arc<str>),
    /// [`Decision::QueueAnnotation`].
    QueueAnnotation(QueueName),
    /// [`Decision::DeleteCommand`]: for this queue, with this UID.
    Command(QueueName, Arc<str>),
    /// [`Decision::AnnotateJob`].
    AnnotateJob(Key),
    /// [`Decision::StateWaiting`]: of the job of this binding.
    WaitingState(Key),
    /// [`Decision::DeleteJobCommand`]: for this job.
    JobCommand(Key),
    /// [`Decision::DeleteJob`].
    DeleteJob(Key),
    /// [`Decision::AnnotateJob`] of a job that failed by its own policies.
    FailJob(Key),
    /// [`Decision::EndJob`].
    EndJob(Key),
    /// [`Decision::DropHeldCopies`] of a job that does not restart.
    DropHeldCopies(Key),
    /// [`Decision::HyperJob`]: its job or policy, or its status, and whether that was deleted.
    HyperJob(Key, Option<(ChildKind, Arc<str>)>, bool),
    /// [`Decision::CronJob`]: its job or its status, and whether that was deleted.
    CronJob(CronKey, Option<Arc<str>>, bool),
    /// [`Decision::Data`]: of this claim or source, and whether that was deleted.
    Data(DataTarget, bool),
    /// [`Decision::DefaultQueue`].
    DefaultQueue,
    /// A write that is not repeated if it fails.
    Unrepeated,
}

impl Decision {
    /// The version, or the UID, of what it changes, where it is decided again and again until that is seen to change.
    pub(crate) fn decided_for(&self) -> Option<&Arc<str>> {
        match self {
            Self::EndJob { resource_version, .. }
            | Self::DropHeldCopies { resource_version, restart: None, .. }
            | Self::AnnotateJob { resource_version, .. }
            | Self::DeleteJob { resource_version, .. } => Some(resource_version),
            Self::DeleteJobCommand { uid, .. } => Some(uid),
            _ => None,
        }
    }

    /// What its answer is to be told by.
    #[must_use]
    pub fn tag(&self) -> Tag {
        match self {
            Self::Release { key, resource_version, .. } | Self::Resize { key, resource_version, .. } => {
                Tag::Release(key.clone(), Arc::clone(resource_version))
            }
            Self::Evict { key, .. } | Self::Shrink { key, .. } | Self::DropHeldCopies { key, restart: Some(_), .. } => {
                Tag::Evict(key.clone())
            }
            Self::WritePodGroup { key, binding, .. } => Tag::PodGroup(binding.clone(), key.clone()),
            Self::QueueNumbers { name, .. } => Tag::QueueNumbers(name.clone()),
            Self::QueueState { name, resource_version, .. } | Self::QueueMark { name, resource_version, .. } => {
                Tag::QueueState(name.clone(), Arc::clone(resource_version))
            }
            Self::QueueAnnotation { name, .. } => Tag::QueueAnnotation(name.clone()),
            Self::DeleteCommand { queue, uid, .. } => Tag::Command(queue.clone(), Arc::clone(uid)),
            // Its policies say so, and no Command.
            Self::AnnotateJob { key, value: Some("Failed"), .. } => Tag::FailJob(key.clone()),
            Self::AnnotateJob { key, .. } => Tag::AnnotateJob(key.clone()),
            Self::StateWaiting { binding, .. } => Tag::WaitingState(binding.clone()),
            Self::DeleteJobCommand { job, .. } => Tag::JobCommand(job.clone()),
            Self::DeleteJob { key, .. } => Tag::DeleteJob(key.clone()),
            Self::HyperJob { key, write } => {
                Tag::HyperJob(key.clone(), write.target(), matches!(write, HyperJobWrite::Delete(..)))
            }
            Self::CronJob { key, write } => {
                Tag::CronJob(key.clone(), write.target(), matches!(write, CronJobWrite::Delete(..)))
            }
            Self::Data(write) => Tag::Data(write.target.clone(), write.is_deletion()),
            Self::DefaultQueue => Tag::DefaultQueue,
            Self::EndJob { key, .. } => Tag::EndJob(key.clone()),
            Self::DropHeldCopies { key, .. } => Tag::DropHeldCopies(key.clone()),
            // It is decided anew while the job does not say so.
            Self::FailBatchJob { .. }
            | Self::DeletePodGroup { .. }
            | Self::TouchWork { .. }
            | Self::TouchBinding { .. }
            | Self::RequestReport { .. }
            | Self::RecordEvent { .. } => Tag::Unrepeated,
        }
    }
}
