//! Validation of classes of storage and of the claims to it (`pkg/apis/{core,storage}/validation`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::internal_form::internal_diff;
use crate::kind_rules::{given, invalid_all, items_of, spec_of, text_of, unsupported};
use crate::limits::Amount;
use crate::meta::{qualified_name_problems, subdomain_problems};
use crate::podspec::keep_members;
use crate::schema::FieldError;

const IMMUTABLE: &str = "field is immutable";
/// What the parameters of a class may take together.
const LARGEST_PARAMETERS: usize = 256 * 1024;

/// `ValidateStorageClass`; but for whether volumes may grow, a class stays as it was made.
pub fn storage_class_errors(class: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let provisioner = text_of(class, "provisioner").to_lowercase();
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        errors.extend(invalid_all("provisioner", &provisioner, &qualified_name_problems(&provisioner)));
    }
    if class.get("parameters").and_then(|p| p.get("")).is_some() {
        errors.push(FieldError::invalid_text("parameters", "", "field can not be empty."));
    }
    let size: usize = class
        .get("parameters")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > LARGEST_PARAMETERS {
        errors.push(FieldError::too_long("parameters", LARGEST_PARAMETERS));
    }
    errors.extend(topology_errors(class));
    errors.extend(unsupported(class, "reclaimPolicy", "reclaimPolicy", &["Delete", "Retain"]));
    let modes = ["Immediate", "WaitForFirstConsumer"];
    errors.extend(unsupported(class, "volumeBindingMode", "volumeBindingMode", &modes));
    let Some(old) = old else { return errors };
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let value = class.get(key).unwrap_or(&Value::Null);
        if value != old.get(key).unwrap_or(&Value::Null) {
            errors.push(FieldError::invalid(key, value, IMMUTABLE));
        }
    }
    errors
}

/// Where volumes of a class may be: terms that differ, each of keys that differ.
fn topology_errors(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut terms = BTreeSet::new();
    for (index, term) in items_of(class, "allowedTopologies").iter().enumerate() {
        let at = format!("allowedTopologies[{index}].matchLabelExpressions");
        let expressions = items_of(term, "matchLabelExpressions");
        let mut keys = BTreeMap::new();
        for (index, expression) in expressions.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let key = text_of(expression, "key");
            let values = items_of(expression, "values");
            if values.is_empty() {
                errors.push(FieldError::required(format!("{at}.values"), ""));
            }
            let mut seen = BTreeSet::new();
            for (index, value) in values.iter().enumerate() {
                if !seen.insert(value.as_str()) {
                    errors.push(FieldError::duplicate(format!("{at}.values[{index}]"), value));
                }
            }
            errors.extend(invalid_all(&format!("{at}.key"), key, &qualified_name_problems(key)));
            if keys.insert(key, seen).is_some() {
                errors.push(FieldError::duplicate(format!("{at}.key"), &key.into()));
            }
        }
        // The real server compares a term with empty ones as well, and tells each of its likes.
        if keys.is_empty() || !terms.insert(keys) {
            errors.push(FieldError::duplicate(at, &"".into()));
        }
    }
    errors
}

/// A volume is for one pod alone, or for several.
pub fn mode_conflict(modes: &[Value]) -> Option<FieldError> {
    let why = "may not use ReadWriteOncePod with other access modes";
    (modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod"))
        .then(|| FieldError::forbidden("spec.accessModes", why))
}

/// What a claim says beside the modes and the size that it needs.
pub fn claim_details(claim: &Value) -> Vec<FieldError> {
    let spec = spec_of(claim);
    let mut errors = Vec::new();
    let modes = items_of(spec, "accessModes");
    let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in modes.iter().filter(|mode| !mode.as_str().is_some_and(|m| known.contains(&m))) {
        errors.push(FieldError::not_supported("spec.accessModes", mode, &known));
    }
    errors.extend(mode_conflict(modes));
    errors.extend(unsupported(spec, "volumeMode", "spec.volumeMode", &["Block", "Filesystem"]));
    let class = text_of(spec, "storageClassName");
    if !class.is_empty() {
        errors.extend(invalid_all("spec.storageClassName", class, &subdomain_problems(class)));
    }
    errors.extend(
        given(spec, "selector").into_iter().flat_map(|s| crate::admission::selector_errors("spec.selector", s)),
    );
    let attributes = text_of(spec, "volumeAttributesClassName");
    if !attributes.is_empty() {
        errors.extend(invalid_all("spec.volumeAttributesClassName", attributes, &subdomain_problems(attributes)));
    }
    errors.extend(origin_errors(spec));
    errors
}

/// What a claim is filled from, told twice and the same.
fn origin_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["dataSource", "dataSourceRef"] {
        let Some(origin) = given(spec, key) else { continue };
        let missing = ["kind", "name"].into_iter().filter(|member| text_of(origin, member).is_empty());
        errors.extend(missing.map(|member| FieldError::required(format!("spec.{key}.{member}"), "")));
        let kind = text_of(origin, "kind");
        if text_of(origin, "apiGroup").is_empty() && !kind.is_empty() && kind != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid_text(format!("spec.{key}"), kind, why));
        }
    }
    if let (Some(one), Some(other)) = (given(spec, "dataSource"), given(spec, "dataSourceRef"))
        && ["apiGroup", "kind", "name"].into_iter().any(|member| text_of(one, member) != text_of(other, member))
    {
        errors.push(FieldError::invalid("spec", &Value::Object(serde_json::Map::new()), "must match dataSourceRef"));
    }
    errors
}

