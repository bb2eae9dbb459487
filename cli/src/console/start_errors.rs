//! How wrong expected starts are: what was first told of a job that waits, against its release.
//!
//! Rules:
//! 1. The first instant that a forecast has for a job counts, and no later one: that is what a user plans by. What may
//!    start at once is not counted.
//! 2. A job whose gate opens was released: the difference of the two, in whichever direction, is measured. So is what
//!    is first said of one that waits again.
//! 3. Nothing is measured where the job is gone, has ended, or waits for a person: it was held, suspended,
//!    or can not be admitted as it is.
//! 4. At most [`MOST_EXPECTED`] are kept; of jobs beyond them nothing is measured.
//! 5. Measured by the queue that the job is in at its release. Queues are what admins create: one that a job names and
//!    that is not there is none, and a queue that is gone is shown no more.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::{
    metric::{Histogram, Histograms, Kind, Metric},
    serve::SharedRegistry,
};
use jiff::Timestamp;

use crate::{
    latest_forecast::TimedForecast,
    view::{JobKey, State},
};

const MOST_EXPECTED: usize = 20_000;
/// On what it rests: all said how long they run, or some did not.
const ESTIMATED: &str = "estimated";
const ASSUMED: &str = "assumed";

/// How wrong they are.
pub const EXPECTED_START_ERROR: Metric = Metric {
    name: "caldera_expected_start_error_seconds",
    kind: Kind::Histogram,
    labels: &["queue", "basis"],
    help: "Between the start that was first expected of a job that waits and its release, earlier or later: `estimated` \
           where all that it rested on said how long it runs, else `assumed`",
};

/// What was first expected of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstExpected {
    /// As seconds since 1970.
    at: i64,
    basis: &'static str,
}

/// See the module.
#[derive(Debug)]
pub struct StartErrors {
    expected: BTreeMap<JobKey, FirstExpected>,
    /// When the forecast was made that was noted last.
    noted: Option<Timestamp>,
    /// Queues that are shown.
    queues: BTreeSet<String>,
    errors: Histograms,
}

impl StartErrors {
    pub fn register(registry: &SharedRegistry) -> Self {
        // To two minutes, to an hour, and to a day.
        let buckets =
            || Histogram::new([10, 30, 60, 120, 300, 900, 1_800, 3_600, 10_800, 28_800, 86_400].map(f64::from));
        let errors = Histograms::new_with_constructor(buckets as fn() -> Histogram);
        EXPECTED_START_ERROR.register(registry, errors.clone());
        Self { expected: BTreeMap::new(), noted: None, queues: BTreeSet::new(), errors }
    }

    /// Notes what a forecast says of jobs that nothing was said of. Linear in it; one that is known is passed over.
    pub fn note_forecast(&mut self, forecast: &TimedForecast) {
        if self.noted.replace(forecast.at) == Some(forecast.at) {
            return;
        }
        let Ok(starts) = &forecast.answer else { return };
        for (workload, start) in starts.list_starts() {
            let ahead = start.ahead.filter(|ahead| *ahead > 0);
            let (Some(ahead), Some(key)) = (ahead, JobKey::of_workload(workload)) else { continue };
            if self.expected.len() >= MOST_EXPECTED {
                break;
            }
            let basis = if start.sure { ESTIMATED } else { ASSUMED };
            let at = forecast.at.as_second().saturating_add(ahead);
            self.expected.entry(key).or_insert(FirstExpected { at, basis });
        }
    }

    /// Measures jobs that were released since the last look, by the queues that there are. Linear in these and in the
    /// jobs that are kept.
    pub fn observe_states<'a>(
        &mut self,
        queues: impl Iterator<Item = &'a str>,
        state_of: impl Fn(&JobKey) -> Option<(State, &'a str)>,
        now: Timestamp,
    ) {
        self.show_queues(queues);
        let (errors, known) = (&self.errors, &self.queues);
        self.expected.retain(|key, expected| match state_of(key) {
            Some((State::Waiting, _)) => true,
            Some((State::Admitted | State::Starting | State::Running, queue)) => {
                let seconds = now.as_second().abs_diff(expected.at);
                let queue = if known.contains(queue) { queue } else { "" };
                let labels = EXPECTED_START_ERROR.build_labels([queue, expected.basis]);
                errors.get_or_create(&labels).observe(seconds as f64);
                false
            }
            _ => false,
        });
    }

