//! Lists that are sets or maps: no element twice (`apiserver/schema/listtype/validation.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::{CauseReason, FieldError};
use super::gotext;
use super::node::{ListKind, Node};
use super::path::FieldPath;

pub fn check_lists(object: &Value, node: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk_value(object, node, &mut FieldPath::default(), &mut errors);
    errors
}

fn walk_value(value: &Value, node: &Node, path: &mut FieldPath, errors: &mut Vec<FieldError>) {
    if !node.has_unique {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(property) = node.properties.get(key) {
                    path.in_member(key, |path| walk_value(value, property.node(), path, errors));
                } else if let Some(inner) = node.member(key) {
                    path.in_key(key, |path| walk_value(value, inner, path, errors));
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListKind::Set => check_set(items, path, errors),
                ListKind::Map(keys) => map_list(items, keys, path, errors),
                _ => {}
            }
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    path.in_index(index, |path| walk_value(item, inner.node(), path, errors));
                }
            }
        }
        _ => {}
    }
}

/// The index of the second appearance of each element that repeats.
fn repeated_items<'a>(items: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}

fn duplicate_error(index: usize, value: &Value, path: &FieldPath) -> FieldError {
    let field = format!("{}[{index}]", path.as_str());
    FieldError::new(CauseReason::Duplicate, field, format!("Duplicate value: {}", gotext::write_value(value)))
}

fn check_set(items: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    errors.extend(repeated_items(items.iter()).into_iter().map(|index| duplicate_error(index, &items[index], path)));
}

fn map_list(items: &[Value], keys: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some((index, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let message =
            format!("Invalid value: {}: must be an object for an array of list-type map", gotext::write_value(item));
        errors.push(FieldError::new(CauseReason::Invalid, format!("{}[{index}]", path.as_str()), message));
        return;
    }
    if let [key] = keys {
        // The usual case needs no copies: one key, and texts that differ.
        let mut seen = BTreeSet::new();
        if items.iter().all(|item| item.get(key).and_then(Value::as_str).is_some_and(|text| seen.insert(text))) {
            return;
        }
    }
    let identities: Vec<Value> = items
        .iter()
        .map(|item| {
            let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(present.collect::<Map<String, Value>>())
        })
        .collect();
    errors.extend(
        repeated_items(identities.iter()).into_iter().map(|index| duplicate_error(index, &identities[index], path)),
    );
}
