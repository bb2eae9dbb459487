//! Nodes that are not there yet: which assumed pods wait for them, and what of them nobody waits for.
//!
//! Rule: pods that are assumed in a member and not seen there take what is free first, as they will once the member
//! binds them. What does not fit is taken off the nodes that autoscaled groups may still add ([`crate::autoscaling`]),
//! in the order in which it was assumed, so that no node is given away twice. A node that came is free, and no longer
//! to come: nothing has to be told. Of a member whose nodes can not be read nobody knows how many may come: none counts
//! as capacity, and each group's greatest size as what there may be some day.
//!
//! Who would have to wait for nodes goes where they come soonest ([`Fleet::find_with_upcoming_nodes`]).

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{AssumedPods, Fleet, FleetMember};
use crate::{
    autoscaling::AutoscaledGroup,
    inventory::{Amounts, Capacity, Inventory, NodeShape, Source, count_upcoming_nodes_taken, find_group_of_upcoming},
    place::Cluster,
    plan::PinnedDomains,
    resources::Resources,
    run_limit::RunTime,
    split::{most_of_each_task, subtract_assumed_that_fit},
    text::count_noun,
};

/// Delays that are tried one after another, from the first that is long enough, before the longest is put up with: each
/// costs a placement.
const MOST_SOONER_DELAYS: usize = 7;

/// What the autoscaled groups of a member may add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UpcomingNodes {
    /// What of the nodes nobody waits for.
    left: Capacity,
    /// That, and what is free.
    with_free: Capacity,
    /// All that may be there some day beside nodes that take pods now.
    may_come: Resources,
    /// Nodes that the pods of an entry wait for, by group.
    waited_for: BTreeMap<String, BTreeMap<Arc<str>, u32>>,
}

impl UpcomingNodes {
    pub(super) const fn may_come(&self) -> &Resources {
        &self.may_come
    }
}

/// Nodes that the pods of a binding wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedNodes {
    /// Where.
    pub cluster: String,
    /// Of which group.
    pub group: String,
    /// How many.
    pub nodes: u32,
    /// Seconds that a node takes to come.
    pub delay: i64,
}

impl fmt::Display for AwaitedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, group, nodes, delay } = self;
        let more = count_noun(*nodes, "more node");
        write!(f, "waits for {more} of group {group} in {cluster}, about {}", RunTime(*delay))
    }
}

impl AssumedPods {
    /// A capacity without so many pods of each task, kept in the domains of the cluster that they are pinned to, and
    /// those that did not fit.
    pub(super) fn subtract_pods_that_fit(
        &self,
        capacity: Capacity,
        cluster: &str,
        pods: &[u32],
    ) -> (Capacity, Vec<u32>) {
        let anywhere = PinnedDomains::default();
        subtract_assumed_that_fit(capacity, &self.gang, pods, self.pinned.get(cluster).unwrap_or(&anywhere))
    }
}

impl FleetMember {
    /// Works out which nodes may come, with nobody waiting for them.
    pub(super) fn refresh_upcoming_nodes(&mut self, are_ignored: bool) {
        let groups = &self.cluster.autoscaling;
        if groups.is_empty() || are_ignored {
            self.upcoming = None;
            return;
        }
        let left = self.list_upcoming_nodes();
        let mut may_come = Resources::new();
        for shape in self.list_nodes_that_may_come() {
            may_come.add(&Resources::from(&*shape.allocatable).times(shape.nodes.len() as u64));
        }
        let left = self.capacity.with_shapes(left);
        self.upcoming = Some(UpcomingNodes { left, may_come, ..UpcomingNodes::default() });
    }

    fn list_upcoming_nodes(&self) -> Vec<NodeShape> {
        let are_known = self.down.is_none() && self.inventory.is_complete();
        if are_known { self.inventory.list_upcoming_nodes(&self.cluster.autoscaling) } else { Vec::new() }
    }

    /// Nodes of each group that some pods wait for.
    fn count_awaited_nodes(&self) -> BTreeMap<Arc<str>, u32> {
        let Some(upcoming) = &self.upcoming else { return BTreeMap::new() };
        count_upcoming_nodes_taken(&self.capacity.with_shapes(self.list_upcoming_nodes()), &upcoming.left)
    }

    fn describe_awaited_nodes(&self, nodes: &BTreeMap<Arc<str>, u32>) -> Vec<AwaitedNodes> {
        let cluster = &self.cluster.name;
        let of = |group: &AutoscaledGroup| {
            let (nodes, group_name) = (*nodes.get(group.name.as_str())?, group.name.clone());
            Some(AwaitedNodes { cluster: cluster.clone(), group: group_name, nodes, delay: group.delay })
        };
        self.cluster.autoscaling.iter().filter_map(of).collect()
    }

