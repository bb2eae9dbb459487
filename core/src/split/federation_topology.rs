//! How close clusters are to each other: levels from near to far, each a list of groups.
//!
//! Where an admin declares links, in a [`FederationTopology`], any two clusters of a group have a link that is good
//! enough for the level. Groups are grown from each cluster in the order of names, and none can be enlarged. Levels of
//! regions and providers are made in `place`.

use std::collections::{BTreeMap, BTreeSet};

use crate::gang::ClusterName;

/// Clusters that are close to each other, one way or another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// `highestTierName` that admits it.
    pub name: String,
    /// `highestTierAllowed` from which on it is admitted; `None` where no number was declared. Numbers grow with the
    /// levels.
    pub tier: Option<u32>,
    /// Places among the candidates. Groups may overlap. A cluster in no group is close to no other cluster.
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
    fn admits_link(&self, link: &Link) -> bool {
        self.most_latency.is_none_or(|most| link.latency <= most)
            && self.least_bandwidth.is_none_or(|least| link.bandwidth >= least)
    }
}

/// A tier with the groups that its links make: worked out when clusters or links change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedGroups {
    /// As in [`Level::name`].
    pub name: String,
    /// As in [`Level::tier`].
    pub tier: Option<u32>,
    /// Clusters that are all close to each other.
    pub groups: Vec<Vec<ClusterName>>,
}

impl FederationTopology {
    /// The groups that the links make among these clusters, tier by tier. From each cluster a group is grown by the
    /// others in the order of their names, as long as each new one is close to all that are in it: for links that make
    /// groups (any two of which are close or apart) those are the groups, for others no group is too large.
    #[must_use]
    pub fn group_by_links(&self, clusters: &[&ClusterName]) -> Vec<LinkedGroups> {
        let mut names: Vec<&ClusterName> = clusters.to_vec();
        names.sort_unstable();
        names.dedup();
        let set = |of: &[ClusterName]| {
            let places = of.iter().filter_map(|name| names.binary_search(&name).ok());
            places.fold(BitSet::of(names.len()), BitSet::with)
        };
        let ends: Vec<(BitSet, BitSet)> = self.links.iter().map(|link| (set(&link.from), set(&link.to))).collect();
        let near = |tier: &LinkTier| {
            let mut close: Vec<BitSet> = (0..names.len()).map(|at| BitSet::of(names.len()).with(at)).collect();
            for (_, (from, to)) in self.links.iter().zip(&ends).filter(|(link, _)| tier.admits_link(link)) {
                from.iter().for_each(|at| close[at].union_with(to));
                to.iter().for_each(|at| close[at].union_with(from));
            }
            let groups: BTreeSet<Vec<usize>> = (0..names.len()).filter_map(|seed| grow_group(seed, &close)).collect();
            let named = |group: Vec<usize>| group.into_iter().map(|at| names[at].clone()).collect();
            LinkedGroups { name: tier.name.clone(), tier: tier.tier, groups: groups.into_iter().map(named).collect() }
        };
        self.tiers.iter().map(near).collect()
    }
}

impl FederationTopology {
    /// The best bandwidth from each of these clusters to each other, in megabits a second, where one is declared.
    #[must_use]
    pub fn list_bandwidths(&self, clusters: &[&ClusterName]) -> BTreeMap<String, BTreeMap<String, u64>> {
        let known: BTreeSet<&ClusterName> = clusters.iter().copied().collect();
        let mut best: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for link in self.links.iter().filter(|link| link.bandwidth > 0) {
            let ends = |of: &[ClusterName]| -> BTreeSet<&ClusterName> {
                of.iter().filter_map(|name| known.get(name).copied()).collect()
            };
            let (from, to) = (ends(&link.from), ends(&link.to));
            let pairs = from.iter().flat_map(|one| to.iter().map(move |other| (*one, *other)));
            for (one, other) in pairs.filter(|(one, other)| one != other) {
                for (here, there) in [(one, other), (other, one)] {
                    let of = best.entry(here.to_string()).or_default();
                    let known = of.entry(there.to_string()).or_default();
                    *known = link.bandwidth.max(*known);
                }
            }
        }
        best
    }
}

