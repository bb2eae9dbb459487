//! Which clusters are kept for a job that does not fit now.

use caldera_core::{
    fleet::{self, ReservableCluster},
    gang::ClusterName,
    queue::{Ask, ReservedClusters},
};

use super::{
    FleetCapacity, PlacementQuestion,
    together::{merge_decisions, place_together},
};

impl FleetCapacity {
    /// See [`fleet::choose_reserved_clusters`].
    pub fn choose_reserved_clusters(
        &mut self,
        question: PlacementQuestion<'_>,
        ask: &Ask,
        vain: &[ClusterName],
    ) -> Option<ReservedClusters> {
        self.fleet.refresh_capacities();
        self.fleet.refresh_clusters_without_queued();
        let emptied = self.fleet.list_capacities_without_queued();
        fleet::choose_reserved_clusters(
            question.binding,
            (question.gang, &ask.minimum_of_copy().without_cards()),
            vain,
            emptied.map(|(cluster, emptied, now)| ReservableCluster { cluster, emptied, now }),
            |binding, clusters| {
                let question = PlacementQuestion { binding, ..question };
                place_together(question, &self.fleet, clusters).ok().and_then(merge_decisions)
            },
        )
    }
}
