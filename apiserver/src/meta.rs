//! `ObjectMeta`: its shape, what names, labels, annotations, finalizers and owner references may be, and which members an
//! update may not change (`apimachinery/pkg/api/validation/objectmeta.go`).

use serde_json::{Map, Value};

use crate::error::quote;
use crate::resource::{NameRule, Resource};
use crate::schema::{CauseReason, FieldError};

/// `metadata` of an object, as a map.
pub fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// `metadata` of an object, made if missing.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if object.get("metadata").and_then(Value::as_object).is_none() {
        object["metadata"] = Value::Object(Map::new());
    }
    match object.get_mut("metadata") {
        Some(Value::Object(map)) => map,
        // Just made: cannot be anything else.
        _ => unreachable!("metadata is an object"),
    }
}

/// A text member of `metadata`, empty when absent.
pub fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(member)).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.iter().map(|f| Value::from(f.as_str())).collect());
    }
}

/// What Go's decoder expects in a member of `ObjectMeta`.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Integer,
    Time,
    TextMap,
    TextList,
    Owners,
    ManagedFields,
}

const MEMBERS: [(&str, Shape); 15] = [
    ("name", Shape::Text),
    ("generateName", Shape::Text),
    ("namespace", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
    ("resourceVersion", Shape::Text),
    ("generation", Shape::Integer),
    ("creationTimestamp", Shape::Time),
    ("deletionTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::Integer),
    ("labels", Shape::TextMap),
    ("annotations", Shape::TextMap),
    ("ownerReferences", Shape::Owners),
    ("finalizers", Shape::TextList),
    ("managedFields", Shape::ManagedFields),
];

const OWNER_MEMBERS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Brings `metadata` into the form in which Go would print it after decoding: unknown members, nulls and empty ones go.
/// Returns the unknown paths; `Err` is the text of the decoder's error.
pub fn decode(object: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(map) = metadata.as_object_mut() else {
        return Err(format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", json_type(metadata)));
    };
    let mut unknown = Vec::new();
    let keys: Vec<String> = map.keys().cloned().collect();
    for key in keys {
        let Some((_, shape)) = MEMBERS.iter().find(|(name, _)| *name == key) else {
            unknown.push(format!("metadata.{key}"));
            map.remove(&key);
            continue;
        };
        let keep = match map.get_mut(&key) {
            Some(value) => decode_member(&key, *shape, value, &mut unknown)?,
            None => false,
        };
        if !keep || key == "selfLink" {
            map.remove(&key);
        }
    }
    Ok(unknown)
}

/// Whether the member is kept.
fn decode_member(key: &str, shape: Shape, value: &mut Value, unknown: &mut Vec<String>) -> Result<bool, String> {
    if value.is_null() {
        return Ok(false);
    }
    let mismatch = |value: &Value, wanted: &str| {
        Err(format!(
            "json: cannot unmarshal {} into Go struct field ObjectMeta.{key} of type {wanted}",
            json_type(value)
        ))
    };
    match shape {
        Shape::Text => match value {
            Value::String(text) => Ok(!text.is_empty()),
            other => mismatch(other, "string"),
        },
        Shape::Integer => match value.as_i64() {
            // A grace period is a pointer: zero counts.
            Some(number) => Ok(number != 0 || key == "deletionGracePeriodSeconds"),
            None => mismatch(value, "int64"),
        },
        Shape::Time => match value {
            Value::String(text) => text.parse::<jiff::Timestamp>().map(|_| true).map_err(|_| {
                format!("parsing time {0} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0} as \"2006\"", quote(text))
            }),
            other => mismatch(other, "string"),
        },
        Shape::TextMap => match value {
            Value::Object(map) => {
                for entry in map.values_mut() {
                    match entry {
                        Value::String(_) => {}
                        Value::Null => *entry = Value::String(String::new()),
                        other => return mismatch(other, "string"),
                    }
                }
                Ok(!map.is_empty())
            }
            other => mismatch(other, "map[string]string"),
        },
        Shape::TextList => match value {
            Value::Array(list) => {
                if let Some(bad) = list.iter().find(|v| !v.is_string()) {
                    return mismatch(bad, "string");
                }
                Ok(!list.is_empty())
            }
            other => mismatch(other, "[]string"),
        },
        Shape::Owners => decode_owners(value, unknown),
        Shape::ManagedFields => match value {
            Value::Array(list) => Ok(!list.is_empty()),
            other => mismatch(other, "[]v1.ManagedFieldsEntry"),
        },
    }
}

fn decode_owners(value: &mut Value, unknown: &mut Vec<String>) -> Result<bool, String> {
    let mismatch = |value: &Value, field: &str, wanted: &str| {
        Err(format!("json: cannot unmarshal {} into Go struct field {field} of type {wanted}", json_type(value)))
    };
    let Value::Array(owners) = value else {
        return mismatch(value, "ObjectMeta.ownerReferences", "[]v1.OwnerReference");
    };
    for (index, owner) in owners.iter_mut().enumerate() {
        let Value::Object(owner) = owner else {
            return mismatch(owner, "ObjectMeta.ownerReferences", "v1.OwnerReference");
        };
        owner.retain(|key, _| {
            let known = OWNER_MEMBERS.contains(&key.as_str());
            if !known {
                unknown.push(format!("metadata.ownerReferences[{index}].{key}"));
            }
            known
        });
        for member in ["apiVersion", "kind", "name", "uid"] {
            match owner.get(member) {
                Some(Value::String(_)) => {}
                None | Some(Value::Null) => {
                    owner.insert(member.into(), Value::String(String::new()));
                }
                Some(other) => return mismatch(other, &format!("OwnerReference.{member}"), "string"),
            }
        }
        for member in ["controller", "blockOwnerDeletion"] {
            match owner.get(member) {
                None | Some(Value::Bool(_)) => {}
                Some(Value::Null) => {
                    owner.remove(member);
                }
                Some(other) => return mismatch(other, &format!("OwnerReference.{member}"), "bool"),
            }
        }
    }
    Ok(!owners.is_empty())
}

/// The JSON type as Go's decoder names it.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
    and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
    alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A DNS label without length limit: `[a-z0-9]([-a-z0-9]*[a-z0-9])?`.
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

pub fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if !text.split('.').all(is_label) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

pub fn label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(text) {
        problems.push(if text.contains('.') { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    problems
}

/// A label or annotation key, a finalizer: a name with an optional DNS prefix.
pub fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain_problems(prefix).into_iter().map(|p| format!("prefix part {p}")));
            }
            *name
        }
        _ => return vec![LABEL_KEY.to_owned()],
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name_part(name) {
        problems.push(NAME_PART.to_owned());
    }
    problems
}

pub fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_name_part(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

fn path_segment_problems(text: &str, prefix: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if !prefix && (text == "." || text == "..") {
        problems.push(format!("may not be '{text}'"));
    }
    for illegal in ["/", "%"] {
        if text.contains(illegal) {
            problems.push(format!("may not contain '{illegal}'"));
        }
    }
    problems
}

/// The problems of a name, or of a generateName (whose trailing dash is not the end).
fn name_problems(rule: NameRule, text: &str, prefix: bool) -> Vec<String> {
    // A generateName may end in `-`, since more follows.
    let masked = if prefix && text.ends_with('-') && text.len() > 1 {
        let mut masked = text.get(..text.len() - 2).unwrap_or_default().to_owned();
        masked.push('a');
        masked
    } else {
        text.to_owned()
    };
    match rule {
        NameRule::Subdomain => subdomain_problems(&masked),
        NameRule::Label => label_problems(&masked),
        NameRule::PathSegment => path_segment_problems(text, prefix),
        NameRule::Free => Vec::new(),
    }
}

/// `ValidateObjectMeta` on creation.
pub fn validate(object: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = text(object, "generateName");
    if !generate_name.is_empty() {
        for problem in name_problems(resource.rules.name, generate_name, true) {
            errors.push(FieldError::invalid_text("metadata.generateName", generate_name, &problem));
        }
    }
    let name = name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for problem in name_problems(resource.rules.name, name, false) {
            errors.push(FieldError::invalid_text("metadata.name", name, &problem));
        }
    }
    if let Some(generation) = object.get("metadata").and_then(|m| m.get("generation")).and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &generation.into(),
            "must be greater than or equal to 0",
        ));
    }
    errors.extend(shared(object));
    errors.extend(finalizer_errors(object, resource.is_custom()));
    errors
}

