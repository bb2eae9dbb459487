use proptest::prelude::*;

use super::*;
use crate::{
    gang::{Gang, NodeClaim, NodeTerm, Operator, Requirement, Task},
    node_affinity::HOSTNAME,
    numa::{NumaNode, NumaPolicy, NumaTopology},
    place::{Cluster, replica_estimate::ReplicaEstimate},
    quantity::Quantity,
    split::{self, count_pods_that_fit},
};

fn amounts(cpu: i64, pods: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(pods))].into_iter().collect()
}

fn node(name: &str, cpu: i64) -> Node {
    Node { name: name.into(), allocatable: amounts(cpu, 10), ready: true, ..Node::default() }
}

fn pod(name: &str, node: Option<&str>, cpu: i64) -> Pod {
    Pod {
        namespace: "ns".into(),
        name: name.into(),
        node: node.map(Into::into),
        request: amounts(cpu, 1),
        ..Pod::default()
    }
}

fn listed(nodes: Vec<Node>, pods: Vec<Pod>) -> Inventory {
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::Nodes(nodes));
    inventory.apply_change(Change::Pods(pods));
    inventory
}

fn cpu(inventory: &Inventory) -> Quantity {
    inventory.capacity().sum_free().get("cpu")
}

#[test]
fn equal_nodes_are_one_shape_and_a_used_one_is_another() {
    let inventory = listed(vec![node("a", 8), node("b", 8), node("c", 8)], vec![pod("p", Some("b"), 3)]);
    let counts: Vec<usize> = inventory.capacity().shapes.iter().map(|shape| shape.nodes.len()).collect();
    assert_eq!(counts, [1, 2]);
    assert_eq!(cpu(&inventory), Quantity::from_units(21));
}

#[test]
fn the_hostname_label_does_not_tell_shapes_apart() {
    let mut nodes = vec![node("a", 8), node("b", 8)];
    for node in &mut nodes {
        node.labels.insert(HOSTNAME.into(), node.name.clone());
    }
    assert_eq!(listed(nodes, vec![]).capacity().shapes.len(), 1);
}

#[test]
fn cordoned_and_not_ready_nodes_offer_nothing() {
    let mut nodes = vec![node("a", 8), node("b", 8), node("c", 8)];
    nodes[0].unschedulable = true;
    nodes[1].ready = false;
    assert_eq!(cpu(&listed(nodes, vec![])), Quantity::from_units(8));
}

#[test]
fn nothing_is_offered_before_both_lists_arrived() {
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::Nodes(vec![node("a", 8)]));
    assert_eq!(inventory.capacity(), Capacity::default());
    inventory.apply_change(Change::Pods(vec![]));
    assert_eq!(cpu(&inventory), Quantity::from_units(8));
}

#[test]
fn a_finished_pod_gives_back_and_an_unbound_one_holds_nothing() {
    let mut inventory = listed(vec![node("a", 8)], vec![pod("p", Some("a"), 3), pod("q", None, 5)]);
    assert_eq!(cpu(&inventory), Quantity::from_units(5));
    assert!(inventory.apply_change(Change::Pod(Pod { finished: true, ..pod("p", Some("a"), 3) })));
    assert_eq!(cpu(&inventory), Quantity::from_units(8));
    assert!(!inventory.apply_change(Change::PodGone("ns".into(), "p".into())));
}

#[test]
fn a_pod_may_arrive_before_its_node_and_outlive_it() {
    let mut inventory = listed(vec![], vec![pod("p", Some("a"), 3)]);
    inventory.apply_change(Change::Node(node("a", 8)));
    assert_eq!(cpu(&inventory), Quantity::from_units(5));
    inventory.apply_change(Change::NodeGone("a".into()));
    inventory.apply_change(Change::Node(node("a", 8)));
    assert_eq!(cpu(&inventory), Quantity::from_units(5));
    inventory.apply_change(Change::PodGone("ns".into(), "p".into()));
    assert_eq!(cpu(&inventory), Quantity::from_units(8));
}

