//! Which clusters are kept, by the function that places.

use std::{cell::Cell, sync::Arc};

use super::*;
use crate::{
    gang::{Gang, NodeClaim, Task},
    inventory::{Amounts, NodeShape, Source},
    place::{Apis, Division, Placement, Request, Spread, SpreadBy, place_binding},
    quantity::Quantity,
};

fn request(cores: i64) -> Resources {
    [("cpu", Quantity::from_units(cores))].into_iter().collect()
}

/// Two pods of so many cores.
fn gang(cores: i64) -> Gang {
    let task = Task {
        name: "t".into(),
        replicas: 2,
        min_available: 2,
        request: request(cores),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    Gang::new(vec![task], 2)
}

fn binding(division: Division, spread: Vec<Spread>) -> place::Binding {
    place::Binding {
        uid: "u".into(),
        api_version: "v1".into(),
        kind: "Job".into(),
        replicas: 2,
        divisible: true,
        is_workload: true,
        placement: Placement { division: Some(division), spread, ..Placement::default() },
        ..place::Binding::default()
    }
}

/// A node of ten cores, of which so many are free.
fn node(free: i64) -> Capacity {
    let amounts = |cores| -> Arc<Amounts> { Arc::new([("cpu".into(), Quantity::from_units(cores))].into()) };
    let shape = NodeShape {
        labels: Some(Arc::default()),
        allocatable: amounts(10),
        free: amounts(free),
        nodes: vec!["n".into()],
        ..NodeShape::default()
    };
    Capacity::new(vec![shape], Source::Nodes)
}

/// What is kept for a gang of pods of so many cores, where so many are free in m0, m1...
fn kept(binding: &place::Binding, cores: i64, free: &[i64], vain: &[&str]) -> Option<Vec<String>> {
    kept_after(binding, cores, free, vain).0
}

/// The same, and after how many placements.
fn kept_after(binding: &place::Binding, cores: i64, free: &[i64], vain: &[&str]) -> (Option<Vec<String>>, usize) {
    let placements = Cell::new(0);
    let serves: Apis = [("v1".to_owned(), "Job".to_owned())].into();
    let cluster = |at| Cluster { name: format!("m{at}"), ready: true, serves: serves.clone(), ..Cluster::default() };
    let all: Vec<(Cluster, Capacity)> = free.iter().enumerate().map(|(at, free)| (cluster(at), node(*free))).collect();
    let clusters = all.iter().map(|(cluster, now)| ReservableCluster { cluster, emptied: now.emptied(), now });
    let gang = gang(cores);
    let ask = |binding: &place::Binding, clusters: Vec<(&Cluster, &Capacity)>| {
        placements.set(placements.get() + 1);
        let request = Request { binding, gang: &gang, whole: true, previous: None, clusters, linked: &[], run: None };
        place_binding(&request).ok()
    };
    let vain: Vec<ClusterName> = vain.iter().map(|name| (*name).into()).collect();
    let kept = choose_reserved_clusters(binding, (&gang, &request(2 * cores)), &vain, clusters, ask);
    let names = kept.map(|kept| {
        assert_eq!(kept.resources, ["cpu".into()]);
        kept.clusters.iter().map(ToString::to_string).collect()
    });
    (names, placements.get())
}

#[test]
fn a_divided_job_keeps_the_cluster_that_has_most_free_of_those_that_hold_it() {
    let divided = binding(Division::Aggregated, Vec::new());
    assert_eq!(kept(&divided, 4, &[1, 5, 3], &[]).unwrap(), ["m1"]);
    assert_eq!(kept(&divided, 4, &[1, 5, 3], &["m1"]).unwrap(), ["m2"]);
    assert_eq!(kept(&divided, 11, &[1, 5, 3], &[]), None);
}

#[test]
fn a_duplicated_job_keeps_the_clusters_in_which_it_lacks_capacity_and_no_others() {
    let duplicated = binding(Division::Duplicated, Vec::new());
    assert_eq!(kept(&duplicated, 4, &[10, 5, 8, 7], &[]).unwrap(), ["m1", "m3"]);
    assert_eq!(kept(&duplicated, 4, &[8, 8, 8, 8], &[]), None, "it lacks none");
    assert_eq!(kept(&duplicated, 4, &[10, 5, 8, 7], &["m3"]), None, "there are no others instead");
    assert_eq!(kept(&duplicated, 4, &[10, 5, 8, 7], &["m0"]).unwrap(), ["m1", "m3"], "it lacks nothing there now");
}

#[test]
fn a_duplicated_job_that_lacks_capacity_in_many_clusters_keeps_none() {
    let duplicated = binding(Division::Duplicated, Vec::new());
    assert_eq!(kept(&duplicated, 4, &[1; 8], &[]).unwrap().len(), 8);
    assert_eq!(kept(&duplicated, 4, &[1; 9], &[]), None);
    // Where it would go, and what nine of these have.
    assert_eq!(kept_after(&duplicated, 4, &[1; 40], &[]), (None, 10));
}

#[test]
fn a_duplicated_job_keeps_nothing_in_clusters_that_its_policy_does_not_choose() {
    let two = Spread { by: SpreadBy::Cluster, min: 2, max: 2 };
    let duplicated = binding(Division::Duplicated, vec![two]);
    let kept = kept(&duplicated, 4, &[5, 5, 5], &[]).unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
}
