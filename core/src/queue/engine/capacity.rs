//! Which jobs are considered again after capacity came free in the clusters: only those that could fit now.
//!
//! A class of jobs that fitted nowhere fits now only with a pod on one of the nodes where more is free, and never with
//! more than is free in all clusters together. Both are told without placing anything, by a scan over the classes. The
//! decisions are those of asking about every class again.

use std::collections::BTreeSet;

use crate::{
    queue::{
        capacity::CapacityGrowth,
        engine::{CapacityRefusal, Engine},
        pending::shape_table::ShapeId,
        quota::{
            admission::{FitClass, JobShape},
            amounts::{Dim, DimAmounts},
            slot::QueueIndex,
        },
        reservation::ReservationId,
    },
    resources::Resources,
};

/// What did not fit: a class, without the clusters of these reservations. A job that they do not block is asked about
/// again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefusedClass {
    class: FitClass,
    /// In order.
    kept: Box<[ReservationId]>,
}

impl RefusedClass {
    /// Before all of this class.
    fn first_of(class: FitClass) -> Self {
        Self { class, kept: Box::default() }
    }
}

/// What must be free before a class of jobs can fit: of each resource, what all pods of the minimum ask for and the
/// least that one of them does.
#[derive(Debug, Clone)]
pub(crate) struct FreeNeeded(Box<[(Dim, i128, i128)]>);

impl FreeNeeded {
    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> {
        self.0.iter().map(|(dim, ..)| *dim)
    }

    fn could_fit(&self, free: &DimAmounts, largest: &DimAmounts) -> bool {
        self.0.iter().all(|(dim, all, pod)| *all <= free.get(*dim) && *pod <= largest.get(*dim))
    }
}

/// What a class of jobs lacks that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CapacityLack {
    /// Room.
    Room,
    /// Room in clusters that are not kept for others.
    UnreservedRoom,
    /// Clusters that would hold it if everything were empty.
    LargerClusters,
}

impl CapacityLack {
    /// Of a job that fits nowhere now, or `never`.
    pub(crate) const fn of(never: bool) -> Self {
        if never { Self::LargerClusters } else { Self::Room }
    }
}

impl CapacityRefusal {
    /// It does not fit even if everything were empty.
    pub(crate) fn is_final(&self) -> bool {
        self.lack == CapacityLack::LargerClusters
    }
}

impl Engine {
    /// More may be free than before, nobody knows how much, or the clusters are others than they were: every class that
    /// did not fit is considered again.
    pub fn requeue_after_capacity_change(&mut self) {
        for refusal in std::mem::take(&mut self.refusals).into_values() {
            for (node, shape) in refusal.inadmissible {
                self.requeue_shape(node, shape);
            }
        }
    }

    /// More is free than before on some nodes, and nowhere else: the classes that could fit now are considered again.
    pub fn requeue_after_growth(&mut self, growth: &CapacityGrowth) {
        let (free, largest) = (self.list_asked_amounts(&growth.free), self.list_asked_amounts(&growth.largest));
        let could_fit = |_: &RefusedClass, refusal: &mut CapacityRefusal| {
            !refusal.is_final() && refusal.needs.could_fit(&free, &largest)
        };
        let grown: Vec<(RefusedClass, CapacityRefusal)> = self.refusals.extract_if(.., could_fit).collect();
        for (node, shape) in grown.into_iter().flat_map(|(_, refusal)| refusal.inadmissible) {
            self.requeue_shape(node, shape);
        }
    }

    /// Of these, what anybody names.
    fn list_asked_amounts(&self, amounts: &Resources) -> DimAmounts {
        let mut asked = DimAmounts::default();
        for (name, amount) in amounts.iter() {
            self.queues.dims.find_dim(name).into_iter().for_each(|dim| asked.set(dim, amount.as_nano()));
        }
        asked
    }

