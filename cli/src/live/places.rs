//! On which network domains of its member each workload's pods are.
//!
//! Rule: a node is in the domain that placement puts it in (`caldera_core::inventory`); pods that have ended are
//! nowhere. Linear in nodes and pods.

use std::collections::{BTreeMap, HashMap};

use caldera_core::{
    fleet::Update,
    gang::WorkloadRef,
    inventory::{Change, DomainId, Inventory, Pod},
};

/// A member, domain by domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberPlaces {
    /// Those that have nodes of their own, by tier and name; nodes of no domain last.
    pub domains: Vec<DomainPlaces>,
    /// Why nothing is known of it.
    pub unknown: Option<String>,
}

/// A domain and who is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainPlaces {
    /// The HyperNode with those around it, the outermost first; empty for nodes of none.
    pub path: Vec<String>,
    pub nodes: usize,
    /// Nodes with no pod of a workload.
    pub unused_nodes: usize,
    /// Pods by workload.
    pub pods: BTreeMap<WorkloadRef, u64>,
}

/// See the module.
pub fn list_places(members: &[(String, Update)]) -> BTreeMap<String, MemberPlaces> {
    let mut of: BTreeMap<&str, Vec<&Update>> = BTreeMap::new();
    for (name, update) in members {
        of.entry(name).or_default().push(update);
    }
    of.into_iter().map(|(name, updates)| (name.to_owned(), read_member_places(&updates))).collect()
}

fn read_member_places(updates: &[&Update]) -> MemberPlaces {
    // Without pods every node offers something, and so has its domain.
    let mut inventory = Inventory::default();
    let mut pods: Vec<&Pod> = Vec::new();
    for update in updates {
        match update {
            Update::Down(why) => return MemberPlaces { unknown: Some(why.clone()), ..MemberPlaces::default() },
            Update::Change(Change::Pods(all)) => pods = all.iter().collect(),
            Update::Change(Change::Pod(pod)) => pods.push(pod),
            Update::Change(change) => drop(inventory.apply_change(change.clone())),
            _ => {}
        }
    }
    inventory.apply_change(Change::Pods(Vec::new()));
    let capacity = inventory.capacity();
    let shapes = capacity.shapes.iter().flat_map(|shape| shape.nodes_with_domains());
    let idle = capacity.idle.iter().map(|(domain, node)| (Some(*domain), node));
    let domain_of: HashMap<&str, Option<DomainId>> =
        shapes.chain(idle).map(|(domain, node)| (&**node.name(), domain)).collect();
    let mut places: BTreeMap<(bool, Option<DomainId>), DomainPlaces> = BTreeMap::new();
    let path = |domain: Option<DomainId>| {
        let around = domain.into_iter().flat_map(|id| capacity.domains.self_and_ancestors(id));
        let mut path: Vec<String> = around.filter_map(|id| Some(capacity.domains.get(id)?.name.to_string())).collect();
        path.reverse();
        path
    };
    for domain in domain_of.values() {
        let place = places.entry((domain.is_none(), *domain)).or_default();
        place.nodes += 1;
        place.unused_nodes += 1;
        if place.nodes == 1 {
            place.path = path(*domain);
        }
    }
    let mut used: HashMap<&str, ()> = HashMap::new();
    for pod in pods.into_iter().filter(|pod| !pod.finished) {
        let (Some(owner), Some(node)) = (&pod.owner, pod.node.as_deref()) else { continue };
        let domain = domain_of.get(node).copied().flatten();
        let place = places.entry((domain.is_none(), domain)).or_default();
        *place.pods.entry(owner.workload(&pod.namespace)).or_default() += 1;
        if used.insert(node, ()).is_none() {
            place.unused_nodes = place.unused_nodes.saturating_sub(1);
        }
    }
    MemberPlaces { domains: places.into_values().collect(), unknown: None }
}

#[cfg(test)]
mod tests {
    use caldera_core::{
        inventory::{HyperNode, HyperNodeMember, Node, Owner},
        quantity::Quantity,
    };

    use super::*;

    fn node(name: &str) -> Node {
        let allocatable = [("cpu", Quantity::from_units(8)), ("pods", Quantity::from_units(110))];
        Node { name: name.to_owned(), ready: true, allocatable: allocatable.into_iter().collect(), ..Node::default() }
    }

    fn pod(name: &str, node: Option<&str>, finished: bool) -> Pod {
        let (group, kind) = ("batch.volcano.sh".to_owned(), "Job".to_owned());
        let owner = Owner { group, kind, name: "train".to_owned(), task: None };
        let (namespace, name) = ("ns".to_owned(), name.to_owned());
        Pod { namespace, name, node: node.map(str::to_owned), finished, owner: Some(owner), ..Pod::default() }
    }

    #[test]
    fn pods_are_counted_where_their_nodes_are_and_those_that_ended_are_nowhere() {
        let hyper =
            |name: &str, tier, members| HyperNode { name: name.to_owned(), tier, tier_name: String::new(), members };
        let rack = |at: u32| {
            let nodes = vec![HyperNodeMember::Node(format!("n{at}"))];
            hyper(&format!("rack{at}"), 1, nodes)
        };
        let row = hyper("row", 2, (1..3).map(|at| HyperNodeMember::HyperNode(format!("rack{at}"))).collect());
        let pods = vec![
            pod("a", Some("n1"), false),
            pod("b", Some("n1"), false),
            pod("c", Some("n3"), false),
            pod("d", Some("n2"), true),
            pod("e", None, false),
        ];
        let of = |change| ("m".to_owned(), Update::Change(change));
        let reported = [
            of(Change::HyperNodes(vec![rack(1), rack(2), row])),
            of(Change::Nodes(["n1", "n2", "n3"].map(node).into())),
            of(Change::Pods(pods)),
            ("away".to_owned(), Update::Down("it is not ready".to_owned())),
        ];
        let places = list_places(&reported);
        assert_eq!(places["away"].unknown.as_deref(), Some("it is not ready"));
        let seen: Vec<(String, usize, usize, u64)> = places["m"]
            .domains
            .iter()
            .map(|one| (one.path.join("/"), one.nodes, one.unused_nodes, one.pods.values().sum()))
            .collect();
        let expected = [("row/rack1", 1, 0, 2), ("row/rack2", 1, 1, 0), ("", 1, 0, 1)];
        assert_eq!(seen, expected.map(|(path, nodes, unused, pods)| (path.to_owned(), nodes, unused, pods)));
    }
}
