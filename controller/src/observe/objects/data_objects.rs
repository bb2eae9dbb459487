//! Takes DataSources and DataSourceClaims into the objects that are known.
//!
//! Rule: what is older than what is known is left out. A claim or source that changed concerns its workloads' bindings,
//! and itself where what its status says changed.

use std::collections::BTreeSet;

use caldera_core::data_source::DataChange;
use caldera_runtime::watch::Event;

use super::{
    super::{
        data_claim::{DataClaimFacts, DataSourceFacts},
        object_kind::ObjectKind,
        resource_version::is_older,
    },
    Change, Objects,
};

impl Objects {
    pub(crate) fn apply_data_sources(&mut self, event: Event<DataSourceFacts>) -> Vec<Change> {
        let is_list = matches!(event, Event::Reset(_));
        let data = &mut self.data;
        let (stored, gone) = event.split_changes(data.sources.keys().cloned(), |facts| facts.source.name.clone());
        let mut said = BTreeSet::new();
        for name in gone {
            data.index.remove_source(&name);
            data.sources.remove(&name);
        }
        for DataSourceFacts { source, status } in stored {
            let known = data.sources.get(&source.name).filter(|known| known.uid == status.uid);
            if known.is_some_and(|known| is_older(&status.resource_version, &known.resource_version)) {
                continue;
            }
            if known != Some(&status) {
                said.insert(source.name.clone());
            }
            data.sources.insert(source.name.clone(), status);
            data.index.set_source(source);
        }
        if is_list {
            self.mark_listed(ObjectKind::DataSources);
        }
        self.list_data_changes(DataChange { sources: said, ..DataChange::default() })
    }

    pub(crate) fn apply_data_claims(&mut self, event: Event<DataClaimFacts>) -> Vec<Change> {
        let is_list = matches!(event, Event::Reset(_));
        let data = &mut self.data;
        let (stored, gone) = event.split_changes(data.claims.keys().cloned(), |facts| facts.claim.key.clone());
        let mut said = BTreeSet::new();
        for key in gone {
            data.index.remove_claim(&key);
            data.claims.remove(&key);
        }
        for DataClaimFacts { claim, status } in stored {
            let known = data.claims.get(&claim.key).filter(|known| known.uid == status.uid);
            if known.is_some_and(|known| is_older(&status.resource_version, &known.resource_version)) {
                continue;
            }
            if known.is_none() {
                // A source names a claim that was made anew by its new UID.
                data.index.remove_claim(&claim.key);
            }
            if known != Some(&status) {
                said.insert(claim.key.clone());
            }
            data.claims.insert(claim.key.clone(), status);
            data.index.set_claim(claim);
        }
        if is_list {
            self.mark_listed(ObjectKind::DataClaims);
        }
        self.list_data_changes(DataChange { claims: said, ..DataChange::default() })
    }

    /// Whom all changes of the data concern, and those whose statuses changed.
    fn list_data_changes(&mut self, mut all: DataChange) -> Vec<Change> {
        let changed = self.data.index.take_changed();
        all.claims.extend(changed.claims);
        all.sources.extend(changed.sources);
        let bindings = changed.workloads.iter().filter_map(|workload| self.key_of_workload(workload).cloned());
        let mut changes: Vec<Change> = bindings.map(Change::Binding).collect();
        if !all.claims.is_empty() || !all.sources.is_empty() {
            changes.push(Change::Data(all));
        }
        changes
    }
}
