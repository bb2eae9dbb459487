//! Checks a change of a job as Volcano's `validateJobUpdate` does, and returns the first fault.
//!
//! Rule: numbers, partitions and topology of the new spec must be valid. Within the spec only `minAvailable`,
//! `priorityClassName`, `tasks[*].replicas`, `tasks[*].minAvailable` and generated claim names may change. Empty equals
//! absent, and quantities are compared by value. Fields outside the spec are not compared.

use caldera_core::{quantity::Quantity, text::count_noun};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Refusal,
    create::{check_network_topology, check_partition_policy, check_replicas_and_minimum},
    list_tasks, read_integer_or_zero, read_text,
};

/// What is wrong with changing `old` into `new`; empty if it may be done.
#[must_use]
pub fn list_update_refusals(old: &Value, new: &Value) -> Vec<Refusal> {
    find_first_refusal(old, new).into_iter().collect()
}

fn find_first_refusal(old: &Value, new: &Value) -> Option<Refusal> {
    let empty = Map::new();
    let [old_spec, new_spec] = [old, new].map(|job| job.get("spec").and_then(Value::as_object).unwrap_or(&empty));
    let name = new.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
    let mut replicas = 0i64;
    for (index, task) in list_tasks(new_spec).enumerate() {
        if let Some(refusal) = check_task(name, index, task) {
            return Some(refusal);
        }
        replicas = replicas.saturating_add(read_integer_or_zero(task, "replicas"));
    }
    let minimum = read_integer_or_zero(new_spec, "minAvailable");
    if minimum > replicas {
        return Some(Refusal::new(
            "spec.minAvailable",
            "job 'minAvailable' must not be greater than total replicas",
            format!("{minimum} is more than the {} of all tasks", count_noun(replicas, "replica")),
        ));
    }
    if minimum < 0 {
        return Some(Refusal::new(
            "spec.minAvailable",
            "job 'minAvailable' must be >= 0",
            format!("{minimum} is below 0"),
        ));
    }
    if let Some(refusal) = check_network_topology(new_spec.get("networkTopology"), "spec.networkTopology") {
        return Some(refusal);
    }
    let (before, after) = (list_tasks(old_spec).count(), list_tasks(new_spec).count());
    if before != after {
        return Some(Refusal::new(
            "spec.tasks",
            "job updates may not add or remove tasks",
            format!(
                "the job has {} and would have {after}; tasks may not be added or removed",
                count_noun(before, "task")
            ),
        ));
    }
    let field = find_difference(old, new, At::Job)?;
    Some(Refusal::new(
        field,
        "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and \
         `PriorityClassName`",
        "may not change after creation; only minAvailable, priorityClassName and the tasks' replicas and minAvailable may",
    ))
}

fn check_task(job: &str, index: usize, task: &Map<String, Value>) -> Option<Refusal> {
    let texts = ["'replicas' must be >= 0", "'minAvailable' must be >= 0", "'minAvailable' must be <= 'replicas'"];
    let numbers =
        check_replicas_and_minimum(index, task, |at| format!("{} in task: {}", texts[at], read_text(task, "name")));
    numbers.into_iter().chain(check_partition_policy(job, index, task)).next()
}

/// Where in a job two values are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Job,
    Spec,
    Tasks,
    Task,
    Volumes,
    Volume,
    /// Somewhere else.
    Other,
    /// In `requests`, `limits` or `overhead`, where values are amounts.
    Amounts,
}

impl At {
    /// What is below field `key`; `None` where it may change.
    fn enter_field(self, key: &str, before: &Map<String, Value>, after: &Map<String, Value>) -> Option<Self> {
        let claims = |volume: &Map<String, Value>| volume.get("volumeClaim").is_some_and(|claim| !claim.is_null());
        match (self, key) {
            (Self::Job, "spec") => Some(Self::Spec),
            (Self::Job, _) | (Self::Spec, "minAvailable" | "priorityClassName") => None,
            (Self::Task, "replicas" | "minAvailable") => None,
            (Self::Spec, "tasks") => Some(Self::Tasks),
            (Self::Spec, "volumes") => Some(Self::Volumes),
            // The name of a claim that is made for the job is filled in.
            (Self::Volume, "volumeClaimName") if claims(before) && claims(after) => None,
            (_, "requests" | "limits" | "overhead" | "sizeLimit") => Some(Self::Amounts),
            (Self::Amounts, _) => Some(Self::Amounts),
            _ => Some(Self::Other),
        }
    }

    const fn enter_item(self) -> Self {
        match self {
            Self::Tasks => Self::Task,
            Self::Volumes => Self::Volume,
            Self::Amounts => Self::Amounts,
            _ => Self::Other,
        }
    }
}

/// The path of the first difference, as Go's `equality.Semantic` sees it: what is empty equals what is absent, and
/// quantities are compared by value. What may change is not compared. The path is put together on the way back, so that
/// equal values cost no text.
fn find_difference(old: &Value, new: &Value, at: At) -> Option<String> {
    if is_unset(old) && is_unset(new) {
        return None;
    }
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().find_map(|key| {
                let below = at.enter_field(key, a, b)?;
                let (x, y) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                let path = find_difference(x, y, below)?;
                Some(join_path(key, &path))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (x, y))| {
                let path = find_difference(x, y, at.enter_item())?;
                Some(join_path(&format!("[{i}]"), &path))
            })
        }
        _ if old == new => None,
        _ if at == At::Amounts && same_amount(old, new) => None,
        _ => Some(String::new()),
    }
}

fn join_path(first: &str, rest: &str) -> String {
    let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
    format!("{first}{dot}{rest}")
}

fn same_amount(old: &Value, new: &Value) -> bool {
    let amount = |value: &Value| Quantity::deserialize(value).ok();
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
