//! What kinds do on their own when they are written (`pkg/registry/*/*/strategy.go`, default admission): the parts a
//! path may not touch, values the server computes, checks beyond the schema.

mod checks;
mod prepare;

use serde_json::{Map, Value, json};

use crate::error::Status;
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::write::Part;

pub use self::prepare::{prepare_create, prepare_update};
use self::prepare::{protect_in_use, select_own_pods, taint_new_node};

pub use checks::{kind_warnings, namespace_errors, validate_part, validate_strategy};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The kind's directory in etcd, as it shows in messages.
pub fn storage_name(resource: &Resource) -> &str {
    match resource.plural.as_str() {
        "nodes" => "minions",
        "endpoints" => "services/endpoints",
        "services" => "services/specs",
        "ingresses" => "ingress",
        other => other,
    }
}

fn is_kind(resource: &Resource, group: &str, plural: &str) -> bool {
    resource.group == group && resource.plural == plural && !resource.is_custom()
}

/// The members that Go prints though they are empty, in a bookmark of a built-in kind.
pub fn bookmark_shape(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    if is_kind(resource, "", "pods") {
        object["spec"] = json!({"containers": null});
    }
    if resource.rules.separate_status {
        if object.get("spec").is_none() {
            object["spec"] = json!({});
        }
        object["status"] = json!({});
    }
}

/// Before field ownership is settled: what a creation may not set.
pub fn before_create(resource: &Resource, object: &mut Value) {
    if resource.rules.separate_status && !is_kind(resource, "", "nodes") {
        remove_member(object, "status");
    }
}

/// What decoding alone gives a new object, which its writer then owns (`apis/*/v1/defaults.go`, `conversion.go`).
pub fn complete_decoded(resource: &Resource, object: &mut Value) {
    if is_kind(resource, "apps", "daemonsets") {
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        if annotations.get(TEMPLATE_GENERATION).is_none() {
            annotations[TEMPLATE_GENERATION] = "0".into();
        }
    }
    if is_kind(resource, "", "replicationcontrollers") {
        select_own_pods(object);
    }
    label_job(resource, object);
}

/// `SetDefaults_Job`: a Job without labels takes its template's.
fn label_job(resource: &Resource, object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let empty = |labels: Option<&Value>| labels.and_then(Value::as_object).is_none_or(Map::is_empty);
    if is_kind(resource, "batch", "jobs") && !empty(labels.as_ref()) && empty(object.pointer("/metadata/labels")) {
        meta::metadata_mut(object).insert("labels".into(), labels.unwrap_or_default());
    }
}

/// What mutating webhooks see of a built-in kind: the status as it was sent or an empty one, and what default admission
/// puts in before them (plugins TaintNodesByCondition, StorageObjectInUseProtection and those of pods).
pub fn show_to_webhooks(
    server: &ApiServer,
    resource: &Resource,
    object: &mut Value,
    sent_status: Option<Value>,
) -> Result<(), Status> {
    if let Some(status) = sent_status {
        object["status"] = status;
    }
    if resource.is_custom() {
        return Ok(());
    }
    crate::default_classes::put_default_class(server, resource, object);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            object["status"]["phase"] = "Active".into();
            let name = meta::object_name(object).to_owned();
            if !name.is_empty() {
                let labels = meta::metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
                labels["kubernetes.io/metadata.name"] = name.into();
            }
        }
        ("", "pods") => crate::pod::admit_create(server, object)?,
        ("", "nodes") => {
            taint_new_node(object);
            complete_status(resource, object);
        }
        ("", "persistentvolumeclaims") => protect_in_use(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => protect_in_use(object, "kubernetes.io/pv-protection"),
        ("apiextensions.k8s.io", _) if object.get("status").is_none() => crate::crd::prepare_create(object),
        _ => {}
    }
    empty_status(resource, object);
    complete_stored(resource, object);
    Ok(())
}

/// The defaults that an object gets when it is read from storage: admission has not seen them.
pub fn complete_stored(resource: &Resource, object: &mut Value) {
    let is_volume = ["persistentvolumeclaims", "persistentvolumes"].iter().any(|plural| is_kind(resource, "", plural));
    if is_volume && object.pointer("/status/phase").is_none() {
        object["status"]["phase"] = "Pending".into();
    }
    label_job(resource, object);
}

/// An apply to one part does not own the others.
pub fn strip_for_part(resource: &Resource, part: Part, applied: &mut Value) {
    match part {
        Part::Whole if resource.rules.separate_status => remove_member(applied, "status"),
        Part::Status => {
            if let Some(map) = applied.as_object_mut() {
                map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            }
            if resource.is_custom()
                && let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
            }
        }
        _ => {}
    }
}

fn remove_member(object: &mut Value, member: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(member);
    }
}

