//! JSON merge patch (RFC 7386) as evanphx/json-patch v4 does it.

use serde_json::Value;

/// `patch` is an object.
pub fn apply_merge_patch(target: &Value, patch: &Value) -> Value {
    let mut out = target.clone();
    merge_into(&mut out, patch);
    out
}

fn merge_into(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                    continue;
                }
                match target.get_mut(key) {
                    Some(current) if !current.is_null() => merge_into(current, value),
                    _ => {
                        target.insert(key.clone(), without_nulls(value));
                    }
                }
            }
        }
        // What replaces an object is taken as it is.
        (target @ Value::Object(_), patch) => *target = patch.clone(),
        (target, patch) => *target = without_nulls(patch),
    }
}

/// Null members go at every depth, null elements stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
