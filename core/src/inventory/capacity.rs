//! Free capacity of one cluster by node shape: what a decision about it is made from.
//!
//! Rule: nodes that are equal in taints, allocatable, free amounts, NUMA nodes and carried labels are one shape. Where
//! nodes can not be read, Karmada's `resourceSummary` counts as one node with unknown labels, which every selector
//! matches.

pub mod profile;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use super::{Amounts, DomainId, Domains, NodeRef, Profile, packing_scale};
use crate::{
    gang::{Operator, Requirement, Taint},
    node_affinity::HOSTNAME,
    numa::{NumaClaim, NumaTopology},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

/// Where a capacity's numbers come from; shown to users, because the sources are not equally true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The member's own nodes and pods.
    Nodes,
    /// Karmada's `status.resourceSummary`: one sum for the whole cluster, blind to fragments and labels.
    Summary,
    /// What the member's estimator said to one question: it knows the nodes, but tells a number only.
    Estimator,
    /// Nothing is known: the cluster offers nothing.
    #[default]
    Unknown,
}

/// Free capacity by node shape.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    /// In a fixed order, each with at least one node.
    pub shapes: Vec<NodeShape>,
    /// Where the numbers come from.
    pub source: Source,
    /// The network domains that the shapes' nodes are in.
    pub domains: Arc<Domains>,
    /// Nodes of domains that offer nothing now, but may again.
    pub idle: Arc<[(DomainId, NodeRef)]>,
    /// The labels that the shapes carry; any other one is looked up node by node. `None` where they carry all.
    pub shown: Option<Arc<BTreeSet<String>>>,
    /// Some node reports its NUMA nodes, so that tasks with a NUMA policy go only to nodes that do.
    pub reports_numa: bool,
    profile: OnceLock<Arc<Profile>>,
}

/// The profile follows from the rest.
impl PartialEq for Capacity {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
            && self.shapes == other.shapes
            && self.domains == other.domains
            && self.idle == other.idle
            && self.shown == other.shown
            && self.reports_numa == other.reports_numa
    }
}
impl Eq for Capacity {}

/// Nodes that are alike in everything but their name, their domain, and labels that nobody selects on.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeShape {
    /// Labels that the nodes share, of those that shapes carry ([`Capacity::shown`]); `None` where labels are unknown
    /// (then every selector is taken to match).
    pub labels: Option<Arc<BTreeMap<String, String>>>,
    /// Taints.
    pub taints: Arc<[Taint]>,
    /// What each node could offer if it were empty.
    pub allocatable: Arc<Amounts>,
    /// What each node offers now.
    pub free: Arc<Amounts>,
    /// What each node reports of its NUMA nodes; `None` where it reports none.
    pub numa: Option<Arc<NumaTopology>>,
    /// Which, by domain, then by name; never empty.
    pub nodes: Vec<NodeRef>,
    /// The first nodes are in these domains, so many in each; the others are in none.
    pub domains: Vec<(DomainId, u32)>,
}

/// Nodes of one shape that have less free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReducedNodes {
    /// Place of the shape.
    pub shape: usize,
    /// How many of its nodes.
    pub nodes: usize,
    /// How much less each has, as pods are packed ([`packing_scale`]).
    pub used: Vec<(ResourceName, i64)>,
    /// Its NUMA nodes, with what is left of them.
    pub numa: Option<Arc<NumaTopology>>,
}

impl Capacity {
    /// Nodes without domains.
    #[must_use]
    pub fn new(shapes: Vec<NodeShape>, source: Source) -> Self {
        Self { shapes, source, ..Self::default() }
    }

    /// What Karmada's resource summary says is free: one node as large as the whole cluster, of unknown labels.
    #[must_use]
    pub fn from_summary(allocatable: &Resources, allocated: &Resources, allocating: &Resources) -> Self {
        let allocatable = Amounts::from(allocatable);
        let mut used = allocated.clone();
        used.add(allocating);
        let left =
            |(name, amount): (&ResourceName, &Quantity)| (name.clone(), amount.saturating_sub(used.get(name.as_str())));
        let free = Arc::new(allocatable.iter().map(left).collect());
        let (nodes, allocatable) = (vec![NodeRef::from("")], Arc::new(allocatable));
        Self::new(vec![NodeShape { allocatable, free, nodes, ..NodeShape::default() }], Source::Summary)
    }

