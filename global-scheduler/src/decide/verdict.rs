//! What is decided of a binding, and the reasons that its condition `Scheduled` gives.

use caldera_core::place::Decision;

/// Reason of `Scheduled=False`: not enough capacity.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Reason of `Scheduled=False`: no cluster passes the filters.
pub const NO_CLUSTER_FIT: &str = "NoClusterFit";
/// Reason of `Scheduled=False`: anything else.
pub const SCHEDULER_ERROR: &str = "SchedulerError";
/// Reason of `Scheduled=False`: a FederatedResourceQuota denied it.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// Reason of `Scheduled=False`: it leaves all its clusters to be placed again.
pub const WITHDRAWN: &str = "Withdrawn";
/// Reason of `Scheduled=True`.
pub const SUCCESS: &str = "Success";
/// Message of `Scheduled=True`.
pub const SUCCESS_MESSAGE: &str = "Binding has been scheduled successfully.";

/// What to do about a binding.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Write where it goes.
    Place(Decision),
    /// It is where it should be; write that its status says so.
    Confirm {
        /// Also that it was scheduled just now.
        anew: bool,
    },
    /// Write why it goes nowhere.
    Refuse {
        /// Of the condition.
        reason: &'static str,
        /// Of the condition.
        message: String,
        /// Take away the clusters that it has.
        clear: bool,
    },
}

/// What to do, and whether more capacity could change that.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What to do.
    pub step: Step,
    /// Decide again when there may be more capacity.
    pub awaits_capacity: bool,
}

impl Verdict {
    pub(super) const REST: Self = Self { step: Step::Rest, awaits_capacity: false };

    pub(super) fn refuse_with(reason: &'static str, message: impl Into<String>) -> Self {
        Self { step: Step::Refuse { reason, message: message.into(), clear: false }, awaits_capacity: false }
    }
}
