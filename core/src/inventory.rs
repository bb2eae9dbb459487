//! What a member cluster can still take: its nodes and the pods bound to them, reduced to free capacity by node shape
//! and by network domain.
//!
//! Rule: kube-scheduler's `NodeInfo`. Free is allocatable minus the requests of every pod that is bound to the node and
//! has not finished, whoever owns it; each pod takes one of `pods`. Cordoned and NotReady nodes offer nothing, although
//! Karmada's resource summary counts them (`cluster_status_controller.go:571`). Nodes that differ only in name, domain
//! and labels that nobody selects on are one [`NodeShape`], because sums over unlike nodes would let fragments add up
//! to what no node holds.
//!
//! A change touches the shapes of its own nodes only, unless it changes which labels shapes carry or how labels are
//! stored. Equal labels, requests and owners are stored once, so that 200 members of 1,000 nodes are followed in one
//! process (`examples/inventory.rs` measures it).
//!
//! | module | holds |
//! |---|---|
//! | `change` | what is reported of a member |
//! | `node_shapes` | nodes by kind and free amounts, kept up to date one by one |
//! | `shape_labels`, `relabel` | which labels shapes carry, and shapes made anew when that changes |
//! | `domain` | HyperNodes as a tree of domains over the nodes |
//! | `bound_pods`, `removed_pods` | pods on nodes, and what is free if some of them are evicted |
//! | `numa_topologies` | what nodes report of their NUMA nodes |
//! | `node_devices` | devices of nodes that drivers publish |
//! | `node_ref`, `interner`, `amounts` | nodes with their labels, equal values once, amounts, all kept small |
//! | `upcoming` | nodes that autoscaled groups may still add |
//! | `capacity` | what a decision reads: free capacity by shape, and its sums and bounds |
//! | `load` | what nodes really use, beside what they have |

mod amounts;
mod bound_pods;
mod capacity;
mod change;
mod domain;
mod interner;
mod load;
mod node_devices;
mod node_ref;
mod node_shapes;
mod numa_topologies;
mod owned_pods;
mod relabel;
mod removed_pods;
mod shape_labels;
mod upcoming;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use amounts::{Amounts, round_up_request};
pub(crate) use capacity::ReducedNodes;
pub use capacity::profile::{CLUSTER_ROW, Profile, packing_scale, packing_units_ceil, packing_units_floor};
pub use capacity::{Capacity, NodeShape, Source};
pub use change::{Change, Node, Owner, Pod};
pub use domain::{Domain, DomainId, Domains, HyperNode, HyperNodeMember};
pub use load::{MEASURED, MemberLoad, NodeUse, sum_node_use};
pub use node_ref::NodeRef;
pub use owned_pods::SeenPods;
pub use removed_pods::RemovedPods;
pub(crate) use upcoming::{count_upcoming_nodes_taken, find_group_of_upcoming};

use crate::{
    gang::{TaskName, WorkloadRef},
    numa::NumaTopology,
    resources::Resources,
};
use bound_pods::{BoundPod, PodKey, PodNamePrefix};
use domain::Matcher;
use interner::Interner;
use node_devices::NodeDevices;
use node_ref::LabelStore;
use node_shapes::{
    NodeKind, NodeKindRef, NodeSpec, NodeState, NoneLast, Shapes, add_node_to_shapes, remove_node_from_shapes,
};
use numa_topologies::NumaTopologies;
use owned_pods::OwnedPods;
use shape_labels::ShapeLabels;

