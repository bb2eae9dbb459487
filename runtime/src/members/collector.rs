//! A member's collector: watches the member once for all components that need its inventory, and publishes it on the
//! host.
//!
//! Rule: writes do not depend on how many jobs come and go. A part is written when it has changed, at most every
//! [`Pace::least`] and not more than [`Pace::bytes`] a second in the mean; a heartbeat at a fixed period. Everything is
//! applied with a field manager of its own. A collector that can not reach its member says so once and sends no more
//! heartbeats: what it has published grows old, and readers stop trusting it.
//!
//! While the member has no HyperNodes, labels of its nodes make the domains that are published, where the collector is
//! given such labels. HyperNodes count alone, whoever wrote them: Volcano's own discoverer knows more of its member.

mod collected;
pub mod metrics;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::{
    fleet::Update,
    inventory::{NodeUse, sum_node_use},
    time::EpochSeconds,
    topology_discovery::{TopologyLabels, TopologyLabelsError},
};
use caldera_crds::{
    karmada::cluster::Cluster,
    names::caldera::MANAGER_INVENTORY,
    published::{ClusterInventory, Heartbeat, Load, Part, PeerLink, Reached, divide_contents, encode_images},
};
use jiff::Timestamp;
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{MemberEvent, Members, connection::Route};
use crate::{
    client::WriteCounts,
    clock::{SharedClock, format_micro_time, sleep_until},
    serve::{Ready, SharedRegistry},
    watch::{Event, Follower, api_resource, declare_kinds},
    write::{self, Body, Failure, Write},
};
pub use collected::CollectedInventory;
use metrics::CollectorMetrics;

/// After so many heartbeats all parts are written again, in case somebody deleted one. A part that is as it was costs
/// the host a request, but no write.
const REWRITE_HEARTBEATS: u32 = 20;
/// How long the host may take to say what is published.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a collector writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Between two writes of parts.
    pub least: Duration,
    /// Bytes of parts a second, in the mean.
    pub bytes: usize,
    /// Between two heartbeats.
    pub heartbeat: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { least: Duration::from_secs(5), bytes: 16 * 1024, heartbeat: Duration::from_secs(30) }
    }
}

impl Pace {
    /// How long to wait after so many bytes were written.
    #[must_use]
    pub fn pause_after(&self, bytes: usize) -> Duration {
        let by_bytes = Duration::from_millis((bytes as u64).saturating_mul(1000) / (self.bytes.max(1) as u64));
        by_bytes.max(self.least)
    }
}

/// What a collector is started with.
#[derive(Clone)]
pub struct Config {
    /// The member, as Karmada names it.
    pub cluster: String,
    /// A client of the member, for a collector inside; without one it is reached as Karmada reaches it.
    pub member: Option<Client>,
    /// How often it writes.
    pub pace: Pace,
    /// The time.
    pub clock: SharedClock,
    /// Set once the inventory is published.
    pub ready: Ready,
    /// Counts writes to the member (there should be none).
    pub counts: WriteCounts,
    /// Shows its metrics.
    pub registry: SharedRegistry,
    /// What makes domains of a member without HyperNodes.
    pub topology_labels: Option<TopologyLabels>,
    /// Its ways to other members, as they were measured last; `None` before anything was: then what was published
    /// before stays.
    pub links: watch::Receiver<Option<Vec<PeerLink>>>,
}

impl Config {
    /// A collector for this member with the usual pace.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            member: None,
            pace: Pace::default(),
            clock: Arc::new(crate::clock::SystemClock),
            ready: Ready::default(),
            counts: WriteCounts::default(),
            registry: SharedRegistry::default(),
            topology_labels: None,
            links: watch::channel(Some(Vec::new())).1,
        }
    }
}

