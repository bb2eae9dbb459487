//! Which shapes lack quota, by the ceiling that they would break and by how much must be free there.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use crate::queue::{
    pending::{inadmissible::Inadmissible, shape_table::ShapeId},
    quota::{admission, amount::Amount, amounts::Dim, queue_table::QueueTable, slot::QueueIndex},
};

/// A resource at a ceiling, and the queue whose jobs lack it.
type Ceiling = (QueueIndex, QueueIndex, Dim);

/// Shapes by the ceiling that they would break, and by how much must be free there.
type ByCeiling = BTreeMap<Ceiling, BTreeSet<(Amount, ShapeId)>>;

/// The shapes that lack quota.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShortOfQuota {
    /// Those that may have enough when quota comes free.
    waiting: ByCeiling,
    /// Those that need more than the whole ceiling: nothing that comes free helps them, and they are looked at once
    /// ceilings change. Tenants make up names of resources, of which every ceiling is nothing.
    beyond: ByCeiling,
}

impl ShortOfQuota {
    pub(super) fn insert(&mut self, table: &QueueTable, queue: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        if let Some((at, dim, needed)) = cause.find_missing_quota() {
            let ceiling = admission::find_ceiling(&table[at], dim);
            let is_beyond = ceiling.is_some_and(|ceiling| needed > ceiling);
            let shapes = if is_beyond { &mut self.beyond } else { &mut self.waiting };
            shapes.entry((at, queue, dim)).or_default().insert((needed, shape));
        }
    }

    pub(super) fn remove(&mut self, queue: QueueIndex, shape: ShapeId, cause: Inadmissible) {
        let Some((at, dim, needed)) = cause.find_missing_quota() else { return };
        for shapes in [&mut self.waiting, &mut self.beyond] {
            if let Some(by_need) = shapes.get_mut(&(at, queue, dim))
                && by_need.remove(&(needed, shape))
                && by_need.is_empty()
            {
                shapes.remove(&(at, queue, dim));
            }
        }
    }

    /// Every shape, with its queue and the ceiling.
    pub(super) fn iter(&self) -> impl Iterator<Item = (QueueIndex, ShapeId, (QueueIndex, Dim))> {
        self.waiting
            .iter()
            .chain(&self.beyond)
            .flat_map(|((at, queue, dim), by_need)| by_need.iter().map(|(_, shape)| (*queue, *shape, (*at, *dim))))
    }

    /// Those of these queues of which a shape needs no more than is free at this ceiling.
    pub(super) fn queues_with_enough(
        &self,
        table: &QueueTable,
        at: QueueIndex,
        queues: RangeInclusive<QueueIndex>,
    ) -> impl Iterator<Item = QueueIndex> {
        let short = self.waiting.range((at, *queues.start(), Dim::FIRST)..=(at, *queues.end(), Dim::LAST));
        let enough = short.filter(move |((_, _, dim), by_need)| {
            by_need.first().is_some_and(|(least, _)| table.has_free_quota((at, *dim, *least)))
        });
        enough.map(|((_, queue, _), _)| *queue)
    }
}
