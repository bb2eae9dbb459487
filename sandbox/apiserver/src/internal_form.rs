//! Pod specs and claims as the API server's internal types print them, which some messages show: each field by its Go
//! name, in the order of `pkg/apis/core/types.go`, with `null` or an empty value for what is not set; and the
//! difference of two of them (`apimachinery/pkg/util/diff`). Versions of a definition are printed in the same way, in
//! the order of apiextensions' `types.go`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::text_diff::unified_diff;

/// The structs and their fields. `=` names a value that is never missing: a text, a number, a flag or a quantity.
/// `:` names a struct, `:*` one that may be missing, `:[` a list of them, `:{` a map of
/// them, and `@` one whose fields are the owner's.
const STRUCTS: &str = include_str!("internal_form.txt");

#[derive(Clone, Copy)]
enum Shape {
    /// A value as it was sent, or what stands for none.
    Plain(&'static str),
    Struct(&'static str),
    Optional(&'static str),
    List(&'static str),
    Map(&'static str),
    Embedded(&'static str),
}

type Fields = Vec<(&'static str, Shape)>;

static FIELDS: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let mut fields: HashMap<&str, Fields> = HashMap::new();
    let mut name = "";
    for line in STRUCTS.lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            name = words.next().unwrap_or_default();
        }
        fields.entry(name).or_default().extend(words.map(read_field));
    }
    fields
});

fn read_field(word: &'static str) -> (&'static str, Shape) {
    if let Some(name) = word.strip_prefix('@') {
        return ("", Shape::Embedded(name));
    }
    if let Some((name, kind)) = word.split_once('=') {
        let none = match kind {
            "s" => "\"\"",
            "b" => "false",
            "q" => "\"0\"",
            _ => "0",
        };
        return (name, Shape::Plain(none));
    }
    match word.split_once(':') {
        Some((name, kind)) => match kind.split_at(1) {
            ("*", of) => (name, Shape::Optional(of)),
            ("[", of) => (name, Shape::List(of)),
            ("{", of) => (name, Shape::Map(of)),
            _ => (name, Shape::Struct(kind)),
        },
        None => (word, Shape::Plain("null")),
    }
}

/// The internal form of an object that has this Go type, on one line.
pub fn internal_text(go_type: &str, object: &Value) -> String {
    let mut out = String::new();
    Printer { out: &mut out, pretty: false }.print_struct(go_type, object, 0);
    out
}

/// The lines that differ between two objects of this Go type.
pub fn internal_diff(go_type: &str, old: &Value, new: &Value) -> String {
    let print = |object: &Value| {
        let mut out = String::new();
        Printer { out: &mut out, pretty: true }.print_struct(go_type, object, 0);
        out
    };
    unified_diff(&print(old), &print(new))
}

/// The internal pod keeps in its security context how it shares the node.
fn with_host_fields(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(members) = spec.as_object_mut() {
        let names = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
        let moved: Vec<_> = names.iter().filter_map(|name| Some((*name, members.remove(*name)?))).collect();
        let context = members.entry("securityContext").or_insert_with(|| json!({}));
        for (name, value) in moved {
            context[name] = value;
        }
    }
    spec
}

struct Printer<'o> {
    out: &'o mut String,
    pretty: bool,
}

impl Printer<'_> {
    fn break_line(&mut self, depth: usize) {
        if self.pretty {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', depth));
        }
    }

    fn print_struct(&mut self, go_type: &str, object: &Value, depth: usize) {
        self.out.push('{');
        let mut first = true;
        let moved = match go_type {
            "PodSpec" => Some(with_host_fields(object)),
            "JSONSchemaPropsOrArray" => Some(json!({"schema": object})),
            "JSONSchemaPropsOrBool" => Some(match object {
                Value::Bool(allows) => json!({"allows": allows}),
                schema => json!({"allows": true, "schema": schema}),
            }),
            _ => None,
        };
        self.print_fields(go_type, moved.as_ref().unwrap_or(object), depth, &mut first);
        self.close(first, '}', depth);
    }

    fn print_fields(&mut self, go_type: &str, object: &Value, depth: usize, first: &mut bool) {
        if go_type == "ObjectMeta" {
            let metadata = object.get("metadata").and_then(Value::as_object);
            for (key, value) in metadata.into_iter().flatten() {
                self.print_key(key, depth, first);
                self.print_value(value, depth + 1);
            }
        }
        for (name, shape) in FIELDS.get(go_type).into_iter().flatten() {
            if let Shape::Embedded(of) = shape {
                self.print_fields(of, object, depth, first);
                continue;
            }
            self.print_key(name, depth, first);
            let value = sent_field(object, name);
            match (shape, value) {
                (Shape::Struct(of), value) => self.print_struct(of, value.unwrap_or(&Value::Null), depth + 1),
                (Shape::Optional(of), Some(value)) => self.print_struct(of, value, depth + 1),
                (Shape::List(of), Some(Value::Array(items))) => self.print_list(of, items, depth + 1),
                (Shape::Map(of), Some(Value::Object(map))) => self.print_map(of, map, depth + 1),
                (Shape::Plain(_), Some(value)) => self.print_value(value, depth + 1),
                (Shape::Plain(none), None) => self.out.push_str(none),
                _ => self.out.push_str("null"),
            }
        }
    }

    fn print_list(&mut self, go_type: &str, items: &[Value], depth: usize) {
        self.out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.break_line(depth + 1);
            self.print_struct(go_type, item, depth + 1);
        }
        self.close(items.is_empty(), ']', depth);
    }

