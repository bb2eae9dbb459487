//! Shortages: whom each blocks, and which are to be looked at again, now or later.

use std::collections::BTreeSet;

use crate::{
    queue::{
        pending::shape_table::ShapeId,
        quota::slot::QueueIndex,
        reservation::{ReservationId, ReservationRank, Reservations, blocked::BlockedFirst},
    },
    time::EpochSeconds,
};

/// Before every time that it can be: while nothing is released such updates are no more than there are reservations.
const AT_ONCE: EpochSeconds = EpochSeconds::new(0);

/// The jobs that would get one.
impl Reservations {
    /// A shortage blocks a shape; these jobs of it may be the next to get a reservation.
    pub(crate) fn set_blocked_shape(
        &mut self,
        id: ReservationId,
        shape: ShapeId,
        firsts: Box<[BlockedFirst]>,
        now: EpochSeconds,
    ) {
        let young = firsts.iter().map(|(ripe, _)| *ripe).filter(|ripe| *ripe > now).min();
        if self.blocked.add_inadmissible(id, shape, firsts, now) {
            self.dirty.insert(id);
            self.due.extend(young.map(|ripe| (ripe, id)));
        }
    }

    /// It does not any more.
    pub(crate) fn remove_from_shortage(&mut self, node: QueueIndex, shape: ShapeId) {
        self.blocked.remove_inadmissible(node, shape);
    }

    pub(crate) fn is_blocked_by(&self, id: ReservationId, shape: ShapeId) -> bool {
        self.blocked.is_blocked_by(id, shape)
    }

    /// The jobs that a shortage blocks and that have waited long enough, the first in rank first.
    pub(crate) fn list_due_blocked(&self, id: ReservationId) -> impl Iterator<Item = &(ReservationRank, ShapeId)> {
        self.blocked.list_due_blocked(id)
    }

    /// Those who have waited long enough by now are due; the others will be looked at when they have.
    pub(crate) fn promote_due_blocked(&mut self, id: ReservationId, now: EpochSeconds) {
        if let Some(next) = self.blocked.promote_due_blocked(id, now) {
            self.due.insert((next, id));
        }
    }

    /// Queues in which a job lacks capacity.
    pub(crate) fn list_capacity_shortages(&self) -> BTreeSet<ReservationId> {
        self.blocked.list_capacity_shortages()
    }

    /// The reservations of these queues, and the shortages that block a job of them, are to be looked at before
    /// anything is released.
    pub(crate) fn schedule_updates_of(&mut self, is_one: impl Fn(QueueIndex) -> bool) {
        let ids = self.blocked.list_blocking_shortages().into_iter().chain(self.all.keys().copied());
        self.due.extend(ids.filter(|id| is_one(id.queue)).map(|id| (AT_ONCE, id)));
    }

    /// Ceilings are others than they were: everything is to be looked at again.
    pub(crate) fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.blocked.list_blocking_shortages());
        self.dirty.extend(self.all.keys());
    }

    /// What was put off is looked at now.
    pub(crate) fn mark_deferred_dirty(&mut self) {
        self.dirty.append(&mut self.deferred);
    }

    /// Queues hold more or less than before.
    pub(crate) fn note_usage_change(&mut self, path: &[QueueIndex]) {
        if !self.blocked.is_empty() || !self.all.is_empty() {
            self.moved.extend(path);
        }
    }

    pub(crate) fn take_usage_changes(&mut self) -> BTreeSet<QueueIndex> {
        std::mem::take(&mut self.moved)
    }

    /// To be looked at again then.
    pub(crate) fn schedule_update(&mut self, at: EpochSeconds, id: ReservationId) {
        self.due.insert((at, id));
    }

    /// What is to be looked at now.
    pub(crate) fn take_dirty(&mut self, now: EpochSeconds) -> BTreeSet<ReservationId> {
        while let Some((at, id)) = self.due.first().copied() {
            if at > now {
                break;
            }
            self.due.pop_first();
            self.dirty.insert(id);
        }
        std::mem::take(&mut self.dirty)
    }

    /// Nobody gets a reservation: nothing is to be looked at again until all is worked out anew.
    pub(crate) fn forget_updates(&mut self) {
        self.due.clear();
        self.dirty.clear();
        self.deferred.clear();
    }

    #[cfg(test)]
    pub(crate) fn count_updates(&self) -> usize {
        self.due.len() + self.dirty.len() + self.deferred.len()
    }

    /// When something is to be looked at again.
    pub(crate) fn next_due(&self) -> Option<EpochSeconds> {
        self.due.first().map(|(at, _)| *at)
    }
}
