//! The server and the task that feeds its cache: the only async files.
//!
//! Rules:
//! - A body is read within bounds (`caldera_runtime::bounded`); before anything is built of it, it is known what that
//!   will cost and whose it is ([`cost`](crate::observe::cost)).
//! - Reviews are decided without a lock, from a copy of the cache, and on threads of their own (`review_pool`).
//! - What is not decided in time is an HTTP error, so that the failure policy decides and not the caller's patience.

mod review_pool;

use std::{
    net::TcpListener,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use caldera_crds::{
    dns::{is_dns_label, is_dns_subdomain},
    job_admission::{MOST_TASKS, task_count_refusal},
    trusted::TrustedWriters,
};
use caldera_runtime::{
    bounded::{
        Bounds,
        body::{BodyBounds, BodyRoom, HeldBody},
        serve_bounded,
    },
    serve::{Ready, SharedRegistry},
    tls::{Identity, ServedTls, TlsError, server_config},
    watch::{Follower, api_resource},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use ssh_key::rand_core::{OsRng, RngCore};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::review_pool::ReviewPool;
use crate::{
    decide::{
        binding_gate::{GatedBinding, gate_binding},
        interpreter::{self, interpret_request},
        job::{Seed, default_job_review, validate_job},
        protected_fields::{refuse_forged_binding, refuse_forged_work},
        queue::{default_queue_review, validate_queue},
        verdict::{Denial, Verdict},
        work_copy::{ReviewedWork, rewrite_work},
    },
    metrics::Metrics,
    observe::{
        cache::{Cache, CachedBinding, CachedWorkload, LiveRead, Lookup, Snapshot},
        cost::{Glance, GlancedSpecs, estimate_memory},
        host_watch::{follow_host, is_opted_in},
        request::parse_review,
    },
    write::review::{Outcome, answer_owned_review, answer_review, encode_verdict},
};

/// How long a live read may take: well below the API server's patience.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a review may take in all, from its last byte: below the API server's patience of five seconds.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(4_500);
/// The largest request that an API server takes, and thereby the largest object.
pub const LARGEST_OBJECT: usize = 3 << 20;
/// What an AdmissionReview has around its objects.
const ENVELOPE: usize = 64 << 10;

/// What is kept of requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections, and how long they may take for what.
    pub bounds: Bounds,
    /// Bytes of an object, and of all bodies that are being read or decided.
    pub bodies: BodyBounds,
    /// Bytes of the values that are built of bodies, in all.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self::for_objects_of(LARGEST_OBJECT)
    }
}

impl Limits {
    /// With room for the largest object: five of it at once, and its values, which take many times its text.
    #[must_use]
    pub fn for_objects_of(bytes: usize) -> Self {
        let one = bytes + ENVELOPE;
        let bodies = BodyBounds { one, all: 5 * one, reserve: one, within: Duration::from_secs(10) };
        Self { bounds: Bounds::default(), bodies, memory: 27 * bytes }
    }
}

/// What the webhook is started with.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate.
    pub identity: Identity,
    /// Served in its place where it is renewed.
    pub renewed: Option<ServedTls>,
    /// What its clients may take of it.
    pub limits: Limits,
    /// Whose word counts on what is admitted and placed.
    pub trusted: TrustedWriters,
    /// Set once the cache is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
}

impl Config {
    /// A server on `listener` with this certificate.
    #[must_use]
    pub fn new(listener: TcpListener, identity: Identity) -> Self {
        let (ready, registry) = (Ready::default(), SharedRegistry::default());
        let (limits, trusted) = (Limits::default(), TrustedWriters::default());
        Self { listener, identity, renewed: None, limits, trusted, ready, registry }
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
    cache: Arc<Published>,
    client: Client,
    metrics: Arc<Metrics>,
    bodies: BodyRoom,
    memory: usize,
    /// Without it reviews are decided where they arrive: on one thread in one order.
    pool: Option<ReviewPool>,
}

/// The cache as it is now, and the right to write the next one.
#[derive(Default)]
struct Published {
    current: RwLock<Arc<Cache>>,
    writing: Mutex<()>,
}

impl SharedCache {
    /// An empty cache; live reads go to `client`.
    #[must_use]
    pub fn new(client: Client, registry: &SharedRegistry) -> Self {
        let metrics = Arc::new(Metrics::register_metrics(registry));
        let limits = Limits::default();
        let (cache, bodies) = (Arc::default(), BodyRoom::new(limits.bodies));
        Self { cache, client, metrics, bodies, memory: limits.memory, pool: None }
    }

