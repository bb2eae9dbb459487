//! What is known of a binding in the queue engine: its phase, and what was decided of it that the watch has not shown.

use std::sync::Arc;

use caldera_core::{
    admission::Admission,
    queue::{JobId, ledger::AdmissionStage},
    reason::Reason,
    time::EpochSeconds,
};
use jiff::Timestamp;

use crate::{
    decide::bindings::{
        grant_history::GrantHistory,
        resize::{Increase, IncreaseKind},
    },
    observe::Key,
    write::Decision,
};

/// What the engine was told of a binding.
#[derive(Debug, PartialEq)]
pub(crate) enum JobPhase {
    OutOfScope,
    Blocked(Box<Reason>),
    Pending,
    Holding { stage: AdmissionStage, reason: Box<Reason> },
}

/// A release that the watch has not shown yet.
#[derive(Debug)]
pub(crate) struct Assumed {
    pub(super) resource_version: Arc<str>,
    pub(crate) admission: Admission,
    /// It is a changed record of a binding that holds quota already.
    pub(crate) resizes: bool,
    pub(super) epoch: Option<Arc<str>>,
    /// When to send it again: `None` while its write is under way.
    pub(super) retry: Option<Timestamp>,
    pub(super) attempts: u32,
}

impl Assumed {
    /// The version of the binding that it was decided for, how often it was sent in vain, and when it is sent again.
    pub(crate) fn describe_tries(&self) -> (&str, u32, Option<Timestamp>) {
        (&self.resource_version, self.attempts, self.retry)
    }

    pub(super) fn to_decision(&self, key: &Key) -> Decision {
        let (key, epoch, admission) = (key.clone(), self.epoch.clone(), self.admission.clone());
        let resource_version = Arc::clone(&self.resource_version);
        match self.resizes {
            true => Decision::Resize { key, resource_version, admission, epoch },
            false => Decision::Release { key, resource_version, admission, epoch },
        }
    }
}

/// What a binding that holds quota asks for on top.
#[derive(Debug)]
pub(crate) struct PendingIncrease {
    /// Its name in the engine.
    pub(super) id: JobId,
    /// Seconds since 1970.
    pub(super) since: EpochSeconds,
    pub(crate) increase: Increase,
}

/// A binding in the engine.
#[derive(Debug)]
pub(crate) struct JobState {
    pub(super) id: JobId,
    pub(crate) phase: JobPhase,
    pub(crate) assumed: Option<Box<Assumed>>,
    /// An eviction of it, or a cut of its surplus, was sent and is not answered.
    pub(super) is_eviction_sent: bool,
    /// The release was refused: not before then, for this reason.
    pub(super) refused: Option<(Arc<str>, Timestamp)>,
    pub(super) increase: Option<Box<PendingIncrease>>,
    /// Whether its record is one that a controller granted.
    pub(crate) grant: GrantHistory,
}

impl JobState {
    /// The stage of one that holds quota, as the watch has shown it.
    pub(crate) fn stage(&self) -> Option<AdmissionStage> {
        match &self.phase {
            JobPhase::Holding { stage, .. } => Some(*stage),
            JobPhase::OutOfScope | JobPhase::Blocked(_) | JobPhase::Pending => None,
        }
    }

    /// Whether the watch has shown what was last decided of it: no release is assumed, no eviction unanswered.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.assumed.is_none() && !self.is_eviction_sent
    }

    /// What waits for it under this name, where that is an increase.
    pub(crate) fn increase_named(&self, id: &JobId) -> Option<&Increase> {
        self.increase.as_deref().filter(|pending| pending.id == *id).map(|pending| &pending.increase)
    }

    pub(super) fn needed_increase(&self) -> Option<&PendingIncrease> {
        self.increase.as_deref().filter(|pending| pending.increase.kind != IncreaseKind::Surplus)
    }

    /// Why the API server refused its release, as long as that counts.
    pub(crate) fn refusal(&self, now: Timestamp) -> Option<&str> {
        self.refused.as_ref().filter(|(_, until)| *until > now).map(|(detail, _)| &**detail)
    }
}