/// Publishes the inventory of one member until `shutdown`.
pub async fn run_collector(config: Config, host: Client, shutdown: CancellationToken) {
    let stop = shutdown.child_token();
    let _stop = stop.clone().drop_guard();
    let (clusters, mut seen_clusters) = mpsc::channel(16);
    let own = watcher::Config::default().fields(&format!("metadata.name={}", config.cluster));
    let follower = Follower::new(host.clone(), clusters, stop.clone());
    follower.follow_typed::<Cluster, _, _>(own, Some, Some);
    // Of which job a pod is goes by its kind.
    declare_kinds(&host, &stop).await;
    follower.follow_declared_kinds(|_, _, _| {});
    let (events, mut changes) = mpsc::channel(4096);
    let (answered, mut answers) = watch::channel(None);
    let mut members = Members {
        host: host.clone(),
        component: "inventory".to_owned(),
        counts: config.counts.clone(),
        cache: None,
        clock: Arc::clone(&config.clock),
        answered: Some(answered),
        events,
        shutdown: stop,
        watched: BTreeMap::new(),
        reads_load: true,
    };
    let mut collector = Collector::new(config, host);
    loop {
        let next_write = collector.next_write_time();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            event = seen_clusters.recv() => match event {
                Some(event) => collector.observe_cluster(event, &mut members),
                None => return,
            },
            Some(MemberEvent { update, .. }) = changes.recv() => collector.observe_update(update),
            Ok(()) = answers.changed() => {
                let at = *answers.borrow_and_update();
                collector.seen = at.or(collector.seen);
            }
            () = sleep_until(next_write) => collector.publish_inventory().await,
        }
    }
}

struct Collector {
    config: Config,
    metrics: CollectorMetrics,
    host: Client,
    view: CollectedInventory,
    /// Why the labels make no domains now.
    label_fault: Option<TopologyLabelsError>,
    /// UID of the Cluster object; nothing is published for a cluster that is none.
    uid: Option<String>,
    reached: Reached,
    /// When the member last answered.
    seen: Option<Timestamp>,
    fault: Option<String>,
    /// What nodes measured last, and when that was read.
    measured: Option<(Vec<NodeUse>, EpochSeconds)>,
    /// What was written last, and how many parts there may be beside.
    parts: Vec<Part>,
    stored_parts: Option<u32>,
    /// The links that another collector published before this one.
    stored_links: Vec<PeerLink>,
    heartbeat: Option<Heartbeat>,
    dirty: bool,
    heartbeat_due: bool,
    heartbeats: u32,
    /// All parts are to be written.
    rewrite_all: bool,
    next_parts: Instant,
    next_heartbeat: Instant,
    /// A write failed: none before then.
    not_before: Instant,
}

impl Collector {
    fn new(config: Config, host: Client) -> Self {
        let now = Instant::now();
        Self {
            metrics: CollectorMetrics::register(&config.cluster, &config.registry),
            config,
            host,
            view: CollectedInventory::default(),
            label_fault: None,
            uid: None,
            reached: Reached::Proxy,
            seen: None,
            fault: None,
            measured: None,
            parts: Vec::new(),
            stored_parts: None,
            stored_links: Vec::new(),
            heartbeat: None,
            dirty: false,
            heartbeat_due: false,
            heartbeats: 0,
            rewrite_all: false,
            next_parts: now,
            next_heartbeat: now,
            not_before: now,
        }
    }

    fn observe_cluster(&mut self, event: Event<Cluster>, members: &mut Members) {
        let cluster = match event {
            Event::Reset(all) => all.into_iter().next(),
            Event::Applied(cluster) => Some(cluster),
            Event::Deleted(_) => None,
        };
        let Some(cluster) = cluster.filter(|cluster| cluster.metadata.name.as_deref() == Some(&self.config.cluster))
        else {
            tracing::warn!(cluster = self.config.cluster, "Karmada knows no such cluster; nothing is published");
            members.stop_other_watches(&[]);
            (self.uid, self.view, self.parts, self.stored_parts, self.heartbeat) =
                (None, CollectedInventory::default(), Vec::new(), None, None);
            return;
        };
        self.reached = match (Route::of_cluster(&cluster), &self.config.member) {
            (_, Some(_)) | (Route::Agent, _) => Reached::Agent,
            (Route::Direct { .. }, None) => Reached::Direct,
            (Route::Proxy, None) => Reached::Proxy,
        };
        self.uid = cluster.metadata.uid.clone();
        members.start_member_watch_with(&cluster, self.config.member.clone());
    }

