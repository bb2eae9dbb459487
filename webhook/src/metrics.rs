//! How long reviews take, and which bodies were not read. What a value means is said in the constants, from which
//! `docs/metrics.md` is made.

use std::time::Duration;

use caldera_runtime::{
    metric::{Counters, Histograms, Kind, Metric},
    serve::SharedRegistry,
};
use prometheus_client::metrics::histogram::Histogram;

/// How long reviews take.
pub const REVIEW: Metric = Metric {
    name: "caldera_webhook_review_duration_seconds",
    kind: Kind::Histogram,
    labels: &["route"],
    help: "Time from request to answer",
};
/// Requests that were not read.
pub const REFUSED: Metric = Metric {
    name: "caldera_webhook_refused_bodies",
    kind: Kind::Counter,
    labels: &["status"],
    help: "Requests whose body was not read, by the HTTP status they got",
};
/// All of the webhook's.
pub const ALL: [Metric; 2] = [REVIEW, REFUSED];

/// The webhook's metrics.
#[derive(Debug)]
pub struct Metrics {
    durations: Histograms,
    refusals: Counters,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn register_metrics(registry: &SharedRegistry) -> Self {
        let buckets = || Histogram::new([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]);
        let durations = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        let refusals = Counters::default();
        REVIEW.register(registry, durations.clone());
        REFUSED.register(registry, refusals.clone());
        Self { durations, refusals }
    }

    /// Counts a body that was not read.
    pub fn count_refused_body(&self, status: u16) {
        self.refusals.get_or_create(&REFUSED.build_labels([status.to_string().as_str()])).inc();
    }

    /// Counts one review and its time.
    pub fn observe_review(&self, route: &'static str, elapsed: Duration) {
        self.durations.get_or_create(&REVIEW.build_labels([route])).observe(elapsed.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::metric::{encode, find_undeclared};

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_declared() {
        let registry = SharedRegistry::default();
        let metrics = Metrics::register_metrics(&registry);
        metrics.observe_review("works", Duration::from_millis(1));
        metrics.count_refused_body(413);
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &ALL), [""; 0], "{text}");
    }
}
