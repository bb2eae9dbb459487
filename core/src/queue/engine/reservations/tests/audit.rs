//! The naive model of fences: every verdict and every fence by looking at everything again.

use super::*;

impl Engine {
    /// Every sleeper still has a reason to sleep, and every fence is the one that looking at everything again would give.
    pub(crate) fn audit(&self) {
        for node in self.index.values() {
            let slot = &self.slots[node.index()];
            for shape in slot.line.shapes() {
                let asked = &self.shape(shape).sparse;
                let short = admission::first_short_quota(&self.slots, &slot.path, asked);
                let first = slot.line.first_of(shape).unwrap();
                let key = self.first_reserving_job(*node, first, shape).unwrap_or(first);
                let heeded = self.heeded_by_all(*node, key, shape);
                assert_eq!(heeded, self.blocking_reservations(*node, key, shape).into_iter().collect());
                let heeded: Vec<ReservationId> = heeded.into_iter().collect();
                let held_back = self.first_short_with_reserved(&heeded, &slot.path, self.shape(shape));
                let is_front = || slot.line.first_satisfiable().is_some_and(|(front, _)| front == key);
                let in_turn = slot.problem.is_none() && (!slot.is_fifo() || is_front());
                match slot.line.inadmissible_cause(shape) {
                    // Nobody looks at those whose turn it can not be.
                    Some(Inadmissible::Quota(..) | Inadmissible::Reserved(..)) if !in_turn => {}
                    Some(Inadmissible::Quota(at, dim, needed)) => {
                        assert!(short.is_some(), "{shape:?} sleeps on nothing");
                        let room = admission::free_quota(&self.slots[at.index()], dim).unwrap();
                        assert!(needed > room, "{shape:?} has what it needs");
                    }
                    Some(Inadmissible::Reserved(at, dim, needed)) => {
                        assert!(held_back.is_some() || short.is_some(), "{shape:?} is held back by nobody");
                        let room = admission::free_quota(&self.slots[at.index()], dim).unwrap();
                        assert!(needed > room, "{shape:?} has what it needs");
                    }
                    Some(Inadmissible::BehindReservation(_)) => {
                        let behind = self.reservation_ahead(&heeded, &slot.path, self.shape(shape));
                        assert!(
                            behind.is_some() || held_back.is_some() || short.is_some(),
                            "{shape:?} is behind nobody"
                        );
                    }
                    Some(Inadmissible::Capacity | Inadmissible::Never) | None => {}
                }
            }
        }
        self.audit_holders();
    }

    /// Everybody who sleeps on a ceiling and has enough is looked at again.
    pub(crate) fn wake_all_short(&mut self) {
        for (node, shape, _) in self.short_of_quota() {
            if self.has_enough_quota(node, shape) {
                self.requeue_shape(node, shape);
            }
        }
    }

    /// The fences that a job has to heed, by looking at all.
    fn heeded_by_all(&self, node: Node, key: &JobKey, shape: ShapeId) -> BTreeSet<ReservationId> {
        let rank = self.reservation_rank(node, key);
        let own = self.fences.iter().find(|(_, fence)| fence.rank.id == key.id);
        let turn = |fence: &Reservation| (!fence.claims, fence.rank.clone());
        let mut heeded = BTreeSet::new();
        for at in &self.slots[node.index()].path {
            let here: Vec<_> =
                self.fences.iter().filter(|(_, fence)| fence.nodes[..=fence.reach].contains(at)).collect();
            for (id, fence) in &here {
                let first = here
                    .iter()
                    .filter(|(other, _)| other.cause == id.cause)
                    .all(|(_, other)| turn(other) >= turn(fence));
                let binds = match own {
                    Some((_, own)) => turn(fence) < turn(own) && !rank.outranks(&fence.rank),
                    None => !rank.outranks(&fence.rank),
                };
                let lower = id.cause != Shortage::Backoff || fence.rank.outranks(&rank);
                if first && binds && lower {
                    heeded.insert(**id);
                }
            }
        }
        if let Some(run_for) = self.shape(shape).ask.run_for {
            heeded.retain(|id| self.start_by_all(*id).is_none_or(|start| self.now + run_for > start));
        }
        heeded
    }

