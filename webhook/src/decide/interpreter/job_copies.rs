//! ReviseReplica and Retain: the copy of a job before it is sent to a cluster, and when it is sent again.
//!
//! Rule: ReviseReplica does not get the name of the cluster and can not know the share. It stamps the copy with the
//! replicas that it was given and makes a copy that is valid by itself; the review of the Work puts the numbers of the
//! share in. Retain keeps the fields that the member's Volcano lets nobody change
//! (`pkg/webhooks/admission/jobs/validate/admit_job.go`, UPDATE) or wrote itself.

use caldera_crds::names::caldera;
use serde_json::{Value, json};

/// ReviseReplica: the job with `replicas` pods in all.
pub fn revise_replicas(job: &Value, replicas: u32) -> Value {
    let mut revised = job.clone();
    if !revised.pointer("/metadata/annotations").is_some_and(Value::is_object) {
        revised["metadata"]["annotations"] = json!({});
    }
    revised["metadata"]["annotations"][caldera::REVISED] = replicas.to_string().into();
    let wanted: Vec<u64> = tasks_of(job).map(|task| read_count(task, "replicas")).collect();
    let total: u64 = wanted.iter().sum();
    if total == u64::from(replicas) || total == 0 {
        return revised;
    }
    let given = divide_replicas(&wanted, total, u64::from(replicas));
    let mut minimum = 0;
    for (task, given) in
        revised.pointer_mut("/spec/tasks").and_then(Value::as_array_mut).into_iter().flatten().zip(&given)
    {
        task["replicas"] = (*given).into();
        if task.get("minAvailable").is_some_and(Value::is_u64) {
            task["minAvailable"] = read_count(task, "minAvailable").min(*given).into();
        }
        minimum += given;
    }
    if revised.pointer("/spec/minAvailable").is_some_and(Value::is_u64) {
        revised["spec"]["minAvailable"] = read_count(&revised["spec"], "minAvailable").min(minimum).into();
    }
    revised
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
            resize_task(kept, task);
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
fn resize_task(kept: &mut Value, desired: &Value) {
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
