//! The engine's tables: names and shapes interned and forgotten, and charges added and removed on the whole
//! path.

use std::collections::BTreeSet;

use crate::{
    gang::QueueName,
    queue::{
        engine::Engine,
        pending::{job_order::JobKey, queue_order::Touch},
        quota::{amount::Amount, amounts::Dim, slot::QueueIndex},
    },
};

impl Engine {
    pub(crate) fn intern_queue(&mut self, name: &QueueName) -> QueueIndex {
        if let Some(node) = self.queues.find_node(name) {
            return node;
        }
        let node = self.queues.add_name(name);
        self.pending.add_line(node);
        node
    }

    /// Forgets the resources and namespaces that no queue, cluster or job has any more, if many new ones came.
    pub(crate) fn drop_unused_names(&mut self) {
        if !self.queues.dims.needs_cleanup() {
            return;
        }
        let mut used: BTreeSet<Dim> = self.shapes.list_dims().collect();
        used.extend(self.refusals.list_dims());
        used.extend(self.jobs.list_charged_dims());
        self.queues.drop_unused_dims(used);
    }

    pub(crate) fn remove_pending(&mut self, node: QueueIndex, key: &JobKey) {
        let line = &self.pending[node];
        let Some(shape) = line.shape_of(key) else { return };
        let was_first = line.first_of(shape) == Some(key);
        let alone = line.count_of(shape) == 1;
        if alone {
            // The shape goes: what is remembered of it goes first.
            self.requeue_shape(node, shape);
        }
        self.pending.remove_job(node, key);
        if alone {
            self.refusals.forget_shape(self.shapes[shape].ask.fit, node, shape);
        }
        if was_first && !alone {
            self.requeue_after_new_first(node, shape);
        }
        self.update_blocked(node, shape);
        self.mark_head_changed(node);
    }

    pub(crate) fn add_charge(&mut self, node: QueueIndex, amounts: &[(Dim, Amount)]) {
        self.change_charge(node, amounts, 1);
    }

    pub(crate) fn remove_charge(&mut self, node: QueueIndex, amounts: &[(Dim, Amount)]) {
        self.change_charge(node, amounts, -1);
        self.pending.note_freed(&self.queues[node].path);
        self.kept_capacity.note_freed();
    }

    fn change_charge(&mut self, node: QueueIndex, amounts: &[(Dim, Amount)], times: i64) {
        self.queues.charge_path(node, amounts, times);
        self.queue_order.mark_touched(node, Touch::Share);
        self.update_after_tenant_change(node);
        self.reservations.note_usage_change(&self.queues[node].path);
    }
}
