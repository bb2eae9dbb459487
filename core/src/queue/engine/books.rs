//! The engine's tables: names and shapes interned and forgotten, charges on the way up, and who wakes when something is
//! given back.

use std::{collections::BTreeSet, sync::Arc};

use super::{Engine, Standing};
use crate::{
    gang::QueueName,
    queue::{
        admit::{self, Ask, Shape},
        dense::Dim,
        line::{Bed, ShapeId},
        order::JobKey,
        sleepers::Sleeper,
        tournament::Touch,
        tree::{Node, Slot},
    },
};

impl Engine {
    pub(super) fn node(&mut self, name: &QueueName) -> Node {
        if let Some(node) = self.index.get(name) {
            return *node;
        }
        let node = self.unused.pop().unwrap_or(Node(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        let slot = Slot::new(name.clone(), node);
        match self.slots.get_mut(node.index()) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        self.index.insert(name.clone(), node);
        node
    }

    /// Forgets names that neither a queue nor a job has any more.
    pub(super) fn drop_unused(&mut self) {
        let held: BTreeSet<Node> = self
            .jobs
            .values()
            .map(|standing| match standing {
                Standing::Waiting { node, .. } | Standing::Holding { node, .. } | Standing::Aside { node, .. } => *node,
            })
            .collect();
        let (slots, unused) = (&self.slots, &mut self.unused);
        self.index.retain(|_, node| {
            let used = *node == Node::ROOT || slots[node.index()].spec.is_some() || held.contains(node);
            if !used {
                unused.push(*node);
            }
            used
        });
    }

    pub(super) fn shape(&self, id: ShapeId) -> &Shape {
        &self.shapes[id.0 as usize]
    }

    pub(super) fn intern(&mut self, ask: Arc<Ask>) -> ShapeId {
        let id = match self.shape_ids.get(&ask) {
            Some(id) => *id,
            None => {
                let shape = Shape::new(Arc::clone(&ask), &mut self.dims);
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

    pub(super) fn release_shape(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id.0 as usize];
        shape.users -= 1;
        if shape.users == 0 {
            self.shape_ids.remove(&shape.ask);
            self.unused_shapes.push(id);
        }
    }

    pub(super) fn leave_line(&mut self, node: Node, key: &JobKey) {
        let line = &self.slots[node.index()].line;
        let Some(shape) = line.shape_of(key) else { return };
        let was_first = line.first_of(shape) == Some(key);
        let alone = line.count_of(shape) == 1;
        if alone {
            // Nobody is left to sleep: what is remembered of it goes first.
            self.wake(node, shape);
        }
        self.slots[node.index()].line.remove(key);
        if alone {
            self.leave_refusals(node, shape);
        }
        if was_first && !alone {
            self.first_changed(node, shape, key);
        }
        self.rank_again(node, shape);
        self.refresh_head(node);
        self.ease_own(node);
    }

    pub(super) fn charge(&mut self, node: Node, amounts: &[(Dim, i128)]) {
        self.books += 1;
        self.slots[node.index()].own.add(amounts);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            self.slots[at.index()].used.add(amounts);
        }
        self.heads.touch(node, Touch::Share);
        self.fences.moved(&self.slots[node.index()].path);
        self.touch_sleepers(node);
    }

    pub(super) fn give_back(&mut self, node: Node, amounts: &[(Dim, i128)]) {
        self.books += 1;
        self.slots[node.index()].own.sub(amounts);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            self.slots[at.index()].used.sub(amounts);
        }
        self.heads.touch(node, Touch::Share);
        self.fences.moved(&self.slots[node.index()].path);
        self.touch_sleepers(node);
        for i in 0..self.slots[node.index()].path.len() {
            let at = self.slots[node.index()].path[i];
            for (dim, _) in amounts {
                if self.short.contains_key(&(at, *dim)) {
                    self.ease(at, *dim);
                }
            }
        }
    }

    /// Wakes the shapes whose ceiling is no longer above them; all others may have enough now.
    pub(super) fn wake_after_settling(&mut self) {
        let mut strays = Vec::new();
        for ((at, _), sleepers) in &mut self.short {
            let slots = &self.slots;
            strays.extend(sleepers.iter().filter(|(node, _)| !slots[node.index()].path.contains(at)));
            sleepers.restart();
        }
        for (node, shape) in strays {
            self.wake(node, shape);
        }
        self.eased.clear();
        self.eased_own.clear();
        for (at, dim) in self.short.keys().copied().collect::<Vec<_>>() {
            self.ease(at, dim);
        }
    }

    /// A shape sleeps on a ceiling, if it does.
    pub(super) fn lie_down(&mut self, node: Node, shape: ShapeId, bed: Bed) {
        let (Bed::Quota(at, dim, needs) | Bed::Fenced(at, dim, needs)) = bed else { return };
        let Some(key) = self.slots[node.index()].line.first_of(shape).cloned() else { return };
        self.short.entry((at, dim)).or_default().insert(Sleeper { node, key, shape }, needs);
        if self.has_enough(node, shape) {
            self.ease(at, dim);
        }
    }

    /// It does not any more.
    pub(super) fn get_up(&mut self, sleeper: Sleeper, bed: Bed) {
        let (Bed::Quota(at, dim, _) | Bed::Fenced(at, dim, _)) = bed else { return };
        let Some(sleepers) = self.short.get_mut(&(at, dim)) else { return };
        sleepers.remove(sleeper);
        if sleepers.is_empty() {
            self.short.remove(&(at, dim));
        }
    }

    /// Whether what a shape sleeps on has as much as it needs: it is as good as awake.
    pub(super) fn has_enough(&self, node: Node, shape: ShapeId) -> bool {
        match self.slots[node.index()].line.bed(shape) {
            Some(Bed::Quota(at, dim, needs) | Bed::Fenced(at, dim, needs)) => {
                admit::headroom(&self.slots[at.index()], dim).is_none_or(|room| needs <= room)
            }
            _ => false,
        }
    }

    /// The order of those who sleep under the ceilings above a queue may have changed.
    pub(super) fn touch_sleepers(&mut self, node: Node) {
        if self.short.is_empty() {
            return;
        }
        for at in &self.slots[node.index()].path {
            for (_, sleepers) in self.short.range_mut((*at, Dim::FIRST)..=(*at, Dim::LAST)) {
                sleepers.touch(node);
            }
        }
    }
}
