//! Which images the nodes of each cluster have.
//!
//! Rule: those of nodes that take pods count, as the member tells of them itself, or as its collector summed them up. A
//! change of them is no reason to decide anew: images say which of two places is better, and never whether there is
//! one.

use std::{collections::BTreeMap, sync::Arc};

use super::{FleetMember, Origin};
use crate::{
    image_locality::{ClusterImages, NodeImage},
    inventory::{Change, Node},
};

/// Images by node, with the sums over all nodes; a name is kept once.
#[derive(Debug, Clone, Default)]
pub(super) struct ImagesOnNodes {
    /// Of nodes that take pods.
    nodes: BTreeMap<String, Vec<(Arc<str>, u64)>>,
    /// Bytes on all nodes, and on how many nodes.
    totals: BTreeMap<Arc<str>, (u64, usize)>,
    /// As the collector publishes it.
    published: ClusterImages,
    /// They differ from when they were last summed up.
    changed: bool,
}

impl ImagesOnNodes {
    /// Takes in what a change says of images.
    pub(super) fn observe_change(&mut self, change: &Change) {
        match change {
            Change::Nodes(all) => {
                (self.nodes, self.totals, self.changed) = (BTreeMap::new(), BTreeMap::new(), true);
                all.iter().for_each(|node| self.set_node(node));
            }
            Change::Node(node) => self.set_node(node),
            Change::NodeGone(name) => self.remove_node(name),
            Change::Pods(_)
            | Change::Pod(_)
            | Change::PodGone(..)
            | Change::HyperNodes(_)
            | Change::HyperNode(_)
            | Change::HyperNodeGone(_)
            | Change::NumaTopologies(_)
            | Change::NumaTopology(..)
            | Change::NumaTopologyGone(_)
            | Change::AllDevices(_)
            | Change::Devices(..) => {}
        }
    }

    /// Takes in what a collector publishes.
    pub(super) fn set_published(&mut self, images: ClusterImages) {
        self.changed |= self.published != images;
        self.published = images;
    }

    /// It is to be asked again which of both counts.
    pub(super) const fn mark_changed(&mut self) {
        self.changed = true;
    }

    fn set_node(&mut self, node: &Node) {
        let takes_pods = node.takes_pods();
        let is_as_before = |known: &Vec<(Arc<str>, u64)>| {
            let same =
                |((name, bytes), image): (&(Arc<str>, u64), &NodeImage)| **name == *image.name && *bytes == image.bytes;
            takes_pods && known.len() == node.images.len() && known.iter().zip(&node.images).all(same)
        };
        match self.nodes.get(&node.name) {
            Some(known) if is_as_before(known) => return,
            None if !takes_pods => return,
            _ => self.remove_node(&node.name),
        }
        if takes_pods {
            let kept = node.images.iter().map(|image| (self.count_image(image), image.bytes)).collect();
            self.nodes.insert(node.name.clone(), kept);
            self.changed = true;
        }
    }

    fn count_image(&mut self, image: &NodeImage) -> Arc<str> {
        let known = self.totals.get_key_value(&*image.name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| image.name.as_str().into());
        let (bytes, nodes) = self.totals.entry(Arc::clone(&name)).or_default();
        (*bytes, *nodes) = (bytes.saturating_add(image.bytes), *nodes + 1);
        name
    }

    fn remove_node(&mut self, name: &str) {
        let Some(images) = self.nodes.remove(name) else { return };
        self.changed = true;
        for (name, gone) in images {
            let Some((bytes, nodes)) = self.totals.get_mut(&name) else { continue };
            (*bytes, *nodes) = (bytes.saturating_sub(gone), *nodes - 1);
            if *nodes == 0 {
                self.totals.remove(&name);
            }
        }
    }

    /// The images that count, by where the nodes are told of.
    fn sum_images(&self, origin: &Origin) -> ClusterImages {
        match origin {
            Origin::Published { .. } => self.published.clone(),
            Origin::Member => {
                let totals = self.totals.iter().map(|(name, (bytes, _))| (&**name, *bytes));
                ClusterImages::from_totals(totals, self.nodes.len())
            }
        }
    }
}

