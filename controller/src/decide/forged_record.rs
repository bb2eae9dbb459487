//! Forged records: admissions and placements that no controller made, and other records that can not stand.
//!
//! Rule: the holder of the lease alone grants, so it knows each grant of its own. The *epoch* names one time of
//! holding it: each holder, and each restart of one, has its own. A record that appears on a binding is forged if it
//! says to be of this lease and was not written here; if it names no lease while one is held here; if it is of
//! another lease and something of it is placed already (the scheduler places a grant only under its lease, so the
//! first list of whoever took the lease over had it, see ADR 4); if it can not be read; or if it never named the
//! queue of its workload. Clusters are forged without a record on a gated binding, and beyond the record if nobody
//! cut that. A grant of another lease of which nothing is placed is a stale grant, not a forged one. A record that is
//! smaller than the one before, and of the same lease, harms nobody, unless clusters for more pods come with it. A
//! gate that was there counts although somebody took it off. How long a run may take is part of the record: one that
//! goes on in its clusters keeps when it began, and gets no more time, whatever lease its record names; and none
//! begins later than now.
//!
//! Whatever a record says, its charge goes to the queue that the workload names, and never exceeds what the workload
//! can ask for: so a forged one takes nothing from others. It is taken away in one patch, as an eviction with a
//! backoff. That is at once, but for a record of a later lease than ours: a minute later, since we may have lost the
//! lease and not noticed. One that was forged while no controller ran passes for granted in its own queue, and is
//! charged until the first write cuts it to its template.
//!
//! Two records are taken away here and are not forged. One whose user changed the queue of the workload goes at once,
//! with reason `QueueChanged` and without a backoff. One that is placed nowhere and whose workload is not there, or can
//! not be read, goes after a minute with reason `NotPlaced`: a list of jobs may be older than one of bindings.

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{admission::Admission, gang::Gang, place::spread_constraints::is_duplicated, resources::Resources};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use super::{
    capacity::FleetCapacity,
    deadlines::{Deadlines, add_wait},
    eviction::{FORGED_RECORD, NOT_PLACED, QUEUE_CHANGED, requeue_binding},
    jobs::Jobs,
};
use crate::{
    observe::{Binding, Objects, Workload},
    write::Decision,
};

/// After a write that may have failed.
const RETRY_AFTER_WRITE: SignedDuration = SignedDuration::from_secs(5);
/// A record of a later lease than ours: by then a replica that lost the lease has noticed, and decides no more.
const LOST_LEASE_NOTICED_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Clocks of two replicas differ by less.
const MOST_CLOCK_SKEW: i64 = 60;
/// A granted job that is not seen: by then every list and every watch has caught up.
const UNSEEN_WORKLOAD_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// What is wrong with what a binding says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// Nobody granted it.
    NotGranted,
    /// Nobody granted it, if we still hold the lease: it says to be of a later one.
    NotGrantedByUs,
    /// It names another queue than its workload.
    OtherQueue,
    /// Its user changed the queue of the workload.
    QueueChanged,
    /// Nobody can read it: it grants nothing, and its job would wait for ever.
    Unreadable,
    /// It is gated, has no record, and has clusters.
    PlacedWithoutRecord,
    /// It has clusters for more pods than were granted.
    PlacedBeyondRecord,
    /// Its run is said to begin later than now, and so to end later than it may.
    BeginsLater,
    /// It is placed nowhere, and its workload is not there, or asks for nothing that one can read.
    NoWorkload,
}

impl RecordFault {
    /// For how long what looks wrong may turn out right.
    fn grace_period(self) -> Option<SignedDuration> {
        match self {
            Self::NotGrantedByUs => Some(LOST_LEASE_NOTICED_AFTER),
            Self::NoWorkload => Some(UNSEEN_WORKLOAD_AFTER),
            Self::NotGranted
            | Self::OtherQueue
            | Self::QueueChanged
            | Self::Unreadable
            | Self::PlacedWithoutRecord
            | Self::PlacedBeyondRecord
            | Self::BeginsLater => None,
        }
    }

    /// The reason of what is said, and written on the binding.
    fn eviction_reason(self) -> &'static str {
        match self {
            Self::QueueChanged => QUEUE_CHANGED,
            Self::NoWorkload => NOT_PLACED,
            Self::NotGranted
            | Self::NotGrantedByUs
            | Self::OtherQueue
            | Self::Unreadable
            | Self::PlacedWithoutRecord
            | Self::PlacedBeyondRecord
            | Self::BeginsLater => FORGED_RECORD,
        }
    }
}

/// A record, and under which lease it says to be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    admission: Arc<Admission>,
    epoch: Option<Arc<str>>,
}

