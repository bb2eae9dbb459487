//! The server and the task that feeds its cache: the only async file.

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
use caldera_runtime::{
    serve::{Ready, SharedRegistry},
    tls::{Identity, ServedTls, TlsError, server_config},
    watch::{Follower, api_resource},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    decide::{
        binding_gate::{GatedBinding, gate_binding},
        interpreter::interpret_request,
        job::{default_job_review, validate_job},
        queue::{default_queue_review, validate_queue},
        work_copy::{ReviewedWork, rewrite_work},
    },
    metrics::Metrics,
    observe::{
        cache::{Cache, CachedBinding, CachedWorkload, LiveRead, Lookup, Snapshot},
        host_watch::{follow_host, is_opted_in},
    },
    write::review::{Outcome, answer_review},
};

/// How long a live read may take: well below the API server's patience.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long open connections may go on after the stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What the webhook is started with.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate.
    pub identity: Identity,
    /// Served in its place where it is renewed.
    pub renewed: Option<ServedTls>,
    /// Set once the cache is complete.
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
pub struct SharedCache {
    cache: Arc<RwLock<Cache>>,
    client: Client,
    metrics: Arc<Metrics>,
}

impl SharedCache {
    /// An empty cache; live reads go to `client`.
    #[must_use]
    pub fn new(client: Client, registry: &SharedRegistry) -> Self {
        Self { cache: Arc::default(), client, metrics: Arc::new(Metrics::register_metrics(registry)) }
    }

    /// A rule that panics must not poison the cache for the others.
    fn read_guarded<T>(&self, rule: impl FnOnce(&Cache) -> T) -> Option<T> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        std::panic::catch_unwind(AssertUnwindSafe(|| rule(&cache))).ok()
    }

    fn update_cache<T>(&self, update: impl FnOnce(&mut Cache) -> T) -> T {
        update(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Serves until `shutdown`.
///
/// # Errors
/// If TLS or the socket fails.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let cache = SharedCache::new(client.clone(), &config.registry);
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    fill_cache(&cache, &client, config.ready.clone(), &watches);
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
    tokio::spawn(async move {
        shutdown.cancelled().await;
        stop.graceful_shutdown(Some(DRAIN_TIMEOUT));
    });
    axum_server::from_tcp_rustls(config.listener, served.into_rustls_config())
        .map_err(Error::Serve)?
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .handle(handle)
        .serve(router(cache, config.ready).into_make_service())
        .await
        .map_err(Error::Serve)
}

/// The webhook's routes.
pub fn router(cache: SharedCache, ready: Ready) -> Router {
    let review = |route: &'static str, rule: fn(&[u8], Snapshot<'_>) -> Outcome| {
        post(move |State(cache): State<SharedCache>, body: Bytes| answer_request(cache, route, body, rule))
    };
    let is_ready = async move || match ready.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the cache is not complete yet"),
    };
    Router::new()
        .route("/mutate-resourcebinding", post(review_binding))
        .route(
            "/mutate-work",
            review("mutate-work", |body, snapshot| {
                answer_review::<ReviewedWork<'_>>(body, |request| rewrite_work(request, snapshot))
            }),
        )
        .route("/mutate-job", review("mutate-job", |body, _| answer_review(body, default_job_review)))
        .route(
            "/validate-job",
            review("validate-job", |body, snapshot| {
                answer_review(body, |request| validate_job(request, snapshot.cache))
            }),
        )
        .route("/mutate-queue", review("mutate-queue", |body, _| answer_review(body, default_queue_review)))
        .route(
            "/validate-queue",
            review("validate-queue", |body, snapshot| {
                answer_review(body, |request| validate_queue(request, snapshot.cache))
            }),
        )
        .route("/interpreter", post(answer_interpreter))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(is_ready))
        .layer(axum::extract::DefaultBodyLimit::max(16 << 20))
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
        .with_state(cache)
}

