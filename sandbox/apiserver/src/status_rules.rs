//! What the status of kinds without a life of their own here may say (`Validate…StatusUpdate` of
//! `pkg/apis/{core,policy,autoscaling,networking}/validation`), and conditions as all kinds have them
//! (`ValidateConditions` of apimachinery).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::kind_rules::{invalid_all, items_of, text_of};
use crate::limits::Amount;
use crate::meta::qualified_name_problems;
use crate::resource::Resource;
use crate::schema::FieldError;
use crate::workload_rules::negative;

const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32 * 1024;

static REASON: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$").ok());

/// What is wrong with the new status of an object of this kind.
pub fn status_errors(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let status = object.get("status").unwrap_or(&Value::Null);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("policy", "poddisruptionbudgets") => {
            let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
            let mut errors = condition_errors(status, "status.conditions");
            errors.extend(negative(status, "status", &counts));
            errors
        }
        ("autoscaling", "horizontalpodautoscalers") => {
            negative(status, "status", &["currentReplicas", "desiredReplicas"])
        }
        ("networking.k8s.io", "ingresses") => {
            let entries = status.get("loadBalancer").map_or(&[][..], |balancer| items_of(balancer, "ingress"));
            let at = |index: usize| format!("status.loadBalancer.ingress[{index}]");
            entries.iter().enumerate().flat_map(|(i, entry)| crate::service::entry_errors(entry, &at(i))).collect()
        }
        ("", "persistentvolumeclaims") => claim_errors(status),
        ("", "resourcequotas") => quota_errors(status),
        _ => Vec::new(),
    }
}

/// Conditions have a name of their own, a reason and a time.
pub fn condition_errors(status: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, condition) in items_of(status, "conditions").iter().enumerate() {
        let at = format!("{at}[{index}]");
        let kind = text_of(condition, "type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), &kind.into()));
        }
        errors.extend(invalid_all(&format!("{at}.type"), kind, &qualified_name_problems(kind)));
        let known = ["False", "True", "Unknown"];
        let state = text_of(condition, "status");
        if !known.contains(&state) {
            errors.push(FieldError::not_supported(format!("{at}.status"), &state.into(), &known));
        }
        if let Some(seen) = condition.get("observedGeneration").filter(|n| n.as_i64().is_some_and(|n| n < 0)) {
            let why = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(format!("{at}.observedGeneration"), seen, why));
        }
        if text_of(condition, "lastTransitionTime").is_empty() {
            errors.push(FieldError::required(format!("{at}.lastTransitionTime"), ""));
        }
        errors.extend(reason_error(text_of(condition, "reason"), &format!("{at}.reason")));
        if text_of(condition, "message").len() > LONGEST_MESSAGE {
            errors.push(FieldError::too_long(format!("{at}.message"), LONGEST_MESSAGE));
        }
    }
    errors
}

fn reason_error(reason: &str, field: &str) -> Option<FieldError> {
    if reason.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    if !REASON.as_ref().is_some_and(|form| form.is_match(reason)) {
        let why = "a condition reason must start with alphabetic character, optionally followed by a string of \
                   alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                   'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for \
                   validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        return Some(FieldError::invalid_text(field, reason, why));
    }
    (reason.len() > LONGEST_REASON).then(|| FieldError::too_long(field, LONGEST_REASON))
}

fn claim_errors(status: &Value) -> Vec<FieldError> {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let amounts = |list: &str| status.get(list).and_then(Value::as_object).into_iter().flatten();
    let mut errors = Vec::new();
    for list in ["capacity", "allocatedResources"] {
        for (name, amount) in amounts(list) {
            if list == "allocatedResources" && name != "storage" {
                let field = format!("status.{list}");
                errors.push(FieldError::not_supported(field, &name.as_str().into(), &["storage"]));
            } else if Amount::parse(amount).is_some_and(Amount::is_negative) {
                // Shown as a number, by Go's printing of a quantity.
                let shown = crate::limits::show_amount(amount);
                let why = "must be a valid resource quantity";
                errors.push(FieldError::invalid_shown(format!("status.{list}[{name}]"), &shown, why));
            }
        }
    }
    let field = "status.allocatedResourceStatuses";
    for (name, state) in amounts("allocatedResourceStatuses") {
        if name != "storage" {
            let problems = qualified_name_problems(name);
            if problems.is_empty() {
                errors.push(FieldError::not_supported(field, &name.as_str().into(), &["storage"]));
            }
            errors.extend(invalid_all(field, name, &problems));
        } else if !state.as_str().is_some_and(|state| STATES.contains(&state)) {
            errors.push(FieldError::not_supported(field, &name.as_str().into(), &STATES));
        }
    }
    errors
}

fn quota_errors(status: &Value) -> Vec<FieldError> {
    let lists = ["hard", "used"].into_iter();
    lists.flat_map(|list| crate::small_kinds::measure_errors(status.get(list), &format!("status.{list}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_has_a_name_a_reason_and_a_time() {
        let good = json!({"type": "X", "status": "True", "reason": "R", "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let told = |conditions: Value| -> Vec<String> {
            let errors = condition_errors(&json!({"conditions": conditions}), "status.conditions");
            errors.into_iter().map(|e| e.field).collect()
        };
        assert!(told(json!([good])).is_empty());
        assert_eq!(told(json!([good, good])), ["status.conditions[1].type"]);
        let bad = json!({"type": "a b", "status": "x", "reason": "1a", "observedGeneration": -1});
        let wanted = ["type", "status", "observedGeneration", "lastTransitionTime", "reason"];
        assert_eq!(told(json!([bad])), wanted.map(|member| format!("status.conditions[0].{member}")));
    }

    #[test]
    fn a_claim_is_given_storage_alone() {
        let status = json!({
            "capacity": {"storage": "-1"},
            "allocatedResources": {"cpu": "1"},
            "allocatedResourceStatuses": {"storage": "Foo"},
        });
        let found: Vec<String> = claim_errors(&status).into_iter().map(|e| e.message).collect();
        assert_eq!(found[0], "Invalid value: -1: must be a valid resource quantity");
        assert_eq!(found[1], "Unsupported value: \"cpu\": supported values: \"storage\"");
        assert!(
            found[2].starts_with("Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\"")
        );
    }
}
