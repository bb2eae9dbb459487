//! Deletion (`rest.BeforeDelete`, `genericregistry.Store.Delete`): preconditions, grace, finalizers and what the
//! propagation policy makes of them.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::admission::{self, Attributes, Operation};
use crate::body::{Document, Format};
use crate::call::{Call, Payload, Reply};
use crate::clock::write_seconds;
use crate::error::Status;
use crate::meta;
use crate::options::{DeleteOptions, ListOptions, Propagation};
use crate::registry_form::{to_storage, view_value};
use crate::resource::Resource;
use crate::store::{Change, Expect, Object};

const ATTEMPTS: usize = 64;
const ORPHAN: &str = "orphan";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const FOREGROUND: &str = "foregroundDeletion";
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
    or set propagationPolicy=Orphan to suppress this warning";

/// Kinds whose deletion answers with the object instead of a Status.
fn answers_with_object(resource: &Resource) -> bool {
    !resource.is_custom()
        && matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            (
                "",
                "pods"
                    | "services"
                    | "serviceaccounts"
                    | "resourcequotas"
                    | "persistentvolumes"
                    | "persistentvolumeclaims"
                    | "podtemplates"
            ) | ("storage.k8s.io", "storageclasses" | "csidrivers" | "csinodes" | "volumeattachments")
        )
}

/// Whether an update took the last thing that kept a deleted object.
pub fn is_complete(resource: &Resource, new: &Value, old: &Value) -> bool {
    if !meta::finalizers_of(new).is_empty() || !meta::is_deleting(old) {
        return false;
    }
    if resource.storage == "namespaces" {
        let left = new.pointer("/spec/finalizers").and_then(Value::as_array);
        return left.is_none_or(Vec::is_empty);
    }
    // The deletion of a definition has no grace period.
    let grace = old.get("metadata").and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    grace.is_none_or(|grace| grace == 0)
}

fn read_options(call: &Call) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() {
        None
    } else {
        let format = Format::of(&call.content_type)?;
        let document = Document::parse(&call.body, format)
            .map_err(|e| Status::bad_request(format!("couldn't get version/kind; json parse error: {e}")))?;
        Some(if document.value.is_null() { json!({}) } else { document.value })
    };
    DeleteOptions::parse(&call.query, body)
}

pub async fn delete_object(call: &mut Call) -> Result<Reply, Status> {
    let options = read_options(call)?;
    let name = call.info.name.clone();
    if options.propagation.is_none() && call.resource.storage == "jobs.batch" {
        call.warn(JOB_WARNING);
    }
    let outcome = delete_one(call, &name, &options, Reviewed::ByName).await?;
    Ok(match outcome {
        // Whoever asks in the old way that dependents go is told that this is not over yet.
        Deleted::Pending(payload) if options.value.get("orphanDependents") == Some(&Value::Bool(false)) => {
            Reply::Object { code: 202, payload }
        }
        Deleted::Pending(payload) => Reply::Object { code: 200, payload },
        Deleted::Gone(payload) if answers_with_object(&call.resource) => Reply::Object { code: 200, payload },
        Deleted::Gone(payload) => Reply::Plain { code: 200, value: success_status(call, payload.value()) },
    })
}

