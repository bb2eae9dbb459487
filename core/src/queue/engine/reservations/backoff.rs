//! Jobs in backoff: they were requeued because they found no place, and are considered again later.
//!
//! Strict priority counts across all pending jobs: what such a job gave up, no job of lower priority takes at once.
//! Its demand counts as taken for them for as long as any job waits for a reservation, and no longer: it may be that
//! it can be placed nowhere, and then it gave up its quota so that others have it. Jobs of its own priority, older or
//! younger, do not wait for it. Nobody waits for a job that was evicted: that one waits for its preemptor itself.

use crate::{
    queue::{
        capacity::ClusterCapacity,
        engine::{
            Engine, Job, JobRank, QueueingState,
            reservations::{MOST_CONSIDERED_JOBS, ReservationCause, ReservationId, ReservationRank},
        },
        pending::shape_table::ShapeId,
        quota::slot::QueueIndex,
    },
    time::EpochSeconds,
};

impl Engine {
    /// A job backs off since then and will be enqueued again.
    pub fn back_off_job(&mut self, job: Job, since: EpochSeconds) {
        let rank = JobRank::of_job(&job);
        let node = self.intern_queue(&job.queue);
        let key = self.job_key(node, job.id.clone(), job.created, rank);
        self.remove_job(job.id.as_str());
        let shape = self.shapes.intern_shape(job.ask, &mut self.queues.dims);
        self.jobs.insert(job.id, QueueingState::BackingOff { node, key, shape, rank, since });
        // Before anybody is looked at.
        self.reservations.schedule_update(self.now, ReservationId { cause: ReservationCause::Backoff, queue: node });
    }

    /// It is not any more.
    pub(crate) fn end_backoff(&mut self, id: &str, node: QueueIndex, shape: ShapeId) {
        self.remove_reservation_of_job(id);
        self.reservations.schedule_update(self.now, ReservationId { cause: ReservationCause::Backoff, queue: node });
        self.shapes.drop_user(shape);
    }

    /// The first in rank of those of a queue that are aside, while others have to wait for it.
    pub(crate) fn update_backoff_reservation(
        &mut self,
        id: ReservationId,
        reservation_after: i64,
        capacity: &mut impl ClusterCapacity,
    ) -> bool {
        let all = self.jobs.list_backing_off(id.queue).map(|(key, shape, since)| {
            (self.reservation_rank(id.queue, key), shape, since, since.saturating_add(reservation_after))
        });
        let now = |(rank, shape, _, until): &(ReservationRank, ShapeId, EpochSeconds, EpochSeconds)| {
            let may = self.could_ever_start(id.queue, *shape, rank.id.as_str());
            let may = may && !self.takes_kept_amount(id.queue, *shape);
            *until > self.now && may && self.queues[id.queue].problem.is_none()
        };
        let mut ranked: Vec<_> = all.filter(now).collect();
        ranked.sort();
        let fits = |(rank, shape, ..): &(ReservationRank, ShapeId, EpochSeconds, EpochSeconds)| {
            self.find_final_refusal(*shape, &rank.id, capacity).is_none()
        };
        let first = ranked.into_iter().take(MOST_CONSIDERED_JOBS).find(fits);
        let Some((rank, shape, since, until)) = first else { return self.remove_reservation(id) };
        self.reservations.schedule_update(until, id);
        if self.reservations.get(id).is_some_and(|reservation| reservation.rank == rank && reservation.shape == shape) {
            return self.recompute_reach(id);
        }
        let scarce: Vec<_> = self.shapes[shape].sparse.iter().map(|(dim, _)| *dim).collect();
        let requeued = self.remove_reservation(id);
        let reservation = self.draft_reservation(rank, id.queue, shape, since, QueueIndex::ROOT, &scarce);
        self.add_reservation(id, reservation) | requeued
    }

    /// All reservations are worked out anew.
    pub(crate) fn mark_backoff_reservations_dirty(&mut self) {
        let queues = self.jobs.list_queues_backing_off();
        let all = queues.map(|queue| ReservationId { cause: ReservationCause::Backoff, queue });
        self.reservations.dirty.extend(all);
    }
}