impl FleetMember {
    /// Brings what placement sees of its images up to date.
    pub(super) fn refresh_images(&mut self) {
        if std::mem::take(&mut self.images.changed) {
            self.cluster.images = Arc::new(self.images.sum_images(&self.origin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fleet::{Fleet, Update},
        inventory::Capacity,
        place::Cluster,
    };

    fn node(name: &str, images: &[(&str, u64)]) -> Node {
        let images = images.iter().map(|(name, bytes)| NodeImage { name: (*name).to_owned(), bytes: *bytes });
        Node { name: name.to_owned(), ready: true, images: images.collect(), ..Node::default() }
    }

    struct World(Fleet);

    impl World {
        fn new() -> Self {
            let mut fleet = Fleet::default();
            let cluster = Cluster { name: "m".to_owned(), ready: true, ..Cluster::default() };
            fleet.set_cluster(cluster, Capacity::default());
            Self(fleet)
        }

        /// What the cluster has after this, and whether it is a reason to decide anew.
        fn after(&mut self, update: Update) -> (String, bool) {
            let decides = self.0.apply_update("m", update);
            self.0.refresh_capacities();
            let cluster = self.0.cluster("m").unwrap();
            let images = cluster.images.iter().map(|(name, bytes)| format!("{name} {bytes}"));
            (images.collect::<Vec<_>>().join(", "), decides)
        }

        fn images_after(&mut self, change: Change) -> String {
            self.after(Update::Change(change)).0
        }
    }

    #[test]
    fn images_count_by_their_mean_over_the_nodes_that_take_pods() {
        let mut world = World::new();
        let closed = Node { unschedulable: true, ..node("c", &[("a", 900)]) };
        let all = vec![node("n1", &[("a", 100), ("b", 50)]), node("n2", &[("a", 100)]), closed.clone()];
        assert_eq!(world.images_after(Change::Nodes(all)), "a 100, b 25");
        assert_eq!(world.images_after(Change::Node(node("n2", &[("b", 70)]))), "a 50, b 60");
        assert_eq!(world.images_after(Change::Node(Node { unschedulable: false, ..closed })), "a 333, b 40");
        assert_eq!(world.images_after(Change::Node(Node { ready: false, ..node("c", &[("a", 900)]) })), "a 50, b 60");
        assert_eq!(world.images_after(Change::NodeGone("n1".to_owned())), "b 70");
        assert_eq!(world.images_after(Change::NodeGone("n2".to_owned())), "");
    }

    #[test]
    fn a_change_of_images_alone_is_no_reason_to_decide_anew_and_a_cluster_event_keeps_them() {
        let mut world = World::new();
        world.after(Update::Change(Change::Nodes(vec![node("n1", &[])])));
        let pulled = Change::Node(node("n1", &[("a", 100)]));
        assert_eq!(world.after(Update::Change(pulled.clone())), ("a 100".to_owned(), false));
        let cluster = Cluster { name: "m".to_owned(), ready: true, ..Cluster::default() };
        assert!(!world.0.set_cluster(cluster, Capacity::default()));
        assert_eq!(world.after(Update::Change(pulled)), ("a 100".to_owned(), false));
    }

    #[test]
    fn what_a_collector_publishes_counts_while_the_nodes_are_told_by_it() {
        let mut world = World::new();
        let published = Origin::Published { seen_at: String::new(), late: None };
        world.after(Update::From(published));
        let images = ClusterImages::from_means([("a", 7)].into_iter());
        assert_eq!(world.after(Update::Images(images)), ("a 7".to_owned(), false));
        assert_eq!(world.images_after(Change::Nodes(vec![node("n1", &[])])), "a 7");
        world.after(Update::Change(Change::Nodes(vec![node("n1", &[("b", 9)])])));
        assert_eq!(world.after(Update::From(Origin::Member)), ("b 9".to_owned(), false));
    }
}
