//! Amounts of several resources on a node: as small as it can be, for there is one for each state that a node is in.

use std::{borrow::Borrow, collections::BTreeMap};

use crate::{
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

/// Amounts by name, zeros included, with an order, so that shapes can be sorted and grouped.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amounts(Box<[(ResourceName, Quantity)]>);

impl Amounts {
    /// The amount of a name, if it is there.
    pub fn get<N: Ord + ?Sized>(&self, name: &N) -> Option<&Quantity>
    where
        ResourceName: Borrow<N>,
    {
        self.find(name).map(|at| &self.0[at].1)
    }

    /// The amount of a name, if it is there.
    pub fn get_mut<N: Ord + ?Sized>(&mut self, name: &N) -> Option<&mut Quantity>
    where
        ResourceName: Borrow<N>,
    {
        self.find(name).map(|at| &mut self.0[at].1)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, &Quantity)> {
        self.0.iter().map(|(name, amount)| (name, amount))
    }

    /// The names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &ResourceName> {
        self.0.iter().map(|(name, _)| name)
    }

    /// True without any name.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This and `other`.
    pub(super) fn plus(&self, other: &Self) -> Self {
        self.combine(other, Quantity::saturating_add)
    }

    /// This without `other`; amounts never go below zero.
    pub(super) fn signed_sub(&self, other: &Self) -> Self {
        self.combine(other, Quantity::saturating_sub)
    }

    fn combine(&self, other: &Self, by: fn(Quantity, Quantity) -> Quantity) -> Self {
        let mut sum: BTreeMap<&ResourceName, Quantity> = self.iter().map(|(name, amount)| (name, *amount)).collect();
        for (name, amount) in other.iter() {
            let known = sum.entry(name).or_default();
            *known = by(*known, *amount);
        }
        Self(sum.into_iter().filter(|(_, sum)| !sum.is_zero()).map(|(name, sum)| (name.clone(), sum)).collect())
    }

    fn find<N: Ord + ?Sized>(&self, name: &N) -> Option<usize>
    where
        ResourceName: Borrow<N>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(name)).ok()
    }
}

impl FromIterator<(ResourceName, Quantity)> for Amounts {
    /// Of a name that comes twice the last counts.
    fn from_iter<T: IntoIterator<Item = (ResourceName, Quantity)>>(amounts: T) -> Self {
        let mut all: Vec<(ResourceName, Quantity)> = amounts.into_iter().collect();
        all.reverse();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.dedup_by(|(b, _), (a, _)| a == b);
        Self(all.into())
    }
}

impl<const N: usize> From<[(ResourceName, Quantity); N]> for Amounts {
    fn from(amounts: [(ResourceName, Quantity); N]) -> Self {
        amounts.into_iter().collect()
    }
}

impl From<&Resources> for Amounts {
    fn from(amounts: &Resources) -> Self {
        Self(amounts.iter().map(|(name, amount)| (name.clone(), amount)).collect())
    }
}

impl From<&Amounts> for Resources {
    fn from(amounts: &Amounts) -> Self {
        amounts.iter().map(|(name, amount)| (name.clone(), *amount)).collect()
    }
}

/// A pod's requests as schedulers count them: milli cores and whole units of all else, rounded up.
#[must_use]
pub fn round_up_request(request: &Resources) -> Resources {
    let round = |name: &ResourceName, amount: Quantity| {
        if name.as_str() == ResourceName::CPU {
            Quantity::from_nano(amount.milli_ceil().saturating_mul(1_000_000))
        } else {
            Quantity::from_nano(amount.units_ceil().saturating_mul(1_000_000_000))
        }
    };
    request.iter().map(|(name, amount)| (name.clone(), round(name, amount))).collect()
}
