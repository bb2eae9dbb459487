//! The recorder's resource interpreter: answers what it answered to the same question.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use caldera_runtime::tls::{Authority, server_config};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::recording::Recording;

#[derive(Clone)]
pub struct Interpreter(Arc<Inner>);

struct Inner {
    answers: Vec<Value>,
    fault: Mutex<Option<(String, String)>>,
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Interpreter {
    /// Serves until the shutdown; gives back its address and CA too.
    pub fn serve(recording: &Recording, shutdown: CancellationToken) -> (Self, SocketAddr, String) {
        let own = Self(Arc::new(Inner {
            answers: recording.interpreter_calls().iter().filter(|call| call["http_status"] == 200).cloned().collect(),
            fault: Mutex::new(recording.fault()),
            counts: Mutex::default(),
        }));
        let authority = Authority::new("recorder").unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let identity = authority.server("recorder", &["localhost"], &[address.ip()]).unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(post(answer)).with_state(own.clone()).into_make_service();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(server_config(&identity).unwrap());
        let serving = axum_server::from_tcp_rustls(listener, config).unwrap().serve(app);
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = serving => {}
            }
        });
        (own, address, authority.cert_pem)
    }

    pub fn remove_fault(&self) {
        *self.0.fault.lock().unwrap() = None;
    }

    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.0.counts.lock().unwrap().clone()
    }
}

/// What an answer depends on, without times and names that differ from run to run.
fn essence(request: &Value) -> Value {
    let untimed = |value: &Value| -> Value {
        fn walk(value: &Value) -> Value {
            match value {
                Value::Object(map) => {
                    let kept = map.iter().filter(|(key, _)| *key != "lastTransitionTime");
                    kept.map(|(key, value)| (key.clone(), walk(value))).collect::<serde_json::Map<_, _>>().into()
                }
                Value::Array(list) => list.iter().map(walk).collect::<Vec<_>>().into(),
                other => other.clone(),
            }
        }
        walk(value)
    };
    json!({
        "operation": request["operation"],
        "replicas": request["replicas"],
        "spec": request["object"]["spec"],
        "status": untimed(&request["object"]["status"]),
        "items": untimed(&request["aggregatedStatus"]),
    })
}

async fn answer(State(own): State<Interpreter>, Json(asked): Json<Value>) -> impl IntoResponse {
    let request = &asked["request"];
    let operation = request["operation"].as_str().unwrap_or_default().to_owned();
    *own.0.counts.lock().unwrap().entry(operation.clone()).or_default() += 1;
    let wanted = essence(request);
    let score = |call: &&Value| {
        let known = essence(&call["request"]["request"]);
        let same = |field: &str| usize::from(known[field] == wanted[field]);
        (same("replicas") * 8 + same("items") * 4 + same("status") * 2 + same("spec"), ())
    };
    let known = own.0.answers.iter().filter(|call| call["operation"] == operation.as_str());
    let mut response = known.max_by_key(|call| score(call).0).map_or_else(|| default_answer(&operation, request), |call| call["response"].clone());
    response["response"]["uid"] = request["uid"].clone();
    let fault = own.0.fault.lock().unwrap().clone().filter(|(failing, _)| *failing == operation);
    match fault.as_ref().map(|(_, fault)| fault.as_str()) {
        Some("http500") => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some("timeout") => tokio::time::sleep(std::time::Duration::from_secs(4)).await,
        Some("malformed-patch") => {
            response["response"]["patchType"] = json!("JSONPatch");
            response["response"]["patch"] = json!("bm90IGpzb24=");
        }
        Some("wrong-uid") => response["response"]["uid"] = json!("another"),
        Some("unsuccessful") => {
            response["response"] =
                json!({"uid": request["uid"], "successful": false, "status": {"code": 422, "message": "recorder says no"}});
        }
        _ => {}
    }
    Json(response).into_response()
}

/// For a question of which no answer was recorded.
fn default_answer(operation: &str, request: &Value) -> Value {
    let response = match operation {
        "InterpretHealth" => json!({"successful": true, "healthy": true}),
        "InterpretStatus" => json!({"successful": true, "rawStatus": request["object"]["status"]}),
        _ => json!({"successful": true}),
    };
    json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "response": response})
}
