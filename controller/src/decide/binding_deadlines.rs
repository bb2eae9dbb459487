//! What has a deadline for a binding, each with its own rule.

use jiff::Timestamp;

use super::{
    deadlines::earliest, failed_job::FailedJobs, forged_record::FaultyRecords, held_copy::HeldCopies,
    orphan_copy::OrphanCopies, placement_deadlines::PlacementDeadlines, pods_ready::StartDeadlines,
    policy_restart::PolicyRestarts, refused_copy::RefusedCopies, run_limits::RunLimits, silent_copy::SilentCopies,
    stale_grant::StaleGrants, unused_quota::UnusedQuota, withdrawal::Withdrawals,
};
use crate::observe::Key;

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
    pub(crate) orphans: OrphanCopies,
    pub(crate) held: HeldCopies,
    pub(crate) restarts: PolicyRestarts,
    pub(crate) failed: FailedJobs,
}

impl BindingDeadlines {
    /// The binding is gone.
    pub(crate) fn forget_binding(&mut self, key: &Key, now: Timestamp) {
        self.placement.observe_phase(key, None, now);
        self.start.forget(key);
        self.unused.forget(key);
        self.stale.forget(key);
        self.forged.forget(key);
        self.withdrawals.forget(key);
        self.run_limits.forget(key);
        self.refused.forget(key);
        self.silent.forget(key);
        self.orphans.forget(key);
        self.held.forget(key);
        self.restarts.forget(key);
        self.failed.forget(key);
    }

    /// The first of them.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.list_next_due().into_iter().map(|(_, at)| at).fold(None, earliest)
    }

    /// The first of each kind.
    pub(crate) fn list_next_due(&self) -> [(&'static str, Option<Timestamp>); 13] {
        [
            ("placement", self.placement.next_due()),
            ("start", self.start.next_due()),
            ("unusedQuota", self.unused.next_due()),
            ("staleGrant", self.stale.next_due()),
            ("faultyRecord", self.forged.next_due()),
            ("withdrawal", self.withdrawals.next_due()),
            ("runLimit", self.run_limits.next_due()),
            ("refusedCopy", self.refused.next_due()),
            ("silentCopy", self.silent.next_due()),
            ("orphanCopy", self.orphans.next_due()),
            ("heldCopy", self.held.next_due()),
            ("policyRestart", self.restarts.next_due()),
            ("failedJob", self.failed.next_due()),
        ]
    }
}
