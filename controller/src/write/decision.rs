//! Everything that the controller decides to write, and how each write looks.
//!
//! It touches only what it owns. On a binding that is the gate, the records, and the clusters only to take all of them
//! away; and graceful evictions of its own, by which Karmada leaves copies in lost clusters. Such a patch tests the
//! version that the decision was made for, so that a decision on an old state is refused. To have Karmada look again it
//! also sets a binding's `suspension.dispatching`, or a Work's `suspendDispatching`, to false or takes that away: both
//! say the same. To have Karmada aggregate a status it takes `spec.resource.resourceVersion` of a binding away. Of jobs
//! it writes why they wait, two annotations that suspend and end them, for a Command or after `maxRetry` restarts, the
//! end, also that of a batch Job of which Karmada can not say that it failed, and the deletion when the TTL is over.
//! Beside these it writes its own PodGroups and deletes them, the numbers and the state of a queue and two annotations
//! on it, the default queue if there is none, the deletion of Commands that are carried out, what HyperJobs are made of
//! and their status, what DataSourceClaims and DataSources say of themselves, and events. Its own ConfigMaps are no
//! decisions: settings, usage and history are written by the loop.

use std::sync::Arc;

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, QueueName, WorkloadRef},
    queue::{QueueState, preemption::EvictionRecord},
};
use caldera_crds::{
    names::{
        caldera::{EVICTION, QUEUE_STATUS},
        volcano::{CLOSED_BY_PARENT, DEFAULT_QUEUE},
    },
    object::annotation_path,
    workload::progress::JobFailure,
};
use caldera_runtime::{
    clock::format_time,
    event::{EventType, Regarding, build_event},
    watch::api_resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    cron_job::{CronJobWrite, build_cron_job_write},
    data_claim::{DataWrite, build_data_write},
    end_cause::EndCause,
    hyper_job::{HyperJobWrite, build_hyper_job_write},
    patch::{
        address_binding_patch, address_job_write, address_pod_group_write, address_queue_patch, address_queue_write,
        build_binding_touch_write, build_report_request_write, build_work_touch_write, drop_held_copies,
        fail_batch_job, hold_copies, patch_end, patch_eviction, patch_record, patch_release, patch_resize,
    },
};
use crate::observe::{CronKey, Key};

/// Who writes, as events say it.
const COMPONENT: &str = "caldera-controller";

