//! Which job gets a reservation for quota, how far up it reaches, and when it ends; and in which order all reservations
//! are updated. The rule is in [`crate::queue::reservation`].
//!
//! Of the jobs that one ceiling blocks for long enough, the first in rank that is still short and could ever start gets
//! the reservation: within its ceilings, and in the clusters if they were empty. It reaches up to the highest ceiling
//! that is short, as far as shares allow. Each change requeues the jobs that a removed or shortened reservation
//! blocked.

use crate::{
    queue::{
        capacity::ClusterCapacity,
        engine::{
            Engine, MOST_RESERVATION_ROUNDS,
            reservations::{MOST_CONSIDERED_JOBS, Reservation, ReservationCause, ReservationId, ReservationRank},
        },
        pending::{inadmissible::Inadmissible, job_order::JobId, shape_table::ShapeId},
        quota::{
            admission,
            amount::Amount,
            amounts::{Dim, Sparse},
            slot::{QueueIndex, Slot},
        },
    },
    time::EpochSeconds,
};

impl Engine {
    /// Works out again every shortage that changed or has lasted long enough; true if a job was requeued.
    pub(crate) fn update_reservations(&mut self, capacity: &mut impl ClusterCapacity) -> bool {
        let moved = self.reservations.take_usage_changes();
        let Some(fleet_wait) = self.reservations.after else {
            self.reservations.forget_updates();
            return false;
        };
        let mut requeued = false;
        for node in moved {
            requeued |= self.update_reservations_reaching(node);
        }
        let now = self.now;
        self.reservations.mark_deferred_dirty();
        // Who gets another reservation gives the one it had away, which somebody else may be waiting for.
        for _ in 0..MOST_RESERVATION_ROUNDS {
            let dirty = self.reservations.take_dirty(now);
            if dirty.is_empty() {
                break;
            }
            let mut lack_capacity = false;
            for id in dirty {
                match id.cause {
                    ReservationCause::Quota(..) => {
                        requeued |= self.update_quota_reservation(id, capacity);
                    }
                    ReservationCause::Capacity(_) => lack_capacity = true,
                    ReservationCause::Backoff => {
                        requeued |= self.update_backoff_reservation(id, fleet_wait, capacity);
                    }
                }
            }
            requeued |= lack_capacity && self.update_cluster_reservations(capacity);
            if requeued {
                break;
            }
        }
        requeued | self.requeue_backfillable()
    }

    /// A queue holds more or less than before: reservations may reach farther, or not as far.
    pub(crate) fn update_reservations_reaching(&mut self, node: QueueIndex) -> bool {
        let mut requeued = false;
        // What the fleet has idle counts for those that lack capacity alone.
        let ids = if node == QueueIndex::ROOT {
            self.reservations.list_cluster_reservations()
        } else {
            self.reservations.list_reservations_reaching(node)
        };
        for id in ids {
            let was = self.reservations.get(id).map(|reservation| reservation.reach);
            requeued |= self.recompute_reach(id);
            let moved = was != self.reservations.get(id).map(|reservation| reservation.reach);
            if matches!(id.cause, ReservationCause::Capacity(_)) && (moved || node != QueueIndex::ROOT) {
                self.reservations.dirty.insert(id);
            }
            let behind = self.reservations.get(id).map(|reservation| reservation.behind.clone()).unwrap_or_default();
            requeued |= !behind.is_empty();
            behind.iter().for_each(|(node, shape)| self.requeue_shape(*node, *shape));
        }
        if node == QueueIndex::ROOT {
            return requeued;
        }
        let here = ReservationId { cause: ReservationCause::Capacity(0), queue: node };
        if self.reservations.list_capacity_shortages().contains(&here) || !self.queues[node].children.is_empty() {
            let first = self.reservations.list_capacity_shortages().pop_first();
            self.reservations.dirty.extend(first);
        }
        requeued
    }

    pub(crate) fn recompute_reach(&mut self, id: ReservationId) -> bool {
        let Some(reach) = self.reservations.get(id).map(|reservation| self.compute_reach(reservation)) else {
            return false;
        };
        let behind = self.reservations.set_reach(id, reach);
        behind.into_iter().fold(false, |requeued, id| self.requeue_blocked_by(id) | requeued)
    }

