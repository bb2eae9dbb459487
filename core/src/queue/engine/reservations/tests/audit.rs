//! The naive model of reservations: every verdict and every reservation by looking at everything again.

use super::*;
use crate::queue::quota::{amount::Amount, amounts::find_amount};

impl Engine {
    /// Every sleeper still has a reason to sleep, and every reservation is the one that looking at everything again
    /// would give.
    pub(crate) fn audit(&self) {
        for node in self.queues.nodes() {
            let (slot, line) = (&self.queues[node], &self.pending[node]);
            for shape in line.shapes() {
                let asked = &self.shapes[shape].sparse;
                let short = self.queues.find_first_short_quota(&slot.path, asked);
                let first = line.first_of(shape).unwrap();
                let key = self.find_reserving_job_of_shape(node, first, shape).unwrap_or(first);
                let blocking = self.heeded_by_all(node, key, shape);
                assert_eq!(blocking, self.list_blocking_reservations(node, key, shape).into_iter().collect());
                let blocking: Vec<ReservationId> = blocking.into_iter().collect();
                let held_back = self.find_first_short_with_reserved(&blocking, &slot.path, &self.shapes[shape]);
                let is_front = || line.list_head_entries().any(|(front, _)| front == key);
                let in_turn = slot.problem.is_none() && (!slot.is_fifo() || is_front());
                match line.inadmissible_cause(shape) {
                    // Nobody looks at those whose turn it can not be.
                    Some(Inadmissible::Quota(..) | Inadmissible::Reserved(..)) if !in_turn => {}
                    Some(Inadmissible::Quota(at, dim, needed)) => {
                        assert!(short.is_some(), "{shape:?} sleeps on nothing");
                        let free = self.queues.free_quota(at, dim).unwrap();
                        assert!(needed > free, "{shape:?} has what it needs");
                    }
                    Some(Inadmissible::Reserved(at, dim, needed)) => {
                        assert!(held_back.is_some() || short.is_some(), "{shape:?} is held back by nobody");
                        let free = self.queues.free_quota(at, dim).unwrap();
                        assert!(needed > free, "{shape:?} has what it needs");
                    }
                    Some(Inadmissible::BehindReservation(_)) => {
                        let behind =
                            self.find_reservation_blocking_by_share(&blocking, &slot.path, &self.shapes[shape]);
                        assert!(
                            behind.is_some() || held_back.is_some() || short.is_some(),
                            "{shape:?} is behind nobody"
                        );
                    }
                    Some(Inadmissible::Capacity | Inadmissible::Kept(_) | Inadmissible::Never) | None => {}
                }
            }
        }
        for (id, state) in self.jobs.iter() {
            if let QueueingState::Pending { node, key, rank, .. } = state {
                let now = self.job_key(*node, id.clone(), key.created, *rank);
                assert!(*key == now || self.queues.is_tree_outdated(), "{key:?} is not in line as {now:?}");
            }
        }
        let is_in_line = |(_, id): &(EpochSeconds, JobId)| self.is_pending(id.as_str());
        assert!(self.queues.is_tree_outdated() || self.aging_steps.iter().all(is_in_line), "{:?}", self.aging_steps);
        self.audit_holders();
    }

    /// The search for inadmissible jobs that have enough quota finds in each queue what a scan of its shapes finds.
    /// Only those behind a job that is yet to be considered may be left for later.
    pub(crate) fn audit_requeue(&self) {
        if self.queues.is_quota_outdated() {
            return;
        }
        let searched = self.pending.list_search(&self.queues);
        for node in self.queues.nodes() {
            let (Slot { problem, .. }, line) = (&self.queues[node], &self.pending[node]);
            let fifo = self.queues[node].is_fifo();
            let is_head = |shape: &ShapeId| line.list_head_entries().any(|(_, head)| head == *shape);
            let eligible = line.shapes().filter(|shape| self.pending.has_enough_quota(&self.queues, node, *shape));
            let eligible = eligible.filter(|shape| problem.is_none() && (!fifo || is_head(shape)));
            let turn = |first: Option<&JobKey>| first.map(|first| (first.priority, self.share_of_pending(&first.id)));
            let place = |first: Option<&JobKey>| (turn(first), first.cloned());
            let scanned = eligible.min_by_key(|shape| place(line.first_of(*shape)));
            let is_behind = |first: &JobKey| {
                let candidate = self.find_first_candidate(node).filter(|_| !fifo);
                let candidate = candidate.or_else(|| line.find_next_candidate(Dequeue::Traverse));
                candidate.is_some_and(|(candidate, _)| place(Some(candidate)) < place(Some(first)))
            };
            let known =
                self.pending.eligible(node).filter(|job| self.pending.has_enough_quota(&self.queues, node, job.shape));
            if let Some(job) = known.filter(|_| !searched.contains(&node)) {
                assert_eq!(Some(job.shape), scanned, "{node:?}");
            } else if searched.contains(&node) || self.pending.eligible(node).is_some() {
                assert_eq!(self.find_first_eligible(node).map(|job| job.shape), scanned, "{node:?}");
            } else if let Some(first) = scanned.and_then(|shape| line.first_of(shape)) {
                assert!(is_behind(first), "{first:?} has enough, and {node:?} is not searched");
            }
        }
    }