    pub(super) fn list_nodes_that_may_come(&self) -> Vec<NodeShape> {
        match self.down {
            None => self.inventory.list_nodes_that_may_come(&self.cluster.autoscaling),
            Some(_) => Inventory::default().list_nodes_that_may_come(&self.cluster.autoscaling),
        }
    }

    /// Takes pods of an entry that are not seen off what is free, and the rest off the nodes that may come.
    pub(super) fn subtract_unseen_pods(&mut self, name: &str, key: &str, assumed: &AssumedPods, pods: &[u32]) {
        let (free, left) = assumed.subtract_pods_that_fit(std::mem::take(&mut self.capacity), name, pods);
        self.capacity = free;
        let Some(upcoming) = self.upcoming.as_mut().filter(|_| left.iter().any(|pods| *pods > 0)) else { return };
        // What is to come is large, and most bindings take nothing of it.
        let mut most = most_of_each_task(&assumed.gang, &upcoming.left).into_iter().zip(&left);
        if !most.any(|(most, left)| most > 0 && *left > 0) {
            return;
        }
        let before = upcoming.left.clone();
        upcoming.left = assumed.subtract_pods_that_fit(before.clone(), name, &left).0;
        upcoming.waited_for.insert(key.to_owned(), count_upcoming_nodes_taken(&before, &upcoming.left));
    }

    /// Puts what is left of the nodes that may come beside what is free.
    pub(super) fn join_upcoming_nodes(&mut self) {
        if let Some(upcoming) = &mut self.upcoming {
            upcoming.with_free = append_shapes(&self.capacity, upcoming.left.shapes.clone());
        }
    }

    fn capacity_with_upcoming(&self) -> &Capacity {
        let upcoming = self.upcoming.as_ref().filter(|upcoming| !upcoming.left.shapes.is_empty());
        upcoming.map_or(&self.capacity, |upcoming| &upcoming.with_free)
    }

    /// Nodes that may come and that nobody waits for, each shape with the seconds that one takes.
    fn list_shapes_with_delays(&self) -> impl Iterator<Item = (&NodeShape, i64)> {
        let delay_of = |group: &str| Some(self.cluster.autoscaling.iter().find(|it| it.name == group)?.delay);
        let shapes = self.upcoming.iter().flat_map(|upcoming| &upcoming.left.shapes);
        shapes.filter_map(move |shape| Some((shape, delay_of(find_group_of_upcoming(shape)?)?)))
    }

    /// What is free, or what `own` says of that, and the nodes that come within so many seconds. Only what is not at
    /// hand is copied, since a copy has its profile to make anew.
    fn capacity_within<'a>(&'a self, own: Option<&'a Capacity>, delay: i64) -> Cow<'a, Capacity> {
        if own.is_none() && self.list_shapes_with_delays().all(|(_, takes)| takes <= delay) {
            return Cow::Borrowed(self.capacity_with_upcoming());
        }
        let free = own.unwrap_or(&self.capacity);
        let is_soon = |(shape, takes): (&NodeShape, i64)| (takes <= delay).then(|| shape.clone());
        let more: Vec<NodeShape> = self.list_shapes_with_delays().filter_map(is_soon).collect();
        if more.is_empty() { Cow::Borrowed(free) } else { Cow::Owned(append_shapes(free, more)) }
    }
}

pub(super) fn append_shapes(capacity: &Capacity, more: Vec<NodeShape>) -> Capacity {
    capacity.with_shapes(capacity.shapes.iter().cloned().chain(more).collect())
}

impl Fleet {
    /// Whether nodes that are not there count at all: not where another scheduler places, which knows none.
    pub fn ignore_upcoming_nodes(&mut self, are_ignored: bool) {
        if std::mem::replace(&mut self.ignores_upcoming, are_ignored) != are_ignored {
            self.members.values_mut().for_each(|member| member.dirty = true);
        }
    }

    /// All clusters with what is free in each, and the nodes that may come there and that nobody waits for.
    pub fn clusters_with_upcoming(&self) -> impl Iterator<Item = (&Cluster, &Capacity)> {
        let known = self.members.values().filter(|member| member.known);
        known.map(|member| (&member.cluster, member.capacity_with_upcoming()))
    }

    /// The first that `find` finds where nodes that may come count as if they were there, after so many seconds: only
    /// those that come soonest, then those that come later too, a few delays at most. None where no node may come, or
    /// where none would help.
    pub fn find_with_upcoming_nodes<T>(
        &self,
        find: impl Fn(Vec<(&Cluster, &Capacity)>, i64) -> Option<T>,
    ) -> Option<T> {
        self.find_with_upcoming_nodes_on(&BTreeMap::new(), find)
    }

