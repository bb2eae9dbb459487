//! Fences at work: who gets one, whom it holds back, and when that ends. The rule is in [`super::super::fence`].

use std::cmp::Reverse;

use super::{Engine, Standing};
use crate::{
    gang::ClusterName,
    quantity::Quantity,
    queue::{
        admit::{self, Shape},
        fence::{Fence, Scarce, Seniority},
        line::{Bed, ShapeId},
        order::{JobId, JobKey, OrderPolicy},
        room::{Kept, Room},
        tree::Node,
    },
    reason::{Bound, Position, Reason},
    resources::ResourceName,
};

/// Sleepers looked at for one fence; those before them can never start.
const LOOKS: usize = 8;
/// Jobs that clusters are kept for at once.
const ROOMS: u8 = 3;

/// A place that is kept for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// What it lacks, and under whose ceiling; `None` if it lacks room.
    pub short: Option<(Bound, ResourceName)>,
    /// The clusters that are kept for it, if it lacks room.
    pub clusters: Vec<ClusterName>,
    /// When it can start at the latest, in seconds since 1970, if all that must end first has said how long it runs.
    pub start: Option<i64>,
}

/// Facts in.
impl Engine {
    /// What time it is, in seconds since 1970. It never goes back.
    pub fn set_now(&mut self, now: i64) {
        self.now = self.now.max(now);
    }

    /// After how many seconds a blocked job gets a fence; `None`: never.
    pub fn set_patience(&mut self, seconds: Option<i64>) {
        let changed = self.patience != seconds;
        (self.stale, self.replanted) = (self.stale | changed, self.replanted | changed);
        self.patience = seconds;
    }

    /// Keeps the place of a job at once, whoever waits longer: others give way for it. To be followed by
    /// [`Engine::next_in`] before anything comes free, for the place is kept of who is blocked.
    pub fn set_claim(&mut self, id: Option<JobId>) {
        if self.claim == id {
            return;
        }
        for id in [std::mem::replace(&mut self.claim, id.clone()), id].into_iter().flatten() {
            let sleeper = self.waiting(id.as_str());
            let bed = sleeper.and_then(|(_, node, shape)| self.slots[node.index()].line.bed(shape));
            self.fences.dirty.extend(bed.and_then(Bed::cause));
            self.fences.dirty.extend(self.fences.cause_of(id.as_str()));
            if let Some(cause) = bed.and_then(Bed::cause) {
                self.fences.later(self.now, cause);
            }
        }
    }

    /// When a job that holds something will have ended, in seconds since 1970, if that is known. It counts while the job
    /// holds something.
    pub fn set_end(&mut self, id: &str, end: Option<i64>) {
        if let Some(Standing::Holding { end: known, .. }) = self.jobs.get_mut(id)
            && *known != end
        {
            *known = end;
            self.books += 1;
        }
    }
}

/// Questions.
impl Engine {
    /// When [`Engine::next`] may decide otherwise though nothing happened, in seconds since 1970.
    #[must_use]
    pub fn due(&self) -> Option<i64> {
        self.patience.and(self.fences.due())
    }

    /// True once after other places are kept than before.
    pub fn take_reserved(&mut self) -> bool {
        std::mem::take(&mut self.fences.changed)
    }

    /// The place that is kept for a job, if one is.
    #[must_use]
    pub fn reservation(&self, id: &str) -> Option<Reservation> {
        let cause = self.fences.cause_of(id)?;
        let fence = self.fences.get(cause)?;
        let short = match cause {
            Scarce::Quota(at, dim) => {
                let (bound, _) = admit::bound(&self.slots, &self.dims, &self.fleet, at, dim);
                Some((bound, self.dims.name(dim).clone()))
            }
            Scarce::Room(_) => None,
        };
        let clusters = fence.kept.as_ref().map(|kept| kept.clusters.clone()).unwrap_or_default();
        Some(Reservation { since: fence.since, short, clusters, start: self.start_of(cause) })
    }

