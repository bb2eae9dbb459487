//! How close clusters are to each other: levels from near to far, each a list of groups.
//!
//! Where an admin declares links ([`FederationTopology`]) a level's groups are sets of clusters any two of which have a link that
//! is good enough. Regions and providers make groups of their own (`place`).

use std::collections::BTreeSet;

use crate::gang::ClusterName;

/// Clusters that are close to each other, one way or another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// `highestTierName` that admits it.
    pub name: String,
    /// `highestTierAllowed` from which on it is admitted; `None` where no number was declared. Numbers grow with the levels.
    pub tier: Option<u32>,
    /// Places among the candidates. Groups may overlap; who is in none is close to nobody.
    pub groups: Vec<Vec<u32>>,
}

/// Links between clusters, as declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FederationTopology {
    /// What makes clusters close, from near to far.
    pub tiers: Vec<LinkTier>,
    /// Links; of several between two clusters the best counts.
    pub links: Vec<Link>,
}

/// A tier above the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkTier {
    /// As in [`Level::name`].
    pub name: String,
    /// As in [`Level::tier`].
    pub tier: Option<u32>,
    /// Microseconds that a link may take at most.
    pub most_latency: Option<u64>,
    /// Megabits a second that a link must carry at least.
    pub least_bandwidth: Option<u64>,
}

/// A link between each of some clusters and each of others; between any two of one group where both are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Clusters at one end.
    pub from: Vec<ClusterName>,
    /// Clusters at the other.
    pub to: Vec<ClusterName>,
    /// Microseconds one way.
    pub latency: u64,
    /// Megabits a second.
    pub bandwidth: u64,
}

impl LinkTier {
    fn admits(&self, link: &Link) -> bool {
        self.most_latency.is_none_or(|most| link.latency <= most)
            && self.least_bandwidth.is_none_or(|least| link.bandwidth >= least)
    }
}

impl FederationTopology {
    /// The levels that the links make among these candidates. From each cluster a group is grown by the others in the order of
    /// their names, as long as each new one is close to all that are in it: for links that make groups (any two of which are
    /// close or apart) those are the groups, for others no group is too large.
    #[must_use]
    pub fn levels(&self, candidates: &[&ClusterName]) -> Vec<Level> {
        let place = |name: &ClusterName| candidates.iter().position(|known| *known == name);
        let places = |names: &[ClusterName]| names.iter().filter_map(place).collect::<Vec<usize>>();
        let ends: Vec<(Vec<usize>, Vec<usize>)> =
            self.links.iter().map(|link| (places(&link.from), places(&link.to))).collect();
        let mut by_name: Vec<usize> = (0..candidates.len()).collect();
        by_name.sort_by_key(|at| candidates[*at]);
        let level = |tier: &LinkTier| {
            let mut close: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); candidates.len()];
            for (_, (from, to)) in self.links.iter().zip(&ends).filter(|(link, _)| tier.admits(link)) {
                for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b) {
                    close[a].insert(b);
                    close[b].insert(a);
                }
            }
            let groups: BTreeSet<Vec<u32>> = by_name.iter().filter_map(|seed| grown(*seed, &by_name, &close)).collect();
            Level { name: tier.name.clone(), tier: tier.tier, groups: groups.into_iter().collect() }
        };
        self.tiers.iter().map(level).collect()
    }
}

fn grown(seed: usize, by_name: &[usize], close: &[BTreeSet<usize>]) -> Option<Vec<u32>> {
    let mut group = vec![seed];
    for other in by_name.iter().filter(|other| close[seed].contains(other)) {
        if group.iter().all(|member| close[*member].contains(other)) {
            group.push(*other);
        }
    }
    group.sort_unstable();
    (group.len() > 1).then(|| group.into_iter().filter_map(|at| u32::try_from(at).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<ClusterName> {
        of.iter().map(|name| ClusterName::from(*name)).collect()
    }

    #[test]
    fn links_make_groups_in_which_any_two_are_close() {
        let link =
            |from: &[&str], to: &[&str], latency| Link { from: names(from), to: names(to), latency, bandwidth: 100 };
        let topology = FederationTopology {
            tiers: vec![
                LinkTier { name: "campus".into(), most_latency: Some(10), ..LinkTier::default() },
                LinkTier { name: "metro".into(), most_latency: Some(100), least_bandwidth: Some(100), tier: Some(7) },
            ],
            links: vec![
                link(&["a", "b"], &["a", "b"], 5),
                link(&["b"], &["c"], 50),
                link(&["c", "d"], &["c", "d"], 50),
            ],
        };
        let all = names(&["d", "c", "b", "a"]);
        let levels = topology.levels(&all.iter().collect::<Vec<_>>());
        assert_eq!(levels[0].groups, [[2, 3]]);
        // b is close to a and to c, but a and c are not close.
        assert_eq!(levels[1].groups, [[0, 1], [1, 2], [2, 3]].map(Vec::from)[..]);
        assert_eq!((levels[1].name.as_str(), levels[1].tier), ("metro", Some(7)));
    }
}