fn owner(task: &str) -> Owner {
    Owner { group: "g".into(), kind: "Job".into(), name: "j".into(), task: Some(task.into()) }
}

fn job(namespace: &str, name: &str) -> WorkloadRef {
    WorkloadRef { group: "g".into(), kind: "Job".into(), namespace: namespace.into(), name: name.into() }
}

#[test]
fn pods_on_nodes_are_counted_by_workload_and_task() {
    let owned = |name: &str, task: &str| Pod { owner: Some(owner(task)), ..pod(name, Some("a"), 1) };
    let mut inventory = listed(vec![node("a", 8)], vec![owned("p", "t"), owned("q", "t"), owned("r", "u")]);
    let seen = |bound, finished| SeenPods { bound, finished };
    let held = |inventory: &Inventory, task: &str| {
        inventory.held_by_pods(&job("ns", "j")).remove(&Some(task.into())).map(|held| held.get("cpu").units_ceil())
    };
    assert_eq!((held(&inventory, "t"), held(&inventory, "u")), (Some(2), Some(1)));
    let want = [(Some("t".into()), seen(2, 0)), (Some("u".into()), seen(1, 0))].into_iter().collect();
    assert_eq!(inventory.count_seen_pods(&job("ns", "j")), want);
    inventory.apply_change(Change::PodGone("ns".into(), "r".into()));
    inventory.apply_change(Change::Pod(Pod { finished: true, ..owned("p", "t") }));
    let want = [(Some("t".into()), seen(1, 1))].into_iter().collect();
    assert_eq!(inventory.count_seen_pods(&job("ns", "j")), want);
    assert_eq!((held(&inventory, "t"), held(&inventory, "u")), (Some(1), None));
    assert_eq!(cpu(&inventory), Quantity::from_units(7));
    assert!(inventory.count_seen_pods(&job("ns", "other")).is_empty());
    assert!(inventory.count_seen_pods(&job("other", "j")).is_empty());
}

fn hyper_node(name: &str, tier: u32, members: Vec<HyperNodeMember>) -> HyperNode {
    HyperNode { name: name.into(), tier, tier_name: format!("t{tier}"), members }
}

fn label(key: &str, values: &[&str]) -> Requirement {
    Requirement {
        key: key.into(),
        operator: Operator::In,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn any_members() -> impl Strategy<Value = Vec<HyperNodeMember>> {
    let member = prop_oneof![
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| HyperNodeMember::Node(name.into())),
        Just(HyperNodeMember::Pattern("^[ab]$".into())),
        prop::sample::select(vec!["r1", "r2", "s"]).prop_map(|name| HyperNodeMember::HyperNode(name.into())),
        Just(HyperNodeMember::Labels(vec![label(HOSTNAME, &["c"])])),
    ];
    prop::collection::vec(member, 1..3)
}

/// Names of each domain's nodes.
fn by_domain(inventory: &Inventory) -> BTreeMap<String, Vec<String>> {
    let capacity = inventory.capacity();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, name) in capacity.shapes.iter().flat_map(NodeShape::nodes_with_domains) {
        for id in id.into_iter().flat_map(|id| capacity.domains.self_and_ancestors(id)) {
            found.entry(capacity.domains.get(id).unwrap().name.to_string()).or_default().push(name.to_string());
        }
    }
    found
}

fn shown(found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    found.iter().map(|(name, nodes)| format!("{name}: {}", nodes.join(" "))).collect()
}

