//! The phase of a job over all its copies.
//!
//! Rule: the first statement that holds for the union. As many pods have succeeded as a split job wants (`minSuccess`):
//! Completed, whatever else runs, and Completing until nothing does. A copy that the gang needs has failed: Failed, or
//! Restarting where the job's policies have a failed pod restart all of it; where `minSuccess` counts, a copy of which
//! all pods ended has not failed the job while others run. Every copy has ended: the end that says most
//! (Terminated, Aborted, Completed if the union met its minimum, else Failed), with Completing for Completed while a
//! pod runs. Some copy is terminating, aborting or restarting, in this order: so is the job. All copies are completing
//! or completed: Completing. Otherwise Volcano's own test, over the sums: Running when `running + succeeded + failed >=
//! minAvailable`, or when every copy that the gang needs says that it runs; else Pending. A job that has ended for good
//! stays so when its copies vanish.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::{JobStatus, MemberStatus, Template};
use crate::gang::ClusterName;

/// Volcano's job phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Phase {
    /// Waits for pods to start.
    Pending,
    /// At least the minimum runs.
    Running,
    /// Starts over.
    Restarting,
    /// Ends well.
    Completing,
    /// Ended well.
    Completed,
    /// Is being suspended.
    Aborting,
    /// Suspended; may be resumed.
    Aborted,
    /// Is being ended.
    Terminating,
    /// Ended by command.
    Terminated,
    /// Ended badly.
    Failed,
}

impl Phase {
    const ALL: [Self; 10] = [
        Self::Pending,
        Self::Running,
        Self::Restarting,
        Self::Completing,
        Self::Completed,
        Self::Aborting,
        Self::Aborted,
        Self::Terminating,
        Self::Terminated,
        Self::Failed,
    ];

    /// Volcano's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Restarting => "Restarting",
            Self::Completing => "Completing",
            Self::Completed => "Completed",
            Self::Aborting => "Aborting",
            Self::Aborted => "Aborted",
            Self::Terminating => "Terminating",
            Self::Terminated => "Terminated",
            Self::Failed => "Failed",
        }
    }

    /// Nothing leads out of it (Aborted can be resumed).
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Terminated | Self::Failed)
    }

    /// No pod of the job is meant to run any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        self.is_final() || matches!(self, Self::Aborted)
    }

    /// Whether a copy in this phase does its work: Karmada's health. A gang that waits for its start is not healthy, so
    /// that failover can move it and a graceful eviction waits for its replacement.
    #[must_use]
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Running | Self::Completing | Self::Completed)
    }
}

/// An empty or unknown word reads as Pending: a newer Volcano must not stop the merge.
impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        Ok(Self::ALL.into_iter().find(|phase| phase.as_str() == word).unwrap_or(Self::Pending))
    }
}

/// Whether the job has ended for good and nobody says otherwise: copies that vanish later (a lost cluster, a cleaned-up
/// Work) do not bring it back, nor does one whose Volcano forgets how many of its pods succeeded.
pub(super) fn is_settled(previous: &JobStatus, members: &BTreeMap<ClusterName, MemberStatus>) -> bool {
    previous.state.phase.is_some_and(Phase::is_final)
        && (previous.state.has_enough_successes()
            || members.is_empty()
            || members.values().any(|member| member.phase().is_none()))
        && members.values().all(|member| {
            member.status.as_ref().is_none_or(|s| s.running == 0 && s.state.phase.is_none_or(Phase::is_final))
        })
}

/// Whether as many pods of a split job have succeeded as it wants. A copy that does something else than to run has its
/// way first, as in Volcano; what was once enough stays so while the copies are taken away.
pub(super) fn have_enough_succeeded(
    template: Template,
    previous: &JobStatus,
    sums: &JobStatus,
    members: &BTreeMap<ClusterName, MemberStatus>,
) -> bool {
    let goes_another_way = |member: &MemberStatus| match member.phase() {
        Some(Phase::Restarting | Phase::Aborting | Phase::Aborted | Phase::Terminating | Phase::Terminated) => true,
        Some(Phase::Failed) => !member.is_surplus() && !member.has_run_to_its_end(template),
        _ => false,
    };
    previous.state.has_enough_successes()
        || template.min_success.is_some_and(|wanted| wanted > 0 && sums.succeeded >= wanted)
            && !members.values().any(goes_another_way)
}

