//! Watching the members: each in a task of its own, so that one that hangs, lies or is gone delays no other.
//!
//! Rules:
//! - A member whose collector publishes its inventory on the host ([`caldera_crds::published`]) is not watched: the
//!   published inventory is replayed (`replay`) for as long as it can be trusted (`published`).
//! - Any other member is connected to as Karmada does it (`connection`). Its nodes, pods, HyperNodes and Numatopologies
//!   become [`caldera_core::inventory::Change`]s on a channel, its devices with them (`devices`); when all were listed
//!   it is up (`informers`). A member without HyperNodes has no domains, in one without Numatopologies no node reports
//!   its NUMA nodes, and one without Volcano's queues is not bounded by them; all are looked for again now and then.
//! - What was passed on counts for as long as it is confirmed: by a probe with a timeout, because a watch alone may
//!   hang for minutes, and by watches that do not fail. An outage of seconds changes nothing. After three probes
//!   without an answer, or when a watch has failed for half a minute, the member is down until everything was listed
//!   anew, and after a failed watch until each watch holds: a member that may be listed and not watched stays down.
//! - Credentials are read again whenever a probe fails, so that a rotated secret is picked up.

pub mod collector;
mod connection;
mod devices;
mod informers;
mod node_use;
mod published;
mod replay;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::{
    fleet::{Queues, Update},
    inventory::Change,
};
use caldera_crds::{inventory::read_node, karmada::cluster::Cluster, published::Published};
use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::WriteCounts,
    clock::SharedClock,
    watch::{Event, list_json},
};
use connection::{Access, Connection, MemberError, Route, probe_member};
use devices::{DeviceJoin, ReadPod};
use informers::{Informers, Message, OptionalKind, has_queues, node_resource, pod_resource};
use published::{PublishedCache, Trusted};

/// How often a member is asked whether it is there.
const PROBE_PERIOD: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Unanswered probes in a row after which the member's inventory is not trusted any more.
const MAX_MISSED_PROBES: u32 = 3;
/// How often, in probes, a member without HyperNodes, Numatopologies or queues is asked for them again.
const DISCOVERY_PROBES: u32 = 30;
/// First wait before another attempt to connect; doubles up to [`PROBE_PERIOD`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
/// How long its first lists may take before it counts as one that can not be read, and how long its inventory counts
/// while one of its watches fails.
const TRUST_PERIOD: Duration = Duration::from_secs(30);

/// What happened in a member.
#[derive(Debug, Clone)]
pub struct MemberEvent {
    /// Which.
    pub cluster: String,
    /// What.
    pub update: Update,
}

/// The members that are watched.
pub struct Members {
    host: Client,
    component: String,
    counts: WriteCounts,
    /// `None` for a collector, which must not live on what it publishes.
    cache: Option<PublishedCache>,
    clock: SharedClock,
    /// When a member last answered, for a collector.
    answered: Option<watch::Sender<Option<Timestamp>>>,
    events: mpsc::Sender<MemberEvent>,
    shutdown: CancellationToken,
    watched: BTreeMap<String, (Route, CancellationToken)>,
    /// What nodes really use is read.
    reads_load: bool,
}

impl Members {
    /// Watches no member yet; events of members will arrive at `events`. What is published on `host` is used.
    #[must_use]
    pub fn new(
        host: Client,
        component: &str,
        counts: WriteCounts,
        clock: SharedClock,
        events: mpsc::Sender<MemberEvent>,
        shutdown: CancellationToken,
    ) -> Self {
        let cache = PublishedCache::start_cache(host.clone(), Arc::clone(&clock), shutdown.child_token());
        let component = component.to_owned();
        let (cache, answered, watched) = (Some(cache), None, BTreeMap::new());
        Self { host, component, counts, cache, clock, answered, events, shutdown, watched, reads_load: false }
    }

    /// The same for who wants to know what nodes really use.
    #[must_use]
    pub const fn with_load(mut self) -> Self {
        self.reads_load = true;
        self
    }

    /// Brings what is watched up to date with the Cluster objects.
    pub fn apply_cluster_event(&mut self, event: &Event<Cluster>) {
        match event {
            Event::Reset(all) => {
                let names: Vec<&str> = all.iter().filter_map(|cluster| cluster.metadata.name.as_deref()).collect();
                self.stop_other_watches(&names);
                all.iter().for_each(|cluster| self.start_member_watch(cluster));
            }
            Event::Applied(cluster) => self.start_member_watch(cluster),
            Event::Deleted(cluster) => self.stop_member_watch(cluster.metadata.name.as_deref().unwrap_or_default()),
        }
    }

