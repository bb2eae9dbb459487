//! Events on objects, as `kubectl describe` shows them.
//!
//! One Event for each object, reason and message: Karmada counts repetitions, which nobody needs here and which would
//! be most of its writes. As client-go's recorder does, it tries again where the server gave no answer, and leaves an
//! event that the server refused.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use caldera_runtime::clock::{SharedClock, format_time};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{
    api::Server,
    names,
    object::{ObjectExt, ObjectKey},
};

const REMEMBERED: usize = 4096;
/// client-go's `maxTriesPerEvent`.
const TRIES: u32 = 12;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    key: ObjectKey,
    uid: String,
}

impl About {
    /// An object.
    #[must_use]
    pub fn object(object: &Value) -> Self {
        Self { key: ObjectKey::of(object), uid: object.uid().to_owned() }
    }

    /// The template of a binding.
    #[must_use]
    pub fn template(binding: &Value) -> Self {
        let reference = &binding["spec"]["resource"];
        let gvk = reference.gvk();
        let key = ObjectKey {
            gvk,
            namespace: reference.text("/namespace").to_owned(),
            name: reference.text("/name").to_owned(),
        };
        Self { key, uid: reference.text("/uid").to_owned() }
    }

    /// The template that a manifest was made from (Karmada finds its uid in the manifest).
    #[must_use]
    pub fn template_of(manifest: &Value) -> Self {
        Self { key: ObjectKey::of(manifest), uid: manifest.annotation(names::TEMPLATE_UID).to_owned() }
    }
}

struct Said {
    source: &'static str,
    warning: bool,
    about: About,
    reason: &'static str,
    message: String,
}

/// Writes events, in the background.
#[derive(Debug, Clone)]
pub struct Recorder(mpsc::UnboundedSender<Said>);

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl Recorder {
    /// Starts to write to a server, until it is shut down.
    #[must_use]
    pub fn start(server: &Arc<Server>, clock: SharedClock) -> Self {
        let (sender, mut said) = mpsc::unbounded_channel::<Said>();
        let server = server.clone();
        tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            loop {
                let said = tokio::select! {
                    biased;
                    () = server.shutdown().cancelled() => return,
                    said = said.recv() => said,
                };
                let Some(said) = said else { return };
                if seen.len() > REMEMBERED {
                    seen.clear();
                }
                if !seen.insert((said.about.clone(), said.reason, said.message.clone())) {
                    continue;
                }
                let now = format_time(clock.now());
                tokio::select! {
                    biased;
                    () = server.shutdown().cancelled() => return,
                    () = write_event(&server, &said, &now) => {}
                }
            }
        });
        Self(sender)
    }

    /// All is well.
    pub fn normal(&self, source: &'static str, about: About, reason: &'static str, message: impl Into<String>) {
        self.record_event(source, false, about, reason, message.into());
    }

    /// Something is wrong.
    pub fn warning(&self, source: &'static str, about: About, reason: &'static str, message: impl Into<String>) {
        self.record_event(source, true, about, reason, message.into());
    }

    fn record_event(&self, source: &'static str, warning: bool, about: About, reason: &'static str, message: String) {
        // Nobody listens any more only at shutdown.
        let _ = self.0.send(Said { source, warning, about, reason, message });
    }
}

async fn write_event(server: &Arc<Server>, said: &Said, now: &str) {
    let event = build_event(said, now);
    for _ in 0..TRIES {
        match server.writer(said.source).create(&event).await {
            Ok(_) => return,
            Err(error) if (400..500).contains(&error.code()) && error.code() != 429 => {
                return debug!(%error, "an event was refused");
            }
            Err(error) => debug!(%error, "an event was not written, to be tried again"),
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    warn!(?said, "an event was not written");
}

fn build_event(said: &Said, now: &str) -> Value {
    let key = &said.about.key;
    let namespace = if key.namespace.is_empty() { "default" } else { &key.namespace };
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let mut regarding = json!({
        "apiVersion": key.gvk.api_version(), "kind": key.gvk.kind, "name": key.name, "uid": said.about.uid,
    });
    if !key.namespace.is_empty() {
        regarding.put(&["namespace"], json!(key.namespace));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{}", key.name, unique.get(..16).unwrap_or(&unique)), "namespace": namespace},
        "involvedObject": regarding,
        "reason": said.reason,
        "message": said.message,
        "type": if said.warning { "Warning" } else { "Normal" },
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": said.source},
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use caldera_runtime::clock;
    use kube::client::Body;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A server that answers creates of events in turn: with these codes, then with success.
    fn serve_codes(codes: Vec<u16>) -> (Arc<Server>, Arc<Mutex<usize>>) {
        let created = Arc::new(Mutex::new(0));
        let seen = created.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (code, body) = if request.method() == http::Method::POST {
                let mut seen = seen.lock().unwrap();
                *seen += 1;
                let code = codes.get(*seen - 1).copied().unwrap_or(201);
                let message = format!("answer {seen}");
                (code, json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message}))
            } else {
                (200, json!({"resources": [{"name": "events", "kind": "Event", "namespaced": true, "verbs": []}]}))
            };
            let answer = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::io::Error>(answer.unwrap()) }
        });
        (Server::new("host", kube::Client::new(service, "default"), CancellationToken::new()), created)
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_tried_again_where_the_server_gave_no_answer_and_left_where_it_refused() {
        for (codes, expected) in [(vec![], 1), (vec![500, 503], 3), (vec![403], 1), (vec![500, 409], 2)] {
            let (server, created) = serve_codes(codes.clone());
            let recorder = Recorder::start(&server, Arc::new(clock::SystemClock));
            recorder.normal("test", About::object(&json!({"metadata": {"name": "one"}})), "Told", "once");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(*created.lock().unwrap(), expected, "{codes:?}");
            server.shutdown().cancel();
        }
    }
}
