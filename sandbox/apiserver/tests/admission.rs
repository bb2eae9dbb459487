//! Admission through webhooks that live in this process: no socket, and time may be virtual.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use embedded_apiserver::{ApiServer, Options, TokioClock};
use serde_json::{Value, json};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

type Seen = Arc<Mutex<Vec<Value>>>;

/// A server whose webhooks at `https://hooks.test:443` and at the service `system/hooks` answer through `answer`.
fn server(answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static, delay: Duration) -> (Router, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let hooks = Router::new().route(
        "/hook",
        post(move |axum::Json(review): axum::Json<Value>| {
            let (answer, log) = (answer.clone(), log.clone());
            async move {
                tokio::time::sleep(delay).await;
                let mut response = answer(&review["request"]);
                response["uid"] = review["request"]["uid"].clone();
                log.lock().unwrap().push(review["request"].clone());
                axum::Json(
                    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
                )
            }
        }),
    );
    let webhooks = BTreeMap::from([("hooks.test:443".to_owned(), hooks.clone()), ("system/hooks".to_owned(), hooks)]);
    let clock = Arc::new(TokioClock::starting_at("2024-01-01T00:00:00Z".parse().unwrap()));
    (ApiServer::new(Options { webhooks, clock, ..Options::default() }).router(), seen)
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value, Vec<String>) {
    client::send_with(router, method, path, &[], body).await
}

fn webhook(changes: &Value) -> Value {
    let mut webhook = json!({
        "name": "hook.caldera.test",
        "clientConfig": {"url": "https://hooks.test/hook"},
        "rules": [{"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    for (key, value) in changes.as_object().unwrap() {
        webhook[key] = value.clone();
    }
    webhook
}

async fn configure(router: &Router, kind: &str, name: &str, changes: Value) {
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [webhook(&changes)]});
    let path = format!("{CONFIGURATIONS}/{}s", kind.to_lowercase());
    let (status, answer, _) = send(router, "POST", &path, body).await;
    assert_eq!(status, 201, "{answer}");
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn labelling(_: &Value) -> Value {
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]);
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()), "warnings": ["noted"]})
}

