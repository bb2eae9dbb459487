//! The paths below an object: status, scale, binding, eviction, finalize, token; and the kinds that only answer
//! reviews.

mod connect;
mod eviction;
mod log;
mod scale;

pub use connect::CONNECTIONS;

use serde_json::{Value, json};

use crate::admission::{self, Attributes, Operation};
use crate::auth;
use crate::body::{Document, Format};
use crate::call::{Call, Payload, Reply};
use crate::clock::write_seconds;
use crate::error::{Cause, Status, go_quote};
use crate::fields::Writer;
use crate::meta;
use crate::options::{DeleteOptions, WriteOptions};
use crate::read;
use crate::schema::TypeSchema;
use crate::selector::LabelSelector;
use crate::write::{self, Part};

pub async fn dispatch_subresource(call: &mut Call) -> Result<Reply, Status> {
    let (group, plural) = (call.resource.group.clone(), call.resource.plural.clone());
    let (name, rest) = match call.info.subresource.split_once('/') {
        Some((name, rest)) => (name.to_owned(), rest.to_owned()),
        None => (call.info.subresource.clone(), String::new()),
    };
    let connection = CONNECTIONS.iter().find(|(of, sub, _)| group.is_empty() && *of == plural && *sub == name);
    if !rest.is_empty() && (call.resource.is_custom() || name != "proxy") {
        return Err(if call.resource.is_custom() { Status::page_not_found() } else { Status::no_such_resource() });
    }
    let verb = call.info.verb.clone();
    let custom = call.resource.is_custom();
    let Some(known) = call.resource.subresource(&name) else {
        return Err(if custom { call.not_found(&call.info.name) } else { Status::no_such_resource() });
    };
    if !known.verbs.contains(&verb.as_str()) {
        return Err(if custom {
            Status::method_not_allowed(&group, &plural, &verb)
        } else {
            Status::verb_not_allowed()
        });
    }
    if let Some((_, _, kind)) = connection {
        return connect::connect_object(call, kind, &rest).await;
    }
    let part = match name.as_str() {
        "status" => Part::Status,
        "finalize" => Part::Named("finalize"),
        "resize" => Part::Named("resize"),
        "approval" => Part::Named("approval"),
        "ephemeralcontainers" => Part::Named("ephemeralcontainers"),
        "scale" => return scale::serve_scale(call).await,
        "binding" => return bind_pod(call).await,
        "eviction" => return eviction::evict_pod(call).await,
        "token" => return create_token(call).await,
        _ => return log::read_log(call),
    };
    match verb.as_str() {
        "get" => read::get_object(call),
        "update" => write::update_part(call, part).await,
        _ => write::patch_part(call, part).await,
    }
}

/// Kinds that are only created: access reviews, and the old way to bind.
pub async fn create_review(call: &mut Call) -> Result<Reply, Status> {
    if call.info.verb != "create" {
        return Err(Status::verb_not_allowed());
    }
    if call.resource.plural == "bindings" {
        let registry = call.server.registry();
        let pods = registry.get("", "v1", "pods").cloned().ok_or_else(Status::no_such_resource)?;
        call.resource = pods;
        return bind_pod(call).await;
    }
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let mut body = write::read_object(call, &options)?;
    body["kind"] = call.resource.kind.clone().into();
    body["apiVersion"] = call.resource.api_version().into();
    body["status"] = match call.resource.kind.as_str() {
        "TokenReview" => json!({"user": {}}),
        "SelfSubjectReview" => json!({"userInfo": {}}),
        "SelfSubjectRulesReview" => json!({"resourceRules": null, "nonResourceRules": null, "incomplete": false}),
        _ => json!({"allowed": false}),
    };
    admit_body(call, &options, Operation::Create, "", None, &mut body, &as_admitted).await?;
    let namespace = Some(call.info.namespace.clone()).filter(|n| !n.is_empty());
    let value = auth::review_access(&call.server, &call.user, &call.resource, namespace.as_deref(), body)?;
    Ok(Reply::Object { code: 201, payload: Payload::Value(value) })
}

