//! A member cluster's stand-ins: simulated nodes, Volcano (admission, job controller, gang scheduler) and the workload
//! controllers of Kubernetes.
//!
//! They speak only the Kubernetes API, so [`run`] gives any API server simulated nodes and a simulated Volcano. The
//! decisions are plain functions of a [`world::World`]; this file feeds it from watches, carries out what they want,
//! and wakes when a pod is due.

pub mod admission;
pub mod job;
pub mod kubelet;
pub mod nodes;
pub mod object;
pub mod schedule;
pub mod workloads;
pub mod world;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use caldera_runtime::{
    clock::SharedClock,
    tls::{Authority, TlsError, server_config},
    watch::{Event, follow_json, resource},
    write::{self, Body, Done, Failure, Write, Writer},
};
use jiff::Timestamp;
use kube::{Client, runtime::watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use nodes::NodeGroup;
use world::{Kind, ObjectKey, Want, World};

/// What a member looks like.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its nodes. Empty: nodes are somebody else's.
    pub nodes: Vec<NodeGroup>,
    /// How long a pod that may end runs if its manifest says nothing.
    pub default_run: Duration,
    /// Where admission listens; port 0 for any.
    pub admission: SocketAddr,
    /// Whether Deployments, StatefulSets and batch Jobs are ours too (no kube-controller-manager there).
    pub workloads: bool,
    /// The time.
    pub clock: SharedClock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            default_run: Duration::from_secs(2),
            admission: (Ipv4Addr::LOCALHOST, 0).into(),
            workloads: true,
            clock: Arc::new(caldera_runtime::clock::SystemClock),
        }
    }
}

