//! What a HorizontalPodAutoscaler may measure and how fast it may act (`pkg/apis/autoscaling/validation`).

use serde_json::Value;

use crate::kind_rules::{given, invalid_all, items_of, text_of, unsupported};
use crate::limits::Amount;
use crate::schema::FieldError;

const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// The order in which sources are looked at: of several only the first is.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

/// The measures and the behavior of a spec.
pub fn measure_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, metric) in items_of(spec, "metrics").iter().enumerate() {
        errors.extend(metric_errors(metric, &format!("spec.metrics[{index}]")));
    }
    for side in ["scaleUp", "scaleDown"] {
        let rules = given(spec, "behavior").and_then(|behavior| given(behavior, side));
        errors.extend(rules.into_iter().flat_map(|rules| speed_errors(rules, &format!("spec.behavior.{side}"))));
    }
    errors
}

fn metric_errors(metric: &Value, at: &str) -> Vec<FieldError> {
    let kind = text_of(metric, "type");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{at}.type"), "must specify a metric source type"));
    }
    let sources: Vec<&str> = SOURCES.into_iter().filter(|source| given(metric, source).is_some()).collect();
    if let Some(first) = sources.first() {
        errors.extend(source_errors(first, &metric[*first], &format!("{at}.{first}")));
    }
    if !KINDS.contains(&kind) {
        // It is told twice: by what is declared, and by what is written out.
        let odd = FieldError::not_supported(format!("{at}.type"), &kind.into(), &KINDS);
        errors.extend([odd.clone(), odd]);
        return errors;
    }
    let expected = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
    if !sources.contains(&expected.as_str()) {
        let why = "must populate information for the given metric source";
        errors.push(FieldError::required(format!("{at}.{expected}"), why));
    }
    if sources.len() > 1 {
        let others = sources.into_iter().filter(|source| *source != expected);
        let why = "must populate the given metric source only";
        errors.extend(others.map(|source| FieldError::forbidden(format!("{at}.{source}"), why)));
    }
    errors
}

fn source_errors(kind: &str, source: &Value, at: &str) -> Vec<FieldError> {
    const EITHER: &str = "must set either a target raw value or a target utilization";
    const BOTH: &str = "may not set both a target raw value and a target utilization";
    let target = source.get("target").unwrap_or(&Value::Null);
    let has = |key: &str| given(target, key).is_some();
    let field = |member: &str| format!("{at}.target.{member}");
    let mut errors = target_errors(target, &format!("{at}.target"));
    if matches!(kind, "object" | "external" | "pods") {
        let name = source.pointer("/metric/name").and_then(Value::as_str).unwrap_or_default();
        errors.extend(path_name_errors(&format!("{at}.metric.name"), name, "must specify a metric name"));
    }
    match kind {
        "object" => {
            let described = source.get("describedObject").unwrap_or(&Value::Null);
            for key in ["kind", "name"] {
                errors.extend(path_name_errors(&format!("{at}.describedObject.{key}"), text_of(described, key), ""));
            }
            if !has("value") && !has("averageValue") {
                let why = "must set either a target value or averageValue";
                errors.push(FieldError::required(field("averageValue"), why));
            }
        }
        "external" => match (has("value"), has("averageValue")) {
            (false, false) => {
                let why = "must set either a target value for metric or a per-pod target";
                errors.push(FieldError::required(field("averageValue"), why));
            }
            (true, true) => {
                let why = "may not set both a target value for metric and a per-pod target";
                errors.push(FieldError::forbidden(field("value"), why));
            }
            _ => {}
        },
        "pods" => {
            if !has("averageValue") {
                let why = "must specify a positive target averageValue";
                errors.push(FieldError::required(field("averageValue"), why));
            }
        }
        _ => {
            if text_of(source, "name").is_empty() {
                errors.push(FieldError::required(format!("{at}.name"), "must specify a resource name"));
            }
            if kind == "containerResource" && text_of(source, "container").is_empty() {
                errors.push(FieldError::required(format!("{at}.container"), "must specify a container"));
            }
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => errors.push(FieldError::required(field("averageUtilization"), EITHER)),
                (true, true) => errors.push(FieldError::forbidden(field("averageValue"), BOTH)),
                _ => {}
            }
        }
    }
    errors
}

