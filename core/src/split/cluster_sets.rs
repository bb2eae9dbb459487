//! A gang in several clusters. Of a few clusters every set is tried, best key first; of many, see `greedy`.
//!
//! Rule: a set has all clusters that hold pods of the gang, is not too large and is close enough. The best set that
//! takes all pods wins; for a gang that may have less, the set that takes most.

use super::{Assignment, ObjectiveKey, Pods, SplitSearch, Spot, sum_pods, upper_bounds::TotalDemand};

/// Up to so many clusters that could take a pod every set of them is tried.
pub(super) const MOST_EXHAUSTED_CLUSTERS: usize = 6;

/// A site, and the most pods that it could take.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromisingCluster {
    pub most: u64,
    pub site: usize,
}

impl SplitSearch<'_> {
    /// All of `want` in several clusters.
    pub(super) fn place_in_several_clusters(&self, want: &[u32]) -> Option<Assignment> {
        let sites = self.list_promising_clusters(want)?;
        if sites.len() > MOST_EXHAUSTED_CLUSTERS {
            self.place_greedily(&sites, want)
        } else {
            self.try_every_set(&sites_of(&sites), want)
        }
    }

    /// The best set of these sites that takes all of `want`.
    pub(super) fn try_every_set(&self, sites: &[usize], want: &[u32]) -> Option<Assignment> {
        let ask = TotalDemand::of_pods(&self.requests, want);
        let mut best: Option<(ObjectiveKey, Assignment)> = None;
        for (key, spots) in self.list_cluster_sets(sites) {
            // Sets come in the order of their keys with every pair met.
            if best.as_ref().is_some_and(|(known, _)| *known <= key) {
                break;
            }
            let sites: Vec<usize> = spots.iter().map(|spot| spot.site).collect();
            if !self.bounds.might_take_together(&sites, &ask) {
                continue;
            }
            let Some(pods) = self.pack_into(&spots, want) else { continue };
            let pods = self.reduce_unmet_pairs(&spots, self.gather_pods(&spots, pods));
            let key = ObjectiveKey { unmet: self.count_unmet_pairs(&spots, &pods), ..key };
            if best.as_ref().is_none_or(|(known, _)| key < *known) {
                best = Some((key, Assignment { spots, pods }));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Sites that could take something, those that hold pods among them; `None` if there may be only one.
    fn list_promising_clusters(&self, want: &[u32]) -> Option<Vec<PromisingCluster>> {
        let held = self.kept.len();
        if self.limit <= 1 && held <= 1 {
            return None;
        }
        let open = held < self.limit;
        let hopeful = |site: usize| {
            if !(self.holds_pods(site) || open && self.sites[site].reach.cluster) {
                return None;
            }
            let most = self.bounds.max_pods(&self.requests, Spot { site, domain: None }, want);
            (most > 0 || self.holds_pods(site)).then_some(PromisingCluster { most, site })
        };
        Some((0..self.sites.len()).filter_map(hopeful).collect())
    }

    /// The minimum, and as much more of `want` as fits.
    pub(super) fn place_elastic(&self, want: &[u32], need: &[u32]) -> Option<Assignment> {
        let one = self.place_elastic_in_one_spot(want, need);
        let several = self.list_promising_clusters(want).and_then(|sites| {
            if sites.len() > MOST_EXHAUSTED_CLUSTERS {
                self.place_elastic_greedily(&sites, want, need)
            } else {
                self.try_every_set_elastic(&sites_of(&sites), want, need)
            }
        });
        match (one, several) {
            // At the same size one cluster is closer than several.
            (Some(one), Some(several)) if several.placed_pods() > one.placed_pods() => Some(several),
            (Some(one), _) => Some(one),
            (None, several) => several,
        }
    }

    /// The best set of these sites of those that take most of `want`, with all of `need`.
    pub(super) fn try_every_set_elastic(&self, sites: &[usize], want: &[u32], need: &[u32]) -> Option<Assignment> {
        let least = self.least_pods_to_add();
        let mut best: Option<(ObjectiveKey, Vec<Spot>, Pods)> = None;
        for (key, spots) in self.list_cluster_sets(sites) {
            let Some(pods) = self.pack_most_into(&spots, want, need) else { continue };
            let placed: u64 = pods.iter().map(|pods| sum_pods(pods)).sum();
            let key = ObjectiveKey { missing: sum_pods(want) - placed, ..key };
            // Sets come in the order of their keys: the first of those with one key stays.
            let is_better = |key: ObjectiveKey| best.as_ref().is_none_or(|(known, ..)| key < *known);
            if placed < least || !is_better(key) {
                continue;
            }
            let pods = self.reduce_unmet_pairs(&spots, self.gather_pods(&spots, pods));
            let key = ObjectiveKey { unmet: self.count_unmet_pairs(&spots, &pods), ..key };
            if is_better(key) {
                best = Some((key, spots, pods));
            }
        }
        best.map(|(_, spots, pods)| Assignment { spots, pods })
    }

    /// Sets of two sites and more with all that hold pods, as far as they are close enough and not too many; best
    /// first.
    fn list_cluster_sets(&self, sites: &[usize]) -> Vec<(ObjectiveKey, Vec<Spot>)> {
        let (held, others): (Vec<usize>, Vec<usize>) = sites.iter().partition(|site| self.holds_pods(**site));
        let mut sets = Vec::new();
        for chosen in 0..1_u32 << others.len() {
            let more = (0..others.len()).filter(|at| chosen >> at & 1 == 1).map(|at| others[at]);
            let mut set: Vec<usize> = held.iter().copied().chain(more).collect();
            set.sort_unstable();
            if set.len() < 2 || (chosen > 0 && !self.may_use_together(&set)) {
                continue;
            }
            let spots: Vec<Spot> = set.into_iter().map(|site| Spot { site, domain: None }).collect();
            let key = self.objective_key(&spots, 0);
            if self.far || key.distance != super::Distance::Far {
                sets.push((key, spots));
            }
        }
        let sites = |spots: &[Spot]| spots.iter().map(|spot| spot.site).collect::<Vec<_>>();
        sets.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| self.tie.compare_in_tie_order(&sites(&a.1), &sites(&b.1))));
        sets
    }
}

pub(super) fn sites_of(sites: &[PromisingCluster]) -> Vec<usize> {
    sites.iter().map(|one| one.site).collect()
}
