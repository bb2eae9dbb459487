//! Objects as structured-merge-diff sees them: which values are maps, lists or scalars, what is atomic, and how list
//! elements are named (`typed/helpers.go`, `typed/validate.go`, `typed/tofieldset.go`).

use serde_json::{Map, Value};

use super::set::{Element, Scalar, Set};
use crate::schema::{Additional, ListKind, Node, Presence, Shape, Wire, anything, object_meta};

/// A node together with whether it is a whole resource, whose metadata has its own type.
#[derive(Clone, Copy)]
pub struct Type<'a> {
    pub node: &'a Node,
    pub resource: bool,
    /// Whether unknown fields are kept here, or anywhere above (`schemaconv`).
    pub open: bool,
}

/// What a value is handled as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Atom {
    Map,
    List,
    Scalar,
}

/// What a key is when it was not sent: the default, which for a member that Go always writes is its zero value.
fn default_key(node: &Node) -> Option<Value> {
    let zero = match node.wire {
        Wire::String => Value::from(""),
        Wire::Int32 | Wire::Int64 => Value::from(0),
        _ => return node.default.clone(),
    };
    node.default.clone().or_else(|| (node.presence == Presence::Always).then_some(zero))
}

impl<'a> Type<'a> {
    pub fn root(node: &'a Node) -> Self {
        Self { node, resource: true, open: node.preserve }
    }

    /// The kinds of value the type allows: map, scalar, list.
    fn atoms(self) -> (bool, bool, bool) {
        match self.node.shape() {
            Shape::Map => (true, false, false),
            Shape::Scalar => (false, true, false),
            Shape::List => (false, false, true),
            Shape::Any => (true, true, true),
        }
    }

    /// How to handle this value; a value of a kind that is not allowed is handled as the first that is.
    pub fn atom(self, value: Option<&Value>) -> Atom {
        let (map, scalar, list) = self.atoms();
        match value {
            Some(Value::Object(_)) if map => Atom::Map,
            Some(Value::Array(_)) if list => Atom::List,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if scalar => Atom::Scalar,
            _ if map => Atom::Map,
            _ if scalar => Atom::Scalar,
            _ => Atom::List,
        }
    }

    pub fn atomic_map(self) -> bool {
        self.node.map_atomic || self.node.members().map_atomic
    }

    pub fn atomic_list(self) -> bool {
        matches!(self.node.list, ListKind::Atomic | ListKind::Unspecified)
    }

    /// The type of a member, and whether it is a declared field.
    pub fn member(self, key: &str) -> Option<(Type<'a>, bool)> {
        let plain = |node: &'a Node| Type { node, resource: false, open: node.preserve };
        let below = |node: &'a Node| Type { node, resource: false, open: self.open || node.preserve };
        if key == "metadata" && (self.resource || self.node.embedded) && self.node.target.is_none() {
            return Some((plain(object_meta()), true));
        }
        if self.node.embedded && matches!(key, "apiVersion" | "kind") {
            return Some((plain(self.node.properties.get(key).map_or(anything() as &Node, |link| link.node())), true));
        }
        let members = self.node.members();
        match (members.properties.get(key), &self.node.additional) {
            (Some(link), _) => Some((below(link.node()), true)),
            (None, Additional::Schema(link)) => Some((below(link.node()), false)),
            (None, Additional::Allowed(true)) => Some((below(anything()), false)),
            _ if self.open || self.node.shape() == Shape::Any => Some((below(anything()), false)),
            _ => None,
        }
    }

    pub fn element(self) -> Type<'a> {
        let node = self.node.items.as_ref().map_or(anything() as &Node, |link| link.node());
        Type { node, resource: false, open: self.open || node.preserve }
    }

    /// How an element of an associative list is named.
    pub fn name(self, item: &Value) -> Result<Element, String> {
        match &self.node.list {
            ListKind::Map(keys) => {
                let map = match item {
                    Value::Object(map) => map,
                    Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                    _ => return Err("associative list with keys may not have non-map elements".to_owned()),
                };
                self.key(map, keys)
            }
            _ => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::Value(Scalar(scalar.clone()))),
            },
        }
    }

    fn key(self, map: &Map<String, Value>, keys: &[String]) -> Result<Element, String> {
        let element = self.element();
        let default = |key: &str| element.member(key).and_then(|(member, _)| default_key(member.node));
        let mut fields: Vec<(String, Scalar)> = keys
            .iter()
            .filter_map(|key| Some((key.clone(), Scalar(map.get(key).cloned().or_else(|| default(key))?))))
            .collect();
        if fields.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        fields.sort();
        Ok(Element::Key(fields))
    }
}

