//! Shapes go to sleep and wake, and fences hear of it.

use super::{
    super::{Engine, Standing},
    FenceId, Scarce, Seniority,
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
        if let (Bed::Never, Some((rank, ..))) = (bed, self.sleeper(node, shape)) {
            self.unfence_job(rank.id.as_str());
        }
        if let (Some(cause), Some((rank, ..))) = (bed.cause(), self.sleeper(node, shape)) {
            let id = FenceId { cause, queue: node };
            self.take_along(id, &rank, shape);
            if let Some(patience) = self.patience {
                let is_due = self.since(&rank, patience) <= self.now;
                self.fences.slept(id, (rank, shape));
                // At once, lest after a restart all who are looked at later pass.
                if is_due && matches!(cause, Scarce::Quota(..)) && self.fences.get(id).is_none() {
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
        let (Some(Bed::Fenced(at, dim, _)), Some((rank, ..))) = (bed, self.sleeper(node, shape)) else { return };
        let bed = Bed::Quota(at, dim, self.shape(shape).asks(dim));
        self.slots[node.index()].line.sleep(shape, bed);
        self.lie_down(node, shape, bed);
        if self.patience.is_some() {
            self.fences.slept(FenceId { cause: Scarce::Quota(at, dim), queue: node }, (rank, shape));
        }
        self.refresh_head(node);
    }

    /// A holder that is short of something else now takes its fence along, before anybody else is looked at.
    pub(super) fn take_along(&mut self, id: FenceId, rank: &Seniority, shape: ShapeId) {
        let (Some(had), Scarce::Quota(at, dim)) = (self.fences.held_by(rank.id.as_str()), id.cause) else { return };
        let Some(old) = self.fences.get(had).filter(|_| had != id) else { return };
        let fence = self.fence(old.rank.clone(), id.queue, shape, old.since, at, &[dim]);
        let better = self.fences.get(id).is_some_and(|other| other.rank < fence.rank);
        self.unfence(had);
        if !better {
            self.unfence(id);
            self.add_fence(id, fence);
        }
    }

    pub(in crate::queue::engine) fn wake(&mut self, node: Node, shape: ShapeId) {
        let entry = self.sleeper(node, shape);
        let Some(bed) = self.slots[node.index()].line.wake(shape) else { return };
        match (bed, bed.cause(), entry) {
            (_, Some(cause), Some((rank, ..))) => self.fences.woke(FenceId { cause, queue: node }, &(rank, shape)),
            (Bed::Fenced(..) | Bed::Behind(_), ..) => self.fences.unbind(node, shape),
            _ => {}
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

    /// The first job of a shape in line, as it ranks.
    pub(super) fn sleeper(&self, node: Node, shape: ShapeId) -> Option<(Seniority, Node, ShapeId)> {
        let first = self.slots[node.index()].line.first_of(shape)?;
        Some((self.seniority(node, first), node, shape))
    }

    /// The first job of a shape that sleeps is another one now.
    pub(in crate::queue::engine) fn first_changed(&mut self, node: Node, shape: ShapeId, old: &JobKey) {
        let Some(bed) = self.slots[node.index()].line.bed(shape) else { return };
        self.get_up(Sleeper { node, key: old.clone(), shape }, bed);
        self.lie_down(node, shape, bed);
        let old = self.seniority(node, old);
        match (bed.cause(), self.sleeper(node, shape)) {
            (Some(cause), Some((rank, ..))) => {
                let id = FenceId { cause, queue: node };
                self.fences.woke(id, &(old, shape));
                if self.patience.is_some() {
                    self.fences.slept(id, (rank, shape));
                }
                // The new one may overrule who the clusters are kept for.
                if bed == Bed::Room && self.lacks_what_is_kept(node, shape) {
                    self.wake(node, shape);
                }
            }
            // The new one may overrule what held the old one back.
            (None, Some(_)) => self.wake(node, shape),
            (_, None) => {}
        }
    }
}
