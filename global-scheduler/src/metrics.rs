//! The scheduler's metrics. What a value means is said in the constants, from which `docs/metrics.md` is made.

use std::{sync::atomic::AtomicI64, time::Duration};

use caldera_runtime::{
    metric::{Counters, Kind, Metric},
    serve::SharedRegistry,
};
use prometheus_client::metrics::{
    counter::Counter,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};

use crate::decide::placement::Step;

/// Decisions, by what followed.
pub const DECISIONS: Metric = Metric {
    name: "caldera_scheduler_decisions",
    kind: Kind::Counter,
    labels: &["result"],
    help: "Decisions by what followed: placed, confirmed, refused, nothing",
};
/// How long they take.
pub const DECISION: Metric = Metric {
    name: "caldera_scheduler_decision_seconds",
    kind: Kind::Histogram,
    labels: &[],
    help: "Time of one decision",
};
/// Writes that met a newer object.
pub const CONFLICTS: Metric = Metric {
    name: "caldera_scheduler_conflicts",
    kind: Kind::Counter,
    labels: &[],
    help: "Writes that met a newer object",
};
/// Bindings that wait for capacity.
pub const UNSCHEDULABLE: Metric = Metric {
    name: "caldera_scheduler_pending_bindings",
    kind: Kind::Gauge,
    labels: &[],
    help: "Admitted bindings that wait for capacity",
};
/// Questions to estimators that are open.
pub const PENDING_ESTIMATES: Metric = Metric {
    name: "caldera_scheduler_pending_estimates",
    kind: Kind::Gauge,
    labels: &[],
    help: "Questions to members' estimators whose answer was not taken in yet",
};
/// All of the scheduler's.
pub const ALL: [Metric; 5] = [DECISIONS, DECISION, CONFLICTS, UNSCHEDULABLE, PENDING_ESTIMATES];

/// The scheduler's metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    decisions: Counters,
    seconds: Histogram,
    /// Writes that met a newer object.
    pub conflicts: Counter,
    /// Bindings that wait for capacity.
    pub unschedulable: Gauge<i64, AtomicI64>,
    /// Questions to estimators that are open.
    pub pending_estimates: Gauge<i64, AtomicI64>,
}

impl Metrics {
    /// New metrics, shown by `registry`.
    #[must_use]
    pub fn register_metrics(registry: &SharedRegistry) -> Self {
        let metrics = Self {
            decisions: Counters::default(),
            seconds: Histogram::new(exponential_buckets(1e-6, 4.0, 10)),
            conflicts: Counter::default(),
            unschedulable: Gauge::default(),
            pending_estimates: Gauge::default(),
        };
        DECISIONS.register(registry, metrics.decisions.clone());
        DECISION.register(registry, metrics.seconds.clone());
        CONFLICTS.register(registry, metrics.conflicts.clone());
        UNSCHEDULABLE.register(registry, metrics.unschedulable.clone());
        PENDING_ESTIMATES.register(registry, metrics.pending_estimates.clone());
        metrics
    }

    /// Counts a decision.
    pub fn count_decision(&self, step: &Step, took: Duration) {
        let result = match step {
            Step::Rest => "nothing",
            Step::Place(_) => "placed",
            Step::Confirm { .. } => "confirmed",
            Step::Refuse { .. } => "refused",
        };
        self.decisions.get_or_create(&DECISIONS.build_labels([result])).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::metric::{encode, find_undeclared};

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_declared() {
        let registry = SharedRegistry::default();
        Metrics::register_metrics(&registry).count_decision(&Step::Rest, Duration::from_millis(1));
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &ALL), [""; 0], "{text}");
    }
}
