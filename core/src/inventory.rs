//! What a member cluster can still take: its nodes and the pods bound to them, reduced to free capacity by node shape and by
//! network domain.
//!
//! Rule: kube-scheduler's `NodeInfo`: free is allocatable minus the requests of every pod that is bound to the node and
//! has not finished, whoever owns it; each pod takes one of `pods`. Cordoned and NotReady nodes offer nothing (Karmada's
//! resource summary counts them: `cluster_status_controller.go:571`). Nodes that differ only in name are one [`Shape`]
//! with a count: sums over nodes would let fragments add up to what no node holds.
//!
//! Each change touches the shapes of the nodes that it is about, and equal labels, requests and owners are kept once: 200
//! members of 1,000 nodes are followed in one process (`examples/inventory.rs` measures it).

mod amounts;
mod capacity;
mod domain;
mod held;
mod named;
mod pool;
mod profile;
mod relabel;
mod removed_pods;
mod shown;
mod sorted;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use amounts::Amounts;
pub(crate) use capacity::Less;
pub use capacity::{Capacity, Shape, Source};
pub use domain::{Domain, DomainId, Domains, HyperNode, Member};
pub use named::NodeRef;
pub use profile::{Profile, WHOLE, ceil, floor, scale};
pub use removed_pods::RemovedPods;

use crate::{
    gang::{Taint, TaskName, WorkloadRef},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use domain::Matcher;
use held::{Held, PodKey, Stem};
use named::Book;
use pool::Pool;
use shown::Shown;
use sorted::{Demand, Kind, KindRef, NodeSpec, NodeState, NoneLast, Shapes, put_in, take_out};

/// A member's node as the inventory needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// What pods may ask for in all.
    pub allocatable: Resources,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// Cordoned.
    pub unschedulable: bool,
}

/// A member's pod as the inventory needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its node, once bound.
    pub node: Option<String>,
    /// What it asks for, `pods: 1` included.
    pub request: Resources,
    /// Succeeded or failed: it holds nothing any more.
    pub finished: bool,
    /// Whose pod it is, where its labels say so.
    pub owner: Option<Owner>,
}

/// The workload (and task) a pod belongs to; the workload's namespace is the pod's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// API group of the workload, empty for core.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The task, for a Volcano Job.
    pub task: Option<TaskName>,
}

impl Owner {
    /// The workload, for a pod in this namespace.
    #[must_use]
    pub fn workload(&self, namespace: &str) -> WorkloadRef {
        WorkloadRef {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: namespace.to_owned(),
            name: self.name.clone(),
        }
    }
}

/// What happened in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These are all nodes now.
    Nodes(Vec<Node>),
    /// A node was created or changed.
    Node(Node),
    /// A node is gone.
    NodeGone(String),
    /// These are all pods now.
    Pods(Vec<Pod>),
    /// A pod was created or changed.
    Pod(Pod),
    /// A pod is gone (namespace, name).
    PodGone(String, String),
    /// These are all HyperNodes now.
    HyperNodes(Vec<HyperNode>),
    /// A HyperNode was created or changed.
    HyperNode(HyperNode),
    /// A HyperNode is gone.
    HyperNodeGone(String),
}

/// A member's nodes and pods, kept up to date by [`Change`]s.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    nodes: BTreeMap<Arc<str>, NodeState>,
    pods: BTreeMap<PodKey, Held>,
    owners: BTreeMap<(Arc<str>, Arc<Owner>), Seen>,
    hyper_nodes: BTreeMap<String, HyperNode>,
    domains: Arc<Domains>,
    matcher: Matcher,
    shapes: Shapes,
    shown: Shown,
    labels: Book,
    kinds: Pool<Kind>,
    requests: Pool<Demand>,
    known_owners: Pool<Owner>,
    stems: Pool<Stem>,
    namespaces: BTreeSet<Arc<str>>,
    /// Nodes and pods arrive by separate lists; before both are there the numbers mean nothing.
    listed: (bool, bool),
}

/// Pods of a workload (or task) that reached a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bound and not finished.
    pub bound: u32,
    /// Succeeded or failed.
    pub finished: u32,
}

impl Seen {
    fn count(&mut self, finished: bool) -> &mut u32 {
        if finished { &mut self.finished } else { &mut self.bound }
    }
}