/// What was seen of a binding's record, and what was sent.
#[derive(Debug, Default)]
pub(crate) struct GrantHistory {
    /// Whether it was seen at all.
    known: bool,
    seen: Option<Grant>,
    /// What this replica wrote last.
    sent: Option<Grant>,
    /// Pods that its clusters were seen to have.
    placed: u64,
    /// It was seen with a gate.
    gated: bool,
    fault: Option<RecordFault>,
    /// Nothing speaks for the record but that it is of another lease.
    is_stale: bool,
    /// The record is as the first list had it.
    is_listed: bool,
    /// The record named the workload's queue.
    named_queue: bool,
    ceiling: Option<Resources>,
}

impl GrantHistory {
    /// The most that the binding may be charged, where that is known.
    pub(crate) const fn ceiling(&self) -> Option<&Resources> {
        self.ceiling.as_ref()
    }

    /// Whether nobody has asked yet if the record is within the limits.
    pub(crate) const fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// A record is about to be written.
    pub(crate) fn remember_sent(&mut self, admission: &Admission, epoch: Option<&Arc<str>>) {
        let epoch = epoch.filter(|epoch| !epoch.is_empty()).cloned();
        self.sent = Some(Grant { admission: Arc::new(admission.clone()), epoch });
    }

    /// Takes in what a binding says now.
    fn judge_grant(&mut self, binding: &Binding, epoch: Option<&str>, in_first_list: bool) -> Option<RecordFault> {
        let now = binding.admission.clone().map(|admission| Grant { admission, epoch: binding.epoch.clone() });
        let (placed, placed_before) = (count_placed(binding), self.placed);
        let is_first = in_first_list && !self.known;
        self.known = true;
        self.placed = placed;
        self.gated |= binding.gate.is_some();
        let before = std::mem::replace(&mut self.seen, now);
        if self.seen != before {
            self.is_listed = is_first;
            self.ceiling.take_if(|_| binding.clusters.is_empty());
        }
        let Some(now) = &self.seen else {
            if before.is_some() {
                // What was granted once is not granted again by saying so.
                self.sent = None;
            }
            self.fault = if binding.clusters.is_empty() {
                binding.recorded.then_some(RecordFault::Unreadable)
            } else {
                self.gated.then_some(RecordFault::PlacedWithoutRecord)
            };
            return self.fault;
        };
        let granted = count_granted(&now.admission);
        let is_later =
            epoch.is_some() && parse_lease_transitions(now.epoch.as_deref()) > parse_lease_transitions(epoch);
        let spreads = placed > granted && placed > placed_before;
        if before.as_ref() == Some(now) {
            if spreads {
                self.fault = Some(RecordFault::PlacedBeyondRecord);
            } else if self.is_stale && is_later && placed > placed_before {
                // The scheduler places only what is of a lease that is or was held: of this one we would know.
                self.fault = Some(RecordFault::NotGrantedByUs);
            }
            self.is_stale &= placed < granted && self.fault.is_none();
            return self.fault;
        }
        let is_ours = self.sent.as_ref() == Some(now);
        let is_less = before
            .as_ref()
            .is_some_and(|before| now.epoch == before.epoch && grants_no_more_than(&now.admission, &before.admission));
        if is_less && !is_ours {
            // Nor is what was taken from it.
            self.sent = None;
        }
        let of_this_lease = now.epoch.as_deref() == epoch;
        // What is placed was placed by a record that was believed.
        let was_believed = self.fault.is_none() && !self.is_stale;
        let waits = binding.clusters.is_empty()
            || before.as_ref().is_some_and(|before| {
                let goes_on = keeps_run_limit(&now.admission, &before.admission);
                was_believed && goes_on && placed <= count_granted(&before.admission)
            });
        // Each time of holding the lease has its own epoch: nothing was granted under it before the first list.
        let is_listed = is_first && !(epoch.is_some() && of_this_lease);
        let is_known = is_listed || is_ours || (self.fault.is_none() && is_less && !spreads);
        // What has clusters is not of a lease that nobody knows of; and where there are no leases, of none at all.
        let may_be_placed = epoch.is_some() && !is_later;
        // Nobody grants without a lease while we hold one.
        let names_lease = now.epoch.is_some() || epoch.is_none();
        let may_be_stale = waits && names_lease && (binding.clusters.is_empty() || may_be_placed);
        let is_stale = !is_known && !of_this_lease && may_be_stale;
        self.is_stale = is_stale && placed < granted;
        self.fault = if is_known || is_stale {
            None
        } else if is_later {
            Some(RecordFault::NotGrantedByUs)
        } else {
            Some(RecordFault::NotGranted)
        };
        self.fault
    }

    /// Holds the record against its workload.
    fn check_queue(&mut self, binding: &Binding, workload: &Workload) -> Option<RecordFault> {
        let record = binding.admission.as_ref()?;
        if record.queue == workload.queue {
            self.named_queue = true;
            return None;
        }
        Some(if self.named_queue { RecordFault::QueueChanged } else { RecordFault::OtherQueue })
    }

