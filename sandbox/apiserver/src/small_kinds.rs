//! Validation of built-in kinds that say little: budgets, quotas, schedules, claims, autoscalers, ingresses
//! (`pkg/apis/{policy,core,batch,autoscaling,networking}/validation`).

use serde_json::Value;

use crate::error::go_struct;
use crate::kind_rules::{given, spec_of, text_of};
use crate::limits::{Amount, is_counted, is_quota_standard};
use crate::schema::FieldError;

const NEGATIVE: &str = "must be greater than or equal to 0";

/// A PodDisruptionBudget.
pub fn budget_errors(budget: &Value) -> Vec<FieldError> {
    let spec = spec_of(budget);
    let mut errors = Vec::new();
    if given(spec, "minAvailable").is_some() && given(spec, "maxUnavailable").is_some() {
        const MEMBERS: [(&str, &str, &str); 4] = [
            ("MinAvailable", "minAvailable", "null"),
            ("Selector", "selector", "null"),
            ("MaxUnavailable", "maxUnavailable", "null"),
            ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", "null"),
        ];
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid_shown("spec", &go_struct(spec, &MEMBERS), why));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        let field = format!("spec.{key}");
        match given(spec, key) {
            Some(Value::String(text)) => {
                let percent = text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok());
                let why = match percent {
                    None => {
                        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                        regex used for validation is '[0-9]+%')"
                    }
                    Some(n) if n > 100 => "must not be greater than 100%",
                    Some(_) => continue,
                };
                errors.push(FieldError::invalid_text(field, text, why));
            }
            Some(number) if number.as_i64().is_some_and(|n| n < 0) => {
                errors.push(FieldError::invalid(field, number, NEGATIVE));
            }
            _ => {}
        }
    }
    errors
}

/// A ResourceQuota.
pub fn quota_errors(quota: &Value) -> Vec<FieldError> {
    measure_errors(spec_of(quota).get("hard"), "spec.hard")
}

/// Amounts of what quotas measure.
pub fn measure_errors(amounts: Option<&Value>, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, amount) in amounts.and_then(Value::as_object).into_iter().flatten() {
        let field = format!("{at}[{name}]");
        errors.extend(crate::limits::name_errors(name, &field));
        if !name.contains('/') && !is_quota_standard(name) {
            errors.push(FieldError::invalid_text(field.clone(), name, "must be a standard resource for quota"));
        }
        let parsed = Amount::parse(amount);
        if parsed.is_some_and(Amount::is_negative) {
            errors.push(FieldError::invalid(field.as_str(), amount, NEGATIVE));
        }
        if is_counted(name) && parsed.is_some_and(|amount| !amount.is_whole()) {
            errors.push(FieldError::invalid(field, amount, "must be an integer"));
        }
    }
    errors
}

/// The bounds of minutes, hours, days, months and days of the week.
const RANGES: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];

/// What the parser of schedules says about numbers out of bounds.
fn range_problem(field: &str, (low, high): (u32, u32)) -> Option<String> {
    for part in field.split(',') {
        let range = part.split('/').next().unwrap_or_default();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
        if first < low {
            return Some(format!("beginning of range ({first}) below minimum ({low}): {part}"));
        }
        if last > high {
            return Some(format!("end of range ({last}) above maximum ({high}): {part}"));
        }
        if first > last {
            return Some(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
    }
    None
}

/// A CronJob.
pub fn schedule_errors(job: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = spec_of(job);
    let mut errors = Vec::new();
    let name = crate::meta::object_name(job);
    // Eleven characters are left for the names of its Jobs.
    if old.is_none() && name.len() > 52 {
        errors.push(FieldError::invalid_text("metadata.name", name, "must be no more than 52 characters"));
    }
    let schedule = text_of(spec, "schedule");
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid_text("spec.schedule", schedule, why));
    } else if schedule.starts_with('@') {
        let why = descriptor_problem(schedule);
        errors.extend(why.map(|why| FieldError::invalid_text("spec.schedule", schedule, &why)));
    } else if fields.len() != 5 {
        let why = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
        errors.push(FieldError::invalid_text("spec.schedule", schedule, &why));
    } else if let Some(why) = fields.iter().zip(RANGES).find_map(|(field, range)| range_problem(field, range)) {
        errors.push(FieldError::invalid_text("spec.schedule", schedule, &why));
    }
    errors.extend(crate::workload_rules::cron_errors(spec, old.map(spec_of)));
    let policies = ["Allow", "Forbid", "Replace"];
    if let Some(policy) =
        given(spec, "concurrencyPolicy").filter(|p| !p.as_str().is_some_and(|p| policies.contains(&p)))
    {
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &policies));
    }
    let inner = spec.pointer("/jobTemplate/spec").unwrap_or(&Value::Null);
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    errors.extend(crate::workload_rules::negative(inner, "spec.jobTemplate.spec", &counts));
    let template = spec.pointer("/jobTemplate/spec/template").unwrap_or(&Value::Null);
    errors.extend(crate::workload_rules::template_errors(template, "spec.jobTemplate.spec.template"));
    let pod = template.get("spec").unwrap_or(&Value::Null);
    errors.extend(crate::podspec::validate_spec(pod, "spec.jobTemplate.spec.template.spec"));
    let restart = spec.pointer("/jobTemplate/spec/template/spec/restartPolicy").and_then(Value::as_str);
    if !matches!(restart, Some("OnFailure" | "Never")) {
        let field = "spec.jobTemplate.spec.template.spec.restartPolicy";
        errors.push(crate::workload_spec::job_restart_error(field, restart.unwrap_or_default()));
    }
    errors
}

