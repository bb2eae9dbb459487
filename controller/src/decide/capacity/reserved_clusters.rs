//! Which clusters are kept for a job that does not fit now.

use caldera_core::{
    fleet,
    gang::ClusterName,
    queue::{Ask, ReservedClusters},
};

use super::{FleetCapacity, PlacementQuestion, ask_placement};

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
            (question.gang, &ask.minimum()),
            &question.binding.placement.tolerations,
            vain,
            emptied.map(|(cluster, emptied, capacity)| (cluster, emptied, capacity.sum_free())),
            |clusters| ask_placement(question, &self.fleet, clusters).ok(),
        )
    }
}
