//! What a collector measures of what it publishes: how old that is, how much, and what kept it back. What a value means
//! is said in the constants, from which `docs/metrics.md` is made.

use jiff::Timestamp;
use prometheus_client::metrics::{family::Family, gauge::Gauge};

use crate::{
    metric::{Counters, Labels, SharedRegistry},
    write::Failure,
};

crate::metrics! { ALL:
    SEEN = Gauge "caldera_inventory_seen_timestamp_seconds" ["cluster"],
        "When the member last answered, as the last heartbeat says that was written, in seconds since 1970";
    PARTS = Gauge "caldera_inventory_parts" ["cluster"],
        "Parts that the inventory is divided into, as that heartbeat says";
    PUBLISHED_PARTS = Counter "caldera_inventory_published_parts" ["cluster"], "Parts that were written";
    PUBLISHED_BYTES = Counter "caldera_inventory_published_bytes" ["cluster"], "Bytes of the parts that were written";
    FAILURES = Counter "caldera_inventory_failures" ["cluster", "kind"],
        "What kept the inventory from being published: member (it could not be followed any more), refused (the host \
         refused a read or write), unavailable (the host did not answer, or what is there had changed)";
}

/// The member could not be followed any more.
const MEMBER: &str = "member";
const REFUSED: &str = "refused";
const UNAVAILABLE: &str = "unavailable";

/// The metrics of one member's collector.
#[derive(Debug)]
pub(super) struct CollectorMetrics {
    cluster: String,
    seen: Family<Labels, Gauge>,
    parts: Family<Labels, Gauge>,
    published_parts: Counters,
    published_bytes: Counters,
    failures: Counters,
}

impl CollectorMetrics {
    pub(super) fn register(cluster: &str, registry: &SharedRegistry) -> Self {
        let metrics = Self {
            cluster: cluster.to_owned(),
            seen: Family::default(),
            parts: Family::default(),
            published_parts: Counters::default(),
            published_bytes: Counters::default(),
            failures: Counters::default(),
        };
        // Shown from the start, so that a rate counts the first.
        for kind in [MEMBER, REFUSED, UNAVAILABLE] {
            drop(metrics.failures.get_or_create(&FAILURES.build_labels([cluster, kind])));
        }
        SEEN.register(registry, metrics.seen.clone());
        PARTS.register(registry, metrics.parts.clone());
        PUBLISHED_PARTS.register(registry, metrics.published_parts.clone());
        PUBLISHED_BYTES.register(registry, metrics.published_bytes.clone());
        FAILURES.register(registry, metrics.failures.clone());
        metrics
    }

    /// A heartbeat was written.
    pub(super) fn observe_heartbeat(&self, seen: Timestamp, parts: u32) {
        self.seen.get_or_create(&SEEN.build_labels([&self.cluster])).set(seen.as_second());
        self.parts.get_or_create(&PARTS.build_labels([&self.cluster])).set(parts.into());
    }

    /// A part was written.
    pub(super) fn count_part(&self, bytes: usize) {
        self.published_parts.get_or_create(&PUBLISHED_PARTS.build_labels([&self.cluster])).inc();
        self.published_bytes.get_or_create(&PUBLISHED_BYTES.build_labels([&self.cluster])).inc_by(bytes as u64);
    }

    /// The member can not be followed any more.
    pub(super) fn count_fault(&self) {
        self.count_failure(MEMBER);
    }

    /// Something could not be read or written on the host.
    pub(super) fn count_host_failure(&self, failure: &Failure) {
        self.count_failure(if matches!(failure, Failure::Refused { .. }) { REFUSED } else { UNAVAILABLE });
    }

    fn count_failure(&self, kind: &str) {
        self.failures.get_or_create(&FAILURES.build_labels([&self.cluster, kind])).inc();
    }
}
