//! Which blocked job's place is kept free, and whom that holds back.
//!
//! Rule: reservation by ageing with EASY backfill (Lifka, JSSPP'95; Mu'alem and Feitelson, TPDS'01), on resources instead
//! of nodes. Of the jobs that one ceiling holds up, the first in rank (queue priority, job priority, age; no share, so
//! that every job is first some day) gets a *fence* once it has waited long enough: from its own queue up to the one
//! that is short its demand counts as taken. Whoever ranks strictly higher by priority does not see the fence; nobody
//! else takes what the holder needs, except who is known to end before the holder could start. A holder heeds only fences
//! of better rank, so that two never wait for each other. Jobs that lack room in clusters are fenced the same way, by
//! clusters and resources.
//!
//! It starts within its patience and, for each ceiling on its way up, the longest time that those run that hold
//! something there. What it costs: at most the holders' own demand, one holder for each ceiling and resource, stands idle while they
//! wait. Fences are worked out from who waits and for how long, and from nothing else: a restart makes the same ones.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    dense::{Dim, Sparse},
    line::ShapeId,
    order::JobId,
    room::Kept,
    tree::Node,
};

/// A job's place among all that are blocked; the smallest is served first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seniority {
    pub(super) queue_priority: Reverse<i32>,
    pub(super) priority: Reverse<i32>,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) id: JobId,
}

impl Seniority {
    /// Whether its priorities alone put it before the other.
    pub(super) fn overrules(&self, other: &Self) -> bool {
        (self.queue_priority, self.priority) < (other.queue_priority, other.priority)
    }
}

/// What holds the holder up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scarce {
    /// A resource under a queue's ceiling.
    Quota(Node, Dim),
    /// Room in clusters; there can be several that do not lack the same.
    Room(u8),
}

/// A place that is kept.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) rank: Seniority,
    pub(super) shape: ShapeId,
    /// Where the demand counts as taken; none if only clusters are kept.
    pub(super) nodes: Box<[Node]>,
    pub(super) asked: Sparse,
    pub(super) kept: Option<Kept>,
    /// Seconds since 1970.
    pub(super) since: i64,
    /// Shapes that sleep because of it.
    pub(super) bound: BTreeSet<(Node, ShapeId)>,
    /// When the holder can start at the latest, if that is known, for this state of the books.
    pub(super) shadow: Cell<Option<(u64, Option<i64>)>>,
}

impl Fence {
    /// What of a resource counts as taken at a queue.
    pub(super) fn taken(&self, at: Node, dim: Dim) -> i128 {
        if !self.nodes.contains(&at) {
            return 0;
        }
        self.asked.iter().find(|(asked, _)| *asked == dim).map_or(0, |(_, amount)| (*amount).max(0))
    }

    /// Whether a job of this rank, itself a holder or not, has to heed it.
    pub(super) fn binds(&self, rank: &Seniority, is_holder: bool) -> bool {
        if is_holder { self.rank < *rank } else { self.rank.id != rank.id && !rank.overrules(&self.rank) }
    }
}

/// All fences, and who would be next.
#[derive(Debug, Clone, Default)]
pub(super) struct Fences {
    by_cause: BTreeMap<Scarce, Fence>,
    /// Fences that count something as taken at a queue.
    at: BTreeMap<Node, BTreeSet<Scarce>>,
    of: BTreeMap<JobId, Scarce>,
    /// Who sleeps for a cause, in rank.
    ranked: BTreeMap<Scarce, BTreeSet<(Seniority, Node, ShapeId)>>,
    /// Causes to be looked at again.
    pub(super) dirty: BTreeSet<Scarce>,
    /// The same, at a time.
    due: BTreeSet<(i64, Scarce)>,
    /// There are others than when this was last asked.
    pub(super) changed: bool,
}

impl Fences {
    pub(super) fn is_empty(&self) -> bool {
        self.by_cause.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Scarce, &Fence)> {
        self.by_cause.iter()
    }

    pub(super) fn get(&self, cause: Scarce) -> Option<&Fence> {
        self.by_cause.get(&cause)
    }

