//! Which pending jobs can never start while queues and clusters are as they are: nobody waits behind them, not even in
//! a fifo queue.

use crate::queue::{
    engine::{Engine, QueueingState},
    pending::{
        job_order::JobId,
        line::{Inadmissible, ShapeId},
    },
    quota::{admission, tree::QueueIndex},
};

impl Engine {
    /// Whether a pending job can never start while queues and clusters are as they are.
    #[must_use]
    pub fn is_unsatisfiable(&self, id: &str) -> bool {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(id) else { return false };
        let slot = &self.slots[node.index()];
        slot.problem.is_some() || slot.line.is_unsatisfiable(*shape)
    }

    /// Records whether an inadmissible shape can never fit.
    pub(crate) fn update_unsatisfiable(&mut self, node: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        let slot = &self.slots[node.index()];
        let resized = || slot.line.first_of(shape).is_some_and(|key| self.exceeds_with_held(node, shape, &key.id));
        let unsatisfiable =
            cause == Inadmissible::Never || admission::exceeds_reachable_quota(slot, self.shape(shape)) || resized();
        self.slots[node.index()].line.set_unsatisfiable(shape, unsatisfiable);
    }

    /// The same for all shapes, after limits changed.
    pub(crate) fn update_all_unsatisfiable(&mut self) {
        for node in self.index.values().copied().collect::<Vec<_>>() {
            let sleeping: Vec<_> = self.slots[node.index()].line.list_inadmissible_shapes().collect();
            sleeping.into_iter().for_each(|(shape, cause)| self.update_unsatisfiable(node, shape, cause));
            self.mark_head_changed(node);
        }
    }

    /// Whether what a job holds already is what makes it too much.
    fn exceeds_with_held(&self, node: QueueIndex, shape: ShapeId, id: &JobId) -> bool {
        let holds = |at, dim| self.held_by_resized_job(id.as_str(), at, dim);
        let grows = self.resized.contains_key(id);
        grows
            && admission::explain_unsatisfiable(&self.slots, &self.dims, &self.fleet, node, self.shape(shape), holds)
                .is_some()
    }
}
