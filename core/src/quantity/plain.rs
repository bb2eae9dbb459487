//! An amount as people write it: `12.5`, `0.3`, `1.5Gi`. Never `12500m` or `2571428571n`.
//!
//! Rule: three digits after the point below a thousand, two above, rounded down, so that no sentence tells of more than
//! there is; as many as a precision asks for, where columns are narrow: `{:.1}`. What would round to nothing has its
//! first digit. Kubernetes' own form is [`Quantity`]'s `Display`.

use std::fmt;

use super::{BINARY, DECIMAL, NANO, Quantity, Suffixes};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Plain(Quantity);

impl Quantity {
    /// As people write it.
    #[must_use]
    pub const fn plain(self) -> Plain {
        Plain(self)
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nano = self.0.nano;
        let sizes: &[(&str, i128)] = if self.0.suffixes == Suffixes::Binary { &BINARY } else { &DECIMAL[..5] };
        let fits = |size: &&(&str, i128)| nano.unsigned_abs() >= (size.1 * NANO).unsigned_abs();
        let (suffix, unit, mut digits) = match sizes.iter().find(fits) {
            Some((suffix, size)) => (*suffix, size * NANO, 2),
            None => ("", NANO, 3),
        };
        if let Some(precision) = f.precision() {
            digits = digits.min(u32::try_from(precision).unwrap_or(u32::MAX));
        }
        let (whole, rest) = ((nano / unit).unsigned_abs(), (nano % unit).unsigned_abs());
        let fraction = |digits: u32| rest * 10_u128.pow(digits) / unit.unsigned_abs();
        while whole == 0 && rest > 0 && fraction(digits) == 0 {
            digits += 1;
        }
        let digits = digits.min(9);
        let sign = if nano < 0 { "-" } else { "" };
        let fraction = format!("{:0width$}", fraction(digits), width = digits as usize);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}{suffix}"),
            fraction => write!(f, "{sign}{whole}.{fraction}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_decimals_and_gi_and_never_milli_or_nano() {
        for (written, read) in [
            ("12500m", "12.5"),
            ("2571428571n", "2.571"),
            ("125714m", "125.714"),
            ("300m", "0.3"),
            ("4", "4"),
            ("0", "0"),
            ("20k", "20000"),
            ("1n", "0.000000001"),
            ("250u", "0.0002"),
            ("8Gi", "8Gi"),
            ("1536Mi", "1.5Gi"),
            ("1000Mi", "1000Mi"),
            ("1023Ki", "1023Ki"),
            ("2500M", "2.5G"),
            ("-1500m", "-1.5"),
        ] {
            assert_eq!(written.parse::<Quantity>().unwrap().plain().to_string(), read, "{written}");
        }
        let narrow = |written: &str| format!("{:.1}", written.parse::<Quantity>().unwrap().plain());
        assert_eq!(["2571428571n", "12800Mi", "20", "1m"].map(narrow), ["2.5", "12.5Gi", "20", "0.001"]);
        let most = Quantity::from_nano(i128::MAX).plain().to_string();
        assert!(!most.is_empty());
    }
}
