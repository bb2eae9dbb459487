//! A token bucket: how much of something may happen now, of which so much may happen at once and so much in a time.
//!
//! Rule: what is in it grows by so many parts with each tick, up to what it holds; what happens takes parts out. One
//! event is as many parts as make a whole number of parts a tick, so that nothing is rounded. Its owner says how long a
//! tick is.

/// How fast a bucket is filled, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// Parts that come in with each tick.
    pub each_tick: i64,
    /// Parts that it holds.
    pub most: i64,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Parts. A debt is negative.
    level: i64,
    /// When that was so, in ticks.
    at: i64,
}

impl TokenBucket {
    /// With so many parts at a time.
    #[must_use]
    pub const fn new(level: i64, at: i64) -> Self {
        Self { level, at }
    }

    /// The parts in it at a time; less than zero if it has a debt.
    #[must_use]
    pub fn level_at(&self, refill: Refill, now: i64) -> i64 {
        let passed = now.saturating_sub(self.at).max(0);
        self.level.saturating_add(passed.saturating_mul(refill.each_tick)).min(refill.most)
    }

    /// Takes parts out at a time. Of more than there are a debt is left, which is refilled first. Where a clock was set
    /// back nothing comes in until it is as late again: no time is refilled twice.
    pub fn take_parts(&mut self, refill: Refill, parts: i64, now: i64) {
        *self = Self { level: self.level_at(refill, now).saturating_sub(parts), at: now.max(self.at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_up_to_what_it_holds_and_a_debt_is_refilled_first() {
        let refill = Refill { each_tick: 2, most: 10 };
        let mut bucket = TokenBucket::new(0, 100);
        assert_eq!([99, 100, 103, 200].map(|now| bucket.level_at(refill, now)), [0, 0, 6, 10]);
        bucket.take_parts(refill, 9, 103);
        assert_eq!([103, 104, 105].map(|now| bucket.level_at(refill, now)), [-3, -1, 1]);
        bucket.take_parts(refill, 0, 50);
        let levels = [50, 52, 103, 105].map(|now| bucket.level_at(refill, now));
        assert_eq!(levels, [-3, -3, -3, 1], "the clock was set back");
    }
}
