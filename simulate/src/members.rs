//! The member clusters while they are simulated: which pods sit on which nodes, and what waits inside a member.
//!
//! Capacity is `caldera_core::fleet`'s, the same overlay that controller and scheduler decide by, fed with a pod for
//! every node that a job has pods on. A part of a job that was sent to a member is bound whole, by the order in which
//! core packs (tightest nodes first), or waits in that member: parts wait in the order in which they came, and those
//! behind may pass (Volcano's gang plugin with its default actions). What is bound stays bound, even while other parts
//! of the same job still wait elsewhere.

mod upcoming;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use caldera_core::{
    fleet::{Fleet, Update, takes_jobs},
    gang::{Gang, QueueName, Toleration},
    inventory::{Capacity, Change, Pod},
    place::{Cluster, Queues},
    plan::PinnedDomains,
    quantity::Quantity,
    queue::{self, CapacityGrowth},
    resources::{ResourceName, Resources},
    split::{self, LinkedGroups},
    time::EpochSeconds,
};

use self::upcoming::ComingNodes;
use crate::world::{Hold, World};

/// The pods of a job that go to one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Job, as an index into [`World::jobs`].
    pub job: usize,
    /// Cluster, as an index into [`World::clusters`].
    pub cluster: usize,
    /// Of each task, as in the gang.
    pub pods: Vec<u32>,
    /// The tasks.
    pub gang: Arc<Gang>,
    /// The domains of the cluster that they are kept in.
    pub within: PinnedDomains,
}

impl Part {
    /// What the pods ask for.
    #[must_use]
    pub fn demand(&self) -> Resources {
        let mut demand = Resources::new();
        for (task, pods) in self.gang.tasks.iter().zip(&self.pods) {
            demand.add(&task.request.times(u64::from(*pods)));
        }
        demand
    }

    /// What the pods are charged: that, and the card models that they name.
    #[must_use]
    pub fn charge(&self) -> Resources {
        let mut charge = Resources::new();
        for (task, pods) in self.gang.tasks.iter().zip(&self.pods) {
            charge.add(&task.charge().times(u64::from(*pods)));
        }
        charge
    }
}

/// Sums over all nodes, in units of the main resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// What the nodes have.
    pub capacity: u64,
    /// What pods hold.
    pub allocated: u64,
    /// Nodes that have any of it.
    pub nodes: u64,
    /// Nodes of which some but not all is free.
    pub fragmented: u64,
    /// Nodes of which some or all is free.
    pub open: u64,
}

/// One cluster's sums.
#[derive(Debug, Clone, Default)]
struct Sums {
    allocatable: Resources,
    allocated: Resources,
    /// Of parts that wait in the member.
    allocating: Resources,
    /// Of what is allocated, on nodes that take nothing new.
    beyond: Resources,
}