#[tokio::test(start_paused = true)]
async fn a_mutating_webhook_changes_the_object_before_it_has_an_identity() {
    let (router, seen) = server(labelling, Duration::ZERO);
    configure(&router, "MutatingWebhookConfiguration", "m", json!({})).await;
    let (status, object, warnings) = send(&router, "POST", MAPS, config_map("a")).await;
    assert_eq!((status, &object["metadata"]["labels"]["by"]), (201, &json!("hook")));
    assert_eq!(warnings, ["299 - \"noted\""]);
    let seen = seen.lock().unwrap();
    assert_eq!((&seen[0]["operation"], &seen[0]["object"]["metadata"]["uid"]), (&json!("CREATE"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_validating_webhook_sees_what_will_be_stored_and_may_refuse_it() {
    let deny = |request: &Value| json!({"allowed": request["object"]["metadata"]["labels"]["bad"].is_null(), "status": {"message": "bad label"}});
    let (router, seen) = server(deny, Duration::ZERO);
    configure(&router, "ValidatingWebhookConfiguration", "v", json!({})).await;
    assert_eq!(send(&router, "POST", MAPS, config_map("a")).await.0, 201);
    assert!(seen.lock().unwrap()[0]["object"]["metadata"]["uid"].is_string());
    let label = json!({"metadata": {"labels": {"bad": "1"}}});
    let (status, refusal, _) = send(&router, "PATCH", &format!("{MAPS}/a"), label).await;
    assert_eq!(status, 400);
    assert_eq!(refusal["message"], "admission webhook \"hook.caldera.test\" denied the request: bad label");
    let (_, stored, _) = send(&router, "GET", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(stored["metadata"]["labels"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_slow_webhook_fails_after_its_timeout_as_its_policy_says() {
    for (policy, expected) in [("Fail", 500), ("Ignore", 201)] {
        let (router, _) = server(labelling, Duration::from_secs(7));
        let changes = json!({"timeoutSeconds": 3, "failurePolicy": policy});
        configure(&router, "MutatingWebhookConfiguration", "m", changes).await;
        let started = tokio::time::Instant::now();
        let (status, answer, _) = send(&router, "POST", MAPS, config_map("a")).await;
        assert_eq!(status, expected, "{answer}");
        assert_eq!(started.elapsed().as_secs(), 3);
        if policy == "Fail" {
            let text = "Internal error occurred: failed calling webhook \"hook.caldera.test\": failed to call webhook: Post \
                        \"https://hooks.test/hook?timeout=3s\": context deadline exceeded";
            assert_eq!(answer["message"], text);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_found_in_this_process_too() {
    let (router, seen) = server(labelling, Duration::ZERO);
    let service = json!({"clientConfig": {"service": {"namespace": "system", "name": "hooks", "path": "/hook"}}});
    configure(&router, "MutatingWebhookConfiguration", "m", service).await;
    assert_eq!(send(&router, "POST", MAPS, config_map("a")).await.0, 201);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_counts_for_the_next_request() {
    let (router, seen) = server(labelling, Duration::ZERO);
    configure(&router, "MutatingWebhookConfiguration", "m", json!({})).await;
    send(&router, "POST", MAPS, config_map("a")).await;
    let path = format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/m");
    let narrowed = webhook(&json!({"matchConditions": [{"name": "n", "expression": "object.metadata.name == 'c'"}]}));
    assert_eq!(send(&router, "PATCH", &path, json!({"webhooks": [narrowed]})).await.0, 200);
    send(&router, "POST", MAPS, config_map("b")).await;
    send(&router, "POST", MAPS, config_map("c")).await;
    assert_eq!(send(&router, "DELETE", &path, Value::Null).await.0, 200);
    send(&router, "POST", MAPS, config_map("d")).await;
    let names: Vec<Value> = seen.lock().unwrap().iter().map(|r| r["name"].clone()).collect();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_still_reviewed_once() {
    let (router, seen) = server(|_| json!({"allowed": true}), Duration::ZERO);
    let selector = json!({"objectSelector": {"matchLabels": {"watched": "yes"}}});
    configure(&router, "ValidatingWebhookConfiguration", "v", selector).await;
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"watched": "yes"});
    send(&router, "POST", MAPS, object).await;
    let path = format!("{MAPS}/a");
    send(&router, "PATCH", &path, json!({"metadata": {"labels": {"watched": null}}})).await;
    send(&router, "PATCH", &path, json!({"data": {"k": "v"}})).await;
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn many_admitted_writes_each_pass_both_phases() {
    const WRITES: usize = 2000;
    let (router, seen) = server(labelling, Duration::ZERO);
    configure(&router, "MutatingWebhookConfiguration", "m", json!({})).await;
    let allow = json!({"failurePolicy": "Fail", "rules": [{"operations": ["UPDATE"], "apiGroups": [""],
        "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    configure(&router, "ValidatingWebhookConfiguration", "v", allow).await;
    let started = std::time::Instant::now();
    let writes = (0..WRITES).map(|i| {
        let router = router.clone();
        async move { send(&router, "POST", MAPS, config_map(&format!("c{i}"))).await.0 }
    });
    let statuses = futures::future::join_all(writes).await;
    let rate = WRITES as f64 / started.elapsed().as_secs_f64();
    println!("admitted writes per second in this build: {rate:.0}");
    assert!(statuses.iter().all(|s| *s == 201));
    assert_eq!(seen.lock().unwrap().len(), WRITES);
}

fn patching(patch: Value) -> impl Fn(&Value) -> Value + Clone + Send + Sync + 'static {
    let patch = STANDARD.encode(patch.to_string());
    move |_: &Value| json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

/// `webhook/mutating/dispatcher.go`: what a webhook patched is decoded like a body, so it cannot store what none could.
#[tokio::test(start_paused = true)]
async fn a_patch_cannot_make_what_a_client_could_not_send() {
    for (patch, status, text) in [
        (
            json!([{"op": "add", "path": "/data", "value": {"a": 1}}]),
            500,
            "Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            500,
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ] {
        let (router, _) = server(patching(patch), Duration::ZERO);
        configure(&router, "MutatingWebhookConfiguration", "m", json!({})).await;
        let (code, refusal, _) = send(&router, "POST", MAPS, config_map("a")).await;
        assert_eq!((code, refusal["message"].as_str().unwrap()), (status, text));
    }
    let (router, _) = server(patching(json!([{"op": "remove", "path": "/apiVersion"}])), Duration::ZERO);
    configure(&router, "MutatingWebhookConfiguration", "m", json!({})).await;
    let (code, made, _) = send(&router, "POST", MAPS, config_map("a")).await;
    assert_eq!((code, &made["apiVersion"]), (201, &json!("v1")));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_asks_for_another_version_or_name_is_refused_in_those_words() {
    let version = json!([{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}]);
    let (router, _) = server(patching(version), Duration::ZERO);
    send(&router, "POST", MAPS, config_map("a")).await;
    configure(&router, "MutatingWebhookConfiguration", "versions", json!({})).await;
    let mut changed = config_map("a");
    changed["data"] = json!({"k": "v"});
    let (status, answer, _) = send(&router, "PUT", &format!("{MAPS}/a"), changed.clone()).await;
    assert_eq!(status, 409, "{answer}");

    let name = json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]);
    let (router, _) = server(patching(name), Duration::ZERO);
    send(&router, "POST", MAPS, config_map("a")).await;
    configure(&router, "MutatingWebhookConfiguration", "names", json!({})).await;
    let (status, answer, _) = send(&router, "PUT", &format!("{MAPS}/a"), changed).await;
    let told = "ConfigMap \"b\" is invalid: metadata.name: Invalid value: \"b\": field is immutable";
    assert_eq!((status, answer["message"].as_str()), (422, Some(told)));
}

/// `handlers/delete.go`: the attributes of a deletion among a collection have no name.
#[tokio::test(start_paused = true)]
async fn a_deletion_among_a_collection_is_reviewed_without_a_name() {
    let (router, seen) = server(|_: &Value| json!({"allowed": true}), Duration::ZERO);
    for name in ["a", "b"] {
        assert_eq!(send(&router, "POST", MAPS, config_map(name)).await.0, 201);
    }
    configure(&router, "ValidatingWebhookConfiguration", "v", json!({})).await;
    assert_eq!(send(&router, "DELETE", MAPS, Value::Null).await.0, 200);
    let seen: Vec<(Value, Value)> =
        seen.lock().unwrap().iter().map(|r| (r["name"].clone(), r["oldObject"]["metadata"]["name"].clone())).collect();
    assert_eq!(seen, [(Value::Null, json!("a")), (Value::Null, json!("b"))]);
}

/// A match condition over an object that is not there is an error, and an error refuses.
#[tokio::test(start_paused = true)]
async fn a_condition_on_the_object_of_a_deletion_refuses_it() {
    let (router, _) = server(|_: &Value| json!({"allowed": true}), Duration::ZERO);
    assert_eq!(send(&router, "POST", MAPS, config_map("a")).await.0, 201);
    let conditions = json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'b'"}]});
    configure(&router, "ValidatingWebhookConfiguration", "v", conditions).await;
    let (status, refusal, _) = send(&router, "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(status, 403);
    assert_eq!(
        refusal["message"],
        "configmaps \"a\" is forbidden: expression 'object.metadata.name == 'b'' resulted in error: no such key: metadata"
    );
}
