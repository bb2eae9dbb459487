//! What `ObjectMeta` must be, and which members an update may not change
//! (`apimachinery/pkg/api/validation/objectmeta.go`).

use serde_json::Value;

use super::decode::{MEMBERS, OWNER_MEMBERS};
use super::names::name_problems;
use super::*;
use crate::error::go_quote;
use crate::resource::Resource;
use crate::schema::{CauseReason, FieldError};

/// `ValidateObjectMeta` on creation.
pub fn validate_metadata(object: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = metadata_text(object, "generateName");
    if !generate_name.is_empty() {
        for problem in name_problems(resource.rules.name, generate_name, true) {
            errors.push(FieldError::invalid_text("metadata.generateName", generate_name, &problem));
        }
    }
    let name = object_name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for problem in name_problems(resource.rules.name, name, false) {
            errors.push(FieldError::invalid_text("metadata.name", name, &problem));
        }
    }
    if let Some(generation) = object.get("metadata").and_then(|m| m.get("generation")).and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &generation.into(),
            "must be greater than or equal to 0",
        ));
    }
    errors.extend(validate_shared(object));
    errors.extend(finalizer_errors(object, resource.is_custom() || !repeated_checks(resource).1));
    errors
}

/// `ValidateLabels`.
pub fn label_errors(labels: Option<&Value>, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let keys = qualified_name_problems(key).into_iter().map(|why| (key.as_str(), why));
        for (shown, why) in keys.chain(label_value_problems(value).into_iter().map(|why| (value, why))) {
            errors.push(FieldError::invalid_text(field, shown, &why));
        }
    }
    errors
}

/// What is checked on creation and update alike: labels, annotations, owners.
fn validate_shared(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let map = |member: &str| object.get("metadata").and_then(|m| m.get(member)).and_then(Value::as_object);
    errors.extend(label_errors(object.pointer("/metadata/labels"), "metadata.labels"));
    let mut size = 0;
    for (key, value) in map("annotations").into_iter().flatten() {
        for problem in qualified_name_problems(&key.to_lowercase()) {
            errors.push(FieldError::invalid_text("metadata.annotations", key, &problem));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > 262_144 {
        errors.push(FieldError::too_long("metadata.annotations", 262_144));
    }
    errors.extend(owner_errors(object));
    errors
}

fn owner_errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(Value::Array(owners)) = object.get("metadata").and_then(|m| m.get("ownerReferences")) else {
        return errors;
    };
    let mut controller: Option<String> = None;
    for owner in owners {
        let part = |member: &str| owner.get(member).and_then(Value::as_str).unwrap_or_default();
        let api_version = part("apiVersion");
        let (group, version) = match api_version.matches('/').count() {
            0 => ("", api_version),
            1 => api_version.split_once('/').unwrap_or_default(),
            _ => ("", ""),
        };
        if version.is_empty() {
            let field = "metadata.ownerReferences.apiVersion";
            errors.push(FieldError::invalid_text(field, api_version, "version must not be empty"));
        }
        for member in ["kind", "name", "uid"] {
            if part(member).is_empty() {
                let field = format!("metadata.ownerReferences.{member}");
                errors.push(FieldError::invalid_text(field, "", "must not be empty"));
            }
        }
        if group.is_empty() && version == "v1" && part("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError {
                reason: CauseReason::Invalid,
                field: "metadata.ownerReferences".into(),
                message: format!("Invalid value: {}: {why}", go_owner(owner)),
            });
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            if let Some(first) = &controller {
                let list = owners.iter().map(go_owner).collect::<Vec<_>>().join(",");
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}/{}",
                    part("kind"),
                    part("name")
                );
                errors.push(FieldError {
                    reason: CauseReason::Invalid,
                    field: "metadata.ownerReferences".into(),
                    message: format!("Invalid value: [{list}]: {why}"),
                });
            }
            controller = Some(format!("{}/{}", part("kind"), part("name")));
        }
    }
    errors
}

/// An owner reference as Go's encoder prints it: members in the order of the struct.
fn go_owner(owner: &Value) -> String {
    let members = OWNER_MEMBERS
        .iter()
        .filter_map(|member| owner.get(*member).map(|value| format!("{}:{value}", go_quote(member))))
        .collect::<Vec<_>>();
    format!("{{{}}}", members.join(","))
}

