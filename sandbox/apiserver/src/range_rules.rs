//! Validation of LimitRanges and PersistentVolumes (`ValidateLimitRange`, `ValidatePersistentVolume` of
//! `pkg/apis/core/validation`).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::kind_rules::{items_of, spec_of, text_of, unsupported};
use crate::limits::{Amount, compare_amounts, show_amount};
use crate::schema::FieldError;

/// Bounds that no amount could keep.
pub fn range_errors(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut types = BTreeSet::new();
    for (index, limit) in items_of(spec_of(range), "limits").iter().enumerate() {
        let (at, kind) = (format!("spec.limits[{index}]"), text_of(limit, "type"));
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), &kind.into()));
        }
        if kind == "Pod" {
            let given = ["default", "defaultRequest"].into_iter().filter(|key| limit.get(*key).is_some());
            let why = "may not be specified when `type` is 'Pod'";
            errors.extend(given.map(|key| FieldError::forbidden(format!("{at}.{key}"), why)));
        }
        let storage = |key: &str| limit.get(key).and_then(|amounts| amounts.get("storage"));
        if kind == "PersistentVolumeClaim" && storage("min").is_none() && storage("max").is_none() {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required("spec.limits", why));
        }
        errors.extend(bound_errors(limit, &at));
    }
    errors
}

/// Each pair of bounds that is the wrong way round: the lower one, the upper one, where and about whom it is told.
fn bound_errors(limit: &Value, at: &str) -> Vec<FieldError> {
    const PAIRS: [(&str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min value {} is greater than max value {}"),
        ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
        ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "default request value {} is greater than default limit value {}",
        ),
        ("min", "default", "default", "min value {} is greater than default value {}"),
        ("default", "max", "default", "default value {} is greater than max value {}"),
    ];
    let mut errors = Vec::new();
    for (lower, upper, field, text) in PAIRS {
        for (resource, least) in limit.get(lower).and_then(Value::as_object).into_iter().flatten() {
            let Some(most) = limit.get(upper).and_then(|amounts| amounts.get(resource)) else { continue };
            if compare_amounts(least, most) == Ordering::Greater {
                let why = text.replacen("{}", &show_amount(least), 1).replacen("{}", &show_amount(most), 1);
                let value = if (lower, upper) == ("default", "max") { most } else { least };
                errors.push(FieldError::invalid(format!("{at}.{field}[{resource}]"), value, &why));
            }
        }
    }
    for (resource, ratio) in limit.get("maxLimitRequestRatio").and_then(Value::as_object).into_iter().flatten() {
        if compare_amounts(ratio, &"1".into()) == Ordering::Less {
            let why = format!("ratio {} is less than 1", show_amount(ratio));
            errors.push(FieldError::invalid(format!("{at}.maxLimitRequestRatio[{resource}]"), ratio, &why));
        }
    }
    errors
}

/// A volume has a size, modes and one source.
pub fn volume_errors(volume: &Value) -> Vec<FieldError> {
    const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
    let spec = spec_of(volume);
    let mut errors = Vec::new();
    let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = items_of(spec, "accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    for mode in modes.iter().filter(|mode| !mode.as_str().is_some_and(|m| known.contains(&m))) {
        errors.push(FieldError::not_supported("spec.accessModes", mode, &known));
    }
    let capacity = spec.get("capacity").and_then(Value::as_object);
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.is_none_or(|amounts| amounts.len() != 1 || !amounts.contains_key("storage")) {
        let given = spec.get("capacity").unwrap_or(&Value::Null);
        errors.push(FieldError::not_supported("spec.capacity", given, &["storage"]));
    }
    for (resource, amount) in capacity.into_iter().flatten() {
        if Amount::parse(amount).is_some_and(|amount| !amount.is_positive()) {
            errors.push(FieldError::invalid(format!("spec.capacity[{resource}]"), amount, "must be greater than zero"));
        }
    }
    errors.extend(unsupported(spec, "persistentVolumeReclaimPolicy", "spec.persistentVolumeReclaimPolicy", &POLICIES));
    let modes = ["Block", "Filesystem"];
    errors.extend(unsupported(spec, "volumeMode", "spec.volumeMode", &modes));
    errors.extend(source_errors(spec));
    errors
}

fn source_errors(spec: &Value) -> Vec<FieldError> {
    const SOURCES: [&str; 22] = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "nfs",
        "glusterfs",
        "rbd",
        "quobyte",
        "cephfs",
        "iscsi",
        "cinder",
        "fc",
        "flocker",
        "azureFile",
        "flexVolume",
        "vsphereVolume",
        "photonPersistentDisk",
        "portworxVolume",
        "azureDisk",
        "scaleIO",
        "local",
        "storageos",
        "csi",
    ];
    let mut errors = Vec::new();
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| spec.get(*key).is_some_and(Value::is_object)).collect();
    if given.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    let why = "may not specify more than 1 volume type";
    errors.extend(given.iter().skip(1).map(|key| FieldError::forbidden(format!("spec.{key}"), why)));
    if let Some(first) = given.first() {
        let source = serde_json::json!({ *first: spec[*first] });
        errors.extend(crate::pod_volumes::source_errors(&source, "spec"));
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
    fn a_default_lies_within_the_bounds() {
        let limit = json!({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "500m"}});
        let errors = range_errors(&json!({"spec": {"limits": [limit]}}));
        assert_eq!(fields(&errors), ["spec.limits[0].default[cpu]"]);
        let pod = json!({"type": "Pod", "default": {"cpu": "1"}});
        assert_eq!(fields(&range_errors(&json!({"spec": {"limits": [pod, pod]}}))).len(), 3);
    }

    #[test]
    fn a_volume_has_a_size_modes_and_one_source() {
        let empty = volume_errors(&json!({"spec": {}}));
        assert_eq!(fields(&empty), ["spec.accessModes", "spec.capacity", "spec.capacity", "spec"]);
        let whole =
            json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        assert!(volume_errors(&json!({"spec": whole})).is_empty());
    }
}
