//! Bindings that hold quota and want more, or less: the difference in line under a name of its own, and cuts to be made.
//!
//! What waits is a second job for the engine, charged beside the first from its release until the binding shows the
//! larger record. Its age is what its PodGroup says (the time since which it asks for more), so that a restart keeps it.

use std::sync::Arc;

use caldera_core::{
    gang::QueueName,
    queue::{Job, JobId, Release},
    reason::Reason,
};
use jiff::Timestamp;

use super::{Entry, Index, Tag};
use crate::{
    effect::Effect,
    facts::Key,
    give_back, podgroup,
    regrant::{More, Regrant, What, with},
};

/// What a binding that holds asks for on top.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Its name in the engine.
    pub(crate) id: JobId,
    /// Seconds since 1970.
    pub(crate) since: i64,
    pub(crate) more: More,
}

impl Index {
    /// Takes in what should become of a binding's record.
    pub(super) fn follow(&mut self, key: &Key, queue: &QueueName, regrant: Option<Regrant>) {
        self.cuts.remove(key);
        match regrant {
            Some(Regrant::More(more)) if self.may_grow(key, &more) => self.grow(key, queue, more),
            Some(Regrant::Less(record)) => {
                self.stop_growing(key);
                self.cuts.insert(key.clone(), record);
            }
            Some(Regrant::More(_)) => {
                self.stop_growing(key);
                let again =
                    self.entries.get(key).and_then(|entry| entry.binding.eviction.as_deref()).map(give_back::gone_by);
                if let Some(again) = again.and_then(|at| Timestamp::from_second(at).ok()).filter(|at| *at > self.now) {
                    self.timers.insert((again, key.clone()));
                }
            }
            None => self.stop_growing(key),
        }
    }

    /// Nobody is in line for this binding any more.
    pub(super) fn stop_growing(&mut self, key: &Key) {
        let Some(growth) = self.entries.get_mut(key).and_then(|entry| entry.growth.take()) else { return };
        self.engine.remove_job(growth.id.as_str());
        self.ids.remove(&growth.id);
    }

    /// Not after it was refused, and who was taken surplus from does not ask for it back at once.
    fn may_grow(&self, key: &Key, more: &More) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let refused = entry.refused.as_ref().is_some_and(|(_, until)| *until > self.now);
        let gave_way = || more.what == What::Surplus && self.sits_out(&entry.binding).is_some();
        !refused && !gave_way()
    }

    fn grow(&mut self, key: &Key, queue: &QueueName, more: More) {
        let told_since = self.told_since(key);
        let Some(entry) = self.entries.get(key) else { return };
        let class = self.workload_of(&entry.binding).map(|workload| Arc::clone(&workload.class));
        let priority = match more.what {
            // After everybody who needs something.
            What::Surplus => i32::MIN,
            What::Needed | What::Copies => class.map_or(0, |class| self.priority_of(&class)),
        };
        let id: JobId = format!("{}+more", entry.binding.id.as_str()).as_str().into();
        let known = entry.growth.as_ref().map(|growth| growth.since);
        let since = known.or(told_since).unwrap_or(self.now.as_second());
        let ask = Arc::new(more.ask.clone());
        self.engine.enqueue_job(Job {
            id: id.clone(),
            queue: queue.clone(),
            priority,
            created: since,
            deadline: None,
            ask,
        });
        if let Some(entry) = self.entries.get(key) {
            self.engine.set_resized_job(&id, &entry.binding.id);
        }
        self.ids.insert(id.clone(), key.clone());
        if let Some(entry) = self.entries.get_mut(key) {
            entry.growth = Some(Box::new(Growth { id, since, more }));
        }
    }

    /// Since when its PodGroup says that it asks for more.
    fn told_since(&self, key: &Key) -> Option<i64> {
        let group = self.groups.get(&podgroup::key(self.workload_of(&self.entries.get(key)?.binding)?))?;
        let says = [Reason::SCALED_UP, "ExceedsCapability", "ExceedsFleet"].contains(&&*group.status.reason);
        let since: Timestamp = group.status.since.parse().ok().filter(|_| says)?;
        Some(since.as_second())
    }

    /// What a binding that holds needs on top, and why that waits.
    pub(crate) fn rest_of(&self, entry: &Entry) -> Option<String> {
        let growth = entry.growth.as_deref().filter(|growth| growth.more.what != What::Surplus)?;
        let why = self.engine.explain_pending(growth.id.as_str())?;
        let waits = if matches!(why, Reason::ExceedsLimit { .. }) { "" } else { "waits: " };
        Some(format!("the rest, {}, {waits}{why}", growth.more.ask.minimum()))
    }

    /// Why a binding that holds can never have what it needs on top, if so.
    pub(crate) fn never_more(&self, entry: &Entry) -> Option<Reason> {
        let growth = entry.growth.as_deref().filter(|growth| growth.more.what != What::Surplus)?;
        self.engine.explain_pending(growth.id.as_str()).filter(|why| matches!(why, Reason::ExceedsLimit { .. }))
    }

    /// Writes the larger record of a binding that was granted more.
    pub(crate) fn granted(&mut self, key: &Key, release: &Release) -> Option<(Tag, Effect)> {
        let entry = self.entries.get(key)?;
        let (growth, record) = (entry.growth.as_ref()?, entry.binding.admission.as_deref()?);
        let record = with(record, growth.more.what, &release.admission);
        self.assume(key, record, true)
    }

    /// Writes the smaller records of those that want less.
    pub(crate) fn cut(&mut self) -> Vec<(Tag, Effect)> {
        let cuts = std::mem::take(&mut self.cuts);
        let free = |index: &Self, key: &Key| index.entries.get(key).is_some_and(|entry| entry.assumed.is_none());
        cuts.into_iter()
            .filter_map(|(key, record)| free(self, &key).then(|| self.assume(&key, record, true)).flatten())
            .collect()
    }
}

impl Entry {
    /// What waits in line for it under this name.
    pub(crate) fn grows_as(&self, id: &JobId) -> Option<&Growth> {
        self.growth.as_deref().filter(|growth| growth.id == *id)
    }
}
