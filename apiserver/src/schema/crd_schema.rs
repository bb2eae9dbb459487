//! What may be wrong with the schema of a CustomResourceDefinition: it must be structural
//! (`apiserver/schema/validation.go`, `complete.go`), its defaults must be valid themselves
//! (`defaulting/validation.go`), and OpenAPI has parts that are not allowed here
//! (`validation.go`, ValidateCustomResourceDefinitionOpenAPISchema).

use serde_json::{Map, Value};

use super::cel::Rule;
use super::crd::Errors;
use super::error::FieldError;
use super::node::Node;
use super::{cel, checks, embedded, prune};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Appends the errors of `schema`, which stands at `field`.
pub fn validate(schema: &Value, field: &str, status: bool, errors: &mut Errors) {
    let before = errors.list.len();
    if status {
        root_with_status(schema, field, errors);
    }
    if flag(schema, "nullable") {
        errors.forbidden(format!("{field}.nullable"), "nullable cannot be true at the root");
    }
    let mut sound = false;
    if !unsupported_anywhere(schema) {
        let mut structural = Errors::new();
        spine(schema, Level::Root, field, &mut structural);
        complete_values(schema, Some(schema), field, field, &mut structural);
        if structural.list.is_empty() {
            defaults(schema, field, Place::root(), &mut structural);
            sound = structural.list.is_empty();
        }
        errors.list.append(&mut structural.list);
    }
    let mut rules = Vec::new();
    open_api(schema, field, &Open { root: true, ..Open::default() }, errors, &mut rules);
    // Rules are looked at only when the schema is sound.
    if sound && errors.list.len() == before {
        errors.list.append(&mut rules);
    }
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn members<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn each<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn object<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
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
    let kind = text(schema, "type");
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
    here || children(schema).iter().any(|(_, child)| unsupported_anywhere(child))
}

