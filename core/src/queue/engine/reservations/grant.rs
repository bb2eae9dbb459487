//! Which job gets a reservation, how far up it reaches, and when it ends.

use crate::queue::{
    capacity::ClusterCapacity,
    engine::{
        Engine, ROUNDS,
        reservations::{LOOKS, Reservation, ReservationId, ReservationRank, Shortage},
    },
    pending::line::ShapeId,
    quota::{
        admission,
        amounts::Dim,
        tree::{Node, Slot},
    },
};

impl Engine {
    /// Looks again at everything that holds jobs up and changed, or has done so for long enough; true if somebody woke.
    pub(crate) fn update_reservations(&mut self, room: &mut impl ClusterCapacity) -> bool {
        let moved = self.fences.take_usage_changes();
        let Some(patience) = self.patience else { return false };
        let mut woke = false;
        for node in moved {
            woke |= self.update_reach_below(node);
        }
        let now = self.now;
        self.fences.mark_doubted_dirty();
        // Who gets another fence gives the one it had away, which somebody else may be waiting for.
        for _ in 0..ROUNDS {
            let dirty = self.fences.take_dirty(now);
            if dirty.is_empty() {
                break;
            }
            let mut rooms = false;
            for id in dirty {
                match id.cause {
                    Shortage::Quota(..) => woke |= self.update_quota_reservation(id, patience),
                    Shortage::Capacity(_) => rooms = true,
                    Shortage::Backoff => woke |= self.update_backoff_reservation(id, patience),
                }
            }
            woke |= rooms && self.update_cluster_reservations(patience, room);
            if woke {
                break;
            }
        }
        woke | self.requeue_backfillable()
    }

    /// A queue holds more or less than before: fences may reach farther, or not as far.
    pub(crate) fn update_reach_below(&mut self, node: Node) -> bool {
        let mut woke = false;
        // What the fleet has idle counts for those that wait for room alone.
        let ids = if node == Node::ROOT {
            self.fences.cluster_reservations()
        } else {
            self.fences.reservations_reaching(node)
        };
        for id in ids {
            let was = self.fences.get(id).map(|fence| fence.reach);
            woke |= self.set_reach(id);
            let moved = was != self.fences.get(id).map(|fence| fence.reach);
            if matches!(id.cause, Shortage::Capacity(_)) && (moved || node != Node::ROOT) {
                self.fences.dirty.insert(id);
            }
            let behind = self.fences.get(id).map(|fence| fence.behind.clone()).unwrap_or_default();
            woke |= !behind.is_empty();
            behind.iter().for_each(|(node, shape)| self.requeue_shape(*node, *shape));
        }
        if node == Node::ROOT {
            return woke;
        }
        let here = ReservationId { cause: Shortage::Capacity(0), queue: node };
        if self.fences.short_of_capacity().contains(&here) || !self.slots[node.index()].children.is_empty() {
            let first = self.fences.short_of_capacity().pop_first();
            self.fences.dirty.extend(first);
        }
        woke
    }

    pub(crate) fn set_reach(&mut self, id: ReservationId) -> bool {
        let Some(reach) = self.fences.get(id).map(|fence| self.compute_reach(fence)) else { return false };
        let behind = self.fences.set_reach(id, reach);
        behind.into_iter().fold(false, |woke, id| self.requeue_blocked_by(id) | woke)
    }

    /// Those that sleep because of a fence look again.
    pub(crate) fn requeue_blocked_by(&mut self, id: ReservationId) -> bool {
        let bound: Vec<(Node, ShapeId)> =
            self.fences.get(id).into_iter().flat_map(Reservation::blocked_shapes).collect();
        bound.iter().for_each(|(node, shape)| self.requeue_when_free(*node, *shape));
        !bound.is_empty()
    }

    pub(crate) fn add_reservation(&mut self, id: ReservationId, fence: Reservation) -> bool {
        let behind = self.fences.add(id, fence);
        behind.into_iter().fold(false, |woke, id| self.requeue_blocked_by(id) | woke)
    }

