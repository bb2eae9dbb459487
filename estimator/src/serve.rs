//! The server: follows one member's nodes as they are published or watched, and answers three gRPC methods about them.
//!
//! Rule: Karmada's `pkg/estimator/server/server.go`: a call that names another cluster is refused; until the nodes are
//! known the answer is [`UNKNOWN`].

use std::{
    future::{Future, ready},
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
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
    gang::Gang,
    inventory::{Capacity, Inventory},
};
use caldera_crds::{
    estimator::{
        SERVICE, UNKNOWN, convert,
        messages::{
            AssumedWorkload, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
            MaxAvailableReplicasRequest, MaxAvailableReplicasResponse, UnschedulableReplicasRequest,
            UnschedulableReplicasResponse,
        },
    },
    karmada::cluster::Cluster,
};
use caldera_runtime::{
    client::WriteCounts,
    clock::SharedClock,
    members::{Members, client_of},
    serve::Ready,
    tls::ServedTls,
    watch::{Event, Follower, api_resource, list_json},
};
use jiff::SignedDuration;
use kube::{Client, runtime::watcher};
use prost::Message;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_prost::ProstCodec;

use crate::answer;

/// How long the member may take to list pods for one question.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// What an estimator is started with.
pub struct Config {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate and who may ask; without one it speaks plain HTTP/2, as Karmada's does.
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
}

/// What all requests share.
struct Shared {
    cluster: String,
    host: Client,
    member: Option<Client>,
    clock: SharedClock,
    counts: WriteCounts,
    view: Mutex<View>,
}

#[derive(Default)]
struct View {
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
        view: Mutex::default(),
    });
    tokio::spawn(follow_member(Arc::clone(&shared), config.ready, shutdown.clone()));
    let routes = routes(shared).into_make_service();
    let handle = axum_server::Handle::new();
    let end = handle.clone();
    tokio::spawn(async move {
        shutdown.cancelled().await;
        end.graceful_shutdown(Some(Duration::from_secs(2)));
    });
    match config.tls {
        Some(tls) => {
            axum_server::from_tcp_rustls(config.listener, tls.into_rustls_config())?.handle(handle).serve(routes).await
        }
        None => axum_server::from_tcp(config.listener)?.handle(handle).serve(routes).await,
    }
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
                let mut view = shared.view();
                view.apply_update(event.update);
                ready.set_ready(view.inventory.is_complete());
            }
        }
    }
}

impl View {
    fn apply_update(&mut self, update: Update) {
        match update {
            Update::Change(change) => {
                if self.inventory.apply_change(change) {
                    self.capacity = None;
                }
            }
            Update::Up => self.down = None,
            Update::Down(why) => {
                self.inventory.list_again();
                self.down = Some(why);
            }
            Update::From(_) | Update::Queues(_) => {}
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
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe_cluster(&self, event: Event<Cluster>, members: &mut Members) {
        let cluster = match event {
            Event::Reset(all) => all.into_iter().find(|one| one.metadata.name.as_deref() == Some(&self.cluster)),
            Event::Applied(cluster) => Some(cluster),
            Event::Deleted(_) => None,
        };
        match &cluster {
            Some(cluster) => members.observe_cluster_through(cluster, self.member.clone()),
            None => {
                tracing::warn!(cluster = self.cluster, "Karmada knows no such cluster; nothing is known of it");
                members.keep_only(&[]);
                *self.view() = View::default();
            }
        }
        self.view().object = cluster;
    }

    fn check_cluster(&self, cluster: &str) -> Result<(), Status> {
        if cluster == self.cluster {
            return Ok(());
        }
        Err(Status::invalid_argument(format!("this estimator knows cluster {:?}, not {cluster:?}", self.cluster)))
    }

    /// What is free beside what was given to the cluster already.
    fn capacity_beside(&self, assumed: &[AssumedWorkload]) -> Result<Option<Capacity>, Status> {
        let Some(capacity) = self.view().capacity() else { return Ok(None) };
        let gangs = assumed.iter().map(|workload| convert::read_gang(&workload.components));
        let gangs: Vec<Gang> = gangs.collect::<Result<_, _>>().map_err(|error| refuse(&error))?;
        Ok(Some(answer::without_assumed(&capacity, &gangs)))
    }

    fn max_replicas(&self, request: &MaxAvailableReplicasRequest) -> Result<MaxAvailableReplicasResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let requirements = request.replica_requirements.clone().unwrap_or_default();
        let task = convert::read_task(&requirements).map_err(|error| refuse(&error))?;
        let capacity = self.capacity_beside(&request.assumed_workloads)?;
        let max_replicas = capacity.map_or(UNKNOWN, |capacity| answer::count_replicas(&capacity, task));
        Ok(MaxAvailableReplicasResponse { max_replicas })
    }

    fn max_sets(
        &self,
        request: &MaxAvailableComponentSetsRequest,
    ) -> Result<MaxAvailableComponentSetsResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let set = convert::read_gang(&request.components).map_err(|error| refuse(&error))?;
        let capacity = self.capacity_beside(&request.assumed_workloads)?;
        let max_sets = capacity.map_or(UNKNOWN, |capacity| answer::count_sets(&capacity, &set));
        Ok(MaxAvailableComponentSetsResponse { max_sets })
    }

