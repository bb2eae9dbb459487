//! Who goes first: keys whose derived order is the rule; [`super::tournament`] puts them together.
//!
//! Rule: Volcano's capacity plugin (share upwards, queues that deserve something before those that do not) and priority
//! plugin (job priority downwards), sla plugin (`sla.go:58-154`: the earliest deadline first, jobs without one last),
//! then age, then UID (`session_plugins.go`).

use std::{cmp::Reverse, fmt, sync::Arc};

use super::dense::{Dense, Dim};

/// A waiting binding's identity: its UID, or anything else that is unique and does not change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Arc<str>);

impl JobId {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}
impl From<String> for JobId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}
impl std::borrow::Borrow<str> for JobId {
    fn borrow(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What decides whose turn it is, from the first to the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OrderPolicy {
    /// Queue priority, share of what the queue deserves, job priority, deadline, age: Volcano's capacity plugin.
    #[default]
    Share,
    /// Queue priority, job priority, deadline, age; what a queue already has does not matter.
    Strict,
    /// Age, across all queues.
    Fifo,
}

/// A job's place among the jobs of one queue; the smallest goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey {
    /// Zero where the policy does not look at it.
    pub(super) priority: Reverse<i32>,
    /// Seconds since 1970, or [`JobKey::NO_DEADLINE`].
    pub(super) deadline: i64,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) id: JobId,
}

impl JobKey {
    /// After every deadline, or not looked at.
    pub(super) const NO_DEADLINE: i64 = i64::MAX;
}

/// How much of what it deserves a queue has: billionths of its dominant resource, rounded down. A queue that deserves
/// nothing has the whole, and goes after one that has used up exactly what it deserves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share {
    billionths: u64,
    best_effort: bool,
}

impl Share {
    const WHOLE: u64 = 1_000_000_000;

    /// `max over the resources that are deserved of used / deserved`; 1 where nothing is.
    pub(super) fn of(used: &Dense, deserved: &[(Dim, i128)]) -> Self {
        let share = |(dim, deserved): &(Dim, i128)| match (used.get(*dim).max(0), *deserved) {
            (0, _) => 0,
            (_, ..=0) => Self::WHOLE,
            (used, deserved) => {
                u64::try_from(used.saturating_mul(i128::from(Self::WHOLE)) / deserved).unwrap_or(u64::MAX)
            }
        };
        let billionths = deserved.iter().map(share).max();
        Self { billionths: billionths.unwrap_or(Self::WHOLE), best_effort: billionths.is_none() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{quantity::Quantity, queue::dense::Dims, resources::Resources};

    #[test]
    fn priority_then_deadline_then_age_then_uid() {
        let key = |priority, deadline: Option<i64>, created, id: &str| JobKey {
            priority: Reverse(priority),
            deadline: deadline.unwrap_or(JobKey::NO_DEADLINE),
            created,
            id: id.into(),
        };
        let none = None;
        let mut keys = [
            key(0, Some(1), 1, "a"),
            key(5, none, 9, "b"),
            key(5, none, 3, "d"),
            key(5, none, 3, "c"),
            key(5, Some(99), 20, "e"),
            key(5, Some(98), 21, "f"),
        ];
        keys.sort();
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids, ["f", "e", "c", "d", "b", "a"]);
    }

    #[test]
    fn the_dominant_share_counts_and_a_zero_entitlement_in_use_is_whole() {
        let mut dims = Dims::default();
        let amounts = |cpu, gpu| -> Resources {
            [("cpu", Quantity::from_units(cpu)), ("gpu", Quantity::from_units(gpu))].into_iter().collect()
        };
        let deserved = dims.sparse(&amounts(10, 4));
        let mut used = Dense::default();
        used.add(&dims.sparse(&amounts(2, 3)));
        let share = |billionths| Share { billionths, best_effort: false };
        assert_eq!(Share::of(&used, &deserved), share(750_000_000));
        assert_eq!(Share::of(&used, &[(deserved[0].0, 0)]), share(Share::WHOLE));
        assert_eq!(Share::of(&Dense::default(), &[(deserved[0].0, 0)]), share(0));
        assert_eq!(Share::of(&used, &[]), Share { billionths: Share::WHOLE, best_effort: true });
        assert!(share(Share::WHOLE) < Share::of(&used, &[]));
    }
}