    /// The same cluster with other nodes.
    #[must_use]
    pub fn with_shapes(&self, shapes: Vec<NodeShape>) -> Self {
        let (domains, idle, shown) = (Arc::clone(&self.domains), Arc::clone(&self.idle), self.shown.clone());
        let (source, reports_numa) = (self.source, self.reports_numa);
        Self { shapes, source, domains, idle, shown, reports_numa, profile: OnceLock::new() }
    }

    /// The same cluster where some nodes have less free: of each shape the last, which become shapes after all others.
    #[must_use]
    pub(crate) fn with_reduced_nodes(mut self, less: &[ReducedNodes]) -> Self {
        let (resources, rows) = (self.profile().resources().to_vec(), self.profile().append_reduced_rows(less));
        let mut keeps: BTreeMap<usize, usize> = BTreeMap::new();
        for part in less {
            *keeps.entry(part.shape).or_insert_with(|| self.shapes[part.shape].nodes.len()) -= part.nodes;
        }
        let mut at = keeps.clone();
        for part in less {
            let from = at.entry(part.shape).or_default();
            let shape = &self.shapes[part.shape];
            let mut split = shape.of_nodes(shape.nodes_with_domains().skip(*from).take(part.nodes));
            *from += part.nodes;
            split.numa.clone_from(&part.numa);
            let free = Arc::make_mut(&mut split.free);
            for (name, used) in part.used.iter().filter(|(_, used)| *used != 0) {
                if let Some(amount) = free.get_mut(name) {
                    let used = i128::from(*used).saturating_mul(packing_scale(name));
                    *amount = amount.saturating_sub(Quantity::from_nano(used));
                }
            }
            self.shapes.push(split);
        }
        for (shape, keeps) in keeps {
            self.shapes[shape].keep_first(keeps);
        }
        let width = resources.len();
        let mut left = Vec::with_capacity(rows.len());
        for at in (0..self.shapes.len()).filter(|at| !self.shapes[*at].nodes.is_empty()) {
            left.extend_from_slice(&rows[at * width..(at + 1) * width]);
        }
        self.shapes.retain(|shape| !shape.nodes.is_empty());
        self.profile = OnceLock::from(Arc::new(Profile::of_rows(&self, resources, left)));
        self
    }

    /// The same cluster with those of its nodes only whose labels are such, of which the labels are known.
    #[must_use]
    pub fn keep_nodes(&self, wanted: &Requirement) -> Self {
        let keep = |shape: &NodeShape| {
            let is_wanted = |(_, node): &(Option<DomainId>, &NodeRef)| wanted.matches(shape.label(node, &wanted.key));
            let kept = shape.of_nodes(shape.nodes_with_domains().filter(is_wanted));
            (!kept.nodes.is_empty()).then_some(kept)
        };
        self.with_shapes(self.shapes.iter().filter_map(keep).collect())
    }

