//! How close a gang's pods must be (`networkTopology`), as the domains of each cluster and the groups of clusters that
//! are close enough.
//!
//! Rule: mode `hard` with `highestTierAllowed` admits one HyperNode of that tier or a lower one; the whole cluster is
//! one tier above its highest HyperNode, as Volcano's root is. Tier numbers are each member's own, so that a number
//! reaches beyond a cluster only where a level says which number it has. `highestTierName` admits what its tier's
//! number does, in the clusters that have such a tier (Volcano drops a name that it does not know, and with it the
//! whole demand; here hard stays hard); the name of a level, or `cluster`, admits all that is closer. Mode `soft`
//! admits everything, and the closest is preferred.

use std::collections::BTreeSet;

use super::{SplitSearch, federation_topology::Level};
use crate::{
    gang::Topology,
    inventory::{Capacity, Source},
};

/// `highestTierName` for one whole cluster.
const CLUSTER: &str = "cluster";

/// What of one cluster is close enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AllowedTiers {
    /// The highest tier of its domains; `None` if domains are not looked at, or none is close enough.
    pub tier: Option<u32>,
    /// The whole cluster.
    pub cluster: bool,
}

impl AllowedTiers {
    pub(super) fn from_topology(topology: Option<&Topology>, capacity: &Capacity, levels: &[Level]) -> Self {
        let Some(topology) = topology else { return Self { tier: None, cluster: true } };
        let all = Self { tier: Some(u32::MAX), cluster: true };
        if !topology.hard {
            return all;
        }
        match (topology.highest_tier, topology.highest_tier_name.as_deref()) {
            (Some(highest), _) => {
                let far = levels.iter().any(|level| level.tier.is_some_and(|tier| tier <= highest));
                // Of a cluster whose nodes can not be read nobody knows which tiers it has.
                let known = capacity.source == Source::Nodes;
                Self { tier: Some(highest), cluster: far || (known && capacity.domains.cluster_tier() <= highest) }
            }
            (None, Some(name)) if name == CLUSTER || levels.iter().any(|level| level.name == name) => all,
            (None, Some(name)) => {
                let named = capacity.domains.iter().filter(|(_, domain)| *domain.tier_name == *name);
                Self { tier: named.map(|(_, domain)| domain.tier).min(), cluster: false }
            }
            (None, None) => all,
        }
    }
}

/// How many of the levels are close enough, from the near end; and whether clusters may be farther apart than all of
/// them.
fn count_admitted_levels(topology: Option<&Topology>, levels: &[Level]) -> (usize, bool) {
    let Some(topology) = topology.filter(|topology| topology.hard) else { return (levels.len(), true) };
    let last = match (topology.highest_tier, topology.highest_tier_name.as_deref()) {
        (Some(highest), _) => levels.iter().rposition(|level| level.tier.is_some_and(|tier| tier <= highest)),
        (None, Some(name)) => levels.iter().rposition(|level| level.name == name),
        (None, None) => return (levels.len(), true),
    };
    (last.map_or(0, |last| last + 1), false)
}

/// Groups of sites by level as far as they are close enough, and whether sites may be farther apart. `order` has each
/// site's place among the candidates.
pub(super) fn admitted_levels(
    topology: Option<&Topology>,
    levels: &[Level],
    order: &[usize],
) -> (Vec<Vec<Vec<usize>>>, bool) {
    let (count, far) = count_admitted_levels(topology, levels);
    if count == 0 {
        return (Vec::new(), far);
    }
    let mut site_of = vec![None; order.iter().max().map_or(0, |last| last + 1)];
    for (site, candidate) in order.iter().enumerate() {
        site_of[*candidate] = Some(site);
    }
    let group = |candidates: &Vec<u32>| {
        let site = |candidate: &u32| site_of.get(*candidate as usize).copied().flatten();
        let mut sites: Vec<usize> = candidates.iter().filter_map(site).collect();
        sites.sort_unstable();
        sites
    };
    let groups = |level: &Level| {
        let mut groups: Vec<Vec<usize>> = level.groups.iter().map(group).filter(|sites| sites.len() > 1).collect();
        groups.sort_unstable();
        groups
    };
    (levels[..count].iter().map(groups).collect(), far)
}

impl SplitSearch<'_> {
    /// The tiers of the clusters and between them, from near to far, where none of them is close enough: more capacity
    /// would not help. Domains of clusters whose nodes can not be read are not known.
    pub(super) fn list_tiers_if_none_is_allowed(&self) -> Option<Vec<String>> {
        let domains = || self.sites.iter().flat_map(|site| site.capacity.domains.iter().map(|(_, domain)| domain));
        let has_allowed = self.sites.iter().any(|site| {
            let has_domain = |tier| site.capacity.domains.iter().any(|(_, domain)| domain.tier <= tier);
            site.reach.cluster || site.reach.tier.is_some_and(has_domain)
        });
        if self.far || !self.levels.is_empty() || has_allowed {
            return None;
        }
        let within: BTreeSet<(u32, &str)> = domains().map(|domain| (domain.tier, &*domain.tier_name)).collect();
        let describe =
            |tier: u32, name: &str| if name.is_empty() { tier.to_string() } else { format!("{name} ({tier})") };
        let levels = self.all_levels.iter().map(|level| match level.tier {
            Some(tier) => describe(tier, &level.name),
            None => level.name.clone(),
        });
        let within = within.into_iter().map(|(tier, name)| describe(tier, name));
        Some(within.chain([CLUSTER.to_owned()]).chain(levels).collect())
    }
}