    /// Requeues the jobs that a reservation blocks.
    pub(crate) fn requeue_blocked_by(&mut self, id: ReservationId) -> bool {
        let bound: Vec<(QueueIndex, ShapeId)> =
            self.reservations.get(id).into_iter().flat_map(Reservation::list_blocked_shapes).collect();
        bound.iter().for_each(|(node, shape)| self.requeue_when_free(*node, *shape));
        !bound.is_empty()
    }

    pub(crate) fn add_reservation(&mut self, id: ReservationId, reservation: Reservation) -> bool {
        let entry = reservation.rank.id.clone();
        let behind = self.reservations.add(id, reservation);
        let requeued = self.requeue_other_entries(&entry);
        behind.into_iter().fold(requeued, |requeued, id| self.requeue_blocked_by(id) | requeued)
    }

    /// A job that has a reservation is blocked by those before it alone, on each card model.
    fn requeue_other_entries(&mut self, entry: &JobId) -> bool {
        let entries = self.jobs.list_entries(entry.job_name()).into_iter().filter(|other| other != entry);
        let shapes: Vec<_> = entries.filter_map(|other| self.pending_job(other.as_str())).collect();
        shapes.into_iter().fold(false, |requeued, (_, node, shape)| {
            let cause = self.pending[node].inadmissible_cause(shape);
            let is_blocked = matches!(cause, Some(Inadmissible::Reserved(..) | Inadmissible::BehindReservation(_)));
            if is_blocked {
                self.requeue_when_free(node, shape);
            }
            requeued | is_blocked
        })
    }

    /// The first of a queue that a cause holds up for long enough.
    pub(crate) fn update_quota_reservation(&mut self, id: ReservationId, capacity: &mut impl ClusterCapacity) -> bool {
        let ReservationCause::Quota(at, dim) = id.cause else { return false };
        self.reservations.promote_due_blocked(id, self.now);
        let preemptor = self
            .find_pending_preemptor()
            .filter(|(_, node, shape)| *node == id.queue && self.reservations.is_blocked_by(id, *shape));
        let preemptor = preemptor.map(|(rank, _, shape)| (rank, shape));
        let mut doubtful = false;
        // Who has enough is yet to be looked at: if others take it first, this is looked at again.
        let mut is_short = |(_, shape): &(ReservationRank, ShapeId)| {
            let short = !self.pending.has_enough_quota(&self.queues, id.queue, *shape);
            doubtful |= !short;
            short
        };
        let ranked = preemptor
            .into_iter()
            .chain(self.list_due_in_turn(id))
            .filter(|(rank, _)| !self.has_reservation_on_better_card(&rank.id))
            .filter(|(_, shape)| !self.takes_kept_amount(id.queue, *shape))
            .filter(&mut is_short)
            .take(MOST_CONSIDERED_JOBS + 1);
        let all: Vec<(ReservationRank, ShapeId)> = ranked.collect();
        if doubtful {
            self.reservations.deferred.insert(id);
        }
        let mut requeued = false;
        let mut first = None;
        for (rank, shape) in all {
            if !self.could_ever_start(id.queue, shape, rank.id.as_str()) {
                continue;
            }
            let Some(detail) = self.find_final_refusal(shape, &rank.id, capacity) else {
                first = Some((rank, shape));
                break;
            };
            // Others may be the next now.
            self.withdraw_unsatisfiable(id.queue, shape, detail);
            self.reservations.dirty.insert(id);
            requeued = true;
        }
        let Some((rank, shape)) = first else { return self.remove_reservation(id) | requeued };
        let since = self.reserved_since(id.queue, shape, &rank);
        let preempts = self.is_preemptor(&rank.id);
        let same = |reservation: &Reservation| {
            reservation.rank == rank && reservation.shape == shape && reservation.preempts == preempts
        };
        if self.reservations.get(id).is_some_and(same) {
            return self.recompute_reach(id) | requeued;
        }
        requeued |= self.remove_reservation(id);
        if let Some((_, other)) = self.reservations.held_by_job(&rank.id) {
            requeued |= self.remove_reservation(other);
        }
        let reservation = self.draft_reservation(rank, id.queue, shape, since, at, &[dim]);
        self.add_reservation(id, reservation) | requeued
    }

