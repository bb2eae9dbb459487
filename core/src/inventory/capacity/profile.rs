//! A capacity in a few numbers, so that a decision about many clusters looks closely at few of them.
//!
//! What the profile says can never be too little: pods that do not fit it fit nowhere. Amounts are whole numbers as
//! pods are packed by: milli cores, and units of all else, rounded down for each node.

use super::{super::ReducedNodes, Capacity};
use crate::{gang::Taint, quantity::Quantity, resources::ResourceName};

/// Sums and bounds of a capacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The columns.
    resources: Vec<ResourceName>,
    /// What a node of each shape has free; a row for each shape.
    shapes: Vec<i64>,
    /// What is free in all: a row for the cluster, then one for each domain with all that is within it.
    free: Vec<i64>,
    /// The most that one node has free; rows as in `free`.
    largest: Vec<i64>,
    /// Nodes that offer something; rows as in `free`.
    nodes: Vec<u32>,
    /// The domains' tiers, which grow with the rows.
    tiers: Vec<u32>,
    /// Some node has a `PreferNoSchedule` taint.
    avoided: bool,
}

/// The cluster's row.
pub const CLUSTER_ROW: usize = 0;

impl Profile {
    pub(in crate::inventory) fn of_capacity(capacity: &Capacity) -> Self {
        let mut resources: Vec<ResourceName> = Vec::new();
        for name in capacity.shapes.iter().flat_map(|shape| shape.free.keys()) {
            if let Err(at) = resources.binary_search(name) {
                resources.insert(at, name.clone());
            }
        }
        let mut shapes = Vec::with_capacity(capacity.shapes.len() * resources.len());
        for shape in &capacity.shapes {
            let free = |name| shape.free.get(name).map_or(0, |amount| packing_units_floor(name, *amount).max(0));
            shapes.extend(resources.iter().map(free));
        }
        Self::of_rows(capacity, resources, shapes)
    }

    /// The rows of these shapes, and after them those of nodes that have less free.
    pub(in crate::inventory) fn append_reduced_rows(&self, less: &[ReducedNodes]) -> Vec<i64> {
        let mut rows = self.shapes.clone();
        for part in less {
            let from = rows.len();
            rows.extend_from_slice(self.free_of_shape(part.shape));
            for (name, used) in &part.used {
                if let Some(column) = self.column(name) {
                    rows[from + column] = (rows[from + column] - used).max(0);
                }
            }
        }
        rows
    }

    /// The profile of a capacity that has these rows, one for each of its shapes.
    pub(in crate::inventory) fn of_rows(capacity: &Capacity, resources: Vec<ResourceName>, shapes: Vec<i64>) -> Self {
        let (width, rows) = (resources.len(), capacity.domains.len() + 1);
        let tiers = capacity.domains.iter().map(|(_, domain)| domain.tier).collect();
        let (free, largest) = (vec![0; rows * width], vec![0; rows * width]);
        let avoided = capacity.shapes.iter().flat_map(|shape| &*shape.taints).any(Taint::discourages);
        let mut profile = Self { shapes: Vec::new(), free, largest, nodes: vec![0; rows], tiers, resources, avoided };
        for (at, shape) in capacity.shapes.iter().enumerate() {
            let each = &shapes[at * width..(at + 1) * width];
            profile.add_nodes(CLUSTER_ROW, each, u32::try_from(shape.nodes.len()).unwrap_or(u32::MAX));
            for (domain, nodes) in &shape.domains {
                profile.add_nodes(domain.index() + 1, each, *nodes);
            }
        }
        profile.shapes = shapes;
        // Children come before their parents.
        for (id, domain) in capacity.domains.iter() {
            if let Some(parent) = domain.parent {
                profile.add_row(id.index() + 1, parent.index() + 1);
            }
        }
        profile
    }

    /// Whether pods should go elsewhere than to some of its nodes, if they can.
    pub(crate) const fn has_avoided_nodes(&self) -> bool {
        self.avoided
    }

    fn add_nodes(&mut self, row: usize, each: &[i64], nodes: u32) {
        let width = self.resources.len();
        self.nodes[row] = self.nodes[row].saturating_add(nodes);
        for (column, each) in each.iter().enumerate() {
            let at = row * width + column;
            self.free[at] = self.free[at].saturating_add(each.saturating_mul(i64::from(nodes)));
            self.largest[at] = self.largest[at].max(*each);
        }
    }

    fn add_row(&mut self, from: usize, to: usize) {
        let width = self.resources.len();
        self.nodes[to] = self.nodes[to].saturating_add(self.nodes[from]);
        for column in 0..width {
            let (from, to) = (from * width + column, to * width + column);
            self.free[to] = self.free[to].saturating_add(self.free[from]);
            self.largest[to] = self.largest[to].max(self.largest[from]);
        }
    }

    /// The columns' names.
    pub(in crate::inventory) fn resources(&self) -> &[ResourceName] {
        &self.resources
    }

    /// Where a resource's numbers are.
    #[must_use]
    pub fn column(&self, name: &ResourceName) -> Option<usize> {
        self.resources.iter().position(|known| known == name)
    }

    /// What a node of a shape (by its place) has free, by column.
    #[must_use]
    pub fn free_of_shape(&self, index: usize) -> &[i64] {
        let width = self.resources.len();
        &self.shapes[index * width..(index + 1) * width]
    }

    /// What is free in all, by column: in the cluster ([`CLUSTER_ROW`]), or in a domain (its index and one).
    #[must_use]
    pub fn row_free(&self, row: usize) -> &[i64] {
        let width = self.resources.len();
        &self.free[row * width..(row + 1) * width]
    }

    /// The most that one node has free, by column; rows as in [`Self::free`].
    #[must_use]
    pub fn largest(&self, row: usize) -> &[i64] {
        let width = self.resources.len();
        &self.largest[row * width..(row + 1) * width]
    }

    /// The domains' tiers, in their order: lower ones first.
    #[must_use]
    pub fn tiers(&self) -> &[u32] {
        &self.tiers
    }

    /// Nodes; rows as in [`Self::free`].
    #[must_use]
    pub fn nodes(&self, row: usize) -> u32 {
        self.nodes[row]
    }
}

/// Nano units in one of the units that a resource is packed by.
#[must_use]
pub fn packing_scale(name: &ResourceName) -> i128 {
    if name.as_str() == ResourceName::CPU { 1_000_000 } else { 1_000_000_000 }
}

/// An amount in those units, rounded down.
#[must_use]
pub fn packing_units_floor(name: &ResourceName, amount: Quantity) -> i64 {
    i64::try_from(amount.as_nano().div_euclid(packing_scale(name))).unwrap_or(i64::MAX)
}

/// An amount in those units, rounded up.
#[must_use]
pub fn packing_units_ceil(name: &ResourceName, amount: Quantity) -> i64 {
    i64::try_from(-(-amount.as_nano()).div_euclid(packing_scale(name))).unwrap_or(i64::MAX)
}
