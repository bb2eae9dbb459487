//! Volumes.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

fn access_modes(o: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    list_at(o, path).iter().filter_map(short).collect::<Vec<_>>().join(",")
}

pub fn print_claim(o: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text_at(o, "spec.volumeName").is_empty();
    cells![
        name_cell(o),
        phase_cell(o),
        text_at(o, "spec.volumeName"),
        if bound { text_at(o, "status.capacity.storage") } else { String::new() },
        if bound { access_modes(o, "status.accessModes") } else { String::new() },
        text_at(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        age_cell(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn print_volume(o: &Value, now: Timestamp) -> Vec<Value> {
    let claim = [text_at(o, "spec.claimRef.namespace"), text_at(o, "spec.claimRef.name")];
    cells![
        name_cell(o),
        text_at(o, "spec.capacity.storage"),
        access_modes(o, "spec.accessModes"),
        text_at(o, "spec.persistentVolumeReclaimPolicy"),
        phase_cell(o),
        if value_at(o, "spec.claimRef").is_some() { claim.join("/") } else { String::new() },
        text_at(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        text_at(o, "status.reason"),
        age_cell(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn csi_node(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), count_at(o, "spec.drivers"), age_cell(o, now)]
}

pub fn storage_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = value_at(o, "metadata.annotations").and_then(Value::as_object);
    let is_default = annotations.is_some_and(|a| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| a.get(*key).and_then(Value::as_str) == Some("true"))
    });
    let shown = if is_default { format!("{} (default)", name_cell(o)) } else { name_cell(o) };
    cells![
        shown,
        text_at(o, "provisioner"),
        text_or(o, "reclaimPolicy", "Delete"),
        text_or(o, "volumeBindingMode", UNSET),
        value_at(o, "allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false),
        age_cell(o, now)
    ]
}

pub fn volume_attachment(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name_cell(o),
        text_at(o, "spec.attacher"),
        text_at(o, "spec.source.persistentVolumeName"),
        text_at(o, "spec.nodeName"),
        value_at(o, "status.attached").and_then(Value::as_bool).unwrap_or(false),
        age_cell(o, now)
    ]
}

pub fn csi_driver(o: &Value, now: Timestamp) -> Vec<Value> {
    let flag = |member: &str, unset: bool| value_at(o, member).and_then(Value::as_bool).unwrap_or(unset);
    let texts = |path: &str, shown: &dyn Fn(&Value) -> String| {
        let texts: Vec<String> = list_at(o, path).iter().map(shown).collect();
        texts.join(",")
    };
    let or_unset = |text: String| if text.is_empty() { UNSET.to_owned() } else { text };
    cells![
        name_cell(o),
        flag("spec.attachRequired", true),
        flag("spec.podInfoOnMount", false),
        flag("spec.storageCapacity", false),
        or_unset(texts("spec.tokenRequests", &|request| text_at(request, "audience"))),
        flag("spec.requiresRepublish", false),
        or_unset(texts("spec.volumeLifecycleModes", &|mode| mode.as_str().unwrap_or_default().to_owned())),
        age_cell(o, now)
    ]
}

pub fn attributes_class(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "driverName"), age_cell(o, now)]
}
