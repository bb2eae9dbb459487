//! Measures the way from this member to others: latency and bandwidth.
//!
//! Rule: the collector of each member listens, and asks those of the others. Latency is half of the shortest of some
//! round trips, each round; bandwidth is what one connection carried to the other, at intervals, and costs so many
//! bytes a day at most, of one peer after the other. Of the last rounds the middle counts, and noise changes nothing. A
//! peer that did not answer for three rounds has no link, until it does again. That it does not is logged at once, and
//! each hour for as long as it lasts.
//!
//! Both sides show certificates of one authority, and the server's is for the name [`SERVER_NAME`] at whatever address
//! it has. Without TLS whoever reaches the port may have bytes taken; they are limited, and mean nothing.
//!
//! | module | does |
//! |---|---|
//! | `samples` | what counts of what was measured |
//! | `exchange` | one round trip, and one load of bytes |
//! | `server` | the other side of both |
//! | `metrics` | what is shown of it |

mod exchange;
pub mod metrics;
mod samples;
mod server;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::TcpListener, sync::Arc, time::Duration};

use caldera_crds::published::PeerLink;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{
    metrics::ProbeMetrics,
    samples::{FailurePace, PeerSamples},
};
use crate::{
    clock::{SharedClock, format_time},
    metric::SharedRegistry,
    tls::ServedTls,
};
pub use server::run_probe_server;

/// The name that a peer's certificate has to be for, whatever its address is.
pub const SERVER_NAME: &str = "caldera-probe";
/// Bytes of one load at most: at 10 Gbit/s it takes 50 ms.
pub const MOST_LOAD: u64 = 64 << 20;
/// Bytes of one load at least: less says nothing of bandwidth.
pub const LEAST_LOAD: u64 = 256 << 10;
/// Peers whose latency is measured at once.
const AT_ONCE: usize = 16;
/// Peers that are measured at most.
pub const MOST_PEERS: usize = 1_024;

/// Another member, and where its collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The member, as Karmada names it.
    pub cluster: String,
    /// `host:port`.
    pub address: String,
}

/// How often what is measured, and at what cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePace {
    /// Between two rounds of round trips.
    pub latency: Duration,
    /// Between two loads of one peer.
    pub bandwidth: Duration,
    /// Bytes that are sent in a day at most, to all peers together; none: no bandwidth is measured.
    pub bytes_a_day: u64,
}

impl Default for ProbePace {
    fn default() -> Self {
        Self { latency: Duration::from_secs(60), bandwidth: Duration::from_secs(3_600), bytes_a_day: 1 << 30 }
    }
}

impl ProbePace {
    /// Bytes of one load, with so many peers; `None` where the budget is too small for any that says something.
    #[must_use]
    pub fn load_bytes(&self, peers: usize) -> Option<u64> {
        let of_interval = u128::from(self.bytes_a_day) * u128::from(self.bandwidth.as_secs().max(1)) / 86_400;
        let each = of_interval / u128::from(u64::try_from(peers).unwrap_or(u64::MAX).max(1));
        let each = u64::try_from(each).unwrap_or(u64::MAX).min(MOST_LOAD);
        (each >= LEAST_LOAD).then_some(each)
    }
}

/// How a prober shows who it is, and whom it believes, made anew for each round: certificates are renewed. `None`:
/// nothing is encrypted.
pub type MakeTls = Box<dyn Fn() -> Result<Option<Arc<rustls::ClientConfig>>, String> + Send + Sync>;

/// What a prober is started with.
pub struct ProbeConfig {
    /// The member that it measures from.
    pub cluster: String,
    /// Whom it asks.
    pub peers: Vec<Peer>,
    /// How often.
    pub pace: ProbePace,
    /// Its certificate.
    pub tls: MakeTls,
    /// The time.
    pub clock: SharedClock,
    /// Shows its metrics.
    pub registry: SharedRegistry,
}

/// The server's side, as far as it is given.
pub struct ProbeServer {
    /// The member that it answers for.
    pub cluster: String,
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate, and whose clients it takes.
    pub tls: Option<ServedTls>,
    /// Bytes that it takes in a day at most, of all peers together.
    pub bytes_a_day: u64,
    /// Shows its metrics.
    pub registry: SharedRegistry,
}

/// Asks all peers until `stop`; `links` has what counts of it, and nothing before the first round.
pub async fn run_prober(config: ProbeConfig, links: watch::Sender<Option<Vec<PeerLink>>>, stop: CancellationToken) {
    let mut prober = Prober::new(&config);
    let mut rounds = tokio::time::interval(config.pace.latency);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = rounds.tick() => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = prober.measure_latencies() => {}
        }
        prober.publish_links(&links);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = prober.measure_one_bandwidth() => {}
        }
        prober.publish_links(&links);
    }
}