/// A member's nodes and pods, kept up to date by [`Change`]s.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    nodes: BTreeMap<Arc<str>, NodeState>,
    pods: BTreeMap<PodKey, BoundPod>,
    owners: BTreeMap<(Arc<str>, Arc<Owner>), OwnedPods>,
    hyper_nodes: BTreeMap<String, HyperNode>,
    domains: Arc<Domains>,
    matcher: Matcher,
    shapes: Shapes,
    shown: ShapeLabels,
    labels: LabelStore,
    kinds: Interner<NodeKind>,
    requests: Interner<Amounts>,
    known_owners: Interner<Owner>,
    stems: Interner<PodNamePrefix>,
    namespaces: BTreeSet<Arc<str>>,
    numa: NumaTopologies,
    devices: NodeDevices,
    /// Nodes and pods arrive by separate lists; before both are there the numbers mean nothing.
    listed: (bool, bool),
}

impl Inventory {
    /// True once both nodes and pods were listed. HyperNodes are reported before, or there are none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.listed == (true, true)
    }

    /// Nodes and pods are to be listed anew before the numbers mean anything; which pods were seen is remembered.
    pub const fn mark_unlisted(&mut self) {
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
                    self.remove_node(&name);
                }
                for node in nodes {
                    self.set_node(node);
                }
                true
            }
            Change::Node(node) => self.set_node(node),
            Change::NodeGone(name) => self.remove_node(&name),
            Change::Pods(pods) => self.set_pods(pods),
            Change::Pod(pod) => self.set_pod(pod),
            Change::PodGone(namespace, name) => {
                let key = self.pod_key(namespace, &name);
                self.remove_pod(&key)
            }
            Change::HyperNodes(all) => {
                let all = all.into_iter().map(|one| (one.name.clone(), one)).collect();
                std::mem::replace(&mut self.hyper_nodes, all) != self.hyper_nodes && self.rebuild_domains()
            }
            Change::HyperNode(one) => {
                let same = self.hyper_nodes.get(&one.name) == Some(&one);
                self.hyper_nodes.insert(one.name.clone(), one);
                !same && self.rebuild_domains()
            }
            Change::HyperNodeGone(name) => self.hyper_nodes.remove(&name).is_some() && self.rebuild_domains(),
            Change::NumaTopologies(all) => self.set_numa_topologies(all),
            Change::NumaTopology(node, topology) => self.set_numa_topology(&node, Some(topology)),
            Change::NumaTopologyGone(node) => self.set_numa_topology(&node, None),
            Change::AllDevices(all) => self.set_all_devices(all),
            Change::Devices(node, devices) => self.set_devices(&node, devices),
        }
    }

    /// The workload of a pod that is, or was, on a node.
    #[must_use]
    pub fn workload_of(&self, namespace: &str, name: &str) -> Option<WorkloadRef> {
        let held = self.pods.get(&PodKey::new(&mut Interner::default(), namespace.into(), name))?;
        held.owner.as_ref().map(|owner| owner.workload(namespace))
    }

    /// Pods of a workload that reached nodes, by task (`None` for kinds without tasks).
    #[must_use]
    pub fn count_seen_pods(&self, workload: &WorkloadRef) -> BTreeMap<Option<TaskName>, SeenPods> {
        self.list_pods_owned_by(workload).map(|(task, pods)| (task.cloned(), pods.seen)).collect()
    }

    /// What the bound pods of a workload hold, by task (`None` for kinds without tasks). That is what they were made
    /// with, whatever their template says by now.
    #[must_use]
    pub fn held_by_pods(&self, workload: &WorkloadRef) -> BTreeMap<Option<TaskName>, Resources> {
        self.list_pods_owned_by(workload).map(|(task, pods)| (task.cloned(), Resources::from(&*pods.held))).collect()
    }

    fn list_pods_owned_by(&self, workload: &WorkloadRef) -> impl Iterator<Item = (Option<&TaskName>, &OwnedPods)> {
        let WorkloadRef { group, kind, namespace, name } = workload;
        let first = Owner { group: group.clone(), kind: kind.clone(), name: name.clone(), task: None };
        let is_same = move |(ns, owner): &(Arc<str>, Arc<Owner>)| {
            **ns == **namespace && owner.group == *group && owner.kind == *kind && owner.name == *name
        };
        self.owners
            .range((Arc::from(namespace.as_str()), Arc::new(first))..)
            .take_while(move |(key, _)| is_same(key))
            .map(|((_, owner), pods)| (owner.task.as_ref(), pods))
    }

    /// What is free now, by shape. Nothing until both lists have arrived.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.compute_capacity_without_pods(&BTreeMap::new())
    }

    /// All that is free on usable nodes, whatever its shape.
    #[must_use]
    pub fn sum_free(&self) -> Resources {
        let mut sum = Resources::new();
        if self.is_complete() {
            for (free, places) in self.shapes.values().flatten() {
                sum.add(&Resources::from(&**free).times(places.len() as u64));
            }
        }
        sum
    }

    /// What could be free if all pods of such workloads were gone.
    #[must_use]
    pub fn compute_capacity_without_workloads(&self, gone: impl Fn(&WorkloadRef) -> bool) -> Capacity {
        let freed = self.sum_freed_amounts(gone);
        self.compute_capacity_with_freed(&freed, NumaTopology::with_cpus_returned_anywhere)
    }

    /// What would be free if these workloads' pods were gone: all of them, or so many of each task (`None` for kinds
    /// without tasks), the last ones, as the member's controllers take them.
    #[must_use]
    pub fn compute_capacity_without_pods(&self, gone: &BTreeMap<&WorkloadRef, RemovedPods>) -> Capacity {
        self.compute_capacity_with_freed(&self.sum_freed_by_node(gone), NumaTopology::with_returned_cpus)
    }

    fn compute_capacity_with_freed(
        &self,
        freed: &BTreeMap<&str, Amounts>,
        after: fn(&NumaTopology, u16) -> NumaTopology,
    ) -> Capacity {
        if !self.is_complete() {
            return Capacity::default();
        }
        let moved;
        let by_kind = if freed.is_empty() {
            &self.shapes
        } else {
            moved = self.shapes_with(freed, after);
            &moved
        };
        let mut shapes = Vec::with_capacity(by_kind.values().map(BTreeMap::len).sum());
        for (NodeKindRef(kind), by_free) in by_kind {
            for (free, places) in by_free {
                let mut shape = NodeShape {
                    labels: Some(Arc::clone(&kind.labels)),
                    taints: Arc::clone(&kind.taints),
                    allocatable: Arc::clone(&kind.allocatable),
                    free: Arc::clone(free),
                    numa: kind.numa.clone(),
                    nodes: Vec::with_capacity(places.len()),
                    domains: Vec::new(),
                };
                for (NoneLast(domain), node) in places {
                    shape.push_node(*domain, node.clone());
                }
                shapes.push(shape);
            }
        }
        let idle = self.node_specs().filter(|spec| !spec.usable);
        let mut capacity = Capacity::new(shapes, Source::Nodes);
        capacity.domains = Arc::clone(&self.domains);
        capacity.idle = idle.filter_map(|spec| Some((spec.domain?, spec.node.clone()))).collect();
        capacity.shown = Some(Arc::clone(self.shown.keys()));
        capacity.reports_numa = self.reports_numa();
        capacity
    }

    fn node_specs(&self) -> impl Iterator<Item = &NodeSpec> + Clone {
        self.nodes.values().filter_map(|state| state.spec.as_ref())
    }

    /// The shapes where some nodes get something back.
    fn shapes_with(&self, freed: &BTreeMap<&str, Amounts>, after: fn(&NumaTopology, u16) -> NumaTopology) -> Shapes {
        let mut shapes = self.shapes.clone();
        for (name, back) in freed {
            let Some(state) = self.nodes.get(*name) else { continue };
            remove_node_from_shapes(&mut shapes, state);
            let mut state = state.clone();
            state.used = Arc::new(state.used.signed_sub(back));
            state.return_numa_cpus(back, after);
            add_node_to_shapes(&mut shapes, &state);
        }
        shapes
    }

    /// All nodes anew by shape.
    fn rebuild_shapes(&mut self) {
        self.shapes.clear();
        for state in self.nodes.values() {
            add_node_to_shapes(&mut self.shapes, state);
        }
    }

    /// The tree of domains anew, and every node's place in it.
    fn rebuild_domains(&mut self) -> bool {
        let (domains, matcher) = domain::build_tree(self.hyper_nodes.values());
        (self.domains, self.matcher) = (Arc::new(domains), matcher);
        for state in self.nodes.values_mut() {
            let Some(spec) = &state.spec else { continue };
            let domain = self.matcher.lowest_domain_of(&spec.node);
            if domain != spec.domain {
                remove_node_from_shapes(&mut self.shapes, state);
                state.spec.iter_mut().for_each(|spec| spec.domain = domain);
                add_node_to_shapes(&mut self.shapes, state);
            }
        }
        true
    }

    fn set_node(&mut self, node: Node) -> bool {
        let usable = node.takes_pods();
        let name: Arc<str> = self.shared_node_name(&node.name);
        let named = self.labels.make_node(Arc::clone(&name), node.labels);
        let domain = self.matcher.lowest_domain_of(&named);
        let mut taints = node.taints;
        taints.sort();
        let labels = Arc::new(self.shown.labels_of(&named));
        let kind = NodeKindRef(self.kinds.intern_value(NodeKind {
            labels,
            taints: taints.into(),
            allocatable: Arc::new(self.devices.complete(&name, &node.allocatable)),
            numa: self.numa.topology_of(&name),
        }));
        let state = self.nodes.entry(name).or_default();
        let same = |spec: &NodeSpec| spec.usable == usable && spec.kind == kind && spec.node == named;
        if state.spec.as_ref().is_some_and(same) {
            return false;
        }
        remove_node_from_shapes(&mut self.shapes, state);
        self.shown.add_node(&named);
        let before = state.spec.replace(NodeSpec { node: named, kind, usable, domain });
        add_node_to_shapes(&mut self.shapes, state);
        if let Some(before) = before {
            self.shown.remove_node(&before.node);
        }
        if self.shown.update_keys() {
            self.relabel_shapes();
        }
        if self.labels.needs_split() {
            self.compact_node_labels();
        }
        true
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let Some(state) = self.nodes.get_mut(name) else { return false };
        remove_node_from_shapes(&mut self.shapes, state);
        // Its pods may be reported for a while yet.
        let had = state.spec.take();
        self.devices.forget_node(name);
        if state.used.is_empty() {
            self.nodes.remove(name);
        }
        had.iter().for_each(|spec| self.shown.remove_node(&spec.node));
        if self.shown.update_keys() {
            self.relabel_shapes();
        }
        had.is_some()
    }

    /// A node's name, kept once.
    fn shared_node_name(&self, node: &str) -> Arc<str> {
        self.nodes.get_key_value(node).map_or_else(|| node.into(), |(name, _)| Arc::clone(name))
    }

    /// A node holds more, or less.
    fn change_node_use(&mut self, node: &Arc<str>, change: impl Fn(&Amounts) -> Amounts) {
        let state = self.nodes.entry(Arc::clone(node)).or_default();
        remove_node_from_shapes(&mut self.shapes, state);
        state.used = self.requests.intern_value(change(&state.used));
        add_node_to_shapes(&mut self.shapes, state);
        if state.spec.is_none() && state.used.is_empty() {
            self.nodes.remove(node);
        }
    }

    fn pod_key(&mut self, namespace: String, name: &str) -> PodKey {
        let namespace = self.intern_namespace(namespace);
        PodKey::new(&mut self.stems, namespace, name)
    }

    /// What a pod holds; `None` if it holds nothing and is nobody's.
    fn convert_bound_pod(&mut self, pod: Pod) -> Option<BoundPod> {
        let node = pod.node.filter(|_| !(pod.finished && pod.owner.is_none()))?;
        Some(BoundPod {
            node: self.shared_node_name(&node),
            request: (!pod.finished)
                .then(|| self.requests.intern_value(Amounts::from(&round_up_request(&pod.request)))),
            owner: pod.owner.map(|owner| self.known_owners.intern_value(owner)),
        })
    }

    /// These are all pods.
    fn set_pods(&mut self, pods: Vec<Pod>) -> bool {
        self.listed.1 = true;
        self.shapes.clear();
        for state in self.nodes.values_mut() {
            state.used = Arc::default();
        }
        self.pods.clear();
        self.owners.clear();
        let mut all = BTreeMap::new();
        for mut pod in pods {
            let key = self.pod_key(std::mem::take(&mut pod.namespace), &pod.name);
            all.insert(key, self.convert_bound_pod(pod));
        }
        let mut used: BTreeMap<&Arc<str>, Amounts> = BTreeMap::new();
        let mut owned: BTreeMap<(&Arc<str>, &Arc<Owner>), OwnedPods> = BTreeMap::new();
        for (key, held) in all.iter().filter_map(|(key, held)| Some((key, held.as_ref()?))) {
            if let Some(request) = &held.request {
                let sum = used.entry(&held.node).or_default();
                *sum = sum.plus(request);
            }
            if let Some(owner) = &held.owner {
                let pods = owned.entry((key.namespace(), owner)).or_default();
                *pods.seen.count_mut(held.request.is_none()) += 1;
                if let Some(request) = &held.request {
                    pods.held = Arc::new(pods.held.plus(request));
                }
            }
        }
        for (node, used) in used {
            self.nodes.entry(Arc::clone(node)).or_default().used = self.requests.intern_value(used);
        }
        for ((namespace, owner), OwnedPods { seen, held }) in owned {
            let held = self.requests.intern_value(Arc::unwrap_or_clone(held));
            self.owners.insert((Arc::clone(namespace), Arc::clone(owner)), OwnedPods { seen, held });
        }
        // Made of all at once a map has no gaps.
        self.pods = all.into_iter().filter_map(|(key, held)| Some((key, held?))).collect();
        self.nodes.retain(|_, state| state.spec.is_some() || !state.used.is_empty());
        self.rebuild_shapes();
        true
    }

    fn set_pod(&mut self, mut pod: Pod) -> bool {
        let key = self.pod_key(std::mem::take(&mut pod.namespace), &pod.name);
        let held = self.convert_bound_pod(pod);
        if self.pods.get(&key) == held.as_ref() {
            return false;
        }
        let gave_back = self.remove_pod(&key);
        let Some(held) = held else { return gave_back };
        if let Some(request) = &held.request {
            self.change_node_use(&held.node, |used| used.plus(request));
        }
        if let Some(owner) = &held.owner {
            let pods = self.owners.entry((Arc::clone(key.namespace()), Arc::clone(owner))).or_default();
            *pods.seen.count_mut(held.request.is_none()) += 1;
            if let Some(request) = &held.request {
                pods.held = self.requests.intern_value(pods.held.plus(request));
            }
        }
        self.pods.insert(key, held);
        true
    }

    fn intern_namespace(&mut self, name: String) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name.as_str()) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.namespaces.insert(Arc::clone(&name));
        name
    }

    fn remove_pod(&mut self, key: &PodKey) -> bool {
        let Some(held) = self.pods.remove(key) else { return false };
        if let Some(request) = &held.request {
            self.change_node_use(&held.node, |used| used.signed_sub(request));
        }
        if let Some(owner) = held.owner {
            let owner = (Arc::clone(key.namespace()), owner);
            if let Some(pods) = self.owners.get_mut(&owner) {
                *pods.seen.count_mut(held.request.is_none()) -= 1;
                if let Some(request) = &held.request {
                    pods.held = self.requests.intern_value(pods.held.signed_sub(request));
                }
                if pods.seen == SeenPods::default() {
                    self.owners.remove(&owner);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
