//! How many writes wait, and for what, as told at `/debug/state`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// Written by the task that carries writes out, read by whoever asks.
#[derive(Debug, Default)]
pub(super) struct QueueLengths {
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    decisions: AtomicUsize,
    reports: AtomicUsize,
    held_back: AtomicUsize,
}

impl QueueLengths {
    pub(super) fn set_in_flight(&self, count: usize, most: usize) {
        self.in_flight.store(count, Ordering::Relaxed);
        self.most_in_flight.store(most, Ordering::Relaxed);
    }

    pub(super) fn set_waiting(&self, decisions: usize, reports: usize, held_back: usize) {
        self.decisions.store(decisions, Ordering::Relaxed);
        self.reports.store(reports, Ordering::Relaxed);
        self.held_back.store(held_back, Ordering::Relaxed);
    }

    pub(super) fn describe(&self) -> Value {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        json!({
            "inFlight": read(&self.in_flight),
            "mostInFlight": read(&self.most_in_flight),
            "decisions": read(&self.decisions),
            "reports": read(&self.reports),
            "heldBack": read(&self.held_back),
        })
    }
}
