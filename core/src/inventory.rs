//! What a member cluster can still take: its nodes and the pods bound to them, reduced to free capacity by node shape.
//!
//! Rule: kube-scheduler's `NodeInfo`: free is allocatable minus the requests of every pod that is bound to the node and
//! has not finished, whoever owns it; each pod takes one of `pods`. Cordoned and NotReady nodes offer nothing (Karmada's
//! resource summary counts them: `cluster_status_controller.go:571`). Nodes that differ only in name are one [`Shape`]
//! with a count: sums over nodes would let fragments add up to what no node holds.

mod gone;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use gone::Gone;

use crate::{
    gang::{Taint, TaskName, WorkloadRef},
    quantity::Quantity,
    resources::{ResourceName, Resources},
    select::HOSTNAME,
};

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
}

/// Where a capacity's numbers come from; shown to users, because the sources are not equally true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The member's own nodes and pods.
    Nodes,
    /// Karmada's `status.resourceSummary`: one sum for the whole cluster, blind to fragments and labels.
    Summary,
    /// Nothing is known: the cluster offers nothing.
    #[default]
    Unknown,
}

/// Free capacity by node shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// In a fixed order, each with at least one node.
    pub shapes: Vec<Shape>,
    /// Where the numbers come from.
    pub source: Source,
}

/// Nodes that are alike in everything but their name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Labels without the node's name; `None` where they are unknown (then every selector is taken to match).
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    /// Taints.
    pub taints: Arc<[Taint]>,
    /// What each node could offer if it were empty.
    pub allocatable: Arc<Amounts>,
    /// What each node offers now.
    pub free: Amounts,
    /// Their names, in order; never empty.
    pub nodes: Vec<Arc<str>>,
}

/// Amounts with an order, so that shapes can be sorted and grouped.
pub type Amounts = BTreeMap<ResourceName, Quantity>;

/// A member's nodes and pods, kept up to date by [`Change`]s.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    nodes: BTreeMap<Arc<str>, NodeState>,
    pods: BTreeMap<(Arc<str>, Arc<str>), Held>,
    owners: BTreeMap<(Arc<str>, Owner), Seen>,
    /// Nodes and pods arrive by separate lists; before both are there the numbers mean nothing.
    listed: (bool, bool),
}

#[derive(Debug, Clone, Default)]
struct NodeState {
    /// `None` while only pods name the node.
    spec: Option<NodeSpec>,
    used: Resources,
}

#[derive(Debug, Clone)]
struct NodeSpec {
    labels: Arc<BTreeMap<String, String>>,
    taints: Arc<[Taint]>,
    allocatable: Arc<Amounts>,
    usable: bool,
}

