//! What waits and what runs, as plain values: what a simulation of "what if" starts from.
//!
//! Read it from an index that was filled with lists and not decided on yet. Jobs that somebody holds back, or that ended,
//! are left out: they neither wait for anything nor hold anything.

use std::sync::Arc;

use caldera_core::{
    gang::{Gang, QueueName, WorkloadRef},
    place,
    queue::{QueueSpec, ledger::Stage},
};
use caldera_crds::workload::WorkloadKind;

use crate::index::{Entry, Index, State};

/// All of it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Queues, by name.
    pub queues: Vec<QueueSpec>,
    /// Clusters, by name.
    pub clusters: Vec<place::Cluster>,
    /// Jobs that wait or hold something, by the name of their bindings.
    pub jobs: Vec<Job>,
}

/// A job that waits or holds something.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its binding: namespace/name.
    pub name: String,
    /// Whose pods are its own.
    pub workload: WorkloadRef,
    /// The queue that is, or would be, charged.
    pub queue: QueueName,
    /// Its value.
    pub priority: i32,
    /// Seconds since 1970.
    pub created: i64,
    /// When it began to run, in seconds since 1970, if it says so.
    pub began: Option<i64>,
    /// It is in clusters.
    pub placed: bool,
    /// Seconds that it runs at most, if it says so.
    pub run_for: Option<i64>,
    /// What it asks for.
    pub gang: Arc<Gang>,
    /// As placement sees it.
    pub binding: Arc<place::Binding>,
    /// Placed as a gang.
    pub whole: bool,
}

/// See the module.
#[must_use]
pub fn snapshot(index: &Index) -> Snapshot {
    Snapshot {
        queues: index.queues.values().map(|queue| queue.spec.clone()).collect(),
        clusters: index.room.clusters(),
        jobs: index.entries.values().filter_map(|entry| job(index, entry)).collect(),
    }
}

fn job(index: &Index, entry: &Entry) -> Option<Job> {
    let placed = match &entry.state {
        State::InLine => false,
        State::Holding { stage: Stage::Placed | Stage::Foreign, .. } => true,
        State::Holding { stage: Stage::Admitted, .. } => false,
        State::Holding { .. } | State::Blocked(_) | State::OutOfScope => return None,
    };
    let binding = &entry.binding;
    let workload = index.workload_of(binding)?;
    let admitted = binding.admission.as_ref().map(|admission| &admission.queue);
    Some(Job {
        name: binding.key.to_string(),
        workload: (*binding.workload).clone(),
        queue: admitted.unwrap_or(&workload.queue).clone(),
        priority: index.priority_of(&workload.class),
        created: binding.created,
        began: workload.progress.started.or(binding.scheduled).filter(|_| placed),
        placed,
        run_for: workload.run_for,
        gang: workload.gang.as_ref().ok()?.clone(),
        binding: binding.placement.clone()?,
        whole: workload.kind == WorkloadKind::VolcanoJob,
    })
}