    /// When the demand of a fence's holder fits at the latest, by the ends of what is charged there now.
    fn start_of(&self, cause: Scarce) -> Option<i64> {
        let Scarce::Quota(at, _) = cause else { return None };
        let fence = self.fences.get(cause)?;
        let mut lacks: Vec<(super::Dim, i128)> = fence
            .asked
            .iter()
            .filter_map(|(dim, asked)| Some((*dim, asked - admit::headroom(&self.slots[at.index()], *dim)?)))
            .filter(|(_, lacking)| *lacking > 0)
            .collect();
        let mut ends: Vec<(i64, &super::Sparse)> = Vec::new();
        for standing in self.jobs.values() {
            let Standing::Holding { node, charge, end } = standing else { continue };
            let counts = self.slots[node.index()].path.contains(&at)
                && charge.iter().any(|(dim, _)| lacks.iter().any(|(lacking, _)| lacking == dim));
            if let (true, Some(end)) = (counts, end) {
                ends.push((*end, charge));
            }
        }
        ends.sort_by_key(|(end, _)| *end);
        let mut start = self.now;
        for (end, charge) in ends {
            if lacks.iter().all(|(_, lacking)| *lacking <= 0) {
                break;
            }
            for (dim, lacking) in &mut lacks {
                *lacking -= charge.iter().find(|(charged, _)| charged == dim).map_or(0, |(_, amount)| *amount);
            }
            start = start.max(end);
        }
        lacks.iter().all(|(_, lacking)| *lacking <= 0).then_some(start)
    }
}

/// Whom a fence holds back.
impl Engine {
    pub(super) fn seniority(&self, node: Node, key: &JobKey) -> Seniority {
        let priority = self.slots[node.index()].spec.as_ref().map_or(0, |spec| spec.priority);
        Seniority {
            queue_priority: Reverse(if self.policy == OrderPolicy::Fifo { 0 } else { priority }),
            priority: key.priority,
            created: key.created,
            id: key.id.clone(),
        }
    }

    /// The fences on its path that a job has to heed: without those that it is known to end before.
    pub(super) fn heeded(&self, node: Node, key: &JobKey, shape: ShapeId) -> Vec<Scarce> {
        if self.fences.is_empty() {
            return Vec::new();
        }
        let mut heeded = self.fences.binding(&self.slots[node.index()].path, &self.seniority(node, key));
        if let Some(run_for) = self.shape(shape).ask.run_for {
            let end = self.now.saturating_add(run_for);
            heeded.retain(|cause| self.shadow(*cause).is_none_or(|shadow| end > shadow));
        }
        heeded
    }

    /// [`Engine::start_of`], worked out once for each state of the books.
    fn shadow(&self, cause: Scarce) -> Option<i64> {
        let fence = self.fences.get(cause)?;
        if let Some((_, start)) = fence.shadow.get().filter(|(books, _)| *books == self.books) {
            return start;
        }
        let start = self.start_of(cause);
        fence.shadow.set(Some((self.books, start)));
        start
    }

    /// What of a resource fences count as taken at a queue.
    pub(super) fn taken(&self, heeded: &[Scarce], at: Node, dim: super::Dim) -> i128 {
        heeded.iter().filter_map(|cause| self.fences.get(*cause)).map(|fence| fence.taken(at, dim)).sum()
    }

    /// The first ceiling that a job would break beside what fences count as taken, and how much must be free there for
    /// it.
    pub(super) fn fenced_short(
        &self,
        heeded: &[Scarce],
        path: &[Node],
        shape: &Shape,
    ) -> Option<(Node, super::Dim, i128)> {
        path.iter().find_map(|node| {
            shape.sparse.iter().find_map(|(dim, asked)| {
                let taken = self.taken(heeded, *node, *dim);
                let room = admit::headroom(&self.slots[node.index()], *dim)?;
                (*asked > 0 && taken > 0 && asked + taken > room).then_some((*node, *dim, asked + taken))
            })
        })
    }

