//! What is measured of measuring: rounds, what failed, bytes of the day's budget, and the links that count. What a
//! value means is said in the constants, from which `docs/metrics.md` is made.

use caldera_crds::published::PeerLink;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use super::{Peer, ProbePace};
use crate::metric::{Counters, Labels, Sample, Samples, SharedRegistry};

crate::metrics! { ALL:
    ROUNDS = Counter "caldera_probe_rounds" ["cluster"], "Rounds in which each other member was asked";
    FAILURES = Counter "caldera_probe_failures" ["cluster", "peer", "kind"],
        "What another member did not let be measured: latency (it did not answer a round), bandwidth (a load did not \
         arrive), refused (it takes no more bytes today)";
    LATENCY = Gauge "caldera_probe_latency_seconds" ["cluster", "peer"],
        "One-way latency that is published; none while the other member does not answer";
    BANDWIDTH = Gauge "caldera_probe_bandwidth_bytes_per_second" ["cluster", "peer"],
        "Bandwidth of one connection that is published; none while it is not known";
    BUDGET = Gauge "caldera_probe_budget_bytes" ["cluster"],
        "Bytes that may be sent in a day to measure bandwidth; twice as many are taken";
    SENT = Counter "caldera_probe_sent_bytes" ["cluster"], "Bytes of that budget that were sent";
    TAKEN = Counter "caldera_probe_taken_bytes" ["cluster"], "Bytes that were taken from other members";
}

/// It did not answer a round.
const OF_LATENCY: &str = "latency";
/// A load did not arrive.
const OF_BANDWIDTH: &str = "bandwidth";
/// It takes no more bytes today.
const OF_REFUSAL: &str = "refused";
/// Of a megabit.
const BYTES: f64 = 125_000.0;
/// Of a second.
const MICROSECONDS: f64 = 1e6;

/// The bytes that a server takes.
pub(super) fn register_taken_bytes(cluster: &str, registry: &SharedRegistry) -> Counter {
    let taken = Counters::default();
    TAKEN.register(registry, taken.clone());
    taken.get_or_create_owned(&TAKEN.build_labels([cluster]))
}

/// The metrics of one prober.
#[derive(Debug)]
pub(super) struct ProbeMetrics {
    cluster: String,
    rounds: Counter,
    failures: Counters,
    sent: Counter,
    links: Samples,
}

impl ProbeMetrics {
    pub(super) fn register(cluster: &str, peers: &[Peer], pace: &ProbePace, registry: &SharedRegistry) -> Self {
        let (rounds, sent, budget) = (Counters::default(), Counters::default(), Family::<Labels, Gauge>::default());
        let most = i64::try_from(pace.bytes_a_day).unwrap_or(i64::MAX);
        budget.get_or_create(&BUDGET.build_labels([cluster])).set(most);
        let metrics = Self {
            cluster: cluster.to_owned(),
            rounds: rounds.get_or_create_owned(&ROUNDS.build_labels([cluster])),
            failures: Counters::default(),
            sent: sent.get_or_create_owned(&SENT.build_labels([cluster])),
            links: Samples::default(),
        };
        // Shown from the start, so that a rate counts the first.
        for peer in peers {
            for kind in [OF_LATENCY, OF_BANDWIDTH, OF_REFUSAL] {
                drop(metrics.failures.get_or_create(&FAILURES.build_labels([cluster, &peer.cluster, kind])));
            }
        }
        ROUNDS.register(registry, rounds);
        SENT.register(registry, sent);
        BUDGET.register(registry, budget);
        FAILURES.register(registry, metrics.failures.clone());
        metrics.links.register(registry);
        metrics
    }

    /// Each peer was asked.
    pub(super) fn count_round(&self) {
        self.rounds.inc();
    }

    /// A peer did not answer a round.
    pub(super) fn count_silence(&self, peer: &str) {
        self.count_failure(peer, OF_LATENCY);
    }

    /// A load did not arrive.
    pub(super) fn count_lost_load(&self, peer: &str) {
        self.count_failure(peer, OF_BANDWIDTH);
    }

    /// A peer takes no more bytes today.
    pub(super) fn count_refused_load(&self, peer: &str) {
        self.count_failure(peer, OF_REFUSAL);
    }

    fn count_failure(&self, peer: &str, kind: &str) {
        self.failures.get_or_create(&FAILURES.build_labels([&self.cluster, peer, kind])).inc();
    }

    /// Counts what is sent, byte by byte: a load that fails has cost something too.
    pub(super) fn sent_bytes(&self) -> Counter {
        self.sent.clone()
    }

    /// These are the links that count.
    pub(super) fn show_links(&self, links: &[PeerLink]) {
        let sample = |metric, link: &PeerLink, value: f64| Sample::new(metric, [&self.cluster, &link.to], value);
        let of = |link: &PeerLink| {
            #[expect(clippy::cast_precision_loss, reason = "no link has 2^53 of anything")]
            let count = |number: i64| number as f64;
            let latency = link.latency_microseconds.map(|it| sample(&LATENCY, link, count(it) / MICROSECONDS));
            let bandwidth = link.bandwidth_megabits.map(|it| sample(&BANDWIDTH, link, count(it) * BYTES));
            [latency, bandwidth]
        };
        self.links.replace(links.iter().flat_map(of).flatten().collect());
    }
}