    /// The same where something else is free in some clusters than [`Fleet::clusters`] says.
    pub fn find_with_upcoming_nodes_on<T>(
        &self,
        own: &BTreeMap<String, Capacity>,
        find: impl Fn(Vec<(&Cluster, &Capacity)>, i64) -> Option<T>,
    ) -> Option<T> {
        let known = || self.members.values().filter(|member| member.known);
        let delays: BTreeSet<i64> = known().flat_map(FleetMember::list_shapes_with_delays).map(|(_, it)| it).collect();
        let delays: Vec<i64> = delays.into_iter().collect();
        let (soonest, last) = (*delays.first()?, *delays.last()?);
        let find_within = |most: i64, delay: i64| {
            let capacities: Vec<Cow<'_, Capacity>> =
                known().map(|member| member.capacity_within(own.get(&member.cluster.name), most)).collect();
            find(known().map(|member| &member.cluster).zip(capacities.iter().map(|it| &**it)).collect(), delay)
        };
        // What does not fit on all of them, however soon they come, fits on none.
        let found = find_within(last, soonest)?;
        if soonest == last {
            return Some(found);
        }
        // Which delays are too short is found by halves, as if all nodes came soonest. The others are tried as they
        // are: a limit or a window may bear none of them.
        let sooner = &delays[..delays.len() - 1];
        let too_short = sooner.partition_point(|delay| find_within(*delay, soonest).is_none());
        let long_enough = sooner[too_short..].iter().copied().take(MOST_SOONER_DELAYS);
        long_enough.chain([last]).find_map(|delay| find_within(delay, delay))
    }

    /// Clusters where nodes may come that nobody waits for, each with the seconds that the first of them takes.
    pub fn list_soonest_nodes(&self) -> impl Iterator<Item = (&Cluster, i64)> {
        let known = self.members.values().filter(|member| member.known);
        known.filter_map(|member| Some((&member.cluster, member.list_shapes_with_delays().map(|(_, it)| it).min()?)))
    }

    /// What is free in a cluster, and of the nodes that may come there what nobody waits for.
    #[must_use]
    pub fn sum_free_with_upcoming(&self) -> Resources {
        let mut free = Resources::new();
        self.clusters_with_upcoming().for_each(|(_, capacity)| free.add(&capacity.sum_free()));
        free
    }

    /// What a node of a cluster offers at most, of those that are there and those that may come.
    pub fn list_free_of_nodes<'a>(&'a self, cluster: &str) -> impl Iterator<Item = &'a Amounts> {
        let member = self.members.get(cluster).into_iter();
        member.flat_map(|member| &member.capacity_with_upcoming().shapes).map(|shape| &*shape.free)
    }

    /// What may be there some day in a cluster beside its nodes that take pods.
    #[must_use]
    pub fn sum_upcoming(&self, cluster: &str) -> Resources {
        let upcoming = self.members.get(cluster).and_then(|member| member.upcoming.as_ref());
        upcoming.map(|upcoming| upcoming.may_come.clone()).unwrap_or_default()
    }

    /// Whether some cluster's nodes may become more, where such nodes count.
    #[must_use]
    pub fn has_autoscaled_groups(&self) -> bool {
        self.members.values().any(|member| member.known && member.upcoming.is_some())
    }

    /// Nodes that the pods of the binding `key` wait for.
    #[must_use]
    pub fn list_awaited_nodes(&self, key: &str) -> Vec<AwaitedNodes> {
        let awaited =
            |member: &FleetMember| Some(member.describe_awaited_nodes(member.upcoming.as_ref()?.waited_for.get(key)?));
        self.members.values().filter_map(awaited).flatten().collect()
    }

    /// Nodes that pods of any binding wait for: one that several wait for counts once.
    #[must_use]
    pub fn list_all_awaited_nodes(&self) -> Vec<AwaitedNodes> {
        let awaited = |member: &FleetMember| member.describe_awaited_nodes(&member.count_awaited_nodes());
        self.members.values().flat_map(awaited).collect()
    }

    /// How many seconds later than elsewhere pods of the binding `key` may be on nodes of a cluster, since one for them
    /// may have to come first: the longest delay of the groups whose nodes take some of them.
    #[must_use]
    pub fn delay_of_nodes(&self, cluster: &str, key: &str) -> i64 {
        let (Some(member), Some(entry)) = (self.members.get(cluster), self.entries.get(key)) else { return 0 };
        if member.upcoming.is_none() {
            return 0;
        }
        let groups = &member.cluster.autoscaling;
        let takes_some = |shape: NodeShape| {
            let node = shape.of_nodes(shape.nodes_with_domains().take(1));
            most_of_each_task(&entry.assumed.gang, &Capacity::new(vec![node], Source::Nodes))
                .iter()
                .any(|most| *most > 0)
        };
        let delay = |group: &AutoscaledGroup| {
            // One of them says what all take.
            let one = AutoscaledGroup { max: group.max.min(1), ..group.clone() };
            let mut shapes = Inventory::default().list_nodes_that_may_come(&one.into()).into_iter();
            shapes.any(takes_some).then_some(group.delay)
        };
        groups.iter().filter_map(delay).max().unwrap_or(0)
    }
}
