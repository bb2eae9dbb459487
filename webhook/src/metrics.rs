//! How long reviews take, and which bodies were not read.

use std::time::Duration;

use caldera_runtime::serve::SharedRegistry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    status: u16,
}

/// The webhook's metrics.
#[derive(Debug)]
pub struct Metrics {
    durations: Family<Route, Histogram, fn() -> Histogram>,
    refusals: Family<Refusal, Counter>,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn register_metrics(registry: &SharedRegistry) -> Self {
        let buckets = || Histogram::new([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]);
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        let mut registry = registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        registry.register("caldera_webhook_review_duration_seconds", "Time from request to answer", durations.clone());
        let refusals = Family::default();
        let about = "Requests whose body was not read, by the HTTP status they got";
        registry.register("caldera_webhook_refused_bodies", about, refusals.clone());
        Self { durations, refusals }
    }

    /// Counts a body that was not read.
    pub fn count_refusal(&self, status: u16) {
        self.refusals.get_or_create(&Refusal { status }).inc();
    }

    /// Counts one review and its time.
    pub fn observe_review(&self, route: &'static str, elapsed: Duration) {
        self.durations.get_or_create(&Route { route }).observe(elapsed.as_secs_f64());
    }
}
