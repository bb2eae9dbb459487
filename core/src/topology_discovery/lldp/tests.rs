use proptest::prelude::*;
use serde_json::json;

use super::{super::fabric::list_fabric_domains, *};
use crate::inventory::HyperNodeMember;

fn read(text: &Value) -> HostNeighbors {
    read_neighbors(text.to_string().as_bytes()).unwrap()
}

/// A chassis as `json` has it.
fn chassis(name: &str, id: &str, bridge: bool) -> Value {
    let capability = json!([{"type": "Bridge", "enabled": bridge}, {"type": "Wlan", "enabled": false}]);
    json!({name: {"id": {"type": "mac", "value": id}, "descr": "a switch", "capability": capability}})
}

/// What a host sees, with an interface for each chassis, as `json` has it.
fn seen(all: &[Value]) -> HostNeighbors {
    let interface = |(at, chassis): (usize, &Value)| {
        let seen = json!({"via": "LLDP", "chassis": chassis, "port": {"ttl": "120"}});
        json!({format!("eth{at}"): seen})
    };
    let all: Vec<Value> = all.iter().enumerate().map(interface).collect();
    read(&json!({"lldp": {"interface": all}}))
}

fn shown(fabric: &Fabric) -> Vec<String> {
    let member = |member: &HyperNodeMember| match member {
        HyperNodeMember::Node(name) | HyperNodeMember::HyperNode(name) => name.clone(),
        other => format!("{other:?}"),
    };
    let domains = list_fabric_domains(fabric);
    let line = |members: &[HyperNodeMember]| members.iter().map(member).collect::<Vec<_>>().join(" ");
    domains.iter().map(|domain| format!("{}: {}", domain.name, line(&domain.members))).collect()
}

fn joined(hosts: &BTreeMap<String, HostNeighbors>, scope: LldpScope<'_>) -> Vec<String> {
    shown(&join_neighbors(hosts, scope).unwrap().0)
}

fn among(nodes: &NodeNames) -> LldpScope<'_> {
    LldpScope { nodes: Some(nodes), interfaces: &[] }
}

/// The forms are those of lldpd's own test (`tests/integration/test_lldpcli.py`).
#[test]
fn one_neighbour_is_the_same_in_all_forms() {
    let of_list = json!({"lldp": [{"interface": [{
        "name": "eth0", "via": "LLDP", "rid": "1", "age": "0 day, 00:00:05",
        "chassis": [{
            "id": [{"type": "mac", "value": "00:00:00:00:00:02"}], "name": [{"value": "tor-2"}],
            "descr": [{"value": "a switch"}], "mgmt-ip": [{"value": "fe80::2"}],
            "capability": [{"type": "Bridge", "enabled": true}, {"type": "Wlan", "enabled": false}],
        }],
        "port": [{"id": [{"type": "mac", "value": "00:00:00:00:00:09"}], "ttl": [{"value": "120"}]}],
    }]}]});
    let one = chassis("tor-2", "00:00:00:00:00:02", true);
    let interface = json!({"eth0": {"via": "LLDP", "chassis": one}});
    let want = |interfaces: &[&str]| {
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        let seen = Neighbor { name: Some("tor-2".to_owned()), is_switch: true, interfaces };
        HostNeighbors { neighbors: [("00:00:00:00:00:02".to_owned(), seen)].into() }
    };
    assert_eq!(read(&of_list), want(&["eth0"]));
    assert_eq!(read(&json!({"lldp": {"interface": interface}})), want(&["eth0"]));
    let twice = json!({"lldp": {"interface": [interface, {"eth1": {"chassis": one}}]}});
    assert_eq!(read(&twice), want(&["eth0", "eth1"]));
}

#[test]
fn a_neighbour_without_a_name_is_known_by_its_id_and_one_without_capabilities_is_a_switch() {
    let unnamed = json!({"id": {"type": "local", "value": "7"}, "capability": {"type": "Router", "enabled": true}});
    let bare = json!({"tor": {"id": {"type": "mac", "value": "b"}}});
    let station =
        json!({"nas": {"id": {"type": "mac", "value": "c"}, "capability": {"type": "Station", "enabled": true}}});
    let host = seen(&[unnamed, bare, station]);
    let found = host.neighbors.iter().map(|(id, one)| (id.as_str(), one.name.as_deref(), one.is_switch));
    assert_eq!(found.collect::<Vec<_>>(), [("7", None, true), ("b", Some("tor"), true), ("c", Some("nas"), false)]);
}

#[test]
fn hosts_at_one_switch_are_a_leaf_and_hosts_at_two_join_both() {
    let (a, b, c) = (chassis("tor-a", "a", true), chassis("tor-b", "b", true), chassis("tor-c", "c", true));
    let hosts: BTreeMap<String, HostNeighbors> = [
        ("n1", seen(std::slice::from_ref(&a))),
        ("n2", seen(&[a, b.clone()])),
        ("n3", seen(&[b])),
        ("n4", seen(&[c])),
        ("n5", seen(&[])),
    ]
    .map(|(host, neighbors)| (host.to_owned(), neighbors))
    .into();
    assert_eq!(joined(&hosts, LldpScope::default()), ["leaf-a: n1 n2 n3", "leaf-c: n4"]);
    let nobody = [("n5".to_owned(), HostNeighbors::default())].into();
    assert_eq!(join_neighbors(&nobody, LldpScope::default()), Err(DiscoveryError::NoNodes));
}

