//! How the patches and writes of the controller look.
//!
//! A binding is patched with a test of the version that the decision was made for, a Work with tests of whose it is and
//! that nobody suspends it; nothing but our own fields is in the patch. What is said on a job is merged into the
//! version that was read, and so is a HyperJob's or CronJob's whole status. PodGroups, and the numbers and our
//! annotation of a queue, are merged without a version: nobody else writes them.

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, QueueName, WorkloadRef},
    queue::preemption::EvictionRecord,
};
use caldera_crds::{
    binding::COPY_HOLDER,
    karmada::work::work_name,
    names::{
        caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_CLOSED, GATE_OPEN, PLAN, PRIORITY},
        karmada::{BINDING_NAME, BINDING_NAMESPACE, EXECUTION_NAMESPACE_PREFIX},
    },
    object::annotation_path,
    workload::{WorkloadKind, progress::JobFailure},
};
use caldera_runtime::{
    clock::format_time,
    watch::api_resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::end_cause::EndCause;
use crate::observe::Key;

/// Where a binding says what Karmada keeps of it in clusters that it has left.
const EVICTION_TASKS: &str = "/spec/gracefulEvictionTasks";

/// The whole status of a HyperJob or CronJob, if that is as seen: a report. Fields of `before` that are not in `status`
/// go.
#[must_use]
pub fn merge_status(resource_version: &str, before: &Value, status: &Value) -> Value {
    let mut patch = status.clone();
    let fields = before.as_object().into_iter().flatten().map(|(field, _)| field);
    for gone in fields.filter(|field| status.get(field).is_none()) {
        patch[gone.as_str()] = Value::Null;
    }
    json!({"metadata": {"resourceVersion": resource_version}, "status": patch})
}

/// A new record, if the binding has not changed since.
pub(super) fn patch_record(resource_version: &str, admission: &Admission) -> Vec<Value> {
    vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "add", "path": annotation_path(ADMISSION), "value": admission.to_json()}),
    ]
}

/// A new record, and under which lease it is granted.
pub(super) fn patch_resize(resource_version: &str, admission: &Admission, epoch: Option<&str>) -> Vec<Value> {
    let mut steps = patch_record(resource_version, admission);
    steps.extend(epoch.map(|epoch| json!({"op": "add", "path": annotation_path(EPOCH), "value": epoch})));
    steps
}

/// The gate was closed by the suspension, so both of its parents are there; the annotations as well, the gate is one.
pub(super) fn patch_release(resource_version: &str, admission: &Admission, epoch: Option<&str>) -> Vec<Value> {
    let mut steps = patch_resize(resource_version, admission, epoch);
    steps.extend([
        json!({"op": "add", "path": "/spec/suspension/scheduling", "value": false}),
        json!({"op": "add", "path": annotation_path(GATE), "value": GATE_OPEN}),
        json!({"op": "add", "path": annotation_path(PRIORITY), "value": admission.priority.to_string()}),
    ]);
    steps
}

/// The reverse of a release, and its clusters are taken away: Karmada then deletes the copies in members. Only what is
/// there can be removed: a binding that somebody else placed may lack the record, and Karmada may have dropped an empty
/// suspension.
pub(super) fn patch_eviction(
    resource_version: &str,
    suspension: bool,
    (recorded, planned): (bool, bool),
    eviction: &EvictionRecord,
) -> Vec<Value> {
    let (path, closed) = match suspension {
        true => ("/spec/suspension/scheduling", json!(true)),
        false => ("/spec/suspension", json!({"scheduling": true})),
    };
    let mut steps = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "add", "path": "/spec/clusters", "value": []}),
        json!({"op": "add", "path": path, "value": closed}),
        json!({"op": "add", "path": annotation_path(GATE), "value": GATE_CLOSED}),
        json!({"op": "add", "path": annotation_path(EVICTION), "value": eviction.to_json()}),
    ];
    let removed = [(recorded, ADMISSION), (planned, PLAN)].into_iter().filter(|(is_there, _)| *is_there);
    steps.extend(removed.map(|(_, name)| json!({"op": "remove", "path": annotation_path(name)})));
    steps
}

/// Karmada leaves the copies in these clusters until it is told otherwise: nobody else evicts with grace, and who
/// suppresses a deletion ends that too (`assessSingleTask`, `pkg/controllers/gracefuleviction/evictiontask.go`).
pub(super) fn hold_copies(held: &[(ClusterName, u32)], eviction: &EvictionRecord) -> Option<Value> {
    let task = |(cluster, pods): &(ClusterName, u32)| {
        json!({
            "fromCluster": cluster.as_str(), "replicas": pods, "purgeMode": "Never", "suppressDeletion": true,
            "producer": COPY_HOLDER, "reason": eviction.reason,
        })
    };
    let tasks: Vec<Value> = held.iter().map(task).collect();
    (!tasks.is_empty()).then(|| json!({"op": "add", "path": EVICTION_TASKS, "value": tasks}))
}

