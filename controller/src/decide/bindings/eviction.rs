//! What takes a binding's quota and clusters away, the record that says why, and what each reason in it means.
//!
//! Rule: one patch that closes the gate, empties the clusters and writes the eviction record (`caldera.dev/eviction`),
//! which keeps what was there of earlier evictions. A job that is requeued waits for a backoff that doubles each time,
//! from one minute to 15, as Kueue requeues an evicted workload; the backoff is on the binding, so a restart forgets it
//! as little as the admission. A job has no backoff if it goes elsewhere, if its user withdraws it, if its policies
//! restart it, or if it ran for as long as it may. Victims of a preemption get their record in
//! [`preemption`](crate::decide::preemption::attempt).

use std::collections::BTreeSet;

use caldera_core::{
    queue::preemption::{EvictionRecord, LastMove},
    reason::{EvictionCause, RequeueCause},
    time::EpochSeconds,
};
use caldera_runtime::event::EventType;
use jiff::Timestamp;

use crate::{
    observe::{Binding, MEMBER_LOST},
    write::Decision,
};

/// Reason of an eviction record: the job was not placed in time.
pub(crate) const NOT_PLACED: &str = "NotPlaced";
/// Event, and reason of an eviction record: a part of the gang did not start in time, and all of it is requeued.
pub(crate) const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
/// Event, and reason of an eviction record: a job that starts together with it did not start in
/// time, or was evicted.
pub(crate) const JOBS_MISSING: &str = "JobsMissing";
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
/// Event, and reason of an eviction record: the nodes of a cluster that the job was in are hot, and it goes elsewhere.
pub(crate) const RESCHEDULED: &str = "Rescheduled";
/// The first backoff, and the longest, in seconds.
const FIRST_BACKOFF: i64 = 60;
const LONGEST_BACKOFF: i64 = 900;

/// Takes the quota and the clusters of a binding, and has it wait, twice as long each time.
pub(crate) fn requeue_binding(
    binding: &Binding,
    reason: &str,
    message: String,
    avoid: Vec<String>,
    now: Timestamp,
) -> Decision {
    let now = EpochSeconds::from(now);
    let times = binding.eviction.as_deref().map_or(0, |before| before.requeues).saturating_add(1);
    let backoff = FIRST_BACKOFF.saturating_mul(1 << times.saturating_sub(1).min(10)).min(LONGEST_BACKOFF);
    let record = EvictionRecord {
        until: now.saturating_add(backoff),
        avoid,
        ..continue_eviction_record(binding, reason, message, now)
    };
    evict_binding(binding, EvictionRecord { requeues: times, ..record })
}

/// The same without a wait, for others to try first.
pub(crate) fn requeue_without_backoff(
    binding: &Binding,
    reason: &str,
    message: String,
    avoid: Vec<String>,
    now: Timestamp,
) -> Decision {
    evict_binding(
        binding,
        EvictionRecord { avoid, ..continue_eviction_record(binding, reason, message, EpochSeconds::from(now)) },
    )
}

/// The same, and its copies are left in the clusters that it is taken off.
pub(crate) fn requeue_and_hold_copies(
    binding: &Binding,
    reason: &str,
    message: String,
    avoid: Vec<String>,
    now: Timestamp,
) -> Decision {
    let mut decision = requeue_without_backoff(binding, reason, message, avoid, now);
    if let Decision::Evict { held, .. } = &mut decision {
        held.clone_from(&binding.clusters);
    }
    decision
}

/// Takes the quota and the clusters of a binding because its user wants that: it gave way to nobody and failed nowhere,
/// so its next wait is no longer for it. `command` is the UID of the Command that asked for it, if one did.
pub(crate) fn withdraw_binding(
    binding: &Binding,
    reason: &str,
    message: String,
    command: &str,
    now: Timestamp,
) -> Decision {
    let record = continue_eviction_record(binding, reason, message, EpochSeconds::from(now));
    evict_binding(binding, EvictionRecord { preemptor: command.to_owned(), ..record })
}

/// The same because its own policies restarted it, which is counted.
pub(crate) fn restart_by_policy(binding: &Binding, message: String, now: Timestamp) -> Decision {
    evict_binding(binding, record_policy_restart(binding, message, now))
}

/// The record of a job that its own policies restart.
pub(crate) fn record_policy_restart(binding: &Binding, message: String, now: Timestamp) -> EvictionRecord {
    let record = continue_eviction_record(binding, POLICY_RESTARTED, message, EpochSeconds::from(now));
    EvictionRecord { restarts: record.restarts.saturating_add(1), ..record }
}

