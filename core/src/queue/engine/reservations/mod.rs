//! Reservations as the engine asks about them: who holds one, whom it blocks, how far up it reaches, and when its job
//! starts at the latest; why a reservation blocks a job, and which jobs are requeued since they can be backfilled. The
//! rule is in [`crate::queue::reservation`].
//!
//! The words here: the *reach* is the place on the queue path up to which jobs of other queues are blocked (all the way
//! where the fleet has as much idle, else below the first queue that would not be within what it deserves), *scarce*
//! are the resources that are short, the *shadow time* is the latest start (EASY), before which a job with a known end
//! is backfilled.
//!
//! | submodule | does |
//! |---|---|
//! | `grant` | gives reservations for quota |
//! | `clusters`, `hold_window` | for capacity in clusters, and how long clusters are kept |
//! | `backoff` | for jobs in backoff |
//! | `inadmissible` | follows shapes that become inadmissible or are requeued |

mod backoff;
mod clusters;
mod grant;
mod hold_window;
mod inadmissible;

use crate::{
    gang::ClusterName,
    queue::{
        capacity::ReservedClusters,
        engine::{Engine, QueueingState},
        pending::{
            job_order::{JobId, JobKey, OrderPolicy},
            shape_table::ShapeId,
        },
        quota::{
            admission::JobShape,
            amount::Amount,
            amounts::{Dim, find_amount},
            slot::QueueIndex,
        },
        reservation::{Reservation, ReservationCause, ReservationId, ReservationRank, Shadow, blocked::BlockedFirst},
    },
    reason::{Bound, Position, Reason},
    resources::ResourceName,
    time::EpochSeconds,
};

/// Blocked jobs considered for one reservation; those before them can never start.
const MOST_CONSIDERED_JOBS: usize = 8;
/// Jobs that clusters are kept for at once; one more makes its own queue wait.
const MOST_CLUSTER_RESERVATIONS: u8 = 3;

/// A place that is kept for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationStatus {
    /// Since when.
    pub since: EpochSeconds,
    /// What it lacks, and under whose ceiling; `None` if it lacks capacity.
    pub short: Option<(Bound, ResourceName)>,
    /// The clusters that are reserved for it, if it lacks capacity.
    pub clusters: Vec<ClusterName>,
    /// When it can start at the latest, if nobody of higher priority comes and whoever says how
    /// long it runs keeps to it.
    pub start: Result<EpochSeconds, UnknownStart>,
}

/// Why nobody can say when a place that is kept can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownStart {
    /// Not all that must end first has said when, or should have by now.
    EndUnknown,
    /// Above what its queue deserves nothing is kept: others may take what comes free there.
    SharedQuota,
    /// It lacks capacity in clusters, and what runs there is not known here.
    Capacity,
}

/// Facts in.
impl Engine {
    /// What time it is. It never goes back.
    pub fn set_now(&mut self, now: EpochSeconds) {
        self.now = self.now.max(now);
        self.decay_history();
        self.age_due();
    }

    /// After how many seconds a blocked job gets a reservation; `None`: never.
    pub fn set_reservation_after(&mut self, seconds: Option<i64>) {
        if self.reservations.after != seconds {
            self.queues.mark_tree_outdated();
        }
        self.reservations.after = seconds;
    }

    /// Gives a job a reservation at once, whoever waits longer: others are evicted for it. To be followed by
    /// [`Engine::release_next_in_clusters`] before anything comes free, for only a blocked job gets a reservation.
    pub fn set_preemptor(&mut self, id: Option<JobId>) {
        if self.reservations.preemptor == id {
            return;
        }
        for id in [std::mem::replace(&mut self.reservations.preemptor, id.clone()), id].into_iter().flatten() {
            self.reservations.dirty.extend(self.reservations.held_by_job(&id).map(|(_, held)| held));
            for shortage in self.list_shortages_of(&id) {
                self.reservations.dirty.insert(shortage);
                self.reservations.schedule_update(self.now, shortage);
            }
        }
    }

    /// What holds up the entries of a job that a reservation could be for.
    pub(crate) fn list_shortages_of(&self, job: &JobId) -> Vec<ReservationId> {
        let shortage = |entry: JobId| {
            let (_, queue, shape) = self.pending_job(entry.as_str())?;
            let cause = self.pending[queue].inadmissible_cause(shape)?.reservation_cause()?;
            Some(ReservationId { cause, queue })
        };
        self.jobs.list_entries(job.as_str()).into_iter().filter_map(shortage).collect()
    }
}

