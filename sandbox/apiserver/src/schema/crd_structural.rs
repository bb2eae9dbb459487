//! A schema must be structural: what an object looks like is said outside of junctors, and junctors speak only of what
//! is said there (`apiserver/schema/validation.go`, `complete.go`).

use serde_json::Value;

use super::crd::Errors;
use super::crd_schema::{each_of, flag_of, members_of, object_of, text_of};
use super::go_pattern::pattern_error;

#[derive(Clone, Copy, PartialEq)]
pub enum Level {
    Root,
    Item,
    Field,
}

/// The invariants of the structural part.
pub fn validate_spine(schema: &Value, level: Level, field: &str, errors: &mut Errors) {
    let kind = text_of(schema, "type");
    let embedded = flag_of(schema, "x-kubernetes-embedded-resource");
    let preserve = flag_of(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag_of(schema, "x-kubernetes-int-or-string");
    match object_of(schema, "items") {
        Some(items) => validate_spine(items, Level::Item, &format!("{field}.items"), errors),
        None if kind == "array" => errors.required(format!("{field}.items"), "must be specified"),
        None => {}
    }
    for (name, property) in members_of(schema, "properties") {
        validate_spine(property, Level::Field, &format!("{field}.properties[{name}]"), errors);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let at = format!("{field}.additionalProperties");
        if level == Level::Root {
            errors.forbidden(&at, "must not be used at the root");
        }
        if additional.is_object() {
            validate_spine(additional, Level::Field, &at, errors);
        }
        if embedded {
            errors.forbidden(at, "must not be used if x-kubernetes-embedded-resource is set");
        }
    }
    for (on, key) in [(preserve, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if int_or_string && on {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.invalid(format!("{field}.{key}"), &Value::Bool(true), detail);
        }
    }
    validate_values(schema, level, field, int_or_string_pattern(schema), errors);
    spine_type(schema, level, field, errors);
    spine_metadata(schema, level, field, errors);
    let bare = members_of(schema, "properties").next().is_none();
    if embedded && !preserve && bare {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(format!("{field}.properties"), detail);
    }
}

fn spine_type(schema: &Value, level: Level, field: &str, errors: &mut Errors) {
    let kind = text_of(schema, "type");
    let at = format!("{field}.type");
    if flag_of(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(&at, detail);
        } else {
            errors.invalid(&at, &kind.into(), detail);
        }
    } else if kind.is_empty()
        && !flag_of(schema, "x-kubernetes-int-or-string")
        && !flag_of(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let what = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.required(&at, &format!("must not be empty {what}"));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(at, &kind.into(), "must be object at the root");
    }
}

fn spine_metadata(schema: &Value, level: Level, field: &str, errors: &mut Errors) {
    let property = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
    let checked = level == Level::Root || flag_of(schema, "x-kubernetes-embedded-resource");
    for name in ["kind", "apiVersion"] {
        if let Some(schema) = property(name).filter(|schema| checked && text_of(schema, "type") != "string") {
            errors.invalid(
                format!("{field}.properties[{name}].type"),
                &text_of(schema, "type").into(),
                "must be string",
            );
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let at = format!("{field}.properties[metadata]");
    if checked && text_of(metadata, "type") != "object" {
        errors.invalid(format!("{at}.type"), &text_of(metadata, "type").into(), "must be object");
    }
    if level != Level::Root {
        return;
    }
    let names_only =
        members_of(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let other = metadata.as_object().into_iter().flatten().any(|(key, value)| {
        let empty = value.is_null() || *value == false || value.as_array().is_some_and(Vec::is_empty);
        !empty && !matches!(key.as_str(), "type" | "default" | "properties")
    });
    if !names_only || other {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(at, detail);
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, here or as the first part of `allOf`, may repeat the type.
#[derive(Clone, Copy, Default, PartialEq)]
struct Spared {
    any_of: bool,
    first_all_of: bool,
}

fn int_or_string_pattern(schema: &Value) -> Spared {
    let matches =
        |schema: &Value| schema.get("anyOf") == Some(&serde_json::json!([{"type": "integer"}, {"type": "string"}]));
    Spared {
        any_of: matches(schema),
        first_all_of: each_of(schema, "allOf").next().is_some_and(|(_, first)| matches(first)),
    }
}

/// The junctors and the pattern of a node.
fn validate_values(schema: &Value, level: Level, field: &str, spared: Spared, errors: &mut Errors) {
    if !spared.any_of {
        for (index, part) in each_of(schema, "anyOf") {
            validate_nested(part, level, &format!("{field}.anyOf[{index}]"), Spared::default(), errors);
        }
    }
    for (index, part) in each_of(schema, "allOf") {
        let spared = Spared { any_of: spared.first_all_of && index == 0, first_all_of: false };
        validate_nested(part, level, &format!("{field}.allOf[{index}]"), spared, errors);
    }
    for (index, part) in each_of(schema, "oneOf") {
        validate_nested(part, level, &format!("{field}.oneOf[{index}]"), Spared::default(), errors);
    }
    if let Some(not) = object_of(schema, "not") {
        validate_nested(not, level, &format!("{field}.not"), Spared::default(), errors);
    }
    let pattern = text_of(schema, "pattern");
    let ours = || regex::Regex::new(pattern).err().map(|error| format!("error parsing regexp: {error}"));
    if let Some(why) = pattern_error(pattern).or_else(ours) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(format!("{field}.pattern"), &pattern.into(), &detail);
    }
}

/// Below a junctor nothing may say what an object looks like.
fn validate_nested(schema: &Value, level: Level, field: &str, spared: Spared, errors: &mut Errors) {
    validate_values(schema, level, field, spared, errors);
    if let Some(items) = object_of(schema, "items") {
        validate_nested(items, level, &format!("{field}.items"), Spared::default(), errors);
    }
    for (name, property) in members_of(schema, "properties") {
        validate_nested(property, Level::Field, &format!("{field}.properties[{name}]"), Spared::default(), errors);
    }
    let set = |key: &str| match schema.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    for (key, must) in [
        ("type", "be empty"),
        ("additionalProperties", "be undefined"),
        ("default", "be undefined"),
        ("title", "be empty"),
        ("description", "be empty"),
        ("nullable", "be false"),
        ("x-kubernetes-preserve-unknown-fields", "be false"),
        ("x-kubernetes-embedded-resource", "be false"),
        ("x-kubernetes-int-or-string", "be false"),
        ("x-kubernetes-list-map-keys", "be empty"),
        ("x-kubernetes-list-type", "be undefined"),
        ("x-kubernetes-map-type", "be undefined"),
        ("x-kubernetes-validations", "be empty"),
    ] {
        let present = if key == "default" { schema.get(key).is_some_and(|v| !v.is_null()) } else { set(key) };
        if present {
            errors.forbidden(format!("{field}.{key}"), &format!("must {must} to be structural"));
        }
    }
    if schema.get("properties").and_then(|properties| properties.get("metadata")).is_some() {
        errors.forbidden(format!("{field}.properties[metadata]"), "must not be specified in a nested context");
    }
}

/// What a junctor speaks of must exist in the structural part.
pub fn complete_values(values: &Value, spine: Option<&Value>, spine_at: &str, values_at: &str, errors: &mut Errors) {
    for (index, key) in
        ["allOf", "anyOf", "oneOf"].iter().flat_map(|key| each_of(values, key).map(move |(i, _)| (i, *key)))
    {
        if let Some(part) = values.get(key).and_then(|list| list.get(index)) {
            validate_complete(part, spine, spine_at, &format!("{values_at}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = object_of(values, "not") {
        validate_complete(not, spine, spine_at, &format!("{values_at}.not"), errors);
    }
}

fn validate_complete(values: &Value, spine: Option<&Value>, spine_at: &str, values_at: &str, errors: &mut Errors) {
    let Some(spine) = spine else {
        errors.required(spine_at, &format!("because it is defined in {values_at}"));
        return;
    };
    complete_values(values, Some(spine), spine_at, values_at, errors);
    if let Some(items) = object_of(values, "items") {
        validate_complete(
            items,
            object_of(spine, "items"),
            &format!("{spine_at}.items"),
            &format!("{values_at}.items"),
            errors,
        );
    }
    for (name, property) in members_of(values, "properties") {
        let below = spine.get("properties").and_then(|properties| properties.get(name));
        let (spine_at, values_at) =
            (format!("{spine_at}.properties[{name}]"), format!("{values_at}.properties[{name}]"));
        validate_complete(property, below, &spine_at, &values_at, errors);
    }
}
