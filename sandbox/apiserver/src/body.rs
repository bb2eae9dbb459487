//! Request bodies: JSON, YAML and Kubernetes' protobuf into JSON values, remembering which members came twice and in
//! which order (strict field validation names them in the order of the document).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::{Status, go_quote};
use crate::syntax::{find_syntax_error, repair_unicode};

mod repeats;
mod yaml_value;

use repeats::first_document;
pub use repeats::{find_repeats, split_repeats};
use yaml_value::Yaml;

/// The body's media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

pub const FORMATS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

impl Format {
    /// By `Content-Type`; absent means JSON.
    pub fn of(content_type: &str) -> Result<Self, Status> {
        // `mime.ParseMediaType` reads it in lower case, and refuses a parameter without a value.
        let parameters: Vec<&str> = content_type.split(';').skip(1).map(str::trim).collect();
        let is_last = |at: usize| at + 1 == parameters.len();
        let mut odd = parameters.iter().enumerate().filter(|(_, parameter)| !parameter.contains('='));
        // One semicolon may be the last.
        if odd.any(|(at, parameter)| !parameter.is_empty() || !is_last(at)) {
            return Err(Status::unsupported_media_type(&FORMATS));
        }
        match media_type(content_type).to_ascii_lowercase().as_str() {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(Status::unsupported_media_type(&FORMATS)),
        }
    }
}

/// A media type without its parameters.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// A decoded body.
#[derive(Debug, Clone)]
pub struct Document {
    pub value: Value,
    /// Paths of repeated members, in document order; of JSON alone.
    pub duplicates: Vec<String>,
    /// What a strict reader of YAML says of repeated keys.
    repeats: Option<String>,
    /// Kept to find the order of members again.
    text: Vec<u8>,
}

impl Document {
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, String> {
        match format {
            Format::Json => Self::json(bytes),
            Format::Yaml => {
                let value = parse_yaml(bytes)?;
                Ok(Self { repeats: repeats::find_repeats(bytes), ..Self::from(value) })
            }
            Format::Protobuf => crate::protobuf::decode_body(bytes).map(Self::from),
        }
    }

    fn json(bytes: &[u8]) -> Result<Self, String> {
        let repeated = Cell::new(false);
        if let Some(error) = find_syntax_error(bytes) {
            return Err(error);
        }
        let text = repair_unicode(bytes).into_owned();
        let mut deserializer = serde_json::Deserializer::from_slice(&text);
        let seed = Seed { repeated: &repeated, merging: false };
        let value = seed.deserialize(&mut deserializer).map_err(|e| e.to_string())?;
        let mut document = Self { value, duplicates: Vec::new(), repeats: None, text };
        if repeated.get() {
            let mut duplicates = Vec::new();
            visit_members(&document.text, &mut |member| {
                if member.again {
                    duplicates.push(member.path.to_owned());
                }
            });
            document.duplicates = duplicates;
        }
        Ok(document)
    }

    /// What the body is of a built-in kind: its decoder goes on in the struct, map or list that a repeated member named
    /// before (`encoding/json`). A custom object is a map, in which the last one wins.
    pub fn merged_value(&self) -> Value {
        let repeated = Cell::new(false);
        let merged = (!self.duplicates.is_empty()).then(|| {
            let mut deserializer = serde_json::Deserializer::from_slice(&self.text);
            Seed { repeated: &repeated, merging: true }.deserialize(&mut deserializer).ok()
        });
        merged.flatten().unwrap_or_else(|| self.value.clone())
    }

    /// `unknown field "x"` and `duplicate field "y"`: of a built-in kind in document order, of a custom one what the
    /// parser found and then what its schema did not know (`apiextensions-apiserver`, `schemaCoercingDecoder`).
    pub fn strict_errors(&self, unknown: &[String], custom: bool) -> Vec<String> {
        if unknown.is_empty() && self.duplicates.is_empty() {
            return self.repeats.iter().cloned().collect();
        }
        let duplicate_text = |path: &str| format!("duplicate field {}", go_quote(path));
        let unknown_text = |path: &str| format!("unknown field {}", go_quote(path));
        if self.text.is_empty() || custom {
            let twice = self.duplicates.iter().map(|path| duplicate_text(path));
            let unknown = unknown.iter().map(|path| unknown_text(path));
            return self.repeats.iter().cloned().chain(twice).chain(unknown).collect();
        }
        let names: BTreeSet<&str> = unknown.iter().map(String::as_str).collect();
        let (mut left, mut texts) = (names.clone(), Vec::new());
        // Nobody looks into a field that is not known.
        let mut within: Option<usize> = None;
        visit_members(&self.text, &mut |member| {
            let Member { path, depth, again } = member;
            if within.is_some_and(|outer| depth > outer) {
                return;
            }
            let known = !names.contains(path);
            within = (!known).then_some(depth);
            if left.remove(path) {
                texts.push(unknown_text(path));
            } else if again && known {
                texts.push(duplicate_text(path));
            }
        });
        texts.extend(unknown.iter().filter(|path| left.remove(path.as_str())).map(|path| unknown_text(path)));
        texts.dedup();
        texts
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), repeats: None, text: Vec::new() }
    }
}