/// All the fields of an object that someone who sends it owns.
pub fn field_set(value: &Value, ty: Type<'_>) -> Set {
    let mut set = Set::default();
    collect_fields(value, ty, &mut Vec::new(), &mut set);
    set
}

fn collect_fields(value: &Value, ty: Type<'_>, path: &mut Vec<Element>, set: &mut Set) {
    match ty.atom(Some(value)) {
        Atom::Scalar => set.insert(path),
        Atom::Map if ty.atomic_map() => set.insert(path),
        Atom::List if ty.atomic_list() => set.insert(path),
        Atom::Map => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let Some((member, declared)) = ty.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                collect_fields(value, member, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !declared {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Atom::List => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<Option<Element>> = items.iter().map(|item| ty.name(item).ok()).collect();
            for (item, name) in items.iter().zip(&names) {
                let Some(name) = name else { continue };
                path.push(name.clone());
                // Elements with the same name are owned as one.
                if names.iter().filter(|other| other.as_ref() == Some(name)).count() == 1 {
                    collect_fields(item, ty.element(), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// The paths of the lists and maps in a value that can only be set as a whole.
pub fn find_atomics(value: &Value, ty: Type<'_>, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) if ty.atom(Some(value)) == Atom::Map => {
            if ty.atomic_map() {
                out.push(path.to_owned());
            }
            for (key, value) in map {
                if let Some((member, true)) = ty.member(key) {
                    find_atomics(value, member, &format!("{path}.{key}"), out);
                }
            }
        }
        Value::Array(items) if ty.atom(Some(value)) == Atom::List => {
            if ty.atomic_list() {
                out.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomics(item, ty.element(), &format!("{path}[{index}]"), out);
            }
        }
        _ => {}
    }
}

/// Why an applied object does not fit its type, one text for each problem.
pub fn find_problems(value: &Value, ty: Type<'_>) -> Vec<String> {
    let mut out = Vec::new();
    check_value(value, ty, "", &mut out);
    out
}

fn check_value(value: &Value, ty: Type<'_>, path: &str, out: &mut Vec<String>) {
    let mut report = |text: String| out.push(if path.is_empty() { text } else { format!("{path}: {text}") });
    match ty.atom(Some(value)) {
        Atom::Scalar => {
            if let Some(text) = scalar_problem(value, ty.node) {
                report(text);
            }
        }
        Atom::Map => match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let below = format!("{path}.{key}");
                    match ty.member(key) {
                        Some((member, _)) => check_value(value, member, &below, out),
                        None => {
                            out.push(format!("{below}: field not declared in schema"));
                            // The library stops at the first unknown field of a map.
                            return;
                        }
                    }
                }
            }
            Value::Null => {}
            other => report(format!("expected map, got &{{{}}}", crate::schema::shown(other))),
        },
        Atom::List => match value {
            Value::Array(items) => check_list(items, ty, path, out),
            Value::Null => {}
            other => report(format!("expected list, got &{{{}}}", crate::schema::shown(other))),
        },
    }
}

fn check_list(items: &[Value], ty: Type<'_>, path: &str, out: &mut Vec<String>) {
    let associative = !ty.atomic_list();
    let mut seen: Vec<Element> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let name = if associative {
            match ty.name(item) {
                Ok(name) => name,
                Err(text) => {
                    out.push(format!("{path}: element {index}: {text}"));
                    return;
                }
            }
        } else {
            Element::Index(index)
        };
        if seen.contains(&name) {
            out.push(format!("{path}: duplicate entries for key {}", name.text()));
        }
        check_value(item, ty.element(), &format!("{path}{}", name.text()), out);
        if associative {
            seen.push(name);
        }
    }
}

/// A value as `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let members: Vec<String> = map.iter().map(|(key, value)| format!("{key:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

fn scalar_problem(value: &Value, node: &Node) -> Option<String> {
    let go = |value: &Value| format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value));
    let type_name = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    match node.scalar_kind() {
        "numeric" if !value.is_number() => Some(format!("expected numeric (int or float), got {type_name}")),
        "string" if !value.is_string() => Some(format!("expected string, got {}", go(value))),
        "boolean" if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", crate::schema::shown(value))),
        "untyped" if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got &{{{}}}", crate::schema::shown(value)))
        }
        _ => None,
    }
}
