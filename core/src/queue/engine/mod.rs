//! The queue engine: which jobs are pending, which hold quota, and which one is released next.
//!
//! Events go in ([`Engine::enqueue_job`], [`Engine::charge_job`], [`Engine::remove_job`], queues, the fleet), and
//! [`Engine::release_next_in_clusters`] answers with one release at a time, so that the order is made anew after each.
//! A shape of job that does not fit is inadmissible and remembers what it lacks; when that comes free, `requeue` finds
//! the shapes that have enough. The decisions are those of considering every job again after every event: the tests
//! hold the engine against that model.

mod admission_again;
mod aging;
mod capacity;
mod capacity_reservations;
mod choices;
mod expected_ends;
mod explain;
mod history;
mod job_table;
mod ordering;
mod pause;
mod preemption;
mod preemption_round;
mod queue_status;
mod refusals;
mod release;
mod requeue;
mod reservations;
mod tables;
mod tenant_turns;
mod unsatisfiable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use history::FairHistory;
pub(crate) use job_table::{JobRank, QueueingState};
pub use preemption::PreemptionCandidate;
pub use preemption_round::{PreemptionRound, PreemptionWorld};
pub use queue_status::Entitlement;
pub use reservations::{ReservationStatus, UnknownStart};

use self::{
    capacity_reservations::KeptCapacity,
    job_table::JobTable,
    refusals::{CapacityLack, CapacityRefusals},
};
use crate::{
    admission::Admission,
    gang::QueueName,
    queue::{
        capacity::{ClusterCapacity, Fit, FitFunction},
        pending::{
            inadmissible::Inadmissible,
            job_order::{JobId, JobKey},
            order_rules::OrderRules,
            pending_queues::PendingQueues,
            queue_order::QueueOrder,
            shape_table::{ShapeId, ShapeTable},
        },
        quota::{
            admission::{Ask, JobShape},
            queue_table::QueueTable,
            running::Counted,
            slot::QueueIndex,
        },
        reservation::{ReservationId, Reservations},
        spec::{FleetResources, QueueSpec},
    },
    resources::Resources,
    tenant::Tenant,
    time::{EpochSeconds, SubmitTime},
};

/// A pending job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Who.
    pub id: JobId,
    /// Where.
    pub queue: QueueName,
    /// Larger goes first.
    pub priority: i32,
    /// When it came; it keeps its age whatever happens to it.
    pub created: SubmitTime,
    /// By when it should have started: those with a deadline go first, the earliest before others.
    pub deadline: Option<EpochSeconds>,
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
pub struct QueueUsage {
    /// Charged, with all queues below.
    pub used: Resources,
    /// Jobs in this queue's own line.
    pub waiting: usize,
    /// Jobs that hold anything, with all queues below.
    pub running: u64,
    /// Of those the ones of each tenant, where a limit counts these.
    pub running_of: BTreeMap<Tenant, u64>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    rules: OrderRules,
    /// Why nothing is released now, if so.
    paused: Option<Arc<str>>,
    queues: QueueTable,
    jobs: JobTable,
    shapes: ShapeTable,
    pending: PendingQueues,
    /// The next job of every queue that has one.
    queue_order: QueueOrder,
    refusals: CapacityRefusals,
    reservations: Reservations,
    kept_capacity: KeptCapacity,
    now: EpochSeconds,
    /// When the priorities of jobs in line rise next.
    aging_steps: BTreeSet<(EpochSeconds, JobId)>,
    /// Not before the first decision.
    has_decided: bool,
}

/// Looks at reservations in one decision; seldom is a second one needed.
const MOST_RESERVATION_ROUNDS: usize = 8;

/// Events.
impl Engine {
    /// A queue was created or changed.
    pub fn set_queue(&mut self, spec: QueueSpec) {
        let node = self.intern_queue(&spec.name);
        self.queues.set_spec(node, spec);
    }

    /// A queue is gone. Its jobs stay: those that hold are still charged, those that wait say why.
    pub fn remove_queue(&mut self, name: &QueueName) {
        if let Some(node) = self.queues.find_node(name) {
            self.queues.remove_spec(node);
        }
    }

    /// What the clusters have all together.
    pub fn set_fleet(&mut self, fleet: FleetResources) {
        self.queues.set_fleet(fleet);
    }

