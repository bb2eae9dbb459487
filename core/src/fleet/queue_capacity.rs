//! What queued workloads can hold in each cluster, all together: the capacity at the root of the queues.
//!
//! Rule: a cluster that takes jobs offers what is free there, the nodes that its autoscaled groups may still add, and
//! what they hold there already, so pods of others
//! (whoever they are: DaemonSets, workloads that nobody queued) are off, and a pod of ours that is bound changes
//! nothing. What they hold on nodes that are cordoned counts, and so does all that they hold in a cluster that takes no
//! jobs: it is charged as well, and must not be taken from what the others could run. But never more than the cluster
//! has: who was admitted and is not placed may be assumed beside those that run there. A cluster that nobody knows has
//! nothing, whatever bindings name it. Of the resource summary, for want
//! of nodes, the same: all that there is less what is allocated beyond what was assumed.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use super::{AssumedEntry, AssumedPods, Fleet, FleetMember, upcoming::append_shapes};
use crate::{
    gang::{Taint, WorkloadRef},
    inventory::{Amounts, Capacity, NodeShape, Source, round_up_request},
    place::Cluster,
    quantity::Quantity,
    resources::Resources,
};

/// Taints of clusters that are not there: tolerating one means to stay for a while, not to come.
pub const AWAY: [&str; 2] = ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"];

/// True if somebody may start in a cluster: it is ready, stays, and each of its taints that keeps jobs out (a cordon is
/// one) is `tolerated`.
#[must_use]
pub fn takes_jobs(cluster: &Cluster, tolerated: impl Fn(&Taint) -> bool) -> bool {
    let mut taints = cluster.taints.iter().filter(|taint| taint.forbids());
    cluster.ready && !cluster.deleting && taints.all(|taint| !AWAY.contains(&taint.key.as_str()) && tolerated(taint))
}

/// What assumed pods that are bound hold in one member.
#[derive(Debug, Clone, Default)]
pub(super) struct AssumedOnNodes {
    /// By the entry's key.
    bound: BTreeMap<String, Resources>,
    sum: Resources,
}

impl AssumedOnNodes {
    /// Whether pods of an entry are on nodes.
    pub(super) fn is_bound(&self, key: &str) -> bool {
        self.bound.contains_key(key)
    }

    /// Sets what pods of an entry hold on nodes; true if it was another amount before.
    pub(super) fn set_bound_amount(&mut self, key: &str, amount: Resources) -> bool {
        let before = match self.bound.entry(key.to_owned()) {
            btree_map::Entry::Occupied(entry) if *entry.get() == amount => return false,
            btree_map::Entry::Occupied(mut entry) if !amount.is_empty() => entry.insert(amount.clone()),
            btree_map::Entry::Occupied(entry) => entry.remove(),
            btree_map::Entry::Vacant(_) if amount.is_empty() => return false,
            btree_map::Entry::Vacant(entry) => {
                entry.insert(amount.clone());
                Resources::new()
            }
        };
        self.sum.saturating_sub(&before);
        self.sum.add(&amount);
        true
    }
}

impl Fleet {
    /// All clusters by name, also those of which only assumed pods are left.
    pub fn list_known_and_assumed_clusters(&self) -> impl Iterator<Item = (&str, Option<&Cluster>)> {
        self.members.iter().map(|(name, member)| (name.as_str(), member.known.then_some(&member.cluster)))
    }

    /// True once after pods of no entry may have come or gone.
    pub fn take_other_pods_changed(&mut self) -> bool {
        std::mem::take(&mut self.others_moved)
    }

    /// Whether they may have, without forgetting it.
    #[must_use]
    pub const fn have_other_pods_changed(&self) -> bool {
        self.others_moved
    }