/// Runs admission over a body that is not the object itself: a review, a binding, an eviction, a scale.
async fn admit_body(
    call: &mut Call,
    options: &WriteOptions,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    body: &mut Value,
    validated: &(dyn Fn(&Value) -> Result<Value, Status> + Send + Sync),
) -> Result<(), Status> {
    let resource = call.resource.clone();
    let subresource = call.info.subresource.clone();
    let kind = resource.subresource(&subresource).and_then(|s| s.kind.as_ref());
    let namespace = call.namespace().to_owned();
    if old.is_none() {
        let _ = meta::metadata_mut(body);
        let manager = call.manager(options.field_manager.as_deref());
        let now = write_seconds(call.server.now());
        let (group, version, kind) =
            kind.map_or((&resource.group, &resource.version, &resource.kind), |(g, v, k)| (g, v, k));
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        let writer = Writer { manager: &manager, subresource: &subresource, api_version: &api_version, now: &now };
        crate::fields::track_update(None, body, &writer, &TypeSchema::builtin(group, version, kind));
    }
    let user = call.user.clone();
    let admitted =
        write::admitted_options(&options.value, if old.is_some() { "UpdateOptions" } else { "CreateOptions" });
    let attributes = Attributes {
        operation,
        resource: &resource,
        subresource: &subresource,
        subresource_kind: kind.map(|(g, v, k)| (g.as_str(), v.as_str(), k.as_str())),
        namespace: &namespace,
        name,
        old_object: old,
        options: &admitted,
        dry_run: options.dry_run,
        user: &user,
    };
    if admission::any_concerned(&call.server, &attributes) {
        let as_it_is = |_: &mut Value| Ok(());
        admission::run_mutating(&call.server, &attributes, Some(body), &as_it_is, &mut call.warnings).await?;
        let shown = validated(body)?;
        // A scale that is read from its object has no owners.
        let old = old.filter(|_| subresource == "scale").cloned().map(|mut old| {
            crate::fields::untrack(&mut old);
            old
        });
        let attributes = Attributes { old_object: old.as_ref().or(attributes.old_object), ..attributes };
        admission::run_validating(&call.server, &attributes, Some(&shown), &mut call.warnings).await?;
    }
    Ok(())
}

fn as_admitted(body: &Value) -> Result<Value, Status> {
    Ok(body.clone())
}

/// Name, namespace and kind of a body that is about another object.
fn complete_body(call: &Call, body: &mut Value, api_version: &str, kind: &str, name: &str) {
    let namespace = call.namespace().to_owned();
    let metadata = meta::metadata_mut(body);
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), namespace.into());
    body["kind"] = kind.into();
    body["apiVersion"] = api_version.into();
}

fn read_document(call: &Call) -> Result<Document, Status> {
    let format = Format::of(&call.content_type)?;
    let document = Document::parse(&call.body, format).map_err(|e| {
        let why = format!("couldn't get version/kind; json parse error: {e}");
        // The codec of a custom resource's scale is told no type.
        Status::bad_request(match call.resource.is_custom() {
            true => why,
            false => format!(
                "the object provided is unrecognized (must be of type Scale): {why} ({})",
                write::summarize_body(&call.body)
            ),
        })
    })?;
    if document.value.is_object() { Ok(document) } else { Err(Status::bad_request("the body is not an object")) }
}

/// The body as an object of the kind that a path below a pod takes.
fn read_as(call: &mut Call, options: &WriteOptions, kind: (&str, &str, &str)) -> Result<Value, Status> {
    let own = call.resource.clone();
    let mut taken = (*own).clone();
    taken.group = kind.0.to_owned();
    taken.version = kind.1.to_owned();
    taken.kind = kind.2.to_owned();
    taken.schema = TypeSchema::builtin(kind.0, kind.1, kind.2);
    call.resource = taken.into();
    let read = write::read_object(call, options);
    call.resource = own;
    read
}

fn created_status() -> Reply {
    Reply::Plain {
        code: 201,
        value: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    }
}