impl LinkedGroups {
    /// The same among these candidates, by their places.
    #[must_use]
    pub fn to_levels(tiers: &[Self], candidates: &[&ClusterName]) -> Vec<Level> {
        let places: BTreeMap<&ClusterName, u32> = candidates.iter().copied().zip(0..).collect();
        let group = |names: &Vec<ClusterName>| names.iter().filter_map(|name| places.get(name).copied()).collect();
        let level = |near: &Self| {
            let groups = near.groups.iter().map(group).filter(|group: &Vec<u32>| group.len() > 1).collect();
            Level { name: near.name.clone(), tier: near.tier, groups }
        };
        tiers.iter().map(level).collect()
    }
}

fn grow_group(seed: usize, close: &[BitSet]) -> Option<Vec<usize>> {
    let mut group = vec![seed];
    let mut to_all = close[seed].clone();
    for other in close[seed].iter().filter(|other| *other != seed) {
        if to_all.has(other) {
            to_all.intersect_with(&close[other]);
            group.push(other);
        }
    }
    group.sort_unstable();
    (group.len() > 1).then_some(group)
}

/// Some of a number of things, a bit for each.
#[derive(Debug, Clone)]
struct BitSet(Vec<u64>);

impl BitSet {
    fn of(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn with(mut self, at: usize) -> Self {
        self.0[at / 64] |= 1 << (at % 64);
        self
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn union_with(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= other);
    }

    fn intersect_with(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one &= other);
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|at| self.has(*at))
    }
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
        let all: Vec<&ClusterName> = all.iter().collect();
        let near = topology.group_by_links(&all);
        let levels = LinkedGroups::to_levels(&near, &all);
        assert_eq!(levels[0].groups, [[3, 2]]);
        // b is close to a and to c, but a and c are not close.
        assert_eq!(levels[1].groups, [[3, 2], [2, 1], [1, 0]].map(Vec::from)[..]);
        // Who is no candidate is left out, and its group with it.
        assert_eq!(LinkedGroups::to_levels(&near, &all[..2])[1].groups, [[1, 0]]);
        assert_eq!((levels[1].name.as_str(), levels[1].tier), ("metro", Some(7)));
    }

    #[test]
    fn of_several_links_the_best_bandwidth_counts_both_ways() {
        let link =
            |from: &[&str], to: &[&str], bandwidth| Link { from: names(from), to: names(to), latency: 1, bandwidth };
        let links = vec![
            link(&["a", "b"], &["a", "b"], 10),
            link(&["b"], &["a"], 40),
            link(&["a"], &["c", "gone"], 5),
            link(&["b"], &["c"], 0),
        ];
        let all = names(&["a", "b", "c"]);
        let found = FederationTopology { tiers: Vec::new(), links }.list_bandwidths(&all.iter().collect::<Vec<_>>());
        let shown: Vec<String> = found.iter().map(|(name, to)| format!("{name}: {to:?}")).collect();
        assert_eq!(shown, [r#"a: {"b": 40, "c": 5}"#, r#"b: {"a": 40}"#, r#"c: {"a": 5}"#]);
    }

    proptest::proptest! {
        /// In a group any two are close, who is close to all of a group is in it, and who has a link is in some group.
        #[test]
        fn groups_are_as_large_as_they_can_be(
            links in proptest::collection::vec((0..70usize, 0..70usize), 0..120),
        ) {
            let all: Vec<ClusterName> = (0..70).map(|at| ClusterName::from(format!("m{at:02}"))).collect();
            let one = |(a, b): &(usize, usize)| Link { from: vec![all[*a].clone()], to: vec![all[*b].clone()], ..Link::default() };
            let topology = FederationTopology { tiers: vec![LinkTier::default()], links: links.iter().map(one).collect() };
            let near = topology.group_by_links(&all.iter().collect::<Vec<_>>()).remove(0);
            let place = |name: &ClusterName| all.iter().position(|known| known == name).unwrap();
            let close = |a: usize, b: usize| a == b || links.contains(&(a, b)) || links.contains(&(b, a));
            let groups: Vec<Vec<usize>> = near.groups.iter().map(|group| group.iter().map(place).collect()).collect();
            for group in &groups {
                proptest::prop_assert!(group.iter().all(|a| group.iter().all(|b| close(*a, *b))));
                let more = (0..70).any(|other| !group.contains(&other) && group.iter().all(|member| close(*member, other)));
                proptest::prop_assert!(!more, "{:?} could be larger", group);
            }
            for at in links.iter().filter(|(a, b)| a != b).flat_map(|(a, b)| [a, b]) {
                proptest::prop_assert!(groups.iter().any(|group| group.contains(at)));
            }
        }
    }
}
