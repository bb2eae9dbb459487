//! Validation of mutating policies and their bindings (`pkg/apis/admissionregistration/validation`).

use serde_json::Value;

use super::config::{items_of, text_of};
use super::expression::{Expression, Names, Wanted};
use super::policy_config::{binding_errors, head_errors, set_of};
use crate::schema::FieldError;

const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];

/// All violations of a MutatingAdmissionPolicy after defaulting. On an update, unchanged match conditions are left
/// alone.
pub fn validate_mutating_policy(policy: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let operations = operation_errors("spec.matchConstraints", spec.get("matchConstraints"));
    let (mut errors, names) = head_errors(spec, old, operations);
    let names = Names { patches: true, ..names };
    let mutations = items_of(spec, "mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        errors.extend(mutation_errors(&format!("spec.mutations[{i}]"), mutation, &names));
    }
    let field = "spec.reinvocationPolicy";
    match text_of(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required(field, "")),
        given if !REINVOCATIONS.contains(&given) => {
            errors.push(FieldError::not_supported(field, &given.into(), &REINVOCATIONS));
        }
        _ => {}
    }
    errors
}

/// All violations of a MutatingAdmissionPolicyBinding after defaulting.
pub fn validate_mutating_binding(binding: &Value) -> Vec<FieldError> {
    let spec = binding.get("spec").unwrap_or(&Value::Null);
    let mut errors = binding_errors(spec);
    errors.extend(operation_errors("spec.matchResources", spec.get("matchResources")));
    errors
}

/// Only what is created or updated can be changed.
fn operation_errors(path: &str, matching: Option<&Value>) -> Vec<FieldError> {
    let rules = matching.map_or(&[][..], |matching| items_of(matching, "resourceRules"));
    let operations = rules.iter().flat_map(|rule| items_of(rule, "operations"));
    let refused = operations.filter(|o| !o.as_str().is_some_and(|o| OPERATIONS.contains(&o)));
    let field = format!("{path}.resourceRules.operations");
    refused.map(|o| FieldError::not_supported(field.clone(), o, &OPERATIONS)).collect()
}

fn mutation_errors(path: &str, mutation: &Value, names: &Names) -> Vec<FieldError> {
    let given = text_of(mutation, "patchType");
    let (wanted, other, made) = match given {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Wanted::Object),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Wanted::Patches),
        "" => return vec![FieldError::required(format!("{path}.patchType"), "")],
        _ => return vec![FieldError::not_supported(format!("{path}.patchType"), &given.into(), &PATCH_TYPES)],
    };
    let mut errors = Vec::new();
    match set_of(mutation, wanted) {
        None => {
            let why = format!("must be specified when patchType is {given}");
            errors.push(FieldError::required(format!("{path}.{wanted}"), &why));
        }
        Some(part) => {
            let field = format!("{path}.{wanted}.expression");
            let source = text_of(part, "expression").trim();
            if source.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else if let Some(why) = Expression::compile(source, names, made).error() {
                errors.push(FieldError::invalid_text(field, source, why));
            }
        }
    }
    if set_of(mutation, other).is_some() {
        let why = format!("must not be specified when patchType is {given}");
        errors.push(FieldError::invalid_text(format!("{path}.{other}"), &format!("{{{other}}}"), &why));
    }
    errors
}