    /// Shows each queue from its start, so that a rate counts the first, and no longer than it is there.
    fn show_queues<'a>(&mut self, queues: impl Iterator<Item = &'a str>) {
        let there: BTreeSet<&str> = queues.collect();
        let labels = |queue: &str| [ESTIMATED, ASSUMED].map(|basis| EXPECTED_START_ERROR.build_labels([queue, basis]));
        self.queues.retain(|queue| {
            let is_there = there.contains(queue.as_str());
            if !is_there {
                for labels in labels(queue) {
                    self.errors.remove(&labels);
                }
            }
            is_there
        });
        for queue in there {
            if self.queues.insert(queue.to_owned()) {
                labels(queue).iter().for_each(|labels| drop(self.errors.get_or_create(labels)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::gang::WorkloadRef;
    use caldera_runtime::metric::{encode, find_undeclared};

    use super::*;
    use crate::expected_start::{ExpectedStart, Forecast};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn workload(name: &str) -> WorkloadRef {
        let text = str::to_owned;
        WorkloadRef { group: text("batch.volcano.sh"), kind: text("Job"), namespace: text("ns"), name: text(name) }
    }

    /// Seconds ahead of jobs, and whether that is sure.
    fn forecast(made: i64, starts: &[(&str, Option<i64>, bool)]) -> TimedForecast {
        let start = |ahead, sure| ExpectedStart { at: None, ahead, sure, basis: String::new() };
        let starts = starts.iter().map(|(name, ahead, sure)| (workload(name), start(*ahead, *sure))).collect();
        TimedForecast { at: at(made), answer: Ok(Forecast::of_starts(starts)), places: BTreeMap::new() }
    }

    #[test]
    fn what_was_first_expected_is_held_against_the_release_and_what_a_person_stopped_is_not_measured() {
        let registry = SharedRegistry::default();
        let mut errors = StartErrors::register(&registry);
        let all =
            [("late", Some(100), true), ("early", Some(900), false), ("held", Some(100), true), ("now", Some(0), true)];
        errors.note_forecast(&forecast(1_000, &all));
        errors.note_forecast(&forecast(1_050, &[("late", Some(5_000), true), ("unknown", None, false)]));
        assert_eq!(errors.expected.len(), 3, "what may start at once, and what is not known, is not kept");
        let states = |key: &JobKey| match key.name.as_str() {
            "late" => Some((State::Waiting, "q")),
            "early" => Some((State::Running, "tenants-word")),
            "held" => Some((State::Held, "q")),
            _ => None,
        };
        errors.observe_states(["q", "r"].into_iter(), states, at(1_500));
        errors.observe_states(["q"].into_iter(), |_| Some((State::Admitted, "q")), at(1_160));
        assert!(errors.expected.is_empty());
        let text = encode(&registry).unwrap();
        for line in [
            // 400 s before.
            "caldera_expected_start_error_seconds_sum{queue=\"\",basis=\"assumed\"} 400.0",
            // 60 s after what was first said, whatever was said later.
            "caldera_expected_start_error_seconds_sum{queue=\"q\",basis=\"estimated\"} 60.0",
            "caldera_expected_start_error_seconds_count{queue=\"q\",basis=\"estimated\"} 1",
            "caldera_expected_start_error_seconds_count{queue=\"q\",basis=\"assumed\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line}: {text}");
        }
        assert!(!text.contains("tenants-word") && !text.contains("queue=\"r\""), "{text}");
        assert!(find_undeclared(&text, &[EXPECTED_START_ERROR]).is_empty(), "{text}");
        // It waits again: it is kept anew.
        errors.note_forecast(&forecast(2_000, &[("late", Some(10), true)]));
        assert_eq!(errors.expected.len(), 1);
    }

    #[test]
    fn a_forecast_is_noted_once_and_what_is_kept_is_bounded() {
        let mut errors = StartErrors::register(&SharedRegistry::default());
        let names: Vec<String> = (0..MOST_EXPECTED + 5).map(|at| format!("j{at}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), Some(60), true)).collect();
        let many = forecast(1_000, &many);
        errors.note_forecast(&many);
        assert_eq!(errors.expected.len(), MOST_EXPECTED);
        errors.observe_states(std::iter::empty(), |_| None, at(1_001));
        errors.note_forecast(&many);
        assert!(errors.expected.is_empty(), "the same forecast is not noted again");
    }
}
