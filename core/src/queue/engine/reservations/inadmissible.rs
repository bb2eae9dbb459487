//! Updates reservations when a shape becomes inadmissible, is requeued, or gets another first job.

use crate::queue::{
    capacity::ClusterCapacity,
    engine::{
        Engine, QueueingState,
        reservations::{BlockedFirst, ReservationCause, ReservationId, ReservationRank},
    },
    pending::{
        inadmissible::{Inadmissible, KeptCause},
        shape_table::ShapeId,
    },
    quota::slot::QueueIndex,
};

impl Engine {
    pub(crate) fn mark_inadmissible(
        &mut self,
        node: QueueIndex,
        shape: ShapeId,
        cause: Inadmissible,
        capacity: &mut impl ClusterCapacity,
    ) {
        if cause == Inadmissible::Never {
            return self.mark_unsatisfiable(node, shape);
        }
        self.pending.set_inadmissible(&self.queues, node, shape, cause);
        self.update_unsatisfiable(node, shape, cause);
        if let Inadmissible::Kept(why) = cause {
            self.kept_capacity.insert_blocked(node, shape);
            if why == KeptCause::Amount {
                // What is reserved for it would be so for as long as the amount is kept.
                self.remove_reservations_of_shape(node, shape);
            }
        }
        if let Some(cause) = cause.reservation_cause() {
            let id = ReservationId { cause, queue: node };
            self.move_reservations(id, shape);
            self.register_blocked_at_once(id, shape, capacity);
        }
        self.mark_head_changed(node);
        self.pending.schedule_search(node);
        self.withdraw_unsatisfiable_heads(node, capacity);
    }

    /// A shape is blocked by this shortage from now on. If it may reserve for it, it does at once: else, after a
    /// restart, all jobs considered later would pass.
    fn register_blocked_at_once(&mut self, id: ReservationId, shape: ShapeId, capacity: &mut impl ClusterCapacity) {
        if self.reservations.after.is_none() {
            return;
        }
        let firsts = self.rank_reservation_candidates(id.queue, shape);
        let may_reserve = matches!(id.cause, ReservationCause::Quota(..)) && self.reservations.get(id).is_none() && {
            let preemptor = self.find_pending_preemptor().filter(|(_, at, of)| (*at, *of) == (id.queue, shape));
            let due = firsts.iter().filter(|(ripe, _)| *ripe <= self.now).map(|(_, rank)| rank);
            let mut candidates = preemptor.iter().map(|(rank, ..)| rank).chain(due);
            candidates.any(|rank| self.could_ever_start(id.queue, shape, rank.id.as_str()))
        };
        self.reservations.set_blocked_shape(id, shape, firsts, self.now);
        if may_reserve {
            self.update_quota_reservation(id, capacity);
        }
    }

    /// A shape fits nowhere: what is kept for it is kept in vain.
    pub(crate) fn mark_unsatisfiable(&mut self, node: QueueIndex, shape: ShapeId) {
        self.pending.set_inadmissible(&self.queues, node, shape, Inadmissible::Never);
        self.update_unsatisfiable(node, shape, Inadmissible::Never);
        self.remove_reservations_of_shape(node, shape);
        self.mark_head_changed(node);
        self.pending.schedule_search(node);
    }

    fn remove_reservations_of_shape(&mut self, node: QueueIndex, shape: ShapeId) {
        for id in self.reservations.of_shape(node, shape) {
            self.remove_reservation(id);
        }
    }

    /// What blocked a shape may be gone: it is considered when what it asks for itself is free.
    pub(crate) fn requeue_when_free(&mut self, node: QueueIndex, shape: ShapeId) {
        let cause = self.pending[node].inadmissible_cause(shape);
        self.requeue_shape(node, shape);
        let Some(Inadmissible::Reserved(at, dim, _)) = cause else { return };
        let cause = Inadmissible::Quota(at, dim, self.shapes[shape].asked_amount(dim));
        self.pending.set_inadmissible(&self.queues, node, shape, cause);
        self.pending.schedule_search(node);
        if let Some(cause) = cause.reservation_cause() {
            self.register_blocked(ReservationId { cause, queue: node }, shape);
        }
        self.mark_head_changed(node);
    }

    /// Reserving jobs that are short of something else now take their reservations along, before any other job is
    /// considered.
    pub(crate) fn move_reservations(&mut self, id: ReservationId, shape: ShapeId) {
        let ReservationCause::Quota(at, dim) = id.cause else { return };
        for had in self.reservations.of_shape(id.queue, shape).into_iter().filter(|had| *had != id) {
            let Some(old) = self.reservations.get(had) else { continue };
            let reservation = self.draft_reservation(old.rank.clone(), id.queue, shape, old.since, at, &[dim]);
            let better = self.reservations.get(id).is_some_and(|other| other.rank < reservation.rank);
            self.remove_reservation(had);
            if !better {
                self.remove_reservation(id);
                self.add_reservation(id, reservation);
            }
        }
    }

