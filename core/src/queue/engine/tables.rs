//! The engine's tables: names and shapes interned and forgotten, and charges added and removed on the whole
//! path.

use std::collections::BTreeSet;

use crate::{
    gang::QueueName,
    queue::{
        engine::{Engine, QueueingState},
        pending::{job_order::JobKey, line::PendingLine, queue_order::Touch},
        quota::{amounts::Dim, slot::QueueIndex},
    },
};

impl Engine {
    pub(crate) fn intern_queue(&mut self, name: &QueueName) -> QueueIndex {
        if let Some(node) = self.queues.find_node(name) {
            return node;
        }
        let node = self.queues.add_name(name);
        match self.lines.get_mut(node.index()) {
            Some(old) => *old = PendingLine::default(),
            None => self.lines.push(PendingLine::default()),
        }
        node
    }

    pub(crate) fn list_queues_of_jobs(&self) -> BTreeSet<QueueIndex> {
        let queue = |state: &QueueingState| match state {
            QueueingState::Pending { node, .. }
            | QueueingState::Charged { node, .. }
            | QueueingState::BackingOff { node, .. } => *node,
        };
        self.jobs.values().map(queue).collect()
    }

    /// Forgets the resources and namespaces that no queue, cluster or job has any more, if many new ones came.
    pub(crate) fn drop_unused_names(&mut self) {
        if !self.queues.dims.have_doubled() {
            return;
        }
        let mut used: BTreeSet<Dim> = self.shapes.list_dims().collect();
        used.extend(self.refusals.values().flat_map(|refusal| refusal.needs.list_dims()));
        for state in self.jobs.values() {
            if let QueueingState::Charged { charge, .. } = state {
                used.extend(charge.iter().map(|(dim, _)| *dim));
            }
        }
        self.queues.drop_unused_dims(used);
    }

    pub(crate) fn remove_pending(&mut self, node: QueueIndex, key: &JobKey) {
        let line = &self.lines[node.index()];
        let Some(shape) = line.shape_of(key) else { return };
        let was_first = line.first_of(shape) == Some(key);
        let alone = line.count_of(shape) == 1;
        if alone {
            // The shape goes: what is remembered of it goes first.
            self.requeue_shape(node, shape);
        }
        self.lines[node.index()].remove(key);
        if alone {
            self.forget_refusals(node, shape);
        }
        if was_first && !alone {
            self.requeue_after_new_first(node, shape);
        }
        self.update_blocked(node, shape);
        self.mark_head_changed(node);
        self.search.insert(node);
    }

    pub(crate) fn add_charge(&mut self, node: QueueIndex, amounts: &[(Dim, i128)]) {
        self.change_charge(node, amounts, 1);
    }

    pub(crate) fn remove_charge(&mut self, node: QueueIndex, amounts: &[(Dim, i128)]) {
        self.change_charge(node, amounts, -1);
        self.freed.extend(&self.queues[node].path);
    }

    fn change_charge(&mut self, node: QueueIndex, amounts: &[(Dim, i128)], times: i128) {
        self.queues.charge_path(node, amounts, times);
        self.queue_order.mark_touched(node, Touch::Share);
        self.note_tenant_change(node);
        self.reservations.note_usage_change(&self.queues[node].path);
    }
}
