//! Jobs that start together, as the engine is told of them: who of a gang is in line, and what of a release is whose.
//!
//! Rule: [`job_gangs`](super::super::job_gangs) says who is in line; this carries it to the engine and to the phases.

use caldera_core::{
    gang::QueueName,
    queue::{JobId, Release},
    reason::Reason,
    resources::Resources,
};
use jiff::Timestamp;

use super::{JobPhase, Jobs};
use crate::{
    decide::bindings::{
        binding_state::BindingState,
        job_gangs::{GangJobState, GangKey, JobGangSpec, LineUpdate, Part, split_admission},
    },
    observe::{Binding, Key, Objects},
};

impl Jobs {
    /// Updates its gang with the state of the job of a binding; whether it is of one.
    pub(super) fn update_gang_state(&mut self, objects: &Objects, binding: &Binding, state: &BindingState) -> bool {
        let workload = objects.workload_of(binding);
        let Some((gang, workload)) = workload.and_then(|it| Some((GangKey::of_workload(it)?, it))) else {
            self.gangs.forget(&binding.key);
            return false;
        };
        if matches!(state, BindingState::OutOfScope) {
            self.gangs.forget(&binding.key);
            return false;
        }
        let state = match state {
            BindingState::Pending(job) => GangJobState::Pending(job.clone()),
            BindingState::BackingOff(..)
            | BindingState::Blocked(Reason::Requeued { .. } | Reason::NotReleased { .. }) => GangJobState::Requeued,
            BindingState::Blocked(Reason::Evicted { .. }) => GangJobState::Evicted,
            BindingState::Holding { .. } => GangJobState::Admitted,
            BindingState::Blocked(_) | BindingState::OutOfScope => GangJobState::Gated,
        };
        self.gangs.set_state(&binding.key, gang, workload, state);
        true
    }

    /// Puts the jobs of a gang in line, by what jobs there should be: the bindings whose phases are others now.
    pub(crate) fn queue_gang_jobs(
        &mut self,
        objects: &Objects,
        gang: &GangKey,
        spec: Option<&JobGangSpec>,
        now: Timestamp,
    ) -> Vec<Key> {
        let check_size = |queue: &QueueName, asked: &Resources| objects.check_job_size(queue, || asked.clone());
        let LineUpdate { enqueued, removed, phases } = self.gangs.update_gang_queueing(gang, spec, check_size, now);
        for id in removed {
            self.changed |= self.engine.is_pending(id.as_str());
            self.engine.remove_job(id.as_str());
        }
        for job in enqueued {
            self.changed |= self.engine.enqueue_job(job);
        }
        let mut others = Vec::new();
        for (key, why) in phases {
            let Some(state) = self.states.get_mut(&key) else { continue };
            let phase = why.map_or(JobPhase::Pending, |why| JobPhase::Blocked(Box::new(why)));
            if state.phase != phase {
                state.phase = phase;
                others.push(key);
            }
        }
        others
    }

    /// Charges each of those that were released together for itself, and says what each was granted.
    pub(crate) fn split_release(&mut self, release: Release) -> Vec<(Key, Release)> {
        let parts = self.gangs.take_parts_of_leader(&release.id);
        if parts.is_empty() {
            let key = self.keys.get(&release.id).cloned();
            key.iter().for_each(|key| self.gangs.mark_released(key));
            return key.map(|key| (key, release)).into_iter().collect();
        }
        let Release { admission, .. } = release;
        let mut releases = Vec::new();
        // The first is charged for all until now.
        for (Part { key, job }, own) in parts.iter().zip(split_admission(&parts, admission)) {
            let counted = &job.ask.counted;
            self.engine.charge_job_with_ancestors(&job.id, &own.queue, &own.above, &own.charged, counted);
            releases.push((key.clone(), Release { id: job.id.clone(), admission: own }));
        }
        releases
    }

    /// The bindings that are in line under a name.
    pub(crate) fn list_bindings_in_line(&self, id: &JobId) -> Vec<Key> {
        let unit = self.gangs.parts_of_leader(id);
        if unit.is_empty() {
            return self.keys.get(id).cloned().into_iter().collect();
        }
        unit.iter().map(|part| part.key.clone()).collect()
    }

    /// The name that a binding is in line under: its own, or that of the first of those that start together.
    pub(crate) fn find_queued_job_id(&self, key: &Key) -> Option<&JobId> {
        self.gangs.find_leader(key).or_else(|| Some(&self.states.get(key)?.id))
    }
}