/// Questions.
impl Engine {
    /// When [`Engine::release_next_by_fit`] may decide otherwise though nothing happened.
    #[must_use]
    pub fn next_due(&self) -> Option<EpochSeconds> {
        let reservation = self.reservations.after.and(self.reservations.next_due());
        let aging = self.aging_steps.first().map(|(at, _)| *at);
        let kept = self.kept_capacity.next_due(self.now);
        reservation.into_iter().chain(aging).chain(kept).min().filter(|_| self.paused.is_none())
    }

    /// True once after reservations changed.
    pub fn take_reservations_changed(&mut self) -> bool {
        std::mem::take(&mut self.reservations.changed)
    }

    /// The place that is kept for a job, if one is.
    #[must_use]
    pub fn reservation_of(&self, id: &str) -> Option<ReservationStatus> {
        let (_, id) = self.reservations.held_by_job(&id.into())?;
        let reservation = self.reservations.get(id)?;
        let short = match id.cause {
            ReservationCause::Quota(at, dim) => {
                let (bound, _) = self.queues.find_limiting_bound(at, dim);
                Some((bound, self.queues.dims.resource_of(dim).clone()))
            }
            ReservationCause::Capacity(_) => None,
            ReservationCause::Backoff => return None,
        };
        let kept = reservation.kept.as_ref().filter(|_| reservation.has_full_reach());
        let clusters = kept.map(|kept| kept.clusters.clone()).unwrap_or_default();
        Some(ReservationStatus { since: reservation.since, short, clusters, start: self.find_latest_start(id) })
    }

    /// Whether a place is kept for a job.
    #[must_use]
    pub fn has_reservation(&self, id: &str) -> bool {
        self.reservations.held_by_job(&id.into()).is_some_and(|(_, id)| id.cause != ReservationCause::Backoff)
    }

    /// Whether a reservation before it has something scarce that it asks for. Nobody should be evicted for it: what
    /// came free would go to the other, or that one's would go to it.
    #[must_use]
    pub fn contends_with_reservation(&self, id: &str) -> bool {
        let Some(QueueingState::Pending { node, key, shape, .. }) = self.jobs.get(id) else { return false };
        let asks = |reservation: &Reservation| {
            reservation.scarce.iter().any(|dim| self.shapes[*shape].asked_amount(*dim).is_positive())
        };
        self.list_blocking_reservations(*node, key, *shape).iter().filter_map(|id| self.reservations.get(*id)).any(asks)
    }

    /// When the demand of a reserving job fits at the latest, beside all who go before it, by the ends of what is
    /// charged now: under every ceiling on its way up.
    pub(crate) fn find_latest_start(&self, id: ReservationId) -> Result<EpochSeconds, UnknownStart> {
        let reservation = self
            .reservations
            .get(id)
            .filter(|_| matches!(id.cause, ReservationCause::Quota(..)))
            .ok_or(UnknownStart::Capacity)?;
        let path = &self.queues[id.queue].path;
        let before = self.reservations.list_reservations_blocking(path, &reservation.rank);
        let mut start = self.find_start_beside_kept(id.queue, reservation.shape, &before);
        for (i, at) in path.iter().enumerate() {
            for (dim, asked) in reservation.asked.iter().filter(|(_, asked)| asked.is_positive()) {
                let Some(free) = self.queues.free_quota(*at, *dim) else { continue };
                let lacks = *asked + self.reserved_amount(&before, *at, *dim) - free;
                if !lacks.is_positive() {
                    continue;
                }
                if i > reservation.reach {
                    return Err(UnknownStart::SharedQuota);
                }
                let end =
                    self.queues.find_time_when_freed(*at, *dim, lacks, self.now).ok_or(UnknownStart::EndUnknown)?;
                start = start.max(end);
            }
        }
        Ok(start)
    }
}

/// Which jobs a reservation blocks.
impl Engine {
    pub(crate) fn reservation_rank(&self, node: QueueIndex, key: &JobKey) -> ReservationRank {
        let priority = self.queues[node].spec.as_ref().map_or(0, |spec| spec.priority);
        ReservationRank::new(self.rules.queue_priority(priority), key)
    }

    /// Which job of a shape goes first: the reserving job goes before others that ask for the same, unless their
    /// priority is higher. Else they would be told no for what is kept for it, and it with them.
    pub(crate) fn find_reserving_job_of_shape(
        &self,
        node: QueueIndex,
        key: &JobKey,
        shape: ShapeId,
    ) -> Option<&JobKey> {
        if self.reservations.is_empty() || self.queues[node].is_fifo() {
            return None;
        }
        let rank = self.reservation_rank(node, key);
        let held = self.reservations.of_shape(node, shape).into_iter().filter_map(|id| self.reservations.get(id));
        let first = held.map(|reservation| &reservation.rank).find(|reserving| !rank.outranks(reserving))?;
        match self.jobs.get(first.id.as_str()) {
            Some(QueueingState::Pending { key, .. }) => Some(key),
            _ => None,
        }
    }

