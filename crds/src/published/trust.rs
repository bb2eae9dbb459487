//! For how long what a collector published is trusted.
//!
//! Rule: for three heartbeats from when its member was last seen, and no heartbeat lasts longer than 100 s, whatever
//! the object says.

use std::time::Duration;

use jiff::Timestamp;

use super::Heartbeat;

/// Heartbeats after which nobody trusts the numbers.
pub const TRUSTED_HEARTBEATS: u32 = 3;
/// Longest heartbeat in seconds.
const MAX_HEARTBEAT: u64 = 100;

impl Heartbeat {
    /// Between two of them.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_secs(u64::from(self.every_seconds).clamp(1, MAX_HEARTBEAT))
    }

    /// How long ago the member answered its collector; `None` where it says no time.
    #[must_use]
    pub fn age_at(&self, now: Timestamp) -> Option<Duration> {
        let seen: Timestamp = self.seen_at.parse().ok()?;
        Some(Duration::try_from(now.duration_since(seen)).unwrap_or_default())
    }

    /// Whether its numbers still count.
    #[must_use]
    pub fn is_trusted_at(&self, now: Timestamp) -> bool {
        self.age_at(now).is_some_and(|age| age < self.period() * TRUSTED_HEARTBEATS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_trusted_until_two_after_it_are_missing() {
        let now: Timestamp = "2026-01-01T00:01:30Z".parse().unwrap();
        let of =
            |seen_at: &str, every_seconds| Heartbeat { seen_at: seen_at.into(), every_seconds, ..Heartbeat::default() };
        assert!(of("2026-01-01T00:00:01Z", 30).is_trusted_at(now));
        assert!(!of("2026-01-01T00:00:00Z", 30).is_trusted_at(now));
        assert!(of("2027-01-01T00:00:00Z", 30).is_trusted_at(now), "a wrong clock");
        assert!(!of("2025-12-31T00:00:00Z", 1_000_000).is_trusted_at(now) && !of("", 30).is_trusted_at(now));
    }
}
