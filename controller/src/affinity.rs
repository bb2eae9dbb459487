//! Where the others of a binding's workload affinity groups are, so that whoever is released finds the clusters open that the
//! scheduler will find open.
//!
//! Rule: as the scheduler has it: the clusters of whoever is placed, and of whoever is released the place that was found.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::place::{self, Groups, Peers};

use crate::{
    facts::{Binding, Key},
    index::{Entry, Index},
    room::Room,
};

/// Where the others of its groups are.
pub(crate) fn peers(
    groups: &Groups<Key>,
    entries: &BTreeMap<Key, Box<Entry>>,
    room: &Room,
    binding: &Binding,
) -> Peers {
    if binding.groups.is_empty() {
        return Peers::default();
    }
    groups.peers(&binding.key.namespace, &binding.groups, &binding.key, |other| match entries.get(other) {
        Some(entry) if entry.binding.clusters.is_empty() => room.place_of(entry.binding.id.as_str()),
        Some(entry) => entry.binding.clusters.iter().map(|(cluster, _)| cluster.to_string()).collect(),
        None => Vec::new(),
    })
}

/// A binding as placement sees it, with these peers.
pub(crate) fn with(placement: &place::Binding, peers: Peers) -> Cow<'_, place::Binding> {
    if peers == placement.peers {
        return Cow::Borrowed(placement);
    }
    Cow::Owned(place::Binding { peers, ..placement.clone() })
}

impl Index {
    /// A binding as placement sees it, with the others of its groups; `None` for one without a placement.
    pub(crate) fn placement_of<'a>(&self, binding: &'a Binding) -> Option<Cow<'a, place::Binding>> {
        let placement = binding.placement.as_deref()?;
        Some(with(placement, peers(&self.affinities, &self.entries, &self.room, binding)))
    }

    /// The same where this is how it was.
    pub(crate) fn regrouped_as(&mut self, key: &Key, old: &Binding) {
        let Some(now) = self.entries.get(key).map(|entry| &entry.binding) else { return };
        if !(old.groups.is_empty() && now.groups.is_empty()) {
            let now = now.clone();
            self.regroup(Some(old), Some(&now));
        }
    }

    /// A binding's groups, or where it is, may have changed: the others may fit now.
    pub(crate) fn regroup(&mut self, old: Option<&Binding>, new: Option<&Binding>) {
        let about = |binding: &Binding| (binding.groups.clone(), binding.clusters.clone());
        let (was, is) = (old.map(about), new.map(about));
        let grouped = |binding: Option<&Binding>| binding.is_some_and(|binding| !binding.groups.is_empty());
        if was == is || !(grouped(old) || grouped(new)) {
            return;
        }
        if let Some(old) = old {
            self.affinities.remove(&old.key.namespace, &old.groups, &old.key);
        }
        if let Some(new) = new {
            self.affinities.insert(&new.key.namespace, &new.groups, &new.key);
        }
        self.regrouped = true;
    }
}
