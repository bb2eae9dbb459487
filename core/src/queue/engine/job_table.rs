//! The table of all jobs that the engine knows, by their entries: one that may use several card models has an entry for
//! each ([`super::choices`]), and a job may wait for more of what another one of the same workload holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    queue::{
        engine::Job,
        pending::{
            job_order::{JobId, JobKey},
            shape_table::ShapeId,
        },
        quota::{
            amounts::{Dim, Sparse},
            slot::QueueIndex,
        },
    },
    time::EpochSeconds,
};

#[derive(Debug, Clone)]
pub(crate) enum QueueingState {
    Pending { node: QueueIndex, key: JobKey, shape: ShapeId, rank: JobRank },
    Charged { node: QueueIndex, charge: Sparse, end: Option<EpochSeconds> },
    BackingOff { node: QueueIndex, key: JobKey, shape: ShapeId, rank: JobRank, since: EpochSeconds },
}

impl QueueingState {
    const fn node(&self) -> QueueIndex {
        match self {
            Self::Pending { node, .. } | Self::Charged { node, .. } | Self::BackingOff { node, .. } => *node,
        }
    }
}

/// What a job says about its place, whether or not the policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobRank {
    pub(super) priority: i32,
    pub(super) deadline: Option<EpochSeconds>,
}

impl JobRank {
    pub(super) fn of_job(job: &Job) -> Self {
        Self { priority: job.priority, deadline: job.deadline }
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobTable {
    /// In boxes: up to half of a table's places are empty.
    states: HashMap<JobId, Box<QueueingState>>,
    /// How many card models each job may use beside its first.
    choices: HashMap<JobId, usize>,
    /// Who waits for more of what another one, of the same workload, holds.
    resized: HashMap<JobId, JobId>,
    /// By queue, the jobs in backoff.
    backing_off: BTreeMap<QueueIndex, BTreeSet<JobId>>,
}

/// States.
impl JobTable {
    pub(crate) fn get(&self, id: &str) -> Option<&QueueingState> {
        self.states.get(id).map(|state| &**state)
    }

    /// The charge of a job that holds something, with its queue and when it is expected to end.
    pub(crate) fn charge_mut(&mut self, id: &str) -> Option<(QueueIndex, &mut Sparse, &mut Option<EpochSeconds>)> {
        match &mut **self.states.get_mut(id)? {
            QueueingState::Charged { node, charge, end } => Some((*node, charge, end)),
            QueueingState::Pending { .. } | QueueingState::BackingOff { .. } => None,
        }
    }

    pub(crate) fn is_pending(&self, id: &str) -> bool {
        matches!(self.get(id), Some(QueueingState::Pending { .. }))
    }

    pub(crate) fn insert(&mut self, id: JobId, state: QueueingState) {
        if let QueueingState::BackingOff { node, .. } = state {
            self.backing_off.entry(node).or_default().insert(id.clone());
        }
        self.states.insert(id, Box::new(state));
    }

    /// Removes one entry, and that it waits for more of what another one holds.
    pub(crate) fn remove(&mut self, id: &str) -> Option<QueueingState> {
        self.resized.remove(id);
        let state = *self.states.remove(id)?;
        if let QueueingState::BackingOff { node, .. } = state
            && let Some(in_backoff) = self.backing_off.get_mut(&node)
        {
            in_backoff.remove(id);
            if in_backoff.is_empty() {
                self.backing_off.remove(&node);
            }
        }
        Some(state)
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobId, &QueueingState)> {
        self.states.iter().map(|(id, state)| (id, &**state))
    }

    /// The places of jobs in line, to be set anew: with the queue, what the job says, and its shape if it is pending.
    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = (QueueIndex, JobRank, &mut JobKey, Option<ShapeId>)> {
        self.states.values_mut().filter_map(|state| match &mut **state {
            QueueingState::Pending { node, key, shape, rank } => Some((*node, *rank, key, Some(*shape))),
            QueueingState::BackingOff { node, key, rank, .. } => Some((*node, *rank, key, None)),
            QueueingState::Charged { .. } => None,
        })
    }

    /// Queues of which a job is.
    pub(crate) fn list_queues(&self) -> BTreeSet<QueueIndex> {
        self.states.values().map(|state| state.node()).collect()
    }

    /// All that is charged to jobs, in no order.
    pub(crate) fn list_charges(&self) -> impl Iterator<Item = (QueueIndex, &Sparse, Option<EpochSeconds>)> {
        self.states.values().filter_map(|state| match &**state {
            QueueingState::Charged { node, charge, end } => Some((*node, charge, *end)),
            QueueingState::Pending { .. } | QueueingState::BackingOff { .. } => None,
        })
    }

    /// All that jobs are charged something of.
    pub(crate) fn list_charged_dims(&self) -> impl Iterator<Item = Dim> {
        self.list_charges().flat_map(|(_, charge, _)| charge.iter().map(|(dim, _)| *dim))
    }

    /// Queues with jobs in backoff.
    pub(crate) fn list_queues_backing_off(&self) -> impl Iterator<Item = QueueIndex> {
        self.backing_off.keys().copied()
    }

    /// The jobs of a queue that are in backoff, with since when.
    pub(crate) fn list_backing_off(&self, node: QueueIndex) -> impl Iterator<Item = (&JobKey, ShapeId, EpochSeconds)> {
        let jobs = self.backing_off.get(&node).into_iter().flatten();
        jobs.filter_map(|job| match self.get(job.as_str()) {
            Some(QueueingState::BackingOff { key, shape, since, .. }) => Some((key, *shape, *since)),
            _ => None,
        })
    }
}

/// Jobs with several entries, and with several jobs of one workload.
impl JobTable {
    pub(crate) fn set_choices(&mut self, id: &JobId, count: usize) {
        if count == 0 {
            self.choices.remove(id);
        } else {
            self.choices.insert(id.clone(), count);
        }
    }

    /// How many card models a job may use beside its first.
    pub(crate) fn count_choices(&self, id: &str) -> usize {
        self.choices.get(id).copied().unwrap_or(0)
    }

    pub(crate) fn has_choice(&self, id: &str) -> bool {
        self.choices.contains_key(id)
    }

    /// The names of a job's other models, which are forgotten.
    pub(crate) fn take_other_entries(&mut self, id: &str) -> Vec<JobId> {
        let Some((id, count)) = self.choices.remove_entry(id) else { return Vec::new() };
        (0..count).map(|number| id.with_choice(number)).collect()
    }

    /// All entries of a job, its first model first.
    pub(crate) fn list_entries(&self, id: &str) -> Vec<JobId> {
        let count = self.count_choices(id);
        let id = JobId::from(id);
        let others: Vec<JobId> = (0..count).map(|number| id.with_choice(number)).collect();
        std::iter::once(id).chain(others).collect()
    }

    /// What a job asks for comes on top of what another one holds, until it is removed.
    pub(crate) fn mark_as_resize_of(&mut self, id: &JobId, of: &JobId) {
        if self.resized.get(id) != Some(of) {
            self.resized.insert(id.clone(), of.clone());
        }
    }

    /// The job on top of which this one comes.
    pub(crate) fn find_resized_job(&self, id: &str) -> Option<&JobId> {
        self.resized.get(id)
    }
}
