//! What may be wrong with the schema of a CustomResourceDefinition: it must be structural
//! (`apiserver/schema/validation.go`, `complete.go`), its defaults must be valid themselves
//! (`defaulting/validation.go`), and OpenAPI has parts that are not allowed here
//! (`validation.go`, ValidateCustomResourceDefinitionOpenAPISchema).

use serde_json::Value;

use super::crd::Errors;
use super::crd_lists::list_and_map_types;
use super::crd_rules as rules;
use super::crd_structural::{Level, complete_values, validate_spine};
use super::error::FieldError;
use super::node::Node;
use super::{cel, checks, embedded, prune};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Appends the errors of `schema`, which stands at `field`.
pub fn validate_schema(schema: &Value, field: &str, status: bool, errors: &mut Errors) {
    let before = errors.list.len();
    if status {
        root_with_status(schema, field, errors);
    }
    if flag_of(schema, "nullable") {
        errors.forbidden(format!("{field}.nullable"), "nullable cannot be true at the root");
    }
    let mut sound = false;
    if !unsupported_anywhere(schema) {
        let mut structural = Errors::new();
        validate_spine(schema, Level::Root, field, &mut structural);
        complete_values(schema, Some(schema), field, field, &mut structural);
        if structural.list.is_empty() {
            validate_defaults(schema, field, Place::root(), &mut structural);
            sound = structural.list.is_empty();
        }
        errors.list.append(&mut structural.list);
    }
    let mut found = rules::Findings::default();
    open_api(schema, field, &Open { root: true, most: Some(1), ..Open::default() }, errors, &mut found);
    // The conversion to a structural schema is tried only when all else is well.
    if names_dialect(schema) && errors.list.len() == before {
        errors.invalid(field, &"".into(), "OpenAPIV3Schema 'schema' is not supported");
    }
    // Expressions are looked at only when the schema as a whole is structural.
    if sound {
        errors.list.append(&mut found.conclude(field));
    }
}

pub(super) fn flag_of(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn text_of<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn members_of<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flatten()
}

pub(super) fn each_of<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

pub(super) fn object_of<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|value| value.is_object())
}

/// With a status subresource the root may only have parts that do not apply to the status.
fn root_with_status(schema: &Value, field: &str, errors: &mut Errors) {
    const ALLOWED: [&str; 20] = [
        "description",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
    ];
    let kind = text_of(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.invalid(format!("{field}.type"), &kind.into(), detail);
        return;
    }
    let other = schema.as_object().into_iter().flatten().find(|(key, value)| {
        !value.is_null()
            && **value != false
            && !ALLOWED.contains(&key.as_str())
            && !matches!(key.as_str(), "type" | "x-kubernetes-validations")
    });
    if other.is_some() {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                      MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
                      Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the \
                      status subresource is enabled";
        errors.invalid(field, schema, detail);
    }
}

/// Parts that cannot be read as a structural schema at all; they are reported elsewhere.
fn unsupported_anywhere(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return false };
    const WORDS: [&str; 7] =
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    let here = WORDS.iter().any(|word| map.get(*word).is_some_and(|value| !value.is_null()))
        || map.get("items").is_some_and(Value::is_array)
        || map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false));
    here || child_schemas(schema).iter().any(|(_, child)| unsupported_anywhere(child))
}

/// Whether `$schema` stands anywhere: no check but the conversion to a structural schema looks at it.
fn names_dialect(schema: &Value) -> bool {
    !text_of(schema, "$schema").is_empty() || child_schemas(schema).iter().any(|(_, child)| names_dialect(child))
}

/// All schemas directly below, with how the path goes on.
fn child_schemas(schema: &Value) -> Vec<(String, &Value)> {
    let mut out: Vec<(String, &Value)> = Vec::new();
    for key in ["items", "additionalProperties", "not"] {
        out.extend(object_of(schema, key).map(|child| (key.to_owned(), child)));
    }
    out.extend(members_of(schema, "properties").map(|(name, child)| (format!("properties[{name}]"), child)));
    for key in ["allOf", "anyOf", "oneOf"] {
        out.extend(each_of(schema, key).map(|(index, child)| (format!("{key}[{index}]"), child)));
    }
    out
}

/// Whether a default stands inside metadata, whose values are checked as part of a whole object.
#[derive(Clone, Copy)]
struct Place {
    inside_meta: bool,
    resource: bool,
}

impl Place {
    fn root() -> Self {
        Self { inside_meta: false, resource: true }
    }
}

fn validate_defaults(schema: &Value, field: &str, place: Place, errors: &mut Errors) {
    let embedded = flag_of(schema, "x-kubernetes-embedded-resource");
    let place = if embedded { Place { inside_meta: false, resource: true } } else { place };
    // The root is a whole resource, too (`ValidateDefaults`).
    let embedded = place.resource;
    if let Some(default) = schema.get("default").filter(|default| !default.is_null())
        && !place.inside_meta
    {
        errors.list.extend(default_errors(default, schema, &format!("{field}.default"), embedded));
    }
    if let Some(items) = object_of(schema, "items") {
        validate_defaults(items, &format!("{field}.items"), Place { resource: false, ..place }, errors);
    }
    for (name, property) in members_of(schema, "properties") {
        let meta = place.resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let below = Place { inside_meta: place.inside_meta || meta, resource: false };
        validate_defaults(property, &format!("{field}.properties[{name}]"), below, errors);
    }
}

