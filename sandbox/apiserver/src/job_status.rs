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
    if met.now && failed.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met.now && target.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
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
    fn what_does_not_change_is_not_asked_about() {
        let old = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let mut new = old.clone();
        new["status"]["ready"] = json!(0);
        assert!(status_errors(&new, &old).is_empty());
    }
}
