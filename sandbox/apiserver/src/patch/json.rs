//! JSON patch (RFC 6902) with the lenience of the API server's library, evanphx/json-patch v4: `replace` on a missing
//! member adds it, `copy` from a missing member copies null, negative list indices count from the end.

use serde_json::{Map, Value};

use super::PatchError;
use crate::meta::json_type;

const LIMIT: usize = 10_000;
/// What an operation may have.
const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies the operations in order; one that fails leaves nothing done.
pub fn json_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    // Go decodes null into no operations.
    if patch.is_null() {
        return Ok(target.clone());
    }
    let Value::Array(operations) = patch else {
        let kind = if patch.is_object() { "object" } else { "value" };
        let detail = format!("json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch");
        return Err(PatchError::Malformed(format!("error decoding patch: {detail}")));
    };
    if operations.len() > LIMIT {
        let text = format!("The allowed maximum operations in a JSON patch is {LIMIT}, got {}", operations.len());
        return Err(PatchError::TooLarge(text));
    }
    let mut document = target.clone();
    check_members(operations)?;
    for operation in operations {
        let nothing = Map::new();
        let operation = operation.as_object().unwrap_or(&nothing);
        apply_operation(&mut document, operation).map_err(PatchError::Inapplicable)?;
    }
    Ok(document)
}

/// Go's decoder reads all operations before the first one is done.
fn check_members(operations: &[Value]) -> Result<(), PatchError> {
    let malformed = |detail: String| Err(PatchError::Malformed(format!("error decoding patch: json: {detail}")));
    for operation in operations {
        let Value::Object(members) = operation else {
            if operation.is_null() {
                continue;
            }
            let found = json_type(operation);
            return malformed(format!("cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"));
        };
        for member in MEMBERS.iter().filter(|m| **m != "value") {
            if let Some(found) = members.get(*member).filter(|v| !v.is_string() && !v.is_null()).map(json_type) {
                return malformed(format!(
                    "cannot unmarshal {found} into Go struct field jsonPatchOp.{member} of type string"
                ));
            }
        }
    }
    Ok(())
}

/// The members that no operation has, as strict decoding names them.
pub fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let members = operations.flat_map(|(i, o)| o.as_object().into_iter().flat_map(Map::keys).map(move |key| (i, key)));
    members
        .filter(|(_, key)| !MEMBERS.contains(&key.as_str()))
        .map(|(i, key)| format!("json patch unknown field \"[{i}].{key}\""))
        .collect()
}

fn apply_operation(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path = |key: &str| text(key).ok_or_else(|| format!("{kind} operation failed to decode {key}: missing value"));
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => add_value(document, path("path")?, value(), kind),
        "remove" => remove_value(document, path("path")?, kind).map(drop),
        "replace" => replace_value(document, path("path")?, value()),
        "move" => {
            let from = path("from")?;
            let moved = remove_value(document, from, kind).map_err(|why| {
                let key = from.rsplit('/').next().unwrap_or_default();
                why.replacen(
                    &format!("error in remove for path: '{from}'"),
                    &format!("error in move for path: '{key}'"),
                    1,
                )
            })?;
            add_value(document, path("path")?, moved, kind).map_err(|why| at_destination(&why))
        }
        "copy" => {
            let copied = get_value(document, path("from")?, kind)?;
            let copied = copied.unwrap_or(Value::Null);
            add_value(document, path("path")?, copied, kind).map_err(|why| at_destination(&why))
        }
        "test" => test_value(document, path("path")?, &value()),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn at_destination(why: &str) -> String {
    why.replacen("doc is missing from path", "doc is missing destination path", 1)
}

fn missing_path(kind: &str, path: &str) -> String {
    match kind {
        "test" => format!("test operation does not apply: is missing path: {path}: missing value"),
        "move" | "copy" => format!("{kind} operation does not apply: doc is missing from path: {path}: missing value"),
        "replace" => format!("replace operation does not apply: doc is missing path: {path}: missing value"),
        _ => format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value"),
    }
}

/// The container a pointer leads to, and the last, unescaped part.
fn find_container<'a>(document: &'a mut Value, path: &str, kind: &str) -> Result<(&'a mut Value, String), String> {
    let missing = || missing_path(kind, path);
    let mut parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
    let mut current = document;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return if current.is_object() || current.is_array() { Ok((current, part)) } else { Err(missing()) };
        }
        current = match current {
            Value::Object(map) => map.get_mut(&part).ok_or_else(missing)?,
            Value::Array(items) => {
                let index = element_index(&part, items.len()).map_err(|_| missing())?;
                items.get_mut(index).ok_or_else(missing)?
            }
            _ => return Err(missing()),
        };
    }
    Err(missing())
}

/// An index into a list of this length; a negative one counts from the end.
fn element_index(part: &str, length: usize) -> Result<usize, String> {
    let invalid = || format!("Unable to access invalid index: {part}: invalid index referenced");
    let number: i64 = part.parse().map_err(|_| format!("value was not a proper array index: '{part}'"))?;
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let number = if number < 0 { number + length } else { number };
    if number >= length {
        return Err(invalid());
    }
    usize::try_from(number).map_err(|_| invalid())
}

fn add_value(document: &mut Value, path: &str, value: Value, kind: &str) -> Result<(), String> {
    let (parent, key) = find_container(document, path, kind)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = element_index(&key, items.len() + 1)
                .map_err(|error| format!("error in add for path: '{path}': {error}"))?;
            items.insert(at, value);
        }
        _ => return Err(missing_path(kind, path)),
    }
    Ok(())
}

fn remove_value(document: &mut Value, path: &str, kind: &str) -> Result<Value, String> {
    let (parent, key) = find_container(document, path, kind)?;
    let wrap = |error: String| format!("error in remove for path: '{path}': {error}");
    match parent {
        Value::Object(map) => {
            map.remove(&key).ok_or_else(|| wrap(format!("Unable to remove nonexistent key: {key}: missing value")))
        }
        Value::Array(items) => Ok(items.remove(element_index(&key, items.len()).map_err(wrap)?)),
        _ => Err(missing_path(kind, path)),
    }
}

fn replace_value(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = find_container(document, path, "replace")?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) => {
            let at = element_index(&key, items.len())
                .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: missing value"))?;
            items[at] = value;
        }
        _ => return Err(missing_path("replace", path)),
    }
    Ok(())
}

fn get_value(document: &mut Value, path: &str, kind: &str) -> Result<Option<Value>, String> {
    let (parent, key) = find_container(document, path, kind)?;
    match parent {
        Value::Object(map) => Ok(map.get(&key).cloned()),
        Value::Array(items) => Ok(Some(items[element_index(&key, items.len())?].clone())),
        _ => Err(missing_path(kind, path)),
    }
}

fn test_value(document: &mut Value, path: &str, wanted: &Value) -> Result<(), String> {
    let equal = if path.is_empty() {
        document == wanted
    } else {
        // A missing member equals null.
        get_value(document, path, "test")?.unwrap_or(Value::Null) == *wanted
    };
    if equal { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
}
