//! The roles and bindings that every server makes for itself.
//!
//! Rule: kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`; `bootstrap.json` is what a kube-apiserver 1.36
//! has after its start. The roles `admin`, `edit` and `view` aggregate others. A controller fills their rules, and
//! there is none here: they say nothing and give nothing.

use serde_json::{Map, Value, json};

use crate::clock::write_seconds;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

const GROUP: &str = "rbac.authorization.k8s.io";
const BOOTSTRAP: &str = include_str!("bootstrap.json");
const KINDS: [(&str, &str); 4] = [
    ("clusterroles", "ClusterRole"),
    ("clusterrolebindings", "ClusterRoleBinding"),
    ("roles", "Role"),
    ("rolebindings", "RoleBinding"),
];

pub fn create_initial(server: &ApiServer) {
    let all: Value = serde_json::from_str(BOOTSTRAP).unwrap_or_default();
    for (plural, kind) in KINDS {
        for content in all[plural].as_array().into_iter().flatten() {
            create_object(server, kind, plural, content);
        }
    }
}

fn create_object(server: &ApiServer, kind: &str, plural: &str, content: &Value) {
    let registry = server.registry();
    let Some(resource) = registry.get(GROUP, "v1", plural) else { return };
    let now = write_seconds(server.now());
    let mut labels = Map::from_iter([("kubernetes.io/bootstrapping".to_owned(), json!("rbac-defaults"))]);
    labels.extend(content["labels"].as_object().cloned().unwrap_or_default());
    let name = content["name"].as_str().unwrap_or_default();
    let namespace = content["namespace"].as_str().unwrap_or_default();
    let annotations = Map::from_iter([("rbac.authorization.kubernetes.io/autoupdate".to_owned(), json!("true"))]);
    let mut owned = json!({"f:metadata": {"f:annotations": own_keys(&annotations), "f:labels": own_keys(&labels)}});
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {
            "name": name, "uid": server.new_id().to_string(), "creationTimestamp": now,
            "labels": labels, "annotations": annotations,
        },
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    let own = |key: &&String| !["name", "namespace", "labels"].contains(&key.as_str());
    for (key, value) in content.as_object().into_iter().flatten().filter(|(key, _)| own(key)) {
        object[key] = value.clone();
        if key == "aggregationRule" {
            owned["f:aggregationRule"] = json!({".": {}, "f:clusterRoleSelectors": {}});
        } else if !value.is_null() {
            owned[format!("f:{key}")] = json!({});
        }
    }
    object["metadata"]["managedFields"] = json!([{
        "manager": "kube-apiserver", "operation": "Update", "apiVersion": format!("{GROUP}/v1"), "time": now,
        "fieldsType": "FieldsV1", "fieldsV1": owned,
    }]);
    // The store is new: nobody can have raced us.
    let _ = server.store().commit(
        &resource.storage,
        &Key::new(namespace, name),
        Expect::Absent,
        Change::Put(object, resource.form),
    );
}

fn own_keys(map: &Map<String, Value>) -> Value {
    let keys = map.keys().map(|key| (format!("f:{key}"), json!({})));
    Value::Object(std::iter::once((".".to_owned(), json!({}))).chain(keys).collect())
}
