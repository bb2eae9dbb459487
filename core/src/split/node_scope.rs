//! Which of a cluster's nodes may be used: all, those of one network domain, or those that a plan pins pods to by
//! label.

use crate::{
    gang::Requirement,
    inventory::{Capacity, DomainId, NodeRef, NodeShape},
};

/// Which of a cluster's nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeScope<'a> {
    /// All.
    Cluster,
    /// Those of a domain and of the domains within it.
    Domain(DomainId),
    /// Those that satisfy one of these alternatives.
    Pinned(&'a [Vec<Requirement>]),
}

impl NodeScope<'_> {
    /// Whether the alternatives name a label that shapes do not carry.
    pub(super) fn needs_single_nodes(self, capacity: &Capacity) -> bool {
        let Self::Pinned(terms) = self else { return false };
        terms.iter().flatten().any(|one| !capacity.carries_label(&one.key))
    }

    /// Whether a node is one of these. Of nodes whose labels are unknown all are.
    pub(super) fn holds_node(
        self,
        capacity: &Capacity,
        shape: &NodeShape,
        id: Option<DomainId>,
        node: &NodeRef,
    ) -> bool {
        match self {
            Self::Cluster => true,
            Self::Domain(domain) => id.is_some_and(|id| capacity.domains.within(id, domain)),
            Self::Pinned(terms) => {
                let matches = |one: &Requirement| one.matches(shape.label(node, &one.key));
                shape.labels.is_none() || terms.iter().any(|term| term.iter().all(matches))
            }
        }
    }

    /// A cluster's nodes that are of these, and the others.
    pub(super) fn split_nodes(self, capacity: &Capacity) -> (Vec<NodeShape>, Vec<NodeShape>) {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for shape in &capacity.shapes {
            let is_in = |(id, node): &(Option<DomainId>, &NodeRef)| self.holds_node(capacity, shape, *id, node);
            inside.push(shape.of_nodes(shape.nodes_with_domains().filter(is_in)));
            outside.push(shape.of_nodes(shape.nodes_with_domains().filter(|one| !is_in(one))));
        }
        let some = |mut shapes: Vec<NodeShape>| {
            shapes.retain(|shape| !shape.nodes.is_empty());
            shapes
        };
        (some(inside), some(outside))
    }
}
