//! The kubectl area: the real kubectl talks to the server through a recording proxy; what it sent is compared in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bind::Bindings;
use crate::case::{Case, Request};
use crate::compare::{Compare, Diff, Grade, clip};
use crate::http::{Pool, decode_query, pool};
use crate::run::{Outcome, Runner};

#[derive(Clone, Debug)]
struct Sent {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    content_type: Option<String>,
    body: Vec<u8>,
    status: u16,
    answer: String,
}

#[derive(Deserialize)]
struct Golden {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    content_type: Option<String>,
    status: u16,
    body: Option<Value>,
    #[serde(rename = "bodyText")]
    body_text: Option<String>,
    #[serde(rename = "bodyBase64")]
    body_base64: Option<String>,
}

#[derive(Deserialize)]
struct Background {
    after_seconds: f64,
    request: Request,
}

/// The path of kubectl, when there is one.
pub fn find() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join("kubectl")).find(|p| p.is_file())
}

struct Proxy {
    url: String,
    sent: Arc<Mutex<Vec<Sent>>>,
}

#[derive(Clone)]
struct Forward {
    base: String,
    pool: Pool,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Proxy {
    async fn start(runner: &Runner) -> Proxy {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let forward =
            Forward { base: runner.target.url.trim_end_matches('/').to_owned(), pool: pool(), sent: sent.clone() };
        let app = axum::Router::new().fallback(relay).with_state(forward);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let tls = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(crate::target::self_signed()));
        tokio::spawn(axum_server::from_tcp_rustls(listener, tls).unwrap().serve(app.into_make_service()));
        Proxy { url: format!("https://{address}"), sent }
    }
}

async fn relay(State(forward): State<Forward>, request: axum::extract::Request) -> axum::response::Response {
    let (mut parts, body) = request.into_parts();
    let bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let index = {
        let mut sent = forward.sent.lock().unwrap();
        sent.push(Sent {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: decode_query(parts.uri.query().unwrap_or("")).into_iter().collect(),
            content_type: parts.headers.get("content-type").and_then(|v| v.to_str().ok()).map(str::to_owned),
            body: bytes.to_vec(),
            status: 0,
            answer: String::new(),
        });
        sent.len() - 1
    };
    let url = format!("{}{}", forward.base, parts.uri.path_and_query().map_or("/", |p| p.as_str()));
    parts.headers.remove("host");
    let mut onward = http::Request::builder().method(parts.method).uri(url);
    if let Some(headers) = onward.headers_mut() {
        *headers = parts.headers;
    }
    let answer = match forward.pool.request(onward.body(Full::new(bytes)).unwrap()).await {
        Ok(answer) => answer,
        Err(e) => return (http::StatusCode::BAD_GATEWAY, e.to_string()).into_response(),
    };
    let status = answer.status().as_u16();
    forward.sent.lock().unwrap()[index].status = status;
    let (head, body) = answer.into_parts();
    let body = if status >= 400 {
        let bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        forward.sent.lock().unwrap()[index].answer = String::from_utf8_lossy(&bytes).into_owned();
        Body::from(bytes)
    } else {
        Body::new(body)
    };
    axum::response::Response::from_parts(head, body)
}

pub async fn run(runner: &Arc<Runner>, case: &Case) -> Outcome {
    match attempt(runner, case).await {
        Ok(diffs) => Outcome { diffs, skipped: None },
        Err(why) => Outcome {
            diffs: vec![Diff { grade: Grade::A, place: "case".into(), golden: "runs".into(), actual: why }],
            skipped: None,
        },
    }
}

async fn attempt(runner: &Arc<Runner>, case: &Case) -> Result<Vec<Diff>, String> {
    let field = |name: &str| case.kubectl.get(name).cloned().unwrap_or(Value::Null);
    let proxy = Proxy::start(runner).await;
    let home = tempfile::tempdir().map_err(|e| format!("make a home directory: {e}"))?;
    let config = kubeconfig(&proxy.url, &runner.target.admin, field("namespace").as_str().unwrap_or("default"));
    std::fs::write(home.path().join("config"), config).map_err(|e| e.to_string())?;
    for (name, text) in field("files").as_object().into_iter().flatten() {
        std::fs::write(home.path().join(name), text.as_str().unwrap_or("")).map_err(|e| e.to_string())?;
    }
    if field("discovery_cache") == "warm" {
        command(home.path(), "kubectl api-resources", None).await?;
    }
    // The cache is warm from before: what the setup adds is news to it.
    runner.set_up(&case.setup).await?;
    for before in field("commands_before").as_array().into_iter().flatten() {
        command(home.path(), before.as_str().unwrap_or(""), None).await?;
    }
    proxy.sent.lock().unwrap().clear();
    let background: Vec<Background> = serde_json::from_value(field("background")).unwrap_or_default();
    for later in background {
        let runner = runner.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(later.after_seconds)).await;
            let _ = runner.send_plain(&later.request).await;
        });
    }
    let kill = field("killed_after_seconds").as_f64();
    let (exit, output) = command(home.path(), field("command").as_str().unwrap_or(""), kill).await?;
    let sent = proxy.sent.lock().unwrap().clone();
    let golden: Vec<Golden> = serde_json::from_value(field("requests")).map_err(|e| format!("requests: {e}"))?;
    let mut diffs = compare(golden, sent);
    let expected = match field("exit") {
        Value::Number(n) => n.to_string(),
        _ => "killed".into(),
    };
    if exit != expected {
        diffs.push(Diff {
            grade: Grade::A,
            place: "exit".into(),
            golden: expected,
            actual: format!("{exit}: {}", clip(&output, 500)),
        });
    }
    Ok(diffs)
}