    /// Whether a record that we did not write says that its run begins later.
    fn claims_later_start(&self, now: Timestamp) -> bool {
        let latest = now.as_second().saturating_add(MOST_CLOCK_SKEW);
        let run = self.seen.as_ref().filter(|seen| self.sent.as_ref() != Some(seen));
        run.and_then(|seen| seen.admission.run).is_some_and(|run| run.from.as_seconds() > latest)
    }

    /// What the workload can ask for at most. While its record stands that does not fall: it may be scaled up again
    /// before a smaller record is stored. Nor while it is placed: what it ran with may be there yet. Of one that was
    /// scaled down while no controller ran, the record says what it had; not so a record of a later lease, which stays
    /// for a while.
    fn update_charge_ceiling(
        &mut self,
        binding: &Binding,
        workload: &Workload,
        gang: &Gang,
        capacity: &FleetCapacity,
        epoch: Option<&str>,
    ) {
        let copies = count_most_copies(binding, gang, capacity);
        let mut most = gang.sum_full_charge().times(copies);
        // On any of the card models that it may use, and on the one that it is kept to.
        let kept = binding.admission.iter().filter_map(|record| record.card.as_ref()).cloned();
        for card in gang.list_card_choices().into_iter().chain(kept) {
            most = most.max(&gang.keep_to_card(Some(&card)).sum_full_charge().times(copies));
        }
        let is_cut = !binding.deleting && !workload.deleting && workload.progress.ended.is_none();
        let is_cut = is_cut && parse_lease_transitions(binding.epoch.as_deref()) <= parse_lease_transitions(epoch);
        let listed =
            binding.admission.as_ref().filter(|record| self.is_listed && is_cut && record.queue == workload.queue);
        for known in self.ceiling.iter().chain(listed.map(|record| &record.charged)) {
            most = most.max(known);
        }
        self.ceiling = Some(most);
    }
}

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
        let unseen = gang.is_none() && binding.admission.is_some() && binding.clusters.is_empty();
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
            let (placed, granted) = (count_placed(binding), record.map_or(0, |record| count_granted(record)));
            format!("it was given clusters for {placed} pods, and {granted} are admitted")
        }
        RecordFault::BeginsLater => "its run is said to begin later than now".to_owned(),
        RecordFault::NoWorkload => "it is admitted, and its workload is not there".to_owned(),
    }
}

/// Pods that a record grants, in all copies.
fn count_granted(record: &Admission) -> u64 {
    let pods = record.tasks.values().fold(0_u64, |sum, pods| sum.saturating_add(u64::from(*pods)));
    pods.saturating_mul(u64::from(record.copies.max(1)))
}

/// Pods that the clusters, or the plan, of a binding have; whole copies that say no number are not counted.
fn count_placed(binding: &Binding) -> u64 {
    let told = binding.clusters.iter().fold(0_u64, |sum, (_, pods)| sum.saturating_add(u64::from(*pods)));
    let plan = binding.plan.iter().flat_map(|plan| &plan.clusters);
    let shares = plan.filter(|(name, _)| binding.clusters.iter().any(|(cluster, _)| cluster == *name));
    let tasks = shares.flat_map(|(_, share)| share.tasks.values());
    told.max(tasks.fold(0_u64, |sum, share| sum.saturating_add(u64::from(share.replicas))))
}

/// Whether a record grants no more than another one: neither pods nor time, nor other nodes, clusters or cards.
fn grants_no_more_than(record: &Admission, other: &Admission) -> bool {
    record.queue == other.queue
        && record.copies <= other.copies
        && record.charged.fits_in(&other.charged)
        && record.tasks.iter().all(|(task, pods)| *pods <= other.pods_of(task))
        && (&record.nodes, &record.clusters, &record.card) == (&other.nodes, &other.clusters, &other.card)
        && keeps_run_limit(record, other)
}

/// Whether a record is of the same run as another one, and lets it take no longer.
fn keeps_run_limit(record: &Admission, other: &Admission) -> bool {
    match (record.run, other.run) {
        (Some(run), Some(other)) => run.is_within(other),
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// How often the lease had changed hands. An epoch that says nothing is of no lease of ours.
pub(crate) fn parse_lease_transitions(epoch: Option<&str>) -> Option<u64> {
    epoch?.split_once('.')?.0.parse().ok()
}

/// Copies of the whole workload that there can be. Clusters that the fleet does not have run nothing.
fn count_most_copies(binding: &Binding, gang: &Gang, capacity: &FleetCapacity) -> u64 {
    let is_whole = |replicas: u32| binding.plan.is_none() && (gang.tasks.len() > 1 || replicas == 0);
    let division = binding.placement.as_deref().and_then(|placement| placement.placement.division.as_ref());
    let copies = if is_duplicated(division) {
        capacity.count_clusters()
    } else {
        let whole = binding.clusters.iter().filter(|(_, replicas)| is_whole(*replicas)).map(|(name, _)| name.as_str());
        whole.collect::<BTreeSet<&str>>().into_iter().filter(|name| capacity.knows(name)).count()
    };
    u64::try_from(copies).unwrap_or(u64::MAX).max(1)
}