    /// When a holder can start at the latest, by looking at all that runs.
    fn start_by_all(&self, id: ReservationId) -> Option<i64> {
        let fence = self.fences.get(id).filter(|_| matches!(id.cause, Shortage::Quota(..)))?;
        let path = &self.slots[id.queue.index()].path;
        let before = self.fences.reservations_blocking(path, &fence.rank);
        let mut starts = vec![self.now];
        for (at, (dim, asked)) in path.iter().flat_map(|at| fence.asked.iter().map(move |asked| (at, asked))) {
            let Some(room) = admission::free_quota(&self.slots[at.index()], *dim) else { continue };
            let lacks = asked
                + before.iter().map(|id| self.fences.get(*id).unwrap().reserved_amount(*at, *dim)).sum::<i128>()
                - room;
            if lacks <= 0 {
                continue;
            }
            let protected = &fence.nodes[..=fence.reach];
            let ends = self.jobs.values().filter_map(|job| match job {
                Standing::Holding { node, charge, end: Some(end) } if self.slots[node.index()].path.contains(at) => {
                    Some((*end, charge.iter().find(|(of, _)| of == dim).map_or(0, |(_, amount)| *amount)))
                }
                _ => None,
            });
            let ends: Vec<_> = ends.filter(|(end, _)| *end > self.now && protected.contains(at)).collect();
            let enough =
                |until: &i64| ends.iter().filter(|(end, _)| end <= until).map(|(_, a)| a).sum::<i128>() >= lacks;
            starts.push(ends.iter().map(|(end, _)| *end).filter(enough).min()?);
        }
        starts.into_iter().max()
    }

    fn audit_holders(&self) {
        let Some(patience) = self.patience else { return };
        let mut firsts: BTreeMap<ReservationId, BTreeSet<_>> = BTreeMap::new();
        for queue in self.index.values() {
            let line = &self.slots[queue.index()].line;
            for shape in line.shapes() {
                let Some(cause @ Shortage::Quota(..)) = line.inadmissible_cause(shape).and_then(Inadmissible::cause)
                else {
                    continue;
                };
                let id = ReservationId { cause, queue: *queue };
                let fifo = self.slots[queue.index()].is_fifo();
                // Who has enough, and whose turn it is not, is as good as awake.
                let short = !self.has_enough_quota(*queue, shape);
                for key in line.firsts_of(shape) {
                    let rank = self.reservation_rank(*queue, key);
                    let may = short && (!fifo || line.first_satisfiable().is_some_and(|(front, _)| front == key));
                    if may
                        && rank.due_at(patience) <= self.now
                        && self.could_ever_start(*queue, shape, rank.id.as_str())
                    {
                        firsts.entry(id).or_default().insert(rank);
                    }
                }
            }
        }
        for (id, ranks) in &firsts {
            let fence = self.fences.get(*id).expect("somebody has waited long enough");
            let others: Vec<_> = ranks
                .iter()
                .filter(|rank| self.fences.held_by(rank.id.as_str()).is_none_or(|held| held == *id))
                .collect();
            let sleeps = ranks.contains(&fence.rank);
            assert!(fence.claims || !sleeps || others[0] == &fence.rank, "{:?} before {:?}", others[0], fence.rank);
        }
        for (_, fence) in self.fences.iter() {
            assert_eq!(fence.reach, self.compute_reach(fence), "{fence:?}");
        }
    }

    pub(crate) fn within_ceilings(&self) -> bool {
        self.slots.iter().all(|slot| {
            self.dims.all().all(|dim| slot.capability.get(dim).is_none_or(|ceiling| slot.used.get(dim) <= ceiling))
        })
    }
}
