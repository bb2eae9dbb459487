//! Sets of field paths and their JSON form, FieldsV1 (structured-merge-diff `fieldpath`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A scalar inside a path, ordered as the library orders values: numbers by size, texts by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar(pub Value);

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        };
        match (&self.0, &other.0) {
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Number(a), Value::Number(b)) if a != b => {
                let by_size = match (a.as_i64(), b.as_i64()) {
                    (Some(a), Some(b)) => a.cmp(&b),
                    _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
                };
                by_size.then_with(|| a.to_string().cmp(&b.to_string()))
            }
            (a, b) => rank(a).cmp(&rank(b)).then_with(|| a.to_string().cmp(&b.to_string())),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    Field(String),
    /// An element of a list that is a map, by its key fields.
    Key(Vec<(String, Scalar)>),
    /// An element of a list that is a set.
    Value(Scalar),
    Index(usize),
}

impl Element {
    /// As it stands in a message: `.a`, `[k="v"]`, `[="v"]`, `[0]`.
    pub fn text(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(fields) => {
                let parts: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                format!("[{}]", parts.join(","))
            }
            Self::Value(value) => format!("[={}]", value.0),
            Self::Index(index) => format!("[{index}]"),
        }
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let map: Map<String, Value> =
                    fields.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
                format!("k:{}", Value::Object(map))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "k" => {
                let Ok(Value::Object(map)) = serde_json::from_str(rest) else { return None };
                let mut fields: Vec<(String, Scalar)> =
                    map.into_iter().map(|(name, value)| (name, Scalar(value))).collect();
                fields.sort();
                Self::Key(fields)
            }
            "v" => Self::Value(Scalar(serde_json::from_str(rest).ok()?)),
            "i" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }
}

/// A set of paths: which children are members themselves, and what lies below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub members: BTreeSet<Element>,
    pub children: BTreeMap<Element, Set>,
}

impl Set {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (element, below) in &other.children {
            let merged = out.children.get(element).map_or_else(|| below.clone(), |mine| mine.union(below));
            out.children.insert(element.clone(), merged);
        }
        out
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(element, below)| Some((element.clone(), below.intersection(other.children.get(element)?))))
            .filter(|(_, below)| !below.is_empty())
            .collect();
        Self { members, children }
    }

    pub fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .map(|(element, below)| {
                (element.clone(), other.children.get(element).map_or_else(|| below.clone(), |o| below.difference(o)))
            })
            .filter(|(_, below)| !below.is_empty())
            .collect();
        Self { members, children }
    }

    /// All paths, in order.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            out.push(path);
        }
        for (element, below) in &self.children {
            prefix.push(element.clone());
            below.collect(prefix, out);
            prefix.pop();
        }
    }

    /// FieldsV1.
    pub fn encode(&self) -> Value {
        let mut map = Map::new();
        for member in &self.members {
            map.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, below) in &self.children {
            let mut inner = below.encode();
            if self.members.contains(element)
                && let Some(inner) = inner.as_object_mut()
            {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(element.encode(), inner);
        }
        Value::Object(map)
    }

    /// `None` if it is no FieldsV1.
    pub fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, below) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let element = Element::decode(key)?;
            let inner = below.as_object()?;
            if inner.is_empty() || inner.contains_key(".") {
                set.members.insert(element.clone());
            }
            let below = Self::decode(below)?;
            if !below.is_empty() {
                set.children.insert(element, below);
            }
        }
        Some(set)
    }
}

/// A path as conflicts show it.
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::text).collect()
}
