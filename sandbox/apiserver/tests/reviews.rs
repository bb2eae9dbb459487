//! What admission webhooks are shown, rule by rule, as a kube-apiserver 1.36 shows it (`endpoints/handlers/create.go`,
//! `delete.go`, `registry/rest`, `registry/generic/registry/store.go`, `admission/plugin/webhook`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use embedded_apiserver::{ApiServer, Options, TokioClock};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// A server whose webhooks at `https://hooks.test/{name}` allow everything; `deny-*` refuses with its name, and
/// `deny-late` after a second.
fn server() -> (Router, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let answer = move |axum::extract::Path(name): axum::extract::Path<String>,
                       axum::Json(review): axum::Json<Value>| {
        let log = log.clone();
        async move {
            if name == "deny-late" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let uid = review["request"]["uid"].clone();
            let allowed = !name.starts_with("deny");
            let response = json!({"uid": uid, "allowed": allowed, "status": {"message": name}});
            log.lock().unwrap().push((name, review["request"].clone()));
            axum::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
        }
    };
    let hooks = Router::new().route("/{name}", post(answer));
    let webhooks = BTreeMap::from([("hooks.test:443".to_owned(), hooks)]);
    let clock = Arc::new(TokioClock::starting_at("2024-01-01T00:00:00Z".parse().unwrap()));
    (ApiServer::new(Options { webhooks, clock, ..Options::default() }).router(), seen)
}

async fn send(router: &Router, method: &str, path: &str, body: Value) -> (u16, Value) {
    let (status, body, _) = client::send_with(router, method, path, &[], body).await;
    (status, body)
}