    /// Everybody who sleeps on a ceiling and has enough is looked at again.
    pub(crate) fn wake_all_short(&mut self) {
        for (node, shape, _) in self.pending.list_short_of_quota().collect::<Vec<_>>() {
            if self.pending.has_enough_quota(&self.queues, node, shape) {
                self.requeue_shape(node, shape);
            }
        }
    }

    /// The reservations that a job has to heed, by looking at all.
    fn heeded_by_all(&self, node: QueueIndex, key: &JobKey, shape: ShapeId) -> BTreeSet<ReservationId> {
        let rank = self.reservation_rank(node, key);
        let own = self.reservations.iter().find(|(_, reservation)| reservation.rank.id.is_of_same_job(&key.id));
        let turn = |reservation: &Reservation| (!reservation.preempts, reservation.rank.clone());
        let mut blocking = BTreeSet::new();
        for at in &self.queues[node].path {
            let here: Vec<_> = self
                .reservations
                .iter()
                .filter(|(_, reservation)| reservation.nodes[..=reservation.reach].contains(at))
                .collect();
            for (id, reservation) in &here {
                let first = here
                    .iter()
                    .filter(|(other, _)| other.cause == id.cause)
                    .all(|(_, other)| turn(other) >= turn(reservation));
                let binds = match own {
                    Some((_, own)) => turn(reservation) < turn(own) && !rank.outranks(&reservation.rank),
                    None => !rank.outranks(&reservation.rank),
                };
                let lower = id.cause != ReservationCause::Backoff || reservation.rank.outranks(&rank);
                let is_other = !reservation.rank.id.is_of_same_job(&rank.id);
                if first && binds && lower && is_other {
                    blocking.insert(**id);
                }
            }
        }
        if let Some(mine) = self.share_of_pending(&key.id) {
            let less = |id: &ReservationId| {
                let reserving = &self.reservations.get(*id).unwrap().rank.id;
                id.queue == node && self.share_of_pending(reserving).is_some_and(|theirs| mine < theirs)
            };
            blocking.retain(|id| !less(id));
        }
        if let Some(run_for) = self.shapes[shape].ask.run_for {
            blocking.retain(|id| self.start_by_all(*id).is_none_or(|start| self.now.saturating_add(run_for) > start));
        }
        blocking
    }

    /// When a holder can start at the latest, by looking at all that runs.
    fn start_by_all(&self, id: ReservationId) -> Option<EpochSeconds> {
        let reservation = self.reservations.get(id).filter(|_| matches!(id.cause, ReservationCause::Quota(..)))?;
        let path = &self.queues[id.queue].path;
        let before = self.reservations.list_reservations_blocking(path, &reservation.rank);
        let mut starts = vec![self.now];
        for (at, (dim, asked)) in path.iter().flat_map(|at| reservation.asked.iter().map(move |asked| (at, asked))) {
            let Some(free) = self.queues.free_quota(*at, *dim) else { continue };
            let lacks = *asked
                + before.iter().map(|id| self.reservations.get(*id).unwrap().reserved_amount(*at, *dim)).sum()
                - free;
            if !lacks.is_positive() {
                continue;
            }
            let protected = &reservation.nodes[..=reservation.reach];
            let ends = self.jobs.iter().filter_map(|(_, job)| match job {
                QueueingState::Charged { node, charge, end: Some(end) } if self.queues[*node].path.contains(at) => {
                    Some((*end, find_amount(charge, *dim)))
                }
                _ => None,
            });
            let ends: Vec<_> = ends.filter(|(end, _)| *end > self.now && protected.contains(at)).collect();
            let enough = |until: &EpochSeconds| {
                ends.iter().filter(|(end, _)| end <= until).map(|(_, a)| *a).sum::<Amount>() >= lacks
            };
            starts.push(ends.iter().map(|(end, _)| *end).filter(enough).min()?);
        }
        starts.into_iter().max()
    }