/// All schemas directly below, with how the path goes on.
fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut out: Vec<(String, &Value)> = Vec::new();
    for key in ["items", "additionalProperties", "not"] {
        out.extend(object(schema, key).map(|child| (key.to_owned(), child)));
    }
    out.extend(members(schema, "properties").map(|(name, child)| (format!("properties[{name}]"), child)));
    for key in ["allOf", "anyOf", "oneOf"] {
        out.extend(each(schema, key).map(|(index, child)| (format!("{key}[{index}]"), child)));
    }
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The invariants of the structural part.
fn spine(schema: &Value, level: Level, field: &str, errors: &mut Errors) {
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserve = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    match object(schema, "items") {
        Some(items) => spine(items, Level::Item, &format!("{field}.items"), errors),
        None if kind == "array" => errors.required(format!("{field}.items"), "must be specified"),
        None => {}
    }
    for (name, property) in members(schema, "properties") {
        spine(property, Level::Field, &format!("{field}.properties[{name}]"), errors);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let at = format!("{field}.additionalProperties");
        if level == Level::Root {
            errors.forbidden(&at, "must not be used at the root");
        }
        if additional.is_object() {
            spine(additional, Level::Field, &at, errors);
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
    values(schema, level, field, int_or_string_pattern(schema), errors);
    spine_type(schema, level, field, errors);
    spine_metadata(schema, level, field, errors);
    let bare = members(schema, "properties").next().is_none();
    if embedded && !preserve && bare {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(format!("{field}.properties"), detail);
    }
}

fn spine_type(schema: &Value, level: Level, field: &str, errors: &mut Errors) {
    let kind = text(schema, "type");
    let at = format!("{field}.type");
    if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(&at, detail);
        } else {
            errors.invalid(&at, &kind.into(), detail);
        }
    } else if kind.is_empty()
        && !flag(schema, "x-kubernetes-int-or-string")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
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
    let checked = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    for name in ["kind", "apiVersion"] {
        if let Some(schema) = property(name).filter(|schema| checked && text(schema, "type") != "string") {
            errors.invalid(format!("{field}.properties[{name}].type"), &text(schema, "type").into(), "must be string");
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let at = format!("{field}.properties[metadata]");
    if checked && text(metadata, "type") != "object" {
        errors.invalid(format!("{at}.type"), &text(metadata, "type").into(), "must be object");
    }
    if level != Level::Root {
        return;
    }
    let names_only = members(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let other = metadata.as_object().into_iter().flatten().any(|(key, value)| {
        !value.is_null() && *value != false && !matches!(key.as_str(), "type" | "default" | "properties" | "required")
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
        first_all_of: each(schema, "allOf").next().is_some_and(|(_, first)| matches(first)),
    }
}

/// The junctors and the pattern of a node.
fn values(schema: &Value, level: Level, field: &str, spared: Spared, errors: &mut Errors) {
    if !spared.any_of {
        for (index, part) in each(schema, "anyOf") {
            nested(part, level, &format!("{field}.anyOf[{index}]"), Spared::default(), errors);
        }
    }
    for (index, part) in each(schema, "allOf") {
        let spared = Spared { any_of: spared.first_all_of && index == 0, first_all_of: false };
        nested(part, level, &format!("{field}.allOf[{index}]"), spared, errors);
    }
    for (index, part) in each(schema, "oneOf") {
        nested(part, level, &format!("{field}.oneOf[{index}]"), Spared::default(), errors);
    }
    if let Some(not) = object(schema, "not") {
        nested(not, level, &format!("{field}.not"), Spared::default(), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {}", go_regex_error(&error, pattern));
        errors.invalid(format!("{field}.pattern"), &pattern.into(), &detail);
    }
}

/// The regular expression library's complaint, in Go's words where they are known.
fn go_regex_error(error: &regex::Error, pattern: &str) -> String {
    let text = error.to_string();
    let known = [
        ("unclosed character class", "missing closing ]"),
        ("unclosed group", "missing closing )"),
        ("unopened group", "unexpected )"),
        ("repetition operator missing expression", "missing argument to repetition operator"),
    ];
    match known.iter().find(|(ours, _)| text.contains(ours)) {
        Some((_, "missing closing ]")) => {
            let from = pattern.find('[').map_or(pattern, |at| &pattern[at..]);
            format!("error parsing regexp: missing closing ]: `{from}`")
        }
        Some((_, "missing argument to repetition operator")) => {
            let operator = pattern.find(['*', '+', '?']).map_or(pattern, |at| &pattern[at..=at]);
            format!("error parsing regexp: missing argument to repetition operator: `{operator}`")
        }
        Some((_, go)) => format!("error parsing regexp: {go}: `{pattern}`"),
        None => format!("error parsing regexp: {text}"),
    }
}

/// Below a junctor nothing may say what an object looks like.
fn nested(schema: &Value, level: Level, field: &str, spared: Spared, errors: &mut Errors) {
    values(schema, level, field, spared, errors);
    if let Some(items) = object(schema, "items") {
        nested(items, level, &format!("{field}.items"), Spared::default(), errors);
    }
    for (name, property) in members(schema, "properties") {
        nested(property, Level::Field, &format!("{field}.properties[{name}]"), Spared::default(), errors);
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
fn complete_values(values: &Value, spine: Option<&Value>, spine_at: &str, values_at: &str, errors: &mut Errors) {
    for (index, key) in
        ["allOf", "anyOf", "oneOf"].iter().flat_map(|key| each(values, key).map(move |(i, _)| (i, *key)))
    {
        if let Some(part) = values.get(key).and_then(|list| list.get(index)) {
            complete(part, spine, spine_at, &format!("{values_at}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = object(values, "not") {
        complete(not, spine, spine_at, &format!("{values_at}.not"), errors);
    }
}

fn complete(values: &Value, spine: Option<&Value>, spine_at: &str, values_at: &str, errors: &mut Errors) {
    let Some(spine) = spine else {
        errors.required(spine_at, &format!("because it is defined in {values_at}"));
        return;
    };
    complete_values(values, Some(spine), spine_at, values_at, errors);
    if let Some(items) = object(values, "items") {
        complete(items, object(spine, "items"), &format!("{spine_at}.items"), &format!("{values_at}.items"), errors);
    }
    for (name, property) in members(values, "properties") {
        let below = spine.get("properties").and_then(|properties| properties.get(name));
        let (spine_at, values_at) =
            (format!("{spine_at}.properties[{name}]"), format!("{values_at}.properties[{name}]"));
        complete(property, below, &spine_at, &values_at, errors);
    }
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

fn defaults(schema: &Value, field: &str, place: Place, errors: &mut Errors) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let place = if embedded { Place { inside_meta: false, resource: true } } else { place };
    if let Some(default) = schema.get("default").filter(|default| !default.is_null())
        && !place.inside_meta
    {
        errors.list.extend(default_errors(default, schema, &format!("{field}.default"), embedded));
    }
    if let Some(items) = object(schema, "items") {
        defaults(items, &format!("{field}.items"), Place { resource: false, ..place }, errors);
    }
    for (name, property) in members(schema, "properties") {
        let meta = place.resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let below = Place { inside_meta: place.inside_meta || meta, resource: false };
        defaults(property, &format!("{field}.properties[{name}]"), below, errors);
    }
}

fn default_errors(default: &Value, schema: &Value, field: &str, embedded: bool) -> Vec<FieldError> {
    let node = Node::parse(schema);
    let mut pruned = default.clone();
    prune::prune_value(&mut pruned, &node, embedded);
    let mut errors = Errors::new();
    if pruned != *default {
        errors.invalid(field, default, "must not have unknown fields");
    }
    for found in [embedded::check_at(default, &node, field), checks::check(default, None, &node, field)] {
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
}

fn open_api(schema: &Value, field: &str, open: &Open, errors: &mut Errors, rules: &mut Vec<FieldError>) {
    open_words(schema, field, open, errors);
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(format!("{field}.uniqueItems"), detail);
    }
    let below = Open { root: false, ..open.clone() };
    open_members(schema, field, open, &below, errors, rules);
    for (path, child) in children(schema) {
        if !path.starts_with("properties[") && !matches!(path.as_str(), "items" | "additionalProperties") {
            let below = Open { junctor: true, ..below.clone() };
            open_api(child, &format!("{field}.{path}"), &below, errors, rules);
        }
    }
    if let Some(items) = object(schema, "items") {
        let mut below = below;
        if text(schema, "x-kubernetes-list-type") != "map" {
            below.uncorrelated.get_or_insert_with(|| field.to_owned());
        }
        open_api(items, &format!("{field}.items"), &below, errors, rules);
    }
    list_and_map_types(schema, field, errors);
    rules_of(schema, field, open, errors, rules);
}

fn open_members(
    schema: &Value,
    field: &str,
    open: &Open,
    below: &Open,
    errors: &mut Errors,
    rules: &mut Vec<FieldError>,
) {
    let has_properties = members(schema, "properties").next().is_some();
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let at = format!("{field}.additionalProperties");
        if has_properties && *additional != true {
            errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
        }
        if additional.is_object() {
            let mut below = below.clone();
            if open.inside_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            open_api(additional, &at, &below, errors, rules);
        }
    }
    for (name, property) in members(schema, "properties") {
        let mut below = below.clone();
        let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        if meta && (open.root || flag(schema, "x-kubernetes-embedded-resource")) {
            below.inside_meta = true;
            if open.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        open_api(property, &format!("{field}.properties[{name}]"), &below, errors, rules);
    }
}

/// Words of OpenAPI and JSON schema that have no place in a CRD.
fn open_words(schema: &Value, field: &str, open: &Open, errors: &mut Errors) {
    let kind = text(schema, "type");
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
    if open.inside_meta && flag(schema, "x-kubernetes-embedded-resource") {
        errors.forbidden(format!("{field}.x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.invalid(format!("{field}.{preserve}"), &Value::Bool(false), "must be true or undefined");
    }
}

fn wrong_kind(schema: &Value, field: &str, wanted: &str, because: &str, errors: &mut Errors) {
    let kind = text(schema, "type");
    let detail = format!("must be {wanted} if {because} is specified");
    if kind.is_empty() {
        errors.required(format!("{field}.type"), &detail);
    } else {
        errors.invalid(format!("{field}.type"), &kind.into(), &detail);
    }
}

fn list_and_map_types(schema: &Value, field: &str, errors: &mut Errors) {
    const LIST: &str = "x-kubernetes-list-type";
    const MAP: &str = "x-kubernetes-map-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let kind = text(schema, "type");
    if let Some(map_type) = schema.get(MAP).and_then(Value::as_str) {
        if kind != "object" {
            wrong_kind(schema, field, "object", MAP, errors);
        }
        if !matches!(map_type, "atomic" | "granular") {
            errors.unsupported(format!("{field}.{MAP}"), &map_type.into(), &["atomic", "granular"]);
        }
    }
    let list_type = schema.get(LIST).and_then(Value::as_str);
    let items = object(schema, "items");
    if list_type.is_some() && kind != "array" {
        wrong_kind(schema, field, "array", LIST, errors);
    } else if let (Some("set"), Some(items)) = (list_type, items) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let of = |key: &str| items.get(key).cloned().unwrap_or_default();
        if text(items, "type") == "array" && !matches!(text(items, LIST), "" | "atomic") {
            errors.invalid(format!("{field}.items.{LIST}"), &of(LIST), detail);
        }
        if text(items, "type") == "object" && text(items, MAP) != "atomic" {
            errors.invalid(format!("{field}.items.{MAP}"), &of(LIST), detail);
        }
    }
    if let Some(other) = list_type.filter(|list| !matches!(*list, "atomic" | "set" | "map")) {
        errors.unsupported(format!("{field}.{LIST}"), &other.into(), &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = each(schema, KEYS).filter_map(|(_, key)| key.as_str()).collect();
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
        if flag(items, "nullable") {
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
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(format!("{field}.items.type"), &kind.into(), detail);
        return;
    }
    let all = schema.get("x-kubernetes-list-map-keys").cloned().unwrap_or_default();
    for (index, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|properties| properties.get(*key)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
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
    let required: Vec<&str> = each(items, "required").filter_map(|(_, name)| name.as_str()).collect();
    for key in keys {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(*key)) else { continue };
        let at = format!("{field}.items.properties[{key}]");
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(format!("{at}.default"), detail);
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(format!("{at}.nullable"), detail);
        }
    }
}

fn rules_of(schema: &Value, field: &str, open: &Open, errors: &mut Errors, rules: &mut Vec<FieldError>) {
    for (index, rule) in each(schema, "x-kubernetes-validations") {
        let at = format!("{field}.x-kubernetes-validations[{index}]");
        rule_shape(rule, &at, errors);
        if open.junctor {
            continue;
        }
        let compiled = Rule::parse(rule);
        let mut found = Errors::new();
        if let Some(error) = compiled.compile_error() {
            let shown = rule_shown(rule);
            let detail = format!("compilation failed: {error}");
            found.invalid(format!("{at}.rule"), &shown, &detail);
        } else if compiled.uses_old() {
            if let Some(path) = &open.uncorrelated {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
                found.invalid(format!("{at}.rule"), &rule.get("rule").cloned().unwrap_or_default(), &detail);
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|optional| !optional.is_null()) {
            found.invalid(format!("{at}.optionalOldSelf"), optional, "may not be set if oldSelf is not used in rule");
        }
        rules.append(&mut found.list);
    }
}

/// A rule as the internal type prints it.
fn rule_shown(rule: &Value) -> Value {
    let mut map = Map::new();
    for (name, key) in [
        ("Rule", "rule"),
        ("Message", "message"),
        ("MessageExpression", "messageExpression"),
        ("Reason", "reason"),
        ("FieldPath", "fieldPath"),
        ("OptionalOldSelf", "optionalOldSelf"),
    ] {
        let absent = if matches!(key, "reason" | "optionalOldSelf") { Value::Null } else { "".into() };
        map.insert(name.to_owned(), rule.get(key).cloned().unwrap_or(absent));
    }
    Value::Object(map)
}

fn rule_shape(rule: &Value, at: &str, errors: &mut Errors) {
    let sent = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
    let (source, message) = (sent("rule").trim(), sent("message").trim());
    let broken = |text: &str| text.contains(['\n', '\r']);
    if source.is_empty() {
        errors.required(format!("{at}.rule"), "rule is not specified");
    } else if !sent("message").is_empty() && message.is_empty() {
        errors.invalid(format!("{at}.message"), &sent("message").into(), "must be non-empty if specified");
    } else if broken(message) {
        errors.invalid(format!("{at}.message"), &sent("message").into(), "must not contain line breaks");
    } else if broken(source) && message.is_empty() {
        errors.required(format!("{at}.message"), "message must be specified if rule contains line breaks");
    }
    if !sent("messageExpression").is_empty() && sent("messageExpression").trim().is_empty() {
        errors.required(format!("{at}.messageExpression"), "messageExpression must be non-empty if specified");
    }
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason)) {
        errors.unsupported(format!("{at}.reason"), &reason.into(), &REASONS);
    }
    let path = sent("fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must be non-empty if specified");
    }
    if broken(path) {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must not contain line breaks");
    }
    if !path.is_empty() && !path.trim().starts_with(['.', '[']) {
        errors.invalid(format!("{at}.fieldPath"), &path.into(), "must be a valid path");
    }
}
