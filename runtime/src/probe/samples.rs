//! What counts of what was measured of one peer.
//!
//! Rule: the middle of the last five latencies, and of the last three bandwidths, in two digits. It is published when
//! it differs by a tenth from what is published, so that noise changes nothing. After three rounds in a row without an
//! answer nothing counts, and what was measured before is forgotten. A bandwidth that was not measured for three
//! intervals is forgotten too. A load that fails was one: it is not due again before the next interval.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

const LATENCIES: usize = 5;
const BANDWIDTHS: usize = 3;
const MOST_FAILURES: u32 = 3;
/// Intervals after which a bandwidth is too old.
const MOST_INTERVALS: u32 = 3;
/// Between two words of a failure that lasts.
const REPORT_EVERY: Duration = Duration::from_secs(3_600);

/// When a failure that lasts is told: at once, and each hour from then on.
#[derive(Debug, Default)]
pub(super) struct FailurePace {
    reported: Option<Instant>,
}

impl FailurePace {
    /// It failed, again or for the first time. Where it is to be told it counts as told.
    pub(super) fn report_failure(&mut self) -> bool {
        let is_due = self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY);
        if is_due {
            self.reported = Some(Instant::now());
        }
        is_due
    }

    /// It fails no more; whether that was told of it.
    pub(super) fn end_failure(&mut self) -> bool {
        self.reported.take().is_some()
    }
}

/// The last samples of a peer.
#[derive(Debug)]
pub(super) struct PeerSamples {
    latencies: VecDeque<u64>,
    bandwidths: VecDeque<u64>,
    failures: u32,
    /// When a load was last begun; at first when the prober was started.
    loaded: Instant,
    /// When one last ended well.
    known: Option<Instant>,
    published: Option<MeasuredPeer>,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MeasuredPeer {
    /// Microseconds one way.
    pub(super) latency: u64,
    /// Megabits a second.
    pub(super) bandwidth: Option<u64>,
    /// Since when that counts.
    pub(super) since: Timestamp,
}

impl PeerSamples {
    /// A peer whose first load is due after `first`.
    pub(super) fn new(first: Duration, every: Duration) -> Self {
        let now = Instant::now();
        Self {
            latencies: VecDeque::new(),
            bandwidths: VecDeque::new(),
            failures: 0,
            loaded: now.checked_sub(every.saturating_sub(first)).unwrap_or(now),
            known: None,
            published: None,
        }
    }

    /// A peer answered, or did not.
    pub(super) fn observe_latency(&mut self, latency: Option<u64>, now: Timestamp) {
        match latency {
            Some(latency) => {
                self.failures = 0;
                push_bounded(&mut self.latencies, latency, LATENCIES);
            }
            None => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= MOST_FAILURES {
                    self.latencies.clear();
                    self.bandwidths.clear();
                }
            }
        }
        self.publish(now);
    }

    /// A load ended.
    pub(super) fn observe_bandwidth(&mut self, bandwidth: u64, now: Timestamp) {
        self.known = Some(Instant::now());
        push_bounded(&mut self.bandwidths, bandwidth, BANDWIDTHS);
        self.publish(now);
    }

    /// The last round had no answer.
    pub(super) const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// For how long its bandwidth is due to be measured; then it counts as begun. Nothing is sent to who does not
    /// answer.
    pub(super) fn load_due_for(&self, every: Duration) -> Option<Duration> {
        self.loaded.elapsed().checked_sub(every).filter(|_| !self.has_failed() && !self.latencies.is_empty())
    }

    /// A load begins.
    pub(super) fn begin_load(&mut self) {
        self.loaded = Instant::now();
    }

    /// Forgets a bandwidth that is too old.
    pub(super) fn forget_old_bandwidth(&mut self, every: Duration, now: Timestamp) {
        if self.known.is_some_and(|known| known.elapsed() > every * MOST_INTERVALS) {
            (self.known, self.bandwidths) = (None, VecDeque::new());
            self.publish(now);
        }
    }

    /// What counts; `None` where nothing was measured.
    pub(super) const fn published(&self) -> Option<MeasuredPeer> {
        self.published
    }

