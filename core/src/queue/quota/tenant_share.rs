//! What a tenant has of a queue: the rule is in [`crate::queue::tenant_order`].

use std::{cell::Cell, cmp::Ordering, fmt};

use crate::queue::{
    quota::{
        amount::Amount,
        amounts::{Ceilings, Dim, DimAmounts},
        history::KeptFraction,
    },
    tenant_order::TenantOrder,
};

impl TenantOrder {
    /// Whether this one may take turns.
    pub(crate) fn counts_tenant(self, tenant: Dim) -> bool {
        self == Self::Users || !tenant.is_of_user()
    }

    /// Whose of these a job is.
    pub(crate) fn tenant_of(self, tenants: &[Dim]) -> Option<Dim> {
        let user = tenants.iter().find(|tenant| tenant.is_of_user()).filter(|_| self == Self::Users);
        user.or_else(|| tenants.iter().find(|tenant| !tenant.is_of_user())).copied()
    }
}

/// What the jobs of one tenant are charged in a queue, what they used lately, and the shares that this is.
///
/// Shares are worked out when they are first asked for, until the charge or what the queue may have changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantCharge {
    amounts: DimAmounts,
    /// The mean of that over the last time, where it counts.
    mean: DimAmounts,
    share_now: Cell<Option<TenantShare>>,
    share_over_time: Cell<Option<TenantShare>>,
}

impl TenantCharge {
    /// Adds amounts so many times; -1 takes them away.
    pub(crate) fn add_times(&mut self, amounts: &[(Dim, Amount)], times: i64) {
        self.amounts.add_times(amounts, times);
        self.forget_share();
    }

    /// The queue may have something else.
    pub(crate) fn forget_share(&mut self) {
        self.share_now.set(None);
        self.share_over_time.set(None);
    }

    /// Of what the queue may have now.
    pub(crate) fn share_now(&self, real: &Ceilings) -> TenantShare {
        let share = self.share_now.get().unwrap_or_else(|| find_dominant_share(self.amounts.iter(), real));
        self.share_now.set(Some(share));
        share
    }

    /// The same, halfway between what is charged and what was used lately. Of what the queue may not have any more that
    /// counts alone which is still charged: else whoever used a resource that went would be last until it is forgotten.
    pub(crate) fn share_over_time(&self, real: &Ceilings) -> TenantShare {
        let share = self.share_over_time.get().unwrap_or_else(|| {
            let amounts = self.amounts.zip(&self.mean, |now, mean| now.midpoint(mean));
            let counts = |(dim, _): &(Dim, Amount)| is_there(*dim, real) || self.amounts.get(*dim).is_positive();
            find_dominant_share(amounts.iter().filter(counts), real)
        });
        self.share_over_time.set(Some(share));
        share
    }

    pub(crate) const fn mean(&self) -> &DimAmounts {
        &self.mean
    }

    pub(crate) fn set_mean(&mut self, mean: DimAmounts) {
        self.mean = mean;
        self.forget_share();
    }

    /// It used this lately beside what is known.
    pub(crate) fn add_mean(&mut self, more: &DimAmounts) {
        self.set_mean(self.mean.zip(more, Amount::saturating_add));
    }

    /// The share that what it used lately is.
    pub(crate) fn share_of_mean(&self, real: &Ceilings) -> TenantShare {
        find_dominant_share(self.mean.iter().filter(|(dim, _)| is_there(*dim, real)), real)
    }

    /// Brings up to date what it used lately. Where it does not take turns what it is charged `counts` for nothing, and
    /// so does what has no ceiling: it is in no share.
    pub(crate) fn decay_mean(&mut self, kept: KeptFraction, counts: bool, real: &Ceilings) {
        let mut mean = DimAmounts::default();
        for (dim, _) in self.mean.iter().chain(self.amounts.iter()) {
            let (was, has_ceiling) = (self.mean.get(dim), real.get(dim).is_some());
            let now = if counts && has_ceiling { self.amounts.get(dim) } else { Amount::ZERO };
            mean.set(dim, kept.age_mean(was, now));
        }
        self.set_mean(mean);
    }
}

/// Whether a queue may have something of it.
fn is_there(dim: Dim, real: &Ceilings) -> bool {
    real.get(dim).is_none_or(Amount::is_positive)
}

fn find_dominant_share(amounts: impl Iterator<Item = (Dim, Amount)>, real: &Ceilings) -> TenantShare {
    let of_one = |(dim, amount)| Some(TenantShare::new(amount, real.get(dim)?));
    let shares = amounts.filter(|(_, amount): &(Dim, Amount)| amount.is_positive()).filter_map(of_one);
    shares.max().unwrap_or(TenantShare::NOTHING)
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
    use crate::queue::quota::{
        amounts::Dims,
        history::{Decay, HISTORY_HALF_LIFE, TICK},
    };

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
        assert_eq!(charge.share_now(&real), share(1, 4), "what has no ceiling counts for nothing");
        real.set(cpu, Some(Amount(4)));
        assert_eq!(charge.share_now(&real), share(1, 4));
        charge.forget_share();
        assert_eq!(charge.share_now(&real), share(1, 2));
        charge.add_times(&held, -1);
        assert_eq!((charge.share_now(&real), charge.amounts), (TenantShare::NOTHING, DimAmounts::default()));
    }

    #[test]
    fn what_a_queue_may_not_have_any_more_counts_while_it_is_held() {
        let mut dims = Dims::default();
        let [cpu, gpu] = ["cpu", "gpu"].map(|name| dims.intern_resource(&name.into()));
        let mut real = Ceilings::nothing();
        real.set(cpu, Some(Amount(8)));
        let mut charge = TenantCharge::default();
        let mut mean = DimAmounts::default();
        mean.set(cpu, Amount(4));
        mean.set(gpu, Amount(4));
        charge.add_mean(&mean);
        assert_eq!((charge.share_over_time(&real), charge.share_now(&real)), (share(2, 8), TenantShare::NOTHING));
        charge.add_times(&[(gpu, Amount(1))], 1);
        assert!(charge.share_over_time(&real) > share(1000, 1) && charge.share_now(&real) > share(1000, 1));
    }

    #[test]
    fn what_is_held_now_and_then_adds_up() {
        let mut dims = Dims::default();
        let [cpu, card] = ["cpu", "card"].map(|name| dims.intern_resource(&name.into()));
        let mut real = Ceilings::nothing();
        real.set(cpu, Some(Amount(1 << 40)));
        real.set(card, None);
        let (mut charge, held) = (TenantCharge::default(), [(cpu, Amount(1 << 20)), (card, Amount(1 << 20))]);
        let tick = Decay::new(HISTORY_HALF_LIFE).keep_after(TICK);
        // Every second tick, and a millionth of the ceiling: half of it is used in the long run.
        let ticks = 3 * HISTORY_HALF_LIFE / TICK;
        for at in 0..ticks {
            let times = 1 - at % 2;
            charge.add_times(&held, times);
            charge.decay_mean(tick, true, &real);
            charge.add_times(&held, -times);
        }
        let mean = charge.mean().get(cpu).0;
        assert!((1 << 18..1 << 19).contains(&mean), "{mean}");
        assert_eq!(charge.mean().get(card), Amount::ZERO, "what has no ceiling is in no share");
        charge.add_times(&held, 1);
        charge.decay_mean(Decay::new(60).keep_after(60), false, &real);
        let (left, half) = (charge.mean().get(cpu).0, mean / 2);
        assert!((left - half).abs() <= 1, "who takes no turns counts for nothing: {left} {half}");
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