#[test]
fn hyper_nodes_make_a_tree_and_each_node_is_in_the_lowest_that_selects_it() {
    let mut nodes: Vec<Node> = ["a", "b", "c", "d", "e"].map(|name| node(name, 8)).into();
    nodes[3].labels.insert("rack".into(), "3".into());
    let mut inventory = listed(nodes, vec![]);
    inventory.apply_change(Change::HyperNodes(vec![
        hyper_node(
            "spine",
            2,
            vec![
                HyperNodeMember::HyperNode("r1".into()),
                HyperNodeMember::HyperNode("r2".into()),
                HyperNodeMember::Node("b".into()),
            ],
        ),
        hyper_node("r1", 1, vec![HyperNodeMember::Node("a".into()), HyperNodeMember::Node("b".into())]),
        hyper_node("r2", 1, vec![HyperNodeMember::Pattern("c|[".into()), HyperNodeMember::Pattern("^c".into())]),
        hyper_node(
            "r3",
            1,
            vec![HyperNodeMember::Labels(vec![label("rack", &["3"])]), HyperNodeMember::Labels(vec![])],
        ),
    ]));
    assert_eq!(shown(&by_domain(&inventory)), ["r1: a b", "r2: c", "r3: d", "spine: a b c"]);
    assert_eq!(inventory.capacity().domains.cluster_tier(), 3);
    assert!(inventory.apply_change(Change::HyperNodeGone("spine".into())));
    assert_eq!(shown(&by_domain(&inventory)), ["r1: a b", "r2: c", "r3: d"]);
    assert!(!inventory.apply_change(Change::HyperNodeGone("spine".into())));
}

/// Volcano refuses a second parent and does not look for circles beyond a chain; a tree must come of whatever is
/// written.
#[test]
fn hyper_nodes_in_a_circle_or_with_two_parents_still_make_a_tree() {
    let mut inventory = listed(vec![node("a", 8)], vec![]);
    inventory.apply_change(Change::HyperNodes(vec![
        hyper_node("x", 1, vec![HyperNodeMember::HyperNode("y".into()), HyperNodeMember::Node("a".into())]),
        hyper_node("y", 1, vec![HyperNodeMember::HyperNode("x".into()), HyperNodeMember::HyperNode("y".into())]),
        hyper_node("p", 2, vec![HyperNodeMember::HyperNode("x".into())]),
        hyper_node("q", 2, vec![HyperNodeMember::HyperNode("x".into()), HyperNodeMember::HyperNode("nobody".into())]),
    ]));
    assert_eq!(shown(&by_domain(&inventory)), ["p: a", "x: a"]);
}

#[test]
fn a_domain_is_pinned_by_labels_where_they_make_it_and_else_by_the_hostnames_of_all_its_nodes() {
    let mut nodes: Vec<Node> = ["a", "b", "c", "d"].map(|name| node(name, 8)).into();
    for (node, rack) in nodes.iter_mut().zip(["1", "1", "2", "3"]) {
        node.labels.insert("rack".into(), rack.into());
    }
    nodes[0].labels.insert(HOSTNAME.into(), "a.example".into());
    nodes[1].ready = false;
    let rack =
        |name: &str, value: &str| hyper_node(name, 1, vec![HyperNodeMember::Labels(vec![label("rack", &[value])])]);
    let mut inventory = listed(nodes, vec![]);
    inventory.apply_change(Change::HyperNodes(vec![
        rack("r2", "2"),
        rack("r3", "3"),
        hyper_node("spine", 2, vec![HyperNodeMember::HyperNode("r2".into()), HyperNodeMember::HyperNode("r3".into())]),
        hyper_node("named", 1, vec![HyperNodeMember::Node("a".into()), HyperNodeMember::Node("b".into())]),
    ]));
    let capacity = inventory.capacity();
    let pin = |name: &str| {
        let id = capacity.domains.iter().find(|(_, domain)| *domain.name == *name).unwrap().0;
        capacity.node_selectors(id)
    };
    assert_eq!(pin("r2"), [[label("rack", &["2"])]]);
    assert_eq!(pin("spine"), [[label("rack", &["2", "3"])]]);
    // The node that is down belongs to it too.
    assert_eq!(pin("named"), [[label(HOSTNAME, &["a.example", "b"])]]);
}

