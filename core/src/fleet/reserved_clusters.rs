//! Which clusters are kept for a job that does not fit now, and from whom.
//!
//! Rule: as few as can hold it once what runs there is gone, those with the most free first, so that it need not wait
//! for more than it must. A duplicated job needs all clusters that its policy chooses: those are kept in which its copy
//! does not fit now, and no others.

use std::{borrow::Borrow, cmp::Reverse, collections::BTreeSet};

use super::takes_jobs;
use crate::{
    gang::{ClusterName, Gang},
    inventory::Capacity,
    node_groups::have_common_nodes,
    place::{self, Cluster, Decision, spread_constraints::is_duplicated},
    queue::{MOST_CLUSTERS_FOR_COPIES, ReservedClusters},
    resources::{ResourceName, Resources},
};

/// Clusters looked at alone before several are looked at together.
const CLUSTERS_TRIED_ALONE: usize = 8;

/// A cluster that may be kept.
#[derive(Debug)]
pub struct ReservableCluster<'a, C> {
    /// Which.
    pub cluster: &'a Cluster,
    /// What it would offer if nothing ran there.
    pub emptied: C,
    /// What it offers now.
    pub now: &'a Capacity,
}

/// The clusters to keep for a binding of which each copy asks for so much, and what it lacks there; not those that were
/// kept in `vain`. `place` is asked where a binding would go among some clusters.
pub fn choose_reserved_clusters<'a, C: Borrow<Capacity>>(
    binding: &place::Binding,
    (gang, minimum): (&Gang, &Resources),
    vain: &[ClusterName],
    clusters: impl Iterator<Item = ReservableCluster<'a, C>>,
    place: impl Fn(&place::Binding, Vec<(&Cluster, &Capacity)>) -> Option<Decision>,
) -> Option<ReservedClusters> {
    let tolerations = &binding.placement.tolerations;
    let takes = |one: &ReservableCluster<'a, C>| takes_jobs(one.cluster, |taint| taint.tolerated_by(tolerations));
    let all = clusters.filter(takes).map(|one| (one.now.sum_free(), one));
    if is_duplicated(binding.placement.division.as_ref()) {
        return choose_for_copies(binding, (gang, minimum), vain, &all.collect::<Vec<_>>(), place);
    }
    let mut all: Vec<(Resources, ReservableCluster<'a, C>)> =
        all.filter(|(_, one)| !vain.iter().any(|vain| vain.as_str() == one.cluster.name)).collect();
    all.sort_by_cached_key(|(free, one)| (Reverse(compute_free_thousandths(minimum, free)), one.cluster.name.clone()));
    let alone = (0..all.len().min(CLUSTERS_TRIED_ALONE)).map(|i| i..i + 1);
    let together = std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n < all.len() * 2);
    let together = together.map(|n| 0..n.min(all.len()));
    let decision = alone.chain(together).find_map(|some| {
        place(binding, all[some].iter().map(|(_, one)| (one.cluster, one.emptied.borrow())).collect())
    })?;
    let mut free = Resources::new();
    let chosen = |name: &str| decision.targets.iter().any(|target| target.cluster == name);
    all.iter().filter(|(_, one)| chosen(&one.cluster.name)).for_each(|(there, _)| free.add(there));
    let clusters = decision.targets.iter().map(|target| target.cluster.as_str().into()).collect();
    let resources = list_scarce_or_all_asked(minimum, list_scarce(minimum, &free));
    Some(ReservedClusters { clusters, resources, groups: gang.node_groups().cloned() })
}

/// Of the clusters that get a copy, those in which it does not fit now. None where one of them was kept in vain: there
/// are no others instead. Nor where they are many: one job does not close a fleet.
fn choose_for_copies<C: Borrow<Capacity>>(
    binding: &place::Binding,
    (gang, copy): (&Gang, &Resources),
    vain: &[ClusterName],
    all: &[(Resources, ReservableCluster<'_, C>)],
    place: impl Fn(&place::Binding, Vec<(&Cluster, &Capacity)>) -> Option<Decision>,
) -> Option<ReservedClusters> {
    let chosen = place(binding, all.iter().map(|(_, one)| (one.cluster, one.emptied.borrow())).collect())?;
    // Each copy is placed as if it were the only one.
    let mut alone = binding.clone();
    alone.placement.spread.clear();
    let is_chosen = |name: &str| chosen.targets.iter().any(|target| target.cluster == name);
    let lacks = |one: &ReservableCluster<'_, C>| place(&alone, vec![(one.cluster, one.now)]).is_none();
    let lacking = all.iter().filter(|(_, one)| is_chosen(&one.cluster.name) && lacks(one));
    let lacking: Vec<_> = lacking.take(MOST_CLUSTERS_FOR_COPIES + 1).collect();
    let clusters: Vec<ClusterName> = lacking.iter().map(|(_, one)| one.cluster.name.as_str().into()).collect();
    let is_many = clusters.len() > MOST_CLUSTERS_FOR_COPIES;
    if clusters.is_empty() || is_many || clusters.iter().any(|name| vain.contains(name)) {
        return None;
    }
    let scarce: BTreeSet<_> = lacking.iter().flat_map(|(free, _)| list_scarce(copy, free)).collect();
    Some(ReservedClusters {
        clusters,
        resources: list_scarce_or_all_asked(copy, scarce),
        groups: gang.node_groups().cloned(),
    })
}

/// Of what is asked, what there is too little of.
fn list_scarce(asked: &Resources, free: &Resources) -> BTreeSet<ResourceName> {
    let scarce = asked.iter().filter(|(name, amount)| *amount > free.get(name.as_str()));
    scarce.map(|(name, _)| name.clone()).collect()
}

/// All that is asked where there is enough of everything, in pieces that are too small.
fn list_scarce_or_all_asked(asked: &Resources, scarce: BTreeSet<ResourceName>) -> Vec<ResourceName> {
    if scarce.is_empty() {
        return asked.iter().map(|(name, _)| name.clone()).filter(|name| name.as_str() != "pods").collect();
    }
    scarce.into_iter().collect()
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
        (Some(kept), Some(own)) => have_common_nodes(kept, own),
        _ => true,
    };
    kept.iter().filter(asks).filter(meets).flat_map(|kept| &kept.clusters).map(ClusterName::as_str).collect()
}

/// Thousandths of what is asked that are free: of the resource that is shortest.
fn compute_free_thousandths(asked: &Resources, free: &Resources) -> i128 {
    let asked = asked.iter().filter(|(_, amount)| amount.as_nano() > 0);
    let part = asked.map(|(name, amount)| free.get(name.as_str()).as_nano().saturating_mul(1000) / amount.as_nano());
    part.min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
