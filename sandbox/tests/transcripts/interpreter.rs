//! The recorder's resource interpreter: answers what it answered to the same question.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};

use crate::recording::Recording;

/// Host and port of its URL. Nothing listens there: it is called in this process.
pub const ADDRESS: &str = "interpreter:443";

#[derive(Clone)]
pub struct Interpreter(Arc<Inner>);

struct Inner {
    answers: Vec<Value>,
    /// A failed call, as long as its operation fails.
    fault: Mutex<Option<Value>>,
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Interpreter {
    pub fn of(recording: &Recording) -> Self {
        let (failed, answered): (Vec<&Value>, Vec<&Value>) =
            recording.interpreter_calls().iter().partition(|call| recording.has_failed(call));
        Self(Arc::new(Inner {
            answers: answered.into_iter().cloned().collect(),
            // Of a service that nobody reached there is no call.
            fault: Mutex::new(recording.fault().map(|operation| {
                let refused = json!({"operation": operation, "http_status": 503, "response": "nobody listens"});
                failed.first().map_or(refused, |call| (*call).clone())
            })),
            counts: Mutex::default(),
        }))
    }

    /// What Karmada's stand-in calls.
    pub fn router(&self) -> Router {
        Router::new().fallback(post(answer)).with_state(self.clone())
    }

    pub fn remove_fault(&self) {
        *self.0.fault.lock().unwrap() = None;
    }

    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.0.counts.lock().unwrap().clone()
    }
}

/// What the recorder works out, rather than to look it up: statuses and health.
fn computed(operation: &str, request: &Value) -> Option<Value> {
    use base64::Engine;
    let status = &request["object"]["status"];
    match operation {
        "InterpretHealth" => {
            let phase = status["state"]["phase"].as_str().unwrap_or_default();
            Some(json!({"successful": true, "healthy": matches!(phase, "Running" | "Completed")}))
        }
        "InterpretStatus" => {
            let mut told = json!({"state": {}});
            for field in ["minAvailable", "pending", "running", "succeeded", "failed", "state"] {
                if let Some(value) = status.get(field) {
                    told[field] = value.clone();
                }
            }
            Some(json!({"successful": true, "rawStatus": told}))
        }
        "AggregateStatus" => {
            let items: Vec<&Value> = request["aggregatedStatus"].as_array().into_iter().flatten().collect();
            let phases: Vec<&str> =
                items.iter().map(|item| item["status"]["state"]["phase"].as_str().unwrap_or_default()).collect();
            let phase = if !phases.is_empty() && phases.iter().all(|phase| *phase == "Completed") {
                "Completed"
            } else if phases.contains(&"Running") {
                "Running"
            } else {
                "Pending"
            };
            let mut wanted =
                json!({"minAvailable": request["object"]["spec"]["minAvailable"], "state": {"phase": phase}});
            for field in ["pending", "running", "succeeded", "failed"] {
                let sum: i64 = items.iter().filter_map(|item| item["status"][field].as_i64()).sum();
                if sum != 0 {
                    wanted[field] = json!(sum);
                }
            }
            if *status == wanted {
                return Some(json!({"successful": true}));
            }
            let patch = json!([{"op": "add", "path": "/status", "value": wanted}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(patch);
            Some(json!({"successful": true, "patchType": "JSONPatch", "patch": patch}))
        }
        _ => None,
    }
}

async fn answer(State(own): State<Interpreter>, Json(asked): Json<Value>) -> Response {
    let request = &asked["request"];
    let operation = request["operation"].as_str().unwrap_or_default().to_owned();
    *own.0.counts.lock().unwrap().entry(operation.clone()).or_default() += 1;
    let mut response = match computed(&operation, request) {
        Some(response) => {
            json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "response": response})
        }
        None => {
            let same = |call: &&Value| {
                let known = &call["request"]["request"];
                call["operation"] == operation.as_str() && known["replicas"] == request["replicas"]
            };
            let close =
                |call: &&Value| usize::from(call["request"]["request"]["object"]["spec"] == request["object"]["spec"]);
            let known = own.0.answers.iter().filter(same).max_by_key(close);
            known.map_or_else(|| json!({"response": {"successful": true}}), |call| call["response"].clone())
        }
    };
    response["response"]["uid"] = request["uid"].clone();
    let fault = own.0.fault.lock().unwrap().clone().filter(|call| call["operation"] == operation.as_str());
    match fault {
        Some(call) => fail(&call, &request["uid"], &response).await,
        None => Json(response).into_response(),
    }
}

/// Fails as a recorded call did: too late, with another status, or with another answer than the `right` one.
async fn fail(call: &Value, uid: &Value, right: &Value) -> Response {
    let delay = call["delay_s"].as_f64().unwrap_or_default();
    if delay > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(delay)).await;
        return Json(right).into_response();
    }
    let mut told = call["response"].clone();
    let asked = &call["request"]["request"]["uid"];
    if told["response"]["uid"] == *asked {
        told["response"]["uid"] = uid.clone();
    }
    let status = call["http_status"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let body = told.as_str().map_or_else(|| told.to_string(), str::to_owned);
    (status.unwrap_or(StatusCode::OK), body).into_response()
}
