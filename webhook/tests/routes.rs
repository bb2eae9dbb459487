//! The routes from outside: HTTP in, HTTP out, with a Kubernetes API that has what the cache lacks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::{Arc, Mutex};

use axum::{Router, body::Body, extract::Path, http::Request, response::IntoResponse, routing::get};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::serve::{Ready, SharedRegistry};
use caldera_webhook::{SharedCache, router, rules::RULES};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings/{name}";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
const NAMESPACES: &str = "/api/v1/namespaces/{name}";

/// The webhook in front of an API.
fn webhook(api: Router) -> Router {
    let client = kube::Client::new(api, "default");
    router(SharedCache::new(client, &SharedRegistry::default()), Ready::default())
}

async fn post(webhook: &Router, path: &str, body: impl Into<Body>) -> (u16, Value) {
    let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
    let response = webhook.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
}

async fn review(webhook: &Router, path: &str, namespace: &str, object: &Value) -> Value {
    let karmada = json!({"username": "system:admin", "groups": ["system:masters", "system:authenticated"]});
    let request = json!({
        "uid": "u", "operation": "CREATE", "namespace": namespace, "object": object, "userInfo": karmada,
    });
    let (status, answer) = post(webhook, path, json!({"request": request}).to_string()).await;
    assert_eq!(status, 200, "{answer}");
    answer["response"].clone()
}

fn patched(object: &Value, response: &Value) -> Value {
    assert_eq!(response["allowed"], true, "{response}");
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let mut object = object.clone();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

fn binding(api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("x-{}", kind.to_lowercase()), "namespace": "ns"},
        "spec": {
            "resource": {"apiVersion": api_version, "kind": kind, "name": "x", "namespace": "ns"},
            "placement": {"clusterAffinity": {}}, "schedulerName": "default-scheduler",
        },
    })
}

fn work() -> Value {
    json!({
        "metadata": {"name": "w", "annotations": {
            "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "x-job",
        }},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "x", "namespace": "ns", "annotations": {"caldera.dev/revised-replicas": "4"}},
            "spec": {"minAvailable": 10, "tasks": [
                {"name": "t", "replicas": 10, "minAvailable": 10, "template": pod_template()},
            ]},
        }]}},
    })
}

fn pod_template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn not_found() -> impl IntoResponse {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "not found"});
    (axum::http::StatusCode::NOT_FOUND, status.to_string())
}

#[tokio::test]
async fn garbage_on_any_route_is_a_400_with_a_sentence() {
    let webhook = webhook(Router::new());
    for route in RULES.into_iter().map(|(route, _)| route).chain(["interpreter"]) {
        for body in ["", "{", "[]", "\u{0}", "{\"request\": {}}"] {
            let (status, text) = post(&webhook, &format!("/{route}"), body).await;
            assert_eq!(status, 400, "{route} {body:?}: {text}");
            assert!(text.as_str().unwrap().starts_with("failed to read the body"), "{route}: {text}");
        }
    }
}

#[tokio::test]
async fn objects_of_a_wrong_shape_are_denied_or_left_alone_but_always_answered() {
    // Queues are refused only by a list that was just read.
    let queues =
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "QueueList", "metadata": {}, "items": []});
    let list = get(move || async move { queues.to_string() });
    let own = json!({"metadata": {"name": "ns", "annotations": {"caldera.dev/default-queue": "q"}}});
    let api = Router::new().route("/apis/scheduling.volcano.sh/v1beta1/queues", list);
    let webhook = webhook(api.route(NAMESPACES, get(move || async move { own.to_string() })));
    for (route, _) in RULES {
        for object in [json!(5), json!([]), json!({"spec": 5}), json!({"spec": {"tasks": [5]}}), Value::Null] {
            let response = review(&webhook, &format!("/{route}"), "karmada-es-m1", &object).await;
            assert_eq!(response["uid"], "u", "{route} {object}");
            if response["allowed"] == false {
                assert!(!response["status"]["message"].as_str().unwrap().is_empty(), "{route} {object}");
            }
        }
    }
}

