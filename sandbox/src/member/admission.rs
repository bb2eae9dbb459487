//! Volcano's admission in a member: defaults for Jobs and Queues on CREATE, and the refusals of Jobs, Queues and
//! PodGroups.
//!
//! Rule: `pkg/webhooks/admission/{jobs,queues,podgroups}`, those that its Helm chart turns on; the rules themselves are
//! [`caldera_crds::job_admission`] and [`caldera_crds::queue_admission`]. What a member adds is its queues: a Job is
//! refused unless its queue exists here, is Open, is not `root` and is a leaf.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use axum::{Json, Router, extract::State, routing::post};
use base64::Engine;
use caldera_crds::{
    job_admission::{QueueView, fill_job_defaults, queue_refusals, validate_create, validate_update},
    queue_admission,
};
use caldera_runtime::tls::Authority;
use serde_json::{Value, json};

use super::object::{name, text};

/// The member's queues, as admission sees them.
pub type Queues = Arc<ArcSwap<Vec<Value>>>;

/// Routes of the admission server.
pub fn webhook_router(queues: Queues) -> Router {
    Router::new()
        .route("/jobs/mutate", post(mutate_job))
        .route("/jobs/validate", post(validate_job))
        .route("/queues/mutate", post(mutate_queue))
        .route("/queues/validate", post(validate_queue))
        .route("/podgroups/validate", post(validate_group))
        .with_state(queues)
}

/// The webhook configurations that send the API server here.
#[must_use]
pub fn webhook_configurations(address: SocketAddr, authority: &Authority) -> [Value; 2] {
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
                webhook(
                    "/podgroups/validate", "validatepodgroup.volcano.sh", json!(["CREATE"]), scheduling, "v1beta1",
                    "podgroups",
                ),
            ],
        }),
    ]
}

async fn mutate_job(Json(review): Json<Value>) -> Json<Value> {
    answer_mutation(&review, fill_job_defaults)
}

async fn mutate_queue(Json(review): Json<Value>) -> Json<Value> {
    answer_mutation(&review, queue_admission::fill_queue_defaults)
}

async fn validate_job(State(queues): State<Queues>, Json(review): Json<Value>) -> Json<Value> {
    let refusals = job_refusals(&review, &queues.load());
    answer_validation(&review, (!refusals.is_empty()).then(|| refusals.join(" ")))
}

async fn validate_queue(State(queues): State<Queues>, Json(review): Json<Value>) -> Json<Value> {
    let (new, old) = reviewed_objects(&review);
    let queues = queues.load();
    let there: Vec<&Value> = queues.iter().collect();
    let refusals = match text(&review, "/request/operation") {
        "CREATE" => queue_admission::list_volcano_creation_refusals(new, &there),
        "DELETE" => queue_admission::list_deletion_refusals(text(&review, "/request/name"), &there),
        _ => queue_admission::list_volcano_update_refusals(old, new, &there),
    };
    answer_validation(&review, (!refusals.is_empty()).then(|| queue_admission::join_messages(&refusals)))
}

async fn validate_group(State(queues): State<Queues>, Json(review): Json<Value>) -> Json<Value> {
    let (new, _) = reviewed_objects(&review);
    answer_validation(&review, group_refusal(new, &queues.load()))
}

/// What is wrong with a Job that is created or changed, in Volcano's words.
pub fn job_refusals(review: &Value, queues: &[Value]) -> Vec<String> {
    let (new, old) = reviewed_objects(review);
    if text(review, "/request/operation") != "CREATE" {
        return validate_update(old, new);
    }
    let mut refusals = validate_create(new);
    let queue = text(new, "/spec/queue");
    let found = queues.iter().find(|known| name(known) == queue);
    let children = queues.iter().filter(|known| text(known, "/spec/parent") == queue).count();
    let view = found.map(|found| QueueView { state: text(found, "/status/state"), children });
    refusals.extend(queue_refusals(queue, view.as_ref()).into_iter().map(|refusal| refusal.volcano));
    refusals
}

/// What is wrong with a new PodGroup.
pub fn group_refusal(group: &Value, queues: &[Value]) -> Option<String> {
    let mut refusals = Vec::new();
    let queue = text(group, "/spec/queue");
    match queues.iter().find(|known| name(known) == queue).map(|known| text(known, "/status/state")) {
        _ if queue.is_empty() => {}
        Some("Open") => {}
        Some(state) => refusals
            .push(format!("can only submit PodGroup to queue with state `Open`, queue `{queue}` status is `{state}`.")),
        None => refusals.push(format!("unable to find queue: queue.scheduling.volcano.sh \"{queue}\" not found")),
    }
    let both = |topology: &Value| {
        topology.get("highestTierAllowed").is_some_and(|tier| !tier.is_null())
            && !text(topology, "/highestTierName").is_empty()
    };
    let twice = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously.";
    if group.pointer("/spec/networkTopology").is_some_and(both) {
        refusals.push(twice.to_owned());
    }
    let policies = super::object::list(group, "/spec/subGroupPolicy");
    if let Some(policy) = policies.iter().find(|policy| policy.get("networkTopology").is_some_and(both)) {
        refusals.push(format!("in subGroupPolicy '{}': {twice}", text(policy, "/name")));
    }
    (!refusals.is_empty()).then(|| refusals.join("; "))
}

fn reviewed_objects(review: &Value) -> (&Value, &Value) {
    (
        review.pointer("/request/object").unwrap_or(&Value::Null),
        review.pointer("/request/oldObject").unwrap_or(&Value::Null),
    )
}

fn answer_mutation(review: &Value, change: impl FnOnce(&mut Value)) -> Json<Value> {
    let (before, _) = reviewed_objects(review);
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

fn answer_validation(review: &Value, refusal: Option<String>) -> Json<Value> {
    let mut response = json!({"uid": text(review, "/request/uid"), "allowed": refusal.is_none()});
    if let Some(message) = refusal {
        response["status"] = json!({"message": message});
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
