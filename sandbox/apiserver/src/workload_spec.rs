//! The checks of what makes pods (`pkg/apis/{apps,batch}/validation`): selectors that miss their template, what may not
//! change, strategies. What each kind may say beside them is in [`workload_rules`](crate::workload_rules).

use serde_json::{Value, json};

use crate::internal_form::internal_text;
use crate::meta;
use crate::podspec::{NULL, text_of, validate_spec};
use crate::resource::Resource;
use crate::schema::{CauseReason, FieldError};
use crate::selector::LabelSelector;
use crate::workload_rules;

/// Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and ReplicationControllers.
pub fn validate_workload(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = object.get("spec").unwrap_or(&NULL);
    let mut errors = Vec::new();
    match resource.plural.as_str() {
        "jobs" => validate_job(spec, old, &mut errors),
        "controllerrevisions" | "cronjobs" => {}
        plural => {
            validate_selected(spec, plural, &mut errors);
            match plural {
                "deployments" => validate_strategy(spec, &mut errors),
                "statefulsets" => errors.extend(workload_rules::set_errors(spec)),
                "daemonsets" => errors.extend(workload_rules::daemon_errors(spec)),
                _ => errors.extend(negative_readiness(spec)),
            }
            if let Some(old) = old.filter(|_| resource.group == "apps") {
                let before = old.pointer("/spec/selector").unwrap_or(&NULL);
                let now = spec.get("selector").unwrap_or(&NULL);
                if plural == "statefulsets" {
                    errors.extend(immutable_set(spec, old.get("spec").unwrap_or(&NULL)));
                } else if before != now {
                    errors.push(FieldError::invalid("spec.selector", now, "field is immutable"));
                }
            }
        }
    }
    errors
}

fn negative_readiness(spec: &Value) -> Option<FieldError> {
    let seconds = spec.get("minReadySeconds").and_then(Value::as_i64).filter(|s| *s < 0)?;
    Some(FieldError::invalid("spec.minReadySeconds", &seconds.into(), "must be greater than or equal to 0"))
}

/// A StatefulSet's spec is fixed but for these.
fn immutable_set(new: &Value, old: &Value) -> Option<FieldError> {
    const MAY_CHANGE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            map.retain(|member, _| !MAY_CHANGE.contains(&member.as_str()));
        }
        spec
    };
    let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
               'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    (fixed(new) != fixed(old)).then(|| FieldError::forbidden("spec", why))
}

fn validate_selected(spec: &Value, plural: &str, errors: &mut Vec<FieldError>) {
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64).filter(|r| *r < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &replicas.into(), why));
    }
    let labels = spec.pointer("/template/metadata/labels");
    let given = spec.get("selector");
    let own = match plural {
        "deployments" => crate::rollout::selector_errors(given, "deployment"),
        "statefulsets" => crate::rollout::selector_errors(given, "statefulset"),
        "replicasets" if given.is_some_and(|g| !g.is_null()) => crate::rollout::selector_errors(given, "deployment"),
        "daemonsets" if given.is_some_and(|g| !g.is_null()) => crate::rollout::selector_errors(given, "daemonset"),
        _ => Vec::new(),
    };
    if plural == "deployments" {
        errors.extend(crate::rollout::deployment_errors(spec));
    }
    // An absent selector reads as an empty one.
    let selector = given.filter(|s| s.as_object().is_some_and(|s| !s.is_empty()));
    let matches = if plural == "replicationcontrollers" {
        let wanted = selector.and_then(Value::as_object);
        wanted.into_iter().flatten().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
    } else {
        selector.and_then(LabelSelector::from_value).is_some_and(|s| s.matches_labels(labels))
    };
    let absent = given.is_none_or(Value::is_null);
    let unusable = !own.is_empty() && !absent;
    if !own.is_empty() {
        errors.extend(own);
    } else if selector.is_none() && plural != "daemonsets" {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if plural == "replicationcontrollers" && spec.get("template").is_none_or(Value::is_null) {
        errors.push(FieldError::required("spec.template", ""));
        return;
    }
    if !matches && !unusable {
        let shown = labels.cloned().unwrap_or(NULL);
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            &shown,
            "`selector` does not match template `labels`",
        ));
    }
    let told = workload_rules::template_errors(spec.get("template").unwrap_or(&NULL), "spec.template");
    // The metadata of a stateful set's template is looked at twice.
    if plural == "statefulsets" {
        errors.extend(told.iter().filter(|error| !error.field.contains(".spec.")).cloned());
    }
    errors.extend(told);
    let template = spec.pointer("/template/spec").unwrap_or(&NULL);
    errors.extend(validate_spec(template, "spec.template.spec"));
    let policy = text_of(template, "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, &policy.into(), &["Always"]));
    }
    if template.get("activeDeadlineSeconds").is_some() {
        let kind = match plural {
            "daemonsets" => "DaemonSet",
            "statefulsets" => "StatefulSet",
            "replicationcontrollers" => "ReplicationController",
            _ => "ReplicaSet",
        };
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", &why));
    }
}

