//! Who looks again when there is more room: only those whom the growth could help.
//!
//! Whoever was refused fits now only with a pod on one of the nodes where there is more, and never with more than is free
//! in all clusters together. Both can be told without placing anything, so kinds of jobs that fit nowhere are sorted by
//! what is most of a pod, or of all their pods once that is more than is free. The verdicts are those of asking everybody
//! again: what wakes is asked, and what sleeps on would be refused.

use std::collections::BTreeSet;

use super::{Engine, NoRoom};
use crate::{
    queue::{
        admit::{self, FitClass, Shape},
        dense::{Dense, Dim},
        line::ShapeId,
        room::Growth,
        tree::Node,
    },
    resources::Resources,
};

/// What must be free before a kind of job can fit.
#[derive(Debug, Clone)]
pub(super) struct Needs {
    /// Of each resource all pods of the minimum, and the least of them, ask for this much.
    by_dim: Box<[(Dim, i128, i128)]>,
    /// By which it is sorted.
    pub(super) key: Key,
}

/// What kinds that fit nowhere are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Of all clusters together.
    All(Dim),
    /// Of one node.
    Pod(Dim),
    /// Nothing: it asks for nothing.
    Anything,
}

impl Needs {
    fn amount(&self) -> i128 {
        let of = |dim| self.by_dim.iter().find(|(at, ..)| *at == dim);
        match self.key {
            Key::All(dim) => of(dim).map_or(0, |(_, all, _)| *all),
            Key::Pod(dim) => of(dim).map_or(0, |(.., pod)| *pod),
            Key::Anything => 0,
        }
    }

    fn could_fit(&self, free: &Dense, largest: &Dense) -> bool {
        self.by_dim.iter().all(|(dim, all, pod)| *all <= free.get(*dim) && *pod <= largest.get(*dim))
    }
}

impl Engine {
    /// Somewhere there may be more room than before, nobody knows how much, or clusters are others than they were:
    /// everything that fitted nowhere is asked about again.
    pub fn room_grew(&mut self) {
        self.roomless.clear();
        for (_, no_room) in std::mem::take(&mut self.no_room) {
            for (node, shape) in no_room.sleepers {
                self.wake(node, shape);
            }
        }
    }

    /// There is more room than before on some nodes, and nowhere else: whoever could fit now is asked about again.
    pub fn room_grew_by(&mut self, growth: &Growth) {
        let (free, largest) = (self.dense(&growth.free), self.dense(&growth.largest));
        let mut awake: Vec<FitClass> = Vec::new();
        for (key, sorted) in &self.roomless {
            let most = match *key {
                Key::All(dim) => free.get(dim),
                Key::Pod(dim) => largest.get(dim),
                Key::Anything => 0,
            };
            let near = sorted.range(..=(most, FitClass(u64::MAX))).map(|(_, class)| class);
            let could = |class: &&FitClass| self.no_room[class].needs.could_fit(&free, &largest);
            awake.extend(near.filter(could));
        }
        for class in awake {
            for (node, shape) in self.forget_refusal(class) {
                self.wake(node, shape);
            }
        }
        self.free = Some(free);
    }

    fn dense(&mut self, amounts: &Resources) -> Dense {
        let mut dense = Dense::default();
        dense.add(&self.dims.sparse(amounts));
        dense
    }

    /// Remembers that a class fits nowhere.
    pub(super) fn refuse(&mut self, class: FitClass, shape: ShapeId, never: bool, detail: String) {
        let needs = self.needs(self.shape(shape));
        // What fits in no cluster as it is does not because something ends.
        if !never {
            self.roomless.entry(needs.key).or_default().insert((needs.amount(), class));
        }
        self.no_room.insert(class, NoRoom { never, detail, sleepers: BTreeSet::new(), needs });
    }

    /// Who slept because of it is to be woken.
    pub(super) fn forget_refusal(&mut self, class: FitClass) -> BTreeSet<(Node, ShapeId)> {
        let Some(NoRoom { sleepers, needs, .. }) = self.no_room.remove(&class) else { return BTreeSet::new() };
        if let Some(sorted) = self.roomless.get_mut(&needs.key) {
            sorted.remove(&(needs.amount(), class));
            if sorted.is_empty() {
                self.roomless.remove(&needs.key);
            }
        }
        sleepers
    }

    fn needs(&self, shape: &Shape) -> Needs {
        let copies = i128::from(shape.ask.copies.max(1));
        let pods = || shape.ask.tasks.iter().filter(|task| task.min > 0);
        let least =
            |dim| pods().map(|task| task.request.get(self.dims.name(dim).as_str()).as_nano()).min().unwrap_or(0);
        let by_dim: Box<[_]> = shape.sparse.iter().map(|(dim, all)| (*dim, all / copies, least(*dim))).collect();
        let short = self.free.as_ref().and_then(|free| by_dim.iter().find(|(dim, all, _)| *all > free.get(*dim)));
        // Of what the fleet has least.
        let part = |(dim, _, pod): &&(Dim, i128, i128)| {
            let root = &self.slots[Node::ROOT.index()];
            let has = admit::headroom(root, *dim).map_or(i128::MAX, |room| room + root.used.get(*dim));
            (pod.saturating_mul(1_000_000) / has.max(1), *dim)
        };
        let key = match (short, by_dim.iter().filter(|(.., pod)| *pod > 0).max_by_key(part)) {
            (Some((dim, ..)), _) => Key::All(*dim),
            (None, Some((dim, ..))) => Key::Pod(*dim),
            (None, None) => Key::Anything,
        };
        Needs { by_dim, key }
    }
}
