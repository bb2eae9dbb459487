//! Markers of pod templates and volume claims inside a CRD.
//!
//! Rule: what controller-gen derives from the comments of Kubernetes' `api/core/v1` (1.36). A list is atomic unless it
//! is named here, a reference by name is an atomic map, and some fields have defaults. Fields that are newer than our
//! Kubernetes bindings are added.

use serde_json::{Map, Value, json};

/// Lists that are maps, by the field's name: their keys.
const LIST_KEYS: [(&str, &[&str]); 14] = [
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
];

/// References to an object by a `name` that defaults to the empty text. (A volume's own `secret` has `secretName`.)
const NAME_REFERENCES: [&str; 8] = [
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "imagePullSecrets",
    "nodePublishSecretRef",
    "secret",
    "secretKeyRef",
    "secretRef",
];

/// Other maps that are replaced as a whole.
const ATOMIC_MAPS: [&str; 5] = ["dataSource", "fieldRef", "fileKeyRef", "nodeSelector", "resourceFieldRef"];

/// Quantities that are fields of their own, not values of a map.
const QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];

/// What of `metadata` a template keeps.
const METADATA: [&str; 5] = ["annotations", "finalizers", "labels", "name", "namespace"];

/// Marks a schema of PodTemplateSpec.
pub(crate) fn mark_pod_template(schema: &mut Value) {
    add_newer_fields(schema);
    mark_properties("", schema);
}

/// Marks a schema of PersistentVolumeClaimSpec.
pub(crate) fn mark_volume_claim(schema: &mut Value) {
    mark_properties("", schema);
}

fn mark_properties(parent: &str, schema: &mut Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        if name == "metadata" {
            if let Some(fields) = property.get_mut("properties").and_then(Value::as_object_mut) {
                fields.retain(|field, _| METADATA.contains(&field.as_str()));
            }
            continue;
        }
        if let Some(keywords) = property.as_object_mut() {
            mark_field(parent, name, keywords);
            if let Some(items) = keywords.get_mut("items") {
                mark_reference(name, items);
                mark_properties(name, items);
            }
        }
        mark_reference(name, property);
        mark_properties(name, property);
    }
}

fn mark_field(parent: &str, name: &str, keywords: &mut Map<String, Value>) {
    if keywords.contains_key("items") && !keywords.contains_key("x-kubernetes-list-type") {
        let keys = LIST_KEYS.iter().find(|(list, _)| *list == name).map(|(_, keys)| *keys);
        keywords.insert("x-kubernetes-list-type".into(), json!(if keys.is_some() { "map" } else { "atomic" }));
        if let Some(keys) = keys {
            keywords.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
    if ATOMIC_MAPS.contains(&name) {
        keywords.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    if QUANTITIES.contains(&name) {
        keywords.insert("pattern".into(), json!(super::QUANTITY));
    }
    if let Some(default) = default_of(parent, name) {
        keywords.insert("default".into(), default);
    }
}

fn default_of(parent: &str, name: &str) -> Option<Value> {
    Some(match (parent, name) {
        ("grpc", "service") => json!(""),
        ("ports", "protocol") => json!("TCP"),
        ("fileKeyRef", "optional") | ("azureDisk", "readOnly") => json!(false),
        ("azureDisk", "fsType") => json!("ext4"),
        ("iscsi", "iscsiInterface") => json!("default"),
        ("rbd", "keyring") => json!("/etc/ceph/keyring"),
        ("rbd", "pool") => json!("rbd"),
        ("rbd", "user") => json!("admin"),
        ("scaleIO", "fsType") => json!("xfs"),
        ("scaleIO", "storageMode") => json!("ThinProvisioned"),
        _ => return None,
    })
}

/// A reference by name: an atomic map whose name may be left out.
fn mark_reference(name: &str, schema: &mut Value) {
    if !NAME_REFERENCES.contains(&name) || schema.pointer("/properties/name").is_none() {
        return;
    }
    schema["x-kubernetes-map-type"] = json!("atomic");
    schema["properties"]["name"]["default"] = json!("");
    if let Some(object) = schema.as_object_mut()
        && let Some(required) = object.get_mut("required").and_then(Value::as_array_mut)
    {
        required.retain(|field| field != "name");
        if required.is_empty() {
            object.remove("required");
        }
    }
}

/// Fields of Kubernetes 1.34 to 1.37 that members may have.
fn add_newer_fields(template: &mut Value) {
    let text = || json!({ "type": "string" });
    let Some(spec) = template.pointer_mut("/properties/spec/properties") else { return };
    spec["hostnameOverride"] = text();
    spec["schedulingGroup"] = json!({ "type": "object", "properties": { "podGroupName": text() } });
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        let container = &mut spec[containers]["items"]["properties"];
        container["restartPolicyRules"] = json!({ "type": "array", "items": {
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": text(),
                "exitCodes": {
                    "type": "object",
                    "required": ["operator"],
                    "properties": {
                        "operator": text(),
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "set",
                            "items": { "type": "integer", "format": "int32" },
                        },
                    },
                },
            },
        }});
        container["env"]["items"]["properties"]["valueFrom"]["properties"]["fileKeyRef"] = json!({
            "type": "object",
            "required": ["key", "path", "volumeName"],
            "properties": { "key": text(), "optional": { "type": "boolean" }, "path": text(), "volumeName": text() },
        });
    }
    let volume = &mut spec["volumes"]["items"]["properties"];
    volume["projected"]["properties"]["sources"]["items"]["properties"]["podCertificate"] = json!({
        "type": "object",
        "required": ["keyType", "signerName"],
        "properties": {
            "certificateChainPath": text(),
            "credentialBundlePath": text(),
            "keyPath": text(),
            "keyType": text(),
            "maxExpirationSeconds": { "type": "integer", "format": "int32" },
            "signerName": text(),
            "userAnnotations": { "type": "object", "additionalProperties": text() },
        },
    });
}
