//! The token of each reason, and what a token says: whether waiting alone helps, and whether the gate was opened.
//!
//! Rule: as the `reason` of a Kubernetes condition, one CamelCase word that stays the same. A job that only has to wait
//! never shares a token with one that somebody has to change.

use super::{Bound, QueueProblem, Reason};

impl Reason {
    /// The token of [`Reason::ScaledUp`].
    pub const SCALED_UP: &str = "ScaledBeyondAdmission";

    /// The token of [`Reason::NamespaceNotSelected`].
    pub const NAMESPACE_NOT_SELECTED: &str = "NamespaceNotSelected";

    /// The token of [`Reason::BlockedByReservation`].
    pub const BLOCKED_BY_RESERVATION: &str = "BlockedByReservation";

    /// The token of [`Reason::ClustersReserved`].
    pub const CLUSTERS_RESERVED: &str = "ClustersReserved";

    /// The token of [`Reason::CapacityReserved`].
    pub const CAPACITY_RESERVED: &str = "CapacityReserved";

    /// The token of [`Reason::SuspendedByUser`], which a Volcano Job that is Aborted for that says too.
    pub const SUSPENDED_BY_USER: &str = "SuspendedByUser";
    /// The token of [`Reason::RunTimeExceeded`].
    pub const RUN_TIME_EXCEEDED: &str = "RunTimeExceeded";

    /// One CamelCase word.
    #[must_use]
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Queue { problem, .. } => match problem {
                QueueProblem::Missing => "QueueNotFound",
                QueueProblem::NotOpen { .. } => "QueueNotOpen",
                QueueProblem::ParentMissing(_) | QueueProblem::Cycle => "QueueMisconfigured",
                QueueProblem::NotLeaf(_) | QueueProblem::Root => "QueueNotLeaf",
            },
            Self::NamespaceNotSelected { .. } => Self::NAMESPACE_NOT_SELECTED,
            Self::ExceedsLargestJob { .. } => "ExceedsMaxJob",
            Self::ExceedsMaxRunTime { .. } => "ExceedsMaxRunTime",
            Self::PriorityClassNotAllowed { .. } => "PriorityClassNotAllowed",
            Self::NoCardQuota { .. } => "NoCardQuota",
            Self::WaitingForData { .. } => "WaitingForData",
            Self::JobsMissing { .. } => "WaitingForJobs",
            Self::JobsInSeveralQueues { .. } => "JobsInSeveralQueues",
            Self::OnHold { .. } => "OnHold",
            Self::Suspended => "Suspended",
            Self::SuspendedByUser { .. } => Self::SUSPENDED_BY_USER,
            Self::Ending { .. } => "Ending",
            Self::RunTimeExceeded { .. } => Self::RUN_TIME_EXCEEDED,
            Self::Invalid { .. } => "InvalidDemand",
            Self::NoWorkload => "WorkloadNotFound",
            Self::Deleting => "Deleting",
            Self::NotGated => "NotGated",
            Self::NotReleased { .. } => "NotReleased",
            Self::ExceedsLimit { bound: Bound::Fleet, .. } => "ExceedsFleet",
            Self::ExceedsLimit { .. } => "ExceedsCapability",
            Self::Quota { .. } => "WaitingForQuota",
            Self::NoCardModel(reason, _) => reason.token(),
            Self::RunningLimit { .. } => "WaitingForRunningJobs",
            Self::BlockedByReservation { .. } => Self::BLOCKED_BY_RESERVATION,
            Self::Evicted { cause, .. } => cause.token(),
            Self::Requeued { .. } => "Requeued",
            Self::Paused { .. } => "Paused",
            Self::NoReadyCluster { .. } => "NoReadyCluster",
            Self::InsufficientCapacity { .. } => "InsufficientCapacity",
            Self::ClustersReserved { .. } => Self::CLUSTERS_RESERVED,
            Self::CapacityReserved { .. } => Self::CAPACITY_RESERVED,
            Self::NeverFits { .. } => "NeverFits",
            Self::BehindQueueHead { .. } => "BehindQueueHead",
            Self::Next { .. } => "Waiting",
            Self::Admitted { .. } => "Admitted",
            Self::NotPlaced { .. } => "NotPlaced",
            Self::Placed { .. } => "Placed",
            Self::CopyRefused { .. } => "CopyRefused",
            Self::OverRecord { .. } => "HoldsMoreThanAdmitted",
            Self::ScaledUp { .. } => Self::SCALED_UP,
            Self::Foreign { .. } => "PlacedWithoutAdmission",
            Self::Finished { .. } => "Finished",
        }
    }

    /// Tokens of what can not be admitted until somebody changes the job, its queue or the fleet. A hold and a
    /// suspension are not among them: their users wanted them.
    pub const UNSATISFIABLE: [&str; 15] = [
        "ExceedsMaxJob",
        "ExceedsMaxRunTime",
        "PriorityClassNotAllowed",
        "NoCardQuota",
        "ExceedsCapability",
        "ExceedsFleet",
        "NeverFits",
        "InvalidDemand",
        "QueueNotFound",
        "QueueNotOpen",
        "QueueMisconfigured",
        "QueueNotLeaf",
        "NamespaceNotSelected",
        "JobsInSeveralQueues",
        "NotReleased",
    ];

    /// Whether it asks for more than its queue or its clusters have, by the token on its PodGroup.
    #[must_use]
    pub fn is_never_token(token: &str) -> bool {
        ["ExceedsCapability", "ExceedsFleet", "NeverFits"].contains(&token)
    }

    /// Whether it can not be admitted until somebody changes something, by the token on its PodGroup.
    #[must_use]
    pub fn is_unsatisfiable_token(token: &str) -> bool {
        Self::UNSATISFIABLE.contains(&token)
    }

    /// Whether it can not be admitted until somebody changes something.
    #[must_use]
    pub fn is_unsatisfiable(&self) -> bool {
        Self::is_unsatisfiable_token(self.token())
    }

    /// True if waiting alone will not help: somebody has to change something.
    #[must_use]
    pub fn needs_user_action(&self) -> bool {
        self.is_unsatisfiable()
            || matches!(
                self,
                Self::OnHold { .. }
                    | Self::WaitingForData { .. }
                    | Self::Suspended
                    | Self::SuspendedByUser { .. }
                    | Self::RunTimeExceeded { .. }
                    | Self::NotGated
                    | Self::OverRecord { .. }
            )
    }

    /// Whether it waits for what becomes of others that start together with it.
    #[must_use]
    pub const fn is_about_other_jobs(&self) -> bool {
        matches!(self, Self::JobsMissing { .. } | Self::JobsInSeveralQueues { .. })
    }

    /// True once the gate was opened.
    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self, Self::ExceedsLimit { holds, .. } if !holds.is_zero())
            || matches!(
                self,
                Self::Admitted { .. }
                    | Self::NotPlaced { .. }
                    | Self::Placed { .. }
                    | Self::CopyRefused { .. }
                    | Self::OverRecord { .. }
                    | Self::ScaledUp { .. }
                    | Self::Foreign { .. }
                    | Self::Finished { .. }
            )
    }
}
