//! The webhook server of the cases: answers each path as the case says and records what it was sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};

use crate::http::decode_query;

#[derive(Default)]
struct Current {
    replies: BTreeMap<String, Value>,
    calls: Vec<Value>,
    counts: BTreeMap<String, usize>,
}

#[derive(Clone)]
pub struct Hooks {
    current: Arc<Mutex<Current>>,
    pub url: String,
    pub ca: String,
}

impl Hooks {
    pub async fn start() -> Hooks {
        let (ca_pem, tls) = crate::target::authority();
        let current = Arc::new(Mutex::new(Current::default()));
        let app = axum::Router::new().fallback(answer).with_state(current.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(server.serve(app.into_make_service()));
        Hooks { current, url: format!("https://{address}"), ca: STANDARD.encode(ca_pem) }
    }

    pub fn begin(&self, replies: &BTreeMap<String, Value>) {
        let mut current = self.current.lock().unwrap();
        *current = Current { replies: replies.clone(), ..Current::default() };
    }

    /// Calls since the last time: mutating ones in order, then the others sorted by path.
    pub fn take_calls(&self) -> Vec<Value> {
        let calls = std::mem::take(&mut self.current.lock().unwrap().calls);
        let path = |c: &Value| c["path"].as_str().unwrap_or("").to_owned();
        let (mutating, mut others): (Vec<_>, Vec<_>) = calls.into_iter().partition(|c| path(c).starts_with("/m"));
        others.sort_by_key(path);
        mutating.into_iter().chain(others).collect()
    }
}

async fn answer(State(current): State<Arc<Mutex<Current>>>, uri: Uri, body: Bytes) -> axum::response::Response {
    let review: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let reply = {
        let mut current = current.lock().unwrap();
        let path = uri.path().to_owned();
        let query: Map<String, Value> =
            decode_query(uri.query().unwrap_or("")).into_iter().map(|(k, v)| (k, Value::String(v))).collect();
        current.calls.push(json!({ "path": path, "query": query, "request": review }));
        let count = current.counts.entry(path.clone()).or_default();
        let nth = *count;
        *count += 1;
        match current.replies.get(&path) {
            Some(Value::Array(list)) => list.get(nth).or(list.last()).cloned().unwrap_or(json!({})),
            Some(reply) => reply.clone(),
            None => return (StatusCode::NOT_FOUND, "no such webhook").into_response(),
        }
    };
    if let Some(ms) = reply.get("delay_ms").and_then(Value::as_u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let text = |key: &str| reply.get(key).and_then(Value::as_str);
    if let Some(code) = reply.get("http_status").and_then(Value::as_u64) {
        let code = StatusCode::from_u16(u16::try_from(code).unwrap()).unwrap();
        return (code, [("content-type", "text/plain")], text("text").unwrap_or("").to_owned()).into_response();
    }
    let content_type = text("content_type").unwrap_or("application/json").to_owned();
    let out = match text("raw") {
        Some(raw) => raw.to_owned(),
        None => review_answer(&reply, &review).to_string(),
    };
    ([("content-type", content_type)], out).into_response()
}

fn review_answer(reply: &Value, review: &Value) -> Value {
    let mut out = Map::new();
    out.insert("apiVersion".into(), reply.get("apiVersion").cloned().unwrap_or(json!("admission.k8s.io/v1")));
    out.insert("kind".into(), reply.get("kind").cloned().unwrap_or(json!("AdmissionReview")));
    if reply.get("omit_response").is_some() {
        return Value::Object(out);
    }
    let mut response = Map::new();
    let uid = reply.get("uid").cloned().unwrap_or_else(|| review["request"]["uid"].clone());
    response.insert("uid".into(), uid);
    response.insert("allowed".into(), reply.get("allowed").cloned().unwrap_or(json!(true)));
    if let Some(patch) = reply.get("patch") {
        let bytes = match patch {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        response.insert("patch".into(), json!(STANDARD.encode(bytes)));
        match reply.get("patchType") {
            Some(Value::Null) => {}
            Some(other) => drop(response.insert("patchType".into(), other.clone())),
            None => drop(response.insert("patchType".into(), json!("JSONPatch"))),
        }
    }
    for key in ["status", "warnings"] {
        if let Some(value) = reply.get(key) {
            response.insert(key.into(), value.clone());
        }
    }
    out.insert("response".into(), Value::Object(response));
    Value::Object(out)
}