#[test]
fn a_profile_has_the_sums_of_every_domain_and_what_the_largest_node_has() {
    let mut inventory = listed(vec![node("a", 8), node("b", 6), node("c", 4)], vec![pod("p", Some("a"), 3)]);
    inventory.apply_change(Change::HyperNodes(vec![
        hyper_node("r1", 1, vec![HyperNodeMember::Node("a".into()), HyperNodeMember::Node("b".into())]),
        hyper_node("s", 2, vec![HyperNodeMember::HyperNode("r1".into())]),
    ]));
    let capacity = inventory.capacity();
    let profile = capacity.profile();
    let cpu = profile.column(&"cpu".into()).unwrap();
    let row = |row| (profile.row_free(row)[cpu], profile.largest(row)[cpu], profile.nodes(row));
    assert_eq!([row(CLUSTER_ROW), row(1), row(2)], [(15_000, 6_000, 3), (11_000, 6_000, 2), (11_000, 6_000, 2)]);
}

fn labels(keys: &[&str]) -> Arc<BTreeSet<String>> {
    Arc::new(keys.iter().map(|key| (*key).to_owned()).collect())
}

#[test]
fn shapes_carry_only_the_labels_that_are_selected_on_and_none_that_tells_most_nodes_apart() {
    let mut nodes: Vec<Node> = (0..200).map(|at| node(&format!("n{at}"), 8)).collect();
    for (at, node) in nodes.iter_mut().enumerate() {
        node.labels = [("pool", at % 2), ("serial", at), ("rack", at % 70), ("row", at % 60)]
            .map(|(key, value)| (key.to_owned(), value.to_string()))
            .into();
    }
    let mut inventory = listed(nodes.clone(), vec![]);
    let shapes = |inventory: &Inventory| inventory.capacity().shapes.len();
    assert_eq!(shapes(&inventory), 1);
    assert!(inventory.set_carried_labels(&labels(&["pool"])));
    assert_eq!(shapes(&inventory), 2);
    assert!(
        !inventory.set_carried_labels(&labels(&["pool"]))
            && !inventory.set_carried_labels(&labels(&["pool", "serial", "rack", HOSTNAME]))
    );
    assert_eq!(shapes(&inventory), 2);
    assert!(inventory.set_carried_labels(&labels(&["row", "rack"])));
    assert_eq!(shapes(&inventory), 60);
    // A label with few values again is carried again.
    for node in nodes.iter().filter(|node| node.labels["rack"].parse::<u32>().unwrap() > 63) {
        inventory.apply_change(Change::NodeGone(node.name.clone()));
    }
    assert!(inventory.capacity().carries_label("rack"));
    assert!(inventory.set_carried_labels(&labels(&[])));
    assert_eq!(shapes(&inventory), 1);
}

#[test]
fn every_label_is_found_on_its_node_however_many_nodes_have_their_own() {
    let of = |at: usize| -> BTreeMap<String, String> {
        let own = (0..at % 4).map(|own| (format!("own-{own}"), format!("{at}-{own}")));
        let shared = [("pool".to_owned(), (at % 3).to_string()), ("a".to_owned(), String::new())];
        own.chain(shared).collect()
    };
    let mut inventory = listed(vec![], vec![]);
    for at in 0..300 {
        inventory.apply_change(Change::Node(Node { labels: of(at), ..node(&format!("n{at}"), 8) }));
    }
    // What was own may be shared later, and the other way round.
    for at in 0..150 {
        inventory.apply_change(Change::Node(Node { labels: of(at * 4), ..node(&format!("n{at}"), 8) }));
    }
    let capacity = inventory.capacity();
    for node in capacity.shapes.iter().flat_map(|shape| &shape.nodes) {
        let at: usize = node[1..].parse().unwrap();
        let want = of(if at < 150 { at * 4 } else { at });
        for key in ["own-0", "own-1", "own-2", "own-3", "pool", "a", "b"] {
            assert_eq!(node.label(key), want.get(key).map(String::as_str), "{node} {key}");
        }
        assert_eq!(node.label(HOSTNAME), Some(&**node));
    }
}