    /// Starts watching the member that a Cluster object names, or restarts it where the way to it changed.
    pub fn start_member_watch(&mut self, cluster: &Cluster) {
        self.start_member_watch_with(cluster, None);
    }

    /// The same with a client of the member, for a caller that runs inside it.
    pub fn start_member_watch_with(&mut self, cluster: &Cluster, given: Option<Client>) {
        let Some(name) = cluster.metadata.name.as_deref() else { return };
        let access = access_to(&self.host, cluster, given, &self.component, &self.counts);
        if self.watched.get(name).is_some_and(|(known, _)| *known == access.route) {
            return;
        }
        self.stop_member_watch(name);
        let stop = self.shutdown.child_token();
        self.watched.insert(name.to_owned(), (access.route.clone(), stop.clone()));
        let member = Member {
            access,
            cache: self.cache.clone(),
            published: self.cache.as_ref().map(|cache| cache.subscribe_member(name)),
            malformed: None,
            clock: Arc::clone(&self.clock),
            answered: self.answered.clone(),
            events: self.events.clone(),
            reads_load: self.reads_load,
            trusted_until: None,
            has_watch_failed: false,
        };
        tokio::spawn(member.run_member(stop));
    }

    /// Stops watching a member.
    pub fn stop_member_watch(&mut self, name: &str) {
        if let Some((_, stop)) = self.watched.remove(name) {
            stop.cancel();
        }
    }

    /// Stops watching all members but these.
    pub fn stop_other_watches(&mut self, names: &[&str]) {
        self.watched.retain(|name, (_, stop)| {
            let stays = names.contains(&name.as_str());
            if !stays {
                stop.cancel();
            }
            stays
        });
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.stop_other_watches(&[]);
    }
}

struct Member {
    access: Access,
    cache: Option<PublishedCache>,
    published: Option<watch::Receiver<Option<Trusted>>>,
    /// What was published and is no inventory, and why.
    malformed: Option<(Arc<Published>, String)>,
    clock: SharedClock,
    answered: Option<watch::Sender<Option<Timestamp>>>,
    events: mpsc::Sender<MemberEvent>,
    reads_load: bool,
    /// Until then what was passed on counts although nothing confirms it; `None` where nothing counts.
    trusted_until: Option<Instant>,
    /// It was taken down since a watch of it failed: it is up when all watches hold, and not when all is listed.
    has_watch_failed: bool,
}

