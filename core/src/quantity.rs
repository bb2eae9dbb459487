//! An exact Kubernetes quantity.
//!
//! Rule: apimachinery's `resource.Quantity` (`pkg/api/resource/quantity.go`): a decimal number with a decimal SI
//! (`n u m k M G T P E`), binary SI (`Ki`..`Ei`) or exponent suffix; fractions below a nano unit round *up*; values
//! clamp at 2^63-1 whole units. Held as an integer number of nano units, so that sums never drift: accounting in this
//! crate knows no floats.

pub mod decimal;
pub mod plain;

use std::{cmp::Ordering, fmt, hash, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NANO: i128 = 1_000_000_000;
const MAX_NANO: i128 = (i64::MAX as i128) * NANO;
const DECIMAL: [(&str, i128); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];
const BINARY: [(&str, i128); 6] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// Which family of suffixes a quantity was written with; only [`fmt::Display`] looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Suffixes {
    /// `m`, ``, `k`, `M`, ...
    #[default]
    Decimal,
    /// `Ki`, `Mi`, ...
    Binary,
}

/// An exact amount of one resource. Equality, order and hash look at the value alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nano: i128,
    suffixes: Suffixes,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// No digits, or characters that no quantity has.
    #[error("{0:?} is not a quantity: want a number with an optional suffix such as m, k, M, Gi")]
    Malformed(String),
    /// Digits are fine, the suffix is not one of Kubernetes'.
    #[error("{text:?} has the unknown suffix {suffix:?}")]
    UnknownSuffix {
        /// What was parsed.
        text: String,
        /// The part after the number.
        suffix: String,
    },
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, suffixes: Suffixes::Decimal };

    /// `units` whole units (cores, bytes, pods, cards).
    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self { nano: units as i128 * NANO, suffixes: Suffixes::Decimal }
    }

    /// `milli` thousandths of a unit.
    #[must_use]
    pub const fn from_milli(milli: i64) -> Self {
        Self { nano: milli as i128 * 1_000_000, suffixes: Suffixes::Decimal }
    }

    /// The exact value in billionths of a unit.
    #[must_use]
    pub const fn as_nano(self) -> i128 {
        self.nano
    }

    /// A value from billionths of a unit.
    #[must_use]
    pub const fn from_nano(nano: i128) -> Self {
        Self { nano, suffixes: Suffixes::Decimal }
    }

    /// This amount, shown with the suffixes of `other`.
    #[must_use]
    pub const fn with_suffixes_of(self, other: Self) -> Self {
        Self { nano: self.nano, suffixes: other.suffixes }
    }

    /// A little less, in few digits, for people: whole units from a thousand on, thousandths below; of binary amounts
    /// whole `Mi` from sixteen on. Parts by weight are rarely round.
    #[must_use]
    pub const fn in_few_digits(self) -> Self {
        const MEBI: i128 = NANO << 20;
        let binary = matches!(self.suffixes, Suffixes::Binary);
        let step = match self.nano.unsigned_abs() {
            _ if binary && self.nano.unsigned_abs() >= (16 * MEBI).unsigned_abs() => MEBI,
            many if many >= (1_000 * NANO).unsigned_abs() => NANO,
            _ => NANO / 1_000,
        };
        Self { nano: self.nano - self.nano % step, suffixes: self.suffixes }
    }

    /// The same value, shown with binary suffixes.
    #[must_use]
    pub const fn in_binary(self) -> Self {
        Self { nano: self.nano, suffixes: Suffixes::Binary }
    }

    /// Thousandths, rounded up (as apimachinery's `MilliValue`).
    #[must_use]
    pub const fn milli_ceil(self) -> i128 {
        -((-self.nano).div_euclid(1_000_000))
    }

    /// Whole units, rounded up (as apimachinery's `Value`).
    #[must_use]
    pub const fn units_ceil(self) -> i128 {
        -((-self.nano).div_euclid(NANO))
    }

    /// True for zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// True below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// `self + other`, clamped at the largest quantity.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        self.with(clamp(self.nano.saturating_add(other.nano)), other)
    }

    /// `self - other`; may be negative.
    #[must_use]
    pub const fn signed_sub(self, other: Self) -> Self {
        self.with(self.nano.saturating_sub(other.nano), other)
    }

    /// `self * times`, clamped at the largest quantity.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self { nano: clamp(self.nano.saturating_mul(times as i128)), suffixes: self.suffixes }
    }

    /// `max(self - other, 0)`.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        let left = self.nano.saturating_sub(other.nano);
        self.with(if left < 0 { 0 } else { left }, other)
    }

    const fn with(self, nano: i128, other: Self) -> Self {
        let suffixes = if self.nano == 0 { other.suffixes } else { self.suffixes };
        Self { nano, suffixes }
    }
}

