//! What a release changes: what the job is granted and charged, and who has its reservations next.

use crate::{
    admission::Admission,
    node_groups::NodeRestriction,
    queue::{
        capacity::ClusterCapacity,
        engine::{Engine, QueueingState, Release, capacity_reservations::KeptBound},
        pending::{job_order::JobKey, shape_table::ShapeId},
        quota::{amounts::Sparse, slot::QueueIndex},
        reservation::ReservationId,
    },
};

impl Engine {
    /// A job starts, on the card model of this entry: it is charged, and no entry of it waits any more.
    pub(crate) fn release_job(
        &mut self,
        node: QueueIndex,
        key: &JobKey,
        id: ShapeId,
        blocking: &[ReservationId],
        capacity: &mut impl ClusterCapacity,
    ) -> Release {
        let shape = &self.shapes[id];
        let slot = &self.queues[node];
        let beside_kept = self.list_kept_bounds(node, id);
        let (pods, charged) = shape.grant_pods(&slot.path, |at, dim| {
            let quota = self.queues.free_quota(at, dim).map(|free| free - self.reserved_amount(blocking, at, dim));
            let is_its = |bound: &&KeptBound| at == QueueIndex::ROOT && bound.dim == dim;
            let beside = beside_kept.iter().filter(is_its);
            beside.map(|bound| bound.free() - self.reserved_amount(blocking, at, dim)).chain(quota).min()
        });
        let (queue, copies) = (slot.name.clone(), shape.ask.copies);
        let above = slot.path[1..].iter().filter(|at| **at != QueueIndex::ROOT);
        let above = above.map(|at| self.queues[*at].name.clone()).collect();
        let counts = shape.counts.clone();
        let charge =
            if shape.is_all_or_nothing() { shape.sparse.clone() } else { self.queues.dims.intern_amounts(&charged) };
        let charge: Sparse = if charge.is_empty() { charge } else { [charge, counts].concat().into() };
        let tasks = shape.ask.tasks.iter().zip(pods).map(|(task, pods)| (task.name.clone(), pods)).collect();
        let card = shape.ask.card().cloned();
        let job = key.id.job();
        let held = self.reservations.held_by_job(&job).map(|(_, held)| held);
        let priority = match self.jobs.get(key.id.as_str()) {
            Some(QueueingState::Pending { rank, .. }) => rank.priority,
            _ => key.priority.0,
        };
        self.remove_reservation_of_job(key.id.as_str());
        self.cancel_aging(node, key);
        self.remove_pending(node, key);
        self.shapes.drop_user(id);
        self.jobs.remove(key.id.as_str());
        self.remove_job(job.as_str());
        self.add_charge(node, &charge);
        if let Some(held) = held {
            self.reserve_for_next_blocked(held, capacity);
        }
        self.recheck_clusters_of_copies();
        self.jobs.insert(job.clone(), QueueingState::Charged { node, charge, end: None });
        // What else its queue says of its run is for who releases it.
        let (run, data, nodes, clusters, together) = (None, None, NodeRestriction::default(), Vec::new(), None);
        let admission =
            Admission { queue, above, priority, copies, tasks, charged, run, data, nodes, clusters, card, together };
        Release { id: job, admission }
    }
}