    fn observe_update(&mut self, update: Update) {
        match update {
            Update::Change(change) => {
                self.view.apply_change(change);
                self.dirty = true;
            }
            Update::Up => self.set_fault(None),
            Update::Down(why) => {
                self.view.require_list();
                self.set_fault(Some(why));
            }
            Update::Queues(queues) => {
                self.view.set_queues(queues);
                self.dirty = true;
            }
            Update::NodeUse(measured, read_at) => self.measured = Some((measured, read_at)),
            // It does not read what it publishes.
            Update::From(_) | Update::Load(_) | Update::Images(_) | Update::Links(_) => {}
        }
    }

    fn set_fault(&mut self, fault: Option<String>) {
        // A fault is written at once when it begins or ends, and not each time that its text changes.
        self.heartbeat_due |= self.fault.is_some() != fault.is_some();
        if self.fault.is_none() && fault.is_some() {
            self.metrics.count_fault();
        }
        self.fault = fault;
    }

    /// When there may be something to write.
    fn next_write_time(&self) -> Option<Instant> {
        self.uid.as_ref()?;
        let is_listed = self.view.is_listed();
        let beat = match (&self.heartbeat, &self.fault) {
            (None, _) => is_listed.then_some(self.next_parts),
            (Some(_), _) if self.heartbeat_due => Some(self.not_before),
            (Some(_), None) => is_listed.then_some(self.next_heartbeat),
            // Who can not see the member has nothing to say.
            (Some(_), Some(_)) => None,
        };
        let parts = (self.dirty && is_listed).then_some(self.next_parts);
        beat.into_iter().chain(parts).min().map(|at| at.max(self.not_before))
    }

    async fn publish_inventory(&mut self) {
        let span = tracing::debug_span!("publish", cluster = self.config.cluster);
        if let Err(failure) = self.write_changes().instrument(span).await {
            self.metrics.count_host_failure(&failure);
            tracing::warn!(cluster = self.config.cluster, %failure, "failed to publish the inventory; trying again");
            self.not_before = Instant::now() + self.config.pace.least;
        }
    }

    /// Writes what has changed and is due.
    async fn write_changes(&mut self) -> Result<(), Failure> {
        if (self.dirty || self.heartbeat.is_none()) && self.next_parts <= Instant::now() {
            self.write_parts().await?;
        }
        if self.heartbeat_due || (self.fault.is_none() && self.next_heartbeat <= Instant::now()) {
            self.write_heartbeat().await?;
        }
        self.config.ready.set_ready(true);
        Ok(())
    }

    /// Makes domains of labels where the member has none. Labels that make too many make none; that is said when it
    /// begins.
    fn refresh_domains(&mut self) {
        let fault = self.view.refresh_domains(self.config.topology_labels.as_ref()).err();
        if let Some(error) = fault.as_ref().filter(|_| self.label_fault.is_none()) {
            tracing::warn!(cluster = self.config.cluster, %error, "no domains are made of labels of nodes");
        }
        self.label_fault = fault;
    }

    async fn write_parts(&mut self) -> Result<(), Failure> {
        self.refresh_domains();
        if self.view.listed_contents().is_none() {
            return Ok(());
        }
        // One that starts goes on with the division that is there.
        let there = match self.stored_parts {
            Some(there) => there,
            None => self.read_stored_heartbeat().await?,
        };
        let Some(contents) = self.view.listed_contents() else { return Ok(()) };
        let parts =
            divide_contents(contents, if self.parts.is_empty() { there } else { part_count(&self.parts) }.max(1));
        let mut bytes = 0;
        for part in parts.iter().filter(|part| self.rewrite_all || !self.parts.contains(part)) {
            let spec = json!({"cluster": self.config.cluster, "part": part});
            let size = self.apply_object(&format!("{}.{}", self.config.cluster, part.index), spec).await?;
            self.metrics.count_part(size);
            bytes += size;
        }
        let count = part_count(&parts);
        self.stored_parts = Some(there.max(count));
        (self.parts, self.dirty, self.rewrite_all) = (parts, false, false);
        self.next_parts = Instant::now() + self.config.pace.pause_after(bytes);
        // A division counts once the heartbeat says so; only then what is too much of another may go.
        if self.heartbeat.as_ref().is_none_or(|heartbeat| heartbeat.parts != count) {
            self.write_heartbeat().await?;
        }
        for index in count..there {
            self.delete_part(&format!("{}.{index}", self.config.cluster)).await?;
        }
        self.stored_parts = Some(count);
        Ok(())
    }

