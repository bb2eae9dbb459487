//! Which statuses a Job may be given (`pkg/apis/batch/validation`, `validateJobStatus`, with the options of the
//! registry's `getStatusValidationOptions`): a rule is asked only where one of its fields changes. What is said of
//! indexes and of pods that were not counted yet is not among them.

use serde_json::Value;

use crate::schema::{CauseReason, FieldError};

/// A condition before and after.
#[derive(Clone, Copy)]
struct Flag {
    before: bool,
    now: bool,
}

impl Flag {
    fn of(kind: &str, old: &Value, job: &Value) -> Self {
        Self { before: holds(old, kind), now: holds(job, kind) }
    }

    fn changed(self) -> bool {
        self.before != self.now
    }
}

/// What is wrong with a Job's new status.
pub fn status_errors(job: &Value, old: &Value) -> Vec<FieldError> {
    let flag = |kind: &str| Flag::of(kind, old, job);
    let (complete, failed) = (flag("Complete"), flag("Failed"));
    let (target, met) = (flag("FailureTarget"), flag("SuccessCriteriaMet"));
    let finished = Flag { before: complete.before || failed.before, now: complete.now || failed.now };
    let moved = |member: &str| status_of(job, member) != status_of(old, member);
    let (start, end) = (status_of(job, "startTime"), status_of(job, "completionTime"));
    let late = |why: &str| end.map(|end| FieldError::invalid("status.completionTime", end, why));
    let mut errors = Vec::new();
    if (complete.changed() || failed.changed()) && complete.now && failed.now {
        errors.push(condition_error("cannot set Complete=True and Failed=true conditions"));
    }
    if (complete.changed() || target.changed()) && complete.now && target.now {
        errors.push(condition_error("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if complete.changed() || moved("completionTime") {
        if complete.now && end.is_none() {
            errors.push(FieldError::required("status.completionTime", "completionTime is required for Complete jobs"));
        } else if !complete.now {
            errors.extend(late("cannot set completionTime when there is no Complete=True condition"));
        }
    }
    let is_before = |(start, end): (&Value, &Value)| end.as_str() < start.as_str();
    if (moved("startTime") || moved("completionTime")) && start.zip(end).is_some_and(is_before) {
        errors.extend(late("must be equal to or after `startTime`"));
    }
    if failed.changed() && failed.now && !target.now {
        errors.push(condition_error("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (complete.changed() || met.changed()) && complete.now && !met.now {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(condition_error(why));
    }
    let active = status_of(job, "active").filter(|active| active.as_i64() > Some(0));
    if let Some(active) = active.filter(|_| finished.now && (finished.changed() || moved("active"))) {
        errors.push(FieldError::invalid("status.active", active, "active>0 is invalid for finished job"));
    }
    let empty = job.pointer("/spec/suspend") == Some(&Value::Bool(true))
        && job.pointer("/spec/completions").and_then(Value::as_i64) == Some(0);
    if finished.now && (finished.changed() || moved("startTime")) && start.is_none() && !empty {
        errors.push(FieldError::required("status.startTime", "startTime is required for finished job"));
    }
    errors.extend(counter_errors(job, old));
    errors.extend(start_error(job, old));
    errors.extend(index_errors(job, old));
    errors.extend(uncounted_errors(job));
    let ended = [("Complete", complete), ("Failed", failed)];
    for (kind, _) in ended.into_iter().filter(|(_, flag)| flag.before && !flag.now) {
        errors.push(condition_error(&format!("cannot disable the terminal {kind}=True condition")));
    }
    if met.before && !met.now {
        errors.push(condition_error("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if met.now && failed.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met.now && target.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    errors
}

/// Counters only grow, and no more pods are ready than there are.
fn counter_errors(job: &Value, old: &Value) -> Vec<FieldError> {
    let count = |job: &Value, member: &str| status_of(job, member).and_then(Value::as_i64).unwrap_or(0);
    let mut errors = Vec::new();
    for member in ["ready", "terminating"] {
        let number = count(job, member);
        if number < 0 {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("status.{member}"), &number.into(), why));
        }
    }
    for member in ["succeeded", "failed"] {
        let number = count(job, member);
        if number < count(old, member) {
            let why = format!("cannot decrease the {member} counter");
            errors.push(FieldError::invalid(format!("status.{member}"), &number.into(), &why));
        }
    }
    if let Some(ready) = status_of(job, "ready").filter(|n| n.as_i64() > Some(count(job, "active"))) {
        errors.push(FieldError::invalid("status.ready", ready, "cannot set more ready pods than active"));
    }
    errors
}

/// A job that was started stays so, unless it is suspended.
fn start_error(job: &Value, old: &Value) -> Option<FieldError> {
    let suspended = job.pointer("/spec/suspend") == Some(&Value::Bool(true));
    let (before, now) = (status_of(old, "startTime"), status_of(job, "startTime"));
    let moved = before.is_some() && before != now && !suspended;
    let why = "field is immutable for unsuspended job once set";
    moved.then(|| FieldError::invalid("status.startTime", now.unwrap_or(&Value::Null), why))
}

/// Only jobs whose pods are numbered have numbers of pods.
fn index_errors(job: &Value, old: &Value) -> Vec<FieldError> {
    let indexed = job.pointer("/spec/completionMode").and_then(Value::as_str) == Some("Indexed");
    let mut errors = Vec::new();
    if let Some(list) = status_of(job, "completedIndexes").filter(|list| !indexed && **list != "") {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid("status.completedIndexes", list, why));
    }
    let per_index = job.pointer("/spec/backoffLimitPerIndex").is_some_and(|limit| !limit.is_null());
    if let Some(list) = status_of(job, "failedIndexes").filter(|_| !per_index) {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid("status.failedIndexes", list, why));
    }
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(0);
    let read = if per_index { &["completedIndexes", "failedIndexes"][..] } else { &["completedIndexes"] };
    for member in read {
        let Some(list) = status_of(job, member).filter(|list| Some(*list) != status_of(old, member)) else { continue };
        if let Err(why) = crate::job_policies::count_indexes(list.as_str().unwrap_or_default(), completions) {
            let why = format!("error parsing {member}: {why}");
            errors.push(FieldError::invalid(format!("status.{member}"), list, &why));
        }
    }
    errors
}

/// Pods that ended and are not counted yet, each once.
fn uncounted_errors(job: &Value) -> Vec<FieldError> {
    let mut seen = std::collections::BTreeSet::new();
    let mut errors = Vec::new();
    for list in ["succeeded", "failed"] {
        let pods = status_of(job, "uncountedTerminatedPods").and_then(|pods| pods.get(list)).and_then(Value::as_array);
        for (index, uid) in pods.into_iter().flatten().enumerate() {
            let field = format!("status.uncountedTerminatedPods.{list}[{index}]");
            let text = uid.as_str().unwrap_or_default();
            if text.is_empty() {
                errors.push(FieldError::invalid(field, uid, "must not be empty"));
            } else if !seen.insert(text) {
                errors.push(FieldError::duplicate(field, uid));
            }
        }
    }
    errors
}

fn condition_error(why: &str) -> FieldError {
    FieldError::new(CauseReason::Invalid, "status.conditions", format!("Invalid value: {why}"))
}

fn status_of<'v>(job: &'v Value, member: &str) -> Option<&'v Value> {
    job.get("status").and_then(|status| status.get(member)).filter(|value| !value.is_null())
}

fn holds(job: &Value, kind: &str) -> bool {
    let conditions = status_of(job, "conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(kinds: &[&str], rest: &Value) -> Vec<String> {
        let conditions: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let mut job = json!({"spec": {}, "status": rest});
        job["status"]["conditions"] = json!(conditions);
        let errors = status_errors(&job, &json!({"spec": {}, "status": {}}));
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    /// What a kube-apiserver 1.36 said to the same.
    #[test]
    fn a_job_ends_only_with_its_reason_its_start_and_its_time() {
        let start = json!({"startTime": "2026-11-24T02:30:00Z"});
        assert_eq!(
            told(&["Failed"], &json!({})),
            [
                "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true \
                 condition",
                "status.startTime: Required value: startTime is required for finished job"
            ]
        );
        assert!(told(&["FailureTarget", "Failed"], &start).is_empty());
        assert_eq!(
            told(&["SuccessCriteriaMet", "Complete"], &start),
            ["status.completionTime: Required value: completionTime is required for Complete jobs"]
        );
        let both = json!({"startTime": "2026-11-24T02:30:00Z", "completionTime": "2026-11-24T02:29:00Z"});
        assert_eq!(
            told(&["SuccessCriteriaMet", "Complete"], &both),
            ["status.completionTime: Invalid value: \"2026-11-24T02:29:00Z\": must be equal to or after `startTime`"]
        );
        assert_eq!(
            told(&["FailureTarget", "Failed"], &json!({"startTime": "2026-11-24T02:30:00Z", "active": 1})),
            ["status.active: Invalid value: 1: active>0 is invalid for finished job"]
        );
        assert_eq!(
            told(&["SuccessCriteriaMet", "FailureTarget"], &json!({})),
            ["status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"]
        );
        assert_eq!(
            told(&["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"], &json!({"active": 1})).len(),
            7
        );
    }

    #[test]
    fn a_job_counts_upwards_and_keeps_its_start() {
        let job = |status: Value| json!({"spec": {}, "status": status});
        let old = job(json!({"succeeded": 3, "startTime": "2020-01-01T00:00:00Z"}));
        let new = json!({"succeeded": 2, "ready": 1, "completedIndexes": "0", "failedIndexes": "0",
            "uncountedTerminatedPods": {"succeeded": ["a", "a", ""]}});
        let found: Vec<String> = status_errors(&job(new), &old).into_iter().map(|e| e.field).collect();
        let wanted = [
            "status.succeeded",
            "status.ready",
            "status.startTime",
            "status.completedIndexes",
            "status.failedIndexes",
            "status.completedIndexes",
            "status.uncountedTerminatedPods.succeeded[1]",
            "status.uncountedTerminatedPods.succeeded[2]",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_does_not_change_is_not_asked_about() {
        let old = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let mut new = old.clone();
        new["status"]["ready"] = json!(0);
        assert!(status_errors(&new, &old).is_empty());
    }
}