    /// A reserving job started: the next one gets its reservation before any other job is considered.
    pub(crate) fn reserve_for_next_blocked(&mut self, held: ReservationId, capacity: &mut impl ClusterCapacity) {
        if matches!(held.cause, ReservationCause::Quota(..)) && self.reservations.after.is_some() {
            self.update_quota_reservation(held, capacity);
        }
    }

    /// The jobs that a shortage blocks for long enough, the first in rank first: of a fifo queue only the head,
    /// for nobody else can start there.
    pub(crate) fn list_due_blocked(&self, id: ReservationId) -> impl Iterator<Item = (ReservationRank, ShapeId)> {
        let fifo = self.queues[id.queue].is_fifo();
        // The way to the head may lead past many that can never start.
        let front = fifo.then(|| self.pending[id.queue].list_head_entries());
        let front = front.into_iter().flatten().map(move |(key, shape)| (self.reservation_rank(id.queue, key), shape));
        let due = move |(rank, shape): &(ReservationRank, ShapeId)| {
            let due_at = self.reservation_due_at(id.queue, *shape, rank);
            self.reservations.is_blocked_by(id, *shape) && due_at.is_some_and(|due| due <= self.now)
        };
        front.filter(due).chain(self.reservations.list_due_blocked(id).filter(move |_| !fifo).cloned())
    }

    /// When a blocked job has waited long enough by its queue's word, else by the fleet's; `None`: never.
    pub(crate) fn reservation_due_at(
        &self,
        node: QueueIndex,
        shape: ShapeId,
        rank: &ReservationRank,
    ) -> Option<EpochSeconds> {
        let fleet = self.reservations.after?;
        let wait = match self.queues.find_setting(node, |spec| spec.reservation_wait) {
            Some(said) => said.seconds_for_run(fleet, self.shapes[shape].ask.run_for)?,
            None => fleet,
        };
        Some(rank.due_at(wait))
    }

    /// When a job has waited long enough; at once if it is the preemptor.
    pub(crate) fn reserved_since(&self, node: QueueIndex, shape: ShapeId, rank: &ReservationRank) -> EpochSeconds {
        let due = self.reservation_due_at(node, shape, rank).filter(|_| !self.is_preemptor(&rank.id));
        due.unwrap_or_else(|| rank.created.as_time())
    }

    pub(crate) fn find_pending_preemptor(&self) -> Option<(ReservationRank, QueueIndex, ShapeId)> {
        self.reservations.preemptor.as_ref().and_then(|id| self.pending_job(self.find_best_entry(id.as_str()).as_str()))
    }

    /// Whether others are evicted for this entry.
    pub(crate) fn is_preemptor(&self, entry: &JobId) -> bool {
        let job = self.reservations.preemptor.as_ref().filter(|job| job.is_of_same_job(entry));
        job.is_some_and(|job| self.find_best_entry(job.as_str()) == *entry)
    }

    /// Whether the job of an entry has a reservation on a card model that it likes better.
    pub(crate) fn has_reservation_on_better_card(&self, entry: &JobId) -> bool {
        entry.is_choice() && self.reservations.held_by_job(entry).is_some_and(|(held, _)| held < entry)
    }

    /// Up to the highest ceiling that is short now, at least up to this one.
    pub(crate) fn draft_reservation(
        &self,
        rank: ReservationRank,
        node: QueueIndex,
        shape: ShapeId,
        since: EpochSeconds,
        up_to: QueueIndex,
        scarce: &[Dim],
    ) -> Reservation {
        let path = &self.queues[node].path;
        let asked: Sparse = self.shapes[shape].demand().copied().collect();
        let is_short =
            |at: &QueueIndex, of: &(Dim, Amount)| self.queues.find_first_short_quota(&[*at], &[*of]).is_some();
        let high = path.iter().rposition(|at| *at == up_to || asked.iter().any(|of| is_short(at, of))).unwrap_or(0);
        let short = asked.iter().filter(|of| scarce.contains(&of.0) || path[..=high].iter().any(|at| is_short(at, of)));
        let scarce = short.map(|(dim, _)| *dim).filter(|dim| !dim.counts_jobs()).collect();
        let preempts = self.is_preemptor(&rank.id);
        let mut reservation = Reservation {
            rank,
            shape,
            preempts,
            nodes: path[..=high].into(),
            reach: 0,
            asked,
            scarce,
            kept: None,
            since,
            bound: std::collections::BTreeSet::new(),
            behind: std::collections::BTreeSet::new(),
            timed: std::collections::BTreeSet::new(),
            shadow: std::cell::Cell::default(),
        };
        reservation.reach = self.compute_reach(&reservation);
        reservation
    }

