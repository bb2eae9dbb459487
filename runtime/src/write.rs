//! Carrying out writes: one at a time for each object, many objects at once, as fast as the server takes them.
//!
//! Rules: 1. The writes of one object are carried out in the order in which they were queued. 2. Among objects,
//! decisions (patches and deletions with a precondition) go before what is only reported, such as statuses and events.
//! 3. How many writes are in flight adapts (AIMD): one more after each round of successes, half as many after a 429, a
//! 5xx or a timeout, so there is no rate to configure. 4. A failure is classified and handed back, never retried here:
//! only a decision from fresh state may be written again. `kube::runtime` has no such queue: its scheduler repeats
//! reconciliations, not writes.

mod failure;
mod queue_lengths;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use caldera_crds::dns::is_dns_label;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::{
    Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{Request, request},
};
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

pub use self::failure::{Failure, UNUSABLE_CLIENT, classify_error};
use self::queue_lengths::QueueLengths;
use crate::{metric::Metric, object::JsonObject, serve::SharedRegistry};

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
    /// DELETE of the object with this UID, if it is of this version yet, after what it owns.
    DeleteUnchanged {
        /// Precondition.
        uid: String,
        /// Precondition.
        resource_version: String,
    },
    /// DELETE of the object with this UID without grace: how a kubelet confirms that a pod has stopped.
    DeleteNow {
        /// Precondition.
        uid: String,
    },
}

/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// Carries out one write and returns the object as the server stored it, but for its managed fields.
///
/// # Errors
/// See [`Failure`].
pub async fn execute_write(client: &Client, write: &Write) -> Result<Value, Failure> {
    let request = build_http_request(write).map_err(|error| classify_error(kube::Error::BuildRequest(error)))?;
    let Write { resource, namespace, name, .. } = write;
    let span = tracing::debug_span!(
        "write",
        kind = resource.kind,
        namespace,
        name,
        subresource = write.subresource,
        error = tracing::field::Empty
    );
    let asked = tokio::time::timeout(DEADLINE, client.request::<JsonObject>(request)).instrument(span.clone());
    let result = match asked.await {
        Ok(answer) => answer.map(|JsonObject(stored)| stored).map_err(|error| classify_write_error(write, error)),
        Err(_) => Err(Failure::Transient(format!("no answer within {} s", DEADLINE.as_secs()))),
    };
    if let Err(failure) = &result {
        span.record("error", tracing::field::display(failure));
    }
    result
}

fn build_http_request(write: &Write) -> Result<http::Request<Vec<u8>>, request::Error> {
    let Write { resource, namespace, name, subresource, body } = write;
    let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
    // What is made has its name in its body, which the server checks.
    let is_named = may_be_name(name) || (matches!(body, Body::Create(_)) && subresource.is_none());
    if !(namespace.is_none_or(is_dns_label) && is_named) {
        let whose = format!("{} {:?} of namespace {:?}", resource.kind, name, namespace.unwrap_or_default());
        return Err(request::Error::Validation(format!("no object can have this name: {whose}")));
    }
    let request = Request::new(DynamicObject::url_path(resource, namespace));
    let patch = |params: PatchParams, patch: Patch<&Value>| match subresource {
        Some(subresource) => request.patch_subresource(subresource, name, &params, &patch),
        None => request.patch(name, &params, &patch),
    };
    let only = |uid: &Option<String>| uid.clone().map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    match body {
        Body::Create(object) => {
            let (params, object) = (PostParams::default(), object.to_string().into_bytes());
            match subresource {
                // A pod's `binding`, for instance.
                Some(subresource) => request.create_subresource(subresource, name, &params, object),
                None => request.create(&params, object),
            }
        }
        Body::JsonPatch(operations) => {
            let operations = serde_json::from_value(operations.clone()).map_err(request::Error::SerializeBody)?;
            patch(PatchParams::default(), Patch::Json(operations))
        }
        Body::MergePatch(object) => patch(PatchParams::default(), Patch::Merge(object)),
        Body::Apply { object, manager } => patch(PatchParams::apply(manager).force(), Patch::Apply(object)),
        Body::Delete { uid } => {
            request.delete(name, &DeleteParams { preconditions: only(uid), ..DeleteParams::background() })
        }
        Body::DeleteUnchanged { uid, resource_version } => {
            let preconditions =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            request.delete(name, &DeleteParams { preconditions: Some(preconditions), ..DeleteParams::foreground() })
        }
        Body::DeleteNow { uid } => {
            let params = DeleteParams { preconditions: only(&Some(uid.clone())), ..DeleteParams::default() };
            request.delete(name, &params.grace_period(0))
        }
    }
}