/// A record of now that continues the one before.
fn continue_eviction_record(binding: &Binding, reason: &str, message: String, now: EpochSeconds) -> EvictionRecord {
    let before = binding.eviction.as_deref();
    let evictions = before.map(EvictionRecord::eviction_history).unwrap_or_default();
    EvictionRecord {
        count: evictions.count,
        last: evictions.last,
        requeues: before.map_or(0, |before| before.requeues),
        restarts: binding.count_policy_restarts(),
        at: now,
        until: now,
        preemptor: String::new(),
        reason: reason.to_owned(),
        message,
        avoid: Vec::new(),
        unstarted: list_unstarted_parts(binding),
        moved: before.and_then(find_last_move),
    }
}

/// Clusters that a binding left because a part of it had not started there, and has not been in since.
pub(crate) fn list_unstarted_parts(binding: &Binding) -> Vec<String> {
    let before = binding.eviction.as_deref();
    let late = before.filter(|before| before.reason == PODS_READY_TIMEOUT).map(|before| &before.avoid);
    let earlier = before.map(|before| &before.unstarted);
    let all: BTreeSet<&String> = late.into_iter().chain(earlier).flatten().collect();
    let is_in = |name: &String| binding.clusters.iter().any(|(cluster, _)| cluster.as_str() == name);
    all.into_iter().filter(|name| !is_in(name)).cloned().collect()
}

/// When a job last left a hot cluster, and what it avoids since: of this record, or of the one that it goes on from.
pub(crate) fn find_last_move(record: &EvictionRecord) -> Option<LastMove> {
    match record.reason.as_str() {
        RESCHEDULED => Some(LastMove { at: record.at, avoid: record.avoid.clone() }),
        _ => record.moved.clone(),
    }
}

fn evict_binding(binding: &Binding, eviction: EvictionRecord) -> Decision {
    Decision::Evict {
        key: binding.key.clone(),
        resource_version: binding.resource_version.clone(),
        suspension: binding.suspension,
        recorded: binding.recorded,
        planned: binding.planned,
        held: Vec::new(),
        eviction: Box::new(eviction),
    }
}

/// The event for a job that was taken off its clusters, once its record is written. Whoever was evicted for another job
/// has an event of its own.
pub(crate) fn describe_eviction_event(record: &EvictionRecord) -> Option<(EventType, String)> {
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
        COPY_REFUSED | JOBS_MISSING => Some((EventType::Warning, format!("{said}; withdrawn from all clusters"))),
        RESCHEDULED => Some((
            EventType::Normal,
            format!("{said}; withdrawn from all clusters, it starts elsewhere once its old copies are gone"),
        )),
        MEMBER_LOST => Some((
            EventType::Warning,
            format!("withdrawn from all clusters: {said}; it runs again once its old copies are known to be gone"),
        )),
        _ => None,
    }
}

/// Whether a record is of a job that runs again as soon as its old copies are gone.
pub(crate) fn waits_for_copies(record: &EvictionRecord) -> bool {
    matches!(record.reason.as_str(), COPY_REFUSED | MEMBER_LOST | RESCHEDULED)
}

/// Why the job of a record was requeued; `None` for one that was evicted for another.
pub(super) fn requeue_cause(record: &EvictionRecord) -> Option<RequeueCause> {
    match record.reason.as_str() {
        NOT_PLACED => Some(RequeueCause::NotPlaced),
        PODS_READY_TIMEOUT => Some(RequeueCause::NotReady),
        JOBS_MISSING => Some(RequeueCause::JobsMissing),
        FORGED_RECORD => Some(RequeueCause::Forged),
        QUEUE_CHANGED => Some(RequeueCause::Moved),
        // Who is ended and has the annotation taken away is back.
        SUSPENDED | ENDED => Some(RequeueCause::Suspended),
        // Who was ended by a limit and is there again was submitted anew.
        RESTARTED | RUN_TIME_EXCEEDED => Some(RequeueCause::Restarted),
        POLICY_RESTARTED => Some(RequeueCause::RestartedByPolicy),
        COPY_REFUSED => Some(RequeueCause::CopyRefused),
        MEMBER_LOST => Some(RequeueCause::MemberLost),
        RESCHEDULED => Some(RequeueCause::Rescheduled),
        _ => None,
    }
}

/// Whether a record is of a job that was requeued, and not of one that was evicted for another.
pub(crate) fn is_requeue(record: &EvictionRecord) -> bool {
    requeue_cause(record).is_some()
}

/// Who wanted what a record says: its preemptor, its user, its own policies or the controller.
pub(crate) fn find_who_wanted(record: &EvictionRecord) -> &'static str {
    match record.reason.as_str() {
        _ if EvictionCause::parse_token(&record.reason).is_some() => "preemptor",
        SUSPENDED | ENDED | RESTARTED | QUEUE_CHANGED => "user",
        POLICY_RESTARTED => "job",
        _ => "controller",
    }
}

/// Whether a record is of a job that its user, or its own policies, took off its clusters.
pub(crate) fn is_withdrawal(record: &EvictionRecord) -> bool {
    matches!(
        requeue_cause(record),
        Some(RequeueCause::Suspended | RequeueCause::Restarted | RequeueCause::RestartedByPolicy)
    )
}
