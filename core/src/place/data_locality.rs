//! Data locality: clusters that have a workload's data come before others that would do as well.
//!
//! Rule: using a cluster costs the pieces that it has no copy of, by their sizes. That only orders what is possible:
//! data is never a reason to wait.

use super::Cluster;
use crate::data::{Data, DataPlace};

impl Cluster {
    /// How much of the data it has no copy of; 0 is best.
    #[must_use]
    pub fn missing_data(&self, data: &Data) -> i64 {
        data.sum_missing_sizes(|place| match place {
            DataPlace::Cluster(name) => *name == self.name,
            DataPlace::Region(region) => *region == self.region,
            DataPlace::Zone(zone) => self.zones.contains(zone),
            DataPlace::Provider(provider) => *provider == self.provider,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, region: &str) -> Cluster {
        Cluster { name: name.into(), region: region.into(), zones: vec![format!("{region}-a")], ..Cluster::default() }
    }

    #[test]
    fn a_cluster_lacks_the_pieces_that_it_has_no_copy_of_by_their_sizes() {
        let data: Data = "cluster=m1, region=eu|region=us : 20, zone=eu-a:3,provider=x:500".parse().unwrap();
        let missing = |name: &str, region: &str| cluster(name, region).missing_data(&data);
        assert_eq!([missing("m1", "eu"), missing("m2", "eu")], [500, 501]);
        assert_eq!([missing("m1", "us"), missing("m2", "asia")], [503, 524]);
        // One that says nothing of its region has nothing that is in one.
        assert_eq!(missing("m2", ""), 524);
    }
}
