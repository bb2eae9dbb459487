//! The scheduler's metrics. What a value means is said in the constants, from which `docs/metrics.md` is made.

use std::{sync::atomic::AtomicI64, time::Duration};

use caldera_runtime::{
    metric::{Counters, Kind, LastEvents, Metric},
    serve::SharedRegistry,
};
use jiff::Timestamp;
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
/// When a watch last told of something.
pub const LAST_EVENT: Metric = Metric {
    name: "caldera_scheduler_watch_last_event_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["kind"],
    help: "When something of a watched kind was last told, in seconds since 1970; a kind that nothing was told of has \
           none",
};
/// Writes that wait for their answer, or for their turn.
pub const PENDING_WRITES: Metric = Metric {
    name: "caldera_scheduler_pending_writes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Writes that are queued or in flight",
};
/// Writes that wait for their answer.
pub const WRITES_IN_FLIGHT: Metric = Metric {
    name: "caldera_scheduler_writes_in_flight",
    kind: Kind::Gauge,
    labels: &[],
    help: "Writes that were sent and are not answered yet",
};
/// How many they may be.
pub const MOST_WRITES_IN_FLIGHT: Metric = Metric {
    name: "caldera_scheduler_most_writes_in_flight",
    kind: Kind::Gauge,
    labels: &[],
    help: "How many may be in flight at once, as quickly as the Karmada API answers now: 1 to 64",
};
/// Shown by the writer.
pub const WRITE_QUEUE: [Metric; 3] = [PENDING_WRITES, WRITES_IN_FLIGHT, MOST_WRITES_IN_FLIGHT];
/// All others of the scheduler's.
pub const ALL: [Metric; 6] = [DECISIONS, DECISION, CONFLICTS, UNSCHEDULABLE, PENDING_ESTIMATES, LAST_EVENT];

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
    last_events: LastEvents,
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
            last_events: LastEvents::register(&LAST_EVENT, registry),
        };
        DECISIONS.register(registry, metrics.decisions.clone());
        DECISION.register(registry, metrics.seconds.clone());
        CONFLICTS.register(registry, metrics.conflicts.clone());
        UNSCHEDULABLE.register(registry, metrics.unschedulable.clone());
        PENDING_ESTIMATES.register(registry, metrics.pending_estimates.clone());
        metrics
    }

    /// Something of a watched kind is told.
    pub fn observe_event(&self, kind: &str, now: Timestamp) {
        self.last_events.observe_event(kind, now);
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
        let metrics = Metrics::register_metrics(&registry);
        metrics.count_decision(&Step::Rest, Duration::from_millis(1));
        metrics.observe_event("Cluster", Timestamp::UNIX_EPOCH);
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &ALL), [""; 0], "{text}");
    }
}
