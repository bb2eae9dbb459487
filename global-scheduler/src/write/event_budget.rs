//! Limits how many placements that succeeded are recorded as Events.
//!
//! Rule: one token bucket for the whole scheduler, 32 at once, then at most ten a second, as client-go has one
//! (`tools/record/events_cache.go`). The Event of a success says no more than the condition of the binding, and costs
//! as much as the placement. The Event of a refusal is never dropped.

use caldera_core::token_bucket::{Refill, TokenBucket};
use tokio::time::Instant;

/// Milliseconds until one more is allowed, which are the parts of one.
const REFILL_MILLIS: i64 = 100;
/// 32 at once.
const REFILL: Refill = Refill { each_tick: 1, most: 32 * REFILL_MILLIS };

/// The Events that are still allowed.
#[derive(Debug)]
pub struct EventBudget {
    began: Instant,
    /// In milliseconds since then.
    bucket: TokenBucket,
}

impl EventBudget {
    /// A full budget.
    pub fn new(now: Instant) -> Self {
        Self { began: now, bucket: TokenBucket::new(REFILL.most, 0) }
    }

    /// Whether one more is allowed, which is then counted.
    pub fn take_event(&mut self, now: Instant) -> bool {
        let passed = i64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(i64::MAX);
        let is_allowed = self.bucket.level_at(REFILL, passed) >= REFILL_MILLIS;
        if is_allowed {
            self.bucket.take_parts(REFILL, REFILL_MILLIS, passed);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_recorded_and_then_ten_a_second() {
        let began = Instant::now();
        let mut budget = EventBudget::new(began);
        let recorded =
            |budget: &mut EventBudget, at: Duration| (0..100).filter(|_| budget.take_event(began + at)).count();
        assert_eq!(recorded(&mut budget, Duration::ZERO), 32);
        assert_eq!(recorded(&mut budget, Duration::from_millis(99)), 0);
        assert_eq!(recorded(&mut budget, Duration::from_millis(1000)), 10);
        assert_eq!(recorded(&mut budget, Duration::from_secs(3600)), 32);
    }
}