/// What is checked on creation and update alike: labels, annotations, owners.
fn shared(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let map = |member: &str| object.get("metadata").and_then(|m| m.get(member)).and_then(Value::as_object);
    for (key, value) in map("labels").into_iter().flatten() {
        for problem in qualified_name_problems(key) {
            errors.push(FieldError::invalid_text("metadata.labels", key, &problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in label_value_problems(value) {
            errors.push(FieldError::invalid_text("metadata.labels", value, &problem));
        }
    }
    let mut size = 0;
    for (key, value) in map("annotations").into_iter().flatten() {
        for problem in qualified_name_problems(&key.to_lowercase()) {
            errors.push(FieldError::invalid_text("metadata.annotations", key, &problem));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > 262_144 {
        errors.push(FieldError::too_long("metadata.annotations", 262_144));
    }
    errors.extend(owner_errors(object));
    errors
}

fn owner_errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(Value::Array(owners)) = object.get("metadata").and_then(|m| m.get("ownerReferences")) else {
        return errors;
    };
    let mut controller: Option<String> = None;
    for owner in owners {
        let part = |member: &str| owner.get(member).and_then(Value::as_str).unwrap_or_default();
        let api_version = part("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.is_empty() {
            let field = "metadata.ownerReferences.apiVersion";
            errors.push(FieldError::invalid_text(field, api_version, "version must not be empty"));
        }
        for member in ["kind", "name", "uid"] {
            if part(member).is_empty() {
                let field = format!("metadata.ownerReferences.{member}");
                errors.push(FieldError::invalid_text(field, "", "must not be empty"));
            }
        }
        if group.is_empty() && version == "v1" && part("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError {
                reason: CauseReason::Invalid,
                field: "metadata.ownerReferences".into(),
                message: format!("Invalid value: {}: {why}", go_owner(owner)),
            });
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            if let Some(first) = &controller {
                let list = owners.iter().map(go_owner).collect::<Vec<_>>().join(",");
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}/{}",
                    part("kind"),
                    part("name")
                );
                errors.push(FieldError {
                    reason: CauseReason::Invalid,
                    field: "metadata.ownerReferences".into(),
                    message: format!("Invalid value: [{list}]: {why}"),
                });
            }
            controller = Some(format!("{}/{}", part("kind"), part("name")));
        }
    }
    errors
}

