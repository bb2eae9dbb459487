//! A member's usable nodes grouped into shapes: by labels that shapes carry, taints, allocatable and NUMA nodes, then
//! by what is free. Single nodes are added and removed as they change.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use super::{Amounts, DomainId, NodeRef};
use crate::{gang::Taint, numa::NumaTopology, quantity::Quantity, resources::ResourceName};

/// Usable nodes by what they are and what they have free, then by domain and name (those in no domain last).
pub(super) type Shapes = BTreeMap<NodeKindRef, BTreeMap<Arc<Amounts>, Vec<NodePlace>>>;
pub(super) type NodePlace = (NoneLast, NodeRef);

/// A domain, or none, which comes after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoneLast(pub Option<DomainId>);

impl PartialOrd for NoneLast {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NoneLast {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.is_none(), self.0).cmp(&(other.0.is_none(), other.0))
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct NodeState {
    /// `None` while only pods name the node.
    pub spec: Option<NodeSpec>,
    pub used: Arc<Amounts>,
}

#[derive(Debug, Clone)]
pub(super) struct NodeSpec {
    /// Its name and all its labels.
    pub node: NodeRef,
    pub kind: NodeKindRef,
    pub usable: bool,
    pub domain: Option<DomainId>,
}

/// What many nodes have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeKind {
    /// Those that somebody selects on.
    pub labels: Arc<BTreeMap<String, String>>,
    pub taints: Arc<[Taint]>,
    pub allocatable: Arc<Amounts>,
    /// `None` where they report none.
    pub numa: Option<Arc<NumaTopology>>,
}

/// A pooled kind: two that are equal are the same.
#[derive(Debug, Clone)]
pub(super) struct NodeKindRef(pub Arc<NodeKind>);

/// Kinds that are one in memory are equal, so that most comparisons do not look at labels.
impl PartialEq for NodeKindRef {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for NodeKindRef {}
impl PartialOrd for NodeKindRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for NodeKindRef {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

/// A usable node's shape and place; `None` for one that offers nothing.
fn shape_and_place(state: &NodeState) -> Option<(NodeKindRef, Amounts, NodePlace)> {
    let spec = state.spec.as_ref().filter(|spec| spec.usable)?;
    let left = |(name, amount): (&ResourceName, &Quantity)| {
        let used = state.used.get(name).copied().unwrap_or(Quantity::ZERO);
        (name.clone(), amount.saturating_sub(used))
    };
    let free = spec.kind.0.allocatable.iter().map(left).collect();
    Some((spec.kind.clone(), free, (NoneLast(spec.domain), spec.node.clone())))
}

pub(super) fn add_node_to_shapes(shapes: &mut Shapes, state: &NodeState) {
    if let Some((kind, free, place)) = shape_and_place(state) {
        let by_free = shapes.entry(kind).or_default();
        let places = by_free.entry(Arc::new(free)).or_insert_with(|| Vec::with_capacity(1));
        if let Err(at) = places.binary_search(&place) {
            places.insert(at, place);
        }
    }
}

pub(super) fn remove_node_from_shapes(shapes: &mut Shapes, state: &NodeState) {
    let Some((kind, free, place)) = shape_and_place(state) else { return };
    let Some(by_free) = shapes.get_mut(&kind) else { return };
    if let Some(places) = by_free.get_mut(&free) {
        if let Ok(at) = places.binary_search(&place) {
            places.remove(at);
        }
        if places.is_empty() {
            by_free.remove(&free);
        }
    }
    if by_free.is_empty() {
        shapes.remove(&kind);
    }
}