impl Member {
    /// Replays what is published of the member, or else connects to it and watches it until it stops answering, and
    /// again, until `stop`.
    async fn run_member(mut self, stop: CancellationToken) {
        let stopped = stop.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = self.follow_member(&stop) => {}
        }
    }

    /// Ends if nobody receives the updates any more.
    async fn follow_member(&mut self, stop: &CancellationToken) {
        if let Some(cache) = &self.cache {
            cache.wait_for_list().await;
        }
        let mut backoff = INITIAL_BACKOFF;
        let mut is_down = false;
        while !self.events.is_closed() {
            let connected = match self.replay_published().await {
                Some(connection) => Ok(connection),
                None => self.access.connect_member().await,
            };
            match connected {
                Ok(connection) => {
                    if is_down {
                        tracing::info!(cluster = self.access.cluster, "the member answers again");
                    }
                    (backoff, is_down) = (INITIAL_BACKOFF, false);
                    self.watch_member(&connection, stop).await;
                }
                Err(error) => {
                    if !is_down && !self.is_trusted() {
                        let cluster = &self.access.cluster;
                        tracing::warn!(cluster, %error, "can not reach the member; trying again until it works");
                        is_down = true;
                        self.send_down(self.describe_outage(&error)).await;
                    }
                    tokio::select! {
                        biased;
                        () = self.wait_for_collector() => {}
                        () = tokio::time::sleep(backoff) => {}
                    }
                    backoff = (backoff * 2).min(PROBE_PERIOD);
                }
            }
        }
    }

    async fn send_update(&self, update: Update) {
        let _ = self.events.send(MemberEvent { cluster: self.access.cluster.clone(), update }).await;
    }

    async fn send_down(&mut self, why: String) {
        self.trusted_until = None;
        self.send_update(Update::Down(why)).await;
    }

    /// Whether what was passed on last still counts.
    fn is_trusted(&self) -> bool {
        self.trusted_until.is_some_and(|until| until > Instant::now())
    }

    /// The member answers, and everything that is followed in it is as it was passed on.
    fn confirm_inventory(&mut self) {
        self.trusted_until = Some(Instant::now() + TRUST_PERIOD);
        if let Some(answered) = &self.answered {
            answered.send_replace(Some(self.clock.now()));
        }
    }

    /// Why the member's numbers are not known.
    fn describe_outage(&self, error: &MemberError) -> String {
        match &self.malformed {
            Some((_, why)) => format!("{error}; what is published of it is no inventory: {why}"),
            None => error.to_string(),
        }
    }

    /// Whether the member has a kind that it need not have; `None` if that can not be known now.
    async fn find_optional(&mut self, connection: &Connection, kind: OptionalKind) -> Option<bool> {
        match kind.is_there(&connection.client).await {
            Ok(is_there) => Some(is_there),
            Err(error) => {
                let (cluster, kind) = (&self.access.cluster, kind.name());
                tracing::warn!(cluster, kind, %error, "can not read the member's objects; trying again");
                if !self.is_trusted() {
                    self.send_down(format!("its {kind} objects can not be read: {error}")).await;
                }
                let next_probe = Instant::now() + PROBE_PERIOD;
                tokio::time::sleep_until(self.trusted_until.map_or(next_probe, |until| until.min(next_probe))).await;
                None
            }
        }
    }

    /// Follows nodes and pods until the member stops answering, its secret changed, or its collector takes over.
    async fn watch_member(&mut self, connection: &Connection, stop: &CancellationToken) {
        let mut are_there = Vec::new();
        for kind in OptionalKind::ALL {
            let Some(is_there) = self.find_optional(connection, kind).await else { return };
            are_there.extend(is_there.then_some(kind));
        }
        let (found, mut absent) = OptionalKind::divide_kinds(&OptionalKind::ALL, &are_there);
        let mut informers = Informers::start_informers(self, connection, &found, stop);
        found.into_iter().for_each(|kind| informers.follow_optional(kind));
        for kind in &absent {
            informers.send_message(kind.make_empty_list()).await;
        }
        informers.follow_required();
        if self.reads_load {
            informers.follow_node_use(&connection.client, &self.clock);
        }
        let mut follows_queues = has_queues(&connection.client).await;
        if follows_queues {
            informers.follow_queues();
        } else {
            informers.send_message(Message::Queues(Queues::new())).await;
        }
        let mut listed = informers.subscribe_to_listed();
        let (mut is_listed, mut missed, mut probes) = (false, 0, 0_u32);
        let mut list_deadline = Some(self.trusted_until.unwrap_or_else(|| Instant::now() + TRUST_PERIOD));
        loop {
            tokio::select! {
                biased;
                () = informers.wait_until_no_receiver() => break,
                () = self.wait_for_collector() => break,
                Ok(_) = listed.wait_for(|listed| *listed), if !is_listed => {
                    (is_listed, self.has_watch_failed) = (true, false);
                    self.confirm_inventory();
                    continue;
                }
                () = tokio::time::sleep(PROBE_PERIOD) => {}
            }
            let cluster = self.access.cluster.clone();
            if !is_listed && list_deadline.is_some_and(|by| by <= Instant::now()) {
                (list_deadline, self.trusted_until) = (None, None);
                if !self.has_watch_failed {
                    tracing::warn!(cluster, "the member answers, but does not list its nodes and pods");
                }
                let seconds = TRUST_PERIOD.as_secs();
                let why = format!("its nodes and pods were not listed within {seconds} s");
                informers.send_message(Message::Late(why)).await;
            }
            let failing = informers.longest_failing();
            if let Some((kind, since)) = failing.filter(|_| is_listed && !self.is_trusted()) {
                tracing::warn!(cluster, kind, "the member answers, but a watch of it fails");
                let seconds = since.elapsed().as_secs();
                self.send_down(format!("its {kind} objects can not be followed, for {seconds} s now")).await;
                self.has_watch_failed = true;
                break;
            }
            match probe_member(&connection.client).await {
                Ok(()) => {
                    missed = 0;
                    if is_listed && failing.is_none() {
                        self.confirm_inventory();
                    }
                    probes = probes.wrapping_add(1);
                    if !probes.is_multiple_of(DISCOVERY_PROBES) {
                        continue;
                    }
                    if !follows_queues && has_queues(&connection.client).await {
                        follows_queues = true;
                        informers.follow_queues();
                    }
                    let mut are_there = Vec::new();
                    for kind in &absent {
                        let is_there = kind.is_there(&connection.client).await.is_ok_and(|is_there| is_there);
                        are_there.extend(is_there.then_some(*kind));
                    }
                    let (found, still_absent) = OptionalKind::divide_kinds(&absent, &are_there);
                    absent = still_absent;
                    found.into_iter().for_each(|kind| informers.follow_optional(kind));
                }
                Err(error) => {
                    missed += 1;
                    if self.access.is_rotated(connection).await {
                        tracing::info!(cluster, "the member's credentials changed; connecting anew");
                        break;
                    }
                    if missed >= MAX_MISSED_PROBES {
                        tracing::warn!(cluster, %error, "the member does not answer any more");
                        self.send_down(self.describe_outage(&error)).await;
                        break;
                    }
                }
            }
        }
        informers.stop_informers().await;
    }
}

