//! What the server computes on a create and on an update, after the mutating webhooks
//! (`pkg/registry/*/*/strategy.go`: `PrepareForCreate`, `PrepareForUpdate`).

use serde_json::{Map, Value, json};

use super::{TEMPLATE_GENERATION, complete_status, empty_status, remove_member};
use crate::auth::User;
use crate::error::Status;
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::write::Part;

/// What the server computes on creation. Runs after the mutating webhooks.
pub fn prepare_create(
    server: &ApiServer,
    user: &User,
    resource: &Resource,
    object: &mut Value,
    dry_run: bool,
) -> Result<(), Status> {
    if resource.is_custom() {
        if resource.rules.separate_status {
            remove_member(object, "status");
        }
        return Ok(());
    }
    settle_members(resource, object);
    crate::default_classes::put_default_class(server, resource, object);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => prepare_namespace(object),
        ("", "pods") => crate::pod::prepare_create(server, object)?,
        ("", "services") => crate::service::prepare_create(server, object, dry_run)?,
        ("", "secrets") => prepare_secret(object),
        // Of all kinds this one needs no name (`limitrangeStrategy`).
        ("", "limitranges") if meta::object_name(object).is_empty() => {
            let name = server.new_id().to_string();
            meta::metadata_mut(object).insert("name".into(), name.into());
        }
        ("", "nodes") => {
            taint_new_node(object);
            complete_status(resource, object);
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
        ("certificates.k8s.io", _) => crate::csr_rules::prepare_create(object, user),
        ("storage.k8s.io", "volumeattributesclasses") => protect_in_use(object, "kubernetes.io/vac-protection"),
        _ => {}
    }
    empty_status(resource, object);
    Ok(())
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
pub(super) fn taint_new_node(object: &mut Value) {
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
pub(super) fn select_own_pods(object: &mut Value) {
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
pub(super) fn protect_in_use(object: &mut Value, finalizer: &str) {
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
    dry_run: bool,
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
        ("", "services") if part == Part::Whole => crate::service::prepare_update(server, object, old, dry_run)?,
        ("apps", "daemonsets") => note_template(object, Some(old)),
        ("apiextensions.k8s.io", _) => crate::crd::prepare_update(part, object, old),
        ("certificates.k8s.io", _) => {
            let now = crate::clock::write_seconds(server.now());
            crate::csr_rules::prepare_update(object, part, old, &now);
        }
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
            prepare_update(&server, nodes, part, &mut written, &node, false).unwrap();
            assert_eq!(written["spec"].get("configSource").is_some(), kept);
        }
    }
}
