//! A member cluster's stand-ins: simulated nodes, Volcano (admission, job controller, gang scheduler) and the workload
//! controllers of Kubernetes.
//!
//! They speak only the Kubernetes API, so [`run`] gives any API server simulated nodes and a simulated Volcano. The
//! decisions are plain functions of a [`world::World`]; this file feeds it from watches, carries out what they want,
//! and wakes when a pod is due.

pub mod admission;
mod assumed_bindings;
pub mod devices;
pub mod facts;
pub mod job;
pub mod job_cache;
pub mod kinds;
pub mod kubelet;
pub mod nodes;
pub mod object;
pub mod queues;
pub mod schedule;
pub mod want;
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
    watch::{Event, Follower, api_resource},
    write::{self, Body, Failure, Write, WriteOutcome, Writer},
};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, runtime::watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use nodes::NodeGroup;
use world::{Kind, Landing, ObjectKey, Want, World};

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
    let follower = Follower::new(client.clone(), events, shutdown.clone());
    for kind in Kind::WATCHED {
        follower.follow_json(kind.resource(), watcher::Config::default(), Some, move |event| Some((kind, event)));
    }
    if config.workloads {
        // A kube-controller-manager would collect what deleted owners and namespaces leave behind.
        let (clock, shutdown) = (config.clock.clone(), shutdown.clone());
        tokio::spawn(crate::karmada::collect_garbage("member", client.clone(), clock, shutdown));
    }
    let (writer, outcomes) = Writer::start_writer(client, shutdown.clone());
    let mut member = Member {
        world: World::default(),
        writer,
        queues,
        memory: Memory::default(),
        look_again: None,
        report_at: Timestamp::UNIX_EPOCH,
        retry_at: BTreeMap::new(),
        config,
    };
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
    let identity = authority
        .issue_server_identity("simulated-volcano", &["localhost"], &[config.admission.ip()])
        .map_err(Error::Tls)?;
    let tls = server_config(&identity).map_err(Error::Tls)?;
    let taken = |error: std::io::Error| {
        std::io::Error::new(error.kind(), format!("failed to listen on {}: {error}", config.admission))
    };
    let listener = std::net::TcpListener::bind(config.admission).map_err(|error| Error::Listen(taken(error)))?;
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
        .map(|tls| tls.acceptor(axum_server::accept::NoDelayAcceptor::new()))
        .handle(handle);
    let router = admission::webhook_router(queues);
    tokio::spawn(async move {
        if let Err(error) = server.serve(router.into_make_service()).await {
            tracing::error!(%error, "the simulated Volcano's admission stopped");
        }
    });
    for configuration in admission::webhook_configurations(address, &authority) {
        register(client, configuration).await.map_err(Error::Register)?;
    }
    Ok(())
}

async fn register(client: &Client, configuration: Value) -> Result<(), Failure> {
    let kind = object::text(&configuration, "/kind").to_owned();
    let write = Write {
        resource: api_resource("admissionregistration.k8s.io", "v1", &kind, &format!("{}s", kind.to_lowercase())),
        namespace: String::new(),
        name: object::name(&configuration).to_owned(),
        subresource: None,
        body: Body::Apply { object: configuration, manager: "caldera-member-sim" },
    };
    write::execute_write(client, &write).await.map(drop)
}

/// Which write an outcome is of: its object, and whether it deletes that.
type Tag = (ObjectKey, bool);

/// Between two reports on what queues hold, as between two sessions of Volcano's scheduler.
const REPORT_EVERY: SignedDuration = SignedDuration::from_secs(1);

struct Member {
    config: Config,
    world: World,
    writer: Writer<Tag>,
    queues: admission::Queues,
    memory: Memory,
    /// When something is due without any news.
    look_again: Option<Timestamp>,
    /// When the queues may be reported on again.
    report_at: Timestamp,
    /// Objects whose last write failed, and when to try again.
    retry_at: BTreeMap<ObjectKey, (Timestamp, u32)>,
}