/// A node's main resource, and what is free of all.
#[derive(Debug, Clone, Default)]
struct Use {
    has: i128,
    used: i128,
    free: Resources,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Members {
    fleet: Fleet,
    names: Vec<String>,
    sums: Vec<Sums>,
    /// Parts that wait, by cluster, in the order in which they came.
    lines: Vec<Vec<Part>>,
    /// There may be more capacity than when the line was last looked at.
    grew: Vec<bool>,
    main: ResourceName,
    nodes: Vec<HashMap<Arc<str>, Use>>,
    /// Of each resource the most that is free on a node where something was given back.
    largest: Resources,
    tally: Tally,
    capacity_nano: i128,
    allocated_nano: i128,
    /// By the taints of clusters that some job tolerates.
    tolerant: BTreeSet<Vec<Toleration>>,
    /// Some cluster takes nothing new.
    closed: bool,
    /// Each cluster's own queues, with what their pods hold now.
    queues: Vec<Queues>,
    /// The queue of each job.
    queue_of: Vec<QueueName>,
    /// Of autoscaled groups.
    coming: ComingNodes,
    /// All clusters without any pods, and with all nodes that may come; `None` where none may.
    largest_fleet: Option<Vec<(Cluster, Capacity)>>,
}

impl Members {
    /// The world's clusters, empty.
    #[must_use]
    pub fn new(world: &World, main: &ResourceName) -> Self {
        let mut members = Self {
            fleet: Fleet::default(),
            names: world.clusters.iter().map(|one| one.cluster.name.clone()).collect(),
            sums: vec![Sums::default(); world.clusters.len()],
            lines: vec![Vec::new(); world.clusters.len()],
            grew: vec![false; world.clusters.len()],
            main: main.clone(),
            nodes: vec![HashMap::new(); world.clusters.len()],
            largest: Resources::new(),
            tally: Tally::default(),
            capacity_nano: 0,
            allocated_nano: 0,
            tolerant: world.jobs.iter().map(|job| job.shape.binding.placement.tolerations.clone()).collect(),
            closed: false,
            queues: world.clusters.iter().map(|one| one.queues.clone()).collect(),
            queue_of: world.jobs.iter().map(|job| job.queue.clone()).collect(),
            coming: ComingNodes::default(),
            largest_fleet: None,
        };
        members.closed = world.clusters.iter().any(|one| !members.takes_jobs(&one.cluster));
        members.fleet.set_federation_topology(world.links.clone());
        for (i, one) in world.clusters.iter().enumerate() {
            members.fleet.set_cluster(one.cluster.clone(), Capacity::default());
            let hyper_nodes = Change::HyperNodes(one.hyper_nodes.clone());
            members.fleet.apply_update(&one.cluster.name, Update::Change(hyper_nodes));
            members.fleet.apply_update(&one.cluster.name, Update::Change(Change::Nodes(one.nodes.clone())));
            members.fleet.apply_update(&one.cluster.name, Update::Change(Change::Pods(Vec::new())));
            let usable = one.nodes.iter().filter(|node| node.ready && !node.unschedulable);
            usable.for_each(|node| members.count_node(i, node));
        }
        members.fleet.refresh_capacities();
        members.largest_fleet = members.fleet.has_autoscaled_groups().then(|| {
            let all = members.fleet.clusters_with_upcoming();
            all.map(|(cluster, capacity)| (cluster.clone(), capacity.clone())).collect()
        });
        for (job, of) in world.jobs.iter().enumerate() {
            members.fleet.set_selected_labels(&job.to_string(), Some(&of.shape.gang));
        }
        members
    }

    /// Brings up to date what is free.
    pub(crate) fn refresh(&mut self) {
        self.fleet.refresh_capacities();
    }

    /// All clusters with what is free in each.
    pub fn clusters(&mut self) -> Vec<(&Cluster, &Capacity)> {
        self.fleet.refresh_capacities();
        self.fleet.clusters().collect()
    }

    /// All clusters with what was free in each when that was last brought up to date, what links make of them, and the
    /// queues of each.
    pub(crate) fn view(&self) -> (Vec<(&Cluster, &Capacity)>, &[LinkedGroups], &[Queues]) {
        (self.fleet.clusters().collect(), self.fleet.linked_groups(), &self.queues)
    }

