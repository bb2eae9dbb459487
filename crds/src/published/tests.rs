use caldera_core::{
    gang::{Operator, Requirement, Taint, WorkloadRef},
    inventory::{Change, HyperNode, HyperNodeMember, Inventory, Node, Owner, Pod, RemovedPods},
    numa::{NumaNode, NumaPolicy},
    quantity::Quantity,
    resources::Resources,
    topology_discovery::list_label_domains,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn amounts(cpu_milli: i64, pods: i64) -> Resources {
    [("cpu", Quantity::from_milli(cpu_milli)), ("pods", Quantity::from_units(pods))].into_iter().collect()
}

fn inventory(contents: &Contents) -> Inventory {
    let mut inventory = Inventory::default();
    inventory.apply_change(Change::HyperNodes(contents.hyper_nodes.values().cloned().collect()));
    inventory.apply_change(Change::NumaTopologies(contents.numa.clone().into_iter().collect()));
    inventory.apply_change(Change::Nodes(contents.nodes.values().cloned().collect()));
    inventory.apply_change(Change::Pods(contents.pods.values().cloned().collect()));
    inventory
}

fn published(parts: Vec<Part>) -> Published {
    let heartbeat = Heartbeat { parts: u32::try_from(parts.len()).unwrap(), ..Heartbeat::default() };
    Published { heartbeat, parts: parts.into_iter().map(std::sync::Arc::new).collect() }
}

fn reported(changes: Vec<Change>, inventory: &mut Inventory) {
    for change in changes {
        inventory.apply_change(change);
    }
}

fn job(name: &str) -> WorkloadRef {
    WorkloadRef { group: "batch.volcano.sh".into(), kind: "Job".into(), namespace: "ns".into(), name: name.into() }
}

/// The same answers to all that is asked of an inventory.
fn same(a: &Inventory, b: &Inventory) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.capacity(), b.capacity());
    let everyone = ["j0", "j1"].map(job);
    for job in &everyone {
        prop_assert_eq!(a.count_seen_pods(job), b.count_seen_pods(job));
        let last = |pods| RemovedPods::Last([(Some("t0".into()), pods), (None, 1)].into());
        for gone in [RemovedPods::All, last(1), last(3)] {
            let gone = [(job, gone)].into();
            prop_assert_eq!(a.compute_capacity_without_pods(&gone), b.compute_capacity_without_pods(&gone));
        }
    }
    Ok(())
}

fn any_node() -> impl Strategy<Value = Node> {
    let name = "n-[0-2][0-9]";
    (name, any::<(bool, bool)>(), 0..3i64, prop::option::of(0..40u32), any::<bool>()).prop_map(
        |(name, (ready, unschedulable), size, rack, tainted)| {
            let mut labels: BTreeMap<String, String> = [("pool".to_owned(), size.to_string())].into();
            labels.insert("kubernetes.io/hostname".into(), name.clone());
            labels.extend(rack.map(|rack| ("rack".to_owned(), rack.to_string())));
            let taint = Taint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() };
            let taints = if tainted { vec![taint] } else { vec![] };
            Node { name, labels, taints, allocatable: amounts(8000 << size, 20), ready, unschedulable, images: vec![] }
        },
    )
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let owner = prop_oneof![
        1 => Just(None),
        1 => Just(Some(("apps", "DaemonSet", "d", None))),
        3 => ("[01]", prop::option::of("[01]")).prop_map(|(job, task)| {
            let name = if job == "0" { "j0" } else { "j1" };
            Some(("batch.volcano.sh", "Job", name, task))
        }),
    ];
    (owner, prop::option::weighted(0.9, "n-[0-2][0-9]"), 1..4i64, 0..12u32, any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(owner, node, cpu, number, numbered, finished)| {
            let owner = owner.map(|(group, kind, name, task)| Owner {
                group: group.into(),
                kind: kind.into(),
                name: name.into(),
                task: task.map(|task| format!("t{task}").into()),
            });
            let of = owner.as_ref().map_or("x".to_owned(), |owner| format!("{}{:?}", owner.name, owner.task));
            let name = if numbered { format!("{of}-{number}") } else { format!("{of}-{number}x") };
            Pod { namespace: "ns".into(), name, node, request: amounts(cpu * 700, 1), finished, owner }
        })
}

