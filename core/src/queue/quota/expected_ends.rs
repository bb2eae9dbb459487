//! When charges are expected to end, as far as running jobs said so: it tells when a reservation can be used.

use std::collections::BTreeMap;

use crate::{
    queue::quota::{amounts::Dim, slot::QueueIndex},
    time::EpochSeconds,
};

/// What ends when, under each queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedEnds(BTreeMap<(QueueIndex, Dim), BTreeMap<EpochSeconds, i128>>);

impl ExpectedEnds {
    /// What ends then, for a queue with those above it, was so much and is so much.
    pub(super) fn replace_ending_amount(
        &mut self,
        path: &[QueueIndex],
        end: EpochSeconds,
        was: &[(Dim, i128)],
        is: &[(Dim, i128)],
    ) {
        for at in path {
            for (dim, amount) in was {
                self.add(*at, *dim, end, -amount);
            }
            for (dim, amount) in is {
                self.add(*at, *dim, end, *amount);
            }
        }
    }

    fn add(&mut self, at: QueueIndex, dim: Dim, end: EpochSeconds, amount: i128) {
        let ends = self.0.entry((at, dim)).or_default();
        let sum = ends.entry(end).or_default();
        *sum += amount;
        if *sum == 0 {
            ends.remove(&end);
            if ends.is_empty() {
                self.0.remove(&(at, dim));
            }
        }
    }

    /// When this much will have ended there. Who should have ended by now and has not did not say when it will.
    pub(super) fn find_time_when_freed(
        &self,
        at: QueueIndex,
        dim: Dim,
        mut lacks: i128,
        now: EpochSeconds,
    ) -> Option<EpochSeconds> {
        let later = self.0.get(&(at, dim))?.range(now.checked_add(1)?..);
        for (end, amount) in later {
            lacks -= amount;
            if lacks <= 0 {
                return Some(*end);
            }
        }
        None
    }
}
