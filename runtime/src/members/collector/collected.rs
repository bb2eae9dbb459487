//! What a collector knows of its member, kept up to date by changes.
//!
//! Rule: the member's HyperNodes are its domains. Only while it has none, labels of its nodes make some.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    device::add_devices,
    fleet::Queues,
    inventory::{Change, Node, Pod},
    resources::Resources,
    topology_discovery::{TopologyLabels, TopologyLabelsError, list_label_domains},
};
use caldera_crds::published::{Contents, HyperNodes, Nodes};

/// The inventory of one member, as far as it is known.
#[derive(Debug, Default)]
pub struct CollectedInventory {
    contents: Contents,
    /// The member's own HyperNodes; what is published beside them is in `contents`.
    hyper_nodes: HyperNodes,
    /// Devices by node, and what the kubelets of those nodes report that are there.
    devices: BTreeMap<String, Resources>,
    reported: BTreeMap<String, Resources>,
    /// Whether nodes and pods were listed; HyperNodes come before them.
    listed: (bool, bool),
}

impl CollectedInventory {
    /// Takes in a change.
    pub fn apply_change(&mut self, change: Change) {
        let Self { contents: Contents { nodes, pods, numa, .. }, hyper_nodes, .. } = self;
        let key = |pod: &Pod| (pod.namespace.clone(), pod.name.clone());
        match change {
            Change::Nodes(all) => {
                self.listed.0 = true;
                nodes.clear();
                self.reported.clear();
                all.into_iter().for_each(|node| self.set_node(node));
            }
            Change::Node(node) => self.set_node(node),
            Change::NodeGone(name) => {
                nodes.remove(&name);
                self.reported.remove(&name);
            }
            Change::Pods(all) => {
                self.listed.1 = true;
                *pods = all.into_iter().map(|pod| (key(&pod), pod)).collect();
            }
            Change::Pod(pod) => drop(pods.insert(key(&pod), pod)),
            Change::PodGone(namespace, name) => drop(pods.remove(&(namespace, name))),
            Change::HyperNodes(all) => *hyper_nodes = all.into_iter().map(|one| (one.name.clone(), one)).collect(),
            Change::HyperNode(one) => drop(hyper_nodes.insert(one.name.clone(), one)),
            Change::HyperNodeGone(name) => drop(hyper_nodes.remove(&name)),
            Change::NumaTopologies(all) => *numa = all.into_iter().collect(),
            Change::NumaTopology(node, topology) => drop(numa.insert(node, topology)),
            Change::NumaTopologyGone(node) => drop(numa.remove(&node)),
            Change::AllDevices(all) => self.set_all_devices(all),
            Change::Devices(node, devices) => self.set_devices(node, devices),
        }
    }

    fn set_node(&mut self, mut node: Node) {
        if let Some(devices) = self.devices.get(&node.name) {
            let whole = add_devices(&node.allocatable, devices);
            self.reported.insert(node.name.clone(), std::mem::replace(&mut node.allocatable, whole));
        }
        self.contents.nodes.insert(node.name.clone(), node);
    }

    fn set_all_devices(&mut self, all: Vec<(String, Resources)>) {
        let there: BTreeSet<&String> = all.iter().map(|(name, _)| name).collect();
        let gone: Vec<String> = self.devices.keys().filter(|name| !there.contains(name)).cloned().collect();
        gone.into_iter().for_each(|name| self.set_devices(name, Resources::new()));
        all.into_iter().for_each(|(name, devices)| self.set_devices(name, devices));
    }

    fn set_devices(&mut self, name: String, devices: Resources) {
        let reported = self.reported.remove(&name);
        if let Some(node) = self.contents.nodes.get_mut(&name) {
            let reported = reported.unwrap_or_else(|| node.allocatable.clone());
            node.allocatable = add_devices(&reported, &devices);
            self.reported.extend((!devices.is_empty()).then(|| (name.clone(), reported)));
        }
        if devices.is_empty() {
            self.devices.remove(&name);
        } else {
            self.devices.insert(name, devices);
        }
    }

    /// Replaces the queues of the member.
    pub fn set_queues(&mut self, queues: Queues) {
        self.contents.queues = queues;
    }

    /// Nothing counts before it was listed again.
    pub const fn require_list(&mut self) {
        self.listed = (false, false);
    }

    /// The nodes, as far as they are known.
    #[must_use]
    pub const fn nodes(&self) -> &Nodes {
        &self.contents.nodes
    }