    /// Whether a job could start if nothing else were charged but what it holds already: a reservation for one that
    /// can not, or
    /// whose queue starts nothing, would be for ever.
    pub(crate) fn could_ever_start(&self, node: QueueIndex, shape: ShapeId, id: &str) -> bool {
        let empty = |at: &QueueIndex, dim| {
            let slot = &self.queues[*at];
            admission::free_quota(slot, dim)
                .map(|free| free + slot.used.get(dim) - self.held_by_resized_job(id, *at, dim))
        };
        let Slot { path, problem, .. } = &self.queues[node];
        let mut asked = self.shapes[shape].sparse.iter();
        problem.is_none()
            && asked.all(|(dim, asked)| path.iter().all(|at| empty(at, *dim).is_none_or(|ceiling| *asked <= ceiling)))
    }

    /// Removes a reservation; true if that requeued a job.
    pub(crate) fn remove_reservation(&mut self, id: ReservationId) -> bool {
        let Some(reservation) = self.reservations.remove(id) else { return false };
        self.reservations.dirty.insert(id);
        let job = reservation.rank.id.job();
        if self.jobs.has_choice(job.as_str()) {
            // It may get another one on another card model.
            self.reservations.dirty.extend(self.list_shortages_of(&job));
        }
        let inadmissible: Vec<(QueueIndex, ShapeId)> = reservation.list_blocked_shapes().collect();
        let requeued = !inadmissible.is_empty() || reservation.kept.is_some();
        for (node, shape) in inadmissible {
            self.requeue_when_free(node, shape);
        }
        if reservation.kept.is_some() {
            self.requeue_after_capacity_change();
        }
        requeued
    }

    /// What queues deserve may be another amount: jobs that were blocked by that are requeued.
    pub(crate) fn requeue_behind_reservations(&mut self) {
        let behind: Vec<_> =
            self.reservations.iter().flat_map(|(_, reservation)| reservation.behind.iter().copied()).collect();
        behind.into_iter().for_each(|(node, shape)| self.requeue_shape(node, shape));
    }

    /// The tree, or who goes before whom, is another one: reservations are worked out anew.
    pub(crate) fn rebuild_reservations(&mut self) {
        if self.reservations.iter().any(|(_, reservation)| reservation.kept.is_some()) {
            self.requeue_after_capacity_change();
        }
        let reservations = self.reservations.take_all();
        for (node, shape) in reservations.iter().flat_map(|(_, reservation)| reservation.list_blocked_shapes()) {
            self.requeue_shape(node, shape);
        }
        if self.reservations.after.is_none() {
            return;
        }
        self.mark_backoff_reservations_dirty();
        let short = self.pending.list_short_of_quota().filter(|(.., (_, dim))| !dim.counts_jobs());
        let short = short.map(|(node, shape, (at, dim))| (ReservationCause::Quota(at, dim), node, shape));
        let roomless = self.refusals.list_short_of_capacity();
        let roomless = roomless.map(|(node, shape)| (ReservationCause::Capacity(0), node, shape));
        let beside_kept = self.kept_capacity.list_blocked().filter_map(|(node, shape)| {
            Some((self.pending[node].inadmissible_cause(shape)?.reservation_cause()?, node, shape))
        });
        let all: Vec<(ReservationCause, QueueIndex, ShapeId)> = short.chain(roomless).chain(beside_kept).collect();
        for (cause, node, shape) in all {
            self.register_blocked(ReservationId { cause, queue: node }, shape);
        }
    }

    /// A job is no longer blocked, or gone.
    pub(crate) fn remove_reservation_of_job(&mut self, id: &str) {
        self.reservations.holds.remove(id);
        if let Some(id) = self.reservations.held_by(id) {
            self.remove_reservation(id);
        }
    }
}