/// Whether a name stays what it is in a path: tenants write some of them, and another one would mean another object.
/// Names of roles have colons.
fn may_be_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    !matches!(name, "" | "." | "..") && name.bytes().all(is_plain)
}

/// What kube-apiserver says where a JSON patch can not be applied to what is there.
const UNAPPLICABLE: &str = "the server rejected our request due to an error in our request";

/// What the caller should do about an error, where a failed `test` of this write means that the object changed.
fn classify_write_error(write: &Write, error: kube::Error) -> Failure {
    // kube-apiserver (`NewGenericServerResponse`) says of a failed `test` operation nothing but 422 and this text;
    // others say so in words.
    let is_test_failed =
        |message: &str| message == UNAPPLICABLE || message.contains("test failed") || message.contains("testing");
    match error {
        kube::Error::Api(status)
            if matches!(write.body, Body::JsonPatch(_)) && status.code == 422 && is_test_failed(&status.message) =>
        {
            Failure::Conflict(status.message)
        }
        error => classify_error(error),
    }
}

/// A queued write with the caller's name for it.
#[derive(Debug)]
struct QueuedWrite<T> {
    tag: T,
    write: Write,
    /// Before all that waits for other objects.
    is_next: bool,
    /// Within which it was decided.
    span: Span,
}

/// A write's outcome.
#[derive(Debug)]
pub struct WriteOutcome<T> {
    /// As given.
    pub tag: T,
    /// The stored object, or why not.
    pub result: Result<Value, Failure>,
}

/// Most writes in flight, ever.
const MAX_IN_FLIGHT: usize = 64;
/// Writes in flight before anything is known of the server.
const FIRST_IN_FLIGHT: usize = 16;
/// Writes in flight that are left to a server that is slow.
const SLOW_IN_FLIGHT: usize = 8;
/// A write that takes longer has waited for others.
const SLOW_WRITE: Duration = Duration::from_millis(250);
/// Outcomes that may wait for the caller; beyond that no more writes are begun.
const MAX_OUTCOMES: usize = 1024;

type ObjectKey = (String, String, String);

fn key_of(write: &Write) -> ObjectKey {
    (write.resource.plural.clone(), write.namespace.clone(), write.name.clone())
}

/// Writes that wait: per object in order; those that were asked for as next, then decisions, then reports.
struct WriteQueue<T> {
    next: VecDeque<QueuedWrite<T>>,
    decisions: VecDeque<QueuedWrite<T>>,
    reports: VecDeque<QueuedWrite<T>>,
    /// Objects with a write in flight or first in line, and what is held back behind it.
    busy: HashMap<ObjectKey, VecDeque<QueuedWrite<T>>>,
    held_back: usize,
}

impl<T> WriteQueue<T> {
    fn new() -> Self {
        let (next, decisions, reports) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { next, decisions, reports, busy: HashMap::new(), held_back: 0 }
    }

