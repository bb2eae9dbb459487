//! How many spans the collector did not get.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;

use crate::{metric::DROPPED_SPANS, serve::SharedRegistry};

/// Spans that were dropped by this process.
static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

pub(super) fn count_dropped(spans: usize) {
    DROPPED.inc_by(spans as u64);
}

/// Shows how many spans were dropped.
pub fn register_dropped(registry: &SharedRegistry) {
    DROPPED_SPANS.register(registry, DROPPED.clone());
}