    async fn count_unschedulable(
        &self,
        request: &UnschedulableReplicasRequest,
    ) -> Result<UnschedulableReplicasResponse, Status> {
        self.check_cluster(&request.cluster)?;
        let Some(of) = &request.resource else { return Err(Status::invalid_argument("it names no resource")) };
        let Some(cluster) = self.view().object.clone() else {
            return Err(Status::unavailable("Karmada knows no such cluster"));
        };
        let list = async {
            let client = client_of(&self.host, &cluster, self.member.clone(), "estimator", &self.counts).await?;
            let pods = api_resource("", "v1", "Pod", "pods");
            list_json(client, &pods, Some(&of.namespace), None, Some).await.map_err(|error| error.to_string())
        };
        let pods = match tokio::time::timeout(LIST_WITHIN, list).await {
            Ok(listed) => listed.map_err(Status::unavailable)?,
            Err(_) => return Err(Status::unavailable("the member does not list its pods in time")),
        };
        let threshold = SignedDuration::from_nanos(request.unschedulable_threshold);
        let unschedulable_replicas = answer::count_unschedulable(&pods, of, threshold, self.clock.now());
        Ok(UnschedulableReplicasResponse { unschedulable_replicas })
    }
}

/// The status of a request that can not be read.
fn refuse(error: &convert::ReadError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn routes(shared: Arc<Shared>) -> Router {
    let path = |method: &str| format!("/{SERVICE}/{method}");
    Router::new()
        .route(
            &path("MaxAvailableReplicas"),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                answer_call(request, |message| ready(shared.max_replicas(&message))).await
            }),
        )
        .route(
            &path("MaxAvailableComponentSets"),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                answer_call(request, |message| ready(shared.max_sets(&message))).await
            }),
        )
        .route(
            &path("GetUnschedulableReplicas"),
            post(async |State(shared): State<Arc<Shared>>, request: Request| {
                let shared = &shared;
                answer_call(request, |message| async move { shared.count_unschedulable(&message).await }).await
            }),
        )
        .fallback(async || Status::unimplemented("no such method").into_http::<Body>())
        .with_state(shared)
}

/// One unary call: the message is decoded, answered and encoded.
async fn answer_call<Q, A, F>(request: Request, answer: impl Fn(Q) -> F) -> Response
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let service = tower::service_fn(|request: tonic::Request<Q>| {
        let answer = answer(request.into_inner());
        async { answer.await.map(tonic::Response::new) }
    });
    let mut grpc = tonic::server::Grpc::new(ProstCodec::<A, Q>::default());
    grpc.unary(service, request).await.map(Body::new)
}
