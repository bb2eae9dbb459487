//! What the clusters were asked and refused, so that nobody asks the same again before more is free.
//!
//! A refusal is of a class of jobs, beside what some reservations keep, and has the shapes that wait for it. A class
//! that fits nowhere even if everything were empty is refused finally, and one that would fit then is remembered too.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::{
    pending::shape_table::ShapeId,
    quota::{
        admission::{FitClass, JobShape},
        amount::Amount,
        amounts::{Dim, DimAmounts, Dims},
        slot::QueueIndex,
    },
    reservation::ReservationId,
};

/// Classes that are remembered as possible; most fleets have fewer kinds of jobs.
const MOST_CLASSES: usize = 65_536;

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
struct FreeNeeded(Box<[(Dim, Amount, Amount)]>);

impl FreeNeeded {
    fn of_shape(shape: &JobShape, dims: &Dims) -> Self {
        let copies = i64::from(shape.ask.copies.max(1));
        let pods = || shape.ask.tasks.iter().filter(|task| task.min > 0);
        let least =
            |dim| pods().map(|task| task.request.get(dims.resource_of(dim).as_str()).into()).min().unwrap_or_default();
        let of_clusters = shape.sparse.iter().filter(|(dim, _)| !dims.resource_of(*dim).is_card());
        Self(of_clusters.map(|(dim, all)| (*dim, *all / copies, least(*dim))).collect())
    }

    fn could_fit(&self, free: &DimAmounts, largest: &DimAmounts) -> bool {
        self.0.iter().all(|(dim, all, pod)| *all <= free.get(*dim) && *pod <= largest.get(*dim))
    }
}

/// What a class of jobs lacks that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CapacityLack {
    /// Room.
    Insufficient,
    /// Room in clusters that are not kept for others.
    InsufficientUnreserved,
    /// Clusters that would hold it if everything were empty.
    LargerClusters,
}

