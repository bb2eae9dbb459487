//! Everything that the controller may write, and how each write looks.
//!
//! It touches only what it owns: on a binding the one field that opens and closes the gate, and the clusters only to take
//! all of them away (with the version that the decision was made for as a precondition, so that a decision on an old
//! state is refused), PodGroups of its own, a queue's status (its state with the same precondition) and two annotations of
//! it, the default queue if there is none, Commands that are carried out, and events.

use std::sync::Arc;

use caldera_core::{
    admission::Admission,
    gang::QueueName,
    queue::{JobId, QueueState, preemption::EvictionRecord},
};
use caldera_crds::names::{
    caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_CLOSED, GATE_OPEN, PLAN, PRIORITY, QUEUE_STATUS},
    volcano::{CLOSED_BY_PARENT, DEFAULT_QUEUE},
};
use caldera_runtime::{
    event::{EventType, Regarding, build_event},
    watch::api_resource,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::facts::Key;

/// Who writes, as events say it.
const COMPONENT: &str = "caldera-controller";

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Opens a binding's gate and records what was charged.
    Release {
        /// The binding.
        key: Key,
        /// Its UID.
        id: JobId,
        /// The version that the decision was made for.
        resource_version: String,
        /// The record.
        admission: Admission,
        /// Under which lease.
        epoch: Option<Arc<str>>,
    },
    /// Grants a binding that holds quota more, or less, as it wants now.
    Regrant {
        /// The binding.
        key: Key,
        /// Its UID.
        id: JobId,
        /// The version that the decision was made for.
        resource_version: String,
        /// The record.
        admission: Admission,
        /// Under which lease.
        epoch: Option<Arc<str>>,
    },
    /// Takes a binding's clusters away, closes its gate, and says why.
    Evict {
        /// The binding.
        key: Key,
        /// Its UID.
        id: JobId,
        /// The version that the decision was made for.
        resource_version: String,
        /// There is a `spec.suspension`.
        suspension: bool,
        /// There is a plan annotation.
        planned: bool,
        /// The record.
        eviction: Box<EvictionRecord>,
    },
    /// Grants a binding less than before, and says why. Its scheduler cuts what is placed.
    Shrink {
        /// The binding.
        key: Key,
        /// Its UID.
        id: JobId,
        /// The version that the decision was made for.
        resource_version: String,
        /// The record of what it keeps.
        admission: Box<Admission>,
        /// The record of why.
        eviction: Box<EvictionRecord>,
    },
    /// Creates a PodGroup.
    CreateGroup {
        /// Which.
        key: Key,
        /// All of it.
        object: Value,
    },
    /// Changes a PodGroup's status, and its spec where it is not what it should be.
    PatchGroup {
        /// Which.
        key: Key,
        /// Merge patch.
        patch: Value,
    },
    /// Deletes a PodGroup whose workload is not queued any more.
    DeleteGroup {
        /// Which.
        key: Key,
        /// Its UID.
        uid: String,
    },
    /// Changes a queue's status.
    QueueStatus {
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
        resource_version: String,
        /// What it becomes.
        state: QueueState,
    },
    /// Marks a queue as closed by its parent, or not any more.
    QueueMark {
        /// Which.
        name: QueueName,
        /// The version that the decision was made for.
        resource_version: String,
        /// The mark.
        closed_by_parent: bool,
    },
    /// Says on a queue what counts, where that is not what it says itself.
    QueueNote {
        /// Which.
        name: QueueName,
        /// JSON; `None` takes it away.
        note: Option<String>,
    },
    /// Deletes a Command that is carried out.
    DeleteCommand {
        /// Which.
        key: Key,
        /// Its UID.
        uid: String,
    },
    /// Creates the default queue.
    DefaultQueue,
    /// Tells the user on their own object.
    Tell {
        /// The workload.
        regarding: Regarding,
        /// Normal or warning.
        event_type: EventType,
        /// Token.
        reason: String,
        /// Sentence.
        message: String,
    },
}

impl Effect {
    /// How it is written.
    #[must_use]
    pub fn write(&self, now: Timestamp) -> Write {
        match self {
            Self::Release { key, resource_version, admission, epoch, .. } => {
                binding(key, under(epoch.as_deref(), release(resource_version, admission)))
            }
            Self::Regrant { key, resource_version, admission, epoch, .. } => {
                binding(key, under(epoch.as_deref(), regrant(resource_version, admission)))
            }
            Self::Evict { key, resource_version, suspension, planned, eviction, .. } => {
                binding(key, evict(resource_version, *suspension, *planned, eviction))
            }
            Self::Shrink { key, resource_version, admission, eviction, .. } => {
                binding(key, shrink(resource_version, admission, eviction))
            }
            Self::CreateGroup { key, object } => group(key, Body::Create(object.clone())),
            Self::PatchGroup { key, patch } => group(key, Body::MergePatch(patch.clone())),
            Self::DeleteGroup { key, uid } => group(key, Body::Delete { uid: Some(uid.clone()) }),
            Self::QueueStatus { name, patch } => queue(name.as_str(), Some("status"), Body::MergePatch(patch.clone())),
            Self::QueueState { name, resource_version, state } => {
                let patch = json!({
                    "metadata": {"resourceVersion": resource_version}, "status": {"state": state.as_str()},
                });
                queue(name.as_str(), Some("status"), Body::MergePatch(patch))
            }
            Self::QueueMark { name, resource_version, closed_by_parent } => {
                let annotations = json!({CLOSED_BY_PARENT: closed_by_parent.to_string()});
                let metadata = json!({"resourceVersion": resource_version, "annotations": annotations});
                queue(name.as_str(), None, Body::MergePatch(json!({"metadata": metadata})))
            }
            Self::QueueNote { name, note } => {
                let patch = json!({"metadata": {"annotations": {QUEUE_STATUS: note}}});
                queue(name.as_str(), None, Body::MergePatch(patch))
            }
            Self::DeleteCommand { key, uid } => Write {
                resource: api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands"),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                subresource: None,
                body: Body::Delete { uid: Some(uid.clone()) },
            },
            Self::DefaultQueue => queue(DEFAULT_QUEUE, None, Body::Create(default_queue())),
            Self::Tell { regarding, event_type, reason, message } => {
                build_event(regarding, None, *event_type, reason, message, COMPONENT, now)
            }
        }
    }
}