/// What a pod holds, remembered so that exactly this is given back. A finished pod holds nothing, but it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    node: Arc<str>,
    request: Option<Resources>,
    owner: Option<Owner>,
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

    /// True once both nodes and pods were listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.listed == (true, true)
    }

    /// Takes a change in; true if what the member offers (or who holds it) may have changed.
    pub fn apply(&mut self, change: Change) -> bool {
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
            Change::Pods(pods) => {
                self.listed.1 = true;
                for state in self.nodes.values_mut() {
                    state.used = Resources::new();
                }
                self.pods.clear();
                self.owners.clear();
                for pod in pods {
                    self.pod(pod);
                }
                self.nodes.retain(|_, state| state.spec.is_some() || !state.used.is_empty());
                true
            }
            Change::Pod(pod) => self.pod(pod),
            Change::PodGone(namespace, name) => self.release(&(namespace.into(), name.into())),
        }
    }

    /// The workload of a pod that is, or was, on a node.
    #[must_use]
    pub fn workload_of(&self, namespace: &str, name: &str) -> Option<WorkloadRef> {
        let held = self.pods.get(&(Arc::from(namespace), Arc::from(name)))?;
        held.owner.as_ref().map(|owner| owner.workload(namespace))
    }

    /// Pods of a workload that reached nodes, by task (`None` for kinds without tasks).
    #[must_use]
    pub fn seen(&self, workload: &WorkloadRef) -> BTreeMap<Option<TaskName>, Seen> {
        let WorkloadRef { group, kind, namespace, name } = workload;
        let first = Owner { group: group.clone(), kind: kind.clone(), name: name.clone(), task: None };
        let is_same = |(ns, owner): &(Arc<str>, Owner)| {
            **ns == **namespace && owner.group == *group && owner.kind == *kind && owner.name == *name
        };
        self.owners
            .range((Arc::from(namespace.as_str()), first)..)
            .take_while(|(key, _)| is_same(key))
            .map(|((_, owner), seen)| (owner.task.clone(), *seen))
            .collect()
    }

    /// What is free now, by shape. Nothing until both lists have arrived.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity_without(&BTreeMap::new())
    }

    /// What would be free if these workloads' pods were gone: all of them, or so many of each task (`None` for kinds
    /// without tasks), the last ones, as the member's controllers take them.
    #[must_use]
    pub fn capacity_without(&self, gone: &BTreeMap<&WorkloadRef, Gone>) -> Capacity {
        if !self.is_complete() {
            return Capacity::default();
        }
        let given_back = self.given_back(gone);
        type Key<'a> = (&'a Arc<BTreeMap<String, String>>, &'a Arc<[Taint]>, &'a Arc<Amounts>, Amounts);
        let mut shapes: BTreeMap<Key<'_>, Vec<Arc<str>>> = BTreeMap::new();
        for (name, state) in &self.nodes {
            let Some(spec) = state.spec.as_ref().filter(|spec| spec.usable) else { continue };
            let free = match given_back.get(name.as_ref()) {
                None => less(&spec.allocatable, &state.used),
                Some(back) => {
                    let mut used = state.used.clone();
                    used.saturating_sub(back);
                    less(&spec.allocatable, &used)
                }
            };
            let key = (&spec.labels, &spec.taints, &spec.allocatable, free);
            shapes.entry(key).or_default().push(Arc::clone(name));
        }
        let shapes = shapes
            .into_iter()
            .map(|((labels, taints, allocatable, free), nodes)| Shape {
                labels: Some(Arc::clone(labels)),
                taints: Arc::clone(taints),
                allocatable: Arc::clone(allocatable),
                free,
                nodes,
            })
            .collect();
        Capacity { shapes, source: Source::Nodes }
    }

    fn node(&mut self, node: Node) -> bool {
        let mut labels = node.labels;
        labels.remove(HOSTNAME);
        let mut taints = node.taints;
        taints.sort();
        let allocatable: Amounts =
            node.allocatable.iter().map(|(resource, amount)| (resource.clone(), amount)).collect();
        let usable = node.ready && !node.unschedulable;
        let state = self.nodes.entry(node.name.into()).or_default();
        let same = state.spec.as_ref().is_some_and(|spec| {
            spec.usable == usable
                && *spec.labels == labels
                && *spec.taints == *taints
                && *spec.allocatable == allocatable
        });
        if !same {
            let (labels, allocatable) = (Arc::new(labels), Arc::new(allocatable));
            state.spec = Some(NodeSpec { labels, taints: taints.into(), allocatable, usable });
        }
        !same
    }

    fn node_gone(&mut self, name: &str) -> bool {
        let Some(state) = self.nodes.get_mut(name) else { return false };
        // Its pods may be reported for a while yet.
        let had = state.spec.take().is_some();
        if state.used.is_empty() {
            self.nodes.remove(name);
        }
        had
    }

    fn pod(&mut self, pod: Pod) -> bool {
        let key = (Arc::from(pod.namespace), Arc::from(pod.name));
        let held = match pod.node {
            Some(node) if !(pod.finished && pod.owner.is_none()) => Some(Held {
                node: node.into(),
                request: (!pod.finished).then(|| whole_units(&pod.request)),
                owner: pod.owner,
            }),
            _ => None,
        };
        if self.pods.get(&key) == held.as_ref() {
            return false;
        }
        let gave_back = self.release(&key);
        let Some(held) = held else { return gave_back };
        if let Some(request) = &held.request {
            self.nodes.entry(Arc::clone(&held.node)).or_default().used.add(request);
        }
        if let Some(owner) = &held.owner {
            let seen = self.owners.entry((Arc::clone(&key.0), owner.clone())).or_default();
            *seen.count(held.request.is_none()) += 1;
        }
        self.pods.insert(key, held);
        true
    }

    fn release(&mut self, key: &(Arc<str>, Arc<str>)) -> bool {
        let Some(held) = self.pods.remove(key) else { return false };
        if let (Some(state), Some(request)) = (self.nodes.get_mut(&held.node), &held.request) {
            state.used.saturating_sub(request);
            if state.spec.is_none() && state.used.is_empty() {
                self.nodes.remove(&held.node);
            }
        }
        if let Some(owner) = held.owner {
            let owner = (Arc::clone(&key.0), owner);
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

impl Capacity {
    /// What Karmada's resource summary says is free: one node as large as the whole cluster, of unknown labels.
    #[must_use]
    pub fn from_summary(allocatable: &Resources, allocated: &Resources, allocating: &Resources) -> Self {
        let allocatable: Amounts = allocatable.iter().map(|(name, amount)| (name.clone(), amount)).collect();
        let mut used = allocated.clone();
        used.add(allocating);
        let free = less(&allocatable, &used);
        let shape = Shape {
            labels: None,
            taints: Arc::from([]),
            allocatable: Arc::new(allocatable),
            free,
            nodes: vec![Arc::from("")],
        };
        Self { shapes: vec![shape], source: Source::Summary }
    }

    /// The same nodes with nothing on them: what the cluster could ever give.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let empty = |shape: &Shape| Shape { free: (*shape.allocatable).clone(), ..shape.clone() };
        Self { shapes: self.shapes.iter().map(empty).collect(), source: self.source }
    }

    /// All that is free, over all nodes (for showing; never for deciding what fits).
    #[must_use]
    pub fn free(&self) -> Resources {
        self.sum(|shape| &shape.free)
    }

    /// All that there is, over all usable nodes.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        self.sum(|shape| &shape.allocatable)
    }

    fn sum(&self, amounts: impl Fn(&Shape) -> &Amounts) -> Resources {
        let mut sum = Resources::new();
        for shape in &self.shapes {
            let one: Resources = amounts(shape).iter().map(|(name, amount)| (name.clone(), *amount)).collect();
            sum.add(&one.times(shape.nodes.len() as u64));
        }
        sum
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

/// `offer - used`, at least zero, with every name of the offer.
fn less(offer: &Amounts, used: &Resources) -> Amounts {
    offer.iter().map(|(name, amount)| (name.clone(), amount.saturating_sub(used.get(name.as_str())))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts(cpu: i64, pods: i64) -> Resources {
        [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(pods))].into_iter().collect()
    }

    fn node(name: &str, cpu: i64) -> Node {
        Node { name: name.into(), allocatable: amounts(cpu, 10), ready: true, ..Node::default() }
    }

    fn pod(name: &str, node: Option<&str>, cpu: i64) -> Pod {
        Pod {
            namespace: "ns".into(),
            name: name.into(),
            node: node.map(Into::into),
            request: amounts(cpu, 1),
            ..Pod::default()
        }
    }

    fn listed(nodes: Vec<Node>, pods: Vec<Pod>) -> Inventory {
        let mut inventory = Inventory::new();
        inventory.apply(Change::Nodes(nodes));
        inventory.apply(Change::Pods(pods));
        inventory
    }

    fn cpu(inventory: &Inventory) -> Quantity {
        inventory.capacity().free().get("cpu")
    }

    #[test]
    fn equal_nodes_are_one_shape_and_a_used_one_is_another() {
        let inventory = listed(vec![node("a", 8), node("b", 8), node("c", 8)], vec![pod("p", Some("b"), 3)]);
        let counts: Vec<usize> = inventory.capacity().shapes.iter().map(|shape| shape.nodes.len()).collect();
        assert_eq!(counts, [1, 2]);
        assert_eq!(cpu(&inventory), Quantity::from_units(21));
    }

    #[test]
    fn the_hostname_label_does_not_tell_shapes_apart() {
        let mut nodes = vec![node("a", 8), node("b", 8)];
        for node in &mut nodes {
            node.labels.insert(HOSTNAME.into(), node.name.clone());
        }
        assert_eq!(listed(nodes, vec![]).capacity().shapes.len(), 1);
    }

    #[test]
    fn cordoned_and_not_ready_nodes_offer_nothing() {
        let mut nodes = vec![node("a", 8), node("b", 8), node("c", 8)];
        nodes[0].unschedulable = true;
        nodes[1].ready = false;
        assert_eq!(cpu(&listed(nodes, vec![])), Quantity::from_units(8));
    }

    #[test]
    fn nothing_is_offered_before_both_lists_arrived() {
        let mut inventory = Inventory::new();
        inventory.apply(Change::Nodes(vec![node("a", 8)]));
        assert_eq!(inventory.capacity(), Capacity::default());
        inventory.apply(Change::Pods(vec![]));
        assert_eq!(cpu(&inventory), Quantity::from_units(8));
    }

    #[test]
    fn a_finished_pod_gives_back_and_an_unbound_one_holds_nothing() {
        let mut inventory = listed(vec![node("a", 8)], vec![pod("p", Some("a"), 3), pod("q", None, 5)]);
        assert_eq!(cpu(&inventory), Quantity::from_units(5));
        assert!(inventory.apply(Change::Pod(Pod { finished: true, ..pod("p", Some("a"), 3) })));
        assert_eq!(cpu(&inventory), Quantity::from_units(8));
        assert!(!inventory.apply(Change::PodGone("ns".into(), "p".into())));
    }

    #[test]
    fn a_pod_may_arrive_before_its_node_and_outlive_it() {
        let mut inventory = listed(vec![], vec![pod("p", Some("a"), 3)]);
        inventory.apply(Change::Node(node("a", 8)));
        assert_eq!(cpu(&inventory), Quantity::from_units(5));
        inventory.apply(Change::NodeGone("a".into()));
        inventory.apply(Change::Node(node("a", 8)));
        assert_eq!(cpu(&inventory), Quantity::from_units(5));
        inventory.apply(Change::PodGone("ns".into(), "p".into()));
        assert_eq!(cpu(&inventory), Quantity::from_units(8));
    }

    #[test]
    fn pods_on_nodes_are_counted_by_workload_and_task() {
        let owned = |name: &str, task: &str| Pod {
            owner: Some(Owner { group: "g".into(), kind: "Job".into(), name: "j".into(), task: Some(task.into()) }),
            ..pod(name, Some("a"), 1)
        };
        let mut inventory = listed(vec![node("a", 8)], vec![owned("p", "t"), owned("q", "t"), owned("r", "u")]);
        let seen = |bound, finished| Seen { bound, finished };
        let job = |namespace: &str, name: &str| WorkloadRef {
            group: "g".into(),
            kind: "Job".into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let want = [(Some("t".into()), seen(2, 0)), (Some("u".into()), seen(1, 0))].into_iter().collect();
        assert_eq!(inventory.seen(&job("ns", "j")), want);
        inventory.apply(Change::PodGone("ns".into(), "r".into()));
        inventory.apply(Change::Pod(Pod { finished: true, ..owned("p", "t") }));
        let want = [(Some("t".into()), seen(1, 1))].into_iter().collect();
        assert_eq!(inventory.seen(&job("ns", "j")), want);
        assert_eq!(cpu(&inventory), Quantity::from_units(7));
        assert!(inventory.seen(&job("ns", "other")).is_empty());
        assert!(inventory.seen(&job("other", "j")).is_empty());
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let name = prop::sample::select(vec!["a", "b", "c"]);
        prop_oneof![
            (name.clone(), 1..9i64, any::<bool>())
                .prop_map(|(name, cpu, ready)| { Change::Node(Node { ready, ..node(name, cpu) }) }),
            name.clone().prop_map(|name| Change::NodeGone(name.into())),
            ("[p-t]", prop::option::of(name), 1..4i64, any::<bool>())
                .prop_map(|(pod_name, on, cpu, finished)| { Change::Pod(Pod { finished, ..pod(&pod_name, on, cpu) }) }),
            "[p-t]".prop_map(|name| Change::PodGone("ns".into(), name)),
        ]
    }

    proptest! {
        /// Events one by one give what a fresh list of the same state gives.
        #[test]
        fn events_and_lists_agree(changes in prop::collection::vec(any_change(), 0..40)) {
            let mut inventory = listed(vec![], vec![]);
            let (mut nodes, mut pods) = (BTreeMap::new(), BTreeMap::new());
            for change in changes {
                match change.clone() {
                    Change::Node(node) => drop(nodes.insert(node.name.clone(), node)),
                    Change::NodeGone(name) => drop(nodes.remove(&name)),
                    Change::Pod(pod) => drop(pods.insert(pod.name.clone(), pod)),
                    Change::PodGone(_, name) => drop(pods.remove(&name)),
                    Change::Nodes(_) | Change::Pods(_) => unreachable!(),
                }
                let before = inventory.capacity();
                let changed = inventory.apply(change);
                prop_assert!(changed || before == inventory.capacity());
            }
            let fresh = listed(nodes.into_values().collect(), pods.into_values().collect());
            prop_assert_eq!(inventory.capacity(), fresh.capacity());
        }
    }
}
