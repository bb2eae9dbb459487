//! Virtual time: whole milliseconds since the simulation's origin, and lengths of time. No clock anywhere.

use std::{fmt, str::FromStr};

use caldera_core::time::EpochSeconds;
use serde::{Serialize, Serializer};

/// An instant, or a length of time, in milliseconds. Written to JSON and CSV in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The origin, or no time at all.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// This much later.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// From `other` to this; zero if `other` is later.
    #[must_use]
    pub const fn since(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This or the next whole multiple of `step`.
    #[must_use]
    pub const fn up_to(self, step: Self) -> Self {
        Self(self.0.next_multiple_of(if step.0 == 0 { 1 } else { step.0 }))
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    /// As the engine counts time: the origin is its epoch.
    #[must_use]
    pub fn as_epoch(self) -> EpochSeconds {
        EpochSeconds::new(i64::try_from(self.seconds()).unwrap_or(i64::MAX))
    }

    /// A time of the engine; `None` before the origin.
    #[must_use]
    pub fn of_epoch(time: EpochSeconds) -> Option<Self> {
        u64::try_from(time.as_seconds()).ok().map(Self::from_secs)
    }

    /// For reports only.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_seconds())
    }
}

/// `0.5 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        let pair = |f: &mut fmt::Formatter<'_>, unit: u64, name: &str, below: u64, lesser: &str| match seconds % unit
            / below
        {
            0 => write!(f, "{} {name}", seconds / unit),
            rest => write!(f, "{} {name} {rest} {lesser}", seconds / unit),
        };
        match seconds {
            0..10 if !self.0.is_multiple_of(1_000) => write!(f, "{}.{} s", seconds, self.0 % 1_000 / 100),
            0..60 => write!(f, "{seconds} s"),
            60..3_600 => pair(f, 60, "min", 1, "s"),
            3_600..86_400 => pair(f, 3_600, "h", 60, "min"),
            _ => pair(f, 86_400, "d", 3_600, "h"),
        }
    }
}

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: want seconds such as 90 or 1.5, or a number with one of ms, s, m, h, d")]
pub struct ParseTimeError(String);

/// Seconds, with a fraction if need be (the rest below a millisecond is cut off), or a number and a unit.
impl FromStr for Millis {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseTimeError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let unit: u128 = match &trimmed[digits..] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = trimmed[..digits].split_once('.').unwrap_or((&trimmed[..digits], ""));
        if whole.is_empty() || fraction.contains('.') {
            return Err(wrong());
        }
        let whole: u128 = whole.parse().map_err(|_| wrong())?;
        // Twelve digits are more than any unit here needs.
        let fraction = &fraction[..fraction.len().min(12)];
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| wrong())? };
        let millis = whole.checked_mul(unit).and_then(|whole| whole.checked_add(part * unit / scale));
        millis.and_then(|millis| u64::try_from(millis).ok()).map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_fractions_and_units_are_read() {
        for (text, millis) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1_500),
            ("475.00000000000006", 475_000),
            ("250ms", 250),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(text.parse(), Ok(Millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1.2.3", "1y", ".5", "nan", "99999999999999999999999"] {
            assert!(text.parse::<Millis>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_shown_with_two_units_at_most() {
        let shown = |millis| Millis(millis).to_string();
        assert_eq!(shown(500), "0.5 s");
        assert_eq!(shown(42_000), "42 s");
        assert_eq!(shown(200_000), "3 min 20 s");
        assert_eq!(shown(7_500_000), "2 h 5 min");
        assert_eq!(shown(3 * 86_400_000), "3 d");
    }
}