/// One thing that was decided: it becomes one write.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Opens a binding's gate and records what was charged.
    Release {
        /// The binding.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The record.
        admission: Admission,
        /// Under which lease.
        epoch: Option<Arc<str>>,
    },
    /// Gives a binding that holds quota a larger or a smaller record.
    Resize {
        /// The binding.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The record.
        admission: Admission,
        /// Under which lease.
        epoch: Option<Arc<str>>,
    },
    /// Takes a binding's clusters away, closes its gate, and says why.
    Evict {
        /// The binding.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// There is a `spec.suspension`.
        suspension: bool,
        /// There is an admission annotation.
        recorded: bool,
        /// There is a plan annotation.
        planned: bool,
        /// Lost clusters whose copies Karmada leaves there for now, each with its pods.
        held: Vec<(ClusterName, u32)>,
        /// The record.
        eviction: Box<EvictionRecord>,
    },
    /// Has Karmada delete the copies that it left in lost clusters.
    DropHeldCopies {
        /// The binding.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The record of a job that restarts, since one of them failed.
        restart: Option<Box<EvictionRecord>>,
    },
    /// Takes surplus pods of a gang: a smaller record, and why. Its scheduler cuts what is placed.
    Shrink {
        /// The binding.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The record of what it keeps.
        admission: Box<Admission>,
        /// The record of why.
        eviction: Box<EvictionRecord>,
    },
    /// Creates a PodGroup, or changes the status of one, and its spec where that is not what it should be.
    WritePodGroup {
        /// Which.
        key: Key,
        /// The binding that it is for.
        binding: Key,
        /// Whether it is there already.
        exists: bool,
        /// All of it, or a merge patch of what is there.
        body: Value,
    },
    /// Deletes a PodGroup whose workload is not queued any more.
    DeletePodGroup {
        /// Which.
        key: Key,
        /// Its UID.
        uid: Arc<str>,
    },
    /// Changes the numbers of a queue's status.
    QueueNumbers {
        /// Which.
        name: QueueName,
        /// Merge patch.
        patch: Value,
    },
    /// Opens or closes a queue.
    QueueState {
        /// Which.
        name: QueueName,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// What it becomes.
        state: QueueState,
        /// The first numbers of its status, where it has none.
        numbers: Option<Value>,
    },
    /// Marks a queue as closed by its parent, or not any more.
    QueueMark {
        /// Which.
        name: QueueName,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The mark.
        closed_by_parent: bool,
    },
    /// Says on a queue which amounts count, where these are not the ones in its spec.
    QueueAnnotation {
        /// Which.
        name: QueueName,
        /// JSON; `None` takes it away.
        annotation: Option<String>,
    },
    /// Deletes a Command that is carried out.
    DeleteCommand {
        /// Which.
        key: Key,
        /// The queue that it was for.
        queue: QueueName,
        /// Its UID.
        uid: Arc<str>,
    },
    /// Writes or takes away an annotation of a Volcano Job, as a Command of its user asks.
    AnnotateJob {
        /// Which.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// The annotation.
        name: &'static str,
        /// `None` takes it away.
        value: Option<&'static str>,
    },
    /// Says on a Volcano Job that it ended, after it was ended and its copies are gone.
    EndJob {
        /// Which.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// As what.
        phase: &'static str,
        /// Why.
        cause: EndCause,
    },
    /// Says on a batch Job that it failed, where Karmada can not.
    FailBatchJob {
        /// Which.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// What is said.
        failure: JobFailure,
    },
    /// Says on a Volcano Job that waits why it does.
    StateWaiting {
        /// Which.
        key: Key,
        /// Its binding.
        binding: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// `Pending`, or `Aborted` of one that its user suspended.
        phase: &'static str,
        /// Token.
        reason: String,
        /// Sentence.
        message: String,
        /// It was in no phase before, or in another one.
        begins: bool,
    },
    /// Deletes a Command for a Volcano Job that is carried out or refused.
    DeleteJobCommand {
        /// Which.
        key: Key,
        /// The job that it was for.
        job: Key,
        /// Its UID.
        uid: Arc<str>,
    },
    /// Deletes a Volcano Job whose TTL is over, and what it owns before it.
    DeleteJob {
        /// Which.
        key: Key,
        /// Its UID.
        uid: Arc<str>,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
    },
    /// Has Karmada apply a Work again, by a change of its spec that says the same.
    TouchWork {
        /// Of which member.
        cluster: ClusterName,
        /// Whose copy.
        workload: WorkloadRef,
        /// Whose Work.
        binding: Key,
        /// Sets the field, or takes it away.
        adds: bool,
    },
    /// Has Karmada look at a binding again, by a change of its spec that says the same.
    TouchBinding {
        /// Which.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// Sets the field, or takes it away.
        adds: bool,
    },
    /// Has Karmada aggregate the status of a binding, by a change of what it says of its workload's version.
    RequestReport {
        /// Which.
        key: Key,
        /// The version that the decision was made for.
        resource_version: Arc<str>,
        /// Sets the field, or takes it away.
        adds: bool,
    },
    /// Writes a job or a policy of a HyperJob, or its status.
    HyperJob {
        /// Which.
        key: Key,
        /// What.
        write: HyperJobWrite,
    },
    /// Writes a job of a CronJob, or its status.
    CronJob {
        /// Which.
        key: CronKey,
        /// What.
        write: CronJobWrite,
    },
    /// Writes the status of a DataSourceClaim or a DataSource, or deletes a source.
    Data(DataWrite),
    /// Creates the default queue.
    DefaultQueue,
    /// Records an event on an object of the user.
    RecordEvent {
        /// The object.
        regarding: Regarding,
        /// Normal or warning.
        event_type: EventType,
        /// Token.
        reason: String,
        /// Sentence.
        message: String,
    },
}

impl Decision {
    /// The binding that it is about, if it is about one.
    pub(crate) const fn binding(&self) -> Option<&Key> {
        match self {
            Self::Release { key, .. }
            | Self::Resize { key, .. }
            | Self::Evict { key, .. }
            | Self::Shrink { key, .. }
            | Self::TouchBinding { key, .. }
            | Self::RequestReport { key, .. } => Some(key),
            Self::WritePodGroup { binding, .. }
            | Self::StateWaiting { binding, .. }
            | Self::TouchWork { binding, .. } => Some(binding),
            _ => None,
        }
    }

    /// The queue that it is about, where it says so itself.
    pub(crate) const fn queue(&self) -> Option<&QueueName> {
        match self {
            Self::Release { admission, .. } | Self::Resize { admission, .. } => Some(&admission.queue),
            Self::QueueNumbers { name, .. }
            | Self::QueueState { name, .. }
            | Self::QueueMark { name, .. }
            | Self::QueueAnnotation { name, .. }
            | Self::DeleteCommand { queue: name, .. } => Some(name),
            _ => None,
        }
    }

