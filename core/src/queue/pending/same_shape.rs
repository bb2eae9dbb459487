//! The pending jobs of one queue that ask for the same, in order.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{
    queue::{
        pending::{inadmissible::Inadmissible, job_order::JobKey},
        quota::amounts::Dim,
    },
    time::{EpochSeconds, SubmitTime},
};

/// See the module. There is one at least.
#[derive(Debug, Clone)]
pub(super) struct SameShape {
    /// Beside the others: most shapes have one job in a queue, and a tree of one takes the memory of eleven.
    first: JobKey,
    others: BTreeSet<JobKey>,
    /// Whose they are.
    pub(super) tenants: Box<[Dim]>,
    /// What they lack, if they are inadmissible.
    pub(super) lack: Option<Inadmissible>,
}

impl SameShape {
    /// One job of these tenants.
    pub(super) fn new(first: JobKey, tenants: &[Dim]) -> Self {
        Self { first, others: BTreeSet::new(), tenants: tenants.into(), lack: None }
    }

    pub(super) fn len(&self) -> usize {
        1 + self.others.len()
    }

    pub(super) const fn first(&self) -> &JobKey {
        &self.first
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &JobKey> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Adds a job; the one that was the first until now, if it no longer is.
    pub(super) fn insert(&mut self, key: JobKey) -> Option<JobKey> {
        if key < self.first {
            let was = std::mem::replace(&mut self.first, key);
            self.others.insert(was.clone());
            return Some(was);
        }
        if key != self.first {
            self.others.insert(key);
        }
        None
    }

    /// Takes a job out that is not the only one; true if it was the first.
    pub(super) fn remove(&mut self, key: &JobKey) -> bool {
        if *key != self.first {
            self.others.remove(key);
            return false;
        }
        match self.others.pop_first() {
            Some(next) => self.first = next,
            None => debug_assert!(false, "the last job goes with its shape"),
        }
        true
    }

    /// Those that may rank first: of each priority the one with the earliest deadline, and the oldest without.
    pub(super) fn list_possible_firsts(&self) -> Vec<&JobKey> {
        let mut firsts = Vec::new();
        let mut next = Some(&self.first);
        while let Some(first) = next {
            firsts.push(first);
            if first.deadline < JobKey::NO_DEADLINE {
                let oldest = self.find_first_from(first.priority, JobKey::NO_DEADLINE);
                firsts.extend(oldest.filter(|oldest| oldest.priority == first.priority));
            }
            let last = self.others.last().unwrap_or(&self.first);
            let lower = first.priority.0.checked_sub(1).filter(|_| last.priority != first.priority);
            next = lower.and_then(|lower| self.find_first_from(Reverse(lower), EpochSeconds::MIN));
        }
        firsts
    }

    fn find_first_from(&self, priority: Reverse<i32>, deadline: EpochSeconds) -> Option<&JobKey> {
        let from = JobKey { priority, deadline, created: SubmitTime::MIN, id: "".into() };
        if self.first >= from { Some(&self.first) } else { self.others.range(from..).next() }
    }
}