/// They were alone in there when that was decided.
pub(super) fn drop_held_copies(resource_version: &str, restart: Option<&EvictionRecord>) -> Vec<Value> {
    let mut steps = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "remove", "path": EVICTION_TASKS}),
    ];
    let record = |record: &EvictionRecord| record.to_json();
    steps.extend(restart.map(record).map(|it| json!({"op": "add", "path": annotation_path(EVICTION), "value": it})));
    steps
}

pub(super) fn address_binding_patch(key: &Key, steps: Vec<Value>) -> Write {
    Write {
        resource: api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource: None,
        body: Body::JsonPatch(Value::Array(steps)),
    }
}

/// Nothing of it runs any more; what ended is still counted.
pub(super) fn patch_end(resource_version: &str, phase: &str, cause: EndCause, now: Timestamp) -> Value {
    let (reason, message) = cause.describe();
    json!({
        "metadata": {"resourceVersion": resource_version},
        "status": {
            "state": {
                "phase": phase, "reason": reason, "message": message,
                "lastTransitionTime": format_time(now),
            },
            "pending": null, "running": null, "terminating": null, "unknown": null,
        },
    })
}

pub(super) fn address_job_write(key: &Key, subresource: Option<&'static str>, body: Body) -> Write {
    Write {
        resource: WorkloadKind::VolcanoJob.api_resource(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource,
        body,
    }
}

/// Condition `Failed` is taken beside `FailureTarget` alone, and of no Job with active pods.
pub(super) fn fail_batch_job(key: &Key, resource_version: &str, failure: &JobFailure, now: Timestamp) -> Write {
    let now = format_time(now);
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now,
            "reason": failure.reason, "message": failure.message})
    };
    let mut status = json!({
        "conditions": [condition("FailureTarget"), condition("Failed")],
        "succeeded": failure.succeeded, "failed": failure.failed,
        "active": null, "ready": null, "terminating": null,
    });
    if let Some(started) = &failure.started {
        status["startTime"] = started.as_str().into();
    }
    let patch = json!({"metadata": {"resourceVersion": resource_version}, "status": status});
    Write {
        resource: WorkloadKind::BatchJob.api_resource(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource: Some("status"),
        body: Body::MergePatch(patch),
    }
}

/// Only of the Work that is this binding's, and where nobody suspends it: the field is absent where Karmada dispatches.
/// `cluster` is one whose pods are counted: its name was not taken from the binding unseen.
pub(super) fn build_work_touch_write(
    cluster: &ClusterName,
    workload: &WorkloadRef,
    binding: &Key,
    adds: bool,
) -> Write {
    let of = |name: &str, value: &str| json!({"op": "test", "path": annotation_path(name), "value": value});
    let path = "/spec/suspendDispatching";
    // Where it is absent, a test for `null` passes.
    let (before, touch) = match adds {
        true => (Value::Null, json!({"op": "add", "path": path, "value": false})),
        false => (false.into(), json!({"op": "remove", "path": path})),
    };
    let unsuspended = json!({"op": "test", "path": path, "value": before});
    let steps = [of(BINDING_NAMESPACE, &binding.namespace), of(BINDING_NAME, &binding.name), unsuspended, touch];
    Write {
        resource: api_resource("work.karmada.io", "v1alpha1", "Work", "works"),
        namespace: format!("{EXECUTION_NAMESPACE_PREFIX}{cluster}"),
        name: work_name(&workload.kind, &workload.name, &workload.namespace),
        subresource: None,
        body: Body::JsonPatch(steps.into_iter().collect()),
    }
}

/// The version that a binding names is of no use to anybody but Karmada, which aggregates where it changes.
pub(super) fn build_report_request_write(key: &Key, resource_version: &str, adds: bool) -> Write {
    let path = "/spec/resource/resourceVersion";
    let change = match adds {
        true => json!({"op": "add", "path": path, "value": "0"}),
        false => json!({"op": "remove", "path": path}),
    };
    let unchanged = json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version});
    address_binding_patch(key, vec![unchanged, change])
}

/// Only where nobody suspends it: the field is absent where Karmada dispatches.
pub(super) fn build_binding_touch_write(key: &Key, resource_version: &str, adds: bool) -> Write {
    let path = "/spec/suspension/dispatching";
    let touch = match adds {
        true => json!({"op": "add", "path": path, "value": false}),
        false => json!({"op": "remove", "path": path}),
    };
    let unchanged = json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version});
    address_binding_patch(key, vec![unchanged, touch])
}

pub(super) fn address_pod_group_write(key: &Key, body: Body) -> Write {
    Write {
        resource: api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource: None,
        body,
    }
}

pub(super) fn address_queue_patch(name: &QueueName, subresource: Option<&'static str>, patch: Value) -> Write {
    address_queue_write(name.as_str(), subresource, Body::MergePatch(patch))
}

pub(super) fn address_queue_write(name: &str, subresource: Option<&'static str>, body: Body) -> Write {
    Write {
        resource: api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
        namespace: String::new(),
        name: name.to_owned(),
        subresource,
        body,
    }
}