    /// The first of a queue that a cause holds up for long enough.
    pub(crate) fn update_quota_reservation(&mut self, id: ReservationId, patience: i64) -> bool {
        let Shortage::Quota(at, dim) = id.cause else { return false };
        self.fences.take_due_blocked(id, self.now);
        let claimant =
            self.pending_preemptor().filter(|(_, node, shape)| *node == id.queue && self.fences.is_blocked(id, *shape));
        let claimant = claimant.map(|(rank, _, shape)| (rank, shape));
        let mut doubtful = false;
        // Who has enough is yet to be looked at: if others take it first, this is looked at again.
        let mut is_short = |(_, shape): &(ReservationRank, ShapeId)| {
            let short = !self.has_enough_quota(id.queue, *shape);
            doubtful |= !short;
            short
        };
        let ranked =
            claimant.into_iter().chain(self.ranked_blocked(id, patience)).filter(&mut is_short).take(LOOKS + 1);
        let all: Vec<(ReservationRank, ShapeId)> = ranked.collect();
        if doubtful {
            self.fences.doubted.insert(id);
        }
        let can_start =
            |(rank, shape): &(ReservationRank, ShapeId)| self.could_ever_start(id.queue, *shape, rank.id.as_str());
        let Some((rank, shape)) = all.into_iter().find(can_start) else { return self.remove_reservation(id) };
        let since = self.reserved_since(&rank, patience);
        let claims = self.claim.as_ref() == Some(&rank.id);
        let same = |fence: &Reservation| fence.rank == rank && fence.shape == shape && fence.claims == claims;
        if self.fences.get(id).is_some_and(same) {
            return self.set_reach(id);
        }
        let mut woke = self.remove_reservation(id);
        if let Some(other) = self.fences.held_by(rank.id.as_str()) {
            woke |= self.remove_reservation(other);
        }
        let fence = self.draft_reservation(rank, id.queue, shape, since, at, &[dim]);
        self.add_reservation(id, fence) | woke
    }

    /// A holder started: the next one's place is kept before anybody else is looked at.
    pub(crate) fn pass_reservation_on(&mut self, held: Option<ReservationId>) {
        if let (Some(id @ ReservationId { cause: Shortage::Quota(..), .. }), Some(patience)) = (held, self.patience) {
            self.update_quota_reservation(id, patience);
        }
    }

    /// Who sleeps for a cause and has waited long enough, the first in rank first: of a fifo queue only the first in line,
    /// for nobody else can start there.
    pub(crate) fn ranked_blocked(
        &self,
        id: ReservationId,
        patience: i64,
    ) -> impl Iterator<Item = (ReservationRank, ShapeId)> {
        let slot = &self.slots[id.queue.index()];
        let fifo = slot.is_fifo();
        let front = slot
            .line
            .first_satisfiable()
            .filter(|_| fifo)
            .map(|(key, shape)| (self.reservation_rank(id.queue, key), shape));
        let due = move |(rank, shape): &(ReservationRank, ShapeId)| {
            self.fences.is_blocked(id, *shape) && rank.due_at(patience) <= self.now
        };
        front.into_iter().filter(due).chain(self.fences.ranked_blocked(id).filter(move |_| !fifo).cloned())
    }

    /// When a job has waited long enough; at once if others give way for it.
    pub(crate) fn reserved_since(&self, rank: &ReservationRank, patience: i64) -> i64 {
        if self.claim.as_ref() == Some(&rank.id) { rank.created } else { rank.due_at(patience) }
    }

    pub(crate) fn pending_preemptor(&self) -> Option<(ReservationRank, Node, ShapeId)> {
        self.claim.as_ref().and_then(|id| self.pending_job(id.as_str()))
    }

