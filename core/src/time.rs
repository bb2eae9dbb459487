//! Points in time: [`EpochSeconds`], as the API writes a time, and [`SubmitTime`], when a job was submitted.
//!
//! Rule: Kubernetes stamps objects with whole seconds (`metav1.Time`), so decisions count in whole seconds. The one
//! exception is the order of a queue: within one second it compares microseconds, where these are known. No decision
//! reads a clock: the caller passes the time. Sums saturate, because a time in an annotation may be any number. A
//! caller that must know of an overflow uses [`EpochSeconds::checked_add`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whole seconds since the Unix epoch. In JSON it is the number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochSeconds(i64);

impl EpochSeconds {
    /// Before every other time.
    pub const MIN: Self = Self(i64::MIN);
    /// After every other time: never.
    pub const MAX: Self = Self(i64::MAX);

    /// The time so many seconds after the epoch.
    #[must_use]
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Seconds since the epoch.
    #[must_use]
    pub const fn as_seconds(self) -> i64 {
        self.0
    }

    /// Its beginning; `None` where `jiff` has no such time.
    #[must_use]
    pub fn to_timestamp(self) -> Option<Timestamp> {
        Timestamp::from_second(self.0).ok()
    }

    /// So many seconds later; the last or the first time there is where the sum is beyond it.
    #[must_use]
    pub const fn saturating_add(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// So many seconds earlier; the last or the first time there is where the difference is beyond it.
    #[must_use]
    pub const fn saturating_sub(self, seconds: i64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }

    /// So many seconds later; `None` where no time is so late.
    #[must_use]
    pub const fn checked_add(self, seconds: i64) -> Option<Self> {
        match self.0.checked_add(seconds) {
            Some(seconds) => Some(Self(seconds)),
            None => None,
        }
    }

    /// Seconds from `earlier` to this time; negative if `earlier` is later.
    #[must_use]
    pub const fn seconds_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<i64> for EpochSeconds {
    fn from(seconds: i64) -> Self {
        Self(seconds)
    }
}

/// The second that a moment is in.
impl From<Timestamp> for EpochSeconds {
    fn from(moment: Timestamp) -> Self {
        Self(moment.as_second())
    }
}

impl fmt::Display for EpochSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a job came: the second in which it was there to be queued, and for the order within that second the moment of
/// its submission. A job of which no such moment is known came at the beginning of its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitTime {
    second: EpochSeconds,
    /// Microseconds since the epoch.
    stamp: i64,
}

impl SubmitTime {
    /// Before every other time.
    pub const MIN: Self = Self { second: EpochSeconds::MIN, stamp: i64::MIN };

    /// In a second, submitted so many microseconds after the epoch: that may be long before.
    #[must_use]
    pub const fn new(second: EpochSeconds, stamp: i64) -> Self {
        Self { second, stamp }
    }

    /// The beginning of that second.
    #[must_use]
    pub const fn as_time(self) -> EpochSeconds {
        self.second
    }
}

impl From<EpochSeconds> for SubmitTime {
    fn from(second: EpochSeconds) -> Self {
        Self { second, stamp: second.0.saturating_mul(1_000_000) }
    }
}

impl From<i64> for SubmitTime {
    fn from(second: i64) -> Self {
        EpochSeconds(second).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_json_is_the_number() {
        assert_eq!(EpochSeconds::MAX.saturating_add(1), EpochSeconds::MAX);
        assert_eq!(EpochSeconds::MIN.saturating_sub(1), EpochSeconds::MIN);
        assert_eq!(EpochSeconds::MAX.checked_add(1), None);
        assert_eq!(EpochSeconds::new(7).checked_add(-2), Some(EpochSeconds::new(5)));
        assert_eq!(EpochSeconds::new(5).seconds_since(EpochSeconds::new(7)), -2);
        assert_eq!(serde_json::to_string(&EpochSeconds::new(-3)).unwrap(), "-3");
        assert_eq!(serde_json::from_str::<EpochSeconds>("12").unwrap(), EpochSeconds::from(12));
    }
}
