//! What an eviction would free, before it is made, and whether pods of a workload are still on nodes after one.
//!
//! Rule: of an evicted binding all pods count as gone, or so many of each task and cluster. Pods that are assumed and
//! not seen yet go first, then pods on nodes. What other bindings are assumed to hold stays taken. Whether pods of a
//! workload are on nodes, reached nodes or have all finished is read from the inventories; for a member that can not be
//! read no pods are counted, and those that were seen on nodes before still run.

use std::collections::{BTreeMap, BTreeSet};

use super::{AssumedEntry, Fleet, FleetMember, count_seen_pods};
use crate::{
    gang::WorkloadRef,
    inventory::{Capacity, RemovedPods},
};

/// Pods of a binding that are treated as removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictedPods {
    /// All of them.
    All,
    /// So many of each task (as in the gang) by cluster.
    Some(BTreeMap<String, Vec<u32>>),
}

impl Fleet {
    /// What would be free, in the clusters that this changes, if pods of these bindings were gone: all of them, or so
    /// many of each task by cluster.
    #[must_use]
    pub fn compute_capacities_after_eviction(
        &self,
        gone: &BTreeMap<String, EvictedPods>,
    ) -> BTreeMap<String, Capacity> {
        let mut touched: BTreeSet<&str> = BTreeSet::new();
        for (key, leaving) in gone {
            let Some(AssumedEntry { assumed, .. }) = self.entries.get(key) else { continue };
            let there = |name: &&String| match leaving {
                EvictedPods::All => true,
                EvictedPods::Some(pods) => pods.contains_key(*name),
            };
            touched.extend(assumed.pods.keys().filter(there).map(String::as_str));
        }
        let after = |name: &str| {
            Some((name.to_owned(), self.compute_member_capacity_after_eviction(name, self.members.get(name)?, gone)))
        };
        touched.into_iter().filter_map(after).collect()
    }

    fn compute_member_capacity_after_eviction(
        &self,
        name: &str,
        member: &FleetMember,
        gone: &BTreeMap<String, EvictedPods>,
    ) -> Capacity {
        let mut leaving: BTreeMap<&WorkloadRef, RemovedPods> = BTreeMap::new();
        let mut unseen: Vec<(&AssumedEntry, Vec<u32>)> = Vec::new();
        for key in &member.assumed_keys {
            let Some(entry @ AssumedEntry { assumed, .. }) = self.entries.get(key) else { continue };
            let Some(planned) = assumed.pods.get(name) else { continue };
            let seen = count_seen_pods(member, assumed);
            let mut left: Vec<u32> = planned.iter().zip(&seen).map(|(plan, seen)| plan.saturating_sub(*seen)).collect();
            let less = match gone.get(key) {
                None => None,
                Some(EvictedPods::All) => {
                    leaving.insert(&assumed.workload, RemovedPods::All);
                    continue;
                }
                Some(EvictedPods::Some(pods)) => pods.get(name),
            };
            if let Some(less) = less {
                // First those that are not there yet.
                let mut bound = BTreeMap::new();
                for ((task, left), less) in assumed.gang.tasks.iter().zip(&mut left).zip(less) {
                    let there = less.saturating_sub(*left);
                    *left = left.saturating_sub(*less);
                    bound.insert(Some(task.name.clone()), there);
                    if assumed.gang.tasks.len() == 1 {
                        bound.insert(None, there);
                    }
                }
                leaving.insert(&assumed.workload, RemovedPods::Last(bound));
            }
            if left.iter().any(|pods| *pods > 0) {
                unseen.push((entry, left));
            }
        }
        unseen.sort_unstable_by_key(|(entry, _)| entry.age);
        let down = member.down.is_some();
        let mut capacity =
            if down { member.summary.clone() } else { member.inventory.compute_capacity_without_pods(&leaving) };
        for (entry, pods) in unseen {
            capacity = entry.assumed.subtract_pods_that_fit(capacity, name, &pods).0;
        }
        capacity
    }

    /// Pods of a workload that reached nodes in a cluster, those that ended included; `None` where its pods can not be
    /// seen.
    #[must_use]
    pub fn count_pods_that_reached_nodes(&self, cluster: &str, workload: &WorkloadRef) -> Option<u32> {
        let member = self.members.get(cluster)?;
        if member.down.is_some() || !member.inventory.is_complete() {
            return None;
        }
        let pods = member
            .inventory
            .count_seen_pods(workload)
            .into_values()
            .map(|seen| seen.bound.saturating_add(seen.finished));
        Some(pods.fold(0, u32::saturating_add))
    }

    /// Pods of a workload that are on nodes in a cluster and have not ended; `None` where its pods can not be seen.
    #[must_use]
    pub fn count_pods_on_nodes(&self, cluster: &str, workload: &WorkloadRef) -> Option<u32> {
        let member = self.members.get(cluster).filter(|member| member.down.is_none() && member.inventory.is_complete());
        let seen = member?.inventory.count_seen_pods(workload).into_values();
        Some(seen.fold(0, |sum: u32, seen| sum.saturating_add(seen.bound)))
    }

    /// True if pods of a workload were seen to finish in these clusters and none is on a node: it has ended there, or
    /// is about to, though nobody has said so yet.
    #[must_use]
    pub fn has_only_finished_pods<'a>(&self, clusters: impl Iterator<Item = &'a str>, workload: &WorkloadRef) -> bool {
        let members = clusters.filter_map(|name| self.members.get(name));
        let seen = members.flat_map(|member| member.inventory.count_seen_pods(workload).into_values());
        let (bound, finished) = seen.fold((0_u64, 0_u64), |(bound, finished), seen| {
            (bound + u64::from(seen.bound), finished + u64::from(seen.finished))
        });
        bound == 0 && finished > 0
    }

    /// True if pods of a binding were seen in some member and have not gone from there.
    #[must_use]
    pub fn runs_anywhere(&self, workload: &WorkloadRef) -> bool {
        self.list_members_with_pods(workload).next().is_some()
    }

    /// Members where pods of a workload were seen that have not gone from there, and whether they can be seen now.
    pub fn list_members_with_pods(&self, workload: &WorkloadRef) -> impl Iterator<Item = (&str, bool)> {
        let members = self.members.iter().filter(|(_, member)| has_bound_pods(member, workload));
        members.map(|(name, member)| (name.as_str(), member.down.is_none()))
    }
}

fn has_bound_pods(member: &FleetMember, workload: &WorkloadRef) -> bool {
    member.inventory.count_seen_pods(workload).values().any(|seen| seen.bound > 0)
}
