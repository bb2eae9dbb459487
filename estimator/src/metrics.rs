//! Which questions an estimator answers, how long that takes, and which it refuses. What a value means is said in the
//! constants, from which `docs/metrics.md` is made.

use std::time::Duration;

use caldera_runtime::{
    metric::{Counters, Histogram, Histograms, Kind, Metric},
    serve::SharedRegistry,
};
use tonic::Code;

/// How long answers take, and how many there are.
pub const ANSWER: Metric = Metric {
    name: "caldera_estimator_answer_duration_seconds",
    kind: Kind::Histogram,
    labels: &["method"],
    help: "From a question to its answer or refusal, by gRPC's method",
};
/// Questions without an answer.
pub const REFUSED: Metric = Metric {
    name: "caldera_estimator_refused_questions",
    kind: Kind::Counter,
    labels: &["method", "status"],
    help: "Questions that got no answer, by gRPC's status: InvalidArgument (about another cluster, or beyond the limits), \
           ResourceExhausted and Unavailable (no room, or the member does not answer), DeadlineExceeded, others",
};
/// All of the estimator's.
pub const ALL: [Metric; 2] = [ANSWER, REFUSED];

/// The estimator's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    durations: Histograms,
    refusals: Counters,
}

impl Metrics {
    /// Shows them.
    pub(crate) fn register(registry: &SharedRegistry) -> Self {
        // karmada-scheduler waits for three seconds.
        let buckets = || Histogram::new([0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]);
        let durations = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        let refusals = Counters::default();
        ANSWER.register(registry, durations.clone());
        REFUSED.register(registry, refusals.clone());
        Self { durations, refusals }
    }

    /// A question was answered, or refused with this status.
    pub(crate) fn observe_answer(&self, method: &str, refusal: Option<Code>, took: Duration) {
        self.durations.get_or_create(&ANSWER.build_labels([method])).observe(took.as_secs_f64());
        if let Some(code) = refusal {
            self.refusals.get_or_create(&REFUSED.build_labels([method, &format!("{code:?}")])).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use caldera_runtime::metric::{encode, find_undeclared};

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_declared() {
        let registry = SharedRegistry::default();
        let metrics = Metrics::register(&registry);
        metrics.observe_answer("MaxAvailableReplicas", Some(Code::InvalidArgument), Duration::from_millis(1));
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &ALL), [""; 0], "{text}");
    }
}
