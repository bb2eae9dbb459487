//! The queue engine: who waits, who holds what, and who may start next.
//!
//! Fed by facts ([`Engine::wait`], [`Engine::hold`], [`Engine::forget`], queues, the fleet), asked by
//! [`Engine::next`], one release at a time, so that the order is made anew after each. Nothing is scanned: a shape of job
//! that does not fit sleeps on the one ceiling it would break, sorted by how much it needs, and freed capacity wakes
//! exactly those that it satisfies. The verdicts are those of looking at every job again after every event
//! (`tests/model.rs` holds the engine against that).

mod entitlement;
mod fences;
mod order;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

pub use entitlement::Entitlement;

use super::{
    admit::{self, Ask, FitClass, Shape},
    dense::{Dim, Dims, Sparse},
    fence::{Fences, Scarce},
    line::{Bed, ShapeId},
    order::{JobId, JobKey, OrderPolicy},
    room::{Asked, Fit, Kept, Room},
    spec::{Dequeue, Fleet, QueueSpec},
    tournament::{Touch, Tournament},
    tree::{self, Node, Slot},
};
pub use fences::Reservation;

use crate::{
    admission::Admission,
    gang::QueueName,
    quantity::Quantity,
    reason::{Position, QueueProblem, Reason},
    resources::Resources,
};

/// A job in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Who.
    pub id: JobId,
    /// Where.
    pub queue: QueueName,
    /// Larger goes first.
    pub priority: i32,
    /// Seconds since 1970; it keeps its age whatever happens to it.
    pub created: i64,
    /// Seconds since 1970 by when it should have started: those with a deadline go first, the earliest before others.
    pub deadline: Option<i64>,
    /// For what.
    pub ask: Arc<Ask>,
}

/// A job that may start: the engine counts it as admitted from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Who.
    pub id: JobId,
    /// What was granted.
    pub admission: Admission,
}

/// What a queue holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Charged, with all queues below.
    pub used: Resources,
    /// Jobs in this queue's own line.
    pub waiting: usize,
}

#[derive(Debug, Clone)]
enum Standing {
    Waiting { node: Node, key: JobKey, shape: ShapeId, rank: Rank },
    Holding { node: Node, charge: Sparse, end: Option<i64> },
}

/// What a job says about its place, whether or not the policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rank {
    priority: i32,
    deadline: Option<i64>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Engine {
    policy: OrderPolicy,
    dims: Dims,
    fleet: Fleet,
    slots: Vec<Slot>,
    index: BTreeMap<QueueName, Node>,
    unused: Vec<Node>,
    /// Queues or the fleet changed since the tree was worked out.
    stale: bool,
    /// Of that: queues, or who goes before whom.
    replanted: bool,
    jobs: HashMap<JobId, Standing>,
    /// Those without users are free for reuse.
    shapes: Vec<Shape>,
    shape_ids: HashMap<Arc<Ask>, ShapeId>,
    unused_shapes: Vec<ShapeId>,
    /// The next job of every queue that has one.
    heads: Tournament,
    /// Sleeping shapes by the ceiling they would break and how much they need.
    short: BTreeMap<(Node, Dim), Sleepers>,
    /// Classes that fit nowhere now, with the shapes that sleep on it.
    no_room: BTreeMap<FitClass, NoRoom>,
    fences: Fences,
    /// Seconds since 1970.
    now: i64,
    /// Seconds that a job is blocked before its place is kept.
    patience: Option<i64>,
    /// Whose place is kept at once.
    claim: Option<JobId>,
    /// Counts changes of what is charged.
    books: u64,
}

/// Seconds that a blocked job waits before its place is kept, unless [`Engine::set_patience`] says otherwise.
pub const PATIENCE: i64 = 60;

/// How much each needs, and which it is.
type Sleepers = BTreeSet<(i128, Node, ShapeId)>;

#[derive(Debug, Clone)]
struct NoRoom {
    never: bool,
    detail: String,
    sleepers: BTreeSet<(Node, ShapeId)>,
}

impl Default for Engine {
    fn default() -> Self {
        let root = QueueName::from(tree::ROOT);
        Self {
            policy: OrderPolicy::default(),
            dims: Dims::default(),
            fleet: Fleet::default(),
            slots: vec![Slot::new(root.clone(), Node::ROOT)],
            index: [(root, Node::ROOT)].into(),
            unused: Vec::new(),
            stale: false,
            replanted: false,
            jobs: HashMap::new(),
            shapes: Vec::new(),
            shape_ids: HashMap::new(),
            unused_shapes: Vec::new(),
            heads: Tournament::default(),
            short: BTreeMap::new(),
            no_room: BTreeMap::new(),
            fences: Fences::default(),
            now: 0,
            patience: Some(PATIENCE),
            claim: None,
            books: 0,
        }
    }
}