fn any_claim() -> impl Strategy<Value = NodeClaim> {
    let key = prop::sample::select(vec!["pool", "serial", "zone", HOSTNAME]);
    let value = prop::sample::select(vec!["x", "y", "n1", "n3"]);
    let operator = prop::sample::select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
    let requirement = (key.clone(), operator, value.clone()).prop_map(|(key, operator, value)| {
        let values = if matches!(operator, Operator::In | Operator::NotIn) { vec![value.to_owned()] } else { vec![] };
        Requirement { key: key.into(), operator, values }
    });
    let term = prop::collection::vec(requirement, 0..3).prop_map(|labels| NodeTerm { labels, fields: vec![] });
    let selector = prop::option::of((key, value).prop_map(|(key, value)| (key.to_owned(), value.to_owned())));
    (selector, prop::collection::vec(term, 0..3)).prop_map(|(selector, affinity)| NodeClaim {
        selector: selector.into_iter().collect(),
        affinity,
        preferred: vec![],
        tolerations: vec![],
        most_per_node: None,
        cards: Vec::new(),
        numa: None,
    })
}

proptest! {
    /// A naive count, node by node and with all labels.
    #[test]
    fn which_labels_shapes_carry_changes_no_answer(
        nodes in prop::collection::vec((1..6i64, "[xy]", "[xy]?"), 1..9), claim in any_claim(),
        shown in prop::sample::subsequence(vec!["pool", "serial", "zone"], 0..=3), asked in 1..4i64,
    ) {
        let nodes: Vec<Node> = nodes.into_iter().enumerate().map(|(at, (cpu, pool, zone))| {
            let name = format!("n{at}");
            let mut labels: BTreeMap<String, String> =
                [("pool", pool), ("serial", name.clone()), (HOSTNAME, name.clone())]
                    .map(|(key, value)| (key.to_owned(), value)).into();
            if !zone.is_empty() {
                labels.insert("zone".into(), zone);
            }
            Node { labels, ..node(&name, cpu) }
        }).collect();
        let fits = |node: &Node| node.allocatable.get("cpu").as_nano() / 1_000_000_000 / i128::from(asked);
        let admitted = nodes.iter().filter(|node| claim.admits(&node.name, &node.labels, &[]));
        let want = admitted.map(fits).sum::<i128>();
        let task = Task {
            name: "t".into(), replicas: 3, min_available: 0, request: amounts(asked, 0), node: claim,
            priority_class: String::new(), partition: None,
        };
        let gang = Gang::new(vec![task], 0);
        let mut inventory = listed(nodes, vec![]);
        inventory.set_carried_labels(&labels(&shown));
        let capacity = inventory.capacity();
        prop_assert_eq!(i128::from(count_pods_that_fit(&gang, &capacity)), want);
        let estimated = ReplicaEstimate::new(&gang).estimate_max_available_replicas(&Cluster::default(), &capacity);
        prop_assert_eq!(i128::from(estimated), want);
        let left = split::subtract_assumed_pods(capacity.clone(), &gang, &[2], &Default::default());
        prop_assert_eq!(i128::from(count_pods_that_fit(&gang, &left)), (want - 2).max(0));
    }
}

/// Two NUMA nodes of two CPUs, so many of the first free.
fn topology(free: u16) -> NumaTopology {
    let nodes = [free, 2].map(|free| NumaNode { cpus: 2, allocatable: 2, free });
    NumaTopology::new(Some(NumaPolicy::SingleNumaNode), nodes.into()).unwrap()
}

fn free_cpus(capacity: &Capacity) -> Vec<Vec<u16>> {
    let free = |topology: &Arc<NumaTopology>| topology.nodes().iter().map(|node| node.free).collect();
    capacity.shapes.iter().filter_map(|shape| shape.numa.as_ref()).map(free).collect()
}

