//! Which clusters have the data that a workload claims, and which claims still wait for a source.
//!
//! Rule (Volcano's `datadependency.volcano.sh/v1alpha1`; volcano-global `pkg/controller/datadependency/reconciler.go`,
//! `doesDataSourceMatchClaim`): a source says in which clusters some data is. A claim is bound to a source of the same
//! data, which is the same system, type, name and attributes; no attributes are none at all. Of several sources the
//! oldest counts. One that is being deleted is none.
//!
//! Beyond the peer: a workload may have several claims, and goes where all that it requires are satisfied; a claim
//! constrains workloads of its own namespace alone; and one that only prefers orders what is possible. All of it is
//! asked when something is placed, and never of what runs. [`DataIndex`] holds sources and claims, and says what a
//! change of one concerns.

mod locality;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
};

pub use self::locality::{DataLocality, describe_lack};
use crate::{gang::WorkloadRef, time::EpochSeconds};

/// Claims of one workload that are looked at. One with more waits.
pub const MOST_CLAIMS: usize = 64;

/// What data it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataIdentity {
    /// Where it is kept: `hive`, `s3`.
    pub system: String,
    /// What it is there: `table`, `bucket`.
    pub category: String,
    /// Its name there.
    pub name: String,
    /// What else tells it from other data.
    pub attributes: BTreeMap<String, String>,
}

/// Where some data is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataSource {
    /// The object's name.
    pub name: String,
    /// When it was made.
    pub created: EpochSeconds,
    /// Which data.
    pub data: Arc<DataIdentity>,
    /// The clusters that have it.
    pub clusters: Arc<BTreeSet<String>>,
    /// Being deleted: nothing is bound to it any more.
    pub deleting: bool,
}

/// A claim's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a workload needs of clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataClaim {
    /// The object.
    pub key: ClaimKey,
    /// Which data.
    pub data: Arc<DataIdentity>,
    /// Whose it is.
    pub workload: Arc<WorkloadRef>,
    /// Clusters with the data come before others, and nothing waits for it.
    pub preferred: bool,
    /// Being deleted: it is as if it were gone.
    pub deleting: bool,
    /// What it says that means nothing, in words.
    pub faults: Vec<String>,
}

impl DataClaim {
    /// Whether it names a workload of its own namespace. Any other is not its user's to constrain.
    #[must_use]
    pub fn is_of_its_namespace(&self) -> bool {
        self.workload.namespace == *self.key.namespace
    }
}

/// What a change of a source or a claim concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataChange {
    /// Workloads that may go elsewhere now.
    pub workloads: BTreeSet<Arc<WorkloadRef>>,
    /// Claims that may be bound to another source.
    pub claims: BTreeSet<ClaimKey>,
    /// Sources that may have other claims.
    pub sources: BTreeSet<String>,
}

/// Sources and claims, by what they are looked up by.
#[derive(Debug, Default)]
pub struct DataIndex {
    sources: BTreeMap<String, DataSource>,
    claims: BTreeMap<ClaimKey, DataClaim>,
    /// The oldest first.
    sources_of: BTreeMap<Arc<DataIdentity>, BTreeSet<(EpochSeconds, String)>>,
    claims_of: BTreeMap<Arc<DataIdentity>, BTreeSet<ClaimKey>>,
    claims_for: BTreeMap<Arc<WorkloadRef>, BTreeSet<ClaimKey>>,
    changed: DataChange,
}

/// Changes.
impl DataIndex {
    /// A source is new or changed.
    pub fn set_source(&mut self, mut source: DataSource) {
        if self.sources.get(&source.name) == Some(&source) {
            return;
        }
        self.remove_source(&source.name.clone());
        source.data = self.share_identity(source.data);
        if !source.deleting {
            let entry = (source.created, source.name.clone());
            self.sources_of.entry(Arc::clone(&source.data)).or_default().insert(entry);
        }
        self.note_source(&source);
        self.sources.insert(source.name.clone(), source);
    }

    /// A source is gone.
    pub fn remove_source(&mut self, name: &str) {
        let Some(source) = self.sources.remove(name) else { return };
        self.note_source(&source);
        remove_from(&mut self.sources_of, &source.data, &(source.created, source.name));
    }

    /// A claim is new or changed.
    pub fn set_claim(&mut self, mut claim: DataClaim) {
        if self.claims.get(&claim.key) == Some(&claim) {
            return;
        }
        self.remove_claim(&claim.key.clone());
        if claim.deleting {
            return;
        }
        claim.data = self.share_identity(claim.data);
        let key = claim.key.clone();
        self.claims_of.entry(Arc::clone(&claim.data)).or_default().insert(key.clone());
        if claim.is_of_its_namespace() {
            self.claims_for.entry(Arc::clone(&claim.workload)).or_default().insert(key.clone());
        }
        self.note_claim(&claim);
        self.claims.insert(key, claim);
    }

