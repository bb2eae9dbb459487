//! The recorder's admission webhooks, and Volcano's in the members.

use std::sync::{Arc, Mutex};

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::recording::Denials;

/// Admission calls and refusals that were recorded and not repeated yet.
#[derive(Clone)]
pub struct Calls {
    pub answers: Arc<Mutex<Vec<Value>>>,
    pub denials: Arc<Mutex<Denials>>,
}

/// Answers admission calls as they were recorded.
pub async fn admit(State(calls): State<Calls>, uri: http::Uri, Json(asked): Json<Value>) -> Json<Value> {
    use base64::Engine;
    let request = &asked["request"];
    let name = match request["namespace"].as_str() {
        Some(namespace) if !namespace.is_empty() => {
            format!("{namespace}/{}", request["name"].as_str().unwrap_or_default())
        }
        _ => request["name"].as_str().unwrap_or_default().to_owned(),
    };
    if uri.path() == "/volcano" {
        return Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": volcano(request)}),
        );
    }
    let mut answers = calls.answers.lock().unwrap();
    let same = |call: &Value| {
        call["path"] == uri.path() && call["operation"] == request["operation"] && call["object"] == name.as_str()
    };
    let index = answers.iter().position(same);
    let key = (uri.path().to_owned(), request["operation"].as_str().unwrap_or_default().to_owned(), name.clone());
    let denials = &mut *calls.denials.lock().unwrap();
    if let Some((left, status)) = denials.get_mut(&key).filter(|(left, _)| *left > 0) {
        *left -= 1;
        index.map(|index| answers.remove(index));
        let response = json!({"uid": request["uid"], "allowed": false, "status": status});
        return Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}));
    }
    let mut response = json!({"uid": request["uid"], "allowed": true});
    if let Some(index) = index {
        let last = answers.iter().filter(|call| same(call)).count() == 1;
        let call = if last { answers[index].clone() } else { answers.remove(index) };
        if call["patch"].as_array().is_some_and(|patch| !patch.is_empty()) {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(call["patch"].to_string()));
        }
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Volcano's own admission, as members have it: defaults on CREATE, refusals on UPDATE.
fn volcano(request: &Value) -> Value {
    use base64::Engine;
    use caldera_crds::job_admission;
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let object = &request["object"];
    if request["operation"] == "CREATE" {
        let mut defaulted = object.clone();
        job_admission::fill_job_defaults(&mut defaulted);
        let patch = serde_json::to_vec(&json_patch::diff(object, &defaulted)).unwrap();
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(patch));
    } else {
        let refusals = job_admission::validate_update(&request["oldObject"], object);
        if let Some(first) = refusals.first() {
            response["allowed"] = json!(false);
            // The recorder's Volcano did not print what differs.
            let changed = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`";
            let message = if first.starts_with("job updates") { changed } else { first.trim_end_matches([';', ' ']) };
            response["status"] = json!({"message": message});
        }
    }
    response
}
