//! Reservations: for which blocked job quota or capacity is kept, and which other jobs that blocks.
//!
//! Rule: EASY backfill with aging (Lifka, JSSPP'95; Mu'alem and Feitelson, TPDS'01), on resources instead of nodes,
//! as far as shares allow.
//!
//! *Who reserves.* Of the jobs of one queue that one ceiling blocks, the first in rank gets a reservation once it has
//! waited long enough or is at its deadline. Rank is priority, then age; a deadline counts for an hour of age at most.
//! Of a fifo queue only the head reserves. A job that may use several card models holds one reservation, on the first
//! of them on which it would get one. From its own queue up to the ceiling that is short, its demand counts as
//! taken.
//!
//! *Whom it blocks.* Its own queue, always. Queues beside its own, and beside those above it, only if each of its
//! queues below the common one has nothing else of the scarce resource, or stays within what it deserves of it with
//! the reserving job started. Of several reservations that reach equally far the first in rank counts. A job of
//! strictly higher priority is not blocked. Nor is one that is known to end before the reserving job could start: it
//! is backfilled. A reserving job is blocked only by reservations of better rank, so two never wait for each other.
//! Under an order that knows no shares every reservation reaches all the way up.
//!
//! *Why nobody starves.* Waiting long gives a queue nothing that others deserve. In its own queue every job ranks first
//! at some time. Then the queue starts nothing more that asks for the scarce resource, so its use of that only shrinks:
//! within the longest run there it is within what it deserves, or has nothing. The same holds for each queue above.
//! After that only jobs go first that are within as well and rank better, and these do not become more. What a job gets
//! that way that asks for more than its queue deserves is one turn: it starts when its queue has nothing else.
//!
//! *What it costs.* At most one reserving job's demand for each ceiling and resource stands idle. A job that lacks
//! capacity reserves clusters and resources in the same way. As long as the fleet has as much idle as it asks for,
//! that is nobody's share, and its clusters are kept from everybody for a hold window
//! ([`cluster_hold`]). Otherwise, while it is not within, its own queue waits for it everywhere
//! and no cluster is kept. Reservations follow from who waits, for how long, and what queues hold, and from nothing
//! else: a restart makes the same ones.

pub(crate) mod blocked;
pub(crate) mod cluster_hold;
mod rank;
mod shortages;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use crate::{
    queue::{
        capacity::ReservedClusters,
        pending::{
            inadmissible::{Inadmissible, KeptCause},
            job_order::JobId,
            shape_table::ShapeId,
        },
        quota::{
            amount::Amount,
            amounts::{Dim, Sparse, find_amount},
            slot::QueueIndex,
        },
        reservation::{blocked::Blocked, cluster_hold::ClusterHold},
    },
    time::EpochSeconds,
};

pub(crate) use rank::ReservationRank;

/// Seconds that a blocked job waits before it gets a reservation, unless `Engine::set_reservation_after` or
/// its queue says otherwise.
pub const RESERVATION_AFTER: i64 = 60;

/// What blocks the reserving job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReservationCause {
    /// A resource under a queue's ceiling.
    Quota(QueueIndex, Dim),
    /// Capacity in clusters; there can be several that do not lack the same.
    Capacity(u8),
    /// It is in backoff; jobs of lower priority wait for it.
    Backoff,
}

impl ReservationCause {
    const FIRST: Self = Self::Quota(QueueIndex::ROOT, Dim::FIRST);
    const LAST: Self = Self::Backoff;
}

impl Inadmissible {
    /// The shortage that a reservation for the shape would be about. For a place among those that run none is made:
    /// every job needs one, so nobody is passed by for its size.
    pub(crate) fn reservation_cause(self) -> Option<ReservationCause> {
        match self {
            Self::Quota(_, dim, _) if dim.counts_jobs() => None,
            Self::Quota(at, dim, _) => Some(ReservationCause::Quota(at, dim)),
            Self::Capacity => Some(ReservationCause::Capacity(0)),
            Self::Kept(KeptCause::Held(dim)) => Some(ReservationCause::Quota(QueueIndex::ROOT, dim)),
            Self::Reserved(..) | Self::BehindReservation(_) | Self::Kept(_) | Self::Never => None,
        }
    }
}

/// One reservation: there is at most one for each ceiling (or slot) and queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationId {
    pub(crate) cause: ReservationCause,
    /// The reserving job's.
    pub(crate) queue: QueueIndex,
}

/// The order in which reservations count: the preemptor's first, then by rank.
type Turn = (bool, ReservationRank);

