//! How the allocator divides the nodes of all clusters among shards.
//!
//! Rule: for each resource by itself, first what each shard is guaranteed, then what it deserves as far as it asks for
//! it, then what is left of the fleet by weight ([`fill_by_weight`], as among the children of a queue). Whole nodes
//! follow: a free node goes to the shard that has the least part of what is its own, in the cluster where it has most.
//! Only if none is free is something asked back, of who has more than its own by a whole node; where another one lacks
//! what it is entitled to, of who has more than it is entitled to itself. What nobody else wants stays where it is.
//! Nodes are taken as they come: where they have different resources, a shard that is short of cpus may get nodes with
//! GPUs that another one lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    NodeName,
    lease::{ClusterLeases, LeaseChange, NodeLease},
};
use crate::{
    gang::{ClusterName, QueueName},
    quantity::Quantity,
    queue::quota::{
        amount::Amount,
        water_fill::{Portion, fill_by_weight},
    },
    resources::{ResourceName, Resources},
    time::EpochSeconds,
};

/// A shard as the allocator knows it.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Its top-level queue.
    pub name: QueueName,
    /// For its part of what nobody is entitled to.
    pub weight: u32,
    /// Kept for it.
    pub guarantee: Resources,
    /// What it may take back up to.
    pub deserved: Resources,
    /// The most that it can have.
    pub real: Resources,
    /// What its jobs ask for, those that run and those that wait; nothing of a shard that renews no lease.
    pub demand: Resources,
}

/// A node as its member says.
#[derive(Debug, Clone)]
pub struct SharedNode {
    /// It.
    pub name: NodeName,
    /// What it has for pods.
    pub allocatable: Resources,
    /// Pods of some shard run on it.
    pub in_use: bool,
}

/// A cluster as the allocator sees it.
#[derive(Debug, Clone)]
pub struct SharedCluster<'a> {
    /// It.
    pub name: ClusterName,
    /// Its nodes.
    pub nodes: Vec<SharedNode>,
    /// Who holds them.
    pub leases: &'a ClusterLeases,
}

/// The changes of each cluster's leases, those that have none left out. New leases hold until then.
#[must_use]
pub fn divide_nodes(
    clusters: &[SharedCluster<'_>],
    shards: &[Shard],
    now: EpochSeconds,
    until: EpochSeconds,
) -> BTreeMap<ClusterName, Vec<LeaseChange>> {
    let mut slices = Slices::new(clusters, shards, now);
    let mut changes = slices.grant_free_nodes(clusters, until);
    for (cluster, shard, amount) in slices.choose_what_to_ask_back(clusters) {
        let asked = cluster.leases.asked_back(&shard).cloned().unwrap_or_default();
        if asked != amount {
            changes.entry(cluster.name.clone()).or_default().push(LeaseChange::AskBack(shard, amount));
        }
    }
    changes
}

/// A shard's part of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetPart {
    /// What it is guaranteed, and what it deserves as far as it asks for it.
    pub entitled: Resources,
    /// That, with what it has of the rest.
    pub whole: Resources,
}

/// One of the two.
type PartOf = fn(&FleetPart) -> &Resources;

/// What each shard is to have of the fleet, in the order of the shards.
#[must_use]
pub fn divide_fleet(fleet: &Resources, shards: &[Shard]) -> Vec<FleetPart> {
    let mut parts = vec![FleetPart::default(); shards.len()];
    for (resource, amount) in fleet.iter() {
        let [entitled, whole] = divide_resource(resource, amount, shards);
        for (part, (entitled, whole)) in parts.iter_mut().zip(entitled.into_iter().zip(whole)) {
            part.entitled.set(resource.clone(), entitled.to_quantity_of(resource));
            part.whole.set(resource.clone(), whole.to_quantity_of(resource));
        }
    }
    parts
}

/// What each is entitled to, and what it is to have.
fn divide_resource(resource: &ResourceName, whole: Quantity, shards: &[Shard]) -> [Vec<Amount>; 2] {
    let of = |amounts: &Resources| Amount::from(amounts.get(resource.as_str()));
    let fill = |least: &dyn Fn(usize, &Shard) -> Amount, most: &dyn Fn(&Shard) -> Amount| {
        let portion = |(i, shard): (usize, &Shard)| {
            let least = least(i, shard);
            Portion { weight: shard.weight.max(1), least, most: most(shard).max(least) }
        };
        fill_by_weight(whole.into(), &shards.iter().enumerate().map(portion).collect::<Vec<_>>())
    };
    let entitled = fill(&|_, shard| of(&shard.guarantee), &|shard| of(&shard.deserved).min(of(&shard.demand)));
    let parts = fill(&|i, _| entitled[i], &|shard| of(&shard.real).min(of(&shard.demand)));
    [entitled, parts]
}

/// The free nodes of one cluster. Those that have some of the same resources are together, so that each that is handed
/// out costs what there are kinds of nodes and not nodes.
struct UnleasedNodes<'a> {
    cluster: &'a ClusterName,
    /// By what they have, with their places among all of the cluster.
    by_resources: BTreeMap<Vec<&'a ResourceName>, VecDeque<(usize, &'a SharedNode)>>,
}