/// Facts in.
impl Engine {
    /// A queue was created or changed.
    pub fn set_queue(&mut self, spec: QueueSpec) {
        let node = self.node(&spec.name);
        let slot = &mut self.slots[node.index()];
        if slot.spec.as_ref() != Some(&spec) {
            slot.spec = Some(spec);
            (self.stale, self.replanted) = (true, true);
        }
    }

    /// A queue is gone. Its jobs stay: those that hold are still charged, those that wait say why.
    pub fn remove_queue(&mut self, name: &QueueName) {
        if let Some(node) = self.index.get(name) {
            let was = self.slots[node.index()].spec.take().is_some();
            (self.stale, self.replanted) = (self.stale | was, self.replanted | was);
        }
    }

    /// What the clusters have all together.
    pub fn set_fleet(&mut self, fleet: Fleet) {
        if self.fleet != fleet {
            self.fleet = fleet;
            self.stale = true;
        }
    }

    /// Somewhere there may be more room than before: everything that fitted nowhere is asked about again.
    pub fn room_grew(&mut self) {
        for (_, no_room) in std::mem::take(&mut self.no_room) {
            for (node, shape) in no_room.sleepers {
                self.wake(node, shape);
            }
        }
    }

    /// A job is in line (again). It keeps its place if nothing about it changed.
    pub fn wait(&mut self, job: Job) {
        let rank = Rank { priority: job.priority, deadline: job.deadline };
        let key = self.key(job.id.clone(), job.created, rank);
        let node = self.node(&job.queue);
        if let Some(Standing::Waiting { node: was, key: had, shape, rank: ranked }) = self.jobs.get(&job.id)
            && *was == node
            && (had, *ranked) == (&key, rank)
            && self.shape(*shape).ask == job.ask
        {
            return;
        }
        self.forget(job.id.as_str());
        let shape = self.intern(job.ask);
        let first = self.slots[node.index()].line.first_of(shape).cloned();
        self.slots[node.index()].line.insert(key.clone(), shape);
        if let Some(first) = first.filter(|first| key < *first) {
            self.first_changed(node, shape, &first);
        }
        self.jobs.insert(job.id, Standing::Waiting { node, key, shape, rank });
        self.refresh_head(node);
    }

    /// A job holds `charge` of a queue, whether or not it ever waited here.
    pub fn hold(&mut self, id: &JobId, queue: &QueueName, charge: &Resources) {
        let node = self.node(queue);
        let charge = self.dims.sparse(charge);
        match self.jobs.get_mut(id) {
            Some(Standing::Holding { node: was, charge: had, .. }) if *was == node => {
                if *had != charge {
                    let had = std::mem::replace(had, charge.clone());
                    self.charge(node, &charge);
                    self.give_back(node, &had);
                }
            }
            _ => {
                self.charge(node, &charge);
                self.forget(id.as_str());
                self.jobs.insert(id.clone(), Standing::Holding { node, charge, end: None });
            }
        }
    }

    /// A job is gone, or not ours to decide about: it neither waits nor holds.
    pub fn forget(&mut self, id: &str) {
        match self.jobs.remove(id) {
            None => {}
            Some(Standing::Holding { node, charge, .. }) => self.give_back(node, &charge),
            Some(Standing::Waiting { node, key, shape, .. }) => {
                self.unfence_job(id);
                self.leave_line(node, &key);
                self.release_shape(shape);
                self.refresh_head(node);
            }
        }
    }
}

/// Decisions out.
impl Engine {
    /// The next job that may start, if any: the first in order whose minimum stays within every ceiling on the way up
    /// and for which `fit` says yes. `fit` is asked at most once for each class until [`Engine::room_grew`] after it
    /// said no, and again for each job of a class while it says yes.
    pub fn next(&mut self, fit: impl FnMut(&JobId, &Ask) -> Fit) -> Option<Release> {
        self.next_in(&mut Asked(fit))
    }

    /// The same, where clusters can be kept for a job that lacks room.
    pub fn next_in(&mut self, room: &mut impl Room) -> Option<Release> {
        self.settle();
        if self.fences.due().is_some_and(|due| due <= self.now) {
            self.refence(room);
        }
        // Fences that were taken away may let others start, who end with new ones: twice is enough, the rest can wait.
        for _ in 0..2 {
            if let Some(release) = self.next_awake(room) {
                return Some(release);
            }
            if !self.refence(room) {
                return None;
            }
        }
        self.next_awake(room)
    }

