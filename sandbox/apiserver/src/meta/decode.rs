//! `ObjectMeta` as Go decodes it and writes it again: unknown members and empty ones go.

use serde_json::{Map, Value};

use crate::error::go_quote;

/// What Go's decoder expects in a member of `ObjectMeta`.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    Integer,
    Time,
    TextMap,
    TextList,
    Owners,
    ManagedFields,
}

pub(super) const MEMBERS: [(&str, Shape); 15] = [
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

pub(super) const OWNER_MEMBERS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Brings `metadata` into the form in which Go would print it after decoding: unknown members, nulls and empty ones go.
/// Returns the unknown paths; `Err` is the text of the decoder's error.
pub fn decode_metadata(object: &mut Value) -> Result<Vec<String>, String> {
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

/// Removes the members of metadata that are of another type than theirs (`objectmeta.GetObjectMeta` with
/// `dropInvalidFields`).
pub fn drop_undecodable(object: &mut Value) {
    if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        map.retain(|key, value| match MEMBERS.iter().find(|(name, _)| name == key) {
            Some((_, shape)) => decode_member(key, *shape, &mut value.clone(), &mut Vec::new()).is_ok(),
            None => true,
        });
    }
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
                format!(
                    "parsing time {0} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0} as \"2006\"",
                    go_quote(text)
                )
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
                // Go reads a null into what is there: the empty text of a new element.
                list.iter_mut().filter(|v| v.is_null()).for_each(|v| *v = "".into());
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
