//! What admission refuses.
//!
//! Rule: Karmada `pkg/webhook/{resourcebinding,resourcedeletionprotection}/validating.go`; of policies see
//! [`super::policies`].

use caldera_core::quantity::Quantity;
use serde_json::Value;

use super::policies::{validate_override, validate_propagation};
use crate::karmada::{detector::plan::Scope, names, object::ObjectExt};

/// Why an object, or its change, is refused.
///
/// # Errors
/// With Karmada's words.
pub fn validate_object(object: &Value, old: Option<&Value>) -> Result<(), String> {
    match object.text("/kind") {
        "PropagationPolicy" => validate_propagation(object, old, Scope::Namespace),
        "ClusterPropagationPolicy" => validate_propagation(object, old, Scope::Cluster),
        "OverridePolicy" | "ClusterOverridePolicy" => validate_override(object),
        "ResourceBinding" => {
            let annotation = object.annotation(names::BINDING_DEPENDENCIES);
            // `null` is an empty slice of Go's: who needs nothing writes it.
            let invalid = !annotation.is_empty() && serde_json::from_str::<Option<Vec<Value>>>(annotation).is_err();
            if invalid {
                return Err(format!(
                    "metadata.annotations.{}: Invalid value: {annotation:?}: annotation value must be a valid JSON",
                    names::BINDING_DEPENDENCIES
                ));
            }
            Ok(())
        }
        "Cluster" => validate_models(object),
        _ => Ok(()),
    }
}

/// Each grade's ranges begin where the grade's before end (`pkg/apis/cluster/validation`).
fn validate_models(cluster: &Value) -> Result<(), String> {
    let models = cluster.items("/spec/resourceModels");
    let amount = |range: &Value, field: &str| {
        range
            .get(field)
            .and_then(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned).parse::<Quantity>().ok())
    };
    for pair in models.windows(2) {
        for range in pair[0].items("/ranges") {
            let next = pair[1].items("/ranges").iter().find(|one| one["name"] == range["name"]);
            if next.is_none_or(|next| amount(next, "min") != amount(range, "max")) {
                return Err("spec.resourceModels: Invalid value: Model intervals for resources must be contiguous and non-overlapping"
                    .to_owned());
            }
        }
    }
    Ok(())
}

/// Whether a protected object may be deleted.
///
/// # Errors
/// When its label forbids it.
pub fn validate_deletion(object: &Value) -> Result<(), String> {
    if object.label("resourcetemplate.karmada.io/deletion-protected") == "Always" {
        return Err("This resource is protected, please make sure to remove the label: \
                    resourcetemplate.karmada.io/deletion-protected"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policys_scheduler_does_not_change() {
        let policy = |name: &str| json!({"kind": "PropagationPolicy", "spec": {"schedulerName": name}});
        assert!(validate_object(&policy("a"), Some(&policy("b"))).is_err());
        assert!(validate_object(&policy("default-scheduler"), Some(&policy(""))).is_ok());
    }

    #[test]
    fn the_dependencies_of_a_binding_are_a_list_or_null() {
        let binding = |text: &str| {
            json!({"kind": "ResourceBinding",
                "metadata": {"annotations": {"resourcebinding.karmada.io/dependencies": text}}})
        };
        assert!(validate_object(&binding("null"), None).is_ok());
        assert!(validate_object(&binding("[]"), None).is_ok());
        assert!(validate_object(&binding("{}"), None).is_err());
    }

    #[test]
    fn protected_objects_stay() {
        let object = json!({"metadata": {"labels": {"resourcetemplate.karmada.io/deletion-protected": "Always"}}});
        assert!(validate_deletion(&object).is_err());
    }
}