#[tokio::test]
async fn a_works_plan_that_memory_lacks_is_read_from_the_api() {
    let plan = json!({"clusters": {"m1": {"tasks": {"t": {"replicas": 4, "minAvailable": 3}}, "minAvailable": 3}}});
    let mut placed = binding("batch.volcano.sh/v1alpha1", "Job");
    let record = json!({"queue": "default", "priority": 0, "copies": 1, "tasks": {"t": 4}, "charged": {"pods": "4"}});
    placed["metadata"]["annotations"] = json!({
        "caldera.dev/gate": "open", "caldera.dev/plan": plan.to_string(), "caldera.dev/admission": record.to_string(),
    });
    placed["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    let api = Router::new().route(BINDINGS, get(move || async move { placed.to_string() }));
    let object = work();
    let rewritten = patched(&object, &review(&webhook(api), "/mutate-work", "karmada-es-m1", &object).await);
    let spec = &rewritten["spec"]["workload"]["manifests"][0]["spec"];
    let task = json!({"name": "t", "replicas": 4, "minAvailable": 3, "template": pod_template()});
    assert_eq!(spec, &json!({"minAvailable": 3, "tasks": [task]}));
}

#[tokio::test]
async fn a_work_without_a_readable_plan_is_refused_for_now_not_let_through() {
    let missing = Router::new().route(BINDINGS, get(|| async { not_found() }));
    let broken = Router::new().route(BINDINGS, get(|| async { (axum::http::StatusCode::BAD_GATEWAY, "no") }));
    let unplanned = Router::new().route(
        BINDINGS,
        get(|| async {
            let mut waiting = binding("batch.volcano.sh/v1alpha1", "Job");
            waiting["metadata"]["annotations"] = json!({"caldera.dev/gate": "closed"});
            waiting.to_string()
        }),
    );
    for (api, why) in [(missing, "does not exist"), (broken, "failed to read"), (unplanned, "no plan yet")] {
        let response = review(&webhook(api), "/mutate-work", "karmada-es-m1", &work()).await;
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 503);
        assert!(response["status"]["message"].as_str().unwrap().contains(why), "{response}");
    }
}

#[tokio::test]
async fn a_deployment_that_memory_lacks_is_read_from_the_api() {
    let api = |queue: Value, label: Value| {
        Router::new()
            .route(DEPLOYMENTS, get(move |Path((_, name)): Path<(String, String)>| async move {
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "annotations": queue}})
                    .to_string()
            }))
            .route(NAMESPACES, get(move || async move {
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": label}}).to_string()
            }))
    };
    let object = binding("apps/v1", "Deployment");
    let gated = |queue, label| {
        let object = object.clone();
        async move {
            let response = review(&webhook(api(queue, label)), "/mutate-resourcebinding", "ns", &object).await;
            response.get("patch").is_some().then(|| patched(&object, &response)["spec"]["suspension"].clone())
        }
    };
    assert_eq!(gated(json!({}), json!({})).await, None);
    assert_eq!(gated(json!({"volcano.sh/queue-name": "q"}), json!({})).await, Some(json!({"scheduling": true})));
    assert_eq!(gated(json!({}), json!({"caldera.dev/queueing": "enabled"})).await, Some(json!({"scheduling": true})));
}

#[tokio::test]
async fn what_can_not_be_told_is_an_http_error_so_that_the_failure_policy_decides() {
    let api = Router::new().route(DEPLOYMENTS, get(|| async { (axum::http::StatusCode::BAD_GATEWAY, "no") }));
    let request =
        json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": binding("apps/v1", "Deployment")});
    let (status, text) = post(&webhook(api), "/mutate-resourcebinding", json!({"request": request}).to_string()).await;
    assert_eq!(status, 500, "{text}");
    assert!(text.as_str().unwrap().contains("failed to tell whether Deployment x is queued"), "{text}");
}

/// The names of the spans that were opened.
#[derive(Clone, Default)]
struct SpanNames(Arc<Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for SpanNames {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        self.0.lock().unwrap().push(attributes.metadata().name());
    }
}

#[tokio::test]
async fn every_review_has_a_span() {
    let names = SpanNames::default();
    // For all threads: what a thread without a subscriber registers first stays disabled for the others.
    tracing_subscriber::registry().with(names.clone()).init();
    let webhook = webhook(Router::new());
    for route in ["/mutate-resourcebinding", "/mutate-work", "/mutate-job", "/validate-job", "/interpreter"] {
        post(&webhook, route, "{}").await;
    }
    assert!(names.0.lock().unwrap().iter().filter(|name| **name == "review").count() >= 5);
}

