//! `scale`: the replicas of any kind that has them, as an `autoscaling/v1` Scale.

use serde_json::{Value, json};

use super::*;
use crate::admission::Operation;
use crate::body::{Document, media_type, split_repeats};
use crate::call::{Call, Reply};
use crate::error::Status;
use crate::meta;
use crate::options::{FieldValidation, WriteOptions};
use crate::registry_form::view_value;
use crate::resource::{Resource, ScalePaths};
use crate::schema::{FieldError, TypeSchema};
use crate::write::{self, Part, patch_invalid};

/// Where the numbers of a kind's scale are.
fn scale_paths(call: &Call) -> ScalePaths {
    match call.resource.custom.as_ref().and_then(|c| c.scale.clone()) {
        Some(paths) => paths,
        None => ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: None,
        },
    }
}

fn value_at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part))
}

fn put_at(object: &mut Value, path: &str, value: Value) {
    let mut here = object;
    for part in path.trim_start_matches('.').split('.') {
        if !here.is_object() {
            *here = json!({});
        }
        here = &mut here[part];
    }
    *here = value;
}

/// The `Scale` of an object.
fn scale_of(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = json!({});
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(member)) {
            metadata[member] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = value_at(object, &paths.spec_replicas).filter(|r| r.as_i64() != Some(0)) {
        spec["replicas"] = replicas.clone();
    }
    let mut status = json!({"replicas": value_at(object, &paths.status_replicas).cloned().unwrap_or_else(|| 0.into())});
    let selector = match &paths.label_selector {
        Some(path) => value_at(object, path).and_then(Value::as_str).map(Into::into),
        None if resource.is_custom() => None,
        None => object.pointer("/spec/selector").map(|s| selector_text(s, &resource.plural)),
    };
    if let Some(selector) = selector.filter(|s: &String| !s.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Who owns the replicas of an object, as the fields of its scale (`managedfields/scalehandler.go`).
fn scale_fields(paths: &ScalePaths, object: &Value) -> Option<Value> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let path = paths.spec_replicas.trim_start_matches('.');
    let owns = |entry: &Value| {
        let found = path.split('.').try_fold(entry.get("fieldsV1")?, |set, part| set.get(format!("f:{part}")))?;
        found.as_object().map(|set| set.is_empty() || set.contains_key("."))
    };
    let owned = entries.iter().filter(|entry| owns(entry) == Some(true)).map(|entry| {
        let mut entry = entry.clone();
        entry["apiVersion"] = "autoscaling/v1".into();
        entry["fieldsV1"] = json!({"f:spec": {"f:replicas": {}}});
        entry
    });
    let owned: Vec<Value> = owned.collect();
    (!owned.is_empty()).then(|| owned.into())
}

/// What a decoded Scale has that was not sent, and the fields that the writer takes over.
fn complete_scale(call: &Call, options: &WriteOptions, before: &Value, scale: &mut Value) {
    scale["kind"] = "Scale".into();
    scale["apiVersion"] = "autoscaling/v1".into();
    if scale.pointer("/status/replicas").is_none_or(Value::is_null) {
        scale["status"]["replicas"] = 0.into();
    }
    let manager = call.manager(options.field_manager.as_deref());
    let now = write_seconds(call.server.now());
    let writer = Writer { manager: &manager, subresource: "scale", api_version: "autoscaling/v1", now: &now };
    let schema = TypeSchema::builtin("autoscaling", "v1", "Scale");
    crate::fields::track_update(Some(before), scale, &writer, &schema);
    // The object keeps no time for it, the scale of this write has one.
    let entries = scale.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter(|entry| entry.get("time").is_none()) {
        let mine = entry.get("manager").and_then(Value::as_str) == Some(manager.as_str());
        if mine && entry.get("subresource").and_then(Value::as_str) == Some("scale") {
            entry["time"] = now.as_str().into();
        }
    }
}

/// A selector in the text form.
fn selector_text(selector: &Value, plural: &str) -> String {
    let mut terms = Vec::new();
    let equal = if plural == "replicationcontrollers" { Some(selector) } else { selector.get("matchLabels") };
    for (key, value) in equal.and_then(Value::as_object).into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        let term = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort();
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

pub async fn serve_scale(call: &mut Call) -> Result<Reply, Status> {
    let paths = scale_paths(call);
    let name = call.info.name.clone();
    let live = call.get(&name).ok_or_else(|| call.not_found(&name));
    if call.info.verb == "get" {
        let object = view_value(&call.resource, &live?);
        // A definition that names a path wants a number there (`scaleFromCustomResource`).
        if call.resource.is_custom() && value_at(&object, &paths.spec_replicas).is_none() {
            let shown = go_quote(&paths.spec_replicas);
            return Err(Status::internal(format!("the spec replicas field {shown} does not exist")));
        }
        return Ok(Reply::Plain { code: 200, value: scale_of(&call.resource, &paths, &object) });
    }
    let (options, change) = if call.info.verb == "update" {
        let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
        let scale = scale_body(call, &options)?;
        (options, ScaleChange::Put(scale))
    } else {
        let apply = media_type(&call.content_type) == "application/apply-patch+yaml";
        let options = WriteOptions::parse(&call.query, "PatchOptions", apply)?;
        if apply { (options, ScaleChange::Apply(applied_scale(call)?)) } else { (options, scale_patch(call)?) }
    };
    let applies = matches!(change, ScaleChange::Apply(_));
    let bytes = call.body.clone();
    let live_value = view_value(&call.resource, &live?);
    let mut before = scale_of(&call.resource, &paths, &live_value);
    if let Some(fields) = scale_fields(&paths, &live_value) {
        before["metadata"]["managedFields"] = fields;
    }
    let mut after = match &change {
        ScaleChange::Apply(scale) => merged_scale(call, &options, &before, scale)?,
        change => change.applied(&bytes, &before)?,
    };
    if matches!(change, ScaleChange::Patch(_)) {
        write::check_name(call, &after)?;
    }
    let strict = change.strict_errors(&bytes, &after);
    if !strict.is_empty() {
        refuse_unknown(call, &options, &after, &strict)?;
    }
    if !applies {
        complete_scale(call, &options, &before, &mut after);
    }
    let asked = after.clone();
    let resource = call.resource.clone();
    // Validating webhooks see the scale of the object as it will be.
    let resulting = |scale: &Value| -> Result<Value, Status> {
        let mut object = live_value.clone();
        put_at(&mut object, &paths.spec_replicas, replicas_of(scale).into());
        Ok(scale_of(&resource, &paths, &object))
    };
    admit_body(call, &options, Operation::Update, &name, Some(&before), &mut after, &resulting).await?;
    // A webhook's own idea of the scale holds for the state that it was shown.
    let change = if after == asked { change } else { ScaleChange::Put(after) };
    let rewrite = |call: &mut Call, live: &Value| -> Result<Value, Status> {
        let before = scale_of(&call.resource, &paths, live);
        let after = change.applied(&bytes, &before)?;
        if applies {
            return own_replicas(call, &options, &paths, live, &after);
        }
        let mut object = set_scale(call, &paths, live, &after)?;
        if replicas_of(&after) == 0 {
            // A scale of none has no number in it, and so nobody owns the replicas any more.
            crate::fields::disown(&mut object, &paths.spec_replicas, None);
        }
        Ok(object)
    };
    // Where nobody owns the replicas nobody is tracked (`skipNonAppliedManager` over the entries of the scale).
    let none = change.applied(&bytes, &before).is_ok_and(|scale| replicas_of(&scale) == 0);
    let untracked = applies || none || scale_fields(&paths, &live_value).is_none();
    let reply = write::modify_object(call, &options, Part::Scale, &name, untracked, &rewrite).await?;
    match reply {
        Reply::Object { code, payload } => {
            Ok(Reply::Plain { code, value: scale_of(&call.resource, &paths, payload.value()) })
        }
        other => Ok(other),
    }
}

enum ScaleChange {
    Put(Value),
    Patch(ScalePatch),
    Apply(Value),
}

impl ScaleChange {
    fn applied(&self, bytes: &[u8], before: &Value) -> Result<Value, Status> {
        match self {
            ScaleChange::Put(scale) | ScaleChange::Apply(scale) => Ok(scale.clone()),
            ScaleChange::Patch(kind) => patched_scale(*kind, bytes, before),
        }
    }

    /// What a patch puts into a scale that has no such member.
    fn strict_errors(&self, bytes: &[u8], after: &Value) -> Vec<String> {
        let ScaleChange::Patch(kind) = self else { return Vec::new() };
        let mut strict = match kind {
            ScalePatch::Json => crate::patch::unknown_members(&serde_json::from_slice(bytes).unwrap_or_default()),
            ScalePatch::Merge | ScalePatch::Strategic => Vec::new(),
        };
        let known: [(&str, &[&str]); 2] = [("spec", &["replicas"]), ("status", &["replicas", "selector"])];
        for (part, members) in known {
            let given = after.get(part).and_then(Value::as_object).into_iter().flatten();
            let odd = given.filter(|(member, _)| !members.contains(&member.as_str()));
            strict.extend(odd.map(|(member, _)| format!("unknown field {}", go_quote(&format!("{part}.{member}")))));
        }
        strict
    }
}

/// Strict decoding of a patched scale: an error, or warnings.
fn refuse_unknown(call: &mut Call, options: &WriteOptions, after: &Value, strict: &[String]) -> Result<(), Status> {
    match options.validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            strict.iter().for_each(|text| call.warn(text.clone()));
            Ok(())
        }
        FieldValidation::Strict => {
            Err(patch_invalid(&after.to_string(), &format!("strict decoding error: {}", strict.join(", "))))
        }
    }
}

