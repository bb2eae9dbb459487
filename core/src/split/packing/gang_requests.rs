//! A gang's requests as rows of numbers, and which tasks are packed first.

use std::collections::BTreeMap;

use super::{FreeNodes, GangRequests, NodeGroup, ORDERS, TaskOrder, blocks::assign_blocks, numa::list_numa_claims};
use crate::{
    gang::{Gang, NodeClaim, Task, Topology},
    inventory::{Capacity, DomainId, NodeRef, NodeShape, packing_units_ceil},
    numa::COLUMNS,
    resources::ResourceName,
    split::{federation_topology::Level, node_scope::NodeScope},
};

impl<'a> GangRequests<'a> {
    /// For pods one by one: partitions are not looked at, nor how close they must be.
    pub(crate) fn new(gang: &'a Gang) -> Self {
        let mut resources: Vec<ResourceName> = gang
            .tasks
            .iter()
            .flat_map(|task| task.request.iter().filter(|(_, amount)| !amount.is_negative()).map(|(name, _)| name))
            .cloned()
            .collect();
        resources.sort();
        resources.dedup();
        let apart = gang.tasks.iter().enumerate();
        let apart: Vec<(usize, i64)> =
            apart.filter_map(|(at, task)| Some((at, i64::from(task.node.most_per_node?)))).collect();
        let numa = list_numa_claims(gang);
        let numa_width = if numa.is_empty() { 0 } else { COLUMNS };
        let width = resources.len() + apart.len() + numa_width;
        let mut requests = Vec::with_capacity(gang.tasks.len() * width);
        for (at, task) in gang.tasks.iter().enumerate() {
            requests
                .extend(resources.iter().map(|name| packing_units_ceil(name, task.request.get(name.as_str())).max(0)));
            requests.extend(apart.iter().map(|(other, _)| i64::from(*other == at)));
            requests.extend(std::iter::repeat_n(0, numa_width));
        }
        let by_name = gang.tasks.iter().any(|task| task.node.selects_by_node_name());
        let mut labels: Vec<&str> = gang.tasks.iter().flat_map(|task| task.node.selected_label_keys()).collect();
        labels.sort_unstable();
        labels.dedup();
        let (kinds, kind_of) = group_equal_tasks(gang, &requests, width);
        Self { gang, resources, requests, by_name, labels, apart, numa, kinds, kind_of, close: None }
    }

    /// For partitions that must be as close as they say, where clusters are so close to each other.
    pub(crate) fn with_topology(gang: &'a Gang, levels: &'a [Level]) -> Self {
        Self { close: Some(levels).filter(|_| gang.has_close_partitions()), ..Self::new(gang) }
    }

    /// How close the pods of each partition of a task must be, where they must.
    pub(in crate::split) fn closeness(&self, task: usize) -> Option<(&'a Topology, &'a [Level])> {
        let levels = self.close?;
        Some((self.gang.tasks[task].hard_partition_topology()?, levels))
    }

    pub(crate) fn count_tasks(&self) -> usize {
        self.gang.tasks.len()
    }

    /// Numbers in a row: the resources', and the others.
    pub(in crate::split) const fn row_width(&self) -> usize {
        self.resources.len() + self.apart.len() + self.numa_width()
    }

    /// The most pods of the task that one node takes, where that is bounded.
    pub(in crate::split) fn most_per_node(&self, task: usize) -> Option<u64> {
        self.gang.tasks[task].node.most_per_node.map(u64::from)
    }

    pub(in crate::split) fn request_row(&self, task: usize) -> &[i64] {
        let width = self.row_width();
        &self.requests[task * width..(task + 1) * width]
    }

    /// What so many pods of each task ask for, by resource.
    pub(crate) fn total_demand(&self, pods: &[u32]) -> Vec<i64> {
        let of = |column: usize| {
            let each = pods
                .iter()
                .enumerate()
                .map(|(task, pods)| self.request_row(task)[column].saturating_mul(i64::from(*pods)));
            each.fold(0, i64::saturating_add)
        };
        (0..self.resources.len()).map(of).collect()
    }

    /// Whether nodes of one shape may not be alike for some task: it names nodes, or a label that shapes do not carry.
    pub(in crate::split) fn needs_single_nodes(&self, capacity: &Capacity) -> bool {
        self.by_name || !self.labels.iter().all(|label| capacity.carries_label(label))
    }

    /// Whether some task asks more of its nodes than capacity.
    pub(in crate::split) fn selects_nodes(&self) -> bool {
        let any = |task: &Task| {
            !(task.node.selector.is_empty() && task.node.affinity.is_empty()) || task.node.most_per_node.is_some()
        };
        self.has_numa_claims() || self.gang.tasks.iter().any(any)
    }

    pub(crate) fn resources(&self) -> &[ResourceName] {
        &self.resources
    }

