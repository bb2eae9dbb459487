//! Answers to odd requests, one rule each, as a kube-apiserver 1.36 gives them (`endpoints/handlers`,
//! `apimachinery/pkg/runtime`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use axum::Router;
use embedded_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn start() -> Router {
    ApiServer::new(Options::default()).router()
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (status, body, _) = client::send_with(router, method, path, &[], body).await;
    (status, body)
}

async fn apply(router: &Router, path: &str, body: Value) -> (u16, Value) {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let (status, body, _) = client::send_with(router, "PATCH", path, &headers, body).await;
    (status, body)
}

fn deployment(replicas: u32) -> Value {
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": pod}})
}

#[tokio::test]
async fn an_apply_to_a_scale_conflicts_with_who_owns_the_replicas() {
    let router = start();
    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(apply(&router, &format!("{path}?fieldManager=m"), deployment(2)).await.0, 201);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 5}});
    let scaled = format!("{path}/scale?fieldManager=h");
    let (code, status) = apply(&router, &scaled, scale.clone()).await;
    assert_eq!(code, 409);
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas");
    assert_eq!(apply(&router, &format!("{scaled}&force=true"), scale).await.0, 200);
    let (code, status) = apply(&router, &format!("{path}?fieldManager=m"), deployment(2)).await;
    assert_eq!(code, 409);
    let owner = "conflict with \"h\" with subresource \"scale\"";
    assert_eq!(status["details"]["causes"][0]["message"], owner);
}

#[tokio::test]
async fn a_scale_has_no_other_members() {
    let router = start();
    assert_eq!(send(&router, "POST", DEPLOYMENTS, deployment(1)).await.0, 201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    let patch = json!({"spec": {"replicas": 2, "foo": 1}});
    let (code, _, warnings) = client::send_with(&router, "PATCH", &path, &[], patch.clone()).await;
    assert_eq!((code, warnings.as_slice()), (200, &["299 - \"unknown field \\\"spec.foo\\\"\"".to_owned()][..]));
    assert_eq!(send(&router, "PATCH", &format!("{path}?fieldValidation=Strict"), patch).await.0, 422);
}

#[tokio::test]
async fn an_unknown_version_of_the_body_is_refused_as_what_it_is() {
    let router = start();
    let map = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "m"}});
    let (code, status) = send(&router, "POST", MAPS, map("ConfigMap", "a/b/c")).await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().contains("unexpected GroupVersion string: a/b/c"));
    let (code, status) = send(&router, "POST", MAPS, map("List", "v1")).await;
    let why = "List in version \"v1\" cannot be handled as a ConfigMap: converting (v1.List) to (core.ConfigMap): \
               unknown conversion";
    assert_eq!((code, status["message"].as_str()), (400, Some(why)));
    assert_eq!(send(&router, "POST", MAPS, map("ConfigMap", "/v1")).await.0, 201);
}

#[tokio::test]
async fn documents_with_a_route_of_their_own_know_one_method() {
    let router = start();
    for (method, path, code) in [
        ("POST", "/api", 405),
        ("HEAD", "/version", 405),
        ("DELETE", "/api/v1", 405),
        ("POST", "/healthz", 200),
        ("GET", "/healthz/", 404),
        ("POST", "/.well-known/openid-configuration", 405),
        ("OPTIONS", "/apis/apps", 200),
        ("POST", "/nope", 404),
    ] {
        assert_eq!(send(&router, method, path, Value::Null).await.0, code, "{method} {path}");
    }
    let yaml = client::send_with(&router, "GET", "/version", &[("accept", "application/yaml")], Value::Null).await;
    assert_eq!(yaml.0, 406);
}

#[tokio::test]
async fn a_deleted_collection_comes_in_the_form_that_was_asked_for() {
    let router = start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(send(&router, "POST", MAPS, map).await.0, 201);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (code, body, _) = client::send_with(&router, "DELETE", MAPS, &table, Value::Null).await;
    assert_eq!((code, &body["kind"], &body["rows"][0]["cells"][0]), (200, &json!("Table"), &json!("m")));
}

#[tokio::test]
async fn an_empty_limit_is_no_number() {
    let router = start();
    assert_eq!(send(&router, "GET", &format!("{MAPS}?limit="), Value::Null).await.0, 400);
}

