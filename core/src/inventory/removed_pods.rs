//! Pods that are treated as removed: what would be free without them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    Amounts, Inventory,
    bound_pods::{BoundPod, PodKey},
};
use crate::gang::{TaskName, WorkloadRef};

/// Pods to be treated as removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovedPods {
    /// All of a workload.
    All,
    /// So many of each task.
    Last(BTreeMap<Option<TaskName>, u32>),
}

impl Inventory {
    /// What nodes get back.
    pub(super) fn sum_freed_by_node<'a>(
        &'a self,
        gone: &BTreeMap<&'a WorkloadRef, RemovedPods>,
    ) -> BTreeMap<&'a str, Amounts> {
        let mut freed: BTreeMap<&str, Amounts> = BTreeMap::new();
        for (workload, gone) in gone {
            for held in self.list_removed_pods(workload, gone) {
                let Some(request) = &held.request else { continue };
                let sum = freed.entry(&held.node).or_default();
                *sum = sum.plus(request);
            }
        }
        freed
    }

    /// What nodes get back if all pods of such workloads go.
    pub(super) fn sum_freed_amounts(&self, gone: impl Fn(&WorkloadRef) -> bool) -> BTreeMap<&str, Amounts> {
        let goes = self.owners.keys().filter(|(namespace, owner)| gone(&owner.workload(namespace)));
        // Owners are kept once, so that where they are says which they are.
        let goes: HashSet<_> = goes.map(|(namespace, owner)| (&**namespace, Arc::as_ptr(owner))).collect();
        let mut freed: BTreeMap<&str, Amounts> = BTreeMap::new();
        for (key, held) in &self.pods {
            let (Some(request), Some(owner)) = (&held.request, &held.owner) else { continue };
            if goes.contains(&(&**key.namespace(), Arc::as_ptr(owner))) {
                let sum = freed.entry(&held.node).or_default();
                *sum = sum.plus(request);
            }
        }
        freed
    }

    /// Pods of a workload that go.
    fn list_removed_pods<'a>(&'a self, workload: &'a WorkloadRef, gone: &RemovedPods) -> Vec<&'a BoundPod> {
        let namespace: Arc<str> = Arc::from(workload.namespace.as_str());
        let is_its = |held: &BoundPod| {
            let owner = held.owner.as_ref();
            owner.is_some_and(|owner| {
                owner.name == workload.name && owner.kind == workload.kind && owner.group == workload.group
            })
        };
        let mut pods: Vec<(&PodKey, &BoundPod)> = self
            .pods
            .range(PodKey::first_of(Arc::clone(&namespace))..)
            .take_while(|(key, _)| *key.namespace() == namespace)
            .filter(|(_, held)| held.request.is_some() && is_its(held))
            .collect();
        let RemovedPods::Last(some) = gone else { return pods.into_iter().map(|(_, held)| held).collect() };
        // Pods of a task are numbered; a name without a number is not ours to foresee.
        pods.retain(|(key, _)| key.trailing_number().is_some());
        pods.sort_by_key(|(key, _)| std::cmp::Reverse(key.trailing_number()));
        let mut left = some.clone();
        pods.retain(|(_, held)| {
            let task = held.owner.as_ref().and_then(|owner| owner.task.clone());
            let goes = left.get_mut(&task).is_some_and(|pods| *pods > 0);
            if let (true, Some(pods)) = (goes, left.get_mut(&task)) {
                *pods -= 1;
            }
            goes
        });
        pods.into_iter().map(|(_, held)| held).collect()
    }
}