    /// A cluster's free capacity as seen by this gang.
    pub(crate) fn free_nodes(&self, capacity: &Capacity, place: NodeScope<'_>) -> FreeNodes {
        let profile = capacity.profile();
        let columns: Vec<Option<usize>> = self.resources.iter().map(|name| profile.column(name)).collect();
        let mut free_nodes = FreeNodes::default();
        free_nodes.groups.reserve(capacity.shapes.len());
        free_nodes.free.reserve(capacity.shapes.len() * self.row_width());
        let mut admits = Vec::with_capacity(capacity.shapes.len() * self.count_tasks());
        let by_node = self.needs_single_nodes(capacity) || place.needs_single_nodes(capacity);
        let reaches = self.allowed_tiers_by_task(capacity);
        let mut blocks = Vec::new();
        let mut add = |at: usize, shape: &NodeShape, id: Option<DomainId>, first: &NodeRef, nodes: usize| {
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            if nodes > 0 {
                let class = u32::try_from(free_nodes.groups.len()).unwrap_or(u32::MAX);
                free_nodes.groups.push(NodeGroup { nodes, class, site: 0 });
                let row = profile.free_of_shape(at);
                free_nodes.free.extend(columns.iter().map(|column| column.map_or(0, |column| row[column])));
                // Without labels it is no node, but the sum of all.
                let each = |most: i64| if shape.labels.is_some() { most } else { u32::MAX.into() };
                free_nodes.free.extend(self.apart.iter().map(|(_, most)| each(*most)));
                self.append_numa_columns(shape, &mut free_nodes.free);
                self.append_admitted_tasks(capacity, shape, first, &mut admits);
                if self.close.is_some() {
                    let first = admits.len() - self.count_tasks();
                    blocks.extend(assign_blocks(&reaches, capacity, id, &mut admits[first..]));
                }
            }
        };
        for (at, shape) in capacity.shapes.iter().enumerate() {
            let Some(first) = shape.nodes.first() else { continue };
            match place {
                _ if by_node => {
                    for (id, node) in shape.nodes_with_domains() {
                        if place.holds_node(capacity, shape, id, node) {
                            add(at, shape, id, node, 1);
                        }
                    }
                }
                _ if self.close.is_some() => {
                    for (id, nodes) in shape.count_nodes_by_domain() {
                        if place.holds_node(capacity, shape, id, first) {
                            add(at, shape, id, first, nodes);
                        }
                    }
                }
                NodeScope::Cluster => add(at, shape, None, first, shape.nodes.len()),
                NodeScope::Domain(domain) => {
                    let within = shape.domains.iter().filter(|(id, _)| capacity.domains.within(*id, domain));
                    add(at, shape, None, first, within.map(|(_, nodes)| *nodes as usize).sum());
                }
                NodeScope::Pinned(_) if place.holds_node(capacity, shape, None, first) => {
                    add(at, shape, None, first, shape.nodes.len());
                }
                NodeScope::Pinned(_) => {}
            }
        }
        free_nodes.admits = admits.into();
        free_nodes.blocks = blocks.into();
        free_nodes
    }

    /// Which tasks' pods may run on a node.
    fn append_admitted_tasks(&self, capacity: &Capacity, shape: &NodeShape, node: &NodeRef, admits: &mut Vec<bool>) {
        let may = |claim: &NodeClaim| {
            shape.labels.is_none() || claim.admits_by(node, |key| shape.label(node, key), &shape.taints)
        };
        let first = admits.len();
        admits.extend(self.gang.tasks.iter().map(|task| may(&task.node)));
        for (admits, claim) in admits[first..].iter_mut().zip(&self.numa) {
            *admits &= capacity.aligns_pods(shape, *claim);
        }
    }

    /// The orders of the tasks that are tried in turn until one packs everything, each once.
    pub(in crate::split) fn list_task_orders(
        &self,
        free_by_cluster: &[&FreeNodes],
    ) -> impl Iterator<Item = Vec<usize>> {
        let mut known: Vec<Vec<usize>> = Vec::with_capacity(ORDERS.len());
        ORDERS.into_iter().filter_map(move |order| {
            let order = self.order_tasks(free_by_cluster, order);
            let is_new = !known.contains(&order);
            if is_new {
                known.push(order.clone());
            }
            is_new.then_some(order)
        })
    }

    /// Indices of tasks, those that are hardest to place on these free nodes first.
    pub(crate) fn order_tasks(&self, free_by_cluster: &[&FreeNodes], order: TaskOrder) -> Vec<usize> {
        let mut tasks: Vec<usize> = (0..self.count_tasks()).collect();
        match order {
            _ if tasks.len() < 2 => {}
            TaskOrder::Spec => {}
            TaskOrder::Reverse => tasks.reverse(),
            TaskOrder::Scarcest => {
                let supply: Vec<u64> = tasks
                    .iter()
                    .map(|task| {
                        free_by_cluster
                            .iter()
                            .fold(0, |sum: u64, free_nodes| sum.saturating_add(free_nodes.max_pods(self, *task)))
                    })
                    .collect();
                // supply / replicas ascending, without dividing.
                tasks.sort_by(|a, b| {
                    let demand = |task: usize| u128::from(self.gang.tasks[task].replicas);
                    (u128::from(supply[*a]) * demand(*b)).cmp(&(u128::from(supply[*b]) * demand(*a))).then(a.cmp(b))
                });
            }
        }
        tasks
    }
}

/// Tasks that ask for the same and may run on the same nodes are of one kind. One with partitions is of its own: where
/// these may be is told by task.
fn group_equal_tasks(gang: &Gang, requests: &[i64], width: usize) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut known: BTreeMap<(&[i64], &NodeClaim), usize> = BTreeMap::new();
    let (mut kinds, mut kind_of) = (Vec::new(), Vec::with_capacity(gang.tasks.len()));
    for (at, task) in gang.tasks.iter().enumerate() {
        let new = kinds.len();
        let kind = match task.partition {
            Some(_) => new,
            None => *known.entry((&requests[at * width..(at + 1) * width], &task.node)).or_insert(new),
        };
        if kind == new {
            kinds.push((at, 0));
        }
        kinds[kind].1 += 1;
        kind_of.push(kind);
    }
    (kinds, kind_of)
}

impl GangRequests<'_> {
    /// The number of pods that must stay together.
    pub(crate) fn partition_size_of(&self, task: usize) -> u32 {
        self.gang.tasks[task].partition_size()
    }
}