#[tokio::test]
async fn a_restricted_namespace_refuses_pods_that_are_not() {
    let router = start();
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}});
    assert_eq!(send(&router, "POST", "/api/v1/namespaces", namespace).await.0, 201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, status) = send(&router, "POST", "/api/v1/namespaces/n/pods", pod.clone()).await;
    assert_eq!(code, 403);
    let why = "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false";
    assert!(status["message"].as_str().unwrap().starts_with(why));
    assert_eq!(send(&router, "POST", "/api/v1/namespaces/default/pods", pod).await.0, 201);
    let worse = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let (_, _, warnings) = client::send_with(&router, "PATCH", "/api/v1/namespaces/default", &[], worse).await;
    assert!(warnings.is_empty(), "a pod without rights is no violation of baseline: {warnings:?}");
}

#[tokio::test]
async fn a_pod_has_the_overhead_of_its_class() {
    let router = start();
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "r"},
        "handler": "h", "overhead": {"podFixed": {"cpu": "100m"}}});
    assert_eq!(send(&router, "POST", "/apis/node.k8s.io/v1/runtimeclasses", class).await.0, 201);
    let pod = |name: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"runtimeClassName": class, "containers": [{"name": "c", "image": "i"}]}})
    };
    let path = "/api/v1/namespaces/default/pods";
    let (code, made) = send(&router, "POST", path, pod("a", "r")).await;
    assert_eq!((code, &made["spec"]["overhead"]), (201, &json!({"cpu": "100m"})));
    let (code, status) = send(&router, "POST", path, pod("b", "nope")).await;
    let why = "pods \"b\" is forbidden: pod rejected: RuntimeClass \"nope\" not found";
    assert_eq!((code, status["message"].as_str()), (403, Some(why)));
}

#[tokio::test]
async fn a_scale_is_of_its_namespace_and_a_status_makes_no_generation() {
    let router = start();
    assert_eq!(send(&router, "POST", DEPLOYMENTS, deployment(1)).await.0, 201);
    let path = format!("{DEPLOYMENTS}/d");
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "d", "namespace": "other"}, "spec": {"replicas": 5}});
    assert_eq!(send(&router, "PUT", &format!("{path}/scale"), scale).await.0, 400);
    let named = json!({"metadata": {"name": "x"}});
    assert_eq!(send(&router, "PATCH", &format!("{path}/scale"), named).await.0, 400);
    let noted = json!({"metadata": {"annotations": {"a": "b"}}});
    let (code, patched) = send(&router, "PATCH", &format!("{path}/status"), noted).await;
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(1)));
}

#[tokio::test]
async fn what_is_deleted_keeps_its_time_and_odd_preconditions_are_refused() {
    let router = start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "finalizers": ["a.b/c"]}});
    assert_eq!(send(&router, "POST", MAPS, map).await.0, 201);
    let path = format!("{MAPS}/m");
    let (code, status) = send(&router, "DELETE", &path, json!({"preconditions": {"uid": 5}})).await;
    let why = "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID";
    assert_eq!((code, status["message"].as_str()), (400, Some(why)));
    let (_, deleted) = send(&router, "DELETE", &path, Value::Null).await;
    let moved = json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}});
    let (code, patched) = send(&router, "PATCH", &path, moved).await;
    let time = |object: &Value| object["metadata"]["deletionTimestamp"].clone();
    assert_eq!((code, time(&patched)), (200, time(&deleted)));
}

#[tokio::test]
async fn an_update_that_creates_has_no_object_of_a_uid() {
    let router = start();
    let uid = "11111111-2222-3333-4444-555555555555";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "uid": uid}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(send(&router, "PUT", path, lease).await.0, 409);
}

#[tokio::test]
async fn ephemeral_containers_come_by_their_own_path() {
    let router = start();
    let path = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(send(&router, "POST", path, pod).await.0, 201);
    let added = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    assert_eq!(send(&router, "PATCH", &format!("{path}/p"), added.clone()).await.0, 422);
    assert_eq!(send(&router, "PATCH", &format!("{path}/p/ephemeralcontainers"), added).await.0, 200);
}