#[test]
fn what_a_node_reports_of_numa_counts_while_the_node_is_there_and_evicted_pods_give_cpus_back() {
    let mut inventory = listed(vec![], vec![]);
    assert!(!inventory.apply_change(Change::NumaTopology("a".into(), topology(0))));
    assert!(!inventory.capacity().reports_numa, "without its node");
    inventory.apply_change(Change::Node(node("a", 4)));
    inventory.apply_change(Change::Node(node("b", 4)));
    inventory.apply_change(Change::Pod(Pod { owner: Some(owner("t")), ..pod("p", Some("a"), 2) }));
    let capacity = inventory.capacity();
    assert!(capacity.reports_numa);
    assert_eq!((free_cpus(&capacity), free_cpus(&capacity.emptied())), (vec![vec![0, 2]], vec![vec![2, 2]]));
    assert_eq!(free_cpus(&inventory.compute_capacity_without_workloads(|_| true)), [[2, 2]]);
    assert!(!inventory.apply_change(Change::NumaTopology("a".into(), topology(0))));
    assert!(inventory.apply_change(Change::NumaTopology("a".into(), topology(1))));
    inventory.apply_change(Change::Node(Node { unschedulable: true, ..node("a", 4) }));
    assert!(inventory.capacity().reports_numa, "in whatever state");
    assert_eq!(free_cpus(&inventory.capacity()), Vec::<Vec<u16>>::new());
    assert!(inventory.apply_change(Change::NumaTopologies(vec![])));
    assert!(!inventory.capacity().reports_numa);
}

/// Devices under a name of their own, or one that kubelets report too.
fn gpus(own: bool, count: i64) -> Resources {
    [(if own { "x.io/gpu" } else { "cpu" }, Quantity::from_units(count))].into_iter().collect()
}

#[test]
fn devices_come_before_or_after_their_node_and_go_with_what_publishes_them() {
    let free = |inventory: &Inventory| inventory.capacity().sum_free().get("x.io/gpu");
    let of = |count: i64| ("a".to_owned(), gpus(true, count));
    let mut inventory = listed(vec![node("a", 4)], vec![]);
    assert!(inventory.apply_change(Change::AllDevices(vec![of(2), ("z".to_owned(), gpus(true, 8))])));
    assert!(!inventory.apply_change(Change::Devices("a".to_owned(), gpus(true, 2))));
    let request: Resources = [("x.io/gpu", Quantity::from_units(1))].into_iter().collect();
    assert!(inventory.apply_change(Change::Pod(Pod { request, ..pod("p", Some("a"), 1) })));
    assert_eq!((free(&inventory), cpu(&inventory)), (Quantity::from_units(1), Quantity::from_units(4)));
    assert!(inventory.apply_change(Change::NodeGone("a".into())));
    assert!(inventory.apply_change(Change::Node(node("a", 6))));
    assert_eq!((free(&inventory), cpu(&inventory)), (Quantity::from_units(1), Quantity::from_units(6)));
    assert!(inventory.apply_change(Change::AllDevices(vec![])));
    assert_eq!(free(&inventory), Quantity::ZERO);
    assert!(!inventory.apply_change(Change::Devices("a".to_owned(), gpus(false, 9))), "its kubelet reports cpu");
    assert_eq!(cpu(&inventory), Quantity::from_units(6));
}