/// The body of an apply. A custom resource has no version of its own for it, and the real server fails.
fn applied_scale(call: &Call) -> Result<Value, Status> {
    let scale =
        crate::body::parse_yaml(&call.body).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
    let member = |name: &str| scale.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (member("kind"), member("apiVersion"));
    if kind != "Scale" || api_version != "autoscaling/v1" {
        let qualified = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return Err(Status::bad_request(format!("invalid object type: {qualified}, Kind={kind}")));
    }
    if call.resource.is_custom() {
        return Err(Status::unknown(
            "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper \
             version: request to convert CR to an invalid group/version: autoscaling/v1",
        ));
    }
    Ok(scale)
}

/// The scale after an apply, or the conflicts with those who own the replicas.
fn merged_scale(call: &Call, options: &WriteOptions, before: &Value, applied: &Value) -> Result<Value, Status> {
    let manager = options.field_manager.clone().unwrap_or_default();
    let now = write_seconds(call.server.now());
    let writer = Writer { manager: &manager, subresource: "scale", api_version: "autoscaling/v1", now: &now };
    let schema = TypeSchema::builtin("autoscaling", "v1", "Scale");
    let mut before = before.clone();
    if before.pointer("/spec/replicas").is_none() {
        // A scale of nothing has no number, and nobody owns it.
        meta::metadata_mut(&mut before).remove("managedFields");
    }
    let next = crate::fields::apply(Some(&before), applied, &writer, options.force.unwrap_or(false), &schema)
        .map_err(write::apply_status)?;
    write::check_name(call, &next)?;
    Ok(next)
}