/// YAML 1.1 as the real server reads it: `y` and `yes` are booleans.
pub fn parse_yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("error converting YAML to JSON: {e}"))?;
    // A JSON document is YAML, and this reader is faster and keeps numbers as they are.
    if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let text = first_document(text);
    if text.starts_with('\t') {
        return Err("error converting YAML to JSON: yaml: found character that cannot start any token".to_owned());
    }
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options).map(|Yaml(value)| value).map_err(|e| {
        let text = go_yaml(e.to_string().lines().next().unwrap_or_default(), text);
        format!("error converting YAML to JSON: yaml: {text}")
    })
}

/// Go's words for a YAML syntax error where they are known: a flow collection that is never closed.
fn go_yaml(error: &str, text: &str) -> String {
    let close = match error.split_once("unclosed bracket '").and_then(|(_, rest)| rest.chars().next()) {
        Some('[') => ']',
        Some('{') => '}',
        _ => return place_error(error),
    };
    let line = text.trim_end().lines().count();
    let expected = match text.trim_end().chars().last() {
        Some('[' | '{' | ',') => "node content".to_owned(),
        _ => format!("',' or '{close}'"),
    };
    format!("line {line}: did not find expected {expected}")
}

/// An error with its line as Go tells it: not in the first one, and without the column (`yaml.v2`, `fail`).
fn place_error(error: &str) -> String {
    let parts = error.strip_prefix("error: line ").and_then(|rest| rest.split_once(" column "));
    let Some((line, (_, why))) = parts.and_then(|(line, rest)| Some((line, rest.split_once(": ")?))) else {
        return error.to_owned();
    };
    let why = match why {
        why if why.contains("tab") => "found character that cannot start any token",
        why => why,
    };
    if line == "1" { why.to_owned() } else { format!("line {line}: {why}") }
}

/// Builds a value, noticing repeated members: the last one wins, or goes into the one before.
#[derive(Clone, Copy)]
struct Seed<'a> {
    repeated: &'a Cell<bool>,
    merging: bool,
}

/// A value decoded into the place of another. Elements of a list keep what they had before, too.
fn merge_repeated(before: Value, value: Value) -> Value {
    match (before, value) {
        (Value::Object(mut before), Value::Object(members)) => {
            for (key, member) in members {
                let merged = match before.remove(&key) {
                    Some(old) => merge_repeated(old, member),
                    None => member,
                };
                before.insert(key, merged);
            }
            Value::Object(before)
        }
        (Value::Array(before), Value::Array(items)) => {
            let mut before = before.into_iter();
            let merged = items.into_iter().map(|item| match before.next() {
                Some(old) => merge_repeated(old, item),
                None => item,
            });
            Value::Array(merged.collect())
        }
        (_, value) => value,
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(self)?;
            let Some(before) = map.remove(&key) else {
                map.insert(key, value);
                continue;
            };
            self.repeated.set(true);
            map.insert(key, if self.merging { merge_repeated(before, value) } else { value });
        }
        Ok(Value::Object(map))
    }
}

/// A member of an object in a JSON text.
#[derive(Clone, Copy)]
struct Member<'a> {
    path: &'a str,
    /// In how many objects and lists it is.
    depth: usize,
    /// Whether its object had a member of the name before.
    again: bool,
}