fn default_errors(default: &Value, schema: &Value, field: &str, embedded: bool) -> Vec<FieldError> {
    let mut node = Node::parse(schema);
    node.embedded |= embedded;
    node.has_embedded |= embedded;
    let mut pruned = default.clone();
    prune::prune_value(&mut pruned, &node, embedded);
    let mut errors = Errors::new();
    if pruned != *default {
        errors.invalid(field, default, "must not have unknown fields");
    }
    for found in [embedded::check_at(default, &node, field), checks::check_values(default, None, &node, field)] {
        if !found.is_empty() {
            errors.list.extend(found);
            return errors.list;
        }
    }
    let mut found = cel::check_at(default, Some(default), &node, field);
    if found.is_empty() {
        found = cel::check_at(default, None, &node, field);
    }
    errors.list.extend(found);
    errors.list
}

/// Where in a schema the OpenAPI checks stand.
#[derive(Clone, Default)]
struct Open {
    root: bool,
    inside_meta: bool,
    no_defaults: Option<String>,
    /// The first schema above whose parts cannot be followed from one revision to the next.
    uncorrelated: Option<String>,
    junctor: bool,
    /// How often the schema occurs in an object at most, where lists and maps above have bounds.
    most: Option<u64>,
}

fn open_api(schema: &Value, field: &str, open: &Open, errors: &mut Errors, found: &mut rules::Findings) {
    let before = errors.list.len();
    open_words(schema, field, open, errors);
    if flag_of(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(format!("{field}.uniqueItems"), detail);
    }
    let below = Open { root: false, ..open.clone() };
    open_members(schema, field, open, &below, errors, found);
    for (path, child) in child_schemas(schema) {
        if !path.starts_with("properties[") && !matches!(path.as_str(), "items" | "additionalProperties") {
            let below = Open { junctor: true, ..below.clone() };
            open_api(child, &format!("{field}.{path}"), &below, errors, found);
        }
    }
    if let Some(items) = object_of(schema, "items") {
        let mut below = below;
        if text_of(schema, "x-kubernetes-list-type") != "map" {
            below.uncorrelated.get_or_insert_with(|| field.to_owned());
        }
        below.most = occurrences(schema, open.most);
        open_api(items, &format!("{field}.items"), &below, errors, found);
    }
    list_and_map_types(schema, field, errors);
    let place = rules::Place {
        root: open.root,
        uncorrelated: open.uncorrelated.as_deref(),
        junctor: open.junctor,
        most: open.most,
        before,
    };
    rules::rules_of(schema, field, place, errors, found);
}

/// How often what stands in the items or the values of a schema occurs, if there is a bound (`childContext`).
fn occurrences(schema: &Value, most: Option<u64>) -> Option<u64> {
    let bound = schema.get("maxItems").or_else(|| schema.get("maxProperties")).and_then(Value::as_u64)?;
    Some(most?.saturating_mul(bound))
}

fn open_members(
    schema: &Value,
    field: &str,
    open: &Open,
    below: &Open,
    errors: &mut Errors,
    found: &mut rules::Findings,
) {
    let has_properties = members_of(schema, "properties").next().is_some();
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let at = format!("{field}.additionalProperties");
        if has_properties && *additional != true {
            errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
        }
        if additional.is_object() {
            let mut below = below.clone();
            below.most = occurrences(schema, open.most);
            if open.inside_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            open_api(additional, &at, &below, errors, found);
        }
    }
    for (name, property) in members_of(schema, "properties") {
        let mut below = below.clone();
        let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        if meta && (open.root || flag_of(schema, "x-kubernetes-embedded-resource")) {
            below.inside_meta = true;
            if open.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        open_api(property, &format!("{field}.properties[{name}]"), &below, errors, found);
    }
}

/// Words of OpenAPI and JSON schema that have no place in a CRD.
fn open_words(schema: &Value, field: &str, open: &Open, errors: &mut Errors) {
    let kind = text_of(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.unsupported(format!("{field}.type"), &kind.into(), &TYPES);
    }
    let set = |key: &str| schema.get(key).is_some_and(|value| !value.is_null());
    if let Some(reason) = open.no_defaults.as_ref().filter(|_| set("default")) {
        errors.forbidden(format!("{field}.default"), &format!("must not be set {reason}"));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if set(key) {
            errors.forbidden(format!("{field}.{key}"), &format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        errors.forbidden(format!("{field}.type"), "type cannot be set to null, use nullable as an alternative");
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.forbidden(format!("{field}.items"), "items must be a schema object and not an array");
    }
    if open.inside_meta && flag_of(schema, "x-kubernetes-embedded-resource") {
        errors.forbidden(format!("{field}.x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.invalid(format!("{field}.{preserve}"), &Value::Bool(false), "must be true or undefined");
    }
}
