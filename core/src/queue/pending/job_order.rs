//! Which job of a queue goes first, and a queue's share: keys whose derived order is the rule. [`super::queue_order`]
//! puts them together.
//!
//! Rule: Volcano's capacity plugin (share upwards, queues that deserve something before those that do not), priority
//! plugin (job priority downwards) and sla plugin (`sla.go:58-154`: the earliest deadline first, jobs without one
//! last), then age, then UID (`session_plugins.go`). Age is finer than there: jobs of one second
//! go in the order in which they were submitted, where that is known.

use std::{cmp::Reverse, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    queue::quota::{
        amount::Amount,
        amounts::{Dim, DimAmounts},
    },
    time::{EpochSeconds, SubmitTime},
};

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

/// Between a job's name and the number of a card model that it may use instead of its first. It sorts before all that
/// names are made of.
const CHOICE: char = '\u{1}';

impl JobId {
    /// The entry in line of a job for another card model than its first.
    pub(crate) fn with_choice(&self, number: usize) -> Self {
        format!("{self}{CHOICE}{number}").into()
    }

    /// Whether it is such an entry.
    pub(crate) fn is_choice(&self) -> bool {
        self.0.contains(CHOICE)
    }

    /// The job of an entry.
    pub(crate) fn job(&self) -> Self {
        if self.is_choice() { self.job_name().into() } else { self.clone() }
    }

    /// The name of the job of an entry. All entries of a job sort directly behind it.
    pub(crate) fn job_name(&self) -> &str {
        self.0.split_once(CHOICE).map_or(&self.0, |(job, _)| job)
    }

    /// Whether both are entries of one job.
    pub(crate) fn is_of_same_job(&self, other: &Self) -> bool {
        self.job_name() == other.job_name()
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderPolicy {
    /// Queue priority, share of what the queue deserves, job priority, deadline, age: Volcano's capacity plugin.
    #[default]
    Share,
    /// The same with the half of the share that was used over the last time: who had less goes first (Slurm's fair
    /// share).
    FairHistory,
    /// Queue priority, job priority, deadline, age; what a queue already has does not matter.
    Strict,
    /// Age, across all queues.
    Fifo,
}

impl OrderPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Share, Self::FairHistory, Self::Strict, Self::Fifo];

    /// As flags and what is serialized name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::FairHistory => "fair-history",
            Self::Strict => "strict",
            Self::Fifo => "fifo",
        }
    }
}

/// A job's place among the jobs of one queue; the smallest goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    /// Zero where the policy does not look at it.
    pub(crate) priority: Reverse<i32>,
    /// Or [`JobKey::NO_DEADLINE`].
    pub(crate) deadline: EpochSeconds,
    /// When it came.
    pub(crate) created: SubmitTime,
    pub(crate) id: JobId,
}

impl JobKey {
    /// After every deadline, or not looked at.
    pub(crate) const NO_DEADLINE: EpochSeconds = EpochSeconds::MAX;

    /// Whether it is the place of another job than this one, and before it.
    pub(crate) fn is_before_job_of(&self, other: &Self) -> bool {
        self < other && !self.id.is_of_same_job(&other.id)
    }
}

/// How much of what it deserves a queue has: billionths of its dominant resource, rounded down. A queue that deserves
/// nothing has the whole, and goes after one that has used up exactly what it deserves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DominantShare {
    billionths: u64,
    best_effort: bool,
}

impl DominantShare {
    const WHOLE_SHARE: u64 = 1_000_000_000;

