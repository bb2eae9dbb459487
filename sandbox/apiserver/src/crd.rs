//! CustomResourceDefinitions: what creating, changing and deleting one does to the kinds that are served
//! (apiextensions-apiserver: establishing, naming and finalizing controllers, all at once here).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::clock::write_seconds;
use crate::crd_names::{Taken, is_settled, settle_names};
use crate::error::Status;
use crate::fields::Writer;
use crate::meta;
use crate::resource::{CustomResource, Generation, NameRule, Resource, Rules, ScalePaths, Subresource};
use crate::schema::TypeSchema;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key, Object};
use crate::write::Part;

pub const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Custom forms are numbered after the built-in ones, and never twice.
static NEXT_FORM: AtomicU64 = AtomicU64::new(crate::builtin::FORMS);

fn text_at<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn versions_of(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn storage_version(crd: &Value) -> Option<&str> {
    let stored = versions_of(crd).iter().find(|v| v.get("storage") == Some(&Value::Bool(true)));
    stored.map(|v| text_at(v, "/name"))
}

/// A new definition knows its storage version and nothing else yet.
pub fn prepare_create(crd: &mut Value) {
    let stored: Vec<Value> = storage_version(crd).map(Value::from).into_iter().collect();
    crd["status"] = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    });
}

/// A new storage version joins the list of those that were ever used.
pub fn prepare_update(part: Part, crd: &mut Value, _old: &Value) {
    if part != Part::Whole {
        return;
    }
    let Some(stored) = storage_version(crd).map(str::to_owned) else { return };
    if let Some(list) = crd.pointer_mut("/status/storedVersions").and_then(Value::as_array_mut)
        && !list.iter().any(|v| v.as_str() == Some(&stored))
    {
        list.push(stored.into());
    }
}

