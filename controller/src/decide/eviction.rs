//! Why a binding that was evicted, or requeued, does not wait in its queue yet.
//!
//! Rule: a requeued job waits for its backoff. An evicted job stays out of its queue while the attempt that evicted it
//! is open and until its own pods are gone, so that it does not take back what it just gave. A job that its user
//! suspended or restarted waits until its old copies are gone, and for nothing else. All are read from the record on
//! the binding (`caldera.dev/eviction`): a restart forgets neither.

use caldera_core::{
    gang::ClusterName,
    queue::preemption::EvictionRecord,
    reason::{EvictionCause, Reason, RequeueCause},
};
use caldera_crds::names::caldera::FENCED_AT;
use caldera_runtime::event::EventType;
use jiff::Timestamp;

use super::{capacity::FleetCapacity, jobs::Jobs};
use crate::observe::{Binding, MEMBER_LOST, Objects};

/// Reason of an eviction record: the job was not placed in time.
pub(crate) const NOT_PLACED: &str = "NotPlaced";
/// Event, and reason of an eviction record: a part of the gang did not start in time, and all of it is requeued.
pub(crate) const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
/// Event, and reason of an eviction record: no controller granted the admission or the clusters; they were taken away.
pub(crate) const FORGED_RECORD: &str = "ForgedRecord";
/// Event, and reason of an eviction record: the workload names another queue than it was admitted to, and waits there.
pub(crate) const QUEUE_CHANGED: &str = "QueueChanged";
/// Event, and reason of an eviction record: the user suspended the job, and it is taken off its clusters.
pub(crate) const SUSPENDED: &str = "Suspended";
/// Event, and reason of an eviction record: the user restarted the job.
pub(crate) const RESTARTED: &str = "Restarted";
/// Event, and reason of an eviction record: a copy of a split job restarted by its policies, and all of it does.
pub(crate) const POLICY_RESTARTED: &str = "RestartedByPolicy";
/// Event, and reason of an eviction record: the user ended the job for good, and its copies are deleted.
pub(crate) const ENDED: &str = "Ended";
/// Event, and reason of an eviction record: the job ran for as long as it may; it is ended and does not start again.
pub(crate) const RUN_TIME_EXCEEDED: &str = "RunTimeExceeded";
/// Event, and reason of an eviction record: a member refused its copy for good, and the job goes elsewhere.
pub(crate) const COPY_REFUSED: &str = "CopyRefused";
/// Pods that are still not gone after so many seconds do not keep their job out of its queue any longer.
const TERMINATION: i64 = 600;

/// When, in seconds since 1970, nothing of an eviction counts any more.
pub(crate) fn forgotten_at(eviction: &EvictionRecord) -> i64 {
    eviction.at.saturating_add(TERMINATION).max(eviction.until)
}

/// The event for a job that was taken off its clusters, once its record is written. Whoever was evicted for another job
/// has an event of its own.
pub(crate) fn describe_requeue(record: &EvictionRecord) -> Option<(EventType, String)> {
    let said = &record.message;
    match record.reason.as_str() {
        SUSPENDED | ENDED => {
            Some((EventType::Normal, format!("{said}; its copies are deleted and its quota is free for others")))
        }
        RUN_TIME_EXCEEDED => Some((
            EventType::Warning,
            format!(
                "{said}; its copies are deleted, its quota is free for others, and it does not start again by itself"
            ),
        )),
        POLICY_RESTARTED => Some((EventType::Warning, said.clone())),
        COPY_REFUSED => Some((EventType::Warning, format!("{said}; withdrawn from all clusters"))),
        MEMBER_LOST => Some((
            EventType::Warning,
            format!("withdrawn from all clusters: {said}; it runs again once its old copies are known to be gone"),
        )),
        _ => None,
    }
}

