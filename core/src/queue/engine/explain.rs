//! Answers about the engine's state: what queues hold, the position of each pending job, and why it is still pending.

use crate::{
    gang::QueueName,
    queue::{
        engine::{
            Engine, QueueUsage, QueueingState,
            refusals::{CapacityLack, CapacityRefusal},
        },
        pending::{
            inadmissible::Inadmissible,
            job_order::{JobId, JobKey},
        },
        quota::{
            admission::Ask,
            amount::Amount,
            amounts::{Dim, find_amount},
            slot::{QueueIndex, split_counts},
        },
        spec::QueueSpec,
    },
    reason::{Position, QueueProblem, Reason},
    resources::Resources,
};

/// Questions. They answer for the state after the last [`Engine::release_next_by_fit`] or [`Engine::resolve_quota`].
impl Engine {
    /// What a queue holds.
    #[must_use]
    pub fn usage_of(&self, queue: &QueueName) -> QueueUsage {
        let Some(node) = self.queues.find_node(queue) else { return QueueUsage::default() };
        let slot = &self.queues[node];
        let tenant = |(dim, jobs): (Dim, Amount)| Some((self.queues.dims.tenant(dim)?.clone(), jobs.count_jobs()));
        QueueUsage {
            used: slot.used.resources(&self.queues.dims),
            waiting: self.pending[node].len(),
            running: slot.running.get(Dim::JOBS).count_jobs(),
            running_of: slot.running.iter().filter_map(tenant).collect(),
        }
    }

    /// All queues with a spec, in the order of their names.
    pub fn queue_specs(&self) -> impl Iterator<Item = &QueueSpec> {
        self.queues.nodes().filter_map(|node| self.queues[node].spec.as_ref())
    }

    /// What the object of a queue says.
    #[must_use]
    pub fn queue_spec(&self, queue: &QueueName) -> Option<&QueueSpec> {
        self.queues[self.queues.find_node(queue)?].spec.as_ref()
    }

    /// Why no job of this queue may start, if so.
    #[must_use]
    pub fn queue_problem(&self, queue: &QueueName) -> Option<QueueProblem> {
        match self.queues.find_node(queue) {
            Some(node) => self.queues[node].problem.clone(),
            None => Some(QueueProblem::Missing),
        }
    }

    /// Why a job still waits; `None` if it does not.
    #[must_use]
    pub fn explain_pending(&self, id: &str) -> Option<Reason> {
        let Some(QueueingState::Pending { node, key, shape, .. }) = self.jobs.get(id) else { return None };
        let line = &self.pending[*node];
        // One that can never start is told so, and no position.
        let of = line.count_satisfiable() + usize::from(!line.is_in_line(key, *shape));
        self.explain_pending_at(id, Position { place: self.count_in_turn_before(*node, key) + 1, of })
    }

    /// All lines, queue by queue, in order, each job with its position among those that may ever start. One that can
    /// never start has the place that it would have if it could.
    pub fn list_pending_positions(&self) -> impl Iterator<Item = (&JobId, Position)> {
        self.queues.nodes().flat_map(|node| {
            let line = &self.pending[node];
            let (all, mut before) = (line.count_satisfiable(), 0);
            let place = move |key: &JobKey| {
                let counts = usize::from(line.shape_of(key).is_some_and(|shape| line.is_in_line(key, shape)));
                before += counts;
                Position { place: before + 1 - counts, of: all + 1 - counts }
            };
            let jobs = self.list_in_turn(node).into_iter().filter(|key| !key.id.is_choice());
            jobs.scan(place, |place, key| Some((&key.id, place(key))))
        })
    }

    /// The first jobs of each line that may ever start, at most `each` of them, each by its entry for the first card
    /// model on which it may: of a fifo line the first alone.
    pub(crate) fn queue_heads(&self, each: usize) -> impl Iterator<Item = (&JobId, Position)> {
        self.queues.nodes().flat_map(move |node| {
            let slot = &self.queues[node];
            let line = &self.pending[node];
            let of = line.count_satisfiable();
            let mut last: Option<&JobId> = None;
            let heads = line
                .list_satisfiable_jobs()
                .filter(move |(key, _)| last.replace(&key.id).is_none_or(|last| !last.is_of_same_job(&key.id)));
            let jobs_before = move |key: &JobKey| line.count_before(key) - usize::from(key.id.is_choice());
            let most = if slot.is_fifo() { each.min(1) } else { each };
            heads.take(most).map(move |(key, _)| (&key.id, Position { place: jobs_before(key) + 1, of }))
        })
    }