    /// How many parts are there, whoever wrote them; the links that are published are kept.
    async fn read_stored_heartbeat(&mut self) -> Result<u32, Failure> {
        let objects: Api<ClusterInventory> = Api::all(self.host.clone());
        let asked = tokio::time::timeout(READ_TIMEOUT, objects.get_opt(&self.config.cluster)).await;
        match asked {
            Ok(Ok(object)) => {
                let heartbeat = object.and_then(|object| object.spec.heartbeat).unwrap_or_default();
                self.stored_links = heartbeat.links;
                Ok(heartbeat.parts)
            }
            Ok(Err(error)) => Err(write::classify_error(error)),
            Err(_) => Err(Failure::Transient("the host does not say in time what is published".to_owned())),
        }
    }

    async fn write_heartbeat(&mut self) -> Result<(), Failure> {
        let seen = self.seen.unwrap_or_else(|| self.config.clock.now());
        let nodes = self.view.nodes().len();
        let heartbeat = Heartbeat {
            seen_at: format_micro_time(seen),
            every_seconds: u32::try_from(self.config.pace.heartbeat.as_secs()).unwrap_or(30).max(1),
            reached: self.reached.clone(),
            parts: part_count(&self.parts),
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            fault: self.fault.clone(),
            load: self.sum_load(),
            images: encode_images(self.view.nodes()),
            links: self.config.links.borrow().clone().unwrap_or_else(|| self.stored_links.clone()),
        };
        let spec = json!({"cluster": self.config.cluster, "heartbeat": heartbeat});
        self.apply_object(&self.config.cluster.clone(), spec).await?;
        self.metrics.observe_heartbeat(seen, heartbeat.parts);
        self.heartbeat = Some(heartbeat);
        self.heartbeat_due = false;
        self.heartbeats = self.heartbeats.wrapping_add(1);
        if self.heartbeats.is_multiple_of(REWRITE_HEARTBEATS) {
            (self.dirty, self.rewrite_all) = (true, true);
        }
        self.next_heartbeat = Instant::now() + self.config.pace.heartbeat;
        Ok(())
    }

    /// What the nodes use together; a heartbeat says it with its age.
    fn sum_load(&self) -> Option<Load> {
        let (measured, read_at) = self.measured.as_ref()?;
        Load::from_member_load(&sum_node_use(self.view.nodes(), measured, *read_at)?)
    }

    /// Applies one object; its size.
    async fn apply_object(&self, name: &str, spec: Value) -> Result<usize, Failure> {
        let object = json!({
            "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventory",
            "metadata": {
                "name": name,
                "ownerReferences": [{
                    "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                    "name": self.config.cluster, "uid": self.uid,
                }],
            },
            "spec": spec,
        });
        let size = object.to_string().len();
        let body = Body::Apply { object, manager: MANAGER_INVENTORY };
        write::execute_write(&self.host, &build_inventory_write(name, body)).await.map(|_| size)
    }

    async fn delete_part(&self, name: &str) -> Result<(), Failure> {
        match write::execute_write(&self.host, &build_inventory_write(name, Body::Delete { uid: None })).await {
            Ok(_) | Err(Failure::Gone(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

fn part_count(parts: &[Part]) -> u32 {
    u32::try_from(parts.len()).unwrap_or(u32::MAX)
}

/// What is written for each part of a member.
#[must_use]
pub fn inventory_resource() -> ApiResource {
    api_resource("federation.caldera.dev", "v1alpha1", "ClusterInventory", "clusterinventories")
}

fn build_inventory_write(name: &str, body: Body) -> Write {
    Write { resource: inventory_resource(), namespace: String::new(), name: name.to_owned(), subresource: None, body }
}

#[cfg(test)]
mod tests;
