//! Who looks again when there is more room: only those whom the growth could help.
//!
//! Whoever was refused fits now only with a pod on one of the nodes where there is more, and never with more than is free
//! in all clusters together. Both can be told without placing anything, so kinds of jobs that fit nowhere are sorted by
//! what is most of a pod, or of all their pods once that is more than is free. The verdicts are those of asking everybody
//! again: what wakes is asked, and what sleeps on would be refused.

use std::collections::BTreeSet;

use crate::{
    queue::{
        capacity::CapacityGrowth,
        engine::{Engine, NoRoom},
        pending::line::ShapeId,
        quota::{
            admission::{self, FitClass, Shape},
            amounts::{Dense, Dim},
            tree::Node,
        },
        reservation::ReservationId,
    },
    resources::Resources,
};

/// What was refused: a class, without the clusters that these fences keep. Who does not heed them is asked again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    class: FitClass,
    /// In order.
    kept: Box<[ReservationId]>,
}

impl Refused {
    /// Before all of this class.
    fn first_of(class: FitClass) -> Self {
        Self { class, kept: Box::default() }
    }
}

/// What must be free before a kind of job can fit.
#[derive(Debug, Clone)]
pub(crate) struct Needs {
    /// Of each resource all pods of the minimum, and the least of them, ask for this much.
    by_dim: Box<[(Dim, i128, i128)]>,
    /// By which it is sorted.
    pub(crate) key: Key,
}

/// What kinds that fit nowhere are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
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
    pub fn requeue_after_capacity_change(&mut self) {
        self.roomless.clear();
        for (_, no_room) in std::mem::take(&mut self.no_room) {
            for (node, shape) in no_room.sleepers {
                self.requeue_shape(node, shape);
            }
        }
    }

    /// There is more room than before on some nodes, and nowhere else: whoever could fit now is asked about again.
    pub fn requeue_after_growth(&mut self, growth: &CapacityGrowth) {
        let (free, largest) = (self.dense(&growth.free), self.dense(&growth.largest));
        let mut awake: Vec<Refused> = Vec::new();
        for (key, sorted) in &self.roomless {
            let most = match *key {
                Key::All(dim) => free.get(dim),
                Key::Pod(dim) => largest.get(dim),
                Key::Anything => 0,
            };
            let beyond = (most.saturating_add(1), Refused::first_of(FitClass(0)));
            let near = sorted.range(..beyond).map(|(_, refused)| refused);
            let could = |refused: &&Refused| self.no_room[*refused].needs.could_fit(&free, &largest);
            awake.extend(near.filter(could).cloned());
        }
        for refused in awake {
            for (node, shape) in self.forget_refusal(&refused) {
                self.requeue_shape(node, shape);
            }
        }
        self.free = Some(free);
    }

    fn dense(&mut self, amounts: &Resources) -> Dense {
        let mut dense = Dense::default();
        dense.add(&self.dims.sparse(amounts));
        dense
    }

    /// The answer that a shape already has: a class that fits nowhere without what some fences keep does not without more.
    pub(crate) fn known_refusal(&self, shape: ShapeId, heeded: &[ReservationId]) -> Option<Refused> {
        let kept = self.reserving_clusters(heeded);
        let known = self.refusals_of_class(self.shape(shape).ask.fit);
        known.map(|(refused, _)| refused).find(|refused| refused.kept.iter().all(|id| kept.contains(id))).cloned()
    }

    fn refusals_of_class(&self, class: FitClass) -> impl Iterator<Item = (&Refused, &NoRoom)> {
        self.no_room.range(Refused::first_of(class)..).take_while(move |(refused, _)| refused.class == class)
    }

    /// Remembers that a class fits nowhere without what these fences keep.
    pub(crate) fn record_refusal(
        &mut self,
        shape: ShapeId,
        heeded: &[ReservationId],
        never: bool,
        detail: String,
    ) -> Refused {
        let needs = self.needs(self.shape(shape));
        // If everything were empty, nothing would be kept either.
        let kept = if never { Box::default() } else { self.reserving_clusters(heeded) };
        let refused = Refused { class: self.shape(shape).ask.fit, kept };
        // What fits in no cluster as it is does not because something ends.
        if !never {
            self.roomless.entry(needs.key).or_default().insert((needs.amount(), refused.clone()));
        }
        self.no_room.insert(refused.clone(), NoRoom { never, detail, sleepers: BTreeSet::new(), needs });
        refused
    }

    /// Whether a shape sleeps because of clusters that are kept.
    pub(crate) fn lacks_what_is_kept(&self, node: Node, shape: ShapeId) -> bool {
        let mut known = self.refusals_of_class(self.shape(shape).ask.fit);
        !known.any(|(refused, no_room)| refused.kept.is_empty() && no_room.sleepers.contains(&(node, shape)))
    }

    /// Nobody of a shape is left to sleep.
    pub(crate) fn forget_refusals(&mut self, node: Node, shape: ShapeId) {
        let all: Vec<Refused> =
            self.refusals_of_class(self.shape(shape).ask.fit).map(|(refused, _)| refused.clone()).collect();
        for refused in all {
            let Some(no_room) = self.no_room.get_mut(&refused) else { continue };
            no_room.sleepers.remove(&(node, shape));
            if no_room.sleepers.is_empty() {
                self.forget_refusal(&refused);
            }
        }
    }

    /// Who slept because of it is to be woken.
    fn forget_refusal(&mut self, refused: &Refused) -> BTreeSet<(Node, ShapeId)> {
        let Some(NoRoom { sleepers, needs, .. }) = self.no_room.remove(refused) else { return BTreeSet::new() };
        if let Some(sorted) = self.roomless.get_mut(&needs.key) {
            sorted.remove(&(needs.amount(), refused.clone()));
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
            let has = admission::free_quota(root, *dim).map_or(i128::MAX, |room| room + root.used.get(*dim));
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
