//! Limits how many placements that succeeded are recorded as Events.
//!
//! Rule: one token bucket for the whole scheduler, 32 at once, then at most ten a second, as client-go has one
//! (`tools/record/events_cache.go`). The Event of a success says no more than the condition of the binding, and costs
//! as much as the placement. The Event of a refusal is never dropped.

use std::time::Duration;

use tokio::time::Instant;

/// Events at once at most.
const MOST_EVENTS_AT_ONCE: u32 = 32;
/// Until one more is allowed.
const REFILL_PERIOD: Duration = Duration::from_millis(100);

/// The Events that are still allowed.
#[derive(Debug)]
pub struct EventBudget {
    left: u32,
    since: Instant,
}

impl EventBudget {
    /// A full budget.
    pub fn new(now: Instant) -> Self {
        Self { left: MOST_EVENTS_AT_ONCE, since: now }
    }

    /// Whether one more is allowed, which is then counted.
    pub fn take_event(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let more = u32::try_from(passed.as_millis() / REFILL_PERIOD.as_millis())
            .unwrap_or(MOST_EVENTS_AT_ONCE)
            .min(MOST_EVENTS_AT_ONCE);
        if more > 0 {
            self.left = MOST_EVENTS_AT_ONCE.min(self.left + more);
            self.since = now;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
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
