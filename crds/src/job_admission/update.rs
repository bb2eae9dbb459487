//! Checks a change of a job (`validateJobUpdate`) and returns the first thing wrong. Only `spec.minAvailable`,
//! `spec.priorityClassName`, `tasks[*].replicas`, `tasks[*].minAvailable` and generated claim names may change.

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value};

use super::{
    Refusal,
    create::{number_refusals, partition_refusal, topology_refusal},
    list_tasks, read_integer, read_text,
};

/// What is wrong with changing `old` into `new`; empty if it may be done.
#[must_use]
pub fn update_refusals(old: &Value, new: &Value) -> Vec<Refusal> {
    first_refusal(old, new).into_iter().collect()
}

fn first_refusal(old: &Value, new: &Value) -> Option<Refusal> {
    let empty = Map::new();
    let spec = |job: &Value| job.get("spec").and_then(Value::as_object).unwrap_or(&empty).clone();
    let (old_spec, new_spec) = (spec(old), spec(new));
    let name = new.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
    let mut replicas = 0i64;
    for (index, task) in list_tasks(&new_spec).enumerate() {
        if let Some(refusal) = task_refusal(name, index, task) {
            return Some(refusal);
        }
        replicas = replicas.saturating_add(read_integer(task, "replicas"));
    }
    let minimum = read_integer(&new_spec, "minAvailable");
    if minimum > replicas {
        return Some(Refusal::new(
            "spec.minAvailable",
            "job 'minAvailable' must not be greater than total replicas",
            format!("{minimum} is more than the {replicas} replicas of all tasks"),
        ));
    }
    if minimum < 0 {
        return Some(Refusal::new(
            "spec.minAvailable",
            "job 'minAvailable' must be >= 0",
            format!("{minimum} is below 0"),
        ));
    }
    if let Some(refusal) = topology_refusal(new_spec.get("networkTopology"), "spec.networkTopology") {
        return Some(refusal);
    }
    let (before, after) = (list_tasks(&old_spec).count(), list_tasks(&new_spec).count());
    if before != after {
        return Some(Refusal::new(
            "spec.tasks",
            "job updates may not add or remove tasks",
            format!("the job has {before} tasks and would have {after}; tasks may not be added or removed"),
        ));
    }
    let field = find_difference(&without_mutable_fields(old_spec), &without_mutable_fields(new_spec), "spec")?;
    Some(Refusal::new(
        field,
        "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and \
         `PriorityClassName`",
        "may not change after creation; only minAvailable, priorityClassName and the tasks' replicas and minAvailable may",
    ))
}

fn task_refusal(job: &str, index: usize, task: &Map<String, Value>) -> Option<Refusal> {
    let texts = ["'replicas' must be >= 0", "'minAvailable' must be >= 0", "'minAvailable' must be <= 'replicas'"];
    let texts = texts.map(|text| format!("{text} in task: {}", read_text(task, "name")));
    let numbers = number_refusals(index, task, texts);
    numbers.into_iter().chain(partition_refusal(job, index, task)).next()
}

/// The spec without what may change.
fn without_mutable_fields(mut spec: Map<String, Value>) -> Value {
    for key in ["minAvailable", "priorityClassName"] {
        spec.remove(key);
    }
    for task in spec.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(task) = task.as_object_mut() {
            task.remove("replicas");
            task.remove("minAvailable");
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(volume) = volume.as_object_mut()
            && volume.get("volumeClaim").is_some_and(|claim| !claim.is_null())
        {
            volume.remove("volumeClaimName");
        }
    }
    Value::Object(spec)
}

/// The path of the first difference, as Go's `equality.Semantic` sees it: what is empty equals what is absent, and
/// quantities are compared by value.
fn find_difference(old: &Value, new: &Value, path: &str) -> Option<String> {
    if is_unset(old) && is_unset(new) {
        return None;
    }
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().find_map(|key| {
                let (x, y) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                find_difference(x, y, &format!("{path}.{key}"))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (x, y))| find_difference(x, y, &format!("{path}[{i}]")))
        }
        _ if old == new => None,
        _ if is_amount(path) && same_amount(old, new) => None,
        _ => Some(path.to_owned()),
    }
}

fn is_amount(path: &str) -> bool {
    [".requests.", ".limits.", ".overhead.", ".sizeLimit"].iter().any(|part| path.contains(part))
}

fn same_amount(old: &Value, new: &Value) -> bool {
    let amount = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    matches!((amount(old), amount(new)), (Some(a), Some(b)) if a == b)
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_unset),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
