//! Carrying out writes: one at a time for each object, many objects at once, as fast as the server takes them.
//!
//! [`Writer`] takes writes through a channel and gives each outcome back. How many are in flight adapts: one more for
//! each round of successes, half as many after a 429 or a timeout (additive increase, multiplicative decrease), so that
//! there is no rate to configure. Failures are classified, never retried here: the caller decides again from fresh
//! state, which is the only safe retry for a decision. Decisions, which are JSON patches with a precondition, go before
//! what is told about them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use kube::{Client, api::ApiResource, client::Body as KubeBody};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One write to one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Its resource.
    pub resource: ApiResource,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// For instance `status`.
    pub subresource: Option<&'static str>,
    /// What to do.
    pub body: Body,
}

/// What a write does.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// POST.
    Create(Value),
    /// RFC 6902, an array of operations; begin with `test` operations where the decision depends on a state.
    JsonPatch(Value),
    /// RFC 7386.
    MergePatch(Value),
    /// Server-side apply with `force`, as this field manager.
    Apply {
        /// The fields to own, with apiVersion, kind and metadata.name.
        object: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// DELETE of the object with this UID, in the background.
    Delete {
        /// Precondition.
        uid: Option<String>,
    },
    /// DELETE of the object with this UID without grace: how a kubelet confirms that a pod has stopped.
    DeleteNow {
        /// Precondition.
        uid: String,
    },
}

/// Why a write failed, by what the caller should do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The object changed since it was read (409, or a failed `test` of a JSON patch): decide again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// It is there already (409 AlreadyExists).
    #[error("already exists: {0}")]
    Exists(String),
    /// It is gone (404).
    #[error("not found: {0}")]
    Gone(String),
    /// The server refuses the content for good (400, 403, 422 and the like).
    #[error("refused ({reason}): {message}")]
    Refused {
        /// HTTP code.
        code: u16,
        /// `Status.reason`, for instance `QuotaExceeded`.
        reason: String,
        /// `Status.message`.
        message: String,
    },
    /// The server is busy, failing or out of reach (429, 5xx, network, timeout): try again later.
    #[error("not now: {0}")]
    Transient(String),
}

