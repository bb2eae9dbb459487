//! The server and the task that feeds its cache: the only async files.
//!
//! Rules:
//! - A body is read within bounds (`caldera_runtime::bounded`); before anything is built of it, it is known what that
//!   will cost and whose it is ([`cost`](crate::observe::cost)).
//! - Reviews are decided without a lock, from a copy of the cache. Small ones are decided where they arrive, all others
//!   on threads of their own (`review_pool`).
//! - Where a rule asks for it, something is read from the API (`live_read`), and the rule decides once more with that.
//! - The plan of a binding, that it has or that the answer gives it, is noted in the cache before its review is
//!   answered, so that no Work is made by an older one.
//! - What is not decided in time is an HTTP error, so that the failure policy decides and not the caller's patience.

mod first_look;
mod live_read;
mod review_pool;
mod shared_cache;

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use caldera_crds::trusted::TrustedWriters;
use caldera_runtime::{
    bounded::{
        Bounds,
        body::{BodyBounds, HeldBody},
        serve_bounded,
    },
    otlp::WORKLOAD,
    serve::{Ready, SharedRegistry},
    tls::ServedTls,
    watch::declare_kinds,
};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use self::shared_cache::{SharedCache, fill_cache};
use self::{first_look::REVIEW_TIMEOUT, live_read::read_live, review_pool::LargeReviews};
use crate::{
    decide::{
        binding_gate::GatedBinding,
        interpreter::{self, Interpretation, Reply, interpret_request},
        protected_fields::refuse_forged_binding,
    },
    observe::{
        cache::{BindingKey, LiveRead, Placer, Snapshot},
        request::{parse_review, read_traced_binding},
    },
    rules::{BINDINGS, RULES, Rule},
    write::review::Outcome,
};

/// A body, and what is known of it before anything is built of it.
struct InspectedRequest {
    body: Arc<HeldBody>,
    uid: String,
    namespace: String,
    /// Behind which it waits if it is large.
    line: LargeReviews,
    /// Bytes that its values will take.
    cost: usize,
    /// When it must be decided at last.
    until: tokio::time::Instant,
    /// Decided by that alone.
    early: Option<Outcome>,
}

/// The largest request that an API server takes, and thereby the largest object.
pub const LARGEST_OBJECT: usize = 3 << 20;
/// What an AdmissionReview has around its objects.
const ENVELOPE: usize = 64 << 10;

/// Seconds that pods may take to end where nothing else is said: far more than a checkpoint takes.
pub const LONGEST_GRACE_PERIOD: u64 = 3_600;

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
    /// Its certificate, which may be replaced.
    pub served: ServedTls,
    /// What its clients may take of it.
    pub limits: Limits,
    /// Whose word counts on what is admitted and placed.
    pub trusted: TrustedWriters,
    /// Who chooses clusters for what is admitted.
    pub placer: Placer,
    /// Seconds that the pods of a copy may take to end.
    pub longest_grace_period: u64,
    /// Set once the cache is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
}

impl Config {
    /// A server on `listener` with this certificate.
    #[must_use]
    pub fn new(listener: TcpListener, served: ServedTls) -> Self {
        let (ready, registry) = (Ready::default(), SharedRegistry::default());
        let (limits, trusted) = (Limits::default(), TrustedWriters::default());
        let (placer, longest_grace_period) = (Placer::default(), LONGEST_GRACE_PERIOD);
        Self { listener, served, limits, trusted, placer, longest_grace_period, ready, registry }
    }
}

/// Why the webhook stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("failed to serve the webhook: {0}")]
    Serve(#[source] std::io::Error),
}

/// Serves until `shutdown`.
///
/// # Errors
/// If the socket fails.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let cache = SharedCache::new(client.clone(), &config.registry).with_threads(&config.limits);
    cache.update_cache(|cache| {
        cache.trusted = Arc::new(config.trusted);
        cache.placer = config.placer;
        cache.longest_grace_period = Some(config.longest_grace_period);
    });
    let watches = shutdown.child_token();
    let _stop_watches = watches.clone().drop_guard();
    let (filled, ready) = (cache.clone(), config.ready.clone());
    tokio::spawn(async move {
        // It is not ready before it knows which kinds are queued.
        declare_kinds(&client, &watches).await;
        fill_cache(&filled, &client, ready, &watches);
    });
    if let Ok(address) = config.listener.local_addr() {
        tracing::info!(%address, "the webhook listens");
    }
    let routes = router(cache, config.ready);
    serve_bounded(config.listener, Some(config.served), routes, config.limits.bounds, shutdown)
        .await
        .map_err(Error::Serve)
}

