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
    list(o, path).iter().filter_map(short).collect::<Vec<_>>().join(",")
}

pub fn claim(o: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text(o, "spec.volumeName").is_empty();
    cells![
        name(o),
        phase(o),
        text(o, "spec.volumeName"),
        if bound { text(o, "status.capacity.storage") } else { String::new() },
        if bound { access_modes(o, "status.accessModes") } else { String::new() },
        text(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        age(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn volume(o: &Value, now: Timestamp) -> Vec<Value> {
    let claim = [text(o, "spec.claimRef.namespace"), text(o, "spec.claimRef.name")];
    cells![
        name(o),
        text(o, "spec.capacity.storage"),
        access_modes(o, "spec.accessModes"),
        text(o, "spec.persistentVolumeReclaimPolicy"),
        phase(o),
        if at(o, "spec.claimRef").is_some() { claim.join("/") } else { String::new() },
        text(o, "spec.storageClassName"),
        text_or(o, "spec.volumeAttributesClassName", UNSET),
        text(o, "status.reason"),
        age(o, now),
        text_or(o, "spec.volumeMode", UNSET)
    ]
}

pub fn csi_node(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "spec.drivers"), age(o, now)]
}

pub fn storage_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = at(o, "metadata.annotations").and_then(Value::as_object);
    let is_default = annotations.is_some_and(|a| {
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| a.get(*key).and_then(Value::as_str) == Some("true"))
    });
    let shown = if is_default { format!("{} (default)", name(o)) } else { name(o) };
    cells![
        shown,
        text(o, "provisioner"),
        text_or(o, "reclaimPolicy", "Delete"),
        text_or(o, "volumeBindingMode", UNSET),
        at(o, "allowVolumeExpansion").and_then(Value::as_bool).unwrap_or(false),
        age(o, now)
    ]
}

pub fn volume_attachment(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(o),
        text(o, "spec.attacher"),
        text(o, "spec.source.persistentVolumeName"),
        text(o, "spec.nodeName"),
        at(o, "status.attached").and_then(Value::as_bool).unwrap_or(false),
        age(o, now)
    ]
}