    fn next_awake(&mut self, room: &mut impl Room) -> Option<Release> {
        loop {
            let node = self.first_queue()?;
            let (key, id) = self.candidate(node)?;
            let path = &self.slots[node.index()].path;
            if let Some((at, dim, asked)) = admit::first_short(&self.slots, path, &self.shape(id).sparse) {
                self.short.entry((at, dim)).or_default().insert((asked, node, id));
                self.sleep(node, id, Bed::Quota(at, dim, asked));
                continue;
            }
            let heeded = self.heeded(node, &key, id);
            let path = &self.slots[node.index()].path;
            if let Some((at, dim, needed)) = self.fenced_short(&heeded, path, self.shape(id)) {
                self.short.entry((at, dim)).or_default().insert((needed, node, id));
                self.bind(&heeded, node, id);
                self.sleep(node, id, Bed::Fenced(at, dim, needed));
                continue;
            }
            let class = self.shape(id).ask.fit;
            let never = match self.no_room.get(&class) {
                Some(known) => known.never,
                None => match self.fits(room, node, &key, id) {
                    Fit::Yes => return Some(self.release(node, &key, id, &heeded)),
                    Fit::No { never, detail } => {
                        self.no_room.insert(class, NoRoom { never, detail, sleepers: BTreeSet::new() });
                        never
                    }
                },
            };
            if let Some(no_room) = self.no_room.get_mut(&class) {
                no_room.sleepers.insert((node, id));
            }
            self.sleep(node, id, if never { Bed::Never } else { Bed::Room });
        }
    }

    fn fits(&self, room: &mut impl Room, node: Node, key: &JobKey, id: ShapeId) -> Fit {
        let causes = self.fences.keeping(&self.seniority(node, key));
        let kept: Vec<&Kept> = causes.iter().filter_map(|cause| self.fences.get(*cause)?.kept.as_ref()).collect();
        room.fits(&key.id, &self.shape(id).ask, &kept)
    }

    /// Works out the tree anew if queues or the fleet changed; [`Engine::next`] does so first.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.drop_unused();
        tree::resolve(&mut self.slots, &self.index, &mut self.dims, &self.fleet);
        if std::mem::take(&mut self.replanted) {
            self.wake_fenced();
        }
        self.fences.doubt_all();
        self.wake_after_settling();
        self.restart_order();
    }

    fn candidate(&self, node: Node) -> Option<(JobKey, ShapeId)> {
        let slot = &self.slots[node.index()];
        let dequeue = slot.spec.as_ref().map_or(Dequeue::Traverse, |spec| spec.dequeue);
        slot.line.candidate(dequeue).map(|(key, shape)| (key.clone(), shape))
    }

    fn release(&mut self, node: Node, key: &JobKey, id: ShapeId, heeded: &[Scarce]) -> Release {
        let shape = &self.shapes[id.0 as usize];
        let slot = &self.slots[node.index()];
        let (pods, charged) = shape.grant(&slot.path, |at, dim| {
            Some(admit::headroom(&self.slots[at.index()], dim)? - self.taken(heeded, at, dim))
        });
        let charge = if shape.is_rigid() { shape.sparse.clone() } else { self.dims.sparse(&charged) };
        let (queue, copies) = (slot.name.clone(), shape.ask.copies);
        let tasks = shape.ask.tasks.iter().zip(pods).map(|(task, pods)| (task.name.clone(), pods)).collect();
        self.unfence_job(key.id.as_str());
        self.leave_line(node, key);
        self.release_shape(id);
        self.charge(node, &charge);
        let priority = match self.jobs.insert(key.id.clone(), Standing::Holding { node, charge, end: None }) {
            Some(Standing::Waiting { rank, .. }) => rank.priority,
            _ => key.priority.0,
        };
        Release { id: key.id.clone(), admission: Admission { queue, priority, copies, tasks, charged } }
    }
}

/// Questions. They answer for the state after the last [`Engine::next`] or [`Engine::settle`].
impl Engine {
    /// What a queue holds.
    #[must_use]
    pub fn usage(&self, queue: &QueueName) -> Usage {
        let Some(node) = self.index.get(queue) else { return Usage::default() };
        let slot = &self.slots[node.index()];
        Usage { used: slot.used.resources(&self.dims), waiting: slot.line.len() }
    }