/// Shows every member of a JSON text, in document order.
fn visit_members(bytes: &[u8], visit: &mut dyn FnMut(Member<'_>)) {
    struct Walk<'a> {
        path: &'a mut String,
        depth: usize,
        visit: &'a mut dyn FnMut(Member<'_>),
    }
    impl<'de> DeserializeSeed<'de> for Walk<'_> {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_any(self)
        }
    }
    impl<'de> Visitor<'de> for Walk<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON value")
        }
        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
            let (depth, length) = (self.depth + 1, self.path.len());
            for index in 0usize.. {
                self.path.push_str(&format!("[{index}]"));
                let item = Walk { path: &mut *self.path, depth, visit: &mut *self.visit };
                let found = access.next_element_seed(item)?;
                self.path.truncate(length);
                if found.is_none() {
                    break;
                }
            }
            Ok(())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
            let (depth, length) = (self.depth + 1, self.path.len());
            let mut seen = BTreeSet::new();
            while let Some(key) = access.next_key::<String>()? {
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(&key);
                (self.visit)(Member { path: self.path.as_str(), depth, again: !seen.insert(key) });
                access.next_value_seed(Walk { path: &mut *self.path, depth, visit: &mut *self.visit })?;
                self.path.truncate(length);
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // The text was parsed before; a failure here only loses the order.
    let _ = Walk { path: &mut String::new(), depth: 0, visit }.deserialize(&mut deserializer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_members_are_named_and_the_last_wins() {
        let text = br#"{"metadata":{"nope":1},"data":{"a":"1","a":"2"},"bogus":true}"#;
        let document = Document::parse(text, Format::Json).unwrap();
        assert_eq!(document.value["data"], json!({"a": "2"}));
        assert_eq!(
            document.strict_errors(&["bogus".into(), "metadata.nope".into()], false),
            ["unknown field \"metadata.nope\"", "duplicate field \"data.a\"", "unknown field \"bogus\""]
        );
    }

    #[test]
    fn yaml_reads_y_as_a_boolean() {
        assert_eq!(parse_yaml(b"name: y\nsize: 3\n").unwrap(), json!({"name": true, "size": 3}));
        assert_eq!(
            parse_yaml(b"y: 1\noff: 2\n'n': 3\n5: 6\n").unwrap(),
            json!({"true": 1, "false": 2, "n": 3, "5": 6})
        );
    }

    /// `encoding/json` decodes into what is there.
    #[test]
    fn a_built_in_kind_gathers_what_a_repeated_member_says() {
        let text = br#"{"data":{"a":"1"},"list":[{"n":"A","v":"1"},{"n":"C"}],"data":{"b":"2"},"list":[{"n":"B"}]}"#;
        let document = Document::parse(text, Format::Json).unwrap();
        assert_eq!(document.value["data"], json!({"b": "2"}));
        let merged = json!({"data": {"a": "1", "b": "2"}, "list": [{"n": "B", "v": "1"}]});
        assert_eq!(document.merged_value(), merged);
    }

    #[test]
    fn nobody_looks_for_repeated_members_where_nothing_is_known() {
        let text = br#"{"metadata":{"foo":1,"foo":{"a":1,"a":2}},"data":{"a":"1","a":"2"}}"#;
        let document = Document::parse(text, Format::Json).unwrap();
        let told = ["unknown field \"metadata.foo\"", "duplicate field \"data.a\""];
        assert_eq!(document.strict_errors(&["metadata.foo".into()], false), told);
    }

    /// The time grew with the product of the two numbers.
    #[test]
    fn many_members_that_are_not_known_or_come_twice_are_told_in_time() {
        let members = |name: &str| -> Vec<String> { (0..100_000).map(|i| format!("\"{name}{i}\":1")).collect() };
        let (strange, twice) = (members("u"), [members("d"), members("d")].concat().join(","));
        let text = format!("{{\"data\":{{{twice}}},{}}}", strange.join(","));
        let document = Document::parse(text.as_bytes(), Format::Json).unwrap();
        let unknown: Vec<String> = (0..100_000).map(|i| format!("u{i}")).collect();
        let begun = std::time::Instant::now();
        assert_eq!(document.strict_errors(&unknown, false).len(), 200_000);
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }

    /// `schemaCoercingDecoder`: duplicates, then metadata, then the rest by name.
    #[test]
    fn a_custom_kind_tells_duplicates_before_what_it_does_not_know() {
        let text = br#"{"zz":1,"spec":{"a":1,"a":2,"b":1},"metadata":{"nope":1}}"#;
        let document = Document::parse(text, Format::Json).unwrap();
        let unknown = ["metadata.nope".to_owned(), "spec.b".to_owned(), "zz".to_owned()];
        let told = [
            "duplicate field \"spec.a\"",
            "unknown field \"metadata.nope\"",
            "unknown field \"spec.b\"",
            "unknown field \"zz\"",
        ];
        assert_eq!(document.strict_errors(&unknown, true), told);
    }

    #[test]
    fn yaml_errors_are_placed_as_go_does() {
        let told = |text: &str| parse_yaml(text.as_bytes()).unwrap_err();
        let why = "error converting YAML to JSON: yaml: mapping values are not allowed in this context";
        assert_eq!(told("a: b: c\n"), why);
        assert_eq!(told("x: y\na: b: c\n"), why.replace("mapping", "line 2: mapping"));
        let tab = "error converting YAML to JSON: yaml: line 3: found character that cannot start any token";
        assert_eq!(told("x: y\na:\n\tb: c\n"), tab);
        assert_eq!(told("\tx: y\n"), tab.replace("line 3: ", ""));
    }

    #[test]
    fn of_several_yaml_documents_the_first_is_read() {
        assert_eq!(parse_yaml(b"---\na: 1\n---\na: 2\n").unwrap(), json!({"a": 1}));
    }
}
