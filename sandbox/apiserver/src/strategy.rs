//! What kinds do on their own when they are written (`pkg/registry/*/*/strategy.go`, default admission): the parts a
//! path may not touch, values the server computes, checks beyond the schema.

mod checks;

use serde_json::{Map, Value, json};

use crate::error::Status;
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::write::Part;

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
            if is_kind(resource, "", "namespaces") {
                copy_member(object, old, "spec");
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

/// What the server computes on creation. Runs after the mutating webhooks.
pub fn prepare_create(
    server: &ApiServer,
    resource: &Resource,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if resource.is_custom() {
        if resource.rules.separate_status {
            remove_member(object, "status");
        }
        return Ok(());
    }
    let _ = warnings;
    settle_members(resource, object);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => prepare_namespace(object),
        ("", "pods") => crate::pod::prepare_create(server, object)?,
        ("", "services") => crate::service::prepare_create(server, object)?,
        ("", "secrets") => prepare_secret(object),
        ("", "nodes") => {
            taint_new_node(object);
            complete_status(resource, object);
            crate::node_rules::follow_network(object, None);
        }
        ("batch", "jobs") => prepare_job(object),
        ("apps", "daemonsets") => note_template(object, None),
        ("", "persistentvolumeclaims") => protect_in_use(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => {
            protect_in_use(object, "kubernetes.io/pv-protection");
            let now = crate::clock::write_seconds(server.now());
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }
        ("scheduling.k8s.io", "priorityclasses") => crate::priority::admit_class(server, object)?,
        ("apiextensions.k8s.io", _) => crate::crd::prepare_create(object),
        _ => {}
    }
    empty_status(resource, object);
    Ok(())
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

fn prepare_namespace(object: &mut Value) {
    let name = meta::object_name(object).to_owned();
    let metadata = meta::metadata_mut(object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
    let spec = object.as_object_mut().map(|o| o.entry("spec").or_insert_with(|| json!({})));
    if let Some(Value::Object(spec)) = spec {
        let list = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(list) = list
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push("kubernetes".into());
        }
    }
    object["status"] = json!({"phase": "Active"});
}

/// `stringData` is write-only: it goes into `data`, encoded.
fn prepare_secret(object: &mut Value) {
    use base64::Engine;
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        data[key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

/// A new node takes no pods until somebody says that it is ready (plugin TaintNodesByCondition).
fn taint_new_node(object: &mut Value) {
    let key = "node.kubernetes.io/not-ready";
    if !object.get("spec").is_some_and(Value::is_object) {
        object["spec"] = json!({});
    }
    let mut taints = object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    if !taints.iter().any(|t| t.get("key").and_then(Value::as_str) == Some(key)) {
        taints.push(json!({"key": key, "effect": "NoSchedule"}));
        object["spec"]["taints"] = taints.into();
    }
}

/// What kinds drop or fill in themselves, whoever wrote it, on creation and on an update of the whole object.
fn settle_members(resource: &Resource, object: &mut Value) {
    let spec = |object: &mut Value, keys: &[&str]| {
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        spec.into_iter().for_each(|spec| spec.retain(|key, _| !keys.contains(&key.as_str())));
    };
    match (resource.group.as_str(), resource.plural.as_str()) {
        // Fields of coordinated leader election, which is off by default.
        ("coordination.k8s.io", "leases") => spec(object, &["preferredHolder", "strategy"]),
        // Configuration that kubelets once read.
        ("", "nodes") => spec(object, &["configSource"]),
        ("", "persistentvolumeclaims") => crate::storage_rules::settle_origin(object),
        ("", "serviceaccounts") => {
            // Of a reference to a secret the name alone is kept.
            for secret in object.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
                secret.as_object_mut().into_iter().for_each(|members| members.retain(|key, _| key == "name"));
            }
        }
        ("apps", "statefulsets") => {
            // How many pods at once are replaced is behind a gate that is shut.
            let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut);
            rolling.map(|rolling| rolling.remove("maxUnavailable"));
        }
        ("discovery.k8s.io", "endpointslices") => {
            for endpoint in object.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
                endpoint.as_object_mut().map(|endpoint| endpoint.remove("deprecatedTopology"));
            }
        }
        _ => {}
    }
}

/// The generation of a DaemonSet's template stands in an annotation since extensions/v1beta1
/// (`apis/apps/v1/conversion.go`).
fn note_template(object: &mut Value, old: Option<&Value>) {
    let noted =
        |v: &Value| v["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|t| t.parse::<u64>().ok());
    let template = |v: &Value| v.pointer("/spec/template").cloned();
    let generation = match old {
        None => 1,
        Some(old) => noted(old).unwrap_or(1) + u64::from(template(old) != template(object)),
    };
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = generation.to_string().into();
}

/// `SetDefaults_ReplicationController`: selector and labels are those of the template.
fn select_own_pods(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let Some(labels) = labels.filter(|l| l.as_object().is_some_and(|l| !l.is_empty())) else { return };
    let empty = |v: Option<&Value>| v.and_then(Value::as_object).is_none_or(Map::is_empty);
    if empty(object.pointer("/spec/selector")) {
        object["spec"]["selector"] = labels.clone();
    }
    if empty(object.pointer("/metadata/labels")) {
        meta::metadata_mut(object).insert("labels".into(), labels);
    }
}

/// Plugin StorageObjectInUseProtection.
fn protect_in_use(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> = meta::finalizers_of(object).into_iter().map(Into::into).collect();
    if !finalizers.iter().any(|f| f == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(object, &finalizers);
    }
}

/// `generateSelector`: a Job selects its pods by its own uid.
fn prepare_job(object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let uid = meta::metadata_text(object, "uid").to_owned();
    let name = meta::object_name(object).to_owned();
    // Labels that were the template's are still the same map.
    let own = object.pointer("/metadata/labels").and_then(Value::as_object).filter(|own| !own.is_empty());
    let shared = own.is_some() && own == object.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // What the user asks for stays, and fails validation.
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    if !selector.get("matchLabels").is_some_and(Value::is_object) {
        selector["matchLabels"] = json!({});
    }
    if selector["matchLabels"].get("batch.kubernetes.io/controller-uid").is_none() {
        selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.clone().into();
    }
    let Some(template) = spec.get_mut("template").filter(|t| t.is_object()) else { return };
    let metadata = meta::metadata_mut(template);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    for prefix in ["batch.kubernetes.io/", ""] {
        for (label, value) in [("controller-uid", &uid), ("job-name", &name)] {
            let label = format!("{prefix}{label}");
            if labels.get(&label).is_none() {
                labels[label] = value.as_str().into();
            }
        }
    }
    if shared {
        let labels = labels.clone();
        meta::metadata_mut(object).insert("labels".into(), labels);
    }
}

/// What the server computes on an update. Runs after the mutating webhooks.
pub fn prepare_update(
    server: &ApiServer,
    resource: &Resource,
    part: Part,
    object: &mut Value,
    old: &Value,
) -> Result<(), Status> {
    if resource.is_custom() {
        return Ok(());
    }
    if part == Part::Whole {
        settle_members(resource, object);
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            // The label that names the namespace cannot be taken away.
            let name = meta::object_name(object).to_owned();
            let metadata = meta::metadata_mut(object);
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name.into();
        }
        ("", "secrets") => prepare_secret(object),
        ("", "nodes") if part == Part::Whole => crate::node_rules::follow_network(object, Some(old)),
        ("", "pods") if part == Part::Whole => crate::pod::prepare_update(object, old),
        ("", "services") if part == Part::Whole => crate::service::prepare_update(server, object, old)?,
        ("apps", "daemonsets") => note_template(object, Some(old)),
        ("apiextensions.k8s.io", _) => crate::crd::prepare_update(part, object, old),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gated_members_go_with_an_update_of_the_whole() {
        let (server, registry) = (ApiServer::new(crate::Options::default()), crate::builtin::builtin_registry());
        let nodes = registry.get("", "v1", "nodes").unwrap();
        let node = json!({"metadata": {"name": "n"}, "spec": {"configSource": {}}});
        for (part, kept) in [(Part::Whole, false), (Part::Status, true)] {
            let mut written = node.clone();
            prepare_update(&server, nodes, part, &mut written, &node).unwrap();
            assert_eq!(written["spec"].get("configSource").is_some(), kept);
        }
    }
}