impl CapacityLack {
    /// Of a job that fits nowhere now, or `never`.
    pub(crate) const fn of(never: bool) -> Self {
        if never { Self::LargerClusters } else { Self::Insufficient }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CapacityRefusal {
    pub(crate) lack: CapacityLack,
    pub(crate) detail: String,
    inadmissible: BTreeSet<(QueueIndex, ShapeId)>,
    needs: FreeNeeded,
}

impl CapacityRefusal {
    /// It does not fit even if everything were empty.
    fn is_final(&self) -> bool {
        self.lack == CapacityLack::LargerClusters
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct CapacityRefusals {
    /// Classes that fit nowhere now, with the shapes that lack it.
    refused: BTreeMap<RefusedClass, CapacityRefusal>,
    /// Classes that could fit if everything were empty, as far as was asked.
    could_fit: BTreeSet<FitClass>,
}

/// What is known.
impl CapacityRefusals {
    pub(crate) fn get(&self, refused: &RefusedClass) -> Option<&CapacityRefusal> {
        self.refused.get(refused)
    }

    fn list_of_class(&self, class: FitClass) -> impl Iterator<Item = (&RefusedClass, &CapacityRefusal)> {
        self.refused.range(RefusedClass::first_of(class)..).take_while(move |(refused, _)| refused.class == class)
    }

    /// The answer that a class already has beside what these reservations keep: one that fits nowhere without what some
    /// of them keep does not without more.
    pub(crate) fn find_known(&self, class: FitClass, kept: &[ReservationId]) -> Option<RefusedClass> {
        let mut known = self.list_of_class(class).map(|(refused, _)| refused);
        known.find(|refused| refused.kept.iter().all(|id| kept.contains(id))).cloned()
    }

    /// Why a class fits nowhere even if everything were empty, if that is known.
    pub(crate) fn find_final_refusal(&self, class: FitClass) -> Option<&str> {
        let mut known = self.list_of_class(class);
        known.find(|(_, refusal)| refusal.is_final()).map(|(_, refusal)| refusal.detail.as_str())
    }

    /// Whether a shape lacks only clusters that are reserved.
    pub(crate) fn lacks_only_reserved_clusters(&self, class: FitClass, node: QueueIndex, shape: ShapeId) -> bool {
        let mut known = self.list_of_class(class);
        !known.any(|(refused, refusals)| refused.kept.is_empty() && refusals.inadmissible.contains(&(node, shape)))
    }

    /// All shapes that lack capacity now and could have it at another time.
    pub(crate) fn list_short_of_capacity(&self) -> impl Iterator<Item = (QueueIndex, ShapeId)> {
        self.refused.values().filter(|refusal| !refusal.is_final()).flat_map(|refusal| &refusal.inadmissible).copied()
    }

    /// All that classes need of clusters.
    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> {
        self.refused.values().flat_map(|refusal| refusal.needs.0.iter().map(|(dim, ..)| *dim))
    }

    /// Whether a class is known to fit if everything were empty.
    pub(crate) fn fits_when_empty(&self, class: FitClass) -> bool {
        self.could_fit.contains(&class)
    }
}

/// Changes.
impl CapacityRefusals {
    /// A shape's class fits nowhere without what these reservations, in order, keep.
    pub(crate) fn record_refusal(
        &mut self,
        shape: &JobShape,
        dims: &Dims,
        kept: Box<[ReservationId]>,
        lack: CapacityLack,
        detail: String,
    ) -> RefusedClass {
        let refused = RefusedClass { class: shape.ask.fit, kept };
        let needs = FreeNeeded::of_shape(shape, dims);
        let new = || CapacityRefusal { lack, detail, inadmissible: BTreeSet::new(), needs };
        self.refused.entry(refused.clone()).or_insert_with(new);
        refused
    }

    /// A shape waits for what its class was refused; true if that is final.
    pub(crate) fn add_inadmissible(&mut self, refused: &RefusedClass, node: QueueIndex, shape: ShapeId) -> bool {
        let Some(refusal) = self.refused.get_mut(refused) else { return false };
        refusal.inadmissible.insert((node, shape));
        refusal.is_final()
    }

    /// No job of a shape is pending any more.
    pub(crate) fn forget_shape(&mut self, class: FitClass, node: QueueIndex, shape: ShapeId) {
        let all: Vec<RefusedClass> = self.list_of_class(class).map(|(refused, _)| refused.clone()).collect();
        for refused in all {
            let Some(refusal) = self.refused.get_mut(&refused) else { continue };
            refusal.inadmissible.remove(&(node, shape));
            if refusal.inadmissible.is_empty() {
                self.refused.remove(&refused);
            }
        }
    }

    /// Forgets all refusals; the shapes that waited for them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (QueueIndex, ShapeId)> + use<> {
        std::mem::take(&mut self.refused).into_values().flat_map(|refusal| refusal.inadmissible)
    }

    /// Forgets what a class was told; the shapes that waited for it.
    pub(crate) fn take_class(&mut self, class: FitClass) -> Vec<(QueueIndex, ShapeId)> {
        let known: Vec<RefusedClass> = self.list_of_class(class).map(|(refused, _)| refused.clone()).collect();
        let refusals = known.iter().filter_map(|refused| self.refused.remove(refused));
        refusals.flat_map(|refusal| refusal.inadmissible).collect()
    }

    /// Forgets the refusals of classes that could fit where so much is free in all and on the node with the most; the
    /// shapes that waited for them.
    pub(crate) fn take_shapes_that_could_fit(
        &mut self,
        free: &DimAmounts,
        largest: &DimAmounts,
    ) -> Vec<(QueueIndex, ShapeId)> {
        let could_fit = |_: &RefusedClass, refusal: &mut CapacityRefusal| {
            !refusal.is_final() && refusal.needs.could_fit(free, largest)
        };
        self.refused.extract_if(.., could_fit).flat_map(|(_, refusal)| refusal.inadmissible).collect()
    }

    /// A class would fit if everything were empty.
    pub(crate) fn record_fits_when_empty(&mut self, class: FitClass) {
        if self.could_fit.len() >= MOST_CLASSES {
            self.could_fit.clear();
        }
        self.could_fit.insert(class);
    }

    /// Clusters are others than they were; true if any class was known to be possible.
    pub(crate) fn forget_possible_classes(&mut self) -> bool {
        !std::mem::take(&mut self.could_fit).is_empty()
    }
}
