//! What has a deadline for a binding, each with its own rule.

use jiff::Timestamp;

use crate::{
    decide::{
        admission::{forged_record::FaultyRecords, stale_grant::StaleGrants, unused_quota::UnusedQuota},
        copies::{
            held_copy::HeldCopies, orphan_copy::OrphanCopies, placement_deadlines::PlacementDeadlines,
            pods_ready::StartDeadlines, refused_copy::RefusedCopies, silent_copy::SilentCopies,
            unreported_copy::UnreportedCopies,
        },
        deadlines::earliest,
        lifecycle::{
            failed_job::FailedJobs, min_success::EnoughSuccesses, policy_restart::PolicyRestarts,
            run_limits::RunLimits, withdrawal::Withdrawals,
        },
    },
    observe::Key,
};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BindingDeadlines {
    pub(crate) placement: PlacementDeadlines,
    pub(crate) start: StartDeadlines,
    pub(crate) unused: UnusedQuota,
    pub(crate) stale: StaleGrants,
    pub(crate) forged: FaultyRecords,
    pub(crate) withdrawals: Withdrawals,
    pub(crate) run_limits: RunLimits,
    pub(crate) refused: RefusedCopies,
    pub(crate) silent: SilentCopies,
    pub(crate) unreported: UnreportedCopies,
    pub(crate) orphans: OrphanCopies,
    pub(crate) held: HeldCopies,
    pub(crate) restarts: PolicyRestarts,
    pub(crate) failed: FailedJobs,
    pub(crate) successes: EnoughSuccesses,
}

impl BindingDeadlines {
    /// The binding is gone.
    pub(crate) fn forget_binding(&mut self, key: &Key) {
        self.placement.0.forget(key);
        self.start.forget(key);
        self.unused.0.forget(key);
        self.stale.0.forget(key);
        self.forged.0.forget(key);
        self.withdrawals.0.forget(key);
        self.run_limits.forget(key);
        self.refused.0.forget(key);
        self.silent.0.forget(key);
        self.unreported.0.forget(key);
        self.orphans.0.forget(key);
        self.held.0.forget(key);
        self.restarts.forget(key);
        self.failed.0.forget(key);
        self.successes.0.forget(key);
    }

    /// The first of them.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.list_next_due().into_iter().map(|(_, at)| at).fold(None, earliest)
    }

    /// The first of each kind.
    pub(crate) fn list_next_due(&self) -> [(&'static str, Option<Timestamp>); 15] {
        [
            ("placement", self.placement.0.next_due()),
            ("start", self.start.next_due()),
            ("unusedQuota", self.unused.0.next_due()),
            ("staleGrant", self.stale.0.next_due()),
            ("faultyRecord", self.forged.0.next_due()),
            ("withdrawal", self.withdrawals.0.next_due()),
            ("runLimit", self.run_limits.next_due()),
            ("refusedCopy", self.refused.0.next_due()),
            ("silentCopy", self.silent.0.next_due()),
            ("unreportedCopy", self.unreported.0.next_due()),
            ("orphanCopy", self.orphans.0.next_due()),
            ("heldCopy", self.held.0.next_due()),
            ("policyRestart", self.restarts.next_due()),
            ("failedJob", self.failed.0.next_due()),
            ("minSuccess", self.successes.0.next_due()),
        ]
    }
}