/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// Carries out one write and returns the object as the server stored it.
///
/// # Errors
/// See [`Failure`].
pub async fn execute(client: &Client, write: &Write) -> Result<Value, Failure> {
    let request = request(write).map_err(|error| Failure::Refused {
        code: 0,
        reason: "BadRequest".to_owned(),
        message: error.to_string(),
    })?;
    match tokio::time::timeout(DEADLINE, client.request::<Value>(request)).await {
        Ok(answer) => answer.map_err(|error| classify(write, error)),
        Err(_) => Err(Failure::Transient(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

fn request(write: &Write) -> Result<http::Request<Vec<u8>>, http::Error> {
    let Write { resource, namespace, name, subresource, body } = write;
    let mut path = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if !namespace.is_empty() {
        path += &format!("/namespaces/{namespace}");
    }
    path += &format!("/{}", resource.plural);
    // A POST goes to the collection, or to a subresource of one object (a pod's `binding`).
    if !matches!(body, Body::Create(_)) || subresource.is_some() {
        path += &format!("/{name}");
        if let Some(subresource) = subresource {
            path += &format!("/{subresource}");
        }
    }
    let (method, content_type, bytes) = match body {
        Body::Create(object) => (http::Method::POST, "application/json", object.to_string()),
        Body::JsonPatch(patch) => (http::Method::PATCH, "application/json-patch+json", patch.to_string()),
        Body::MergePatch(patch) => (http::Method::PATCH, "application/merge-patch+json", patch.to_string()),
        Body::Apply { object, manager } => {
            path += &format!("?fieldManager={manager}&force=true");
            (http::Method::PATCH, "application/apply-patch+yaml", object.to_string())
        }
        Body::Delete { uid } => {
            let mut options = serde_json::json!({"propagationPolicy": "Background"});
            if let Some(uid) = uid {
                options["preconditions"] = serde_json::json!({"uid": uid});
            }
            (http::Method::DELETE, "application/json", options.to_string())
        }
        Body::DeleteNow { uid } => {
            let options = serde_json::json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
            (http::Method::DELETE, "application/json", options.to_string())
        }
    };
    http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .header(http::header::ACCEPT, "application/json")
        .body(bytes.into_bytes())
}

/// What kube-apiserver says where a JSON patch can not be applied to what is there.
const UNAPPLICABLE: &str = "the server rejected our request due to an error in our request";

fn classify(write: &Write, error: kube::Error) -> Failure {
    let status = match error {
        kube::Error::Api(status) => status,
        other => return Failure::Transient(other.to_string()),
    };
    let message = status.message.clone();
    // A failed `test` operation is a 422 with a text that says nothing (kube-apiserver: `NewGenericServerResponse`), or in
    // so many words: for us it is a conflict like any other.
    let test_failed = matches!(write.body, Body::JsonPatch(_))
        && status.code == 422
        && (message == UNAPPLICABLE || message.contains("test failed") || message.contains("testing"));
    match status.code {
        409 if status.reason == "AlreadyExists" => Failure::Exists(message),
        409 => Failure::Conflict(message),
        _ if test_failed => Failure::Conflict(message),
        404 => Failure::Gone(message),
        429 | 500.. => Failure::Transient(format!("{} ({})", message, status.code)),
        code => Failure::Refused { code, reason: status.reason.clone(), message },
    }
}

/// A write with the caller's name for it.
#[derive(Debug, Clone)]
pub struct Job<T> {
    /// Given back with the outcome.
    pub tag: T,
    /// What to do.
    pub write: Write,
}

/// A write's outcome.
#[derive(Debug)]
pub struct Done<T> {
    /// As given.
    pub tag: T,
    /// The stored object, or why not.
    pub result: Result<Value, Failure>,
}

/// Most writes in flight, ever.
const MOST_IN_FLIGHT: usize = 64;

/// Carries out the writes that arrive in `jobs` until the channel closes or `shutdown`, sending outcomes to `done`.
pub async fn run<T: Send + 'static>(
    client: Client,
    mut jobs: mpsc::UnboundedReceiver<Job<T>>,
    done: mpsc::UnboundedSender<Done<T>>,
    shutdown: CancellationToken,
) {
    // Decisions go before what is told about them.
    let (mut decided, mut waiting): (VecDeque<Job<T>>, VecDeque<Job<T>>) = Default::default();
    // Objects with a write in flight, and what waits behind it.
    let mut busy: HashMap<(String, String, String), VecDeque<Job<T>>> = HashMap::new();
    let mut flying = FuturesUnordered::new();
    let mut window = Window::default();
    loop {
        while flying.len() < window.size() {
            let Some(job) = decided.pop_front().or_else(|| waiting.pop_front()) else { break };
            let key = key(&job.write);
            if let Some(behind) = busy.get_mut(&key) {
                behind.push_back(job);
                continue;
            }
            busy.insert(key, VecDeque::new());
            let client = client.clone();
            flying.push(async move {
                let result = execute(&client, &job.write).await;
                (job, result)
            });
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                // What was sent may land at any time: who gives up a lease waits for the answers (`settled`).
                while let Some((job, result)) = flying.next().await {
                    let _ = done.send(Done { tag: job.tag, result });
                }
                return;
            }
            Some((job, result)) = flying.next(), if !flying.is_empty() => {
                window.observe(!matches!(result, Err(Failure::Transient(_))));
                if let Some(behind) = busy.remove(&key(&job.write)) {
                    for job in behind.into_iter().rev() {
                        waiting.push_front(job);
                    }
                }
                if done.send(Done { tag: job.tag, result }).is_err() {
                    return;
                }
            }
            job = jobs.recv() => match job {
                Some(job) if matches!(job.write.body, Body::JsonPatch(_)) => decided.push_back(job),
                Some(job) => waiting.push_back(job),
                None if flying.is_empty() && waiting.is_empty() && decided.is_empty() => return,
                None => {
                    // No more will come: finish what there is.
                    if let Some((job, result)) = flying.next().await {
                        busy.remove(&key(&job.write)).into_iter().flatten().rev().for_each(|j| waiting.push_front(j));
                        let _ = done.send(Done { tag: job.tag, result });
                    }
                }
            },
        }
    }
}

fn key(write: &Write) -> (String, String, String) {
    (write.resource.plural.clone(), write.namespace.clone(), write.name.clone())
}

/// How many writes may be in flight.
#[derive(Debug)]
struct Window {
    /// In 1/1024 of a write.
    size: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: 16 * 1024 }
    }
}

impl Window {
    fn size(&self) -> usize {
        (self.size / 1024).clamp(1, MOST_IN_FLIGHT)
    }

