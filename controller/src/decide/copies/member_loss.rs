//! Gangs of which a part is in a cluster that is lost: withdrawn whole, and run again once the old copy is known to be
//! gone.
//!
//! Rule: a cluster that is not Ready for `--member-lost-after` is lost (Karmada's taint manager waits as long, five
//! minutes, before it evicts). The rest of a gang computes nothing without the lost part, so the gang is taken from all
//! clusters in one patch, as an eviction with reason `MemberLost`: its charge returns, and it is in line with its age.
//! It is not placed a second time before no old copy can run any more (`observe::losses`). Where nothing of it runs in
//! a cluster that can be reached, its copies are left as they are until it is known whether they ended
//! ([`held_copy`](super::held_copy)). A part that said it had ended takes nothing with it. Services and duplicated jobs
//! stay: their other parts serve on.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::ClusterName, queue::ledger::AdmissionStage, time::EpochSeconds};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::clock::format_time;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{requeue_and_hold_copies, requeue_without_backoff},
            jobs::Jobs,
        },
        deadlines::{add_wait, earliest},
        lifecycle::withdrawal::is_suspended_by_another,
    },
    observe::{Binding, MEMBER_LOST, Objects},
    write::Decision,
};

/// How long a cluster is not ready before it is lost.
pub(crate) const MEMBER_LOST_AFTER: SignedDuration = SignedDuration::from_secs(300);
/// After a withdrawal that may not be written, and from a change of a binding in a lost cluster to the next look.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Since when clusters are lost is in their objects; this is when to look.
#[derive(Debug)]
pub(crate) struct MemberLoss {
    after: Option<SignedDuration>,
    next: Option<Timestamp>,
}

impl Default for MemberLoss {
    fn default() -> Self {
        Self::new(Some(MEMBER_LOST_AFTER))
    }
}

impl MemberLoss {
    /// Where clusters are lost after so long, or never.
    pub(crate) fn new(after: Option<SignedDuration>) -> Self {
        Self { after, next: None }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.next
    }

    /// Clusters came, went or changed.
    pub(crate) fn observe_clusters(&mut self, now: Timestamp) {
        self.next = self.after.map(|_| now);
    }

    /// Takes in the state of a binding: what is in a lost cluster may be withdrawn now.
    pub(crate) fn observe_binding(&mut self, objects: &Objects, binding: &Binding, now: Timestamp) {
        if self.after.is_some() && binding.clusters.iter().any(|(cluster, _)| objects.losses.is_lost(cluster)) {
            self.next = earliest(self.next, Some(add_wait(now, LOOK_AGAIN)));
        }
    }

    /// Withdraws what is in clusters that are lost.
    pub(crate) fn withdraw_from_lost_clusters(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        now: Timestamp,
    ) -> Vec<Decision> {
        let Some(wait) = self.after.filter(|_| self.next.is_some_and(|next| next <= now)) else { return Vec::new() };
        let since = |(name, since): (&ClusterName, EpochSeconds)| Some((name.clone(), since.to_timestamp()?));
        let all: BTreeMap<ClusterName, Timestamp> = objects.losses.list_lost().filter_map(since).collect();
        let (lost, soon): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(_, since)| add_wait(*since, wait) <= now);
        self.next = soon.values().map(|since| add_wait(*since, wait)).min();
        if lost.is_empty() {
            return Vec::new();
        }
        let placed = objects.bindings.values().filter(|binding| {
            binding.clusters.iter().any(|(cluster, _)| lost.contains_key(cluster)) && jobs.is_confirmed(&binding.key)
        });
        let decisions: Vec<_> =
            placed.filter_map(|binding| withdraw_if_lost(objects, jobs, binding, &lost, now)).collect();
        self.next = earliest(self.next, (!decisions.is_empty()).then(|| add_wait(now, LOOK_AGAIN)));
        decisions
    }
}

fn withdraw_if_lost(
    objects: &Objects,
    jobs: &Jobs,
    binding: &Binding,
    lost: &BTreeMap<ClusterName, Timestamp>,
    now: Timestamp,
) -> Option<Decision> {
    let stage = jobs.states.get(&binding.key).and_then(|state| state.stage());
    let workload = objects.workload_of(binding);
    let workload = workload.filter(|_| stage == Some(AdmissionStage::Placed) && is_gang(binding))?;
    let goes = binding.deleting || workload.deleting || workload.is_withdrawn();
    if goes || is_suspended_by_another(binding) || workload.progress.ended.is_some() {
        return None;
    }
    let parts = binding.clusters.iter().filter(|(cluster, _)| !binding.ended_in.contains(cluster));
    let gone: BTreeMap<&ClusterName, &Timestamp> =
        parts.filter_map(|(cluster, _)| lost.get_key_value(cluster)).collect();
    if gone.is_empty() {
        return None;
    }
    let one =
        |(cluster, since): (&&ClusterName, &&Timestamp)| format!("{cluster} is lost since {}", format_time(**since));
    let message = gone.iter().map(one).collect::<Vec<_>>().join(", ");
    let avoid: BTreeSet<String> = gone.keys().map(ToString::to_string).collect();
    let requeue = if may_end_where_it_is(binding, lost) { requeue_and_hold_copies } else { requeue_without_backoff };
    Some(requeue(binding, MEMBER_LOST, message, avoid.into_iter().collect(), now))
}

/// Whether a gang's copies are left where they are: it may end there as a whole. Each of them runs in a lost cluster,
/// or has ended. One that has not begun would begin when its cluster is back.
fn may_end_where_it_is(binding: &Binding, lost: &BTreeMap<ClusterName, Timestamp>) -> bool {
    let may_end = |(cluster, _): &(ClusterName, u32)| {
        binding.ended_in.contains(cluster) || (lost.contains_key(cluster) && binding.begun.contains(cluster))
    };
    !binding.leaves_with_grace && binding.clusters.iter().all(may_end)
}

/// One gang, of a kind that runs to its end.
fn is_gang(binding: &Binding) -> bool {
    let kind = WorkloadKind::from_group_and_kind(&binding.workload.group, &binding.workload.kind);
    kind.is_some_and(WorkloadKind::runs_to_its_end)
        && binding.admission.as_ref().is_some_and(|record| record.copies <= 1)
}
