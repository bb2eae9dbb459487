//! Data locality: clusters that have a workload's data come before others that would do as well.
//!
//! Rule: using a cluster costs the pieces that it has no copy of, and 1 for each claim that prefers what is not there.
//! Where each of these pieces says its size in bytes, and a declared link with a bandwidth leads from a cluster that
//! has it to each cluster that does not, a piece costs the seconds that it takes over the best of these links
//! ([`crate::split::FederationTopology`]). Else it costs its size, in all clusters alike: seconds and sizes can not be
//! compared. That only orders what is possible: what is preferred is never a reason to wait.

use std::fmt;

use super::{Binding, Cluster};
use crate::{
    declared_data::{DataPlace, Piece},
    gang::Gang,
};

/// What using each of some clusters costs, by the data that it has not; 0 is best.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataCosts {
    /// In the order of the clusters.
    pub of: Vec<i64>,
    /// What they count.
    pub unit: DataCostUnit,
}

/// What costs of data count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DataCostUnit {
    /// Seconds over declared links.
    Seconds,
    /// Sizes, which are not in bytes.
    #[default]
    Sizes,
    /// Sizes, since no link with a bandwidth is declared between the data and this cluster.
    SizesWithoutLink(String),
}

impl fmt::Display for DataCostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds => {
                f.write_str("data that is not there counts by the seconds that it takes over declared links")
            }
            Self::Sizes => f.write_str("data that is not there counts by its size"),
            Self::SizesWithoutLink(cluster) => write!(
                f,
                "data that is not there counts by its size: no link with a bandwidth is declared between it and \
                 {cluster}"
            ),
        }
    }
}

/// What data costs in each of these clusters, of what the gang says and of what its claims prefer. `all` are those that
/// may have it.
#[must_use]
pub fn compute_data_costs(gang: &Gang, binding: &Binding, clusters: &[&Cluster], all: &[&Cluster]) -> DataCosts {
    let claimed = |cluster: &Cluster| binding.data.as_ref().map_or(0, |claims| claims.count_missing(&cluster.name));
    let missing = |cluster: &&Cluster| -> Vec<&Piece> {
        let data = gang.data.iter();
        data.flat_map(|data| data.list_missing(|place| cluster.has_data(place))).collect()
    };
    let missing: Vec<Vec<&Piece>> = clusters.iter().map(missing).collect();
    let sum = |cost: &dyn Fn(&Cluster, &Piece) -> i64| -> Vec<i64> {
        let of = |(cluster, pieces): (&&Cluster, &Vec<&Piece>)| {
            pieces.iter().map(|piece| cost(cluster, piece)).fold(claimed(cluster), i64::saturating_add)
        };
        clusters.iter().zip(&missing).map(of).collect()
    };
    let in_bytes = missing.iter().flatten().next().is_some() && missing.iter().flatten().all(|piece| piece.in_bytes);
    if !in_bytes {
        return DataCosts { of: sum(&|_, piece| piece.size), unit: DataCostUnit::Sizes };
    }
    let unreached = clusters
        .iter()
        .zip(&missing)
        .find(|(cluster, pieces)| pieces.iter().any(|piece| cluster.seconds_to_fetch(piece, all).is_none()));
    match unreached {
        Some((cluster, _)) => {
            let unit = DataCostUnit::SizesWithoutLink(cluster.name.clone());
            DataCosts { of: sum(&|_, piece| piece.size), unit }
        }
        None => {
            let seconds = |cluster: &Cluster, piece: &Piece| cluster.seconds_to_fetch(piece, all).unwrap_or(i64::MAX);
            DataCosts { of: sum(&seconds), unit: DataCostUnit::Seconds }
        }
    }
}

impl Cluster {
    /// Whether it has what is in a place.
    #[must_use]
    pub fn has_data(&self, place: &DataPlace) -> bool {
        match place {
            DataPlace::Cluster(name) => *name == self.name,
            DataPlace::Region(region) => *region == self.region,
            DataPlace::Zone(zone) => self.zones.contains(zone),
            DataPlace::Provider(provider) => *provider == self.provider,
        }
    }

