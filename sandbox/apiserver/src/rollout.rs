//! What a Deployment's rollout may be, how selectors are written, and which counts of a status fit together
//! (`pkg/apis/apps/validation`, `pkg/apis/batch/validation`).

use serde_json::Value;

use crate::schema::{CauseReason, FieldError};

const NEGATIVE: &str = "must be greater than or equal to 0";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";

fn number_at(value: &Value, member: &str) -> Option<i64> {
    value.get(member).and_then(Value::as_i64)
}

/// The numbers of a Deployment's spec and its rolling update (`ValidateDeploymentSpec`).
pub fn deployment_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for member in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        if let Some(number) = number_at(spec, member).filter(|n| *n < 0) {
            errors.push(FieldError::invalid(format!("spec.{member}"), &number.into(), NEGATIVE));
        }
    }
    let (ready, deadline) =
        (number_at(spec, "minReadySeconds").unwrap_or(0), number_at(spec, "progressDeadlineSeconds"));
    if let Some(deadline) = deadline.filter(|d| *d <= ready) {
        let why = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", &deadline.into(), why));
    }
    // Beside another type it may not stand at all.
    if spec.pointer("/strategy/type").and_then(Value::as_str) == Some("Recreate") {
        return errors;
    }
    let Some(rolling) = spec.pointer("/strategy/rollingUpdate").filter(|r| r.is_object()) else { return errors };
    let parts = ["maxUnavailable", "maxSurge"];
    let before = errors.len();
    for part in parts {
        errors.extend(rolling.get(part).and_then(|v| share_error(&format!("spec.strategy.rollingUpdate.{part}"), v)));
    }
    if errors.len() == before && parts.iter().all(|part| rolling.get(part).is_some_and(is_nothing)) {
        let shown = rolling.get("maxUnavailable").cloned().unwrap_or_default();
        let field = "spec.strategy.rollingUpdate.maxUnavailable";
        errors.push(FieldError::invalid(field, &shown, "may not be 0 when `maxSurge` is 0"));
    }
    if let Some(Value::String(text)) = rolling.get("maxUnavailable")
        && text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100)
    {
        let field = "spec.strategy.rollingUpdate.maxUnavailable";
        errors.push(FieldError::invalid_text(field, text, "must not be greater than 100%"));
    }
    errors
}

/// `ValidatePositiveIntOrPercent`.
pub fn share_error(field: &str, value: &Value) -> Option<FieldError> {
    match value {
        Value::String(text) => {
            let percent = text.strip_suffix('%').is_some_and(|n| n.parse::<u64>().is_ok());
            (!percent).then(|| FieldError::invalid_text(field, text, PERCENT))
        }
        number => number.as_i64().filter(|n| *n < 0).map(|_| FieldError::invalid(field, number, NEGATIVE)),
    }
}

pub fn is_nothing(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_str().is_some_and(|t| t.trim_end_matches('%').parse() == Ok(0u64))
}

/// What is wrong with a selector itself; a template is held against none that is broken.
pub fn selector_errors(selector: Option<&Value>, kind: &str) -> Vec<FieldError> {
    let Some(selector) = selector.filter(|s| s.is_object()) else {
        return vec![FieldError::required("spec.selector", "")];
    };
    let mut errors = crate::admission::selector_errors("spec.selector", selector);
    if !errors.is_empty() {
        let shown = show_selector(selector);
        match kind {
            // Told by itself, without a word of why.
            "statefulset" => {
                let message = format!("Invalid value: {shown}");
                errors.push(FieldError::new(CauseReason::Invalid, "spec.selector", message));
            }
            "daemonset" => {}
            _ => errors.push(FieldError::invalid_shown("spec.selector", &shown, "invalid label selector")),
        }
    } else if selector.as_object().is_some_and(serde_json::Map::is_empty) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", selector, &why));
    }
    errors
}

/// A strategy as the internal structs show it, which have no JSON tags.
pub fn show_strategy(kind: &str, rolling: Option<&Value>, shares: &[&str]) -> String {
    let rolling = rolling.map_or("null".to_owned(), |rolling| {
        let share = |name: &&str| {
            let key = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
            format!("\"{name}\":{}", rolling.get(key).unwrap_or(&Value::from(0)))
        };
        format!("{{{}}}", shares.iter().map(share).collect::<Vec<_>>().join(","))
    });
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", crate::error::go_quote(kind))
}

/// As Go writes the struct: labels before expressions.
pub fn show_selector(selector: &Value) -> String {
    let member = |key: &str| selector.get(key).map(|value| format!("\"{key}\":{value}"));
    let shown: Vec<String> = ["matchLabels", "matchExpressions"].into_iter().filter_map(member).collect();
    format!("{{{}}}", shown.join(","))
}

/// The counts of a status: none is negative, and parts are not more than their whole.
pub fn status_errors(plural: &str, object: &Value) -> Vec<FieldError> {
    let Some(status) = object.get("status") else { return Vec::new() };
    let counts: &[&str] = match plural {
        "deployments" => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "collisionCount",
        ],
        "replicasets" | "replicationcontrollers" => {
            &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]
        }
        "statefulsets" => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        "daemonsets" => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        "jobs" => &["active", "succeeded", "failed"],
        _ => return Vec::new(),
    };
    let mut errors = Vec::new();
    let count = |member: &str| number_at(status, member).unwrap_or(0);
    for member in counts {
        if count(member) < 0 {
            errors.push(FieldError::invalid(format!("status.{member}"), &count(member).into(), NEGATIVE));
        }
    }
    if matches!(plural, "jobs" | "daemonsets") {
        return errors;
    }
    let parts = ["updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "currentReplicas", "availableReplicas"];
    for member in parts.into_iter().filter(|m| counts.contains(m)) {
        if count(member) > count("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(format!("status.{member}"), &count(member).into(), why));
        }
    }
    if counts.contains(&"availableReplicas") && count("availableReplicas") > count("readyReplicas") {
        let why = match plural {
            "statefulsets" => "cannot be greater than status.readyReplicas",
            _ => "cannot be greater than readyReplicas",
        };
        errors.push(FieldError::invalid("status.availableReplicas", &count("availableReplicas").into(), why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn a_rollout_moves_at_least_one_pod() {
        let spec = |surge: Value, gone: Value| json!({"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": gone}}});
        let field = "spec.strategy.rollingUpdate.maxUnavailable";
        assert_eq!(fields(&deployment_errors(&spec(json!(0), json!("0%")))), [field]);
        assert_eq!(fields(&deployment_errors(&spec(json!(1), json!("101%")))), [field]);
        assert!(deployment_errors(&spec(json!(1), json!(0))).is_empty());
    }

    #[test]
    fn a_selector_is_there_and_selects() {
        assert_eq!(selector_errors(None, "deployment")[0].message, "Required value");
        assert!(selector_errors(Some(&json!({})), "deployment")[0].message.contains("empty selector is invalid"));
        let broken = json!({"matchExpressions": [{"key": "a", "operator": "Foo"}]});
        assert_eq!(selector_errors(Some(&broken), "deployment").len(), 2);
    }

    #[test]
    fn parts_of_a_status_are_not_more_than_the_whole() {
        let status = json!({"status": {"replicas": 3, "availableReplicas": 5}});
        assert_eq!(status_errors("deployments", &status).len(), 2);
        assert_eq!(fields(&status_errors("jobs", &json!({"status": {"active": -1}}))), ["status.active"]);
    }
}