/// One configuration of this kind with a webhook for each of these paths.
async fn configure(router: &Router, kind: &str, paths: &[&str], operations: &[&str], groups: &[&str]) {
    let webhook = |path: &&str| {
        json!({
            "name": format!("{path}.hooks.test"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://hooks.test/{path}")},
            "rules": [{"operations": operations, "apiGroups": groups, "apiVersions": ["v1"],
                "resources": ["pods", "deployments", "daemonsets", "jobs", "events", "persistentvolumeclaims"]}],
        })
    };
    let webhooks: Vec<Value> = paths.iter().map(webhook).collect();
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": kind.to_lowercase()}, "webhooks": webhooks});
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
    assert_eq!(send(router, "POST", &path, body).await.0, 201);
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn workload(kind: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
}

#[tokio::test(start_paused = true)]
async fn default_admission_comes_before_the_webhooks() {
    let (router, seen) = server();
    configure(&router, "MutatingWebhookConfiguration", &["m"], &["CREATE"], &[""]).await;
    let mut sent = pod("p", None);
    sent["status"] = json!({"phase": "Running"});
    let (code, made) = send(&router, "POST", PODS, sent).await;
    assert_eq!((code, &made["status"]["phase"]), (201, &json!("Pending")));
    let shown = seen.lock().unwrap()[0].1["object"].clone();
    assert_eq!(
        (&shown["spec"]["priority"], &shown["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    assert_eq!(shown["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(shown["status"], json!({"phase": "Running"}), "the status is dropped after the webhooks");
}

#[tokio::test(start_paused = true)]
async fn webhooks_see_the_status_that_was_sent() {
    let (router, seen) = server();
    assert_eq!(send(&router, "POST", DEPLOYMENTS, workload("Deployment")).await.0, 201);
    let path = format!("{DEPLOYMENTS}/w");
    let status = json!({"status": {"replicas": 3}});
    assert_eq!(send(&router, "PATCH", &format!("{path}/status"), status).await.0, 200);
    configure(&router, "MutatingWebhookConfiguration", &["m"], &["*"], &["apps"]).await;
    let (code, put) = send(&router, "PUT", &path, workload("Deployment")).await;
    assert_eq!((code, &put["status"]["replicas"]), (200, &json!(3)));
    let shown = seen.lock().unwrap()[0].1.clone();
    assert_eq!((&shown["object"]["status"], &shown["oldObject"]["status"]["replicas"]), (&json!({}), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn the_defaults_of_storage_come_after_the_webhooks() {
    let (router, seen) = server();
    configure(&router, "ValidatingWebhookConfiguration", &["v"], &["*"], &["", "batch"]).await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let (_, made) = send(&router, "POST", "/apis/batch/v1/namespaces/default/jobs", job).await;
    assert_eq!(made["metadata"]["labels"]["job-name"], "j");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let (_, made) = send(&router, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!(made["status"]["phase"], "Pending");
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].1["object"]["metadata"]["labels"], Value::Null);
    assert_eq!(seen[1].1["object"]["status"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn what_decoding_gives_belongs_to_who_sent_the_object() {
    let (router, _) = server();
    let (_, made) = send(&router, "POST", "/apis/apps/v1/namespaces/default/daemonsets", workload("DaemonSet")).await;
    let note = "f:deprecated.daemonset.template.generation";
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"][note];
    assert_eq!(owned, &json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_labels_has_those_of_its_template() {
    let (router, _) = server();
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    let spec = json!({"template": template});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec});
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let (_, made) = send(&router, "POST", path, job).await;
    let labels = made["metadata"]["labels"].clone();
    assert_eq!((&labels["a"], &labels["job-name"]), (&json!("b"), &json!("j")));
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!(owned, &json!({".": {}, "f:a": {}}));
    let (_, patched) = send(&router, "PATCH", &format!("{path}/j"), json!({"metadata": {"labels": null}})).await;
    assert_eq!(patched["metadata"]["labels"], labels);
}

/// The deletions that webhooks are asked about: path, grace and the mark on the object.
fn deletions(seen: &Seen) -> Vec<(String, Option<i64>, Option<i64>)> {
    let told = |(path, request): (String, Value)| {
        let grace = request["options"]["gracePeriodSeconds"].as_i64();
        (path, grace, request["oldObject"]["metadata"]["deletionGracePeriodSeconds"].as_i64())
    };
    std::mem::take(&mut *seen.lock().unwrap()).into_iter().map(told).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_at_once_is_reviewed_again_as_marked() {
    let (router, seen) = server();
    for (name, node) in [("idle", None), ("bound", Some("n")), ("dry", None)] {
        assert_eq!(send(&router, "POST", PODS, pod(name, node)).await.0, 201);
    }
    configure(&router, "MutatingWebhookConfiguration", &["m"], &["DELETE"], &[""]).await;
    configure(&router, "ValidatingWebhookConfiguration", &["v"], &["DELETE"], &[""]).await;
    let asked = |grace, mark| [("m".to_owned(), Some(grace), mark), ("v".to_owned(), Some(grace), mark)];
    send(&router, "DELETE", &format!("{PODS}/idle"), Value::Null).await;
    assert_eq!(deletions(&seen), [asked(0, None), asked(0, Some(0))].concat());
    send(&router, "DELETE", &format!("{PODS}/bound"), Value::Null).await;
    assert_eq!(deletions(&seen), asked(30, None));
    send(&router, "DELETE", &format!("{PODS}/bound"), Value::Null).await;
    assert!(deletions(&seen).is_empty(), "a deletion that is under way is not asked about");
    send(&router, "DELETE", &format!("{PODS}/bound?gracePeriodSeconds=0"), Value::Null).await;
    assert_eq!(deletions(&seen), [asked(0, Some(30)), asked(0, Some(0))].concat());
    let (_, dry) = send(&router, "DELETE", &format!("{PODS}/dry?dryRun=All"), Value::Null).await;
    assert_eq!((&dry["metadata"]["generation"], deletions(&seen).len()), (&json!(2), 2));
}

#[tokio::test(start_paused = true)]
async fn the_first_refusal_to_come_is_the_answer() {
    for (paths, told) in [(["deny-late", "deny-b"], "deny-b"), (["deny-b", "deny-a"], "deny-b")] {
        let (router, seen) = server();
        configure(&router, "ValidatingWebhookConfiguration", &paths, &["CREATE"], &[""]).await;
        let (code, refusal) = send(&router, "POST", PODS, pod("p", None)).await;
        let text = format!("admission webhook \"{told}.hooks.test\" denied the request: {told}");
        assert_eq!((code, refusal["message"].as_str()), (400, Some(text.as_str())));
        assert_eq!(seen.lock().unwrap().len(), 2, "all are asked");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_of_one_group_is_an_event_of_the_other() {
    let (router, seen) = server();
    configure(&router, "ValidatingWebhookConfiguration", &["v"], &["CREATE"], &[""]).await;
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "a.io/b", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal", "regarding": {"namespace": "default"}});
    assert_eq!(send(&router, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", event).await.0, 201);
    let seen = seen.lock().unwrap();
    let request = &seen[0].1;
    assert_eq!((&request["kind"]["group"], &request["requestKind"]["group"]), (&json!(""), &json!("events.k8s.io")));
    assert_eq!(request["object"]["involvedObject"]["namespace"], "default");
}