    /// [`Engine::explain_pending_at`] of one entry of a job.
    pub(crate) fn explain_entry_at(&self, id: &str, position: Position) -> Option<Reason> {
        let Some(QueueingState::Pending { node, key, shape: shape_id, .. }) = self.jobs.get(id) else { return None };
        let (slot, shape) = (&self.queues[*node], &self.shapes[*shape_id]);
        let queue = slot.name.clone();
        if let Some(problem) = slot.problem.clone() {
            return Some(Reason::Queue { queue, problem });
        }
        let holds = |at, dim| self.held_by_resized_job(id, at, dim);
        if let Some(never) = self.queues.explain_unsatisfiable(*node, shape, holds) {
            return Some(never);
        }
        let is_hopeless = matches!(self.pending[*node].inadmissible_cause(*shape_id), Some(Inadmissible::Never));
        if let Some(detail) = self.refusals.find_final_refusal(shape.ask.fit).filter(|_| is_hopeless) {
            return Some(Reason::NeverFits { detail: detail.to_owned() });
        }
        if let Some(why) = &self.paused {
            return Some(Reason::Paused { queue, why: why.to_string(), position });
        }
        if self.queues.fleet().ready_clusters == 0 {
            return Some(Reason::NoReadyCluster { position });
        }
        if slot.is_fifo()
            && !is_hopeless
            && self.pending[*node].find_first_satisfiable().is_some_and(|(front, _)| front.is_before_job_of(key))
        {
            return Some(Reason::BehindQueueHead { queue, position });
        }
        if let Some((at, dim, _)) = self.queues.find_first_short_quota(&slot.path, &shape.counts) {
            return self.explain_running_limit(queue, (at, dim), Amount::ZERO, position);
        }
        if let Some((at, dim, _)) = self.queues.find_first_short_quota(&slot.path, &shape.sparse) {
            let (bound, limit) = self.queues.find_limiting_bound(at, dim);
            let name = self.queues.dims.resource_of(dim);
            let asked = shape.minimum.get(name.as_str());
            let used = self.queues[at].used.get(dim).to_quantity_like(limit);
            return Some(Reason::Quota { queue, bound, resource: name.clone(), asked, used, limit, position });
        }
        if let Some(held_back) = self.explain_reservation(*node, key, *shape_id, position) {
            return Some(held_back);
        }
        let blocking = self.list_blocking_reservations(*node, key, *shape_id);
        if let Some(detail) = self.describe_kept_shortage(*node, *shape_id, &blocking) {
            return Some(Reason::CapacityReserved { queue, detail, position });
        }
        let refused = self.find_known_refusal(*shape_id, &blocking);
        if let Some(CapacityRefusal { lack, detail, .. }) = refused.and_then(|refused| self.refusals.get(&refused)) {
            let detail = detail.clone();
            return Some(match lack {
                CapacityLack::LargerClusters => Reason::NeverFits { detail },
                CapacityLack::Insufficient => Reason::InsufficientCapacity { queue, detail, position },
                CapacityLack::InsufficientUnreserved => Reason::ClustersReserved { queue, detail, position },
            });
        }
        Some(Reason::Next { queue, position })
    }

    /// How many jobs run where a limit of them holds one up, and for how many more a place is kept.
    pub(crate) fn explain_running_limit(
        &self,
        queue: QueueName,
        (at, dim): (QueueIndex, Dim),
        kept: Amount,
        position: Position,
    ) -> Option<Reason> {
        let slot = &self.queues[at];
        let limit = slot.spec.as_ref()?.running.get(dim)?;
        Some(Reason::RunningLimit {
            queue,
            by: slot.name.clone(),
            tenant: self.queues.dims.tenant(dim).cloned(),
            running: slot.running.get(dim).count_jobs(),
            kept: kept.count_jobs(),
            limit: limit.count_jobs(),
            position,
        })
    }

    /// What the job on top of which this one comes holds of a resource below a queue.
    pub(crate) fn held_by_resized_job(&self, id: &str, at: QueueIndex, dim: Dim) -> Amount {
        let Some(QueueingState::Charged { node, charge, .. }) =
            self.jobs.find_resized_job(id).and_then(|of| self.jobs.get(of.as_str()))
        else {
            return Amount::ZERO;
        };
        if self.queues[*node].path.contains(&at) { find_amount(charge, dim) } else { Amount::ZERO }
    }

    /// What a job is charged; `None` if it holds nothing.
    #[must_use]
    pub fn charge_of(&self, id: &str) -> Option<Resources> {
        match self.jobs.get(id)? {
            QueueingState::Charged { charge, .. } => {
                let (resources, _) = split_counts(charge);
                Some(resources.iter().map(|(dim, amount)| self.queues.dims.name_amount(*dim, *amount)).collect())
            }
            QueueingState::Pending { .. } | QueueingState::BackingOff { .. } => None,
        }
    }

    /// What an entry of a pending job asks for.
    pub(crate) fn pending_ask(&self, id: &str) -> Option<&Ask> {
        match self.jobs.get(id)? {
            QueueingState::Pending { shape, .. } => Some(&self.shapes[*shape].ask),
            QueueingState::Charged { .. } | QueueingState::BackingOff { .. } => None,
        }
    }

    /// Rows in the engine's tables, used or free; for tests of what it leaves behind.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.queues.len() + self.shapes.len() + self.queues.dims.size() + self.reservations.count_updates()
    }

    /// The same of amounts of queues.
    #[cfg(test)]
    pub(crate) fn count_amounts(&self) -> usize {
        self.queues.slots().iter().map(crate::queue::quota::slot::Slot::count_amounts).sum()
    }

    /// True while a job is pending.
    #[must_use]
    pub fn is_pending(&self, id: &str) -> bool {
        self.jobs.is_pending(id)
    }
}