impl Inventory {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True once both nodes and pods were listed. HyperNodes are told before, or there are none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.listed == (true, true)
    }

    /// Nodes and pods are to be listed anew before the numbers mean anything; which pods were seen is remembered.
    pub const fn list_again(&mut self) {
        self.listed = (false, false);
    }

    /// Takes a change in; true if what the member offers (or who holds it) may have changed.
    pub fn apply_change(&mut self, change: Change) -> bool {
        match change {
            Change::Nodes(nodes) => {
                self.listed.0 = true;
                let named: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                let gone: Vec<Arc<str>> =
                    self.nodes.keys().filter(|name| !named.contains(name.as_ref())).cloned().collect();
                for name in gone {
                    self.node_gone(&name);
                }
                for node in nodes {
                    self.node(node);
                }
                true
            }
            Change::Node(node) => self.node(node),
            Change::NodeGone(name) => self.node_gone(&name),
            Change::Pods(pods) => self.pods(pods),
            Change::Pod(pod) => self.pod(pod),
            Change::PodGone(namespace, name) => {
                let key = self.key(namespace, &name);
                self.release(&key)
            }
            Change::HyperNodes(all) => {
                let all = all.into_iter().map(|one| (one.name.clone(), one)).collect();
                std::mem::replace(&mut self.hyper_nodes, all) != self.hyper_nodes && self.replant()
            }
            Change::HyperNode(one) => {
                let same = self.hyper_nodes.get(&one.name) == Some(&one);
                self.hyper_nodes.insert(one.name.clone(), one);
                !same && self.replant()
            }
            Change::HyperNodeGone(name) => self.hyper_nodes.remove(&name).is_some() && self.replant(),
        }
    }

    /// The workload of a pod that is, or was, on a node.
    #[must_use]
    pub fn workload_of(&self, namespace: &str, name: &str) -> Option<WorkloadRef> {
        let held = self.pods.get(&PodKey::new(&mut Pool::default(), namespace.into(), name))?;
        held.owner.as_ref().map(|owner| owner.workload(namespace))
    }

    /// Pods of a workload that reached nodes, by task (`None` for kinds without tasks).
    #[must_use]
    pub fn pods_seen(&self, workload: &WorkloadRef) -> BTreeMap<Option<TaskName>, Seen> {
        let WorkloadRef { group, kind, namespace, name } = workload;
        let first = Owner { group: group.clone(), kind: kind.clone(), name: name.clone(), task: None };
        let is_same = |(ns, owner): &(Arc<str>, Arc<Owner>)| {
            **ns == **namespace && owner.group == *group && owner.kind == *kind && owner.name == *name
        };
        self.owners
            .range((Arc::from(namespace.as_str()), Arc::new(first))..)
            .take_while(|(key, _)| is_same(key))
            .map(|((_, owner), seen)| (owner.task.clone(), *seen))
            .collect()
    }

    /// What is free now, by shape. Nothing until both lists have arrived.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity_without(&BTreeMap::new())
    }

    /// All that is free on usable nodes, whatever its shape.
    #[must_use]
    pub fn free(&self) -> Resources {
        let mut sum = Resources::new();
        if self.is_complete() {
            for (free, places) in self.shapes.values().flatten() {
                let one: Resources = free.iter().map(|(name, amount)| (name.clone(), *amount)).collect();
                sum.add(&one.times(places.len() as u64));
            }
        }
        sum
    }

    /// What would be free if all pods of such workloads were gone.
    #[must_use]
    pub fn capacity_without_all(&self, gone: impl Fn(&WorkloadRef) -> bool) -> Capacity {
        let given_back = self.given_back_by(gone);
        self.with_given_back(&given_back)
    }

    /// What would be free if these workloads' pods were gone: all of them, or so many of each task (`None` for kinds
    /// without tasks), the last ones, as the member's controllers take them.
    #[must_use]
    pub fn capacity_without(&self, gone: &BTreeMap<&WorkloadRef, RemovedPods>) -> Capacity {
        self.with_given_back(&self.given_back(gone))
    }

    fn with_given_back(&self, given_back: &BTreeMap<&str, Demand>) -> Capacity {
        if !self.is_complete() {
            return Capacity::default();
        }
        let moved;
        let by_kind = if given_back.is_empty() {
            &self.shapes
        } else {
            moved = self.shapes_with(given_back);
            &moved
        };
        let mut shapes = Vec::with_capacity(by_kind.values().map(BTreeMap::len).sum());
        for (KindRef(kind), by_free) in by_kind {
            for (free, places) in by_free {
                let mut shape = Shape {
                    labels: Some(Arc::clone(&kind.labels)),
                    taints: Arc::clone(&kind.taints),
                    allocatable: Arc::clone(&kind.allocatable),
                    free: Arc::clone(free),
                    nodes: Vec::with_capacity(places.len()),
                    domains: Vec::new(),
                };
                for (NoneLast(domain), node) in places {
                    shape.push(*domain, node.clone());
                }
                shapes.push(shape);
            }
        }
        let idle = self.specs().filter(|spec| !spec.usable);
        let mut capacity = Capacity::new(shapes, Source::Nodes);
        capacity.domains = Arc::clone(&self.domains);
        capacity.idle = idle.filter_map(|spec| Some((spec.domain?, spec.node.clone()))).collect();
        capacity.shown = Some(Arc::clone(self.shown.keys()));
        capacity
    }

    fn specs(&self) -> impl Iterator<Item = &NodeSpec> + Clone {
        self.nodes.values().filter_map(|state| state.spec.as_ref())
    }

    /// The shapes where some nodes get something back.
    fn shapes_with(&self, given_back: &BTreeMap<&str, Demand>) -> Shapes {
        let mut shapes = self.shapes.clone();
        for (name, back) in given_back {
            let Some(state) = self.nodes.get(*name) else { continue };
            take_out(&mut shapes, state);
            let mut state = state.clone();
            state.used = Arc::new(state.used.plus(back, -1));
            put_in(&mut shapes, &state);
        }
        shapes
    }

    /// All nodes anew by shape.
    fn sort(&mut self) {
        self.shapes.clear();
        for state in self.nodes.values() {
            put_in(&mut self.shapes, state);
        }
    }

    /// The tree of domains anew, and every node's place in it.
    fn replant(&mut self) -> bool {
        let (domains, matcher) = domain::tree(self.hyper_nodes.values());
        (self.domains, self.matcher) = (Arc::new(domains), matcher);
        for state in self.nodes.values_mut() {
            let Some(spec) = &state.spec else { continue };
            let domain = self.matcher.domain_of(&spec.node);
            if domain != spec.domain {
                take_out(&mut self.shapes, state);
                state.spec.iter_mut().for_each(|spec| spec.domain = domain);
                put_in(&mut self.shapes, state);
            }
        }
        true
    }

    fn node(&mut self, node: Node) -> bool {
        let name: Arc<str> = self.name_of(&node.name);
        let named = self.labels.node(Arc::clone(&name), node.labels);
        let domain = self.matcher.domain_of(&named);
        let mut taints = node.taints;
        taints.sort();
        let allocatable: Amounts =
            node.allocatable.iter().map(|(resource, amount)| (resource.clone(), amount)).collect();
        let labels = Arc::new(self.shown.of(&named));
        let kind = KindRef(self.kinds.keep(Kind { labels, taints: taints.into(), allocatable: Arc::new(allocatable) }));
        let usable = node.ready && !node.unschedulable;
        let state = self.nodes.entry(name).or_default();
        let same = |spec: &NodeSpec| spec.usable == usable && spec.kind == kind && spec.node == named;
        if state.spec.as_ref().is_some_and(same) {
            return false;
        }
        take_out(&mut self.shapes, state);
        self.shown.enters(&named);
        let before = state.spec.replace(NodeSpec { node: named, kind, usable, domain });
        put_in(&mut self.shapes, state);
        if let Some(before) = before {
            self.shown.leaves(&before.node);
        }
        if self.shown.settle() {
            self.relabel();
        }
        if self.labels.is_full() {
            self.part_labels();
        }
        true
    }

    fn node_gone(&mut self, name: &str) -> bool {
        let Some(state) = self.nodes.get_mut(name) else { return false };
        take_out(&mut self.shapes, state);
        // Its pods may be reported for a while yet.
        let had = state.spec.take();
        if state.used.is_empty() {
            self.nodes.remove(name);
        }
        had.iter().for_each(|spec| self.shown.leaves(&spec.node));
        if self.shown.settle() {
            self.relabel();
        }
        had.is_some()
    }

    /// A node's name, kept once.
    fn name_of(&self, node: &str) -> Arc<str> {
        self.nodes.get_key_value(node).map_or_else(|| node.into(), |(name, _)| Arc::clone(name))
    }

    /// A node holds more, or less.
    fn hold(&mut self, node: &Arc<str>, request: &Demand, sign: i128) {
        let state = self.nodes.entry(Arc::clone(node)).or_default();
        take_out(&mut self.shapes, state);
        state.used = self.requests.keep(state.used.plus(request, sign));
        put_in(&mut self.shapes, state);
        if state.spec.is_none() && state.used.is_empty() {
            self.nodes.remove(node);
        }
    }

    fn key(&mut self, namespace: String, name: &str) -> PodKey {
        let namespace = self.namespace(namespace);
        PodKey::new(&mut self.stems, namespace, name)
    }

    /// What a pod holds; `None` if it holds nothing and is nobody's.
    fn held(&mut self, pod: Pod) -> Option<Held> {
        let node = pod.node.filter(|_| !(pod.finished && pod.owner.is_none()))?;
        Some(Held {
            node: self.name_of(&node),
            request: (!pod.finished).then(|| self.requests.keep(Demand::of(&whole_units(&pod.request)))),
            owner: pod.owner.map(|owner| self.known_owners.keep(owner)),
        })
    }

    /// These are all pods.
    fn pods(&mut self, pods: Vec<Pod>) -> bool {
        self.listed.1 = true;
        self.shapes.clear();
        for state in self.nodes.values_mut() {
            state.used = Arc::default();
        }
        self.pods.clear();
        self.owners.clear();
        let mut all = BTreeMap::new();
        for mut pod in pods {
            let key = self.key(std::mem::take(&mut pod.namespace), &pod.name);
            all.insert(key, self.held(pod));
        }
        let mut used: BTreeMap<&Arc<str>, Demand> = BTreeMap::new();
        for (key, held) in all.iter().filter_map(|(key, held)| Some((key, held.as_ref()?))) {
            if let Some(request) = &held.request {
                let sum = used.entry(&held.node).or_default();
                *sum = sum.plus(request, 1);
            }
            if let Some(owner) = &held.owner {
                let seen = self.owners.entry((Arc::clone(key.namespace()), Arc::clone(owner))).or_default();
                *seen.count(held.request.is_none()) += 1;
            }
        }
        for (node, used) in used {
            self.nodes.entry(Arc::clone(node)).or_default().used = self.requests.keep(used);
        }
        // Made of all at once a map has no gaps.
        self.pods = all.into_iter().filter_map(|(key, held)| Some((key, held?))).collect();
        self.nodes.retain(|_, state| state.spec.is_some() || !state.used.is_empty());
        self.sort();
        true
    }

    fn pod(&mut self, mut pod: Pod) -> bool {
        let key = self.key(std::mem::take(&mut pod.namespace), &pod.name);
        let held = self.held(pod);
        if self.pods.get(&key) == held.as_ref() {
            return false;
        }
        let gave_back = self.release(&key);
        let Some(held) = held else { return gave_back };
        if let Some(request) = &held.request {
            self.hold(&held.node, request, 1);
        }
        if let Some(owner) = &held.owner {
            let seen = self.owners.entry((Arc::clone(key.namespace()), Arc::clone(owner))).or_default();
            *seen.count(held.request.is_none()) += 1;
        }
        self.pods.insert(key, held);
        true
    }

    fn namespace(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name.as_str()) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.namespaces.insert(Arc::clone(&name));
        name
    }

    fn release(&mut self, key: &PodKey) -> bool {
        let Some(held) = self.pods.remove(key) else { return false };
        if let Some(request) = &held.request {
            self.hold(&held.node, request, -1);
        }
        if let Some(owner) = held.owner {
            let owner = (Arc::clone(key.namespace()), owner);
            if let Some(seen) = self.owners.get_mut(&owner) {
                *seen.count(held.request.is_none()) -= 1;
                if *seen == Seen::default() {
                    self.owners.remove(&owner);
                }
            }
        }
        true
    }
}

/// A pod's requests as schedulers count them: milli cores and whole units of all else, rounded up.
#[must_use]
pub fn whole_units(request: &Resources) -> Resources {
    let round = |name: &ResourceName, amount: Quantity| {
        if name.as_str() == ResourceName::CPU {
            Quantity::from_nano(amount.milli_ceil().saturating_mul(1_000_000))
        } else {
            Quantity::from_nano(amount.units_ceil().saturating_mul(1_000_000_000))
        }
    };
    request.iter().map(|(name, amount)| (name.clone(), round(name, amount))).collect()
}

#[cfg(test)]
mod tests;