    /// The reservations that block a job: without those that it is known to end before.
    pub(crate) fn list_blocking_reservations(
        &self,
        node: QueueIndex,
        key: &JobKey,
        shape: ShapeId,
    ) -> Vec<ReservationId> {
        if self.reservations.is_empty() {
            return Vec::new();
        }
        let mut blocking =
            self.reservations.list_reservations_blocking(&self.queues[node].path, &self.reservation_rank(node, key));
        blocking.retain(|id| !self.has_earlier_turn(node, shape, *id));
        if let Some(run_for) = self.shapes[shape].ask.run_for {
            let end = self.now.saturating_add(run_for);
            blocking.retain(|id| self.compute_shadow_time(*id).is_none_or(|shadow| end > shadow));
        }
        blocking
    }

    /// [`Engine::find_latest_start`], worked out once for each version of the ledger.
    fn compute_shadow_time(&self, id: ReservationId) -> Option<EpochSeconds> {
        let reservation = self.reservations.get(id)?;
        let of = (self.queues.version(), self.reservations.version, self.now);
        if let Some(known) = reservation.shadow.get().filter(|known| known.of == of) {
            return known.start;
        }
        let start = self.find_latest_start(id).ok();
        reservation.shadow.set(Some(Shadow { of, start }));
        start
    }

    /// Requeues the jobs that are known to end before a reserving job can start, now that it starts later: backfill.
    pub(crate) fn requeue_backfillable(&mut self) -> bool {
        let mut requeued = false;
        for id in self.reservations.list_reservations_blocking_timed_jobs() {
            let Some(shadow) = self.compute_shadow_time(id) else { continue };
            let inadmissible = self.reservations.get(id).into_iter().flat_map(|reservation| &reservation.timed);
            let ends = |(node, shape): &&(QueueIndex, ShapeId)| {
                let first = self.pending[*node].first_of(*shape);
                first.is_some()
                    && self.shapes[*shape].ask.run_for.is_some_and(|run| self.now.saturating_add(run) <= shadow)
            };
            for (node, shape) in inadmissible.filter(ends).copied().collect::<Vec<_>>() {
                self.requeue_shape(node, shape);
                requeued = true;
            }
        }
        requeued
    }

    /// What of a resource reservations count as taken at a queue.
    pub(crate) fn reserved_amount(&self, blocking: &[ReservationId], at: QueueIndex, dim: Dim) -> Amount {
        blocking
            .iter()
            .filter_map(|id| self.reservations.get(*id))
            .map(|reservation| reservation.reserved_amount(at, dim))
            .sum()
    }

    /// The first ceiling that a job would break beside what reservations count as taken, and how much must be free
    /// there for it.
    pub(crate) fn find_first_short_with_reserved(
        &self,
        blocking: &[ReservationId],
        path: &[QueueIndex],
        shape: &JobShape,
    ) -> Option<(QueueIndex, Dim, Amount)> {
        path.iter().find_map(|node| {
            shape.demand().find_map(|(dim, asked)| {
                let taken = self.reserved_amount(blocking, *node, *dim);
                let free = self.queues.free_quota(*node, *dim)?;
                let needed = *asked + taken;
                (asked.is_positive() && taken.is_positive() && needed > free).then_some((*node, *dim, needed))
            })
        })
    }

    /// The reservation of a job, and of what, if this one would take from it what a queue above both may have.
    pub(crate) fn find_reservation_blocking_by_share(
        &self,
        blocking: &[ReservationId],
        path: &[QueueIndex],
        shape: &JobShape,
    ) -> Option<(ReservationId, Dim)> {
        blocking.iter().find_map(|id| {
            let reservation = self.reservations.get(*id).filter(|reservation| !reservation.preempts)?;
            let scarce = reservation.scarce.iter().find(|dim| shape.asked_amount(**dim).is_positive())?;
            let below = (reservation.reach + 1).min(reservation.nodes.len() - 1);
            let common = reservation.nodes[..below].iter().filter(|node| path.contains(node));
            let within = |node: &QueueIndex| {
                self.stays_within_deserved(*node, &reservation.asked, &reservation.scarce, &shape.sparse)
            };
            let shares =
                self.rules.policy() == OrderPolicy::Share && !self.fleet_has_enough_idle(reservation, &shape.sparse);
            (shares && !common.into_iter().all(within)).then_some((*id, *scarce))
        })
    }

    /// The clusters that are kept for others.
    pub(crate) fn list_clusters_reserved_for_others(&self, blocking: &[ReservationId]) -> Vec<&ReservedClusters> {
        let whole = blocking
            .iter()
            .filter_map(|id| self.reservations.get(*id))
            .filter(|reservation| reservation.has_full_reach());
        whole.filter_map(|reservation| reservation.kept.as_ref()).collect()
    }