/// The phase of a job of which enough pods have succeeded.
pub(super) fn decide_completion_phase(sums: &JobStatus, members: &BTreeMap<ClusterName, MemberStatus>) -> Phase {
    let has_ended = |member: &MemberStatus| member.phase().is_some_and(Phase::has_ended);
    if sums.running == 0 && members.values().all(has_ended) { Phase::Completed } else { Phase::Completing }
}

/// The job's phase; `sums` holds the members' counters.
pub(super) fn merge_phases(
    template: Template,
    sums: &JobStatus,
    members: &BTreeMap<ClusterName, MemberStatus>,
) -> Phase {
    let any = |phase: Phase| members.values().any(|member| member.phase() == Some(phase));
    let fails = |member: &&MemberStatus| !member.is_surplus() && !member.has_run_to_its_end(template);
    let mut failed = members.values().filter(|member| member.phase() == Some(Phase::Failed)).filter(fails).peekable();
    if failed.peek().is_some() {
        let restarts = |member: &MemberStatus| {
            let times = member.status.as_ref().map_or(0, |status| status.retry_count);
            template.restarts_failed_copies.is_some_and(|most| template.restarts.saturating_add(times) < most)
        };
        return if failed.all(restarts) { Phase::Restarting } else { Phase::Failed };
    }
    let nothing_runs = sums.running == 0;
    if !members.is_empty() && members.values().all(|member| member.phase().is_some_and(Phase::has_ended)) {
        return match decide_final_phase(template, sums, members) {
            Phase::Completed if !nothing_runs => Phase::Completing,
            end => end,
        };
    }
    if any(Phase::Terminating) || any(Phase::Terminated) {
        return Phase::Terminating;
    }
    if any(Phase::Aborting) || any(Phase::Aborted) {
        return Phase::Aborting;
    }
    if any(Phase::Restarting) {
        return Phase::Restarting;
    }
    let all_end_well = |member: &MemberStatus| matches!(member.phase(), Some(Phase::Completing | Phase::Completed));
    if any(Phase::Completing) && members.values().all(all_end_well) {
        return Phase::Completing;
    }
    if has_started(template, sums, members) { Phase::Running } else { Phase::Pending }
}

/// All copies have ended: how the job ended.
fn decide_final_phase(template: Template, sums: &JobStatus, members: &BTreeMap<ClusterName, MemberStatus>) -> Phase {
    let any = |phase: Phase| members.values().any(|member| member.phase() == Some(phase));
    if any(Phase::Terminated) {
        return Phase::Terminated;
    }
    if any(Phase::Aborted) {
        return Phase::Aborted;
    }
    // Only copies that the gang can do without failed: the union decides, as Volcano does when all pods are finished.
    let needed = template.min_success.unwrap_or(template.min_available);
    if any(Phase::Failed) && sums.succeeded < needed { Phase::Failed } else { Phase::Completed }
}

/// Volcano's step from Pending to Running, over the union; a status without counters counts by its phase. A copy that
/// failed, and did not fail the job, has started.
fn has_started(template: Template, sums: &JobStatus, members: &BTreeMap<ClusterName, MemberStatus>) -> bool {
    let started = sums.running.saturating_add(sums.succeeded).saturating_add(sums.failed);
    let runs = |member: &MemberStatus| {
        matches!(member.phase(), Some(Phase::Running | Phase::Completing | Phase::Completed | Phase::Failed))
            || member.is_surplus()
    };
    let some_run = members.values().any(|member| member.phase().is_some() && runs(member));
    (started >= template.min_available && started > 0) || (some_run && members.values().all(runs))
}
