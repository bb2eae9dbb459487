//! Runs one case: setup, steps, watches, cleanup; collects the differences.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::bind::Bindings;
use crate::case::{Case, Control, Entry, Exchange, Request, Step};
use crate::compare::{Compare, Diff, Grade, clip, view};
use crate::hooks::Hooks;
use crate::http::{Http, Outgoing, Text};
use crate::target::Target;

/// How long what must happen may take on a busy machine. Only failures last as long.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Runner {
    pub http: Http,
    pub target: Arc<Target>,
    pub hooks: Hooks,
}

/// What came of a case.
#[derive(Default)]
pub struct Outcome {
    pub diffs: Vec<Diff>,
    pub skipped: Option<String>,
}

struct Session<'a> {
    runner: &'a Runner,
    bindings: Bindings,
    bodies: Vec<Option<Value>>,
    diffs: Vec<Diff>,
}

impl Runner {
    pub async fn run(&self, case: &Case) -> Outcome {
        let bindings = Bindings {
            fixed: BTreeMap::from([
                ("webhook-url".to_owned(), self.hooks.url.clone()),
                ("webhook-ca".to_owned(), self.hooks.ca.clone()),
                ("webhook-host".to_owned(), self.hooks.url.trim_start_matches("https://").to_owned()),
            ]),
            ..Bindings::default()
        };
        let mut session = Session { runner: self, bindings, bodies: Vec::new(), diffs: Vec::new() };
        if !case.webhooks.is_empty() || case.area == "webhooks" {
            self.hooks.begin(&case.webhooks);
        }
        let outcome = session.whole(case).await;
        for request in &case.cleanup {
            let _ = self.http.send(&session.outgoing(request)).await;
        }
        match outcome {
            Ok(()) => Outcome { diffs: session.diffs, skipped: None },
            Err(why) => {
                let mut diffs = session.diffs;
                diffs.push(Diff { grade: Grade::A, place: "case".into(), golden: "runs".into(), actual: why });
                Outcome { diffs, skipped: None }
            }
        }
    }

    /// Sends the setup of a case that has no session of its own (kubectl).
    pub async fn set_up(&self, entries: &[Entry]) -> Result<(), String> {
        let bindings = Bindings::default();
        let mut session = Session { runner: self, bindings, bodies: Vec::new(), diffs: Vec::new() };
        session.set_up(entries).await
    }

    pub async fn send_plain(&self, request: &Request) -> Result<Text, String> {
        let session = Session { runner: self, bindings: Bindings::default(), bodies: Vec::new(), diffs: Vec::new() };
        let mut out = session.outgoing(request);
        if let Some(content_type) = &request.content_type {
            out.headers.push(("Content-Type".into(), content_type.clone()));
        }
        self.http.send(&out).await
    }

    pub async fn wait_established(&self, crd: &str) -> Result<(), String> {
        let session = Session { runner: self, bindings: Bindings::default(), bodies: Vec::new(), diffs: Vec::new() };
        session.wait_established(crd).await
    }
}