    /// What it does to its binding, in a word for traces.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Release { .. } => "release",
            Self::Resize { .. } => "resize",
            Self::Evict { .. } => "evict",
            Self::Shrink { .. } => "shrink",
            Self::WritePodGroup { .. } | Self::StateWaiting { .. } => "report",
            _ => "other",
        }
    }

    /// How it is written.
    #[must_use]
    pub fn to_write(&self, now: Timestamp) -> Write {
        match self {
            Self::Release { key, resource_version, admission, epoch } => {
                address_binding_patch(key, patch_release(resource_version, admission, epoch.as_deref()))
            }
            Self::Resize { key, resource_version, admission, epoch } => {
                address_binding_patch(key, patch_resize(resource_version, admission, epoch.as_deref()))
            }
            Self::Evict { key, resource_version, suspension, recorded, planned, held, eviction } => {
                let mut steps = patch_eviction(resource_version, *suspension, (*recorded, *planned), eviction);
                steps.extend(hold_copies(held, eviction));
                address_binding_patch(key, steps)
            }
            Self::DropHeldCopies { key, resource_version, restart } => {
                address_binding_patch(key, drop_held_copies(resource_version, restart.as_deref()))
            }
            Self::Shrink { key, resource_version, admission, eviction } => {
                let mut steps = patch_record(resource_version, admission);
                steps.push(json!({"op": "add", "path": annotation_path(EVICTION), "value": eviction.to_json()}));
                address_binding_patch(key, steps)
            }
            Self::WritePodGroup { key, exists, body, .. } => address_pod_group_write(
                key,
                match exists {
                    true => Body::MergePatch(body.clone()),
                    false => Body::Create(body.clone()),
                },
            ),
            Self::DeletePodGroup { key, uid } => {
                address_pod_group_write(key, Body::Delete { uid: Some(uid.to_string()) })
            }
            Self::QueueNumbers { name, patch } => address_queue_patch(name, Some("status"), patch.clone()),
            Self::QueueState { name, resource_version, state, numbers } => {
                let mut status = numbers.clone().unwrap_or_else(|| json!({}));
                status["state"] = state.as_str().into();
                let patch = json!({"metadata": {"resourceVersion": &**resource_version}, "status": status});
                address_queue_patch(name, Some("status"), patch)
            }
            Self::QueueMark { name, resource_version, closed_by_parent } => address_queue_patch(
                name,
                None,
                json!({"metadata": {
                    "resourceVersion": &**resource_version,
                    "annotations": {CLOSED_BY_PARENT: closed_by_parent.to_string()},
                }}),
            ),
            Self::QueueAnnotation { name, annotation } => {
                address_queue_patch(name, None, json!({"metadata": {"annotations": {QUEUE_STATUS: annotation}}}))
            }
            Self::DeleteCommand { key, uid, .. } | Self::DeleteJobCommand { key, uid, .. } => Write {
                resource: api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands"),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                subresource: None,
                body: Body::Delete { uid: Some(uid.to_string()) },
            },
            Self::AnnotateJob { key, resource_version, name, value } => address_job_write(
                key,
                None,
                Body::MergePatch(json!({
                    "metadata": {"resourceVersion": &**resource_version, "annotations": {*name: value}},
                })),
            ),
            Self::EndJob { key, resource_version, phase, cause } => {
                let patch = patch_end(resource_version, phase, *cause, now);
                address_job_write(key, Some("status"), Body::MergePatch(patch))
            }
            Self::FailBatchJob { key, resource_version, failure } => {
                fail_batch_job(key, resource_version, failure, now)
            }
            Self::StateWaiting { key, resource_version, phase, reason, message, begins, .. } => {
                let mut state = json!({"phase": phase, "reason": reason, "message": message});
                if *begins {
                    state["lastTransitionTime"] = format_time(now).into();
                }
                let patch = json!({
                    "metadata": {"resourceVersion": &**resource_version}, "status": {"state": state},
                });
                address_job_write(key, Some("status"), Body::MergePatch(patch))
            }
            Self::DeleteJob { key, uid, resource_version } => address_job_write(
                key,
                None,
                Body::DeleteUnchanged { uid: uid.to_string(), resource_version: resource_version.to_string() },
            ),
            Self::TouchWork { cluster, workload, binding, adds } => {
                build_work_touch_write(cluster, workload, binding, *adds)
            }
            Self::TouchBinding { key, resource_version, adds } => {
                build_binding_touch_write(key, resource_version, *adds)
            }
            Self::RequestReport { key, resource_version, adds } => {
                build_report_request_write(key, resource_version, *adds)
            }
            Self::HyperJob { key, write } => build_hyper_job_write(key, write),
            Self::CronJob { key, write } => build_cron_job_write(key, write),
            Self::Data(write) => build_data_write(write),
            Self::DefaultQueue => address_queue_write(
                DEFAULT_QUEUE,
                None,
                Body::Create(json!({
                    "apiVersion": "scheduling.volcano.sh/v1beta1",
                    "kind": "Queue",
                    "metadata": {"name": DEFAULT_QUEUE},
                    "spec": {"weight": 1, "reclaimable": true},
                })),
            ),
            Self::RecordEvent { regarding, event_type, reason, message } => {
                build_event(regarding, None, *event_type, reason, message, COMPONENT, now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
