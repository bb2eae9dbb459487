//! Nodes that may come: counted once, for whoever came first.

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    autoscaling::Autoscaling,
    fleet::Update,
    gang::{Gang, NodeClaim, Operator, Requirement, Task, WorkloadRef},
    inventory::{Change, HyperNode, HyperNodeMember, Node, Owner, Pod},
    place::Cluster,
    quantity::Quantity,
};

fn cores(cpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(100))].into_iter().collect()
}

/// A node of the pool with so many cores.
fn node(name: &str, cpu: i64) -> Node {
    let labels = [("pool".to_owned(), "a".to_owned())].into();
    Node { name: name.into(), labels, allocatable: cores(cpu), ready: true, ..Node::default() }
}

fn cluster(name: &str, groups: &str) -> Cluster {
    let autoscaling: Autoscaling = groups.parse().unwrap();
    Cluster { name: name.into(), ready: true, autoscaling, ..Cluster::default() }
}

/// At most so many nodes of four cores.
fn pool(max: u32, delay: &str) -> String {
    let node = r#"{"cpu":"4","pods":"100"}"#;
    format!(r#"[{{"name":"a","nodes":{{"pool":"a"}},"max":{max},"resources":{node},"delay":"{delay}"}}]"#)
}

/// A member with one node of four cores, of a pool that may have so many.
fn fleet(max: u32) -> Fleet {
    let mut fleet = Fleet::default();
    add(&mut fleet, "m1", &pool(max, "5m"));
    fleet
}

fn add(fleet: &mut Fleet, name: &str, groups: &str) {
    fleet.set_cluster(cluster(name, groups), Capacity::default());
    fleet.apply_update(name, Update::Change(Change::Nodes(vec![node("n", 4)])));
    fleet.apply_update(name, Update::Change(Change::Pods(vec![])));
    fleet.refresh_capacities();
}

/// So many pods of two cores.
fn assume(name: &str, pods: u32) -> AssumedPods {
    let mut request = cores(2);
    request.set("pods", Quantity::from_units(1));
    let task = Task {
        name: "w".into(),
        replicas: pods,
        min_available: pods,
        request,
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    let workload =
        WorkloadRef { group: "batch.volcano.sh".into(), kind: "Job".into(), namespace: "ns".into(), name: name.into() };
    let gang = Arc::new(Gang::new(vec![task], pods));
    AssumedPods { workload, gang, pods: [("m1".to_owned(), vec![pods])].into(), pinned: BTreeMap::new() }
}

fn binds(name: &str, at: u32, on: &str) -> Update {
    let owner =
        Owner { group: "batch.volcano.sh".into(), kind: "Job".into(), name: name.into(), task: Some("w".into()) };
    Update::Change(Change::Pod(Pod {
        namespace: "ns".into(),
        name: format!("{name}-{at}"),
        node: Some(on.into()),
        request: cores(2),
        finished: false,
        owner: Some(owner),
    }))
}

fn cpu(resources: &Resources) -> i128 {
    resources.get("cpu").units_ceil()
}

/// What is free now, and with the nodes that may come.
fn free(fleet: &mut Fleet) -> (i128, i128) {
    fleet.refresh_capacities();
    let now = fleet.clusters().map(|(_, capacity)| cpu(&capacity.sum_free())).sum();
    (now, cpu(&fleet.sum_free_with_upcoming()))
}

fn awaited(fleet: &Fleet, key: &str) -> Vec<String> {
    fleet.list_awaited_nodes(key).iter().map(ToString::to_string).collect()
}

#[test]
fn what_does_not_fit_now_takes_nodes_that_may_come_and_nobody_else_gets_them() {
    let mut fleet = fleet(4);
    assert_eq!(free(&mut fleet), (4, 16), "three may come");
    fleet.assume_pods("a", assume("a", 5));
    assert_eq!(free(&mut fleet), (0, 6));
    assert_eq!(awaited(&fleet, "a"), ["waits for 2 more nodes of group a in m1, about 5m"]);
    fleet.assume_pods("b", assume("b", 2));
    assert_eq!(free(&mut fleet), (0, 2), "the half node that a leaves, and another");
    assert_eq!(awaited(&fleet, "b").len(), 1);
    fleet.forget_assumed("a");
    assert_eq!(free(&mut fleet), (0, 12));
    assert_eq!(awaited(&fleet, "b"), Vec::<String>::new(), "it has what is there now");
}

#[test]
fn a_node_that_several_wait_for_is_counted_once() {
    let mut fleet = fleet(4);
    let missing = |fleet: &mut Fleet| {
        fleet.refresh_capacities();
        fleet.list_all_awaited_nodes().iter().map(|awaited| awaited.nodes).collect::<Vec<_>>()
    };
    fleet.assume_pods("a", assume("a", 2));
    assert!(missing(&mut fleet).is_empty(), "there is room for it");
    fleet.assume_pods("b", assume("b", 1));
    fleet.assume_pods("c", assume("c", 1));
    assert_eq!((awaited(&fleet, "b"), missing(&mut fleet)), (vec![], vec![1]));
    assert_eq!((awaited(&fleet, "b").len(), awaited(&fleet, "c").len()), (1, 1), "both wait for it");
    fleet.assume_pods("d", assume("d", 9));
    assert_eq!(missing(&mut fleet), [3], "there can not be more");
    fleet.apply_update("m1", Update::Change(Change::Node(node("n1", 4))));
    assert_eq!(missing(&mut fleet), [2]);
    fleet.apply_update("m1", Update::Down("it does not answer".into()));
    assert!(missing(&mut fleet).is_empty(), "nobody knows them");
}

#[test]
fn a_node_that_came_is_no_longer_to_come() {
    let mut fleet = fleet(4);
    fleet.assume_pods("a", assume("a", 5));
    free(&mut fleet);
    fleet.apply_update("m1", Update::Change(Change::Node(node("n1", 4))));
    assert_eq!(free(&mut fleet), (0, 6), "it is a's");
    assert_eq!(awaited(&fleet, "a"), ["waits for 1 more node of group a in m1, about 5m"]);
    fleet.apply_update("m1", Update::Change(Change::Node(Node { ready: false, ..node("n2", 4) })));
    assert_eq!(free(&mut fleet), (0, 2), "one that is not ready yet does not come a second time");
    assert_eq!(cpu(&fleet.sum_upcoming("m1")), 8, "and is there some day");
    fleet.apply_update("m1", Update::Change(Change::Node(node("n2", 4))));
    for (at, on) in (0..5).zip(["n", "n", "n1", "n1", "n2"]) {
        fleet.apply_update("m1", binds("a", at, on));
    }
    assert_eq!(free(&mut fleet), (2, 6));
    assert!(awaited(&fleet, "a").is_empty());
    // Its pods end, and the member's own autoscaler takes nodes away.
    fleet.forget_assumed("a");
    fleet.apply_update("m1", Update::Change(Change::Pods(vec![])));
    fleet.apply_update("m1", Update::Change(Change::NodeGone("n2".into())));
    assert_eq!(free(&mut fleet), (8, 16));
}

#[test]
fn a_group_that_is_as_large_as_it_may_be_and_one_that_was_taken_away_offer_nothing() {
    let mut fleet = fleet(1);
    assert_eq!(free(&mut fleet), (4, 4));
    assert!(fleet.find_with_upcoming_nodes(|_, _| Some(())).is_none());
    fleet.set_cluster(cluster("m1", &pool(2, "5m")), Capacity::default());
    assert_eq!(free(&mut fleet), (4, 8));
    fleet.set_cluster(cluster("m1", "[]"), Capacity::default());
    assert_eq!(free(&mut fleet), (4, 4));
    assert!(!fleet.has_autoscaled_groups());
}

#[test]
fn what_queues_may_hold_has_the_nodes_that_may_come_and_stays_the_same_when_they_do() {
    let mut fleet = fleet(3);
    let quota = |fleet: &mut Fleet| {
        fleet.refresh_capacities();
        cpu(&fleet.compute_capacity_for_queues("m1", true))
    };
    assert_eq!(quota(&mut fleet), 12);
    fleet.assume_pods("a", assume("a", 5));
    assert_eq!(quota(&mut fleet), 12);
    fleet.apply_update("m1", Update::Change(Change::Node(node("n1", 4))));
    for at in 0..2 {
        fleet.apply_update("m1", binds("a", at, "n1"));
    }
    assert_eq!(quota(&mut fleet), 12);
    fleet.refresh_clusters_without_queued();
    let (_, emptied, _) = fleet.list_capacities_without_queued().next().unwrap();
    assert_eq!(cpu(&emptied.sum_free()), 12);
}

#[test]
fn of_a_member_whose_nodes_can_not_be_read_no_node_counts_as_room_and_all_as_possible() {
    let mut fleet = fleet(3);
    let summary = Capacity::from_summary(&cores(4), &Resources::new(), &Resources::new());
    fleet.set_cluster(cluster("m1", &pool(3, "5m")), summary);
    fleet.apply_update("m1", Update::Down("it does not answer".into()));
    assert_eq!(free(&mut fleet), (4, 4));
    fleet.refresh_clusters_without_queued();
    let (_, emptied, _) = fleet.list_capacities_without_queued().next().unwrap();
    assert_eq!(cpu(&emptied.sum_free()), 4 + 12);
    assert_eq!(cpu(&fleet.compute_capacity_for_queues("m1", true)), 4);
    assert_eq!(cpu(&fleet.sum_upcoming("m1")), 12);
}

#[test]
fn who_has_to_wait_for_nodes_goes_where_they_come_soonest() {
    let mut fleet = fleet(4);
    add(&mut fleet, "m2", &pool(4, "2m"));
    add(&mut fleet, "m3", "[]");
    let with_room_for = |cores: i128| {
        fleet.find_with_upcoming_nodes(|all, _| {
            let fits = |(_, capacity): &&(&Cluster, &Capacity)| cpu(&capacity.sum_free()) >= cores;
            all.iter().find(fits).map(|(cluster, _)| cluster.name.clone())
        })
    };
    assert_eq!(with_room_for(16).as_deref(), Some("m2"));
    assert_eq!(with_room_for(17), None);
    fleet.set_cluster(cluster("m2", &pool(2, "2m")), Capacity::default());
    fleet.refresh_capacities();
    let with_room_for_16 = fleet.find_with_upcoming_nodes(|all, _| {
        all.iter().find(|(_, capacity)| cpu(&capacity.sum_free()) >= 16).map(|(cluster, _)| cluster.name.clone())
    });
    assert_eq!(with_room_for_16.as_deref(), Some("m1"), "where they come later, if they must");
}

#[test]
fn who_is_asked_is_told_how_long_the_nodes_take() {
    let mut fleet = fleet(4);
    add(&mut fleet, "m2", &pool(4, "2m"));
    let asked = |most: i64, cores: i128| {
        fleet.find_with_upcoming_nodes(|all, delay| {
            let free: i128 = all.iter().map(|(_, capacity)| cpu(&capacity.sum_free())).sum();
            (delay <= most && free >= cores).then_some(delay)
        })
    };
    assert_eq!((asked(300, 20), asked(300, 21)), (Some(120), Some(300)));
    assert_eq!((asked(299, 20), asked(299, 21), asked(119, 20)), (Some(120), None, None));
}

#[test]
fn what_is_free_once_others_are_gone_gets_no_nodes_that_come_later_than_asked() {
    let mut fleet = fleet(4);
    add(&mut fleet, "m2", &pool(4, "2m"));
    let own = BTreeMap::from([("m1".to_owned(), fleet.clusters().next().unwrap().1.clone())]);
    let asked = |most: i64, cores: i128| {
        fleet.find_with_upcoming_nodes_on(&own, |all, delay| {
            let free: i128 = all.iter().map(|(_, capacity)| cpu(&capacity.sum_free())).sum();
            (delay <= most && free >= cores).then_some(delay)
        })
    };
    assert_eq!((asked(300, 20), asked(300, 21)), (Some(120), Some(300)));
    assert_eq!((asked(299, 20), asked(299, 21)), (Some(120), None));
}

#[test]
fn a_group_whose_nodes_take_long_delays_nobody_who_needs_none_of_them() {
    let slow = r#"{"name":"b","nodes":{"pool":"b"},"max":2,"resources":{"cpu":"4","pods":"100"},"delay":"1h"}"#;
    let mut fleet = Fleet::default();
    add(&mut fleet, "m1", &format!("[{slow},{}", &pool(3, "2m")[1..]));
    let asked = |cores: i128| {
        fleet.find_with_upcoming_nodes(|all, delay| (cpu(&all[0].1.sum_free()) >= cores).then_some(delay))
    };
    assert_eq!((asked(12), asked(13), asked(20), asked(21)), (Some(120), Some(3_600), Some(3_600), None));
    assert_eq!(fleet.list_soonest_nodes().map(|(_, delay)| delay).collect::<Vec<_>>(), [120]);
}

#[test]
fn no_more_than_a_few_delays_are_tried_one_after_another() {
    let mut fleet = fleet(4);
    for minutes in 10..40 {
        add(&mut fleet, &format!("n{minutes}"), &pool(4, &format!("{minutes}m")));
    }
    let asked = std::cell::Cell::new(0);
    let fits_with_all = fleet.find_with_upcoming_nodes(|all, _| {
        asked.set(asked.get() + 1);
        (all.iter().filter(|(_, capacity)| cpu(&capacity.sum_free()) >= 16).count() == 31).then_some(())
    });
    assert!(fits_with_all.is_some() && asked.get() <= 9, "{}", asked.get());
}

#[test]
fn the_last_delay_that_a_run_bears_is_found_among_many() {
    let mut fleet = Fleet::default();
    for minutes in 1..=20 {
        add(&mut fleet, &format!("n{minutes:02}"), &pool(2, &format!("{minutes}m")));
    }
    // A node in each member, and one more in as many of them as have come.
    let asked = |most_minutes: i64, nodes: i64| {
        fleet.find_with_upcoming_nodes(|all, delay| {
            let free: i128 = all.iter().map(|(_, capacity)| cpu(&capacity.sum_free())).sum();
            (delay <= most_minutes * 60 && free >= i128::from(20 + nodes) * 4).then_some(delay / 60)
        })
    };
    for nodes in 1..=20 {
        assert_eq!(asked(20, nodes), Some(nodes));
        assert_eq!(asked(nodes, nodes), Some(nodes), "and it bears no longer delay");
        assert_eq!(asked(nodes - 1, nodes), None);
    }
}

#[test]
fn what_may_come_is_not_copied_for_a_question_about_all_of_it() {
    let mut fleet = fleet(4);
    add(&mut fleet, "m2", &pool(4, "2m"));
    let with_all: Vec<&Capacity> = fleet.clusters_with_upcoming().map(|(_, capacity)| capacity).collect();
    let is_copied = std::cell::RefCell::new(Vec::new());
    let found = fleet.find_with_upcoming_nodes(|all, delay| {
        let copied = all.iter().zip(&with_all).filter(|((_, capacity), known)| !std::ptr::eq(*capacity, **known));
        is_copied.borrow_mut().push(copied.count());
        (delay > 120).then_some(())
    });
    assert_eq!((found, is_copied.into_inner()), (None, vec![0]), "the soonest are asked about first, with all");
    let copies = std::cell::Cell::new(0);
    fleet.find_with_upcoming_nodes(|all, delay| {
        let copied = all.iter().zip(&with_all).filter(|((_, capacity), known)| !std::ptr::eq(*capacity, **known));
        copies.set(copies.get() + copied.count());
        (delay == 120 && all[0].1.shapes.len() > 1).then_some(())
    });
    assert_eq!(copies.get(), 1, "m1 without its nodes, and m2 with all of its");
}

#[test]
fn pods_may_be_late_by_the_delay_of_the_groups_whose_nodes_take_them() {
    let mut fleet = fleet(1);
    fleet.assume_pods("a", assume("a", 1));
    assert_eq!(fleet.delay_of_nodes("m1", "a"), 300, "also when the last node just came");
    let small = r#"{"name":"b","nodes":{"pool":"b"},"max":9,"resources":{"cpu":"1"},"delay":"1h"}"#;
    let taint = r#"{"key":"c","effect":"NoSchedule"}"#;
    let tainted = format!(
        r#"{{"name":"c","nodes":{{"pool":"c"}},"max":9,"resources":{{"cpu":"9"}},"delay":"2h","taints":[{taint}]}}"#
    );
    let groups = format!("[{small},{tainted},{}", &pool(1, "5m")[1..]);
    fleet.set_cluster(cluster("m1", &groups), Capacity::default());
    fleet.refresh_capacities();
    assert_eq!(fleet.delay_of_nodes("m1", "a"), 300, "none fits on the others");
    assert_eq!((fleet.delay_of_nodes("m2", "a"), fleet.delay_of_nodes("m1", "z")), (0, 0));
    fleet.ignore_upcoming_nodes(true);
    fleet.refresh_capacities();
    assert_eq!((fleet.delay_of_nodes("m1", "a"), free(&mut fleet)), (0, (2, 2)));
}

#[test]
fn a_node_that_may_come_is_in_the_domain_that_its_labels_put_it_in() {
    let mut fleet = fleet(3);
    let rack = |name: &str, member: HyperNodeMember| HyperNode {
        name: name.into(),
        tier: 1,
        tier_name: String::new(),
        members: vec![member],
    };
    let labels = vec![Requirement { key: "pool".into(), operator: Operator::In, values: vec!["a".into()] }];
    let by_labels = rack("a", HyperNodeMember::Labels(labels));
    fleet.apply_update("m1", Update::Change(Change::HyperNodes(vec![by_labels])));
    fleet.refresh_capacities();
    let in_domains = |fleet: &Fleet| -> u32 {
        let with = |all: Vec<(&Cluster, &Capacity)>, _| {
            Some(all[0].1.shapes.iter().flat_map(|shape| &shape.domains).map(|(_, nodes)| nodes).sum())
        };
        fleet.find_with_upcoming_nodes(with).unwrap()
    };
    assert_eq!(in_domains(&fleet), 3);
    let by_name = rack("a", HyperNodeMember::Pattern(".*".into()));
    fleet.apply_update("m1", Update::Change(Change::HyperNodes(vec![by_name])));
    fleet.refresh_capacities();
    assert_eq!(in_domains(&fleet), 1, "nobody knows what it will be called");
}
