//! Names, labels and the rest of ObjectMeta (apimachinery `api/validate/content`, `api/validation/objectmeta.go`).

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::error::{CauseReason, FieldError};
use super::gotext;

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

macro_rules! whole {
    ($name:ident, $text:expr) => {
        // Literal patterns, compiled by the tests of this module.
        #[allow(clippy::expect_used)]
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(&format!("^(?:{})$", $text)).expect("literal pattern"));
    };
}

whole!(SUBDOMAIN_RE, SUBDOMAIN);
whole!(LABEL_1035_RE, LABEL_1035);
whole!(KEY_RE, KEY);
whole!(LABEL_VALUE_RE, LABEL_VALUE);

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// What is wrong with an RFC 1123 subdomain.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !SUBDOMAIN_RE.is_match(text) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        ));
    }
    problems
}

/// What is wrong with an RFC 1035 label, joined by commas.
pub fn dns1035_label(text: &str) -> Option<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !LABEL_1035_RE.is_match(text) {
        problems.push(format!(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '{LABEL_1035}')"
        ));
    }
    (!problems.is_empty()).then(|| problems.join(","))
}

/// What is wrong with a label key or another qualified name.
pub fn qualified_name(text: &str) -> Vec<String> {
    let shape = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY}')"
    );
    let mut problems = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(dns1123_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !KEY_RE.is_match(name) {
        problems.push(format!("name part {shape}"));
    }
    problems
}

/// What is wrong with a label value.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !LABEL_VALUE_RE.is_match(text) {
        problems.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '{LABEL_VALUE}')"
        ));
    }
    problems
}

fn invalid_field(field: &str, value: &Value, detail: &str) -> FieldError {
    FieldError::new(CauseReason::Invalid, field, format!("Invalid value: {}: {detail}", gotext::write_value(value)))
}

/// What holds for every ObjectMeta wherever it stands: labels, annotations, owners, finalizers.
pub fn object_meta(metadata: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(generation) = metadata.get("generation").filter(|g| g.as_i64().is_some_and(|g| g < 0)) {
        errors.push(invalid_field(&format!("{field}.generation"), generation, "must be greater than or equal to 0"));
    }
    if let Some(namespace) = metadata.get("namespace").filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
    {
        let problems = crate::meta::label_problems(namespace.as_str().unwrap_or_default());
        let field = format!("{field}.namespace");
        errors.extend(problems.iter().map(|problem| invalid_field(&field, namespace, problem)));
    }
    errors.extend(validate_labels(metadata, field));
    errors.extend(validate_annotations(metadata, field));
    errors.extend(validate_owners(metadata, field));
    errors.extend(validate_finalizers(metadata, field));
    errors
}

fn members_of<'a>(metadata: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    metadata.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn validate_labels(metadata: &Value, field: &str) -> Vec<FieldError> {
    let field = format!("{field}.labels");
    let mut errors = Vec::new();
    for (key, value) in members_of(metadata, "labels") {
        let shown = Value::String(key.clone());
        errors.extend(qualified_name(key).iter().map(|problem| invalid_field(&field, &shown, problem)));
        let problems = label_value(value.as_str().unwrap_or_default());
        errors.extend(problems.iter().map(|problem| invalid_field(&field, value, problem)));
    }
    errors
}

const ANNOTATION_LIMIT: usize = 256 * 1024;

fn validate_annotations(metadata: &Value, field: &str) -> Vec<FieldError> {
    let field = format!("{field}.annotations");
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in members_of(metadata, "annotations") {
        // Annotation keys may be in upper case.
        let shown = Value::String(key.clone());
        errors.extend(qualified_name(&key.to_lowercase()).iter().map(|problem| invalid_field(&field, &shown, problem)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATION_LIMIT {
        let message = format!("Too long: may not be more than {ANNOTATION_LIMIT} bytes");
        errors.push(FieldError::new(CauseReason::TooLong, field, message));
    }
    errors
}

fn validate_owners(metadata: &Value, field: &str) -> Vec<FieldError> {
    let field = format!("{field}.ownerReferences");
    let list = metadata.get("ownerReferences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    let mut controller: Option<&str> = None;
    for owner in list {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        for (key, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            let value = text(key);
            let empty =
                if key == "apiVersion" { value.rsplit('/').next().is_none_or(str::is_empty) } else { value.is_empty() };
            if empty {
                errors.push(invalid_field(&format!("{field}.{key}"), &Value::String(value.to_owned()), detail));
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            errors.push(invalid_field(&field, owner, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let name = text("name");
            match controller {
                None => controller = Some(name),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {name}"
                    );
                    errors.push(invalid_field(&field, &Value::from(list.to_vec()), &detail));
                }
            }
        }
    }
    errors
}

fn validate_finalizers(metadata: &Value, field: &str) -> Vec<FieldError> {
    let field = format!("{field}.finalizers");
    let list = metadata.get("finalizers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    for finalizer in list {
        let problems = qualified_name(finalizer.as_str().unwrap_or_default());
        errors.extend(problems.iter().map(|problem| invalid_field(&field, finalizer, problem)));
    }
    let has = |name: &str| list.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(invalid_field(&field, &Value::from(list.to_vec()), detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_grammars() {
        assert!(dns1123_subdomain("a.b").is_empty());
        assert_eq!(dns1123_subdomain("A").len(), 1);
        assert!(dns1035_label("a1").is_none());
        assert!(dns1035_label("1a").is_some());
        assert!(qualified_name("example.com/My.Name").is_empty());
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert!(label_value("").is_empty());
        assert_eq!(label_value("-").len(), 1);
    }
}
