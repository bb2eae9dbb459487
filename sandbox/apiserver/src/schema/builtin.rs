//! The schemas of the built-in kinds, read from the table in `builtin.txt`, and what decoding into Go's types and
//! encoding again does to an object: unknown fields go, zero values come or go. What Go refuses is in `decoding`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value};

use super::TypeSchema;
use super::node::{Additional, Link, ListKind, Node, PatchStrategy, Presence};
use super::path::FieldPath;
use super::quantity;

/// How a value of a built-in type is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    #[default]
    Any,
    String,
    Bool,
    Int32,
    Int64,
    Float,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    Bytes,
    List,
    Map,
    Struct,
    /// A JSON schema, or a list of them (`JSONSchemaPropsOrArray`).
    SchemaOrList,
    /// A JSON schema, or whether anything goes (`JSONSchemaPropsOrBool`).
    SchemaOrBool,
}

static TYPES: LazyLock<HashMap<&'static str, Node>> = LazyLock::new(|| parse_table(include_str!("builtin.txt")));
static ANYTHING: LazyLock<Node> = LazyLock::new(|| Node { preserve: true, ..Node::default() });

/// The type of a JSON schema in a definition.
pub const JSON_SCHEMA: &str = "apiextensions/v1.JSONSchemaProps";

/// The node of a named type; a name that is not in the table accepts everything.
pub fn type_node(name: &str) -> &'static Node {
    TYPES.get(name).unwrap_or_else(|| &ANYTHING)
}

/// The schema of a built-in kind, made once.
pub fn builtin_schema(group: &str, version: &str, kind: &str) -> Arc<TypeSchema> {
    static MADE: LazyLock<Mutex<BTreeMap<String, Arc<TypeSchema>>>> = LazyLock::new(Mutex::default);
    let short = match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    let name = format!("{short}/{version}.{kind}");
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = made.entry(name).or_insert_with_key(|name| {
        let key = TYPES.keys().find(|key| *key == name).copied();
        let root = key.map_or_else(|| Link::Here(Arc::new(ANYTHING.clone())), Link::Named);
        Arc::new(TypeSchema { root, builtin: Some((group.to_owned(), kind.to_owned())) })
    });
    Arc::clone(schema)
}