#[tokio::test]
async fn an_object_that_etcd_would_not_take_is_refused() {
    let router = start();
    let claim = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bags.size.test"},
        "spec": {"group": "size.test", "scope": "Cluster", "names": {"plural": "bags", "kind": "Bag"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": claim}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&router, "POST", definitions, definition).await.0, 201);
    let bag = |size: usize| {
        let text = "x".repeat(size);
        json!({"apiVersion": "size.test/v1", "kind": "Bag", "metadata": {"name": "b"}, "a": text})
    };
    let path = "/apis/size.test/v1/bags";
    let (code, status) = send(&router, "POST", path, bag(1_600_000)).await;
    assert_eq!((code, status["message"].as_str()), (500, Some("etcdserver: request is too large")));
    assert_eq!(send(&router, "POST", path, bag(1_400_000)).await.0, 201);
}

#[tokio::test]
async fn a_path_without_a_type_is_looked_at_no_further() {
    let router = start();
    let paths = json!([{"path": "x"}]);
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
        "spec": {"rules": [{"http": {"paths": paths}}]}});
    let (code, status) =
        send(&router, "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", ingress).await;
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!((code, causes.len()), (422, 1));
    assert_eq!(causes[0]["field"], "spec.rules[0].http.paths[0].pathType");
}

#[tokio::test]
async fn a_whole_scale_has_no_other_members_either() {
    let router = start();
    assert_eq!(send(&router, "POST", DEPLOYMENTS, deployment(1)).await.0, 201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "foo": 1}});
    let (code, _, warnings) = client::send_with(&router, "PUT", &path, &[], scale.clone()).await;
    assert_eq!((code, warnings.as_slice()), (200, &["299 - \"unknown field \\\"spec.foo\\\"\"".to_owned()][..]));
    let (code, status) = send(&router, "PUT", &format!("{path}?fieldValidation=Strict"), scale).await;
    let why = "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: unknown field \"spec.foo\"";
    assert_eq!((code, status["message"].as_str()), (400, Some(why)));
}

#[tokio::test]
async fn nobody_owns_what_a_scale_sets_where_nobody_owned_it() {
    let router = start();
    let mut applied = deployment(2);
    applied["spec"].as_object_mut().unwrap().remove("replicas");
    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(apply(&router, &format!("{path}?fieldManager=m"), applied).await.0, 201);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": 5}});
    assert_eq!(send(&router, "PUT", &format!("{path}/scale"), scale).await.0, 200);
    // So there is nobody to conflict with.
    let (code, answer) = apply(&router, &format!("{path}?fieldManager=m"), deployment(2)).await;
    assert_eq!((code, answer["spec"]["replicas"].as_i64()), (200, Some(2)));
}

#[tokio::test]
async fn a_new_claim_or_ingress_without_a_class_is_of_the_default_one() {
    let router = start();
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "a.io/b",
        "metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    assert_eq!(send(&router, "POST", classes, class).await.0, 201);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}})
    };
    let (_, made) = send(&router, "POST", claims, claim("a", Value::Null)).await;
    assert_eq!(made["spec"]["storageClassName"], "s");
    let (_, made) = send(&router, "POST", claims, claim("b", "".into())).await;
    assert_eq!(made["spec"]["storageClassName"], "");
    // The class does not let it grow.
    assert_eq!(
        send(&router, "PATCH", &format!("{claims}/a/status"), json!({"status": {"phase": "Bound"}})).await.0,
        200
    );
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = send(&router, "PATCH", &format!("{claims}/a"), larger.clone()).await;
    assert_eq!(code, 403);
    assert!(status["message"].as_str().unwrap().contains("only dynamically provisioned pvc can be resized"));
    let grows = json!({"allowVolumeExpansion": true});
    assert_eq!(send(&router, "PATCH", &format!("{classes}/s"), grows).await.0, 200);
    assert_eq!(send(&router, "PATCH", &format!("{claims}/a"), larger).await.0, 200);

    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "spec": {"controller": "a.io/b"},
        "metadata": {"name": "i", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}});
    assert_eq!(send(&router, "POST", "/apis/networking.k8s.io/v1/ingressclasses", class).await.0, 201);
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let mut ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"},
        "spec": {"rules": [{"host": "a.io"}]}});
    let (_, made) = send(&router, "POST", ingresses, ingress.clone()).await;
    assert_eq!(made["spec"]["ingressClassName"], "i");
    ingress["metadata"] = json!({"name": "b", "annotations": {"kubernetes.io/ingress.class": "old"}});
    let (_, made, warnings) = client::send_with(&router, "POST", ingresses, &[], ingress).await;
    assert_eq!((made["spec"].get("ingressClassName"), warnings.len()), (None, 1));
}