    fn observe(&mut self, success: bool) {
        self.size = if success {
            (self.size + 1024 * 1024 / self.size.max(1024)).min(MOST_IN_FLIGHT * 1024)
        } else {
            (self.size / 2).max(1024)
        };
    }
}

/// Sends writes to a running [`run`].
#[derive(Debug, Clone)]
pub struct Writer<T>(mpsc::UnboundedSender<Job<T>>);

impl<T: Send + 'static> Writer<T> {
    /// Starts carrying out writes with `client`; outcomes arrive at the returned receiver.
    #[must_use]
    pub fn start(client: Client, shutdown: CancellationToken) -> (Self, mpsc::UnboundedReceiver<Done<T>>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        let (done, outcomes) = mpsc::unbounded_channel();
        tokio::spawn(run(client, queue, done, shutdown));
        (Self(jobs), outcomes)
    }

    /// Queues a write. After shutdown it is dropped: nobody would carry it out.
    pub fn send(&self, tag: T, write: Write) {
        let _ = self.0.send(Job { tag, write });
    }
}

/// How long a component that stops waits for writes that were sent.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// After shutdown: waits until everything that was sent is answered, [`SETTLE_WITHIN`] at most, so that a successor does
/// not decide beside writes that are still on their way. (What lands later still meets its preconditions.)
pub async fn settled<T>(mut outcomes: mpsc::UnboundedReceiver<Done<T>>) {
    let all = async { while outcomes.recv().await.is_some() {} };
    if tokio::time::timeout(SETTLE_WITHIN, all).await.is_err() {
        tracing::warn!("stopped with writes that were not answered");
    }
}

/// The body type kube's client takes; named here so that callers need not depend on it.
pub type RequestBody = KubeBody;

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusSummary};

    use super::*;

    #[test]
    fn a_patch_that_can_not_be_applied_to_what_is_there_is_a_conflict() {
        let refusal = |code: u16, message: &str| {
            let status = Status {
                status: Some(StatusSummary::Failure),
                code,
                message: message.to_owned(),
                reason: "Invalid".to_owned(),
                ..Status::default()
            };
            kube::Error::Api(status.boxed())
        };
        let write = |body| Write {
            resource: crate::watch::resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
            namespace: "ns".into(),
            name: "b".into(),
            subresource: None,
            body,
        };
        let patch = write(Body::JsonPatch(serde_json::json!([])));
        assert!(matches!(classify(&patch, refusal(422, UNAPPLICABLE)), Failure::Conflict(_)));
        assert!(matches!(
            classify(&patch, refusal(422, "spec.replicas: must not be negative")),
            Failure::Refused { .. }
        ));
        let merge = write(Body::MergePatch(serde_json::json!({})));
        assert!(matches!(classify(&merge, refusal(422, UNAPPLICABLE)), Failure::Refused { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waits_for_what_was_sent_and_sends_nothing_more() {
        let (asked, mut seen) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<KubeBody>| {
            asked.send(request.uri().path().to_owned()).unwrap();
            async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Ok::<_, std::convert::Infallible>(http::Response::new(KubeBody::from(b"{}".to_vec())))
            }
        });
        let stop = CancellationToken::new();
        let (writer, outcomes) = Writer::start(Client::new(service, "default"), stop.clone());
        let write = |name: &str| Write {
            resource: crate::watch::resource("", "v1", "ConfigMap", "configmaps"),
            namespace: "ns".into(),
            name: name.into(),
            subresource: None,
            body: Body::MergePatch(serde_json::json!({})),
        };
        (0..MOST_IN_FLIGHT).for_each(|at| writer.send(at, write(&format!("c{at}"))));
        assert!(seen.recv().await.is_some());
        let began = tokio::time::Instant::now();
        stop.cancel();
        settled(outcomes).await;
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        let sent = 1 + std::iter::from_fn(|| seen.try_recv().ok()).count();
        assert_eq!(sent, Window::default().size(), "what waits is not begun after the stop");
    }

    #[test]
    fn the_window_halves_on_trouble_and_grows_back() {
        let mut window = Window::default();
        assert_eq!(window.size(), 16);
        window.observe(false);
        assert_eq!(window.size(), 8);
        for _ in 0..200 {
            window.observe(true);
        }
        assert!(window.size() > 16, "{}", window.size());
        for _ in 0..20 {
            window.observe(false);
        }
        assert_eq!(window.size(), 1);
    }
}
