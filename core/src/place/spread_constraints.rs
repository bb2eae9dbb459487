//! Which of the fitting clusters to use: spread constraints.
//!
//! Rule: karmada-scheduler's `SelectClusters` (`pkg/scheduler/core/spreadconstraint`), with its quirks: only `cluster`
//! and `region` are understood; static weights ignore constraints unless `weightPreference` is there and empty; by
//! cluster, tail clusters are swapped for ones with more free until the replicas fit; by region, a depth-first search
//! over combinations of regions, ranked by weight, then number of clusters, then discovery.

use std::collections::BTreeMap;

use super::{Binding, Cluster, Division, Spread, SpreadBy};

/// A fitting cluster with what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct ScoredCluster<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// 100 where the binding is already (Karmada's ClusterLocality).
    pub score: i64,
    /// Its affinity tier.
    pub tier: u32,
    /// Replicas that are free there.
    pub allocatable: i64,
    /// The same and those it has there.
    pub available: i64,
}

/// The selected candidates, in the order in which Karmada divides over them.
///
/// # Errors
/// Karmada's sentence about what is missing.
pub fn select_clusters<'a>(
    binding: &Binding,
    mut candidates: Vec<ScoredCluster<'a>>,
) -> Result<Vec<ScoredCluster<'a>>, String> {
    sort_candidates(&mut candidates);
    if keeps_all(binding) {
        return Ok(candidates);
    }
    let spread = &binding.placement.spread;
    let by = |by: SpreadBy| spread.iter().rev().find(|spread| spread.by == by);
    match (by(SpreadBy::Region), by(SpreadBy::Cluster)) {
        (Some(region), cluster) => select_by_region(binding, candidates, region, cluster),
        (None, Some(cluster)) => select_by_cluster(binding, candidates, cluster),
        (None, None) => Err("just support cluster and region spread constraint".to_owned()),
    }
}

/// Best first.
fn sort_candidates(candidates: &mut [ScoredCluster<'_>]) {
    candidates.sort_by(|a, b| {
        (a.tier, b.score, b.available)
            .cmp(&(b.tier, a.score, a.available))
            .then_with(|| a.cluster.name.cmp(&b.cluster.name))
    });
}

/// True if no candidate is left out: there are no constraints, or static weights that ignore them.
#[must_use]
pub fn keeps_all(binding: &Binding) -> bool {
    let ignored = |division: &Division| matches!(division, Division::StaticWeight { rules, preference } if !preference || !rules.is_empty());
    binding.placement.spread.is_empty() || binding.placement.division.as_ref().is_some_and(ignored)
}

/// True if the order of the candidates can change how replicas are divided over them: only Aggregated uses one cluster
/// before another, the one with most free first and by name among equals, unless tiers or what the binding has come
/// before that.
#[must_use]
pub fn order_matters(binding: &Binding) -> bool {
    let aggregated = matches!(binding.placement.division, Some(Division::Aggregated));
    aggregated && !(binding.previous.is_empty() && binding.placement.affinities.is_empty())
}

/// True for strategies that never look at capacity.
#[must_use]
pub fn is_duplicated(division: Option<&Division>) -> bool {
    matches!(division, None | Some(Division::Duplicated))
}

fn to_count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn select_by_cluster<'a>(
    binding: &Binding,
    mut candidates: Vec<ScoredCluster<'a>>,
    spread: &Spread,
) -> Result<Vec<ScoredCluster<'a>>, String> {
    if candidates.len() < to_count(spread.min) {
        return Err("the number of feasible clusters is less than spreadConstraint.MinGroups".to_owned());
    }
    let needed = to_count(spread.max).min(candidates.len());
    let mut rest = candidates.split_off(needed);
    if is_duplicated(binding.placement.division.as_ref()) {
        return Ok(candidates);
    }
    let enough = |chosen: &[ScoredCluster<'_>]| chosen.iter().map(|one| one.available).sum::<i64>() >= binding.replicas;
    for last in (0..candidates.len()).rev() {
        if enough(&candidates) {
            break;
        }
        let mut best: Option<usize> = None;
        for (index, other) in rest.iter().enumerate() {
            if other.available > best.map_or(candidates[last].available, |best: usize| rest[best].available) {
                best = Some(index);
            }
        }
        if let Some(best) = best {
            std::mem::swap(&mut candidates[last], &mut rest[best]);
        }
    }
    if candidates.is_empty() || !enough(&candidates) {
        return Err(format!("no enough resource when selecting {needed} clusters"));
    }
    Ok(candidates)
}