impl Member {
    async fn run(
        &mut self,
        mut incoming: mpsc::Receiver<(Kind, Event<Value>)>,
        mut outcomes: mpsc::Receiver<WriteOutcome<Tag>>,
        shutdown: CancellationToken,
    ) {
        loop {
            let now = self.config.clock.now();
            let next = self.look_again.iter().chain(self.retry_at.values().map(|(at, _)| at)).min().copied();
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                Duration::try_from(at.duration_since(now)).unwrap_or_default().max(Duration::from_millis(1))
            });
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(done) = outcomes.recv() => self.landed(done),
                event = incoming.recv() => match event {
                    Some((kind, event)) => {
                        self.world.set_time(self.config.clock.now());
                        self.world.observe(kind, event);
                    }
                    None => return,
                },
                () = tokio::time::sleep(wait) => {}
            }
            self.world.set_time(self.config.clock.now());
            // Take in all there is before deciding once.
            while let Ok(done) = outcomes.try_recv() {
                self.landed(done);
            }
            while let Ok((kind, event)) = incoming.try_recv() {
                self.world.observe(kind, event);
            }
            if self.world.take_queue_news() {
                self.queues.store(Arc::new(self.world.of(Kind::Queue).cloned().collect()));
            }
            let needed = [Kind::Node, Kind::Pod, Kind::Queue, Kind::PodGroup, Kind::VolcanoJob, Kind::HyperNode];
            if self.world.has_listed(&needed) {
                self.decide();
            }
        }
    }

    fn decide(&mut self) {
        let now = self.config.clock.now();
        let plan = plan(&self.world, &self.config, &mut self.memory, now);
        self.look_again = plan.at;
        if !plan.reports.is_empty() {
            if self.report_at <= now {
                self.report_at = now.checked_add(REPORT_EVERY).unwrap_or(Timestamp::MAX);
                plan.reports.into_iter().for_each(|want| self.start(want, now));
            }
            self.look_again = [plan.at, Some(self.report_at)].into_iter().flatten().min();
        }
        for want in plan.wants {
            self.start(want, now);
        }
    }

    fn start(&mut self, want: Want, now: Timestamp) {
        if self.retry_at.get(&want.about).is_some_and(|(at, _)| *at > now) {
            return;
        }
        if self.world.take_off(&want) {
            let tag = (want.about.clone(), want.is_deletion());
            self.writer.queue_write(tag, want.write);
        }
    }

    fn landed(&mut self, done: WriteOutcome<Tag>) {
        let WriteOutcome { tag: (about, deletes), result } = done;
        let landing = match result {
            Ok(_) if deletes => Landing::Deleted,
            Ok(object) => Landing::Written(object),
            Err(Failure::Gone(_)) => Landing::Gone,
            Err(failure) => {
                let exists = matches!(failure, Failure::Exists(_));
                self.world.land(&about, if exists { Landing::Exists } else { Landing::Failed });
                self.try_again(about, &failure);
                return;
            }
        };
        self.retry_at.remove(&about);
        self.world.land(&about, landing);
    }

    fn try_again(&mut self, about: ObjectKey, failure: &Failure) {
        let attempts = self.retry_at.get(&about).map_or(0, |(_, attempts)| attempts + 1);
        let wait = Duration::from_millis(20 << attempts.min(8));
        tracing::debug!(
            kind = ?about.0, namespace = about.1.0, name = about.1.1, %failure, "a simulated write failed"
        );
        let at = self.config.clock.now().checked_add(wait).unwrap_or(Timestamp::MAX);
        self.retry_at.insert(about, (at, attempts));
    }
}

/// Everything that the stand-ins want now.
#[derive(Debug, Default)]
struct Plan {
    wants: Vec<Want>,
    /// What queues hold: may wait.
    reports: Vec<Want>,
    /// When to look again without any news.
    at: Option<Timestamp>,
}