/// What is kept for one job.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub(crate) rank: ReservationRank,
    pub(crate) shape: ShapeId,
    /// The reserving job is the preemptor.
    pub(crate) preempts: bool,
    /// Where the demand counts as taken, from the job's queue up.
    pub(crate) nodes: Box<[QueueIndex]>,
    /// It blocks jobs below the node at this place.
    pub(crate) reach: usize,
    pub(crate) asked: Sparse,
    /// What there is too little of.
    pub(crate) scarce: Box<[Dim]>,
    pub(crate) kept: Option<ReservedClusters>,
    pub(crate) since: EpochSeconds,
    /// Shapes that it blocks.
    pub(crate) bound: BTreeSet<(QueueIndex, ShapeId)>,
    /// Those blocked by what a queue above them and the reserving job may have.
    pub(crate) behind: BTreeSet<(QueueIndex, ShapeId)>,
    /// Of all these, those who say how long they run.
    pub(crate) timed: BTreeSet<(QueueIndex, ShapeId)>,
    pub(crate) shadow: Cell<Option<Shadow>>,
}

/// When the reserving job can start at the latest, as it was worked out last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shadow {
    /// The states of the ledger_version and of the reservations, and the time, for which it is so.
    pub(crate) of: (u64, u64, EpochSeconds),
    /// `None` if that is not known.
    pub(crate) start: Option<EpochSeconds>,
}

impl Reservation {
    /// What of a resource counts as taken at a queue.
    pub(crate) fn reserved_amount(&self, at: QueueIndex, dim: Dim) -> Amount {
        if self.nodes.contains(&at) { self.asked_amount(dim) } else { Amount::ZERO }
    }

    /// What the reserving job asks for.
    pub(crate) fn asked_amount(&self, dim: Dim) -> Amount {
        find_amount(&self.asked, dim).max(Amount::ZERO)
    }

    /// Shapes that it blocks.
    pub(crate) fn list_blocked_shapes(&self) -> impl Iterator<Item = (QueueIndex, ShapeId)> {
        self.bound.iter().chain(&self.behind).copied()
    }

    /// Those of one queue.
    pub(crate) fn list_blocked_shapes_at(&self, node: QueueIndex) -> impl Iterator<Item = ShapeId> {
        self.list_blocked_shapes().filter(move |(at, _)| *at == node).map(|(_, shape)| shape)
    }

    /// Whether it holds back everybody below the highest ceiling that is short.
    pub(crate) fn has_full_reach(&self) -> bool {
        self.reach + 1 == self.nodes.len()
    }

    /// Whether it blocks a job of this rank below its reach; `holder` is the job's own reservation.
    fn blocks_rank(&self, rank: &ReservationRank, reserving: Option<&Self>) -> bool {
        if self.rank.id.is_of_same_job(&rank.id) {
            return false;
        }
        match reserving {
            // Not even the preemptor's blocks a higher priority, whether or not that one has a reservation.
            Some(reserving) => self.order_key() < reserving.order_key() && !rank.outranks(&self.rank),
            None => !rank.outranks(&self.rank),
        }
    }

    fn order_key(&self) -> Turn {
        (!self.preempts, self.rank.clone())
    }
}

/// All reservations, and who would be next.
#[derive(Debug, Clone)]
pub(crate) struct Reservations {
    all: BTreeMap<ReservationId, Reservation>,
    /// For each node, those that reach it, by cause; the first of them counts.
    fronts: BTreeMap<(QueueIndex, ReservationCause), BTreeSet<(Turn, QueueIndex)>>,
    of: BTreeMap<JobId, ReservationId>,
    /// The reservations that block each shape.
    blocking: BTreeMap<(QueueIndex, ShapeId), Vec<ReservationId>>,
    blocked: Blocked,
    timed: BTreeSet<ReservationId>,
    /// Counts changes of which there are and how far they reach.
    pub(crate) version: u64,
    /// To be looked at again.
    pub(crate) dirty: BTreeSet<ReservationId>,
    /// To be worked out again once no admissible job is left.
    pub(crate) deferred: BTreeSet<ReservationId>,
    /// Queues that hold more or less than before.
    moved: BTreeSet<QueueIndex>,
    /// To be looked at again at a time.
    due: BTreeSet<(EpochSeconds, ReservationId)>,
    /// There are others than when this was last asked.
    pub(crate) changed: bool,
    /// Seconds that a job is blocked before it gets a reservation; `None`: nobody gets one.
    pub(crate) after: Option<i64>,
    /// The job that others are evicted for.
    pub(crate) preemptor: Option<JobId>,
    /// Of those who wait and clusters were kept for.
    pub(crate) holds: BTreeMap<JobId, ClusterHold>,
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            fronts: BTreeMap::new(),
            of: BTreeMap::new(),
            blocking: BTreeMap::new(),
            blocked: Blocked::default(),
            timed: BTreeSet::new(),
            version: 0,
            dirty: BTreeSet::new(),
            deferred: BTreeSet::new(),
            moved: BTreeSet::new(),
            due: BTreeSet::new(),
            changed: false,
            after: Some(RESERVATION_AFTER),
            preemptor: None,
            holds: BTreeMap::new(),
        }
    }
}

