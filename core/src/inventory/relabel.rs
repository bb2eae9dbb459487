//! All shapes rebuilt: when shapes carry other labels than before, or when node labels are stored more compactly.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Interner, Inventory, NodeKind, NodeKindRef, NodeRef, node_shapes::Shapes, shape_labels::ShapeLabels};

impl Inventory {
    /// Shapes carry these labels from now on (but not those that tell most nodes apart), so that who selects on them is
    /// answered by shape and not node by node; true if that makes other shapes.
    pub fn set_carried_labels(&mut self, labels: &Arc<BTreeSet<String>>) -> bool {
        let nodes = self.nodes.values().filter_map(|state| state.spec.as_ref()).map(|spec| &spec.node);
        let changed = self.shown.set_selected(labels, nodes);
        if changed {
            self.relabel_shapes();
        }
        changed
    }

    /// Every node's kind anew, by the labels that shapes carry now. What nodes have free stays as it is.
    pub(super) fn relabel_shapes(&mut self) {
        let mut kinds = Kinds { shown: &self.shown, kept: &mut self.kinds, made: BTreeMap::new() };
        for spec in self.nodes.values_mut().filter_map(|state| state.spec.as_mut()) {
            spec.kind = kinds.kind_for_node(&spec.kind, &spec.node);
        }
        let mut shapes = Shapes::new();
        for (was, by_free) in std::mem::take(&mut self.shapes) {
            for (free, places) in by_free {
                for place in places {
                    let by_free = shapes.entry(kinds.kind_for_node(&was, &place.1)).or_default();
                    let places = by_free.entry(Arc::clone(&free)).or_insert_with(|| Vec::with_capacity(1));
                    places.push(place);
                }
            }
        }
        shapes.values_mut().flat_map(BTreeMap::values_mut).for_each(|places| places.sort());
        self.shapes = shapes;
    }

    /// Every node's labels anew, as they take the least.
    pub(super) fn compact_node_labels(&mut self) {
        let nodes = self.nodes.values().filter_map(|state| state.spec.as_ref()).map(|spec| &spec.node);
        let parted = self.labels.separate_own_labels(nodes);
        let specs = self.nodes.values_mut().filter_map(|state| state.spec.as_mut());
        specs.zip(parted).for_each(|(spec, node)| spec.node = node);
        self.rebuild_shapes();
    }
}

/// Kinds of nodes by what they were and which labels they share: few, where there are many nodes.
struct Kinds<'a> {
    shown: &'a ShapeLabels,
    kept: &'a mut Interner<NodeKind>,
    /// By where these are kept, with what is kept there.
    made: BTreeMap<(usize, usize), (NodeKindRef, NodeRef, NodeKindRef)>,
}

impl Kinds<'_> {
    fn kind_for_node(&mut self, was: &NodeKindRef, node: &NodeRef) -> NodeKindRef {
        let place = node.shared_labels_address(self.shown.keys()).map(|shared| (Arc::as_ptr(&was.0) as usize, shared));
        if let Some((.., kind)) = place.and_then(|place| self.made.get(&place)) {
            return kind.clone();
        }
        let labels = Arc::new(self.shown.labels_of(node));
        let kind = NodeKindRef(self.kept.intern_value(NodeKind { labels, ..(*was.0).clone() }));
        if let Some(place) = place {
            self.made.insert(place, (was.clone(), node.clone(), kind.clone()));
        }
        kind
    }
}
