//! Pruning: removes the fields a schema does not know and reports their paths
//! (`apiserver/schema/pruning/algorithm.go`, `objectmeta/algorithm.go`).

use serde_json::{Map, Value};

use super::builtin;
use super::decoding;
use super::gotext;
use super::node::{Additional, Node};
use super::path::FieldPath;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes an object. `root` says that it is a whole resource, whose type and metadata stay. The paths are sorted.
pub fn prune_object(object: &mut Value, node: &Node, root: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut path = FieldPath::default();
    // What is unknown in metadata is told after the rest.
    let mut of_metadata = Vec::new();
    coerce_metadata(object, Some(node), root, &mut path, &mut of_metadata);
    prune_node(object, Some(node), root, &mut path, &mut unknown);
    unknown.sort();
    of_metadata.sort();
    unknown.append(&mut of_metadata);
    unknown
}

/// Prunes a value that is part of an object, such as a default, without touching metadata.
pub fn prune_value(value: &mut Value, node: &Node, root: bool) {
    prune_node(value, Some(node), root, &mut FieldPath::default(), &mut Vec::new());
}

fn prune_node(value: &mut Value, node: Option<&Node>, root: bool, path: &mut FieldPath, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let Some(node) = node else {
                unknown.extend(map.keys().map(|key| path.member(key)));
                map.clear();
                return;
            };
            walk_object(map, node, root, path, unknown);
        }
        Value::Array(items) => {
            let inner = node.and_then(|n| n.items.as_ref()).map(|link| link.node());
            let preserved = node.is_some_and(|node| node.preserve);
            if preserved && inner.is_none() {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                path.in_index(index, |path| match inner {
                    // Below a preserving list the elements are preserved too, except what their schema specifies.
                    Some(inner) if preserved => walk_preserving(item, inner, path, unknown),
                    inner => prune_node(item, inner, false, path, unknown),
                });
            }
        }
        _ => {}
    }
}

fn walk_object(map: &mut Map<String, Value>, node: &Node, root: bool, path: &mut FieldPath, unknown: &mut Vec<String>) {
    let embedded = root || node.embedded;
    let mut dropped: Vec<String> = Vec::new();
    for (key, value) in map.iter_mut() {
        if embedded && META.contains(&key.as_str()) {
            continue;
        }
        if let Some(property) = node.properties.get(key) {
            path.in_member(key, |path| prune_node(value, Some(property.node()), false, path, unknown));
        } else {
            match &node.additional {
                Additional::Schema(link) => {
                    path.in_member(key, |path| prune_node(value, Some(link.node()), false, path, unknown));
                }
                _ if node.preserve => {}
                Additional::Allowed(_) => path.in_member(key, |path| prune_node(value, None, false, path, unknown)),
                Additional::Absent => dropped.push(key.clone()),
            }
        }
    }
    for key in dropped {
        if !META.contains(&key.as_str()) || !path.as_str().is_empty() {
            unknown.push(path.member(&key));
        }
        map.remove(&key);
    }
}

fn walk_preserving(value: &mut Value, node: &Node, path: &mut FieldPath, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if node.embedded && META.contains(&key.as_str()) {
                    continue;
                }
                if let Some(inner) = node.member(key) {
                    path.in_member(key, |path| prune_node(value, Some(inner), false, path, unknown));
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_ref() {
                for (index, item) in items.iter_mut().enumerate() {
                    path.in_index(index, |path| walk_preserving(item, inner.node(), path, unknown));
                }
            }
        }
        _ => {}
    }
}

/// Brings the metadata of the resource and of embedded resources into the form of ObjectMeta.
fn coerce_metadata(
    value: &mut Value,
    node: Option<&Node>,
    root: bool,
    path: &mut FieldPath,
    unknown: &mut Vec<String>,
) {
    let Some(node) = node.filter(|node| root || node.has_embedded) else { return };
    match value {
        Value::Object(map) => {
            let embedded = root || node.embedded;
            for (key, value) in map.iter_mut() {
                if embedded && key == "metadata" {
                    path.in_member(key, |path| {
                        let mut inner = Vec::new();
                        builtin::make_canonical(value, builtin::type_node("meta/v1.ObjectMeta"), &mut inner);
                        let names = inner.into_iter().map(|name| path.member(&name));
                        unknown.extend(names);
                    });
                    continue;
                }
                if let Some(inner) = node.member(key) {
                    path.in_member(key, |path| coerce_metadata(value, Some(inner), false, path, unknown));
                }
            }
        }
        Value::Array(items) => {
            let inner = node.items.as_ref().map(|link| link.node());
            for (index, item) in items.iter_mut().enumerate() {
                path.in_index(index, |path| coerce_metadata(item, inner, false, path, unknown));
            }
        }
        _ => {}
    }
}

/// Why metadata, the object's own or an embedded resource's, cannot be read.
pub fn metadata_error(object: &Value, node: &Node) -> Option<String> {
    metadata_walk(object, node, true, &mut FieldPath::default())
}

fn metadata_walk(value: &Value, node: &Node, root: bool, path: &mut FieldPath) -> Option<String> {
    if !root && !node.has_embedded {
        return None;
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let embedded = root || node.embedded;
            let shown =
                |path: &FieldPath| format!("{}: Invalid value: {}", path.member(key), gotext::write_value(value));
            match key.as_str() {
                "metadata" if embedded => {
                    let error = decoding::decode_error(value, builtin::type_node("meta/v1.ObjectMeta"), "ObjectMeta")?;
                    return Some(if root { error } else { format!("{}: {error}", shown(path)) });
                }
                "apiVersion" | "kind" if embedded && !root && !value.is_string() => {
                    return Some(format!("{}: must be a string", shown(path)));
                }
                _ => {}
            }
            let inner = node.member(key)?;
            if node.properties.contains_key(key) {
                path.in_member(key, |path| metadata_walk(value, inner, false, path))
            } else {
                path.in_key(key, |path| metadata_walk(value, inner, false, path))
            }
        }),
        Value::Array(items) => {
            let inner = node.items.as_ref()?.node();
            items.iter().enumerate().find_map(|(i, item)| path.in_index(i, |p| metadata_walk(item, inner, false, p)))
        }
        _ => None,
    }
}