/// An owner reference as Go's encoder prints it: members in the order of the struct.
fn go_owner(owner: &Value) -> String {
    let members = OWNER_MEMBERS
        .iter()
        .filter_map(|member| owner.get(*member).map(|value| format!("{}:{value}", quote(member))))
        .collect::<Vec<_>>();
    format!("{{{}}}", members.join(","))
}

/// `ObjectMeta` as Go's encoder prints it; `sorted` when its members went through a map.
pub fn go_text(metadata: &Value, sorted: bool) -> String {
    const ENTRY: [&str; 7] = ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    let ordered = |value: &Value, order: &[&str]| {
        let rank = |key: &str| order.iter().position(|o| *o == key).unwrap_or(order.len());
        let mut members: Vec<(&String, &Value)> = value.as_object().into_iter().flatten().collect();
        if !order.is_empty() {
            members.sort_by_key(|(key, _)| rank(key));
        }
        members.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
    };
    let print = |members: Vec<(String, String)>| {
        let parts: Vec<String> = members.into_iter().map(|(k, v)| format!("{}:{v}", quote(&k))).collect();
        format!("{{{}}}", parts.join(","))
    };
    let names: Vec<&str> = if sorted { Vec::new() } else { MEMBERS.iter().map(|(name, _)| *name).collect() };
    let members = ordered(metadata, &names).into_iter().map(|(key, value)| {
        let text = match (key.as_str(), &value) {
            ("managedFields", Value::Array(entries)) => {
                let entries = entries
                    .iter()
                    .map(|entry| print(ordered(entry, &ENTRY).into_iter().map(|(k, v)| (k, v.to_string())).collect()));
                format!("[{}]", entries.collect::<Vec<_>>().join(","))
            }
            _ => value.to_string(),
        };
        (key, text)
    });
    print(members.collect())
}