    /// The same with threads of its own for reviews, within `limits`.
    #[must_use]
    pub fn with_threads(self, limits: &Limits) -> Self {
        let at_once = std::thread::available_parallelism().map_or(2, usize::from);
        let (bodies, pool) = (BodyRoom::new(limits.bodies), Some(ReviewPool::new(at_once)));
        Self { bodies, memory: limits.memory, pool, ..self }
    }

    /// The cache as it is now. Nobody waits for who reads it.
    #[must_use]
    pub fn current(&self) -> Arc<Cache> {
        Arc::clone(&self.cache.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn update_cache<T>(&self, update: impl FnOnce(&mut Cache) -> T) -> T {
        let _one = self.cache.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Cache::clone(&self.current());
        let updated = update(&mut next);
        let mut next = Arc::new(next);
        std::mem::swap(&mut next, &mut self.cache.current.write().unwrap_or_else(PoisonError::into_inner));
        updated
    }

    /// Decides by `rule`; `None` if it panicked.
    async fn decide_review<T: Send + 'static>(
        &self,
        asked: &Asked,
        rule: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match &self.pool {
            Some(pool) if asked.cost >= SMALL => pool.decide_review(&asked.namespace, asked.cost, rule).await,
            _ => std::panic::catch_unwind(AssertUnwindSafe(rule)).ok(),
        }
    }
}

/// Serves until `shutdown`.
///
/// # Errors
/// If TLS or the socket fails.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let cache = SharedCache::new(client.clone(), &config.registry).with_threads(&config.limits);
    cache.update_cache(|cache| cache.trusted = Arc::new(config.trusted));
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    fill_cache(&cache, &client, config.ready.clone(), &watches);
    let served = match config.renewed {
        Some(served) => served,
        None => server_config(&config.identity).map_err(Error::Tls)?.into(),
    };
    if let Ok(address) = config.listener.local_addr() {
        tracing::info!(%address, "the webhook listens");
    }
    let routes = router(cache, config.ready);
    serve_bounded(config.listener, Some(served), routes, config.limits.bounds, shutdown).await.map_err(Error::Serve)
}

/// Decides a review from its body and what is known.
type Rule = fn(&[u8], Snapshot<'_>) -> Outcome;

/// The webhook's routes.
pub fn router(cache: SharedCache, ready: Ready) -> Router {
    let review = |route: &'static str, rule: Rule| {
        post(move |State(cache): State<SharedCache>, request: Request| answer_request(cache, route, request, rule))
    };
    let is_ready = async move || match ready.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the cache is not complete yet"),
    };
    Router::new()
        .route(
            "/mutate-resourcebinding",
            review(BINDINGS, |body, snapshot| {
                answer_review::<GatedBinding<'_>>(body, |request| {
                    refuse_forged_binding(body, request.user_info.as_ref(), &snapshot.cache.trusted)
                        .unwrap_or_else(|| gate_binding(request, snapshot))
                })
            }),
        )
        .route(
            "/mutate-work",
            review("mutate-work", |body, snapshot| {
                answer_review::<ReviewedWork<'_>>(body, |request| {
                    refuse_forged_work(body, request.user_info.as_ref(), &snapshot.cache.trusted)
                        .unwrap_or_else(|| rewrite_work(request, snapshot))
                })
            }),
        )
        .route(
            "/mutate-job",
            review(MUTATE_JOB, |body, _| answer_owned_review(body, |request| default_job_review(request, draw_seed()))),
        )
        .route(
            "/validate-job",
            review(VALIDATE_JOB, |body, snapshot| answer_review(body, |request| validate_job(request, snapshot.cache))),
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
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
        .with_state(cache)
}

