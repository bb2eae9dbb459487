//! The server: follows one member's nodes as they are published or watched, and answers three gRPC methods about them.
//!
//! Rules:
//! - Karmada's `pkg/estimator/server/server.go`: a call that names another cluster is refused; until the nodes are
//!   known the answer is `UNKNOWN`. For unschedulable pods the member is asked for a list, for five seconds at most.
//! - No question stops the others: messages, connections and time are bounded (`caldera_runtime::bounded`, [`limits`]),
//!   answers are worked out on two threads of their own, and a panic there is the answer to that question alone.

use std::{
    error::Error,
    future::Future,
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::post,
};
use caldera_core::{
    fleet::Update,
    inventory::{Capacity, Inventory},
};
use caldera_crds::{
    estimator::{
        SERVICE,
        messages::{
            MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse, MaxAvailableReplicasRequest,
            MaxAvailableReplicasResponse, UnschedulableReplicasRequest, UnschedulableReplicasResponse,
        },
    },
    karmada::cluster::Cluster,
};
use caldera_runtime::{
    bounded::{
        Bounds,
        body::{BodyBounds, BodyError, BodyMemory},
        serve_bounded,
    },
    client::WriteCounts,
    clock::SharedClock,
    members::{Members, connect_or_use_given},
    serve::{Ready, SharedRegistry},
    tls::ServedTls,
    watch::{Event, Follower, api_resource, list_json},
};
use jiff::SignedDuration;
use kube::{Client, runtime::watcher};
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_prost::ProstCodec;
use tracing::Instrument;

use crate::{
    answer,
    limits::{self, check_reference},
    metrics::Metrics,
    question::{answer_max_replicas, answer_max_sets},
};

/// How long the member may take to list pods for one question.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// How long an answer may take: beyond this karmada-scheduler does not wait (`--scheduler-estimator-timeout`).
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Answers that are worked out at once.
const THREADS: usize = 2;
/// The methods.
const MAX_REPLICAS: &str = "MaxAvailableReplicas";
const MAX_SETS: &str = "MaxAvailableComponentSets";
const UNSCHEDULABLE: &str = "GetUnschedulableReplicas";
/// A message and the five bytes before it.
const LARGEST_BODY: usize = limits::LARGEST_MESSAGE + 5;
/// Messages that are read or answered at once.
const BODIES: BodyBounds =
    BodyBounds { one: LARGEST_BODY, all: 8 * LARGEST_BODY, reserve: LARGEST_BODY, within: Duration::from_secs(5) };

/// What an estimator is started with.
pub struct Config {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate and who may ask; without one it speaks plain HTTP/2, and whoever reaches it may ask.
    pub tls: Option<ServedTls>,
    /// The member, as Karmada names it.
    pub cluster: String,
    /// A client of the member, for an estimator inside; without one it is reached as Karmada reaches it.
    pub member: Option<Client>,
    /// The time.
    pub clock: SharedClock,
    /// Set once the member's nodes are known.
    pub ready: Ready,
    /// Counts writes to the member (there should be none).
    pub counts: WriteCounts,
    /// Shows its metrics.
    pub registry: SharedRegistry,
}

/// What all requests share.
struct Shared {
    cluster: String,
    host: Client,
    member: Option<Client>,
    clock: SharedClock,
    counts: WriteCounts,
    metrics: Metrics,
    view: Mutex<MemberView>,
    bodies: BodyMemory,
    threads: Arc<Semaphore>,
}

#[derive(Default)]
struct MemberView {
    object: Option<Cluster>,
    inventory: Inventory,
    down: Option<String>,
    /// What is free; made anew when asked after a change.
    capacity: Option<Arc<Capacity>>,
}

/// Answers until `shutdown`.
///
/// # Errors
/// If the socket fails.
pub async fn run(config: Config, host: Client, shutdown: CancellationToken) -> std::io::Result<()> {
    let shared = Arc::new(Shared {
        cluster: config.cluster,
        host,
        member: config.member,
        clock: config.clock,
        counts: config.counts,
        metrics: Metrics::register(&config.registry),
        view: Mutex::default(),
        bodies: BodyMemory::new(BODIES),
        threads: Arc::new(Semaphore::new(THREADS)),
    });
    tokio::spawn(follow_member(Arc::clone(&shared), config.ready, shutdown.clone()));
    serve_bounded(config.listener, config.tls, build_routes(shared), connection_bounds(), shutdown).await
}