fn parse_table(table: &'static str) -> HashMap<&'static str, Node> {
    let mut types = HashMap::new();
    let mut current: Option<(&'static str, Node)> = None;
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('=') {
            let (name, atomic) = heading.split_once(' ').map_or((heading, false), |(name, _)| (name, true));
            types.extend(current.replace((name, Node { wire: Wire::Struct, map_atomic: atomic, ..Node::default() })));
        } else if let Some((_, node)) = &mut current {
            let mut parts = line.split(' ');
            if let (Some(name), Some(shape), Some(presence)) = (parts.next(), parts.next(), parts.next()) {
                node.properties.insert(name.to_owned(), parse_link(shape, presence, parts));
            }
        }
    }
    types.extend(current);
    types
}

fn parse_link(shape: &'static str, presence: &str, extras: impl Iterator<Item = &'static str>) -> Link {
    let mut node = shape_node(shape);
    node.presence = match presence {
        "!" => Presence::Always,
        "~" => Presence::AlwaysOrNull,
        "*" => Presence::DropNull,
        _ => Presence::DropZero,
    };
    for extra in extras {
        match extra.split_once('=') {
            Some(("map", keys)) => node.list = ListKind::Map(keys.split(',').map(str::to_owned).collect()),
            Some(("patch", how)) => {
                let (strategies, key) = how.split_once(':').map_or((how, None), |(s, key)| (s, Some(key.to_owned())));
                let has = |wanted| strategies.split(',').any(|strategy| strategy == wanted);
                node.patch =
                    PatchStrategy { merge: has("merge"), replace: has("replace"), retain_keys: has("retainKeys"), key };
            }
            Some(("default", text)) => node.default = serde_json::from_str(text).ok(),
            Some(("go", name)) => node.go_type = Some(name),
            Some(("in", name)) => node.go_embedded = Some(name),
            _ if extra == "set" => node.list = ListKind::Set,
            _ if extra == "atomic" => {
                node.map_atomic = true;
                if node.wire == Wire::List {
                    node.list = ListKind::Atomic;
                }
            }
            _ => {}
        }
    }
    Link::Here(Arc::new(node))
}

fn shape_node(shape: &'static str) -> Node {
    let (first, rest) = shape.split_at(1);
    let plain = |wire| Node { wire, ..Node::default() };
    match first {
        // A field of a named type carries its own presence and merging, and borrows the members.
        "@" => Node { wire: Wire::Struct, properties: BTreeMap::new(), target: Some(rest), ..Node::default() },
        "[" => Node { items: Some(inner_link(rest)), ..plain(Wire::List) },
        "{" => Node { additional: Additional::Schema(inner_link(rest)), ..plain(Wire::Map) },
        "s" => plain(Wire::String),
        "b" => plain(Wire::Bool),
        "i" => plain(Wire::Int32),
        "l" => plain(Wire::Int64),
        "f" => plain(Wire::Float),
        "q" => plain(Wire::Quantity),
        "t" => plain(Wire::Time),
        "u" => plain(Wire::MicroTime),
        "x" => Node { int_or_string: true, ..plain(Wire::IntOrString) },
        "y" => plain(Wire::Bytes),
        "L" => Node { preserve: true, map_atomic: true, ..plain(Wire::SchemaOrList) },
        "B" => Node { preserve: true, map_atomic: true, ..plain(Wire::SchemaOrBool) },
        // Raw JSON is owned as a whole.
        _ => Node { preserve: true, map_atomic: true, ..Node::default() },
    }
}

fn inner_link(shape: &'static str) -> Link {
    match shape.strip_prefix('@') {
        Some(name) => Link::Named(name),
        None => Link::Here(Arc::new(shape_node(shape))),
    }
}

/// Brings a value into the form it has after a round trip through Go's type. Paths of unknown fields are relative.
pub fn make_canonical(value: &mut Value, node: &Node, unknown: &mut Vec<String>) {
    canonical_value(value, node, &mut FieldPath::default(), unknown);
}

fn canonical_value(value: &mut Value, node: &Node, path: &mut FieldPath, unknown: &mut Vec<String>) {
    match (node.wire, &mut *value) {
        (Wire::Struct, Value::Object(map)) => walk_struct(map, node.members(), path, unknown),
        (Wire::Map, Value::Object(map)) => {
            if let Additional::Schema(inner) = &node.additional {
                for (key, value) in map.iter_mut() {
                    path.in_member(key, |path| canonical_value(value, inner.node(), path, unknown));
                    zero_for_null(value, inner.node());
                }
            }
        }
        (Wire::List, Value::Array(items)) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    zero_for_null(item, inner.node());
                    path.in_index(index, |path| canonical_value(item, inner.node(), path, unknown));
                }
            }
        }
        // They decode themselves, and not strictly: nobody is told of what goes.
        (Wire::SchemaOrList | Wire::SchemaOrBool, Value::Object(map)) => {
            walk_struct(map, type_node(JSON_SCHEMA), &mut FieldPath::default(), &mut Vec::new());
        }
        (Wire::SchemaOrList, Value::Array(schemas)) if schemas.is_empty() => *value = Value::Null,
        (Wire::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if let Some(text) = quantity::canonical_quantity(&text) {
                *value = Value::String(text);
            }
        }
        (Wire::Time, Value::String(text)) => {
            // Times are written in UTC with whole seconds.
            if let Ok(time) = text.parse::<jiff::Timestamp>()
                && (text.contains('.') || !text.ends_with('Z'))
            {
                *value = Value::String(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            }
        }
        _ => {}
    }
}

fn zero_for_null(value: &mut Value, node: &Node) {
    if value.is_null() && node.wire != Wire::Any {
        *value = zero_value(node);
    }
}

fn walk_struct(map: &mut Map<String, Value>, node: &Node, path: &mut FieldPath, unknown: &mut Vec<String>) {
    map.retain(|key, value| {
        let Some(property) = node.properties.get(key).map(Link::node) else {
            unknown.push(path.member(key));
            return false;
        };
        path.in_member(key, |path| canonical_value(value, property, path, unknown));
        match property.presence {
            Presence::Always if value.is_null() => {
                *value = zero_value(property);
                true
            }
            Presence::DropNull => !value.is_null(),
            Presence::DropZero => !is_zero(value, property),
            Presence::Always | Presence::AlwaysOrNull | Presence::AsSent => true,
        }
    });
    for (key, property) in &node.properties {
        let property = property.node();
        if let Some(value) = unset_value(property)
            && !map.contains_key(key)
        {
            map.insert(key.clone(), value);
        }
    }
}