    fn push_write(&mut self, job: QueuedWrite<T>) {
        let key = key_of(&job.write);
        let Some(held_back) = self.busy.get_mut(&key) else {
            self.busy.insert(key, VecDeque::new());
            self.select_write_queue(&job).push_back(job);
            return;
        };
        let goes_first = job.is_next || is_decision(&job.write);
        held_back.push_back(job);
        self.held_back += 1;
        // It does not wait for the other objects' reports because an earlier report of its own object does.
        if goes_first
            && let Some(at) = self.reports.iter().position(|waiting| key_of(&waiting.write) == key)
            && let Some(report) = self.reports.remove(at)
        {
            self.decisions.push_back(report);
        }
    }

    fn pop_write(&mut self) -> Option<QueuedWrite<T>> {
        [&mut self.next, &mut self.decisions, &mut self.reports].into_iter().find_map(VecDeque::pop_front)
    }

    /// A write of this object was answered: the next one of the same object is first in its line.
    fn unblock_next_write(&mut self, key: &ObjectKey) {
        match self.busy.get_mut(key).and_then(VecDeque::pop_front) {
            Some(job) => {
                self.held_back -= 1;
                self.select_write_queue(&job).push_front(job);
            }
            None => drop(self.busy.remove(key)),
        }
    }

    fn select_write_queue(&mut self, job: &QueuedWrite<T>) -> &mut VecDeque<QueuedWrite<T>> {
        match job.is_next {
            true => &mut self.next,
            false if is_decision(&job.write) => &mut self.decisions,
            false => &mut self.reports,
        }
    }
}

const fn is_decision(write: &Write) -> bool {
    matches!(write.body, Body::JsonPatch(_) | Body::DeleteUnchanged { .. })
}

/// Carries out the writes that arrive in `jobs` until the channel closes or `stop`, sending outcomes to `done`.
async fn carry_out_writes<T: Send + 'static>(
    client: Client,
    mut jobs: mpsc::UnboundedReceiver<QueuedWrite<T>>,
    done: mpsc::Sender<WriteOutcome<T>>,
    (pending, lengths): (Gauge, Arc<QueueLengths>),
    stop: CancellationToken,
) {
    let mut queue = WriteQueue::new();
    let mut in_flight = FuturesUnordered::new();
    let mut window = InFlightWindow::default();
    let (mut is_open, mut is_stopped) = (true, false);
    loop {
        while !is_stopped && in_flight.len() < window.size() {
            let Some(job) = queue.pop_write() else { break };
            let client = client.clone();
            in_flight.push(async move {
                let began = tokio::time::Instant::now();
                let result = execute_write(&client, &job.write).instrument(job.span.clone()).await;
                (job, result, began.elapsed())
            });
        }
        if in_flight.is_empty() && (is_stopped || !is_open) {
            return;
        }
        lengths.set_in_flight(in_flight.len(), window.size());
        lengths.set_waiting(queue.next.len() + queue.decisions.len(), queue.reports.len(), queue.held_back);
        tokio::select! {
            biased;
            // What was sent may land at any time: a leader waits for the answers before it releases its lease.
            () = stop.cancelled(), if !is_stopped => is_stopped = true,
            Some((job, result, took)) = in_flight.next(), if !in_flight.is_empty() => {
                window.observe_result(!matches!(result, Err(Failure::Transient(_))), took);
                queue.unblock_next_write(&key_of(&job.write));
                pending.dec();
                if done.send(WriteOutcome { tag: job.tag, result }).await.is_err() && !is_stopped {
                    return;
                }
            }
            job = jobs.recv(), if is_open && !is_stopped => match job {
                Some(job) => queue.push_write(job),
                None => is_open = false,
            },
        }
    }
}

/// How many writes may be in flight: one more for each round of answers that are quick, fewer where they are slow, half
/// after trouble (additive increase, multiplicative decrease, as TCP). A server that is at its end answers no more of
/// them for having more at once, and what waits there can not be passed by a decision, as it can here.
#[derive(Debug)]
struct InFlightWindow {
    /// In 1/1024 of a write.
    size: usize,
}

impl Default for InFlightWindow {
    fn default() -> Self {
        Self { size: FIRST_IN_FLIGHT * 1024 }
    }
}

