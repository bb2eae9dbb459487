//! The table of shapes: jobs that ask for the same share one, as long as any of them is there.

use std::{collections::HashMap, ops::Index, sync::Arc};

use crate::queue::quota::{
    admission::{Ask, JobShape},
    amounts::{Dim, Dims},
};

/// A place in the table of shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(pub(super) u32);

/// See the module. The index of a table is a shape.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShapeTable {
    /// Those without users are free for reuse.
    shapes: Vec<JobShape>,
    ids: HashMap<Arc<Ask>, ShapeId>,
    unused: Vec<ShapeId>,
}

impl Index<ShapeId> for ShapeTable {
    type Output = JobShape;

    fn index(&self, id: ShapeId) -> &JobShape {
        &self.shapes[id.0 as usize]
    }
}

impl ShapeTable {
    /// The shape of a job that asks for this, with one more user.
    pub(crate) fn intern_shape(&mut self, ask: Arc<Ask>, dims: &mut Dims) -> ShapeId {
        let id = match self.ids.get(&ask) {
            Some(id) => *id,
            None => {
                let shape = JobShape::new(Arc::clone(&ask), dims);
                let new = ShapeId(u32::try_from(self.shapes.len()).unwrap_or(u32::MAX));
                let id = self.unused.pop().unwrap_or(new);
                match self.shapes.get_mut(id.0 as usize) {
                    Some(free) => *free = shape,
                    None => self.shapes.push(shape),
                }
                self.ids.insert(ask, id);
                id
            }
        };
        self.shapes[id.0 as usize].users += 1;
        id
    }

    pub(crate) fn drop_user(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id.0 as usize];
        shape.users -= 1;
        if shape.users == 0 {
            self.ids.remove(&shape.ask);
            self.unused.push(id);
        }
    }

    /// All that shapes with users name.
    pub(crate) fn list_dims(&self) -> impl Iterator<Item = Dim> {
        self.shapes.iter().filter(|shape| shape.users > 0).flat_map(JobShape::list_dims)
    }

    /// Places, used or free.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shapes.len()
    }
}
