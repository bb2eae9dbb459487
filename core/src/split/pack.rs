//! Whether pods fit node by node: vector bin packing over shapes instead of single nodes.
//!
//! A cluster is a list of groups of equal nodes; placing `n` equal pods fills whole groups by division and splits at
//! most one group, so the cost depends on the number of shapes and not of pods or nodes. For one task the count is
//! exact. For several tasks it is first-fit over tasks, tightest nodes first: what it packs does fit; what it can not
//! pack might, in rare cases, fit with a cleverer arrangement (several orders are tried).

use crate::{
    gang::{ClusterName, Gang},
    inventory::{Capacity, Shape},
    resources::ResourceName,
    select::HOSTNAME,
};

/// A gang's requests as numbers: one column for each resource that any task asks for.
#[derive(Debug)]
pub(crate) struct Kit<'a> {
    pub gang: &'a Gang,
    resources: Vec<ResourceName>,
    /// Row-major: task, resource.
    requests: Vec<i64>,
    /// Some task tells nodes apart by name.
    by_name: bool,
}

/// Free capacity of one cluster while it is being filled.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    groups: Vec<Group>,
    /// Row-major: group, resource.
    free: Vec<i64>,
    /// Row-major: class, task: may the task's pods run there?
    admits: std::sync::Arc<[bool]>,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    nodes: u32,
    class: u32,
}

/// Which tasks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Scarcest,
    Spec,
    Reverse,
}

/// Tried in turn until one packs everything.
pub(crate) const ORDERS: [Order; 3] = [Order::Scarcest, Order::Spec, Order::Reverse];

impl<'a> Kit<'a> {
    pub(crate) fn new(gang: &'a Gang) -> Self {
        let mut resources: Vec<ResourceName> = gang
            .tasks
            .iter()
            .flat_map(|task| task.request.iter().filter(|(_, amount)| !amount.is_negative()).map(|(name, _)| name))
            .cloned()
            .collect();
        resources.sort();
        resources.dedup();
        let requests = gang
            .tasks
            .iter()
            .flat_map(|task| resources.iter().map(|name| ceil(name, task.request.get(name.as_str())).max(0)))
            .collect();
        let by_name = gang.tasks.iter().any(|task| task.node.names_nodes());
        Self { gang, resources, requests, by_name }
    }

    pub(crate) fn tasks(&self) -> usize {
        self.gang.tasks.len()
    }

    fn request(&self, task: usize) -> &[i64] {
        let width = self.resources.len();
        &self.requests[task * width..(task + 1) * width]
    }

    /// The cluster's free capacity as seen by this gang.
    pub(crate) fn room(&self, capacity: &Capacity) -> Room {
        let rows =
            if self.by_name { capacity.shapes.iter().map(|s| s.nodes.len()).sum() } else { capacity.shapes.len() };
        let mut room = (Vec::with_capacity(rows), Vec::with_capacity(rows * self.resources.len()));
        let mut admits = Vec::with_capacity(rows * self.tasks());
        for shape in &capacity.shapes {
            if self.by_name {
                for name in &shape.nodes {
                    self.group(shape, name, 1, &mut room, &mut admits);
                }
            } else {
                let nodes = u32::try_from(shape.nodes.len()).unwrap_or(u32::MAX);
                self.group(shape, shape.nodes.first().map_or("", |name| name), nodes, &mut room, &mut admits);
            }
        }
        Room { groups: room.0, free: room.1, admits: admits.into() }
    }

    fn group(
        &self,
        shape: &Shape,
        name: &str,
        nodes: u32,
        (groups, free): &mut (Vec<Group>, Vec<i64>),
        admits: &mut Vec<bool>,
    ) {
        let class = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        groups.push(Group { nodes, class });
        free.extend(
            self.resources
                .iter()
                .map(|resource| shape.free.get(resource.as_str()).map_or(0, |amount| floor(resource, *amount)).max(0)),
        );
        let named;
        let labels = match &shape.labels {
            Some(labels) if self.by_name => {
                let mut labels = (**labels).clone();
                labels.insert(HOSTNAME.to_owned(), name.to_owned());
                named = labels;
                Some(&named)
            }
            labels => labels.as_deref(),
        };
        admits.extend(self.gang.tasks.iter().map(|task| match labels {
            Some(labels) => task.node.admits(name, labels, &shape.taints),
            None => true,
        }));
    }

