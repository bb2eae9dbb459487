//! Nodes that autoscaled groups add while the fleet is simulated.
//!
//! Rule: as cluster-autoscaler (`core/static_autoscaler.go`): pods that wait in a member make its groups grow, by as
//! many nodes as [`Fleet::list_all_awaited_nodes`] says that they wait for and are not on their way yet. Each is there
//! after its group's delay, and none leaves again.
//!
//! [`Fleet::list_all_awaited_nodes`]: caldera_core::fleet::Fleet::list_all_awaited_nodes

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    autoscaling::AutoscaledGroup,
    fleet::{AssumedPods, AwaitedNodes, Update},
    gang::WorkloadRef,
    inventory::{Capacity, Change, Node},
    place::Cluster,
};

use super::{Members, Part, Use};
use crate::time::Millis;

/// Nodes that are on their way.
#[derive(Debug, Clone, Default)]
pub(super) struct ComingNodes {
    /// How many of which group of which cluster, by when they are there.
    due: BTreeMap<(Millis, usize, String), u32>,
    /// Nodes that came so far.
    came: usize,
}

impl Members {
    /// The first answer with nodes that may come, where some may: see [`caldera_core::fleet::Fleet`].
    pub(crate) fn find_with_upcoming_nodes<T>(
        &self,
        find: impl Fn(Vec<(&Cluster, &Capacity)>, i64) -> Option<T>,
    ) -> Option<T> {
        self.fleet.find_with_upcoming_nodes(find)
    }

    /// Whether nodes may come.
    pub(crate) fn may_grow(&self) -> bool {
        self.fleet.has_autoscaled_groups()
    }

    /// All clusters without any pods, and with all nodes that may come; `None` where none may.
    pub(crate) fn largest(&self) -> Option<&[(Cluster, Capacity)]> {
        self.largest_fleet.as_deref()
    }

    /// When the next nodes come.
    pub(crate) fn next_nodes(&self) -> Option<Millis> {
        self.coming.due.first_key_value().map(|((at, ..), _)| *at)
    }

    /// Takes in the nodes that have come by now; whether there were any.
    pub(crate) fn add_nodes_due(&mut self, now: Millis) -> bool {
        let mut any = false;
        while let Some(entry) = self.coming.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, cluster, group), nodes) = entry.remove_entry();
            let groups = self.fleet.cluster(&self.names[cluster]).map(|cluster| cluster.autoscaling.clone());
            let group = groups.and_then(|groups| groups.iter().find(|one| one.name == group).cloned());
            let Some(group) = group else { continue };
            (0..nodes).for_each(|_| self.add_node(cluster, &group));
            any = true;
        }
        any
    }

    fn add_node(&mut self, cluster: usize, group: &AutoscaledGroup) {
        self.coming.came += 1;
        let node = Node {
            name: format!("{}-came-{}", group.name, self.coming.came),
            labels: group.labels_of_new_node(),
            taints: group.taints.clone(),
            allocatable: group.resources.clone(),
            ready: true,
            ..Node::default()
        };
        self.count_node(cluster, &node);
        self.fleet.apply_update(&self.names[cluster], Update::Change(Change::Node(node)));
        self.grew[cluster] = true;
    }

    /// Counts what a node has.
    pub(super) fn count_node(&mut self, cluster: usize, node: &Node) {
        self.sums[cluster].allocatable.add(&node.allocatable);
        let has = node.allocatable.get(self.main.as_str()).as_nano();
        let free = node.allocatable.clone();
        self.nodes[cluster].insert(Arc::from(node.name.as_str()), Use { has, used: 0, free });
        if has > 0 {
            (self.tally.nodes, self.tally.open) = (self.tally.nodes + 1, self.tally.open + 1);
            self.capacity_nano += has;
            self.tally.capacity = super::units(self.capacity_nano);
        }
    }

    /// Pods of a part wait in their member: they take what is free there first, and then nodes that may come.
    pub(super) fn assume_waiting(&mut self, part: &Part) {
        if !self.fleet.has_autoscaled_groups() {
            return;
        }
        let (key, cluster) = (key_of(part), self.names[part.cluster].clone());
        // Nobody's pods are told by it.
        let of = |text: &str| text.to_owned();
        let workload = WorkloadRef { group: of(""), kind: of("Job"), namespace: of(""), name: key.clone() };
        let (pods, pinned) = ([(cluster.clone(), part.pods.clone())].into(), [(cluster, part.within.clone())].into());
        self.fleet.assume_pods(&key, AssumedPods { workload, gang: Arc::clone(&part.gang), pods, pinned });
    }

    pub(super) fn forget_waiting(&mut self, part: &Part) {
        self.fleet.forget_assumed(&key_of(part));
    }

    /// Asks for the nodes that pods wait for and that are not on their way.
    pub(crate) fn ask_for_nodes(&mut self, now: Millis) {
        if self.count_waiting_parts() == 0 || !self.fleet.has_autoscaled_groups() {
            return;
        }
        self.fleet.refresh_capacities();
        let mut missing: BTreeMap<(usize, String), (u32, i64)> = BTreeMap::new();
        for AwaitedNodes { cluster, group, nodes, delay } in self.fleet.list_all_awaited_nodes() {
            let Some(cluster) = self.index(&cluster) else { continue };
            missing.insert((cluster, group), (nodes, delay));
        }
        for ((_, cluster, group), nodes) in &self.coming.due {
            if let Some(of_group) = missing.get_mut(&(*cluster, group.clone())) {
                of_group.0 = of_group.0.saturating_sub(*nodes);
            }
        }
        for ((cluster, group), (nodes, delay)) in missing {
            let at = now.plus(Millis::from_secs(u64::try_from(delay).unwrap_or(0)));
            if nodes > 0 {
                *self.coming.due.entry((at, cluster, group)).or_default() += nodes;
            }
        }
    }
}

fn key_of(part: &Part) -> String {
    format!("{}@{}", part.job, part.cluster)
}
