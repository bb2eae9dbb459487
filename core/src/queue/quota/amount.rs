//! How much there is of what one [`Dim`](super::amounts::Dim) measures.
//!
//! Exact: billionths of a unit in 128 bits, as [`Quantity`] holds them, or a whole number of jobs. An amount is added
//! to an amount, subtracted from it and compared with it. Times a count it is an amount again, and so is the part of it
//! that each of so many gets. How often one amount is in another is a number, and no amount.

use std::{
    iter::Sum,
    ops::{Add, AddAssign, Div, Mul, Sub, SubAssign},
};

use crate::{quantity::Quantity, resources::ResourceName};

/// See the module. It is below zero where more is used than there may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Amount(pub(super) i128);

impl Amount {
    pub(crate) const ZERO: Self = Self(0);
    /// The smallest above zero.
    pub(crate) const SMALLEST: Self = Self(1);
    /// More than there is of anything.
    pub(crate) const MAX: Self = Self(i128::MAX);
    /// [`Amount::billionths_of`] itself.
    pub(crate) const WHOLE: i128 = 1_000_000_000;

    /// So many jobs.
    pub(crate) const fn of_jobs(jobs: u32) -> Self {
        Self(jobs as i128)
    }

    /// How many jobs it is; none below zero.
    pub(crate) fn count_jobs(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// As people read it: of a resource.
    pub(crate) fn to_quantity_of(self, resource: &ResourceName) -> Quantity {
        resource.quantity_from_nano(self.0)
    }

    /// As people read it: with the suffixes of `other`.
    pub(crate) const fn to_quantity_like(self, other: Quantity) -> Quantity {
        Quantity::from_nano(self.0).with_suffixes_of(other)
    }

    #[inline]
    pub(crate) const fn is_zero(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) const fn is_positive(self) -> bool {
        self.0 > 0
    }

    #[inline]
    pub(crate) const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[inline]
    pub(crate) const fn saturating_mul(self, times: i64) -> Self {
        Self(self.0.saturating_mul(times as i128))
    }

    /// Between both, rounded towards zero.
    #[inline]
    pub(crate) const fn midpoint(self, other: Self) -> Self {
        Self(self.0.midpoint(other.0))
    }

    /// Its share of an amount above zero, in billionths, rounded towards zero.
    #[inline]
    pub(crate) const fn billionths_of(self, whole: Self) -> i128 {
        self.0.saturating_mul(Self::WHOLE) / whole.0
    }

    /// Down to four digits, if it is not below zero.
    pub(crate) const fn round_to_digits(self) -> Self {
        let mut unit = 1;
        while self.0 / unit >= 10_000 {
            unit *= 10;
        }
        Self(self.0 / unit * unit)
    }
}

impl From<Quantity> for Amount {
    #[inline]
    fn from(quantity: Quantity) -> Self {
        Self(quantity.as_nano())
    }
}

impl Add for Amount {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Amount {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Amount {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Amount {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Amount {
    #[inline]
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::add)
    }
}

/// So many times as much.
impl Mul<i64> for Amount {
    type Output = Self;

    #[inline]
    fn mul(self, times: i64) -> Self {
        Self(self.0 * i128::from(times))
    }
}

/// What each of so many gets, rounded towards zero.
impl Div<i64> for Amount {
    type Output = Self;

    #[inline]
    fn div(self, among: i64) -> Self {
        Self(self.0 / i128::from(among))
    }
}

/// How often the other is in it, rounded towards zero.
impl Div for Amount {
    type Output = i128;

    #[inline]
    fn div(self, other: Self) -> i128 {
        self.0 / other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_towards_zero_and_what_is_too_much_for_a_number_is_the_most() {
        let parts = [Amount(-7) / 2, Amount(7) / 2, Amount(-7).midpoint(Amount(-4)), Amount(7).midpoint(Amount(4))];
        assert_eq!(parts, [-3, 3, -5, 5].map(Amount));
        assert_eq!([Amount(7) / Amount(2), Amount(2).billionths_of(Amount(3))], [3, 666_666_666]);
        assert_eq!([Amount::MAX.saturating_add(Amount(1)), Amount(1 << 100).saturating_mul(1 << 40)], [Amount::MAX; 2]);
        assert_eq!([12_345, 9_999, -12_345].map(|nano| Amount(nano).round_to_digits().0), [12_340, 9_999, -12_345]);
    }

    #[test]
    fn an_amount_is_shown_as_its_resource_is_or_as_another_amount() {
        let amount = Amount::from(Quantity::from_units(1 << 30));
        assert_eq!(amount.to_quantity_of(&"memory".into()).to_string(), "1Gi");
        assert_eq!(amount.to_quantity_of(&"cpu".into()).to_string(), "1073741824");
        assert_eq!(amount.to_quantity_like(Quantity::ZERO.in_binary()).to_string(), "1Gi");
        assert_eq!([Amount::of_jobs(3), Amount(-1)].map(Amount::count_jobs), [3, 0]);
    }
}