const BINDINGS: &str = "mutate-resourcebinding";
const MUTATE_JOB: &str = "mutate-job";
const VALIDATE_JOB: &str = "validate-job";

/// Randomness for a key; nothing where the system gives none.
fn draw_seed() -> Option<Seed> {
    let mut seed = Seed::default();
    OsRng.try_fill_bytes(&mut seed).ok()?;
    Some(seed)
}

/// A body, and what is known of it before anything is built of it.
struct Asked {
    body: Arc<HeldBody>,
    uid: String,
    namespace: String,
    cost: usize,
    /// Decided by that alone.
    early: Option<Outcome>,
}

/// Reviews that take less memory are decided where they arrive: that is quicker than to change threads.
const SMALL: usize = 256 << 10;
/// From here on a body is looked through on another thread.
const LONG: usize = 64 << 10;
/// From here on the specs in a body are looked at before they are built.
const COSTLY: usize = 1 << 20;

/// Looks through a body. What it would cost more than `most`, or has more tasks than a job may have, is decided by that.
fn look_through(route: &'static str, body: HeldBody, most: usize) -> Asked {
    let cost = estimate_memory(&body);
    let glance = Glance::of_body(&body);
    let (namespace, uid) = (glance.namespace().to_owned(), glance.uid().to_owned());
    let is_job = [MUTATE_JOB, VALIDATE_JOB].contains(&route);
    // A queue is small, and is copied while it is reviewed.
    let most = if route.ends_with("-queue") { most / 8 } else { most };
    let specs = if cost >= COSTLY { GlancedSpecs::of_body(&body) } else { GlancedSpecs::default() };
    let verdict = if is_job && specs.created_tasks > MOST_TASKS {
        Some(Verdict::deny_invalid(task_count_refusal(specs.created_tasks).sentence()))
    } else if cost <= most {
        None
    } else if is_job && specs.are_equal {
        // Its finalizers and labels must change whatever its size is.
        Some(Verdict::UNCHANGED)
    } else {
        let (needed, most) = (cost >> 20, most >> 20);
        let message =
            format!("the object is too large to be reviewed: it takes about {needed} MiB, at most {most} may");
        Some(Verdict::Deny(Denial { code: 413, reason: "RequestEntityTooLarge", message }))
    };
    let early = verdict.map(|verdict| encode_verdict(&uid, verdict));
    Asked { body: Arc::new(body), uid, namespace, cost, early }
}

impl SharedCache {
    /// Reads a request's body and looks through it.
    async fn read_request(&self, route: &'static str, request: Request) -> Result<Asked, Response> {
        let body = self.bodies.read_body(request.into_body()).await;
        let body = body.map_err(|error| {
            self.metrics.count_refusal(error.status().as_u16());
            (error.status(), error.to_string()).into_response()
        })?;
        let most = self.memory;
        match &self.pool {
            Some(pool) if body.len() >= LONG => {
                let looked = pool.look_through(move || look_through(route, body, most)).await;
                looked.ok_or_else(|| respond_with(500, b"the webhook failed on this object".to_vec()))
            }
            _ => Ok(look_through(route, body, most)),
        }
    }

    /// The plan of a binding is announced before anybody is told of it, so that no Work is rewritten by an older one.
    fn announce_plan(&self, body: &[u8]) {
        let Ok(request) = parse_review::<GatedBinding<'_>>(body) else { return };
        let (Some(binding), Some(namespace)) = (&request.object, &request.namespace) else { return };
        let (name, plan) = binding.name_and_plan();
        let key = (namespace.as_ref().to_owned(), name.to_owned());
        if refuse_forged_binding(body, request.user_info.as_ref(), &self.current().trusted).is_some() {
            return;
        }
        if request.dry_run != Some(true) && plan != 0 && self.current().is_news(&key, plan) {
            self.update_cache(|cache| cache.announce_plan(key, plan));
        }
    }
}