/// The first DELETE adds the finalizer under which the objects are cleaned up.
pub fn mark_terminating(crd: &mut Value, now: &str) {
    let mut finalizers: Vec<String> = meta::finalizers_of(crd).into_iter().map(Into::into).collect();
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    meta::set_finalizers(crd, &finalizers);
    set_condition(
        crd,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
}

fn set_condition(crd: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    if !crd.get("status").is_some_and(Value::is_object) {
        crd["status"] = json!({});
    }
    let mut list = crd.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = list.iter_mut().find(|c| text_at(c, "/type") == kind);
    match found {
        Some(condition) => {
            if text_at(condition, "/status") != status {
                condition["lastTransitionTime"] = now.into();
                condition["status"] = status.into();
            }
            condition["reason"] = reason.into();
            condition["message"] = message.into();
        }
        None => list.push(json!({
            "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        })),
    }
    crd["status"]["conditions"] = list.into();
}

/// Called after every committed write: acts when it was a definition.
pub fn after_commit(server: &ApiServer, resource: &Resource, stored: &Arc<Object>) {
    if resource.storage != STORAGE {
        return;
    }
    if meta::is_deleting(&stored.value) {
        clean_up(server, stored);
    } else {
        establish_definition(server, stored);
    }
}

/// Called after an object is gone: the last one of a kind lets its definition go.
pub fn after_removal(server: &ApiServer, resource: &Resource, gone: &Arc<Object>) {
    if resource.storage == STORAGE {
        unregister_versions(server, meta::object_name(&gone.value), &kind_storage(&gone.value));
        settle_others(server, text_at(&gone.value, "/spec/group"));
    } else if let Some(custom) = &resource.custom {
        let definition = server.store().get(STORAGE, &Key::new("", &custom.crd_name));
        if let Some(definition) = definition.filter(|d| meta::is_deleting(&d.value)) {
            clean_up(server, &definition);
        }
    }
}

/// Nothing new of a kind that is on its way out (`customresource_handler.go`).
pub fn refuse_terminating(server: &ApiServer, resource: &Resource, name: &str) -> Result<(), Status> {
    let Some(custom) = &resource.custom else { return Ok(()) };
    let definition = server.store().get(STORAGE, &Key::new("", &custom.crd_name));
    if definition.is_some_and(|d| meta::is_deleting(&d.value)) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(&resource.group, &resource.plural, name, why));
    }
    Ok(())
}

fn kind_storage(crd: &Value) -> String {
    crate::error::qualified_resource(text_at(crd, "/spec/names/plural"), text_at(crd, "/spec/group"))
}

/// Accepts the names, serves the versions and says so in the status.
fn establish_definition(server: &ApiServer, stored: &Arc<Object>) {
    let now = write_seconds(server.now());
    let old = &stored.value;
    let mut crd = old.clone();
    if !crd.get("status").is_some_and(Value::is_object) {
        crd["status"] = json!({});
    }
    let wanted = old.pointer("/spec/names").unwrap_or(&Value::Null);
    let before = old.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    let settled = settle_names(wanted, before, &taken_names(server, text_at(old, "/spec/group")));
    let accepted = settled.conflict.is_none();
    let renamed = settled.names != *before;
    match settled.conflict {
        None => set_condition(&mut crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", &now),
        Some((reason, message)) => set_condition(&mut crd, "NamesAccepted", "False", reason, &message, &now),
    }
    if renamed {
        crd["status"]["acceptedNames"] = settled.names;
    }
    if is_established(&crd) {
        // It stays so.
    } else if accepted {
        let message = "the initial names have been accepted";
        set_condition(&mut crd, "Established", "True", "InitialNamesAccepted", message, &now);
    } else {
        set_condition(&mut crd, "Established", "False", "NotAccepted", "not all names are accepted", &now);
    }
    set_approval(&mut crd, &now);
    if is_established(&crd) {
        register_versions(server, &crd);
    }
    if crd == *old {
        return;
    }
    own_status(server, old, &mut crd, &now);
    let key = Key::new("", meta::object_name(old));
    // Whoever changed it meanwhile comes by here as well.
    let group = text_at(old, "/spec/group").to_owned();
    let _ = server.store().commit(STORAGE, &key, Expect::Revision(stored.revision), Change::Put(crd, stored.form));
    if renamed {
        settle_others(server, &group);
    }
}

/// What the controllers of definitions wrote into a status is theirs.
fn own_status(server: &ApiServer, old: &Value, crd: &mut Value, now: &str) {
    let (api_version, subresource) = ("apiextensions.k8s.io/v1", "status");
    let writer = Writer { manager: "kube-apiserver", subresource, api_version, now };
    if let Some(resource) = server.registry().get("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
        crate::fields::track_update(Some(old), crd, &writer, &resource.schema);
    }
}

/// The names of a group that its definitions have.
fn taken_names(server: &ApiServer, group: &str) -> Taken {
    let mut taken = Taken::default();
    for other in server.store().list(STORAGE, None).iter().filter(|o| text_at(&o.value, "/spec/group") == group) {
        taken.add(other.value.pointer("/status/acceptedNames").unwrap_or(&Value::Null));
    }
    taken
}

/// Names became free: whoever waits for one in the group may have it now.
fn settle_others(server: &ApiServer, group: &str) {
    let all = server.store().list(STORAGE, None);
    for other in all.iter().filter(|o| text_at(&o.value, "/spec/group") == group && !meta::is_deleting(&o.value)) {
        let names = |path: &str| other.value.pointer(path).unwrap_or(&Value::Null);
        if !is_settled(names("/spec/names"), names("/status/acceptedNames")) {
            establish_definition(server, other);
        }
    }
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| text_at(c, "/type") == "Established" && text_at(c, "/status") == "True")
}

/// Groups of the Kubernetes community need an approval.
fn set_approval(crd: &mut Value, now: &str) {
    let group = text_at(crd, "/spec/group");
    if !(group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io")
        || group == "k8s.io"
        || group == "kubernetes.io")
    {
        return;
    }
    let annotation = meta::metadata_of(crd)
        .and_then(|m| m.get("annotations"))
        .and_then(|a| a.get("api-approved.kubernetes.io"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let kind = "KubernetesAPIApprovalPolicyConformant";
    if annotation.starts_with("unapproved") {
        set_condition(
            crd,
            kind,
            "False",
            "UnapprovedAnnotation",
            &format!("not approved: {}", crate::error::go_quote(&annotation)),
            now,
        );
    } else {
        set_condition(crd, kind, "True", "ApprovedAnnotation", &format!("approved in {annotation}"), now);
    }
}

/// Serves the definition's versions, in place of what was served before.
fn register_versions(server: &ApiServer, crd: &Value) {
    let preserve = crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    let schemas: BTreeMap<String, Arc<TypeSchema>> = versions_of(crd)
        .iter()
        .map(|v| {
            let schema = v.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
            (text_at(v, "/name").to_owned(), Arc::new(TypeSchema::from_crd(&schema, preserve)))
        })
        .collect();
    let schemas = Arc::new(schemas);
    let stored_in = storage_version(crd).unwrap_or_default();
    let storage = versions_of(crd)
        .iter()
        .find(|v| text_at(v, "/name") == stored_in)
        .map(|v| Arc::new(build_resource(crd, v, None, &schemas)));
    let mut served = Vec::new();
    for version in versions_of(crd).iter().filter(|v| v.get("served") == Some(&Value::Bool(true))) {
        if text_at(version, "/name") == stored_in {
            served.extend(storage.clone());
        } else {
            served.push(Arc::new(build_resource(crd, version, storage.clone(), &schemas)));
        }
    }
    server.state().registry.rcu(|registry| {
        let mut next = (**registry).clone();
        next.remove_custom(meta::object_name(crd));
        for resource in &served {
            next.insert(resource.clone());
        }
        next
    });
}

fn unregister_versions(server: &ApiServer, crd_name: &str, storage: &str) {
    server.state().registry.rcu(|registry| {
        let mut next = (**registry).clone();
        next.remove_custom(crd_name);
        next
    });
    server.store().wake(storage);
}

fn build_resource(
    crd: &Value,
    version: &Value,
    storage: Option<Arc<Resource>>,
    schemas: &Arc<BTreeMap<String, Arc<TypeSchema>>>,
) -> Resource {
    let accepted = |member: &str| text_at(crd, &format!("/status/acceptedNames/{member}"));
    let names = |member: &str| match (member, accepted(member)) {
        ("singular", "") => accepted("kind").to_lowercase(),
        ("listKind", "") => format!("{}List", accepted("kind")),
        (_, given) => given.to_owned(),
    };
    let list = |member: &str| -> Vec<String> {
        let list = crd.pointer(&format!("/status/acceptedNames/{member}")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
    };
    let (group, kind, name) = (text_at(crd, "/spec/group"), names("kind"), text_at(version, "/name"));
    let has_status = version.pointer("/subresources/status").is_some();
    let scale = version.pointer("/subresources/scale").map(|scale| ScalePaths {
        spec_replicas: text_at(scale, "/specReplicasPath").to_owned(),
        status_replicas: text_at(scale, "/statusReplicasPath").to_owned(),
        label_selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(Into::into),
    });
    let verbs = vec!["get", "patch", "update"];
    let mut subresources = Vec::new();
    // A custom kind names its status before its scale.
    if has_status {
        subresources.push(Subresource { name: "status".into(), kind: None, verbs: verbs.clone() });
    }
    if scale.is_some() {
        let kind = Some(("autoscaling".to_owned(), "v1".to_owned(), "Scale".to_owned()));
        subresources.push(Subresource { name: "scale".into(), kind, verbs });
    }
    let selectable = version.get("selectableFields").and_then(Value::as_array);
    let schema = schemas.get(name).cloned().unwrap_or_else(|| Arc::new(TypeSchema::from_crd(&Value::Null, true)));
    Resource {
        group: group.to_owned(),
        version: name.to_owned(),
        plural: names("plural"),
        singular: names("singular"),
        list_kind: names("listKind"),
        namespaced: text_at(crd, "/spec/scope") == "Namespaced",
        short_names: list("shortNames"),
        categories: list("categories"),
        verbs: vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        subresources,
        storage: kind_storage(crd),
        form: NEXT_FORM.fetch_add(1, Ordering::Relaxed),
        rules: Rules {
            name: NameRule::Subdomain,
            generation: if has_status { Generation::NotMetadataOrStatus } else { Generation::NotMetadata },
            create_on_update: false,
            unconditional_update: false,
            orphan_by_default: false,
            separate_status: has_status,
        },
        schema,
        custom: Some(CustomResource {
            crd_name: meta::object_name(crd).to_owned(),
            crd_uid: meta::metadata_text(crd, "uid").to_owned(),
            storage,
            schemas: schemas.clone(),
            definition: version.clone(),
            scale,
            selectable_fields: selectable.into_iter().flatten().map(|f| text_at(f, "/jsonPath").to_owned()).collect(),
            deprecation_warning: deprecation_warning(crd, version, &kind),
        }),
        kind,
    }
}

/// The warning of a deprecated version: its own, or a pointer to the best one that is not deprecated.
fn deprecation_warning(crd: &Value, version: &Value, kind: &str) -> Option<String> {
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        return None;
    }
    if let Some(own) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(own.to_owned());
    }
    let group = text_at(crd, "/spec/group");
    let name = text_at(version, "/name");
    let better = versions_of(crd)
        .iter()
        .filter(|v| v.get("served") == Some(&Value::Bool(true)) && v.get("deprecated") != Some(&Value::Bool(true)))
        .map(|v| text_at(v, "/name"))
        .filter(|v| version_rank(v) > version_rank(name))
        .max_by_key(|v| version_rank(v));
    let hint = better.map(|v| format!("; use {group}/{v} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{hint}"))
}

/// `version.CompareKubeAwareVersionStrings`: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else.
pub fn version_rank(version: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(end);
        let major = major.parse().ok()?;
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        for (word, level) in [("beta", 2), ("alpha", 1)] {
            if let Some(minor) = rest.strip_prefix(word) {
                return Some((level, major, minor.parse().ok()?));
            }
        }
        None
    };
    parse().unwrap_or((0, 0, 0))
}

/// A definition that is being deleted: its objects go, then it goes.
fn clean_up(server: &ApiServer, stored: &Arc<Object>) {
    let crd = &stored.value;
    if !meta::finalizers_of(crd).contains(&CLEANUP) {
        return;
    }
    let storage = kind_storage(crd);
    let objects = server.store().list(&storage, None);
    let mut left = false;
    for object in objects {
        let key = Key::new(meta::metadata_text(&object.value, "namespace"), meta::object_name(&object.value));
        if meta::finalizers_of(&object.value).is_empty() {
            let _ = server.store().commit(&storage, &key, Expect::Revision(object.revision), Change::Remove);
        } else {
            left = true;
            if !meta::is_deleting(&object.value) {
                let mut value = object.value.clone();
                let now = write_seconds(server.now());
                let metadata = meta::metadata_mut(&mut value);
                metadata.insert("deletionTimestamp".into(), now.into());
                metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
                let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
                metadata.insert("generation".into(), (generation + 1).into());
                let change = Change::Put(value, object.form);
                let _ = server.store().commit(&storage, &key, Expect::Revision(object.revision), change);
            }
        }
    }
    if left {
        let mut value = crd.clone();
        let now = write_seconds(server.now());
        let (reason, message) = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        set_condition(&mut value, "Terminating", "True", reason, message, &now);
        let key = Key::new("", meta::object_name(crd));
        if value != *crd {
            own_status(server, crd, &mut value, &now);
            let change = Change::Put(value, stored.form);
            let _ = server.store().commit(STORAGE, &key, Expect::Revision(stored.revision), change);
        }
        return;
    }
    let mut value = crd.clone();
    let finalizers: Vec<String> =
        meta::finalizers_of(crd).into_iter().filter(|f| *f != CLEANUP).map(Into::into).collect();
    meta::set_finalizers(&mut value, &finalizers);
    let now = write_seconds(server.now());
    set_condition(&mut value, "Terminating", "False", "InstanceDeletionCompleted", "removed all instances", &now);
    own_status(server, crd, &mut value, &now);
    let key = Key::new("", meta::object_name(crd));
    let change = if finalizers.is_empty() { Change::Remove } else { Change::Put(value, stored.form) };
    let done = server.store().commit(STORAGE, &key, Expect::Revision(stored.revision), change);
    if done.is_ok() {
        unregister_versions(server, meta::object_name(crd), &storage);
        if finalizers.is_empty() {
            settle_others(server, text_at(crd, "/spec/group"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::version_rank;

    #[test]
    fn versions_rank_as_kubernetes_ranks_them() {
        let order = ["foo", "v1alpha1", "v1beta1", "v1beta2", "v1", "v2"];
        assert!(order.windows(2).all(|w| version_rank(w[0]) < version_rank(w[1])));
    }
}