/// Brings both members that say what a claim is filled from in line (`NormalizeDataSources`): the older one knows
/// claims and snapshots only, the newer one no other namespaces here.
pub fn settle_origin(claim: &mut Value) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let known = |origin: &Value| match (text_of(origin, "apiGroup"), text_of(origin, "kind")) {
        ("", kind) => kind == "PersistentVolumeClaim",
        (group, kind) => group == "snapshot.storage.k8s.io" && kind == "VolumeSnapshot",
    };
    let set = |origin: &Value| !origin.is_null();
    if spec.get("dataSource").filter(|origin| set(origin)).is_some_and(|origin| !known(origin)) {
        spec.remove("dataSource");
    }
    if spec.get("dataSourceRef").is_some_and(|origin| !text_of(origin, "namespace").is_empty()) {
        spec.remove("dataSourceRef");
    }
    let (old, new) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (old.filter(set), new.filter(set)) {
        (Some(origin), None) => drop(spec.insert("dataSourceRef".into(), origin)),
        (None, Some(origin)) => drop(spec.insert("dataSource".into(), origin)),
        _ => {}
    }
}

/// A claim stays as it was made, until it is bound. The message shows what differs.
pub fn claim_changes(claim: &Value, old: &Value) -> Vec<FieldError> {
    let bound = old.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    let size = |claim: &Value| spec_of(claim).pointer("/resources/requests/storage").and_then(Amount::parse);
    let given = old.pointer("/status/capacity/storage").and_then(Amount::parse);
    let shrinks = size(claim) < size(old) && size(claim) <= given.or_else(|| Amount::parse(&0.into()));
    let (old, mut new) = (spec_of(old), spec_of(claim).clone());
    let free = ["volumeName", "storageClassName"].into_iter().filter(|key| text_of(old, key).is_empty());
    let free = free.chain(["resources", "volumeAttributesClassName"].into_iter().filter(|_| bound));
    keep_members(&mut new, old, free);
    let why =
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    let mut errors = Vec::new();
    if new != *old {
        let diff = internal_diff("PersistentVolumeClaimSpec", old, &new);
        errors.push(FieldError::forbidden("spec", &format!("{why}\n{diff}")));
    }
    // A claim that failed to grow may ask for less again, but not for less than there is.
    if shrinks {
        let field = "spec.resources.requests.storage";
        errors.push(FieldError::forbidden(field, "field can not be less than status.capacity"));
    }
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
    fn a_storage_class_stays_as_it_was_made() {
        let class = |provisioner: &str| json!({"provisioner": provisioner, "reclaimPolicy": "Delete"});
        assert!(storage_class_errors(&class("a.b/c"), Some(&class("a.b/c"))).is_empty());
        assert_eq!(fields(&storage_class_errors(&class("x"), Some(&class("a.b/c")))), ["provisioner"]);
    }

    #[test]
    fn a_claim_stays_but_for_its_volume() {
        let claim = |volume: &str, mode: &str| json!({"spec": {"accessModes": [mode], "volumeName": volume}});
        assert!(claim_changes(&claim("v", "a"), &claim("", "a")).is_empty());
        assert!(!claim_changes(&claim("", "b"), &claim("", "a")).is_empty());
        assert!(!claim_changes(&claim("w", "a"), &claim("v", "a")).is_empty());
        let bound = |size: &str| {
            json!({"spec": {"resources": {"requests": {"storage": size}}},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
        };
        let field = ["spec.resources.requests.storage"];
        assert_eq!(fields(&claim_changes(&bound("1Gi"), &bound("3Gi"))), field);
        assert!(claim_changes(&bound("2Gi"), &bound("3Gi")).is_empty());
    }

    #[test]
    fn topologies_differ() {
        let expression = |key: &str, values: Value| json!({"key": key, "values": values});
        let class = |expressions: Value| json!({"allowedTopologies": [{"matchLabelExpressions": expressions}]});
        let at = "allowedTopologies[0].matchLabelExpressions";
        let twice = topology_errors(&class(json!([expression("a", json!(["x", "x"])), expression("a", json!([]))])));
        assert_eq!(fields(&twice), [format!("{at}[0].values[1]"), format!("{at}[1].values"), format!("{at}[1].key")]);
        assert_eq!(fields(&topology_errors(&class(json!([])))), [at]);
        let term = |values: Value| json!({"matchLabelExpressions": [expression("a", values)]});
        let same = json!({"allowedTopologies": [term(json!(["x", "y"])), term(json!(["y", "x"]))]});
        assert_eq!(fields(&topology_errors(&same)), ["allowedTopologies[1].matchLabelExpressions"]);
    }

    #[test]
    fn a_claim_says_twice_what_it_is_filled_from() {
        let mut claim = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}});
        settle_origin(&mut claim);
        assert_eq!(claim["spec"]["dataSourceRef"], claim["spec"]["dataSource"]);
        assert!(origin_errors(&claim["spec"]).is_empty());
        claim["spec"]["dataSourceRef"]["name"] = "y".into();
        assert_eq!(fields(&origin_errors(&claim["spec"])), ["spec"]);
        let mut other = json!({"spec": {"dataSource": {"kind": "Foo", "name": "x"}}});
        settle_origin(&mut other);
        assert_eq!(other, json!({"spec": {}}));
    }
}
