//! What a pod as a whole asks for: its claims, and resources that its containers share (`pkg/apis/core/validation`:
//! `validatePodResourceClaims`, `validatePodResources`; `pkg/apis/core/v1/defaults.go`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::meta::{label_problems, subdomain_problems};
use crate::podspec::{items_of, text_of};
use crate::schema::FieldError;

/// Whether a whole pod can be given it.
fn is_shared(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

pub fn claim_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for (index, claim) in items_of(spec, "resourceClaims").iter().enumerate() {
        let at = format!("{at}.resourceClaims[{index}]");
        let (name, field) = (text_of(claim, "name"), format!("{at}.name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if names.contains(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        } else {
            errors.extend(label_problems(name).iter().map(|why| FieldError::invalid_text(field.clone(), name, why)));
            names.insert(name);
        }
        errors.extend(source_errors(claim, &at));
    }
    errors
}

/// A claim is there already, or is made from a template.
fn source_errors(claim: &Value, at: &str) -> Vec<FieldError> {
    let named = ["resourceClaimName", "resourceClaimTemplateName"].map(|key| (key, claim.get(key)));
    let given: Vec<(&str, &str)> =
        named.iter().filter_map(|(key, value)| Some((*key, value.and_then(Value::as_str)?))).collect();
    let why = match given.as_slice() {
        [] => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        [_] => None,
        _ => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
    };
    let shown = || {
        let value = |key: &str| claim.get(key).map_or("null".to_owned(), Value::to_string);
        let (name, template) = (value("resourceClaimName"), value("resourceClaimTemplateName"));
        format!(
            "{{\"Name\":{},\"ResourceClaimName\":{name},\"ResourceClaimTemplateName\":{template}}}",
            Value::from(text_of(claim, "name"))
        )
    };
    let mut errors: Vec<FieldError> = why.into_iter().map(|why| FieldError::invalid_shown(at, &shown(), why)).collect();
    for (key, name) in given {
        let problems = subdomain_problems(name);
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(format!("{at}.{key}"), name, why)));
    }
    errors
}

pub fn pod_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let Some(resources) = spec.get("resources").filter(|resources| resources.is_object()) else { return Vec::new() };
    let at = format!("{at}.resources");
    if spec.pointer("/os/name").is_some_and(|name| name == "windows") {
        return vec![FieldError::forbidden(at, "may not be set for a windows pod")];
    }
    let mut errors = Vec::new();
    if resources.get("claims").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(format!("{at}.claims"), "claims may not be set for Resources at pod-level"));
    }
    for list in ["limits", "requests"] {
        let names = resources.get(list).and_then(Value::as_object).into_iter().flat_map(Map::keys);
        for name in names.filter(|name| !is_shared(name)) {
            let known = ["cpu", "hugepages-", "memory"];
            errors.push(FieldError::not_supported(format!("{at}.{list}[{name}]"), &name.as_str().into(), &known));
        }
    }
    errors
}

/// A pod that has limits as a whole and no containers that ask for anything asks for as much.
pub fn default_requests(spec: &mut Map<String, Value>) {
    let asked: BTreeSet<String> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.get(*list).and_then(Value::as_array))
        .flatten()
        .filter_map(|container| container.pointer("/resources/requests").and_then(Value::as_object))
        .flat_map(|requests| requests.keys().cloned())
        .collect();
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    let missing = limits.into_iter().filter(|(name, _)| is_shared(name) && !asked.contains(name));
    let missing: Vec<(String, Value)> = missing.collect();
    if missing.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| Value::Object(Map::new()));
    if let Some(requests) = requests.as_object_mut() {
        for (name, amount) in missing {
            requests.entry(name).or_insert(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_has_a_name_and_one_source() {
        let spec = json!({"resourceClaims": [{"name": "A_"}, {"name": "b", "resourceClaimName": "x"}, {"name": "b"}]});
        let fields: Vec<String> = claim_errors(&spec, "spec").into_iter().map(|error| error.field).collect();
        assert_eq!(
            fields,
            [
                "spec.resourceClaims[0].name",
                "spec.resourceClaims[0]",
                "spec.resourceClaims[2].name",
                "spec.resourceClaims[2]"
            ]
        );
    }

    #[test]
    fn a_pod_shares_processors_memory_and_pages() {
        let limits = json!({"resources": {"limits": {"cpu": "1", "example.com/x": "1"}}});
        let errors = pod_errors(&limits, "spec");
        assert_eq!(errors.len(), 1);
        assert_eq!(
            errors[0].message,
            "Unsupported value: \"example.com/x\": supported values: \"cpu\", \"hugepages-\", \"memory\""
        );
    }

    #[test]
    fn limits_of_a_pod_are_its_requests() {
        let mut spec = json!({"resources": {"limits": {"cpu": "1"}}, "containers": [{"name": "c"}]});
        default_requests(spec.as_object_mut().unwrap());
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "1"}));
    }
}