#[tokio::test]
async fn nothing_is_made_below_an_object_whose_namespace_goes() {
    let router = start();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "finalizers": ["a.io/b"]}});
    assert_eq!(send(&router, "POST", "/api/v1/namespaces", namespace).await.0, 201);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}});
    assert_eq!(send(&router, "POST", "/api/v1/namespaces/n/serviceaccounts", account).await.0, 201);
    assert_eq!(send(&router, "DELETE", "/api/v1/namespaces/n", Value::Null).await.0, 200);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (code, status) = send(&router, "POST", "/api/v1/namespaces/n/serviceaccounts/s/token", request).await;
    assert_eq!((code, status["details"]["causes"][0]["reason"].as_str()), (403, Some("NamespaceTerminating")));
    assert_eq!(status["details"]["name"], "s");
}

#[tokio::test]
async fn an_apply_in_yaml_may_not_say_a_key_twice() {
    let router = start();
    let headers = [("content-type", "application/apply-patch+yaml")];
    let send = async |query: &str| {
        let request = http::Request::builder().method("PATCH").uri(format!("{MAPS}/m?fieldManager=m{query}"));
        let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  a: b\n  a: c\n";
        let request = request.header(headers[0].0, headers[0].1).body(axum::body::Body::from(body)).unwrap();
        let answer = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
        let warning = answer.headers().get("warning").map(|text| text.to_str().unwrap().to_owned());
        (answer.status().as_u16(), warning)
    };
    assert_eq!(send("&fieldValidation=Strict").await, (400, None));
    let told = "299 - \"line 6: key \\\"a\\\" already set in map\"".to_owned();
    assert_eq!(send("").await, (201, Some(told)));
    assert_eq!(send("&fieldValidation=Ignore").await, (200, None));
}

/// `ResourceLocation` of each kind; the texts are those of kube-apiserver 1.36.
#[tokio::test]
async fn a_proxy_says_why_it_leads_nowhere() {
    let router = start();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "h", "port": 80}]}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (path, body) in [
        ("/api/v1/namespaces/default/services", service),
        ("/api/v1/namespaces/default/pods", pod),
        ("/api/v1/nodes", json!({"metadata": {"name": "n"}})),
    ] {
        assert_eq!(send(&router, "POST", path, body).await.0, 201);
    }
    for (path, code, why) in [
        ("namespaces/default/services/s/proxy/", 404, "services \"s\" not found"),
        ("namespaces/default/services/https:s:h/proxy/", 404, "services \"s\" not found"),
        ("namespaces/default/services/s:81/proxy/", 503, "no service port 81 found for service \"s\""),
        ("namespaces/default/services/:80/proxy/", 400, "invalid service request \":80\""),
        ("namespaces/default/pods/http:p:80/proxy/", 400, "address not allowed"),
        ("namespaces/default/pods/nope:80/proxy/", 404, "pods \"nope\" not found"),
        ("nodes/n:10250/proxy/x", 500, "no preferred addresses found; known addresses: []"),
        ("nodes/a:b:c:d/proxy/", 400, "invalid node request \"a:b:c:d\""),
    ] {
        let (found, status) = send(&router, "GET", &format!("/api/v1/{path}"), Value::Null).await;
        assert_eq!((found, status["message"].as_str()), (code, Some(why)), "{path}");
    }
}

#[tokio::test]
async fn a_namespace_of_another_is_told_before_a_name_of_another() {
    let router = start();
    let map = json!({"metadata": {"name": "other", "namespace": "elsewhere"}});
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    let (code, status) = send(&router, "PUT", &format!("{MAPS}/m"), map).await;
    assert_eq!((code, status["message"].as_str()), (400, Some(why)));
}

#[tokio::test]
async fn a_limit_range_needs_no_name() {
    let router = start();
    let range = json!({"metadata": {}, "spec": {"limits": []}});
    let (code, made) = send(&router, "POST", "/api/v1/namespaces/default/limitranges", range).await;
    assert_eq!((code, made["metadata"]["name"].as_str().unwrap().len()), (201, 36));
}

