//! Puts jobs in line anew whose priority has risen with the time that they wait. The rule is in
//! [`crate::queue::aging`].

use crate::{
    queue::{
        aging::PriorityAging,
        engine::{Engine, QueueingState},
        pending::job_order::{JobId, JobKey},
        quota::slot::QueueIndex,
    },
    time::{EpochSeconds, SubmitTime},
};

impl Engine {
    /// By how much the priority of a pending job has risen since it came.
    #[must_use]
    pub fn priority_gained(&self, id: &str) -> i32 {
        match self.jobs.get(id) {
            Some(QueueingState::Pending { node, key, .. }) => self.compute_aging_points(*node, key.created),
            _ => 0,
        }
    }

    pub(crate) fn compute_aging_points(&self, node: QueueIndex, created: SubmitTime) -> i32 {
        self.find_aging(node).map_or(0, |aging| aging.points_after(self.now.seconds_since(created.as_time())))
    }

    fn find_aging(&self, node: QueueIndex) -> Option<PriorityAging> {
        self.queues.find_setting(node, |spec| spec.aging).filter(|_| !self.rules.is_fifo())
    }

    /// When the priority of a job rises next it is put in line anew.
    pub(crate) fn schedule_aging(&mut self, node: QueueIndex, key: &JobKey) {
        let next = self.next_aging_step(node, key);
        self.aging_steps.extend(next);
    }

    /// It is in line no more. Steps by what its queue said before go when that is worked out.
    pub(crate) fn cancel_aging(&mut self, node: QueueIndex, key: &JobKey) {
        if let Some(next) = self.next_aging_step(node, key) {
            self.aging_steps.remove(&next);
        }
    }

    /// The same from one step to the next.
    fn next_aging_step(&self, node: QueueIndex, key: &JobKey) -> Option<(EpochSeconds, JobId)> {
        let created = key.created.as_time();
        let next = self.find_aging(node)?.next_step_after(self.now.seconds_since(created))?;
        Some((created.saturating_add(next), key.id.clone()))
    }

    /// Time has passed.
    pub(crate) fn age_due(&mut self) {
        while self.aging_steps.first().is_some_and(|(at, _)| *at <= self.now) {
            if let Some((_, id)) = self.aging_steps.pop_first() {
                self.age_job(&id);
            }
        }
    }

    /// Queues say something else, or are elsewhere in the tree.
    pub(crate) fn age_all(&mut self) {
        let aged = |node: &QueueIndex, key: &JobKey, priority: i32| {
            self.find_aging(*node).is_some() || (!self.rules.is_fifo() && key.priority.0 != priority)
        };
        let jobs = self.jobs.iter().filter_map(|(id, state)| match state {
            QueueingState::Pending { node, key, rank, .. } if aged(node, key, rank.priority) => Some(id.clone()),
            _ => None,
        });
        let mut jobs: Vec<JobId> = jobs.collect();
        jobs.sort();
        self.aging_steps.clear();
        jobs.iter().for_each(|id| self.age_job(id));
    }

    /// Puts a pending job where it is now in line. It keeps what is reserved for it.
    fn age_job(&mut self, id: &JobId) {
        let Some(QueueingState::Pending { node, key, shape, rank }) = self.jobs.get(id.as_str()).cloned() else {
            return;
        };
        self.schedule_aging(node, &key);
        let new = self.job_key(node, id.clone(), key.created, rank);
        if new == key {
            return;
        }
        let is_first = self.pending[node].first_of(shape).is_some_and(|first| new < *first);
        self.remove_pending(node, &key);
        self.pending.insert_job(node, new.clone(), shape, &self.shapes[shape].tenants);
        if is_first {
            self.requeue_after_new_first(node, shape);
        }
        self.update_blocked(node, shape);
        self.mark_head_changed(node);
        self.jobs.insert(id.clone(), QueueingState::Pending { node, key: new, shape, rank });
        // It ranks otherwise, also by what is reserved for it, before anybody is looked at.
        for shortage in self.reservations.held_by(id.as_str()).into_iter().chain(self.list_shortages_of(id)) {
            self.reservations.schedule_update(self.now, shortage);
        }
    }
}
