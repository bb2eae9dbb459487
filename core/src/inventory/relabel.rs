//! Shapes made anew because they carry other labels, or because labels are kept otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Interner, Inventory, Kind, KindRef, NodeRef, node_shapes::Shapes, shape_labels::ShapeLabels};

impl Inventory {
    /// Shapes carry these labels from now on (but not those that tell most nodes apart), so that who selects on them is
    /// answered by shape and not node by node; true if that makes other shapes.
    pub fn carry_labels(&mut self, labels: &Arc<BTreeSet<String>>) -> bool {
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
            spec.kind = kinds.of(&spec.kind, &spec.node);
        }
        let mut shapes = Shapes::new();
        for (was, by_free) in std::mem::take(&mut self.shapes) {
            for (free, places) in by_free {
                for place in places {
                    let by_free = shapes.entry(kinds.of(&was, &place.1)).or_default();
                    let places = by_free.entry(Arc::clone(&free)).or_insert_with(|| Vec::with_capacity(1));
                    places.push(place);
                }
            }
        }
        shapes.values_mut().flat_map(BTreeMap::values_mut).for_each(|places| places.sort());
        self.shapes = shapes;
    }

    /// Every node's labels anew, as they take the least.
    pub(super) fn split_labels(&mut self) {
        let nodes = self.nodes.values().filter_map(|state| state.spec.as_ref()).map(|spec| &spec.node);
        let parted = self.labels.split_own(nodes);
        let specs = self.nodes.values_mut().filter_map(|state| state.spec.as_mut());
        specs.zip(parted).for_each(|(spec, node)| spec.node = node);
        self.sort_nodes();
    }
}

/// Kinds of nodes by what they were and which labels they share: few, where there are many nodes.
struct Kinds<'a> {
    shown: &'a ShapeLabels,
    kept: &'a mut Interner<Kind>,
    /// By where these are kept, with what is kept there.
    made: BTreeMap<(usize, usize), (KindRef, NodeRef, KindRef)>,
}

impl Kinds<'_> {
    fn of(&mut self, was: &KindRef, node: &NodeRef) -> KindRef {
        let place = node.find_shared_labels(self.shown.keys()).map(|shared| (Arc::as_ptr(&was.0) as usize, shared));
        if let Some((.., kind)) = place.and_then(|place| self.made.get(&place)) {
            return kind.clone();
        }
        let (taints, allocatable) = (Arc::clone(&was.0.taints), Arc::clone(&was.0.allocatable));
        let labels = Arc::new(self.shown.labels_of(node));
        let kind = KindRef(self.kept.intern_value(Kind { labels, taints, allocatable }));
        if let Some(place) = place {
            self.made.insert(place, (was.clone(), node.clone(), kind.clone()));
        }
        kind
    }
}