impl Session<'_> {
    async fn whole(&mut self, case: &Case) -> Result<(), String> {
        self.set_up(&case.setup).await?;
        if case.area == "webhooks" {
            self.runner.hooks.take_calls();
        }
        for (index, step) in case.steps.iter().enumerate() {
            match step {
                Step::Control(control) => {
                    self.control(control).await?;
                    self.bodies.push(None);
                }
                Step::Exchange(exchange) => {
                    let place = format!("step {index}");
                    let body = self.exchange(&place, exchange, case.area == "webhooks").await;
                    self.bodies.push(body);
                }
            }
        }
        Ok(())
    }

    async fn set_up(&mut self, entries: &[Entry]) -> Result<(), String> {
        for (index, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Control(control) => self.control(control).await?,
                Entry::Request(request) => {
                    let answer = self.runner.http.send(&self.outgoing(request)).await?;
                    if answer.status >= 300 {
                        let text = clip(&answer.text, 600);
                        return Err(format!(
                            "setup {index} {} {} answered {}: {text}",
                            request.method, request.path, answer.status
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    async fn control(&self, control: &Control) -> Result<(), String> {
        match control {
            // Our own server acts at once.
            Control::Settle { ms } => {
                if self.runner.target.embedded.is_none() {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                }
                Ok(())
            }
            Control::WaitEstablished { crd } => self.wait_established(crd).await,
            Control::WaitGone { path } => {
                self.poll(&format!("{path} gone"), || async {
                    let answer = self.runner.http.send(&self.get(path)).await?;
                    Ok(answer.status == 404)
                })
                .await
            }
            Control::Compact => {
                if self.runner.target.compact() {
                    Ok(())
                } else {
                    Err("the server has no compaction hook".into())
                }
            }
        }
    }

    async fn wait_established(&self, crd: &str) -> Result<(), String> {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}");
        self.poll(&format!("{crd} established"), || async {
            let Some(body) = self.runner.http.send(&self.get(&path)).await?.json() else { return Ok(false) };
            let established = body["status"]["conditions"]
                .as_array()
                .is_some_and(|list| list.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
            if !established {
                return Ok(false);
            }
            let served =
                body["spec"]["versions"].as_array().and_then(|l| l.iter().find(|v| v["served"] == true)).cloned();
            let Some(version) = served else { return Ok(true) };
            let (group, plural) = (&body["spec"]["group"], &body["spec"]["names"]["plural"]);
            let list = format!(
                "/apis/{}/{}/{}",
                group.as_str().unwrap_or(""),
                version["name"].as_str().unwrap_or(""),
                plural.as_str().unwrap_or("")
            );
            Ok(self.runner.http.send(&self.get(&list)).await?.status == 200)
        })
        .await
    }

    async fn poll<F, Fut>(&self, what: &str, check: F) -> Result<(), String>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<bool, String>>,
    {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if check().await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("not within {PATIENCE:?}: {what}"))
    }

    fn get(&self, path: &str) -> Outgoing {
        Outgoing {
            method: "GET".into(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: vec![("Accept".into(), "application/json".into())],
            token: Some(self.runner.target.admin.clone()),
            body: None,
        }
    }

    fn outgoing(&self, request: &Request) -> Outgoing {
        let fill = |text: &str| self.bindings.substitute(text);
        let target = &self.runner.target;
        let token = match request.user.as_deref() {
            None | Some("admin") => Some(target.admin.clone()),
            Some("alice") => Some(target.alice.clone()),
            Some("none") => None,
            Some(other) => Some(other.to_owned()),
        };
        Outgoing {
            method: request.method.clone(),
            path: fill(&request.path),
            query: request.query.iter().map(|(k, v)| (k.clone(), fill(v))).collect(),
            headers: request.headers.iter().map(|(k, v)| (k.clone(), fill(v))).collect(),
            token,
            body: self.body_of(request),
        }
    }

    fn body_of(&self, request: &Request) -> Option<Bytes> {
        if let Some(body) = &request.body {
            return Some(self.bindings.substitute(body.get()).into());
        }
        if let Some(text) = &request.body_text {
            return Some(self.bindings.substitute(text).into());
        }
        if let Some(r) = &request.body_repeat {
            return Some(format!("{}{}{}", r.prefix, r.unit.repeat(r.times), r.suffix).into());
        }
        let from = request.body_from.as_ref()?;
        let mut body = self.bodies.get(from.step).cloned().flatten().unwrap_or(Value::Null);
        let patch: Result<json_patch::Patch, _> =
            serde_json::from_str(&self.bindings.substitute(&from.patch.to_string()));
        if let Ok(patch) = patch {
            let _ = json_patch::patch(&mut body, &patch);
        }
        Some(body.to_string().into())
    }

    /// One step; returns the answer's body for later `bodyFrom`.
    async fn exchange(&mut self, place: &str, exchange: &Exchange, webhooks: bool) -> Option<Value> {
        let request = &exchange.request;
        let label = format!("{place} {} {}{}", request.method, request.path, shown_query(&request.query));
        let out = self.outgoing(request);
        let body = if exchange.watch.is_some() && exchange.response.events.is_some() {
            self.watch(&label, exchange, &out).await;
            None
        } else {
            match self.runner.http.send(&out).await {
                Ok(answer) => self.check(&label, exchange, &answer),
                Err(why) => {
                    self.diffs.push(failure(&label, "an answer", &why));
                    None
                }
            }
        };
        if webhooks {
            let calls = self.runner.hooks.take_calls();
            let mut compare = Compare::new(&mut self.bindings);
            compare.body(
                &format!("{label} | webhook_calls"),
                Grade::A,
                &Value::Array(exchange.webhook_calls.clone()),
                &Value::Array(calls),
            );
            self.diffs.append(&mut compare.diffs);
        }
        body
    }

    fn check(&mut self, label: &str, exchange: &Exchange, answer: &Text) -> Option<Value> {
        let golden = &exchange.response;
        let cap = if exchange.request.path.starts_with("/openapi") { Grade::C } else { Grade::A };
        let actual = answer.json();
        let mut compare = Compare::new(&mut self.bindings);
        status_and_headers(&mut compare, label, golden, answer.status, &answer.headers);
        let place = format!("{label} | body");
        if answer.status != golden.status {
            compare.note(
                Grade::A,
                &place,
                golden.body.as_ref().map_or(String::new(), crate::compare::show),
                clip(&answer.text, 700),
            );
        } else {
            match (&golden.body, &actual) {
                (None, _) if answer.text.is_empty() => {}
                (None, _) => compare.note(Grade::A, &place, "(empty)", clip(&answer.text, 300)),
                (Some(Value::String(text)), _) if text == "<binary>" => {}
                (Some(Value::String(text)), _) => {
                    compare.body(&place, cap, &Value::String(text.clone()), &Value::String(answer.text.clone()));
                }
                (Some(body), Some(actual)) => {
                    let seen = match &exchange.view {
                        Some(rule) if answer.status < 300 => view(rule, actual),
                        _ => actual.clone(),
                    };
                    compare.body(&place, cap, body, &seen);
                }
                (Some(body), None) => compare.note(cap, &place, crate::compare::show(body), clip(&answer.text, 300)),
            }
        }
        self.diffs.append(&mut compare.diffs);
        actual
    }

    async fn watch(&mut self, label: &str, exchange: &Exchange, out: &Outgoing) {
        let (Some(watch), Some(golden)) = (&exchange.watch, &exchange.response.events) else { return };
        let answer = match self.runner.http.open(out).await {
            Ok(answer) => answer,
            Err(why) => return self.diffs.push(failure(label, "a stream", &why)),
        };
        let mut compare = Compare::new(&mut self.bindings);
        status_and_headers(&mut compare, label, &exchange.response, answer.status, &answer.headers);
        self.diffs.append(&mut compare.diffs);
        if answer.status != exchange.response.status {
            let text = answer.body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            return self.diffs.push(failure(label, "events", &clip(&String::from_utf8_lossy(&text), 600)));
        }
        let collapse = watch.bookmarks.as_deref() == Some("collapse");
        let stream = Stream::start(answer.body, collapse);
        for (i, during) in exchange.during.iter().enumerate() {
            stream.wait_for(during.after_events, PATIENCE).await;
            match serde_json::from_str::<Exchange>(&during.rest.to_string()) {
                Ok(inner) => {
                    let place = format!("{label} | during {i}");
                    Box::pin(self.exchange(&place, &inner, false)).await;
                }
                Err(why) => self.diffs.push(failure(label, "a step", &why.to_string())),
            }
        }
        if watch.end == "server" {
            stream.wait_for_end(PATIENCE).await;
        } else {
            stream.wait_for(golden.len(), PATIENCE).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let (events, ended) = stream.finish().await;
        if watch.end == "server" && !ended {
            self.diffs.push(failure(label, "the server ends the stream", "still open after a minute"));
        }
        let mut compare = Compare::new(&mut self.bindings);
        compare.body(&format!("{label} | events"), Grade::A, &json!(golden), &json!(events));
        self.diffs.append(&mut compare.diffs);
    }
}

/// The events of an open watch, read in the background.
struct Stream {
    seen: Arc<Mutex<(Vec<Value>, bool)>>,
    task: tokio::task::JoinHandle<()>,
}

impl Stream {
    fn start(mut body: hyper::body::Incoming, collapse: bool) -> Stream {
        let seen = Arc::new(Mutex::new((Vec::new(), false)));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            let mut buffer = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                buffer.extend_from_slice(&data);
                while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    if line.iter().all(u8::is_ascii_whitespace) {
                        continue;
                    }
                    let event: Value = serde_json::from_slice(&line)
                        .unwrap_or_else(|_| json!({ "unreadable": String::from_utf8_lossy(&line) }));
                    keep(&mut shared.lock().await.0, event, collapse);
                }
            }
            shared.lock().await.1 = true;
        });
        Stream { seen, task }
    }

    async fn wait_for(&self, count: usize, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let state = self.seen.lock().await;
            if state.0.len() >= count || state.1 || Instant::now() > until {
                return;
            }
            drop(state);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn wait_for_end(&self, limit: Duration) {
        self.wait_for(usize::MAX, limit).await;
    }

    async fn finish(self) -> (Vec<Value>, bool) {
        self.task.abort();
        let state = self.seen.lock().await;
        (state.0.clone(), state.1)
    }
}

/// Periodic bookmarks may come at any time: dropped, or merged where the case keeps them.
fn keep(events: &mut Vec<Value>, event: Value, collapse: bool) {
    let bookmark = event["type"] == "BOOKMARK";
    let marked = event.to_string().contains("k8s.io/initial-events-end");
    if bookmark && !marked {
        if !collapse {
            return;
        }
        if events.last().is_some_and(|last| last["type"] == "BOOKMARK") {
            events.pop();
        }
    }
    events.push(event);
}

fn status_and_headers(
    compare: &mut Compare<'_>,
    label: &str,
    golden: &crate::case::Response,
    status: u16,
    headers: &http::HeaderMap,
) {
    if status != golden.status {
        compare.note(Grade::A, &format!("{label} | status"), golden.status.to_string(), status.to_string());
        return;
    }
    let texts = |name: &str| -> Vec<Value> {
        headers.get_all(name).iter().map(|v| json!(String::from_utf8_lossy(v.as_bytes()))).collect()
    };
    for name in ["content-type", "warning", "retry-after"] {
        let grade = if name == "content-type" && status >= 300 { Grade::C } else { Grade::A };
        let actual = texts(name);
        let expected = match golden.headers.get(name) {
            Some(Value::Array(list)) => list.clone(),
            Some(one) => vec![one.clone()],
            None => Vec::new(),
        };
        if expected.is_empty() && name == "content-type" {
            continue;
        }
        compare.body(&format!("{label} | header {name}"), grade, &Value::Array(expected), &Value::Array(actual));
    }
}

fn failure(label: &str, golden: &str, actual: &str) -> Diff {
    Diff { grade: Grade::A, place: label.to_owned(), golden: golden.to_owned(), actual: actual.to_owned() }
}

fn shown_query(query: &BTreeMap<String, String>) -> String {
    if query.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = query.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("?{}", parts.join("&"))
}