impl InFlightWindow {
    fn size(&self) -> usize {
        (self.size / 1024).clamp(1, MAX_IN_FLIGHT)
    }

    fn observe_result(&mut self, success: bool, took: Duration) {
        let step = 1024 * 1024 / self.size.max(1024);
        self.size = match success {
            true if took <= SLOW_WRITE || self.size < SLOW_IN_FLIGHT * 1024 => {
                (self.size + step).min(MAX_IN_FLIGHT * 1024)
            }
            true => (self.size - 2 * step).max(SLOW_IN_FLIGHT * 1024),
            false => (self.size / 2).max(1024),
        };
    }
}

/// Queues writes for the task that carries them out. The queue has no bound, because decisions can not wait; its
/// length is a gauge of [`Writer::register_gauges`].
#[derive(Debug)]
pub struct Writer<T> {
    jobs: mpsc::UnboundedSender<QueuedWrite<T>>,
    pending: Gauge,
    lengths: Arc<QueueLengths>,
}

impl<T: Send + 'static> Writer<T> {
    /// Starts carrying out writes with `client`; outcomes arrive at the returned receiver.
    #[must_use]
    pub fn start_writer(client: Client, stop: CancellationToken) -> (Self, mpsc::Receiver<WriteOutcome<T>>) {
        let (jobs, queued) = mpsc::unbounded_channel();
        let (done, outcomes) = mpsc::channel(MAX_OUTCOMES);
        let (pending, lengths) = (Gauge::default(), Arc::<QueueLengths>::default());
        tokio::spawn(carry_out_writes(client, queued, done, (pending.clone(), Arc::clone(&lengths)), stop));
        (Self { jobs, pending, lengths }, outcomes)
    }

    /// Shows how many writes are queued or in flight, how many of them are in flight, and how many may be at most.
    pub fn register_gauges(&self, registry: &SharedRegistry, [pending, in_flight, most]: [&Metric; 3]) {
        pending.register(registry, self.pending.clone());
        in_flight.register(registry, self.lengths.in_flight());
        most.register(registry, self.lengths.most_in_flight());
    }

    /// How many writes are in flight and may be at most, how many decisions and reports wait for their turn, and how
    /// many are held back by an earlier write of their object.
    #[must_use]
    pub fn describe_queue(&self) -> Value {
        self.lengths.describe()
    }

    /// Whether what is queued now is sent at once, as far as that can be told: no more are under way than a server
    /// takes that has not been slow.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.pending.get() < FIRST_IN_FLIGHT as i64
    }

    /// Queues a write, which is carried out within the span of now. After the stop it is dropped: nobody would carry it
    /// out.
    pub fn queue_write(&self, tag: T, write: Write) {
        self.send_to_queue(QueuedWrite { tag, write, is_next: false, span: Span::current() });
    }

    /// Queues a write that is sent as soon as an answer leaves room, before all that waits for other objects.
    pub fn queue_write_first(&self, tag: T, write: Write) {
        self.send_to_queue(QueuedWrite { tag, write, is_next: true, span: Span::current() });
    }

    fn send_to_queue(&self, job: QueuedWrite<T>) {
        if self.jobs.send(job).is_ok() {
            self.pending.inc();
        }
    }
}

/// How long a component that stops waits for writes that were sent.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// After shutdown: waits until everything that was sent is answered, [`SETTLE_WITHIN`] at most, so that a successor
/// does not decide beside writes that are still on their way. (What lands later still meets its preconditions.)
pub async fn wait_for_outcomes<T>(mut outcomes: mpsc::Receiver<WriteOutcome<T>>) {
    let all = async { while outcomes.recv().await.is_some() {} };
    if tokio::time::timeout(SETTLE_WITHIN, all).await.is_err() {
        tracing::warn!("stopped with writes that were not answered");
    }
}

#[cfg(test)]
mod tests;
