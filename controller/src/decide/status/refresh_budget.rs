//! How many texts of waiting jobs are brought up to date: as many as the API server takes without being slower for it.
//!
//! Rule: a token bucket. Ten at once and ten in a second while a write is answered within [`QUICK_ANSWER_MILLIS`]; in
//! proportion fewer where it takes longer, from the moment that it is decided on. What else is written of PodGroups is
//! taken from it: where phases change ten times in a second, they alone are written. One text in a second at least, so
//! that each is right some time.

use caldera_core::token_bucket::{Refill, TokenBucket};
use jiff::{SignedDuration, Timestamp};

use crate::decide::deadlines::add_wait;

/// Texts at once, and in a second, at most, where nothing else is said.
const TEXTS_PER_SECOND: i64 = 10;
/// A server that answers within this time is not busy, in milliseconds.
const QUICK_ANSWER_MILLIS: i64 = 50;
/// One text.
const MILLITEXTS: i64 = 1000;
/// Between two texts at most, while any is out of date.
const LONGEST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// A wait is stretched so many times at most.
const MOST_STRETCH: i64 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct RefreshBudget {
    /// Texts at once, and in a second, at most.
    most: i64,
    /// In thousandths of a text, and milliseconds.
    bucket: TokenBucket,
    /// When the last one was taken.
    taken: Option<Timestamp>,
    /// How long a write takes, in milliseconds: the mean of the last few.
    latency: i64,
}

impl Default for RefreshBudget {
    fn default() -> Self {
        Self::of(TEXTS_PER_SECOND)
    }
}

impl RefreshBudget {
    /// So many at once, and in a second, at most.
    pub(crate) fn of(most: i64) -> Self {
        Self { most, bucket: TokenBucket::new(most * MILLITEXTS, 0), taken: None, latency: 0 }
    }