    /// `max over the resources that are deserved of used / deserved`; 1 where nothing is. Zero of a resource deserves
    /// none of it (`ResourceNames`, `IsEmpty` of `resource_info.go`).
    pub(crate) fn of_usage(used: &DimAmounts, deserved: &[(Dim, Amount)]) -> Self {
        let of_one = |(dim, deserved): &(Dim, Amount)| {
            let used = used.get(*dim);
            if used.is_positive() { u64::try_from(used.billionths_of(*deserved)).unwrap_or(u64::MAX) } else { 0 }
        };
        let billionths = deserved.iter().filter(|(_, deserved)| deserved.is_positive()).map(of_one).max();
        Self { billionths: billionths.unwrap_or(Self::WHOLE_SHARE), best_effort: billionths.is_none() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        quantity::Quantity,
        queue::quota::amounts::Dims,
        resources::{ResourceName, Resources},
    };

    #[test]
    fn an_order_is_serialized_by_its_name() {
        for order in OrderPolicy::ALL {
            assert_eq!(serde_json::to_value(order).unwrap(), order.as_str());
        }
    }

    #[test]
    fn priority_then_deadline_then_age_then_uid() {
        let key = |priority, deadline: Option<i64>, created: i64, id: &str| JobKey {
            priority: Reverse(priority),
            deadline: deadline.map_or(JobKey::NO_DEADLINE, EpochSeconds::new),
            created: created.into(),
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

    /// They went in the order of their UIDs, which is none.
    #[test]
    fn jobs_of_one_second_go_in_the_order_of_submission() {
        let key = |created: SubmitTime, id: String| JobKey {
            priority: Reverse(0),
            deadline: JobKey::NO_DEADLINE,
            created,
            id: id.into(),
        };
        let submitted = |at: u32| {
            key(SubmitTime::new(EpochSeconds::new(7), 7_000_000 + i64::from(at)), format!("{}", 999_999 - at))
        };
        let in_order: Vec<JobKey> = (1..500).map(|at| submitted(at * 2_000)).collect();
        let mut keys = in_order.clone();
        keys.sort_by(|a, b| a.id.cmp(&b.id));
        assert_ne!(keys, in_order);
        keys.sort();
        assert_eq!(keys, in_order);
        // Of what has no stamp the second is known alone.
        assert!(key(7.into(), "z".into()) < in_order[0] && in_order[498] < key(8.into(), "a".into()));
        // However early a job says that it was submitted, it goes after those of an earlier second.
        assert!(in_order[498] < key(SubmitTime::new(EpochSeconds::new(8), 0), "a".into()));
    }

    /// Volcano's `Test_updateQueueAttrShare` (`capacity_test.go`); requests are no part of it, here not even an
    /// argument.
    #[test]
    fn the_share_is_as_in_volcanos_table() {
        // cpu and memory deserved, cpu and memory used (in tenths), share in hundredths; the last column: best effort.
        let table = [
            ([20, 20], [0, 0], 0, false),
            ([20, 20], [10, 10], 50, false),
            ([20, 20], [20, 20], 100, false),
            ([20, 20], [30, 20], 150, false),
            ([20, 40], [10, 30], 75, false),
            ([20, 40], [15, 20], 75, false),
            ([20, 20], [30, 30], 150, false),
            ([0, 0], [10, 10], 100, true),
            ([0, 0], [0, 0], 100, true),
            ([0, 0], [10, 0], 100, true),
            ([0, 0], [0, 10], 100, true),
            // Not in their table, but what `ResourceNames` makes of it: zero is not looked at.
            ([20, 0], [10, 10], 50, false),
        ];
        for (deserved, used, hundredths, best_effort) in table {
            let mut dims = Dims::default();
            let names = ["cpu", "memory"].map(ResourceName::from);
            let of = |tenths: [i64; 2]| tenths.map(|tenths| Quantity::from_milli(tenths * 100));
            let deserved: Vec<_> = (names.iter().zip(of(deserved)))
                .map(|(name, amount)| (dims.intern_resource(name), amount.into()))
                .collect();
            let mut amounts = DimAmounts::default();
            amounts.add(&dims.intern_amounts(&names.iter().cloned().zip(of(used)).collect::<Resources>()));
            let want = DominantShare { billionths: hundredths * 10_000_000, best_effort };
            assert_eq!(DominantShare::of_usage(&amounts, &deserved), want, "{deserved:?} {used:?}");
        }
    }

    #[test]
    fn whoever_deserves_nothing_goes_after_whoever_has_all_it_deserves() {
        let whole = DominantShare { billionths: DominantShare::WHOLE_SHARE, best_effort: false };
        let nothing = DominantShare::of_usage(&DimAmounts::default(), &[]);
        assert!(
            whole < nothing
                && nothing < DominantShare { billionths: DominantShare::WHOLE_SHARE + 1, best_effort: false }
        );
    }
}