fn any_hyper_node() -> impl Strategy<Value = HyperNode> {
    let requirement = ("pool|rack", "[0-9]").prop_map(|(key, value)| Requirement {
        key,
        operator: Operator::In,
        values: vec![value],
    });
    let member = prop_oneof![
        "n-[0-2][0-9]".prop_map(HyperNodeMember::Node),
        "n-[0-2]".prop_map(|name| HyperNodeMember::Pattern(format!("^{name}"))),
        prop::collection::vec(requirement, 1..3).prop_map(HyperNodeMember::Labels),
        "h[0-3]".prop_map(HyperNodeMember::HyperNode),
    ];
    ("h[0-3]", 1..4u32, prop::collection::vec(member, 0..4)).prop_map(|(name, tier, members)| HyperNode {
        name,
        tier,
        tier_name: format!("t{tier}"),
        members,
    })
}

fn any_numa_topology() -> impl Strategy<Value = NumaTopology> {
    (prop::sample::select(NumaPolicy::ALL.map(Some).into_iter().chain([None]).collect::<Vec<_>>()), 0..3u16).prop_map(
        |(policy, free)| {
            let nodes = vec![NumaNode { cpus: 4, allocatable: 3, free }; if policy.is_some() { 2 } else { 0 }];
            NumaTopology::new(policy, nodes).unwrap()
        },
    )
}

fn any_world() -> impl Strategy<Value = Contents> {
    let nodes = prop::collection::vec(any_node(), 0..25);
    let pods = prop::collection::vec(any_pod(), 0..50);
    let hyper_nodes = prop::collection::vec(any_hyper_node(), 0..4);
    let numa = prop::collection::btree_map("n-[0-2][0-9]", any_numa_topology(), 0..9);
    (nodes, pods, hyper_nodes, numa).prop_map(|(nodes, pods, hyper_nodes, numa)| Contents {
        numa,
        nodes: nodes.into_iter().map(|node| (node.name.clone(), node)).collect(),
        pods: pods.into_iter().map(|pod| ((pod.namespace.clone(), pod.name.clone()), pod)).collect(),
        hyper_nodes: hyper_nodes.into_iter().map(|one| (one.name.clone(), one)).collect(),
        ..Contents::default()
    })
}

proptest! {
    #[test]
    fn what_is_published_answers_as_the_member_would(world in any_world(), parts in 1u32..4) {
        let mut read = Inventory::default();
        reported(published(encode::encode_parts(&world, parts)).changes_since(None).unwrap(), &mut read);
        same(&read, &inventory(&world))?;
    }

    #[test]
    fn changes_since_lead_to_what_a_fresh_reader_sees(before in any_world(), after in any_world(), parts in 1u32..4) {
        let old = published(encode::encode_parts(&before, parts));
        let new = published(encode::encode_parts(&after, parts));
        let mut read = Inventory::default();
        reported(old.changes_since(None).unwrap(), &mut read);
        prop_assert_eq!(old.changes_since(Some(&old)).unwrap(), vec![]);
        reported(new.changes_since(Some(&old)).unwrap(), &mut read);
        same(&read, &inventory(&after))?;
    }

    #[test]
    fn garbage_is_refused_and_never_panics(
        names in prop::collection::vec("(n\\[)?[0-9-]{0,4}\\]?", 0..3), on in "[0-9:*, -]{0,8}", amount in "[0-9a-z-]{0,4}",
    ) {
        let part = json!({
            "index": 0, "of": 1, "shapes": [{"names": names, "allocatable": {"cpu": amount}}],
            "requests": [{"cpu": "1"}], "held": [{"nodes": on, "amounts": {"cpu": "1"}}],
            "workloads": [{"kind": "Job", "namespace": "ns", "name": "j", "bound": [{"request": 0, "on": on}]}],
            "numa": [{"nodes": on, "policy": "restricted", "cpus": "1/1/1"}],
        });
        let _ = decode_part(&serde_json::from_value(part).unwrap());
    }
}

#[test]
fn a_member_whose_nodes_report_no_numa_nodes_publishes_nothing_of_it_and_a_part_of_an_older_collector_is_read() {
    let contents = Contents { nodes: row(2), ..Contents::default() };
    let parts = divide_contents(&contents, 1);
    assert!(!serde_json::to_string(&parts).unwrap().contains("numa"));
    assert_eq!(decode_part(&parts[0]).unwrap().numa, NumaTopologies::new());
}

