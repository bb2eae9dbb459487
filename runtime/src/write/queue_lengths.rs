//! How many writes wait, and for what, as told at `/debug/state`; of those in flight also as metrics.

use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};

/// Written by the task that carries writes out, read by whoever asks.
#[derive(Debug, Default)]
pub(super) struct QueueLengths {
    in_flight: Gauge,
    most_in_flight: Gauge,
    decisions: AtomicUsize,
    reports: AtomicUsize,
    held_back: AtomicUsize,
}

impl QueueLengths {
    pub(super) fn set_in_flight(&self, count: usize, most: usize) {
        let to_number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.in_flight.set(to_number(count));
        self.most_in_flight.set(to_number(most));
    }

    pub(super) fn set_waiting(&self, decisions: usize, reports: usize, held_back: usize) {
        self.decisions.store(decisions, Ordering::Relaxed);
        self.reports.store(reports, Ordering::Relaxed);
        self.held_back.store(held_back, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> Gauge {
        self.in_flight.clone()
    }

    pub(super) fn most_in_flight(&self) -> Gauge {
        self.most_in_flight.clone()
    }

    pub(super) fn describe(&self) -> Value {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        json!({
            "inFlight": self.in_flight.get(),
            "mostInFlight": self.most_in_flight.get(),
            "decisions": read(&self.decisions),
            "reports": read(&self.reports),
            "heldBack": read(&self.held_back),
        })
    }
}
