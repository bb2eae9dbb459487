//! Which statuses a Job may be given (`pkg/apis/batch/validation`, `validateJobStatus`, with the options of the
//! registry's `getStatusValidationOptions`): most rules are asked only where one of their fields changes. That indexes
//! which failed and indexes which are completed do not overlap is not among them.

use serde_json::Value;

use crate::error::go_struct;
use crate::kind_rules::items_of;
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
    let moved = |member: &str| moved(job, old, member);
    let (start, end) = (status_of(job, "startTime"), status_of(job, "completionTime"));
    let late = |why: &str| end.map(|end| FieldError::invalid("status.completionTime", end, why));
    let mut errors = Vec::new();
    for member in ["ready", "terminating"] {
        if let Some(number) = status_of(job, member).filter(|number| number.as_i64() < Some(0)) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("status.{member}"), number, why));
        }
    }
    errors.extend(uncounted_errors(job));
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
    if (failed.changed() || moved("failedIndexes")) && failed.now && !target.now {
        errors.push(condition_error("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (complete.changed() || met.changed()) && complete.now && !met.now {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(condition_error(why));
    }
    // Where a job is finished, what has come to rest: a member is asked about with the end and when it moves.
    let rests = |member: &str| finished.now && (finished.changed() || moved(member));
    let above = |member: &str| status_of(job, member).filter(|n| n.as_i64() > Some(0) && rests(member));
    if let Some(active) = above("active") {
        errors.push(FieldError::invalid("status.active", active, "active>0 is invalid for finished job"));
    }
    let empty = job.pointer("/spec/suspend") == Some(&Value::Bool(true))
        && job.pointer("/spec/completions").and_then(Value::as_i64) == Some(0);
    if rests("startTime") && start.is_none() && !empty {
        errors.push(FieldError::required("status.startTime", "startTime is required for finished job"));
    }
    if let Some(pods) = status_of(job, "uncountedTerminatedPods").filter(|_| rests("uncountedTerminatedPods"))
        && ["succeeded", "failed"].into_iter().any(|list| !items_of(pods, list).is_empty())
    {
        let shown = go_struct(pods, &[("Succeeded", "succeeded", "null"), ("Failed", "failed", "null")]);
        let why = "must be empty for finished job";
        errors.push(FieldError::invalid_shown("status.uncountedTerminatedPods", &shown, why));
    }
    errors.extend(index_errors(job, old));
    if let Some(terminating) = above("terminating") {
        let why = "terminating>0 is invalid for finished job";
        errors.push(FieldError::invalid("status.terminating", terminating, why));
    }
    let many = |ready: &&Value| ready.as_i64() > Some(count(job, "active"));
    if let Some(ready) = status_of(job, "ready").filter(many).filter(|_| moved("ready") || moved("active")) {
        errors.push(FieldError::invalid("status.ready", ready, "cannot set more ready pods than active"));
    }
    if met.now && failed.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met.now && target.now {
        errors.push(condition_error("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    if complete.now && !met.now && job.pointer("/spec/successPolicy").is_some_and(Value::is_object) {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.push(condition_error(why));
    }
    for (kind, _) in [("Failed", failed), ("Complete", complete), ("FailureTarget", target)]
        .into_iter()
        .filter(|(_, flag)| flag.before && !flag.now)
    {
        errors.push(condition_error(&format!("cannot disable the terminal {kind}=True condition")));
    }
    errors.extend(counter_errors(job, old));
    if status_of(old, "completionTime").is_some() && moved("completionTime") {
        errors.extend(late("field is immutable"));
    }
    errors.extend(start_error(job, old));
    if met.before && !met.now {
        errors.push(condition_error("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if complete.before && !met.before && met.now {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(condition_error(why));
    }
    errors
}

/// Counters only grow, but for a job that can be scaled down.
fn counter_errors(job: &Value, old: &Value) -> Vec<FieldError> {
    let elastic = is_indexed(job) && job.pointer("/spec/completions") == job.pointer("/spec/parallelism");
    let fallen = ["failed", "succeeded"].into_iter().filter(|member| count(job, member) < count(old, member));
    let told = fallen.filter(|member| *member == "failed" || !elastic);
    told.map(|member| {
        let why = format!("cannot decrease the {member} counter");
        FieldError::invalid(format!("status.{member}"), &count(job, member).into(), &why)
    })
    .collect()
}

/// A job that was started stays so, unless it is suspended or was until now.
fn start_error(job: &Value, old: &Value) -> Option<FieldError> {
    let suspended = job.pointer("/spec/suspend") == Some(&Value::Bool(true));
    let resumes = holds(old, "Suspended") && has_condition(job, "Suspended", "False");
    let (before, now) = (status_of(old, "startTime"), status_of(job, "startTime"));
    let moved = before.is_some() && before != now && !suspended && !resumes;
    let why = "field is immutable for unsuspended job once set";
    moved.then(|| FieldError::invalid("status.startTime", now.unwrap_or(&Value::Null), why))
}

/// Only jobs whose pods are numbered have numbers of pods.
fn index_errors(job: &Value, old: &Value) -> Vec<FieldError> {
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64);
    let per_index = job.pointer("/spec/backoffLimitPerIndex").is_some_and(|limit| !limit.is_null());
    let given = |member| status_of(job, member).filter(|_| moved(job, old, member));
    let (completed, failed) = (given("completedIndexes"), given("failedIndexes"));
    let mut errors = Vec::new();
    for (member, list) in [("completedIndexes", completed), ("failedIndexes", failed.filter(|_| per_index))] {
        let (Some(list), Some(completions)) = (list, completions) else { continue };
        if let Err(why) = crate::job_policies::count_indexes(list.as_str().unwrap_or_default(), completions) {
            let why = format!("error parsing {member}: {why}");
            errors.push(FieldError::invalid(format!("status.{member}"), list, &why));
        }
    }
    if let Some(list) = completed.filter(|list| !is_indexed(job) && **list != "") {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(FieldError::invalid("status.completedIndexes", list, why));
    }
    if let Some(list) = failed.filter(|_| !per_index) {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(FieldError::invalid("status.failedIndexes", list, why));
    }
    errors
}

/// Pods that ended and are not counted yet, each once.
fn uncounted_errors(job: &Value) -> Vec<FieldError> {
    let mut seen = std::collections::BTreeSet::new();
    let mut errors = Vec::new();
    for list in ["succeeded", "failed"] {
        let pods = status_of(job, "uncountedTerminatedPods").map_or(&[][..], |pods| items_of(pods, list));
        for (index, uid) in pods.iter().enumerate() {
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

/// Whether a member changes; of a number or a text in Go, nothing is the same as none.
fn moved(job: &Value, old: &Value, member: &str) -> bool {
    let none = |value: &&Value| match member {
        "active" => **value == 0,
        "completedIndexes" => **value == "",
        _ => false,
    };
    let of = |job| status_of(job, member).filter(|value| !none(value));
    of(job) != of(old)
}

fn count(job: &Value, member: &str) -> i64 {
    status_of(job, member).and_then(Value::as_i64).unwrap_or(0)
}

fn is_indexed(job: &Value) -> bool {
    job.pointer("/spec/completionMode").and_then(Value::as_str) == Some("Indexed")
}

fn holds(job: &Value, kind: &str) -> bool {
    has_condition(job, kind, "True")
}

fn has_condition(job: &Value, kind: &str, state: &str) -> bool {
    let conditions = status_of(job, "conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == state)
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
            "status.uncountedTerminatedPods.succeeded[1]",
            "status.uncountedTerminatedPods.succeeded[2]",
            "status.completedIndexes",
            "status.failedIndexes",
            "status.ready",
            "status.succeeded",
            "status.startTime",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_does_not_change_is_not_asked_about() {
        let old = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        let mut new = old.clone();
        new["status"]["ready"] = json!(0);
        assert!(status_errors(&new, &old).is_empty());
        let odd = json!({"status": {"ready": 2, "active": 1, "completedIndexes": "0", "failedIndexes": "9"}});
        let mut new = odd.clone();
        new["status"]["failed"] = json!(1);
        assert!(status_errors(&new, &odd).is_empty());
    }

    fn between(spec: &Value, old: &Value, new: &Value) -> Vec<String> {
        let job = |status: &Value| json!({"spec": spec, "status": status});
        status_errors(&job(new), &job(old)).into_iter().map(|e| e.message).collect()
    }

    #[test]
    fn an_indexed_job_is_scaled_down() {
        let spec = |mode: &str, least: i64| json!({"completionMode": mode, "completions": 2, "parallelism": least});
        let fall = |spec: Value| between(&spec, &json!({"succeeded": 3}), &json!({"succeeded": 2})).len();
        assert_eq!((fall(spec("Indexed", 2)), fall(spec("Indexed", 1)), fall(spec("NonIndexed", 2))), (0, 1, 1));
    }

    #[test]
    fn indexes_are_read_where_completions_bound_them() {
        let told = |spec: Value| between(&spec, &json!({}), &json!({"completedIndexes": "7"}));
        assert!(told(json!({"completionMode": "Indexed"})).is_empty());
        let why = "Invalid value: \"7\": error parsing completedIndexes: too large index: \"7\"";
        assert_eq!(told(json!({"completionMode": "Indexed", "completions": 2})), [why]);
    }

    #[test]
    fn a_job_that_goes_on_starts_anew() {
        let status = |suspended: &str, start: &str| {
            json!({"startTime": start,
            "conditions": [{"type": "Suspended", "status": suspended}]})
        };
        let old = status("True", "2026-11-24T02:30:00Z");
        let later = "2026-11-24T03:30:00Z";
        assert!(between(&json!({}), &old, &status("False", later)).is_empty());
        assert_eq!(between(&json!({}), &old, &status("True", later)).len(), 1);
    }

    #[test]
    fn a_job_that_is_to_fail_stays_so() {
        let old = json!({"conditions": [{"type": "FailureTarget", "status": "True"}]});
        let why = "Invalid value: cannot disable the terminal FailureTarget=True condition";
        assert_eq!(between(&json!({}), &old, &json!({})), [why]);
    }
}