    /// Why fences hold a job back, if they do.
    pub(super) fn held_back(&self, node: Node, key: &JobKey, id: ShapeId, position: Position) -> Option<Reason> {
        let (slot, shape) = (&self.slots[node.index()], self.shape(id));
        let heeded = self.heeded(node, key, id);
        let (at, dim, _) = self.fenced_short(&heeded, &slot.path, shape)?;
        let (bound, limit) = admit::bound(&self.slots, &self.dims, &self.fleet, at, dim);
        let resource = self.dims.name(dim).clone();
        let shown = |amount| Quantity::from_nano(amount).shown_as(limit);
        let free = admit::headroom(&self.slots[at.index()], dim)?;
        Some(Reason::HeldBack {
            queue: slot.name.clone(),
            bound,
            asked: shape.minimum.get(resource.as_str()),
            resource,
            free: shown(free),
            kept: shown(self.taken(&heeded, at, dim).min(free)),
            position,
        })
    }

    /// A shape sleeps because of fences.
    pub(super) fn bind(&mut self, heeded: &[Scarce], node: Node, shape: ShapeId) {
        for cause in heeded {
            if let Some(fence) = self.fences.get_mut(*cause) {
                fence.bound.insert((node, shape));
            }
        }
    }

    fn unbind(&mut self, node: Node, shape: ShapeId) {
        for cause in self.fences.on(&self.slots[node.index()].path) {
            if let Some(fence) = self.fences.get_mut(cause) {
                fence.bound.remove(&(node, shape));
            }
        }
    }
}

/// Who gets one.
impl Engine {
    /// Looks again at everything that holds jobs up and changed, or has done so for long enough; true if somebody woke.
    pub(super) fn refence(&mut self, room: &mut impl Room) -> bool {
        let Some(patience) = self.patience else { return false };
        let mut woke = false;
        let mut rooms = false;
        for cause in self.fences.take_dirty(self.now) {
            match cause {
                Scarce::Quota(..) => woke |= self.refence_quota(cause, patience),
                Scarce::Room(_) => rooms = true,
            }
        }
        woke | (rooms && self.refence_rooms(patience, room))
    }

    fn refence_quota(&mut self, cause: Scarce, patience: i64) -> bool {
        let Scarce::Quota(at, _) = cause else { return false };
        let claimant = self.claim.as_ref().and_then(|id| self.waiting(id.as_str()));
        let claimant = claimant.filter(|sleeper| self.fences.is_asleep(cause, sleeper));
        let ranked = self.fences.ranked(cause).take(LOOKS).cloned();
        let first = claimant.into_iter().chain(ranked).find(|(_, node, shape)| self.can_start(*node, *shape));
        let holder = first.and_then(|(rank, node, shape)| {
            let patience = if self.claim.as_ref() == Some(&rank.id) { 0 } else { patience };
            let since = rank.created.saturating_add(patience);
            (since <= self.now).then_some((rank, node, shape, since)).or_else(|| {
                self.fences.later(since, cause);
                None
            })
        });
        let Some((rank, node, shape, since)) = holder else { return self.unfence(cause) };
        if self.fences.get(cause).is_some_and(|fence| fence.rank == rank && fence.shape == shape) {
            return false;
        }
        let mut woke = self.unfence(cause);
        if let Some(other) = self.fences.cause_of(rank.id.as_str()) {
            woke |= self.unfence(other);
        }
        self.fences.add(cause, self.fence(rank, node, shape, since, at));
        woke
    }

    /// Up to the highest ceiling that is short now, at least up to this one.
    fn fence(&self, rank: Seniority, node: Node, shape: ShapeId, since: i64, up_to: Node) -> Fence {
        let path = &self.slots[node.index()].path;
        let asked = &self.shape(shape).sparse;
        let is_short = |at: &Node| admit::first_short(&self.slots, &[*at], asked).is_some();
        let high = path.iter().rposition(|at| *at == up_to || is_short(at)).unwrap_or(0);
        Fence {
            rank,
            shape,
            nodes: path[..=high].into(),
            asked: self.shape(shape).sparse.clone(),
            kept: None,
            since,
            bound: std::collections::BTreeSet::new(),
            shadow: std::cell::Cell::default(),
        }
    }

