//! Who gets a fence, how far it reaches, and when it ends.

use super::{
    super::{Engine, ROUNDS},
    Fence, FenceId, LOOKS, Scarce, Seniority,
};
use crate::queue::{
    admit,
    dense::Dim,
    line::ShapeId,
    room::Room,
    tree::{Node, Slot},
};

impl Engine {
    /// Looks again at everything that holds jobs up and changed, or has done so for long enough; true if somebody woke.
    pub(in crate::queue::engine) fn refence(&mut self, room: &mut impl Room) -> bool {
        let moved = self.fences.take_moved();
        let Some(patience) = self.patience else { return false };
        let mut woke = false;
        for node in moved {
            woke |= self.reach_again(node);
        }
        let now = self.now;
        self.fences.doubt();
        // Who gets another fence gives the one it had away, which somebody else may be waiting for.
        for _ in 0..ROUNDS {
            let dirty = self.fences.take_dirty(now);
            if dirty.is_empty() {
                break;
            }
            let mut rooms = false;
            for id in dirty {
                match id.cause {
                    Scarce::Quota(..) => woke |= self.refence_quota(id, patience),
                    Scarce::Room(_) => rooms = true,
                    Scarce::Aside => woke |= self.refence_aside(id, patience),
                }
            }
            woke |= rooms && self.refence_rooms(patience, room);
            if woke {
                break;
            }
        }
        woke | self.wake_shadowed()
    }

    /// A queue holds more or less than before: fences may reach farther, or not as far.
    pub(super) fn reach_again(&mut self, node: Node) -> bool {
        let mut woke = false;
        // What the fleet has idle counts for those that wait for room alone.
        let ids = if node == Node::ROOT { self.fences.rooms() } else { self.fences.reaching(node) };
        for id in ids {
            let was = self.fences.get(id).map(|fence| fence.reach);
            woke |= self.set_reach(id);
            let moved = was != self.fences.get(id).map(|fence| fence.reach);
            if matches!(id.cause, Scarce::Room(_)) && (moved || node != Node::ROOT) {
                self.fences.dirty.insert(id);
            }
            let behind = self.fences.get(id).map(|fence| fence.behind.clone()).unwrap_or_default();
            woke |= !behind.is_empty();
            behind.iter().for_each(|(node, shape)| self.wake(*node, *shape));
        }
        if node == Node::ROOT {
            return woke;
        }
        let here = FenceId { cause: Scarce::Room(0), queue: node };
        if self.fences.roomless().contains(&here) || !self.slots[node.index()].children.is_empty() {
            let first = self.fences.roomless().pop_first();
            self.fences.dirty.extend(first);
        }
        woke
    }

    pub(super) fn set_reach(&mut self, id: FenceId) -> bool {
        let Some(reach) = self.fences.get(id).map(|fence| self.reach(fence)) else { return false };
        let behind = self.fences.set_reach(id, reach);
        behind.into_iter().fold(false, |woke, id| self.wake_bound(id) | woke)
    }

    /// Those that sleep because of a fence look again.
    pub(super) fn wake_bound(&mut self, id: FenceId) -> bool {
        let bound: Vec<(Node, ShapeId)> = self.fences.get(id).into_iter().flat_map(Fence::sleepers).collect();
        bound.iter().for_each(|(node, shape)| self.look_again(*node, *shape));
        !bound.is_empty()
    }

    pub(super) fn add_fence(&mut self, id: FenceId, fence: Fence) -> bool {
        let behind = self.fences.add(id, fence);
        behind.into_iter().fold(false, |woke, id| self.wake_bound(id) | woke)
    }

    /// The first of a queue that a cause holds up for long enough.
    pub(super) fn refence_quota(&mut self, id: FenceId, patience: i64) -> bool {
        let Scarce::Quota(at, dim) = id.cause else { return false };
        self.fences.ripen(id, self.now);
        let claimant =
            self.claimant().filter(|(_, node, shape)| *node == id.queue && self.fences.is_asleep(id, *shape));
        let claimant = claimant.map(|(rank, _, shape)| (rank, shape));
        let mut doubtful = false;
        // Who has enough is yet to be looked at: if others take it first, this is looked at again.
        let mut is_short = |(_, shape): &(Seniority, ShapeId)| {
            let short = !self.has_enough(id.queue, *shape);
            doubtful |= !short;
            short
        };
        let ranked = claimant.into_iter().chain(self.ranked(id, patience)).filter(&mut is_short).take(LOOKS + 1);
        let all: Vec<(Seniority, ShapeId)> = ranked.collect();
        if doubtful {
            self.fences.doubted.insert(id);
        }
        let can_start = |(rank, shape): &(Seniority, ShapeId)| self.can_start(id.queue, *shape, rank.id.as_str());
        let Some((rank, shape)) = all.into_iter().find(can_start) else { return self.unfence(id) };
        let since = self.since(&rank, patience);
        let claims = self.claim.as_ref() == Some(&rank.id);
        let same = |fence: &Fence| fence.rank == rank && fence.shape == shape && fence.claims == claims;
        if self.fences.get(id).is_some_and(same) {
            return self.set_reach(id);
        }
        let mut woke = self.unfence(id);
        if let Some(other) = self.fences.held_by(rank.id.as_str()) {
            woke |= self.unfence(other);
        }
        let fence = self.fence(rank, id.queue, shape, since, at, &[dim]);
        self.add_fence(id, fence) | woke
    }