    /// A write was answered after so long.
    pub(crate) fn observe_write(&mut self, took: SignedDuration) {
        let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX).clamp(0, 60_000);
        self.latency = (7 * self.latency + took) / 8;
    }

    /// Writes take as long as those that another budget observes.
    pub(crate) const fn set_latency_from(&mut self, other: &Self) {
        self.latency = other.latency;
    }

    /// Takes one, or says when to ask again.
    pub(crate) fn take_one(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.count_left(now) == 0 {
            return Err(self.next_at(now));
        }
        self.take_for_other_write(now);
        self.taken = Some(now);
        Ok(())
    }

    /// Whether the server is not busy.
    pub(crate) const fn is_server_quick(&self) -> bool {
        self.latency <= QUICK_ANSWER_MILLIS
    }

    /// Something else was written.
    pub(crate) fn take_for_other_write(&mut self, now: Timestamp) {
        let left = self.bucket.level_at(self.refill(), now.as_millisecond());
        self.bucket.take_parts(self.refill(), left.min(MILLITEXTS), now.as_millisecond());
    }

    /// A wait for something that makes a write needless: longer, as writes are slower.
    pub(crate) fn stretch_wait(&self, wait: SignedDuration) -> SignedDuration {
        let times = (self.latency / QUICK_ANSWER_MILLIS).clamp(1, MOST_STRETCH);
        SignedDuration::from_secs(wait.as_secs().saturating_mul(times))
    }

    /// How many there are now.
    pub(crate) fn count_left(&mut self, now: Timestamp) -> i64 {
        // What came in until now came in at the rate of now.
        self.bucket.take_parts(self.refill(), 0, now.as_millisecond());
        let left = self.bucket.level_at(self.refill(), now.as_millisecond());
        let is_overdue = self.taken.is_none_or(|last| add_wait(last, LONGEST_INTERVAL) <= now);
        (left / MILLITEXTS).max(is_overdue.into())
    }

    /// When there is one.
    pub(crate) fn next_at(&self, now: Timestamp) -> Timestamp {
        let lacks = (MILLITEXTS - self.bucket.level_at(self.refill(), now.as_millisecond())).max(0);
        let refilled = add_wait(now, SignedDuration::from_millis(lacks.div_euclid(self.refill().each_tick) + 1));
        self.taken.map_or(refilled, |last| add_wait(last, LONGEST_INTERVAL).clamp(now, refilled))
    }

    /// As many thousandths in a millisecond.
    fn refill(&self) -> Refill {
        let each_tick = (self.most * QUICK_ANSWER_MILLIS / self.latency.max(QUICK_ANSWER_MILLIS)).max(1);
        Refill { each_tick, most: self.most * MILLITEXTS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_shares_a_latency_is_refilled_as_slowly() {
        let (mut observed, mut shares) = (RefreshBudget::default(), RefreshBudget::default());
        (0..100).for_each(|_| observed.observe_write(SignedDuration::from_millis(500)));
        let now = Timestamp::UNIX_EPOCH;
        (0..10).for_each(|_| assert!(shares.take_one(now).is_ok()));
        let in_two_seconds = add_wait(now, SignedDuration::from_secs(2));
        assert_eq!(shares.count_left(in_two_seconds), 10);
        let mut slow = RefreshBudget::default();
        slow.set_latency_from(&observed);
        (0..10).for_each(|_| assert!(slow.take_one(now).is_ok()));
        assert!(slow.count_left(in_two_seconds) <= 3, "{slow:?}");
    }

    /// Texts of a line without end that are written in ten seconds, after the first ones, where a write takes so long.
    fn written_in_ten_seconds(latency: i64) -> usize {
        let mut budget = RefreshBudget::default();
        let began = Timestamp::from_second(1_000_000).unwrap();
        (0..100).for_each(|_| budget.observe_write(SignedDuration::from_millis(latency)));
        while budget.take_one(began).is_ok() {}
        let at = (1..=10_000).map(|millis| add_wait(began, SignedDuration::from_millis(millis)));
        at.filter(|at| budget.take_one(*at).is_ok()).count()
    }

    #[test]
    fn ten_at_once_and_ten_in_a_second_while_writes_are_quick() {
        let mut budget = RefreshBudget::default();
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!((0..100).filter(|_| budget.take_one(now).is_ok()).count(), 10);
        assert_eq!(written_in_ten_seconds(20), 100);
    }

    #[test]
    fn a_busy_server_gets_fewer_and_never_none() {
        assert_eq!([100, 250, 500, 5_000].map(written_in_ten_seconds), [50, 20, 10, 10]);
    }

    #[test]
    fn a_larger_budget_is_larger_in_proportion_and_as_slow_where_writes_are() {
        let in_ten_seconds = |latency: i64| {
            let (mut budget, began) = (RefreshBudget::of(40), Timestamp::from_second(1_000_000).unwrap());
            (0..100).for_each(|_| budget.observe_write(SignedDuration::from_millis(latency)));
            while budget.take_one(began).is_ok() {}
            let at = (1..=10_000).map(|millis| add_wait(began, SignedDuration::from_millis(millis)));
            at.filter(|at| budget.take_one(*at).is_ok()).count()
        };
        assert_eq!([20, 100, 500, 60_000].map(in_ten_seconds), [400, 210, 40, 10]);
    }

    #[test]
    fn where_phases_take_all_of_it_one_text_in_a_second_is_written() {
        let (mut budget, mut texts) = (RefreshBudget::default(), 0);
        let began = Timestamp::from_second(1_000_000).unwrap();
        for at in (0..10_000).step_by(10).map(|millis| add_wait(began, SignedDuration::from_millis(millis))) {
            (0..2).for_each(|_| budget.take_for_other_write(at));
            texts += usize::from(budget.take_one(at).is_ok());
        }
        // The first ones before there was anything else.
        assert!((10..=18).contains(&texts), "{texts}");
        let later = add_wait(began, SignedDuration::from_secs(20));
        assert_eq!((0..100).filter(|_| budget.take_one(later).is_ok()).count(), 10, "all of it once it is quiet");
    }

    #[test]
    fn a_wait_is_longer_where_writes_are_slow() {
        let stretched = |latency: i64| {
            let mut budget = RefreshBudget::default();
            (0..100).for_each(|_| budget.observe_write(SignedDuration::from_millis(latency)));
            budget.stretch_wait(SignedDuration::from_secs(3)).as_secs()
        };
        assert_eq!([0, 20, 90, 110, 5_000].map(stretched), [3, 3, 3, 6, 30]);
    }

    #[test]
    fn who_gets_none_is_told_when_to_ask_again() {
        let mut budget = RefreshBudget::default();
        let now = Timestamp::from_second(1_000_000).unwrap();
        while budget.take_one(now).is_ok() {}
        let later = budget.take_one(now).unwrap_err();
        assert!(later > now && budget.take_one(later).is_ok());
    }
}
