//! Amounts of the fleet that are kept for a time: whom they keep from starting, and who is considered again.
//!
//! Rule: [`crate::capacity_reservation`]. A job is held against each reservation that binds its run, at the time when
//! that begins, or now if it has begun. What the fleet may be charged has to do for what is held beyond that time, for
//! what is kept then, and for the job. Of what is kept that part counts which those that it is for will not hold; what
//! they hold counts for one reservation alone. Who never said when it ends is held for ever, and so is who should have
//! ended by now.
//!
//! A job for which there is too little beside the amount itself waits until its time is over: no reservation of
//! backfill is made for it, and nobody is evicted. One that lacks only what others hold gets a reservation as one that
//! lacks quota, at the root; once the amount is kept, others are evicted for it.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    capacity_reservation::{CapacityReservation, KeptShortage, MOST_RESERVATIONS},
    maintenance::ExpectedRun,
    queue::{
        engine::{Engine, QueueingState},
        pending::{inadmissible::KeptCause, shape_table::ShapeId},
        quota::{
            admission::{Ask, find_ceiling},
            amount::Amount,
            amounts::{Dim, find_amount},
            slot::QueueIndex,
        },
        reservation::ReservationId,
    },
    resources::ResourceName,
    time::EpochSeconds,
};

/// The reservations, and whom they keep from starting.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptCapacity {
    /// The first to begin first.
    all: Vec<CapacityReservation>,
    blocked: BTreeSet<(QueueIndex, ShapeId)>,
    /// More may be left since the blocked ones were last asked about.
    is_freed: bool,
    /// The version of the reservations of backfill then.
    backfill_version: u64,
    /// Up to then it was seen which begin and end.
    seen: EpochSeconds,
    held: RefCell<HeldAmounts>,
}

/// What is held beyond a time, as far as it was worked out: of one version of what is charged, and one now.
#[derive(Debug, Clone, Default)]
struct HeldAmounts {
    of: (u64, EpochSeconds),
    known: BTreeMap<(QueueIndex, Dim, EpochSeconds), Amount>,
}

impl KeptCapacity {
    pub(crate) fn insert_blocked(&mut self, node: QueueIndex, shape: ShapeId) {
        self.blocked.insert((node, shape));
    }

    pub(crate) fn remove_blocked(&mut self, node: QueueIndex, shape: ShapeId) {
        self.blocked.remove(&(node, shape));
    }

    pub(crate) fn list_blocked(&self) -> impl Iterator<Item = (QueueIndex, ShapeId)> {
        self.blocked.iter().copied()
    }

    /// Less is charged than before, or it ends sooner.
    pub(crate) fn note_freed(&mut self) {
        self.is_freed = true;
    }

    /// When one begins to bind jobs, starts or ends.
    fn list_times(&self) -> impl Iterator<Item = EpochSeconds> {
        self.all.iter().flat_map(|CapacityReservation { window, .. }| {
            [window.start.saturating_sub(window.notice), window.start, window.end]
        })
    }

    /// The first of these times after now.
    pub(crate) fn next_due(&self, now: EpochSeconds) -> Option<EpochSeconds> {
        self.list_times().filter(|at| *at > now).min()
    }
}

/// What a job may have of a resource beside what one reservation, and others of its time, keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptBound {
    /// Of those that bind the job then and keep some of it, the largest: it is what people would have to change.
    largest: usize,
    /// How many others there are of them.
    others: usize,
    /// When the last of them is over.
    over: EpochSeconds,
    pub(crate) dim: Dim,
    /// When the reservation begins, or now if it has begun.
    at: EpochSeconds,
    limit: Amount,
    held: Amount,
    kept: Amount,
    /// All of the amounts of that time, whoever holds them.
    amounts: Amount,
}

impl KeptBound {
    pub(crate) fn free(&self) -> Amount {
        self.limit - self.held - self.kept
    }

    pub(crate) fn held(&self) -> Amount {
        self.held
    }

    /// What it could be if nobody held anything but those that it is kept for.
    fn free_beside_amounts(&self) -> Amount {
        self.limit - self.amounts
    }

    /// What may be held beside what is kept.
    pub(crate) fn limit_beside_kept(&self) -> Amount {
        self.limit - self.kept
    }
}

