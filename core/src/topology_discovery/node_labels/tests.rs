use proptest::prelude::*;

use super::*;
use crate::{
    gang::Requirement,
    inventory::{Change, Inventory, Node, NodeShape},
};

fn topology(text: &str) -> TopologyLabels {
    text.parse().unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn domains(text: &str, nodes: &[BTreeMap<String, String>]) -> Vec<HyperNode> {
    list_label_domains(&topology(text), nodes).unwrap()
}

/// Names of each domain's nodes, `n0` and on, as an inventory finds them; and what selects its nodes by label.
fn place(
    all: &[HyperNode],
    nodes: &[BTreeMap<String, String>],
) -> BTreeMap<String, (Vec<String>, Vec<Vec<Requirement>>)> {
    let node = |(at, labels): (usize, &BTreeMap<String, String>)| {
        let allocatable = [("cpu", "1".parse().unwrap()), ("pods", "1".parse().unwrap())].into_iter().collect();
        let (name, labels) = (format!("n{at}"), labels.clone());
        Node { name, labels, allocatable, ready: true, ..Node::default() }
    };
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::HyperNodes(all.to_vec()));
    inventory.apply_change(Change::Nodes(nodes.iter().enumerate().map(node).collect()));
    inventory.apply_change(Change::Pods(vec![]));
    let capacity = inventory.capacity();
    let mut found: BTreeMap<String, (Vec<String>, Vec<Vec<Requirement>>)> = BTreeMap::new();
    for (id, domain) in capacity.domains.iter() {
        found.insert(domain.name.to_string(), (vec![], capacity.node_selectors(id)));
    }
    for (id, name) in capacity.shapes.iter().flat_map(NodeShape::nodes_with_domains) {
        for id in id.into_iter().flat_map(|id| capacity.domains.self_and_ancestors(id)) {
            let name_of = capacity.domains.get(id).unwrap().name.to_string();
            found.get_mut(&name_of).unwrap().0.push(name.to_string());
        }
    }
    found.values_mut().for_each(|(nodes, _)| nodes.sort());
    found
}

fn shown(all: &[HyperNode], nodes: &[BTreeMap<String, String>]) -> Vec<String> {
    place(all, nodes).into_iter().map(|(name, (nodes, _))| format!("{name}: {}", nodes.join(" "))).collect()
}

/// The first case of Volcano's own test: two labels, and the node's name.
#[test]
fn labels_from_the_widest_to_the_narrowest_make_tiers_from_one_up() {
    let node = |cluster, rack| labels(&[("volcano.sh/hypercluster", cluster), ("volcano.sh/hypernode", rack)]);
    let nodes = [node("s4", "s0"), node("s4", "s0"), node("s4", "s1"), node("s5", "s2")];
    let all = domains("volcano.sh/hypercluster, volcano.sh/hypernode, kubernetes.io/hostname", &nodes);
    let tiers: Vec<_> = all.iter().map(|one| (one.tier, one.tier_name.as_str(), one.name.as_str())).collect();
    assert_eq!(
        tiers,
        [
            (1, "volcano.sh/hypernode", "hypernode-s4-s0"),
            (1, "volcano.sh/hypernode", "hypernode-s4-s1"),
            (1, "volcano.sh/hypernode", "hypernode-s5-s2"),
            (2, "volcano.sh/hypercluster", "hypercluster-s4"),
            (2, "volcano.sh/hypercluster", "hypercluster-s5"),
        ]
    );
    assert_eq!(
        shown(&all, &nodes),
        [
            "hypercluster-s4: n0 n1 n2",
            "hypercluster-s5: n3",
            "hypernode-s4-s0: n0 n1",
            "hypernode-s4-s1: n2",
            "hypernode-s5-s2: n3",
        ]
    );
}

/// Volcano's second and third: what a node lacks ends its chain.
#[test]
fn a_node_is_in_no_domain_above_a_label_that_it_lacks() {
    let nodes = [
        labels(&[("zone", "a"), ("rack", "1")]),
        labels(&[("rack", "2")]),
        labels(&[("zone", "a")]),
        labels(&[("other", "1")]),
    ];
    assert_eq!(shown(&domains("zone,rack", &nodes), &nodes), ["rack-2: n1", "rack-a-1: n0", "zone-a: n0"]);
}

#[test]
fn one_label_alone_is_a_domain_for_each_of_its_values() {
    let nodes = [labels(&[("rack", "1")]), labels(&[("rack", "2")]), labels(&[("rack", "1")]), labels(&[])];
    assert_eq!(shown(&domains("rack", &nodes), &nodes), ["rack-1: n0 n2", "rack-2: n1"]);
}

#[test]
fn racks_of_one_name_in_two_zones_are_two_domains() {
    let nodes =
        [labels(&[("zone", "a"), ("rack", "1")]), labels(&[("zone", "b"), ("rack", "1")]), labels(&[("rack", "1")])];
    let want = ["rack-1: n2", "rack-a-1: n0", "rack-b-1: n1", "zone-a: n0", "zone-b: n1"];
    assert_eq!(shown(&domains("zone,rack", &nodes), &nodes), want);
}

