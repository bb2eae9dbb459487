//! A job as it is now: what a simulation of "what if" starts from. The controller tells it, the simulation goes on from
//! there.

use std::sync::Arc;

use crate::{
    gang::{Gang, QueueName, WorkloadRef},
    place,
    time::{EpochSeconds, SubmitTime},
};

/// A job that waits or holds something.
#[derive(Debug, Clone)]
pub struct LiveJob {
    /// Unique: namespace/name of its binding.
    pub name: Arc<str>,
    /// Whose pods are its own.
    pub workload: WorkloadRef,
    /// The queue that is, or would be, charged.
    pub queue: QueueName,
    /// Larger goes first.
    pub priority: i32,
    /// When it came: jobs of one priority go in this order.
    pub created: SubmitTime,
    /// When it began to run, if it says so.
    pub began: Option<EpochSeconds>,
    /// It is in clusters.
    pub placed: bool,
    /// Seconds that it runs, if it says so.
    pub run_for: Option<i64>,
    /// Seconds after which it is ended, if it is, whatever it says.
    pub limit: Option<i64>,
    /// What it asks for.
    pub gang: Arc<Gang>,
    /// As placement sees it.
    pub binding: Arc<place::Binding>,
    /// Placed as a gang.
    pub whole: bool,
    /// Who submitted it, if that is known.
    pub submitter: Option<Arc<str>>,
    /// It saves its work at least each so many seconds, if it says so.
    pub checkpoint_interval: Option<i64>,
    /// Whether it may be evicted, if it says so.
    pub preemptable: Option<bool>,
    /// All of its pods are best effort.
    pub best_effort: bool,
    /// Nobody is evicted for it.
    pub never_preempts: bool,
    /// The name of the first of those that it starts together with, where it is one of several.
    pub starts_with: Option<Arc<str>>,
}

impl LiveJob {
    /// Seconds that it runs at most, as is decided by: as it says, or until it is ended.
    #[must_use]
    pub fn estimate(&self) -> Option<i64> {
        self.run_for.into_iter().chain(self.limit).min()
    }

    /// It runs, and longer than it said or may.
    #[must_use]
    pub fn is_overdue(&self, now: EpochSeconds) -> bool {
        let end = self.began.zip(self.estimate()).map(|(began, run_for)| began.saturating_add(run_for));
        self.placed && end.is_some_and(|end| end <= now)
    }
}