    /// What queued workloads can hold in a cluster; `open` says whether the cluster takes jobs. The module has the
    /// rule.
    #[must_use]
    pub fn compute_capacity_for_queues(&self, name: &str, open: bool) -> Resources {
        let Some(member) = self.members.get(name) else { return Resources::new() };
        // What says to be in a cluster that nobody knows may be anybody's words.
        if !member.known {
            return Resources::new();
        }
        if !open {
            // What is not charged any more is only going.
            let mut ours = sum_assumed_requests(member, &self.entries);
            let going = member.retired.iter().filter_map(|key| member.bound.bound.get(key));
            going.for_each(|going| ours.saturating_sub(going));
            return cap_by(&ours, &member.summary.sum_allocatable());
        }
        if member.down.is_none() {
            let mut offer = member.inventory.sum_free();
            if member.inventory.is_complete() {
                offer.add(&member.bound.sum);
                member.upcoming.iter().for_each(|upcoming| offer.add(upcoming.may_come()));
            }
            return offer;
        }
        let (has, mut offer) = (member.summary.sum_allocatable(), member.summary.sum_free());
        offer.add(&sum_assumed_requests(member, &self.entries));
        has.iter().map(|(name, has)| (name.clone(), has.min(offer.get(name.as_str())))).collect()
    }

    /// Brings up to date what clusters would be without any queued pods. Call before
    /// [`Self::list_capacities_without_queued`].
    pub fn refresh_clusters_without_queued(&mut self) {
        let Self { members, by_workload, entries, .. } = self;
        for member in members.values_mut().filter(|member| member.known) {
            if member.emptied.is_none() {
                let emptied = if member.down.is_some() {
                    compute_summary_without_assumed(member, entries)
                } else {
                    member.inventory.compute_capacity_without_workloads(|workload: &WorkloadRef| {
                        let mut keys = by_workload.get(workload).into_iter().flatten();
                        keys.any(|key| entries.get(key).is_some_and(|entry| entry.queued))
                    })
                };
                let more = member.upcoming.as_ref().map(|_| member.list_nodes_that_may_come());
                member.emptied = Some(more.map_or(emptied.clone(), |more| append_shapes(&emptied, more)));
            }
        }
    }

    /// The clusters, each without any queued pods and with all nodes that may come, which is what those could ever have
    /// beside the others, and as it is.
    pub fn list_capacities_without_queued(&self) -> impl Iterator<Item = (&Cluster, &Capacity, &Capacity)> {
        let known = self.members.values().filter(|member| member.known);
        known.filter_map(|member| Some((&member.cluster, member.emptied.as_ref()?, &member.capacity)))
    }
}

/// What so many pods of each task ask for, as members count it.
pub(super) fn request_of(assumed: &AssumedPods, pods: impl Iterator<Item = u32>) -> Resources {
    let mut sum = Resources::new();
    for (task, pods) in assumed.gang.tasks.iter().zip(pods).filter(|(_, pods)| *pods > 0) {
        sum.add(&round_up_request(&task.request).times(u64::from(pods)));
    }
    sum
}

/// No more of each resource than there is. Of what nobody summed up that is not known.
fn cap_by(amounts: &Resources, has: &Resources) -> Resources {
    let known: BTreeMap<_, _> = has.iter().collect();
    let cap = |name, amount: Quantity| known.get(name).map_or(amount, |has| amount.min(*has));
    amounts.iter().map(|(name, amount)| (name.clone(), cap(name, amount))).collect()
}

/// On nodes, and on their way there.
fn sum_assumed_requests(member: &FleetMember, entries: &BTreeMap<String, AssumedEntry>) -> Resources {
    let mut all = member.bound.sum.clone();
    for (key, pods) in &member.unseen {
        if let Some(entry) = entries.get(key).filter(|entry| entry.queued) {
            all.add(&request_of(&entry.assumed, pods.iter().copied()));
        }
    }
    all
}

/// A summary knows no pods: it is one node, of which the assumed pods' requests are given back.
fn compute_summary_without_assumed(member: &FleetMember, entries: &BTreeMap<String, AssumedEntry>) -> Capacity {
    let summary = &member.summary;
    if summary.source != Source::Summary {
        return summary.emptied();
    }
    let ours = sum_assumed_requests(member, entries);
    let give_back = |shape: &NodeShape| {
        let free = shape.allocatable.iter().map(|(name, has)| {
            let free = shape.free.get(name).copied().unwrap_or(Quantity::ZERO);
            (name.clone(), free.saturating_add(ours.get(name.as_str())).min(*has))
        });
        NodeShape { free: Arc::new(free.collect::<Amounts>()), ..shape.clone() }
    };
    summary.with_shapes(summary.shapes.iter().map(give_back).collect())
}