/// The reservations there are.
impl Reservations {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes all reservations, and forgets who would be next. What was set stays, and for whom clusters were held how
    /// long.
    pub(crate) fn take_all(&mut self) -> Self {
        let anew = Self {
            version: self.version + 1,
            changed: self.changed || !self.is_empty(),
            after: self.after,
            preemptor: self.preemptor.clone(),
            holds: std::mem::take(&mut self.holds),
            ..Self::default()
        };
        std::mem::replace(self, anew)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ReservationId, &Reservation)> {
        self.all.iter()
    }

    pub(crate) fn get(&self, id: ReservationId) -> Option<&Reservation> {
        self.all.get(&id)
    }

    /// Those about capacity in clusters.
    pub(crate) fn list_cluster_reservations(&self) -> Vec<ReservationId> {
        let [first, end] = [ReservationCause::Capacity(0), ReservationCause::Backoff]
            .map(|cause| ReservationId { cause, queue: QueueIndex::ROOT });
        self.all.range(first..end).map(|(id, _)| *id).collect()
    }

    /// Those that jobs of a shape hold in a queue, the first in rank first.
    pub(crate) fn of_shape(&self, node: QueueIndex, shape: ShapeId) -> Vec<ReservationId> {
        let own = self
            .list_reservations_by_cause_at(node)
            .map(|((_, cause), _)| ReservationId { cause: *cause, queue: node });
        let mut held: Vec<(ReservationId, &Reservation)> =
            own.filter_map(|id| Some((id, self.all.get(&id)?))).collect();
        held.retain(|(id, reservation)| reservation.shape == shape && id.cause != ReservationCause::Backoff);
        held.sort_by_key(|(_, reservation)| reservation.order_key());
        held.into_iter().map(|(id, _)| id).collect()
    }

    /// Those of a queue's own jobs.
    pub(crate) fn of_queue(&self, node: QueueIndex) -> Vec<ReservationId> {
        let own = self
            .list_reservations_by_cause_at(node)
            .map(|((_, cause), _)| ReservationId { cause: *cause, queue: node });
        own.filter(|id| self.all.contains_key(id)).collect()
    }

    /// The reservation that an entry of a job holds.
    pub(crate) fn held_by(&self, entry: &str) -> Option<ReservationId> {
        self.of.get(entry).copied()
    }

    /// The reservation that a job holds, and on which of its entries. A job holds one at most.
    pub(crate) fn held_by_job(&self, entry: &JobId) -> Option<(&JobId, ReservationId)> {
        let entries = self.of.range::<str, _>((Bound::Included(entry.job_name()), Bound::Unbounded));
        entries.map(|(held, id)| (held, *id)).next().filter(|(held, _)| held.is_of_same_job(entry))
    }

    /// Adds one; true if others no longer count because of it, which are then returned.
    pub(crate) fn add(&mut self, id: ReservationId, reservation: Reservation) -> Vec<ReservationId> {
        let mut behind = Vec::new();
        for node in &reservation.nodes[..=reservation.reach] {
            behind.extend(self.add_at_queue(*node, id, reservation.order_key()));
        }
        self.changed = true;
        self.version += 1;
        self.of.insert(reservation.rank.id.clone(), id);
        self.all.insert(id, reservation);
        behind
    }

    pub(crate) fn remove(&mut self, id: ReservationId) -> Option<Reservation> {
        let reservation = self.all.remove(&id)?;
        self.version += 1;
        self.timed.remove(&id);
        for node in &reservation.nodes[..=reservation.reach] {
            self.remove_at_queue(*node, id, &reservation.order_key());
        }
        self.changed = true;
        self.of.remove(&reservation.rank.id);
        Some(reservation)
    }

    /// Sets how far one reaches; those that no longer count as they did, itself among them.
    pub(crate) fn set_reach(&mut self, id: ReservationId, reach: usize) -> Vec<ReservationId> {
        let Some(reservation) = self.all.get_mut(&id) else { return Vec::new() };
        let (was, turn, nodes) = (reservation.reach, reservation.order_key(), reservation.nodes.clone());
        reservation.reach = reach;
        self.version += u64::from(was != reach);
        let mut behind = Vec::new();
        for node in nodes.iter().take(reach + 1).skip(was + 1) {
            behind.extend(self.add_at_queue(*node, id, turn.clone()));
        }
        for node in nodes.iter().take(was + 1).skip(reach + 1) {
            self.remove_at_queue(*node, id, &turn);
            behind.push(id);
        }
        behind
    }

