//! Volcano's admission in a member: defaults for Jobs on CREATE, and the refusals of Jobs and Queues.
//!
//! Rule: `pkg/webhooks/admission/{jobs,queues}`; the rules themselves are [`caldera_crds::job_admission`]. What a member
//! adds is its queues: a Job is refused unless its queue exists here, is Open, is not `root` and is a leaf.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use axum::{Json, Router, extract::State, routing::post};
use base64::Engine;
use caldera_runtime::tls::Authority;
use serde_json::{Value, json};

use super::object::{name, text};

/// The member's queues, as admission sees them.
pub type Queues = Arc<ArcSwap<Vec<Value>>>;

/// Routes of the admission server.
pub fn router(queues: Queues) -> Router {
    Router::new()
        .route("/jobs/mutate", post(mutate_job))
        .route("/jobs/validate", post(validate_job))
        .route("/queues/mutate", post(mutate_queue))
        .route("/queues/validate", post(validate_queue))
        .with_state(queues)
}

/// The webhook configurations that send the API server here.
#[must_use]
pub fn configurations(address: SocketAddr, authority: &Authority) -> [Value; 2] {
    let bundle = base64::engine::general_purpose::STANDARD.encode(&authority.cert_pem);
    let webhook = |path: &str, name: &str, operations: Value, group: &str, version: &str, resource: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 10, "matchPolicy": "Equivalent",
            "clientConfig": {"url": format!("https://{address}{path}"), "caBundle": bundle},
            "rules": [{
                "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource],
            }],
        })
    };
    let batch = "batch.volcano.sh";
    let scheduling = "scheduling.volcano.sh";
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "volcano-admission-service-mutate"},
            "webhooks": [
                webhook("/jobs/mutate", "mutatejob.volcano.sh", json!(["CREATE"]), batch, "v1alpha1", "jobs"),
                webhook("/queues/mutate", "mutatequeue.volcano.sh", json!(["CREATE"]), scheduling, "v1beta1", "queues"),
            ],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "volcano-admission-service-validate"},
            "webhooks": [
                webhook("/jobs/validate", "validatejob.volcano.sh", json!(["CREATE", "UPDATE"]), batch, "v1alpha1", "jobs"),
                webhook(
                    "/queues/validate", "validatequeue.volcano.sh", json!(["CREATE", "UPDATE", "DELETE"]), scheduling,
                    "v1beta1", "queues",
                ),
            ],
        }),
    ]
}

async fn mutate_job(Json(review): Json<Value>) -> Json<Value> {
    mutated(&review, |job| caldera_crds::job_admission::default_job(job))
}

async fn mutate_queue(Json(review): Json<Value>) -> Json<Value> {
    mutated(&review, |queue| {
        for (field, default) in [("reclaimable", json!(true)), ("weight", json!(1))] {
            let absent = queue.pointer(&format!("/spec/{field}")).is_none_or(|value| *value == json!(0));
            if absent {
                queue["spec"][field] = default;
            }
        }
    })
}

async fn validate_job(State(queues): State<Queues>, Json(review): Json<Value>) -> Json<Value> {
    let (new, old) = objects(&review);
    let refusals = match text(&review, "/request/operation") {
        "CREATE" => {
            let mut refusals = caldera_crds::job_admission::validate_create(new);
            refusals.extend(queue_refusal(&queues.load(), new));
            refusals
        }
        _ => caldera_crds::job_admission::validate_update(old, new),
    };
    answer(&review, refusals)
}

async fn validate_queue(State(queues): State<Queues>, Json(review): Json<Value>) -> Json<Value> {
    let (new, old) = objects(&review);
    let refusals = if text(&review, "/request/operation") == "DELETE" {
        match name(old) {
            protected @ ("default" | "root") => vec![format!("`{protected}` queue can not be deleted")],
            parent if queues.load().iter().any(|queue| text(queue, "/spec/parent") == parent) => {
                vec![format!("queue {parent} can not be deleted because it has child queues")]
            }
            _ => Vec::new(),
        }
    } else {
        match text(new, "/status/state") {
            "" | "Open" | "Closed" => Vec::new(),
            state => vec![format!("queue state must be in [Open Closed], not {state}")],
        }
    };
    answer(&review, refusals)
}

fn queue_refusal(queues: &[Value], job: &Value) -> Option<String> {
    let queue_name = text(job, "/spec/queue");
    let Some(queue) = queues.iter().find(|queue| name(queue) == queue_name) else {
        return Some(format!("unable to find job queue: queue.scheduling.volcano.sh \"{queue_name}\" not found;"));
    };
    match text(queue, "/status/state") {
        "Open" => {}
        state => {
            return Some(format!(
                "can only submit job to queue with state `Open`, queue `{queue_name}` status is `{state}`;"
            ));
        }
    }
    if queue_name == "root" {
        return Some("can not submit job to root queue".to_owned());
    }
    let parent = queues.iter().any(|queue| text(queue, "/spec/parent") == queue_name);
    parent.then(|| format!("can only submit job to leaf queue, queue `{queue_name}` has child queues"))
}

fn objects(review: &Value) -> (&Value, &Value) {
    (
        review.pointer("/request/object").unwrap_or(&Value::Null),
        review.pointer("/request/oldObject").unwrap_or(&Value::Null),
    )
}

fn mutated(review: &Value, change: impl FnOnce(&mut Value)) -> Json<Value> {
    let (before, _) = objects(review);
    let mut after = before.clone();
    change(&mut after);
    let patch = json_patch::diff(before, &after);
    let mut response = json!({"uid": text(review, "/request/uid"), "allowed": true});
    if !patch.0.is_empty() {
        let bytes = serde_json::to_vec(&patch).unwrap_or_default();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn answer(review: &Value, refusals: Vec<String>) -> Json<Value> {
    let mut response = json!({"uid": text(review, "/request/uid"), "allowed": refusals.is_empty()});
    if !refusals.is_empty() {
        response["status"] = json!({"message": refusals.join(" ")});
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
