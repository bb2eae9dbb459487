//! Bindings that are to be looked at again, each at a time of its own; and how times are added, compared and backed
//! off.
//!
//! [`Deadlines`] keeps a time for each binding, and beside it what its owner knows of it. A binding may be known
//! without a time. Nothing is removed when it is due: whoever acts on it gives it another time first, should its write
//! fail. What it keeps is asked for and forgotten in one place,
//! [`binding_deadlines`](super::controller::binding_deadlines), not by each owner. The backoff after failures in a row
//! doubles, up to 64 times the first wait and ten minutes at most. That of a requeued job is another one
//! ([`eviction`](super::bindings::eviction)).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::observe::Key;

/// A time for each binding, with what is known beside it. `None` is a binding that is known and has no deadline.
#[derive(Debug)]
pub(crate) struct Deadlines<T>(BTreeMap<Key, (Option<Timestamp>, T)>);

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Deadlines<T> {
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut (Option<Timestamp>, T)> {
        self.0.get_mut(key)
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn has_deadline(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|(at, _)| at.is_some())
    }

    pub(crate) fn set(&mut self, key: &Key, at: Timestamp, value: T) {
        self.0.insert(key.clone(), (Some(at), value));
    }

    /// Gives a binding another time, and keeps what is known of it.
    pub(crate) fn postpone(&mut self, key: &Key, until: Timestamp) {
        if let Some((at, _)) = self.0.get_mut(key) {
            *at = Some(until);
        }
    }

    /// Leaves a binding known, and without a time.
    pub(crate) fn clear_deadline(&mut self, key: &Key) {
        if let Some((at, _)) = self.0.get_mut(key) {
            *at = None;
        }
    }

    pub(crate) fn entry_or_insert(&mut self, key: &Key, value: T) -> &mut (Option<Timestamp>, T) {
        self.0.entry(key.clone()).or_insert((None, value))
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// The first deadline.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|(at, _)| *at).min()
    }

    /// Those whose deadline is over.
    pub(crate) fn list_due(&self, now: Timestamp) -> Vec<Key> {
        let due = |at: &Option<Timestamp>| at.is_some_and(|at| at <= now);
        self.0.iter().filter(|(_, (at, _))| due(at)).map(|(key, _)| key.clone()).collect()
    }
}

/// Beside the times, how often something was tried.
impl Deadlines<u32> {
    /// Begins to wait for what concerns a binding, unless it is waited for already; ends that where nothing does.
    pub(crate) fn start_or_end(&mut self, key: &Key, concerns: bool, due: Timestamp) {
        if !concerns {
            self.forget(key);
        } else if !self.contains(key) {
            self.set(key, due, 0);
        }
    }

    /// One more try is made now, and the next one is due after the backoff. How many were made.
    pub(crate) fn record_try(&mut self, key: &Key, first: SignedDuration, now: Timestamp) -> u32 {
        let Some((due, tries)) = self.0.get_mut(key) else { return 0 };
        *tries = tries.saturating_add(1);
        *due = Some(add_wait(now, compute_backoff(first, *tries)));
        *tries
    }
}

/// So long after a time; that time itself at the end of all time.
pub(crate) fn add_wait(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.saturating_add(wait).unwrap_or(time)
}

/// How long to wait after so many failures in a row, when one of them costs `first`: twice as long each time, up to 64
/// times that, and never longer than ten minutes. What fails for good is logged as often as it is tried.
pub(crate) fn compute_backoff(first: SignedDuration, failures: u32) -> SignedDuration {
    const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);
    let times = 1 << failures.saturating_sub(1).min(6);
    first.checked_mul(times).unwrap_or(LONGEST_BACKOFF).min(LONGEST_BACKOFF.max(first))
}

/// The earlier of two times that may not be set.
pub(crate) fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}
