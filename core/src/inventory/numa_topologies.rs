//! What a member's nodes report of their NUMA nodes ([`crate::numa`]).
//!
//! Rule: a report comes before or after its node, and counts while both are there. Most members report nothing: then
//! nothing is kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Amounts, Interner, Inventory, NodeKind, NodeKindRef,
    node_shapes::{NodeState, add_node_to_shapes, remove_node_from_shapes},
};
use crate::{numa::NumaTopology, resources::ResourceName};

/// Nano units in one.
const NANO: i128 = 1_000_000_000;

/// What nodes report, those among them that are not known yet or any more.
#[derive(Debug, Clone, Default)]
pub(super) struct NumaTopologies {
    by_node: BTreeMap<Arc<str>, Arc<NumaTopology>>,
    kept: Interner<NumaTopology>,
}

impl NumaTopologies {
    pub(super) fn topology_of(&self, node: &str) -> Option<Arc<NumaTopology>> {
        self.by_node.get(node).cloned()
    }
}

impl Inventory {
    /// Whether some node reports its NUMA nodes, whatever state it is in.
    pub(super) fn reports_numa(&self) -> bool {
        let reports = |state: &NodeState| state.spec.as_ref().is_some_and(|spec| spec.kind.0.numa.is_some());
        self.numa.by_node.keys().any(|name| self.nodes.get(name).is_some_and(reports))
    }

    /// These are all reports; true if a node that is there reports something else than before.
    pub(super) fn set_numa_topologies(&mut self, all: Vec<(String, NumaTopology)>) -> bool {
        let named: BTreeSet<&str> = all.iter().map(|(node, _)| node.as_str()).collect();
        let gone: Vec<Arc<str>> = self.numa.by_node.keys().filter(|name| !named.contains(&***name)).cloned().collect();
        let mut changed = false;
        for name in gone {
            changed |= self.set_numa_topology(&name, None);
        }
        for (name, topology) in all {
            changed |= self.set_numa_topology(&name, Some(topology));
        }
        changed
    }

    /// What a node reports; true if it is there, and reported something else before.
    pub(super) fn set_numa_topology(&mut self, name: &str, topology: Option<NumaTopology>) -> bool {
        let numa = topology.map(|topology| self.numa.kept.intern_value(topology));
        let before = match &numa {
            Some(numa) => self.numa.by_node.insert(self.shared_node_name(name), Arc::clone(numa)),
            None => self.numa.by_node.remove(name),
        };
        let Some(state) = self.nodes.get_mut(name).filter(|state| before != numa && state.spec.is_some()) else {
            return false;
        };
        remove_node_from_shapes(&mut self.shapes, state);
        if let Some(spec) = &mut state.spec {
            spec.kind = NodeKindRef(self.kinds.intern_value(NodeKind { numa, ..(*spec.kind.0).clone() }));
        }
        add_node_to_shapes(&mut self.shapes, state);
        true
    }
}

impl NodeState {
    /// Pods go that held so much, by what a topology is then.
    pub(super) fn return_numa_cpus(&mut self, amounts: &Amounts, after: fn(&NumaTopology, u16) -> NumaTopology) {
        let Some(spec) = &mut self.spec else { return };
        let Some(numa) = &spec.kind.0.numa else { return };
        let cpus = amounts.get(ResourceName::CPU).map_or(0, |amount| amount.as_nano() / NANO);
        let numa = Some(Arc::new(after(numa, u16::try_from(cpus).unwrap_or(u16::MAX))));
        spec.kind = NodeKindRef(Arc::new(NodeKind { numa, ..(*spec.kind.0).clone() }));
    }
}
