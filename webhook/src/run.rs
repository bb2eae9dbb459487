//! The server, and the watches that feed its memory: the only async file.

use std::{
    net::TcpListener,
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::{
    serve::{Ready, SharedRegistry},
    tls::{Identity, Served, TlsError, server_config},
    watch::{Event, follow_json, resource},
};
use kube::{Api, Client, api::DynamicObject, runtime::watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    gate::{self, gate},
    index::{Binding, Index, Key, Live, Lookup, Queue, Snapshot, Workload, WorkloadKey},
    interpreter, job,
    metrics::Metrics,
    queue,
    review::{Outcome, answer},
    work,
};

/// How long a live read may take: well below the API server's patience.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// What the webhook is started with.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate.
    pub identity: Identity,
    /// Served in its place where it is renewed.
    pub renewed: Option<Served>,
    /// Set once memory is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
}

impl Config {
    /// A server on `listener` with this certificate.
    #[must_use]
    pub fn new(listener: TcpListener, identity: Identity) -> Self {
        Self { listener, identity, renewed: None, ready: Ready::default(), registry: SharedRegistry::default() }
    }
}

/// Why the webhook stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate is not usable.
    #[error("failed to serve TLS: {0}")]
    Tls(#[source] TlsError),
    /// The socket failed.
    #[error("failed to serve the webhook: {0}")]
    Serve(#[source] std::io::Error),
}

/// What all requests share.
#[derive(Clone)]
pub struct Memory {
    index: Arc<RwLock<Index>>,
    client: Client,
    metrics: Arc<Metrics>,
}

impl Memory {
    /// Empty memory; live reads go to `client`.
    #[must_use]
    pub fn new(client: Client, registry: &SharedRegistry) -> Self {
        Self { index: Arc::default(), client, metrics: Arc::new(Metrics::register(registry)) }
    }

    fn read<T>(&self, f: impl FnOnce(&Index) -> T) -> T {
        f(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, f: impl FnOnce(&mut Index)) {
        f(&mut self.index.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Serves until `shutdown`.
///
/// # Errors
/// If TLS or the socket fails.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let memory = Memory::new(client.clone(), &config.registry);
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    follow(&memory, &client, config.ready.clone(), &watches);
    let served = match config.renewed {
        Some(served) => served,
        None => server_config(&config.identity).map_err(Error::Tls)?.into(),
    };
    config.listener.set_nonblocking(true).map_err(Error::Serve)?;
    if let Ok(address) = config.listener.local_addr() {
        tracing::info!(%address, "the webhook listens");
    }
    let handle = axum_server::Handle::new();
    let stop = handle.clone();
    let stopping = shutdown.clone();
    tokio::spawn(async move {
        stopping.cancelled().await;
        stop.graceful_shutdown(Some(Duration::from_secs(2)));
    });
    axum_server::from_tcp_rustls(config.listener, served.rustls())
        .map_err(Error::Serve)?
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .handle(handle)
        .serve(router(memory, config.ready).into_make_service())
        .await
        .map_err(Error::Serve)
}

/// The webhook's routes.
pub fn router(memory: Memory, ready: Ready) -> Router {
    Router::new()
        .route("/mutate-resourcebinding", post(resource_binding))
        .route("/mutate-work", post(works))
        .route(
            "/mutate-job",
            post(|State(m): State<Memory>, body: Bytes| decide(m, "mutate-job", body, |b, _| answer(b, job::mutate))),
        )
        .route(
            "/validate-job",
            post(|State(m): State<Memory>, body: Bytes| {
                decide(m, "validate-job", body, |b, s| answer(b, |r| job::validate(r, s.index)))
            }),
        )
        .route(
            "/mutate-queue",
            post(|State(m): State<Memory>, body: Bytes| {
                decide(m, "mutate-queue", body, |b, _| answer(b, queue::mutate))
            }),
        )
        .route(
            "/validate-queue",
            post(|State(m): State<Memory>, body: Bytes| {
                decide(m, "validate-queue", body, |b, s| answer(b, |r| queue::validate(r, s.index)))
            }),
        )
        .route("/interpreter", post(interpret))
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || async move {
                if ready.get() {
                    (StatusCode::OK, "ok")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "memory is not complete yet")
                }
            }),
        )
        .layer(axum::extract::DefaultBodyLimit::max(16 << 20))
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
        .with_state(memory)
}

async fn resource_binding(State(memory): State<Memory>, body: Bytes) -> Response {
    let announced = memory.clone();
    decide(memory, "mutate-resourcebinding", body, move |body, snapshot| {
        answer::<gate::Binding<'_>>(body, |request| {
            let verdict = gate(request, snapshot);
            if let (Some(binding), Some(namespace)) = (&request.object, &request.namespace)
                && request.dry_run != Some(true)
            {
                let (name, plan) = binding.plan();
                let key: Key = (namespace.as_ref().to_owned(), name.to_owned());
                if snapshot.index.is_news(&key, plan) && plan != 0 {
                    // Not under the lock that this closure is called with.
                    let announced = announced.clone();
                    tokio::spawn(async move { announced.write(|index| index.announce(key, plan)) });
                }
            }
            verdict
        })
    })
    .await
}

