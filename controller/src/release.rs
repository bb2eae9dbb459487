//! Who starts now: the engine's order, each against the room that the ones before it left.
//!
//! A release is one patch of one binding; so is a larger record for one that runs and wants more (`regrant`). From the
//! decision until the watch shows it the binding is assumed to be so, and its place is promised to it.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, WorkloadRef},
    place::Groups,
    queue::{Ask, Fit, JobId, ReservedClusters},
};
use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;

use crate::{
    affinity,
    effect::Effect,
    facts::{Key, Workload},
    index::{Assumed, Entry, Index, Tag},
    plan::Plan,
    room::{Place, Question, Room},
};

/// Work of one turn, so that new events are never far behind.
pub(crate) const RELEASES: usize = 256;

/// The clusters, for the jobs of this host.
struct Clusters<'a> {
    room: &'a mut Room,
    ids: &'a BTreeMap<JobId, Key>,
    entries: &'a BTreeMap<Key, Box<Entry>>,
    workloads: &'a BTreeMap<Arc<WorkloadRef>, Box<Workload>>,
    affinities: &'a Groups<Key>,
    /// The place of the job that was last found to fit.
    found: Option<Place>,
}

impl Clusters<'_> {
    /// Every job in line has a placement, a workload and a gang: the standing says so.
    fn question<T>(&mut self, id: &JobId, ask: impl FnOnce(&mut Room, Question<'_>) -> T) -> Option<T> {
        let entry = self.entries.get(self.ids.get(id)?)?;
        let binding = &entry.binding;
        let workload = self.workloads.get(&binding.workload)?;
        let peers = affinity::peers(self.affinities, self.entries, self.room, binding);
        let placement = affinity::with(binding.placement.as_deref()?, peers);
        let whole = workload.kind == WorkloadKind::VolcanoJob;
        let previous = binding.plan.as_deref().filter(|_| whole && entry.grows_as(id).is_some());
        let question = Question { binding: &placement, gang: workload.gang.as_ref().ok()?, whole, previous };
        Some(ask(self.room, question))
    }

    /// Pods that must find a place where this asks for more: what was granted, and the least that is asked for on top.
    fn at_least(&self, id: &JobId) -> Option<u64> {
        let entry = self.entries.get(self.ids.get(id)?)?;
        let ask = &entry.grows_as(id)?.more.ask;
        let record = entry.binding.admission.as_deref()?;
        let sum = |pods: u64, copies: u32| pods.saturating_mul(u64::from(copies));
        let had: u64 = record.tasks.values().map(|pods| u64::from(*pods)).sum();
        let more: u64 = ask.tasks.iter().map(|task| u64::from(task.min)).sum();
        Some(sum(had, record.copies.max(1)).saturating_add(sum(more, ask.copies)))
    }
}

impl caldera_core::queue::ClusterCapacity for Clusters<'_> {
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&ReservedClusters]) -> Fit {
        let answer = self.question(id, |room, question| {
            room.find(question, ask, kept).map(|decision| Place::of(&decision, question.gang))
        });
        match answer {
            None => Fit::No { never: false, detail: "its workload is gone".to_owned() },
            Some(Ok(place)) => {
                let found = place.count();
                match self.at_least(id) {
                    Some(needs) if found < needs => {
                        let detail = format!("{needs} pods need a place, what runs included, and {found} find one");
                        Fit::No { never: false, detail }
                    }
                    _ => {
                        self.found = Some(place);
                        Fit::Yes
                    }
                }
            }
            Some(Err(no)) => no,
        }
    }

    fn keep(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters> {
        if self.at_least(id).is_some() {
            return None;
        }
        self.question(id, |room, question| room.keep(question, ask, vain)).flatten()
    }
}

/// Releases what may start now, a limited number in one turn.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    index.engine.set_now(now.as_second());
    while plan.releases < RELEASES {
        let Index { engine, room, ids, entries, workloads, affinities, .. } = index;
        let mut clusters = Clusters { room, ids, entries, workloads, affinities, found: None };
        let release = engine.release_next_in(&mut clusters);
        let found = clusters.found;
        let Some(release) = release else { return };
        let Some(key) = index.ids.get(&release.id).cloned() else { continue };
        let grows = index.entries.get(&key).is_some_and(|entry| entry.grows_as(&release.id).is_some());
        let effect = if grows { index.granted(&key, &release) } else { index.assume(&key, release.admission, false) };
        let Some(effect) = effect else { continue };
        index.moved = true;
        index.dirty.insert(key.clone());
        index.recount(&key);
        let entry = &index.entries[&key];
        let gang = index.workloads.get(&entry.binding.workload).and_then(|workload| workload.gang.as_ref().ok());
        if let (Some(gang), Some(place)) = (gang, found) {
            index.room.promise(&entry.binding, gang, place);
        }
        plan.effects.push(effect);
        plan.releases += 1;
    }
}

impl Index {
    /// Takes a binding to have this record until the watch shows it, and writes that: at its release, or (`regrants`) in
    /// place of the record that it has.
    pub(crate) fn assume(&mut self, key: &Key, admission: Admission, regrants: bool) -> Option<(Tag, Effect)> {
        let entry = self.entries.get_mut(key)?;
        let resource_version = Arc::clone(&entry.binding.resource_version);
        let tag = Tag::Release(key.clone(), Arc::clone(&resource_version));
        // Without a lease the epoch of an earlier one is wiped out: nobody holds that.
        let epoch = self.epoch.clone().or_else(|| entry.binding.epoch.is_some().then(|| Arc::from("")));
        let assumed = Assumed { resource_version, admission, regrants, epoch, retry: None, attempts: 0 };
        let effect = assumed.effect(key, &entry.binding.id);
        entry.assumed = Some(Box::new(assumed));
        Some((tag, effect))
    }
}

impl Assumed {
    /// The write by which it becomes so.
    pub(crate) fn effect(&self, key: &Key, id: &JobId) -> Effect {
        let (key, id, epoch) = (key.clone(), id.clone(), self.epoch.clone());
        let (resource_version, admission) = (self.resource_version.to_string(), self.admission.clone());
        if self.regrants {
            Effect::Regrant { key, id, resource_version, admission, epoch }
        } else {
            Effect::Release { key, id, resource_version, admission, epoch }
        }
    }
}