    /// Up to the highest ceiling that is short now, at least up to this one.
    pub(crate) fn draft_reservation(
        &self,
        rank: ReservationRank,
        node: Node,
        shape: ShapeId,
        since: i64,
        up_to: Node,
        scarce: &[Dim],
    ) -> Reservation {
        let path = &self.slots[node.index()].path;
        let asked = &self.shape(shape).sparse;
        let is_short =
            |at: &Node, of: &(Dim, i128)| admission::first_short_quota(&self.slots, &[*at], &[*of]).is_some();
        let high = path.iter().rposition(|at| *at == up_to || asked.iter().any(|of| is_short(at, of))).unwrap_or(0);
        let short = asked.iter().filter(|of| scarce.contains(&of.0) || path[..=high].iter().any(|at| is_short(at, of)));
        let scarce = short.map(|(dim, _)| *dim).collect();
        let claims = self.claim.as_ref() == Some(&rank.id);
        let mut fence = Reservation {
            rank,
            shape,
            claims,
            nodes: path[..=high].into(),
            reach: 0,
            asked: asked.clone(),
            scarce,
            kept: None,
            since,
            bound: std::collections::BTreeSet::new(),
            behind: std::collections::BTreeSet::new(),
            timed: std::collections::BTreeSet::new(),
            shadow: std::cell::Cell::default(),
        };
        fence.reach = self.compute_reach(&fence);
        fence
    }

    /// Whether a job could start if nothing else were charged but what it holds already: a fence for one that can not, or
    /// whose queue starts nothing, would be for ever.
    pub(crate) fn could_ever_start(&self, node: Node, shape: ShapeId, id: &str) -> bool {
        let empty = |at: &Node, dim| {
            let slot = &self.slots[at.index()];
            admission::free_quota(slot, dim).map(|room| room + slot.used.get(dim) - self.holds_already(id, *at, dim))
        };
        let Slot { path, problem, .. } = &self.slots[node.index()];
        let mut asked = self.shape(shape).sparse.iter();
        problem.is_none()
            && asked.all(|(dim, asked)| path.iter().all(|at| empty(at, *dim).is_none_or(|ceiling| *asked <= ceiling)))
    }

    /// Takes a fence away; true if that woke somebody.
    pub(crate) fn remove_reservation(&mut self, id: ReservationId) -> bool {
        let Some(fence) = self.fences.remove(id) else { return false };
        self.fences.dirty.insert(id);
        let sleepers: Vec<(Node, ShapeId)> = fence.blocked_shapes().collect();
        let woke = !sleepers.is_empty() || fence.kept.is_some();
        for (node, shape) in sleepers {
            self.requeue_when_free(node, shape);
        }
        if fence.kept.is_some() {
            self.requeue_after_capacity_change();
        }
        woke
    }

    /// What queues deserve may be another amount: who slept because of that looks again.
    pub(crate) fn requeue_behind_reservations(&mut self) {
        let behind: Vec<_> = self.fences.iter().flat_map(|(_, fence)| fence.behind.iter().copied()).collect();
        behind.into_iter().for_each(|(node, shape)| self.requeue_shape(node, shape));
    }

    /// The tree, or who goes before whom, is another one: fences are worked out anew.
    pub(crate) fn rebuild_reservations(&mut self) {
        if self.fences.iter().any(|(_, fence)| fence.kept.is_some()) {
            self.requeue_after_capacity_change();
        }
        let fences = std::mem::take(&mut self.fences);
        self.fences.version = fences.version + 1;
        self.fences.changed = fences.changed || !fences.is_empty();
        for (node, shape) in fences.iter().flat_map(|(_, fence)| fence.blocked_shapes()) {
            self.requeue_shape(node, shape);
        }
        if self.patience.is_none() {
            return;
        }
        self.mark_backoff_reservations();
        let short = self.short_of_quota().into_iter();
        let short = short.map(|(node, shape, (at, dim))| (Shortage::Quota(at, dim), node, shape));
        let roomless = self.no_room.values().filter(|no_room| !no_room.never).flat_map(|no_room| &no_room.sleepers);
        let all: Vec<(Shortage, Node, ShapeId)> =
            short.chain(roomless.map(|(node, shape)| (Shortage::Capacity(0), *node, *shape))).collect();
        for (cause, node, shape) in all {
            self.register_blocked(ReservationId { cause, queue: node }, shape);
        }
    }

    /// A job is no longer blocked, or gone.
    pub(crate) fn remove_reservation_of_job(&mut self, id: &str) {
        self.terms.remove(id);
        if let Some(id) = self.fences.held_by(id) {
            self.remove_reservation(id);
        }
    }
}