    fn publish(&mut self, now: Timestamp) {
        let Some(latency) = find_middle(&self.latencies) else {
            self.published = None;
            return;
        };
        let measured = MeasuredPeer { latency, bandwidth: find_middle(&self.bandwidths), since: now };
        let is_same = self.published.is_some_and(|before| {
            is_near(before.latency, measured.latency)
                && match (before.bandwidth, measured.bandwidth) {
                    (Some(before), Some(bandwidth)) => is_near(before, bandwidth),
                    (before, bandwidth) => before == bandwidth,
                }
        });
        if !is_same {
            self.published = Some(measured);
        }
    }
}

/// Within a tenth.
const fn is_near(before: u64, now: u64) -> bool {
    before.abs_diff(now) <= before / 10
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

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn peer() -> PeerSamples {
        PeerSamples::new(Duration::from_secs(60), HOUR)
    }

    #[test]
    fn two_digits_are_enough_of_a_number() {
        let rounded = [0, 7, 42, 99, 104, 105, 1_249, 1_250, 999_999].map(round_to_two_digits);
        assert_eq!(rounded, [0, 7, 42, 99, 100, 110, 1_200, 1_300, 1_000_000]);
        assert!(round_to_two_digits(u64::MAX) > u64::MAX / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn noise_and_one_sample_that_is_off_change_nothing() {
        let mut samples = peer();
        assert_eq!(samples.published(), None);
        samples.observe_latency(Some(500), at(0));
        samples.observe_bandwidth(940, at(1));
        let counts = MeasuredPeer { latency: 500, bandwidth: Some(940), since: at(1) };
        for (second, latency) in [530, 9_000, 545, 470, 545].into_iter().enumerate() {
            samples.observe_latency(Some(latency), at(10 + second as i64));
            assert_eq!(samples.published(), Some(counts), "{latency}");
        }
        for second in 20..25 {
            samples.observe_latency(Some(2_000), at(second));
        }
        assert_eq!(samples.published().map(|counts| counts.latency), Some(2_000), "it really is another one now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_answer_for_three_rounds_has_no_link() {
        let mut samples = peer();
        samples.observe_latency(Some(500), at(0));
        samples.observe_bandwidth(10, at(0));
        samples.observe_latency(None, at(1));
        samples.observe_latency(None, at(2));
        assert!(samples.published().is_some() && samples.has_failed());
        samples.observe_latency(None, at(3));
        assert_eq!(samples.published(), None);
        samples.observe_latency(Some(700), at(9));
        assert_eq!(samples.published(), Some(MeasuredPeer { latency: 700, bandwidth: None, since: at(9) }));
    }

    /// A peer that was never reached was told of once, days before somebody looked.
    #[tokio::test(start_paused = true)]
    async fn a_failure_that_lasts_is_reported_each_hour() {
        let mut pace = FailurePace::default();
        assert!(!pace.end_failure());
        let mut reported = 0;
        for _minute in 0..181 {
            reported += u32::from(pace.report_failure());
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(reported, 4);
        assert!(pace.end_failure() && pace.report_failure());
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_that_fails_is_not_due_again_before_the_next_interval() {
        let mut samples = peer();
        samples.observe_latency(Some(500), at(0));
        assert_eq!(samples.load_due_for(HOUR), None, "not at once: a collector may be started again and again");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(samples.load_due_for(HOUR).is_some());
        samples.begin_load();
        for second in 1..5 {
            samples.observe_latency(None, at(second));
        }
        samples.observe_latency(Some(500), at(9));
        tokio::time::advance(Duration::from_secs(3_000)).await;
        assert_eq!(samples.load_due_for(HOUR), None);
        tokio::time::advance(Duration::from_secs(700)).await;
        assert!(samples.load_due_for(HOUR).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bandwidth_that_is_not_measured_any_more_is_forgotten() {
        let mut samples = peer();
        samples.observe_latency(Some(500), at(0));
        samples.observe_bandwidth(10, at(0));
        tokio::time::advance(HOUR * 3).await;
        samples.forget_old_bandwidth(HOUR, at(1));
        assert_eq!(samples.published().and_then(|counts| counts.bandwidth), Some(10));
        tokio::time::advance(HOUR).await;
        samples.forget_old_bandwidth(HOUR, at(2));
        assert_eq!(samples.published().map(|counts| counts.bandwidth), Some(None));
    }
}