    fn share_of_pending(&self, id: &JobId) -> Option<TenantShare> {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(id.as_str()) else { return None };
        Some(self.tenant_share(self.find_tenant_order(*node)?, *node, *shape))
    }

    /// When a job has waited long enough, by walking up the names of the queues.
    fn due_by_all(&self, queue: QueueIndex, shape: ShapeId, key: &JobKey) -> Option<EpochSeconds> {
        let mut wait = self.reservations.after?;
        let mut next = self.queues[queue].spec.as_ref();
        while let Some(spec) = next {
            match spec.reservation_wait {
                Some(ReservationWait::Never) => return None,
                Some(ReservationWait::After { seconds, percent }) => {
                    let run = self.shapes[shape].ask.run_for.unwrap_or(0);
                    wait = seconds.unwrap_or(wait).max(run * i64::from(percent) / 100);
                    break;
                }
                None => next = spec.parent.as_ref().and_then(|name| self.queue_specs().find(|spec| spec.name == *name)),
            }
        }
        let created = key.created.as_time();
        Some(created.saturating_add(wait).min(key.deadline).max(created))
    }

    fn audit_holders(&self) {
        if self.reservations.after.is_none() {
            return;
        }
        let mut firsts: BTreeMap<ReservationId, BTreeSet<_>> = BTreeMap::new();
        for queue in self.queues.nodes() {
            let line = &self.pending[queue];
            for shape in line.shapes() {
                let Some(cause @ ReservationCause::Quota(..)) =
                    line.inadmissible_cause(shape).and_then(Inadmissible::reservation_cause)
                else {
                    continue;
                };
                let id = ReservationId { cause, queue };
                let fifo = self.queues[queue].is_fifo();
                // Who has enough, and whose turn it is not, is as good as admissible.
                let short = !self.pending.has_enough_quota(&self.queues, queue, shape);
                for key in line.list_possible_first_jobs(shape) {
                    let rank = self.reservation_rank(queue, key);
                    let may = short && (!fifo || line.list_head_entries().any(|(front, _)| front == key));
                    if may
                        && self.due_by_all(queue, shape, key).is_some_and(|due| due <= self.now)
                        && self.could_ever_start(queue, shape, rank.id.as_str())
                        && !self.has_reservation_on_better_card(&rank.id)
                    {
                        let turn = (rank.priority, self.share_of_pending(&rank.id));
                        firsts.entry(id).or_default().insert((turn, rank));
                    }
                }
            }
        }
        for (id, ranks) in &firsts {
            let reservation = self.reservations.get(*id).expect("somebody has waited long enough");
            let others: Vec<_> = ranks
                .iter()
                .map(|(_, rank)| rank)
                .filter(|rank| self.reservations.held_by(rank.id.as_str()).is_none_or(|held| held == *id))
                .collect();
            let sleeps = ranks.iter().any(|(_, rank)| *rank == reservation.rank);
            assert!(
                reservation.preempts || !sleeps || others[0] == &reservation.rank,
                "{:?} before {:?}",
                others[0],
                reservation.rank
            );
        }
        let mut holders = BTreeSet::new();
        for (_, reservation) in self.reservations.iter() {
            assert!(holders.insert(reservation.rank.id.job()), "{reservation:?} is not the only one of its job");
            assert_eq!(reservation.reach, self.compute_reach(reservation), "{reservation:?}");
        }
    }

    pub(crate) fn within_ceilings(&self) -> bool {
        self.queues
            .slots()
            .iter()
            .all(|slot| slot.capability.iter().all(|(dim, ceiling)| slot.used.get(dim) <= ceiling))
    }
}
