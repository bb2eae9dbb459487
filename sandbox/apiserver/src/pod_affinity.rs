//! Where a pod wants to be: node and pod affinity, and how it spreads (`validateAffinity`,
//! `validateTopologySpreadConstraints` of `pkg/apis/core/validation`).

use serde_json::Value;

use crate::meta::{label_problems, label_value_problems, qualified_name_problems, subdomain_problems};
use crate::podspec::{NULL, items_of, text_of};
use crate::schema::FieldError;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EMPTY: &str = "can not be empty";

/// `at` is the spec.
pub fn affinity_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let affinity = spec.get("affinity").unwrap_or(&NULL);
    let mut errors = node_errors(affinity.get("nodeAffinity").unwrap_or(&NULL), &format!("{at}.affinity.nodeAffinity"));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (terms, at) = (affinity.get(kind).unwrap_or(&NULL), format!("{at}.affinity.{kind}"));
        for (index, term) in items_of(terms, REQUIRED).iter().enumerate() {
            errors.extend(term_errors(term, &format!("{at}.{REQUIRED}[{index}]")));
        }
        for (index, weighted) in items_of(terms, PREFERRED).iter().enumerate() {
            let at = format!("{at}.{PREFERRED}[{index}]");
            errors.extend(weight_error(weighted, &at));
            let term = weighted.get("podAffinityTerm").unwrap_or(&NULL);
            errors.extend(term_errors(term, &format!("{at}.podAffinityTerm")));
        }
    }
    errors
}

fn node_errors(affinity: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(required) = affinity.get(REQUIRED).filter(|r| r.is_object()) {
        errors.extend(node_selector_errors(required, &format!("{at}.{REQUIRED}")));
    }
    for (index, weighted) in items_of(affinity, PREFERRED).iter().enumerate() {
        let at = format!("{at}.{PREFERRED}[{index}]");
        errors.extend(weight_error(weighted, &at));
        errors.extend(selector_errors(weighted.get("preference").unwrap_or(&NULL), &format!("{at}.preference")));
    }
    errors
}

fn weight_error(weighted: &Value, at: &str) -> Option<FieldError> {
    let weight = weighted.get("weight").and_then(Value::as_i64).unwrap_or(0);
    (!(1..=100).contains(&weight))
        .then(|| FieldError::invalid(format!("{at}.weight"), &weight.into(), "must be in the range 1-100"))
}

/// `ValidateNodeSelector`.
pub fn node_selector_errors(selector: &Value, at: &str) -> Vec<FieldError> {
    let at = format!("{at}.nodeSelectorTerms");
    let terms = items_of(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        return vec![FieldError::required(at, "must have at least one node selector term")];
    }
    terms.iter().enumerate().flat_map(|(index, term)| selector_errors(term, &format!("{at}[{index}]"))).collect()
}

/// A term of a node selector.
fn selector_errors(term: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, expression) in items_of(term, "matchExpressions").iter().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let (operator, values) = (text_of(expression, "operator"), items_of(expression, "values").len());
        let values_at = format!("{at}.values");
        match operator {
            "In" | "NotIn" if values == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(values_at, why));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(values_at, why));
            }
            "Gt" | "Lt" if values != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(values_at, why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid_text(format!("{at}.operator"), operator, why));
            }
        }
        let key = text_of(expression, "key");
        let problems = qualified_name_problems(key);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.key"), key, why)));
        for (place, value) in items_of(expression, "values").iter().filter_map(Value::as_str).enumerate() {
            let field = format!("{at}.values[{place}]");
            let problems = label_value_problems(value);
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), value, why)));
        }
    }
    for (index, expression) in items_of(term, "matchFields").iter().enumerate() {
        errors.extend(field_errors(expression, &format!("{at}.matchFields[{index}]")));
    }
    errors
}

/// A node is chosen by its name alone.
fn field_errors(expression: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (operator, values) = (text_of(expression, "operator"), items_of(expression, "values"));
    if !matches!(operator, "In" | "NotIn") {
        errors.push(FieldError::invalid_text(format!("{at}.operator"), operator, "not a valid selector operator"));
    } else if values.len() != 1 {
        let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(format!("{at}.values"), why));
    }
    let key = text_of(expression, "key");
    if key != "metadata.name" {
        errors.push(FieldError::invalid_text(format!("{at}.key"), key, "not a valid field selector key"));
        return errors;
    }
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        let problems = subdomain_problems(value);
        let field = format!("{at}.values[{index}]");
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), value, why)));
    }
    errors
}

fn term_errors(term: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for kind in ["labelSelector", "namespaceSelector"] {
        let selector = term.get(kind).filter(|selector| selector.is_object());
        errors.extend(selector.into_iter().flat_map(|s| crate::admission::selector_errors(&format!("{at}.{kind}"), s)));
    }
    for name in items_of(term, "namespaces").iter().filter_map(Value::as_str) {
        let problems = label_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.namespace"), name, why)));
    }
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        if !items_of(term, list).is_empty() && term.get("labelSelector").is_none_or(Value::is_null) {
            let why = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(format!("{at}.{list}"), why));
        }
    }
    let key = text_of(term, "topologyKey");
    let field = format!("{at}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(field.as_str(), EMPTY));
    }
    let problems = qualified_name_problems(key);
    errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), key, why)));
    errors
}

