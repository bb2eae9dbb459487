//! Request bodies: JSON, YAML and Kubernetes' protobuf into JSON values, remembering which members came twice and in
//! which order (strict field validation names them in the order of the document).

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::{Status, go_quote};
use crate::syntax::{find_syntax_error, repair_unicode};

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
        // `mime.ParseMediaType` reads it in lower case.
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
    /// Paths of repeated members, in document order; YAML and protobuf have none.
    pub duplicates: Vec<String>,
    /// Kept to find the order of members again.
    text: Vec<u8>,
}

impl Document {
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, String> {
        match format {
            Format::Json => Self::json(bytes),
            Format::Yaml => parse_yaml(bytes).map(Self::from),
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
        let value = Seed { repeated: &repeated }.deserialize(&mut deserializer).map_err(|e| e.to_string())?;
        let mut document = Self { value, duplicates: Vec::new(), text };
        if repeated.get() {
            document.duplicates =
                list_members(&document.text).into_iter().filter(|(_, again)| *again).map(|(p, _)| p).collect();
        }
        Ok(document)
    }

    /// `unknown field "x"` and `duplicate field "y"`: of a built-in kind in document order, of a custom one what the
    /// parser found and then what its schema did not know (`apiextensions-apiserver`, `schemaCoercingDecoder`).
    pub fn strict_errors(&self, unknown: &[String], custom: bool) -> Vec<String> {
        if unknown.is_empty() && self.duplicates.is_empty() {
            return Vec::new();
        }
        let duplicate_text = |path: &String| format!("duplicate field {}", go_quote(path));
        let unknown_text = |path: &String| format!("unknown field {}", go_quote(path));
        if self.text.is_empty() || custom {
            let twice = self.duplicates.iter().map(duplicate_text);
            return twice.chain(unknown.iter().map(unknown_text)).collect();
        }
        let mut left: Vec<&String> = unknown.iter().collect();
        let mut texts = Vec::new();
        for (path, again) in list_members(&self.text) {
            if again {
                texts.push(duplicate_text(&path));
            } else if let Some(index) = left.iter().position(|u| **u == path) {
                texts.push(unknown_text(left.remove(index)));
            }
        }
        texts.extend(left.into_iter().map(unknown_text));
        texts.dedup();
        texts
    }
}

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), text: Vec::new() }
    }
}

/// Of several documents only the first is read.
fn first_document(text: &str) -> &str {
    let mut at = 0;
    let mut begun = false;
    for line in text.split_inclusive('\n') {
        if begun && line.trim_end() == "---" {
            return text.get(..at).unwrap_or(text);
        }
        begun |= !line.trim().is_empty() && !line.starts_with('#');
        at += line.len();
    }
    text
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
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let text = go_yaml(e.to_string().lines().next().unwrap_or_default(), text);
        format!("error converting YAML to JSON: yaml: {text}")
    })
}

/// Go's words for a YAML syntax error where they are known: a flow collection that is never closed.
fn go_yaml(error: &str, text: &str) -> String {
    let close = match error.split_once("unclosed bracket '").and_then(|(_, rest)| rest.chars().next()) {
        Some('[') => ']',
        Some('{') => '}',
        _ => return error.to_owned(),
    };
    let line = text.trim_end().lines().count();
    let expected = match text.trim_end().chars().last() {
        Some('[' | '{' | ',') => "node content".to_owned(),
        _ => format!("',' or '{close}'"),
    };
    format!("line {line}: did not find expected {expected}")
}

/// Builds a value, noticing repeated members; the last one wins, as in Go.
struct Seed<'a> {
    repeated: &'a Cell<bool>,
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
        while let Some(value) = access.next_element_seed(Seed { repeated: self.repeated })? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(Seed { repeated: self.repeated })?;
            if map.insert(key, value).is_some() {
                self.repeated.set(true);
            }
        }
        Ok(Value::Object(map))
    }
}

/// Every member of a JSON text by path, in document order, with whether it was seen before in its object.
fn list_members(bytes: &[u8]) -> Vec<(String, bool)> {
    struct Walk<'a> {
        path: String,
        out: &'a mut Vec<(String, bool)>,
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
            let mut index = 0;
            while access
                .next_element_seed(Walk { path: format!("{}[{index}]", self.path), out: &mut *self.out })?
                .is_some()
            {
                index += 1;
            }
            Ok(())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
            let mut seen = std::collections::BTreeSet::new();
            while let Some(key) = access.next_key::<String>()? {
                let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
                self.out.push((path.clone(), !seen.insert(key)));
                access.next_value_seed(Walk { path, out: &mut *self.out })?;
            }
            Ok(())
        }
    }
    let mut out = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // The text was parsed before; a failure here only loses the order.
    let _ = Walk { path: String::new(), out: &mut out }.deserialize(&mut deserializer);
    out
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
    fn of_several_yaml_documents_the_first_is_read() {
        assert_eq!(parse_yaml(b"---\na: 1\n---\na: 2\n").unwrap(), json!({"a": 1}));
    }
}