async fn works(State(memory): State<Memory>, body: Bytes) -> Response {
    decide(memory, "mutate-work", body, |body, snapshot| {
        answer::<work::Work<'_>>(body, |request| work::rewrite(request, snapshot))
    })
    .await
}

async fn interpret(State(memory): State<Memory>, body: Bytes) -> Response {
    let started = Instant::now();
    let reply = memory.read(|index| guarded(|| interpreter::interpret(&body, index)));
    memory.metrics.observe("interpreter", started.elapsed());
    match reply {
        Some(reply) => respond(reply.status, reply.body),
        None => respond(500, b"the interpreter failed on this object".to_vec()),
    }
}

/// Asks `rule` from memory; if it wants something read live, reads it and asks once more.
async fn decide(
    memory: Memory,
    route: &'static str,
    body: Bytes,
    rule: impl Fn(&[u8], Snapshot<'_>) -> Outcome,
) -> Response {
    let started = Instant::now();
    let ask = |live: Option<&Live>| memory.read(|index| guarded(|| rule(&body, Snapshot { index, live })));
    let mut outcome = ask(None);
    if let Some(Outcome::Read(lookup)) = outcome {
        let live = read_live(&memory.client, &lookup).await;
        outcome = ask(Some(&live));
    }
    memory.metrics.observe(route, started.elapsed());
    match outcome {
        Some(Outcome::Reply(status, body)) => respond(status, body),
        Some(Outcome::Read(lookup)) => respond(500, format!("failed to decide after reading {lookup:?}").into_bytes()),
        None => respond(500, b"the webhook failed on this object".to_vec()),
    }
}

/// A rule that panics must not poison memory for the others.
fn guarded<T>(f: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(f)).ok()
}

fn respond(status: u16, body: Vec<u8>) -> Response {
    let content_type = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn read_live(client: &Client, lookup: &Lookup) -> Live {
    let read = async {
        match lookup {
            Lookup::Binding((namespace, name)) => {
                let resource = resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
                let object = api.get_opt(name).await?.map(serde_json::to_value).transpose().ok().flatten();
                Ok(Live::Binding(object.map(|object| Box::new(Binding::of(&object)))))
            }
            Lookup::Workload(key) => {
                let resource = key.kind.api_resource();
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, &resource);
                let object = api.get_opt(&key.name).await?.map(serde_json::to_value).transpose().ok().flatten();
                let namespaces: Api<DynamicObject> = Api::all_with(
                    client.clone(),
                    &caldera_runtime::watch::resource("", "v1", "Namespace", "namespaces"),
                );
                let namespace = namespaces.get_opt(&key.namespace).await?;
                let labels = namespace.and_then(|namespace| namespace.metadata.labels).unwrap_or_default();
                let opted_in = labels.get(caldera_crds::names::caldera::NAMESPACE_OPT_IN).map(String::as_str)
                    == Some(caldera_crds::names::caldera::NAMESPACE_OPT_IN_VALUE);
                Ok(Live::Workload(object.map(|object| Workload::of(key.kind, &object)), opted_in))
            }
        }
    };
    match tokio::time::timeout(READ_WITHIN, read).await {
        Ok(Ok(live)) => live,
        Ok(Err(error)) => {
            let error: kube::Error = error;
            Live::Failed(error.to_string())
        }
        Err(_) => Live::Failed(format!("no answer within {} s", READ_WITHIN.as_secs())),
    }
}

/// One kind's news.
enum News {
    Workload(WorkloadKind, Event<(WorkloadKey, Workload)>),
    Binding(Event<(Key, Binding)>),
    PriorityClass(Event<Value>),
    Namespace(Event<(String, bool)>),
    Queue(Event<Value>),
}

