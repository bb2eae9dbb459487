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
//! - when its user suspends or ends the job;
//! - when they ended, one of them failed, and the job's own policies restart it for that
//!   ([`policy_restart`](crate::decide::lifecycle::policy_restart)), which is counted: two minutes after the clusters
//!   are back, if nothing says by then that the job ended.
//!
//! Until then its status is what was last read of the copies. All of it is on the binding: a restart forgets nothing.
//! What is in clusters that are all lost is not looked at before one of them changes.

use caldera_core::{gang::ClusterName, queue::preemption::EvictionRecord, time::EpochSeconds};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{eviction::record_policy_restart, jobs::Jobs},
        deadlines::{Deadlines, add_wait},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects, Workload},
    write::Decision,
};

/// So many seconds after its cluster is back a copy has told what became of it.
const REPORTED_WITHIN: i64 = 60;
/// So many seconds after its clusters are back a job has ended whose copies all did, unless its policies restart it.
const SETTLED_WITHIN: i64 = 2 * REPORTED_WITHIN;
/// Pods that are seen so many seconds after their cluster is back are not those that were seen before.
const SEEN_AFTER: i64 = 5;
/// Between two looks while what comes back may say something, and after a write that may have failed.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(2);
/// Between two looks once all that came back has had its time, and others are lost.
const LOOK_SELDOM: SignedDuration = SignedDuration::from_secs(60);

/// What becomes of copies that were left.
#[derive(Debug, PartialEq, Eq)]
enum HeldCopiesEnd {
    /// They go, and the job is in line.
    Drop,
    /// They go, and the job restarts because one of them failed.
    Restart,
}

/// Bindings whose copies are left, when to look at them, and whether they were let go already.
#[derive(Debug, Default)]
pub(crate) struct HeldCopies(pub(crate) Deadlines<bool>);

impl HeldCopies {
    /// Takes in the state of a binding, or of the clusters where its copies are.
    pub(crate) fn observe_binding(&mut self, binding: &Binding, workload: Option<&Workload>, now: Timestamp) {
        let is_open = workload.is_some_and(|workload| !workload.deleting && workload.progress.ended.is_none());
        if binding.held_in.is_empty() || binding.deleting || !is_open {
            self.0.forget(&binding.key);
        } else if self.0.get_mut(&binding.key).is_none_or(|(_, is_let_go)| !*is_let_go) {
            self.0.set(&binding.key, now, false);
        }
    }

    /// Has Karmada delete what has not ended, or is to run again.
    pub(crate) fn drop_copies(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.set(&key, add_wait(now, LOOK_EVERY), false);
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let Some(job) = objects.workload_of(binding) else { continue };
            let Some(end) = decide_end(objects, capacity, binding, job, now) else {
                self.0.entry_or_insert(&key, false).0 = find_next_look(objects, binding, now);
                continue;
            };
            self.0.set(&key, add_wait(now, LOOK_EVERY), true);
            let restart = (end == HeldCopiesEnd::Restart).then(|| Box::new(describe_restart(binding, job, now)));
            let resource_version = binding.resource_version.clone();
            decisions.push(Decision::DropHeldCopies { key, resource_version, restart });
        }
        decisions
    }
}

fn decide_end(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
    workload: &Workload,
    now: Timestamp,
) -> Option<HeldCopiesEnd> {
    let losses = &objects.losses;
    if workload.is_withdrawn() || binding.held_in.iter().any(|cluster| losses.is_given_up(cluster, now)) {
        return Some(HeldCopiesEnd::Drop);
    }
    let is_back_for = |cluster: &ClusterName, seconds: i64| {
        losses.find_ready_time(cluster).is_some_and(|since| since.saturating_add(seconds) <= EpochSeconds::from(now))
    };
    let are_back_for = |seconds: i64| binding.held_in.iter().all(|cluster| is_back_for(cluster, seconds));
    let runs = |cluster: &ClusterName| {
        is_back_for(cluster, SEEN_AFTER)
            && capacity.count_live_pods_in(cluster.as_str(), &binding.workload).is_some_and(|pods| pods > 0)
    };
    let restarts = restarts_where_held(binding, workload);
    let are_to_go = match binding.ended_where_held {
        true => restarts && are_back_for(SETTLED_WITHIN),
        false => binding.held_in.iter().any(runs) || are_back_for(REPORTED_WITHIN),
    };
    are_to_go.then_some(if restarts { HeldCopiesEnd::Restart } else { HeldCopiesEnd::Drop })
}

/// Whether the job's merged status says that it restarts, and not that it failed: it was split, or restarted before.
fn restarts_where_held(binding: &Binding, workload: &Workload) -> bool {
    let was_split = binding.held_in.len() > 1 || binding.count_policy_restarts() > 0;
    was_split && workload.restarts_when_a_pod_fails && !binding.failed_copies.is_empty()
}

fn describe_restart(binding: &Binding, workload: &Workload, now: Timestamp) -> EvictionRecord {
    let failed = binding.failed_copies.iter().map(|(cluster, _)| cluster.as_str()).collect::<Vec<_>>().join(", ");
    let (times, most) = (binding.count_policy_restarts().saturating_add(1), workload.max_retry);
    let why = format!(
        "its part failed in {failed} while that was lost, and its policies restart all of it: {times} of at most {most} \
         times"
    );
    record_policy_restart(binding, why, now)
}

/// When to look again if nothing of the clusters or the binding changes: pods are seen without that.
fn find_next_look(objects: &Objects, binding: &Binding, now: Timestamp) -> Option<Timestamp> {
    let back = binding.held_in.iter().filter_map(|cluster| objects.losses.find_ready_time(cluster)).max()?;
    let may_say = EpochSeconds::from(now) < back.saturating_add(SETTLED_WITHIN);
    Some(add_wait(now, if may_say { LOOK_EVERY } else { LOOK_SELDOM }))
}
