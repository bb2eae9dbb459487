//! Which pods a quota counts: its scopes and the selector of scopes (`ValidateResourceQuotaSpec`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::internal_form::internal_text;
use crate::kind_rules::{given, items_of, spec_of, text_of};
use crate::limits::is_quota_standard;
use crate::schema::FieldError;

const IMMUTABLE: &str = "field is immutable";
/// About how many bytes are told of one quota. The real server tells everything, however often.
const LONGEST_TEXT: usize = 1 << 20;

/// Whether a quota of this scope can measure it (`IsResourceQuotaScopeValidForResource`).
fn is_scoped(scope: &str, measure: &str) -> bool {
    const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => measure == "pods",
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            measure == "pods" || COMPUTE.contains(&measure)
        }
        "VolumeAttributesClass" => matches!(measure, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// The standard measures of the quota that mean nothing within this scope.
fn unscoped<'q>(spec: &'q Value, scope: &'q str) -> impl Iterator<Item = &'q String> {
    let measured = spec.get("hard").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    measured.filter(move |name| is_quota_standard(name) && !is_scoped(scope, name))
}

/// How many pairs of scopes exclude each other.
fn conflicts(has: impl Fn(&str) -> bool) -> usize {
    let pairs = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];
    pairs.into_iter().filter(|(one, other)| has(one) && has(other)).count()
}

/// `validateScopedResourceSelectorRequirement`.
fn scope_selector_errors(spec: &Value, known: &[&str]) -> Vec<FieldError> {
    const FIXED: [&str; 5] =
        ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];
    let Some(selector) = given(spec, "scopeSelector") else { return Vec::new() };
    let at = "spec.scopeSelector.matchExpressions";
    let expressions = items_of(selector, "matchExpressions");
    let shown = internal_text("ScopeSelector", selector);
    let most = LONGEST_TEXT / shown.len();
    let mut errors = Vec::new();
    for expression in expressions {
        if errors.len() > most {
            break;
        }
        let (scope, operator) = (text_of(expression, "scopeName"), text_of(expression, "operator"));
        let values = items_of(expression, "values");
        if !known.contains(&scope) {
            errors.push(FieldError::invalid_text(format!("{at}.scopeName"), scope, "unsupported scope"));
        }
        for _ in unscoped(spec, scope).take(most + 1) {
            errors.push(FieldError::invalid_shown(at, &shown, "unsupported scope applied to resource"));
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
    for _ in 0..conflicts(|wanted| expressions.iter().any(|expression| text_of(expression, "scopeName") == wanted)) {
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
    let shown = Value::from(scopes.to_vec()).to_string();
    let refuse = |why: &str| FieldError::invalid_shown("spec.scopes", &shown, why);
    let most = LONGEST_TEXT / shown.len();
    let mut errors = Vec::new();
    for scope in scopes.iter().filter_map(Value::as_str) {
        if errors.len() > most {
            break;
        }
        if !KNOWN.contains(&scope) {
            errors.push(refuse("unsupported scope"));
        }
        let odd = unscoped(spec, scope).take(most + 1);
        errors.extend(odd.map(|_| refuse("unsupported scope applied to resource")));
    }
    for _ in 0..conflicts(|wanted| scopes.iter().any(|scope| scope == wanted)) {
        errors.push(refuse("conflicting scopes"));
    }
    let set = |scopes: &[Value]| scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>();
    if old.is_some_and(|old| set(items_of(spec_of(old), "scopes")) != set(scopes)) {
        errors.push(refuse(IMMUTABLE));
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
    #[test]
    fn a_scope_is_held_against_standard_measures_alone() {
        let told = |scope: &str, measure: &str| {
            scope_errors(&json!({"spec": {"hard": {measure: "1"}, "scopes": [scope]}}), None).len()
        };
        for free in ["requests.nvidia.com/gpu", "count/jobs.batch", "pods"] {
            assert_eq!(told("NotTerminating", free), 0, "{free}");
        }
        for odd in ["services", "hugepages-2Mi", "requests.hugepages-2Mi"] {
            assert_eq!(told("NotTerminating", odd), 1, "{odd}");
        }
        assert_eq!(told("VolumeAttributesClass", "requests.storage"), 0);
        assert_eq!(told("VolumeAttributesClass", "pods"), 1);
    }

    #[test]
    fn what_is_told_of_scopes_is_bounded() {
        let hard: serde_json::Map<_, _> = (0..2000).map(|n| (format!("hugepages-{n}"), "1".into())).collect();
        let expression = json!({"scopeName": "PriorityClass", "operator": "Exists"});
        let (scopes, expressions) = (vec!["PriorityClass"; 1000], vec![expression; 1000]);
        let selector = json!({"matchExpressions": expressions});
        let quota = json!({"spec": {"hard": hard, "scopes": scopes, "scopeSelector": selector}});
        let told: usize = scope_errors(&quota, None).iter().map(|e| e.message.len()).sum();
        assert!((LONGEST_TEXT..4 * LONGEST_TEXT).contains(&told), "{told}");
    }
}