async fn command(dir: &Path, line: &str, kill_after: Option<f64>) -> Result<(String, String), String> {
    let child = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("exec {line}"))
        .current_dir(dir)
        .env("HOME", dir)
        .env("KUBECONFIG", dir.join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("start {line}: {e}"))?;
    let limit = Duration::from_secs_f64(kill_after.unwrap_or(120.0));
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => {
            let output = output.map_err(|e| format!("wait for {line}: {e}"))?;
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            Ok((output.status.code().map_or("killed".into(), |c| c.to_string()), text))
        }
        Err(_) => Ok(("killed".into(), String::new())),
    }
}

fn kubeconfig(url: &str, token: &str, namespace: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    })
    .to_string()
}

/// `/api`, `/apis` and OpenAPI requests depend on caches: which were asked is compared as a set, documents not at all.
fn is_discovery(path: &str) -> bool {
    path == "/api" || path == "/apis"
}

fn compare(golden: Vec<Golden>, sent: Vec<Sent>) -> Vec<Diff> {
    let mut bindings = Bindings::default();
    let mut compare = Compare::new(&mut bindings);
    let (golden_discovery, golden): (Vec<_>, Vec<_>) =
        golden.into_iter().filter(|g| !g.path.starts_with("/openapi/")).partition(|g| is_discovery(&g.path));
    // A kubectl that picks the binary for the server's release asks for that first.
    let dispatch = |path: &str| path == "/version" && !golden.iter().any(|g| g.path == "/version");
    let (sent_discovery, sent): (Vec<_>, Vec<_>) = sent
        .into_iter()
        .filter(|s| !s.path.starts_with("/openapi/") && !dispatch(&s.path))
        .partition(|s| is_discovery(&s.path));
    let mut asked: Vec<String> = golden_discovery.iter().map(|g| format!("{} {}", g.method, g.path)).collect();
    let mut asks: Vec<String> = sent_discovery.iter().map(|s| format!("{} {}", s.method, s.path)).collect();
    asked.sort();
    asks.sort();
    compare.body("discovery requests", Grade::A, &json!(asked), &json!(asks));
    for s in sent_discovery.iter().filter(|s| s.status != 200 && s.status != 304) {
        compare.note(Grade::A, &s.path, "200", s.status.to_string());
    }
    // Requests for different objects may change places; those of one object may not.
    let (mut golden, mut sent) = (golden, sent);
    golden.sort_by_key(|g| object_of(&g.path));
    sent.sort_by_key(|s| object_of(&s.path));
    let lines = |list: Vec<String>| Value::from(list);
    compare.body(
        "requests",
        Grade::A,
        &lines(golden.iter().map(|g| format!("{} {} -> {}", g.method, g.path, g.status)).collect()),
        &lines(
            sent.iter()
                .map(|s| format!("{} {} -> {}{}", s.method, s.path, s.status, clip(&s.answer, 300)))
                .collect::<Vec<_>>()
                .into_iter()
                .zip(sent.iter())
                .map(|(line, s)| {
                    if s.status < 400 || golden.iter().any(|g| g.path == s.path && g.status == s.status) {
                        format!("{} {} -> {}", s.method, s.path, s.status)
                    } else {
                        line
                    }
                })
                .collect(),
        ),
    );
    for (g, s) in golden.iter().zip(&sent) {
        one(&mut compare, g, s);
    }
    compare.diffs
}

fn object_of(path: &str) -> String {
    path.to_owned()
}

fn one(compare: &mut Compare<'_>, golden: &Golden, sent: &Sent) {
    let place = format!("{} {}", golden.method, golden.path);
    let (mut asked, mut asks) = (golden.query.clone(), sent.query.clone());
    for (key, value) in &golden.query {
        if value == "<random>" {
            asked.insert(key.clone(), String::new());
            asks.entry(key.clone()).and_modify(String::clear);
        }
        if key == "fieldSelector" {
            asked.insert(key.clone(), sorted_terms(value));
            asks.entry(key.clone()).and_modify(|v| *v = sorted_terms(v));
        }
    }
    compare.body(&format!("{place} | query"), Grade::A, &json!(asked), &json!(asks));
    let kinds = (json!(golden.content_type), json!(sent.content_type));
    compare.body(&format!("{place} | content-type"), Grade::A, &kinds.0, &kinds.1);
    if let Some(text) = &golden.body_base64 {
        let bytes = STANDARD.decode(text).unwrap_or_default();
        if bytes != sent.body {
            compare.note(Grade::A, &format!("{place} | body"), text.clone(), STANDARD.encode(&sent.body));
        }
        return;
    }
    let text = String::from_utf8_lossy(&sent.body).into_owned();
    match (&golden.body, &golden.body_text) {
        (Some(body), _) => {
            let actual = serde_json::from_str(&text).unwrap_or(Value::String(text));
            compare.body(&format!("{place} | body"), Grade::A, body, &actual);
        }
        (None, Some(body)) => compare.body(&format!("{place} | body"), Grade::A, &json!(body), &json!(text)),
        (None, None) => {}
    }
}

fn sorted_terms(selector: &str) -> String {
    let mut terms: Vec<&str> = selector.split(',').collect();
    terms.sort_unstable();
    terms.join(",")
}
