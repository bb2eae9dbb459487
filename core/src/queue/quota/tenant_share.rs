//! What a tenant has of a queue: the rule is in [`crate::queue::tenant_order`].

use std::{cmp::Ordering, fmt};

use crate::queue::{
    quota::{
        amounts::{Dense, Dim, Dims},
        slot::Slot,
    },
    tenant_order::TenantOrder,
};

impl TenantOrder {
    /// Whose of these a job is.
    pub(crate) fn tenant_of(self, tenants: &[Dim]) -> Option<Dim> {
        let user = tenants.iter().find(|tenant| tenant.is_of_user()).filter(|_| self == Self::Users);
        user.or_else(|| tenants.iter().find(|tenant| !tenant.is_of_user())).copied()
    }
}

/// A tenant's dominant share of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TenantShare {
    /// Of [`TenantShare::whole`], without a common divisor.
    part: i128,
    /// Zero if it has something of which the queue may have nothing: more than any share.
    whole: i128,
}

impl TenantShare {
    pub(crate) const NOTHING: Self = Self { part: 0, whole: 1 };

    /// Of what its jobs are charged in a queue.
    pub(crate) fn of_charge(charge: &Dense, slot: &Slot, dims: &Dims) -> Self {
        let share = |dim| Some(Self::new(charge.get(dim), slot.real.get(dim)?)).filter(|share| share.part > 0);
        dims.list_dims().filter_map(share).max().unwrap_or(Self::NOTHING)
    }

    fn new(part: i128, whole: i128) -> Self {
        let (part, whole) = (part.max(0), whole.max(0));
        let divisor = find_common_divisor(part, whole).max(1);
        Self { part: part / divisor, whole: whole / divisor }
    }

    /// Rounded down, for people.
    pub(crate) fn percent(self) -> u64 {
        let percent = self.part.saturating_mul(100).checked_div(self.whole);
        u64::try_from(percent.unwrap_or(i128::MAX)).unwrap_or(u64::MAX)
    }
}

const fn find_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Ord for TenantShare {
    /// By continued fractions: products could be too large.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut a, mut b, mut turned) = (*self, *other, false);
        loop {
            let order = match (a.whole, b.whole) {
                (0, 0) => Ordering::Equal,
                (0, _) => Ordering::Greater,
                (_, 0) => Ordering::Less,
                _ => (a.part / a.whole).cmp(&(b.part / b.whole)),
            };
            if order.is_ne() || a.whole == 0 {
                return if turned { order.reverse() } else { order };
            }
            // What is left of each is less than one: of the reciprocals the larger is the smaller.
            a = Self { part: a.whole, whole: a.part % a.whole };
            b = Self { part: b.whole, whole: b.part % b.whole };
            turned = !turned;
        }
    }
}

impl PartialOrd for TenantShare {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for TenantShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_compared_as_fractions_are(a in 0..60i128, b in 1..60i128, c in 0..60i128, d in 1..60i128) {
            let [first, second] = [TenantShare::new(a, b), TenantShare::new(c, d)];
            prop_assert_eq!(first.cmp(&second), (a * d).cmp(&(c * b)));
            prop_assert_eq!(first == second, first.cmp(&second).is_eq());
            prop_assert!(first < TenantShare::new(1, 0));
        }
    }

    #[test]
    fn shares_of_amounts_that_no_product_holds_are_compared_exactly() {
        let whole = 1i128 << 100;
        let share = |part| TenantShare::new(part, whole - 1);
        assert!(share(whole / 3) < share(whole / 3 + 1) && share(whole / 3 + 1) > TenantShare::new(1, 3));
        assert_eq!(TenantShare::new(whole / 2, whole), TenantShare::new(1, 2));
        assert_eq!(TenantShare::new(1, 0).cmp(&TenantShare::new(7, 0)), Ordering::Equal);
        assert_eq!([TenantShare::new(1, 3), TenantShare::NOTHING].map(TenantShare::percent), [33, 0]);
    }
}