/// `ValidateFinalizers`: custom resources only get a warning for an unqualified name.
fn finalizer_errors(object: &Value, custom: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = finalizers(object);
    for (index, finalizer) in list.iter().enumerate() {
        let problems = qualified_name_problems(finalizer);
        for problem in &problems {
            errors.push(FieldError::invalid_text("metadata.finalizers", finalizer, problem));
        }
        if problems.is_empty() && !custom && !is_known_finalizer(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid_text(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let value: Value = list.into_iter().map(Value::from).collect();
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &value, why));
    }
    errors
}

/// Standard, or with a domain.
pub fn is_known_finalizer(finalizer: &str) -> bool {
    finalizer.contains('/') || matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
}

/// Warnings for a custom resource's finalizers, and for repeated owners (which are removed here).
pub fn warnings(object: &mut Value, old: Option<&Value>, custom: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if custom {
        let before = old.map(finalizers).unwrap_or_default();
        for finalizer in finalizers(object) {
            if !is_known_finalizer(finalizer) && !before.contains(&finalizer) {
                warnings.push(format!(
                    "metadata.finalizers: {}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
                     finalizer writers",
                    quote(finalizer)
                ));
            }
        }
    }
    if let Some(Value::Array(owners)) = object.get_mut("metadata").and_then(|m| m.get_mut("ownerReferences")) {
        let mut seen: Vec<Value> = Vec::new();
        let mut repeated: Vec<String> = Vec::new();
        owners.retain(|owner| {
            let fresh = !seen.contains(owner);
            if fresh {
                seen.push(owner.clone());
            } else if let Some(uid) = owner.get("uid").and_then(Value::as_str) {
                repeated.push(uid.to_owned());
            }
            fresh
        });
        if !repeated.is_empty() {
            repeated.dedup();
            warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject \
                 such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                repeated.join(", ")
            ));
        }
    }
    warnings
}

/// Members the server owns: an update keeps the stored ones where the client left them out.
pub fn keep_server_members(new: &mut Value, old: &Value, has_namespace: bool) {
    let old_metadata = metadata(old).cloned().unwrap_or_default();
    let metadata = metadata_mut(new);
    let mut keep = |member: &str, always: bool| match old_metadata.get(member) {
        Some(value) if always || !metadata.contains_key(member) => {
            metadata.insert(member.into(), value.clone());
        }
        None if always => {
            metadata.remove(member);
        }
        _ => {}
    };
    keep("uid", false);
    keep("creationTimestamp", true);
    keep("generation", true);
    keep("deletionTimestamp", false);
    keep("deletionGracePeriodSeconds", false);
    keep("namespace", !has_namespace);
}

/// `ValidateObjectMetaUpdate`. The real server runs it twice (in `BeforeUpdate` and in the kind's strategy), so each
/// cause appears twice, and once more for built-in kinds where creation's rules apply again.
pub fn validate_update(new: &Value, old: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if is_deleting(old) {
        let before = finalizers(old);
        let added: Vec<String> = finalizers(new).into_iter().filter(|f| !before.contains(f)).map(quote).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &why));
        }
    }
    for member in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let of = |object: &Value| object.get("metadata").and_then(|m| m.get(member)).cloned();
        let (before, after) = (of(old), of(new));
        if before != after {
            let value = after.unwrap_or_else(|| if member.ends_with("Seconds") { Value::Null } else { "".into() });
            errors.push(FieldError::invalid(format!("metadata.{member}"), &value, "field is immutable"));
        }
    }
    errors.extend(shared(new));
    let mut twice = errors.clone();
    twice.extend(errors);
    twice.extend(finalizer_errors(new, resource.is_custom()));
    twice
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subdomains_follow_rfc_1123() {
        for good in ["a", "a-b.c", "0"] {
            assert!(subdomain_problems(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a..b", "a_b", "a/b", "a."] {
            assert!(!subdomain_problems(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn decoding_drops_what_go_would_not_print() {
        let mut object =
            json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "nope": 1, "selfLink": "/x"}});
        assert_eq!(decode(&mut object).unwrap(), ["metadata.nope"]);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn decoding_refuses_wrong_types() {
        assert!(decode(&mut json!({"metadata": {"labels": {"a": 5}}})).is_err());
        assert!(decode(&mut json!({"metadata": "x"})).is_err());
        assert!(decode(&mut json!({"metadata": {"finalizers": "x"}})).is_err());
    }

    #[test]
    fn repeated_owners_are_removed_with_a_warning() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert_eq!(warnings(&mut object, None, false).len(), 1);
        assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    }
}
