//! Nodes that are not there yet, as jobs see them: whether one fits once they have come, and what it waits for.
//!
//! Rule: `caldera_core::fleet`'s. What fits now never waits for a node: only who fits nowhere is asked about with the
//! nodes that may come. Where karmada-scheduler places they count for nothing, since it knows none.

use jiff::SignedDuration;

use super::FleetCapacity;

impl FleetCapacity {
    /// Nodes that may come count for nothing, since the scheduler that places knows none; or they count.
    pub(crate) fn ignore_upcoming_nodes(&mut self, are_ignored: bool) {
        self.fleet.ignore_upcoming_nodes(are_ignored);
    }

    /// Nodes that the pods of a binding wait for, each group in words.
    pub(crate) fn describe_awaited_nodes(&self, id: &str) -> impl Iterator<Item = String> + use<> {
        self.fleet.list_awaited_nodes(id).into_iter().map(|awaited| awaited.to_string())
    }

    /// Whether some cluster declares groups whose nodes may come, so that it matters when a run is ended.
    pub(crate) fn has_declared_groups(&self) -> bool {
        self.fleet.clusters().any(|(cluster, _)| !cluster.autoscaling.is_empty())
    }

    /// How much later than elsewhere pods of a binding may be on nodes of a cluster.
    pub(crate) fn delay_of_nodes(&self, cluster: &str, id: &str) -> SignedDuration {
        SignedDuration::from_secs(self.fleet.delay_of_nodes(cluster, id))
    }
}