    /// Before an engine decides for the first time: who has waited long enough is considered before all others, so that
    /// nobody passes whom a reservation would have held back in the engine that was there before.
    pub(crate) fn consider_long_waiting(&mut self, capacity: &mut impl ClusterCapacity) {
        if self.reservations.after.is_none() {
            return;
        }
        let mut long_waiting = Vec::new();
        for node in self.queues.nodes() {
            let (slot, line) = (&self.queues[node], &self.pending[node]);
            let head: Vec<ShapeId> = line.list_head_entries().map(|(_, shape)| shape).collect();
            let shapes = line.admissible_shapes().filter(|shape| !slot.is_fifo() || head.contains(shape));
            for shape in shapes.filter(|_| slot.problem.is_none()) {
                let candidates = self.rank_reservation_candidates(node, shape).into_iter();
                let first = candidates.filter(|(due, _)| *due <= self.now).map(|(_, rank)| rank).min();
                long_waiting.extend(first.map(|rank| (rank, node, shape)));
            }
        }
        long_waiting.sort();
        for (_, node, shape) in long_waiting {
            let Some(first) = self.pending[node].first_of(shape) else { continue };
            let key = self.find_reserving_job_of_shape(node, first, shape).unwrap_or(first).clone();
            if let Err(lack) = self.find_lack(node, &key, shape, capacity) {
                self.mark_inadmissible(node, shape, lack, capacity);
            }
        }
        self.update_reservations(capacity);
    }

    /// Those of a shape that may be the next to get a reservation, with when they have waited long enough.
    fn rank_reservation_candidates(&self, node: QueueIndex, shape: ShapeId) -> Box<[BlockedFirst]> {
        let firsts = self.pending[node].list_possible_first_jobs(shape).into_iter();
        let ranks = firsts.map(|key| self.reservation_rank(node, key));
        ranks.filter_map(|rank| Some((self.reservation_due_at(node, shape, &rank)?, rank))).collect()
    }

    /// A shape is blocked by this shortage.
    pub(crate) fn register_blocked(&mut self, id: ReservationId, shape: ShapeId) {
        if self.reservations.after.is_some() {
            let firsts = self.rank_reservation_candidates(id.queue, shape);
            self.reservations.set_blocked_shape(id, shape, firsts, self.now);
        }
    }

    /// Other jobs of a shape, if it is inadmissible, may be the next to get a reservation.
    pub(crate) fn update_blocked(&mut self, node: QueueIndex, shape: ShapeId) {
        if let Some(cause) = self.pending[node].inadmissible_cause(shape).and_then(Inadmissible::reservation_cause) {
            self.register_blocked(ReservationId { cause, queue: node }, shape);
        }
    }

    pub(crate) fn requeue_shape(&mut self, node: QueueIndex, shape: ShapeId) {
        let Some(cause) = self.pending.set_admissible(node, shape) else { return };
        self.reservations.remove_from_shortage(node, shape);
        self.kept_capacity.remove_blocked(node, shape);
        if matches!(cause, Inadmissible::Reserved(..) | Inadmissible::BehindReservation(_)) {
            self.reservations.unblock_shape(node, shape);
        }
        self.mark_head_changed(node);
    }

    /// A pending job, as it ranks.
    pub(crate) fn pending_job(&self, id: &str) -> Option<(ReservationRank, QueueIndex, ShapeId)> {
        let Some(QueueingState::Pending { node, key, shape, .. }) = self.jobs.get(id) else { return None };
        Some((self.reservation_rank(*node, key), *node, *shape))
    }

    /// The first job of an inadmissible shape is another one now: it may outrank what blocked the old one, or the job
    /// that clusters are kept for.
    pub(crate) fn requeue_after_new_first(&mut self, node: QueueIndex, shape: ShapeId) {
        let Some(cause) = self.pending[node].inadmissible_cause(shape) else { return };
        self.pending.schedule_search(node);
        let wakes = match cause {
            Inadmissible::Quota(..) | Inadmissible::Kept(KeptCause::Amount | KeptCause::Held(_)) => false,
            Inadmissible::Capacity => {
                self.refusals.lacks_only_reserved_clusters(self.shapes[shape].ask.fit, node, shape)
            }
            Inadmissible::Reserved(..)
            | Inadmissible::BehindReservation(_)
            | Inadmissible::Kept(KeptCause::Behind)
            | Inadmissible::Never => true,
        };
        if wakes {
            self.requeue_shape(node, shape);
        }
    }
}
