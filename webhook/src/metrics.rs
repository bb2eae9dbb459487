//! How long reviews take.

use std::time::Duration;

use caldera_runtime::serve::SharedRegistry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

/// The webhook's metrics.
#[derive(Debug)]
pub struct Metrics {
    durations: Family<Route, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn register_metrics(registry: &SharedRegistry) -> Self {
        let buckets = || Histogram::new([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]);
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        let mut registry = registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        registry.register("caldera_webhook_review_duration_seconds", "Time from request to answer", durations.clone());
        Self { durations }
    }

    /// Counts one review and its time.
    pub fn observe_review(&self, route: &'static str, elapsed: Duration) {
        self.durations.get_or_create(&Route { route }).observe(elapsed.as_secs_f64());
    }
}