    /// A cluster's place in [`World::clusters`].
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|one| one.as_str().cmp(name)).ok()
    }

    /// What Karmada's resource summary would say of each cluster: one node as large as all, without what pods hold and
    /// without what pending pods ask for.
    #[must_use]
    pub fn summaries(&self) -> Vec<Capacity> {
        let summary = |sums: &Sums| Capacity::from_summary(&sums.allocatable, &sums.allocated, &sums.allocating);
        self.sums.iter().map(summary).collect()
    }

    /// What is free in all clusters together; where nodes may come that, and what of them nobody waits for, as it was
    /// when that was last brought up to date.
    #[must_use]
    pub fn free(&self) -> Resources {
        if self.fleet.has_autoscaled_groups() {
            return self.fleet.sum_free_with_upcoming();
        }
        let mut free = Resources::new();
        for sums in &self.sums {
            let mut here = sums.allocatable.clone();
            here.saturating_sub(&sums.allocated);
            free.add(&here);
        }
        free
    }

    /// When the next maintenance window of a cluster ends, after that time.
    #[must_use]
    pub(crate) fn next_maintenance_end(&self, after: EpochSeconds) -> Option<EpochSeconds> {
        self.fleet.next_maintenance_end(after)
    }

    /// What there is more of since this was last asked.
    pub(crate) fn take_growth(&mut self) -> CapacityGrowth {
        self.refresh();
        CapacityGrowth { free: self.free(), largest: std::mem::take(&mut self.largest) }
    }

    /// What the queue engine is told of the fleet, as the controller tells it: of clusters that take nothing new what
    /// jobs hold there. What others use is off the nodes already.
    #[must_use]
    pub fn total(&self) -> queue::FleetResources {
        let (mut ready, mut whole, mut ready_clusters) = (Resources::new(), Resources::new(), 0);
        for ((cluster, _), sums) in self.fleet.clusters().zip(&self.sums) {
            let may_come = self.fleet.sum_upcoming(&cluster.name);
            [&sums.allocatable, &may_come].into_iter().for_each(|has| whole.add(has));
            if self.takes_jobs(cluster) {
                [&sums.allocatable, &may_come].into_iter().for_each(|has| ready.add(has));
                ready.add(&sums.beyond);
                ready_clusters += 1;
            } else {
                ready.add(&sums.allocated);
                ready.add(&sums.allocating);
            }
        }
        queue::FleetResources { ready, whole: Some(whole), ready_clusters }
    }

    fn takes_jobs(&self, cluster: &Cluster) -> bool {
        takes_jobs(cluster, |taint| self.tolerant.iter().any(|tolerations| taint.tolerated_by(tolerations)))
    }

    /// Whether the total follows what jobs hold: some cluster, or some node where a job is, takes nothing new.
    #[must_use]
    pub fn has_changing_total(&self) -> bool {
        self.closed || self.sums.iter().any(|sums| !sums.beyond.is_empty())
    }

    /// Sums over all nodes.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Parts that wait inside members.
    #[must_use]
    pub fn count_waiting_parts(&self) -> usize {
        self.lines.iter().map(Vec::len).sum()
    }

    /// Binds a part now, or lets it wait in its member.
    pub fn bind_or_queue_part(&mut self, part: Part) -> Option<Vec<Hold>> {
        let holds = self.bind(&part);
        if holds.is_none() {
            self.sums[part.cluster].allocating.add(&part.demand());
            self.assume_waiting(&part);
            self.lines[part.cluster].push(part);
        }
        holds
    }

    /// Binds what waited in members where capacity was given back. No part keeps nodes from those before it, nor those
    /// that it can not use yet from those behind it.
    pub fn bind_waiting_parts(&mut self) -> Vec<(Part, Vec<Hold>)> {
        let mut bound = Vec::new();
        for cluster in 0..self.lines.len() {
            if !std::mem::take(&mut self.grew[cluster]) || self.lines[cluster].is_empty() {
                continue;
            }
            let mut refused: Vec<(Arc<Gang>, Vec<u32>)> = Vec::new();
            let line = std::mem::take(&mut self.lines[cluster]);
            line.iter().for_each(|part| self.forget_waiting(part));
            let mut left = Vec::new();
            for part in line {
                let known = refused.iter().any(|(gang, pods)| Arc::ptr_eq(gang, &part.gang) && *pods == part.pods);
                match if known { None } else { self.bind(&part) } {
                    Some(holds) => {
                        self.sums[cluster].allocating.saturating_sub(&part.demand());
                        bound.push((part, holds));
                    }
                    None => {
                        refused.push((Arc::clone(&part.gang), part.pods.clone()));
                        left.push(part);
                    }
                }
            }
            left.iter().for_each(|part| self.assume_waiting(part));
            self.lines[cluster] = left;
        }
        bound
    }

    /// A job is gone: what it held is free, and its parts wait no longer.
    pub fn release(&mut self, job: usize, holds: &[Hold]) {
        for hold in holds {
            self.sums[hold.cluster].allocated.saturating_sub(&hold.amount);
            if !self.nodes[hold.cluster].contains_key(&hold.node) {
                self.sums[hold.cluster].beyond.saturating_sub(&hold.amount);
            }
            self.count_in_queue(job, hold, Resources::saturating_sub);
            self.count(hold, -1);
            let gone = Change::PodGone(String::new(), pod_name(job, &hold.node));
            self.fleet.apply_update(&self.names[hold.cluster], Update::Change(gone));
            self.grew[hold.cluster] = true;
        }
        for cluster in 0..self.lines.len() {
            for part in self.lines[cluster].extract_if(.., |part| part.job == job).collect::<Vec<_>>() {
                self.sums[cluster].allocating.saturating_sub(&part.demand());
                self.forget_waiting(&part);
            }
        }
    }

    /// Takes in what a job holds on a node.
    pub fn add_hold(&mut self, job: usize, hold: &Hold) {
        let pod = Pod {
            name: pod_name(job, &hold.node),
            node: Some(hold.node.to_string()),
            request: hold.amount.clone(),
            ..Pod::default()
        };
        self.fleet.apply_update(&self.names[hold.cluster], Update::Change(Change::Pod(pod)));
        self.sums[hold.cluster].allocated.add(&hold.amount);
        if !self.nodes[hold.cluster].contains_key(&hold.node) {
            self.sums[hold.cluster].beyond.add(&hold.amount);
        }
        self.count_in_queue(job, hold, Resources::add);
        self.count(hold, 1);
    }

    /// What a job's pods hold counts in the queue of that name that their cluster has.
    fn count_in_queue(&mut self, job: usize, hold: &Hold, change: fn(&mut Resources, &Resources)) {
        let name = self.queue_of.get(job).map_or("", QueueName::as_str);
        if let Some(queue) = self.queues[hold.cluster].get_mut(name) {
            change(&mut queue.allocated, &hold.amount);
        }
    }

    /// All of a part, on nodes, or nothing.
    fn bind(&mut self, part: &Part) -> Option<Vec<Hold>> {
        let demand = part.demand();
        let sums = &self.sums[part.cluster];
        let within = |(name, asked): (&ResourceName, Quantity)| {
            let name = name.as_str();
            asked.as_nano() + sums.allocated.get(name).as_nano() <= sums.allocatable.get(name).as_nano()
        };
        if !demand.iter().all(within) {
            return None;
        }
        self.fleet.refresh_capacities();
        let name = &self.names[part.cluster];
        let (_, before) = self.fleet.clusters().find(|(cluster, _)| cluster.name == *name)?;
        let after = split::subtract_assumed_pods(before.clone(), &part.gang, &part.pods, &part.within);
        let holds: Vec<Hold> = sum_taken_by_node(before, &after)
            .into_iter()
            .map(|(node, amount)| Hold { cluster: part.cluster, node, amount })
            .collect();
        let mut sum = Resources::new();
        holds.iter().for_each(|hold| sum.add(&hold.amount));
        if sum != demand {
            return None;
        }
        holds.iter().for_each(|hold| self.add_hold(part.job, hold));
        Some(holds)
    }

    fn count(&mut self, hold: &Hold, sign: i128) {
        let amount = hold.amount.get(self.main.as_str()).as_nano() * sign;
        let Some(node) = self.nodes[hold.cluster].get_mut(&hold.node) else { return };
        if sign > 0 {
            node.free.saturating_sub(&hold.amount);
        } else {
            node.free.add(&hold.amount);
            self.largest = self.largest.max(&node.free);
        }
        if node.has <= 0 {
            return;
        }
        let class = |node: &Use| (u64::from(node.used < node.has), u64::from(node.used > 0 && node.used < node.has));
        let (open, fragmented) = class(node);
        node.used += amount;
        let (now_open, now_fragmented) = class(node);
        self.tally.open = self.tally.open + now_open - open;
        self.tally.fragmented = self.tally.fragmented + now_fragmented - fragmented;
        self.allocated_nano += amount;
        self.tally.allocated = units(self.allocated_nano);
    }
}

