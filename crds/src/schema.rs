//! CRD schemas of our types: structural, inlined, without `null`, and with the markers that Rust types do not carry,
//! such as list types and quantity patterns.
//!
//! Rule: the schema that controller-gen writes for the same Go types. Defaulting, pruning and server-side apply of the
//! real systems depend on it.

mod pod;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

pub(crate) use pod::{mark_pod_template, mark_volume_claim};

/// A DNS-1123 subdomain.
pub const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label.
pub const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A condition's reason.
pub(crate) const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// A condition's type: a qualified name.
const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Longer descriptions of Kubernetes' own types are left out: a quantity's alone has 2 kB, and there are hundreds.
const LONGEST_DESCRIPTION: usize = 120;

/// Any object.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of any objects.
pub(crate) fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": any_object(generator) })
}

/// Anything at all.
pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of a whole object; `required` are its required fields.
pub(crate) fn object_schema<T: JsonSchema>(required: &[&str]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.remove("required");
        if !required.is_empty() {
            root.insert("required".into(), json!(required));
        }
        let properties = root.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            for property in properties.values_mut().filter_map(Value::as_object_mut) {
                property.remove("default");
            }
            properties.insert("apiVersion".into(), json!({ "type": "string" }));
            properties.insert("kind".into(), json!({ "type": "string" }));
            properties.insert("metadata".into(), json!({ "type": "object" }));
        }
    }
    schema
}

/// Makes a schema and all below it structural.
fn make_structural(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    forget_null(object);
    object.remove("title");
    object.remove("$defs");
    let long = |text: &Value| text.as_str().is_some_and(|text| text.len() > LONGEST_DESCRIPTION);
    let quantity = object.get("description").and_then(Value::as_str).is_some_and(|d| d.starts_with("Quantity is a"));
    if object.get("description").is_some_and(long) {
        object.remove("description");
    }
    if object.contains_key("x-kubernetes-int-or-string") {
        object.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
        if quantity {
            object.insert("pattern".into(), json!(QUANTITY));
        }
        return;
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            make_structural(inner);
        }
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(make_structural);
    }
    mark_kubernetes_types(object);
}

/// `null` is no value in Kubernetes: an optional field is simply not required. A keyword that is `null` was put there
/// to take away what the derive says.
fn forget_null(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(branches)) = object.get_mut("anyOf") {
        branches.retain(|branch| branch.get("type") != Some(&json!("null")));
        if branches.len() == 1
            && let Some(Value::Object(only)) = branches.pop()
        {
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
            forget_null(object);
        }
    }
}

/// Selectors and conditions look alike everywhere, and are marked alike.
fn mark_kubernetes_types(object: &mut Map<String, Value>) {
    match property_names(object).as_slice() {
        ["key", "operator", "values"] => mark_atomic_list(object, "values"),
        ["matchExpressions", "matchLabels"] => {
            mark_atomic_list(object, "matchExpressions");
            mark_atomic_map(object);
        }
        ["matchExpressions", "matchFields"] => {
            mark_atomic_list(object, "matchExpressions");
            mark_atomic_list(object, "matchFields");
            mark_atomic_map(object);
        }
        ["nodeSelectorTerms"] => {
            mark_atomic_list(object, "nodeSelectorTerms");
            mark_atomic_map(object);
        }
        ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"]
        | ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"] => mark_atomic_map(object),
        ["lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"] => {
            let limits = [
                ("message", json!({ "maxLength": 32768 })),
                ("observedGeneration", json!({ "minimum": 0 })),
                ("reason", json!({ "maxLength": 1024, "minLength": 1, "pattern": REASON })),
                ("status", json!({ "enum": ["True", "False", "Unknown"] })),
                ("type", json!({ "maxLength": 316, "pattern": CONDITION_TYPE })),
            ];
            for (name, limits) in limits {
                add_keywords(object, name, limits);
            }
        }
        _ => {}
    }
}

fn property_names(object: &Map<String, Value>) -> Vec<&str> {
    let mut names: Vec<&str> = object
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|properties| properties.keys().map(String::as_str))
        .collect();
    names.sort_unstable();
    names
}

fn mark_atomic_map(object: &mut Map<String, Value>) {
    object.insert("x-kubernetes-map-type".into(), json!("atomic"));
}

fn mark_atomic_list(object: &mut Map<String, Value>, property: &str) {
    add_keywords(object, property, json!({ "x-kubernetes-list-type": "atomic" }));
}

/// Adds keywords to one property.
fn add_keywords(object: &mut Map<String, Value>, property: &str, keywords: Value) {
    let property = object.get_mut("properties").and_then(|properties| properties.get_mut(property));
    if let (Some(Value::Object(property)), Value::Object(keywords)) = (property, keywords) {
        property.extend(keywords);
    }
}
