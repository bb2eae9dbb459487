//! Whether a gang would find a place if pods of others were gone: for whoever would evict or move them.
//!
//! Rule: placement is asked what is free once their pods are gone, and where that does not do, the same with the nodes
//! that may come.

use std::collections::BTreeMap;

use caldera_core::{
    fleet::EvictedPods,
    inventory::Capacity,
    place::{Cluster, Decision},
};

use super::{FleetCapacity, PlacementQuestion, PodsByCluster, place_elsewhere::count_pods, together::place_together};

impl FleetCapacity {
    /// Whether it would fit if pods of these bindings were gone, on the nodes that are there or that may come.
    pub fn fits_without(&mut self, question: PlacementQuestion<'_>, gone: &BTreeMap<String, EvictedPods>) -> bool {
        self.fleet.refresh_capacities();
        let after = self.fleet.compute_capacities_after_eviction(gone);
        self.place_with_capacities(question, &after).is_some() || {
            let find = |clusters: Vec<(&Cluster, &Capacity)>, delay| {
                place_together(question.with_delay(delay), &self.fleet, clusters).ok()
            };
            self.fleet.find_with_upcoming_nodes_on(&after, find).is_some()
        }
    }

    /// Where it would go beside its companions if pods of these bindings were gone, on the nodes that are there; `None`
    /// where they do not all fit.
    pub fn find_place_without(
        &mut self,
        question: PlacementQuestion<'_>,
        gone: &BTreeMap<String, EvictedPods>,
    ) -> Option<PodsByCluster> {
        self.fleet.refresh_capacities();
        let after = self.fleet.compute_capacities_after_eviction(gone);
        let decisions = self.place_with_capacities(question, &after)?;
        decisions.first().map(|decision| count_pods(decision, question.gang))
    }

    /// Where it and its companions would go, where so much is free in these clusters.
    fn place_with_capacities(
        &self,
        question: PlacementQuestion<'_>,
        own: &BTreeMap<String, Capacity>,
    ) -> Option<Vec<Decision>> {
        let capacity = |(cluster, capacity): (_, _)| {
            let cluster: &Cluster = cluster;
            (cluster, own.get(&cluster.name).unwrap_or(capacity))
        };
        place_together(question, &self.fleet, self.fleet.clusters().map(capacity).collect()).ok()
    }
}