    /// Which reservations keep them.
    pub(crate) fn list_reservations_keeping_clusters(&self, blocking: &[ReservationId]) -> Box<[ReservationId]> {
        let keeps = |id: &&ReservationId| {
            self.reservations
                .get(**id)
                .is_some_and(|reservation| reservation.has_full_reach() && reservation.kept.is_some())
        };
        let mut keepers: Box<[ReservationId]> = blocking.iter().filter(keeps).copied().collect();
        keepers.sort_unstable();
        keepers
    }

    /// Why reservations hold a job back, if they do.
    pub(crate) fn explain_reservation(
        &self,
        node: QueueIndex,
        key: &JobKey,
        id: ShapeId,
        position: Position,
    ) -> Option<Reason> {
        let (slot, shape) = (&self.queues[node], &self.shapes[id]);
        let blocking = self.list_blocking_reservations(node, key, id);
        let quota =
            self.find_first_short_with_reserved(&blocking, &slot.path, shape).map(|(at, dim, _)| (at, dim, true));
        let capacity = || {
            self.find_reservation_blocking_by_share(&blocking, &slot.path, shape)
                .map(|(_, dim)| (QueueIndex::ROOT, dim, false))
        };
        let (at, dim, is_quota) = quota.or_else(capacity)?;
        if dim.counts_jobs() {
            let kept = self.reserved_amount(&blocking, at, dim);
            return self.explain_running_limit(slot.name.clone(), (at, dim), kept, position);
        }
        let (bound, limit) = self.queues.find_limiting_bound(at, dim);
        let resource = self.queues.dims.resource_of(dim).clone();
        let shown = |amount: Amount| amount.to_quantity_like(limit);
        let free = self.queues.free_quota(at, dim)?;
        Some(Reason::BlockedByReservation {
            queue: slot.name.clone(),
            bound,
            asked: shape.minimum.get(resource.as_str()),
            resource,
            free: shown(free),
            // A job that lacks capacity, and has no right to more yet, makes its queue leave all that is free.
            reserved: shown(if is_quota { self.reserved_amount(&blocking, at, dim).min(free) } else { free }),
            position,
        })
    }

    /// Whether a queue has nothing else of what is scarce, or stays within what it deserves with this started, and
    /// `more` beside it. Of what it states nothing of, what it states of the rest counts.
    fn stays_within_deserved(
        &self,
        node: QueueIndex,
        asked: &[(Dim, Amount)],
        scarce: &[Dim],
        more: &[(Dim, Amount)],
    ) -> bool {
        let slot = &self.queues[node];
        let deserved = |dim| slot.deserved.iter().find(|(at, _)| *at == dim).map(|(_, amount)| *amount);
        let has = |dim| slot.used.get(dim) + find_amount(more, dim);
        let fits = |dim, deserved| has(dim) + find_amount(asked, dim) <= deserved;
        let stated = asked
            .iter()
            .filter(|(_, amount)| amount.is_positive())
            .filter_map(|(dim, _)| Some((*dim, deserved(*dim)?)));
        scarce.iter().all(|dim| match deserved(*dim) {
            _ if !has(*dim).is_positive() => true,
            Some(deserved) => fits(*dim, deserved),
            None => {
                let mut stated = stated.clone().peekable();
                stated.peek().is_some() && stated.all(|(dim, deserved)| fits(dim, deserved))
            }
        })
    }

    /// Whether the fleet has as much idle as a job that lacks capacity asks for, with `more` taken: then it is
    /// nobody's share.
    fn fleet_has_enough_idle(&self, reservation: &Reservation, more: &[(Dim, Amount)]) -> bool {
        let left = |dim| {
            self.queues.free_quota(QueueIndex::ROOT, dim).map_or(Amount::MAX, |free| free - find_amount(more, dim))
        };
        reservation.kept.is_some() && reservation.scarce.iter().all(|dim| left(*dim) >= reservation.asked_amount(*dim))
    }

    /// How far up a reservation reaches: below the first queue that would not be within.
    pub(crate) fn compute_reach(&self, reservation: &Reservation) -> usize {
        let top = reservation.nodes.len() - 1;
        if reservation.preempts
            || self.rules.policy() != OrderPolicy::Share
            || self.fleet_has_enough_idle(reservation, &[])
        {
            return top;
        }
        let within =
            |node: &QueueIndex| self.stays_within_deserved(*node, &reservation.asked, &reservation.scarce, &[]);
        reservation.nodes[..top].iter().position(|node| !within(node)).unwrap_or(top)
    }
}

#[cfg(test)]
mod tests;