    /// The answer that a shape already has: a class that fits nowhere without what some reservations keep does not
    /// without more.
    pub(crate) fn find_known_refusal(&self, shape: ShapeId, blocking: &[ReservationId]) -> Option<RefusedClass> {
        let kept = self.list_reservations_keeping_clusters(blocking);
        let known = self.list_refusals_of_class(self.shapes[shape].ask.fit);
        known.map(|(refused, _)| refused).find(|refused| refused.kept.iter().all(|id| kept.contains(id))).cloned()
    }

    /// Forgets what a class was told: its shapes are considered again.
    pub(crate) fn requeue_class(&mut self, class: FitClass) {
        let known: Vec<RefusedClass> = self.list_refusals_of_class(class).map(|(refused, _)| refused.clone()).collect();
        let shapes: Vec<_> = known.iter().filter_map(|refused| self.refusals.remove(refused)).collect();
        for (node, shape) in shapes.into_iter().flat_map(|refusal| refusal.inadmissible) {
            self.requeue_shape(node, shape);
        }
    }

    /// Why a shape fits nowhere even if everything were empty, if that is known.
    pub(crate) fn find_known_never(&self, shape: ShapeId) -> Option<&str> {
        let mut known = self.list_refusals_of_class(self.shapes[shape].ask.fit);
        known.find(|(_, refusal)| refusal.is_final()).map(|(_, refusal)| refusal.detail.as_str())
    }

    fn list_refusals_of_class(&self, class: FitClass) -> impl Iterator<Item = (&RefusedClass, &CapacityRefusal)> {
        self.refusals.range(RefusedClass::first_of(class)..).take_while(move |(refused, _)| refused.class == class)
    }

    /// Remembers that a class fits nowhere without what these reservations keep.
    pub(crate) fn record_refusal(
        &mut self,
        shape: ShapeId,
        blocking: &[ReservationId],
        lack: CapacityLack,
        detail: String,
    ) -> RefusedClass {
        let needs = self.free_needed(&self.shapes[shape]);
        // If everything were empty, nothing would be kept either.
        let is_final = lack == CapacityLack::LargerClusters;
        let kept = if is_final { Box::default() } else { self.list_reservations_keeping_clusters(blocking) };
        let refused = RefusedClass { class: self.shapes[shape].ask.fit, kept };
        let new = || CapacityRefusal { lack, detail, inadmissible: BTreeSet::new(), needs };
        self.refusals.entry(refused.clone()).or_insert_with(new);
        refused
    }

    /// Whether a shape lacks only clusters that are reserved.
    pub(crate) fn lacks_only_reserved_clusters(&self, node: QueueIndex, shape: ShapeId) -> bool {
        let mut known = self.list_refusals_of_class(self.shapes[shape].ask.fit);
        !known.any(|(refused, refusals)| refused.kept.is_empty() && refusals.inadmissible.contains(&(node, shape)))
    }

    /// No job of a shape is pending any more.
    pub(crate) fn forget_refusals(&mut self, node: QueueIndex, shape: ShapeId) {
        let all: Vec<RefusedClass> =
            self.list_refusals_of_class(self.shapes[shape].ask.fit).map(|(refused, _)| refused.clone()).collect();
        for refused in all {
            let Some(refusals) = self.refusals.get_mut(&refused) else { continue };
            refusals.inadmissible.remove(&(node, shape));
            if refusals.inadmissible.is_empty() {
                self.refusals.remove(&refused);
            }
        }
    }

    fn free_needed(&self, shape: &JobShape) -> FreeNeeded {
        let copies = i128::from(shape.ask.copies.max(1));
        let pods = || shape.ask.tasks.iter().filter(|task| task.min > 0);
        let least = |dim| {
            pods().map(|task| task.request.get(self.queues.dims.resource_of(dim).as_str()).as_nano()).min().unwrap_or(0)
        };
        let of_clusters = shape.sparse.iter().filter(|(dim, _)| !self.queues.dims.resource_of(*dim).is_card());
        FreeNeeded(of_clusters.map(|(dim, all)| (*dim, all / copies, least(*dim))).collect())
    }
}
