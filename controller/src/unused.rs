//! Records that grant more than finds a place: they do not hold quota for what does not run.
//!
//! A gang may be placed smaller than it was granted, and grows up to its record without asking again. What has found no
//! place five minutes after the last change of either goes back: the record is cut to what is placed, and the rest waits in
//! the line as any growth does (`regrant`). Each time that it is granted again and finds no place after all, it is left
//! twice as long, up to five hours. Only these times are kept in memory: a restart gives five minutes.

use std::collections::BTreeMap;

use caldera_core::{admission::Admission, gang::Gang, place::spread_constraints::is_duplicated, queue::ledger::Stage};
use jiff::{SignedDuration, Timestamp};

use crate::{
    facts::{Binding, Key},
    give_back,
    index::{Index, State},
};

/// From the last change of record or placement on.
const PATIENCE: SignedDuration = SignedDuration::from_secs(300);
/// It doubles so often at most.
const DOUBLINGS: u32 = 6;

/// A record of which something is not placed.
#[derive(Debug)]
struct Spare {
    /// Pods granted and placed.
    pods: (u64, u64),
    /// How often it was cut with so many placed.
    cuts: u32,
    /// When it is cut; `None` while nothing is spare.
    due: Option<Timestamp>,
}

/// Those that are, or were, placed in part.
#[derive(Debug, Default)]
pub(crate) struct Unused(BTreeMap<Key, Spare>);

impl Unused {
    /// When the first is to be cut.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|spare| spare.due).min()
    }

    /// The binding is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Something that was granted is not placed.
    pub(crate) fn is_spare(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|spare| spare.due.is_some())
    }

    fn observe(&mut self, key: &Key, granted: u64, placed: u64, now: Timestamp) {
        let spare = self.0.entry(key.clone()).or_insert(Spare { pods: (0, placed), cuts: 0, due: None });
        if spare.pods.1 != placed {
            // It came further than the last time.
            spare.cuts = 0;
        }
        let same = spare.pods == (granted, placed) && spare.due.is_some();
        spare.pods = (granted, placed);
        if granted <= placed {
            spare.due = None;
        } else if !same {
            spare.due = now.saturating_add(PATIENCE * (1 << spare.cuts.min(DOUBLINGS))).ok();
        }
    }
}

impl Index {
    /// The record of what is placed of a binding; `None` if that is all that was granted, or not known.
    pub(crate) fn placed_of(&self, key: &Key) -> Option<Admission> {
        let binding = &self.entries.get(key)?.binding;
        cut(binding.admission.as_deref()?, self.workload_of(binding)?.gang.as_ref().ok()?, binding)
    }

    /// Where a binding stands now.
    pub(crate) fn observe_unused(&mut self, key: &Key) {
        let spare = self.entries.get(key).and_then(|entry| {
            let placed = matches!(entry.state, State::Holding { stage: Stage::Placed, .. });
            let record = entry.binding.admission.as_deref().filter(|_| placed && !entry.binding.suspended)?;
            let gang = self.workload_of(&entry.binding)?.gang.as_ref().ok()?;
            let pods = |record: &Admission| {
                let pods = record.tasks.values().map(|pods| u64::from(*pods)).fold(0, u64::saturating_add);
                pods.saturating_mul(u64::from(record.copies.max(1)))
            };
            let granted = pods(record);
            Some((granted, cut(record, gang, &entry.binding).as_ref().map_or(granted, pods)))
        });
        match spare {
            Some((granted, placed)) if granted > placed || self.unused.0.contains_key(key) => {
                self.unused.observe(key, granted, placed, self.now);
            }
            Some(_) => {}
            None => self.unused.forget(key),
        }
    }
}

/// Has those cut whose time is over.
pub(crate) fn turn(index: &mut Index, now: Timestamp) {
    let over = |spare: &Spare| spare.due.is_some_and(|due| due <= now);
    let due: Vec<Key> = index.unused.0.iter().filter(|(_, spare)| over(spare)).map(|(key, _)| key.clone()).collect();
    for key in due {
        if let Some(spare) = index.unused.0.get_mut(&key) {
            spare.cuts += 1;
            // Should the write fail.
            spare.due = now.saturating_add(PATIENCE).ok();
        }
        let is_free = index.entries.get(&key).is_some_and(|entry| entry.assumed.is_none());
        if let Some(less) = index.placed_of(&key).filter(|_| is_free) {
            tracing::info!(binding = %key, placed = %less.charged, "what found no place goes back");
            index.cuts.insert(key, less);
        }
    }
}

/// The record of what is placed; `None` if that is all that was granted, or not known.
fn cut(record: &Admission, gang: &Gang, binding: &Binding) -> Option<Admission> {
    let mut less = record.clone();
    let division = binding.placement.as_deref()?.placement.division.as_ref();
    if is_duplicated(division) {
        let copies = u32::try_from(binding.clusters.len()).ok()?.max(1);
        let gone = record.copies.checked_sub(copies).filter(|gone| *gone > 0)?;
        for task in &gang.tasks {
            let pods = u64::from(record.pods_of(&task.name)).saturating_mul(u64::from(gone));
            less.charged.saturating_sub(&task.request.times(pods));
        }
        less.copies = copies;
        return Some(less);
    }
    // Karmada says nothing of how many there are in a whole copy.
    if binding.plan.is_none() && binding.clusters.iter().any(|(_, replicas)| *replicas == 0) {
        return None;
    }
    less.tasks.clear();
    for (task, there) in gang.tasks.iter().zip(give_back::placed(binding, gang)) {
        let had = record.pods_of(&task.name);
        let keeps = there.values().fold(0, |sum: u32, pods| sum.saturating_add(*pods)).min(had);
        less.charged.saturating_sub(&task.request.times(u64::from(had - keeps)));
        less.tasks.insert(task.name.clone(), keeps);
    }
    let kept = |admission: &Admission| gang.tasks.iter().map(|task| admission.pods_of(&task.name)).collect::<Vec<_>>();
    (kept(&less) != kept(record)).then_some(less)
}
