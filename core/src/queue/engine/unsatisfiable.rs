//! Which pending jobs can never start while queues and clusters are as they are: nobody waits behind them, not even in
//! a fifo queue, and nothing is kept for them.
//!
//! Whether a job fits anywhere is asked when it has quota. One that lacks quota is asked about sooner, where others
//! would wait for it: before it gets a reservation, and at the head of a fifo queue. Each class of jobs is asked about
//! once, and again when clusters are others than they were ([`Engine::forget_possible_classes`]).

use crate::queue::{
    capacity::ClusterCapacity,
    engine::{Engine, QueueingState, refusals::CapacityLack},
    pending::{inadmissible::Inadmissible, job_order::JobId, shape_table::ShapeId},
    quota::{admission::list_beyond_reach, slot::QueueIndex},
};

impl Engine {
    /// Whether a pending job can never start, on none of its card models, while queues and clusters are as they are.
    #[must_use]
    pub fn is_unsatisfiable(&self, id: &str) -> bool {
        self.jobs.list_entries(id).iter().all(|entry| self.is_entry_unsatisfiable(entry))
    }

    /// The same of one entry of a job.
    pub(crate) fn is_entry_unsatisfiable(&self, entry: &JobId) -> bool {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(entry.as_str()) else { return false };
        self.queues[*node].problem.is_some() || self.pending[*node].is_unsatisfiable(*shape)
    }

    /// Clusters are others than they were: what could fit somewhere may fit nowhere now. It is asked again before
    /// anything is kept for it any longer.
    pub fn forget_possible_classes(&mut self) {
        if self.refusals.forget_possible_classes() {
            self.reservations.mark_all_dirty();
        }
    }

    /// Whether a job fits nowhere even if everything were empty, and why not, is asked at most once for its class.
    pub(crate) fn find_final_refusal(
        &mut self,
        shape: ShapeId,
        id: &JobId,
        capacity: &mut impl ClusterCapacity,
    ) -> Option<String> {
        let class = self.shapes[shape].ask.fit;
        if let Some(known) = self.refusals.find_final_refusal(class) {
            return Some(known.to_owned());
        }
        if self.refusals.fits_when_empty(class) {
            return None;
        }
        let never = capacity.explain_never_fits(&id.job(), &self.shapes[shape].ask);
        if never.is_none() {
            self.refusals.record_fits_when_empty(class);
        }
        never
    }

    /// Asks now whether a job that waits for something else fits anywhere: who explains it need not wait until others
    /// would have to wait for it.
    pub fn ask_whether_it_fits(&mut self, id: &JobId, capacity: &mut impl ClusterCapacity) {
        let Some(QueueingState::Pending { node, shape, .. }) = self.jobs.get(id.as_str()) else { return };
        let (node, shape) = (*node, *shape);
        let waits = self.pending[node].inadmissible_cause(shape);
        if waits.is_none_or(|cause| matches!(cause, Inadmissible::Capacity | Inadmissible::Never)) {
            return;
        }
        if let Some(detail) = self.find_final_refusal(shape, id, capacity) {
            self.withdraw_unsatisfiable(node, shape, detail);
        }
    }

    /// A whole fifo queue waits behind its head: not behind those that fit nowhere.
    pub(crate) fn withdraw_unsatisfiable_heads(&mut self, node: QueueIndex, capacity: &mut impl ClusterCapacity) {
        while let Some((id, shape)) = self.find_waiting_head(node)
            && let Some(detail) = self.find_final_refusal(shape, &id, capacity)
        {
            self.withdraw_unsatisfiable(node, shape, detail);
        }
    }

    /// The head of a fifo queue, if it was not asked for a place in clusters since it waits for something else.
    fn find_waiting_head(&self, node: QueueIndex) -> Option<(JobId, ShapeId)> {
        let line = Some(&self.pending[node]).filter(|_| self.queues[node].is_fifo())?;
        let (head, shape) = line.find_first_satisfiable()?;
        let waits = line.inadmissible_cause(shape)?;
        (!matches!(waits, Inadmissible::Capacity | Inadmissible::Never)).then(|| (head.id.clone(), shape))
    }

    /// A shape that waits for something else turns out to fit nowhere.
    pub(crate) fn withdraw_unsatisfiable(&mut self, node: QueueIndex, shape: ShapeId, detail: String) {
        let class = self.shapes[shape].ask.fit;
        if self.refusals.find_final_refusal(class).is_none() {
            for (node, shape) in self.refusals.take_class(class) {
                self.requeue_shape(node, shape);
            }
        }
        let refused = self.record_refusal(shape, &[], CapacityLack::LargerClusters, detail);
        self.requeue_shape(node, shape);
        self.refusals.add_inadmissible(&refused, node, shape);
        self.mark_unsatisfiable(node, shape);
        // It is told, though no reservation changed.
        self.reservations.changed = true;
    }

    /// What asks for more than its queue can ever have is known for it at once: in a fifo queue its turn may be far,
    /// and while releases are paused nobody is asked.
    pub(crate) fn mark_beyond_reach(&mut self, node: QueueIndex, shape: ShapeId) {
        let slot = &self.queues[node];
        let beyond: Vec<_> = list_beyond_reach(slot, &self.shapes[shape]).copied().collect();
        if self.pending[node].inadmissible_cause(shape).is_none()
            && let Some((at, dim, needed)) = self.queues.find_first_short_quota(&slot.path, &beyond)
        {
            let cause = Inadmissible::Quota(at, dim, needed);
            self.pending.set_inadmissible(&self.queues, node, shape, cause);
            self.update_unsatisfiable(node, shape, cause);
            self.update_blocked(node, shape);
        }
    }

    /// Records whether an inadmissible shape can never fit.
    pub(crate) fn update_unsatisfiable(&mut self, node: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        let slot = &self.queues[node];
        let resized = || {
            self.pending[node]
                .first_of(shape)
                .is_some_and(|key| self.exceeds_quota_with_resized_job(node, shape, &key.id))
        };
        let unsatisfiable =
            cause == Inadmissible::Never || list_beyond_reach(slot, &self.shapes[shape]).next().is_some() || resized();
        self.pending.set_unsatisfiable(node, shape, unsatisfiable);
        if let Some(preemptor) =
            self.reservations.preemptor.as_ref().filter(|job| unsatisfiable && self.jobs.has_choice(job.as_str()))
        {
            // Others are evicted for it on its next card model from now on.
            self.reservations.dirty.extend(self.list_shortages_of(preemptor));
        }
    }

    /// The same for all shapes, after limits changed.
    pub(crate) fn update_all_unsatisfiable(&mut self) {
        for node in self.queues.nodes().collect::<Vec<_>>() {
            let shapes: Vec<ShapeId> = self.pending[node].shapes().collect();
            for shape in shapes {
                match self.pending[node].inadmissible_cause(shape) {
                    Some(cause) => self.update_unsatisfiable(node, shape, cause),
                    None => self.mark_beyond_reach(node, shape),
                }
            }
            self.mark_head_changed(node);
        }
    }

    /// Whether what a job holds already is what makes it too much.
    fn exceeds_quota_with_resized_job(&self, node: QueueIndex, shape: ShapeId, id: &JobId) -> bool {
        let holds = |at, dim| self.held_by_resized_job(id.as_str(), at, dim);
        let grows = self.jobs.find_resized_job(id.as_str()).is_some();
        grows && self.queues.explain_unsatisfiable(node, &self.shapes[shape], holds).is_some()
    }
}