    /// Seconds that a piece takes over the best declared link from a cluster that has it, rounded up.
    fn seconds_to_fetch(&self, piece: &Piece, all: &[&Self]) -> Option<i64> {
        let has = |cluster: &&&Self| piece.places.iter().any(|place| cluster.has_data(place));
        let megabits = all.iter().filter(has).filter_map(|cluster| self.bandwidths.get(&cluster.name)).max()?;
        let bits = u128::from(piece.size.unsigned_abs()).saturating_mul(8);
        let a_second = u128::from(*megabits).saturating_mul(1_000_000).max(1);
        i64::try_from(bits.div_ceil(a_second)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::declared_data::Data;

    fn cluster(name: &str, region: &str, links: &[(&str, u64)]) -> Cluster {
        let links = links.iter().map(|(to, megabits)| ((*to).to_owned(), *megabits));
        Cluster {
            name: name.into(),
            region: region.into(),
            zones: vec![format!("{region}-a")],
            bandwidths: Arc::new(links.collect()),
            ..Cluster::default()
        }
    }

    fn costs(data: &str, clusters: &[&Cluster]) -> DataCosts {
        let data: Data = data.parse().unwrap();
        let gang = Gang { data: Some(Arc::new(data)), ..Gang::new(Vec::new(), 0) };
        compute_data_costs(&gang, &Binding::default(), clusters, clusters)
    }

    #[test]
    fn a_cluster_lacks_the_pieces_that_it_has_no_copy_of_by_their_sizes() {
        let data = "cluster=m1, region=eu|region=us : 20, zone=eu-a:3,provider=x:500";
        let missing = |name: &str, region: &str| costs(data, &[&cluster(name, region, &[])]).of[0];
        assert_eq!([missing("m1", "eu"), missing("m2", "eu")], [500, 501]);
        assert_eq!([missing("m1", "us"), missing("m2", "asia")], [503, 524]);
        // One that says nothing of its region has nothing that is in one.
        assert_eq!(missing("m2", ""), 524);
    }

    /// The larger piece is on the faster link.
    #[test]
    fn bytes_cost_seconds_over_the_best_declared_link() {
        let (a, b) = (cluster("a", "eu", &[]), cluster("b", "us", &[]));
        let near_a = cluster("near-a", "", &[("a", 100_000), ("b", 100)]);
        let near_b = cluster("near-b", "", &[("a", 1_000), ("b", 10_000)]);
        let all = [&a, &b, &near_a, &near_b];
        let gang = |data: &str| Gang { data: Some(Arc::new(data.parse().unwrap())), ..Gang::new(Vec::new(), 0) };
        let of = |data: &str| compute_data_costs(&gang(data), &Binding::default(), &[&near_a, &near_b], &all);
        let both = of("cluster=a:500G,region=us:10G");
        assert_eq!(both, DataCosts { of: vec![40 + 800, 4_000 + 8], unit: DataCostUnit::Seconds });
        // A copy in either: by the faster link.
        assert_eq!(of("cluster=a|cluster=b:10G").of, [1, 8]);
    }

    #[test]
    fn without_a_link_to_each_cluster_or_without_bytes_sizes_count() {
        let a = cluster("a", "", &[]);
        let (linked, not) = (cluster("linked", "", &[("a", 10)]), cluster("not", "", &[("other", 10)]));
        let costs = |data: &str| costs(data, &[&a, &linked, &not]);
        let size = 3 << 30;
        let unit = DataCostUnit::SizesWithoutLink("not".into());
        assert_eq!(costs("cluster=a:3Gi"), DataCosts { of: vec![0, size, size], unit });
        assert_eq!(costs("cluster=a:3"), DataCosts { of: vec![0, 3, 3], unit: DataCostUnit::Sizes });
        assert_eq!(costs("cluster=a:3Gi,cluster=a:3").unit, DataCostUnit::Sizes, "units are not told apart");
    }
}
