//! What counts of what was measured of one peer.
//!
//! Rule: the middle of the last five latencies, and of the last three bandwidths, rounded to two digits. After three
//! rounds in a row without an answer nothing counts, and what was measured before is forgotten.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

const LATENCIES: usize = 5;
const BANDWIDTHS: usize = 3;
const MOST_FAILURES: u32 = 3;

/// The last samples of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerSamples {
    latencies: VecDeque<u64>,
    bandwidths: VecDeque<u64>,
    failures: u32,
    loaded: Option<Instant>,
    at: Option<Timestamp>,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MeasuredPeer {
    /// Microseconds one way.
    pub(super) latency: u64,
    /// Megabits a second.
    pub(super) bandwidth: Option<u64>,
    /// When one of them last changed what counts.
    pub(super) at: Timestamp,
}

impl PeerSamples {
    /// A peer answered.
    pub(super) fn observe(&mut self, latency: u64, bandwidth: Option<u64>, now: Timestamp) {
        let before = self.middle_values();
        self.failures = 0;
        push_bounded(&mut self.latencies, latency, LATENCIES);
        if let Some(bandwidth) = bandwidth {
            push_bounded(&mut self.bandwidths, bandwidth, BANDWIDTHS);
            self.loaded = Some(Instant::now());
        }
        // Else each heartbeat would be another one.
        if before != self.middle_values() {
            self.at = Some(now);
        }
    }

    /// A peer did not answer.
    pub(super) fn observe_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= MOST_FAILURES {
            *self = Self { failures: self.failures, ..Self::default() };
        }
    }

    /// The last round had no answer.
    pub(super) const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Whether its bandwidth is to be measured again.
    pub(super) fn is_load_due(&self, every: Duration) -> bool {
        self.loaded.is_none_or(|loaded| loaded.elapsed() >= every)
    }

    /// What counts; `None` where nothing was measured.
    pub(super) fn summarize(&self) -> Option<MeasuredPeer> {
        let (latency, bandwidth) = self.middle_values();
        Some(MeasuredPeer { latency: latency?, bandwidth, at: self.at? })
    }

    fn middle_values(&self) -> (Option<u64>, Option<u64>) {
        (find_middle(&self.latencies), find_middle(&self.bandwidths))
    }
}

fn push_bounded(samples: &mut VecDeque<u64>, sample: u64, most: usize) {
    samples.push_back(sample);
    while samples.len() > most {
        samples.pop_front();
    }
}

fn find_middle(samples: &VecDeque<u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = samples.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).map(|middle| round_to_two_digits(*middle))
}

/// `1234` is `1200`.
fn round_to_two_digits(number: u64) -> u64 {
    let step = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (number.saturating_add(step / 2) / step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn two_digits_are_enough_of_a_number() {
        let rounded = [0, 7, 42, 99, 104, 105, 1_249, 1_250, 999_999].map(round_to_two_digits);
        assert_eq!(rounded, [0, 7, 42, 99, 100, 110, 1_200, 1_300, 1_000_000]);
        assert!(round_to_two_digits(u64::MAX) > u64::MAX / 2);
    }

    #[test]
    fn the_middle_of_the_last_samples_counts_so_that_one_that_is_off_changes_nothing() {
        let mut samples = PeerSamples::default();
        assert_eq!(samples.summarize(), None);
        for (second, latency) in [500, 502, 9_000, 499].into_iter().enumerate() {
            samples.observe(latency, (second == 0).then_some(940), at(second as i64));
        }
        let counts = samples.summarize().unwrap();
        assert_eq!((counts.latency, counts.bandwidth), (500, Some(940)));
        assert_eq!(counts.at, at(0), "it did not change since");
        for second in 4..8 {
            samples.observe(2_000, None, at(second));
        }
        assert_eq!(samples.summarize().map(|counts| counts.latency), Some(2_000), "it really is another one now");
    }

    #[test]
    fn a_peer_that_does_not_answer_for_three_rounds_has_no_link() {
        let mut samples = PeerSamples::default();
        samples.observe(500, Some(10), at(0));
        samples.observe_failure();
        samples.observe_failure();
        assert!(samples.summarize().is_some() && samples.has_failed());
        samples.observe_failure();
        assert_eq!(samples.summarize(), None);
        samples.observe(700, None, at(9));
        assert_eq!(samples.summarize(), Some(MeasuredPeer { latency: 700, bandwidth: None, at: at(9) }));
    }
}
