//! Copies that are left in lost clusters until it is known whether they ended there.
//!
//! Rule: what ended in a cluster while that was lost counts, and does not run again. Karmada reads no status of a copy
//! that it is to delete (`syncWorkStatus`, `pkg/controllers/status/work_status_controller.go`), and deletes it as soon
//! as the cluster is back. So a gang that is withdrawn, and runs nowhere else, is evicted with grace: Karmada keeps
//! the Works, and tells what it reads of the copies once it can. If all of them ended, so has the job. Otherwise they
//! are deleted, and the job is in line once they are gone:
//!
//! - when its pods are seen to run in a cluster that is back, or a minute after the clusters are, since Karmada takes
//!   up to half a minute to look again;
//! - when an admin says that nothing runs in a cluster, or it is a cluster no more: nobody waits for its word then;
//! - when its user suspends or ends the job.
//!
//! Until then its status is what was last read of the copies. All of it is on the binding: a restart forgets nothing.

use caldera_core::gang::ClusterName;
use jiff::{SignedDuration, Timestamp};

use super::{
    capacity::FleetCapacity,
    deadlines::{Deadlines, add_wait},
    jobs::Jobs,
};
use crate::{
    observe::{Binding, Key, Objects, Workload},
    write::Decision,
};

/// So many seconds after its cluster is back a copy has told what became of it.
const TOLD_WITHIN: i64 = 60;
/// Pods that are seen so many seconds after their cluster is back are not those that were seen before.
const SEEN_AFTER: i64 = 5;
/// Between two looks, and after a write that may have failed.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(2);

/// Bindings whose copies are left, and when to look at them.
#[derive(Debug, Default)]
pub(crate) struct HeldCopies(Deadlines<u32>);

impl HeldCopies {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.0.next_due()
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.forget(key);
    }

    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(&mut self, binding: &Binding, workload: Option<&Workload>, now: Timestamp) {
        let is_open = workload.is_some_and(|workload| !workload.deleting && workload.progress.ended.is_none());
        let concerns = !binding.held_in.is_empty() && !binding.deleting && is_open;
        self.0.start_or_end(&binding.key, concerns, now);
    }

    /// Has Karmada delete what has not ended.
    pub(crate) fn drop_copies(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, LOOK_EVERY));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            if objects.workload_of(binding).is_some_and(|job| are_to_go(objects, capacity, binding, job, now)) {
                let resource_version = binding.resource_version.clone();
                decisions.push(Decision::DropHeldCopies { key, resource_version });
            }
        }
        decisions
    }
}

fn are_to_go(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
    workload: &Workload,
    now: Timestamp,
) -> bool {
    let losses = &objects.losses;
    if workload.is_withdrawn() || binding.held_in.iter().any(|cluster| losses.is_given_up(cluster, now)) {
        return true;
    }
    let is_back_for = |cluster: &ClusterName, seconds: i64| {
        losses.find_ready_time(cluster).is_some_and(|since| since.saturating_add(seconds) <= now.as_second())
    };
    let runs = |cluster: &ClusterName| {
        is_back_for(cluster, SEEN_AFTER)
            && capacity.count_live_pods_in(cluster.as_str(), &binding.workload).is_some_and(|pods| pods > 0)
    };
    !binding.ended_where_held
        && (binding.held_in.iter().any(runs) || binding.held_in.iter().all(|cluster| is_back_for(cluster, TOLD_WITHIN)))
}
