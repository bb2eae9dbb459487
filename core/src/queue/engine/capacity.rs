//! Which jobs are considered again after capacity came free in the clusters: only those that could fit now.
//!
//! A class of jobs that fitted nowhere fits now only with a pod on one of the nodes where more is free, and never with
//! more than is free in all clusters together. Both are told without placing anything, by a scan over the classes. The
//! decisions are those of asking about every class again.

use crate::{
    queue::{
        capacity::CapacityGrowth,
        engine::{
            Engine,
            refusals::{CapacityLack, RefusedClass},
        },
        pending::shape_table::ShapeId,
        quota::amounts::DimAmounts,
        reservation::ReservationId,
    },
    resources::Resources,
};

impl Engine {
    /// More may be free than before, nobody knows how much, or the clusters are others than they were: every class that
    /// did not fit is considered again.
    pub fn requeue_after_capacity_change(&mut self) {
        for (node, shape) in self.refusals.take_all() {
            self.requeue_shape(node, shape);
        }
    }

    /// More is free than before on some nodes, and nowhere else: the classes that could fit now are considered again.
    pub fn requeue_after_growth(&mut self, growth: &CapacityGrowth) {
        let (free, largest) = (self.list_asked_amounts(&growth.free), self.list_asked_amounts(&growth.largest));
        for (node, shape) in self.refusals.take_shapes_that_could_fit(&free, &largest) {
            self.requeue_shape(node, shape);
        }
    }

    /// Of these, what anybody names.
    fn list_asked_amounts(&self, amounts: &Resources) -> DimAmounts {
        let mut asked = DimAmounts::default();
        for (name, amount) in amounts.iter() {
            self.queues.dims.find_dim(name).into_iter().for_each(|dim| asked.set(dim, amount.into()));
        }
        asked
    }

    /// The answer that a shape already has, beside what these reservations keep.
    pub(crate) fn find_known_refusal(&self, shape: ShapeId, blocking: &[ReservationId]) -> Option<RefusedClass> {
        let kept = self.list_reservations_keeping_clusters(blocking);
        self.refusals.find_known(self.shapes[shape].ask.fit, &kept)
    }

    /// Remembers that a class fits nowhere without what these reservations keep.
    pub(crate) fn record_refusal(
        &mut self,
        shape: ShapeId,
        blocking: &[ReservationId],
        lack: CapacityLack,
        detail: String,
    ) -> RefusedClass {
        // If everything were empty, nothing would be kept either.
        let is_final = lack == CapacityLack::LargerClusters;
        let kept = if is_final { Box::default() } else { self.list_reservations_keeping_clusters(blocking) };
        self.refusals.record_refusal(&self.shapes[shape], &self.queues.dims, kept, lack, detail)
    }
}
