//! Why a binding that was evicted, requeued or withdrawn does not wait in its queue yet.
//!
//! Rules, the first that holds:
//! - Its old copy may still run in a lost cluster, where nobody sees it ([`Objects`]' `losses`). A part that did not
//!   start in time counts as gone.
//! - A job that its user or its policies took off its clusters waits until its old copies are gone. So does one that
//!   left a lost member or one that refused its copy, after its backoff where it has one.
//! - So does every Volcano Job, whatever took it off its clusters, and then until a new copy is not forgotten by its
//!   member with the old one ([`copy_cleanup`](super::copy_cleanup)). A part that did not start in time counts as gone
//!   here too; in a lost cluster it does for as long as that is lost and the job does not go back there, whatever takes
//!   the job off its clusters next. A job that was made anew under the name of one deleted a moment ago waits for that
//!   one's copies.
//! - Any other requeued job waits for its backoff.
//! - A victim stays out of its queue while the attempt that evicted it is open and until its own pods are gone, so that
//!   it does not take back what it just gave.
//!
//! No wait for pods or copies that are seen takes longer than ten minutes from when they were asked to go. Reason and
//! times are in the record on the binding (`caldera.dev/eviction`), copies in its status, and losses in Cluster objects
//! and Works: a restart forgets none. Pods are seen in the members. That a job was deleted is kept in memory.

use caldera_core::{
    gang::{ClusterName, WorkloadRef},
    queue::preemption::EvictionRecord,
    reason::{EvictionCause, Reason, RequeueCause},
    time::EpochSeconds,
};
use caldera_crds::{names::caldera::FENCED_AT, workload::WorkloadKind};
use jiff::Timestamp;

use super::{
    copy_cleanup::{LISTED_WITHIN, LONGEST_TERMINATION},
    eviction::{PODS_READY_TIMEOUT, is_requeue, is_withdrawal, requeue_cause, waits_for_copies},
    jobs::Jobs,
};
use crate::{
    decide::fleet::capacity::FleetCapacity,
    observe::{Binding, MEMBER_LOST, Objects},
};

/// When it is known of a binding that was withdrawn whether it has copies: one that was placed a moment before may not
/// be listed yet. At most so many seconds from now, whatever the record says.
pub(crate) fn copies_known_at(binding: &Binding, now: Timestamp) -> Timestamp {
    let withdrawn = binding.eviction.as_deref().map_or(EpochSeconds::MIN, |eviction| eviction.at);
    let second = EpochSeconds::from(now);
    let known = withdrawn.saturating_add(LISTED_WITHIN).clamp(second, second.saturating_add(LISTED_WITHIN));
    known.to_timestamp().map_or(now, |known| known.max(now))
}

/// When, in seconds since 1970, nothing of an eviction counts any more.
pub(crate) fn compute_eviction_expiry(eviction: &EvictionRecord) -> EpochSeconds {
    eviction.at.saturating_add(LONGEST_TERMINATION).max(eviction.until)
}

/// Why a binding that was evicted or requeued does not wait in its queue yet, or one whose job was made anew.
pub(crate) fn explain_eviction_wait(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    now: Timestamp,
) -> Option<Reason> {
    let unproven = list_clusters_with_possible_copies(objects, binding, now);
    if !unproven.is_empty() {
        return Some(explain_possible_copies(binding, &unproven));
    }
    let asked_at = find_copies_deletion_time(objects, jobs, binding)?;
    let eviction = binding.eviction.as_deref();
    let now = EpochSeconds::from(now);
    let is_next = |record: &EvictionRecord| is_withdrawal(record) || (waits_for_copies(record) && record.until <= now);
    let waits = eviction.is_some_and(is_next);
    let copies_count = waits || jobs.cleanups.is_terminating(&binding.key);
    let terminates = copies_count
        && binding.clusters.is_empty()
        && asked_at.saturating_add(LONGEST_TERMINATION) > now
        && has_old_copies(objects, capacity, binding, now);
    if waits && terminates {
        return eviction.and_then(|record| describe_requeue(record, record.message.clone()));
    }
    if terminates || jobs.cleanups.is_under_way(&binding.key, now) {
        return explain_cleanup(objects, binding);
    }
    let eviction = eviction?;
    if waits {
        return None;
    }
    if is_requeue(eviction) {
        return (eviction.until > now).then(|| describe_requeue(eviction, eviction.message.clone())).flatten();
    }
    // Before all is listed nobody can say that the preemptor is gone.
    let is_open = || eviction.until > now && (!objects.is_complete() || jobs.engine.is_pending(&eviction.preemptor));
    let terminates =
        || eviction.at.saturating_add(LONGEST_TERMINATION) > now && capacity.runs_anywhere(&binding.workload);
    if !is_open() && !terminates() {
        return None;
    }
    describe_eviction(objects, binding, eviction, eviction.message.clone())
}

/// When the old copies of a binding were asked to go, in seconds since 1970; `None` where nobody asked them. In a lost
/// cluster that is when it is back, not before.
fn find_copies_deletion_time(objects: &Objects, jobs: &Jobs, binding: &Binding) -> Option<EpochSeconds> {
    match &binding.eviction {
        Some(record) => {
            let later = [objects.losses.get_copies_gone_time(&binding.key), jobs.cleanups.get_drop_time(&binding.key)];
            later.into_iter().flatten().chain([record.at]).max()
        }
        None => jobs.cleanups.get_deletion_time(&binding.key),
    }
}