#[test]
fn what_switches_list_gives_spines_and_nodes_that_say_they_are_bridges_are_none() {
    let leaf = |name: &str| chassis(name, &format!("id-{name}"), true);
    let hosts: BTreeMap<String, HostNeighbors> = [
        ("n1", seen(&[leaf("l1")])),
        // A direct cable between two nodes.
        ("n3", seen(&[leaf("l3"), leaf("n1")])),
        ("l1", seen(&[leaf("n1"), leaf("s1"), chassis("n4", "id-n4", false)])),
        ("l2", seen(&[leaf("n2"), leaf("s1")])),
        ("l3", seen(&[leaf("s2")])),
        ("s1", seen(&[leaf("l1"), leaf("l2")])),
    ]
    .map(|(host, neighbors)| (host.to_owned(), neighbors))
    .into();
    let none = BTreeMap::new();
    let nodes: NodeNames = ["n1", "n2", "n3", "n4"].map(|node| (node, &none)).into_iter().collect();
    let want = [
        "leaf-id-l1: n1 n4",
        "leaf-id-l2: n2",
        "leaf-id-l3: n3",
        "spine-id-s1: leaf-id-l1 leaf-id-l2",
        "spine-id-s2: leaf-id-l3",
    ];
    assert_eq!(joined(&hosts, among(&nodes)), want);
}

/// Found by a reader: a storage server at two leaves was a switch above both, since it was no node.
#[test]
fn a_host_that_is_no_node_is_a_switch_only_where_a_neighbour_says_so() {
    let leaf = |name: &str| chassis(name, &format!("id-{name}"), true);
    let hosts: BTreeMap<String, HostNeighbors> = [
        ("n1", seen(&[leaf("l1")])),
        ("n2", seen(&[leaf("l2")])),
        ("storage-1", seen(&[leaf("l1"), leaf("l2")])),
        // A server that a leaf lists, and that says it is none.
        ("login-1", seen(&[leaf("l1"), leaf("l2")])),
        ("l1", seen(&[leaf("n1"), chassis("login-1", "id-login-1", false)])),
    ]
    .map(|(host, neighbors)| (host.to_owned(), neighbors))
    .into();
    let none = BTreeMap::new();
    let nodes: NodeNames = ["n1", "n2"].map(|node| (node, &none)).into_iter().collect();
    let (fabric, others) = join_neighbors(&hosts, among(&nodes)).unwrap();
    assert_eq!(shown(&fabric), ["leaf-id-l1: n1", "leaf-id-l2: n2"]);
    assert_eq!(others, ["login-1", "storage-1"]);
}

/// Found by a reader: the switch that all nodes have for management made one leaf of all racks.
#[test]
fn only_the_interfaces_that_are_named_count() {
    let mgmt = chassis("mgmt", "m", true);
    let hosts: BTreeMap<String, HostNeighbors> = [
        ("n1", seen(&[mgmt.clone(), chassis("tor-1", "a", true)])),
        ("n2", seen(&[mgmt.clone(), chassis("tor-2", "b", true)])),
    ]
    .map(|(host, neighbors)| (host.to_owned(), neighbors))
    .into();
    assert_eq!(joined(&hosts, LldpScope::default()), ["leaf-a: n1 n2"]);
    let interfaces = ["eth1".to_owned(), "eth2".to_owned()];
    let scope = LldpScope { interfaces: &interfaces, ..LldpScope::default() };
    assert_eq!(joined(&hosts, scope), ["leaf-a: n1", "leaf-b: n2"]);
}

#[test]
fn what_is_cut_short_or_something_else_is_an_error_in_words() {
    let text = json!({"lldp": {"interface": {"eth0": {"chassis": chassis("tor", "a", true)}}}}).to_string();
    for end in 0..text.len() {
        let error = read_neighbors(&text.as_bytes()[..end]).unwrap_err();
        assert!(error.to_string().starts_with("it is no JSON: "), "{end}: {error}");
    }
    let of = |bytes: &[u8]| read_neighbors(bytes).map(drop).unwrap_err().to_string();
    assert_eq!(of(b"{}"), "it is not what lldpcli -f json prints: there is no lldp in it");
    assert_eq!(of(b"\"lldp\xff\""), "it is no UTF-8 text: byte 5 is wrong");
    assert_eq!(of(&vec![b' '; MOST_NEIGHBOR_BYTES + 1]), "it has more than 4 MiB");
    let deep = format!("{{\"lldp\":{}", "[".repeat(100_000));
    assert!(of(deep.as_bytes()).contains("recursion limit"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "lldp",
        "interface",
        "chassis",
        "id",
        "name",
        "value",
        "capability",
        "type",
        "enabled",
        "Bridge",
        "n1",
    ]);
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), word.clone().prop_map(Value::from)];
    leaf.prop_recursive(6, 60, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(ToOwned::to_owned), inner, 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_read_makes_domains_of_the_hosts_that_were_given(lldp in any_json(), other in any_json()) {
        let hosts: BTreeMap<String, HostNeighbors> = [("n1", json!({"lldp": lldp})), ("tor", json!({"lldp": other}))]
            .map(|(host, text)| (host.to_owned(), read(&text))).into();
        if let Ok((fabric, _)) = join_neighbors(&hosts, LldpScope::default()) {
            prop_assert!(fabric.hosts().all(|host| hosts.contains_key(host)));
            prop_assert!(!list_fabric_domains(&fabric).is_empty());
        }
    }
}
