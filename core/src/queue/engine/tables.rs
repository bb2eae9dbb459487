//! The engine's tables: names and shapes interned and forgotten, and charges added and removed on the whole
//! path.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    gang::QueueName,
    queue::{
        engine::{Engine, QueueingState},
        pending::{
            job_order::JobKey,
            line::{PendingLine, ShapeId},
            queue_order::Touch,
        },
        quota::{
            admission::{Ask, JobShape},
            amounts::Dim,
            slot::{QueueIndex, Slot},
        },
        spec::QueueSpec,
    },
    resources::Resources,
};

impl Engine {
    pub(crate) fn intern_queue(&mut self, name: &QueueName) -> QueueIndex {
        if let Some(node) = self.index.get(name) {
            return *node;
        }
        let node = self.unused.pop().unwrap_or(QueueIndex(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        let slot = Slot::new(name.clone(), node);
        match self.slots.get_mut(node.index()) {
            Some(old) => (*old, self.lines[node.index()]) = (slot, PendingLine::default()),
            None => {
                self.slots.push(slot);
                self.lines.push(PendingLine::default());
            }
        }
        self.index.insert(name.clone(), node);
        node
    }

    /// Forgets names that neither a queue nor a job has any more.
    pub(crate) fn drop_unused_queues(&mut self) {
        let held: BTreeSet<QueueIndex> = self
            .jobs
            .values()
            .map(|state| match state {
                QueueingState::Pending { node, .. }
                | QueueingState::Charged { node, .. }
                | QueueingState::BackingOff { node, .. } => *node,
            })
            .collect();
        let (slots, unused) = (&self.slots, &mut self.unused);
        self.index.retain(|_, node| {
            let used = *node == QueueIndex::ROOT || slots[node.index()].spec.is_some() || held.contains(node);
            if !used {
                unused.push(*node);
            }
            used
        });
    }

    /// Forgets the resources and namespaces that no queue, cluster or job has any more, if many new ones came. Nothing
    /// else changes: what queues may have is of names that queues and clusters have.
    pub(crate) fn drop_unused_names(&mut self) {
        if !self.dims.have_doubled() {
            return;
        }
        let mut used = BTreeSet::new();
        let fleet = self.fleet.whole.iter().chain([&self.fleet.ready]).flat_map(Resources::iter).map(|(name, _)| name);
        let specs = self.slots.iter().filter_map(|slot| slot.spec.as_ref()).flat_map(QueueSpec::list_resources);
        used.extend(fleet.chain(specs).filter_map(|name| self.dims.find_dim(name)));
        used.extend(self.slots.iter().flat_map(|slot| slot.mean_used.iter()).map(|(dim, _)| dim));
        used.extend(self.shapes.iter().filter(|shape| shape.users > 0).flat_map(JobShape::list_dims));
        used.extend(self.refusals.values().flat_map(|refusal| refusal.needs.list_dims()));
        for state in self.jobs.values() {
            if let QueueingState::Charged { charge, .. } = state {
                used.extend(charge.iter().map(|(dim, _)| *dim));
            }
        }
        self.dims.retain(&used);
    }

    pub(crate) fn shape(&self, id: ShapeId) -> &JobShape {
        &self.shapes[id.0 as usize]
    }

    pub(crate) fn intern_shape(&mut self, ask: Arc<Ask>) -> ShapeId {
        let id = match self.shape_ids.get(&ask) {
            Some(id) => *id,
            None => {
                let shape = JobShape::new(Arc::clone(&ask), &mut self.dims);
                let new = ShapeId(u32::try_from(self.shapes.len()).unwrap_or(u32::MAX));
                let id = self.unused_shapes.pop().unwrap_or(new);
                match self.shapes.get_mut(id.0 as usize) {
                    Some(free) => *free = shape,
                    None => self.shapes.push(shape),
                }
                self.shape_ids.insert(ask, id);
                id
            }
        };
        self.shapes[id.0 as usize].users += 1;
        id
    }

    pub(crate) fn drop_shape_user(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id.0 as usize];
        shape.users -= 1;
        if shape.users == 0 {
            self.shape_ids.remove(&shape.ask);
            self.unused_shapes.push(id);
        }
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
        self.freed.extend(&self.slots[node.index()].path);
    }

    fn change_charge(&mut self, node: QueueIndex, amounts: &[(Dim, i128)], times: i128) {
        self.ledger_version += 1;
        self.slots[node.index()].charge_own(amounts, times);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            self.slots[at.index()].charge_subtree(amounts, times);
        }
        self.queue_order.mark_touched(node, Touch::Share);
        self.note_tenant_change(node);
        self.reservations.note_usage_change(&self.slots[node.index()].path);
    }
}
