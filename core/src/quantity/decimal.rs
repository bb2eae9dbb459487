//! An amount in full, as people write it: `25.333333333`, `0.5`, `1536Mi`. For documents that people and programs read:
//! it is exact, and a quantity of Kubernetes like any other.

use std::fmt;

use super::{NANO, Quantity};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Decimal(Quantity);

impl Quantity {
    /// In full, as people write it.
    #[must_use]
    pub const fn decimal(self) -> Decimal {
        Decimal(self)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nano = self.0.nano;
        if nano % NANO == 0 {
            return self.0.fmt(f);
        }
        let sign = if nano < 0 { "-" } else { "" };
        let fraction = format!("{:09}", (nano % NANO).unsigned_abs());
        write!(f, "{sign}{}.{}", (nano / NANO).unsigned_abs(), fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_amount_in_full_has_a_point_and_no_milli_or_nano() {
        for (written, read) in [
            ("25333333333n", "25.333333333"),
            ("37500m", "37.5"),
            ("-1500m", "-1.5"),
            ("1n", "0.000000001"),
            ("1536Mi", "1536Mi"),
            ("20k", "20k"),
            ("0", "0"),
        ] {
            assert_eq!(written.parse::<Quantity>().unwrap().decimal().to_string(), read, "{written}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_in_full_reads_back_as_the_same(nano in -1_000_000_000_000_000_000_i128..1_000_000_000_000_000_000) {
            let amount = Quantity::from_nano(nano);
            prop_assert_eq!(amount.decimal().to_string().parse::<Quantity>(), Ok(amount));
        }
    }
}