fn any_change() -> impl Strategy<Value = Change> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        (name.clone(), 1..9i64, any::<bool>(), "[xy]").prop_map(|(name, cpu, ready, pool)| {
            let labels =
                [("pool".to_owned(), pool.clone()), ("serial".to_owned(), format!("{name}{pool}{cpu}"))].into();
            Change::Node(Node { ready, labels, ..node(name, cpu) })
        }),
        name.clone().prop_map(|name| Change::NodeGone(name.into())),
        ("[p-t]", prop::option::of(name.clone()), 1..4i64, any::<bool>(), prop::option::of("[tu]")).prop_map(
            |(pod_name, on, cpu, finished, task)| {
                let owner = task.map(|task| owner(&task));
                Change::Pod(Pod { finished, owner, ..pod(&pod_name, on, cpu) })
            }
        ),
        "[p-t]".prop_map(|name| Change::PodGone("ns".into(), name)),
        (prop::sample::select(vec!["r1", "r2", "s"]), 1..3u32, any_members())
            .prop_map(|(name, tier, members)| Change::HyperNode(hyper_node(name, tier, members))),
        prop::sample::select(vec!["r1", "r2", "s"]).prop_map(|name| Change::HyperNodeGone(name.into())),
        (name.clone(), 0..3u16).prop_map(|(name, free)| Change::NumaTopology(name.into(), topology(free))),
        name.clone().prop_map(|name| Change::NumaTopologyGone(name.into())),
        (name, any::<bool>(), 0..3i64).prop_map(|(name, own, count)| Change::Devices(name.into(), gpus(own, count))),
    ]
}

proptest! {
    /// Events one by one give what a fresh list of the same state gives.
    #[test]
    fn events_and_lists_agree(changes in prop::collection::vec(any_change(), 0..40)) {
        let mut inventory = listed(vec![], vec![]);
        let (mut nodes, mut pods, mut hyper_nodes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut numa, mut devices) = (BTreeMap::new(), BTreeMap::new());
        let shown = [labels(&[]), labels(&["pool", "other"]), labels(&["serial"])];
        for (step, change) in changes.into_iter().enumerate() {
            inventory.set_carried_labels(&shown[step / 5 % 3]);
            match change.clone() {
                Change::Node(node) => drop(nodes.insert(node.name.clone(), node)),
                Change::NodeGone(name) => drop(nodes.remove(&name)),
                Change::Pod(pod) => drop(pods.insert(pod.name.clone(), pod)),
                Change::PodGone(_, name) => drop(pods.remove(&name)),
                Change::HyperNode(one) => drop(hyper_nodes.insert(one.name.clone(), one)),
                Change::HyperNodeGone(name) => drop(hyper_nodes.remove(&name)),
                Change::NumaTopology(name, topology) => drop(numa.insert(name, topology)),
                Change::NumaTopologyGone(name) => drop(numa.remove(&name)),
                Change::Nodes(_) | Change::Pods(_) => unreachable!(),
                Change::Devices(name, all) => drop(devices.insert(name, all)),
                Change::HyperNodes(_) | Change::NumaTopologies(_) | Change::AllDevices(_) => unreachable!(),
            }
            let before = inventory.capacity();
            let changed = inventory.apply_change(change);
            prop_assert!(changed || before == inventory.capacity());
        }
        let mut fresh = Inventory::default();
        inventory.set_carried_labels(&shown[1]);
        fresh.set_carried_labels(&shown[1]);
        fresh.apply_change(Change::HyperNodes(hyper_nodes.into_values().collect()));
        fresh.apply_change(Change::NumaTopologies(vec![("a".into(), topology(1)), ("z".into(), topology(1))]));
        fresh.apply_change(Change::NumaTopologies(numa.into_iter().collect()));
        fresh.apply_change(Change::AllDevices(vec![("b".into(), gpus(true, 9)), ("z".into(), gpus(true, 1))]));
        fresh.apply_change(Change::AllDevices(devices.into_iter().collect()));
        fresh.apply_change(Change::Pods(pods.into_values().collect()));
        fresh.apply_change(Change::Nodes(nodes.into_values().collect()));
        fresh.capacity().shapes.iter().try_for_each(|shape| {
            prop_assert!(shape.domains.iter().map(|(_, nodes)| *nodes as usize).sum::<usize>() <= shape.nodes.len());
            Ok(())
        })?;
        prop_assert_eq!(inventory.capacity(), fresh.capacity());
        prop_assert_eq!(inventory.count_seen_pods(&job("ns", "j")), fresh.count_seen_pods(&job("ns", "j")));
        prop_assert_eq!(inventory.held_by_pods(&job("ns", "j")), fresh.held_by_pods(&job("ns", "j")));
    }
}