/// A name that stands in a path.
pub fn path_name_errors(field: &str, name: &str, missing: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(field, missing)];
    }
    invalid_all(field, name, &crate::meta::path_segment_problems(name, false))
}

fn target_errors(target: &Value, at: &str) -> Vec<FieldError> {
    let kind = text_of(target, "type");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{at}.type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid_text(format!("{at}.type"), kind, why));
    }
    for key in ["value", "averageValue"] {
        let amount = given(target, key).filter(|amount| Amount::parse(amount).is_some_and(|a| !a.is_positive()));
        errors.extend(amount.map(|amount| FieldError::invalid(format!("{at}.{key}"), amount, "must be positive")));
    }
    if let Some(share) = given(target, "averageUtilization").filter(|share| share.as_i64().is_some_and(|n| n < 1)) {
        errors.push(FieldError::invalid(format!("{at}.averageUtilization"), share, "must be greater than 0"));
    }
    errors
}

fn speed_errors(rules: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(window) = rules.get("stabilizationWindowSeconds").and_then(Value::as_i64) {
        let field = format!("{at}.stabilizationWindowSeconds");
        if window < 0 {
            errors.push(FieldError::invalid(field, &window.into(), "must be greater than or equal to zero"));
        } else if window > LONGEST_WINDOW {
            let why = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(field, &window.into(), &why));
        }
    }
    errors.extend(unsupported(rules, "selectPolicy", &format!("{at}.selectPolicy"), &["Disabled", "Max", "Min"]));
    let policies = items_of(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(format!("{at}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = format!("{at}.policies[{index}]");
        let kind = text_of(policy, "type");
        if !["Percent", "Pods"].contains(&kind) {
            errors.push(FieldError::not_supported(format!("{at}.type"), &kind.into(), &["Percent", "Pods"]));
        }
        for key in ["value", "periodSeconds"] {
            let number = policy.get(key).and_then(Value::as_i64).unwrap_or(0);
            if number <= 0 {
                errors.push(FieldError::invalid(format!("{at}.{key}"), &number.into(), "must be greater than zero"));
            } else if key == "periodSeconds" && number > LONGEST_PERIOD {
                let why = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.push(FieldError::invalid(format!("{at}.{key}"), &number.into(), &why));
            }
        }
    }
    let tolerance = given(rules, "tolerance").filter(|amount| Amount::parse(amount).is_some_and(Amount::is_negative));
    let why = "must be greater than or equal to 0";
    errors.extend(tolerance.map(|amount| FieldError::invalid(format!("{at}.tolerance"), amount, why)));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(spec: Value) -> Vec<String> {
        measure_errors(&spec).into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_measure_has_one_source_with_a_target() {
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
        assert!(told(json!({"metrics": [{"type": "Resource", "resource": cpu}]})).is_empty());
        let why = "spec.metrics[0].pods: Required value: must populate information for the given metric source";
        assert_eq!(told(json!({"metrics": [{"type": "Pods", "resource": cpu}]})), [why]);
        assert_eq!(told(json!({"metrics": [{"type": "Foo"}]})).len(), 2);
        let none = json!({"name": "cpu", "target": {"type": "Utilization"}});
        let why = "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or \
                   a target utilization";
        assert_eq!(told(json!({"metrics": [{"type": "Resource", "resource": none}]})), [why]);
    }

    #[test]
    fn a_behavior_says_how_much_in_which_time() {
        let found = told(json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Foo",
            "policies": [{"type": "Foo", "value": 0, "periodSeconds": 1801}], "tolerance": "-1"}}}));
        assert_eq!(found.len(), 6, "{found:?}");
        let why = "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy";
        assert_eq!(told(json!({"behavior": {"scaleDown": {"policies": []}}})), [why]);
    }
}
