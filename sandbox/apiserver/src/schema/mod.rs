//! What a kind's objects look like: pruning, defaulting and validation, and how lists merge.
//!
//! Custom kinds follow the structural schema of their CustomResourceDefinition (apiextensions-apiserver
//! `pkg/apiserver/schema`); built-in kinds follow the table of Go's types in `builtin.txt`.

mod builtin;
mod cel;
mod cel_check;
mod cel_cost;
mod cel_tree;
mod cel_type;
mod checks;
mod crd;
mod crd_lists;
mod crd_rules;
mod crd_schema;
mod crd_structural;
mod crd_versions;
mod decoding;
mod defaulting;
mod defaults;
mod defaults_pod;
mod embedded;
mod error;
mod formats;
mod go_pattern;
mod gotext;
mod lists;
pub mod names;
mod node;
mod path;
mod prune;
mod quantity;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use builtin::Wire;
pub(crate) use cel::{RESERVED_WORDS, go_error, parse_expression};
pub(crate) use cel_check::infer_type;
pub(crate) use cel_tree::{TYPE_NAME, expand_loops, parts_of, register_loops};
pub(crate) use cel_type::{AUTHORIZER, OBJECT, PATCH, Type};
pub use crd::{format_warnings, validate_crd, validate_crd_status};
pub use error::{CauseReason, FieldError, aggregate_errors};
pub(crate) use formats::is_go_duration;
pub(crate) use node::{Additional, Link, ListKind, Node, Presence, Shape};
pub use quantity::canonical_quantity;

/// The schema of one version of one kind.
#[derive(Debug)]
pub struct TypeSchema {
    pub(crate) root: node::Link,
    /// Group and kind of a built-in type, whose rules are partly code.
    builtin: Option<(String, String)>,
}

impl TypeSchema {
    /// The schema of a CRD version: `versions[].schema.openAPIV3Schema`, and the CRD's `spec.preserveUnknownFields`.
    /// A null schema accepts everything.
    pub fn from_crd(open_api_v3_schema: &Value, preserve_unknown: bool) -> Self {
        let mut root = Node::parse(open_api_v3_schema);
        root.preserve |= preserve_unknown || open_api_v3_schema.is_null();
        // Type and metadata are those of every object, whatever the schema says about them.
        let text = || Node { wire: builtin::Wire::String, types: vec![node::Kind::String], ..Node::default() };
        for name in ["apiVersion", "kind"] {
            root.properties.entry(name.to_owned()).or_insert_with(|| text().into());
        }
        Self { root: root.into(), builtin: None }
    }

    /// The schema of a built-in kind, made once. An unknown kind gets a schema that accepts everything.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Arc<TypeSchema> {
        builtin::builtin_schema(group, version, kind)
    }

    pub(crate) fn node(&self) -> &Node {
        self.root.node()
    }

    /// An object of the kind before anything was set.
    pub(crate) fn zero(&self) -> Value {
        match self.builtin {
            Some(_) => builtin::zero_value(self.node()),
            None => Value::Object(serde_json::Map::new()),
        }
    }

    /// Why the object cannot be decoded at all, if so. For a built-in kind this is Go's complaint about a value of the
    /// wrong type; for a custom kind it is about metadata (its own or an embedded resource's).
    pub fn decode_error(&self, object: &Value) -> Option<String> {
        match &self.builtin {
            Some((_, kind)) => decoding::decode_error(object, self.node(), kind),
            None => prune::metadata_error(object, self.node()),
        }
    }

    /// Removes the fields the schema does not know and returns their paths, sorted
    /// (`spec.foo`, `spec.list[0].bar`), for `unknown field "spec.foo"`. Brings metadata into the form of ObjectMeta.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.builtin.is_some() {
            let mut unknown = Vec::new();
            builtin::make_canonical(object, self.node(), &mut unknown);
            unknown.sort();
            return unknown;
        }
        prune::prune_object(object, self.node(), true)
    }

    /// Fills in the defaults. For a built-in kind this includes the zero values that Go always writes.
    pub fn default(&self, object: &mut Value) {
        match &self.builtin {
            Some((group, kind)) => {
                builtin::make_canonical(object, self.node(), &mut Vec::new());
                defaults::default_object(object, group, kind);
            }
            None => defaulting::default_object(object, self.node()),
        }
    }

    /// Fills in the defaults of an object that server-side apply made, in which nulls without a default stay and fail
    /// validation.
    pub fn default_applied(&self, object: &mut Value) {
        match self.builtin {
            Some(_) => self.default(object),
            None => defaulting::fill_defaults(object, self.node()),
        }
    }

    /// All violations of a custom object's schema, after errors that were found before (metadata, scale): these come
    /// first, and may keep the CEL rules from running. With `old`, transition rules run and unchanged parts are
    /// ratcheted. Built-in kinds have no violations here.
    pub fn validate_after(&self, before: Vec<FieldError>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        if self.builtin.is_some() {
            return before;
        }
        let mut errors = before;
        errors.extend(checks::check_values(object, old, self.node(), ""));
        errors.extend(embedded::check_embedded(object, self.node()));
        self.finish(errors, object, old)
    }

    /// As `validate_after`, for a write through `/status`: only the status is checked against the schema, whose texts
    /// then start there; rules see the whole object.
    pub fn validate_status(&self, before: Vec<FieldError>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        if self.builtin.is_some() {
            return before;
        }
        let mut errors = before;
        if let (Some(status), Some(node)) = (object.get("status"), self.node().member("status")) {
            let old_status = old.and_then(|old| old.get("status"));
            errors.extend(checks::check_values(status, old_status, node, "status"));
        }
        self.finish(errors, object, old)
    }

    /// List invariants and rules.
    fn finish(&self, mut errors: Vec<FieldError>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let node = self.node();
        let fresh = lists::check_lists(object, node);
        if !fresh.is_empty() && old.is_none_or(|old| lists::check_lists(old, node).is_empty()) {
            errors.extend(fresh);
        }
        if !node.has_rules {
            return errors;
        }
        if errors.iter().any(|error| error.reason.blocks_rules()) {
            errors.push(FieldError::new(
                CauseReason::Invalid,
                "<nil>",
                "Invalid value: null: some validation rules were not checked because the object was invalid; correct \
                 the existing errors to complete validation",
            ));
        } else {
            errors.extend(cel::check_rules(object, old, node));
        }
        errors
    }
}