    /// One entry of [`Engine::enqueue_job`].
    pub(crate) fn enqueue_entry(&mut self, job: Job) -> bool {
        let rank = JobRank::of_job(&job);
        let node = self.intern_queue(&job.queue);
        let key = self.job_key(node, job.id.clone(), job.created, rank);
        if let Some(QueueingState::Pending { node: was, key: had, shape, rank: ranked }) =
            self.jobs.get(job.id.as_str())
            && *was == node
            && (had, *ranked) == (&key, rank)
            && self.shapes[*shape].ask == job.ask
        {
            return false;
        }
        let resized = self.jobs.find_resized_job(job.id.as_str()).cloned();
        self.remove_entry(job.id.as_str());
        if let Some(of) = resized {
            self.jobs.mark_as_resize_of(&job.id, &of);
        }
        let shape = self.shapes.intern_shape(job.ask, &mut self.queues.dims);
        let is_first = self.pending[node].first_of(shape).is_some_and(|first| key < *first);
        self.pending.insert_job(node, key.clone(), shape, &self.shapes[shape].tenants);
        if is_first {
            self.requeue_after_new_first(node, shape);
        }
        self.update_blocked(node, shape);
        self.schedule_aging(node, &key);
        self.jobs.insert(job.id, QueueingState::Pending { node, key, shape, rank });
        self.mark_beyond_reach(node, shape);
        self.mark_head_changed(node);
        true
    }

    /// What a pending job asks for comes on top of what another one holds: if both together are more than a limit it
    /// can never start. Until it is forgotten.
    pub fn mark_as_resize_of(&mut self, id: &JobId, of: &JobId) {
        self.jobs.mark_as_resize_of(id, of);
    }

    /// A job holds `charge` of a queue, whether or not it ever waited here.
    pub fn charge_job(&mut self, id: &JobId, queue: &QueueName, charge: &Resources) {
        self.charge_job_with_ancestors(id, queue, &[], charge, &Counted::Job);
    }

    /// The same, where it is known as what it counts, and which queues were above that one, the nearest first: they are
    /// charged if neither it nor anything seen before says so now.
    pub fn charge_job_with_ancestors(
        &mut self,
        id: &JobId,
        queue: &QueueName,
        above: &[QueueName],
        charge: &Resources,
        counted: &Counted,
    ) {
        let node = self.intern_queue(queue);
        self.queues.record_ancestors(node, above);
        let mut charge = self.queues.dims.intern_amounts(charge);
        if !charge.is_empty() {
            charge = [charge, counted.list_counts(&mut self.queues.dims)].concat().into();
        }
        match self.jobs.charge_mut(id.as_str()) {
            Some((was, had, end)) if was == node => {
                if *had != charge {
                    if let Some(end) = *end {
                        self.queues.replace_ending_amount(node, end, had, &charge);
                    }
                    let had = std::mem::replace(had, charge.clone());
                    self.add_charge(node, &charge);
                    self.remove_charge(node, &had);
                }
            }
            _ => {
                self.add_charge(node, &charge);
                self.remove_job(id.as_str());
                self.jobs.insert(id.clone(), QueueingState::Charged { node, charge, end: None });
            }
        }
    }

    /// One entry of [`Engine::remove_job`].
    pub(crate) fn remove_entry(&mut self, id: &str) {
        match self.jobs.remove(id) {
            None => {}
            Some(QueueingState::Charged { node, charge, end }) => {
                if let Some(end) = end {
                    self.queues.replace_ending_amount(node, end, &charge, &[]);
                }
                self.remove_charge(node, &charge);
            }
            Some(QueueingState::BackingOff { node, shape, .. }) => self.end_backoff(id, node, shape),
            Some(QueueingState::Pending { node, key, shape, .. }) => {
                self.remove_reservation_of_job(id);
                self.cancel_aging(node, &key);
                self.remove_pending(node, &key);
                self.shapes.drop_user(shape);
            }
        }
    }
}

/// Decisions.
impl Engine {
    /// The next job that may start, if any: the first in order whose minimum stays within every ceiling on the way up
    /// and for which `fit` says yes. `fit` is asked at most once for each class and what is kept from it until
    /// [`Engine::requeue_after_capacity_change`] after it said no, while somebody of it waits, and again for each job
    /// of a class while it says yes. No cluster is kept for anybody.
    pub fn release_next_by_fit(&mut self, fit: impl FnMut(&JobId, &Ask) -> Fit) -> Option<Release> {
        self.release_next_in_clusters(&mut FitFunction(fit))
    }