fn row(count: usize) -> Nodes {
    let node = |at: usize| {
        let name = format!("gpu-{at:04}.example.internal");
        let labels = [("pool", format!("p{}", at % 8)), ("kubernetes.io/hostname", name.clone())];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let node =
            Node { name: name.clone(), labels, allocatable: amounts(96_000, 110), ready: true, ..Node::default() };
        (name, node)
    };
    (0..count).map(node).collect()
}

fn busy(nodes: &Nodes, jobs: usize) -> Pods {
    let mut pods = Pods::new();
    for (at, node) in nodes.keys().enumerate() {
        for number in 0..8 {
            let owner = Owner {
                group: "batch.volcano.sh".into(),
                kind: "Job".into(),
                name: format!("train-{}", (at * 8 + number) % jobs),
                task: Some("worker".into()),
            };
            let name = format!("{}-worker-{}", owner.name, at * 8 + number);
            let (namespace, request) = ("team".to_owned(), amounts(8000, 1));
            let pod = Pod { node: Some(node.clone()), request, owner: Some(owner), finished: false, namespace, name };
            pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
        }
        for daemon in 0..6 {
            let name = format!("d-{at}-{daemon}");
            let (namespace, request) = ("kube-system".to_owned(), amounts(100, 1));
            let pod = Pod { node: Some(node.clone()), request, owner: None, finished: false, namespace, name };
            pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
        }
    }
    pods
}

#[test]
fn a_thousand_nodes_of_eight_shapes_are_small() {
    let nodes = row(1000);
    let size = |pods: &Pods| {
        let contents = Contents { nodes: nodes.clone(), pods: pods.clone(), ..Contents::default() };
        let parts = divide_contents(&contents, 1);
        assert_eq!(parts.len(), 1);
        serde_json::to_vec(&parts).unwrap().len()
    };
    let (empty, full) = (size(&Pods::new()), size(&busy(&nodes, 100)));
    assert!(empty < 32 * 1024, "{empty}");
    assert!(full < 128 * 1024, "{full}");
}

#[test]
fn an_inventory_that_grows_is_divided_and_one_that_shrinks_is_joined() {
    let nodes = row(600);
    let pods = busy(&nodes, 4_800);
    let full = Contents { nodes: nodes.clone(), pods, ..Contents::default() };
    let parts = divide_contents(&full, 1);
    assert!(parts.len() > 1);
    for part in &parts {
        assert_eq!(part.of as usize, parts.len());
        assert!(serde_json::to_vec(part).unwrap().len() <= MOST_OBJECT_BYTES);
    }
    assert_eq!(divide_contents(&full, part_count(&parts)), parts);
    let idle = Contents { nodes, ..Contents::default() };
    assert_eq!(divide_contents(&idle, part_count(&parts)).len(), 1);
    let mut read = Inventory::default();
    reported(published(parts).changes_since(None).unwrap(), &mut read);
    assert_eq!(read.capacity(), inventory(&full).capacity());
}

/// Domains that are too large for a part, and can not be divided: parts doubled and halved for ever.
#[test]
fn domains_that_are_larger_than_a_part_do_not_divide_the_nodes() {
    let levels = ["1", "2", "3"].map(|level| format!("topology.k8s.aws/network-node-layer-{level}"));
    let labels = levels.join(",").parse().unwrap();
    let mut nodes = row(900);
    for (at, node) in nodes.values_mut().enumerate() {
        for (level, group) in levels.iter().zip([at % 4, at % 80, at]) {
            node.labels.insert(level.clone(), format!("nn-{group:017x}"));
        }
    }
    let domains = list_label_domains(&labels, nodes.values().map(|node| &node.labels)).unwrap();
    assert_eq!(domains.len(), 4 + 80 + 900);
    let hyper_nodes = domains.into_iter().map(|domain| (domain.name.clone(), domain)).collect();
    let contents = Contents { nodes, hyper_nodes, ..Contents::default() };
    for parts in [1, 2, 4, 1024] {
        let all = divide_contents(&contents, parts);
        assert!(all.len() <= 4, "{parts}: {}", all.len());
        assert_eq!(divide_contents(&contents, part_count(&all)).len(), all.len(), "it stays so");
        let largest = all.iter().map(|part| serde_json::to_vec(part).unwrap().len()).max().unwrap();
        assert!((MOST_OBJECT_BYTES..MOST_OBJECT_BYTES * 2).contains(&largest), "{largest}");
    }
}

