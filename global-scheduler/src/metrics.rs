//! The scheduler's metrics.

use std::{
    sync::{PoisonError, atomic::AtomicI64},
    time::Duration,
};

use caldera_runtime::serve::SharedRegistry;
use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};

use crate::decide::placement::Step;

/// The scheduler's metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    decisions: Family<[(&'static str, &'static str); 1], Counter>,
    seconds: Histogram,
    /// Writes that met a newer object.
    pub conflicts: Counter,
    /// Bindings that wait for capacity.
    pub unschedulable: Gauge<i64, AtomicI64>,
}

impl Metrics {
    /// New metrics, shown by `registry`.
    #[must_use]
    pub fn register_metrics(registry: &SharedRegistry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            seconds: Histogram::new(exponential_buckets(1e-6, 4.0, 10)),
            conflicts: Counter::default(),
            unschedulable: Gauge::default(),
        };
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = registry.sub_registry_with_prefix("caldera_scheduler");
        registry.register("decisions", "Decisions by what followed", metrics.decisions.clone());
        registry.register("decision_seconds", "Time of one decision", metrics.seconds.clone());
        registry.register("conflicts", "Writes that met a newer object", metrics.conflicts.clone());
        registry.register("pending_bindings", "Bindings that wait for capacity", metrics.unschedulable.clone());
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
        self.decisions.get_or_create(&[("result", result)]).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}
