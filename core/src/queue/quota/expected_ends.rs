//! When charges are expected to end, as far as running jobs said so: it tells when a reservation can be used.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    queue::quota::{amount::Amount, amounts::Dim, slot::QueueIndex},
    time::EpochSeconds,
};

/// What ends when, under each queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedEnds(BTreeMap<(QueueIndex, Dim), BTreeMap<EpochSeconds, Amount>>);

impl ExpectedEnds {
    /// What ends then, for a queue with those above it, was so much and is so much.
    pub(super) fn replace_ending_amount(
        &mut self,
        path: &[QueueIndex],
        end: EpochSeconds,
        was: &[(Dim, Amount)],
        is: &[(Dim, Amount)],
    ) {
        for at in path {
            for (amounts, times) in [(was, -1), (is, 1)] {
                amounts.iter().for_each(|(dim, amount)| self.add(*at, *dim, end, *amount * times));
            }
        }
    }

    fn add(&mut self, at: QueueIndex, dim: Dim, end: EpochSeconds, amount: Amount) {
        let ends = self.0.entry((at, dim)).or_default();
        let sum = ends.entry(end).or_default();
        *sum += amount;
        if sum.is_zero() {
            ends.remove(&end);
            if ends.is_empty() {
                self.0.remove(&(at, dim));
            }
        }
    }

    /// How much will have ended there by then, after now.
    pub(super) fn sum_ending_until(&self, at: QueueIndex, dim: Dim, now: EpochSeconds, then: EpochSeconds) -> Amount {
        let Some(ends) = self.0.get(&(at, dim)).filter(|_| now < then) else { return Amount::ZERO };
        ends.range((Bound::Excluded(now), Bound::Included(then))).map(|(_, amount)| *amount).sum()
    }

    /// When this much will have ended there. Who should have ended by now and has not did not say when it will.
    pub(super) fn find_time_when_freed(
        &self,
        at: QueueIndex,
        dim: Dim,
        mut lacks: Amount,
        now: EpochSeconds,
    ) -> Option<EpochSeconds> {
        let later = self.0.get(&(at, dim))?.range(now.checked_add(1)?..);
        for (end, amount) in later {
            lacks -= *amount;
            if !lacks.is_positive() {
                return Some(*end);
            }
        }
        None
    }
}