fn validate_strategy(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(strategy) = spec.get("strategy") else { return };
    let kind = text_of(strategy, "type");
    let rolling = strategy.get("rollingUpdate").filter(|r| !r.is_null());
    match kind {
        "RollingUpdate" | "" => {}
        "Recreate" => {
            if rolling.is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", why));
            }
        }
        other => {
            // The internal struct has no JSON tags.
            let shown = crate::rollout::show_strategy(other, rolling, &["MaxUnavailable", "MaxSurge"]);
            errors.push(FieldError {
                reason: CauseReason::NotSupported,
                field: "spec.strategy".into(),
                message: format!("Unsupported value: {shown}: supported values: \"Recreate\", \"RollingUpdate\""),
            });
        }
    }
}

/// The selector of a new Job matches its pods, and is the server's unless the user takes that on.
pub fn job_selector_errors(job: &Value) -> Vec<FieldError> {
    let spec = job.get("spec").unwrap_or(&NULL);
    let labels = spec.pointer("/template/metadata/labels");
    let shown = labels.cloned().unwrap_or(NULL);
    let why = "`selector` does not match template `labels`";
    let unmatched = FieldError::invalid("spec.template.metadata.labels", &shown, why);
    let Some(selector) = spec.get("selector").filter(|s| s.is_object()) else {
        return vec![FieldError::required("spec.selector", ""), unmatched];
    };
    let parsed = LabelSelector::from_value(selector).unwrap_or_default();
    let mut errors = Vec::new();
    if !parsed.matches_labels(labels) {
        errors.push(unmatched);
    }
    let uid = meta::metadata_text(job, "uid");
    let own = json!({"batch.kubernetes.io/controller-uid": uid});
    let manual = spec.get("manualSelector") == Some(&Value::Bool(true));
    let expected = [("controller-uid", uid), ("job-name", meta::object_name(job))];
    for (label, value) in expected.into_iter().filter(|_| !manual) {
        for label in [label.to_owned(), format!("batch.kubernetes.io/{label}")] {
            let given = labels.and_then(|labels| labels.get(&label)).and_then(Value::as_str);
            if given.is_some_and(|given| given != value) {
                let field = format!("spec.template.metadata.labels[{label}]");
                errors.push(FieldError::invalid(field, &shown, &format!("must be '{value}'")));
            }
        }
    }
    if !manual && !parsed.matches_labels(Some(&own)) {
        errors.push(FieldError::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
    errors
}

/// `old` is the whole job.
fn validate_job(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    for member in ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"] {
        if let Some(number) = spec.get(member).and_then(Value::as_i64).filter(|n| *n < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("spec.{member}"), &number.into(), why));
        }
    }
    errors.extend(workload_rules::job_errors(spec, "spec"));
    errors.extend(workload_rules::template_errors(spec.get("template").unwrap_or(&NULL), "spec.template"));
    let template = spec.pointer("/template/spec").unwrap_or(&NULL);
    errors.extend(validate_spec(template, "spec.template.spec"));
    let policy = text_of(template, "restartPolicy");
    if !matches!(policy, "OnFailure" | "Never") {
        let field = "spec.template.spec.restartPolicy";
        errors.push(job_restart_error(field, policy));
    }
    let Some(job) = old else { return };
    let old = job.get("spec").unwrap_or(&NULL);
    // Its controller has to have seen that it is suspended.
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let seen =
        conditions.into_iter().flatten().any(|c| text_of(c, "type") == "Suspended" && text_of(c, "status") == "True");
    let suspended = seen && old.get("suspend") == Some(&Value::Bool(true));
    for member in ["selector", "template", "completionMode"] {
        let (before, now) = (old.get(member).unwrap_or(&NULL), spec.get(member).unwrap_or(&NULL));
        if before != now && !(member == "template" && suspended) {
            let field = format!("spec.{member}");
            errors.push(match member {
                "template" => {
                    FieldError::invalid_shown(field, &internal_text("PodTemplateSpec", now), "field is immutable")
                }
                _ => FieldError::invalid(field, now, "field is immutable"),
            });
        }
    }
}

/// The pods of a Job end.
pub fn job_restart_error(field: &str, policy: &str) -> FieldError {
    match policy {
        "" | "Always" => FieldError::required(field, "valid values: \"OnFailure\", \"Never\""),
        other => FieldError::not_supported(field, &other.into(), &["OnFailure", "Never"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stateful_set_keeps_its_service_and_selector() {
        let old = json!({"serviceName": "s", "replicas": 1, "selector": {}});
        let mut new = old.clone();
        new["replicas"] = 2.into();
        assert!(immutable_set(&new, &old).is_none());
        new["serviceName"] = "t".into();
        assert!(immutable_set(&new, &old).is_some());
    }
}
