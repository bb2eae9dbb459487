//! Links between clusters that were measured, beside those that admins declare.
//!
//! Rule: a declared value wins. Of two clusters with a link whose latency is declared no measured latency counts, and
//! the same holds for bandwidth. What is not declared is taken from what both ends measured: of two values the worse,
//! for a gang is as slow as its slowest way; where one end alone measured, its value.

use std::collections::{BTreeMap, BTreeSet};

use super::{FederationTopology, Link};
use crate::gang::ClusterName;

/// Links that count of those that one cluster measured.
pub const MOST_MEASURED_LINKS: usize = 1_024;

/// What one cluster measured of its way to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredLink {
    /// The other.
    pub to: ClusterName,
    /// Microseconds one way.
    pub latency: Option<u64>,
    /// Megabits a second.
    pub bandwidth: Option<u64>,
}

/// A latency and a bandwidth, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
struct LinkValues {
    latency: Option<u64>,
    bandwidth: Option<u64>,
}

impl LinkValues {
    /// Of both the worse.
    fn add_measured(&mut self, link: &MeasuredLink) {
        self.latency = self.latency.into_iter().chain(link.latency).max();
        self.bandwidth = self.bandwidth.into_iter().chain(link.bandwidth.filter(|bandwidth| *bandwidth > 0)).min();
    }

    /// Of both the better, as of several declared links one that is good enough is sufficient.
    fn add_declared(&mut self, link: &Link) {
        self.latency = self.latency.into_iter().chain((link.latency < u64::MAX).then_some(link.latency)).min();
        self.bandwidth = self.bandwidth.into_iter().chain((link.bandwidth > 0).then_some(link.bandwidth)).max();
    }
}

/// The links that are declared, and one more for each two clusters of which something was measured that nobody
/// declared.
#[must_use]
pub fn add_measured_links(
    declared: &FederationTopology,
    measured: &BTreeMap<ClusterName, Vec<MeasuredLink>>,
) -> FederationTopology {
    let mut pairs: BTreeMap<(&ClusterName, &ClusterName), LinkValues> = BTreeMap::new();
    for (from, links) in measured {
        for link in links.iter().take(MOST_MEASURED_LINKS).filter(|link| link.to != *from) {
            let pair = (from.min(&link.to), from.max(&link.to));
            pairs.entry(pair).or_default().add_measured(link);
        }
    }
    let known = list_declared_values(declared, &pairs);
    let mut all = declared.clone();
    all.links.extend(pairs.into_iter().filter_map(|(pair, values)| {
        let said = known.get(&pair).copied().unwrap_or_default();
        let adds = (said.latency.is_none() && values.latency.is_some())
            || (said.bandwidth.is_none() && values.bandwidth.is_some());
        adds.then(|| Link {
            from: vec![pair.0.clone()],
            to: vec![pair.1.clone()],
            latency: said.latency.or(values.latency).unwrap_or(u64::MAX),
            bandwidth: said.bandwidth.or(values.bandwidth).unwrap_or(0),
        })
    }));
    all
}

/// What is declared of these pairs. Each end of a link is first cut to the clusters of pairs.
fn list_declared_values<'a>(
    declared: &FederationTopology,
    pairs: &BTreeMap<(&'a ClusterName, &'a ClusterName), LinkValues>,
) -> BTreeMap<(&'a ClusterName, &'a ClusterName), LinkValues> {
    let clusters: BTreeSet<&ClusterName> = pairs.keys().flat_map(|(one, other)| [*one, *other]).collect();
    let mut known: BTreeMap<(&ClusterName, &ClusterName), LinkValues> = BTreeMap::new();
    for link in &declared.links {
        let ends = |of: &[ClusterName]| -> BTreeSet<&'a ClusterName> {
            of.iter().filter_map(|name| clusters.get(name).copied()).collect()
        };
        let (from, to) = (ends(&link.from), ends(&link.to));
        for one in &from {
            for other in to.iter().filter(|other| *other != one) {
                known.entry((*one.min(other), *one.max(other))).or_default().add_declared(link);
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<ClusterName> {
        of.iter().map(|name| ClusterName::from(*name)).collect()
    }

    fn link(from: &[&str], to: &[&str], latency: u64, bandwidth: u64) -> Link {
        Link { from: names(from), to: names(to), latency, bandwidth }
    }

    type Measured<'a> = (&'a str, &'a str, Option<u64>, Option<u64>);

    fn merge(declared: Vec<Link>, measured: &[Measured<'_>]) -> Vec<(String, u64, u64)> {
        let mut by_cluster: BTreeMap<ClusterName, Vec<MeasuredLink>> = BTreeMap::new();
        for (from, to, latency, bandwidth) in measured {
            let link = MeasuredLink { to: (*to).into(), latency: *latency, bandwidth: *bandwidth };
            by_cluster.entry((*from).into()).or_default().push(link);
        }
        let before = declared.len();
        let all = add_measured_links(&FederationTopology { tiers: Vec::new(), links: declared }, &by_cluster);
        let show = |link: &Link| (format!("{}-{}", link.from[0], link.to[0]), link.latency, link.bandwidth);
        all.links[before..].iter().map(show).collect()
    }

    #[test]
    fn of_what_both_ends_measured_the_worse_counts_and_of_one_end_what_it_says() {
        let measured = [
            ("a", "b", Some(200), Some(900)),
            ("b", "a", Some(300), Some(1_000)),
            ("c", "a", Some(50), None),
            ("c", "c", Some(1), Some(1)),
            ("c", "b", None, None),
        ];
        let found = merge(Vec::new(), &measured);
        assert_eq!(found, [("a-b".to_owned(), 300, 900), ("a-c".to_owned(), 50, 0)]);
    }

    #[test]
    fn a_declared_value_wins_and_what_is_not_declared_is_filled_in() {
        let declared = vec![
            link(&["a", "b"], &["a", "b"], 5, 0),
            link(&["c"], &["b"], u64::MAX, 40),
            link(&["a"], &["c", "gone"], 7, 70),
        ];
        let measured =
            [("a", "b", Some(200), Some(900)), ("b", "c", Some(300), Some(800)), ("c", "a", Some(1), Some(100_000))];
        let found = merge(declared, &measured);
        assert_eq!(found, [("a-b".to_owned(), 5, 900), ("b-c".to_owned(), 300, 40)]);
    }

    #[test]
    fn a_bandwidth_of_nothing_is_none_and_a_cluster_that_lists_too_many_is_cut() {
        assert_eq!(merge(Vec::new(), &[("a", "b", None, Some(0))]), []);
        let many: Vec<String> = (0..3_000).map(|at| format!("m{at:04}")).collect();
        let measured: Vec<Measured<'_>> = many.iter().map(|to| ("a", to.as_str(), Some(1), None)).collect();
        assert_eq!(merge(Vec::new(), &measured).len(), MOST_MEASURED_LINKS);
    }
}