async fn answer_interpreter(State(cache): State<SharedCache>, request: Request) -> Response {
    let asked = match cache.read_request("interpreter", request).await {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let started = Instant::now();
    let reply = match asked.early {
        Some(_) => Some(interpreter::refuse_request(&asked.uid, "the object is too large to be interpreted")),
        None => {
            let (known, body) = (cache.current(), Arc::clone(&asked.body));
            let decided = cache.decide_review(&asked, move || {
                let _span = tracing::debug_span!("review", route = "interpreter").entered();
                interpret_request(&body, &known)
            });
            match tokio::time::timeout(REVIEW_TIMEOUT, decided).await {
                Ok(reply) => reply,
                Err(_) => return respond_late(),
            }
        }
    };
    cache.metrics.observe_review("interpreter", started.elapsed());
    match reply {
        Some(reply) => respond_with(reply.status, reply.body),
        None => respond_with(500, b"the interpreter failed on this object".to_vec()),
    }
}

async fn answer_request(cache: SharedCache, route: &'static str, request: Request, rule: Rule) -> Response {
    let mut asked = match cache.read_request(route, request).await {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let started = Instant::now();
    let outcome = match asked.early.take() {
        Some(early) => Some(early),
        None => match tokio::time::timeout(REVIEW_TIMEOUT, decide_request(&cache, route, &asked, rule)).await {
            Ok(outcome) => outcome,
            Err(_) => return respond_late(),
        },
    };
    cache.metrics.observe_review(route, started.elapsed());
    match outcome {
        Some(Outcome::Reply(status, body)) => respond_with(status, body),
        Some(Outcome::Read(lookup)) => {
            respond_with(500, format!("failed to decide after reading {lookup:?}").into_bytes())
        }
        None => respond_with(500, b"the webhook failed on this object".to_vec()),
    }
}

/// Decides from the cache; if the rule wants something read live, reads it and decides once more.
async fn decide_request(cache: &SharedCache, route: &'static str, asked: &Asked, rule: Rule) -> Option<Outcome> {
    let decide = |live: Option<LiveRead>| {
        let (known, body) = (cache.current(), Arc::clone(&asked.body));
        let announces = (route == BINDINGS && live.is_none()).then(|| cache.clone());
        cache.decide_review(asked, move || {
            let _span = tracing::debug_span!("review", route, live = live.is_some()).entered();
            announces.iter().for_each(|cache| cache.announce_plan(&body));
            rule(&body, Snapshot { cache: &known, live: live.as_ref() })
        })
    };
    match decide(None).await {
        Some(Outcome::Read(lookup)) => {
            let live = read_live(&cache.client, &lookup).await;
            decide(Some(live)).await
        }
        outcome => outcome,
    }
}

fn respond_late() -> Response {
    let text = format!("the review was not decided within {REVIEW_TIMEOUT:?}; try again");
    respond_with(503, text.into_bytes())
}

fn respond_with(status: u16, body: Vec<u8>) -> Response {
    let content_type = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// Reads what a rule asks for. Names come from requests: one that no object can have is not asked for, because in a path
/// it would mean another object.
async fn read_live(client: &Client, lookup: &Lookup) -> LiveRead {
    match lookup {
        Lookup::Binding((namespace, name)) if !(is_dns_label(namespace) && is_dns_subdomain(name)) => {
            return LiveRead::Binding(None);
        }
        Lookup::Workload(key) if !(is_dns_label(&key.namespace) && is_dns_subdomain(&key.name)) => {
            return LiveRead::Workload(None, false);
        }
        _ => {}
    }
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
        // What came meanwhile becomes one next cache.
        let mut came = Vec::new();
        while events.recv_many(&mut came, 1024).await > 0 {
            let is_complete = cache.update_cache(|cache| {
                came.drain(..).for_each(|event| cache.apply_event(event));
                cache.is_complete()
            });
            if is_complete && !ready.is_ready() {
                tracing::info!("the cache is complete");
                ready.set_ready(true);
            }
        }
    });
}
