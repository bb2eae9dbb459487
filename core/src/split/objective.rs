//! What makes one placement better than another.

use super::{Pods, Search, Spot, total};

/// How far apart a gang's pods are; less is closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Within one domain of this tier.
    Domain(u32),
    /// Within one cluster.
    Cluster,
    /// In clusters that are close by this level (its place, from near to far).
    Level(usize),
    /// Anywhere.
    Far,
}

/// The objective: of two placements the lesser key is better, field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Pods that are missing of the full size. (Nothing is placed below the minimum.)
    pub missing: u64,
    /// Topology quality.
    pub distance: Distance,
    /// Clusters in use.
    pub clusters: usize,
    /// Data locality and declared cost, over the clusters in use.
    pub cost: i64,
    /// What stays free where pods are put: the best fit leaves least.
    pub fragments: u64,
    /// Clusters that held nothing of it before.
    pub opened: usize,
}

/// Where new pods are put.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub spots: Vec<Spot>,
    pub pods: Pods,
}

impl Choice {
    /// Nothing new.
    pub(super) fn nothing(search: &Search<'_>) -> Self {
        Self { spots: Vec::new(), pods: vec![vec![0; search.kit.tasks()]; search.sites.len()] }
    }

    /// Pods at single spots, all sites having their rows.
    pub(super) fn at(search: &Search<'_>, spots: Vec<Spot>, pods: Pods) -> Self {
        let mut choice = Self::nothing(search);
        for (spot, pods) in spots.iter().zip(pods) {
            choice.pods[spot.site] = pods;
        }
        Self { spots, ..choice }
    }

    pub(super) fn placed(&self) -> u64 {
        self.pods.iter().map(|pods| total(pods)).sum()
    }
}

impl Search<'_> {
    /// The key of using these spots, which include all that hold pods, with so many pods missing.
    pub(super) fn key(&self, spots: &[Spot], missing: u64) -> Key {
        Key {
            missing,
            distance: self.distance(spots),
            clusters: spots.len(),
            cost: spots.iter().map(|spot| self.sites[spot.site].cost).fold(0, i64::saturating_add),
            fragments: spots.iter().map(|spot| self.bounds.free(*spot)).fold(0, u64::saturating_add),
            opened: spots.iter().filter(|spot| !self.holds(spot.site)).count(),
        }
    }

    pub(super) fn distance(&self, spots: &[Spot]) -> Distance {
        let [spot] = spots else {
            let within = |group: &Vec<usize>| spots.iter().all(|spot| group.binary_search(&spot.site).is_ok());
            let level = self.levels.iter().position(|groups| groups.iter().any(within));
            return level.map_or(Distance::Far, Distance::Level);
        };
        let site = &self.sites[spot.site];
        let own = spot.domain.and_then(|domain| site.capacity.domains.get(domain)).map(|domain| domain.tier);
        own.or(site.domain.map(|domain| domain.tier)).map_or(Distance::Cluster, Distance::Domain)
    }
}