    /// Whether all was listed.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.listed.0 && self.listed.1
    }

    /// Brings the domains up to date: the member's HyperNodes, or what labels of nodes make where it has none.
    ///
    /// # Errors
    /// [`TopologyLabelsError`] if the labels make too many; then there are none.
    pub fn refresh_domains(&mut self, labels: Option<&TopologyLabels>) -> Result<(), TopologyLabelsError> {
        let Contents { nodes, hyper_nodes, .. } = &mut self.contents;
        hyper_nodes.clone_from(&self.hyper_nodes);
        if let Some(labels) = labels.filter(|_| self.hyper_nodes.is_empty()) {
            let found = list_label_domains(labels, nodes.values().map(|node| &node.labels))?;
            *hyper_nodes = found.into_iter().map(|domain| (domain.name.clone(), domain)).collect();
        }
        Ok(())
    }

    /// The whole inventory, once it was listed, with the domains of when they were brought up to date.
    #[must_use]
    pub fn listed_contents(&self) -> Option<&Contents> {
        self.is_listed().then_some(&self.contents)
    }
}

#[cfg(test)]
mod tests {
    use caldera_core::{inventory::HyperNode, quantity::Quantity};

    use super::*;

    fn node(name: &str, rack: &str) -> Node {
        Node {
            name: name.to_owned(),
            labels: [("rack".to_owned(), rack.to_owned())].into(),
            allocatable: Resources::new(),
            ready: true,
            ..Node::default()
        }
    }

    fn domains(view: &CollectedInventory) -> Vec<&str> {
        view.listed_contents().unwrap().hyper_nodes.keys().map(String::as_str).collect()
    }

    #[test]
    fn labels_make_domains_while_the_member_has_no_hyper_nodes() {
        let labels: TopologyLabels = "rack".parse().unwrap();
        let mut view = CollectedInventory::default();
        view.apply_change(Change::Nodes(vec![node("n1", "a"), node("n2", "b")]));
        view.apply_change(Change::Pods(vec![]));
        assert_eq!(view.refresh_domains(None), Ok(()));
        assert_eq!(domains(&view), [""; 0]);
        view.refresh_domains(Some(&labels)).unwrap();
        assert_eq!(domains(&view), ["rack-a", "rack-b"]);
        view.apply_change(Change::NodeGone("n1".to_owned()));
        view.refresh_domains(Some(&labels)).unwrap();
        assert_eq!(domains(&view), ["rack-b"]);
        // Volcano's own discoverer begins, and ends.
        view.apply_change(Change::HyperNode(HyperNode {
            name: "hypernode-1".to_owned(),
            tier: 1,
            ..HyperNode::default()
        }));
        view.refresh_domains(Some(&labels)).unwrap();
        assert_eq!(domains(&view), ["hypernode-1"]);
        view.apply_change(Change::HyperNodeGone("hypernode-1".to_owned()));
        view.refresh_domains(Some(&labels)).unwrap();
        assert_eq!(domains(&view), ["rack-b"]);
    }

    #[test]
    fn devices_are_published_as_what_their_nodes_have() {
        let devices = |count: i64| [("x.io/gpu", Quantity::from_units(count))].into_iter().collect::<Resources>();
        let mut view = CollectedInventory::default();
        view.apply_change(Change::AllDevices(vec![("n1".to_owned(), devices(8)), ("n2".to_owned(), devices(4))]));
        view.apply_change(Change::Nodes(vec![node("n1", "a"), node("n2", "b"), node("n3", "c")]));
        view.apply_change(Change::Devices("n3".to_owned(), devices(1)));
        let all = |view: &CollectedInventory| {
            let amounts = view.nodes().values().map(|node| node.allocatable.get("x.io/gpu").units_ceil());
            amounts.collect::<Vec<_>>()
        };
        assert_eq!(all(&view), [8, 4, 1]);
        view.apply_change(Change::Node(node("n1", "z")));
        view.apply_change(Change::Devices("n2".to_owned(), Resources::new()));
        assert_eq!(all(&view), [8, 0, 1]);
        view.apply_change(Change::AllDevices(vec![]));
        assert_eq!(all(&view), [0, 0, 0]);
    }

    #[test]
    fn labels_that_make_too_many_domains_make_none() {
        let labels: TopologyLabels = "rack".parse().unwrap();
        let mut view = CollectedInventory::default();
        view.apply_change(Change::Nodes((0..2_000).map(|at| node(&format!("n{at}"), &at.to_string())).collect()));
        view.apply_change(Change::Pods(vec![]));
        assert_eq!(view.refresh_domains(Some(&labels)), Err(TopologyLabelsError::Domains));
        assert_eq!(domains(&view), [""; 0]);
    }
}
