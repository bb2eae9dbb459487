//! How writes go: how long they take, which fail and how, and whether those of a kind have failed for a minute.
//!
//! Rule: each kind of write is judged by itself, as a lease that is renewed says nothing of bindings that can not be
//! written. 404, 409 and 422 neither begin nor end a failure, and refusals to create in a single namespace do not
//! count: its quota may be used up, or it is being deleted. A kind is failing once all its writes failed for
//! [`FAILING_AFTER`], until one succeeds or none was tried for [`FAILURE_EXPIRES_AFTER`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::metric::{Counters, Histograms, Kind, Metric, SharedRegistry};
use prometheus_client::metrics::histogram::Histogram;

/// How long writes of a kind must have failed.
pub const FAILING_AFTER: Duration = Duration::from_secs(60);
/// How long after the last failure nobody knows any more.
pub const FAILURE_EXPIRES_AFTER: Duration = Duration::from_secs(300);

/// Writes that were sent.
pub const SENT: Metric = Metric {
    name: "caldera_api_writes",
    kind: Kind::Counter,
    labels: &["component", "verb", "resource"],
    help: "Writes that were sent to Kubernetes APIs",
};
/// How long writes take.
pub const DURATION: Metric = Metric {
    name: "caldera_write_duration_seconds",
    kind: Kind::Histogram,
    labels: &["kind"],
    help: "From a write to the API server's answer, by resource and subresource",
};
/// Writes that were not carried out.
pub const FAILED: Metric = Metric {
    name: "caldera_failed_writes",
    kind: Kind::Counter,
    labels: &["kind", "outcome"],
    help: "Writes that were not carried out: conflict (409), gone (404), invalid (422, also a patch of what has changed), \
           refused (other 4xx), unavailable (429, 5xx, no answer)",
};
/// All of these.
pub const WRITES: [Metric; 3] = [SENT, DURATION, FAILED];

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Conflict,
    Gone,
    Invalid,
    Refused,
    Unavailable,
}