/// Reservations.
impl Engine {
    /// These amounts are kept, and no others. Of those that are not over [`MOST_RESERVATIONS`] count.
    pub fn set_capacity_reservations(&mut self, mut all: Vec<CapacityReservation>) {
        all.sort_by(|a, b| (&a.window, &a.name).cmp(&(&b.window, &b.name)));
        if self.kept_capacity.all != all {
            self.kept_capacity.all = all;
            self.kept_capacity.note_freed();
            self.reservations.mark_all_dirty();
        }
    }

    /// Considers those again that would not take what is kept any more. The reservations of backfill of those that
    /// would now are worked out anew.
    pub(crate) fn requeue_beside_reservations(&mut self) {
        let seen = std::mem::replace(&mut self.kept_capacity.seen, self.now);
        if self.kept_capacity.list_times().any(|at| seen < at && at <= self.now) {
            self.reservations.mark_all_dirty();
            // It is told, though no reservation of backfill changed.
            self.reservations.changed = true;
            self.kept_capacity.note_freed();
        }
        let version = self.reservations.version;
        let is_backfill_changed = std::mem::replace(&mut self.kept_capacity.backfill_version, version) != version;
        if !std::mem::take(&mut self.kept_capacity.is_freed) && !is_backfill_changed {
            return;
        }
        for (node, shape) in self.kept_capacity.blocked.clone() {
            if !self.is_kept_from(node, shape) {
                self.requeue_shape(node, shape);
                self.reservations.changed = true;
            }
        }
    }

    /// Whether the first job of a shape would take what is kept.
    fn is_kept_from(&self, node: QueueIndex, shape: ShapeId) -> bool {
        let Some(first) = self.pending[node].first_of(shape) else { return false };
        let key = self.find_reserving_job_of_shape(node, first, shape).unwrap_or(first);
        self.find_kept_cause(node, shape, &self.list_blocking_reservations(node, key, shape)).is_some()
    }
}

/// Whom they keep from starting.
impl Engine {
    /// Why a job would take what is kept beside what these reservations of backfill take.
    pub(crate) fn find_kept_cause(
        &self,
        node: QueueIndex,
        shape: ShapeId,
        blocking: &[ReservationId],
    ) -> Option<KeptCause> {
        let (bound, asked) = self.find_kept_shortage(node, shape, blocking)?;
        Some(match asked {
            _ if asked > bound.free_beside_amounts() => KeptCause::Amount,
            _ if asked > bound.free() => KeptCause::Held(bound.dim),
            _ => KeptCause::Behind,
        })
    }

    /// The first bound that a job would break, and what it asks for: one that only time takes away comes first.
    fn find_kept_shortage(
        &self,
        node: QueueIndex,
        shape: ShapeId,
        blocking: &[ReservationId],
    ) -> Option<(KeptBound, Amount)> {
        let of_shape = &self.shapes[shape];
        let bounds = self.list_kept_bounds(node, shape).into_iter();
        let asked =
            bounds.map(|bound| (bound, of_shape.asked_amount(bound.dim))).filter(|(_, asked)| asked.is_positive());
        let short: Vec<_> = asked
            .filter(|(bound, asked)| {
                *asked + self.reserved_amount(blocking, QueueIndex::ROOT, bound.dim) > bound.free()
            })
            .collect();
        let is_final = |(bound, asked): &&(KeptBound, Amount)| *asked > bound.free_beside_amounts();
        short.iter().find(is_final).or(short.first()).copied()
    }

    /// Whether a shape asks for more than an amount that is kept leaves, whoever ends.
    pub(crate) fn takes_kept_amount(&self, node: QueueIndex, shape: ShapeId) -> bool {
        self.find_kept_cause(node, shape, &[]) == Some(KeptCause::Amount)
    }

    /// Whether somebody may be evicted for a pending job: not where a time has to be over first, or has yet to come.
    pub(crate) fn may_evict_beside_kept(&self, id: &str) -> bool {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(id) else { return false };
        self.list_kept_bounds(*node, *shape).iter().all(|bound| {
            let asked = self.shapes[*shape].asked_amount(bound.dim);
            asked <= bound.free() || (bound.at == self.now && asked <= bound.free_beside_amounts())
        })
    }

