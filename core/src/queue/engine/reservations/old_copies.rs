//! Jobs that wait for nothing but their own old copies: a cluster is drained, a user restarted them, a member refused
//! them. They keep their place in line.
//!
//! Rule: as Kueue, where a workload keeps its quota until its pods are gone, and as Slurm, where a requeued job keeps
//! its priority. What all such jobs of a queue and of one priority need counts as taken for who ranks after the first
//! of them. So what a job had is not lent to a younger one that runs for hours, for the few seconds that old pods take.
//! Who ranks before, or is evicted for, takes what is free. What is free beside it is for everybody, whatever the
//! shares. Nothing is kept for longer than the caller says, for pods may never go, nor for a job that could not start
//! in an empty queue.

use std::collections::BTreeMap;

use crate::{
    queue::{
        engine::{
            BackoffWait, Engine, Job,
            reservations::{Reservation, ReservationId, ReservationRank},
        },
        pending::shape_table::ShapeId,
        quota::{
            amount::Amount,
            amounts::{Dim, Sparse},
            slot::QueueIndex,
        },
    },
    time::EpochSeconds,
};

impl Engine {
    /// A job left its clusters at that time and will be enqueued once its old copies are gone. Until `until` at the
    /// latest it keeps its place.
    pub fn keep_place_of_job(&mut self, job: Job, since: EpochSeconds, until: EpochSeconds) {
        self.insert_waiting_job(job, since, BackoffWait::OldCopies(until));
    }

    /// What all of them ask for together, under the name of the first.
    pub(crate) fn update_old_copies_reservation(&mut self, id: ReservationId, priority: i32) -> bool {
        let kept = self.list_awaiting_old_copies(id.queue, priority);
        let Some((rank, shape, since, _)) = kept.first().cloned() else { return self.remove_reservation(id) };
        let next = kept.iter().map(|(.., until)| *until).min();
        next.into_iter().for_each(|until| self.reservations.schedule_update(until, id));
        let mut sum: BTreeMap<Dim, Amount> = BTreeMap::new();
        for (dim, asked) in kept.iter().flat_map(|(_, shape, ..)| self.shapes[*shape].demand()) {
            let total = sum.entry(*dim).or_default();
            *total = total.saturating_add(*asked);
        }
        let asked: Sparse = sum.into_iter().collect();
        let same = |had: &Reservation| had.rank == rank && had.shape == shape && had.asked == asked;
        if self.reservations.get(id).is_some_and(same) {
            return self.recompute_reach(id);
        }
        let requeued = self.remove_reservation(id);
        let scarce: Vec<Dim> = asked.iter().map(|(dim, _)| *dim).filter(|dim| !dim.counts_jobs()).collect();
        let draft = self.draft_reservation(rank, id.queue, shape, since, QueueIndex::ROOT, &scarce);
        let reservation = Reservation { asked, scarce: scarce.into(), ..draft };
        let reservation = Reservation { reach: self.compute_reach(&reservation), ..reservation };
        self.add_reservation(id, reservation) | requeued
    }

    /// Those of a queue and a priority, the first in rank first, with since when and until when they keep their place.
    fn list_awaiting_old_copies(
        &self,
        queue: QueueIndex,
        priority: i32,
    ) -> Vec<(ReservationRank, ShapeId, EpochSeconds, EpochSeconds)> {
        let all = self.jobs.list_backing_off(queue).filter(|(key, ..)| key.priority.0 == priority);
        let waiting = all.filter_map(|(key, shape, since, waits)| match waits {
            BackoffWait::OldCopies(until) if until > self.now => {
                let may = self.could_ever_start(queue, shape, key.id.as_str());
                may.then(|| (self.reservation_rank(queue, key), shape, since, until))
            }
            BackoffWait::OldCopies(_) | BackoffWait::Backoff => None,
        });
        let mut ranked: Vec<_> = waiting.collect();
        ranked.sort();
        ranked
    }
}