/// Takes in whether old copies of a Volcano Job are there, which may be placed in the same members again. Gives back
/// when to look at it again.
pub(crate) fn observe_old_copies(
    objects: &Objects,
    jobs: &mut Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    now: Timestamp,
) -> Option<Timestamp> {
    // The binding says it: its workload may be seen later.
    let WorkloadRef { group, kind, .. } = &*binding.workload;
    let is_volcano_job = WorkloadKind::from_group_and_kind(group, kind) == Some(WorkloadKind::VolcanoJob);
    jobs.cleanups.observe_hold(&binding.key, !binding.held_in.is_empty(), now);
    let asked_at =
        find_copies_deletion_time(objects, jobs, binding).filter(|_| binding.clusters.is_empty() && is_volcano_job);
    let Some(asked_at) = asked_at else {
        jobs.cleanups.forget(&binding.key);
        return None;
    };
    if !binding.held_in.is_empty() {
        return None;
    }
    let terminates = has_old_copies(objects, capacity, binding, EpochSeconds::from(now));
    let withdrawn_at = binding.eviction.as_ref().map(|record| record.at);
    let forgotten_at = jobs.cleanups.observe_copies(&binding.key, terminates, (asked_at, withdrawn_at), now);
    let given_up_at = asked_at.saturating_add(LONGEST_TERMINATION).to_timestamp();
    if terminates { given_up_at.filter(|at| *at > now) } else { forgotten_at }
}

/// Whether a binding without clusters has copies listed, or pods of them run. Those of a part that did not start in
/// time do not count. Of a job that left a lost cluster only what is seen counts: what was seen last says nothing any
/// more. So a copy that is listed in a fenced cluster counts for nothing: Karmada may list it until that is back.
pub(crate) fn has_old_copies(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
    now: EpochSeconds,
) -> bool {
    let counts = |cluster: &str| !is_late(objects, binding.eviction.as_deref(), cluster);
    let left_lost = binding.eviction.as_deref().is_some_and(|record| record.reason == MEMBER_LOST);
    let listed = &binding.orphan_copies;
    let is_there = |cluster: &str| counts(cluster) && !(left_lost && objects.losses.is_fenced(cluster, now));
    (binding.has_copies && (listed.is_empty() || listed.iter().any(|cluster| is_there(cluster.as_str()))))
        || capacity
            .list_clusters_with_pods(&binding.workload)
            .any(|(cluster, is_seen)| counts(cluster) && (is_seen || !left_lost))
}

/// Whether a part of a gang did not start in time in this cluster: too little of it was on nodes. That it was so
/// earlier counts where nothing can be seen of it now.
fn is_late(objects: &Objects, record: Option<&EvictionRecord>, cluster: &str) -> bool {
    let is_in = |names: &[String]| names.iter().any(|name| name == cluster);
    record.is_some_and(|record| {
        (record.reason == PODS_READY_TIMEOUT && is_in(&record.avoid))
            || (is_in(&record.unstarted) && objects.losses.is_lost(&cluster.into()))
    })
}

/// Why a Volcano Job whose old copies go, or went a moment ago, does not wait in its queue yet.
fn explain_cleanup(objects: &Objects, binding: &Binding) -> Option<Reason> {
    let Some(record) = binding.eviction.as_deref() else {
        let detail = "an earlier job of this name was deleted a short time ago; this one starts once the old pods have \
                      ended and their members have forgotten them";
        return Some(Reason::Requeued { times: 0, cause: RequeueCause::MadeAnew, detail: detail.to_owned() });
    };
    let detail =
        format!("{}; it starts again once its old pods have ended and members have forgotten them", record.message);
    if is_requeue(record) {
        describe_requeue(record, detail)
    } else {
        describe_eviction(objects, binding, record, detail)
    }
}

/// Clusters where old copies of a binding may still run. A gang of which a part did not start in time goes elsewhere at
/// once, as far as that part is concerned. Its other parts may run.
fn list_clusters_with_possible_copies<'a>(
    objects: &'a Objects,
    binding: &'a Binding,
    now: Timestamp,
) -> Vec<&'a ClusterName> {
    if !binding.clusters.is_empty() {
        return Vec::new();
    }
    if !binding.held_in.is_empty() {
        return binding.held_in.iter().collect();
    }
    let mut unproven = objects.losses.list_clusters_with_possible_copies(&binding.key, now);
    unproven.retain(|cluster| !is_late(objects, binding.eviction.as_deref(), cluster.as_str()));
    unproven
}

/// Why a binding does not wait in its queue whose old copies may still run where nobody sees them.
fn explain_possible_copies(binding: &Binding, unproven: &[&ClusterName]) -> Reason {
    let record = binding.eviction.as_deref();
    let lost = record.filter(|record| record.reason == MEMBER_LOST).map(|record| record.message.as_str());
    let names = unproven.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let detail = format!(
        "{}its old copy in {names} is not known to be gone: that ends when the cluster is back, or once its admin says that \
         nothing runs there, by annotation {FENCED_AT} with the time of now on the Cluster",
        lost.map(|lost| format!("{lost}; ")).unwrap_or_default()
    );
    Reason::Requeued { times: record.map_or(0, |record| record.requeues), cause: RequeueCause::MemberLost, detail }
}

fn describe_requeue(record: &EvictionRecord, detail: String) -> Option<Reason> {
    Some(Reason::Requeued { times: record.requeues, cause: requeue_cause(record)?, detail })
}

fn describe_eviction(objects: &Objects, binding: &Binding, record: &EvictionRecord, detail: String) -> Option<Reason> {
    let queue = objects.workload_of(binding).map(|workload| workload.queue.clone())?;
    let cause = EvictionCause::parse_token(&record.reason).unwrap_or(EvictionCause::Preempted);
    Some(Reason::Evicted { queue, cause, detail })
}