/// Jobs and pods for which nothing was to be done: until when, and as of which state of the world.
#[derive(Debug, Default)]
struct Memory {
    jobs: Settled,
    pods: Settled,
}

#[derive(Debug, Default)]
struct Settled(BTreeMap<object::Key, (u64, Option<Timestamp>)>);

impl Settled {
    /// Whether nothing is to be done still, given when the thing changed last; then, when it will be due.
    fn holds(&self, key: &object::Key, changed: u64, now: Timestamp) -> Option<Option<Timestamp>> {
        let (seen, at) = self.0.get(key)?;
        (*seen == changed && at.is_none_or(|at| at > now)).then_some(*at)
    }

    fn note(&mut self, key: object::Key, changed: u64, at: Option<Timestamp>) {
        self.0.insert(key, (changed, at));
    }

    /// Drops what is known of things that are gone, once they are the greater part.
    fn sweep(&mut self, count: usize, is_there: impl Fn(&object::Key) -> bool) {
        if self.0.len() > 64 + 2 * count {
            self.0.retain(|key, _| is_there(key));
        }
    }
}

fn plan(world: &World, config: &Config, memory: &mut Memory, now: Timestamp) -> Plan {
    let mut wants = nodes::create_nodes(world, &config.nodes, now);
    let mut times = Vec::new();
    wants.extend(queues::sync_queues(world));
    wants.extend(queues::run_commands(world));
    if config.workloads {
        let plan = workloads::sync_workloads(world, now);
        wants.extend(plan.wants);
        wants.extend(devices::sync_claims(world));
        times.push(plan.at);
    } else {
        let (beats, at) = nodes::renew_heartbeats(world, now);
        wants.extend(beats);
        times.push(at);
    }
    job_plans(world, &mut memory.jobs, now, &mut wants, &mut times);
    let cycle = schedule::run_cycle(world, now);
    wants.extend(cycle.wants);
    times.push(cycle.at);
    kubelet_plans(world, config, &mut memory.pods, now, &mut wants, &mut times);
    Plan { wants, reports: cycle.reports, at: times.into_iter().flatten().min() }
}

fn job_plans(
    world: &World,
    settled: &mut Settled,
    now: Timestamp,
    wants: &mut Vec<Want>,
    times: &mut Vec<Option<Timestamp>>,
) {
    let mut count = 0;
    for job in world.of(Kind::VolcanoJob) {
        count += 1;
        let (key, changed) = (object::key(job), world.job_changed(job));
        if let Some(at) = settled.holds(&key, changed, now) {
            times.push(at);
            continue;
        }
        let plan = job::sync_job(world, job, now);
        times.push(plan.at);
        if plan.wants.is_empty() {
            settled.note(key, changed, plan.at);
        }
        wants.extend(plan.wants);
    }
    settled.sweep(count, |key| world.get(Kind::VolcanoJob, key).is_some());
}

fn kubelet_plans(
    world: &World,
    config: &Config,
    settled: &mut Settled,
    now: Timestamp,
    wants: &mut Vec<Want>,
    times: &mut Vec<Option<Timestamp>>,
) {
    let mut count = 0;
    for (key, facts) in world.pods() {
        count += 1;
        if facts.node.is_empty() {
            continue;
        }
        let changed = world.pod_changed(key);
        if let Some(at) = settled.holds(key, changed, now) {
            times.push(at);
            continue;
        }
        let Some(pod) = world.get(Kind::Pod, key) else { continue };
        match kubelet::sync_pod(world, pod, config.default_run, now) {
            kubelet::Next::Settled => settled.note(key.clone(), changed, None),
            kubelet::Next::At(at) => {
                settled.note(key.clone(), changed, Some(at));
                times.push(Some(at));
            }
            kubelet::Next::Write(want) => wants.push(*want),
        }
    }
    settled.sweep(count, |key| world.pod(key).is_some());
}