/// The webhook's routes.
pub fn router(cache: SharedCache, ready: Ready) -> Router {
    let review = |route: &'static str, rule: Rule| {
        post(move |State(cache): State<SharedCache>, request: Request| answer_request(cache, route, request, rule))
    };
    let is_ready = async move || match ready.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the cache is not complete yet"),
    };
    let reviews = RULES
        .into_iter()
        .fold(Router::new(), |routes, (route, rule)| routes.route(&format!("/{route}"), review(route, rule)));
    reviews
        .route("/interpreter", post(answer_interpreter))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(is_ready))
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
        .with_state(cache)
}

const FAILED: &[u8] = b"the webhook failed on this object";

impl SharedCache {
    /// The plan of a binding is announced before anybody is told of it, so that no Work is rewritten by an older one.
    fn store_plan_of_review(&self, body: &[u8]) {
        let Ok(request) = parse_review::<GatedBinding<'_>>(body) else { return };
        let (Some(binding), Some(namespace)) = (&request.object, &request.namespace) else { return };
        let (name, plan) = binding.read_name_and_plan_fingerprint();
        let key = (namespace.as_ref().to_owned(), name.to_owned());
        if refuse_forged_binding(body, request.user_info.as_ref(), &self.current().trusted).is_some() {
            return;
        }
        if request.dry_run != Some(true) && plan != 0 {
            self.store_reviewed_plan(key, plan);
        }
    }

    fn store_reviewed_plan(&self, binding: BindingKey, plan: u64) {
        if self.current().changes_reviewed_plan(&binding, plan) {
            self.update_cache(|cache| cache.note_reviewed_plan(binding, plan));
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
        Some(_) => Some(interpreter::answer_too_large(&asked.uid, "the object is too large to be interpreted")),
        None => match tokio::time::timeout_at(asked.until, interpret(&cache, &asked)).await {
            Ok(reply) => reply,
            Err(_) => return respond_late(),
        },
    };
    cache.metrics.observe_review("interpreter", started.elapsed());
    match reply {
        Some(reply) => respond_with(reply.status, reply.body),
        None => respond_with(500, b"the interpreter failed on this object".to_vec()),
    }
}

/// What is answered; `None` where nothing can be.
async fn interpret(cache: &SharedCache, asked: &InspectedRequest) -> Option<Reply> {
    let decide = |live: Option<LiveRead>| {
        let (known, body) = (cache.current(), Arc::clone(&asked.body));
        cache.decide_review(asked, move || {
            let _span = tracing::debug_span!("review", route = "interpreter").entered();
            interpret_request(&body, &known, live.as_ref())
        })
    };
    let answer = match decide(None).await? {
        Interpretation::Read(lookup) => decide(Some(read_live(&cache.client, &lookup).await)).await?,
        answer => answer,
    };
    match answer {
        Interpretation::Reply(reply) => Some(reply),
        // It was read.
        Interpretation::Read(_) => None,
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
        None => match tokio::time::timeout_at(asked.until, decide_request(&cache, route, &asked, rule)).await {
            Ok(outcome) => outcome,
            Err(_) => return respond_late(),
        },
    };
    cache.metrics.observe_review(route, started.elapsed());
    match outcome {
        Some(Outcome::Reply { status, body, .. }) => respond_with(status, body),
        Some(Outcome::Read(lookup)) => {
            respond_with(500, format!("failed to decide after reading {lookup:?}").into_bytes())
        }
        None => respond_with(500, FAILED.to_vec()),
    }
}

/// Decides from the cache; if the rule wants something read live, reads it and decides once more.
async fn decide_request(
    cache: &SharedCache,
    route: &'static str,
    asked: &InspectedRequest,
    rule: Rule,
) -> Option<Outcome> {
    let now = cache.clock.now();
    let decide = |live: Option<LiveRead>| {
        let (known, body) = (cache.current(), Arc::clone(&asked.body));
        let announces = (route == BINDINGS && live.is_none()).then(|| cache.clone());
        cache.decide_review(asked, move || {
            let span = tracing::debug_span!(
                "review",
                route,
                live = live.is_some(),
                binding = tracing::field::Empty,
                workload_uid = tracing::field::Empty
            );
            if route == BINDINGS
                && !span.is_disabled()
                && let Some((binding, uid)) = read_traced_binding(&body)
            {
                span.record("binding", binding);
                span.record(WORKLOAD, uid);
            }
            let _span = span.entered();
            announces.iter().for_each(|cache| cache.store_plan_of_review(&body));
            rule(&body, Snapshot { cache: &known, live: live.as_ref(), now })
        })
    };
    let outcome = match decide(None).await {
        Some(Outcome::Read(lookup)) => {
            let live = read_live(&cache.client, &lookup).await;
            decide(Some(live)).await
        }
        outcome => outcome,
    };
    if let Some(Outcome::Reply { plan: Some((binding, plan)), .. }) = &outcome {
        cache.store_reviewed_plan(binding.clone(), *plan);
    }
    outcome
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

#[cfg(test)]
mod tests;
