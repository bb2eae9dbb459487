//! What was seen and sent of one binding's admission record, and what is wrong with it.
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
//! Whatever a record says, its charge never exceeds what the workload can ask for (`ceiling`). What becomes of a faulty
//! record says [`forged_record`](crate::decide::admission::forged_record).

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{
    admission::Admission,
    gang::Gang,
    place::spread_constraints::is_duplicated,
    queue::ledger::{ChargeFacts, compute_charge},
    resources::Resources,
};
use jiff::{SignedDuration, Timestamp};

use super::eviction::{FORGED_RECORD, NOT_PLACED, QUEUE_CHANGED};
use crate::{
    decide::fleet::capacity::FleetCapacity,
    observe::{Binding, Workload},
};

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
    pub(in crate::decide) fn grace_period(self) -> Option<SignedDuration> {
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
    pub(in crate::decide) fn eviction_reason(self) -> &'static str {
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

impl Grant {
    /// Whether it says to be of a lease after this one.
    fn is_of_later_lease(&self, epoch: Option<&str>) -> bool {
        epoch.is_some() && parse_lease_transitions(self.epoch.as_deref()) > parse_lease_transitions(epoch)
    }
}

/// Who wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantOrigin {
    /// This replica, or whoever held the lease before the first list; or it is less of what was known.
    Known,
    /// Whoever held an earlier lease, or so it says: a stale grant.
    EarlierLease,
    /// It says to be of a later lease.
    LaterLease,
    /// Nobody who may.
    Unknown,
}

impl GrantOrigin {
    const fn find_fault(self) -> Option<RecordFault> {
        match self {
            Self::Known | Self::EarlierLease => None,
            Self::LaterLease => Some(RecordFault::NotGrantedByUs),
            Self::Unknown => Some(RecordFault::NotGranted),
        }
    }
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
    pub(in crate::decide) fn judge_grant(
        &mut self,
        binding: &Binding,
        epoch: Option<&str>,
        in_first_list: bool,
    ) -> Option<RecordFault> {
        let now = binding.admission.clone().map(|admission| Grant { admission, epoch: binding.epoch.clone() });
        let is_first = in_first_list && !self.known;
        self.known = true;
        let placed_before = std::mem::replace(&mut self.placed, count_placed(binding));
        self.gated |= binding.gate.is_some();
        let before = std::mem::replace(&mut self.seen, now.clone());
        if now != before {
            self.is_listed = is_first;
            self.ceiling.take_if(|_| binding.clusters.is_empty());
        }
        self.fault = match (now, before) {
            (None, before) => self.judge_missing_record(binding, before.is_some()),
            (Some(now), Some(before)) if now == before => self.judge_same_record(&now, epoch, placed_before),
            (Some(now), before) => {
                let spreads = self.placed > now.admission.count_pods().max(placed_before);
                let origin = self.find_origin(binding, &now, before.as_ref(), epoch, is_first, spreads);
                self.is_stale = origin == GrantOrigin::EarlierLease && self.placed < now.admission.count_pods();
                origin.find_fault()
            }
        };
        self.fault
    }

    /// There is no record that one can read, and maybe there was one before.
    fn judge_missing_record(&mut self, binding: &Binding, was_there: bool) -> Option<RecordFault> {
        if was_there {
            // What was granted once is not granted again by saying so.
            self.sent = None;
        }
        if binding.clusters.is_empty() {
            binding.recorded.then_some(RecordFault::Unreadable)
        } else {
            self.gated.then_some(RecordFault::PlacedWithoutRecord)
        }
    }

    /// The record is the one that was judged before; its clusters may be others.
    fn judge_same_record(&mut self, now: &Grant, epoch: Option<&str>, placed_before: u64) -> Option<RecordFault> {
        let granted = now.admission.count_pods();
        let spreads = self.placed > placed_before;
        let fault = if spreads && self.placed > granted {
            Some(RecordFault::PlacedBeyondRecord)
        } else if spreads && self.is_stale && now.is_of_later_lease(epoch) {
            // The scheduler places only what is of a lease that is or was held: of this one we would know.
            Some(RecordFault::NotGrantedByUs)
        } else {
            self.fault
        };
        self.is_stale &= self.placed < granted && fault.is_none();
        fault
    }

