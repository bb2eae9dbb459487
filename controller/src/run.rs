//! The loop: events in, decisions, writes out. The only asynchronous part.
//!
//! One task owns all state. Whatever waits in the channels is taken in before each decision, so that a burst costs one
//! decision and not one each; nothing polls. A timer only wakes it for what was put off on purpose.

use std::time::Instant;

use caldera_core::queue::{OrderPolicy, RESERVATION_AFTER, preemption::PreemptionPolicy};
use caldera_crds::{
    karmada::{cluster::Cluster, work::ResourceBinding},
    links::FederationTopology,
    names::caldera::WORKLOAD_KIND,
    volcano::{
        bus::Command,
        scheduling::{PodGroup, Queue},
    },
    workload::WorkloadKind,
};
use caldera_runtime::{
    client::WriteCounts,
    clock::{SharedClock, SystemClock},
    members::{MemberEvent, Members},
    serve::{Ready, SharedRegistry},
    watch::{Event, Follower},
    write::{Done, Writer, wait_for_outcomes},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{core::v1::Namespace, scheduling::v1::PriorityClass};
use kube::{Client, runtime::watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    facts::{Binding, ClassFacts, ClusterFacts, GroupFacts, QueueFacts, Workload},
    index::{Index, Input, Tag},
    lifecycle::CommandFacts,
    metrics::{ByQueue, Metrics},
    plan::plan,
    read::opted_in,
    settings::{self, Settings},
    unstarted::{PODS_READY_TIMEOUT_DEFAULT, Unstarted},
};

/// How the controller is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Set once the view is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
    /// What time it is.
    pub clock: SharedClock,
    /// Counts writes of the clients that read members (there should be none).
    pub counts: WriteCounts,
    /// Who goes first.
    pub order: OrderPolicy,
    /// Seconds that a job is blocked before its place is kept; `None` keeps none.
    pub reservation_after: Option<i64>,
    /// Who gives way to whom, and how much at most.
    pub preemption: PreemptionPolicy,
    /// Under which lease it is active; `None` for a single replica that needs none.
    pub epoch: Option<String>,
    /// How long a part of a gang has, from its placement on, until its minimum is on nodes; then all parts are withdrawn.
    pub pods_ready_timeout: SignedDuration,
    /// Where these settings are published for readers; the namespace must exist.
    pub namespace: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ready: Ready::default(),
            registry: SharedRegistry::default(),
            clock: std::sync::Arc::new(SystemClock),
            counts: WriteCounts::default(),
            order: OrderPolicy::default(),
            reservation_after: Some(RESERVATION_AFTER),
            preemption: PreemptionPolicy::default(),
            epoch: None,
            pods_ready_timeout: PODS_READY_TIMEOUT_DEFAULT,
            namespace: "default".to_owned(),
        }
    }
}

/// Why the controller stopped other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The task that writes ended.
    #[error("the controller's writer ended while it was needed")]
    WriterEnded,
}

/// Events that wait for the next decision at most; beyond that the watches wait.
const BACKLOG: usize = 4096;
/// Events taken in before a decision at most.
const BATCH: usize = 2048;