    /// The same, where clusters can be kept for a job that lacks capacity. Nothing more is asked once they are
    /// [exhausted](ClusterCapacity::is_exhausted): it goes on where it stopped when this is called next.
    pub fn release_next_in_clusters(&mut self, capacity: &mut impl ClusterCapacity) -> Option<Release> {
        // Reservations that are worked out anew come before whoever would pass meanwhile.
        let is_tree_outdated = self.queues.is_tree_outdated();
        self.resolve_quota();
        if self.paused.is_some() {
            return None;
        }
        self.requeue_beside_reservations();
        if !std::mem::replace(&mut self.has_decided, true) {
            self.consider_long_waiting(capacity);
        }
        if is_tree_outdated || self.reservations.next_due().is_some_and(|due| due <= self.now) {
            self.update_reservations(capacity);
        }
        // Reservations that were taken away may let others start, who end with new ones.
        for _ in 0..MOST_RESERVATION_ROUNDS {
            if let Some(release) = self.release_first_admissible(capacity) {
                return Some(release);
            }
            if capacity.is_exhausted() || !self.update_reservations(capacity) {
                return None;
            }
        }
        self.release_first_admissible(capacity)
    }

    fn release_first_admissible(&mut self, capacity: &mut impl ClusterCapacity) -> Option<Release> {
        while !capacity.is_exhausted() {
            self.requeue_eligible();
            let node = self.find_first_queue()?;
            let (key, id) = self.find_next_candidate(node)?;
            match self.find_lack(node, &key, id, capacity) {
                Ok(blocking) => return Some(self.release_job(node, &key, id, &blocking, capacity)),
                Err(lack) => self.mark_inadmissible(node, id, lack, capacity),
            }
        }
        None
    }

    /// What a job lacks; else the reservations that it leaves free.
    pub(crate) fn find_lack(
        &mut self,
        node: QueueIndex,
        key: &JobKey,
        id: ShapeId,
        capacity: &mut impl ClusterCapacity,
    ) -> Result<Vec<ReservationId>, Inadmissible> {
        let path = &self.queues[node].path;
        let short = |asked| self.queues.find_first_short_quota(path, asked);
        // A limit of jobs first: who is short of that has nothing reserved.
        let JobShape { counts, sparse, .. } = &self.shapes[id];
        if let Some((at, dim, asked)) = short(counts).or_else(|| short(sparse)) {
            return Err(Inadmissible::Quota(at, dim, asked));
        }
        let blocking = self.list_blocking_reservations(node, key, id);
        let path = &self.queues[node].path;
        if let Some((at, dim, needed)) = self.find_first_short_with_reserved(&blocking, path, &self.shapes[id]) {
            self.reservations.record_blocked(&blocking, node, id, self.shapes[id].ask.run_for.is_some());
            return Err(Inadmissible::Reserved(at, dim, needed));
        }
        if let Some((reservation, dim)) = self.find_reservation_blocking_by_share(&blocking, path, &self.shapes[id]) {
            self.reservations.record_blocked_by_share(reservation, node, id, self.shapes[id].ask.run_for.is_some());
            return Err(Inadmissible::BehindReservation(dim));
        }
        if let Some(cause) = self.find_kept_cause(node, id, &blocking) {
            return Err(Inadmissible::Kept(cause));
        }
        let refused = match self.find_known_refusal(id, &blocking) {
            Some(known) => known,
            None => {
                match capacity.fits(
                    &key.id.job(),
                    &self.shapes[id].ask,
                    &self.list_clusters_reserved_for_others(&blocking),
                ) {
                    Fit::Yes => return Ok(blocking),
                    Fit::No { never, detail } => self.record_refusal(id, &blocking, CapacityLack::of(never), detail),
                    Fit::Reserved { detail } => {
                        self.record_refusal(id, &blocking, CapacityLack::InsufficientUnreserved, detail)
                    }
                }
            }
        };
        let is_final = self.refusals.add_inadmissible(&refused, node, id);
        Err(if is_final { Inadmissible::Never } else { Inadmissible::Capacity })
    }

    /// Works out the tree anew if queues or the fleet changed; [`Engine::release_next_by_fit`] does so first.
    pub fn resolve_quota(&mut self) {
        self.drop_unused_names();
        if !self.queues.is_quota_outdated() {
            return;
        }
        if self.queues.resolve_tree(&self.jobs.list_queues()) {
            self.age_all();
            self.rebuild_reservations();
            self.rebuild_expected_ends();
        }
        self.reservations.mark_all_dirty();
        self.kept_capacity.note_freed();
        self.requeue_behind_reservations();
        self.update_all_unsatisfiable();
        self.schedule_full_search();
        self.rebuild_queue_order();
    }

    fn find_next_candidate(&self, node: QueueIndex) -> Option<(JobKey, ShapeId)> {
        let (key, shape) = self.find_first_candidate(node)?;
        Some((self.find_reserving_job_of_shape(node, key, shape).unwrap_or(key).clone(), shape))
    }
}