    /// Whether a shape could start if nothing else were charged: a fence for one that can not would be for ever.
    fn can_start(&self, node: Node, shape: ShapeId) -> bool {
        let empty = |at: &Node, dim| {
            let slot = &self.slots[at.index()];
            admit::headroom(slot, dim).map(|room| room + slot.used.get(dim))
        };
        let path = &self.slots[node.index()].path;
        self.shape(shape)
            .sparse
            .iter()
            .all(|(dim, asked)| path.iter().all(|at| empty(at, *dim).is_none_or(|ceiling| *asked <= ceiling)))
    }

    /// Clusters are kept for the first in rank that lack room, as long as they do not lack the same.
    fn refence_rooms(&mut self, patience: i64, room: &mut impl Room) -> bool {
        let mut wanted: Vec<(Seniority, Node, ShapeId, i64, Kept)> = Vec::new();
        let claimant = self.claim.as_ref().and_then(|id| self.waiting(id.as_str()));
        let claimant = claimant.filter(|sleeper| self.fences.is_asleep(Scarce::Room(0), sleeper));
        let mut ranked: Vec<(Seniority, Node, ShapeId)> = self
            .fences
            .ranked(Scarce::Room(0))
            .take(LOOKS)
            .filter(|one| claimant.as_ref() != Some(one))
            .cloned()
            .collect();
        ranked.splice(0..0, claimant);
        for (rank, node, shape) in ranked {
            let patience = if self.claim.as_ref() == Some(&rank.id) { 0 } else { patience };
            let since = rank.created.saturating_add(patience);
            if since > self.now {
                self.fences.later(since, Scarce::Room(0));
                continue;
            }
            let asks = |name: &ResourceName| !self.shape(shape).minimum.get(name.as_str()).is_zero();
            let behind = wanted.iter().any(|(.., kept)| kept.resources.iter().any(asks));
            if behind || wanted.len() >= usize::from(ROOMS) {
                continue;
            }
            // The same one keeps the same clusters: a drain that moves never ends.
            let had = self.fences.cause_of(rank.id.as_str()).and_then(|cause| self.fences.get(cause)?.kept.clone());
            let ask = std::sync::Arc::clone(&self.shape(shape).ask);
            if let Some(kept) = had.or_else(|| room.keep(&rank.id, &ask)) {
                wanted.push((rank, node, shape, since, kept));
            }
        }
        let has = |fence: Option<&Fence>| fence.map(|fence| (fence.rank.clone(), fence.kept.clone()));
        let same = (0..ROOMS).all(|i| {
            let wanted = wanted.get(usize::from(i)).map(|(rank, .., kept)| (rank.clone(), Some(kept.clone())));
            has(self.fences.get(Scarce::Room(i))) == wanted
        });
        if same {
            return false;
        }
        for i in 0..ROOMS {
            self.unfence(Scarce::Room(i));
        }
        for (i, (rank, node, shape, since, kept)) in (0..ROOMS).zip(wanted) {
            if let Some(other) = self.fences.cause_of(rank.id.as_str()) {
                self.unfence(other);
            }
            // Its quota is there now, and has to be when there is room.
            let fence = Fence { kept: Some(kept), ..self.fence(rank, node, shape, since, Node::ROOT) };
            self.fences.add(Scarce::Room(i), fence);
        }
        // Other clusters are kept than when the rest were told no.
        self.room_grew();
        true
    }

    /// Takes a fence away; true if that woke somebody.
    pub(super) fn unfence(&mut self, cause: Scarce) -> bool {
        let Some(fence) = self.fences.remove(cause) else { return false };
        self.fences.dirty.insert(cause);
        let woke = !fence.bound.is_empty() || fence.kept.is_some();
        for (node, shape) in fence.bound {
            self.wake(node, shape);
        }
        if fence.kept.is_some() {
            self.room_grew();
        }
        woke
    }