/// A scheduler keeps few connections and gives an answer three seconds.
fn connection_bounds() -> Bounds {
    Bounds { connections: 64, request: Duration::from_secs(15), ..Bounds::default() }
}

/// Keeps the view up to date.
async fn follow_member(shared: Arc<Shared>, ready: Ready, shutdown: CancellationToken) {
    let stop = shutdown.child_token();
    let _stop = stop.clone().drop_guard();
    let (clusters, mut seen_clusters) = mpsc::channel(16);
    let own = watcher::Config::default().fields(&format!("metadata.name={}", shared.cluster));
    Follower::new(shared.host.clone(), clusters, stop.clone()).follow_typed::<Cluster, _, _>(own, Some, Some);
    let (events, mut changes) = mpsc::channel(4096);
    let (host, counts) = (shared.host.clone(), shared.counts.clone());
    let mut members = Members::new(host, "estimator", counts, Arc::clone(&shared.clock), events, stop);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            event = seen_clusters.recv() => match event {
                Some(event) => shared.observe_cluster(event, &mut members),
                None => return,
            },
            Some(event) = changes.recv() => {
                let mut view = shared.lock_view();
                view.apply_update(event.update);
                ready.set_ready(view.inventory.is_complete());
            }
        }
    }
}

impl MemberView {
    fn apply_update(&mut self, update: Update) {
        match update {
            Update::Change(change) => {
                if self.inventory.apply_change(change) {
                    self.capacity = None;
                }
            }
            Update::Up => self.down = None,
            Update::Down(why) => {
                self.inventory.mark_unlisted();
                self.down = Some(why);
            }
            Update::From(_)
            | Update::Queues(_)
            | Update::NodeUse(..)
            | Update::Load(_)
            | Update::Images(_)
            | Update::Links(_) => {}
        }
    }

    /// What is free, if that is known.
    fn capacity(&mut self) -> Option<Arc<Capacity>> {
        if self.down.is_some() || !self.inventory.is_complete() {
            return None;
        }
        let inventory = &self.inventory;
        Some(Arc::clone(self.capacity.get_or_insert_with(|| Arc::new(inventory.capacity()))))
    }
}

impl Shared {
    fn lock_view(&self) -> MutexGuard<'_, MemberView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe_cluster(&self, event: Event<Cluster>, members: &mut Members) {
        let cluster = match event {
            Event::Reset(all) => all.into_iter().find(|one| one.metadata.name.as_deref() == Some(&self.cluster)),
            Event::Applied(cluster) => Some(cluster),
            Event::Deleted(_) => None,
        };
        match &cluster {
            Some(cluster) => members.start_member_watch_with(cluster, self.member.clone()),
            None => {
                tracing::warn!(cluster = self.cluster, "Karmada knows no such cluster; nothing is known of it");
                members.stop_other_watches(&[]);
                *self.lock_view() = MemberView::default();
            }
        }
        self.lock_view().object = cluster;
    }

    fn check_cluster(&self, cluster: &str) -> Result<(), Status> {
        if cluster == self.cluster {
            return Ok(());
        }
        Err(Status::invalid_argument(format!("this estimator knows cluster {:?}, not {cluster:?}", self.cluster)))
    }

    fn answer_max_replicas_call(
        &self,
        request: &MaxAvailableReplicasRequest,
    ) -> Result<MaxAvailableReplicasResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let capacity = self.lock_view().capacity();
        let max_replicas =
            answer_max_replicas(request, capacity.as_deref()).map_err(|error| to_invalid_argument(&error))?;
        Ok(MaxAvailableReplicasResponse { max_replicas })
    }

    fn answer_max_sets_call(
        &self,
        request: &MaxAvailableComponentSetsRequest,
    ) -> Result<MaxAvailableComponentSetsResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let capacity = self.lock_view().capacity();
        let max_sets = answer_max_sets(request, capacity.as_deref()).map_err(|error| to_invalid_argument(&error))?;
        Ok(MaxAvailableComponentSetsResponse { max_sets })
    }

    async fn answer_unschedulable_call(
        &self,
        request: &UnschedulableReplicasRequest,
    ) -> Result<UnschedulableReplicasResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let Some(of) = request.resource.clone() else { return Err(Status::invalid_argument("it names no resource")) };
        check_reference(&of).map_err(|error| to_invalid_argument(&error))?;
        let Some(cluster) = self.lock_view().object.clone() else {
            return Err(Status::unavailable("Karmada knows no such cluster"));
        };
        let list = async {
            let client =
                connect_or_use_given(&self.host, &cluster, self.member.clone(), "estimator", &self.counts).await?;
            let pods = api_resource("", "v1", "Pod", "pods");
            list_json(client, &pods, Some(&of.namespace), None, Some).await.map_err(|error| error.to_string())
        };
        let pods = match tokio::time::timeout(LIST_WITHIN, list).await {
            Ok(listed) => listed.map_err(Status::unavailable)?,
            Err(_) => return Err(Status::unavailable("the member does not list its pods in time")),
        };
        let threshold = SignedDuration::from_nanos(request.unschedulable_threshold);
        let now = self.clock.now();
        let counted = self.run_on_thread(move || Ok(answer::count_unschedulable(&pods, &of, threshold, now)));
        Ok(UnschedulableReplicasResponse { unschedulable_replicas: counted.await? })
    }
}