    pub(super) fn get_mut(&mut self, cause: Scarce) -> Option<&mut Fence> {
        self.by_cause.get_mut(&cause)
    }

    /// The fence that a job holds.
    pub(super) fn cause_of(&self, id: &str) -> Option<Scarce> {
        self.of.get(id).copied()
    }

    pub(super) fn add(&mut self, cause: Scarce, fence: Fence) {
        for node in &fence.nodes {
            self.at.entry(*node).or_default().insert(cause);
        }
        self.changed = true;
        self.of.insert(fence.rank.id.clone(), cause);
        self.by_cause.insert(cause, fence);
    }

    pub(super) fn remove(&mut self, cause: Scarce) -> Option<Fence> {
        let fence = self.by_cause.remove(&cause)?;
        for node in &fence.nodes {
            if let Some(here) = self.at.get_mut(node) {
                here.remove(&cause);
                if here.is_empty() {
                    self.at.remove(node);
                }
            }
        }
        self.changed = true;
        self.of.remove(&fence.rank.id);
        Some(fence)
    }

    /// Fences on a path that a job of this rank has to heed.
    pub(super) fn binding(&self, path: &[Node], rank: &Seniority) -> Vec<Scarce> {
        let is_holder = self.of.contains_key(&rank.id);
        let binds = |cause: &Scarce| self.by_cause.get(cause).is_some_and(|fence| fence.binds(rank, is_holder));
        self.on(path).into_iter().filter(binds).collect()
    }

    /// Fences that count something as taken on a path.
    pub(super) fn on(&self, path: &[Node]) -> BTreeSet<Scarce> {
        path.iter().filter_map(|node| self.at.get(node)).flatten().copied().collect()
    }

    /// Fences of clusters that a job of this rank has to heed.
    pub(super) fn keeping(&self, rank: &Seniority) -> Vec<Scarce> {
        let is_holder = self.of.contains_key(&rank.id);
        let rooms = self.by_cause.range(Scarce::Room(0)..);
        rooms.filter(|(_, fence)| fence.binds(rank, is_holder)).map(|(cause, _)| *cause).collect()
    }

    /// A shape sleeps for a cause.
    pub(super) fn slept(&mut self, cause: Scarce, entry: (Seniority, Node, ShapeId)) {
        self.ranked.entry(cause).or_default().insert(entry);
        self.dirty.insert(cause);
    }

    /// It does not any more.
    pub(super) fn woke(&mut self, cause: Scarce, entry: &(Seniority, Node, ShapeId)) {
        if let Some(ranked) = self.ranked.get_mut(&cause) {
            ranked.remove(entry);
            if ranked.is_empty() {
                self.ranked.remove(&cause);
            }
        }
    }

    pub(super) fn is_asleep(&self, cause: Scarce, entry: &(Seniority, Node, ShapeId)) -> bool {
        self.ranked.get(&cause).is_some_and(|ranked| ranked.contains(entry))
    }

    /// Who sleeps for a cause, the first in rank first.
    pub(super) fn ranked(&self, cause: Scarce) -> impl Iterator<Item = &(Seniority, Node, ShapeId)> {
        self.ranked.get(&cause).into_iter().flatten()
    }

    /// Ceilings are others than they were: everything is to be looked at again.
    pub(super) fn doubt_all(&mut self) {
        self.dirty.extend(self.ranked.keys().chain(self.by_cause.keys()));
    }

    /// A cause is to be looked at again then.
    pub(super) fn later(&mut self, at: i64, cause: Scarce) {
        self.due.insert((at, cause));
    }

    /// Causes to be looked at now.
    pub(super) fn take_dirty(&mut self, now: i64) -> BTreeSet<Scarce> {
        while let Some((at, cause)) = self.due.first().copied() {
            if at > now {
                break;
            }
            self.due.pop_first();
            self.dirty.insert(cause);
        }
        std::mem::take(&mut self.dirty)
    }

    /// When something is to be looked at again.
    pub(super) fn due(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }
}
