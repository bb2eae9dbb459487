//! Other regions that a gang may be in than those that Karmada would choose.
//!
//! Karmada chooses by sums of what fits, before anybody packs: of a gang, which must fit node by node, that may be a
//! choice that does not hold it where another does. Rule: what its choice has to satisfy
//! (`pkg/scheduler/core/spreadconstraint`). From `minGroups` to `maxGroups` regions are chosen, which have at least the
//! `minGroups` of clusters; one cluster of each, and others of theirs up to the `maxGroups` of clusters. Fewer regions
//! are tried first.

use std::collections::BTreeMap;

use super::{Binding, FittingCluster, PermittedClusters, Request, SpreadBy};
use crate::split::{might_hold_minimum, most_of_each_task};

/// Of more regions those that take most are combined.
const REGIONS: usize = 16;
/// Combinations that could hold the gang by sums, of which so many are packed.
const MOST_PACKED_SETS: usize = 128;

/// A region's clusters, and how many pods of each task they take, each task alone.
struct GangRegion {
    clusters: Vec<usize>,
    most: Vec<u64>,
    held: bool,
}

/// What the constraints permit.
struct Bounds {
    regions: std::ops::RangeInclusive<usize>,
    least_clusters: usize,
    most_clusters: usize,
}

/// Every choice that the constraints permit, which has all clusters that hold pods and could hold the gang.
pub(super) fn list_region_sets<'a, 'b>(
    request: &Request<'_>,
    binding: &Binding,
    fitting: &'b [FittingCluster<'a>],
) -> impl Iterator<Item = PermittedClusters<'a, 'b>> {
    let bounds = read_constraints(binding);
    let regions =
        if holds_pods_without_region(binding, fitting) { Vec::new() } else { rank_regions(request, binding, fitting) };
    let gang = request.gang;
    let enough = move |regions: &[GangRegion], chosen: &[usize]| {
        let most = |task: usize| chosen.iter().map(|at| regions[*at].most[task]).fold(0, u64::saturating_add);
        might_hold_minimum(gang, &(0..gang.tasks.len()).map(most).collect::<Vec<_>>())
    };
    let sets = combine_regions(&regions, &bounds, &|chosen| enough(&regions, chosen));
    sets.into_iter().map(move |chosen| {
        let mut clusters: Vec<(usize, u32)> = (0..)
            .zip(&chosen)
            .flat_map(|(at, region)| regions[*region].clusters.iter().map(move |cluster| (*cluster, at)))
            .collect();
        clusters.sort_unstable();
        let more = u32::try_from(bounds.most_clusters.saturating_sub(chosen.len())).unwrap_or(u32::MAX);
        PermittedClusters {
            clusters: clusters.iter().map(|(cluster, _)| &fitting[*cluster]).collect(),
            most: None,
            regions: Some((clusters.into_iter().map(|(_, region)| region).collect(), more)),
            by_region: true,
        }
    })
}

/// Whether it holds pods where there is no region.
fn holds_pods_without_region(binding: &Binding, fitting: &[FittingCluster<'_>]) -> bool {
    fitting.iter().any(|one| one.stays_placed(binding) && one.cluster.region.is_empty())
}

fn read_constraints(binding: &Binding) -> Bounds {
    let by = |by: SpreadBy| binding.placement.spread.iter().rev().find(|spread| spread.by == by);
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let (region, cluster) = (by(SpreadBy::Region), by(SpreadBy::Cluster));
    Bounds {
        regions: region.map_or(0, |spread| count(spread.min)).max(1)..=region.map_or(0, |spread| count(spread.max)),
        least_clusters: cluster.map_or(0, |spread| count(spread.min)),
        most_clusters: cluster.map_or(0, |spread| count(spread.max)),
    }
}

/// Those that take most pods, by name.
fn rank_regions(request: &Request<'_>, binding: &Binding, fitting: &[FittingCluster<'_>]) -> Vec<GangRegion> {
    let gang = request.gang;
    let previous = if binding.fresh { None } else { request.previous };
    let mut regions: BTreeMap<&str, GangRegion> = BTreeMap::new();
    for (at, one) in fitting.iter().enumerate().filter(|(_, one)| !one.cluster.region.is_empty()) {
        let none = || GangRegion { clusters: Vec::new(), most: vec![0; gang.tasks.len()], held: false };
        let region = regions.entry(&one.cluster.region).or_insert_with(none);
        region.clusters.push(at);
        region.held |= one.stays_placed(binding);
        let share = previous.and_then(|plan| plan.clusters.get(one.cluster.name.as_str()));
        let free = most_of_each_task(gang, &one.capacity);
        for ((task, most), free) in gang.tasks.iter().zip(&mut region.most).zip(free) {
            let held = share.and_then(|share| share.tasks.get(&task.name)).map_or(0, |part| part.replicas);
            *most = most.saturating_add(free).saturating_add(u64::from(held));
        }
    }
    let mut regions: Vec<GangRegion> = regions.into_values().collect();
    if regions.len() > REGIONS {
        let pods = |region: &GangRegion| {
            let capped = gang.tasks.iter().zip(&region.most).map(|(task, most)| u64::from(task.replicas).min(*most));
            capped.fold(0, u64::saturating_add)
        };
        regions.sort_by_cached_key(|region| (!region.held, std::cmp::Reverse(pods(region))));
        regions.truncate(REGIONS);
    }
    regions
}

/// Sets of regions with all that hold pods, that have clusters enough and that `might_hold` the gang; small ones first.
fn combine_regions(regions: &[GangRegion], bounds: &Bounds, might_hold: &dyn Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let held: u32 = (0..regions.len()).filter(|at| regions[*at].held).fold(0, |set, at| set | 1 << at);
    let mut sets: Vec<u32> = (1..1_u32 << regions.len())
        .filter(|set| bounds.regions.contains(&(set.count_ones() as usize)) && set & held == held)
        .collect();
    sets.sort_by_key(|set| (set.count_ones(), *set));
    let members = |set: u32| (0..regions.len()).filter(move |at| set >> at & 1 == 1).collect::<Vec<usize>>();
    let clusters = |chosen: &[usize]| chosen.iter().map(|at| regions[*at].clusters.len()).sum::<usize>();
    let permitted = |chosen: &Vec<usize>| clusters(chosen) >= bounds.least_clusters && might_hold(chosen);
    sets.into_iter().map(members).filter(permitted).take(MOST_PACKED_SETS).collect()
}