    /// All queues with a spec, in the order of their names.
    pub fn queues(&self) -> impl Iterator<Item = &QueueSpec> {
        self.index.values().filter_map(|node| self.slots[node.index()].spec.as_ref())
    }

    /// Why no job of this queue may start, if so.
    #[must_use]
    pub fn queue_problem(&self, queue: &QueueName) -> Option<QueueProblem> {
        match self.index.get(queue) {
            Some(node) => self.slots[node.index()].problem.clone(),
            None => Some(QueueProblem::Missing),
        }
    }

    /// Why a job still waits; `None` if it does not.
    #[must_use]
    pub fn why(&self, id: &str) -> Option<Reason> {
        let Some(Standing::Waiting { node, key, .. }) = self.jobs.get(id) else { return None };
        let line = &self.slots[node.index()].line;
        self.why_at(id, Position { place: line.before(key) + 1, of: line.len() })
    }

    /// All lines, queue by queue, in order.
    pub fn lines(&self) -> impl Iterator<Item = (&JobId, Position)> {
        self.index.values().flat_map(|node| {
            let line = &self.slots[node.index()].line;
            line.keys().enumerate().map(|(i, key)| (&key.id, Position { place: i + 1, of: line.len() }))
        })
    }

    /// The first jobs of each line, at most `each` of them.
    pub fn heads(&self, each: usize) -> impl Iterator<Item = (&JobId, Position)> {
        self.index.values().flat_map(move |node| {
            let line = &self.slots[node.index()].line;
            let of = line.len();
            line.keys().take(each).enumerate().map(move |(i, key)| (&key.id, Position { place: i + 1, of }))
        })
    }

    /// [`Engine::why`] for a job whose position is known.
    #[must_use]
    pub fn why_at(&self, id: &str, position: Position) -> Option<Reason> {
        let Some(Standing::Waiting { node, key, shape: shape_id, .. }) = self.jobs.get(id) else { return None };
        let (slot, shape) = (&self.slots[node.index()], self.shape(*shape_id));
        let queue = slot.name.clone();
        if let Some(problem) = slot.problem.clone() {
            return Some(Reason::Queue { queue, problem });
        }
        if let Some(never) = admit::never(&self.slots, &self.dims, &self.fleet, *node, shape) {
            return Some(never);
        }
        if self.fleet.ready_clusters == 0 {
            return Some(Reason::NoReadyCluster { position });
        }
        if let Some((at, dim, _)) = admit::first_short(&self.slots, &slot.path, &shape.sparse) {
            let (bound, limit) = admit::bound(&self.slots, &self.dims, &self.fleet, at, dim);
            let name = self.dims.name(dim);
            let asked = shape.minimum.get(name.as_str());
            let used = Quantity::from_nano(self.slots[at.index()].used.get(dim)).shown_as(limit);
            return Some(Reason::Quota { queue, bound, resource: name.clone(), asked, used, limit, position });
        }
        if let Some(held_back) = self.held_back(*node, key, *shape_id, position) {
            return Some(held_back);
        }
        if let Some(NoRoom { never, detail, .. }) = self.no_room.get(&shape.ask.fit) {
            let detail = detail.clone();
            return Some(if *never {
                Reason::NeverFits { detail }
            } else {
                Reason::NoRoom { queue, detail, position }
            });
        }
        let fifo = slot.spec.as_ref().is_some_and(|spec| spec.dequeue == Dequeue::Fifo);
        let behind = fifo && !slot.line.is_first(key);
        Some(if behind { Reason::BehindHead { queue, position } } else { Reason::Next { queue, position } })
    }

    /// What a job is charged; `None` if it holds nothing.
    #[must_use]
    pub fn charge_of(&self, id: &str) -> Option<Resources> {
        match self.jobs.get(id)? {
            Standing::Holding { charge, .. } => Some(
                charge
                    .iter()
                    .map(|(dim, amount)| (self.dims.name(*dim).clone(), self.dims.name(*dim).amount(*amount)))
                    .collect(),
            ),
            Standing::Waiting { .. } => None,
        }
    }

    /// Rows in the engine's tables, used or free; for tests of what it leaves behind.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.slots.len() + self.shapes.len()
    }

    /// True while a job is in line.
    #[must_use]
    pub fn is_waiting(&self, id: &str) -> bool {
        matches!(self.jobs.get(id), Some(Standing::Waiting { .. }))
    }
}

