//! Which nodes and clusters the pods of a binding may use, by what its queues say of groups of nodes and of clusters.
//!
//! Rule: [`caldera_core::node_groups`] and [`QueueClusters`]. Of one that is admitted its record says it, whatever its
//! queue says by now, and wherever that is by now.

use std::{iter, sync::Arc};

use caldera_core::{
    gang::{Gang, QueueName, Requirement},
    node_groups::{NodeRestriction, restrict_nodes},
    place::QueueClusters,
    queue::{FitClass, find_affinity},
};
use caldera_crds::binding::Gate;

use super::{Binding, Workload, fingerprint, objects::Objects};

/// What a binding's workload asks for, on the card model that it was admitted to where it had a choice; `None` where
/// that can not be read.
pub(crate) fn admitted_gang(binding: &Binding, workload: &Workload) -> Option<Arc<Gang>> {
    let gang = workload.gang.as_ref().ok()?;
    let card = binding.admission.as_ref().and_then(|record| record.card.as_ref());
    Some(card.map_or_else(|| Arc::clone(gang), |card| Arc::new(gang.keep_to_card(Some(card)).into_owned())))
}

impl Objects {
    /// What the queues of a job say of clusters. `exclusive`: some cluster says of which queues it
    /// is, or a maintenance window of one.
    pub(crate) fn clusters_of_binding(&self, binding: &Binding, exclusive: bool) -> Option<QueueClusters> {
        match (&binding.gate, &binding.admission) {
            (Some(Gate::Open), Some(record)) => {
                let path = || iter::once(&record.queue).chain(&record.above).cloned().collect();
                let any = exclusive || !record.clusters.is_empty();
                any.then(|| QueueClusters { path: path(), selector: record.clusters.clone() })
            }
            (Some(Gate::Closed), _) => self.clusters_of_next_run(binding, exclusive),
            _ => None,
        }
    }

    /// What they say of clusters where it is admitted anew, whatever its record says.
    pub(crate) fn clusters_of_next_run(&self, binding: &Binding, exclusive: bool) -> Option<QueueClusters> {
        if !exclusive && self.selecting_clusters.is_empty() {
            return None;
        }
        let queue = self.queue_of(binding)?;
        let (mut path, selector) = (self.queue_path(queue), self.clusters_of_queue(queue));
        // The root is the last, and no cluster is its own.
        path.pop();
        (exclusive || !selector.is_empty()).then_some(QueueClusters { path, selector })
    }

    /// What must hold of the labels of clusters that jobs of a queue go to if they start now.
    pub(crate) fn clusters_of_queue(&self, queue: &QueueName) -> Vec<Requirement> {
        if self.selecting_clusters.is_empty() {
            return Vec::new();
        }
        let path = self.queue_path(queue);
        path.iter().filter_map(|name| self.queues.get(name)).flat_map(|queue| queue.spec.clusters.clone()).collect()
    }

    /// The nodes that jobs of a queue may use if they start now.
    pub(crate) fn nodes_of_queue(&self, queue: &QueueName) -> NodeRestriction {
        if self.naming_groups.is_empty() {
            return NodeRestriction::default();
        }
        restrict_nodes(find_affinity(queue, |name| self.queues.get(name).map(|queue| &queue.spec)), true)
    }

    /// The nodes that a binding's pods may use. Of one that was not gated nobody says it.
    pub(crate) fn nodes_of_binding(&self, binding: &Binding, workload: &Workload) -> NodeRestriction {
        match (&binding.gate, &binding.admission) {
            (Some(Gate::Open), Some(record)) => record.nodes.clone(),
            (Some(Gate::Closed), _) => self.nodes_of_queue(&workload.queue),
            _ => NodeRestriction::default(),
        }
    }

    /// What a binding's workload asks for, on the nodes and the card model that it may use; `None` where that can not
    /// be read.
    pub(crate) fn gang_to_place(&self, binding: &Binding, workload: &Workload) -> Option<Arc<Gang>> {
        let gang = admitted_gang(binding, workload)?;
        let nodes = self.nodes_of_binding(binding, workload);
        Some(if nodes.required.is_empty() { gang } else { Arc::new(gang.restrict_to_nodes(&nodes)) })
    }

    /// The class of bindings that fit where one of `fit` does, on the same nodes, in clusters of which the queues say
    /// the same, and where the same data is.
    pub(crate) fn fit_with_restrictions(&self, binding: &Binding, exclusive: bool, fit: FitClass) -> FitClass {
        let locality = self.data.index.find_locality(&binding.workload);
        let (nodes, clusters) = match self.workload_of(binding) {
            Some(workload) => {
                (self.nodes_of_binding(binding, workload).required, self.clusters_of_binding(binding, exclusive))
            }
            None => (Vec::new(), None),
        };
        let any = locality.is_some() || !nodes.is_empty() || clusters.is_some();
        if any { FitClass(fingerprint(&(fit, locality, nodes, clusters))) } else { fit }
    }
}
