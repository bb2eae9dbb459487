//! How many successes are told as events.
//!
//! An event of a success says nothing that the binding's condition does not, and costs as much as the placement itself.
//! So of many bindings that are placed at once only some are told (client-go drops events in much the same way: a burst,
//! then a trickle, `tools/record/events_cache.go`). Refusals are always told.

use std::time::Duration;

use tokio::time::Instant;

/// Told at once at most.
const BURST: u32 = 32;
/// Until one more may be told.
const EVERY: Duration = Duration::from_millis(100);

/// What may still be told.
#[derive(Debug)]
pub struct Telling {
    left: u32,
    since: Instant,
}

impl Telling {
    /// All may be told.
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Whether one more may be told, which is then counted.
    pub fn may(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let more = u32::try_from(passed.as_millis() / EVERY.as_millis()).unwrap_or(BURST).min(BURST);
        if more > 0 {
            self.left = BURST.min(self.left + more);
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_and_then_ten_a_second() {
        let began = Instant::now();
        let mut telling = Telling::new(began);
        let told = |telling: &mut Telling, at: Duration| (0..100).filter(|_| telling.may(began + at)).count();
        assert_eq!(told(&mut telling, Duration::ZERO), 32);
        assert_eq!(told(&mut telling, Duration::from_millis(99)), 0);
        assert_eq!(told(&mut telling, Duration::from_millis(1000)), 10);
        assert_eq!(told(&mut telling, Duration::from_secs(3600)), 32);
    }
}
