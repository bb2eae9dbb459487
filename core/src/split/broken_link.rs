//! Whether a link between clusters keeps them from being as close as a gang asks for.
//!
//! Rule: of the tiers that links make those count that a `hard` demand admits. Two clusters are too far apart if there
//! is a link between them, and every such link is known to be worse than each of these tiers. What nobody declared or
//! measured is neither near nor far: a collector that is gone moves nobody.

use super::{FederationTopology, Link, LinkTier};
use crate::gang::{ClusterName, Topology};

/// Two clusters that are too far apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLink {
    /// One.
    pub from: ClusterName,
    /// The other.
    pub to: ClusterName,
    /// How, in words: `has a latency of 80000 us, and tier dc allows 5000 us`.
    pub why: String,
}

impl FederationTopology {
    /// The first two of these clusters that are known to be too far apart for a gang.
    #[must_use]
    pub fn find_broken_link(&self, topology: &Topology, clusters: &[ClusterName]) -> Option<BrokenLink> {
        let admitted = self.list_admitted_tiers(topology);
        let widest = admitted.last()?;
        let pairs =
            clusters.iter().enumerate().flat_map(|(at, one)| clusters[at + 1..].iter().map(move |two| (one, two)));
        pairs.into_iter().find_map(|(one, two)| {
            let mut links = self.links.iter().filter(|link| link.joins(one, two)).peekable();
            let first = *links.peek()?;
            let is_too_bad = |link: &Link| admitted.iter().all(|tier| tier.find_fault(link).is_some());
            let why = links.all(is_too_bad).then(|| widest.find_fault(first))??;
            Some(BrokenLink { from: one.clone(), to: two.clone(), why })
        })
    }

    /// From near to far; none for a demand that does not speak of these tiers.
    fn list_admitted_tiers(&self, topology: &Topology) -> &[LinkTier] {
        let last = match (topology.highest_tier, topology.highest_tier_name.as_deref()) {
            _ if !topology.hard => None,
            (Some(highest), _) => self.tiers.iter().rposition(|tier| tier.tier.is_some_and(|tier| tier <= highest)),
            (None, Some(name)) => self.tiers.iter().rposition(|tier| tier.name == name),
            (None, None) => None,
        };
        last.map_or(&[], |last| &self.tiers[..=last])
    }
}

impl Link {
    fn joins(&self, one: &ClusterName, two: &ClusterName) -> bool {
        (self.from.contains(one) && self.to.contains(two)) || (self.from.contains(two) && self.to.contains(one))
    }
}

impl LinkTier {
    /// What of a link is known to be worse than this tier allows.
    fn find_fault(&self, link: &Link) -> Option<String> {
        let latency = self.most_latency.filter(|most| link.latency < u64::MAX && link.latency > *most);
        let bandwidth = self.least_bandwidth.filter(|least| link.bandwidth > 0 && link.bandwidth < *least);
        match (latency, bandwidth) {
            (Some(most), _) => {
                Some(format!("has a latency of {} us, and tier {} allows {most} us", link.latency, self.name))
            }
            (None, Some(least)) => {
                Some(format!("carries {} Mbit/s, and tier {} asks for {least} Mbit/s", link.bandwidth, self.name))
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(name: &str, tier: u32, most_latency: Option<u64>, least_bandwidth: Option<u64>) -> LinkTier {
        LinkTier { name: name.into(), tier: Some(tier), most_latency, least_bandwidth }
    }

    fn link(from: &str, to: &str, latency: u64, bandwidth: u64) -> Link {
        Link { from: vec![from.into()], to: vec![to.into()], latency, bandwidth }
    }

    fn hard(highest_tier: Option<u32>, name: Option<&str>) -> Topology {
        Topology { hard: true, highest_tier, highest_tier_name: name.map(Into::into) }
    }

    fn why(links: &[Link], topology: &Topology) -> Option<String> {
        let tiers = vec![tier("campus", 3, Some(500), Some(100_000)), tier("metro", 4, Some(5_000), Some(10_000))];
        let links = FederationTopology { tiers, links: links.to_vec() };
        let broken = links.find_broken_link(topology, &["a", "b", "c"].map(ClusterName::from))?;
        Some(format!("{}-{} {}", broken.from, broken.to, broken.why))
    }

    #[test]
    fn a_link_that_is_worse_than_every_tier_that_is_allowed_is_broken() {
        let links = [link("a", "b", 80_000, 10_000), link("b", "c", 100, 100_000), link("c", "a", 100, 100_000)];
        let told = "a-b has a latency of 80000 us, and tier metro allows 5000 us";
        assert_eq!(why(&links, &hard(Some(4), None)).as_deref(), Some(told));
        assert_eq!(why(&links, &hard(None, Some("metro"))).as_deref(), Some(told));
        let narrow = [link("a", "b", 100, 9_999)];
        let told = "a-b carries 9999 Mbit/s, and tier metro asks for 10000 Mbit/s";
        assert_eq!(why(&narrow, &hard(Some(4), None)).as_deref(), Some(told));
        // Good enough for the wider tier.
        assert_eq!(why(&[link("a", "b", 4_000, 10_000)], &hard(Some(4), None)), None);
        assert!(why(&[link("a", "b", 4_000, 10_000)], &hard(Some(3), None)).is_some());
    }

    #[test]
    fn what_is_not_known_is_not_broken() {
        assert_eq!(why(&[], &hard(Some(4), None)), None);
        assert_eq!(why(&[link("a", "b", u64::MAX, 0)], &hard(Some(4), None)), None);
        assert_eq!(why(&[link("a", "b", 80_000, 0), link("b", "a", u64::MAX, 0)], &hard(Some(4), None)), None);
    }

    #[test]
    fn a_demand_that_names_no_tier_of_links_breaks_at_none() {
        let far = [link("a", "b", 80_000, 1)];
        let soft = Topology { hard: false, ..hard(Some(4), None) };
        for topology in [soft, hard(Some(1), None), hard(None, Some("region")), hard(None, None)] {
            assert_eq!(why(&far, &topology), None, "{topology:?}");
        }
    }
}
