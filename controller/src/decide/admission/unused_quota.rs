//! Quota that was granted and finds no place: it does not stay charged for what does not run.
//!
//! A gang may be placed smaller than it was granted, and grows up to its record without asking again. What has found no
//! place five minutes after the last change of either is taken back: the record shrinks to what is placed, and the rest
//! waits in the queue as any increase does. Each time that it is granted again and finds no place after all, it is left
//! twice as long, up to five hours. Only these times are kept in memory: a restart gives five minutes.

use caldera_core::{
    admission::Admission, gang::Gang, place::spread_constraints::is_duplicated, queue::ledger::AdmissionStage,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Key, Objects, Workload, admitted_gang},
};

/// From the last change of record or placement on.
const UNUSED_FOR: SignedDuration = SignedDuration::from_secs(300);
/// It doubles so often at most.
const DOUBLINGS: u32 = 6;

/// A record that is, or was, placed in part.
#[derive(Debug)]
pub(crate) struct PartlyPlaced {
    /// Pods granted and placed.
    pods: (u64, u64),
    /// How often it was cut with so many placed.
    cuts: u32,
}

/// Records of which something is not placed, and when each is cut.
#[derive(Debug, Default)]
pub(crate) struct UnusedQuota(pub(crate) Deadlines<PartlyPlaced>);

impl UnusedQuota {
    /// Whether something that was granted is not placed.
    pub(crate) fn is_unused(&self, key: &Key) -> bool {
        self.0.has_deadline(key)
    }

    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(
        &mut self,
        binding: &Binding,
        workload: Option<&Workload>,
        stage: Option<AdmissionStage>,
        now: Timestamp,
    ) {
        let placed = || {
            let record =
                binding.admission.as_deref().filter(|_| stage == Some(AdmissionStage::Placed) && !binding.suspended)?;
            let gang = workload?.gang.as_ref().ok()?;
            let granted = record.count_pods();
            Some((granted, cut_to_placed(record, gang, binding).as_ref().map_or(granted, Admission::count_pods)))
        };
        match placed() {
            Some((granted, placed)) if granted > placed || self.0.contains(&binding.key) => {
                self.observe_pods(&binding.key, granted, placed, now);
            }
            Some(_) => {}
            None => self.0.forget(&binding.key),
        }
    }

    fn observe_pods(&mut self, key: &Key, granted: u64, placed: u64, now: Timestamp) {
        let (due, known) = self.0.entry_or_insert(key, PartlyPlaced { pods: (0, placed), cuts: 0 });
        if known.pods.1 != placed {
            // It came further than the last time.
            known.cuts = 0;
        }
        let same = known.pods == (granted, placed) && due.is_some();
        known.pods = (granted, placed);
        if granted <= placed {
            *due = None;
        } else if !same {
            *due = Some(add_wait(now, UNUSED_FOR * (1 << known.cuts.min(DOUBLINGS))));
        }
    }

    /// The smaller records of those whose time is over.
    pub(crate) fn cut_unused(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<(Key, Admission)> {
        let mut records = Vec::new();
        for key in self.0.list_due(now) {
            if let Some((due, known)) = self.0.get_mut(&key) {
                known.cuts += 1;
                // Should the write fail.
                *due = Some(add_wait(now, UNUSED_FOR));
            }
            let binding = jobs.find_confirmed(objects, &key);
            if let Some(record) = binding.and_then(|binding| record_of_placed(objects, binding)) {
                tracing::info!(binding = %key, placed = %record.charged, "unused quota is taken back");
                records.push((key, record));
            }
        }
        records
    }
}

/// The record of what is placed of a binding; `None` if that is all that was granted, or not known.
pub(crate) fn record_of_placed(objects: &Objects, binding: &Binding) -> Option<Admission> {
    cut_to_placed(binding.admission.as_deref()?, &*admitted_gang(binding, objects.workload_of(binding)?)?, binding)
}

fn cut_to_placed(record: &Admission, gang: &Gang, binding: &Binding) -> Option<Admission> {
    let mut less = record.clone();
    let division = binding.placement.as_deref()?.placement.division.as_ref();
    if is_duplicated(division) {
        let copies = u32::try_from(binding.clusters.len()).ok()?.max(1);
        let gone = record.copies.checked_sub(copies).filter(|gone| *gone > 0)?;
        for task in &gang.tasks {
            let pods = u64::from(record.pods_of(&task.name)).saturating_mul(u64::from(gone));
            less.charged.saturating_sub(&task.charge().times(pods));
        }
        less.copies = copies;
        return Some(less);
    }
    // Karmada says nothing of how many there are in a whole copy.
    if binding.plan.is_none() && binding.clusters.iter().any(|(_, replicas)| *replicas == 0) {
        return None;
    }
    less.tasks.clear();
    for (task, placed) in gang.tasks.iter().zip(binding.count_pods_by_cluster(gang)) {
        let had = record.pods_of(&task.name);
        let keeps = placed.values().fold(0, |sum: u32, pods| sum.saturating_add(*pods)).min(had);
        less.charged.saturating_sub(&task.charge().times(u64::from(had - keeps)));
        less.tasks.insert(task.name.clone(), keeps);
    }
    // Never less than the pods ask for that stay, whatever the record says they are charged.
    less.charged = less.charged.max(&less.sum_pod_requests(gang).min(&record.charged));
    let same = |task: &caldera_core::gang::Task| less.pods_of(&task.name) == record.pods_of(&task.name);
    (!gang.tasks.iter().all(same)).then_some(less)
}
