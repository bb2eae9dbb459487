//! The server: one member's nodes as they are published or watched, and three questions about them.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    response::Response,
    routing::post,
};
use bytes::Bytes;
use caldera_core::{
    fleet::Update,
    gang::Gang,
    inventory::{Capacity, Inventory},
};
use caldera_crds::karmada::cluster::Cluster;
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

use crate::{
    SERVICE, UNKNOWN, answer,
    grpc::{LONGEST, Status, respond, unframe},
    proto::{
        AssumedWorkload, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
        MaxAvailableReplicasRequest, MaxAvailableReplicasResponse, UnschedulableReplicasRequest,
        UnschedulableReplicasResponse,
    },
    read,
};

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
    tokio::spawn(follow(Arc::clone(&shared), config.ready, shutdown.clone()));
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
async fn follow(shared: Arc<Shared>, ready: Ready, shutdown: CancellationToken) {
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
                Some(event) => shared.cluster(event, &mut members),
                None => return,
            },
            Some(event) = changes.recv() => {
                let mut view = shared.view();
                view.apply(event.update);
                ready.set_ready(view.inventory.is_complete());
            }
        }
    }
}

impl View {
    fn apply(&mut self, update: Update) {
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

    fn cluster(&self, event: Event<Cluster>, members: &mut Members) {
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

    fn is_about_us(&self, cluster: &str) -> Result<(), Status> {
        if cluster == self.cluster {
            return Ok(());
        }
        Err(Status::invalid(format!("this estimator knows cluster {:?}, not {cluster:?}", self.cluster)))
    }

    /// What is free beside what was given to the cluster already.
    fn capacity(&self, assumed: &[AssumedWorkload]) -> Result<Option<Capacity>, Status> {
        let Some(capacity) = self.view().capacity() else { return Ok(None) };
        let gangs = assumed.iter().map(|workload| read::set(&workload.components));
        let gangs: Vec<Gang> = gangs.collect::<Result<_, _>>().map_err(|error| Status::invalid(error.to_string()))?;
        Ok(Some(answer::less(&capacity, &gangs)))
    }

    fn replicas(&self, request: &MaxAvailableReplicasRequest) -> Result<MaxAvailableReplicasResponse, Status> {
        self.is_about_us(&request.cluster)?;
        let none = crate::proto::ReplicaRequirements::default();
        let requirements = request.replica_requirements.as_ref().unwrap_or(&none);
        let task = read::replica(requirements).map_err(|error| Status::invalid(error.to_string()))?;
        let capacity = self.capacity(&request.assumed_workloads)?;
        let max_replicas = capacity.map_or(UNKNOWN, |capacity| answer::replicas(&capacity, task));
        Ok(MaxAvailableReplicasResponse { max_replicas })
    }

    fn sets(&self, request: &MaxAvailableComponentSetsRequest) -> Result<MaxAvailableComponentSetsResponse, Status> {
        self.is_about_us(&request.cluster)?;
        let set = read::set(&request.components).map_err(|error| Status::invalid(error.to_string()))?;
        let capacity = self.capacity(&request.assumed_workloads)?;
        let max_sets = capacity.map_or(UNKNOWN, |capacity| answer::sets(&capacity, &set));
        Ok(MaxAvailableComponentSetsResponse { max_sets })
    }

    async fn unschedulable(
        &self,
        request: &UnschedulableReplicasRequest,
    ) -> Result<UnschedulableReplicasResponse, Status> {
        self.is_about_us(&request.cluster)?;
        let Some(of) = &request.resource else { return Err(Status::invalid("it names no resource")) };
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
        let unschedulable_replicas = answer::unschedulable(&pods, of, threshold, self.clock.now());
        Ok(UnschedulableReplicasResponse { unschedulable_replicas })
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    let path = |method: &str| format!("/{SERVICE}/{method}");
    Router::new()
        .route(&path("MaxAvailableReplicas"), post(replicas))
        .route(&path("MaxAvailableComponentSets"), post(sets))
        .route(&path("GetUnschedulableReplicas"), post(unschedulable))
        .fallback(async || {
            respond::<UnschedulableReplicasResponse>(Err(Status { code: 12, message: "no such method".into() }))
        })
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(shared)
}

/// Decodes, answers, encodes.
fn answered<Q: Message + Default, A: Message>(
    body: &[u8],
    answer: impl FnOnce(&Q) -> Result<A, Status>,
) -> Response<Body> {
    respond(unframe(body).and_then(|request| answer(&request)))
}

async fn replicas(State(shared): State<Arc<Shared>>, body: Bytes) -> Response<Body> {
    answered(&body, |request| shared.replicas(request))
}

async fn sets(State(shared): State<Arc<Shared>>, body: Bytes) -> Response<Body> {
    answered(&body, |request| shared.sets(request))
}

async fn unschedulable(State(shared): State<Arc<Shared>>, body: Bytes) -> Response<Body> {
    match unframe(&body) {
        Ok(request) => respond(shared.unschedulable(&request).await),
        Err(status) => respond::<UnschedulableReplicasResponse>(Err(status)),
    }
}
