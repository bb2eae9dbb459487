//! Reading Kubernetes objects as JSON: absent is empty, zero or false, as in the API.

use serde_json::Value;

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// The text at `pointer`, empty where absent.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at `pointer`, zero where absent.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The list at `pointer`, empty where absent.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An annotation's value, empty where absent.
pub fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object.pointer("/metadata/annotations").and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// A label's value, empty where absent.
pub fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object.pointer("/metadata/labels").and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Name.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Namespace.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// UID.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Namespace and name.
pub fn key(object: &Value) -> Key {
    (namespace(object).to_owned(), name(object).to_owned())
}

/// Whether deletion has begun.
pub fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// UID of the controlling owner, empty where there is none.
pub fn controller_uid(object: &Value) -> &str {
    list(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
        .map(|owner| text(owner, "/uid"))
        .unwrap_or_default()
}

/// An owner reference that makes `owner` the controller.
pub fn owned_by(owner: &Value) -> Value {
    serde_json::json!([{
        "apiVersion": text(owner, "/apiVersion"), "kind": text(owner, "/kind"), "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}
