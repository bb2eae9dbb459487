//! One node of a structural schema: what belongs to the object's shape (pruning, defaulting, merging) and what only
//! checks values (`apiserver/schema/structural.go`). Every logical junctor holds nodes of the same kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use super::builtin;
use super::cel::Rule;
use super::formats::Format;

/// The JSON types of OpenAPI v3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Kind {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the elements of a list find each other (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Not said, which merges like atomic.
    #[default]
    Unspecified,
    Atomic,
    Set,
    /// Elements are identified by these fields.
    Map(Vec<String>),
}

/// What kinds of value a node allows, for merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Map,
    List,
    Scalar,
    /// Nothing is known: maps are granular, lists atomic.
    Any,
}

/// What happens to keys that `properties` does not list.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    #[default]
    Absent,
    /// `additionalProperties: true` or `false`.
    Allowed(bool),
    Schema(Link),
}

/// A child schema: part of this document, or a named built-in type (which may be recursive).
#[derive(Clone, Debug)]
pub enum Link {
    Here(Arc<Node>),
    Named(&'static str),
}

impl Link {
    pub fn node(&self) -> &Node {
        match self {
            Self::Here(node) => node,
            Self::Named(name) => builtin::type_node(name),
        }
    }
}

impl Link {
    /// Marks a type written here, and what is below it, as declared.
    pub fn declare(&mut self) {
        if let Self::Here(node) = self {
            let mut declared = (**node).clone();
            declared.declare();
            *self = declared.into();
        }
    }
}

impl From<Node> for Link {
    fn from(node: Node) -> Self {
        Self::Here(Arc::new(node))
    }
}

/// How strategic merge patch treats a field (`patchStrategy`, `patchMergeKey`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged, by `key` or as sets of scalars.
    pub merge: bool,
    /// A map is taken as the patch has it.
    pub replace: bool,
    /// The patch may name the fields to keep with `$retainKeys`.
    pub retain_keys: bool,
    pub key: Option<String>,
}

/// What the built-in types need beyond OpenAPI: how Go writes the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Custom resources: present exactly if it was sent.
    #[default]
    AsSent,
    /// `omitempty` without a pointer: the zero value is dropped.
    DropZero,
    /// `omitempty` with a pointer: only null is dropped.
    DropNull,
    /// Always written, with the zero value if it was not sent.
    Always,
    /// Always written, as null if it was not sent.
    AlwaysOrNull,
}

/// The checks of one node, absent on most nodes.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub max_length: Option<u64>,
    pub min_length: Option<u64>,
    pub pattern: Option<(String, Option<Regex>)>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub multiple_of: Option<f64>,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub required: Vec<String>,
    pub enumeration: Vec<Value>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub types: Vec<Kind>,
    pub nullable: bool,
    pub format: Option<Format>,
    pub properties: BTreeMap<String, Link>,
    pub additional: Additional,
    pub items: Option<Link>,
    pub default: Option<Value>,
    pub int_or_string: bool,
    pub preserve: bool,
    pub embedded: bool,
    pub list: ListKind,
    pub map_atomic: bool,
    pub checks: Option<Box<Checks>>,
    pub rules: Vec<Arc<Rule>>,
    /// Whether this node or one below has rules.
    pub has_rules: bool,
    /// Whether this node or one below is an embedded resource.
    pub has_embedded: bool,
    /// Whether this node or one below is a list in which nothing may repeat.
    pub has_unique: bool,
    pub patch: PatchStrategy,
    pub presence: Presence,
    /// How the value is decoded, for built-in kinds.
    pub wire: builtin::Wire,
    /// A type that Kubernetes declares to expressions itself: its members go by their own names.
    pub declared: bool,
    /// The named type whose members this field of a built-in type has.
    pub target: Option<&'static str>,
    /// Go's name of a built-in field's type, where the wire form does not tell it.
    pub go_type: Option<&'static str>,
    /// The Go structs, joined by dots, that are embedded in the owner and hold this field.
    pub go_embedded: Option<&'static str>,
}

impl Node {
    pub fn declare(&mut self) {
        self.declared = true;
        self.properties.values_mut().for_each(Link::declare);
    }

    /// Whether `field` of an expression is the member `name`. A reserved word names its member in both forms
    /// (`apiserver/pkg/cel/types.go`, FindStructFieldType).
    pub fn names_field(&self, name: &str, field: &str) -> bool {
        let reserved = super::cel::RESERVED_WORDS.contains(&name);
        let verbatim = self.declared || reserved;
        (verbatim && name == field) || (!self.declared && super::cel::escape_name(name) == field)
    }

