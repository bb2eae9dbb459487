//! Nodes that a member's autoscaled groups may still add.
//!
//! Rule: so many as the group's greatest size is larger than the number of its nodes that are there, each as its group
//! says ([`crate::autoscaling`]). What a node will be called is not known: it is in the domain that its labels put it
//! in, and in none that goes by names.

use std::{collections::BTreeMap, sync::Arc};

use super::{Amounts, Capacity, Inventory, NodeRef, NodeShape, node_shapes::NodeSpec};
use crate::autoscaling::Autoscaling;

/// No node can have a name that begins so.
const NAME_BEGINS: &str = "new node of group ";

impl Inventory {
    /// Nodes that may still come beside those that are there, whatever state these are in: one that just came, and
    /// takes no pods yet, does not come again.
    #[must_use]
    pub fn list_upcoming_nodes(&self, groups: &Autoscaling) -> Vec<NodeShape> {
        self.list_nodes_up_to_group_max(groups, |_| true)
    }

    /// Nodes that may some day be there beside those that take pods now. As long as nobody knows the nodes that is each
    /// group's greatest size.
    #[must_use]
    pub fn list_nodes_that_may_come(&self, groups: &Autoscaling) -> Vec<NodeShape> {
        let is_complete = self.is_complete();
        self.list_nodes_up_to_group_max(groups, |spec| is_complete && spec.usable)
    }

    fn list_nodes_up_to_group_max(&self, groups: &Autoscaling, is_there: impl Fn(&NodeSpec) -> bool) -> Vec<NodeShape> {
        let mut shapes = Vec::new();
        for group in groups.iter() {
            let is_of_group = |spec: &&NodeSpec| is_there(spec) && group.has_node(|key| spec.node.label(key));
            let there = self.node_specs().filter(is_of_group).count();
            let more = (group.max as usize).saturating_sub(there);
            if more == 0 {
                continue;
            }
            let node = NodeRef::with_labels(format!("{NAME_BEGINS}{}", group.name), group.labels_of_new_node());
            // A cluster without nodes that are known carries all labels.
            let labels = if self.is_complete() { self.shown.labels_of(&node) } else { group.labels_of_new_node() };
            let mut taints = group.taints.clone();
            taints.sort();
            let has = Arc::new(Amounts::from(&group.resources));
            let mut shape = NodeShape {
                labels: Some(Arc::new(labels)),
                taints: taints.into(),
                allocatable: Arc::clone(&has),
                free: has,
                numa: None,
                nodes: Vec::with_capacity(more),
                domains: Vec::new(),
            };
            let domain = self.matcher.lowest_domain_by_labels(&node);
            (0..more).for_each(|_| shape.push_node(domain, node.clone()));
            shapes.push(shape);
        }
        shapes
    }
}

/// The group whose nodes that may come have this shape; `None` where its nodes are there.
#[must_use]
pub(crate) fn find_group_of_upcoming(shape: &NodeShape) -> Option<&str> {
    shape.nodes.first()?.strip_prefix(NAME_BEGINS)
}

/// How many nodes of each group something was put on, of which nothing but upcoming nodes are left.
#[must_use]
pub(crate) fn count_upcoming_nodes_taken(before: &Capacity, after: &Capacity) -> BTreeMap<Arc<str>, u32> {
    let mut taken: BTreeMap<(Arc<str>, &Amounts), u32> = BTreeMap::new();
    let count = |shape: &NodeShape| u32::try_from(shape.nodes.len()).unwrap_or(u32::MAX);
    let of = |shape: &NodeShape| find_group_of_upcoming(shape).map(Arc::from);
    for shape in &before.shapes {
        of(shape).into_iter().for_each(|group| *taken.entry((group, &shape.free)).or_default() += count(shape));
    }
    for shape in &after.shapes {
        let left = of(shape).and_then(|group| taken.get_mut(&(group, &shape.free)));
        left.into_iter().for_each(|left| *left = left.saturating_sub(count(shape)));
    }
    let mut groups = BTreeMap::new();
    for ((group, _), nodes) in taken.into_iter().filter(|(_, nodes)| *nodes > 0) {
        *groups.entry(group).or_default() += nodes;
    }
    groups
}
