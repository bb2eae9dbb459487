//! Which of the blocked jobs is served first.
//!
//! Rule: priority, then age, where a deadline counts for an hour of age at most. Why nobody starves by that is told by
//! [`super`].

use std::cmp::Reverse;

use crate::{
    queue::pending::job_order::{JobId, JobKey},
    time::{EpochSeconds, SubmitTime},
};

/// A job's place among all that are blocked; the smallest is served first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationRank {
    pub(crate) queue_priority: Reverse<i32>,
    pub(crate) priority: Reverse<i32>,
    /// By when it should have started: its deadline, at the latest [`ReservationRank::AHEAD`]
    /// after it came.
    pub(crate) by: EpochSeconds,
    /// When it came.
    pub(crate) created: SubmitTime,
    pub(crate) id: JobId,
    /// Its deadline, or [`JobKey::NO_DEADLINE`]. No two jobs have the same identity, so it decides nothing here.
    pub(crate) deadline: EpochSeconds,
}

impl ReservationRank {
    /// Seconds within which a job without a deadline should start. A job whose deadline is sooner ranks before others
    /// that are as old, at most as if it were this much older: so those with deadlines, however many come, starve
    /// nobody.
    const AHEAD: i64 = 3600;

    /// A job's place among those of a queue of this priority.
    pub(crate) fn new(queue_priority: i32, key: &JobKey) -> Self {
        Self {
            queue_priority: Reverse(queue_priority),
            priority: key.priority,
            by: key.deadline.min(key.created.as_time().saturating_add(Self::AHEAD)),
            created: key.created,
            id: key.id.clone(),
            deadline: key.deadline,
        }
    }

    /// When it has waited long enough: at its deadline already, if that is sooner.
    pub(crate) fn due_at(&self, wait: i64) -> EpochSeconds {
        let created = self.created.as_time();
        created.saturating_add(wait).min(self.deadline).max(created)
    }

    /// Whether its priorities alone put it before the other.
    pub(crate) fn outranks(&self, other: &Self) -> bool {
        (self.queue_priority, self.priority) < (other.queue_priority, other.priority)
    }
}