impl<'a> UnleasedNodes<'a> {
    fn new(cluster: &'a SharedCluster<'_>, now: EpochSeconds) -> Self {
        let mut by_resources: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (at, node) in cluster.nodes.iter().enumerate() {
            if !node.in_use && cluster.leases.find_holder(&node.name, now).is_none() {
                let has = node.allocatable.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, _)| name);
                by_resources.entry(has.collect()).or_default().push_back((at, node));
            }
        }
        Self { cluster: &cluster.name, by_resources }
    }

    /// How many have some of these resources; `None` for none.
    fn count_with_any(&self, names: &BTreeSet<ResourceName>) -> Option<usize> {
        let helping = self.by_resources.iter().filter(|(has, _)| has.iter().any(|name| names.contains(*name)));
        Some(helping.map(|(_, nodes)| nodes.len()).sum()).filter(|nodes| *nodes > 0)
    }

    /// The first that has some of these resources, which is free no more.
    fn take_first_with_any(&mut self, names: &BTreeSet<ResourceName>) -> Option<&'a SharedNode> {
        let helping = self.by_resources.iter_mut().filter(|(has, _)| has.iter().any(|name| names.contains(*name)));
        let firsts = helping.filter_map(|(_, nodes)| Some((nodes.front()?.0, nodes)));
        let (_, nodes) = firsts.min_by_key(|(at, _)| *at)?;
        nodes.pop_front().map(|(_, node)| node)
    }
}

/// What shards have and what they are to have, while nodes are handed out.
struct Slices<'a> {
    shards: &'a [Shard],
    parts: Vec<FleetPart>,
    held: Vec<Resources>,
    /// By cluster, the nodes that each shard holds.
    nodes: BTreeMap<&'a ClusterName, Vec<Vec<&'a SharedNode>>>,
    now: EpochSeconds,
}

