//! The roles and bindings that every server makes for itself, as far as clients meet them.
//!
//! Rule: kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`. The roles `admin`, `edit` and `view` aggregate
//! others. A controller fills their rules, and there is none here: they say nothing and give nothing.

use serde_json::{Map, Value, json};

use crate::clock::write_seconds;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key};

const GROUP: &str = "rbac.authorization.k8s.io";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

pub fn create_initial(server: &ApiServer) {
    for (name, rules) in plain_roles() {
        create(server, "ClusterRole", "clusterroles", name, None, &json!({"rules": rules}));
    }
    for (name, parent) in [("admin", None), ("edit", Some("admin")), ("view", Some("edit"))] {
        let selector = json!({"matchLabels": {format!("{AGGREGATE}{name}"): "true"}});
        let content = json!({"rules": null, "aggregationRule": {"clusterRoleSelectors": [selector]}});
        create(server, "ClusterRole", "clusterroles", name, parent, &content);
    }
    for (role, groups) in BINDINGS {
        let subject = |group: &&str| json!({"kind": "Group", "apiGroup": GROUP, "name": group});
        let content = json!({
            "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        });
        create(server, "ClusterRoleBinding", "clusterrolebindings", role, None, &content);
    }
}

const BINDINGS: [(&str, &[&str]); 6] = [
    ("cluster-admin", &["system:masters"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

fn plain_roles() -> Vec<(&'static str, Value)> {
    let create =
        |group: &str, resources: &[&str]| json!({"verbs": ["create"], "apiGroups": [group], "resources": resources});
    let get = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    vec![
        (
            "cluster-admin",
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        (
            "system:auth-delegator",
            json!([create(authentication, &["tokenreviews"]), create(authorization, &["subjectaccessreviews"])]),
        ),
        (
            "system:basic-user",
            json!([
                create(authorization, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                create(authentication, &["selfsubjectreviews"]),
            ]),
        ),
        (
            "system:discovery",
            json!([get(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ])]),
        ),
        (
            "system:monitoring",
            json!([
                get(&[
                "/flagz",
                "/healthz",
                "/healthz/*",
                "/livez",
                "/livez/*",
                "/metrics",
                "/metrics/slis",
                "/readyz",
                "/readyz/*",
                "/statusz",
                ]),
                {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes/metrics"]},
            ]),
        ),
        ("system:public-info-viewer", json!([get(&["/healthz", "/livez", "/readyz", "/version", "/version/"])])),
        (
            "system:service-account-issuer-discovery",
            json!([get(&[
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/"
            ])]),
        ),
    ]
}

fn create(server: &ApiServer, kind: &str, plural: &str, name: &str, parent: Option<&str>, content: &Value) {
    let registry = server.registry();
    let Some(resource) = registry.get(GROUP, "v1", plural) else { return };
    let now = write_seconds(server.now());
    let mut labels = Map::from_iter([("kubernetes.io/bootstrapping".to_owned(), json!("rbac-defaults"))]);
    labels.extend(parent.map(|parent| (format!("{AGGREGATE}{parent}"), json!("true"))));
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
    for (key, value) in content.as_object().into_iter().flatten() {
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
        &Key::new("", name),
        Expect::Absent,
        Change::Put(object, resource.form),
    );
}

fn own_keys(map: &Map<String, Value>) -> Value {
    let keys = map.keys().map(|key| (format!("f:{key}"), json!({})));
    Value::Object(std::iter::once((".".to_owned(), json!({}))).chain(keys).collect())
}
