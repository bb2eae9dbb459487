//! PodGroups as seen, and which workload's binding is concerned when one changes.
//!
//! Rule: a PodGroup is its owner's, by UID. It matters to the binding of a workload that is seen; of any other owner it
//! is kept for when that comes.

use std::sync::Arc;

use caldera_runtime::watch::Event;

use super::{
    super::{object_kind::ObjectKind, pod_group::PodGroupFacts, workload::Workload},
    Change, Objects,
};

impl Objects {
    pub(crate) fn apply_pod_groups(&mut self, event: Event<PodGroupFacts>) -> Vec<Change> {
        match event {
            Event::Applied(group) => self.set_pod_group(group).into_iter().collect(),
            Event::Deleted(group) => {
                self.pod_groups.remove(&group.key);
                self.find_pod_group_change(&group.owner).into_iter().collect()
            }
            Event::Reset(all) => {
                let old = self.pod_groups.take();
                let mut changes: Vec<Change> = all.into_iter().filter_map(|group| self.set_pod_group(group)).collect();
                let gone = old.filter(|old| self.pod_groups.get(&old.key).is_none());
                changes.extend(gone.filter_map(|gone| self.find_pod_group_change(&gone.owner)));
                self.mark_listed(ObjectKind::PodGroups);
                changes
            }
        }
    }

    fn set_pod_group(&mut self, mut group: PodGroupFacts) -> Option<Change> {
        if self.pod_groups.get(&group.key) == Some(&group) {
            return None;
        }
        group.key.namespace = self.namespaces.intern(group.key.namespace);
        if let Some((known, _)) = self.by_owner.get_key_value(&group.owner) {
            group.owner = Arc::clone(known);
        }
        let change = self.find_pod_group_change(&group.owner);
        self.pod_groups.insert(group);
        change
    }

    /// Whether the name that a workload's PodGroup should have is that of one whose workload is gone.
    pub(crate) fn has_pod_group_of_earlier(&self, workload: &Workload) -> bool {
        self.pod_groups.find_best_named(workload).is_some_and(|group| !self.by_owner.contains_key(&group.owner))
    }

    fn find_pod_group_change(&self, owner: &str) -> Option<Change> {
        self.by_owner.get(owner).cloned().map(Change::PodGroup)
    }
}