/// The Status of a finished deletion.
fn success_status(call: &Call, object: &Value) -> Value {
    let mut details = json!({"name": meta::object_name(object), "kind": call.resource.plural, "uid": meta::metadata_text(object, "uid")});
    if !call.resource.group.is_empty() {
        details["group"] = call.resource.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub enum Deleted {
    /// It stays until its grace is over and its finalizers are gone.
    Pending(Payload),
    Gone(Payload),
}

/// How admission sees a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reviewed {
    ByName,
    /// Among a collection.
    Nameless,
    /// An eviction was reviewed as such.
    Never,
}

/// Deletes one object of the call's kind.
pub async fn delete_one(
    call: &mut Call,
    name: &str,
    options: &DeleteOptions,
    admission: Reviewed,
) -> Result<Deleted, Status> {
    let mut reviewed = admission == Reviewed::Never;
    // A deletion among a collection goes by no name.
    let admitted = if admission == Reviewed::ByName { name } else { "" };
    for _ in 0..ATTEMPTS {
        let live = call.get(name).ok_or_else(|| call.not_found(name))?;
        let value = view_value(&call.resource, &live);
        check_preconditions(call, options, &value)?;
        if !reviewed {
            let grace = grace_period(&call.resource, options, &value);
            admit_deletion(call, name, admitted, options, grace, &value).await?;
            reviewed = true;
            // The webhooks took time: look again.
            continue;
        }
        let asked = (admission != Reviewed::Never).then_some(admitted);
        if let Some(done) = attempt_deletion(call, asked, options, &live, value).await? {
            return Ok(done);
        }
    }
    Err(Status::modified(&call.resource.group, &call.resource.plural, name))
}

/// The object must be the one that the options name, at the version that they name.
pub fn check_preconditions(call: &Call, options: &DeleteOptions, value: &Value) -> Result<(), Status> {
    let resource = &call.resource;
    let name = meta::object_name(value);
    if let Some(wanted) = &options.uid {
        let found = meta::metadata_text(value, "uid");
        if wanted != found && matches!(resource.storage.as_str(), "namespaces" | CRDS) {
            let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
            return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
        }
        if wanted != found {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({found}). The object might have been deleted \
                 and then recreated"
            );
            return Err(Status::conflict(&resource.group, &resource.kind, name, &why));
        }
    }
    if let Some(wanted) = &options.resource_version {
        let found = meta::metadata_text(value, "resourceVersion");
        if wanted != found {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object \
                 might have been modified"
            );
            return Err(Status::conflict(&resource.group, &resource.kind, name, &why));
        }
    }
    Ok(())
}