    /// Reaches a node; the one that counted there before, if it does not any more.
    fn add_at_queue(&mut self, node: QueueIndex, id: ReservationId, turn: Turn) -> Option<ReservationId> {
        let front = self.fronts.entry((node, id.cause)).or_default();
        let first = front.first().filter(|(first, _)| turn < *first).map(|(_, queue)| *queue);
        front.insert((turn, id.queue));
        first.map(|queue| ReservationId { queue, ..id })
    }

    fn remove_at_queue(&mut self, node: QueueIndex, id: ReservationId, turn: &Turn) {
        if let Some(front) = self.fronts.get_mut(&(node, id.cause)) {
            front.remove(&(turn.clone(), id.queue));
            if front.is_empty() {
                self.fronts.remove(&(node, id.cause));
            }
        }
    }

    /// The reservations that block a job of this rank in the queue at the beginning of this path.
    pub(crate) fn list_reservations_blocking(&self, path: &[QueueIndex], rank: &ReservationRank) -> Vec<ReservationId> {
        let reserving = self.held_by_job(&rank.id).and_then(|(_, id)| self.all.get(&id));
        let (mut binding, mut seen) = (Vec::new(), BTreeSet::new());
        for node in path {
            for ((_, cause), front) in self.list_reservations_by_cause_at(*node) {
                let Some(queue) = front.first().map(|(_, queue)| *queue) else { continue };
                let id = ReservationId { cause: *cause, queue };
                let binds = |reservation: &Reservation| {
                    reservation.blocks_rank(rank, reserving)
                        && (*cause != ReservationCause::Backoff || reservation.rank.outranks(rank))
                };
                if self.all.get(&id).is_some_and(binds) && seen.insert(id) {
                    binding.push(id);
                }
            }
        }
        binding
    }

    /// These block a shape; `timed`: it says how long it runs.
    pub(crate) fn record_blocked(&mut self, blocking: &[ReservationId], node: QueueIndex, shape: ShapeId, timed: bool) {
        for id in blocking {
            if let Some(reservation) = self.all.get_mut(id) {
                reservation.bound.insert((node, shape));
            }
            self.record_timed_shape(*id, node, shape, timed);
        }
        self.blocking.insert((node, shape), blocking.to_vec());
    }

    /// A shape is blocked by what a queue above it and this one's job may have.
    pub(crate) fn record_blocked_by_share(&mut self, id: ReservationId, node: QueueIndex, shape: ShapeId, timed: bool) {
        if let Some(reservation) = self.all.get_mut(&id) {
            reservation.behind.insert((node, shape));
        }
        self.record_timed_shape(id, node, shape, timed);
        self.blocking.insert((node, shape), vec![id]);
    }

    /// It does not any more.
    pub(crate) fn unblock_shape(&mut self, node: QueueIndex, shape: ShapeId) {
        for id in self.blocking.remove(&(node, shape)).into_iter().flatten() {
            if let Some(reservation) = self.all.get_mut(&id) {
                reservation.bound.remove(&(node, shape));
                reservation.behind.remove(&(node, shape));
            }
            self.record_timed_shape(id, node, shape, false);
        }
    }

    fn record_timed_shape(&mut self, id: ReservationId, node: QueueIndex, shape: ShapeId, timed: bool) {
        let Some(reservation) = self.all.get_mut(&id) else { return };
        if timed {
            reservation.timed.insert((node, shape));
            self.timed.insert(id);
        } else if reservation.timed.remove(&(node, shape)) && reservation.timed.is_empty() {
            self.timed.remove(&id);
        }
    }

    /// Those that block a job that says how long it runs.
    pub(crate) fn list_reservations_blocking_timed_jobs(&self) -> Vec<ReservationId> {
        self.timed.iter().copied().collect()
    }

    /// Those that count below a node, by cause.
    fn list_reservations_by_cause_at(
        &self,
        node: QueueIndex,
    ) -> impl Iterator<Item = (&(QueueIndex, ReservationCause), &BTreeSet<(Turn, QueueIndex)>)> {
        self.fronts.range((node, ReservationCause::FIRST)..=(node, ReservationCause::LAST))
    }

    /// All that reach a node.
    pub(crate) fn list_reservations_reaching(&self, node: QueueIndex) -> Vec<ReservationId> {
        let of = |((_, cause), front): (&(QueueIndex, ReservationCause), &BTreeSet<(Turn, QueueIndex)>)| {
            let cause = *cause;
            front.iter().map(|(_, queue)| ReservationId { cause, queue: *queue }).collect::<Vec<_>>()
        };
        self.list_reservations_by_cause_at(node).flat_map(of).collect()
    }
}
