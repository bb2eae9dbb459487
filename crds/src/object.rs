//! Reads fields of JSON objects whose kind is not known or has no type here: texts, lists, names and annotations. Also
//! builds what requests for such objects need: the resource of a kind, and JSON patch paths.

use kube::core::ApiResource;
use serde_json::Value;

/// The resource of a kind, by its parts.
#[must_use]
pub fn api_resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The text at a JSON pointer; empty if there is none.
#[must_use]
pub fn read_text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
#[must_use]
pub fn read_list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The name of an object.
#[must_use]
pub fn name_of(object: &Value) -> &str {
    read_text_at(object, "/metadata/name")
}

/// An annotation.
#[must_use]
pub fn annotation_of<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// A path of a JSON patch to an annotation.
#[must_use]
pub fn annotation_path(name: &str) -> String {
    format!("/metadata/annotations/{}", escape_pointer(name))
}

/// A name as a part of a JSON pointer.
#[must_use]
pub fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_escaped_in_a_path() {
        assert_eq!(annotation_path("a.b/c~d"), "/metadata/annotations/a.b~1c~0d");
    }
}