/// The object with the applied number in it, owned by the applier (`ScaleHandler.ToParent`): without a time.
fn own_replicas(
    call: &Call,
    options: &WriteOptions,
    paths: &ScalePaths,
    live: &Value,
    scale: &Value,
) -> Result<Value, Status> {
    let mut object = set_scale(call, paths, live, scale)?;
    let manager = options.field_manager.clone().unwrap_or_default();
    let now = write_seconds(call.server.now());
    let api_version = call.resource.api_version();
    let writer = Writer { manager: &manager, subresource: "scale", api_version: &api_version, now: &now };
    let mut applied = json!({"apiVersion": api_version, "kind": call.resource.kind});
    put_at(&mut applied, &paths.spec_replicas, replicas_of(scale).into());
    let owned = crate::fields::apply(Some(live), &applied, &writer, true, &call.resource.schema)
        .map_err(write::apply_status)?;
    let mut entries = owned.pointer("/metadata/managedFields").cloned().unwrap_or_default();
    for entry in entries.as_array_mut().into_iter().flatten() {
        if entry["subresource"] == "scale"
            && entry["operation"] == "Apply"
            && let Some(entry) = entry.as_object_mut()
        {
            entry.remove("time");
        }
    }
    meta::metadata_mut(&mut object).insert("managedFields".into(), entries);
    Ok(object)
}

#[derive(Clone, Copy)]
enum ScalePatch {
    Json,
    Merge,
    Strategic,
}

fn scale_patch(call: &Call) -> Result<ScaleChange, Status> {
    let custom = call.resource.is_custom();
    match media_type(&call.content_type) {
        "application/json-patch+json" => Ok(ScaleChange::Patch(ScalePatch::Json)),
        "application/merge-patch+json" => Ok(ScaleChange::Patch(ScalePatch::Merge)),
        "application/strategic-merge-patch+json" if !custom => Ok(ScaleChange::Patch(ScalePatch::Strategic)),
        _ if custom => Err(Status::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        _ => {
            let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            status.details = Some(Box::default());
            Err(status)
        }
    }
}

fn scale_body(call: &mut Call, options: &WriteOptions) -> Result<Value, Status> {
    let document = read_document(call)?;
    let mut scale = document.value.clone();
    let member = |name: &str| scale.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (member("kind"), member("apiVersion"));
    if !call.resource.is_custom() && !matches!(kind, "" | "Scale") {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{kind} in version {} cannot be handled as a Scale: converting ({version}.{kind}) to (autoscaling.Scale): unknown \
             conversion",
            go_quote(version)
        )));
    }
    let kept = ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"].contains(&api_version);
    if kept && !call.resource.is_custom() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version (autoscaling/v1)"
        )));
    }
    if !matches!(kind, "" | "Scale") || !matches!(api_version, "" | "autoscaling/v1") {
        return Err(unregistered_scale());
    }
    refuse_strictly(call, options, &document, &mut scale)?;
    write::check_name(call, &scale)?;
    let namespace = meta::metadata_text(&scale, "namespace");
    if !namespace.is_empty() && namespace != call.info.namespace {
        return Err(write::mismatched_namespace());
    }
    meta::metadata_mut(&mut scale).insert("namespace".into(), call.info.namespace.as_str().into());
    if scale.pointer("/spec/replicas").is_some_and(|r| !r.is_i64()) {
        let found = meta::json_type(&scale["spec"]["replicas"]);
        return Err(Status::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {found} into Go struct field \
             ScaleSpec.spec.replicas of type int32"
        )));
    }
    Ok(scale)
}