fn copy_member(object: &mut Value, old: &Value, member: &str) {
    match old.get(member) {
        Some(value) => object[member] = value.clone(),
        None => remove_member(object, member),
    }
}

/// Puts back what this path may not write.
pub fn restore_parts(resource: &Resource, part: Part, object: &mut Value, old: &Value) {
    match part {
        Part::Whole => {
            if resource.rules.separate_status {
                copy_member(object, old, "status");
            }
        }
        Part::Status => restore_for_status(resource, object, old),
        Part::Named("finalize") => {
            copy_member(object, old, "status");
        }
        Part::Named("resize") => crate::pod_update::keep_for_resize(object, old),
        Part::Named(_) | Part::Scale => {}
    }
}

/// The finalizers of a namespace stay as they are, though whoever sends others owns them.
pub fn restore_owned(resource: &Resource, part: Part, object: &mut Value, old: &Value) {
    if part == Part::Whole && is_kind(resource, "", "namespaces") {
        copy_member(object, old, "spec");
    }
}

fn restore_for_status(resource: &Resource, object: &mut Value, old: &Value) {
    let status = object.get("status").cloned();
    if resource.is_custom() {
        let managed = object.get("metadata").and_then(|m| m.get("managedFields")).cloned();
        let version = object.get("metadata").and_then(|m| m.get("resourceVersion")).cloned();
        *object = old.clone();
        let metadata = meta::metadata_mut(object);
        for (member, value) in [("managedFields", managed), ("resourceVersion", version)] {
            match value {
                Some(value) => metadata.insert(member.into(), value),
                None => metadata.remove(member),
            };
        }
    } else {
        let metadata = object.get("metadata").cloned();
        *object = old.clone();
        if let Some(metadata) = metadata {
            object["metadata"] = metadata;
        }
        let metadata = meta::metadata_mut(object);
        let old_metadata = meta::metadata_of(old);
        for member in ["labels", "finalizers", "ownerReferences"] {
            let keeps = match member {
                "labels" => matches!(resource.plural.as_str(), "deployments" | "daemonsets"),
                "ownerReferences" => resource.plural == "pods",
                _ => resource.plural == "customresourcedefinitions",
            };
            if keeps {
                match old_metadata.and_then(|m| m.get(member)) {
                    Some(value) => metadata.insert(member.into(), value.clone()),
                    None => metadata.remove(member),
                };
            }
        }
    }
    match status {
        Some(status) => {
            object["status"] = status;
            // A pod's class never changes, whoever leaves it out.
            if let (true, Some(class), None) =
                (is_kind(resource, "", "pods"), old.pointer("/status/qosClass"), object.pointer("/status/qosClass"))
            {
                object["status"]["qosClass"] = class.clone();
            }
            complete_status(resource, object);
        }
        None if resource.is_custom() => remove_member(object, "status"),
        None => object["status"] = json!({}),
    }
}

/// What a status says once by itself: the list of a pod's addresses, a node's allocatable amounts.
fn complete_status(resource: &Resource, object: &mut Value) {
    let (from, to) = match resource.plural.as_str() {
        "pods" if is_kind(resource, "", "pods") => ("podIP", "podIPs"),
        "nodes" if is_kind(resource, "", "nodes") => ("capacity", "allocatable"),
        _ => return,
    };
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    // A pod's address is the first of its list where it is not told by itself.
    if from == "podIP" && !status.contains_key(from) {
        if let Some(first) = status.get(to).and_then(|list| list.pointer("/0/ip")).cloned() {
            status.insert(from.into(), first);
        }
        return;
    }
    // The list follows the single address.
    let moved = from == "podIP"
        && status
            .get(from)
            .is_some_and(|ip| status.get(to).and_then(|l| l.pointer("/0/ip")).is_some_and(|own| own != ip));
    if status.contains_key(to) && !moved {
        return;
    }
    if let Some(value) = status.get(from).cloned() {
        status.insert(to.into(), if from == "podIP" { json!([{"ip": value}]) } else { value });
    }
}

/// The status of a new object: Go prints the structs and the numbers without omitempty.
pub fn empty_status(resource: &Resource, object: &mut Value) {
    if !resource.rules.separate_status || object.get("status").is_some() {
        return;
    }
    let status = match resource.plural.as_str() {
        "replicationcontrollers" | "replicasets" => json!({"replicas": 0}),
        "statefulsets" => json!({"replicas": 0, "availableReplicas": 0}),
        "daemonsets" => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0
        }),
        "poddisruptionbudgets" => {
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
        }
        "horizontalpodautoscalers" if resource.version == "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
        "horizontalpodautoscalers" => json!({"desiredReplicas": 0, "currentMetrics": null}),
        "volumeattachments" => json!({"attached": false}),
        "ingresses" | "services" => json!({"loadBalancer": {}}),
        "nodes" => json!({
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                "architecture": ""
            }
        }),
        _ => json!({}),
    };
    object["status"] = status;
}