/// A client of the member that a Cluster object names, or the one that is given, which has answered.
///
/// # Errors
/// If it can not be reached: why.
pub async fn connect_or_use_given(
    host: &Client,
    cluster: &Cluster,
    given: Option<Client>,
    component: &str,
    counts: &WriteCounts,
) -> Result<Client, String> {
    if let Some(client) = given {
        return Ok(client);
    }
    let access = access_to(host, cluster, None, component, counts);
    access.connect_or_proxy().await.map_err(|error| error.to_string())
}

/// A client that sends every request through Karmada's cluster proxy, so that the member sees who asks.
#[must_use]
pub fn proxy_client(host: &Client, cluster: &str) -> Client {
    connection::proxy_client(host, cluster)
}

fn access_to(host: &Client, cluster: &Cluster, given: Option<Client>, component: &str, counts: &WriteCounts) -> Access {
    Access {
        host: host.clone(),
        cluster: cluster.metadata.name.clone().unwrap_or_default(),
        route: if given.is_some() { Route::Agent } else { Route::of_cluster(cluster) },
        given,
        component: component.to_owned(),
        counts: counts.clone(),
    }
}

/// The inventory of a member, read once: what is published of it where that can be trusted, or its nodes and pods, or
/// why they can not be read. A caller that may not read its secret on the host goes through Karmada's cluster proxy.
pub async fn read_member_inventory(
    host: &Client,
    cluster: &Cluster,
    component: &str,
    counts: &WriteCounts,
) -> Vec<Update> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if let Some(updates) = replay::read_published(host, name).await {
        return updates;
    }
    let access = access_to(host, cluster, None, component, counts);
    let read = async {
        let client = access.connect_or_proxy().await?;
        let (mut changes, mut devices) = (Vec::new(), DeviceJoin::default());
        let mut listed = Vec::new();
        for kind in OptionalKind::ALL {
            listed.extend(kind.list(&client).await?.map(|message| (kind, message)));
        }
        let are_there: Vec<OptionalKind> = listed.iter().map(|(kind, _)| *kind).collect();
        let (followed, _) = OptionalKind::divide_kinds(&OptionalKind::ALL, &are_there);
        for (_, message) in listed.into_iter().filter(|(kind, _)| followed.contains(kind)) {
            match message {
                Message::Listed(_, change) => changes.push(change),
                Message::Devices(_, _, event) => drop(devices.apply_devices(event)),
                _ => {}
            }
        }
        changes.push(devices.list_devices());
        let failed = |error| MemberError::Probe(Box::new(error));
        let nodes = list_json(client.clone(), &node_resource(), None, None, |node| read_node(&node)).await;
        changes.push(Change::Nodes(nodes.map_err(failed)?));
        let pods = list_json(client, &pod_resource(), None, None, |pod| ReadPod::read(&pod)).await;
        changes.extend(devices.complete_pods(Event::Reset(pods.map_err(failed)?)));
        Ok(changes.into_iter().map(Update::Change).chain([Update::Up]).collect())
    };
    read.await.unwrap_or_else(|error: MemberError| vec![Update::Down(error.to_string())])
}