/// The replica counts and the selector behind `/scale` must have their types (`validateScaleSpec`,
/// `validateScaleStatus`). `scale` is the CRD's `subresources.scale`; `with_spec` is false for a write to `/status`.
pub fn scale_errors(object: &Value, scale: &Value, with_spec: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = |key: &str| scale.get(key).and_then(Value::as_str);
    let mut report = |path: &str, value: &str, detail: &str| {
        errors.push(FieldError::new(CauseReason::Invalid, path, format!("Invalid value: {value}: {detail}")));
    };
    let counts = [path("specReplicasPath").filter(|_| with_spec), path("statusReplicasPath")];
    for path in counts.into_iter().flatten() {
        match nested(object, path) {
            Err(detail) => report(path, "0", &detail),
            Ok(None) => {}
            Ok(Some(value)) => match value.as_i64() {
                None => report(path, "0", &wrong_accessor(path, value, "int64")),
                Some(count) if count < 0 => report(path, &count.to_string(), "should be a non-negative integer"),
                Some(count) if count > i64::from(i32::MAX) => {
                    report(path, &count.to_string(), "should be less than or equal to 2147483647");
                }
                Some(_) => {}
            },
        }
    }
    if let Some(path) = path("labelSelectorPath") {
        match nested(object, path) {
            Err(detail) => report(path, "\"\"", &detail),
            Ok(Some(value)) if !value.is_string() => report(path, "\"\"", &wrong_accessor(path, value, "string")),
            Ok(_) => {}
        }
    }
    errors
}

/// `NestedFieldNoCopy`: a value on the way that is no object is an error.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut gone = String::new();
    for part in path.trim_start_matches('.').split('.') {
        let Some(map) = value.as_object() else {
            return Err(wrong_accessor(&format!("{gone}.{part}"), value, "map[string]interface{}"));
        };
        gone = format!("{gone}.{part}");
        match map.get(part) {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn wrong_accessor(path: &str, value: &Value, wanted: &str) -> String {
    let (shown, kind) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) if number.is_f64() => (gotext::write_value(value), "float64"),
        Value::Number(number) => (number.to_string(), "int64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (go_value(value), "[]interface {}"),
        Value::Object(_) => (go_value(value), "map[string]interface {}"),
    };
    format!("{path} accessor error: {shown} is of the type {kind}, expected {wanted}")
}

/// `%v` of lists and maps.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut parts: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
        other => gotext::write_value(other),
    }
}

/// The type of every object's metadata.
pub(crate) fn object_meta() -> &'static Node {
    builtin::type_node("meta/v1.ObjectMeta")
}

/// A schema that knows nothing and accepts everything.
pub(crate) fn anything() -> &'static Node {
    builtin::type_node("")
}

/// A value as Go's `%v` shows it: `map[a:1 b:[x y]]`.
pub(crate) fn shown(value: &Value) -> String {
    go_value(value)
}

/// Why a merged object cannot become Go's type again, if so (`DefaultUnstructuredConverter`).
pub(crate) fn mismatch(object: &Value, node: &Node) -> Option<String> {
    decoding::restore_error(object, node)
}
