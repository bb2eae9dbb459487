//! The schemas of the built-in kinds, read from the table in `builtin.txt`, and what decoding into Go's types and
//! encoding again does to an object: unknown fields go, zero values come or go.

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
}

static TYPES: LazyLock<HashMap<&'static str, Node>> = LazyLock::new(|| parse_table(include_str!("builtin.txt")));
static ANYTHING: LazyLock<Node> = LazyLock::new(|| Node { preserve: true, ..Node::default() });

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
                node.patch = PatchStrategy { merge: has("merge"), retain_keys: has("retainKeys"), key };
            }
            Some(("default", text)) => node.default = serde_json::from_str(text).ok(),
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
        Wire::Struct => {
            let mut map = Map::new();
            for (key, property) in &node.members().properties {
                map.extend(unset_value(property.node()).map(|value| (key.clone(), value)));
            }
            Value::Object(map)
        }
    }
}

/// Why Go's decoder refuses the object, if it does.
pub fn decode_error(value: &Value, node: &Node, type_name: &str) -> Option<String> {
    decode_value_error(value, node, type_name, &mut String::new())
}

fn decode_value_error(value: &Value, node: &Node, owner: &str, path: &mut String) -> Option<String> {
    let complain = |got: &str, wanted: &str| {
        let at = if path.is_empty() { String::new() } else { format!("struct field {owner}.{path} of type ") };
        let value_of = if path.is_empty() { "value of type " } else { "" };
        Some(format!("json: cannot unmarshal {got} into Go {at}{value_of}{wanted}"))
    };
    let got = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (node.wire, value) {
        (Wire::Any, _) | (Wire::String, Value::String(_)) | (Wire::Bool, Value::Bool(_)) => None,
        (Wire::IntOrString, Value::String(_)) => None,
        (Wire::Float, Value::Number(_)) => None,
        (Wire::Int32 | Wire::Int64 | Wire::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|n| node.wire == Wire::Int64 || i32::try_from(n).is_ok());
            if fits { None } else { complain(&format!("number {number}"), wire_name(node.wire)) }
        }
        (Wire::Quantity, Value::String(text)) => quantity::canonical_quantity(text).is_none().then(|| {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()
        }),
        (Wire::Quantity, Value::Number(_)) => None,
        (Wire::Bytes, Value::String(text)) => {
            use base64::Engine as _;
            let error = base64::engine::general_purpose::STANDARD.decode(text).err()?;
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len(),
            };
            Some(format!("illegal base64 data at input byte {at}"))
        }
        (Wire::Time | Wire::MicroTime, Value::String(text)) => time_error(text, node.wire),
        (Wire::List, Value::Array(items)) => {
            let inner = node.items.as_ref()?.node();
            items.iter().find_map(|item| decode_value_error(item, inner, owner, path))
        }
        (Wire::Map, Value::Object(map)) => {
            let Additional::Schema(inner) = &node.additional else { return None };
            map.values().find_map(|value| decode_value_error(value, inner.node(), owner, path))
        }
        (Wire::Struct, Value::Object(map)) => {
            let owner = node.target.and_then(|target| target.split('.').next_back()).unwrap_or(owner);
            map.iter().find_map(|(key, value)| {
                let inner = node.members().properties.get(key)?.node();
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                let error = decode_value_error(value, inner, owner, path);
                path.truncate(length);
                error
            })
        }
        (Wire::Struct, _) => {
            complain(got, &format!("v1.{}", node.target.and_then(|t| t.split('.').next_back()).unwrap_or(owner)))
        }
        (wire, _) => complain(got, wire_name(wire)),
    }
}

/// Why the converter from maps to Go's types refuses the object, if it does.
pub fn restore_error(value: &Value, node: &Node) -> Option<String> {
    let kind = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match (node.wire, value) {
        (Wire::Struct, Value::Object(map)) => {
            let members = node.members();
            map.iter().find_map(|(key, value)| restore_error(value, members.properties.get(key)?.node()))
        }
        (Wire::Map, Value::Object(map)) => {
            let Additional::Schema(inner) = &node.additional else { return None };
            let text = inner.node().wire == Wire::String;
            map.values().find_map(|value| match value {
                Value::Number(number) if text && number.is_f64() => Some("cannot convert float64 to string".to_owned()),
                Value::Number(_) if text => Some("cannot convert int64 to string".to_owned()),
                Value::Bool(_) if text => Some("cannot convert bool to string".to_owned()),
                _ => restore_error(value, inner.node()),
            })
        }
        (Wire::List, Value::Array(items)) => {
            let inner = node.items.as_ref()?.node();
            items.iter().find_map(|item| restore_error(item, inner))
        }
        (Wire::Struct, _) => Some(format!("cannot restore struct from: {kind}")),
        (Wire::Map, _) => Some(format!("cannot restore map from {kind}")),
        (Wire::List, _) => Some(format!("cannot restore slice from {kind}")),
        (Wire::Any, _)
        | (Wire::String, Value::String(_))
        | (Wire::Bool, Value::Bool(_))
        | (Wire::Int32 | Wire::Int64 | Wire::Float, Value::Number(_)) => None,
        (Wire::String | Wire::Bool | Wire::Int32 | Wire::Int64 | Wire::Float, _) => {
            Some(format!("unrecognized type: {}", wire_name(node.wire)))
        }
        // These decode themselves.
        _ => decode_error(value, node, ""),
    }
}

fn wire_name(wire: Wire) -> &'static str {
    match wire {
        Wire::Any => "interface {}",
        Wire::String | Wire::IntOrString => "string",
        Wire::Bool => "bool",
        Wire::Int32 => "int32",
        Wire::Int64 => "int64",
        Wire::Float => "float64",
        Wire::Quantity => "resource.Quantity",
        Wire::Time | Wire::MicroTime => "time.Time",
        Wire::Bytes => "[]uint8",
        Wire::List => "[]interface {}",
        Wire::Map => "map[string]string",
        Wire::Struct => "struct",
    }
}

fn time_error(text: &str, wire: Wire) -> Option<String> {
    let layout = if wire == Wire::Time { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
    let six_digits = || {
        let fraction = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
        fraction == Some(6)
    };
    let good = text.parse::<jiff::Timestamp>().is_ok() && (wire == Wire::Time || six_digits());
    (!good).then(|| format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""))
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

    #[test]
    fn a_value_of_another_type_is_refused() {
        let node = type_node("core/v1.ConfigMap");
        assert_eq!(decode_error(&json!({"data": {"a": "b"}}), node, "ConfigMap"), None);
        let error = decode_error(&json!({"data": {"a": 1}}), node, "ConfigMap").unwrap();
        assert_eq!(error, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string");
    }
}