/// A region with its clusters, best first.
struct ScoredRegion<'a> {
    name: &'a str,
    weight: i64,
    clusters: Vec<ScoredCluster<'a>>,
}

/// Of more regions the heaviest are combined: Karmada tries every combination of all of them, which with a hundred
/// regions takes longer than anybody waits.
const MOST_REGIONS: usize = 16;

fn keep_heaviest(regions: &mut Vec<ScoredRegion<'_>>, most: usize) {
    if regions.len() > most {
        regions.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(b.name)));
        regions.truncate(most);
    }
}

fn select_by_region<'a>(
    binding: &Binding,
    candidates: Vec<ScoredCluster<'a>>,
    region: &Spread,
    cluster: Option<&Spread>,
) -> Result<Vec<ScoredCluster<'a>>, String> {
    let mut grouped: BTreeMap<&str, Vec<ScoredCluster<'a>>> = BTreeMap::new();
    for candidate in candidates.into_iter().filter(|candidate| !candidate.cluster.region.is_empty()) {
        grouped.entry(&candidate.cluster.region).or_default().push(candidate);
    }
    if grouped.len() < to_count(region.min) {
        return Err("the number of feasible region is less than spreadConstraint.MinGroups".to_owned());
    }
    let least = region.min.max(cluster.map_or(0, |spread| spread.min));
    let mut regions: Vec<ScoredRegion<'a>> = grouped
        .into_iter()
        .map(|(name, clusters)| ScoredRegion {
            name,
            weight: compute_region_weight(binding, &clusters, region.min, least),
            clusters,
        })
        .collect();
    keep_heaviest(&mut regions, MOST_REGIONS.max(to_count(region.min)));
    regions.sort_by(|a, b| {
        (a.clusters.len(), b.weight).cmp(&(b.clusters.len(), a.weight)).then_with(|| a.name.cmp(b.name))
    });
    let chosen = find_best_region_combination(&regions, region, cluster.map_or(0, |spread| to_count(spread.min)));
    if chosen.is_empty() {
        return Err("the number of clusters is less than the cluster spreadConstraint.MinGroups".to_owned());
    }
    let mut selected = Vec::new();
    let mut rest = Vec::new();
    for index in chosen {
        selected.push(regions[index].clusters[0]);
        rest.extend_from_slice(&regions[index].clusters[1..]);
    }
    let most = cluster.map_or(0, |spread| to_count(spread.max));
    sort_candidates(&mut rest);
    let more = (selected.len() + rest.len()).min(most).saturating_sub(selected.len());
    selected.extend(rest.into_iter().take(more));
    Ok(selected)
}

