//! Why a binding that was evicted, requeued or withdrawn does not wait in its queue yet.
//!
//! Rules, the first that holds:
//! - Its old copy may still run in a lost cluster, where nobody sees it ([`Objects`]' `losses`). A part that did not
//!   start in time counts as gone.
//! - A job that its user or its policies took off its clusters waits until its old copies are gone. So does one that
//!   left a lost member or one that refused its copy, after its backoff where it has one.
//! - A new copy of it might be forgotten by its member with the old one ([`copy_cleanup`](super::copy_cleanup)).
//! - Any other requeued job waits for its backoff.
//! - A victim stays out of its queue while the attempt that evicted it is open and until its own pods are gone, so that
//!   it does not take back what it just gave.
//!
//! No wait for pods or copies that are seen takes longer than ten minutes. Reason and times are in the record on the
//! binding (`caldera.dev/eviction`), copies in its status, and losses in Cluster objects and Works: a restart forgets
//! none. Pods are seen in the members.

use caldera_core::{
    gang::ClusterName,
    queue::preemption::EvictionRecord,
    reason::{EvictionCause, Reason, RequeueCause},
};
use caldera_crds::{names::caldera::FENCED_AT, workload::WorkloadKind};
use jiff::Timestamp;

use super::{
    capacity::FleetCapacity,
    copy_cleanup::LONGEST_TERMINATION,
    eviction::{COPY_REFUSED, PODS_READY_TIMEOUT, is_requeue, is_withdrawal, requeue_cause, waits_for_copies},
    jobs::Jobs,
};
use crate::observe::{Binding, MEMBER_LOST, Objects};

/// Karmada lists a copy so many seconds after it began to make it.
const LISTED_WITHIN: i64 = 5;

/// When it is known of a binding that was withdrawn whether it has copies: one that was placed a moment before may not
/// be listed yet. At most so many seconds from now, whatever the record says.
pub(crate) fn copies_known_at(binding: &Binding, now: Timestamp) -> Timestamp {
    let withdrawn = binding.eviction.as_deref().map_or(i64::MIN, |eviction| eviction.at);
    let seconds = now.as_second();
    let known = withdrawn.saturating_add(LISTED_WITHIN).clamp(seconds, seconds.saturating_add(LISTED_WITHIN));
    Timestamp::from_second(known).map_or(now, |known| known.max(now))
}

/// When, in seconds since 1970, nothing of an eviction counts any more.
pub(crate) fn compute_eviction_expiry(eviction: &EvictionRecord) -> i64 {
    eviction.at.saturating_add(LONGEST_TERMINATION).max(eviction.until)
}

/// Why a binding that was evicted or requeued does not wait in its queue yet.
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
    let eviction = binding.eviction.as_deref()?;
    let now = now.as_second();
    let waits = is_withdrawal(eviction) || (waits_for_copies(eviction) && eviction.until <= now);
    if let Some(reason) = waits.then(|| explain_withdrawal_wait(objects, capacity, binding, eviction, now)).flatten() {
        return Some(reason);
    }
    // Too little of a part that did not start in time was on nodes.
    let terminates = eviction.reason != PODS_READY_TIMEOUT
        && eviction.at.saturating_add(LONGEST_TERMINATION) > now
        && jobs.cleanups.is_terminating(&binding.key)
        && has_old_copies(capacity, binding);
    if terminates || jobs.cleanups.is_under_way(&binding.key, now) {
        return explain_cleanup(objects, binding, eviction);
    }
    if waits {
        return None;
    }
    if is_requeue(eviction) {
        return describe_backoff(eviction, now);
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

fn describe_eviction(objects: &Objects, binding: &Binding, record: &EvictionRecord, detail: String) -> Option<Reason> {
    let queue = objects.workload_of(binding).map(|workload| workload.queue.clone())?;
    let cause = EvictionCause::parse_token(&record.reason).unwrap_or(EvictionCause::Preempted);
    Some(Reason::Evicted { queue, cause, detail })
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
    let returns = |record: &&EvictionRecord| ![MEMBER_LOST, COPY_REFUSED].contains(&record.reason.as_str());
    let record = binding.eviction.as_deref().filter(|_| binding.clusters.is_empty()).filter(returns);
    let is_volcano_job = || objects.workload_of(binding).is_some_and(|it| it.kind == WorkloadKind::VolcanoJob);
    let Some(record) = record.filter(|_| is_volcano_job()) else {
        jobs.cleanups.forget(&binding.key);
        return None;
    };
    let terminates = has_old_copies(capacity, binding);
    jobs.cleanups.observe_copies(&binding.key, terminates, record.at, now)
}

/// Whether a binding without clusters has copies listed, or pods of them run.
pub(crate) fn has_old_copies(capacity: &FleetCapacity, binding: &Binding) -> bool {
    binding.has_copies || capacity.runs_anywhere(&binding.workload)
}

/// Why a binding whose old copies go, or went a moment ago, does not wait in its queue yet.
fn explain_cleanup(objects: &Objects, binding: &Binding, record: &EvictionRecord) -> Option<Reason> {
    let detail =
        format!("{}; it starts again once its old pods have ended and members have forgotten them", record.message);
    match requeue_cause(record) {
        Some(cause) => Some(Reason::Requeued { times: record.requeues, cause, detail }),
        None => describe_eviction(objects, binding, record, detail),
    }
}

/// Clusters where old copies of a binding may still run. A gang of which a part did not start in time goes elsewhere at
/// once, as far as that part is concerned: too little of it was on nodes. Its other parts may run.
fn list_clusters_with_possible_copies<'a>(
    objects: &'a Objects,
    binding: &Binding,
    now: Timestamp,
) -> Vec<&'a ClusterName> {
    if !binding.clusters.is_empty() {
        return Vec::new();
    }
    let record = binding.eviction.as_deref().filter(|record| record.reason == PODS_READY_TIMEOUT);
    let is_late = |cluster: &ClusterName| record.is_some_and(|it| it.avoid.iter().any(|name| name == cluster.as_str()));
    let mut unproven = objects.losses.list_clusters_with_possible_copies(&binding.key, now);
    unproven.retain(|cluster| !is_late(cluster));
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

/// Why a binding that its user withdrew does not wait in its queue yet: its new copies must not meet its old ones.
fn explain_withdrawal_wait(
    objects: &Objects,
    capacity: &FleetCapacity,
    binding: &Binding,
    record: &EvictionRecord,
    now: i64,
) -> Option<Reason> {
    let cause = requeue_cause(record)?;
    // What was seen last in a cluster that is lost says nothing any more.
    let runs = || match record.reason == MEMBER_LOST {
        true => capacity.runs_anywhere_seen(&binding.workload),
        false => capacity.runs_anywhere(&binding.workload),
    };
    // Pods in a lost cluster are asked to go when that is back, not before.
    let asked_at = objects.losses.get_copies_gone_time(&binding.key).unwrap_or(record.at).max(record.at);
    let terminates = asked_at.saturating_add(LONGEST_TERMINATION) > now
        && binding.clusters.is_empty()
        && (binding.has_copies || runs());
    terminates.then(|| Reason::Requeued { times: record.requeues, cause, detail: record.message.clone() })
}

/// Why a binding that was requeued does not wait in its queue yet.
fn describe_backoff(record: &EvictionRecord, now: i64) -> Option<Reason> {
    let cause = requeue_cause(record)?;
    let reason = || Reason::Requeued { times: record.requeues, cause, detail: record.message.clone() };
    (record.until > now).then(reason)
}