/// Why a binding that was evicted or requeued does not wait in its queue yet.
pub(crate) fn describe_eviction(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    now: Timestamp,
) -> Option<Reason> {
    let unproven = list_unproven(objects, binding, now);
    if !unproven.is_empty() {
        return Some(describe_unproven(binding, &unproven));
    }
    let eviction = binding.eviction.as_deref()?;
    let now = now.as_second();
    if is_withdrawal(eviction) {
        return describe_withdrawal(objects, capacity, binding, eviction, now);
    }
    if waits_for_copies(eviction) && eviction.until <= now {
        return describe_withdrawal(objects, capacity, binding, eviction, now);
    }
    if is_requeue(eviction) {
        return describe_backoff(eviction, now);
    }
    // Before all is listed nobody can say that the preemptor is gone.
    let is_open = || eviction.until > now && (!objects.is_complete() || jobs.engine.is_pending(&eviction.preemptor));
    let terminates = || eviction.at.saturating_add(TERMINATION) > now && capacity.runs_anywhere(&binding.workload);
    if !is_open() && !terminates() {
        return None;
    }
    let queue = objects.workload_of(binding).map(|workload| workload.queue.clone())?;
    let cause = EvictionCause::parse_token(&eviction.reason).unwrap_or(EvictionCause::Preempted);
    Some(Reason::Evicted { queue, cause, detail: eviction.message.clone() })
}

/// Clusters where old copies of a binding may still run. A gang of which a part did not start in time goes elsewhere at
/// once, as far as that part is concerned: too little of it was on nodes. Its other parts may run.
fn list_unproven<'a>(objects: &'a Objects, binding: &Binding, now: Timestamp) -> Vec<&'a ClusterName> {
    if !binding.clusters.is_empty() {
        return Vec::new();
    }
    let record = binding.eviction.as_deref().filter(|record| record.reason == PODS_READY_TIMEOUT);
    let is_late = |cluster: &ClusterName| record.is_some_and(|it| it.avoid.iter().any(|name| name == cluster.as_str()));
    let mut unproven = objects.losses.list_unproven(&binding.key, now);
    unproven.retain(|cluster| !is_late(cluster));
    unproven
}

/// Why a binding does not wait in its queue whose old copies may still run where nobody sees them.
fn describe_unproven(binding: &Binding, unproven: &[&ClusterName]) -> Reason {
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

/// Whether a record is of a job that runs again as soon as its old copies are gone.
pub(crate) fn waits_for_copies(record: &EvictionRecord) -> bool {
    matches!(record.reason.as_str(), COPY_REFUSED | MEMBER_LOST)
}

/// Why a binding that its user withdrew does not wait in its queue yet: its new copies must not meet its old ones.
fn describe_withdrawal(
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
    let asked_at = objects.losses.proven_at(&binding.key).unwrap_or(record.at).max(record.at);
    let terminates =
        asked_at.saturating_add(TERMINATION) > now && binding.clusters.is_empty() && (binding.has_copies || runs());
    terminates.then(|| Reason::Requeued { times: record.requeues, cause, detail: record.message.clone() })
}

/// Why a binding that was requeued does not wait in its queue yet.
fn describe_backoff(record: &EvictionRecord, now: i64) -> Option<Reason> {
    let cause = requeue_cause(record)?;
    let reason = || Reason::Requeued { times: record.requeues, cause, detail: record.message.clone() };
    (record.until > now).then(reason)
}

/// Why the job of a record was requeued; `None` for one that was evicted for another.
fn requeue_cause(record: &EvictionRecord) -> Option<RequeueCause> {
    match record.reason.as_str() {
        NOT_PLACED => Some(RequeueCause::NotPlaced),
        PODS_READY_TIMEOUT => Some(RequeueCause::NotReady),
        FORGED_RECORD => Some(RequeueCause::Forged),
        QUEUE_CHANGED => Some(RequeueCause::Moved),
        // Who is ended and has the annotation taken away is back.
        SUSPENDED | ENDED => Some(RequeueCause::Suspended),
        // Who was ended by a limit and is there again was submitted anew.
        RESTARTED | RUN_TIME_EXCEEDED => Some(RequeueCause::Restarted),
        POLICY_RESTARTED => Some(RequeueCause::RestartedByPolicy),
        COPY_REFUSED => Some(RequeueCause::CopyRefused),
        MEMBER_LOST => Some(RequeueCause::MemberLost),
        _ => None,
    }
}

/// Whether a record is of a job that was requeued, and not of one that was evicted for another.
pub(crate) fn is_requeue(record: &EvictionRecord) -> bool {
    requeue_cause(record).is_some()
}

/// Whether a record is of a job that its user, or its own policies, took off its clusters.
pub(crate) fn is_withdrawal(record: &EvictionRecord) -> bool {
    matches!(
        requeue_cause(record),
        Some(RequeueCause::Suspended | RequeueCause::Restarted | RequeueCause::RestartedByPolicy)
    )
}