fn binding(key: &Key, patch: Value) -> Write {
    Write {
        resource: api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource: None,
        body: Body::JsonPatch(patch),
    }
}

fn annotation(name: &str) -> String {
    format!("/metadata/annotations/{}", name.replace('/', "~1"))
}

/// The gate was closed by the suspension, so both of its parents are there; the annotations as well, the gate is one.
fn release(resource_version: &str, admission: &Admission) -> Value {
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": "/spec/suspension/scheduling", "value": false},
        {"op": "add", "path": annotation(GATE), "value": GATE_OPEN},
        {"op": "add", "path": annotation(ADMISSION), "value": admission.to_json()},
        {"op": "add", "path": annotation(PRIORITY), "value": admission.priority.to_string()},
    ])
}

/// The reverse of a release, and its clusters are taken away: Karmada then deletes the copies in members. A binding that
/// was released has the record; Karmada may have dropped an empty suspension since.
fn evict(resource_version: &str, suspension: bool, planned: bool, eviction: &EvictionRecord) -> Value {
    let (path, closed) = match suspension {
        true => ("/spec/suspension/scheduling", json!(true)),
        false => ("/spec/suspension", json!({"scheduling": true})),
    };
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "add", "path": "/spec/clusters", "value": []}),
        json!({"op": "add", "path": path, "value": closed}),
        json!({"op": "add", "path": annotation(GATE), "value": GATE_CLOSED}),
        json!({"op": "remove", "path": annotation(ADMISSION)}),
        json!({"op": "add", "path": annotation(EVICTION), "value": eviction.to_json()}),
    ];
    if planned {
        patch.push(json!({"op": "remove", "path": annotation(PLAN)}));
    }
    Value::Array(patch)
}

/// `spec.clusters` and the plan are the scheduler's: it never places more than the record says, and takes away what is
/// more.
fn shrink(resource_version: &str, admission: &Admission, eviction: &EvictionRecord) -> Value {
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": annotation(ADMISSION), "value": admission.to_json()},
        {"op": "add", "path": annotation(EVICTION), "value": eviction.to_json()},
    ])
}

fn regrant(resource_version: &str, admission: &Admission) -> Value {
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": annotation(ADMISSION), "value": admission.to_json()},
    ])
}

/// A grant, and under which lease it is made.
fn under(epoch: Option<&str>, mut patch: Value) -> Value {
    if let (Some(epoch), Some(steps)) = (epoch, patch.as_array_mut()) {
        steps.push(json!({"op": "add", "path": annotation(EPOCH), "value": epoch}));
    }
    patch
}

fn default_queue() -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"weight": 1, "reclaimable": true},
    })
}

fn group(key: &Key, body: Body) -> Write {
    Write {
        resource: api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        subresource: None,
        body,
    }
}

fn queue(name: &str, subresource: Option<&'static str>, body: Body) -> Write {
    Write {
        resource: api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
        namespace: String::new(),
        name: name.to_owned(),
        subresource,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_touches_only_the_one_field_and_our_annotations_defect_16() {
        let admission = Admission {
            queue: "q".into(),
            above: Vec::new(),
            priority: 7,
            copies: 1,
            tasks: [("t".into(), 2)].into(),
            charged: caldera_core::resources::Resources::new(),
        };
        let mut binding = json!({
            "metadata": {"resourceVersion": "5", "annotations": {"caldera.dev/gate": "closed", "user": "own"}},
            "spec": {"suspension": {"scheduling": true, "dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}},
        });
        let Body::JsonPatch(patch) = (Effect::Release {
            key: Key::new("ns", "b"),
            id: "uid".into(),
            resource_version: "5".into(),
            admission,
            epoch: None,
        })
        .write(Timestamp::UNIX_EPOCH)
        .body
        else {
            panic!()
        };
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        json_patch::patch(&mut binding, &patch).unwrap();
        assert_eq!(
            binding,
            json!({
                "metadata": {"resourceVersion": "5", "annotations": {
                    "caldera.dev/gate": "open", "user": "own", "caldera.dev/priority": "7",
                    "caldera.dev/admission": r#"{"queue":"q","priority":7,"copies":1,"tasks":{"t":2},"charged":{}}"#,
                }},
                "spec": {"suspension": {"scheduling": false, "dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}},
            })
        );
        binding["metadata"]["resourceVersion"] = "6".into();
        assert!(json_patch::patch(&mut binding, &patch).is_err(), "a decision on an old state must be refused");
    }
}
