//! Which clusters are close to each other.
//!
//! Rule: by declared links first, then by region, then by provider.

use std::collections::BTreeMap;

use crate::{
    gang::ClusterName,
    place::Cluster,
    split::{Level, LinkedGroups},
};

/// Clusters with a declared link are close, those of one region less so, those of one provider still less.
pub(super) fn build_closeness_levels<'a>(
    near: &[LinkedGroups],
    clusters: impl Iterator<Item = (&'a ClusterName, &'a Cluster)>,
) -> Vec<Level> {
    let mut by: [BTreeMap<&str, Vec<u32>>; 2] = Default::default();
    let mut names = Vec::new();
    for (place, (name, cluster)) in (0..).zip(clusters) {
        names.push(name);
        for (groups, name) in by.iter_mut().zip([&cluster.region, &cluster.provider]) {
            if !name.is_empty() {
                groups.entry(name).or_default().push(place);
            }
        }
    }
    let level = |(name, groups): (&str, BTreeMap<&str, Vec<u32>>)| Level {
        name: name.to_owned(),
        tier: None,
        groups: groups.into_values().collect(),
    };
    let mut levels = if near.is_empty() { Vec::new() } else { LinkedGroups::to_levels(near, &names) };
    levels.extend(["region", "provider"].into_iter().zip(by).map(level));
    levels
}