    /// The same nodes with nothing on them: what the cluster could ever give.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let empty = |shape: &NodeShape| NodeShape {
            free: Arc::clone(&shape.allocatable),
            numa: shape.numa.as_ref().map(|numa| Arc::new(numa.emptied())),
            ..shape.clone()
        };
        self.with_shapes(self.shapes.iter().map(empty).collect())
    }

    /// All that is free, over all nodes (for showing; never for deciding what fits).
    #[must_use]
    pub fn sum_free(&self) -> Resources {
        self.sum_over_nodes(|shape| &shape.free)
    }

    /// All that there is, over all usable nodes.
    #[must_use]
    pub fn sum_allocatable(&self) -> Resources {
        self.sum_over_nodes(|shape| &shape.allocatable)
    }

    fn sum_over_nodes(&self, amounts: impl Fn(&NodeShape) -> &Amounts) -> Resources {
        let mut sum = Resources::new();
        for shape in &self.shapes {
            sum.add(&Resources::from(amounts(shape)).times(shape.nodes.len() as u64));
        }
        sum
    }

    /// Sums and bounds, worked out at the first call.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.profile.get_or_init(|| Arc::new(Profile::of_capacity(self)))
    }

    /// Whether shapes carry a label, so that nodes of one are alike in it. No shape carries the nodes' names.
    #[must_use]
    pub fn carries_label(&self, label: &str) -> bool {
        label != HOSTNAME && self.shown.as_ref().is_none_or(|shown| shown.contains(label))
    }

    /// Whether nodes of a shape align pods as a NUMA claim wants. Where no node reports that, its own scheduler judges.
    #[must_use]
    pub(crate) fn aligns_pods(&self, shape: &NodeShape, claim: Option<&NumaClaim>) -> bool {
        let has_policy = |claim: &NumaClaim| {
            let policy = shape.numa.as_ref().and_then(|numa| numa.policy());
            shape.labels.is_none() || policy == Some(claim.policy)
        };
        !self.reports_numa || claim.is_none_or(has_policy)
    }

    /// What selects exactly the nodes of a domain, as alternatives: its HyperNodes' label selectors where all of it is
    /// selected so (then also nodes that join it later), else the list of its nodes by label `kubernetes.io/hostname`
    /// (Kubernetes takes only one value for a node's name as a field).
    #[must_use]
    pub fn node_selectors(&self, domain: DomainId) -> Vec<Vec<Requirement>> {
        if let Some(labels) = self.domains.get(domain).and_then(|domain| domain.labels.clone()) {
            return labels;
        }
        let is_in = |id: DomainId| self.domains.within(id, domain);
        let offering =
            self.shapes.iter().flat_map(|shape| shape.nodes_with_domains()).filter(|(id, _)| id.is_some_and(is_in));
        let idle = self.idle.iter().filter(|(id, _)| is_in(*id)).map(|(_, node)| node);
        let nodes = offering.map(|(_, node)| node).chain(idle);
        let mut hosts: Vec<String> = nodes.filter_map(|node| node.label(HOSTNAME)).map(ToOwned::to_owned).collect();
        hosts.sort_unstable();
        vec![vec![Requirement { key: HOSTNAME.to_owned(), operator: Operator::In, values: hosts }]]
    }
}

impl NodeShape {
    /// A label of one of the nodes; `None` where it is not there, or where labels are unknown.
    #[must_use]
    pub fn label<'a>(&'a self, node: &'a NodeRef, key: &str) -> Option<&'a str> {
        let carried = || self.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        node.label(key).or_else(carried)
    }

    /// Each node with its domain.
    pub fn nodes_with_domains(&self) -> impl Iterator<Item = (Option<DomainId>, &NodeRef)> {
        let domains = self.domains.iter().flat_map(|(id, nodes)| std::iter::repeat_n(Some(*id), *nodes as usize));
        domains.chain(std::iter::repeat(None)).zip(&self.nodes)
    }

    /// How many nodes are in each domain, and in none.
    pub fn count_nodes_by_domain(&self) -> impl Iterator<Item = (Option<DomainId>, usize)> {
        let inside: usize = self.domains.iter().map(|(_, nodes)| *nodes as usize).sum();
        let domains = self.domains.iter().map(|(id, nodes)| (Some(*id), *nodes as usize));
        domains.chain([(None, self.nodes.len().saturating_sub(inside))])
    }

    /// The same shape with these of its nodes only, which are in the order that it has them in.
    #[must_use]
    pub fn of_nodes<'a>(&self, nodes: impl Iterator<Item = (Option<DomainId>, &'a NodeRef)>) -> Self {
        let mut part = Self {
            labels: self.labels.clone(),
            taints: Arc::clone(&self.taints),
            allocatable: Arc::clone(&self.allocatable),
            free: Arc::clone(&self.free),
            numa: self.numa.clone(),
            nodes: Vec::new(),
            domains: Vec::new(),
        };
        for (domain, node) in nodes {
            part.push_node(domain, node.clone());
        }
        part
    }

    /// Keeps so many of its nodes.
    fn keep_first(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
        let mut left = nodes;
        for (_, inside) in &mut self.domains {
            *inside = (*inside).min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= *inside as usize;
        }
        self.domains.retain(|(_, inside)| *inside > 0);
    }

    /// Adds a node that comes after those that are there.
    pub(super) fn push_node(&mut self, domain: Option<DomainId>, node: NodeRef) {
        match (domain, self.domains.last_mut()) {
            (Some(domain), Some((last, nodes))) if *last == domain => *nodes += 1,
            (Some(domain), _) => self.domains.push((domain, 1)),
            (None, _) => {}
        }
        self.nodes.push(node);
    }
}
