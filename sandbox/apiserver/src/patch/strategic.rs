//! Strategic merge patch (apimachinery `util/strategicpatch`): maps merge, lists merge where the type says so, and
//! directives inside the patch (`$patch`, `$retainKeys`, `$setElementOrder`, `$deleteFromPrimitiveList`) steer it.

use serde_json::{Map, Value};

use super::PatchError;
use super::strategic_order::{self as order, Order};
use crate::schema::{Node, mismatch, shown};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

type Object = Map<String, Value>;

pub fn apply_strategic_patch(target: &Value, patch: &Object, node: &Node) -> Result<Value, PatchError> {
    let original = target.as_object().cloned().unwrap_or_default();
    let merged = Value::Object(merge_map(original, patch.clone(), node)?);
    match mismatch(&merged, node) {
        None => Ok(merged),
        Some(detail) => Err(PatchError::Mismatch { patch: shown(&Value::Object(patch.clone())), detail }),
    }
}

fn bad_request(text: &str) -> PatchError {
    PatchError::Malformed(text.to_owned())
}

pub(super) fn no_merge_key(map: &Object, key: &str) -> PatchError {
    let map = shown(&Value::Object(map.clone()));
    PatchError::Internal(format!("map: {map} does not contain declared merge key: {key}"))
}

fn bad_directive(directive: &Value, patch: &Object) -> PatchError {
    let text = format!("unknown patch type: {} in map: {}", shown(directive), shown(&Value::Object(patch.clone())));
    PatchError::Internal(text)
}

fn merge_map(mut original: Object, mut patch: Object, node: &Node) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_orders(&mut original, &mut patch, node)?;
    for (key, value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM) {
            Some(name) => (name.to_owned(), true),
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let Some(current) = original.remove(&key) else {
            if !deletes {
                set_member(&mut original, key, value);
            }
            continue;
        };
        let member = node.member(&key);
        let merged = match (current, value) {
            (Value::Object(_), value @ Value::Object(_)) if member.is_some_and(|member| member.patch.replace) => value,
            (Value::Object(current), Value::Object(value)) => {
                Value::Object(merge_map(current, value, member.unwrap_or(node_of_anything()))?)
            }
            (Value::Array(current), Value::Array(value)) => {
                let strategy = member.map(|member| &member.patch);
                if deletes || strategy.is_some_and(|strategy| strategy.merge) {
                    let key = strategy.and_then(|strategy| strategy.key.as_deref());
                    Value::Array(merge_list(current, value, member, key, deletes)?)
                } else {
                    Value::Array(value)
                }
            }
            (current, _) if deletes => current,
            (_, value) => {
                set_member(&mut original, key, value);
                continue;
            }
        };
        original.insert(key, merged);
    }
    Ok(original)
}

fn node_of_anything() -> &'static Node {
    crate::schema::anything()
}

/// Takes the patch's value as it is, without nulls and directives.
fn set_member(original: &mut Object, key: String, value: Value) {
    if let Some(value) = without_directives(without_nulls(value)) {
        original.insert(key, value);
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(key, value)| (key, without_nulls(value))).collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// A map with a directive is not kept at all.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// `$retainKeys`: members of the original that it does not list go; the patch may only set what it lists.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || bad_request("invalid patch format of retainKeys");
    let kept = directive.as_array().ok_or_else(malformed)?;
    let listed = |key: &str| kept.iter().any(|kept| kept == key);
    let exempt = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !exempt(key) && !listed(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| listed(key));
    Ok(())
}

/// `$setElementOrder`: merges the list of the same name and puts its elements in the order given.
fn set_orders(original: &mut Object, patch: &mut Object, node: &Node) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let wanted = list_value(patch.remove(&directive))?.unwrap_or_default();
        let name = directive.trim_start_matches(SET_ORDER).to_owned();
        let current = list_value(original.get(&name).cloned())?;
        let changes = list_value(patch.remove(&name))?;
        let member = node.member(&name);
        let key = member.and_then(|member| member.patch.key.as_deref());
        order::check_consistent(changes.as_deref().unwrap_or_default(), &wanted, key)?;
        let merged = match (&current, &changes) {
            (None, None) => continue,
            (Some(current), None) => current.clone(),
            (None, Some(changes)) => changes.iter().cloned().filter_map(without_directives).collect(),
            (Some(current), Some(changes)) if member.is_some_and(|member| member.patch.merge) => {
                merge_list(current.clone(), changes.clone(), member, key, false)?
            }
            (Some(_), Some(changes)) => changes.clone(),
        };
        let before = current.unwrap_or_default();
        same_types(&[&before, changes.as_deref().unwrap_or_default()])?;
        let order = Order { key, wanted: &wanted, before: &before };
        original.insert(name, Value::Array(order.arrange(merged)?));
    }
    Ok(())
}

fn list_value(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => {
            let text = format!("expected a []interface {{}}, but received a {}", go_type(&other));
            Err(PatchError::Internal(text))
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// All elements must be of one type, and not lists.
fn same_types(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut first = None;
    for item in lists.iter().copied().flatten() {
        let kind = go_type(item);
        if item.is_array() {
            return Err(PatchError::Inapplicable("lists of lists are not supported".to_owned()));
        }
        if *first.get_or_insert(kind) != kind {
            let all: Vec<Value> = lists.iter().map(|list| Value::from(list.to_vec())).collect();
            let text = format!("list element types are not identical: {}", shown(&Value::Array(all)));
            return Err(PatchError::Internal(text));
        }
    }
    match first {
        Some(kind) => Ok(kind == "map[string]interface {}"),
        None => Err(PatchError::Internal("no elements in any of the given slices".to_owned())),
    }
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    member: Option<&Node>,
    key: Option<&str>,
    deletes: bool,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !same_types(&[&original, &patch])? {
        if deletes {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut merged: Vec<Value> = Vec::new();
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Order { key: None, wanted: &patch, before: &original }.arrange(merged);
    }
    let Some(key) = key else {
        return Err(PatchError::Internal("cannot merge lists without merge key for slice".to_owned()));
    };
    let (original, patch) = element_directives(original, patch, key)?;
    let inner = member.and_then(|member| member.items.as_ref()).map_or(node_of_anything(), |link| link.node());
    let (mut merged, mut before) = (original.clone(), original);
    for change in &patch {
        let Value::Object(change) = change else { continue };
        let identity = change.get(key).ok_or_else(|| no_merge_key(change, key))?;
        match merged.iter_mut().find(|item| item.get(key) == Some(identity)) {
            Some(found) => {
                let current = found.as_object().cloned().unwrap_or_default();
                let next = Value::Object(merge_map(current, change.clone(), inner)?);
                if let Some(slot) = before.iter_mut().find(|item| item.get(key) == Some(identity)) {
                    slot.clone_from(&next);
                }
                *found = next;
            }
            None => merged.push(Value::Object(change.clone())),
        }
    }
    Order { key: Some(key), wanted: &patch, before: &before }.arrange(merged)
}

/// Elements with `$patch` delete their counterparts or ask to replace the whole list.
fn element_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        let Some(map) = item.as_object() else { continue };
        let Some(directive) = map.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let identity = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
                original.retain(|item| item.get(key) != Some(identity));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Internal(text.to_owned()));
            }
            _ => return Err(bad_directive(directive, map)),
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}