#[tokio::test]
async fn a_watch_is_refused_for_each_option_that_does_not_fit() {
    let router = start();
    let only = |field: &str, causes: &[&str]| causes.iter().map(|why| format!("{field}: {why}")).collect::<Vec<_>>();
    let continued = "Forbidden: resourceVersionMatch is forbidden when continue is provided";
    let needs = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let alone = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    let unknown = "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
    for (query, causes) in [
        ("continue=x", &[continued][..]),
        ("resourceVersionMatch=Exact", &[alone, unknown]),
        ("sendInitialEvents=true&continue=x", &[needs]),
        ("sendInitialEvents=true&resourceVersionMatch=Exact&continue=x", &[needs, continued, unknown]),
    ] {
        let (code, status) = send(&router, "GET", &format!("{MAPS}?watch=true&{query}"), Value::Null).await;
        let found: Vec<String> = status["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| format!("{}: {}", c["field"].as_str().unwrap(), c["message"].as_str().unwrap()))
            .collect();
        assert_eq!((code, found), (422, only("resourceVersionMatch", causes)), "{query}");
    }
}

/// The message of a refusal, after the name of the object.
async fn refusal(router: &Router, path: &str, body: Value) -> String {
    let (_, body) = send(router, "POST", path, body).await;
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    message.split_once(" is invalid: ").map(|(_, rest)| rest.to_owned()).unwrap_or(message)
}

#[tokio::test]
async fn kinds_refuse_what_a_kube_apiserver_refused() {
    let router = start();
    let job = |labels: Value, spec: Value| {
        let pod = json!({"metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let mut full = json!({"template": pod});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        full
    };
    let cron = |schedule: &str, spec: Value| {
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "w"},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": job(json!({}), spec)}}})
    };
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
    let (services, crons) = ("/api/v1/namespaces/default/services", "/apis/batch/v1/namespaces/default/cronjobs");
    let ports = json!([{"name": "a", "port": 80, "nodePort": 31235}, {"name": "b", "port": 81, "nodePort": 31235}]);
    for (path, body, text) in [
        (
            services,
            service(json!({"clusterIP": "10.0.0.0", "ports": [{"port": 80}]})),
            "spec.clusterIPs: Invalid \
            value: [\"10.0.0.0\"]: failed to allocate IP 10.0.0.0: the provided network does not match the \
            current range",
        ),
        (
            services,
            service(json!({"clusterIP": "010.0.0.1", "ports": [{"port": 80}]})),
            "spec.clusterIPs[0]: Invalid \
            value: \"010.0.0.1\": must not have leading 0s",
        ),
        (
            services,
            service(json!({"type": "NodePort", "ports": ports})),
            "spec.ports[1].nodePort: Invalid value: \
            31235: provided port is already allocated",
        ),
        (crons, cron("@odd", json!({})), "spec.schedule: Invalid value: \"@odd\": unrecognized descriptor: @odd"),
        (
            crons,
            cron("* * * * *", json!({"selector": {"matchLabels": {"a": "b"}}})),
            "spec.jobTemplate.spec.selector: \
            Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be auto-generated",
        ),
        (
            "/api/v1/persistentvolumes",
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
                "hostPath": {"path": "/x"}}}),
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other \
            access modes",
        ),
    ] {
        assert_eq!(refusal(&router, path, body).await, text);
    }
    let labelled = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"},
        "spec": job(json!({"job-name": "x"}), json!({}))});
    let found = refusal(&router, "/apis/batch/v1/namespaces/default/jobs", labelled).await;
    assert!(found.starts_with("spec.template.metadata.labels[job-name]: Invalid value: {"), "{found}");
    assert!(found.ends_with("}: must be 'w'"), "{found}");
}

#[tokio::test]
async fn a_list_without_a_namespace_is_one_of_all() {
    let router = start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(send(&router, "POST", MAPS, map).await.0, 201);
    let (code, list) = send(&router, "GET", "/api/v1/namespaces//configmaps", Value::Null).await;
    assert_eq!((code, &list["items"][0]["metadata"]["name"]), (200, &json!("m")));
}
