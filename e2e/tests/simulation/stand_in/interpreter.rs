//! What our resource interpreter says of a Volcano Job.

use axum::body::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{NAMESPACE, StandIn, services};
use crate::workloads::is_service;

impl StandIn {
    /// Karmada knows Deployments by itself, and asks our interpreter of Volcano Jobs.
    pub(super) async fn interpret(&self, operation: &str, job: &Value, more: Value) -> Result<Value, String> {
        if is_service(job) {
            return Ok(services::interpret(operation, job));
        }
        let mut object = job.clone();
        object["apiVersion"] = "batch.volcano.sh/v1alpha1".into();
        object["kind"] = "Job".into();
        let mut request = json!({
            "uid": "u", "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
            "name": job["metadata"]["name"], "namespace": NAMESPACE, "operation": operation, "object": object,
        });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = Body::from(json!({"request": request}).to_string());
        let request = http::Request::post("/interpreter").body(body).unwrap();
        let answer = self.webhook.clone().oneshot(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let answer: Value = serde_json::from_slice(&body).map_err(|_| format!("the interpreter says {status}"))?;
        let response = answer["response"].clone();
        if response["successful"] == true { Ok(response) } else { Err(response.to_string()) }
    }
}

pub(super) fn patched(object: &Value, answer: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = answer["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}