    /// Why a job waits for what is kept, in words.
    pub(crate) fn describe_kept_shortage(
        &self,
        node: QueueIndex,
        shape: ShapeId,
        blocking: &[ReservationId],
    ) -> Option<String> {
        let (short, asked) = self.find_kept_shortage(node, shape, blocking)?;
        let dims = &self.queues.dims;
        let named = |amount: Amount| dims.name_amount(short.dim, amount).1;
        let said = KeptShortage {
            resource: dims.resource_of(short.dim),
            asked: named(asked),
            limit: named(short.limit),
            held: named(short.held),
            kept: named(short.kept),
            reserved: named(self.reserved_amount(blocking, QueueIndex::ROOT, short.dim)),
        };
        let run = self.predict_run(&self.shapes[shape].ask);
        Some(self.kept_capacity.all[short.largest].describe_shortage(&said, short.others, run))
    }

    /// When a job that has quota can start at the latest beside what is kept: once enough of what is held has ended, or
    /// the time is over. Now, if nothing is in its way.
    pub(crate) fn find_start_beside_kept(
        &self,
        node: QueueIndex,
        shape: ShapeId,
        before: &[ReservationId],
    ) -> EpochSeconds {
        let start = |bound: KeptBound| {
            let asked = self.shapes[shape].asked_amount(bound.dim);
            let lacks = asked + self.reserved_amount(before, QueueIndex::ROOT, bound.dim) - bound.free();
            if !asked.is_positive() || !lacks.is_positive() {
                return self.now;
            }
            let freed = self.queues.find_time_when_freed(QueueIndex::ROOT, bound.dim, lacks, bound.at);
            freed.map_or(bound.over, |freed| freed.min(bound.over))
        };
        self.list_kept_bounds(node, shape).into_iter().map(start).max().unwrap_or(self.now)
    }

    /// Whether a job that is charged, and gives that back, would leave free what is kept if it started again.
    pub(crate) fn leaves_kept_free_again(&self, id: &str, node: QueueIndex, ask: &Ask) -> bool {
        let Some(QueueingState::Charged { charge, end, .. }) = self.jobs.get(id) else { return false };
        let minimum = ask.minimum();
        let dims: BTreeSet<Dim> = minimum.iter().filter_map(|(name, _)| self.queues.dims.find_dim(name)).collect();
        self.compute_kept_bounds(node, &dims, self.predict_run(ask)).iter().all(|bound| {
            let is_held_then = end.is_none_or(|end| end <= self.now || end > bound.at);
            let own = if is_held_then { find_amount(charge, bound.dim) } else { Amount::ZERO };
            let asked = Amount::from(minimum.get(self.queues.dims.resource_of(bound.dim).as_str()));
            asked <= bound.free() + own
        })
    }
}

/// What they leave.
impl Engine {
    /// What a shape may have of each resource beside what is kept, where it has to leave something free.
    pub(crate) fn list_kept_bounds(&self, node: QueueIndex, shape: ShapeId) -> Vec<KeptBound> {
        if self.kept_capacity.all.is_empty() {
            return Vec::new();
        }
        let of_shape = &self.shapes[shape];
        let dims: BTreeSet<Dim> = of_shape.list_dims().filter(|dim| !dim.counts_jobs()).collect();
        self.compute_kept_bounds(node, &dims, self.predict_run(&of_shape.ask))
    }

    /// What is kept now of these resources for others than jobs of a queue, what is held, and the limit of both; with
    /// the queues that it is kept for.
    pub(crate) fn list_kept_now(
        &self,
        node: QueueIndex,
        dims: &BTreeSet<Dim>,
    ) -> Vec<(KeptBound, BTreeSet<QueueIndex>)> {
        let now = ExpectedRun { from: self.now, ends: Some(self.now.saturating_add(1)), limit: None, delay: 0 };
        let bounds = self.compute_kept_bounds(node, dims, now).into_iter().filter(|bound| bound.at == self.now);
        let kept_now = self.list_binding(node, now).into_iter().filter(|(_, one)| one.is_kept_at(self.now));
        let owners: BTreeSet<QueueIndex> = kept_now.flat_map(|(_, one)| self.list_topmost_queues(one)).collect();
        bounds.map(|bound| (bound, owners.clone())).collect()
    }

    /// The reservations that such a run of a job of a queue has to leave free, each with its place.
    fn list_binding(&self, node: QueueIndex, run: ExpectedRun) -> Vec<(usize, &CapacityReservation)> {
        let path: Vec<&str> = self.queues[node].path.iter().map(|at| self.queues[*at].name.as_str()).collect();
        let all = self.kept_capacity.all.iter().enumerate().filter(|(_, one)| one.window.end > self.now);
        all.take(MOST_RESERVATIONS).filter(|(_, one)| one.binds_run(run, &path)).collect()
    }

