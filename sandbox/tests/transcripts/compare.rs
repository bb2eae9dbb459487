//! Whether what is there is what was recorded.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

/// What a binding's template needs.
const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";

/// Differences between a recorded value (with its placeholders) and a real one.
pub fn differences(at: &str, recorded: &Value, real: &Value, found: &mut Vec<String>) {
    match (recorded, real) {
        (Value::String(recorded), real) if is_placeholder(recorded) => {
            if real.is_null() {
                found.push(format!("{at}: recorded {recorded}, found nothing"));
            }
        }
        (Value::String(recorded), Value::String(real)) => {
            let json =
                |text: &str| text.starts_with(['{', '[']).then(|| serde_json::from_str::<Value>(text).ok()).flatten();
            if let (Some(recorded), Some(real)) = (json(recorded), json(real)) {
                differences(&format!("{at} (JSON)"), &recorded, &real, found);
            } else if !text_matches(recorded, real) {
                found.push(format!("{at}: recorded {recorded:?}, found {real:?}"));
            }
        }
        (Value::Object(recorded), Value::Object(real)) => {
            for (key, value) in recorded {
                let here = format!("{at}/{key}");
                match real.get(key) {
                    Some(real) => differences(&here, value, real, found),
                    None => found.push(format!("{here}: recorded {value}, found nothing")),
                }
            }
            for (key, value) in real {
                if !recorded.contains_key(key) {
                    found.push(format!("{at}/{key}: recorded nothing, found {value}"));
                }
            }
        }
        (Value::Array(recorded), Value::Array(real)) if recorded.len() == real.len() => {
            for (index, (recorded, real)) in recorded.iter().zip(real).enumerate() {
                differences(&format!("{at}/{index}"), recorded, real, found);
            }
        }
        (recorded, real) if recorded == real => {}
        (recorded, real) => found.push(format!("{at}: recorded {recorded}, found {real}")),
    }
}

fn is_placeholder(text: &str) -> bool {
    text.starts_with('<') && text.ends_with('>')
}

fn text_matches(recorded: &str, real: &str) -> bool {
    if recorded == real {
        return true;
    }
    if !recorded.contains('<') {
        return false;
    }
    let mut pattern = "(?s)^".to_owned();
    for (index, part) in Regex::new("<[^<>]*>").unwrap().split(recorded).enumerate() {
        if index > 0 {
            pattern += ".*";
        }
        pattern += &regex::escape(part);
    }
    pattern += "$";
    Regex::new(&pattern).unwrap().is_match(real)
}

/// An object without what recordings leave out.
pub fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    object
}

/// An object without what differs between two runs that do the same.
pub fn comparable(object: &Value) -> Value {
    let mut object = stripped(object);
    match object["kind"].as_str() {
        Some("ResourceBinding" | "ClusterResourceBinding") => {
            // How often it was written depends on races; whether the scheduler saw the last does not.
            let seen = object["status"]["schedulerObservedGeneration"].as_i64();
            if let Some(seen) = seen {
                let last = object["metadata"]["generation"].as_i64() == Some(seen);
                object["status"]["schedulerObservedGeneration"] = Value::Bool(last);
            }
            remove(&mut object, "/metadata", "generation");
            // Karmada merges new clusters into those that are there in the order of a Go map, and dependents come in
            // any order.
            for list in ["/spec/clusters", "/spec/requiredBy"] {
                let named = object.pointer_mut(list).and_then(Value::as_array_mut);
                named.into_iter().for_each(|named| named.sort_by_key(|one| one["name"].to_string()));
            }
            // So do names of secrets and config maps, from a set.
            if let Some(Value::String(told)) = object["metadata"]["annotations"].get_mut(DEPENDENCIES)
                && let Ok(Value::Array(mut all)) = serde_json::from_str(told)
            {
                all.sort_by_key(Value::to_string);
                *told = Value::Array(all).to_string();
            }
        }
        Some("Work") => remove(&mut object, "/metadata", "generation"),
        // Who joined a member chose the name of its second secret, and how often it was edited before.
        Some("Cluster") => {
            remove(&mut object, "/metadata", "generation");
            remove(&mut object, "/spec", "impersonatorSecretRef");
        }
        // A free address of a server's own range.
        Some("Service") if object["spec"]["clusterIP"] != "None" => {
            remove(&mut object, "/spec", "clusterIP");
            remove(&mut object, "/spec", "clusterIPs");
        }
        _ => {}
    }
    object
}

fn remove(object: &mut Value, parent: &str, field: &str) {
    object.pointer_mut(parent).and_then(Value::as_object_mut).map(|parent| parent.remove(field));
}

/// The fields that a change of a path is about, coarse enough not to depend on who came first.
pub fn fields(path: &str, value: Option<&Value>) -> BTreeSet<String> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let below = |at: &[&str]| -> Vec<String> {
        let keys = value
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, _)| key.replace('~', "~0").replace('/', "~1"));
        keys.map(|key| format!("/{}/{key}", at.join("/"))).collect()
    };
    let found = match parts.as_slice() {
        ["metadata", "generation" | "resourceVersion" | "managedFields" | "deletionGracePeriodSeconds"] => Vec::new(),
        ["metadata", "annotations" | "labels"] | ["status" | "spec"] => below(&parts),
        ["metadata", map @ ("annotations" | "labels"), key] => vec![format!("/metadata/{map}/{key}")],
        ["spec", "workload", "manifests", "0", "metadata", map @ ("annotations" | "labels")] => {
            below(&["spec", "workload", "manifests", "0", "metadata", map])
        }
        ["spec", "workload", "manifests", "0", "metadata", map, key, ..] => {
            vec![format!("/spec/workload/manifests/0/metadata/{map}/{key}")]
        }
        ["spec", "workload", "manifests", "0", "spec", field, ..] => {
            vec![format!("/spec/workload/manifests/0/spec/{field}")]
        }
        [first, second, ..] => vec![format!("/{first}/{second}")],
        [only] => vec![format!("/{only}")],
        [] => Vec::new(),
    };
    found.into_iter().collect()
}

/// Paths at which two objects differ, as recordings list them: lists of equal length element by element.
pub fn changed_fields(old: &Value, new: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk("", &stripped(old), &stripped(new), &mut found);
    found
}

fn walk(at: &str, old: &Value, new: &Value, found: &mut BTreeSet<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                let here = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => walk(&here, old, new, found),
                    (one, other) => found.extend(fields(&here, other.or(one))),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                walk(&format!("{at}/{index}"), old, new, found);
            }
        }
        (old, new) if old == new => {}
        (_, new) => found.extend(fields(at, Some(new))),
    }
}