/// Gates a binding, and announces the plan that it carries, so that no Work is rewritten by an older one.
async fn review_binding(State(cache): State<SharedCache>, body: Bytes) -> Response {
    let announced = cache.clone();
    answer_request(cache, "mutate-resourcebinding", body, move |body, snapshot| {
        answer_review::<GatedBinding<'_>>(body, |request| {
            if let (Some(binding), Some(namespace)) = (&request.object, &request.namespace)
                && request.dry_run != Some(true)
            {
                let (name, plan) = binding.name_and_plan();
                let key = (namespace.as_ref().to_owned(), name.to_owned());
                if plan != 0 && snapshot.cache.is_news(&key, plan) {
                    // Not here: this closure runs under the read lock.
                    let announced = announced.clone();
                    tokio::spawn(async move { announced.update_cache(|cache| cache.announce_plan(key, plan)) });
                }
            }
            gate_binding(request, snapshot)
        })
    })
    .await
}

async fn answer_interpreter(State(cache): State<SharedCache>, body: Bytes) -> Response {
    let started = Instant::now();
    let _span = tracing::debug_span!("review", route = "interpreter").entered();
    let reply = cache.read_guarded(|cache| interpret_request(&body, cache));
    cache.metrics.observe_review("interpreter", started.elapsed());
    match reply {
        Some(reply) => respond_with(reply.status, reply.body),
        None => respond_with(500, b"the interpreter failed on this object".to_vec()),
    }
}

/// Decides from the cache; if the rule wants something read live, reads it and decides once more.
async fn answer_request(
    cache: SharedCache,
    route: &'static str,
    body: Bytes,
    rule: impl Fn(&[u8], Snapshot<'_>) -> Outcome,
) -> Response {
    let started = Instant::now();
    let decide = |live: Option<&LiveRead>| {
        let _span = tracing::debug_span!("review", route, live = live.is_some()).entered();
        cache.read_guarded(|cache| rule(&body, Snapshot { cache, live }))
    };
    let mut outcome = decide(None);
    if let Some(Outcome::Read(lookup)) = outcome {
        let live = read_live(&cache.client, &lookup).await;
        outcome = decide(Some(&live));
    }
    cache.metrics.observe_review(route, started.elapsed());
    match outcome {
        Some(Outcome::Reply(status, body)) => respond_with(status, body),
        Some(Outcome::Read(lookup)) => {
            respond_with(500, format!("failed to decide after reading {lookup:?}").into_bytes())
        }
        None => respond_with(500, b"the webhook failed on this object".to_vec()),
    }
}

fn respond_with(status: u16, body: Vec<u8>) -> Response {
    let content_type = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn read_live(client: &Client, lookup: &Lookup) -> LiveRead {
    let read = async {
        match lookup {
            Lookup::Binding((namespace, name)) => {
                let resource = api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
                let object = read_object(client, &resource, namespace, name).await?;
                Ok(LiveRead::Binding(object.map(|object| Box::new(CachedBinding::from_object(&object)))))
            }
            Lookup::Workload(key) => {
                let object = read_object(client, &key.kind.api_resource(), &key.namespace, &key.name).await?;
                let namespaces: Api<DynamicObject> =
                    Api::all_with(client.clone(), &api_resource("", "v1", "Namespace", "namespaces"));
                let namespace = namespaces.get_opt(&key.namespace).await?;
                let labels = namespace.and_then(|namespace| namespace.metadata.labels);
                let workload = object.map(|object| CachedWorkload::from_object(key.kind, &object));
                Ok(LiveRead::Workload(workload, is_opted_in(&json!(labels))))
            }
        }
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(read) => read.unwrap_or_else(|error: kube::Error| LiveRead::Failed(error.to_string())),
        Err(_) => LiveRead::Failed(format!("no answer within {} s", READ_TIMEOUT.as_secs())),
    }
}

async fn read_object(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let object = api.get_opt(name).await?;
    object.map(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError)).transpose()
}

/// Feeds the cache from watches until `stop`; `ready` is set once it is complete.
pub fn fill_cache(cache: &SharedCache, client: &Client, ready: Ready, stop: &CancellationToken) {
    let (sender, mut events) = mpsc::channel(1024);
    follow_host(&Follower::new(client.clone(), sender, stop.clone()));
    let cache = cache.clone();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            let is_complete = cache.update_cache(|cache| {
                cache.apply_event(event);
                cache.is_complete()
            });
            if is_complete && !ready.is_ready() {
                tracing::info!("the cache is complete");
                ready.set_ready(true);
            }
        }
    });
}