/// `at` is the spec.
pub fn spread_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let constraints = items_of(spec, "topologySpreadConstraints");
    for (index, constraint) in constraints.iter().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        let skew = constraint.get("maxSkew").and_then(Value::as_i64).unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(format!("{at}.maxSkew"), &skew.into(), "must be greater than zero"));
        }
        let (key, action) = (text_of(constraint, "topologyKey"), text_of(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(format!("{at}.topologyKey"), EMPTY));
        }
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&action) {
            errors.push(FieldError::not_supported(format!("{at}.whenUnsatisfiable"), &action.into(), &known));
        }
        let same =
            |other: &&Value| text_of(other, "topologyKey") == key && text_of(other, "whenUnsatisfiable") == action;
        let later = constraints.iter().skip(index + 1).find(same);
        if later.is_some() {
            let field = format!("{at}.{{topologyKey, whenUnsatisfiable}}");
            errors.push(FieldError::duplicate(field, &format!("{{{key}, {action}}}").into()));
        }
        errors.extend(choice_errors(constraint, &at));
        if let Some(domains) = constraint.get("minDomains").and_then(Value::as_i64) {
            let field = format!("{at}.minDomains");
            if domains <= 0 {
                errors.push(FieldError::invalid(field.as_str(), &domains.into(), "must be greater than zero"));
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(field, &domains.into(), &why));
            }
        }
    }
    errors
}

/// Which pods and nodes a constraint counts.
fn choice_errors(constraint: &Value, at: &str) -> Vec<FieldError> {
    let selector = constraint.get("labelSelector").filter(|selector| selector.is_object());
    let mut errors = Vec::new();
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let known = ["Honor", "Ignore"];
        let given = constraint.get(key).and_then(Value::as_str).filter(|given| !known.contains(given));
        errors.extend(given.map(|given| FieldError::not_supported(format!("{at}.{key}"), &given.into(), &known)));
    }
    let keys = items_of(constraint, "matchLabelKeys");
    if selector.is_none() && !keys.is_empty() {
        let why = "must not be specified when labelSelector is not set";
        errors.push(FieldError::forbidden(format!("{at}.matchLabelKeys"), why));
    }
    for (index, key) in keys.iter().enumerate().filter(|_| selector.is_some()) {
        let (field, key) = (format!("{at}.matchLabelKeys[{index}]"), key.as_str().unwrap_or_default());
        let problems = qualified_name_problems(key);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), key, why)));
    }
    let at = format!("{at}.labelSelector");
    errors.extend(selector.into_iter().flat_map(|selector| crate::admission::selector_errors(&at, selector)));
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
    fn a_node_affinity_has_terms_and_weights() {
        let node = json!({REQUIRED: {"nodeSelectorTerms": []}, PREFERRED: [{"weight": 0, "preference": {}}]});
        let errors = affinity_errors(&json!({"affinity": {"nodeAffinity": node}}), "s");
        assert_eq!(
            fields(&errors),
            [
                format!("s.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"),
                format!("s.affinity.nodeAffinity.{PREFERRED}[0].weight")
            ]
        );
    }

    #[test]
    fn a_node_is_chosen_by_its_name_and_by_labels() {
        let term = json!({"matchFields": [{"key": "spec.x", "operator": "Exists"}],
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]});
        let node = json!({REQUIRED: {"nodeSelectorTerms": [term]}});
        assert_eq!(affinity_errors(&json!({"affinity": {"nodeAffinity": node}}), "s").len(), 3);
    }

    #[test]
    fn a_spread_counts_pods_that_a_selector_can_name() {
        let spread = |more: Value| {
            let mut one = json!({"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"});
            one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spread_errors(&json!({"topologySpreadConstraints": [one]}), "s").len()
        };
        assert_eq!(spread(json!({"labelSelector": {"matchLabels": {"a": "b c"}}})), 1);
        assert_eq!(spread(json!({"matchLabelKeys": ["k"], "nodeTaintsPolicy": "x"})), 2);
        assert_eq!(spread(json!({"matchLabelKeys": ["k"], "labelSelector": {}})), 0);
    }

    #[test]
    fn a_spread_says_how_and_where() {
        let odd = json!({"maxSkew": 0, "whenUnsatisfiable": "x"});
        assert_eq!(spread_errors(&json!({"topologySpreadConstraints": [odd]}), "s").len(), 3);
        let one = json!({"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"});
        let twice = json!({"topologySpreadConstraints": [one, one]});
        let field = "s.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}";
        assert_eq!(fields(&spread_errors(&twice, "s")), [field]);
    }
}
