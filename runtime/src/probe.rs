//! Measures the way from this member to others: latency and bandwidth.
//!
//! Rule: the collector of each member listens, and asks those of the others. Latency is half of the shortest of some
//! round trips, each round; bandwidth is what one connection carried to the other, at intervals, and costs so many
//! bytes a day at most. Of the last rounds the middle counts, rounded to two digits, so that noise changes nothing. A
//! peer that did not answer for three rounds has no link, until it does again.
//!
//! Both sides show certificates of one authority, and the server's is for the name [`SERVER_NAME`] at whatever address
//! it has. Without TLS whoever reaches the port may have bytes taken; they are limited, and mean nothing.
//!
//! | module | does |
//! |---|---|
//! | `samples` | what counts of what was measured |
//! | `exchange` | one round trip, and one load of bytes |
//! | `server` | the other side of both |

mod exchange;
mod samples;
mod server;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::TcpListener, sync::Arc, time::Duration};

use caldera_crds::published::PeerLink;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{exchange::Exchange, samples::PeerSamples};
use crate::{
    clock::{SharedClock, format_time},
    tls::ServedTls,
};
pub use server::run_probe_server;

/// The name that a peer's certificate has to be for, whatever its address is.
pub const SERVER_NAME: &str = "caldera-probe";
/// Bytes of one load at most: at 10 Gbit/s it takes 50 ms.
pub const MOST_LOAD: u64 = 64 << 20;
/// Bytes of one load at least: less says nothing of bandwidth.
pub const LEAST_LOAD: u64 = 256 << 10;
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

/// What a prober is started with.
pub struct ProbeConfig {
    /// Whom it asks.
    pub peers: Vec<Peer>,
    /// How often.
    pub pace: ProbePace,
    /// How it shows who it is, and whom it believes; without it nothing is encrypted.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The time.
    pub clock: SharedClock,
}

/// The server's side, as far as it is given.
pub struct ProbeServer {
    /// Where it listens.
    pub listener: TcpListener,
    /// Its certificate, and whose clients it takes.
    pub tls: Option<ServedTls>,
    /// Bytes that it takes in a day at most, of all peers together.
    pub bytes_a_day: u64,
}

/// Asks all peers, one after the other, until `stop`; `links` has what counts of it.
pub async fn run_prober(config: ProbeConfig, links: watch::Sender<Vec<PeerLink>>, stop: CancellationToken) {
    let mut peers: BTreeMap<&str, PeerSamples> = BTreeMap::new();
    let load = config.pace.load_bytes(config.peers.len());
    let mut rounds = tokio::time::interval(config.pace.latency);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = rounds.tick() => {}
        }
        for peer in config.peers.iter().take(MOST_PEERS) {
            let samples = peers.entry(&peer.cluster).or_default();
            let load = load.filter(|_| samples.is_load_due(config.pace.bandwidth));
            let asked = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                asked = measure_peer(&config, peer, load) => asked,
            };
            let failed_before = samples.has_failed();
            match asked {
                Ok(Exchange { latency, bandwidth }) => samples.observe(latency, bandwidth, config.clock.now()),
                Err(why) => {
                    samples.observe_failure();
                    if !failed_before {
                        tracing::warn!(peer = peer.cluster, address = peer.address, why, "a peer was not measured");
                    }
                }
            }
            let now = list_links(&peers);
            links.send_if_modified(|known| {
                *known != now && {
                    *known = now;
                    true
                }
            });
        }
    }
}

async fn measure_peer(config: &ProbeConfig, peer: &Peer, load: Option<u64>) -> Result<Exchange, String> {
    exchange::measure_peer(&peer.address, config.tls.clone(), load).await
}

fn list_links(peers: &BTreeMap<&str, PeerSamples>) -> Vec<PeerLink> {
    let link = |(cluster, samples): (&&str, &PeerSamples)| {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let measured = samples.summarize()?;
        Some(PeerLink {
            to: (*cluster).to_owned(),
            latency_microseconds: Some(count(measured.latency)),
            bandwidth_megabits: measured.bandwidth.map(count),
            since: format_time(measured.at),
        })
    };
    peers.iter().filter_map(link).collect()
}