fn pod_name(job: usize, node: &str) -> String {
    format!("{job}@{node}")
}

/// Whole units, rounded up.
fn units(nano: i128) -> u64 {
    u64::try_from(Quantity::from_nano(nano).units_ceil()).unwrap_or(0)
}

/// What was taken from each node, by name.
fn sum_taken_by_node(before: &Capacity, after: &Capacity) -> BTreeMap<Arc<str>, Resources> {
    let shapes = before.shapes.iter();
    let was: HashMap<&str, usize> =
        shapes.enumerate().flat_map(|(i, shape)| shape.nodes.iter().map(move |node| (&**node, i))).collect();
    let mut taken = BTreeMap::new();
    for shape in &after.shapes {
        // All nodes of a shape come from one shape.
        let Some(origin) = shape.nodes.first().and_then(|node| was.get(&**node)) else { continue };
        let free = &before.shapes[*origin].free;
        if *free == shape.free {
            continue;
        }
        let left = |name: &ResourceName| shape.free.get(name).copied().unwrap_or(Quantity::ZERO);
        let amount: Resources = free.iter().map(|(name, free)| (name.clone(), free.signed_sub(left(name)))).collect();
        for node in &shape.nodes {
            taken.insert(Arc::clone(node.name()), amount.clone());
        }
    }
    taken
}
