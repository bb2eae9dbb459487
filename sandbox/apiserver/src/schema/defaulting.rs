//! Defaulting of custom resources: nulls that are neither nullable nor defaulted go, then defaults are filled in
//! from the outside to the inside (`apiserver/schema/defaulting`).

use serde_json::Value;

use super::node::{Additional, Node};

/// Both steps.
pub fn default_object(object: &mut Value, node: &Node) {
    drop_nulls(object, node);
    fill_defaults(object, node);
}

fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let Some(inner) = node.member(key) else { return true };
            if value.is_null() {
                return inner.nullable || inner.default.is_some();
            }
            drop_nulls(value, inner);
            true
        }),
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(item, inner.node()));
            }
        }
        _ => {}
    }
}

/// The second step alone.
pub fn fill_defaults(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let property = property.node();
                let Some(default) = &property.default else { continue };
                match map.get(name) {
                    None => {}
                    Some(Value::Null) if !property.nullable => {}
                    Some(_) => continue,
                }
                map.insert(name.clone(), default.clone());
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    fill_defaults(value, property.node());
                } else if let Additional::Schema(inner) = &node.additional {
                    fill_null(value, inner.node());
                    fill_defaults(value, inner.node());
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for item in items {
                    fill_null(item, inner.node());
                    fill_defaults(item, inner.node());
                }
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, node: &Node) {
    if value.is_null() && !node.nullable {
        *value = node.default.clone().unwrap_or(Value::Null);
    }
}
