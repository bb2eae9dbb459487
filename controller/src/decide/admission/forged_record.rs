//! Forged records: admissions and placements that no controller made, and other records that can not stand, are taken
//! away.
//!
//! Rule: [`grant_history`](crate::decide::bindings::grant_history) says what is wrong with a record. Whatever a record
//! says, its charge goes to the queue that the workload names, and never exceeds what the workload can ask for: so a
//! forged one takes nothing from others. It is taken away in one patch, as an eviction with a backoff. That is at once,
//! but for a record of a later lease than ours: a minute later, since we may have lost the lease and not noticed. One
//! that was forged while no controller ran passes for granted in its own queue, and is charged until the first write
//! cuts it to its template.
//!
//! Two records are taken away here and are not forged. One whose user changed the queue of the workload goes at once,
//! with reason `QueueChanged` and without a backoff. One that is placed nowhere and whose workload is not there, or can
//! not be read, goes after a minute with reason `NotPlaced`: a list of jobs may be older than one of bindings. Where no
//! list of its kind came at all, its record stands and is charged.

use std::sync::Arc;

use caldera_core::text::count_noun;
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{FORGED_RECORD, requeue_binding},
            grant_history::{RecordFault, count_placed},
            jobs::Jobs,
        },
        deadlines::{Deadlines, add_wait},
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Objects, Workload},
    write::Decision,
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);

impl Jobs {
    /// What is wrong with the record and the clusters of a binding.
    pub(crate) fn judge_record(
        &mut self,
        objects: &Objects,
        capacity: &FleetCapacity,
        binding: &Binding,
        now: Timestamp,
    ) -> Option<RecordFault> {
        let (epoch, in_first_list) = (self.epoch.clone(), self.in_first_list);
        let history = &mut self.states.get_mut(&binding.key)?.grant;
        let workload = objects.workload_of(binding);
        let gang = workload.and_then(|workload| workload.gang.as_ref().ok());
        let fault = history.judge_grant(binding, epoch.as_deref(), in_first_list);
        if let Some((workload, gang)) = workload.zip(gang) {
            history.update_charge_ceiling(binding, workload, gang, capacity, epoch.as_deref());
        }
        // Others' bindings, and those that go, are nobody's to take from.
        if binding.deleting || binding.placement.is_none() {
            return None;
        }
        let is_unplaced = binding.admission.is_some() && binding.clusters.is_empty();
        let unseen = gang.is_none() && is_unplaced && !objects.is_of_unlisted_kind(binding);
        match fault {
            // That it names another queue is so under every lease.
            None | Some(RecordFault::NotGrantedByUs) => workload
                .and_then(|workload| history.check_queue(binding, workload))
                .or(fault)
                .or(history.claims_later_start(now).then_some(RecordFault::BeginsLater))
                .or(unseen.then_some(RecordFault::NoWorkload)),
            known => known,
        }
    }
}

/// Bindings whose records are to be taken away, and when.
#[derive(Debug, Default)]
pub(crate) struct FaultyRecords(pub(crate) Deadlines<(RecordFault, Arc<str>)>);

impl FaultyRecords {
    /// Takes in what is wrong with a binding.
    pub(crate) fn schedule_removal(&mut self, binding: &Binding, fault: Option<RecordFault>, now: Timestamp) {
        let Some(fault) = fault else { return self.0.forget(&binding.key) };
        let known = self.0.get_mut(&binding.key).map(|(_, (known, version))| (*known, Arc::clone(version)));
        match known {
            // Its time runs on, however often the binding changes.
            Some((known, version)) if known == fault => {
                if version != binding.resource_version && fault.grace_period().is_none() {
                    self.0.set(&binding.key, now, (fault, Arc::clone(&binding.resource_version)));
                }
            }
            _ => {
                let at = fault.grace_period().map_or(now, |grace| add_wait(now, grace));
                self.0.set(&binding.key, at, (fault, Arc::clone(&binding.resource_version)));
            }
        }
    }

    /// Takes away what nobody granted, and says so; and how many were forged.
    pub(crate) fn evict_faulty_records(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        now: Timestamp,
    ) -> (Vec<Decision>, usize) {
        let (mut decisions, mut forged) = (Vec::new(), 0);
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, RETRY_AFTER_WRITE));
            let Some((_, (fault, _))) = self.0.get_mut(&key) else { continue };
            let fault = *fault;
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let workload = objects.workload_of(binding);
            let why = describe_fault(fault, binding, workload);
            let reason = fault.eviction_reason();
            let is_forged = reason == FORGED_RECORD;
            forged += usize::from(is_forged);
            let event_type = if is_forged { EventType::Warning } else { EventType::Normal };
            decisions.extend(workload.map(|it| Decision::build_workload_event(it, event_type, reason, why.clone())));
            let decision = requeue_binding(binding, reason, why, Vec::new(), now);
            decisions.push(if fault == RecordFault::QueueChanged { remove_backoff(decision) } else { decision });
        }
        (decisions, forged)
    }
}

/// A job whose user only changed its queue gets no backoff.
fn remove_backoff(mut decision: Decision) -> Decision {
    if let Decision::Evict { eviction, .. } = &mut decision {
        eviction.until = eviction.at;
    }
    decision
}

fn describe_fault(fault: RecordFault, binding: &Binding, workload: Option<&Workload>) -> String {
    let record = binding.admission.as_ref();
    let queue = record.map_or("", |record| record.queue.as_str());
    let own = workload.map_or("", |workload| workload.queue.as_str());
    match fault {
        RecordFault::NotGranted | RecordFault::NotGrantedByUs => {
            let charged = record.map(|record| record.charged.to_string()).unwrap_or_default();
            format!("its admission ({charged} of queue {queue}) was not written by the controller")
        }
        RecordFault::OtherQueue => format!("its admission names queue {queue}, and it is in queue {own}"),
        RecordFault::QueueChanged => format!("it was admitted to queue {queue}, and names queue {own} now"),
        RecordFault::Unreadable => "its admission can not be read".to_owned(),
        RecordFault::PlacedWithoutRecord => "it was given clusters without an admission".to_owned(),
        RecordFault::PlacedBeyondRecord => {
            let (placed, granted) = (count_placed(binding), record.map_or(0, |record| record.count_pods()));
            format!("it was given clusters for {}, and has quota for {granted}", count_noun(placed, "pod"))
        }
        RecordFault::BeginsLater => "its run is said to begin later than now".to_owned(),
        RecordFault::NoWorkload => "it is admitted, and its workload is not there".to_owned(),
    }
}
