//! Watching the members: each in a task of its own, so that one that hangs, lies or is gone delays nobody else.
//!
//! A member whose collector publishes its inventory on the host ([`caldera_crds::published`]) is not watched: what is
//! published is told as if it was, for as long as it can be trusted. Any other is reached as Karmada reaches it: Push by
//! `spec.apiEndpoint` with the token and CA of `spec.secretRef` (a Secret on the host), otherwise through Karmada's
//! cluster proxy. Its nodes, pods and HyperNodes become [`caldera_core::inventory::Change`]s on a channel, and when all of
//! them were listed it is up (`watches`). A member without HyperNodes (or where they may not be read) has no domains, one
//! without Volcano's queues bounds nothing by them; they are looked for again now and then.
//!
//! What was told counts for as long as it is confirmed: by a probe with a deadline (a watch alone may hang for minutes),
//! and by watches that do not fail. An outage of seconds changes nothing; after three probes without an answer, or when a
//! watch has failed for half a minute, the member is down until all was listed anew. Credentials are read again whenever a
//! probe fails, so that a rotated secret is picked up.

mod board;
pub mod collect;
mod reach;
#[cfg(test)]
mod tests;
mod told;
mod watches;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use caldera_core::{
    fleet::Update,
    inventory::{Change, HyperNode},
};
use caldera_crds::{karmada::cluster::Cluster, published::Published};
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
    watch::{Event, list_json_as, resource},
};
use board::{Board, Trusted};
use reach::{Connection, MemberError, Route, Way, probe};
use watches::{WATCHED, Watches, has_queues, list_hyper_nodes};

/// How often a member is asked whether it is there.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// So many unanswered probes in a row, and its inventory is not trusted any more.
const PROBES_MISSED: u32 = 3;
/// How often, in probes, a member without HyperNodes or queues is asked for them again.
const LOOK_EVERY: u32 = 30;
/// First wait before another attempt to reach it; doubles up to [`PROBE_EVERY`].
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// How long its first lists may take before it counts as one that can not be read, and how long what was told of it counts
/// while one of its watches fails.
const TRUSTED: Duration = Duration::from_secs(30);

/// What happened in a member.
#[derive(Debug, Clone)]
pub struct MemberEvent {
    /// Which.
    pub cluster: String,
    /// What.
    pub update: Update,
}

/// The members that are being watched.
pub struct Members {
    host: Client,
    component: String,
    counts: WriteCounts,
    /// `None` for a collector, which must not live on what it publishes.
    board: Option<Board>,
    clock: SharedClock,
    /// When a member last answered, for a collector.
    answered: Option<watch::Sender<Option<Timestamp>>>,
    events: mpsc::Sender<MemberEvent>,
    shutdown: CancellationToken,
    watched: BTreeMap<String, (Route, CancellationToken)>,
}

impl Members {
    /// Watches nobody yet; events of members will arrive at `events`. What is published on `host` is used.
    #[must_use]
    pub fn new(
        host: Client,
        component: &str,
        counts: WriteCounts,
        clock: SharedClock,
        events: mpsc::Sender<MemberEvent>,
        shutdown: CancellationToken,
    ) -> Self {
        let board = Board::follow(host.clone(), Arc::clone(&clock), shutdown.child_token());
        let component = component.to_owned();
        let (board, answered, watched) = (Some(board), None, BTreeMap::new());
        Self { host, component, counts, board, clock, answered, events, shutdown, watched }
    }

    /// Starts (or, where the way to it changed, restarts) watching the member that a Cluster object names.
    pub fn observe(&mut self, cluster: &Cluster) {
        let Some(name) = cluster.metadata.name.as_deref() else { return };
        self.observe_by(name, Route::of(cluster), None);
    }

    /// The same with a client of the member, where there is one, for who runs inside it.
    pub fn observe_given(&mut self, cluster: &Cluster, given: Option<Client>) {
        let Some(name) = cluster.metadata.name.as_deref() else { return };
        let route = if given.is_some() { Route::Agent } else { Route::of(cluster) };
        self.observe_by(name, route, given);
    }

    fn observe_by(&mut self, name: &str, route: Route, given: Option<Client>) {
        if self.watched.get(name).is_some_and(|(known, _)| *known == route) {
            return;
        }
        self.forget(name);
        let stop = self.shutdown.child_token();
        let way = Way {
            host: self.host.clone(),
            cluster: name.to_owned(),
            route: route.clone(),
            given,
            component: self.component.clone(),
            counts: self.counts.clone(),
        };
        let member = Member {
            way,
            board: self.board.clone(),
            posted: self.board.as_ref().map(|board| board.of(name)),
            refused: None,
            clock: Arc::clone(&self.clock),
            answered: self.answered.clone(),
            events: self.events.clone(),
            until: None,
        };
        tokio::spawn(member.run(stop.clone()));
        self.watched.insert(name.to_owned(), (route, stop));
    }

