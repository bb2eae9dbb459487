//! Who can never start while queues and clusters are as they are: nobody waits behind them, not even in a fifo queue.

use super::Engine;
use crate::queue::{
    admit,
    line::{Bed, ShapeId},
    tree::Node,
};

impl Engine {
    /// A shape sleeps: for ever, perhaps.
    pub(super) fn give_up(&mut self, node: Node, shape: ShapeId, bed: Bed) {
        let hopeless = bed == Bed::Never || admit::is_never(&self.slots[node.index()], self.shape(shape));
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
}
