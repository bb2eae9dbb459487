//! Which pods go of a placed gang that asks for less.
//!
//! Rule: with strategy Aggregated the pods of the cluster that holds fewest go first, so that clusters become empty.
//! With any other strategy each cluster keeps its part of what is left, in proportion to what it holds (Webster).
//! Partitioned tasks are never cut: callers ask for at least what is placed of them.

use std::cmp::Reverse;

use super::{Strategy, sum_pods};
use crate::{
    gang::ClusterName,
    webster::{Tie, divide_seats},
};

/// Cuts a placed gang down to `wanted` pods of each task: from the smallest parts, or by weight from all. `placed` is
/// by site (in the order of `names`, which is the alphabet's), then task. This is what [`super::split_gang`] keeps of a
/// gang that asks for less than it holds, so that others can tell beforehand where the pods will go. Partitioned tasks
/// are never cut: callers want at least as much of them as is placed.
pub fn scale_down(strategy: Strategy, tie: Tie, names: &[&ClusterName], wanted: &[u32], placed: &mut [Vec<u32>]) {
    for (task, wanted) in wanted.iter().enumerate() {
        let held: u64 = placed.iter().map(|site| u64::from(site[task])).sum();
        let mut over = held.saturating_sub(u64::from(*wanted));
        if over == 0 {
            continue;
        }
        if strategy == Strategy::Aggregated {
            let mut sites: Vec<usize> = (0..placed.len()).filter(|site| placed[*site][task] > 0).collect();
            sites.sort_by(|a, b| (sum_pods(&placed[*a]), Reverse(*a)).cmp(&(sum_pods(&placed[*b]), Reverse(*b))));
            for site in sites {
                let less = u32::try_from(over).unwrap_or(u32::MAX).min(placed[site][task]);
                placed[site][task] -= less;
                over -= u64::from(less);
            }
        } else {
            let claims: Vec<(u64, &ClusterName)> =
                placed.iter().zip(names).map(|(site, name)| (u64::from(site[task]), *name)).collect();
            for (site, seats) in divide_seats(u64::from(*wanted), &claims, tie).into_iter().enumerate() {
                placed[site][task] = u32::try_from(seats).unwrap_or(u32::MAX);
            }
        }
    }
}
