//! Whether the tenants of a queue take turns by what they have of it.
//!
//! Rule: dominant resource fairness (Ghodsi et al., NSDI'11), as Volcano's `drf` plugin has it between namespaces
//! (`pkg/scheduler/plugins/drf`), inside one queue: of jobs of one priority that of the tenant goes first whose
//! dominant share is the smallest. A tenant's share of a resource is what its jobs are charged in the queue, of what
//! the queue may have now; the largest of them is the dominant one. Shares are compared as fractions, exactly. A tenant
//! is a namespace, or a user; jobs of which no user is known are those of their namespace. The nearest queue on the way
//! to the root that says something counts, for each queue below it alone.

use std::{cmp::Ordering, fmt};

use crate::queue::quota::{
    amounts::{Dense, Dim, Dims},
    slot::Slot,
};

/// A queue's word on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantOrder {
    /// Its tenants do not matter.
    None,
    /// Namespaces take turns.
    Namespaces,
    /// Users do.
    Users,
}

impl TenantOrder {
    /// All of them.
    const ALL: [Self; 3] = [Self::None, Self::Namespaces, Self::Users];

    /// As the annotation says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Namespaces => "drf-by-namespace",
            Self::Users => "drf-by-user",
        }
    }

    /// Of the annotation's text.
    ///
    /// # Errors
    /// With why it can not be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let said = || text.chars().take(40).collect::<String>();
        let named = Self::ALL.into_iter().find(|order| order.as_str() == text);
        named.ok_or_else(|| format!("{:?} is no order: there are drf-by-namespace, drf-by-user and none", said()))
    }

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

    #[test]
    fn an_order_that_there_is_not_is_told_in_words() {
        for order in TenantOrder::ALL {
            assert_eq!(TenantOrder::parse(order.as_str()), Ok(order));
        }
        let problem = TenantOrder::parse("drf").unwrap_err();
        assert_eq!(problem, "\"drf\" is no order: there are drf-by-namespace, drf-by-user and none");
    }
}
