//! What the controller measures.

use caldera_runtime::serve::SharedRegistry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByQueue {
    pub(crate) queue: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) released: Counter,
    pub(crate) evicted: Counter,
    pub(crate) forged: Counter,
    pub(crate) pending: Family<ByQueue, Gauge>,
    pub(crate) freed_to_release: Histogram,
    pub(crate) decision: Histogram,
    pub(crate) writes_failed: Counter,
}

impl Metrics {
    pub(crate) fn register_in(registry: &SharedRegistry) -> Self {
        let buckets = || exponential_buckets(0.000_05, 2.0, 18);
        let metrics = Self {
            released: Counter::default(),
            evicted: Counter::default(),
            forged: Counter::default(),
            pending: Family::default(),
            freed_to_release: Histogram::new(buckets()),
            decision: Histogram::new(buckets()),
            writes_failed: Counter::default(),
        };
        let mut registry = registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let registry = registry.sub_registry_with_prefix("caldera");
        registry.register("released_bindings", "Bindings released", metrics.released.clone());
        registry.register("evicted_bindings", "Bindings evicted for others, or requeued", metrics.evicted.clone());
        registry.register(
            "forged_records",
            "Admissions and placements that no controller made, taken away",
            metrics.forged.clone(),
        );
        registry.register("pending_bindings", "Bindings in line, by queue", metrics.pending.clone());
        registry.register(
            "quota_freed_to_release_seconds",
            "From the event that gave quota back to the release that it made possible, sent",
            metrics.freed_to_release.clone(),
        );
        registry.register("decision_duration_seconds", "One decision", metrics.decision.clone());
        registry.register("failed_writes", "Writes that were refused or not answered", metrics.writes_failed.clone());
        metrics
    }
}
