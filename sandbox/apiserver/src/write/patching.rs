//! Patches and applies as functions from the live object to the next one, with the errors they answer
//! (`endpoints/handlers/patch.go`).

use super::*;

/// Reads and checks an apply's body.
pub(super) fn applied_object(call: &Call) -> Result<Value, Status> {
    let mut value = parse_yaml(&call.body).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
    // An empty document is an object without anything.
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    if !value.is_object() {
        let found = meta::json_type(&value);
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        )));
    }
    let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (member("kind"), member("apiVersion"));
    if value.get("metadata").and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if kind != call.resource.kind || api_version != call.resource.api_version() {
        let qualified = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return Err(Status::bad_request(format!("invalid object type: {qualified}, Kind={kind}")));
    }
    Ok(value)
}

/// Keys that an apply's body has twice (`applyPatcher`, `yaml.UnmarshalStrict`).
pub(super) fn refuse_repeats(call: &mut Call, options: &WriteOptions) -> Result<(), Status> {
    // Most applies are JSON, where it is cheap to see that nothing is repeated.
    let is_plain = Document::parse(&call.body, Format::Json).is_ok_and(|document| document.duplicates.is_empty());
    if is_plain || options.validation == FieldValidation::Ignore {
        return Ok(());
    }
    match find_repeats(&call.body) {
        None => Ok(()),
        Some(repeats) if options.validation == FieldValidation::Strict => {
            Err(Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {repeats}")))
        }
        Some(repeats) => {
            split_repeats(&repeats).into_iter().for_each(|text| call.warn(text));
            Ok(())
        }
    }
}

/// `patch: Invalid value: "...": why`, the 422 of a patch whose result cannot be decoded.
pub fn patch_invalid(shown: &str, why: &str) -> Status {
    let error = FieldError::invalid_text("patch", shown, why);
    let mut status = Status::invalid("", "", "", &[error]);
    if let Some(details) = &mut status.details {
        details.name.clear();
    }
    status
}

pub(super) struct Patched {
    pub(super) object: Value,
    /// The result before decoding, as messages show it.
    pub(super) shown: String,
    pub(super) strict: Vec<String>,
}

pub(super) fn apply_patch(resource: &Resource, kind: PatchKind, bytes: &[u8], live: &Value) -> Result<Patched, Status> {
    let mut object = run_patch(resource, kind, bytes, live)?;
    let shown = if resource.is_custom() { object.to_string() } else { go_text(&object, kind, bytes) };
    let mistyped = ["kind", "apiVersion"].iter().any(|m| object.get(*m).is_some_and(|v| !v.is_string()));
    if !object.is_object() || mistyped {
        return Err(patch_invalid(&shown, "json: cannot unmarshal the patched object"));
    }
    if resource.is_custom() {
        if object.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(patch_invalid(&shown, &format!("Object 'Kind' is missing in '{shown}'")));
        }
        if object.get("apiVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(Status::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
        }
    } else {
        for (member, wanted) in [("kind", resource.kind.clone()), ("apiVersion", resource.api_version())] {
            // A strategic merge patch goes into a value of the kind: what it says about the kind is lost.
            if kind == PatchKind::Strategic || object.get(member).and_then(Value::as_str).is_none_or(str::is_empty) {
                object[member] = wanted.into();
            }
        }
        let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, api_version) = (member("kind"), member("apiVersion"));
        if kind != resource.kind || api_version != resource.api_version() {
            return Err(patch_invalid(&shown, &other_kind(resource, kind, api_version)));
        }
    }
    let unknown = tidy_decoded(resource, &mut object).map_err(|why| patch_invalid(&shown, &why))?;
    let mut strict = match kind {
        PatchKind::Json => crate::patch::unknown_members(&serde_json::from_slice(bytes).unwrap_or_default()),
        PatchKind::Merge | PatchKind::Strategic => {
            let repeated = Document::parse(bytes, Format::Json).map(|document| document.duplicates);
            let texts = repeated.unwrap_or_default().into_iter();
            texts.map(|path| format!("duplicate field {}", go_quote(&path))).collect()
        }
    };
    strict.extend(unknown.iter().map(|path| format!("unknown field {}", go_quote(path))));
    Ok(Patched { object, shown, strict })
}