/// The status of a request that can not be read.
fn to_invalid_argument(error: &impl Error) -> Status {
    Status::invalid_argument(error.to_string())
}

impl Shared {
    /// Works out an answer on another thread when it is its turn. Who asked may be gone meanwhile: the thread gives the
    /// turn back.
    async fn run_on_thread<A: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<A, Status> + Send + 'static,
    ) -> Result<A, Status> {
        let turn = Arc::clone(&self.threads).acquire_owned().await;
        let turn = turn.map_err(|_| Status::unavailable("the estimator stops"))?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.unwrap_or_else(|_| Err(Status::internal("the estimator failed on this question")))
    }
}

fn build_routes(shared: Arc<Shared>) -> Router {
    let path = |method: &str| format!("/{SERVICE}/{method}");
    Router::new()
        .route(
            &path(MAX_REPLICAS),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                let of = &shared;
                answer_call(of, MAX_REPLICAS, request, |message| async move {
                    let shared = Arc::clone(of);
                    of.run_on_thread(move || shared.answer_max_replicas_call(&message)).await
                })
                .await
            }),
        )
        .route(
            &path(MAX_SETS),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                let of = &shared;
                answer_call(of, MAX_SETS, request, |message| async move {
                    let shared = Arc::clone(of);
                    of.run_on_thread(move || shared.answer_max_sets_call(&message)).await
                })
                .await
            }),
        )
        .route(
            &path(UNSCHEDULABLE),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                let shared = &shared;
                let answer = |message| async move { shared.answer_unschedulable_call(&message).await };
                answer_call(shared, UNSCHEDULABLE, request, answer).await
            }),
        )
        .fallback(async || Status::unimplemented("no such method").into_http::<Body>())
        .with_state(shared)
}

/// One unary call, measured.
async fn answer_call<Q, A, F>(
    shared: &Shared,
    method: &'static str,
    request: Request,
    answer: impl Fn(Q) -> F,
) -> Response
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let began = Instant::now();
    let response = answer_within_bounds(shared, request, answer);
    let response = response.instrument(tracing::debug_span!("call", method)).await;
    // An answer has its status behind it, a refusal in its head.
    let refusal = Status::from_header_map(response.headers()).map(|status| status.code());
    shared.metrics.observe_answer(method, refusal, began.elapsed());
    response
}

/// The message is read within bounds, decoded, answered in time and encoded.
async fn answer_within_bounds<Q, A, F>(shared: &Shared, request: Request, answer: impl Fn(Q) -> F) -> Response
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let (head, body) = request.into_parts();
    let held = match shared.bodies.read_body(body).await {
        Ok(held) => held,
        Err(error) => return convert_body_error(&error).into_http::<Body>(),
    };
    let request = Request::from_parts(head, Body::from(held.to_vec()));
    let service = tower::service_fn(|request: tonic::Request<Q>| {
        let answer = answer(request.into_inner());
        async {
            let late = || Err(Status::deadline_exceeded(format!("no answer within {ANSWER_WITHIN:?}")));
            let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| late());
            answer.map(tonic::Response::new)
        }
    });
    let mut grpc =
        tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(limits::LARGEST_MESSAGE);
    grpc.unary(service, request).await.map(Body::new)
}

/// gRPC's word for a body that was not read.
fn convert_body_error(error: &BodyError) -> Status {
    let text = error.to_string();
    match error {
        BodyError::TooLarge(_) => Status::resource_exhausted(text),
        BodyError::TooSlow(_) => Status::deadline_exceeded(text),
        BodyError::NoMemory => Status::unavailable(text),
        BodyError::Broken(_) => Status::internal(text),
    }
}
