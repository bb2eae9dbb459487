//! Amounts in columns and bars.

use caldera_core::{quantity::Quantity, resources::ResourceName};

/// In few digits and in the unit of its resource, for columns that are narrow: `12.5Gi` of memory, `3.5` of cpu.
#[must_use]
pub fn format_amount(resource: &str, amount: Quantity) -> String {
    format!("{:.1}", ResourceName::from(resource).quantity_from_nano(amount.as_nano()).plain())
}

/// How much of it that is, from 0 to 1.
#[must_use]
pub fn compute_fraction(used: Quantity, all: Quantity) -> f64 {
    if all.as_nano() <= 0 { 0.0 } else { (used.as_nano() as f64 / all.as_nano() as f64).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_in_the_unit_of_its_resource_however_it_is_written() {
        let of = |resource: &str, text: &str| format_amount(resource, text.parse().unwrap());
        assert_eq!(
            [of("cpu", "3500m"), of("cpu", "20"), of("cpu", "2571428571n"), of("cpu", "0")],
            ["3.5", "20", "2.5", "0"]
        );
        assert_eq!(
            [of("memory", "12800Mi"), of("memory", "13421772800"), of("memory", "2Ti")],
            ["12.5Gi", "12.5Gi", "2Ti"]
        );
    }

    #[test]
    fn a_part_is_between_nothing_and_all() {
        let of = |used: i64, all: i64| compute_fraction(Quantity::from_units(used), Quantity::from_units(all));
        assert_eq!([of(1, 2), of(3, 2), of(1, 0), of(-1, 2)], [0.5, 1.0, 0.0, 0.0]);
    }
}