    /// A holder started: the next one's place is kept before anybody else is looked at.
    pub(in crate::queue::engine) fn hand_on(&mut self, held: Option<FenceId>) {
        if let (Some(id @ FenceId { cause: Scarce::Quota(..), .. }), Some(patience)) = (held, self.patience) {
            self.refence_quota(id, patience);
        }
    }

    /// Who sleeps for a cause and has waited long enough, the first in rank first: of a fifo queue only the first in line,
    /// for nobody else can start there.
    pub(super) fn ranked(&self, id: FenceId, patience: i64) -> impl Iterator<Item = (Seniority, ShapeId)> {
        let slot = &self.slots[id.queue.index()];
        let fifo = slot.is_fifo();
        let front = slot.line.front().filter(|_| fifo).map(|(key, shape)| (self.seniority(id.queue, key), shape));
        let due = move |(rank, shape): &(Seniority, ShapeId)| {
            self.fences.is_asleep(id, *shape) && rank.ripe(patience) <= self.now
        };
        front.into_iter().filter(due).chain(self.fences.ranked(id).filter(move |_| !fifo).cloned())
    }

    /// When a job has waited long enough; at once if others give way for it.
    pub(super) fn since(&self, rank: &Seniority, patience: i64) -> i64 {
        if self.claim.as_ref() == Some(&rank.id) { rank.created } else { rank.ripe(patience) }
    }

    pub(super) fn claimant(&self) -> Option<(Seniority, Node, ShapeId)> {
        self.claim.as_ref().and_then(|id| self.waiting(id.as_str()))
    }

    /// Up to the highest ceiling that is short now, at least up to this one.
    pub(super) fn fence(
        &self,
        rank: Seniority,
        node: Node,
        shape: ShapeId,
        since: i64,
        up_to: Node,
        scarce: &[Dim],
    ) -> Fence {
        let path = &self.slots[node.index()].path;
        let asked = &self.shape(shape).sparse;
        let is_short = |at: &Node, of: &(Dim, i128)| admit::first_short(&self.slots, &[*at], &[*of]).is_some();
        let high = path.iter().rposition(|at| *at == up_to || asked.iter().any(|of| is_short(at, of))).unwrap_or(0);
        let short = asked.iter().filter(|of| scarce.contains(&of.0) || path[..=high].iter().any(|at| is_short(at, of)));
        let scarce = short.map(|(dim, _)| *dim).collect();
        let claims = self.claim.as_ref() == Some(&rank.id);
        let mut fence = Fence {
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
        fence.reach = self.reach(&fence);
        fence
    }

    /// Whether a job could start if nothing else were charged but what it holds already: a fence for one that can not, or
    /// whose queue starts nothing, would be for ever.
    pub(super) fn can_start(&self, node: Node, shape: ShapeId, id: &str) -> bool {
        let empty = |at: &Node, dim| {
            let slot = &self.slots[at.index()];
            admit::headroom(slot, dim).map(|room| room + slot.used.get(dim) - self.holds_already(id, *at, dim))
        };
        let Slot { path, problem, .. } = &self.slots[node.index()];
        let mut asked = self.shape(shape).sparse.iter();
        problem.is_none()
            && asked.all(|(dim, asked)| path.iter().all(|at| empty(at, *dim).is_none_or(|ceiling| *asked <= ceiling)))
    }

    /// Takes a fence away; true if that woke somebody.
    pub(in crate::queue::engine) fn unfence(&mut self, id: FenceId) -> bool {
        let Some(fence) = self.fences.remove(id) else { return false };
        self.fences.dirty.insert(id);
        let sleepers: Vec<(Node, ShapeId)> = fence.sleepers().collect();
        let woke = !sleepers.is_empty() || fence.kept.is_some();
        for (node, shape) in sleepers {
            self.look_again(node, shape);
        }
        if fence.kept.is_some() {
            self.room_grew();
        }
        woke
    }

    /// What queues deserve may be another amount: who slept because of that looks again.
    pub(in crate::queue::engine) fn wake_behind(&mut self) {
        let behind: Vec<_> = self.fences.iter().flat_map(|(_, fence)| fence.behind.iter().copied()).collect();
        behind.into_iter().for_each(|(node, shape)| self.wake(node, shape));
    }

    /// The tree, or who goes before whom, is another one: fences are worked out anew.
    pub(in crate::queue::engine) fn wake_fenced(&mut self) {
        if self.fences.iter().any(|(_, fence)| fence.kept.is_some()) {
            self.room_grew();
        }
        let fences = std::mem::take(&mut self.fences);
        self.fences.version = fences.version + 1;
        self.fences.changed = fences.changed || !fences.is_empty();
        for (node, shape) in fences.iter().flat_map(|(_, fence)| fence.sleepers()) {
            self.wake(node, shape);
        }
        if self.patience.is_none() {
            return;
        }
        self.doubt_aside();
        let asleep = self.short.iter().flat_map(|((at, dim), sleepers)| {
            sleepers.iter().map(|(node, shape)| (Scarce::Quota(*at, *dim), node, shape))
        });
        let roomless = self.no_room.values().filter(|no_room| !no_room.never).flat_map(|no_room| &no_room.sleepers);
        let all: Vec<(Scarce, Node, ShapeId)> =
            asleep.chain(roomless.map(|(node, shape)| (Scarce::Room(0), *node, *shape))).collect();
        for (cause, node, shape) in all {
            self.rank(FenceId { cause, queue: node }, shape);
        }
    }

    /// A job is no longer blocked, or gone.
    pub(in crate::queue::engine) fn unfence_job(&mut self, id: &str) {
        self.terms.remove(id);
        if let Some(id) = self.fences.held_by(id) {
            self.unfence(id);
        }
    }
}
