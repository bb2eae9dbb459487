//! Which jobs each shortage blocks, in the order in which they would get a reservation.
//!
//! Jobs that ask for the same are blocked together, and at most two of each priority can be next: the one with the
//! earliest deadline and the oldest without one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    queue::{
        pending::shape_table::ShapeId,
        quota::slot::QueueIndex,
        reservation::{ReservationCause, ReservationId, ReservationRank},
    },
    time::EpochSeconds,
};

/// A blocked job, and when it has waited long enough.
pub(crate) type BlockedFirst = (EpochSeconds, ReservationRank);

/// What blocks a shape, and its firsts.
type BlockedShape = (ReservationId, Box<[BlockedFirst]>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Blocked {
    /// Those that have waited long enough, in rank.
    due: BTreeMap<ReservationId, BTreeSet<(ReservationRank, ShapeId)>>,
    /// Those that have not.
    young: BTreeMap<ReservationId, BTreeSet<(BlockedFirst, ShapeId)>>,
    /// What blocks each shape, and its firsts.
    inadmissible: HashMap<(QueueIndex, ShapeId), BlockedShape>,
}

impl Blocked {
    pub(crate) fn is_empty(&self) -> bool {
        self.inadmissible.is_empty()
    }

    /// A shape is blocked, or its firsts are others than before; false if nothing changes.
    pub(crate) fn add_inadmissible(
        &mut self,
        id: ReservationId,
        shape: ShapeId,
        firsts: Box<[BlockedFirst]>,
        now: EpochSeconds,
    ) -> bool {
        if self.inadmissible.get(&(id.queue, shape)).is_some_and(|(known, had)| (*known, had) == (id, &firsts)) {
            return false;
        }
        self.remove_inadmissible(id.queue, shape);
        for first in &firsts {
            if first.0 <= now {
                self.due.entry(id).or_default().insert((first.1.clone(), shape));
            } else {
                self.young.entry(id).or_default().insert((first.clone(), shape));
            }
        }
        self.inadmissible.insert((id.queue, shape), (id, firsts));
        true
    }

    /// It is blocked no more.
    pub(crate) fn remove_inadmissible(&mut self, node: QueueIndex, shape: ShapeId) {
        let Some((id, firsts)) = self.inadmissible.remove(&(node, shape)) else { return };
        for first in firsts {
            remove(&mut self.due, id, &(first.1.clone(), shape));
            remove(&mut self.young, id, &(first, shape));
        }
    }

    /// Those who have waited long enough by now are due; when the next will have.
    pub(crate) fn promote_due_blocked(&mut self, id: ReservationId, now: EpochSeconds) -> Option<EpochSeconds> {
        while let Some((first, shape)) = self.young.get(&id).and_then(BTreeSet::first).cloned() {
            if first.0 > now {
                return Some(first.0);
            }
            self.due.entry(id).or_default().insert((first.1.clone(), shape));
            remove(&mut self.young, id, &(first, shape));
        }
        None
    }

    /// Whether this blocks a shape.
    pub(crate) fn is_blocked_by(&self, id: ReservationId, shape: ShapeId) -> bool {
        self.inadmissible.get(&(id.queue, shape)).is_some_and(|(known, _)| *known == id)
    }

    /// The jobs that this blocks and that have waited long enough, the first in rank first.
    pub(crate) fn list_due_blocked(&self, id: ReservationId) -> impl Iterator<Item = &(ReservationRank, ShapeId)> {
        self.due.get(&id).into_iter().flatten()
    }

    /// Every shortage that blocks a job.
    pub(crate) fn list_blocking_shortages(&self) -> BTreeSet<ReservationId> {
        self.due.keys().chain(self.young.keys()).copied().collect()
    }

    /// Every shortage of capacity that blocks a job.
    pub(crate) fn list_capacity_shortages(&self) -> BTreeSet<ReservationId> {
        let capacity = ReservationId { cause: ReservationCause::Capacity(0), queue: QueueIndex::ROOT }..;
        let young = self.young.range(capacity.clone()).map(|(id, _)| *id);
        self.due.range(capacity).map(|(id, _)| *id).chain(young).collect()
    }
}

fn remove<T: Ord>(of: &mut BTreeMap<ReservationId, BTreeSet<T>>, id: ReservationId, entry: &T) {
    if let Some(entries) = of.get_mut(&id) {
        entries.remove(entry);
        if entries.is_empty() {
            of.remove(&id);
        }
    }
}
