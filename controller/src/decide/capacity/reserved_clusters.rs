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
        self.fleet.refresh_emptied_clusters();
        let emptied = self.fleet.emptied_clusters();
        fleet::choose_reserved_clusters(
            &ask.minimum(),
            &question.binding.placement.tolerations,
            vain,
            emptied.map(|(cluster, emptied, capacity)| (cluster, emptied, capacity.free())),
            |clusters| ask_placement(question, &self.fleet, clusters).ok(),
        )
    }
}