/// `ObjectMeta` as Go's encoder prints it; `sorted` when its members went through a map.
pub fn go_text(metadata: &Value, sorted: bool) -> String {
    const ENTRY: [&str; 7] = ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    let ordered = |value: &Value, order: &[&str]| {
        let rank = |key: &str| order.iter().position(|o| *o == key).unwrap_or(order.len());
        let mut members: Vec<(&String, &Value)> = value.as_object().into_iter().flatten().collect();
        if !order.is_empty() {
            members.sort_by_key(|(key, _)| rank(key));
        }
        members.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
    };
    let print = |members: Vec<(String, String)>| {
        let parts: Vec<String> = members.into_iter().map(|(k, v)| format!("{}:{v}", go_quote(&k))).collect();
        format!("{{{}}}", parts.join(","))
    };
    let names: Vec<&str> = if sorted { Vec::new() } else { MEMBERS.iter().map(|(name, _)| *name).collect() };
    let members = ordered(metadata, &names).into_iter().map(|(key, value)| {
        let text = match (key.as_str(), &value) {
            ("managedFields", Value::Array(entries)) => {
                let entries = entries
                    .iter()
                    .map(|entry| print(ordered(entry, &ENTRY).into_iter().map(|(k, v)| (k, v.to_string())).collect()));
                format!("[{}]", entries.collect::<Vec<_>>().join(","))
            }
            _ => value.to_string(),
        };
        (key, text)
    });
    print(members.collect())
}

/// `ValidateFinalizers`: custom resources only get a warning for an unqualified name.
fn finalizer_errors(object: &Value, custom: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = finalizers_of(object);
    for (index, finalizer) in list.iter().enumerate() {
        let problems = qualified_name_problems(finalizer);
        for problem in &problems {
            errors.push(FieldError::invalid_text("metadata.finalizers", finalizer, problem));
        }
        if !custom && !is_known_finalizer(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid_text(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let value: Value = list.into_iter().map(Value::from).collect();
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &value, why));
    }
    errors
}

/// Standard, or with a domain.
pub fn is_known_finalizer(finalizer: &str) -> bool {
    finalizer.contains('/') || matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
}

/// How often a kind's strategy checks on an update what creation asks of metadata, and whether the check for finalizers
/// without a domain is in it.
fn repeated_checks(resource: &Resource) -> (usize, bool) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        _ if resource.is_custom() => (1, false),
        ("policy", "poddisruptionbudgets") | ("" | "events.k8s.io", "events") => (0, true),
        ("coordination.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io", _) => (1, false),
        ("node.k8s.io", _) => (2, false),
        ("", "resourcequotas" | "limitranges" | "replicationcontrollers" | "podtemplates" | "services")
        | ("autoscaling" | "apps" | "scheduling.k8s.io" | "discovery.k8s.io", _)
        | ("networking.k8s.io", "networkpolicies")
        | ("storage.k8s.io", "csidrivers") => (1, true),
        _ => (2, true),
    }
}

/// Whether a kind's strategy looks at an update as at a new object, and not at what may not change.
fn checks_once(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "persistentvolumes" | "limitranges" | "events")
            | ("policy", "poddisruptionbudgets")
            | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
    )
}

/// `ValidateObjectMetaUpdate`. The real server runs it twice (in `BeforeUpdate` and in the kind's strategy), so each
/// cause appears twice, and once more for built-in kinds where creation's rules apply again.
pub fn validate_update(new: &Value, old: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if is_deleting(old) {
        let before = finalizers_of(old);
        let added: Vec<String> = finalizers_of(new).into_iter().filter(|f| !before.contains(f)).map(go_quote).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &why));
        }
    }
    for member in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let of = |object: &Value| object.get("metadata").and_then(|m| m.get(member)).cloned();
        let (before, after) = (of(old), of(new));
        if before != after {
            let value = after.unwrap_or_else(|| if member.ends_with("Seconds") { Value::Null } else { "".into() });
            errors.push(FieldError::invalid(format!("metadata.{member}"), &value, "field is immutable"));
        }
    }
    let mut twice = errors.clone();
    if !checks_once(resource) {
        twice.extend(errors);
    }
    twice.extend(validate_shared(new));
    twice.extend(validate_shared(new));
    let (times, finalizers) = repeated_checks(resource);
    for _ in 0..times {
        twice.extend(validate_shared(new));
        twice.extend(finalizer_errors(new, !finalizers));
    }
    twice
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deleted_object_takes_no_new_finalizer_and_gives_up_those_it_has() {
        let registry = crate::builtin::builtin_registry();
        let maps = registry.get("", "v1", "configmaps").unwrap();
        let object = |finalizers: Value| {
            let deleted = "2026-01-01T00:00:00Z";
            json!({"metadata": {"name": "a", "deletionTimestamp": deleted, "finalizers": finalizers}})
        };
        let errors = |new: Value| validate_update(&object(new), &object(json!(["a.io/x"])), maps);
        let wanted = FieldError::forbidden(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a.io/y\"}",
        );
        assert_eq!(errors(json!(["a.io/x", "a.io/y"])), [wanted.clone(), wanted]);
        assert_eq!(errors(json!([])), []);
    }
}
