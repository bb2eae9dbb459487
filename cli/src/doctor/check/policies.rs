//! Admission policies, which hold while the webhook is away: there, bound, and as this version prints them.
//!
//! Rule: what there is to be is what `caldera manifests` prints. A policy without its binding enforces nothing. An API
//! server fills in what is left out (`pkg/apis/admissionregistration/v1/defaults.go`) and keeps no empty list: neither
//! is a difference.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    CHECK_WEBHOOKS as CHECK, fix_commands::build_registration_command, kinds::lacks_declared_kind,
    printed::list_printed_policies, take_visible,
};
use crate::{
    doctor::{
        facts::Facts,
        finding::{Finding, join_first_names},
    },
    objects::name_of,
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

pub(super) fn check_policies(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = list_printed_policies(facts);
    for (seen, kind, plural, harm) in [
        (&facts.policies, POLICY, "ValidatingAdmissionPolicies", "tenants may write what is ours"),
        (&facts.policy_bindings, BINDING, "ValidatingAdmissionPolicyBindings", "the policies hold nobody"),
    ] {
        let Ok(found) = seen else {
            take_visible(seen, CHECK, plural, &mut findings);
            continue;
        };
        let (mut missing, mut other) = (Vec::new(), Vec::new());
        for wanted in all.iter().filter(|one| one["kind"] == kind) {
            let name = name_of(wanted);
            match found.iter().find(|one| name_of(one) == name) {
                None => missing.push(name),
                Some(found) if lacks_declared_kind(facts, wanted, found) => {}
                Some(found) => {
                    other.extend(list_differences(wanted, found).iter().map(|field| format!("{field} of {name}")));
                }
            }
        }
        let fix = build_registration_command(facts);
        if !missing.is_empty() {
            let what = format!("there is no {kind} {}: while the webhook is away, {harm}", join_first_names(missing));
            findings.push(CHECK.warning(what).fixed_by(&fix));
        }
        if !other.is_empty() {
            let fields = join_first_names(other.iter().map(String::as_str));
            let what = format!("a {kind} is not as this version prints it: {fields}");
            findings.push(CHECK.warning(what).fixed_by(&fix));
        }
    }
    findings
}

/// Fields of the spec that say another thing.
fn list_differences(wanted: &Value, found: &Value) -> BTreeSet<String> {
    let [wanted, found] = [wanted, found].map(|object| drop_defaults(&object["spec"]));
    let names = [&wanted, &found].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys());
    names.filter(|name| wanted[name.as_str()] != found[name.as_str()]).cloned().collect()
}

/// What is said beyond what an API server fills in.
fn drop_defaults(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(name, value)| (name.clone(), drop_defaults(value)));
            kept.filter(|(name, value)| !is_default(name, value)).collect()
        }
        Value::Array(all) => all.iter().map(drop_defaults).collect(),
        other => other.clone(),
    }
}

fn is_default(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        other => {
            let filled_in = [("matchPolicy", "Equivalent"), ("scope", "*"), ("failurePolicy", "Fail")];
            filled_in.iter().any(|(name, word)| field == *name && other == word)
        }
    }
}