    /// The tree, or who goes before whom, is another one: fences are worked out anew.
    pub(super) fn wake_fenced(&mut self) {
        if self.fences.iter().any(|(_, fence)| fence.kept.is_some()) {
            self.room_grew();
        }
        let fences = std::mem::take(&mut self.fences);
        for (node, shape) in fences.iter().flat_map(|(_, fence)| &fence.bound) {
            self.wake(*node, *shape);
        }
        if self.patience.is_none() {
            return;
        }
        let asleep = self.short.iter().flat_map(|((at, dim), sleepers)| {
            sleepers.iter().map(|(_, node, shape)| (Scarce::Quota(*at, *dim), *node, *shape))
        });
        let roomless = self.no_room.values().filter(|no_room| !no_room.never).flat_map(|no_room| &no_room.sleepers);
        let all: Vec<(Scarce, Node, ShapeId)> =
            asleep.chain(roomless.map(|(node, shape)| (Scarce::Room(0), *node, *shape))).collect();
        for (cause, node, shape) in all {
            if let Some(entry) = self.sleeper(node, shape) {
                self.fences.slept(cause, entry);
            }
        }
    }

    /// A job is no longer blocked, or gone.
    pub(super) fn unfence_job(&mut self, id: &str) {
        if let Some(cause) = self.fences.cause_of(id) {
            self.unfence(cause);
        }
    }
}

/// Sleeping and waking, with what fences remember of it.
impl Engine {
    pub(super) fn sleep(&mut self, node: Node, shape: ShapeId, bed: Bed) {
        self.slots[node.index()].line.sleep(shape, bed);
        // Whether it ever fits is asked after its quota was kept for it: for nothing, as it turns out.
        if let (Bed::Never, Some((rank, ..))) = (bed, self.sleeper(node, shape)) {
            self.unfence_job(rank.id.as_str());
        }
        if let (Some(cause), Some(entry)) = (bed.cause(), self.sleeper(node, shape)) {
            // A holder that is short of something else now takes its fence along, before anybody else is looked at.
            if let (Some(had), Scarce::Quota(at, _)) = (self.fences.cause_of(entry.0.id.as_str()), cause)
                && had != cause
                && let Some(old) = self.fences.get(had)
            {
                let fence = self.fence(old.rank.clone(), node, shape, old.since, at);
                let better = self.fences.get(cause).is_some_and(|other| other.rank < fence.rank);
                self.unfence(had);
                if !better {
                    self.unfence(cause);
                    self.fences.add(cause, fence);
                }
            }
            if self.patience.is_some() {
                self.fences.slept(cause, entry);
            }
        }
        self.refresh_head(node);
    }

    pub(super) fn wake(&mut self, node: Node, shape: ShapeId) {
        let entry = self.sleeper(node, shape);
        let Some(bed) = self.slots[node.index()].line.wake(shape) else { return };
        match (bed, bed.cause(), entry) {
            (_, Some(cause), Some(entry)) => self.fences.woke(cause, &entry),
            (Bed::Fenced(..), ..) => self.unbind(node, shape),
            _ => {}
        }
        if let Bed::Quota(at, dim, asked) | Bed::Fenced(at, dim, asked) = bed
            && let Some(sleepers) = self.short.get_mut(&(at, dim))
        {
            sleepers.remove(&(asked, node, shape));
        }
        self.refresh_head(node);
    }

    /// A job in line, as it ranks.
    fn waiting(&self, id: &str) -> Option<(Seniority, Node, ShapeId)> {
        let Some(Standing::Waiting { node, key, shape, .. }) = self.jobs.get(id) else { return None };
        Some((self.seniority(*node, key), *node, *shape))
    }

    /// The first job of a shape in line, as it ranks.
    fn sleeper(&self, node: Node, shape: ShapeId) -> Option<(Seniority, Node, ShapeId)> {
        let first = self.slots[node.index()].line.first_of(shape)?;
        Some((self.seniority(node, first), node, shape))
    }

    /// The first job of a shape that sleeps is another one now.
    pub(super) fn first_changed(&mut self, node: Node, shape: ShapeId, old: &JobKey) {
        let Some(bed) = self.slots[node.index()].line.bed(shape) else { return };
        let old = (self.seniority(node, old), node, shape);
        match (bed.cause(), self.sleeper(node, shape)) {
            (Some(cause), Some(new)) => {
                self.fences.woke(cause, &old);
                if self.patience.is_some() {
                    self.fences.slept(cause, new);
                }
            }
            // The new one may overrule what held the old one back.
            (None, Some(_)) => self.wake(node, shape),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests;