    /// Who wrote a record that is new, or another one than before.
    fn find_origin(
        &mut self,
        binding: &Binding,
        now: &Grant,
        before: Option<&Grant>,
        epoch: Option<&str>,
        is_first: bool,
        spreads: bool,
    ) -> GrantOrigin {
        let is_ours = self.sent.as_ref() == Some(now);
        let is_less = before
            .is_some_and(|before| now.epoch == before.epoch && grants_no_more_than(&now.admission, &before.admission));
        if is_less && !is_ours {
            // Nor is what was taken from it.
            self.sent = None;
        }
        let of_this_lease = now.epoch.as_deref() == epoch;
        // Each time of holding the lease has its own epoch: nothing was granted under it before the first list.
        let is_listed = is_first && !(epoch.is_some() && of_this_lease);
        if is_listed || is_ours || (self.fault.is_none() && is_less && !spreads) {
            return GrantOrigin::Known;
        }
        let is_later = now.is_of_later_lease(epoch);
        // What has clusters is not of a lease that nobody knows of; and where there are no leases, of none at all.
        let may_be_placed =
            binding.clusters.is_empty() || epoch.is_some() && !is_later && self.goes_on_as_placed(now, before);
        // Nobody grants without a lease while we hold one.
        let names_lease = now.epoch.is_some() || epoch.is_none();
        if !of_this_lease && names_lease && may_be_placed {
            GrantOrigin::EarlierLease
        } else if is_later {
            GrantOrigin::LaterLease
        } else {
            GrantOrigin::Unknown
        }
    }

    /// Whether what has clusters was placed by a record that was believed, and has got none since.
    fn goes_on_as_placed(&self, now: &Grant, before: Option<&Grant>) -> bool {
        let was_believed = self.fault.is_none() && !self.is_stale;
        was_believed
            && before.is_some_and(|before| {
                keeps_run_limit(&now.admission, &before.admission) && self.placed <= before.admission.count_pods()
            })
    }

    /// Holds the record against its workload.
    pub(in crate::decide) fn check_queue(&mut self, binding: &Binding, workload: &Workload) -> Option<RecordFault> {
        let record = binding.admission.as_ref()?;
        if record.queue == workload.queue {
            self.named_queue = true;
            return None;
        }
        Some(if self.named_queue { RecordFault::QueueChanged } else { RecordFault::OtherQueue })
    }

    /// Whether a record that we did not write says that its run begins later.
    pub(in crate::decide) fn claims_later_start(&self, now: Timestamp) -> bool {
        let latest = now.as_second().saturating_add(MOST_CLOCK_SKEW);
        let run = self.seen.as_ref().filter(|seen| self.sent.as_ref() != Some(seen));
        run.and_then(|seen| seen.admission.run).is_some_and(|run| run.from.as_seconds() > latest)
    }

    /// What the workload can ask for at most. While its record stands that does not fall: it may be scaled up again
    /// before a smaller record is stored. Nor while it is placed: what it ran with may be there yet. Of one that was
    /// scaled down while no controller ran, the record says what it had, and if that was cut already, its clusters; not
    /// so a record of a later lease, which stays for a while.
    pub(in crate::decide) fn update_charge_ceiling(
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
        let placed = listed.map(|_| sum_placed(binding, gang, capacity));
        for known in self.ceiling.iter().chain(listed.map(|record| &record.charged)).chain(&placed) {
            most = most.max(known);
        }
        self.ceiling = Some(most);
    }
}

/// What the pods ask for that are in clusters of the fleet.
fn sum_placed(binding: &Binding, gang: &Gang, capacity: &FleetCapacity) -> Resources {
    let clusters: Vec<_> = binding.clusters.iter().filter(|(name, _)| capacity.knows(name.as_str())).cloned().collect();
    let plan = binding.plan.as_deref();
    compute_charge(&ChargeFacts { gang: Some(gang), clusters: &clusters, plan, ..ChargeFacts::default() }).amount
}

/// Pods that the clusters, or the plan, of a binding have; whole copies that say no number are not counted.
pub(in crate::decide) fn count_placed(binding: &Binding) -> u64 {
    let reported = binding.clusters.iter().fold(0_u64, |sum, (_, pods)| sum.saturating_add(u64::from(*pods)));
    let plan = binding.plan.iter().flat_map(|plan| &plan.clusters);
    let shares = plan.filter(|(name, _)| binding.clusters.iter().any(|(cluster, _)| cluster == *name));
    let tasks = shares.flat_map(|(_, share)| share.tasks.values());
    reported.max(tasks.fold(0_u64, |sum, share| sum.saturating_add(u64::from(share.replicas))))
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
