//! The patch of a hook's answer, and Karmada's words for one that does not apply.
//!
//! Rule: Karmada `customized/webhook/customized.go`, `applyPatch`, and the errors of `evanphx/json-patch` v5.

use base64::{Engine, engine::general_purpose::STANDARD};
use json_patch::PatchOperation;
use serde_json::Value;

use crate::karmada::object::ObjectExt;

/// The object with the response's patch applied.
///
/// # Errors
/// When the patch is no patch, or does not apply.
pub fn apply_patch(object: &Value, response: &Value) -> Result<Value, String> {
    let patch = response.text("/patch");
    if patch.is_empty() {
        return Ok(object.clone());
    }
    let bytes = STANDARD.decode(patch).map_err(|error| error.to_string())?;
    let patch: json_patch::Patch = serde_json::from_slice(&bytes).map_err(|_| "invalid state detected".to_owned())?;
    let mut object = object.clone();
    for operation in patch.0 {
        let only = json_patch::Patch(vec![operation]);
        if json_patch::patch(&mut object, &only).is_err() {
            return Err(only.0.first().map(|operation| name_failure(&object, operation)).unwrap_or_default());
        }
    }
    Ok(object)
}

/// What is wrong with an operation that does not apply.
fn name_failure(object: &Value, operation: &PatchOperation) -> String {
    let path = operation.path().to_string();
    let parent = find_parent(object, &path);
    let at = |verb: &str, path: &str, what: &str| format!("error in {verb} for path: '{path}': {what}");
    match operation {
        PatchOperation::Add(_) => match parent {
            None => format!("add operation does not apply: doc is missing path: \"{path}\": missing value"),
            Some(_) => at("add", &path, &index_error(&path, true)),
        },
        PatchOperation::Remove(_) => match parent {
            None => format!("remove operation does not apply: doc is missing path: \"{path}\": missing value"),
            Some(Value::Object(_)) => {
                at("remove", &path, &format!("unable to remove nonexistent key: {}: missing value", last(&path)))
            }
            Some(_) => at("remove", &path, &index_error(&path, false)),
        },
        PatchOperation::Replace(_) => {
            let what = if parent.is_none() { "path" } else { "key" };
            format!("replace operation does not apply: doc is missing {what}: {path}: missing value")
        }
        PatchOperation::Test(_) => match parent {
            None => format!("test operation does not apply: is missing path: {path}: missing value"),
            Some(_) => format!("testing value {path} failed: test failed"),
        },
        PatchOperation::Move(operation) => {
            let from = operation.from.to_string();
            match find_parent(object, &from) {
                None => format!("move operation does not apply: doc is missing from path: {from}: missing value"),
                Some(parent) if object.pointer(&from).is_none() => at("move", &last(&from), &get_error(parent, &from)),
                Some(_) => {
                    format!("move operation does not apply: doc is missing destination path: {path}: missing value")
                }
            }
        }
        PatchOperation::Copy(operation) => {
            let from = operation.from.to_string();
            match find_parent(object, &from) {
                None => format!("copy operation does not apply: doc is missing from path: \"{from}\": missing value"),
                Some(parent) if object.pointer(&from).is_none() => {
                    format!("error in copy for from: '{from}': {}", get_error(parent, &from))
                }
                Some(_) => {
                    format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
                }
            }
        }
    }
}

/// What holds the last part of a path, when it is a list or an object.
fn find_parent<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let (parent, _) = path.rsplit_once('/')?;
    object.pointer(parent).filter(|parent| parent.is_object() || parent.is_array())
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~")
}

fn get_error(parent: &Value, path: &str) -> String {
    if parent.is_object() {
        return format!("unable to get nonexistent key: {}: missing value", last(path));
    }
    index_error(path, false)
}

fn index_error(path: &str, adding: bool) -> String {
    let key = last(path);
    if key.parse::<i64>().is_ok() {
        return format!("Unable to access invalid index: {key}: invalid index referenced");
    }
    let parsing = format!("strconv.Atoi: parsing {key:?}: invalid syntax");
    if adding { format!("value was not a proper array index: '{key}': {parsing}") } else { parsing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(patch: &Value) -> Result<Value, String> {
        let object = json!({"spec": {"tasks": [{"replicas": 1}]}});
        apply_patch(&object, &json!({"patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}))
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named_as_karmada_names_it() {
        let told = |patch: Value| applied(&patch).unwrap_err();
        let missing = "unable to remove nonexistent key: none: missing value";
        assert_eq!(
            told(json!([{"op": "remove", "path": "/spec/none"}])),
            format!("error in remove for path: '/spec/none': {missing}")
        );
        assert_eq!(
            told(json!([{"op": "replace", "path": "/spec/none", "value": 1}])),
            "replace operation does not apply: doc is missing key: /spec/none: missing value"
        );
        assert_eq!(
            told(json!([{"op": "add", "path": "/none/x", "value": 1}])),
            "add operation does not apply: doc is missing path: \"/none/x\": missing value"
        );
        assert_eq!(
            told(json!([{"op": "add", "path": "/spec/tasks/7", "value": 1}])),
            "error in add for path: '/spec/tasks/7': Unable to access invalid index: 7: invalid index referenced"
        );
        assert_eq!(
            told(json!([{"op": "test", "path": "/spec/tasks/0/replicas", "value": 2}])),
            "testing value /spec/tasks/0/replicas failed: test failed"
        );
    }

    #[test]
    fn operations_apply_one_after_the_other() {
        let patch =
            json!([{"op": "add", "path": "/spec/x", "value": 1}, {"op": "replace", "path": "/spec/x", "value": 2}]);
        assert_eq!(applied(&patch).unwrap()["spec"]["x"], 2);
    }
}
