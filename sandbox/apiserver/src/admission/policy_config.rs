//! Validation of the policies and bindings themselves (`pkg/apis/admissionregistration/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::config::{
    DNS_1035_TEXT, condition_errors, is_dns_1035_label, items_of, rule_errors, selector_errors, text_of,
};
use super::expression::{Expression, Names, Wanted};
use super::matching::{Compiled, compile_variables};
use crate::meta::{qualified_name_problems, subdomain_problems};
use crate::schema::{FieldError, RESERVED_WORDS};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const MOST_ANNOTATIONS: usize = 20;
const LONGEST_ANNOTATION: usize = 5 * 1024;

pub fn set_of<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|v| !v.is_null())
}

/// All violations of a ValidatingAdmissionPolicy after defaulting. On an update, unchanged match conditions are left
/// alone.
pub fn validate_policy(policy: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let (mut errors, names) = head_errors(spec, old, Vec::new());
    let (validations, annotations) = (items_of(spec, "validations"), items_of(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required("spec.validations", why));
        errors.push(FieldError::required("spec.auditAnnotations", why));
        return errors;
    }
    for (i, validation) in validations.iter().enumerate() {
        errors.extend(validation_errors(&format!("spec.validations[{i}]"), validation, &names));
    }
    errors.extend(annotation_errors(crate::meta::object_name(policy), annotations, &names));
    errors
}

/// The violations in what policies of both kinds have, and the names that the rest of a policy may use. `operations`
/// are those of the operations that it names.
pub fn head_errors(spec: &Value, old: Option<&Value>, operations: Vec<FieldError>) -> (Vec<FieldError>, Names) {
    let mut errors = Vec::new();
    match set_of(spec, "failurePolicy") {
        None => errors.push(FieldError::required("spec.failurePolicy", "")),
        Some(given) if !matches!(given.as_str(), Some("Fail" | "Ignore")) => {
            errors.push(FieldError::not_supported("spec.failurePolicy", given, &["Fail", "Ignore"]));
        }
        Some(_) => {}
    }
    let kind = set_of(spec, "paramKind");
    errors.extend(kind.into_iter().flat_map(param_kind_errors));
    match set_of(spec, "matchConstraints") {
        None => errors.push(FieldError::required("spec.matchConstraints", "")),
        Some(constraints) => {
            errors.extend(matching_errors("spec.matchConstraints", constraints));
            if items_of(constraints, "resourceRules").is_empty() {
                errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    errors.extend(operations);
    let before = old.and_then(|o| o.pointer("/spec/matchConditions"));
    if before.is_none() || before != spec.get("matchConditions") {
        errors.extend(condition_errors("spec.matchConditions", items_of(spec, "matchConditions"), kind.is_some()));
    }
    let Compiled { variables, names } = compile_variables(spec, kind.is_some());
    for (i, (name, expression)) in variables.iter().enumerate() {
        errors.extend(variable_errors(&format!("spec.variables[{i}]"), name, expression));
    }
    (errors, names)
}

/// All violations of a ValidatingAdmissionPolicyBinding after defaulting.
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let spec = binding.get("spec").unwrap_or(&Value::Null);
    let mut errors = binding_errors(spec);
    errors.extend(action_errors(items_of(spec, "validationActions")));
    errors
}

/// The violations in what bindings of both kinds have.
pub fn binding_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text_of(spec, "policyName") {
        "" => errors.push(FieldError::required("spec.policyName", "")),
        name => {
            let problems = subdomain_problems(name);
            errors.extend(problems.iter().map(|why| FieldError::invalid_text("spec.policyName", name, why)));
        }
    }
    errors.extend(set_of(spec, "paramRef").into_iter().flat_map(param_ref_errors));
    let matching = set_of(spec, "matchResources").into_iter();
    errors.extend(matching.flat_map(|m| matching_errors("spec.matchResources", m)));
    errors
}

fn action_errors(actions: &[Value]) -> Vec<FieldError> {
    let path = "spec.validationActions";
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, action) in actions.iter().enumerate() {
        let name = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&name) {
            errors.push(FieldError::not_supported(format!("{path}[{i}]"), action, &ACTIONS));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
            response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, &Value::from(actions.to_vec()), why));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
    errors
}