/// Bookkeeping.
impl Engine {
    fn node(&mut self, name: &QueueName) -> Node {
        if let Some(node) = self.index.get(name) {
            return *node;
        }
        let node = self.unused.pop().unwrap_or(Node(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        let slot = Slot::new(name.clone(), node);
        match self.slots.get_mut(node.index()) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        self.index.insert(name.clone(), node);
        node
    }

    /// Forgets names that neither a queue nor a job has any more.
    fn drop_unused(&mut self) {
        let held: BTreeSet<Node> = self
            .jobs
            .values()
            .map(|standing| match standing {
                Standing::Waiting { node, .. } | Standing::Holding { node, .. } => *node,
            })
            .collect();
        let (slots, unused) = (&self.slots, &mut self.unused);
        self.index.retain(|_, node| {
            let used = *node == Node::ROOT || slots[node.index()].spec.is_some() || held.contains(node);
            if !used {
                unused.push(*node);
            }
            used
        });
    }

    fn shape(&self, id: ShapeId) -> &Shape {
        &self.shapes[id.0 as usize]
    }

    fn intern(&mut self, ask: Arc<Ask>) -> ShapeId {
        let id = match self.shape_ids.get(&ask) {
            Some(id) => *id,
            None => {
                let shape = Shape::new(Arc::clone(&ask), &mut self.dims);
                let new = ShapeId(u32::try_from(self.shapes.len()).unwrap_or(u32::MAX));
                let id = self.unused_shapes.pop().unwrap_or(new);
                match self.shapes.get_mut(id.0 as usize) {
                    Some(free) => *free = shape,
                    None => self.shapes.push(shape),
                }
                self.shape_ids.insert(ask, id);
                id
            }
        };
        self.shapes[id.0 as usize].users += 1;
        id
    }

    fn release_shape(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id.0 as usize];
        shape.users -= 1;
        if shape.users == 0 {
            self.shape_ids.remove(&shape.ask);
            self.unused_shapes.push(id);
        }
    }

    fn leave_line(&mut self, node: Node, key: &JobKey) {
        let line = &self.slots[node.index()].line;
        let Some(shape) = line.shape_of(key) else { return };
        let was_first = line.first_of(shape) == Some(key);
        let alone = line.count_of(shape) == 1;
        if alone {
            // Nobody is left to sleep: what is remembered of it goes first.
            self.wake(node, shape);
        }
        self.slots[node.index()].line.remove(key);
        let class = self.shape(shape).ask.fit;
        if let (true, Some(no_room)) = (alone, self.no_room.get_mut(&class)) {
            no_room.sleepers.remove(&(node, shape));
        }
        if was_first && !alone {
            self.first_changed(node, shape, key);
        }
    }

    fn charge(&mut self, node: Node, amounts: &[(Dim, i128)]) {
        self.books += 1;
        self.slots[node.index()].own.add(amounts);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            self.slots[at.index()].used.add(amounts);
        }
        self.heads.touch(node, Touch::Share);
    }

    fn give_back(&mut self, node: Node, amounts: &[(Dim, i128)]) {
        self.books += 1;
        self.slots[node.index()].own.sub(amounts);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            self.slots[at.index()].used.sub(amounts);
        }
        self.heads.touch(node, Touch::Share);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            for (dim, _) in amounts {
                self.wake_short(at, *dim);
            }
        }
    }

    /// Wakes the shapes whose ceiling is no longer short, or no longer above them.
    fn wake_after_settling(&mut self) {
        let mut awake = Vec::new();
        for ((at, dim), sleepers) in &self.short {
            let room = admit::headroom(&self.slots[at.index()], *dim).unwrap_or(i128::MAX);
            let wakes = |(asked, node, _): &&(i128, Node, ShapeId)| {
                *asked <= room || !self.slots[node.index()].path.contains(at)
            };
            awake.extend(sleepers.iter().filter(wakes).map(|(_, node, shape)| (*node, *shape)));
        }
        for (node, shape) in awake {
            self.wake(node, shape);
        }
        self.short.retain(|_, sleepers| !sleepers.is_empty());
    }

    /// Wakes the shapes that what is free of `dim` at `at` now satisfies.
    fn wake_short(&mut self, at: Node, dim: Dim) {
        let room = admit::headroom(&self.slots[at.index()], dim).unwrap_or(i128::MAX);
        while let Some(sleepers) = self.short.get_mut(&(at, dim)) {
            match sleepers.first().copied() {
                Some(first @ (asked, node, shape)) if asked <= room => {
                    sleepers.remove(&first);
                    self.wake(node, shape);
                }
                Some(_) => return,
                None => {
                    self.short.remove(&(at, dim));
                }
            }
        }
    }
}
