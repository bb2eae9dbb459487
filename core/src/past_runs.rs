//! How long a job is expected to run: what it says, corrected by how long the last jobs of its queue ran.
//!
//! Rule: users say far too much, or nothing, and the recent past of the same people says more (Tsafrir, Etsion and
//! Feitelson, "Backfilling Using System-Generated Predictions Rather than User Runtime Estimates", IEEE TPDS 18(6),
//! 2007). So a job that says how long it runs is expected to take the part of it that the last jobs of its queue took
//! of what they said, and one that says nothing as long as the last jobs that said nothing ran: the mean, because what
//! waits behind many jobs waits for their sum. One that runs already is compared with those alone that ran for longer.
//! Fewer than [`FEWEST`] runs say nothing.
//!
//! There, jobs are killed once they ran for as long as they said, so no part is greater than one. Here nobody holds
//! them to it, and a tenant who says a second and runs for an hour would move the starts of all others in his queue: a
//! part counts as [`MOST_PART`] at most.
//!
//! It is told to people and never decided by.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::gang::QueueName;

/// Runs of a queue that are remembered, of each sort.
pub const MOST: usize = 64;
/// Queues whose runs are remembered: all of them fit into one object of 1 MiB.
pub const MOST_QUEUES: usize = 500;
/// As few say nothing.
pub const FEWEST: usize = 5;
/// Parts are whole millionths: of 30 days that is less than three seconds.
const WHOLE: u64 = 1_000_000;
/// A job that ran for longer than twice what it said is counted as that.
const MOST_PART: u64 = 2 * WHOLE;
/// One that ran for more seconds, as its status has it, is counted as that: 90 days.
const MOST_SECONDS: u64 = 90 * 24 * 3600;

/// The last runs of a queue's jobs, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct QueueRuns {
    /// Millionths of what they had said that jobs ran for.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    millionths: VecDeque<u64>,
    /// Seconds that those ran for that had said nothing.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    unsaid: VecDeque<u64>,
    /// Which of all runs was its last.
    #[serde(skip)]
    newest: u64,
}

/// The last runs by queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PastRuns {
    queues: BTreeMap<QueueName, QueueRuns>,
    /// How many were recorded.
    #[serde(skip)]
    recorded: u64,
}

impl PastRuns {
    /// Remembers that a job of a queue ran for so many seconds, and how many it had said. Beyond [`MOST_QUEUES`] the
    /// queue is forgotten whose last run was recorded first.
    pub fn record_run(&mut self, queue: &QueueName, ran: u64, said: Option<u64>) {
        self.recorded += 1;
        let runs = self.queues.entry(queue.clone()).or_default();
        runs.newest = self.recorded;
        match said.filter(|said| *said > 0) {
            Some(said) => push(&mut runs.millionths, measure_part(ran, said).min(MOST_PART)),
            None => push(&mut runs.unsaid, ran.min(MOST_SECONDS)),
        }
        if self.queues.len() > MOST_QUEUES {
            let oldest = self.queues.iter().min_by_key(|(_, runs)| runs.newest).map(|(queue, _)| queue.clone());
            oldest.and_then(|queue| self.queues.remove(&queue));
        }
    }

    /// How many seconds a job runs in all that says that it takes `said`, and has run for `ran` if it runs; `None`
    /// where the past says nothing.
    #[must_use]
    pub fn expect_run(&self, queue: &QueueName, said: Option<u64>, ran: Option<u64>) -> Option<u64> {
        let runs = self.queues.get(queue)?;
        match said.filter(|said| *said > 0) {
            Some(said) => {
                let part = mean_beyond(&runs.millionths, ran.map(|ran| measure_part(ran, said)))?;
                Some(scale_value(said, part, WHOLE).max(1))
            }
            None => Some(mean_beyond(&runs.unsaid, ran)?.max(1)),
        }
    }

    /// Whether it says something of jobs of a queue that say how long they run, or that do not.
    #[must_use]
    pub fn has_runs(&self, queue: &QueueName, is_said: bool) -> bool {
        let of = |runs: &QueueRuns| if is_said { runs.millionths.len() } else { runs.unsaid.len() };
        self.queues.get(queue).is_some_and(|runs| of(runs) >= FEWEST)
    }