/// A schedule may be a name or an interval (`robfig/cron`, `parseDescriptor`).
fn descriptor_problem(schedule: &str) -> Option<String> {
    const NAMES: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    match schedule.strip_prefix("@every ") {
        _ if NAMES.contains(&schedule) => None,
        Some(length) if crate::schema::is_go_duration(length) => None,
        Some(length) => {
            let why = format!("time: invalid duration {}", crate::error::go_quote(length));
            Some(format!("failed to parse duration {schedule}: {why}"))
        }
        None => Some(format!("unrecognized descriptor: {schedule}")),
    }
}

/// A PersistentVolumeClaim.
pub fn claim_errors(claim: &Value) -> Vec<FieldError> {
    let spec = spec_of(claim);
    let mut errors = Vec::new();
    if spec.get("accessModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    match spec.pointer("/resources/requests/storage") {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(amount) if Amount::parse(amount).is_some_and(|a| !a.is_positive()) => {
            errors.push(FieldError::invalid("spec.resources[storage]", amount, "must be greater than zero"));
        }
        Some(_) => {}
    }
    errors
}

/// A HorizontalPodAutoscaler.
pub fn autoscaler_errors(autoscaler: &Value) -> Vec<FieldError> {
    let spec = spec_of(autoscaler);
    let mut errors = Vec::new();
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    let (least, most) = (number("minReplicas"), number("maxReplicas").unwrap_or(0));
    if let Some(least) = least.filter(|n| *n < 1) {
        errors.push(FieldError::invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 1"));
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        if least == 0 {
            errors.push(FieldError::forbidden("spec.metrics", why));
        }
    }
    if most == 0 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if most < 0 {
        errors.push(FieldError::invalid("spec.maxReplicas", &most.into(), "must be greater than or equal to 1"));
    }
    // One is the default.
    if most < least.unwrap_or(1) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &most.into(), why));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    for key in ["kind", "name"] {
        let field = format!("spec.scaleTargetRef.{key}");
        errors.extend(crate::autoscaler_rules::path_name_errors(&field, text_of(target, key), ""));
    }
    let version = text_of(target, "apiVersion");
    let grouped = version.split_once('/').is_some_and(|(group, _)| !group.is_empty());
    if !grouped && text_of(target, "kind") != "ReplicationController" {
        let why = "apiVersion must specify API group";
        errors.push(FieldError::invalid_text("spec.scaleTargetRef.apiVersion", version, why));
    }
    errors.extend(crate::autoscaler_rules::measure_errors(spec));
    errors
}

/// An Ingress.
pub fn ingress_errors(ingress: &Value) -> Vec<FieldError> {
    let spec = spec_of(ingress);
    let ruled = spec.get("rules").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    if ruled || given(spec, "defaultBackend").is_some() {
        return Vec::new();
    }
    let shown = spec.get("rules").unwrap_or(&Value::Null);
    vec![FieldError::invalid("spec", shown, "either `defaultBackend` or `rules` must be specified")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_budget_says_one_thing() {
        let both = json!({"spec": {"minAvailable": 1, "maxUnavailable": "101%"}});
        let found = shown(&budget_errors(&both));
        assert!(found[0].ends_with("minAvailable and maxUnavailable cannot be both set"));
        assert_eq!(found[1], "spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%");
        assert!(budget_errors(&json!({"spec": {"minAvailable": "50%"}})).is_empty());
    }

    #[test]
    fn a_quota_measures_what_quotas_know() {
        let hard = json!({"spec": {"hard": {"cpu": "-1", "nope": "1", "count/jobs.batch": "1", "x.io/gpu": "1"}}});
        assert_eq!(
            shown(&quota_errors(&hard)),
            [
                "spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource type or fully qualified",
                "spec.hard[nope]: Invalid value: \"nope\": must be a standard resource for quota",
            ]
        );
        let hard = json!({"spec": {"hard": {"requests.hugepages-2Mi": "1.5", "cpu": "1.5", "x.io/gpu": "1.5",
            "requests.x.io/gpu": "1.5", "pods": "1.5", "storage": "1", "a/b/c": "1"}}});
        let told: Vec<_> = quota_errors(&hard).into_iter().map(|e| e.field).collect();
        assert_eq!(told, ["a/b/c", "pods", "storage", "x.io/gpu"].map(|name| format!("spec.hard[{name}]")));
    }

    #[test]
    fn a_schedule_has_five_fields() {
        let job = |schedule: &str| {
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {}}]});
            let template = json!({"spec": {"template": {"spec": pod}}});
            json!({"spec": {"schedule": schedule, "concurrencyPolicy": "Allow", "jobTemplate": template}})
        };
        assert!(schedule_errors(&job("*/5 * * * *"), None).is_empty());
        assert!(schedule_errors(&job("@daily"), None).is_empty());
        assert_eq!(
            shown(&schedule_errors(&job("nope"), None)),
            ["spec.schedule: Invalid value: \"nope\": expected exactly 5 fields, found 1: [nope]"]
        );
        let late = shown(&schedule_errors(&job("61 * * * *"), None));
        assert!(late[0].ends_with("end of range (61) above maximum (59): 61"), "{late:?}");
    }
}
