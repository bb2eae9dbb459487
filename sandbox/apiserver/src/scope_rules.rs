//! Which pods a quota counts: its scopes and the selector of scopes (`ValidateResourceQuotaSpec`).

use serde_json::Value;

use crate::internal_form::internal_text;
use crate::kind_rules::{given, items_of, spec_of, text_of};
use crate::schema::FieldError;

const IMMUTABLE: &str = "field is immutable";

/// Whether a quota of this scope can measure it (`IsResourceQuotaScopeValidForResource`).
fn is_scoped(scope: &str, measure: &str) -> bool {
    const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    let pods = matches!(measure, "pods" | "count/pods");
    match scope {
        "BestEffort" => pods,
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            pods || COMPUTE.contains(&measure)
        }
        _ => true,
    }
}

/// `validateScopedResourceSelectorRequirement`.
fn scope_selector_errors(spec: &Value, known: &[&str]) -> Vec<FieldError> {
    const FIXED: [&str; 5] =
        ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];
    let Some(selector) = given(spec, "scopeSelector") else { return Vec::new() };
    let at = "spec.scopeSelector.matchExpressions";
    let expressions = items_of(selector, "matchExpressions");
    let mut errors = Vec::new();
    for expression in expressions {
        let (scope, operator) = (text_of(expression, "scopeName"), text_of(expression, "operator"));
        let values = items_of(expression, "values");
        if !known.contains(&scope) {
            errors.push(FieldError::invalid_text(format!("{at}.scopeName"), scope, "unsupported scope"));
        }
        let measured = spec.get("hard").and_then(Value::as_object).into_iter().flatten();
        for _ in measured.filter(|(name, _)| !is_scoped(scope, name)) {
            let why = "unsupported scope applied to resource";
            errors.push(FieldError::invalid_shown(at, &internal_text("ScopeSelector", selector), why));
        }
        if FIXED.contains(&scope) && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                       or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid_text(format!("{at}.operator"), operator, why));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(format!("{at}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(format!("{at}.values"), &Value::from(values.to_vec()), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid_text(format!("{at}.operator"), other, why));
            }
        }
    }
    let has = |wanted: &str| expressions.iter().any(|expression| text_of(expression, "scopeName") == wanted);
    if (has("BestEffort") && has("NotBestEffort")) || (has("Terminating") && has("NotTerminating")) {
        let scopes = spec.get("scopes").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(at, scopes, "conflicting scopes"));
    }
    errors
}

/// The scopes of a quota: known ones that do not exclude each other, for as long as the quota is there.
pub fn scope_errors(quota: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const KNOWN: [&str; 7] = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    let spec = spec_of(quota);
    let scopes = items_of(spec, "scopes");
    let has = |scope: &str| scopes.iter().any(|s| s == scope);
    let shown = Value::from(scopes.to_vec());
    let mut errors = Vec::new();
    let mut refuse = |why: &str| errors.push(FieldError::invalid("spec.scopes", &shown, why));
    for scope in scopes {
        if !scope.as_str().is_some_and(|s| KNOWN.contains(&s)) {
            refuse("unsupported scope");
        }
        let measured = spec.get("hard").and_then(Value::as_object).into_iter().flatten();
        let odd = measured.filter(|(name, _)| !is_scoped(scope.as_str().unwrap_or_default(), name));
        odd.for_each(|_| refuse("unsupported scope applied to resource"));
    }
    if (has("BestEffort") && has("NotBestEffort")) || (has("Terminating") && has("NotTerminating")) {
        refuse("conflicting scopes");
    }
    if old.is_some_and(|old| items_of(spec_of(old), "scopes") != scopes) {
        refuse(IMMUTABLE);
    }
    errors.extend(scope_selector_errors(spec, &KNOWN));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scope_selector_is_about_pods_of_a_kind() {
        let quota = |expression: Value| json!({"spec": {"scopeSelector": {"matchExpressions": [expression]}}});
        let told = |scope: &str, operator: &str, values: Value| {
            scope_errors(&quota(json!({"scopeName": scope, "operator": operator, "values": values})), None).len()
        };
        assert_eq!(told("PriorityClass", "In", json!(["a"])), 0);
        assert_eq!(told("BestEffort", "In", json!(["a"])), 1);
        assert_eq!(told("PriorityClass", "Exists", json!(["a"])), 1);
        assert_eq!(told("Foo", "Bar", json!([])), 2);
    }

    #[test]
    fn scopes_do_not_exclude_each_other() {
        let quota = |scopes: Value| json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}});
        assert!(scope_errors(&quota(json!(["BestEffort"])), None).is_empty());
        assert_eq!(scope_errors(&quota(json!(["BestEffort", "NotBestEffort"])), None).len(), 1);
        assert_eq!(scope_errors(&quota(json!(["BestEffort"])), Some(&quota(json!([])))).len(), 1);
    }
}