const fn clamp(nano: i128) -> i128 {
    if nano > MAX_NANO {
        MAX_NANO
    } else if nano < -MAX_NANO {
        -MAX_NANO
    } else {
        nano
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseQuantityError::Malformed(text.to_owned());
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let whole_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(whole_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(malformed());
        }
        let scale = Scale::parse(suffix)
            .ok_or_else(|| ParseQuantityError::UnknownSuffix { text: text.to_owned(), suffix: suffix.to_owned() })?;
        let magnitude = scale.apply(whole, fraction);
        let nano = if negative { -magnitude } else { magnitude };
        Ok(Self { nano, suffixes: scale.suffixes() })
    }
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    /// 10^n.
    Ten(i32),
    /// 2^n.
    Two(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "" => Self::Ten(0),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Two(10),
            "Mi" => Self::Two(20),
            "Gi" => Self::Two(30),
            "Ti" => Self::Two(40),
            "Pi" => Self::Two(50),
            "Ei" => Self::Two(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                Self::Ten(exponent.parse().ok()?)
            }
        })
    }

    const fn suffixes(self) -> Suffixes {
        match self {
            Self::Ten(_) => Suffixes::Decimal,
            Self::Two(_) => Suffixes::Binary,
        }
    }

    /// `whole.fraction * scale` in nano units, rounded up, clamped.
    fn apply(self, whole: &str, fraction: &str) -> i128 {
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let digits: String = [whole, fraction].concat();
        if digits.bytes().all(|b| b == b'0') {
            return 0;
        }
        let (ten, two) = match self {
            Self::Ten(n) => (n, 0),
            Self::Two(n) => (0, n),
        };
        // value = digits * 10^exponent * 2^two, counted in nano units.
        let exponent = i64::from(ten) + 9 - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let significant = i64::try_from(digits.trim_start_matches('0').len()).unwrap_or(i64::MAX);
        if significant.saturating_add(exponent) > 29 {
            return MAX_NANO;
        }
        if significant.saturating_add(exponent) + i64::from(two) / 3 + 1 < 0 {
            return 1;
        }
        // Digits beyond what i128 holds can only matter for rounding up: keep 30 and remember the rest.
        let trimmed = digits.trim_start_matches('0');
        let keep = trimmed.len().min(30);
        let (head, tail) = trimmed.split_at(keep);
        let exponent = exponent + i64::try_from(tail.len()).unwrap_or(0);
        let mut inexact = tail.bytes().any(|b| b != b'0');
        let mut value: i128 = head.parse().unwrap_or(i128::MAX);
        for _ in 0..exponent.max(0) {
            value = value.saturating_mul(10);
        }
        let mut twos = two;
        for _ in 0..(-exponent).max(0) {
            // Apply the binary scale while digits remain, so that 1.5Gi loses nothing to the division.
            while twos > 0 && value < i128::MAX / 4 {
                value *= 2;
                twos -= 1;
            }
            inexact |= value % 10 != 0;
            value /= 10;
        }
        for _ in 0..twos {
            value = value.saturating_mul(2);
        }
        clamp(value.saturating_add(i128::from(inexact)))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano % NANO != 0 {
            let (divisor, suffix) = if self.nano % 1_000_000 == 0 {
                (1_000_000, "m")
            } else if self.nano % 1_000 == 0 {
                (1_000, "u")
            } else {
                (1, "n")
            };
            return write!(f, "{}{suffix}", self.nano / divisor);
        }
        let units = self.nano / NANO;
        if units == 0 {
            return f.write_str("0");
        }
        let sizes = if self.suffixes == Suffixes::Binary { &BINARY } else { &DECIMAL };
        match sizes.iter().find(|(_, size)| units % size == 0) {
            Some((suffix, size)) => write!(f, "{}{suffix}", units / size),
            None => write!(f, "{units}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}
impl Eq for Quantity {}
impl hash::Hash for Quantity {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string or a number")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Quantity, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(v))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(i64::try_from(v).unwrap_or(i64::MAX)))
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Quantity, E> {
                v.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn parts_of_amounts_are_shown_in_few_digits() {
        for (nano, binary, want) in [
            (2_666_666_667, false, "2666m"),
            (2_500_000_000, false, "2500m"),
            (1_234_567_890_123, false, "1234"),
            (2_863_311_530_666_666_667, true, "2730Mi"),
            (4_294_967_296_000_000_000, true, "4Gi"),
        ] {
            let amount = Quantity::from_nano(nano);
            let amount = if binary { amount.in_binary() } else { amount };
            assert_eq!(amount.in_few_digits().to_string(), want);
        }
    }

    #[test]
    fn canonical_text_follows_apimachinery() {
        for (given, want) in [
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.25", "250m"),
            ("1000m", "1"),
            ("1024Ki", "1Mi"),
            ("12E", "9223372036854775807"),
            ("1Ei", "1Ei"),
            ("1e3", "1k"),
            ("1E", "1E"),
            ("1E3", "1k"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-5", "-5"),
            (".5", "500m"),
            ("5.", "5"),
            ("100000", "100k"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
        ] {
            assert_eq!(q(given).to_string(), want, "{given}");
        }
    }

    #[test]
    fn below_a_nano_unit_rounds_up() {
        assert_eq!(q("0.0000000001"), Quantity::from_nano(1));
        assert_eq!(q("1.0000000001n"), Quantity::from_nano(2));
        assert_eq!(q("1e-30"), Quantity::from_nano(1));
    }

    #[test]
    fn garbage_is_refused_with_its_text() {
        for text in ["", "abc", "1.2.3", "--1", "1 Gi", "1gi", "e3", "1e", "1e+", "0x10", "1GiB", "."] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        assert_eq!("1GiB".parse::<Quantity>().unwrap_err().to_string(), "\"1GiB\" has the unknown suffix \"GiB\"");
    }

    proptest! {
        #[test]
        fn display_reads_back(nano in -MAX_NANO..MAX_NANO) {
            let quantity = Quantity::from_nano(nano);
            prop_assert_eq!(q(&quantity.to_string()), quantity);
        }

        #[test]
        fn any_text_parses_or_errs(text in ".{0,40}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