/// How good a region is: first whether it takes its part of the replicas, then its clusters' scores.
fn compute_region_weight(binding: &Binding, clusters: &[ScoredCluster<'_>], min_groups: i64, least: i64) -> i64 {
    const UNIT: i64 = 1000;
    if is_duplicated(binding.placement.division.as_ref()) {
        let valid = || clusters.iter().filter(|candidate| candidate.available >= binding.replicas);
        let count = i64::try_from(valid().count()).unwrap_or(i64::MAX);
        if count == 0 {
            return 0;
        }
        return count * UNIT + valid().map(|candidate| candidate.score).sum::<i64>() / count;
    }
    let target = -(-binding.replicas).div_euclid(min_groups.max(1));
    let (mut available, mut score, mut counted) = (0_i64, 0, 0);
    for candidate in clusters {
        available = available.saturating_add(candidate.available);
        score += candidate.score;
        counted += 1;
        if available >= target && counted >= least {
            return target * UNIT + score / counted;
        }
    }
    available.min(target).saturating_mul(UNIT).saturating_add(score / counted.max(1))
}

/// A combination of regions (indices, by descending weight then name).
struct RegionCombination {
    weight: i64,
    clusters: usize,
    regions: Vec<usize>,
}

/// The best combination of regions that together have at least `target` clusters; empty if there is none. Regions are
/// sorted by ascending number of clusters.
fn find_best_region_combination(regions: &[ScoredRegion<'_>], spread: &Spread, target: usize) -> Vec<usize> {
    let mut paths = Vec::new();
    search_region_combinations(
        regions,
        (to_count(spread.min), to_count(spread.max)),
        target,
        0,
        &mut Vec::new(),
        &mut paths,
    );
    // Stable: among equals the first that was found.
    paths.sort_by_key(|path| std::cmp::Reverse((path.weight, path.clusters)));
    let mut paths = paths.into_iter();
    let Some(mut best) = paths.next() else { return Vec::new() };
    for path in paths {
        if path.regions.len() < best.regions.len() && best.regions.starts_with(&path.regions) {
            best = path;
        }
    }
    best.regions
}

fn search_region_combinations(
    regions: &[ScoredRegion<'_>],
    (least, most): (usize, usize),
    target: usize,
    begin: usize,
    current: &mut Vec<usize>,
    found: &mut Vec<RegionCombination>,
) {
    let clusters: usize = current.iter().map(|index| regions[*index].clusters.len()).sum();
    if clusters >= target && (least..=most).contains(&current.len()) {
        let mut path = current.clone();
        path.sort_by(|a, b| {
            regions[*b].weight.cmp(&regions[*a].weight).then_with(|| regions[*a].name.cmp(regions[*b].name))
        });
        let weight = current.iter().map(|index| regions[*index].weight).sum();
        found.push(RegionCombination { weight, clusters, regions: path });
        return;
    }
    // Those that are left may be too few to come to an end.
    let rest: usize = regions[begin..].iter().map(|region| region.clusters.len()).sum();
    if current.len() >= most || current.len() + regions.len() - begin < least || clusters + rest < target {
        return;
    }
    for index in begin..regions.len() {
        current.push(index);
        search_region_combinations(regions, (least, most), target, index + 1, current, found);
        current.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(spread: Vec<Spread>) -> Binding {
        let placement = super::super::Placement { division: Some(Division::Aggregated), spread, ..Default::default() };
        Binding { replicas: 60, divisible: true, is_workload: true, placement, ..Binding::default() }
    }

    /// Every combination of 20 of 60 regions would be 4 * 10^15.
    #[test]
    fn many_regions_do_not_stall_the_choice() {
        let cluster = |i: usize| Cluster { name: format!("m{i:02}"), region: format!("r{i:02}"), ..Cluster::default() };
        let clusters: Vec<Cluster> = (0..60).map(cluster).collect();
        let free = |i: usize| i64::try_from(i).unwrap();
        let candidate =
            |(i, cluster)| ScoredCluster { cluster, score: 0, tier: 0, allocatable: free(i), available: free(i) };
        let candidates: Vec<ScoredCluster<'_>> = clusters.iter().enumerate().map(candidate).collect();
        for (min, max) in [(5, 20), (20, 40), (60, 60)] {
            let by = |by: SpreadBy| Spread { by, min, max };
            let chosen =
                select_clusters(&binding(vec![by(SpreadBy::Region), by(SpreadBy::Cluster)]), candidates.clone())
                    .unwrap();
            assert!(chosen.len() >= usize::try_from(min).unwrap(), "{min} to {max}: {}", chosen.len());
        }
    }
}