/// Runs until `shutdown`.
///
/// # Errors
/// If it can not go on.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let metrics = Metrics::register(&config.registry);
    let stop = shutdown.child_token();
    let _stop_watches = stop.clone().drop_guard();
    let (inputs, mut events) = mpsc::channel(BACKLOG);
    let (clusters, mut seen_clusters) = mpsc::channel(64);
    let (member_events, mut member_inputs) = mpsc::channel(BACKLOG);
    let mut members = Members::new(
        client.clone(),
        "controller",
        config.counts.clone(),
        config.clock.clone(),
        member_events,
        stop.clone(),
    );
    watch_host(&client, &inputs, clusters, &stop);
    tokio::spawn(settings::publish(client.clone(), Settings::of(&config), config.namespace.clone(), stop.clone()));
    let (writer, mut outcomes) = Writer::start_writer(client, stop.clone());
    writer.register_gauge(&config.registry, "caldera_controller");
    let mut index = Index::default();
    index.claims.policy = config.preemption.clone();
    index.epoch = config.epoch.as_deref().map(Into::into);
    index.unstarted = Unstarted::new(config.pods_ready_timeout);
    index.engine.set_order_policy(config.order);
    index.engine.set_reservation_after(config.reservation_after);
    let mut next: Option<Timestamp> = None;
    let mut told_missing = false;
    loop {
        let pause = next.map(|at| until(at, config.clock.now()));
        let first = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            done = outcomes.recv() => match done {
                Some(done) => Some(written(done, &metrics)),
                None => return Err(Error::WriterEnded),
            },
            Some(input) = events.recv() => Some(input),
            Some(event) = seen_clusters.recv() => Some(cluster(event, &mut members)),
            Some(event) = member_inputs.recv() => Some(member(event)),
            () = sleep(pause) => None,
        };
        let began = Instant::now();
        let now = config.clock.now();
        if let Some(input) = first {
            index.apply(input, now);
        }
        for _ in 0..BATCH {
            let input = if let Ok(done) = outcomes.try_recv() {
                written(done, &metrics)
            } else if let Ok(input) = events.try_recv() {
                input
            } else if let Ok(event) = seen_clusters.try_recv() {
                cluster(event, &mut members)
            } else if let Ok(event) = member_inputs.try_recv() {
                member(event)
            } else {
                break;
            };
            index.apply(input, now);
        }
        if index.is_complete() && !config.ready.is_ready() {
            tracing::info!("all kinds are listed; deciding from now on");
            config.ready.set_ready(true);
        } else if !index.is_complete() && !told_missing {
            told_missing = true;
            tracing::info!(kinds = ?index.waits_for(), "waiting for the first lists");
        }
        let planned = plan(&mut index, now);
        let freed = index.take_freed();
        for (tag, effect) in planned.effects {
            writer.queue_write(tag, effect.write(now));
        }
        metrics.evicted.inc_by(planned.evictions as u64);
        let took = began.elapsed().as_secs_f64();
        metrics.decision.observe(took);
        if planned.releases > 0 {
            metrics.released.inc_by(planned.releases as u64);
            if freed {
                metrics.freed_to_release.observe(took);
            }
        }
        for (queue, waiting) in index.take_pending() {
            metrics.pending.get_or_create(&ByQueue { queue }).set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
        next = planned.next;
    }
    wait_for_outcomes(outcomes).await;
    Ok(())
}

fn until(at: Timestamp, now: Timestamp) -> std::time::Duration {
    let left: SignedDuration = at.duration_since(now);
    std::time::Duration::try_from(left).unwrap_or_default()
}

async fn sleep(pause: Option<std::time::Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

fn written(done: Done<Tag>, metrics: &Metrics) -> Input {
    if done.result.is_err() {
        metrics.writes_failed.inc();
    }
    Input::Written(done)
}

fn member(event: MemberEvent) -> Input {
    Input::Member(event.cluster, event.update)
}

/// A change of the clusters starts and stops the watching of members.
fn cluster(event: Event<Cluster>, members: &mut Members) -> Input {
    members.follow_clusters(&event);
    let read = event.filter_map(|cluster| Some(ClusterFacts::read(&cluster)));
    Input::Clusters(read.unwrap_or(Event::Reset(Vec::new())))
}

/// Follows every kind on the host that the index needs, reading each object into what is kept of it.
fn watch_host(
    client: &Client,
    inputs: &mpsc::Sender<Input>,
    clusters: mpsc::Sender<Event<Cluster>>,
    stop: &CancellationToken,
) {
    let all = watcher::Config::default;
    let ours = watcher::Config::default().labels(WORKLOAD_KIND);
    let follower = Follower::new(client.clone(), inputs.clone(), stop.clone());
    follower.follow_typed(all(), |queue: Queue| Some(QueueFacts::read(&queue)), Input::Queues);
    follower.follow_typed(all(), |binding: ResourceBinding| Some(Binding::read(&binding)), Input::Bindings);
    follower.follow_typed(ours, |group: PodGroup| Some(GroupFacts::read(&group)), Input::Groups);
    follower.follow_typed(all(), |class: PriorityClass| Some(ClassFacts::read(&class)), Input::Classes);
    follower.follow_typed(all(), |namespace: Namespace| Some(opted_in(&namespace)), Input::Namespaces);
    // Not every host has these kinds: nothing waits for them.
    follower.follow_typed::<FederationTopology, _, _>(all(), Some, Input::Links);
    follower.follow_typed(all(), |command: Command| CommandFacts::read(&command), Input::Commands);
    for kind in WorkloadKind::ALL {
        let read = |object: serde_json::Value| Workload::read(&object);
        follower.follow_json(kind.api_resource(), all(), read, move |event| Input::Workloads(kind, event));
    }
    Follower::new(client.clone(), clusters, stop.clone()).follow_typed::<Cluster, _, _>(all(), Some, Some);
}