#[tokio::test]
async fn health_says_alive_at_once_and_ready_only_with_a_complete_cache() {
    let ready = Ready::default();
    let webhook = router(
        SharedCache::new(kube::Client::new(Router::new(), "default"), &SharedRegistry::default()),
        ready.clone(),
    );
    let status = |path: &'static str| {
        let webhook = webhook.clone();
        async move { webhook.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap().status().as_u16() }
    };
    assert_eq!((status("/healthz").await, status("/readyz").await), (200, 503));
    ready.set_ready(true);
    assert_eq!(status("/readyz").await, 200);
}

/// The largest object: tasks of a job that depend each on the one before, as in the attack.
fn chain(tasks: usize) -> Value {
    let task = |at: usize| {
        let on: Vec<String> = at.checked_sub(1).map(|before| format!("t{before}")).into_iter().collect();
        json!({
            "name": format!("t{at}"), "replicas": 1, "dependsOn": {"name": on},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        })
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"queue": "q", "tasks": (0..tasks).map(task).collect::<Vec<_>>()},
    })
}

#[tokio::test]
async fn a_job_of_too_many_tasks_is_refused_in_a_sentence_before_it_is_built() {
    let webhook = webhook(Router::new());
    for route in ["/mutate-job", "/validate-job"] {
        let response = review(&webhook, route, "ns", &chain(19_000)).await;
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(422)), "{route}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("spec.tasks: 19000 tasks are above 10000"), "{message}");
    }
}

#[tokio::test]
async fn a_job_of_five_thousand_tasks_is_taken() {
    let webhook = webhook(Router::new());
    let job = chain(5_000);
    let response = review(&webhook, "/mutate-job", "ns", &job).await;
    let defaulted = patched(&job, &response);
    assert_eq!(defaulted["spec"]["tasks"][4_999]["minAvailable"], 1);
    assert_eq!(review(&webhook, "/validate-job", "ns", &defaulted).await["allowed"], true);
}

#[tokio::test]
async fn what_would_take_too_much_memory_is_refused_in_a_sentence_and_its_labels_may_still_change() {
    let webhook = webhook(Router::new());
    let mut job = chain(1);
    // Eight bytes of text are 700 of memory.
    job["spec"]["policies"] = vec![json!({"a": 1}); 200_000].into();
    for route in ["/mutate-job", "/validate-job", "/mutate-work", "/validate-queue", "/mutate-resourcebinding"] {
        let response = review(&webhook, route, "ns", &job).await;
        assert_eq!((&response["uid"], &response["status"]["code"]), (&json!("u"), &json!(413)), "{route}: {response}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("the object is too large to be reviewed"), "{message}");
    }
    let mut labelled = job.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let request = json!({"uid": "u", "operation": "UPDATE", "namespace": "ns", "object": labelled, "oldObject": job});
    for route in ["/mutate-job", "/validate-job"] {
        let (_, answer) = post(&webhook, route, json!({"request": request}).to_string()).await;
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}), "{route}");
    }
    let context = json!({"request": {"uid": "u", "kind": {}, "operation": "InterpretHealth", "object": job}});
    let (status, answer) = post(&webhook, "/interpreter", context.to_string()).await;
    assert_eq!(
        (status, &answer["response"]["successful"], &answer["response"]["uid"]),
        (200, &json!(false), &json!("u"))
    );
}

#[tokio::test]
async fn a_body_above_the_limit_is_a_413_with_words() {
    let webhook = webhook(Router::new());
    let (status, text) = post(&webhook, "/mutate-work", vec![b' '; 16 << 20]).await;
    assert_eq!(status, 413);
    assert!(text.as_str().unwrap().starts_with("the body is larger than the "), "{text}");
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_never_asked_for() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let api = Router::new().fallback(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.uri().to_string());
        async { not_found() }
    });
    let webhook = webhook(api);
    for namespace in ["default/secrets?x=", "..", "a%2fb"] {
        let mut object = work();
        object["metadata"]["annotations"]["resourcebinding.karmada.io/namespace"] = namespace.into();
        let response = review(&webhook, "/mutate-work", "karmada-es-m1", &object).await;
        assert_eq!(response["allowed"], false, "{namespace}");
        let mut object = binding("apps/v1", "Deployment");
        review(&webhook, "/mutate-resourcebinding", namespace, &object).await;
        object["spec"]["resource"]["name"] = namespace.into();
        review(&webhook, "/mutate-resourcebinding", "ns", &object).await;
    }
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
    review(&webhook, "/mutate-work", "karmada-es-m1", &work()).await;
    assert_eq!(asked.lock().unwrap().len(), 1);
}