/// Why an object of another kind is not one of this: it is converted if the server knows it.
fn other_kind(resource: &Resource, kind: &str, api_version: &str) -> String {
    let known = crate::builtin::builtin_registry().iter().any(|r| r.kind == kind && r.api_version() == api_version);
    if !known {
        return not_registered(resource, kind, api_version);
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let package = if resource.group.is_empty() { "core" } else { resource.group.split('.').next().unwrap_or_default() };
    format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", resource.kind)
}

pub(super) fn run_patch(resource: &Resource, kind: PatchKind, bytes: &[u8], live: &Value) -> Result<Value, Status> {
    let document = serde_json::from_slice::<Value>(bytes).map_err(|e| {
        let why =
            if e.is_eof() { "unexpected end of JSON input".to_owned() } else { format!("invalid character: {e}") };
        match kind {
            PatchKind::Json | PatchKind::Merge => Status::bad_request(format!("error decoding patch: {why}")),
            PatchKind::Strategic => Status::bad_request(why),
        }
    })?;
    let result = match kind {
        PatchKind::Json => crate::patch::json_patch(live, &document),
        PatchKind::Merge => crate::patch::merge_patch(live, &document),
        PatchKind::Strategic => crate::patch::strategic_merge(live, &document, &resource.schema),
    };
    result.map_err(patch_status)
}

pub fn patch_status(error: PatchError) -> Status {
    match error {
        PatchError::Malformed(why) => Status::bad_request(why),
        PatchError::TooLarge(why) => {
            Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
        }
        PatchError::Inapplicable(_) => {
            let mut status = Status::new(422, "Invalid", crate::patch::REFUSAL);
            status.details = Some(Box::default());
            status
        }
        PatchError::Mismatch { patch, detail } => patch_invalid(&patch, &detail),
        PatchError::Internal(why) => Status::unknown(why),
    }
}

/// Strict decoding of a patch's result: its own error, 422.
pub(super) fn enforce_patch_strict(
    call: &mut Call,
    options: &WriteOptions,
    kind: PatchKind,
    bytes: &[u8],
    shown: &str,
    strict: &[String],
) -> Result<(), Status> {
    if strict.is_empty() || options.validation == FieldValidation::Ignore {
        return Ok(());
    }
    if options.validation == FieldValidation::Warn {
        strict.iter().for_each(|text| call.warn(text.clone()));
        return Ok(());
    }
    let shown = match kind {
        PatchKind::Strategic => go_print(&serde_json::from_slice(bytes).unwrap_or_default()),
        PatchKind::Json | PatchKind::Merge => shown.to_owned(),
    };
    Err(patch_invalid(&shown, &format!("strict decoding error: {}", strict.join(", "))))
}

/// A patched built-in object as messages show it: what the patch touched has sorted members, the rest those of the
/// struct.
pub(super) fn go_text(object: &Value, kind: PatchKind, bytes: &[u8]) -> String {
    let patch: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let mut metadata_touched = kind != PatchKind::Json && patch.get("metadata").is_some();
    for operation in patch.as_array().into_iter().flatten() {
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        metadata_touched |= path.starts_with("/metadata/");
    }
    let members = object.as_object().into_iter().flatten().map(|(key, value)| {
        let text = if key == "metadata" { meta::go_text(value, metadata_touched) } else { value.to_string() };
        format!("{}:{text}", go_quote(key))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Go's `%v` of decoded JSON.
pub fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_print(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

pub(super) fn apply_configuration(
    call: &Call,
    options: &WriteOptions,
    part: Part,
    live: Option<&Value>,
    applied: &Value,
) -> Result<Value, Status> {
    let manager = options.field_manager.clone().unwrap_or_default();
    let now = write_seconds(call.server.now());
    let api_version = call.resource.api_version();
    let writer = Writer { manager: &manager, subresource: part.name(), api_version: &api_version, now: &now };
    let mut applied = applied.clone();
    crate::fields::check_applied(&applied, &call.resource.schema).map_err(apply_status)?;
    strategy::strip_for_part(&call.resource, part, &mut applied);
    let schema_of = |version: &str| call.resource.schema_of(version);
    let lost = |value: &Value, but: Option<bool>| {
        live.and_then(|live| crate::fields::undeclared_in_versions(value, live, &writer, but, &schema_of))
    };
    if let Some((_, problem)) = live.and_then(|live| lost(live, None)) {
        return Err(Status::unknown(problem));
    }
    let applied_to = |force: bool| crate::fields::apply(live, &applied, &writer, force, &call.resource.schema);
    let entries = live.and_then(|live| live.pointer("/metadata/managedFields")).and_then(Value::as_array);
    let mixed = entries.into_iter().flatten().any(|entry| entry["apiVersion"] != api_version);
    let lost_after = mixed.then(|| applied_to(true).ok()).flatten().and_then(|next| lost(&next, Some(true)));
    if let Some((version, problem)) = lost_after {
        let again = entries.into_iter().flatten().any(|entry| {
            entry["operation"] == "Apply" && entry["manager"] == manager.as_str() && entry.get("subresource").is_none()
        });
        let stage = match again {
            true => format!(
                "failed to prune fields: failed add back owned items: failed to convert merged object at version {version}"
            ),
            false => "failed to convert new object".to_owned(),
        };
        return Err(Status::unknown(format!("{stage}: {problem}")));
    }
    let mut next = applied_to(options.force.unwrap_or(false)).map_err(apply_status)?;
    // What an update resets is of no owner before, either.
    if part == Part::Whole && call.resource.rules.separate_status && entries.is_none() {
        crate::fields::disown(&mut next, "status", Some(crate::fields::BEFORE_FIRST_APPLY));
    }
    // An apply to an object that is there need not name it.
    check_name(call, &next)?;
    let namespace = meta::metadata_text(&next, "namespace");
    if call.resource.namespaced && !namespace.is_empty() && namespace != call.info.namespace {
        return Err(mismatched_namespace());
    }
    Ok(next)
}

/// The answer to an apply that failed.
pub fn apply_status(error: ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => apply_conflicts(&conflicts),
        ApplyError::BadRequest(why) => Status::bad_request(why),
        ApplyError::Internal(why) => Status::unknown(why),
    }
}

/// 409 of an apply: every foreign field, grouped by who owns it.
pub(super) fn apply_conflicts(conflicts: &[Conflict]) -> Status {
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => {
            let mut text = format!("Apply failed with {} conflicts: ", many.len());
            let mut lines: Vec<String> = Vec::new();
            let mut owner = "";
            for conflict in many {
                if conflict.message != owner {
                    owner = &conflict.message;
                    lines.push(format!("{}:", owner.replacen("conflict with", "conflicts with", 1)));
                }
                lines.push(format!("- {}", conflict.field));
            }
            text.push_str(&lines.join("\n"));
            text
        }
    };
    let causes = conflicts
        .iter()
        .map(|c| Cause { reason: "FieldManagerConflict".into(), message: c.message.clone(), field: c.field.clone() })
        .collect();
    Status::new(409, "Conflict", message).with_causes(causes)
}