#[test]
fn what_a_copy_is_pinned_to_is_one_term_however_many_racks_a_zone_has() {
    let nodes: Vec<_> = (0..9).map(|at| labels(&[("zone", "a"), ("rack", &at.to_string())])).collect();
    let found = place(&domains("zone,rack", &nodes), &nodes);
    let require = |key: &str, operator, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement { key: key.to_owned(), operator, values }
    };
    assert_eq!(found["zone-a"].1, [[require("zone", Operator::In, &["a"]), require("rack", Operator::Exists, &[])]]);
    assert_eq!(found["rack-a-4"].1, [[require("rack", Operator::In, &["4"]), require("zone", Operator::In, &["a"])]]);
}

#[test]
fn labels_that_make_no_topology_are_refused_in_words() {
    let of = |text: &str| text.parse::<TopologyLabels>().unwrap_err().to_string();
    for text in ["", " , ", "kubernetes.io/hostname"] {
        assert!(of(text).starts_with("it names no label; want "), "{text}");
    }
    assert_eq!(of("zone,rack,zone"), "it names label zone twice");
    assert_eq!(of("a,b,c,d,e,f,g,h,i"), "it names more than 8 labels");
    assert_eq!(topology(" zone,rack ,kubernetes.io/hostname").keys().collect::<Vec<_>>(), ["zone", "rack"]);
}

#[test]
fn a_label_with_a_value_of_its_own_for_each_node_is_refused() {
    let nodes: Vec<_> = (0..2_000).map(|at| labels(&[("zone", "a"), ("serial", &at.to_string())])).collect();
    let error = list_label_domains(&topology("zone,serial"), &nodes).unwrap_err();
    assert_eq!(error, TopologyLabelsError::Domains);
    assert_eq!(list_label_domains(&topology("zone"), &nodes).unwrap().len(), 1);
    // As many as there may be, and their zone.
    assert!(list_label_domains(&topology("zone,serial"), &nodes[..MOST_LABEL_DOMAINS - 1]).is_ok());
    assert!(list_label_domains(&topology("zone,serial"), &nodes[..MOST_LABEL_DOMAINS]).is_err());
}

#[test]
fn labels_that_are_too_long_for_one_object_are_refused() {
    let keys: Vec<String> = (0..8).map(|level| format!("topology.example.org/{level}{}", "k".repeat(60))).collect();
    let node = |at: usize| {
        let values = keys.iter().enumerate().map(|(level, key)| (key.clone(), if level < 7 { 0 } else { at }));
        values.map(|(key, value)| (key, format!("{value:060}"))).collect::<BTreeMap<String, String>>()
    };
    let nodes: Vec<_> = (0..1_000).map(node).collect();
    let of = |labels: &[String]| list_label_domains(&topology(&labels.join(",")), &nodes).map(|domains| domains.len());
    assert_eq!(of(&keys), Err(TopologyLabelsError::Bytes));
    assert_eq!(of(&keys[6..]), Ok(1_001));
}

proptest! {
    /// Two nodes are in one domain of a tier if all their labels from the narrowest to that tier's are there, and those
    /// from there up are the same on both, as far as both have them.
    #[test]
    fn nodes_are_together_as_a_naive_comparison_of_their_labels_says(
        nodes in prop::collection::vec(prop::collection::vec(prop::option::of("[ab]?"), 3), 1..7), turn in 0..7usize,
    ) {
        let keys = ["zone", "row", "rack"];
        let nodes: Vec<BTreeMap<String, String>> = nodes.into_iter().map(|values| {
            let pairs = keys.iter().zip(values);
            pairs.filter_map(|(key, value)| Some(((*key).to_owned(), value?))).collect()
        }).collect();
        let all = domains("zone,row,rack", &nodes);
        let mut turned = nodes.clone();
        turned.rotate_left(turn % nodes.len());
        prop_assert_eq!(&domains("zone,row,rack", &turned), &all);
        let found = place(&all, &nodes);
        for (tier, narrower) in [(1, 2..3), (2, 1..3), (3, 0..3)] {
            let own = 3 - tier as usize;
            let is_in_one =
                |node: &BTreeMap<String, String>| keys[narrower.clone()].iter().all(|key| node.contains_key(*key));
            let path = |node: &BTreeMap<String, String>| -> Vec<String> {
                keys[..=own].iter().rev().map_while(|key| node.get(*key).cloned()).collect()
            };
            for (a, one) in nodes.iter().enumerate() {
                for (b, other) in nodes.iter().enumerate() {
                    let want = is_in_one(one) && is_in_one(other) && path(one) == path(other);
                    let names = [format!("n{a}"), format!("n{b}")];
                    let of_tier = all.iter().filter(|domain| domain.tier == tier);
                    let holds = |domain: &&HyperNode| names.iter().all(|name| found[&domain.name].0.contains(name));
                    let together = of_tier.filter(holds);
                    prop_assert_eq!(together.count(), usize::from(want), "tier {} n{} n{}", tier, a, b);
                }
            }
        }
        // What a copy is pinned to is the domain and nothing else.
        for (name, (inside, selectors)) in &found {
            for (at, node) in nodes.iter().enumerate() {
                let holds = |one: &Requirement| one.matches(node.get(&one.key).map(String::as_str));
                let is_selected = selectors.iter().any(|all| all.iter().all(holds));
                prop_assert_eq!(is_selected, inside.contains(&format!("n{at}")), "{} n{}", name, at);
            }
        }
    }
}
