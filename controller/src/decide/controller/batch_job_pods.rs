//! How many pods of a batch Job are on nodes, which its own status does not say.
//!
//! Rule: pods are counted in the members as they are watched: when a pod of the Job comes or changes, when its member
//! is listed anew, comes back or goes away, and when its binding is assessed. That a pod is gone changes nothing here:
//! the Job's status says that.

use std::sync::Arc;

use caldera_core::{fleet::Update, gang::WorkloadRef, inventory::Change};

use crate::{
    decide::Controller,
    observe::{Binding, Key},
};

impl Controller {
    /// The bindings of batch Jobs whose pods on nodes this changes. What a pod's owner is can not be told once it is
    /// gone: its Job's status says that.
    pub(super) fn list_affected_batch_jobs(&self, cluster: &str, update: &Update) -> Vec<Key> {
        match update {
            Update::Change(Change::Pod(pod)) => {
                let owner = pod.owner.as_ref().filter(|owner| owner.group == "batch" && owner.kind == "Job");
                let workload = owner.map(|owner| WorkloadRef {
                    group: owner.group.clone(),
                    kind: owner.kind.clone(),
                    namespace: pod.namespace.clone(),
                    name: owner.name.clone(),
                });
                let binding = workload.and_then(|workload| self.objects.binding_of(&workload));
                binding.map(|binding| binding.key.clone()).into_iter().collect()
            }
            Update::Change(Change::Pods(_)) | Update::Up | Update::Down(_) => {
                let batch_jobs = self.objects.bindings.values().filter(|binding| is_batch_job(&binding.workload));
                let is_there = |binding: &Binding| binding.clusters.iter().any(|(name, _)| name.as_str() == cluster);
                batch_jobs.filter(|binding| is_there(binding)).map(|binding| binding.key.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Counts the pods of a batch Job that are on nodes.
    pub(super) fn update_pods_on_nodes(&mut self, key: &Key) {
        let Some(binding) = self.objects.bindings.get(key) else { return };
        if !is_batch_job(&binding.workload) {
            return;
        }
        let (workload, pods) = (Arc::clone(&binding.workload), self.capacity.count_live_pods(binding));
        self.objects.set_on_nodes(&workload, pods);
    }
}

fn is_batch_job(workload: &WorkloadRef) -> bool {
    workload.group == "batch" && workload.kind == "Job"
}