/// The peers, with what was measured of each.
struct Prober<'a> {
    config: &'a ProbeConfig,
    /// Bytes that may be sent to one peer in an interval, if that says anything.
    load: Option<u64>,
    samples: BTreeMap<&'a str, (&'a Peer, PeerSamples)>,
    /// Of the peers that do not answer, and of a certificate that can not be used.
    silences: BTreeMap<&'a str, FailurePace>,
    certificate_pace: FailurePace,
    metrics: ProbeMetrics,
}

impl<'a> Prober<'a> {
    fn new(config: &'a ProbeConfig) -> Self {
        let ProbePace { latency, bandwidth, .. } = config.pace;
        let peers = config.peers.get(..MOST_PEERS).unwrap_or(&config.peers);
        let samples = |peer: &'a Peer| (peer.cluster.as_str(), (peer, PeerSamples::new(latency, bandwidth)));
        Self {
            config,
            load: config.pace.load_bytes(config.peers.len()),
            samples: peers.iter().map(samples).collect(),
            silences: BTreeMap::new(),
            certificate_pace: FailurePace::default(),
            metrics: ProbeMetrics::register(&config.cluster, peers, &config.pace, &config.registry),
        }
    }

    /// Some at once: one that does not answer holds nobody else up.
    async fn measure_latencies(&mut self) {
        let tls = (self.config.tls)();
        match &tls {
            Ok(_) => {
                self.certificate_pace.end_failure();
            }
            Err(why) if self.certificate_pace.report_failure() => tracing::warn!(why, "no peer can be asked"),
            Err(_) => {}
        }
        let ask = |peer: &'a Peer| {
            let tls = tls.clone().ok();
            async move {
                let Some(tls) = tls else { return (peer, Err(None)) };
                (peer, exchange::measure_latency(&peer.address, tls).await.map_err(Some))
            }
        };
        let questions: Vec<_> = self.samples.values().map(|(peer, _)| ask(peer)).collect();
        let answers: Vec<_> = stream::iter(questions).buffer_unordered(AT_ONCE).collect().await;
        self.metrics.count_round();
        let now = self.config.clock.now();
        for (peer, asked) in answers {
            let Some((_, samples)) = self.samples.get_mut(peer.cluster.as_str()) else { continue };
            let pace = self.silences.entry(&peer.cluster).or_default();
            let (name, address) = (&peer.cluster, &peer.address);
            match &asked {
                Ok(_) if pace.end_failure() => tracing::info!(peer = name, address, "a peer answers again"),
                Ok(_) => {}
                Err(why) => {
                    self.metrics.count_silence(name);
                    if let Some(why) = why.as_ref().filter(|_| pace.report_failure()) {
                        tracing::warn!(peer = name, address, why, "a peer does not answer");
                    }
                }
            }
            samples.observe_latency(asked.ok(), now);
            samples.forget_old_bandwidth(self.config.pace.bandwidth, now);
        }
    }

    /// That of the peer which is due for longest: no two loads share the way out.
    async fn measure_one_bandwidth(&mut self) {
        let (Some(load), every) = (self.load, self.config.pace.bandwidth) else { return };
        let due = self.samples.values_mut().filter_map(|(peer, samples)| {
            let due = samples.load_due_for(every)?;
            Some((due, *peer, samples))
        });
        let Some((_, peer, samples)) = due.max_by_key(|(due, ..)| *due) else { return };
        let Ok(tls) = (self.config.tls)() else { return };
        samples.begin_load();
        match exchange::measure_bandwidth(&peer.address, tls, load, &self.metrics.sent_bytes()).await {
            Ok(Some(bandwidth)) => samples.observe_bandwidth(bandwidth, self.config.clock.now()),
            Ok(None) => {
                self.metrics.count_refused_load(&peer.cluster);
                tracing::debug!(peer = peer.cluster, "a peer takes no more bytes today");
            }
            Err(why) => {
                self.metrics.count_lost_load(&peer.cluster);
                tracing::warn!(peer = peer.cluster, why, "the bandwidth to a peer was not measured");
            }
        }
    }

    fn publish_links(&self, published: &watch::Sender<Option<Vec<PeerLink>>>) {
        let links = self.list_links();
        self.metrics.show_links(&links);
        published.send_replace(Some(links));
    }

    fn list_links(&self) -> Vec<PeerLink> {
        let link = |(cluster, (_, samples)): (&&str, &(&Peer, PeerSamples))| {
            let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let measured = samples.published()?;
            Some(PeerLink {
                to: (*cluster).to_owned(),
                latency_microseconds: Some(count(measured.latency)),
                bandwidth_megabits: measured.bandwidth.map(count),
                since: format_time(measured.since),
            })
        };
        self.samples.iter().filter_map(link).collect()
    }
}
