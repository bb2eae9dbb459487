//! Who can never start while queues and clusters are as they are: nobody waits behind them, not even in a fifo queue.

use super::Engine;
use crate::queue::{
    admit,
    line::{Bed, ShapeId},
    order::JobId,
    tree::Node,
};

impl Engine {
    /// A shape sleeps: for ever, perhaps.
    pub(super) fn give_up(&mut self, node: Node, shape: ShapeId, bed: Bed) {
        let slot = &self.slots[node.index()];
        let on_top = || slot.line.first_of(shape).is_some_and(|key| self.is_too_much_on_top(node, shape, &key.id));
        let hopeless = bed == Bed::Never || admit::is_never(slot, self.shape(shape)) || on_top();
        self.slots[node.index()].line.set_hopeless(shape, hopeless);
    }

    /// Limits are others than they were.
    pub(super) fn give_up_after_settling(&mut self) {
        for node in self.index.values().copied().collect::<Vec<_>>() {
            let sleeping: Vec<_> = self.slots[node.index()].line.sleeping().collect();
            sleeping.into_iter().for_each(|(shape, bed)| self.give_up(node, shape, bed));
            self.refresh_head(node);
        }
    }

    /// Whether what a job holds already is what makes it too much.
    fn is_too_much_on_top(&self, node: Node, shape: ShapeId, id: &JobId) -> bool {
        let holds = |at, dim| self.holds_already(id.as_str(), at, dim);
        let grows = self.on_top.contains_key(id);
        grows && admit::never(&self.slots, &self.dims, &self.fleet, node, self.shape(shape), holds).is_some()
    }
}
