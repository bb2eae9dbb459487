//! How long a job is expected to run: what it says, corrected by how long the last jobs of its queue ran.
//!
//! Rule: users say far too much, or nothing, and the recent past of the same people says more (Tsafrir, Etsion and
//! Feitelson, "Backfilling Using System-Generated Predictions Rather than User Runtime Estimates", IEEE TPDS 18(6),
//! 2007). So a job that says how long it runs is expected to take the part of it that the last jobs of its queue took
//! of what they said, and one that says nothing as long as the last jobs that said nothing ran: the mean, because what
//! waits behind many jobs waits for their sum. One that runs already is compared with those alone that ran for longer.
//! Fewer than [`FEWEST`] runs say nothing.
//!
//! It is told to people and never decided by: backfill and reservations go by what users say, and hold them to it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::gang::QueueName;

/// Runs of a queue that are remembered, of each sort.
pub const MOST: usize = 64;
/// Queues whose runs are remembered: all of them fit into one object of 1 MiB.
pub const MOST_QUEUES: usize = 500;
/// As few say nothing.
pub const FEWEST: usize = 5;
/// A job that ran longer than so many thousandths of what it said is counted as that.
const MOST_PART: u64 = 100_000;
/// One that ran for more seconds, as its status has it, is counted as that: 90 days.
const MOST_SECONDS: u64 = 90 * 24 * 3600;

/// The last runs of a queue's jobs, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRuns {
    /// Thousandths of what they had said that jobs ran for.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    parts: VecDeque<u64>,
    /// Seconds that those ran for that had said nothing.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    unsaid: VecDeque<u64>,
}

/// The last runs by queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PastRuns(BTreeMap<QueueName, QueueRuns>);

impl PastRuns {
    /// Remembers that a job of a queue ran for so many seconds, and how many it had said.
    pub fn record_run(&mut self, queue: &QueueName, ran: u64, said: Option<u64>) {
        if self.0.len() >= MOST_QUEUES && !self.0.contains_key(queue) {
            return;
        }
        let runs = self.0.entry(queue.clone()).or_default();
        match said.filter(|said| *said > 0) {
            Some(said) => push(&mut runs.parts, (ran.saturating_mul(1000) / said).min(MOST_PART)),
            None => push(&mut runs.unsaid, ran.min(MOST_SECONDS)),
        }
    }

    /// How many seconds a job runs in all that has run for `ran` so far and says that it takes `said`; `None` where
    /// the past says nothing.
    #[must_use]
    pub fn expect_run(&self, queue: &QueueName, said: Option<u64>, ran: u64) -> Option<u64> {
        let runs = self.0.get(queue)?;
        match said.filter(|said| *said > 0) {
            Some(said) => {
                let part = mean_beyond(&runs.parts, ran.saturating_mul(1000) / said)?;
                Some((said.saturating_mul(part) / 1000).max(1))
            }
            None => mean_beyond(&runs.unsaid, ran),
        }
    }

    /// Whether it says something of jobs of a queue that say how long they run, or that do not.
    #[must_use]
    pub fn has_runs(&self, queue: &QueueName, is_said: bool) -> bool {
        let of = |runs: &QueueRuns| if is_said { runs.parts.len() } else { runs.unsaid.len() };
        self.0.get(queue).is_some_and(|runs| of(runs) >= FEWEST)
    }
}

fn push(values: &mut VecDeque<u64>, value: u64) {
    values.push_back(value);
    if values.len() > MOST {
        values.pop_front();
    }
}

/// The mean of those that are greater; `None` where there are too few in all, or none is.
fn mean_beyond(values: &VecDeque<u64>, least: u64) -> Option<u64> {
    let greater = values.iter().filter(|value| **value > least);
    let (sum, count) = greater.fold((0_u64, 0_u64), |(sum, count), value| (sum.saturating_add(*value), count + 1));
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

    #[test]
    fn a_job_takes_the_part_of_what_it_says_that_the_last_of_its_queue_took() {
        let past = of_runs(&[(10, Some(100)), (20, Some(100)), (60, Some(200)), (400, Some(1000)), (50, Some(100))]);
        assert_eq!(past.expect_run(&"q".into(), Some(1000), 0), Some(300));
        assert_eq!(past.expect_run(&"other".into(), Some(1000), 0), None);
        // Jobs that say nothing are another sort.
        assert_eq!(past.expect_run(&"q".into(), None, 0), None);
        assert!(past.has_runs(&"q".into(), true) && !past.has_runs(&"q".into(), false));
    }

    #[test]
    fn a_job_that_says_nothing_runs_as_long_as_the_last_that_said_nothing() {
        let past = of_runs(&[(10, None), (20, None), (30, None), (40, None), (400, None), (7, Some(7))]);
        assert_eq!(past.expect_run(&"q".into(), None, 0), Some(100));
        assert_eq!(past.expect_run(&"q".into(), Some(7), 0), None);
    }

    #[test]
    fn one_that_runs_is_compared_with_those_alone_that_ran_longer() {
        let past = of_runs(&[(10, None), (20, None), (30, None), (40, None), (400, None)]);
        assert_eq!(past.expect_run(&"q".into(), None, 30), Some(220));
        assert_eq!(past.expect_run(&"q".into(), None, 400), None);
    }

    #[test]
    fn fewer_than_five_runs_say_nothing_and_the_oldest_are_forgotten() {
        assert_eq!(of_runs(&[(10, None); FEWEST - 1]).expect_run(&"q".into(), None, 0), None);
        let mut past = of_runs(&[(10, None); 1000]);
        (0..MOST).for_each(|_| past.record_run(&"q".into(), 50, None));
        assert_eq!(past.expect_run(&"q".into(), None, 0), Some(50));
    }

    #[test]
    fn queues_beyond_the_bound_are_not_remembered() {
        let mut past = PastRuns::default();
        for queue in 0..MOST_QUEUES + 10 {
            (0..FEWEST).for_each(|_| past.record_run(&format!("q{queue}").as_str().into(), 1, None));
        }
        assert!(past.has_runs(&format!("q{}", MOST_QUEUES - 1).as_str().into(), false));
        assert!(!past.has_runs(&format!("q{MOST_QUEUES}").as_str().into(), false));
        past.record_run(&"q0".into(), 9, None);
        assert_eq!(past.expect_run(&"q0".into(), None, 5), Some(9));
    }

    #[test]
    fn all_that_is_remembered_fits_into_one_object() {
        let mut past = PastRuns::default();
        for queue in 0..2 * MOST_QUEUES {
            let queue = format!("{queue:0>253}").as_str().into();
            (0..MOST).for_each(|_| past.record_run(&queue, u64::MAX, None));
            (0..MOST).for_each(|_| past.record_run(&queue, u64::MAX, Some(1)));
        }
        assert!(serde_json::to_string(&past).unwrap().len() < 900_000);
    }

    proptest! {
        #[test]
        fn no_job_is_expected_to_have_ended_before_now(
            runs in prop::collection::vec((any::<u64>(), prop::option::of(any::<u64>())), 0..100),
            said in prop::option::of(any::<u64>()),
            ran in any::<u64>(),
        ) {
            let past = of_runs(&runs);
            // Sums saturate far beyond a thousand years.
            if let Some(run) = past.expect_run(&"q".into(), said.map(|said| said >> 24), ran >> 24) {
                prop_assert!(run >= (ran >> 24).min(u64::MAX / 1000));
            }
            let read: PastRuns = serde_json::from_str(&serde_json::to_string(&past).unwrap()).unwrap();
            prop_assert_eq!(read, past);
        }
    }
}
