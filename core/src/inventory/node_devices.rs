//! Devices of a member's nodes that its drivers publish, beside what its kubelets report.
//!
//! Rule: Kubernetes' dynamic resource allocation. Devices are published in objects of their own, before or after their
//! node, and are counted under the names of resources by which pods ask for them ([`crate::device`]). A node has them
//! beside its allocatable; a name that its kubelet reports counts as reported. Most members have none: then nothing is
//! kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Amounts, Inventory, NodeKind, NodeKindRef,
    node_shapes::{add_node_to_shapes, remove_node_from_shapes},
};
use crate::{device::add_devices, resources::Resources};

/// Nodes with devices, those among them that are not known yet or any more.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeDevices(BTreeMap<Arc<str>, DevicesOfNode>);

#[derive(Debug, Clone, Default)]
struct DevicesOfNode {
    devices: Resources,
    /// What its kubelet reports, while the node is there.
    reported: Option<Resources>,
}

impl NodeDevices {
    /// What a node has in all whose kubelet reports this.
    pub(super) fn complete(&mut self, node: &str, reported: &Resources) -> Amounts {
        let Some(known) = self.0.get_mut(node) else { return Amounts::from(reported) };
        known.reported = Some(reported.clone());
        Amounts::from(&add_devices(reported, &known.devices))
    }

    /// A node is gone; its devices may be published for a while yet.
    pub(super) fn forget_node(&mut self, node: &str) {
        if let Some(known) = self.0.get_mut(node) {
            known.reported = None;
        }
    }
}

impl Inventory {
    /// These are all nodes with devices; true if a node that is there has others than before.
    pub(super) fn set_all_devices(&mut self, all: Vec<(String, Resources)>) -> bool {
        let named: BTreeSet<&str> = all.iter().map(|(node, _)| node.as_str()).collect();
        let gone: Vec<Arc<str>> = self.devices.0.keys().filter(|name| !named.contains(&***name)).cloned().collect();
        let mut changed = false;
        for name in gone {
            changed |= self.set_devices(&name, Resources::new());
        }
        for (name, devices) in all {
            changed |= self.set_devices(&name, devices);
        }
        changed
    }

    /// The devices of a node; true if it is there, and had others before.
    pub(super) fn set_devices(&mut self, name: &str, devices: Resources) -> bool {
        let state = self.nodes.get(name).and_then(|state| state.spec.as_ref());
        let allocatable = state.map(|spec| Resources::from(&*spec.kind.0.allocatable));
        let before = self.devices.0.remove(name).unwrap_or_default();
        let reported = before.reported.or(allocatable);
        let whole = reported.as_ref().map(|reported| add_devices(reported, &devices));
        if !devices.is_empty() {
            let same = before.devices == devices;
            self.devices.0.insert(self.shared_node_name(name), DevicesOfNode { devices, reported });
            if same {
                return false;
            }
        }
        let Some((state, whole)) = self.nodes.get_mut(name).filter(|state| state.spec.is_some()).zip(whole) else {
            return false;
        };
        remove_node_from_shapes(&mut self.shapes, state);
        let mut changed = false;
        if let Some(spec) = &mut state.spec {
            let allocatable = Arc::new(Amounts::from(&whole));
            changed = spec.kind.0.allocatable != allocatable;
            let kind = NodeKind { allocatable, ..(*spec.kind.0).clone() };
            spec.kind = NodeKindRef(self.kinds.intern_value(kind));
        }
        add_node_to_shapes(&mut self.shapes, state);
        changed
    }
}
