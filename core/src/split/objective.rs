//! The objective of the split: which of two placements is better.
//!
//! Rule: the lesser [`ObjectiveKey`] wins, field by field: pods missing of the full size, topology distance, unmet
//! pairs of tasks that want to be together or apart, clusters in use, missing data, declared cost, what pods prefer of
//! nodes and do not get, images that are not there, what stays free where pods are put, and clusters that held nothing
//! before.

use super::{Pods, SplitSearch, Spot, UnmetPreferences, sum_pods};

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
pub struct ObjectiveKey {
    /// Pods that are missing of the full size. (Nothing is placed below the minimum.)
    pub missing: u64,
    /// Topology quality.
    pub distance: Distance,
    /// Pairs of pods whose tasks want to be together and are in two clusters, or apart and are in one.
    pub unmet: u64,
    /// Clusters in use.
    pub clusters: usize,
    /// Data locality: how much of the gang's data is missing in the clusters in use, in sum.
    pub data: i64,
    /// Declared cost, over the clusters in use.
    pub cost: i64,
    /// What pods prefer of nodes and do not get, over the clusters in use.
    pub unmet_preferences: UnmetPreferences,
    /// How much of what pods would pull is not there, over the clusters in use.
    pub missing_images: u64,
    /// What stays free where pods are put: the best fit leaves least.
    pub fragments: u64,
    /// Clusters that held nothing of it before.
    pub opened: usize,
}

/// Where new pods are put.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment {
    pub spots: Vec<Spot>,
    /// By spot, then task.
    pub pods: Pods,
}

impl Assignment {
    pub(super) fn placed_pods(&self) -> u64 {
        self.pods.iter().map(|pods| sum_pods(pods)).sum()
    }
}

impl SplitSearch<'_> {
    /// The key of using these spots, which include all that hold pods, with so many pods missing, where every pair is
    /// met.
    pub(super) fn objective_key(&self, spots: &[Spot], missing: u64) -> ObjectiveKey {
        ObjectiveKey {
            missing,
            distance: self.distance_between(spots),
            unmet: 0,
            clusters: spots.len(),
            data: spots.iter().map(|spot| self.sites[spot.site].data).fold(0, i64::saturating_add),
            cost: spots.iter().map(|spot| self.sites[spot.site].cost).fold(0, i64::saturating_add),
            unmet_preferences: spots
                .iter()
                .map(|spot| self.unmet_preferences_of(spot.site))
                .fold(UnmetPreferences::default(), UnmetPreferences::plus),
            missing_images: spots.iter().map(|spot| self.sites[spot.site].missing_images).fold(0, u64::saturating_add),
            fragments: spots.iter().map(|spot| self.bounds.weighted_free_amount(*spot)).fold(0, u64::saturating_add),
            opened: spots.iter().filter(|spot| !self.holds_pods(spot.site)).count(),
        }
    }

    /// [`Self::objective_key`] of one spot whose distance is known.
    pub(super) fn key_at(&self, distance: Distance, spot: Spot, missing: u64) -> ObjectiveKey {
        let (site, fragments) = (&self.sites[spot.site], self.bounds.weighted_free_amount(spot));
        let (data, cost, missing_images) = (site.data, site.cost, site.missing_images);
        let opened = usize::from(!self.holds_pods(spot.site));
        let unmet_preferences = self.unmet_preferences_of(spot.site);
        ObjectiveKey {
            missing,
            distance,
            unmet: 0,
            clusters: 1,
            data,
            cost,
            unmet_preferences,
            missing_images,
            fragments,
            opened,
        }
    }

    /// What the gang's pods prefer of nodes and do not get in a cluster; worked out once.
    pub(super) fn unmet_preferences_of(&self, site: usize) -> UnmetPreferences {
        let site = &self.sites[site];
        *site.unmet_preferences.get_or_init(|| self.requests.mean_unmet_preferences(site.capacity))
    }

    pub(super) fn distance_between(&self, spots: &[Spot]) -> Distance {
        let [spot] = spots else {
            let within = |group: &Vec<usize>| spots.iter().all(|spot| group.binary_search(&spot.site).is_ok());
            let level = self.levels.iter().position(|groups| groups.iter().any(within));
            return level.map_or(Distance::Far, Distance::Level);
        };
        let own = spot.domain.map(|domain| self.bounds.tier_of(spot.site, domain));
        own.or(self.sites[spot.site].domain.map(|domain| domain.tier)).map_or(Distance::Cluster, Distance::Domain)
    }
}
