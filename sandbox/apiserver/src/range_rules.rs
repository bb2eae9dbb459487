//! Validation of LimitRanges and PersistentVolumes (`ValidateLimitRange`, `ValidatePersistentVolume` of
//! `pkg/apis/core/validation`).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::kind_rules::{given, items_of, spec_of, text_of, unsupported};
use crate::limits::{Amount, compare_amounts, show_amount};
use crate::schema::FieldError;

/// The kinds of volumes, in the order in which they are looked at.
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

/// Bounds that no amount could keep.
pub fn range_errors(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut types = BTreeSet::new();
    for (index, limit) in items_of(spec_of(range), "limits").iter().enumerate() {
        let (at, kind) = (format!("spec.limits[{index}]"), text_of(limit, "type"));
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), &kind.into()));
        }
        if !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            let problems = crate::meta::qualified_name_problems(kind);
            errors.extend(crate::kind_rules::invalid_all(&format!("{at}.type"), kind, &problems));
            if problems.is_empty() && !kind.contains('/') {
                let why = "must be a standard limit type or fully qualified";
                errors.push(FieldError::invalid_text(format!("{at}.type"), kind, why));
            }
        }
        if matches!(kind, "Pod" | "Container") {
            errors.extend(name_errors(limit, &at));
        }
        if kind == "Pod" {
            let given = ["default", "defaultRequest"].into_iter().filter(|key| limit.get(*key).is_some());
            let why = "may not be specified when `type` is 'Pod'";
            errors.extend(given.map(|key| FieldError::forbidden(format!("{at}.{key}"), why)));
        }
        let storage = |key: &str| limit.get(key).and_then(|amounts| amounts.get("storage"));
        if kind == "PersistentVolumeClaim" && storage("min").is_none() && storage("max").is_none() {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(format!("{at}.limits"), why));
        }
        errors.extend(bound_errors(limit, &at));
    }
    errors
}

/// What containers do not use, in each list of amounts.
fn name_errors(limit: &Value, at: &str) -> Vec<FieldError> {
    let lists = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"].into_iter();
    let amounts = lists.flat_map(|list| {
        limit.get(list).and_then(Value::as_object).into_iter().flatten().map(move |(name, _)| (list, name))
    });
    amounts
        .flat_map(|(list, name)| crate::pod_rules::resource_name_errors(name, &format!("{at}.{list}[{name}]")))
        .collect()
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
                let upper_shown = [("default", "max"), ("min", "defaultRequest")].contains(&(lower, upper));
                let value = if upper_shown { most } else { least };
                errors.push(FieldError::invalid(format!("{at}.{field}[{resource}]"), value, &why));
            }
        }
    }
    for (resource, ratio) in limit.get("maxLimitRequestRatio").and_then(Value::as_object).into_iter().flatten() {
        if compare_amounts(ratio, &"1".into()) == Ordering::Less {
            let why = format!("ratio {} is less than 1", show_amount(ratio));
            errors.push(FieldError::invalid(format!("{at}.maxLimitRequestRatio[{resource}]"), ratio, &why));
        }
        let bound = |list: &str| limit.get(list).and_then(|amounts| amounts.get(resource));
        if let (Some(most), Some(least)) = (bound("max").and_then(Amount::parse), bound("min").and_then(Amount::parse))
            && let Some(span) = most.ratio_to(least)
            && Amount::parse(ratio).and_then(Amount::as_number).is_some_and(|ratio| ratio > span)
        {
            let why = format!("ratio {} is greater than max/min = {span:.6}", show_amount(ratio));
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
    errors.extend(crate::storage_rules::mode_conflict(modes));
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
    let class = text_of(spec, "storageClassName");
    if !class.is_empty() {
        let problems = crate::meta::subdomain_problems(class);
        errors.extend(crate::kind_rules::invalid_all("spec.storageClassName", class, &problems));
    }
    if spec.get("local").is_some_and(Value::is_object) && spec.get("nodeAffinity").is_none_or(Value::is_null) {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
    if let Some(affinity) = spec.get("nodeAffinity").filter(|affinity| affinity.is_object()) {
        let at = "spec.nodeAffinity.required";
        match affinity.get("required").filter(|required| required.is_object()) {
            None => errors.push(FieldError::required(at, "must specify required node constraints")),
            Some(required) => errors.extend(crate::pod_affinity::node_selector_errors(required, at)),
        }
    }
    let whole = spec.pointer("/hostPath/path").and_then(Value::as_str) == Some("/");
    if whole && text_of(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden("spec.persistentVolumeReclaimPolicy", why));
    }
    if !text_of(spec, "volumeAttributesClassName").is_empty() && spec.get("csi").is_none_or(Value::is_null) {
        let why = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required("spec.csi", why));
    }
    errors
}

