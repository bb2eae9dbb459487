//! ReviseReplica and Retain: the copy of a job before it is sent to a cluster, and when it is sent again.
//!
//! Rule: ReviseReplica does not get the name of the cluster and can not know the share. It stamps the copy with the
//! replicas that it was given and makes a copy that is valid by itself; the review of the Work puts the numbers of the
//! share in. Retain keeps the fields that the member's Volcano lets nobody change
//! (`pkg/webhooks/admission/jobs/validate/admit_job.go`, UPDATE) or wrote itself.

use caldera_crds::names::caldera;
use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::decide::patch::{MOST_OPERATIONS, set_field};

/// ReviseReplica: what makes it the job with `replicas` pods in all. The job is changed in place, and its tasks are
/// taken where they are told as a whole: a copy of a large one would take as much memory again.
pub fn revise_replicas(job: &mut Value, replicas: u32) -> Vec<PatchOperation> {
    let mut patch: Vec<PatchOperation> = stamp_replicas(job, &replicas.to_string()).into_iter().collect();
    let wanted: Vec<u64> = tasks_of(job).map(|task| read_count(task, "replicas")).collect();
    let total: u64 = wanted.iter().sum();
    if total == u64::from(replicas) || total == 0 {
        return patch;
    }
    let given = divide_replicas(&wanted, total, u64::from(replicas));
    let before = read_minimum(job.get("spec"));
    let minimum = before.map(|minimum| minimum.min(given.iter().sum()));
    let mut of_tasks = Vec::new();
    let tasks = job.pointer_mut("/spec/tasks").and_then(Value::as_array_mut);
    for (index, (task, given)) in tasks.into_iter().flatten().zip(given).enumerate() {
        let minimum = read_minimum(Some(task)).map(|minimum| minimum.min(given));
        for (field, count) in [("replicas", Some(given)), ("minAvailable", minimum)] {
            let Some(count) = count.map(Value::from).filter(|count| task.get(field) != Some(count)) else { continue };
            // One more says that there are too many.
            if of_tasks.len() <= MOST_OPERATIONS {
                of_tasks.push(set_field(&["spec", "tasks", &index.to_string(), field], count.clone()));
            }
            task[field] = count;
        }
    }
    if of_tasks.len() > MOST_OPERATIONS {
        let tasks = job.pointer_mut("/spec/tasks").map(Value::take);
        of_tasks = vec![set_field(&["spec", "tasks"], tasks)];
    }
    patch.extend(of_tasks);
    if let Some(minimum) = minimum.filter(|minimum| Some(*minimum) != before) {
        patch.push(set_field(&["spec", "minAvailable"], minimum));
    }
    patch
}

/// The annotation that says how many replicas were given.
fn stamp_replicas(job: &Value, replicas: &str) -> Option<PatchOperation> {
    let stamp = || json!({caldera::REVISED: replicas});
    match job.get("metadata") {
        None => Some(set_field(&["metadata"], json!({"annotations": stamp()}))),
        Some(metadata) => match metadata.get("annotations").filter(|annotations| annotations.is_object()) {
            None => Some(set_field(&["metadata", "annotations"], stamp())),
            Some(there) if there.get(caldera::REVISED).is_some_and(|there| there == replicas) => None,
            Some(_) => Some(set_field(&["metadata", "annotations", caldera::REVISED], replicas)),
        },
    }
}

/// A minimum that is given.
fn read_minimum(of: Option<&Value>) -> Option<u64> {
    of?.get("minAvailable")?.as_u64()
}

/// `replicas` divided like `wanted`, largest remainder first, then in the order of the tasks.
fn divide_replicas(wanted: &[u64], total: u64, replicas: u64) -> Vec<u64> {
    let mut given: Vec<u64> = wanted.iter().map(|wanted| wanted * replicas / total).collect();
    let mut left = replicas - given.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&task| (std::cmp::Reverse(wanted[task] * replicas % total), task));
    for task in order {
        if left == 0 {
            break;
        }
        given[task] += 1;
        left -= 1;
    }
    given
}

fn tasks_of(job: &Value) -> impl Iterator<Item = &Value> {
    job.pointer("/spec/tasks").and_then(Value::as_array).into_iter().flatten()
}

/// A number of pods. What is more than Kubernetes counts to is cut, so that sums and products of them are numbers too.
fn read_count(object: &Value, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or_default().min(u64::from(u32::MAX))
}

/// Retain: what is desired, in the only fields that a member's Volcano lets change; the rest as observed. Numbers that
/// Volcano would refuse or, on an update, no longer fill in are put right: an absent minimum is the default it had on
/// creation, and a partitioned task keeps its size.
pub fn retain_fields(desired: &Value, observed: &Value) -> Value {
    let Some(kept) = observed.get("spec").filter(|spec| spec.is_object()) else { return desired.clone() };
    let mut spec = kept.clone();
    match desired.pointer("/spec/priorityClassName").filter(|class| class.is_string()) {
        Some(class) => spec["priorityClassName"] = class.clone(),
        None => drop(spec.as_object_mut().map(|spec| spec.remove("priorityClassName"))),
    }
    let same_tasks = tasks_of(desired).count() == tasks_of(observed).count();
    // Tasks can not be added, removed or renamed: they are told apart by their place.
    for (kept, task) in spec.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten().zip(tasks_of(desired))
    {
        if same_tasks && !kept.get("partitionPolicy").is_some_and(Value::is_object) {
            retain_task_counts(kept, task);
        }
    }
    let minimums = |spec: &Value, of: fn(&Value) -> u64| -> u64 {
        spec.get("tasks").and_then(Value::as_array).into_iter().flatten().map(of).sum()
    };
    let wanted = read_count(desired.get("spec").unwrap_or(&Value::Null), "minAvailable");
    let minimum = if wanted == 0 { minimums(&spec, minimum_of) } else { wanted };
    spec["minAvailable"] = minimum.min(minimums(&spec, |task| read_count(task, "replicas"))).into();
    let mut result = desired.clone();
    result["spec"] = spec;
    result
}

/// A task's numbers as desired.
fn retain_task_counts(kept: &mut Value, desired: &Value) {
    let (before, replicas) = (read_count(kept, "replicas"), desired.get("replicas").and_then(Value::as_u64));
    let replicas = replicas.unwrap_or(before);
    kept["replicas"] = replicas.into();
    match desired.get("minAvailable").and_then(Value::as_u64) {
        Some(minimum) => kept["minAvailable"] = minimum.min(replicas).into(),
        None if before != replicas => kept["minAvailable"] = replicas.into(),
        None => {}
    }
}

fn minimum_of(task: &Value) -> u64 {
    let field = if task.get("minAvailable").is_some_and(Value::is_u64) { "minAvailable" } else { "replicas" };
    read_count(task, field)
}
