//! Which clusters are kept for a job that does not fit now, and from whom.
//!
//! Rule: as few as can hold it once what runs there is gone, those with the most free first, so that it need not wait
//! for more than it must.

use std::{borrow::Borrow, cmp::Reverse, collections::BTreeSet};

use super::takes_jobs;
use crate::{
    gang::{ClusterName, Gang, Toleration},
    inventory::Capacity,
    node_groups::share_nodes,
    place::{Cluster, Decision},
    queue::ReservedClusters,
    resources::Resources,
};

/// Clusters looked at alone before several are looked at together.
const CLUSTERS_TRIED_ALONE: usize = 8;

/// The clusters to keep for a job that asks for so much, and what it lacks there; not those that were kept in `vain`.
/// Each of `emptied` has what it would offer if nothing ran there, and what it has free now; `place` is asked where the
/// job would go among some of them.
pub fn choose_reserved_clusters<'a, C: Borrow<Capacity>>(
    (gang, minimum): (&Gang, &Resources),
    tolerations: &[Toleration],
    vain: &[ClusterName],
    emptied: impl Iterator<Item = (&'a Cluster, C, Resources)>,
    place: impl Fn(Vec<(&Cluster, &Capacity)>) -> Option<Decision>,
) -> Option<ReservedClusters> {
    let mut emptied: Vec<(&Cluster, C, Resources)> = emptied
        .filter(|(cluster, ..)| takes_jobs(cluster, |taint| taint.tolerated_by(tolerations)))
        .filter(|(cluster, ..)| !vain.iter().any(|vain| vain.as_str() == cluster.name))
        .collect();
    emptied.sort_by_cached_key(|(cluster, _, free)| (Reverse(measure_coverage(minimum, free)), cluster.name.clone()));
    let alone = (0..emptied.len().min(CLUSTERS_TRIED_ALONE)).map(|i| i..i + 1);
    let together = std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n < emptied.len() * 2);
    let together = together.map(|n| 0..n.min(emptied.len()));
    let decision = alone.chain(together).find_map(|some| {
        place(emptied[some].iter().map(|(cluster, capacity, _)| (*cluster, capacity.borrow())).collect())
    })?;
    let mut free = Resources::new();
    let chosen = |name: &str| decision.targets.iter().any(|target| target.cluster == name);
    emptied.iter().filter(|(cluster, ..)| chosen(&cluster.name)).for_each(|(.., there)| free.add(there));
    let scarce = minimum.iter().filter(|(name, amount)| *amount > free.get(name.as_str()));
    let mut resources: Vec<_> = scarce.map(|(name, _)| name.clone()).collect();
    if resources.is_empty() {
        // There is enough of everything, in pieces that are too small.
        resources = minimum.iter().map(|(name, _)| name.clone()).filter(|name| name.as_str() != "pods").collect();
    }
    let clusters = decision.targets.iter().map(|target| target.cluster.as_str().into()).collect();
    Some(ReservedClusters { clusters, resources, groups: gang.node_groups().cloned() })
}

/// Clusters of which a gang that asks for so much gets nothing. One that could use none of the nodes that are kept gets
/// what it asks for.
#[must_use]
pub fn list_clusters_reserved_against<'a>(
    (gang, minimum): (&Gang, &Resources),
    kept: &[&'a ReservedClusters],
) -> BTreeSet<&'a str> {
    let asks = |kept: &&&ReservedClusters| kept.resources.iter().any(|name| !minimum.get(name.as_str()).is_zero());
    let meets = |kept: &&&ReservedClusters| match (&kept.groups, gang.node_groups()) {
        (Some(kept), Some(own)) => share_nodes(kept, own),
        _ => true,
    };
    kept.iter().filter(asks).filter(meets).flat_map(|kept| &kept.clusters).map(ClusterName::as_str).collect()
}

/// Thousandths of what is asked that are free: of the resource that is shortest.
fn measure_coverage(asked: &Resources, free: &Resources) -> i128 {
    let asked = asked.iter().filter(|(_, amount)| amount.as_nano() > 0);
    let part = asked.map(|(name, amount)| free.get(name.as_str()).as_nano().saturating_mul(1000) / amount.as_nano());
    part.min().unwrap_or(0)
}