    /// A claim is gone.
    pub fn remove_claim(&mut self, key: &ClaimKey) {
        let Some(claim) = self.claims.remove(key) else { return };
        self.note_claim(&claim);
        remove_from(&mut self.claims_of, &claim.data, key);
        remove_from(&mut self.claims_for, &claim.workload, key);
    }

    /// What all changes since this was last asked concern.
    pub fn take_changed(&mut self) -> DataChange {
        std::mem::take(&mut self.changed)
    }

    /// The same data is kept once.
    fn share_identity(&self, data: Arc<DataIdentity>) -> Arc<DataIdentity> {
        let by_source = self.sources_of.get_key_value(&data).map(|(known, _)| known);
        let known = by_source.or_else(|| self.claims_of.get_key_value(&data).map(|(known, _)| known));
        known.map_or(data, Arc::clone)
    }

    fn note_source(&mut self, source: &DataSource) {
        let others = self.sources_of.get(&source.data).into_iter().flatten().map(|(_, name)| name.clone());
        self.changed.sources.extend(others.chain([source.name.clone()]));
        for key in self.claims_of.get(&source.data).into_iter().flatten() {
            self.changed.claims.insert(key.clone());
            self.changed.workloads.extend(self.claims.get(key).map(|claim| Arc::clone(&claim.workload)));
        }
    }

    fn note_claim(&mut self, claim: &DataClaim) {
        self.changed.claims.insert(claim.key.clone());
        self.changed.workloads.insert(Arc::clone(&claim.workload));
        let source = self.sources_of.get(&claim.data).and_then(BTreeSet::first);
        self.changed.sources.extend(source.map(|(_, name)| name.clone()));
    }
}

/// Questions.
impl DataIndex {
    /// The source of some data.
    #[must_use]
    pub fn find_source(&self, data: &DataIdentity) -> Option<&DataSource> {
        let (_, name) = self.sources_of.get(data)?.first()?;
        self.sources.get(name)
    }

    /// Whether claims of a namespace, for workloads of it, wait for a source of the data.
    #[must_use]
    pub fn has_claims_waiting_for(&self, data: &DataIdentity, namespace: &str) -> bool {
        let Some(keys) = self.claims_of.get(data).filter(|_| !self.sources_of.contains_key(data)) else { return false };
        let first = ClaimKey { namespace: namespace.into(), name: "".into() };
        let mut own = keys.range(first..).take_while(|key| *key.namespace == *namespace);
        own.any(|key| self.claims.get(key).is_some_and(DataClaim::is_of_its_namespace))
    }

    /// All sources.
    pub fn list_sources(&self) -> impl Iterator<Item = &DataSource> {
        self.sources.values()
    }

    /// All claims.
    pub fn list_claims(&self) -> impl Iterator<Item = &DataClaim> {
        self.claims.values()
    }

    /// The source of this name.
    #[must_use]
    pub fn find_source_named(&self, name: &str) -> Option<&DataSource> {
        self.sources.get(name)
    }

    /// The claim of this name.
    #[must_use]
    pub fn find_claim(&self, key: &ClaimKey) -> Option<&DataClaim> {
        self.claims.get(key)
    }

    /// The claims that are bound to a source.
    pub fn list_bound<'a>(&'a self, source: &'a str) -> impl Iterator<Item = &'a DataClaim> {
        let known = self.sources.get(source).filter(|known| {
            !known.deleting && self.find_source(&known.data).is_some_and(|first| first.name == known.name)
        });
        let keys = known.and_then(|known| self.claims_of.get(&known.data)).into_iter().flatten();
        keys.filter_map(|key| self.claims.get(key)).filter(|claim| claim.is_of_its_namespace())
    }

    /// The claims of a workload.
    pub fn list_claims_of(&self, workload: &WorkloadRef) -> impl Iterator<Item = &DataClaim> {
        let keys = self.claims_for.get(workload).into_iter().flatten();
        keys.filter_map(|key| self.claims.get(key))
    }

    /// What the claims of a workload say of clusters; `None` for one without claims.
    #[must_use]
    pub fn find_locality(&self, workload: &WorkloadRef) -> Option<Arc<DataLocality>> {
        let keys = self.claims_for.get(workload)?;
        if keys.len() > MOST_CLAIMS {
            return Some(Arc::new(DataLocality::of_too_many(keys.len())));
        }
        let mut locality = DataLocality::default();
        for claim in self.list_claims_of(workload) {
            locality.add_claim(claim, self.find_source(&claim.data).map(|source| &source.clusters));
        }
        Some(Arc::new(locality))
    }
}

fn remove_from<K: Ord, V: Ord>(all: &mut BTreeMap<Arc<K>, BTreeSet<V>>, key: &Arc<K>, value: &V) {
    if let Entry::Occupied(mut values) = all.entry(Arc::clone(key)) {
        values.get_mut().remove(value);
        if values.get().is_empty() {
            values.remove();
        }
    }
}
