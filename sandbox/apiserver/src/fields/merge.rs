//! Laying an applied object over the live one, and taking fields away again (`typed/merge.go`, `typed/remove.go`).

use serde_json::{Map, Value};

use super::set::{Element, Set};
use super::typed::{Atom, Type};

/// The live object with the applied one on top.
pub fn merge_applied(live: &Value, applied: &Value, ty: Type<'_>) -> Value {
    merge_values(Some(live), Some(applied), ty).unwrap_or(Value::Null)
}

fn merge_values(live: Option<&Value>, applied: Option<&Value>, ty: Type<'_>) -> Option<Value> {
    let atom = if applied.is_some() { ty.atom(applied) } else { ty.atom(live) };
    let leaf = || applied.or(live).cloned();
    match atom {
        Atom::Scalar => leaf(),
        Atom::Map => {
            let (left, right) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let empty = left.is_none_or(|map| map.is_empty()) && right.is_none_or(|map| map.is_empty());
            if empty || ty.atomic_map() {
                return leaf();
            }
            let mut out = Map::new();
            let keys = left.into_iter().flat_map(|map| map.keys());
            let fresh =
                right.into_iter().flat_map(|map| map.keys()).filter(|key| left.is_none_or(|l| !l.contains_key(*key)));
            for key in keys.chain(fresh) {
                let (left, right) = (left.and_then(|map| map.get(key)), right.and_then(|map| map.get(key)));
                let value = match ty.member(key) {
                    Some((member, _)) => merge_values(left, right, member),
                    None => right.or(left).cloned(),
                };
                out.extend(value.map(|value| (key.clone(), value)));
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Atom::List => {
            let (left, right) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            let empty = left.is_none_or(|list| list.is_empty()) && right.is_none_or(|list| list.is_empty());
            if empty || ty.atomic_list() {
                return leaf();
            }
            let left = left.map(Vec::as_slice).unwrap_or_default();
            let out = merged_list(left, right.map(Vec::as_slice).unwrap_or_default(), ty);
            (!out.is_empty()).then_some(Value::Array(out))
        }
    }
}

/// The applied order wins for the elements both have; live elements keep their places between those.
fn merged_list(live: &[Value], applied: &[Value], ty: Type<'_>) -> Vec<Value> {
    let named = |items: &[Value]| -> Vec<(Element, usize)> {
        let names = items.iter().enumerate();
        names.filter_map(|(index, item)| Some((ty.name(item).ok()?, index))).collect()
    };
    let (left, right) = (named(live), named(applied));
    let in_left = |name: &Element| -> Option<&Value> {
        // A name that repeats names no element to merge with.
        let mut found = left.iter().filter(|(other, _)| other == name);
        match (found.next(), found.next()) {
            (Some((_, index)), None) => live.get(*index),
            _ => None,
        }
    };
    let has_left = |name: &Element| left.iter().any(|(other, _)| other == name);
    let in_right = |name: &Element| right.iter().find(|(other, _)| other == name).and_then(|(_, i)| applied.get(*i));
    let mut shared = right.iter().map(|(name, _)| name).filter(|name| has_left(name)).collect::<Vec<_>>().into_iter();
    let mut next_shared = shared.next();
    let mut done: Vec<&Element> = Vec::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some((name, _)), Some((other, _))) = (left.get(l), right.get(r)) {
            if name == other {
                done.push(name);
                out.extend(merge_values(in_left(name), in_right(name), ty.element()));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if in_right(name).is_some() && next_shared.is_some_and(|next| next != name) {
                // A shared element, but not the one whose turn it is.
                l += 1;
                continue;
            }
        }
        if let Some((name, index)) = left.get(l) {
            if in_right(name).is_none() {
                out.extend(live.get(*index).cloned());
                l += 1;
                continue;
            }
            if done.contains(&name) {
                l += 1;
            }
        }
        if let Some((name, _)) = right.get(r) {
            done.push(name);
            out.extend(merge_values(in_left(name), in_right(name), ty.element()));
            r += 1;
            if next_shared == Some(name) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The object without the fields of `gone`. Containers that become empty stay, as long as they are not gone themselves.
pub fn remove_fields(value: &Value, gone: &Set, ty: Type<'_>) -> Value {
    remove_values(value, gone, ty).unwrap_or(Value::Null)
}

fn remove_values(value: &Value, gone: &Set, ty: Type<'_>) -> Option<Value> {
    match (ty.atom(Some(value)), value) {
        (Atom::Map, Value::Object(map)) => {
            if map.is_empty() || ty.atomic_map() {
                return None;
            }
            let mut touched = false;
            let mut out = Map::new();
            for (key, value) in map {
                let element = Element::Field(key.clone());
                if gone.members.contains(&element) {
                    continue;
                }
                let kept = match (gone.children.get(&element), ty.member(key)) {
                    (Some(below), Some((member, _))) => {
                        touched = true;
                        kept_container(value, below, member)
                    }
                    _ => value.clone(),
                };
                out.insert(key.clone(), kept);
            }
            (touched || !out.is_empty()).then_some(Value::Object(out))
        }
        (Atom::List, Value::Array(items)) => {
            if items.is_empty() || ty.atomic_list() {
                return None;
            }
            let mut touched = false;
            let mut out = Vec::new();
            for item in items {
                let name = ty.name(item).ok();
                if name.as_ref().is_some_and(|name| gone.members.contains(name)) {
                    continue;
                }
                match name.and_then(|name| gone.children.get(&name)) {
                    Some(below) => {
                        touched = true;
                        out.push(kept_container(item, below, ty.element()));
                    }
                    None => out.push(item.clone()),
                }
            }
            (touched || !out.is_empty()).then_some(Value::Array(out))
        }
        (Atom::Scalar, value) => Some(value.clone()),
        _ => None,
    }
}

fn kept_container(value: &Value, gone: &Set, ty: Type<'_>) -> Value {
    remove_values(value, gone, ty).unwrap_or_else(|| match value {
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(_) => Value::Array(Vec::new()),
        _ => Value::Null,
    })
}

/// The set with the declared fields on the way to its paths, which are usually left out.
pub fn with_named_fields(set: &Set, ty: Type<'_>) -> Set {
    let mut out = Set { members: set.members.clone(), children: Default::default() };
    for (element, below) in &set.children {
        let next = match element {
            Element::Field(name) => match ty.member(name) {
                Some((member, declared)) => {
                    if declared {
                        out.members.insert(element.clone());
                    }
                    Some(member)
                }
                None => None,
            },
            _ => Some(ty.element()),
        };
        let inner = next.map_or_else(|| below.clone(), |next| with_named_fields(below, next));
        out.children.insert(element.clone(), inner);
    }
    out
}