fn is_zero(value: &Value, node: &Node) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => match node.wire {
            Wire::Struct => node.members().properties.keys().all(|key| !map.contains_key(key)),
            _ => map.is_empty(),
        },
    }
}

/// What Go writes for a field that was not set, if it writes it at all.
fn unset_value(node: &Node) -> Option<Value> {
    match node.presence {
        Presence::Always => Some(zero_value(node)),
        Presence::AlwaysOrNull => Some(Value::Null),
        _ => None,
    }
}

/// What Go writes for the zero value.
pub fn zero_value(node: &Node) -> Value {
    match node.wire {
        Wire::String => Value::from(""),
        Wire::Bool => Value::from(false),
        Wire::Int32 | Wire::Int64 | Wire::Float | Wire::IntOrString => Value::from(0),
        Wire::Quantity => Value::from("0"),
        Wire::Time | Wire::MicroTime | Wire::Bytes | Wire::List | Wire::Map | Wire::Any => Value::Null,
        Wire::SchemaOrList | Wire::SchemaOrBool => Value::Null,
        Wire::Struct => {
            let mut map = Map::new();
            for (key, property) in &node.members().properties {
                map.extend(unset_value(property.node()).map(|value| (key.clone(), value)));
            }
            Value::Object(map)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_named_type_is_in_the_table() {
        fn named(link: &Link) -> Option<&'static str> {
            match link {
                Link::Named(name) => Some(name),
                Link::Here(node) => node.target.or_else(|| match &node.additional {
                    Additional::Schema(inner) => named(inner),
                    _ => node.items.as_ref().and_then(named),
                }),
            }
        }
        for (name, node) in TYPES.iter() {
            for (field, property) in &node.properties {
                if let Some(target) = named(property) {
                    assert!(TYPES.contains_key(target), "{name}.{field} names {target}");
                }
            }
        }
    }

    #[test]
    fn a_round_trip_adds_always_written_fields_and_drops_zero_ones() {
        let node = type_node("core/v1.Pod");
        let mut pod = json!({
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
            "spec": {"containers": [{"name": "c", "image": "", "foo": 1}], "hostNetwork": false, "nodeName": null}
        });
        let mut unknown = Vec::new();
        make_canonical(&mut pod, node, &mut unknown);
        assert_eq!(unknown, ["spec.containers[0].foo"]);
        let wanted = json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "resources": {}}]},
            "status": {}
        });
        assert_eq!(pod, wanted);
    }

    /// As kube-apiserver 1.36 shows the definition, without a warning.
    #[test]
    fn schemas_of_items_and_of_values_lose_what_no_schema_has() {
        let sent = json!({"type": "string", "foo": 1, "nullable": false, "default": null, "enum": null, "required": [],
            "description": "", "properties": {"a": {"type": "string", "foo": 2}}});
        let mut list = json!({"items": sent, "additionalProperties": sent});
        let mut unknown = Vec::new();
        make_canonical(&mut list, type_node(JSON_SCHEMA), &mut unknown);
        let kept = json!({"type": "string", "properties": {"a": {"type": "string"}}});
        assert_eq!(list, json!({"items": kept, "additionalProperties": kept}));
        assert!(unknown.is_empty());
        let mut bare = json!({"type": "array", "items": []});
        make_canonical(&mut bare, type_node(JSON_SCHEMA), &mut unknown);
        assert_eq!(bare, json!({"type": "array"}));
    }

    #[test]
    fn the_round_trip_is_idempotent() {
        let node = type_node("apps/v1.Deployment");
        let mut object = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "a",
            "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}}});
        make_canonical(&mut object, node, &mut Vec::new());
        let limits = &object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({"cpu": "500m", "memory": "1Gi"}));
        let once = object.clone();
        make_canonical(&mut object, node, &mut Vec::new());
        assert_eq!(object, once);
    }
}