    /// Stops watching a member.
    pub fn forget(&mut self, name: &str) {
        if let Some((_, stop)) = self.watched.remove(name) {
            stop.cancel();
        }
    }

    /// Stops watching all members but these.
    pub fn keep_only(&mut self, names: &[&str]) {
        let gone: Vec<String> = self.watched.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for (_, stop) in self.watched.values() {
            stop.cancel();
        }
    }
}

struct Member {
    way: Way,
    board: Option<Board>,
    posted: Option<watch::Receiver<Option<Trusted>>>,
    /// What was published and is no inventory, and why.
    refused: Option<(Arc<Published>, String)>,
    clock: SharedClock,
    answered: Option<watch::Sender<Option<Timestamp>>>,
    events: mpsc::Sender<MemberEvent>,
    /// Until then what was told counts although nothing confirms it; `None` where nothing does.
    until: Option<Instant>,
}

impl Member {
    /// Tells what is published of the member, or else reaches it and watches it until it stops answering, and again,
    /// until `stop`.
    async fn run(mut self, stop: CancellationToken) {
        if let Some(board) = &self.board {
            board.listed().await;
        }
        let cut = stop.clone();
        tokio::select! {
            biased;
            () = cut.cancelled() => {}
            () = self.follow(&stop) => {}
        }
    }

    /// Ends if nobody listens any more.
    async fn follow(&mut self, stop: &CancellationToken) {
        let mut wait = FIRST_WAIT;
        let mut told = false;
        while !self.events.is_closed() {
            let connected = match self.tell_published().await {
                Some(connection) => Ok(connection),
                None => self.way.connect().await,
            };
            match connected {
                Ok(connection) => {
                    if told {
                        tracing::info!(cluster = self.way.cluster, "the member answers again");
                    }
                    (wait, told) = (FIRST_WAIT, false);
                    self.watch(&connection, stop).await;
                }
                Err(error) => {
                    if !told && !self.is_trusted() {
                        let cluster = &self.way.cluster;
                        tracing::warn!(cluster, %error, "can not reach the member; trying again until it works");
                        told = true;
                        self.tell_down(self.excuse(&error)).await;
                    }
                    tokio::select! {
                        () = self.is_published() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                    wait = (wait * 2).min(PROBE_EVERY);
                }
            }
        }
    }

    async fn tell(&self, update: Update) {
        let _ = self.events.send(MemberEvent { cluster: self.way.cluster.clone(), update }).await;
    }

    async fn tell_down(&mut self, why: String) {
        self.until = None;
        self.tell(Update::Down(why)).await;
    }

    /// Whether what was told last still counts.
    fn is_trusted(&self) -> bool {
        self.until.is_some_and(|until| until > Instant::now())
    }

    /// The member answers, and all that is followed in it is as it was told.
    fn is_seen(&mut self) {
        self.until = Some(Instant::now() + TRUSTED);
        if let Some(answered) = &self.answered {
            answered.send_replace(Some(self.clock.now()));
        }
    }

    /// Why the member's numbers are not known.
    fn excuse(&self, error: &MemberError) -> String {
        match &self.refused {
            Some((_, why)) => format!("{error}; what is published of it is no inventory: {why}"),
            None => error.to_string(),
        }
    }

    /// The member's HyperNodes, `None` within where it has no such kind; `None` if they can not be read now.
    async fn hyper_nodes(&mut self, connection: &Connection) -> Option<Option<Vec<HyperNode>>> {
        match list_hyper_nodes(&connection.client).await {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(cluster = self.way.cluster, %error, "can not read the member's HyperNodes; trying again");
                if !self.is_trusted() {
                    self.tell_down(format!("its HyperNodes can not be read: {error}")).await;
                }
                let until = self.until.unwrap_or_else(|| Instant::now() + PROBE_EVERY);
                tokio::time::sleep_until(until.min(Instant::now() + PROBE_EVERY)).await;
                None
            }
        }
    }