impl Outcome {
    /// By the status of the answer; none came if there is none.
    pub(crate) const fn of_status(status: Option<u16>) -> Self {
        match status {
            Some(200..=299) => Self::Done,
            Some(409) => Self::Conflict,
            Some(404) => Self::Gone,
            Some(422) => Self::Invalid,
            Some(429 | 500..) | None => Self::Unavailable,
            Some(_) => Self::Refused,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Since when writes of a kind have failed, and the last one that did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failing {
    first: Instant,
    last: Instant,
    outcome: Outcome,
    /// The namespace, where every failure was its refusal of something new.
    only_in: Option<String>,
}

impl Failing {
    /// The first failure of a kind, or the first after a long time.
    fn begin(outcome: Outcome, created_in: Option<&str>, now: Instant) -> Self {
        let only_in = created_in.filter(|_| outcome == Outcome::Refused).map(ToOwned::to_owned);
        Self { first: now, last: now, outcome, only_in }
    }

    fn add_failure(&mut self, outcome: Outcome, created_in: Option<&str>, now: Instant) {
        (self.last, self.outcome) = (now, outcome);
        if outcome != Outcome::Refused || self.only_in.as_deref() != created_in {
            self.only_in = None;
        }
    }
}

/// How writes go. Clones share it.
#[derive(Debug, Clone)]
pub struct WriteMetrics {
    sent: Counters,
    durations: Histograms,
    failed: Counters,
    /// By kind and outcome, when one was last not carried out.
    last_failures: Arc<Mutex<BTreeMap<(String, &'static str), Instant>>>,
    failing: Arc<Mutex<BTreeMap<String, Failing>>>,
}

impl Default for WriteMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new([0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0]);
        let durations = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        Self {
            sent: Counters::default(),
            durations,
            failed: Counters::default(),
            last_failures: Arc::default(),
            failing: Arc::default(),
        }
    }
}

impl WriteMetrics {
    /// Shows them.
    pub fn register(&self, registry: &SharedRegistry) {
        SENT.register(registry, self.sent.clone());
        DURATION.register(registry, self.durations.clone());
        FAILED.register(registry, self.failed.clone());
    }

    /// A write is sent.
    pub(crate) fn count_sent(&self, component: &str, verb: &str, resource: &str) {
        self.sent.get_or_create(&SENT.build_labels([component, verb, resource])).inc();
    }

    /// Takes in what became of a write; of one that creates something for a user, in which namespace.
    pub(crate) fn observe_outcome(
        &self,
        kind: &str,
        created_in: Option<&str>,
        outcome: Outcome,
        took: Duration,
        now: Instant,
    ) {
        self.durations.get_or_create(&DURATION.build_labels([kind])).observe(took.as_secs_f64());
        if outcome != Outcome::Done {
            self.failed.get_or_create(&FAILED.build_labels([kind, outcome.as_str()])).inc();
            let mut last = self.last_failures.lock().unwrap_or_else(PoisonError::into_inner);
            last.insert((kind.to_owned(), outcome.as_str()), now);
        }
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Outcome::Done => drop(failing.remove(kind)),
            Outcome::Conflict | Outcome::Gone | Outcome::Invalid => {}
            Outcome::Refused | Outcome::Unavailable => {
                let first = Failing::begin(outcome, created_in, now);
                let one = failing.entry(kind.to_owned()).or_insert_with(|| first.clone());
                if now.duration_since(one.last) > FAILURE_EXPIRES_AFTER {
                    *one = first;
                }
                one.add_failure(outcome, created_in, now);
            }
        }
    }

    /// Which writes have failed for a minute, in words.
    #[must_use]
    pub fn describe_failing(&self, now: Instant) -> Option<String> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let long = failing.iter().filter(|(_, one)| {
            let is_failing = one.last.duration_since(one.first) >= FAILING_AFTER && one.only_in.is_none();
            is_failing && now.duration_since(one.last) <= FAILURE_EXPIRES_AFTER
        });
        let words: Vec<String> = long
            .map(|(kind, one)| {
                let seconds = now.duration_since(one.first).as_secs();
                format!("all writes of {kind} have failed for {seconds} s ({})", one.outcome.as_str())
            })
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

/// What is told of failures at `/debug/state`.
impl WriteMetrics {
    /// When writes of each kind last failed, by outcome. Kinds are resources that this process writes, so that these
    /// are few.
    #[must_use]
    pub fn list_last_failures(&self, now: Instant) -> Vec<Value> {
        let last = self.last_failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |kind: &str, outcome: &str| {
            self.failed.get(&FAILED.build_labels([kind, outcome])).map_or(0, |counter| counter.get())
        };
        let describe = |((kind, outcome), at): (&(String, &'static str), &Instant)| {
            let seconds = now.duration_since(*at).as_secs();
            json!({"kind": kind, "outcome": outcome, "count": count(kind, outcome), "secondsAgo": seconds})
        };
        last.iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{encode, find_undeclared};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn writes_of_a_kind_are_failing_once_all_have_failed_for_a_minute() {
        let (writes, start) = (WriteMetrics::default(), Instant::now());
        let at = |seconds: u32, kind: &str, status: Option<u16>| {
            writes.observe_outcome(kind, None, Outcome::of_status(status), SECOND, start + SECOND * seconds);
        };
        let trouble = |seconds: u32| writes.describe_failing(start + SECOND * seconds);
        at(0, "queues", None);
        at(30, "leases", Some(200));
        at(59, "queues", Some(503));
        assert_eq!(trouble(120), None);
        at(60, "queues", Some(409));
        at(61, "queues", Some(403));
        assert_eq!(trouble(70).unwrap(), "all writes of queues have failed for 70 s (refused)");
        // Nobody tried for long.
        assert_eq!(trouble(362), None);
        at(400, "queues", None);
        assert_eq!(trouble(400), None);
        at(470, "queues", None);
        assert!(trouble(470).is_some());
        at(471, "queues", Some(201));
        assert_eq!(trouble(471), None);
    }

    #[tokio::test]
    async fn what_one_namespace_refuses_to_have_created_is_no_failure() {
        let (writes, start) = (WriteMetrics::default(), Instant::now());
        let at = |seconds: u32, namespace: Option<&str>, status: Option<u16>| {
            writes.observe_outcome("events", namespace, Outcome::of_status(status), SECOND, start + SECOND * seconds);
        };
        let is_failing = |seconds: u32| writes.describe_failing(start + SECOND * seconds).is_some();
        at(0, Some("full"), Some(403));
        at(60, Some("full"), Some(403));
        assert!(!is_failing(60));
        at(61, Some("other"), Some(403));
        assert!(is_failing(61), "two refuse it: we may not");
        at(62, Some("other"), Some(201));
        at(63, Some("full"), Some(403));
        at(125, Some("full"), None);
        assert!(is_failing(125), "no answer is nobody's refusal");
    }

    #[tokio::test]
    async fn the_last_failure_of_each_kind_and_outcome_is_known() {
        let (writes, start) = (WriteMetrics::default(), Instant::now());
        for (seconds, kind, status) in [
            (0, "queues", None),
            (10, "queues", Some(409)),
            (20, "queues", None),
            (30, "queues", Some(200)),
            (40, "jobs", Some(200)),
        ] {
            writes.observe_outcome(kind, None, Outcome::of_status(status), SECOND, start + SECOND * seconds);
        }
        let expected = [
            json!({"kind": "queues", "outcome": "conflict", "count": 1, "secondsAgo": 50}),
            json!({"kind": "queues", "outcome": "unavailable", "count": 2, "secondsAgo": 40}),
        ];
        assert_eq!(writes.list_last_failures(start + SECOND * 60), expected);
    }

    #[tokio::test]
    async fn what_is_shown_of_writes_is_what_is_declared() {
        let (writes, registry) = (WriteMetrics::default(), SharedRegistry::default());
        writes.register(&registry);
        for status in [Some(200), Some(409), Some(404), Some(422), Some(403), Some(500), None] {
            writes.observe_outcome("queues/status", None, Outcome::of_status(status), SECOND, Instant::now());
        }
        writes.count_sent("controller", "patch", "queues/status");
        let text = encode(&registry).unwrap();
        assert_eq!(find_undeclared(&text, &WRITES), [""; 0], "{text}");
        assert!(
            text.contains("caldera_failed_writes_total{kind=\"queues/status\",outcome=\"unavailable\"} 2\n"),
            "{text}"
        );
    }
}
