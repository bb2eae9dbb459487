//! What an administrator can choose about preemption: whether queues reclaim, which priorities preempt which, which
//! jobs and namespaces are spared, and the bounds of [`super::budget`].

use std::{collections::BTreeSet, sync::Arc};

use crate::{gang::QueueName, queue::preemption::PreemptionBounds};

/// Who may take from whom at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionPolicy {
    /// Queues take back what they deserve.
    pub reclaim: bool,
    /// Priorities that may be preempted by others; any rule that holds is enough, none is no preemption at all.
    pub preempt: Vec<PreemptionRule>,
    /// What holds for jobs that do not say whether they are preemptable.
    pub unset: UnmarkedJobs,
    /// Namespaces of which nothing is ever taken.
    pub protected: BTreeSet<Arc<str>>,
    /// How much at most.
    pub bounds: PreemptionBounds,
}

/// A job without `volcano.sh/preemptable`. Volcano reads that as "no" for pods, so that by default nothing is ever
/// reclaimed there. Here a loan is known to be a loan: who borrows may be taken from unless the job says no. Within a
/// queue nobody lent anything, so a higher priority alone is no leave to stop a neighbour's job: that job must have
/// said yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmarkedJobs {
    /// It may be reclaimed.
    pub reclaim: bool,
    /// It may be preempted.
    pub preempt: bool,
}

/// `by` may preempt `of` where both are as near as `scope` says, if its priority is higher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionRule {
    /// Who takes.
    pub by: JobSelector,
    /// Who gives.
    pub of: JobSelector,
    /// How near.
    pub scope: RuleScope,
}

/// Some jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSelector {
    /// Of this queue, or of one below it.
    pub queue: Option<QueueName>,
    /// Of at least this priority.
    pub least: i32,
    /// Of at most this priority.
    pub most: i32,
}

/// How near two jobs' queues are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleScope {
    /// One queue.
    SameQueue,
    /// Queues of one parent.
    SameParent,
    /// Any queues.
    AnyQueue,
}

impl JobSelector {
    /// All jobs.
    pub const ANY: Self = Self { queue: None, least: i32::MIN, most: i32::MAX };

    /// `path`: the job's queue and those above it.
    pub(crate) fn matches_job<'a>(&self, mut path: impl Iterator<Item = &'a QueueName>, priority: i32) -> bool {
        (self.least..=self.most).contains(&priority)
            && self.queue.as_ref().is_none_or(|queue| path.any(|name| name == queue))
    }
}

impl Default for PreemptionPolicy {
    fn default() -> Self {
        Self {
            reclaim: true,
            preempt: vec![PreemptionRule { by: JobSelector::ANY, of: JobSelector::ANY, scope: RuleScope::SameQueue }],
            unset: UnmarkedJobs { reclaim: true, preempt: false },
            protected: ["kube-system", "karmada-system", "volcano-system"].map(Arc::from).into(),
            bounds: PreemptionBounds::default(),
        }
    }
}