/// What a custom resource's codec says of a Scale that it can not take as it is.
fn unregistered_scale() -> Status {
    Status::bad_request(
        "no kind is registered for the type v1.Scale in scheme \
         \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"",
    )
}

/// Strict decoding of a whole scale.
fn refuse_strictly(
    call: &mut Call,
    options: &WriteOptions,
    document: &Document,
    scale: &mut Value,
) -> Result<(), Status> {
    let schema = TypeSchema::builtin("autoscaling", "v1", "Scale");
    let strict = document.strict_errors(&schema.prune(scale), false);
    match options.validation {
        _ if strict.is_empty() => Ok(()),
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            strict.iter().flat_map(|text| split_repeats(text)).for_each(|text| call.warn(text));
            Ok(())
        }
        FieldValidation::Strict if call.resource.is_custom() => Err(unregistered_scale()),
        FieldValidation::Strict => {
            let why = strict.join(", ");
            let text = "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error";
            Err(Status::bad_request(format!("{text}: {why}")))
        }
    }
}

fn patched_scale(kind: ScalePatch, bytes: &[u8], before: &Value) -> Result<Value, Status> {
    let patch = match serde_json::from_slice::<Value>(bytes) {
        Ok(patch) => patch,
        Err(_) => {
            crate::body::parse_yaml(bytes).map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))?
        }
    };
    let result = match kind {
        ScalePatch::Json => crate::patch::json_patch(before, &patch),
        ScalePatch::Merge => crate::patch::merge_patch(before, &patch),
        ScalePatch::Strategic => {
            let schema = TypeSchema::builtin("autoscaling", "v1", "Scale");
            crate::patch::strategic_merge(before, &patch, &schema)
        }
    };
    let after = result.map_err(write::patch_status)?;
    if after.pointer("/spec/replicas").is_some_and(|r| !r.is_i64() && !r.is_null()) {
        let found = meta::json_type(&after["spec"]["replicas"]);
        let why = format!("json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32");
        return Err(patch_invalid(&after.to_string(), &why));
    }
    Ok(after)
}

fn replicas_of(scale: &Value) -> i64 {
    scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0)
}

/// The object with the scale's number in it.
fn set_scale(call: &Call, paths: &ScalePaths, live: &Value, scale: &Value) -> Result<Value, Status> {
    let replicas = replicas_of(scale);
    let uid = meta::metadata_text(scale, "uid");
    let found = meta::metadata_text(live, "uid");
    if !uid.is_empty() && uid != found {
        return Err(write::uid_precondition(call, &call.info.name, uid, found));
    }
    if replicas < 0 && !call.resource.is_custom() {
        let error = FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", meta::object_name(live), &[error]));
    }
    let mut object = live.clone();
    put_at(&mut object, &paths.spec_replicas, replicas.into());
    let version = meta::metadata_text(scale, "resourceVersion");
    if !version.is_empty() {
        meta::metadata_mut(&mut object).insert("resourceVersion".into(), version.into());
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_the_owners_of_the_replicas() {
        let paths = ScalePaths {
            spec_replicas: ".spec.size".into(),
            status_replicas: ".status.size".into(),
            label_selector: None,
        };
        let entry = |manager: &str, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields})
        };
        let own = entry("a", json!({"f:spec": {".": {}, "f:size": {}, "f:color": {}}}));
        let object = json!({"metadata": {"managedFields": [own, entry("b", json!({"f:spec": {"f:color": {}}}))]}});
        let wanted = json!([{"manager": "a", "operation": "Update", "apiVersion": "autoscaling/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        assert_eq!(scale_fields(&paths, &object), Some(wanted));
        assert_eq!(scale_fields(&paths, &json!({"metadata": {}})), None);
    }
}
