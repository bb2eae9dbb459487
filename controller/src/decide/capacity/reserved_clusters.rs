//! Which clusters are kept for a job that does not fit now.

use std::{cmp::Reverse, collections::BTreeSet};

use caldera_core::{
    fleet::takes_jobs,
    gang::ClusterName,
    inventory::Capacity,
    place::Cluster,
    queue::{Ask, ReservedClusters},
    resources::Resources,
};

use super::{FleetCapacity, PlacementQuestion, ask_placement};

/// Clusters looked at alone before several are looked at together.
const LOOKS: usize = 8;

impl FleetCapacity {
    /// The clusters to keep for a job that does not fit now, and what it lacks there: as few as can hold it once what
    /// runs there is gone, those with the most free first, so that it need not wait for more than it must. Not those
    /// that were kept in `vain`.
    pub fn choose_reserved_clusters(
        &mut self,
        question: PlacementQuestion<'_>,
        ask: &Ask,
        vain: &[ClusterName],
    ) -> Option<ReservedClusters> {
        self.fleet.refresh_capacities();
        let minimum = ask.minimum();
        self.fleet.refresh_emptied_clusters();
        let tolerations = &question.binding.placement.tolerations;
        let mut emptied: Vec<(&Cluster, &Capacity, Resources)> = self
            .fleet
            .emptied_clusters()
            .filter(|(cluster, ..)| takes_jobs(cluster, |taint| taint.tolerated_by(tolerations)))
            .filter(|(cluster, ..)| !vain.iter().any(|vain| vain.as_str() == cluster.name))
            .map(|(cluster, emptied, capacity)| (cluster, emptied, capacity.free()))
            .collect();
        emptied
            .sort_by_cached_key(|(cluster, _, free)| (Reverse(measure_coverage(&minimum, free)), cluster.name.clone()));
        let alone = (0..emptied.len().min(LOOKS)).map(|i| i..i + 1);
        let together = std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n < emptied.len() * 2);
        let together = together.map(|n| 0..n.min(emptied.len()));
        let decision = alone.chain(together).find_map(|some| {
            let clusters = emptied[some].iter().map(|(cluster, capacity, _)| (*cluster, *capacity)).collect();
            ask_placement(question, &self.fleet, clusters).ok()
        })?;
        let clusters: Vec<ClusterName> = decision.targets.iter().map(|target| target.cluster.as_str().into()).collect();
        let mut free = Resources::new();
        let chosen = |name: &str| decision.targets.iter().any(|target| target.cluster == name);
        emptied.iter().filter(|(cluster, ..)| chosen(&cluster.name)).for_each(|(.., there)| free.add(there));
        let asked = || minimum.iter().filter(|(_, amount)| !amount.is_zero());
        let scarce = asked().filter(|(name, amount)| *amount > free.get(name.as_str()));
        let mut resources: Vec<_> = scarce.map(|(name, _)| name.clone()).collect();
        if resources.is_empty() {
            // There is enough of everything, in pieces that are too small.
            resources = asked().map(|(name, _)| name.clone()).filter(|name| name.as_str() != "pods").collect();
        }
        Some(ReservedClusters { clusters, resources })
    }
}

/// Clusters of which a job that asks for this gets nothing.
pub(super) fn list_reserved_clusters<'a>(ask: &Ask, kept: &[&'a ReservedClusters]) -> BTreeSet<&'a str> {
    let minimum = ask.minimum();
    let asks = |kept: &&&ReservedClusters| kept.resources.iter().any(|name| !minimum.get(name.as_str()).is_zero());
    kept.iter().filter(asks).flat_map(|kept| &kept.clusters).map(ClusterName::as_str).collect()
}

/// Thousandths of what is asked that are free: of the resource that is shortest.
fn measure_coverage(asked: &Resources, free: &Resources) -> i128 {
    let part = |(name, amount): (&caldera_core::resources::ResourceName, caldera_core::quantity::Quantity)| {
        let asked = amount.as_nano();
        (asked > 0).then(|| free.get(name.as_str()).as_nano().saturating_mul(1000) / asked)
    };
    asked.iter().filter_map(part).min().unwrap_or(0)
}
