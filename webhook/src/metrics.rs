//! How long reviews take, which bodies were not read, and when watches last told of something. What a value means is
//! said in the constants, from which `docs/metrics.md` is made.

use std::{collections::BTreeSet, time::Duration};

use caldera_runtime::{
    metric::{Counters, Histograms, Kind, LastEvents, Metric},
    serve::SharedRegistry,
};
use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;

use crate::observe::host_watch::HostEvent;

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
/// When a watch last told of something.
pub const LAST_EVENT: Metric = Metric {
    name: "caldera_webhook_watch_last_event_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["kind"],
    help: "When something of a watched kind was last told, in seconds since 1970; a kind that nothing was told of has \
           none",
};
/// All of the webhook's.
pub const ALL: [Metric; 3] = [REVIEW, REFUSED, LAST_EVENT];

/// The webhook's metrics.
#[derive(Debug)]
pub struct Metrics {
    durations: Histograms,
    refusals: Counters,
    last_events: LastEvents,
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
        Self { durations, refusals, last_events: LastEvents::register(&LAST_EVENT, registry) }
    }

    /// Events of watched kinds are told.
    pub fn observe_events(&self, events: &[HostEvent], now: Timestamp) {
        let kinds: BTreeSet<&str> = events.iter().map(HostEvent::kind).collect();
        kinds.into_iter().for_each(|kind| self.last_events.observe_event(kind, now));
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
    use caldera_crds::workload::WorkloadKind;
    use caldera_runtime::{
        metric::{encode, find_undeclared},
        watch::Event,
    };

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_declared() {
        let registry = SharedRegistry::default();
        let metrics = Metrics::register_metrics(&registry);
        metrics.observe_review("works", Duration::from_millis(1));
        metrics.count_refused_body(413);
        metrics.observe_events(&[HostEvent::Queues(Event::Reset(Vec::new()))], Timestamp::UNIX_EPOCH);
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &ALL), [""; 0], "{text}");
    }

    #[test]
    fn a_watch_of_jobs_that_fell_silent_is_seen_beside_that_of_volcano_jobs() {
        let registry = SharedRegistry::default();
        let metrics = Metrics::register_metrics(&registry);
        for (kind, second) in [(WorkloadKind::BatchJob, 1), (WorkloadKind::VolcanoJob, 2)] {
            let event = HostEvent::Workloads(kind, Event::Reset(Vec::new()));
            metrics.observe_events(&[event], Timestamp::from_second(second).unwrap());
        }
        let text = encode(&registry).unwrap();
        for reported in ["{kind=\"Job\"} 1\n", "{kind=\"Volcano Job\"} 2\n"] {
            assert!(text.contains(reported), "{text}");
        }
    }
}