fn name_of(object: &Value) -> Key {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

/// Feeds memory from watches until `stop`; `ready` is set once it is complete.
pub fn follow(memory: &Memory, client: &Client, ready: Ready, stop: &CancellationToken) {
    let (sender, mut news) = mpsc::channel::<News>(1024);
    let watch = |resource, convert: Box<dyn FnMut(Event<Value>) -> Option<News> + Send>| {
        tokio::spawn(follow_json(
            client.clone(),
            resource,
            watcher::Config::default(),
            sender.clone(),
            convert,
            stop.clone(),
        ));
    };
    for kind in WorkloadKind::ALL {
        let entry = move |object: Value| {
            let (namespace, name) = name_of(&object);
            Some((WorkloadKey { kind, namespace, name }, Workload::of(kind, &object)))
        };
        watch(
            kind.api_resource(),
            Box::new(move |event| event.filter_map(entry).map(|event| News::Workload(kind, event))),
        );
    }
    watch(
        resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
        Box::new(|event| event.filter_map(|object| Some((name_of(&object), Binding::of(&object)))).map(News::Binding)),
    );
    watch(
        resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
        Box::new(|event| Some(News::PriorityClass(event))),
    );
    watch(
        resource("", "v1", "Namespace", "namespaces"),
        Box::new(|event| {
            let opted_in = |object: Value| {
                let label = object
                    .pointer("/metadata/labels")
                    .and_then(|l| l.get(caldera_crds::names::caldera::NAMESPACE_OPT_IN));
                let opted = label.and_then(Value::as_str) == Some(caldera_crds::names::caldera::NAMESPACE_OPT_IN_VALUE);
                Some((name_of(&object).1, opted))
            };
            event.filter_map(opted_in).map(News::Namespace)
        }),
    );
    watch(resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"), Box::new(|event| Some(News::Queue(event))));
    let memory = memory.clone();
    tokio::spawn(async move {
        while let Some(news) = news.recv().await {
            memory.write(|index| learn(index, news));
            let complete = memory.read(|index| EXPECTED.iter().all(|kind| index.listed.contains(kind)));
            if complete && !ready.get() {
                tracing::info!("memory is complete");
                ready.set(true);
            }
        }
    });
}

/// Without these, answers may need live reads.
const EXPECTED: [&str; 5] = ["VolcanoJob", "ResourceBinding", "PriorityClass", "Namespace", "Queue"];

fn learn(index: &mut Index, news: News) {
    match news {
        News::Workload(kind, event) => {
            index.listed.insert(kind.title());
            match event {
                Event::Reset(all) => {
                    index.workloads.retain(|key, _| key.kind != kind);
                    index.workloads.extend(all);
                }
                Event::Applied((key, workload)) => drop(index.workloads.insert(key, workload)),
                Event::Deleted((key, _)) => drop(index.workloads.remove(&key)),
            }
        }
        News::Binding(event) => {
            index.listed.insert("ResourceBinding");
            match event {
                Event::Reset(all) => {
                    let kept: std::collections::BTreeSet<Key> = all.iter().map(|(key, _)| key.clone()).collect();
                    let gone: Vec<Key> = index.bindings.keys().filter(|key| !kept.contains(*key)).cloned().collect();
                    gone.iter().for_each(|key| index.remove_binding(key));
                    all.into_iter().for_each(|(key, binding)| index.put_binding(key, binding));
                }
                Event::Applied((key, binding)) => index.put_binding(key, binding),
                Event::Deleted((key, _)) => index.remove_binding(&key),
            }
        }
        News::PriorityClass(event) => {
            index.listed.insert("PriorityClass");
            let mut put = |object: &Value| {
                let value =
                    object.get("value").and_then(Value::as_i64).and_then(|v| i32::try_from(v).ok()).unwrap_or(0);
                let name = name_of(object).1;
                if object.get("globalDefault").and_then(Value::as_bool) == Some(true) {
                    index.default_priority = Some((name.clone(), value));
                } else if index.default_priority.as_ref().is_some_and(|(default, _)| *default == name) {
                    index.default_priority = None;
                }
                index.priority_classes.insert(name, value);
            };
            match event {
                Event::Reset(all) => {
                    all.iter().for_each(&mut put);
                    let kept: std::collections::BTreeSet<String> = all.iter().map(|object| name_of(object).1).collect();
                    index.priority_classes.retain(|name, _| kept.contains(name));
                    index.default_priority.take_if(|(name, _)| !kept.contains(name));
                }
                Event::Applied(object) => put(&object),
                Event::Deleted(object) => {
                    let name = name_of(&object).1;
                    index.priority_classes.remove(&name);
                    index.default_priority.take_if(|(default, _)| *default == name);
                }
            }
        }
        News::Namespace(event) => {
            index.listed.insert("Namespace");
            match event {
                Event::Reset(all) => {
                    index.opted_in = all.into_iter().filter(|(_, opted_in)| *opted_in).map(|(name, _)| name).collect();
                }
                Event::Applied((name, true)) => drop(index.opted_in.insert(name)),
                Event::Applied((name, false)) | Event::Deleted((name, _)) => drop(index.opted_in.remove(&name)),
            }
        }
        News::Queue(event) => {
            index.listed.insert("Queue");
            let mut put = |object: Value| {
                let name = name_of(&object).1;
                index.queues.insert(name.clone(), Queue::of(&object));
                index.queue_objects.insert(name, object);
            };
            match event {
                Event::Reset(all) => {
                    let kept: std::collections::BTreeSet<String> = all.iter().map(|object| name_of(object).1).collect();
                    all.into_iter().for_each(&mut put);
                    index.queues.retain(|name, _| kept.contains(name));
                    index.queue_objects.retain(|name, _| kept.contains(name));
                }
                Event::Applied(object) => put(object),
                Event::Deleted(object) => {
                    let name = name_of(&object).1;
                    index.queues.remove(&name);
                    index.queue_objects.remove(&name);
                }
            }
        }
    }
}