/// Assigns a pod to a node (`BindingREST`).
async fn bind_pod(call: &mut Call) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let mut binding = read_as(call, &options, ("", "v1", "Binding"))?;
    crate::namespace::check_open(call)?;
    // The old way to bind has no name in its path.
    if call.info.name.is_empty() {
        call.info.name = meta::object_name(&binding).to_owned();
    }
    let name = call.info.name.clone();
    if meta::object_name(&binding) != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    complete_body(call, &mut binding, "v1", "Binding", &name);
    if call.info.subresource == "binding" {
        admit_body(call, &options, Operation::Create, &name, None, &mut binding, &as_admitted).await?;
    }
    let kind = binding.pointer("/target/kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !matches!(kind.as_str(), "" | "Node") {
        return Err(Status::unknown(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            go_quote(&kind)
        )));
    }
    if node.is_empty() {
        return Err(Status::unknown("target.name: Required value"));
    }
    let live = call.get(&name).ok_or_else(|| call.not_found(&name))?;
    let uid = meta::metadata_text(&binding, "uid");
    let found = meta::metadata_text(&live.value, "uid");
    if !uid.is_empty() && uid != found {
        return Err(write::uid_precondition(call, &name, uid, found));
    }
    let (sent, revision) = (meta::metadata_text(&binding, "resourceVersion"), live.revision.to_string());
    if !sent.is_empty() && sent != revision {
        let key = format!("/registry/pods/{}/{name}", call.namespace());
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
             ResourceVersion in precondition: {sent}, ResourceVersion in object meta: {revision}"
        );
        return Err(Status::conflict("", "pods", &name, &why));
    }
    let time = write_seconds(call.server.now());
    let assign = |_: &mut Call, live: &Value| -> Result<Value, Status> { assign_node(live, &binding, &node, &time) };
    write::modify_object(call, &options, Part::Named("binding"), &name, false, &assign).await?;
    Ok(created_status())
}

fn assign_node(live: &Value, binding: &Value, node: &str, now: &str) -> Result<Value, Status> {
    let name = meta::object_name(live);
    let conflict = |why: String| Status::conflict("", "pods/binding", name, &why);
    if meta::is_deleting(live) {
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let current = live.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if !current.is_empty() {
        return Err(conflict(format!("pod {name} is already assigned to node {}", go_quote(current))));
    }
    if live.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|g| !g.is_empty()) {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    let mut pod = live.clone();
    pod["spec"]["nodeName"] = node.into();
    let metadata = meta::metadata_mut(&mut pod);
    for member in ["annotations", "labels"] {
        for (key, value) in
            binding.get("metadata").and_then(|m| m.get(member)).and_then(Value::as_object).into_iter().flatten()
        {
            metadata.entry(member).or_insert_with(|| json!({}))[key] = value.clone();
        }
    }
    let mut conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some("PodScheduled"));
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    pod["status"]["conditions"] = conditions.into();
    Ok(pod)
}

/// A token for a service account: opaque, and a credential until the account or what it is bound to goes.
async fn create_token(call: &mut Call) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let mut request = read_as(call, &options, ("authentication.k8s.io", "v1", "TokenRequest"))?;
    crate::namespace::check_open(call)?;
    let spec = request.pointer("/spec").cloned().unwrap_or_default();
    let seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    let reference = spec.get("boundObjectRef").cloned().unwrap_or_default();
    let audiences = spec.get("audiences").filter(|a| a.as_array().is_some_and(|list| !list.is_empty())).cloned();
    request["spec"] = json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference});
    let name = call.info.name.clone();
    request["status"] = json!({"token": "", "expirationTimestamp": null});
    let account = call.get(&name).ok_or_else(|| call.not_found(&name))?;
    auth::token::check_request(call, &request, &account.value)?;
    let now = write_seconds(call.server.now());
    // Mutating webhooks see what was sent, the others what it came to.
    let completed = |request: &Value| -> Result<Value, Status> {
        let mut request = request.clone();
        let metadata = meta::metadata_mut(&mut request);
        metadata.insert("name".into(), meta::object_name(&account.value).into());
        metadata.insert("creationTimestamp".into(), now.as_str().into());
        metadata.insert("uid".into(), meta::metadata_text(&account.value, "uid").into());
        if request.pointer("/spec/audiences").is_none_or(Value::is_null) {
            request["spec"]["audiences"] = json!([auth::token::AUDIENCE]);
        }
        auth::token::check_duration(seconds)?;
        Ok(request)
    };
    admit_body(call, &options, Operation::Create, &name, None, &mut request, &completed).await?;
    let mut request = completed(&request)?;
    let audiences = request.pointer("/spec/audiences").and_then(Value::as_array);
    let listed = audiences.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let bound = if reference.is_object() { Some(auth::token::check_bound(call, &reference)?) } else { None };
    request["status"] = auth::token::issue_token(call, &account.value, listed, seconds, bound);
    Ok(Reply::Object { code: 201, payload: Payload::Value(request) })
}