/// What a volume is made of stays (`ValidatePersistentVolumeUpdate`).
pub fn volume_changes(volume: &Value, old: &Value) -> Vec<FieldError> {
    let (mut spec, old) = (spec_of(volume).clone(), spec_of(old));
    // The secret for growing may be named later.
    let named = old.get("csi").is_some_and(|csi| given(csi, "controllerExpandSecretRef").is_some());
    if let Some(csi) = spec.get_mut("csi").and_then(Value::as_object_mut).filter(|_| !named) {
        csi.remove("controllerExpandSecretRef");
    }
    let spec = &spec;
    let mut errors = Vec::new();
    if SOURCES.iter().any(|source| spec.get(*source) != old.get(*source)) {
        let field = "spec.persistentvolumesource";
        let diff = crate::internal_form::internal_diff("PersistentVolumeSource", old, spec);
        errors.push(FieldError::forbidden(field, &format!("{field} is immutable after creation\n{diff}")));
    }
    let mode = |spec: &Value| spec.get("volumeMode").cloned().unwrap_or(Value::Null);
    if mode(spec) != mode(old) {
        errors.push(FieldError::invalid("volumeMode", &mode(spec), "field is immutable"));
    }
    let class = "volumeAttributesClassName";
    if given(old, class).is_some() && given(spec, class).is_none() {
        errors.push(FieldError::forbidden(format!("spec.{class}"), "update from non-nil value to nil is forbidden"));
    }
    errors
}

fn source_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| spec.get(*key).is_some_and(Value::is_object)).collect();
    if given.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    let why = "may not specify more than 1 volume type";
    // One source is told under the name of its Go field.
    let shown = |key: &str| format!("spec.{}", if key == "cephfs" { "cephFS" } else { key });
    errors.extend(given.iter().skip(1).map(|key| FieldError::forbidden(shown(key), why)));
    if let Some(first) = given.first() {
        let source = serde_json::json!({ *first: spec[*first] });
        errors.extend(crate::pod_volumes::source_errors(&source, "spec"));
        if *first == "csi" && text_of(&spec["csi"], "volumeHandle").is_empty() {
            errors.push(FieldError::required("spec.csi.volumeHandle", ""));
        }
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
    fn a_range_is_about_what_containers_use() {
        let range = |limit: Value| json!({"spec": {"limits": [limit]}});
        let found = range_errors(&range(json!({"type": "Pod", "max": {"storage": "1"}})));
        assert_eq!(fields(&found), ["spec.limits[0].max[storage]"]);
        assert_eq!(range_errors(&range(json!({"type": "Foo"}))).len(), 1);
        let ratio =
            json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "10"}, "maxLimitRequestRatio": {"cpu": "20"}});
        let found = range_errors(&range(ratio));
        assert_eq!(found[0].message, "Invalid value: \"20\": ratio 20 is greater than max/min = 10.000000");
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
    fn a_volume_stays_where_it_is() {
        let volume =
            |path: &str, mode: &str| json!({"spec": {"hostPath": {"path": path, "type": ""}, "volumeMode": mode}});
        let found = volume_changes(&volume("/y", "Block"), &volume("/x", "Filesystem"));
        assert_eq!(fields(&found), ["spec.persistentvolumesource", "volumeMode"]);
        let diff = "@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n-  \
                    \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n";
        assert!(found[0].message.contains(diff), "{}", found[0].message);
    }

    #[test]
    fn a_volume_is_told_later_who_makes_it_grow_and_keeps_a_class() {
        let volume = |secret: &str, class: &str| {
            let mut spec = json!({"csi": {"driver": "d"}});
            if !secret.is_empty() {
                spec["csi"]["controllerExpandSecretRef"] = json!({"name": secret});
            }
            if !class.is_empty() {
                spec["volumeAttributesClassName"] = class.into();
            }
            json!({"spec": spec})
        };
        let told = |new: [&str; 2], old: [&str; 2]| {
            let errors = volume_changes(&volume(new[0], new[1]), &volume(old[0], old[1]));
            errors.into_iter().map(|e| e.field).collect::<Vec<_>>()
        };
        assert!(told(["a", "x"], ["", ""]).is_empty());
        assert!(told(["a", "x"], ["a", "y"]).is_empty());
        assert_eq!(told(["b", ""], ["a", ""]), ["spec.persistentvolumesource"]);
        assert_eq!(told(["", ""], ["", "x"]), ["spec.volumeAttributesClassName"]);
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