    fn print_map(&mut self, go_type: &str, map: &Map<String, Value>, depth: usize) {
        self.out.push('{');
        let mut first = true;
        for (key, item) in map.iter().collect::<BTreeMap<_, _>>() {
            self.print_key(key, depth, &mut first);
            self.print_struct(go_type, item, depth + 1);
        }
        self.close(first, '}', depth);
    }

    fn print_key(&mut self, name: &str, depth: usize, first: &mut bool) {
        if !std::mem::replace(first, false) {
            self.out.push(',');
        }
        self.break_line(depth + 1);
        // Writing into a text cannot fail.
        let _ = write!(self.out, "\"{name}\":");
        if self.pretty {
            self.out.push(' ');
        }
    }

    fn close(&mut self, empty: bool, end: char, depth: usize) {
        if !empty {
            self.break_line(depth);
        }
        self.out.push(end);
    }

    /// A value that has no struct of its own.
    fn print_value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Object(map) => {
                self.out.push('{');
                let mut first = true;
                for (key, value) in map {
                    self.print_key(key, depth, &mut first);
                    self.print_value(value, depth + 1);
                }
                self.close(first, '}', depth);
            }
            Value::Array(items) => {
                self.out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.break_line(depth + 1);
                    self.print_value(item, depth + 1);
                }
                self.close(items.is_empty(), ']', depth);
            }
            other => {
                let text = other.to_string();
                self.out.push_str(&text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
            }
        }
    }
}

/// The wire's name of a field differs from Go's in case only, and in what marks an extension of a schema.
fn sent_field<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    let same = |key: &str| match key.strip_prefix("x-kubernetes-") {
        Some(extension) => name.starts_with('X') && extension.replace('-', "").eq_ignore_ascii_case(&name[1..]),
        None => key.trim_start_matches('$').eq_ignore_ascii_case(name),
    };
    let found = object.as_object()?.iter().find(|(key, _)| same(key));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_shown_by_its_internal_fields() {
        let claim = |mode: &str| json!({"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}});
        let wanted = "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadOnlyMany\"\n  ],\n  \
                      \"Selector\": null,\n  \"Resources\": {\n";
        assert_eq!(internal_diff("PersistentVolumeClaimSpec", &claim("ReadWriteOnce"), &claim("ReadOnlyMany")), wanted);
    }

    #[test]
    fn every_struct_that_a_field_names_is_known() {
        for (name, fields) in FIELDS.iter() {
            for (field, shape) in fields {
                let of = match shape {
                    Shape::Plain(_) | Shape::Embedded("ObjectMeta") => continue,
                    Shape::Struct(of)
                    | Shape::Optional(of)
                    | Shape::List(of)
                    | Shape::Map(of)
                    | Shape::Embedded(of) => of,
                };
                assert!(FIELDS.contains_key(of), "{name}.{field}: {of}");
            }
        }
    }

    #[test]
    fn a_schema_is_shown_by_its_internal_fields() {
        let schema = json!({
            "$schema": "s", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "a"},
            "additionalProperties": false, "properties": {"b": {}, "a": {}},
        });
        let text = internal_text("JSONSchemaProps", &schema);
        assert!(text.starts_with("{\"ID\":\"\",\"Schema\":\"s\",\"Ref\":null,"), "{text}");
        assert!(text.contains("\"Items\":{\"Schema\":{\"ID\":\"\""), "{text}");
        assert!(text.contains("\"AdditionalProperties\":{\"Allows\":false,\"Schema\":null}"), "{text}");
        assert!(text.contains("\"Properties\":{\"a\":{\"ID\""), "{text}");
        assert!(text.contains("\"XPreserveUnknownFields\":true,\"XEmbeddedResource\":false,"), "{text}");
    }

    #[test]
    fn a_pod_keeps_its_host_fields_in_its_security_context() {
        let text = internal_text("PodSpec", &json!({"hostNetwork": true, "containers": []}));
        assert!(text.starts_with("{\"Volumes\":null,\"InitContainers\":null,\"Containers\":[],"), "{text}");
        assert!(text.contains("\"SecurityContext\":{\"HostNetwork\":true,\"HostPID\":false,"), "{text}");
    }
}
