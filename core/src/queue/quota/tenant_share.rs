//! What a tenant has of a queue: the rule is in [`crate::queue::tenant_order`].

use std::{cell::Cell, cmp::Ordering, fmt};

use crate::queue::{
    quota::{
        amount::Amount,
        amounts::{Ceilings, Dim, DimAmounts},
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

/// What the jobs of one tenant are charged in a queue, and the share that this is.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantCharge {
    amounts: DimAmounts,
    /// Worked out when it is first asked for, until the charge or what the queue may have changes.
    share: Cell<Option<TenantShare>>,
}

impl TenantCharge {
    /// Adds amounts so many times; -1 takes them away.
    pub(crate) fn add_times(&mut self, amounts: &[(Dim, Amount)], times: i64) {
        self.amounts.add_times(amounts, times);
        self.forget_share();
    }

    /// The queue may have something else.
    pub(crate) fn forget_share(&mut self) {
        self.share.set(None);
    }

    /// Of what the queue may have now.
    pub(crate) fn share(&self, real: &Ceilings) -> TenantShare {
        let share = self.share.get().unwrap_or_else(|| {
            let of_one = |(dim, amount)| Some(TenantShare::new(amount, real.get(dim)?));
            let shares = self.amounts.iter().filter(|(_, amount)| amount.is_positive()).filter_map(of_one);
            shares.max().unwrap_or(TenantShare::NOTHING)
        });
        self.share.set(Some(share));
        share
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

    fn new(part: Amount, whole: Amount) -> Self {
        let (part, whole) = (part.0.max(0), whole.0.max(0));
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
        if self == other {
            return Ordering::Equal;
        }
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
    use crate::queue::quota::amounts::Dims;

    fn share(part: i128, whole: i128) -> TenantShare {
        TenantShare::new(Amount(part), Amount(whole))
    }

    #[test]
    fn a_share_is_kept_until_the_charge_or_what_the_queue_may_have_changes() {
        let mut dims = Dims::default();
        let [cpu, gpu] = ["cpu", "gpu"].map(|name| dims.intern_resource(&name.into()));
        let mut real = Ceilings::nothing();
        real.set(cpu, Some(Amount(8)));
        real.set(gpu, None);
        let (mut charge, held) = (TenantCharge::default(), [(cpu, Amount(2)), (gpu, Amount(7))]);
        charge.add_times(&held, 1);
        assert_eq!(charge.share(&real), share(1, 4), "what has no ceiling counts for nothing");
        real.set(cpu, Some(Amount(4)));
        assert_eq!(charge.share(&real), share(1, 4));
        charge.forget_share();
        assert_eq!(charge.share(&real), share(1, 2));
        charge.add_times(&held, -1);
        assert_eq!((charge.share(&real), charge.amounts), (TenantShare::NOTHING, DimAmounts::default()));
    }

    proptest! {
        #[test]
        fn shares_are_compared_as_fractions_are(a in 0..60i128, b in 1..60i128, c in 0..60i128, d in 1..60i128) {
            let [first, second] = [share(a, b), share(c, d)];
            prop_assert_eq!(first.cmp(&second), (a * d).cmp(&(c * b)));
            prop_assert_eq!(first == second, first.cmp(&second).is_eq());
            prop_assert!(first < share(1, 0));
        }
    }

    #[test]
    fn shares_of_amounts_that_no_product_holds_are_compared_exactly() {
        let whole = 1i128 << 100;
        let third = |more| share(whole / 3 + more, whole - 1);
        assert!(third(0) < third(1) && third(1) > share(1, 3));
        assert_eq!(share(whole / 2, whole), share(1, 2));
        assert_eq!(share(1, 0).cmp(&share(7, 0)), Ordering::Equal);
        assert_eq!([share(1, 3), TenantShare::NOTHING].map(TenantShare::percent), [33, 0]);
    }
}