    /// What all may read: sorted, so that it does not say which run was which; who compares two of them learns of the
    /// runs between. Runs of one sort that are so few that they say nothing are left out, and so are queues without
    /// others.
    #[must_use]
    pub fn anonymize_runs(&self) -> Self {
        let reported = |values: &VecDeque<u64>| {
            let mut values: Vec<u64> = values.iter().copied().filter(|_| values.len() >= FEWEST).collect();
            values.sort_unstable();
            VecDeque::from(values)
        };
        let publish = |runs: &QueueRuns| QueueRuns {
            millionths: reported(&runs.millionths),
            unsaid: reported(&runs.unsaid),
            newest: 0,
        };
        let queues = self.queues.iter().map(|(queue, runs)| (queue.clone(), publish(runs)));
        let queues = queues.filter(|(_, runs)| !runs.millionths.is_empty() || !runs.unsaid.is_empty());
        Self { queues: queues.collect(), recorded: 0 }
    }
}

fn push(values: &mut VecDeque<u64>, value: u64) {
    values.push_back(value);
    if values.len() > MOST {
        values.pop_front();
    }
}

/// Millionths of `said` that `ran` is.
fn measure_part(ran: u64, said: u64) -> u64 {
    scale_value(ran, WHOLE, said)
}

/// `value * times / by`, rounded down, and saturating.
fn scale_value(value: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(times) / u128::from(by.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The mean of all, or of those that are greater than `least`; `None` where there are too few in all, or none is.
fn mean_beyond(values: &VecDeque<u64>, least: Option<u64>) -> Option<u64> {
    let beyond = values.iter().filter(|value| least.is_none_or(|least| **value > least));
    let (sum, count) = beyond.fold((0_u64, 0_u64), |(sum, count), value| (sum.saturating_add(*value), count + 1));
    if values.len() < FEWEST { None } else { sum.checked_div(count) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_runs(runs: &[(u64, Option<u64>)]) -> PastRuns {
        let mut past = PastRuns::default();
        runs.iter().for_each(|(ran, said)| past.record_run(&"q".into(), *ran, *said));
        past
    }

    fn expect(past: &PastRuns, said: Option<u64>, ran: Option<u64>) -> Option<u64> {
        past.expect_run(&"q".into(), said, ran)
    }

    fn read_published(past: &PastRuns) -> PastRuns {
        serde_json::from_str(&serde_json::to_string(&past.anonymize_runs()).unwrap()).unwrap()
    }

    #[test]
    fn a_job_takes_the_part_of_what_it_says_that_the_last_of_its_queue_took() {
        let past = of_runs(&[(10, Some(100)), (20, Some(100)), (60, Some(200)), (400, Some(1000)), (50, Some(100))]);
        assert_eq!(expect(&past, Some(1000), None), Some(300));
        assert_eq!(past.expect_run(&"other".into(), Some(1000), None), None);
        // Jobs that say nothing are another sort.
        assert_eq!(expect(&past, None, None), None);
        assert!(past.has_runs(&"q".into(), true) && !past.has_runs(&"q".into(), false));
    }

    #[test]
    fn a_job_that_says_nothing_runs_as_long_as_the_last_that_said_nothing() {
        let past = of_runs(&[(10, None), (20, None), (30, None), (40, None), (400, None), (7, Some(7))]);
        assert_eq!(expect(&past, None, None), Some(100));
        assert_eq!(expect(&past, Some(7), None), None);
    }

    #[test]
    fn one_that_runs_is_compared_with_those_alone_that_ran_longer() {
        let past = of_runs(&[(10, None), (20, None), (30, None), (40, None), (400, None)]);
        assert_eq!(expect(&past, None, Some(30)), Some(220));
        assert_eq!(expect(&past, None, Some(400)), None);
    }

    #[test]
    fn the_shortest_runs_count_for_a_job_that_waits() {
        let day = 24 * 3600;
        let short = of_runs(&[(60, Some(7 * day)); MOST]);
        let expected = expect(&short, Some(7 * day), None).unwrap();
        assert!((59..=60).contains(&expected), "{expected}");
        assert_eq!(expect(&short, Some(7 * day), Some(61)), None);
        for said in [Some(day), None] {
            let none = of_runs(&[(0, said); MOST]);
            assert_eq!(expect(&none, said, None), Some(1));
            assert_eq!(expect(&none, said, Some(0)), None, "it outran them all");
            let mixed = of_runs(&[(0, said), (0, said), (0, said), (0, said), (500, said)]);
            let expected = expect(&mixed, said, None).unwrap();
            assert!((99..=100).contains(&expected), "{expected}");
        }
    }

    /// It is the tenant who writes what a job says: the cheapest lie is a second.
    #[test]
    fn one_job_that_says_far_too_little_moves_the_others_by_what_twice_its_word_moves_them() {
        let mut past = of_runs(&[(50, Some(100)); 7]);
        past.record_run(&"q".into(), 30 * 24 * 3600, Some(1));
        assert_eq!(expect(&past, Some(1_000), None), Some((7 * 500 + 2_000) / 8));
        let all = of_runs(&[(100, Some(1)); MOST]);
        assert_eq!(expect(&all, Some(1_000), None), Some(2_000));
        assert_eq!(expect(&all, Some(1_000), Some(2_000)), None);
    }

    #[test]
    fn fewer_than_five_runs_say_nothing_and_the_oldest_are_forgotten() {
        assert_eq!(expect(&of_runs(&[(10, None); FEWEST - 1]), None, None), None);
        let mut past = of_runs(&[(10, None); 1000]);
        (0..MOST).for_each(|_| past.record_run(&"q".into(), 50, None));
        assert_eq!(expect(&past, None, None), Some(50));
    }

    #[test]
    fn beyond_the_bound_the_queue_is_forgotten_whose_last_run_is_the_oldest() {
        let name = |queue: usize| QueueName::from(format!("q{queue}").as_str());
        let mut past = PastRuns::default();
        let mut record = |queue: usize| (0..FEWEST).for_each(|_| past.record_run(&name(queue), 1, None));
        (0..MOST_QUEUES).for_each(&mut record);
        record(0);
        record(MOST_QUEUES);
        let known = |queue: usize| past.has_runs(&name(queue), false);
        assert!(known(0) && !known(1) && known(2) && known(MOST_QUEUES));
        assert_eq!((0..=MOST_QUEUES).filter(|queue| known(*queue)).count(), MOST_QUEUES);
    }

    #[test]
    fn all_that_is_remembered_fits_into_one_object() {
        let mut past = PastRuns::default();
        for queue in 0..2 * MOST_QUEUES {
            let queue = format!("{queue:0>253}").as_str().into();
            (0..MOST).for_each(|_| past.record_run(&queue, u64::MAX, None));
            (0..MOST).for_each(|_| past.record_run(&queue, u64::MAX, Some(1)));
        }
        assert!(serde_json::to_string(&past.anonymize_runs()).unwrap().len() < 900_000);
    }

    #[test]
    fn what_says_nothing_is_not_published_and_nothing_in_the_order_in_which_it_was() {
        let past = of_runs(&[(9, None), (3, None), (7, None), (1, None), (5, None), (4, Some(4))]);
        assert_eq!(serde_json::to_string(&past.anonymize_runs()).unwrap(), r#"{"q":{"unsaid":[1,3,5,7,9]}}"#);
        assert_eq!(of_runs(&[(9, None); FEWEST - 1]).anonymize_runs(), PastRuns::default());
        // Thousandths, as they were written once, are no millionths.
        let old: PastRuns = serde_json::from_str(r#"{"q":{"parts":[500,500,500,500,500]}}"#).unwrap();
        assert_eq!(expect(&old, Some(1_000), None), None);
    }

    /// Ten days.
    const LONG: u64 = 10 * 24 * 3600;

    proptest! {
        #[test]
        fn what_is_expected_is_after_now_and_within_what_past_runs_allow(
            runs in prop::collection::vec((0..LONG, prop::option::of(1..LONG)), 0..100),
            said in prop::option::of(1..LONG),
            ran in prop::option::of(0..LONG / 10),
        ) {
            let past = of_runs(&runs);
            let expected = expect(&past, said, ran);
            prop_assert_eq!(expect(&read_published(&past), said, ran), expected);
            let alike: Vec<_> = runs.iter().filter(|(_, other)| other.is_some() == said.is_some()).collect();
            if ran.is_none() {
                prop_assert_eq!(expected.is_some(), alike.len() >= FEWEST);
            }
            if let Some(run) = expected {
                prop_assert!(run >= ran.unwrap_or(1), "{run}");
                prop_assert!(run <= said.map_or(LONG, |said| 2 * said), "{run}");
            }
        }
    }
}