    fn compute_kept_bounds(&self, node: QueueIndex, dims: &BTreeSet<Dim>, run: ExpectedRun) -> Vec<KeptBound> {
        let binding = self.list_binding(node, run);
        let mut bounds = Vec::new();
        for (place, one) in &binding {
            let at = one.window.start.max(self.now);
            for dim in dims.iter().copied().filter(|dim| !self.kept_amount(one, *dim).is_zero()) {
                let Some(limit) = find_ceiling(&self.queues[QueueIndex::ROOT], dim) else { continue };
                let keeps = |(_, other): &&(usize, &CapacityReservation)| {
                    other.is_kept_at(at) && !self.kept_amount(other, dim).is_zero()
                };
                let then: Vec<_> = binding.iter().filter(keeps).copied().collect();
                let (mut largest, mut over, mut amounts) = ((*place, *one), at, Amount::ZERO);
                for (place, other) in &then {
                    let amount = self.kept_amount(other, dim);
                    (over, amounts) = (over.max(other.window.end), amounts + amount);
                    if amount > self.kept_amount(largest.1, dim) {
                        largest = (*place, *other);
                    }
                }
                let held = self.held_beyond(QueueIndex::ROOT, dim, at);
                let kept = self.sum_kept(then.iter().map(|(_, other)| *other), dim, at);
                bounds.push(KeptBound {
                    largest: largest.0,
                    others: then.len() - 1,
                    over,
                    dim,
                    at,
                    limit,
                    held,
                    kept,
                    amounts,
                });
            }
        }
        bounds
    }

    /// What is kept at a time and will not be held by those that it is for. Of nested queues the lowest come first.
    fn sum_kept<'a>(&self, all: impl Iterator<Item = &'a CapacityReservation>, dim: Dim, at: EpochSeconds) -> Amount {
        let mut then: Vec<_> = all.map(|one| (self.list_topmost_queues(one), one)).collect();
        let depth = |nodes: &[QueueIndex]| nodes.iter().map(|node| self.queues[*node].path.len()).max();
        then.sort_by_key(|(nodes, _)| Reverse(depth(nodes)));
        let mut counted: Vec<(&[QueueIndex], Amount)> = Vec::new();
        let mut kept = Amount::ZERO;
        for (nodes, one) in &then {
            let held: Amount = nodes.iter().map(|node| self.held_beyond(*node, dim, at)).sum();
            let is_below = |node: &QueueIndex| self.queues[*node].path.iter().any(|above| nodes.contains(above));
            let before = counted.iter().filter(|(other, _)| other.iter().any(is_below)).map(|(_, amount)| *amount);
            let amount = self.kept_amount(one, dim);
            let part = (held - before.sum()).max(Amount::ZERO).min(amount);
            counted.push((nodes, part));
            kept += amount - part;
        }
        kept
    }

    /// The queues that a reservation is for, without those below another one of them.
    fn list_topmost_queues(&self, reservation: &CapacityReservation) -> Vec<QueueIndex> {
        let all: BTreeSet<QueueIndex> =
            reservation.window.queues.iter().filter_map(|name| self.queues.find_node(name)).collect();
        let is_topmost = |node: &&QueueIndex| !self.queues[**node].path[1..].iter().any(|above| all.contains(above));
        all.iter().filter(is_topmost).copied().collect()
    }

    fn kept_amount(&self, reservation: &CapacityReservation, dim: Dim) -> Amount {
        let name: &ResourceName = self.queues.dims.resource_of(dim);
        Amount::from(reservation.amounts.get(name.as_str())).max(Amount::ZERO)
    }

    /// [`QueueTable::held_beyond`](crate::queue::quota::queue_table::QueueTable::held_beyond), worked out once for each
    /// version of what is charged.
    fn held_beyond(&self, node: QueueIndex, dim: Dim, at: EpochSeconds) -> Amount {
        let mut held = self.kept_capacity.held.borrow_mut();
        let of = (self.queues.version(), self.now);
        if held.of != of {
            *held = HeldAmounts { of, known: BTreeMap::new() };
        }
        let compute = || self.queues.held_beyond(node, dim, self.now, at);
        *held.known.entry((node, dim, at)).or_insert_with(compute)
    }

    fn predict_run(&self, ask: &Ask) -> ExpectedRun {
        let ends = ask.run_for.map(|seconds| self.now.saturating_add(seconds));
        ExpectedRun { from: self.now, ends, limit: None, delay: 0 }
    }
}