fn matching_errors(path: &str, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match set_of(value, "matchPolicy") {
        None => errors.push(FieldError::required(format!("{path}.matchPolicy"), "")),
        Some(given) if !matches!(given.as_str(), Some("Equivalent" | "Exact")) => {
            errors.push(FieldError::not_supported(format!("{path}.matchPolicy"), given, &["Equivalent", "Exact"]));
        }
        Some(_) => {}
    }
    for key in ["namespaceSelector", "objectSelector"] {
        let field = format!("{path}.{key}");
        match set_of(value, key) {
            None => errors.push(FieldError::required(field, "")),
            Some(selector) => errors.extend(selector_errors(&field, selector)),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items_of(value, key).iter().enumerate() {
            errors.extend(named_rule_errors(&format!("{path}.{key}[{i}]"), rule));
        }
    }
    errors
}

fn named_rule_errors(path: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, name) in items_of(rule, "resourceNames").iter().filter_map(Value::as_str).enumerate() {
        let field = format!("{path}.resourceNames[{i}]");
        errors.extend(segment_problems(name).iter().map(|why| FieldError::invalid_text(field.clone(), name, why)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    errors.extend(rule_errors(path, rule));
    errors
}

/// `path.ValidatePathSegmentName`.
fn segment_problems(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let contained = ["/", "%"].into_iter().filter(|c| name.contains(c));
    contained.map(|c| format!("may not contain '{c}'")).collect()
}

fn param_kind_errors(kind: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = "spec.paramKind.apiVersion";
    let given = text_of(kind, "apiVersion");
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if given.matches('/').count() > 1 {
        errors.push(FieldError::invalid_text(field, given, &format!("unexpected GroupVersion string: {given}")));
    } else {
        let (group, version) = given.split_once('/').unwrap_or(("", given));
        let problems = if group.is_empty() { Vec::new() } else { subdomain_problems(group) };
        if !problems.is_empty() {
            errors.push(FieldError::invalid_text(field, group, &problems.join(",")));
        }
        if version.is_empty() {
            errors.push(FieldError::invalid_text(field, given, "version must be specified"));
        } else if !is_dns_1035_label(version) {
            errors.push(FieldError::invalid_text(field, version, DNS_1035_TEXT));
        }
    }
    match text_of(kind, "kind") {
        "" => errors.push(FieldError::required("spec.paramKind.kind", "")),
        name if !is_dns_1035_label(&name.to_lowercase()) => {
            let why = format!("may have mixed case, but should otherwise match: {DNS_1035_TEXT}");
            errors.push(FieldError::invalid_text("spec.paramKind.kind", name, &why));
        }
        _ => {}
    }
    errors
}

fn param_ref_errors(reference: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, selector) = (text_of(reference, "name"), set_of(reference, "selector"));
    let exclusive = "name and selector are mutually exclusive";
    let field = "spec.paramRef.name";
    errors.extend(segment_problems(name).iter().map(|why| FieldError::invalid_text(field, name, why)));
    if !name.is_empty() && selector.is_some() {
        errors.push(FieldError::forbidden(field, exclusive));
    }
    if let Some(selector) = selector {
        errors.extend(selector_errors("spec.paramRef.selector", selector));
        if !name.is_empty() {
            errors.push(FieldError::forbidden("spec.paramRef.selector", exclusive));
        }
    }
    if name.is_empty() && selector.is_none() {
        errors.push(FieldError::required("spec.paramRef", "one of name or selector must be specified"));
    }
    let field = "spec.paramRef.parameterNotFoundAction";
    match text_of(reference, "parameterNotFoundAction") {
        "" => errors.push(FieldError::required(field, "")),
        "Allow" | "Deny" => {}
        other => errors.push(FieldError::not_supported(field, &other.into(), &["Deny", "Allow"])),
    }
    errors
}

fn variable_errors(path: &str, name: &str, expression: &Expression) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "name is not specified"));
    } else if !is_identifier(name) {
        errors.push(FieldError::invalid_text(format!("{path}.name"), name, "must be a valid CEL identifier"));
    }
    let field = format!("{path}.expression");
    if expression.source.trim().is_empty() {
        errors.push(FieldError::required(field, "expression is not specified"));
    } else if let Some(why) = expression.error() {
        errors.push(FieldError::invalid_text(field, &expression.source, why));
    }
    errors
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| word(c) && !c.is_ascii_digit())
        && name.chars().all(word)
        && !RESERVED_WORDS.contains(&name)
}

fn validation_errors(path: &str, validation: &Value, names: &Names) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (expression, message) = (text_of(validation, "expression"), text_of(validation, "message"));
    let field = format!("{path}.expression");
    if expression.trim().is_empty() {
        errors.push(FieldError::required(field, "expression is not specified"));
    } else if let Some(why) = Expression::compile(expression, names, Wanted::Bool).error() {
        errors.push(FieldError::invalid_text(field, expression, why));
    }
    let computed = text_of(validation, "messageExpression");
    let field = format!("{path}.messageExpression");
    if !computed.is_empty() && computed.trim().is_empty() {
        errors.push(FieldError::invalid_text(field, computed, "must be non-empty if specified"));
    } else if !computed.is_empty() {
        let names = Names { authorizer: false, ..names.clone() };
        let compiled = Expression::compile(computed, &names, Wanted::Text);
        errors.extend(compiled.error().map(|why| FieldError::invalid_text(field, computed, why)));
    }
    let field = format!("{path}.message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid_text(field, message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid_text(field, message, "must not contain line breaks"));
    }
    if let Some(reason) = set_of(validation, "reason").filter(|r| !r.as_str().is_some_and(|r| REASONS.contains(&r))) {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &REASONS));
    }
    errors
}

fn annotation_errors(policy: &str, annotations: &[Value], names: &Names) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    if annotations.len() > MOST_ANNOTATIONS {
        let why = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid("spec.auditAnnotations", &Value::from(annotations.to_vec()), &why));
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{i}]");
        let (key, source) = (text_of(annotation, "key"), text_of(annotation, "valueExpression"));
        let full = format!("{policy}/{key}");
        if policy.is_empty() {
            errors.push(FieldError::invalid_text(format!("{path}.key"), key, "requires metadata.name be non-empty"));
        } else {
            let problems = qualified_name_problems(&full);
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{path}.key"), &full, why)));
        }
        let field = format!("{path}.valueExpression");
        let trimmed = source.trim();
        if trimmed.is_empty() {
            errors.push(FieldError::required(field, "valueExpression is not specified"));
        } else if trimmed.len() > LONGEST_ANNOTATION {
            let why = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            errors.push(FieldError::required(field, &why));
        } else if let Some(why) = Expression::compile(trimmed, names, Wanted::TextOrNull).error() {
            errors.push(FieldError::invalid_text(field, source, why));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(format!("{path}.key"), &key.into()));
        }
    }
    errors
}
