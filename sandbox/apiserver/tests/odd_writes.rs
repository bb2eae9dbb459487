//! Writes that end otherwise than they begin, as a kube-apiserver 1.36 answers them: deletions with options of foreign
//! groups, applies that name an object which is not there, dry runs in a version that is not stored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn start() -> Router {
    ApiServer::new(Options::default()).router()
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (status, body, _) = client::send_with(router, method, path, &[], body).await;
    (status, body)
}

fn map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[tokio::test]
async fn options_of_a_deletion_are_taken_from_any_group() {
    let router = start();
    for version in ["foo.bar/v1", "apps/v2", "v9"] {
        assert_eq!(send(&router, "POST", MAPS, map(json!({"name": "m"}))).await.0, 201);
        let options = json!({"kind": "DeleteOptions", "apiVersion": version});
        assert_eq!(send(&router, "DELETE", &format!("{MAPS}/m"), options).await.0, 200, "{version}");
    }
    let (code, status) = send(&router, "DELETE", &format!("{MAPS}/m"), json!({"apiVersion": "a/b/c"})).await;
    assert_eq!((code, status["message"].as_str()), (400, Some("unexpected GroupVersion string: a/b/c")));
}

#[tokio::test]
async fn an_apply_with_a_uid_makes_no_new_object() {
    let router = start();
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{MAPS}/new?fieldManager=m");
    let body = map(json!({"name": "new", "uid": "1"}));
    let (code, status, _) = client::send_with(&router, "PATCH", &path, &headers, body).await;
    let why = "Operation cannot be fulfilled on configmaps \"new\": uid mismatch: the provided object specified uid 1, and \
               no existing object was found";
    assert_eq!((code, status["message"].as_str()), (409, Some(why)));
}

#[tokio::test]
async fn a_dry_run_shows_what_would_be_stored() {
    let router = start();
    let version = |name: &str, storage: bool, member: &str| {
        let spec = json!({"type": "object", "properties": {member: {"type": "string"}}});
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.dry.test"},
        "spec": {"group": "dry.test", "scope": "Cluster", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [version("v1alpha1", false, "old"), version("v1", true, "fresh")]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&router, "POST", definitions, definition).await.0, 201);
    let path = "/apis/dry.test/v1alpha1/gadgets";
    let gadget = json!({"apiVersion": "dry.test/v1alpha1", "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"old": "o"}});
    let (code, shown) = send(&router, "POST", &format!("{path}?dryRun=All"), gadget).await;
    assert_eq!((code, &shown["spec"], shown["apiVersion"].as_str()), (201, &json!({}), Some("dry.test/v1alpha1")));
}

#[tokio::test]
async fn a_namespace_waits_for_finalizers_with_a_domain() {
    let router = start();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"},
        "spec": {"finalizers": ["a", "b.c/d"]}});
    let (code, status) = send(&router, "POST", "/api/v1/namespaces", namespace).await;
    assert_eq!((code, status["details"]["causes"][0]["field"].as_str()), (422, Some("spec.finalizers")));
}

#[tokio::test]
async fn no_entries_end_the_tracking_of_a_built_in_object() {
    let router = start();
    assert_eq!(send(&router, "POST", MAPS, map(json!({"name": "m", "labels": {"a": "b"}}))).await.0, 201);
    let path = format!("{MAPS}/m");
    let (_, kept) = send(&router, "PATCH", &path, json!({"metadata": {"managedFields": null}})).await;
    assert!(kept["metadata"]["managedFields"].is_array());
    let (code, reset) = send(&router, "PATCH", &path, json!({"metadata": {"managedFields": []}})).await;
    assert_eq!((code, reset["metadata"].get("managedFields")), (200, None));
}

#[tokio::test]
async fn who_sends_finalizers_of_a_namespace_owns_them() {
    let router = start();
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}});
    assert_eq!(send(&router, "POST", "/api/v1/namespaces", made).await.0, 201);
    let path = "/api/v1/namespaces/n";
    let (code, namespace) = send(&router, "PATCH", path, json!({"spec": {"finalizers": ["a.b/c"]}})).await;
    assert_eq!((code, &namespace["spec"]), (200, &json!({"finalizers": ["kubernetes"]})));
    let entries = namespace["metadata"]["managedFields"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["fieldsV1"]["f:spec"] == json!({"f:finalizers": {}})));
}

#[tokio::test]
async fn a_list_at_no_version_says_so() {
    let (code, status) = send(&start(), "GET", &format!("{MAPS}?resourceVersion=abc"), Value::Null).await;
    let why = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
               invalid syntax";
    assert_eq!((code, status["message"].as_str()), (400, Some(why)));
}

#[tokio::test]
async fn nobody_owns_the_replicas_of_a_scale_of_none() {
    let router = start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod}});
    assert_eq!(send(&router, "POST", path, body).await.0, 201);
    let scale = format!("{path}/d/scale");
    for (replicas, owned) in [(3, true), (0, false), (1, false)] {
        assert_eq!(send(&router, "PATCH", &scale, json!({"spec": {"replicas": replicas}})).await.0, 200);
        let (_, found) = send(&router, "GET", &format!("{path}/d"), Value::Null).await;
        let entries = found["metadata"]["managedFields"].as_array().unwrap();
        let owns = entries.iter().any(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some());
        assert_eq!((&found["spec"]["replicas"], owns), (&json!(replicas), owned));
    }
}

#[tokio::test]
async fn a_table_of_what_a_dry_run_made_has_no_version() {
    let router = start();
    let headers = [("content-type", "application/json"), ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for (path, version) in [(format!("{MAPS}?dryRun=All"), false), (MAPS.to_owned(), true)] {
        let (code, table, _) = client::send_with(&router, "POST", &path, &headers, map(json!({"name": "m"}))).await;
        assert_eq!((code, table["metadata"].get("resourceVersion").is_some()), (201, version));
    }
}

#[tokio::test]
async fn a_watch_from_any_version_without_initial_events_is_silent() {
    let router = start();
    assert_eq!(send(&router, "POST", MAPS, map(json!({"name": "m"}))).await.0, 201);
    let asked = "watch=true&timeoutSeconds=1&resourceVersion=0&resourceVersionMatch=NotOlderThan";
    for (initial, silent) in [("false", true), ("true", false)] {
        let path = format!("{MAPS}?{asked}&sendInitialEvents={initial}");
        let (code, events) = send(&router, "GET", &path, Value::Null).await;
        assert_eq!((code, events.is_null()), (200, silent));
    }
}
