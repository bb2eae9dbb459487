//! Embedded resources: they need an apiVersion and a kind, and their metadata must be valid
//! (`apiserver/schema/objectmeta/validation.go`).

use serde_json::{Map, Value};

use super::error::{CauseReason, FieldError};
use super::gotext;
use super::names;
use super::node::Node;
use super::path::FieldPath;

pub fn check_embedded(object: &Value, node: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk_value(object, node, &mut FieldPath::default(), &mut errors);
    errors
}

/// As `check`, for a value at `path` that may itself be an embedded resource.
pub fn check_at(value: &Value, node: &Node, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk_value(value, node, &mut FieldPath::at(path), &mut errors);
    errors
}

fn walk_value(value: &Value, node: &Node, path: &mut FieldPath, errors: &mut Vec<FieldError>) {
    if !node.has_embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                check_resource(map, path, errors);
            }
            for (key, value) in map.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(property) = node.properties.get(key) {
                    path.in_member(key, |path| walk_value(value, property.node(), path, errors));
                } else if let Some(inner) = node.member(key) {
                    path.in_key(key, |path| walk_value(value, inner, path, errors));
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    path.in_index(index, |path| walk_value(item, inner.node(), path, errors));
                }
            }
        }
        _ => {}
    }
}

fn check_resource(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut invalid = |field: &str, value: &Value, detail: &str| {
        let message = format!("Invalid value: {}: {detail}", gotext::write_value(value));
        errors.push(FieldError::new(CauseReason::Invalid, path.member(field), message));
    };
    for field in ["apiVersion", "kind"] {
        match map.get(field) {
            None => {}
            Some(Value::String(text)) if text.is_empty() => invalid(field, &map[field], "must not be empty"),
            Some(Value::String(text)) if field == "apiVersion" && text.matches('/').count() > 1 => {
                invalid(field, &map[field], &format!("unexpected GroupVersion string: {text}"));
            }
            Some(Value::String(_)) if field == "apiVersion" => {}
            Some(Value::String(text)) => {
                if let Some(problem) = names::dns1035_label(&text.to_lowercase()) {
                    let detail = format!("may have mixed case, but should otherwise match: {problem}");
                    invalid(field, &map[field], &detail);
                }
            }
            Some(other) => invalid(field, other, "must be a string"),
        }
    }
    for field in ["apiVersion", "kind"] {
        if !map.contains_key(field) {
            errors.push(FieldError::new(CauseReason::Required, path.member(field), "Required value"));
        }
    }
    if let Some(metadata) = map.get("metadata") {
        errors.extend(names::object_meta(metadata, &path.member("metadata")));
    }
}
