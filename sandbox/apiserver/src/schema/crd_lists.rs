//! The list and map types of a schema: `x-kubernetes-list-type`, its keys, `x-kubernetes-map-type` (`validation.go`,
//! validateMapListKeysMapSet and around).

use serde_json::Value;

use super::crd::Errors;
use super::crd_schema::{each_of, flag_of, object_of, text_of};

fn wrong_kind(schema: &Value, field: &str, wanted: &str, because: &str, errors: &mut Errors) {
    let kind = text_of(schema, "type");
    let detail = format!("must be {wanted} if {because} is specified");
    if kind.is_empty() {
        errors.required(format!("{field}.type"), &detail);
    } else {
        errors.invalid(format!("{field}.type"), &kind.into(), &detail);
    }
}

pub fn list_and_map_types(schema: &Value, field: &str, errors: &mut Errors) {
    const LIST: &str = "x-kubernetes-list-type";
    const MAP: &str = "x-kubernetes-map-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let kind = text_of(schema, "type");
    if let Some(map_type) = schema.get(MAP).and_then(Value::as_str) {
        if kind != "object" {
            wrong_kind(schema, field, "object", MAP, errors);
        }
        if !matches!(map_type, "atomic" | "granular") {
            errors.unsupported(format!("{field}.{MAP}"), &map_type.into(), &["atomic", "granular"]);
        }
    }
    let list_type = schema.get(LIST).and_then(Value::as_str);
    let items = object_of(schema, "items");
    if list_type.is_some() && kind != "array" {
        wrong_kind(schema, field, "array", LIST, errors);
    } else if let (Some("set"), Some(items)) = (list_type, items) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let of = |key: &str| items.get(key).cloned().unwrap_or_default();
        if text_of(items, "type") == "array" && !matches!(text_of(items, LIST), "" | "atomic") {
            errors.invalid(format!("{field}.items.{LIST}"), &of(LIST), detail);
        }
        if text_of(items, "type") == "object" && text_of(items, MAP) != "atomic" {
            errors.invalid(format!("{field}.items.{MAP}"), &of(LIST), detail);
        }
    }
    if let Some(other) = list_type.filter(|list| !matches!(*list, "atomic" | "set" | "map")) {
        errors.unsupported(format!("{field}.{LIST}"), &other.into(), &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = each_of(schema, KEYS).filter_map(|(_, key)| key.as_str()).collect();
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(format!("{field}.{LIST}"), detail),
            Some(other) => errors.invalid(format!("{field}.{LIST}"), &other.into(), detail),
        }
    }
    if list_type == Some("map") {
        map_list(schema, items, &keys, field, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, items) {
        if flag_of(items, "nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.forbidden(format!("{field}.items.nullable"), &detail);
        }
        if list_type == "map" {
            map_list_keys(items, &keys, field, errors);
        }
    }
}

fn map_list(schema: &Value, items: Option<&Value>, keys: &[&str], field: &str, errors: &mut Errors) {
    let keys_at = format!("{field}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(&keys_at, "must not be empty if x-kubernetes-list-type is map");
    }
    let Some(items) = items else {
        errors.required(format!("{field}.items"), "must have a schema if x-kubernetes-list-type is map");
        return;
    };
    let kind = text_of(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(format!("{field}.items.type"), &kind.into(), detail);
        return;
    }
    let all = schema.get("x-kubernetes-list-map-keys").cloned().unwrap_or_default();
    for (index, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|properties| properties.get(*key)) {
            Some(property) if matches!(text_of(property, "type"), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(format!("{field}.items.properties[{key}].type"), &kind.into(), detail);
            }
            Some(_) => {}
            None => errors.invalid(&keys_at, &all, "entries must all be names of item properties"),
        }
        if keys[..index].contains(key) {
            errors.invalid(&keys_at, &all, "must not contain duplicate entries");
        }
    }
}

fn map_list_keys(items: &Value, keys: &[&str], field: &str, errors: &mut Errors) {
    let required: Vec<&str> = each_of(items, "required").filter_map(|(_, name)| name.as_str()).collect();
    for key in keys {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(*key)) else { continue };
        let at = format!("{field}.items.properties[{key}]");
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(format!("{at}.default"), detail);
        }
        if flag_of(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(format!("{at}.nullable"), detail);
        }
    }
}
