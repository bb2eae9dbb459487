//! Data locality: clusters that have a workload's data come before others that would do as well.
//!
//! Rule: using a cluster costs the pieces that it has no copy of, by their sizes, and 1 for each claim that prefers
//! what is not there. That only orders what is possible: what is preferred is never a reason to wait.

use super::{Binding, Cluster};
use crate::{
    declared_data::{Data, DataPlace},
    gang::Gang,
};

impl Cluster {
    /// How much of the data it has no copy of, of what the gang says and of what its claims prefer; 0 is best.
    #[must_use]
    pub fn count_missing_data(&self, gang: &Gang, binding: &Binding) -> i64 {
        let said = gang.data.as_ref().map_or(0, |data| self.count_missing_pieces(data));
        let claimed = binding.data.as_ref().map_or(0, |claims| claims.count_missing(&self.name));
        said.saturating_add(claimed)
    }

    fn count_missing_pieces(&self, data: &Data) -> i64 {
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
        let missing = |name: &str, region: &str| cluster(name, region).count_missing_pieces(&data);
        assert_eq!([missing("m1", "eu"), missing("m2", "eu")], [500, 501]);
        assert_eq!([missing("m1", "us"), missing("m2", "asia")], [503, 524]);
        // One that says nothing of its region has nothing that is in one.
        assert_eq!(missing("m2", ""), 524);
    }
}