impl<'a> Slices<'a> {
    fn new(clusters: &'a [SharedCluster<'_>], shards: &'a [Shard], now: EpochSeconds) -> Self {
        let mut whole = Resources::new();
        clusters.iter().flat_map(|cluster| &cluster.nodes).for_each(|node| whole.add(&node.allocatable));
        let parts = divide_fleet(&whole, shards);
        let held = vec![Resources::new(); shards.len()];
        let mut slices = Self { shards, parts, held, nodes: BTreeMap::new(), now };
        for cluster in clusters {
            slices.nodes.insert(&cluster.name, vec![Vec::new(); shards.len()]);
            for node in &cluster.nodes {
                let holder = cluster.leases.find_holder(&node.name, now);
                if let Some(at) = shards.iter().position(|shard| Some(&shard.name) == holder) {
                    slices.add_node(at, &cluster.name, node);
                }
            }
        }
        slices
    }

    fn add_node(&mut self, shard: usize, cluster: &ClusterName, node: &'a SharedNode) {
        self.held[shard].add(&node.allocatable);
        if let Some(of_shards) = self.nodes.get_mut(cluster) {
            of_shards[shard].push(node);
        }
    }

    /// What a shard has too little of.
    fn list_short(&self, shard: usize) -> BTreeSet<ResourceName> {
        let short = |(name, target): &(&ResourceName, Quantity)| self.held[shard].get(name.as_str()) < *target;
        self.parts[shard].whole.iter().filter(short).map(|(name, _)| name.clone()).collect()
    }

    /// The part of its own that a shard has, of the resource of which it has the least part; in billionths.
    fn compute_level(&self, shard: usize) -> i128 {
        let targets = self.parts[shard].whole.iter().map(|(name, target)| (name, Amount::from(target)));
        let parts = targets
            .filter(|(_, target)| target.is_positive())
            .map(|(name, target)| Amount::from(self.held[shard].get(name.as_str())).billionths_of(target));
        parts.min().unwrap_or(i128::MAX)
    }

    fn grant_free_nodes(
        &mut self,
        clusters: &'a [SharedCluster<'_>],
        until: EpochSeconds,
    ) -> BTreeMap<ClusterName, Vec<LeaseChange>> {
        let mut free: Vec<UnleasedNodes<'a>> =
            clusters.iter().map(|cluster| UnleasedNodes::new(cluster, self.now)).collect();
        let mut changes: BTreeMap<ClusterName, Vec<LeaseChange>> = BTreeMap::new();
        let mut open: BTreeSet<usize> = (0..self.shards.len()).collect();
        while let Some(shard) = open.iter().copied().min_by_key(|shard| (self.compute_level(*shard), *shard)) {
            let Some((cluster, node)) = self.take_node_for(shard, &mut free) else {
                open.remove(&shard);
                continue;
            };
            self.add_node(shard, cluster, node);
            let lease = NodeLease { shard: self.shards[shard].name.clone(), until };
            changes.entry(cluster.clone()).or_default().push(LeaseChange::Grant(node.name.clone(), lease));
        }
        changes
    }

    /// The free node that helps a shard: in the cluster where it has most nodes, else where most are free that help.
    fn take_node_for(&self, shard: usize, free: &mut [UnleasedNodes<'a>]) -> Option<(&'a ClusterName, &'a SharedNode)> {
        let short = self.list_short(shard);
        let rank = |nodes: &UnleasedNodes<'a>| {
            let own = self.nodes.get(nodes.cluster).map_or(0, |of_shards| of_shards[shard].len());
            Some((own, nodes.count_with_any(&short)?))
        };
        let ranked = free.iter().enumerate().filter_map(|(at, nodes)| Some((rank(nodes)?, at)));
        // Of equal ones the first.
        let (_, best) = ranked.rev().max_by_key(|(rank, _)| *rank)?;
        Some((free[best].cluster, free[best].take_first_with_any(&short)?))
    }

    /// What each shard is asked for in each cluster: first of what others are entitled to, then of what else is theirs.
    fn choose_what_to_ask_back<'c>(
        &mut self,
        clusters: &'c [SharedCluster<'c>],
    ) -> Vec<(&'c SharedCluster<'c>, QueueName, Resources)> {
        let mut asked = BTreeMap::new();
        let (entitled, whole): (PartOf, PartOf) = (|part| &part.entitled, |part| &part.whole);
        // Of who has more than its own first: who gives of that would lack it, and ask others in turn.
        self.ask_for_lacking(entitled, whole, clusters, &mut asked);
        self.ask_for_lacking(entitled, entitled, clusters, &mut asked);
        self.ask_for_lacking(whole, whole, clusters, &mut asked);
        let mut all = Vec::new();
        for (shard, cluster) in (0..self.shards.len()).flat_map(|shard| clusters.iter().map(move |one| (shard, one))) {
            let amount = asked.remove(&(shard, &cluster.name)).unwrap_or_default();
            all.push((cluster, self.shards[shard].name.clone(), amount));
        }
        all
    }

    /// As long as shards lack some of this part, asks for nodes of those who keep their own part of that kind without
    /// them: of who has most beyond its own, and those nodes first that nothing runs on.
    fn ask_for_lacking<'c>(
        &mut self,
        lack: PartOf,
        keep: PartOf,
        clusters: &'c [SharedCluster<'c>],
        asked: &mut BTreeMap<(usize, &'c ClusterName), Resources>,
    ) {
        let mut lacking = self.sum_lacking(lack);
        // What comes back for the one lack is there for the other.
        asked.values().for_each(|amount| lacking.saturating_sub(amount));
        let mut by_level: Vec<usize> = (0..self.shards.len()).collect();
        by_level.sort_by_key(|shard| (std::cmp::Reverse(self.compute_level(*shard)), *shard));
        for shard in by_level {
            for (cluster, node) in self.list_spare_first(shard, clusters) {
                let is_lacking = lacking
                    .iter()
                    .any(|(name, amount)| !amount.is_zero() && !node.allocatable.get(name.as_str()).is_zero());
                if is_lacking && self.can_spare(shard, keep(&self.parts[shard]), node) {
                    lacking.saturating_sub(&node.allocatable);
                    self.held[shard].saturating_sub(&node.allocatable);
                    asked.entry((shard, cluster)).or_default().add(&node.allocatable);
                    self.drop_node(shard, cluster, node);
                }
            }
        }
    }

    /// What shards have too little of, all together.
    fn sum_lacking(&self, lack: PartOf) -> Resources {
        let mut lacking = Resources::new();
        for (part, held) in self.parts.iter().zip(&self.held) {
            let mut short = lack(part).clone();
            short.saturating_sub(held);
            lacking.add(&short);
        }
        lacking
    }

    fn list_spare_first<'c>(
        &self,
        shard: usize,
        clusters: &'c [SharedCluster<'c>],
    ) -> Vec<(&'c ClusterName, &'a SharedNode)> {
        let of = |cluster: &'c SharedCluster<'c>| {
            let nodes = self.nodes.get(&cluster.name).map(|of_shards| of_shards[shard].clone()).unwrap_or_default();
            nodes.into_iter().map(move |node| (&cluster.name, node))
        };
        let mut nodes: Vec<_> = clusters.iter().flat_map(of).collect();
        nodes.sort_by_key(|(_, node)| node.in_use);
        nodes
    }

    /// Whether a shard has its own without a node.
    fn can_spare(&self, shard: usize, own: &Resources, node: &SharedNode) -> bool {
        let mut left = self.held[shard].clone();
        left.saturating_sub(&node.allocatable);
        own.iter().all(|(name, own)| own <= left.get(name.as_str()) || node.allocatable.get(name.as_str()).is_zero())
    }

    fn drop_node(&mut self, shard: usize, cluster: &ClusterName, node: &SharedNode) {
        if let Some(of_shards) = self.nodes.get_mut(cluster) {
            of_shards[shard].retain(|held| held.name != node.name);
        }
    }
}

#[cfg(test)]
mod tests;