    /// Indices of tasks, those that are hardest to place in these rooms first.
    pub(crate) fn order(&self, rooms: &[Room], order: Order) -> Vec<usize> {
        let mut tasks: Vec<usize> = (0..self.tasks()).collect();
        match order {
            Order::Spec => {}
            Order::Reverse => tasks.reverse(),
            Order::Scarcest => {
                let supply: Vec<u64> = tasks
                    .iter()
                    .map(|task| rooms.iter().fold(0, |sum: u64, room| sum.saturating_add(room.most(self, *task))))
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

impl Room {
    fn free(&self, group: usize, width: usize) -> &[i64] {
        &self.free[group * width..(group + 1) * width]
    }

    fn admits(&self, kit: &Kit<'_>, group: usize, task: usize) -> bool {
        self.admits[self.groups[group].class as usize * kit.tasks() + task]
    }

    /// Pods of the task that one node of the group takes.
    fn per_node(&self, kit: &Kit<'_>, group: usize, task: usize) -> u64 {
        if !self.admits(kit, group, task) {
            return 0;
        }
        let mut most = u64::from(u32::MAX);
        for (free, asked) in self.free(group, kit.resources.len()).iter().zip(kit.request(task)) {
            if *asked > 0 {
                most = most.min((free / asked).unsigned_abs());
            }
        }
        most
    }

    /// The most pods of this task alone that fit.
    pub(crate) fn most(&self, kit: &Kit<'_>, task: usize) -> u64 {
        (0..self.groups.len())
            .map(|group| self.per_node(kit, group, task).saturating_mul(u64::from(self.groups[group].nodes)))
            .fold(0, u64::saturating_add)
    }

    /// Places up to `pods` of the task in steps of `unit`, on the tightest nodes first; how many fitted.
    pub(crate) fn put(&mut self, kit: &Kit<'_>, task: usize, pods: u32, unit: u32) -> u32 {
        let mut nodes: Vec<(usize, u64, usize)> = (0..self.groups.len())
            .filter_map(|group| match self.per_node(kit, group, task) {
                0 => None,
                fits => Some((self.useful_to_others(kit, group, task), fits, group)),
            })
            .collect();
        let room = nodes.iter().fold(0_u64, |sum, (_, fits, group)| {
            sum.saturating_add(fits.saturating_mul(u64::from(self.groups[*group].nodes)))
        });
        let unit = unit.max(1);
        let pods = u32::try_from(room.min(u64::from(pods))).unwrap_or(pods) / unit * unit;
        nodes.sort_unstable();
        let mut left = u64::from(pods);
        for (_, fits, group) in nodes {
            if left == 0 {
                break;
            }
            let full = (left / fits).min(u64::from(self.groups[group].nodes));
            self.take(kit, group, task, u32::try_from(full).unwrap_or(u32::MAX), fits);
            left -= full * fits;
            // What remains is less than a node of this group takes, or the group is used up.
            if self.groups[group].nodes > 0 && left > 0 && left < fits {
                self.take(kit, group, task, 1, left);
                left = 0;
            }
        }
        pods
    }

    /// Other tasks of the gang that could use the node: those nodes are left for later.
    fn useful_to_others(&self, kit: &Kit<'_>, group: usize, task: usize) -> usize {
        (0..kit.tasks()).filter(|other| *other != task && self.per_node(kit, group, *other) > 0).count()
    }

    /// Puts `each` pods on `nodes` nodes of the group, which become a group of their own.
    fn take(&mut self, kit: &Kit<'_>, group: usize, task: usize, nodes: u32, each: u64) {
        if nodes == 0 || each == 0 {
            return;
        }
        let width = kit.resources.len();
        let each = i64::try_from(each).unwrap_or(i64::MAX);
        self.groups[group].nodes -= nodes;
        let class = self.groups[group].class;
        self.groups.push(Group { nodes, class });
        for column in 0..width {
            let left = self.free[group * width + column] - kit.request(task)[column].saturating_mul(each);
            self.free.push(left);
        }
    }

    /// Places up to `pods[task]` of each task in this order; how many of each fitted.
    pub(crate) fn fill(&mut self, kit: &Kit<'_>, pods: &[u32], order: &[usize]) -> Vec<u32> {
        let mut placed = vec![0; pods.len()];
        for task in order {
            placed[*task] = self.put(kit, *task, pods[*task], kit.unit(*task));
        }
        placed
    }
}

impl Kit<'_> {
    /// The number of pods that must stay together.
    pub(crate) fn unit(&self, task: usize) -> u32 {
        self.gang.tasks[task].partition.map_or(1, |partition| partition.size.max(1))
    }

    /// Why no more pods of a task fit in these clusters: the tightest resource over all nodes it may run on.
    pub(crate) fn lack(&self, task: usize, rooms: &[(&ClusterName, Room)]) -> super::Lack {
        let width = self.resources.len();
        let mut matching = 0_u64;
        let mut fits = vec![0_u64; width];
        let mut free = vec![0_i128; width];
        for (_, room) in rooms {
            for group in 0..room.groups.len() {
                if !room.admits(self, group, task) {
                    continue;
                }
                let nodes = u64::from(room.groups[group].nodes);
                matching += nodes;
                for (column, amount) in room.free(group, width).iter().enumerate() {
                    free[column] += i128::from(*amount) * i128::from(nodes);
                    let asked = self.request(task)[column];
                    if asked > 0 {
                        fits[column] = fits[column].saturating_add((amount / asked).unsigned_abs() * nodes);
                    }
                }
            }
        }
        if matching == 0 {
            return super::Lack::NoNodeMatches;
        }
        let tightest = (0..width).filter(|column| self.request(task)[*column] > 0).min_by_key(|column| fits[*column]);
        match tightest {
            Some(column) => super::Lack::Resource {
                name: self.resources[column].clone(),
                each: self.gang.tasks[task].request.get(self.resources[column].as_str()),
                free: units(&self.resources[column], free[column]),
            },
            None => super::Lack::NoNodeMatches,
        }
    }
}

fn scale(name: &ResourceName) -> i128 {
    if name.as_str() == ResourceName::CPU { 1_000_000 } else { 1_000_000_000 }
}

fn units(name: &ResourceName, amount: i128) -> crate::quantity::Quantity {
    crate::quantity::Quantity::from_nano(amount.saturating_mul(scale(name)))
}

fn ceil(name: &ResourceName, amount: crate::quantity::Quantity) -> i64 {
    i64::try_from(-(-amount.as_nano()).div_euclid(scale(name))).unwrap_or(i64::MAX)
}

fn floor(name: &ResourceName, amount: crate::quantity::Quantity) -> i64 {
    i64::try_from(amount.as_nano().div_euclid(scale(name))).unwrap_or(i64::MAX)
}

/// The capacity after these pods were put on it, as far as they fit (others hold what they were promised, even if the
/// inventory has changed since).
pub(super) fn without(capacity: &Capacity, gang: &Gang, pods: &[u32]) -> Capacity {
    let kit = Kit::new(gang);
    let mut left = capacity.clone();
    if kit.by_name {
        left.shapes = capacity.shapes.iter().flat_map(single_nodes).collect();
    }
    let original = kit.room(&left);
    let before = original.groups.len();
    let room = packed(&kit, &original, pods);
    let width = kit.resources.len();
    let mut shapes = Vec::with_capacity(room.groups.len());
    let mut names: Vec<std::slice::Iter<'_, std::sync::Arc<str>>> =
        left.shapes.iter().map(|s| s.nodes.iter()).collect();
    for (index, group) in room.groups.iter().enumerate() {
        let class = group.class as usize;
        let nodes: Vec<_> = names[class].by_ref().take(group.nodes as usize).cloned().collect();
        if nodes.is_empty() {
            continue;
        }
        let shape = &left.shapes[class];
        let mut free = shape.free.clone();
        if index >= before {
            for (column, resource) in kit.resources.iter().enumerate() {
                let used = original.free(class, width)[column] - room.free(index, width)[column];
                if let Some(amount) = free.get_mut(resource) {
                    *amount = amount.saturating_sub(units(resource, i128::from(used)));
                }
            }
        }
        shapes.push(Shape { free, nodes, ..shape.clone() });
    }
    left.shapes = shapes;
    left
}

/// The room with these pods in it, as the split found them a place: all by one order, or the gang's minimum first and
/// then the rest. Where nothing packs them all, what packs most.
fn packed(kit: &Kit<'_>, room: &Room, pods: &[u32]) -> Room {
    let wanted: Vec<u32> = (0..kit.tasks()).map(|task| pods.get(task).copied().unwrap_or(0)).collect();
    let all: u64 = wanted.iter().map(|pods| u64::from(*pods)).sum();
    let needed = kit.gang.tasks.iter().zip(&wanted).map(|(task, pods)| task.min_available.min(*pods)).collect();
    let mut best: Option<(u64, Room)> = None;
    for first in [vec![0; kit.tasks()], needed] {
        let rest: Vec<u32> = wanted.iter().zip(&first).map(|(wanted, first)| wanted - first).collect();
        for order in ORDERS {
            let order = kit.order(std::slice::from_ref(room), order);
            let mut trial = room.clone();
            let steps = [&first, &rest].into_iter().flat_map(|step| order.iter().map(move |task| (*task, step[*task])));
            let put = steps.map(|(task, pods)| u64::from(trial.put(kit, task, pods, 1))).sum();
            if put == all {
                return trial;
            }
            if best.as_ref().is_none_or(|(most, _)| put > *most) {
                best = Some((put, trial));
            }
        }
    }
    best.map_or_else(|| room.clone(), |(_, room)| room)
}

fn single_nodes(shape: &Shape) -> Vec<Shape> {
    shape.nodes.iter().map(|node| Shape { nodes: vec![node.clone()], ..shape.clone() }).collect()
}