async fn admit_deletion(
    call: &mut Call,
    name: &str,
    admitted: &str,
    options: &DeleteOptions,
    grace: Grace,
    value: &Value,
) -> Result<(), Status> {
    let resource = call.resource.clone();
    let namespace = call.namespace().to_owned();
    let user = call.user.clone();
    let mut told = options.value.clone();
    if resource.storage == "namespaces" && options.uid.is_none() {
        // The namespace that was looked at, and no later one of its name (`namespace/storage`).
        told["preconditions"]["uid"] = meta::metadata_text(value, "uid").into();
    }
    match grace {
        // A deletion that is under way already is not asked about.
        Grace::Pending => return Ok(()),
        // As the strategy has completed them (`CheckGracefulDelete`); a collection's are a copy for each object.
        Grace::Start(period) | Grace::Shorten(period) if !admitted.is_empty() => {
            told["gracePeriodSeconds"] = period.into();
        }
        _ => {}
    }
    let attributes = Attributes {
        operation: Operation::Delete,
        resource: &resource,
        subresource: "",
        subresource_kind: None,
        namespace: &namespace,
        name: admitted,
        old_object: Some(value),
        options: &told,
        dry_run: options.dry_run,
        user: &user,
    };
    if call.resource.storage == "namespaces" && crate::namespace::INITIAL.contains(&name) && name != "kube-node-lease" {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    if call.resource.storage == "priorityclasses.scheduling.k8s.io" {
        crate::priority::refuse_deletion(name)?;
    }
    if admission::any_concerned(&call.server, &attributes) {
        let tidy = |_: &mut Value| Ok(());
        admission::run_mutating(&call.server, &attributes, None, &tidy, &mut call.warnings).await?;
        admission::run_validating(&call.server, &attributes, None, &mut call.warnings).await?;
    }
    Ok(())
}

/// One attempt on the state `live`; `None` when it raced. `asked`: the name by which webhooks know the deletion.
async fn attempt_deletion(
    call: &mut Call,
    asked: Option<&str>,
    options: &DeleteOptions,
    live: &Arc<Object>,
    value: Value,
) -> Result<Option<Deleted>, Status> {
    let now = call.server.now();
    let resource = call.resource.clone();
    let resource = &resource;
    if resource.storage == "namespaces" {
        return Ok(delete_namespace(call, options, live, value));
    }
    let mut next = value.clone();
    if resource.storage == CRDS && !meta::is_deleting(&value) {
        // The first deletion of a definition looks at no option (`customresourcedefinition/etcd.go`).
        crate::crd::mark_terminating(&mut next, &write_seconds(now));
    } else {
        meta::set_finalizers(&mut next, &finalizers_after(resource, options, &value));
    }
    let pending = !meta::finalizers_of(&next).is_empty();
    let grace = grace_period(resource, options, &value);
    match grace {
        Grace::Pending => return Ok(Some(Deleted::Pending(Payload::Value(value)))),
        Grace::None if pending && resource.storage == CRDS && !meta::is_deleting(&value) => {
            // The kind's own way to delete, the first time: no generation, no grace period.
            let metadata = meta::metadata_mut(&mut next);
            metadata.entry("deletionTimestamp").or_insert_with(|| write_seconds(now).into());
        }
        Grace::None if pending => mark_deleted(&mut next, 0, &write_seconds(now)),
        Grace::None => {}
        Grace::Shorten(period) => shorten_grace(&mut next, period),
        Grace::Start(period) => {
            let until = now.checked_add(SignedDuration::from_secs(period)).unwrap_or(now);
            mark_deleted(&mut next, period, &write_seconds(until));
        }
    }
    let waits = pending || matches!(grace, Grace::Shorten(p) | Grace::Start(p) if p > 0);
    if options.dry_run {
        let payload = Payload::Value(if waits || grace != Grace::None { next } else { value });
        return Ok(Some(if waits { Deleted::Pending(payload) } else { Deleted::Gone(payload) }));
    }
    let key = call.key(meta::object_name(&value));
    let mut state = live.clone();
    let mut again = false;
    // A pod was marked deleted first, and other objects lost their finalizers: admission is asked again about the
    // deletion that follows. What has no grace is not written once more.
    if !waits && next != value {
        again = true;
    }
    if next != value && (waits || grace != Grace::None) {
        let (stored, form) = to_storage(resource, next);
        let change = Change::Put(stored, form);
        let put = call.server.store().commit(&resource.storage, &key, Expect::Revision(live.revision), change);
        let Ok(put) = put else { return Ok(None) };
        state = put;
    }
    if let (true, Some(admitted)) = (again, asked) {
        let name = meta::object_name(&value);
        let marked = view_value(resource, &state);
        admit_deletion(call, name, admitted, options, grace, &marked).await?;
    }
    if waits {
        let reply = Deleted::Pending(crate::registry_form::view_object(resource, &state));
        crate::crd::after_commit(&call.server, resource, &state);
        return Ok(Some(reply));
    }
    let gone = call.server.store().commit(&resource.storage, &key, Expect::Revision(state.revision), Change::Remove);
    let Ok(gone) = gone else { return Ok(None) };
    crate::crd::after_removal(&call.server, resource, &gone);
    Ok(Some(Deleted::Gone(crate::registry_form::view_object(resource, &gone))))
}

/// A namespace turns Terminating and waits for its spec.finalizers.
fn delete_namespace(call: &Call, options: &DeleteOptions, live: &Arc<Object>, value: Value) -> Option<Deleted> {
    if meta::is_deleting(&value) {
        return Some(Deleted::Pending(Payload::Value(value)));
    }
    let mut next = value;
    let name = meta::object_name(&next).to_owned();
    let now = write_seconds(call.server.now());
    let finalizers = finalizers_after(&call.resource, options, &next);
    meta::set_finalizers(&mut next, &finalizers);
    meta::metadata_mut(&mut next).insert("deletionTimestamp".into(), now.into());
    next["status"]["phase"] = "Terminating".into();
    if options.dry_run {
        return Some(Deleted::Pending(Payload::Value(next)));
    }
    let resource = &call.resource;
    let change = Change::Put(next, resource.form);
    let key = call.key(&name);
    let stored = call.server.store().commit(&resource.storage, &key, Expect::Revision(live.revision), change).ok()?;
    Some(Deleted::Pending(Payload::Stored(stored)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// The kind knows no grace.
    None,
    /// A deletion is under way already and is not made shorter.
    Pending,
    Shorten(i64),
    Start(i64),
}

/// Only pods die gracefully.
fn grace_period(resource: &Resource, options: &DeleteOptions, value: &Value) -> Grace {
    if resource.is_custom() || resource.storage != "pods" {
        return Grace::None;
    }
    let metadata = value.get("metadata");
    let running = metadata.and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    let wanted = options.grace_period_seconds.map(|p| if p < 0 { 1 } else { p });
    if meta::is_deleting(value)
        && let Some(running) = running
    {
        return match wanted {
            _ if running == 0 => Grace::None,
            None => Grace::Pending,
            Some(period) if period >= running => Grace::Pending,
            Some(period) => Grace::Shorten(period),
        };
    }
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let idle = text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed");
    let own = value.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let period = if idle { 0 } else { wanted.unwrap_or(own) };
    Grace::Start(if period < 0 { 1 } else { period })
}

/// `markAsDeleting`: the first mark counts as a new generation.
fn mark_deleted(object: &mut Value, grace: i64, until: &str) {
    let first = !meta::is_deleting(object);
    let metadata = meta::metadata_mut(object);
    if first {
        metadata.insert("deletionTimestamp".into(), until.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
}

fn shorten_grace(object: &mut Value, period: i64) {
    let metadata = meta::metadata_mut(object);
    let running = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let until =
        metadata.get("deletionTimestamp").and_then(Value::as_str).and_then(|t| t.parse::<jiff::Timestamp>().ok());
    if let Some(until) = until.and_then(|t| t.checked_add(SignedDuration::from_secs(period - running)).ok()) {
        metadata.insert("deletionTimestamp".into(), write_seconds(until).into());
    }
    metadata.insert("deletionGracePeriodSeconds".into(), period.into());
}

/// `deletionFinalizersForGarbageCollection`: the options decide, else the finalizers that are there, else the kind.
fn finalizers_after(resource: &Resource, options: &DeleteOptions, value: &Value) -> Vec<String> {
    let current = meta::finalizers_of(value);
    if resource.storage == "events" {
        // Nothing of an event is ever collected.
        return current.into_iter().map(Into::into).collect();
    }
    let (orphan, foreground) = match options.propagation {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None if current.contains(&ORPHAN) => (true, false),
        None if current.contains(&FOREGROUND) => (false, true),
        None => (resource.rules.orphan_by_default, false),
    };
    let mut finalizers: Vec<String> =
        current.iter().filter(|f| **f != ORPHAN && **f != FOREGROUND).map(|f| (*f).to_owned()).collect();
    if orphan {
        finalizers.push(ORPHAN.into());
    }
    if foreground {
        finalizers.push(FOREGROUND.into());
    }
    // Keep the order when nothing changed.
    if finalizers.len() == current.len() && current.iter().all(|f| finalizers.iter().any(|n| n == f)) {
        finalizers = current.into_iter().map(Into::into).collect();
    }
    finalizers
}

/// Deletes what a list with the query's options finds; answers with the objects as they were.
pub async fn delete_collection(call: &mut Call) -> Result<Reply, Status> {
    let list = ListOptions::parse(&call.query, &call.resource, false)?;
    let options = read_options(call)?;
    let listed = crate::read::collect_objects(call, &list)?;
    if options.propagation.is_none() && call.resource.storage == "jobs.batch" {
        call.warn(JOB_WARNING);
    }
    let collection_namespace = call.info.namespace.clone();
    for payload in &listed.items {
        let object = payload.value();
        call.info.namespace = meta::metadata_text(object, "namespace").to_owned();
        let name = meta::object_name(object).to_owned();
        let outcome = delete_one(call, &name, &options, Reviewed::Nameless).await;
        call.info.namespace.clone_from(&collection_namespace);
        match outcome {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if call.resource.is_custom() {
        metadata["continue"] = "".into();
    }
    if let Some(next) = listed.next {
        metadata["continue"] = next.token.into();
        if let Some(remaining) = next.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    Ok(Reply::List { metadata, items: listed.items })
}
