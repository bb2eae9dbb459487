//! The real use of a member's nodes, beside what they have.
//!
//! Rule: as `LoadAware` of Volcano's descheduler does it, use is what the nodes measure and not what pods ask for. A
//! node that takes no pods counts for nothing, and one that says more than it has counts as full: a member that lies is
//! full at most. What is no amount, or is negative, was not measured. Where more than one usable node in ten was not
//! measured the load of the member is not known, for what was measured says too little about it.

use std::collections::BTreeMap;

use super::{Inventory, Node};
use crate::{
    quantity::Quantity,
    resources::{ResourceName, Resources},
    time::EpochSeconds,
};

/// The resources that nodes measure.
pub const MEASURED: [&str; 2] = [ResourceName::CPU, ResourceName::MEMORY];
/// Of so many usable nodes one may be without a measurement.
const ONE_UNMEASURED_OF: u64 = 10;

/// What a node really uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUse {
    /// Its name.
    pub node: String,
    /// Cores.
    pub cpu: Quantity,
    /// Bytes.
    pub memory: Quantity,
}

/// What the nodes of a member really use together, and what the same nodes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberLoad {
    /// Cores and bytes.
    pub used: Resources,
    /// Allocatable of the nodes that were measured.
    pub capacity: Resources,
    /// When it was read.
    pub read_at: EpochSeconds,
}

/// The load of a member with these nodes; `None` where it is not known.
#[must_use]
pub fn sum_node_use(nodes: &BTreeMap<String, Node>, measured: &[NodeUse], read_at: EpochSeconds) -> Option<MemberLoad> {
    let usable = nodes.values().filter(|node| node.takes_pods()).map(|node| {
        let has = |name: &str| node.allocatable.get(name);
        (node.name.as_str(), has(ResourceName::CPU), has(ResourceName::MEMORY))
    });
    sum_use(usable, measured, read_at)
}

impl Inventory {
    /// The load of the member by these measurements; `None` where it is not known.
    #[must_use]
    pub fn sum_node_use(&self, measured: &[NodeUse], read_at: EpochSeconds) -> Option<MemberLoad> {
        let usable = self.node_specs().filter(|spec| spec.usable).map(|spec| {
            let has = |name: &str| spec.kind.0.allocatable.get(name).copied().unwrap_or_default();
            (&**spec.node.name(), has(ResourceName::CPU), has(ResourceName::MEMORY))
        });
        sum_use(usable, measured, read_at)
    }
}

/// `usable` are the nodes that take pods, with the cpu and the memory that they have.
fn sum_use<'a>(
    usable: impl Iterator<Item = (&'a str, Quantity, Quantity)>,
    measured: &[NodeUse],
    read_at: EpochSeconds,
) -> Option<MemberLoad> {
    let measured: BTreeMap<&str, &NodeUse> = measured.iter().map(|one| (one.node.as_str(), one)).collect();
    let (mut nodes, mut missing) = (0_u64, 0_u64);
    let mut load = MemberLoad { read_at, ..MemberLoad::default() };
    for (name, cpu, memory) in usable {
        nodes += 1;
        let Some(one) = measured.get(name).filter(|one| !one.cpu.is_negative() && !one.memory.is_negative()) else {
            missing += 1;
            continue;
        };
        for (name, used, has) in [(ResourceName::CPU, one.cpu, cpu), (ResourceName::MEMORY, one.memory, memory)] {
            let sum = |of: &Resources, amount: Quantity| of.get(name).saturating_add(amount);
            load.used.set(name, sum(&load.used, used.min(has)));
            load.capacity.set(name, sum(&load.capacity, has));
        }
    }
    (nodes > missing && missing.saturating_mul(ONE_UNMEASURED_OF) <= nodes).then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: i64) -> (String, Node) {
        let allocatable = [("cpu", Quantity::from_units(cpu)), ("memory", Quantity::from_units(100))];
        let node = Node {
            name: name.to_owned(),
            allocatable: allocatable.into_iter().collect(),
            ready: true,
            ..Node::default()
        };
        (name.to_owned(), node)
    }

    fn of(name: &str, cpu: &str) -> NodeUse {
        NodeUse { node: name.to_owned(), cpu: cpu.parse().unwrap(), memory: Quantity::from_units(1) }
    }

    fn sum(nodes: &BTreeMap<String, Node>, measured: &[NodeUse]) -> Option<(String, String)> {
        let load = sum_node_use(nodes, measured, EpochSeconds::new(7))?;
        let mut inventory = Inventory::default();
        inventory.apply_change(crate::inventory::Change::Nodes(nodes.values().cloned().collect()));
        assert_eq!(inventory.sum_node_use(measured, EpochSeconds::new(7)).as_ref(), Some(&load), "both count alike");
        assert_eq!(load.read_at, EpochSeconds::new(7));
        Some((load.used.get("cpu").to_string(), load.capacity.get("cpu").to_string()))
    }

    fn reported(used: &str, capacity: &str) -> Option<(String, String)> {
        Some((used.to_owned(), capacity.to_owned()))
    }

    #[test]
    fn use_is_summed_over_the_nodes_that_take_pods() {
        let mut nodes: BTreeMap<_, _> = [node("a", 10), node("b", 20), node("closed", 40)].into();
        nodes.get_mut("closed").unwrap().unschedulable = true;
        let measured = [of("a", "2500m"), of("b", "1"), of("closed", "39"), of("gone", "8")];
        assert_eq!(sum(&nodes, &measured), reported("3500m", "30"));
        assert_eq!(sum(&BTreeMap::new(), &measured), None);
    }

    #[test]
    fn a_node_that_lies_about_its_use_is_full_at_most_or_was_not_measured() {
        let nodes: BTreeMap<_, _> = [node("a", 10), node("b", 20)].into();
        for wild in ["1000", "1e30", "9999999999E"] {
            assert_eq!(sum(&nodes, &[of("a", wild), of("b", "1")]), reported("11", "30"), "{wild}");
        }
        assert_eq!(sum(&nodes, &[of("a", "-5"), of("b", "1")]), None);
        // The last word on a node counts, once.
        assert_eq!(sum(&nodes, &[of("a", "9"), of("a", "2"), of("b", "1")]), reported("3", "30"));
    }

    #[test]
    fn what_one_node_in_ten_did_not_measure_is_left_out_and_no_more() {
        let nodes: BTreeMap<_, _> = (0..20).map(|number| node(&format!("n{number:02}"), 10)).collect();
        let measured: Vec<NodeUse> = nodes.keys().map(|name| of(name, "5")).collect();
        assert_eq!(sum(&nodes, &measured[2..]), reported("90", "180"));
        assert_eq!(sum(&nodes, &measured[3..]), None);
        assert_eq!(sum(&nodes, &[]), None);
    }
}
