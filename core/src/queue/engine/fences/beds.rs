//! Shapes go to sleep and wake, and fences hear of it.

use super::{
    super::{Engine, Standing},
    FenceId, First, Scarce, Seniority,
};
use crate::queue::{
    line::{Bed, ShapeId},
    order::JobKey,
    sleepers::Sleeper,
    tree::Node,
};

impl Engine {
    pub(in crate::queue::engine) fn sleep(&mut self, node: Node, shape: ShapeId, bed: Bed) {
        self.slots[node.index()].line.sleep(shape, bed);
        self.lie_down(node, shape, bed);
        self.give_up(node, shape, bed);
        // Whether it ever fits is asked after its quota was kept for it: for nothing, as it turns out.
        if bed == Bed::Never {
            for id in self.fences.of_shape(node, shape) {
                self.unfence(id);
            }
        }
        if let Some(cause) = bed.cause() {
            let id = FenceId { cause, queue: node };
            self.take_along(id, shape);
            self.rank(id, shape);
            // At once, lest after a restart all who are looked at later pass.
            if let (Some(patience), Scarce::Quota(..), None) = (self.patience, cause, self.fences.get(id)) {
                let claims = self.claimant().is_some_and(|(_, at, of)| (at, of) == (node, shape));
                if claims || self.firsts(node, shape, patience).iter().any(|(ripe, _)| *ripe <= self.now) {
                    self.refence_quota(id, patience);
                }
            }
        }
        self.refresh_head(node);
        self.ease_own(node);
    }

    /// What held a shape back may be gone: it is looked at when what it asks for itself is free.
    pub(super) fn look_again(&mut self, node: Node, shape: ShapeId) {
        let bed = self.slots[node.index()].line.bed(shape);
        self.wake(node, shape);
        let Some(Bed::Fenced(at, dim, _)) = bed else { return };
        let bed = Bed::Quota(at, dim, self.shape(shape).asks(dim));
        self.slots[node.index()].line.sleep(shape, bed);
        self.lie_down(node, shape, bed);
        self.rank(FenceId { cause: Scarce::Quota(at, dim), queue: node }, shape);
        self.refresh_head(node);
    }

    /// Holders that are short of something else now take their fences along, before anybody else is looked at.
    pub(super) fn take_along(&mut self, id: FenceId, shape: ShapeId) {
        let Scarce::Quota(at, dim) = id.cause else { return };
        for had in self.fences.of_shape(id.queue, shape).into_iter().filter(|had| *had != id) {
            let Some(old) = self.fences.get(had) else { continue };
            let fence = self.fence(old.rank.clone(), id.queue, shape, old.since, at, &[dim]);
            let better = self.fences.get(id).is_some_and(|other| other.rank < fence.rank);
            self.unfence(had);
            if !better {
                self.unfence(id);
                self.add_fence(id, fence);
            }
        }
    }

    /// Those of a shape that may be the next to get a fence, with when they have waited long enough.
    fn firsts(&self, node: Node, shape: ShapeId, patience: i64) -> Vec<First> {
        let firsts = self.slots[node.index()].line.firsts_of(shape).into_iter();
        firsts.map(|key| self.seniority(node, key)).map(|rank| (rank.ripe(patience), rank)).collect()
    }

    /// A shape sleeps for this.
    pub(super) fn rank(&mut self, id: FenceId, shape: ShapeId) {
        if let Some(patience) = self.patience {
            let firsts = self.firsts(id.queue, shape, patience);
            self.fences.slept(id, shape, firsts, self.now);
        }
    }

    /// Others of a shape, if it sleeps, may be the next to get a fence.
    pub(in crate::queue::engine) fn rank_again(&mut self, node: Node, shape: ShapeId) {
        if let Some(cause) = self.slots[node.index()].line.bed(shape).and_then(Bed::cause) {
            self.rank(FenceId { cause, queue: node }, shape);
        }
    }

    pub(in crate::queue::engine) fn wake(&mut self, node: Node, shape: ShapeId) {
        let Some(bed) = self.slots[node.index()].line.wake(shape) else { return };
        self.fences.woke(node, shape);
        if matches!(bed, Bed::Fenced(..) | Bed::Behind(_)) {
            self.fences.unbind(node, shape);
        }
        if let Some(key) = self.slots[node.index()].line.first_of(shape).cloned() {
            self.get_up(Sleeper { node, key, shape }, bed);
        }
        self.refresh_head(node);
    }

    /// A job in line, as it ranks.
    pub(super) fn waiting(&self, id: &str) -> Option<(Seniority, Node, ShapeId)> {
        let Some(Standing::Waiting { node, key, shape, .. }) = self.jobs.get(id) else { return None };
        Some((self.seniority(*node, key), *node, *shape))
    }

    /// The first job of a shape that sleeps is another one now: it may overrule what held the old one back, or who clusters
    /// are kept for.
    pub(in crate::queue::engine) fn first_changed(&mut self, node: Node, shape: ShapeId, old: &JobKey) {
        let Some(bed) = self.slots[node.index()].line.bed(shape) else { return };
        self.get_up(Sleeper { node, key: old.clone(), shape }, bed);
        self.lie_down(node, shape, bed);
        let wakes = match bed {
            Bed::Quota(..) => false,
            Bed::Room => self.lacks_what_is_kept(node, shape),
            Bed::Fenced(..) | Bed::Behind(_) | Bed::Never => true,
        };
        if wakes {
            self.wake(node, shape);
        }
    }
}