    /// Reads a schema object. Parts it cannot use are left out: a CRD is validated before it is served.
    pub fn parse(schema: &Value) -> Self {
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let int_or_string = flag("x-kubernetes-int-or-string");
        let types = if int_or_string {
            vec![Kind::Integer, Kind::String]
        } else {
            text("type").and_then(Kind::parse).into_iter().collect()
        };
        let properties: BTreeMap<String, Link> = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.clone(), Node::parse(property).into()))
            .collect();
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(inner @ Value::Object(_)) => Additional::Schema(Node::parse(inner).into()),
            _ => Additional::Absent,
        };
        let items: Option<Link> = schema.get("items").filter(|items| items.is_object()).map(|i| Node::parse(i).into());
        let list = match text("x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(string_list(schema.get("x-kubernetes-list-map-keys"))),
            Some("atomic") => ListKind::Atomic,
            _ => ListKind::Unspecified,
        };
        let checks = Checks::parse(schema);
        let rules: Vec<Arc<Rule>> = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|rule| Arc::new(Rule::parse(rule)))
            .collect();
        let embedded = flag("x-kubernetes-embedded-resource");
        let below = properties.values().chain(items.as_ref()).chain(match &additional {
            Additional::Schema(link) => Some(link),
            _ => None,
        });
        let below: Vec<&Node> = below.map(Link::node).collect();
        let has_rules = !rules.is_empty() || below.iter().any(|node| node.has_rules);
        let has_embedded = embedded || below.iter().any(|node| node.has_embedded);
        let has_unique = matches!(list, ListKind::Set | ListKind::Map(_)) || below.iter().any(|node| node.has_unique);
        Node {
            format: text("format").and_then(|format| Format::parse(format, &types)),
            types,
            nullable: flag("nullable"),
            properties,
            additional,
            items,
            // A null default is no default: it cannot be told from an absent one after decoding.
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            int_or_string,
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded,
            has_embedded,
            has_unique,
            list,
            map_atomic: text("x-kubernetes-map-type") == Some("atomic"),
            checks,
            rules,
            has_rules,
            patch: PatchStrategy::default(),
            presence: Presence::AsSent,
            declared: false,
            wire: builtin::Wire::Any,
            target: None,
            go_type: None,
            go_embedded: None,
        }
    }

    pub fn shape(&self) -> Shape {
        match self.wire {
            builtin::Wire::Struct | builtin::Wire::Map => Shape::Map,
            builtin::Wire::List => Shape::List,
            builtin::Wire::Any | builtin::Wire::SchemaOrList | builtin::Wire::SchemaOrBool => match self
                .types
                .as_slice()
            {
                [Kind::Object] => {
                    let described = self.preserve || self.embedded || !self.properties.is_empty();
                    if described || !matches!(self.additional, Additional::Absent) { Shape::Map } else { Shape::Any }
                }
                [Kind::Array] => Shape::List,
                [] if !self.properties.is_empty() => Shape::Map,
                [] => Shape::Any,
                _ => Shape::Scalar,
            },
            _ => Shape::Scalar,
        }
    }

    /// The scalar type as structured-merge-diff names it.
    pub fn scalar_kind(&self) -> &'static str {
        use builtin::Wire;
        match (self.wire, self.types.as_slice()) {
            (Wire::String | Wire::Bytes, _) | (Wire::Any, [Kind::String]) => "string",
            (Wire::Bool, _) | (Wire::Any, [Kind::Boolean]) => "boolean",
            (Wire::Int32 | Wire::Int64 | Wire::Float, _) | (Wire::Any, [Kind::Integer | Kind::Number]) => "numeric",
            _ => "untyped",
        }
    }

    /// The node that lists the members: the named type's, for a field of a built-in type.
    pub fn members(&self) -> &Node {
        self.target.map_or(self, |name| builtin::type_node(name))
    }

    /// The schema of the member `key` of an object.
    pub fn member(&self, key: &str) -> Option<&Node> {
        let node = self.members();
        match (node.properties.get(key), &node.additional) {
            (Some(property), _) => Some(property.node()),
            (None, Additional::Schema(link)) => Some(link.node()),
            _ => None,
        }
    }
}

impl Checks {
    fn parse(schema: &Map<String, Value>) -> Option<Box<Self>> {
        const KEYS: [&str; 18] = [
            "maximum",
            "exclusiveMaximum",
            "minimum",
            "exclusiveMinimum",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "multipleOf",
            "maxProperties",
            "minProperties",
            "required",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !KEYS.iter().any(|key| schema.contains_key(*key)) {
            return None;
        }
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let list = |key: &str| -> Vec<Node> {
            schema.get(key).and_then(Value::as_array).into_iter().flatten().map(Node::parse).collect()
        };
        Some(Box::new(Self {
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: schema
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|pattern| !pattern.is_empty())
                .map(|pattern| (pattern.to_owned(), Regex::new(pattern).ok())),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            multiple_of: number("multipleOf"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: string_list(schema.get("required")),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: schema.get("not").filter(|not| not.is_object()).map(|not| Box::new(Node::parse(not))),
        }))
    }
}

fn string_list(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