fn part_count(parts: &[Part]) -> u32 {
    u32::try_from(parts.len()).unwrap()
}

#[test]
fn parts_of_two_divisions_are_not_mixed() {
    let object = |name: &str, spec: serde_json::Value| {
        let mut object = ClusterInventory::new(name, serde_json::from_value(spec).unwrap());
        object.metadata.name = Some(name.to_owned());
        assert_eq!(object.cluster(), Some("m1"));
        object
    };
    let heartbeat = |parts: u32| {
        let heartbeat = json!({"seenAt": "", "everySeconds": 30, "reached": "Direct", "parts": parts, "nodes": 0});
        object("m1", json!({"cluster": "m1", "heartbeat": heartbeat}))
    };
    let part = |index: u32, of: u32| {
        object(&format!("m1.{index}"), json!({"cluster": "m1", "part": {"index": index, "of": of}}))
    };
    let mut set = MemberObjects::default();
    assert_eq!(set.assemble_if_complete(), None);
    for part in [part(0, 2), part(1, 2)] {
        set.apply(part);
    }
    set.apply(heartbeat(2));
    assert_eq!(set.assemble_if_complete().unwrap().parts.len(), 2);
    set.apply(part(0, 1));
    assert_eq!(set.assemble_if_complete(), None);
    set.apply(heartbeat(1));
    assert_eq!(set.assemble_if_complete().unwrap().parts.len(), 1);
    set.remove(&heartbeat(1));
    assert_eq!(set.assemble_if_complete(), None);
}

#[test]
fn an_object_that_is_about_another_cluster_than_its_name_is_not_read() {
    let heartbeat = json!({"seenAt": "", "everySeconds": 30, "reached": "Direct", "parts": 1, "nodes": 0});
    for (name, spec) in [
        ("m1", json!({"cluster": "m2", "heartbeat": heartbeat})),
        ("m1.0", json!({"cluster": "m1", "heartbeat": heartbeat})),
        ("m1.1", json!({"cluster": "m1", "part": {"index": 0, "of": 1}})),
        ("m1", json!({"cluster": "m1"})),
    ] {
        assert_eq!(ClusterInventory::new(name, serde_json::from_value(spec).unwrap()).cluster(), None, "{name}");
    }
}

#[test]
fn what_stands_for_more_than_a_member_has_is_refused_before_it_is_unfolded() {
    let shape =
        |names: &str, label: &str| json!({"names": [names], "labels": {"l": label}, "allocatable": {"cpu": "1"}});
    let read = |part: &serde_json::Value| decode_part(&serde_json::from_value(part.clone()).unwrap());
    let long = "x".repeat(100_000);
    let many = (0..30_000).map(|at| format!("n{at}-[000000-199999]"));
    let shapes: Vec<_> = many.map(|names| shape(&names, "")).collect();
    let job = |bound: serde_json::Value, finished: serde_json::Value| json!([{"kind": "Job", "namespace": long, "name": "j", "bound": bound, "finished": finished}]);
    for part in [
        json!({"shapes": shapes}),
        json!({"shapes": [shape("n[000000-199999]", &long)]}),
        json!({"shapes": [shape(&format!("{long}[000000-199999]"), "")]}),
        json!({"shapes": [shape("n[0-9]", "")], "workloads": job(json!([]), json!([{"pods": 900_000}]))}),
        json!({
            "shapes": [shape("n[0-9]", "")], "requests": [{}],
            "workloads": job(json!([{"request": 0, "on": "0:0-190000 1*190000"}]), json!([])),
        }),
        json!({"domains": [{"name": "d", "tier": 1, "nodes": [format!("{long}[000000-199999]")]}]}),
        json!({"shapes": [shape(&long, "")], "numa": vec![json!({"nodes": "0-190000"}); 10]}),
    ] {
        let mut part = part;
        (part["index"], part["of"]) = (0.into(), 1.into());
        assert!(matches!(read(&part), Err(Malformed::Bytes(_))), "{:.100}: {:?}", part.to_string(), read(&part).err());
    }
    let part = json!({"index": 0, "of": 1, "shapes": [shape("n[00000-49999]", "")]});
    let parts = vec![serde_json::from_value::<Part>(part).unwrap(); 16];
    assert!(decode_part(&parts[0]).is_ok());
    assert!(matches!(published(parts).changes_since(None), Err(Malformed::Bytes(_))), "parts count together");
}