    /// Follows nodes and pods until the member stops answering, its secret changed, or its collector takes over.
    async fn watch(&mut self, connection: &Connection, stop: &CancellationToken) {
        let Some(found) = self.hyper_nodes(connection).await else { return };
        let mut watches = Watches::new(self, connection, stop);
        let mut domains = found.is_some();
        watches.tell(Change::HyperNodes(found.unwrap_or_default())).await;
        if domains {
            watches.follow_hyper_nodes();
        }
        watches.follow_first();
        let mut queues = has_queues(&connection.client).await;
        if queues {
            watches.follow_queues();
        } else {
            watches.tell_no_queues().await;
        }
        let mut listed = watches.listed();
        let (mut seen, mut missed, mut probes) = (false, 0, 0_u32);
        let mut listed_by = Some(self.until.unwrap_or_else(|| Instant::now() + TRUSTED));
        loop {
            tokio::select! {
                biased;
                // All follow for ever unless nobody listens any more.
                () = watches.ended() => break,
                () = self.is_published() => break,
                Ok(_) = listed.wait_for(|listed| *listed), if !seen => {
                    seen = true;
                    self.is_seen();
                    continue;
                }
                () = tokio::time::sleep(PROBE_EVERY) => {}
            }
            if !seen && listed_by.is_some_and(|by| by <= Instant::now()) {
                (listed_by, self.until) = (None, None);
                tracing::warn!(cluster = self.way.cluster, "the member answers, but does not list its nodes and pods");
                watches.tell_late(format!("its nodes and pods were not listed within {} s", TRUSTED.as_secs())).await;
            }
            let failing = watches.failing();
            if let Some((kind, since)) = failing.filter(|_| seen && !self.is_trusted()) {
                tracing::warn!(cluster = self.way.cluster, kind, "the member answers, but a watch of it fails");
                let seconds = since.elapsed().as_secs();
                self.tell_down(format!("its {kind} objects can not be followed, for {seconds} s now")).await;
                break;
            }
            match probe(&connection.client).await {
                Ok(()) => {
                    missed = 0;
                    if seen && failing.is_none() {
                        self.is_seen();
                    }
                    probes = probes.wrapping_add(1);
                    let looks = probes.is_multiple_of(LOOK_EVERY);
                    if !queues && looks && has_queues(&connection.client).await {
                        queues = true;
                        watches.follow_queues();
                    }
                    if !domains && looks {
                        domains = list_hyper_nodes(&connection.client).await.is_ok_and(|found| found.is_some());
                        if domains {
                            watches.follow_hyper_nodes();
                        }
                    }
                }
                Err(error) => {
                    missed += 1;
                    if self.way.is_rotated(connection).await {
                        tracing::info!(cluster = self.way.cluster, "the member's credentials changed; connecting anew");
                        break;
                    }
                    if missed >= PROBES_MISSED {
                        tracing::warn!(cluster = self.way.cluster, %error, "the member does not answer any more");
                        self.tell_down(self.excuse(&error)).await;
                        break;
                    }
                }
            }
        }
        watches.end().await;
    }
}

/// A client of the member that a Cluster object names (or the one that is given), which has answered.
///
/// # Errors
/// If it can not be reached: why.
pub async fn client_of(
    host: &Client,
    cluster: &Cluster,
    given: Option<Client>,
    component: &str,
    counts: &WriteCounts,
) -> Result<Client, String> {
    if let Some(client) = given {
        return Ok(client);
    }
    way(host, cluster, component, counts).connect_anyhow().await.map_err(|error| error.to_string())
}

fn way(host: &Client, cluster: &Cluster, component: &str, counts: &WriteCounts) -> Way {
    Way {
        host: host.clone(),
        cluster: cluster.metadata.name.clone().unwrap_or_default(),
        route: Route::of(cluster),
        given: None,
        component: component.to_owned(),
        counts: counts.clone(),
    }
}

/// What a member has now, read once: what is published of it where that can be trusted, or its nodes and pods, or why
/// they can not be read. Who may not read its secret on the host is sent through Karmada's cluster proxy, where that lets
/// them.
pub async fn snapshot(host: &Client, cluster: &Cluster, component: &str, counts: &WriteCounts) -> Vec<Update> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if let Some(updates) = told::published_now(host, name).await {
        return updates;
    }
    let way = way(host, cluster, component, counts);
    let read = async {
        let client = way.connect_anyhow().await?;
        let found = list_hyper_nodes(&client).await?;
        let mut updates = vec![Update::Change(Change::HyperNodes(found.unwrap_or_default()))];
        for (kind, plural, convert) in WATCHED {
            let resource = resource("", "v1", kind, plural);
            let listed = list_json_as(client.clone(), &resource, None, None, Some).await;
            let all = listed.map_err(|error| MemberError::Probe(Box::new(error)))?;
            updates.extend(convert(Event::Reset(all)).map(Update::Change));
        }
        updates.push(Update::Up);
        Ok(updates)
    };
    read.await.unwrap_or_else(|error: MemberError| vec![Update::Down(error.to_string())])
}