/// Why a member's stand-ins can not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admission server's port.
    #[error("failed to start the simulated Volcano's admission: {0}")]
    Listen(#[source] std::io::Error),
    /// Its certificate.
    #[error("failed to make the certificate of the simulated Volcano's admission: {0}")]
    Tls(#[source] TlsError),
    /// Its configuration on the API server.
    #[error("failed to register the simulated Volcano's admission: {0}")]
    Register(#[source] Failure),
}

/// Runs a member's stand-ins against `client`'s API server until `shutdown`.
///
/// # Errors
/// If admission can not be served or registered.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let queues: admission::Queues = Arc::default();
    serve_admission(&config, &client, queues.clone(), &shutdown).await?;
    let (events, incoming) = mpsc::channel(1024);
    for kind in Kind::ALL {
        let events = events.clone();
        let watch = follow_json(
            client.clone(),
            kind.resource(),
            watcher::Config::default(),
            events,
            move |event| Some((kind, event)),
            shutdown.clone(),
        );
        tokio::spawn(watch);
    }
    if config.workloads {
        // A kube-controller-manager would collect what deleted owners leave behind.
        tokio::spawn(crate::karmada::collect_garbage("member", client.clone(), shutdown.clone()));
    }
    let (writer, outcomes) = Writer::start(client, shutdown.clone());
    let mut member =
        Member { world: World::default(), writer, queues, due: BTreeMap::new(), retry_at: BTreeMap::new(), config };
    member.run(incoming, outcomes, shutdown).await;
    Ok(())
}

async fn serve_admission(
    config: &Config,
    client: &Client,
    queues: admission::Queues,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let authority = Authority::new("simulated-volcano").map_err(Error::Tls)?;
    let identity =
        authority.server("simulated-volcano", &["localhost"], &[config.admission.ip()]).map_err(Error::Tls)?;
    let tls = server_config(&identity).map_err(Error::Tls)?;
    let listener = std::net::TcpListener::bind(config.admission).map_err(Error::Listen)?;
    listener.set_nonblocking(true).map_err(Error::Listen)?;
    let address = listener.local_addr().map_err(Error::Listen)?;
    let handle = axum_server::Handle::new();
    let stop = handle.clone();
    let stopped = shutdown.clone();
    tokio::spawn(async move {
        stopped.cancelled().await;
        stop.shutdown();
    });
    let server = axum_server::from_tcp_rustls(listener, axum_server::tls_rustls::RustlsConfig::from_config(tls))
        .map_err(Error::Listen)?
        .handle(handle);
    let router = admission::router(queues);
    tokio::spawn(async move {
        if let Err(error) = server.serve(router.into_make_service()).await {
            tracing::error!(%error, "the simulated Volcano's admission stopped");
        }
    });
    for configuration in admission::configurations(address, &authority) {
        register(client, configuration).await.map_err(Error::Register)?;
    }
    Ok(())
}

async fn register(client: &Client, configuration: Value) -> Result<(), Failure> {
    let kind = object::text(&configuration, "/kind").to_owned();
    let write = Write {
        resource: resource("admissionregistration.k8s.io", "v1", &kind, &format!("{}s", kind.to_lowercase())),
        namespace: String::new(),
        name: object::name(&configuration).to_owned(),
        subresource: None,
        body: Body::Apply { object: configuration, manager: "caldera-member-sim" },
    };
    write::execute(client, &write).await.map(drop)
}

struct Member {
    config: Config,
    world: World,
    writer: Writer<ObjectKey>,
    queues: admission::Queues,
    /// When pods want to be looked at again.
    due: BTreeMap<object::Key, Timestamp>,
    /// Objects whose last write failed, and when to try again.
    retry_at: BTreeMap<ObjectKey, (Timestamp, u32)>,
}

impl Member {
    async fn run(
        &mut self,
        mut incoming: mpsc::Receiver<(Kind, Event<Value>)>,
        mut outcomes: mpsc::UnboundedReceiver<Done<ObjectKey>>,
        shutdown: CancellationToken,
    ) {
        loop {
            let now = self.config.clock.now();
            let next = self.due.values().chain(self.retry_at.values().map(|(at, _)| at)).min().copied();
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                Duration::try_from(at.duration_since(now)).unwrap_or_default().max(Duration::from_millis(1))
            });
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(done) = outcomes.recv() => self.landed(done),
                event = incoming.recv() => match event {
                    Some((kind, event)) => self.world.observe(kind, event),
                    None => return,
                },
                () = tokio::time::sleep(wait) => {}
            }
            // Take in all there is before deciding once.
            while let Ok(done) = outcomes.try_recv() {
                self.landed(done);
            }
            while let Ok((kind, event)) = incoming.try_recv() {
                self.world.observe(kind, event);
            }
            self.queues.store(Arc::new(self.world.of(Kind::Queue).cloned().collect()));
            if self.world.has_listed(&[Kind::Node, Kind::Pod, Kind::Queue, Kind::PodGroup, Kind::VolcanoJob]) {
                self.decide();
            }
        }
    }

    fn decide(&mut self) {
        let now = self.config.clock.now();
        let world = &self.world;
        let mut wants = nodes::sync(world, &self.config.nodes, now);
        wants.extend(nodes::queues(world));
        if self.config.workloads {
            wants.extend(workloads::sync(world, now));
        }
        for job in world.of(Kind::VolcanoJob) {
            wants.extend(job::sync(world, job, now));
        }
        wants.extend(schedule::cycle(world, now));
        self.due.clear();
        for pod in world.of(Kind::Pod) {
            match kubelet::sync(world, pod, self.config.default_run, now) {
                kubelet::Next::Settled => {}
                kubelet::Next::At(at) => drop(self.due.insert(object::key(pod), at)),
                kubelet::Next::Write(want) => wants.push(*want),
            }
        }
        for want in wants {
            self.start(want, now);
        }
    }

    fn start(&mut self, want: Want, now: Timestamp) {
        if self.retry_at.get(&want.about).is_some_and(|(at, _)| *at > now) {
            return;
        }
        if self.world.take_off(want.about.clone()) {
            self.writer.send(want.about, want.write);
        }
    }

    fn landed(&mut self, done: Done<ObjectKey>) {
        let Done { tag, result } = done;
        match result {
            Ok(object) => {
                self.retry_at.remove(&tag);
                self.world.land(&tag, Some(object));
            }
            Err(failure) => {
                self.world.land(&tag, None);
                if let Failure::Gone(_) = failure {
                    self.world.forget(tag.0, &tag.1);
                    return;
                }
                let attempts = self.retry_at.get(&tag).map_or(0, |(_, attempts)| attempts + 1);
                let wait = Duration::from_millis(20 << attempts.min(8));
                tracing::debug!(kind = ?tag.0, namespace = tag.1.0, name = tag.1.1, %failure, "a simulated write failed");
                let at = self.config.clock.now().checked_add(wait).unwrap_or(Timestamp::MAX);
                self.retry_at.insert(tag, (at, attempts));
            }
        }
    }
}
