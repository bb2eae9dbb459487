//! What is assumed counts until it is seen.

use super::*;
use crate::{
    gang::{NodeClaim, Task},
    inventory::{Node, Owner, Pod},
    quantity::Quantity,
    resources::Resources,
};

fn request(cpu: i64) -> Resources {
    [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(1))].into_iter().collect()
}

fn gang() -> Arc<Gang> {
    let task = Task {
        name: "w".into(),
        replicas: 3,
        min_available: 3,
        request: request(2),
        node: NodeClaim::default(),
        priority_class: String::new(),
        partition: None,
    };
    Arc::new(Gang::new(vec![task], 3))
}

fn assume(pods: u32) -> AssumedPods {
    AssumedPods {
        workload: WorkloadRef {
            group: "batch.volcano.sh".into(),
            kind: "Job".into(),
            namespace: "ns".into(),
            name: "j".into(),
        },
        gang: gang(),
        pods: [("m1".to_owned(), vec![pods])].into(),
        pinned: BTreeMap::new(),
    }
}

fn pod(name: &str, finished: bool) -> Update {
    let owner =
        Owner { group: "batch.volcano.sh".into(), kind: "Job".into(), name: "j".into(), task: Some("w".into()) };
    Update::Change(Change::Pod(Pod {
        namespace: "ns".into(),
        name: name.into(),
        node: Some("n".into()),
        request: request(2),
        finished,
        owner: Some(owner),
    }))
}

fn fleet() -> Fleet {
    fleet_of(&[10])
}

fn nodes(cores: &[i64]) -> Update {
    let node = |(at, cores): (usize, &i64)| {
        let mut allocatable = request(*cores);
        allocatable.set("pods", Quantity::from_units(10));
        let name = if at == 0 { "n".to_owned() } else { format!("n{at}") };
        Node { name, allocatable, ready: true, ..Node::default() }
    };
    Update::Change(Change::Nodes(cores.iter().enumerate().map(node).collect()))
}

/// One member with nodes of so many cores.
fn fleet_of(cores: &[i64]) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.set_cluster(Cluster { name: "m1".into(), ready: true, ..Cluster::default() }, Capacity::default());
    fleet.apply_update("m1", nodes(cores));
    fleet.apply_update("m1", Update::Change(Change::Pods(vec![])));
    fleet
}

fn cpu(fleet: &mut Fleet) -> i128 {
    fleet.refresh_capacities();
    fleet.clusters().next().unwrap().1.sum_free().get("cpu").units_ceil()
}

#[test]
fn assumed_pods_hold_capacity_until_they_are_seen_and_never_twice() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    assert_eq!(cpu(&mut fleet), 4);
    fleet.apply_update("m1", pod("a", false));
    assert_eq!(cpu(&mut fleet), 4);
    fleet.apply_update("m1", pod("a", true));
    assert_eq!(cpu(&mut fleet), 6);
    fleet.forget_assumed("ns/rb");
    assert_eq!(cpu(&mut fleet), 10);
}

#[test]
fn starting_afresh_gives_back_what_the_binding_holds() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    fleet.apply_update("m1", pod("a", false));
    assert_eq!(cpu(&mut fleet), 4);
    assert_eq!(fleet.compute_capacities_without_binding("ns/rb")["m1"].sum_free().get("cpu"), Quantity::from_units(10));
}

/// What is assumed of a kind, and a pod of it.
fn of_kind(group: &str, kind: &str, planned: u32) -> (AssumedPods, impl Fn(&str, bool) -> Update) {
    let mut assumed = assume(planned);
    (assumed.workload.group, assumed.workload.kind) = (group.to_owned(), kind.to_owned());
    let (group, kind) = (group.to_owned(), kind.to_owned());
    let pod = move |name: &str, finished| {
        let mut update = pod(name, finished);
        if let Update::Change(Change::Pod(Pod { owner: Some(owner), .. })) = &mut update {
            (owner.group, owner.kind, owner.task) = (group.clone(), kind.clone(), None);
        }
        update
    };
    (assumed, pod)
}

/// Evicted pods of a Deployment stay as Failed for long.
#[test]
fn pods_that_others_follow_are_held_anew_once_they_have_finished() {
    for kind in ["Deployment", "StatefulSet"] {
        let (assumed, pod) = of_kind("apps", kind, 3);
        let mut fleet = fleet();
        for name in ["a", "b", "c"] {
            fleet.apply_update("m1", pod(name, true));
        }
        fleet.assume_pods("ns/rb", assumed);
        assert_eq!(cpu(&mut fleet), 4, "{kind}");
        fleet.apply_update("m1", pod("d", false));
        assert_eq!(cpu(&mut fleet), 4, "{kind}");
    }
}

#[test]
fn pods_of_a_batch_job_are_followed_by_others_while_more_must_succeed_than_run() {
    let free = |completions| {
        let (mut assumed, pod) = of_kind("batch", "Job", 3);
        Arc::make_mut(&mut assumed.gang).min_success = completions;
        let mut fleet = fleet();
        fleet.assume_pods("ns/rb", assumed);
        fleet.apply_update("m1", pod("a", true));
        fleet.apply_update("m1", pod("b", false));
        cpu(&mut fleet)
    };
    assert_eq!([Some(9), Some(3), None].map(free), [4, 6, 6]);
}

#[test]
fn what_has_finished_gives_nothing_back_when_the_binding_starts_afresh() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    for (name, finished) in [("a", true), ("b", true), ("c", false)] {
        fleet.apply_update("m1", pod(name, finished));
    }
    assert_eq!(cpu(&mut fleet), 8);
    assert_eq!(fleet.compute_capacities_without_binding("ns/rb")["m1"].sum_free().get("cpu"), Quantity::from_units(10));
}

#[test]
fn pods_that_are_thought_away_leave_their_own_nodes_and_nothing_else_changes() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    for name in ["j-w-0", "j-w-1"] {
        fleet.apply_update("m1", pod(name, false));
    }
    assert_eq!(cpu(&mut fleet), 4);
    let after = |fleet: &Fleet, leaving| {
        let after = fleet.compute_capacities_after_eviction(&[("ns/rb".to_owned(), leaving)].into());
        after["m1"].sum_free().get("cpu").units_ceil()
    };
    assert_eq!(after(&fleet, EvictedPods::All), 10);
    let some = |pods| EvictedPods::Some([("m1".to_owned(), vec![pods])].into());
    assert_eq!([1, 2, 3].map(|pods| after(&fleet, some(pods))), [6, 8, 10]);
    assert!(fleet.compute_capacities_after_eviction(&[("ns/other".to_owned(), EvictedPods::All)].into()).is_empty());
    assert_eq!(cpu(&mut fleet), 4);
    assert!(fleet.runs_anywhere(&assume(3).workload));
}

/// The peer dereferenced a missing resource summary and crashed (volcano-global capacity.go).
#[test]
fn a_member_that_can_not_be_read_falls_back_to_its_summary_and_else_offers_nothing() {
    let mut fleet = fleet();
    fleet.apply_update("m1", Update::Down("no route".into()));
    assert_eq!(cpu(&mut fleet), 0);
    assert!(fleet.describe_capacity_caveat("m1").unwrap().contains("no route"));
    let summary = Capacity::from_summary(&request(7), &request(1), &Resources::new());
    let cluster = Cluster { name: "m1".into(), ready: true, ..Cluster::default() };
    assert!(fleet.set_cluster(cluster.clone(), summary.clone()));
    assert!(!fleet.set_cluster(cluster, summary));
    assert_eq!(cpu(&mut fleet), 6);
    // While it is listed anew the summary goes on; then what was listed counts.
    fleet.apply_update("m1", nodes(&[9]));
    assert_eq!(cpu(&mut fleet), 6);
    fleet.apply_update("m1", Update::Change(Change::Pods(vec![])));
    assert!(fleet.apply_update("m1", Update::Up));
    assert_eq!((cpu(&mut fleet), fleet.describe_capacity_caveat("m1")), (9, None));
}

#[test]
fn numbers_from_before_an_outage_are_not_those_of_after_it() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    fleet.apply_update("m1", pod("a", false));
    fleet.apply_update("m1", Update::Down("no route".into()));
    assert!(fleet.runs_anywhere(&assume(3).workload));
    fleet.apply_update("m1", Update::Up);
    assert_eq!((cpu(&mut fleet), fleet.count_pods_that_reached_nodes("m1", &assume(3).workload)), (0, None));
    assert!(fleet.describe_capacity_caveat("m1").unwrap().contains("not read yet"));
    fleet.apply_update("m1", nodes(&[20]));
    assert_eq!(cpu(&mut fleet), 0);
    let Update::Change(Change::Pod(seen)) = pod("a", false) else { panic!("it is a pod") };
    fleet.apply_update("m1", Update::Change(Change::Pods(vec![seen])));
    assert_eq!((cpu(&mut fleet), fleet.describe_capacity_caveat("m1")), (14, None));
}

/// Once 12 cores of a member of 8 that was away: two admitted jobs that were nowhere were assumed beside those it ran.
#[test]
fn a_cluster_that_takes_no_jobs_gives_the_queues_no_more_than_it_has() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    let cpu = |fleet: &Fleet| fleet.compute_capacity_for_queues("m1", false).get("cpu").units_ceil();
    assert_eq!(cpu(&fleet), 6, "nobody summed it up");
    let has = |cores| Capacity::from_summary(&request(cores), &Resources::new(), &Resources::new());
    let away = Cluster { name: "m1".into(), ready: false, ..Cluster::default() };
    fleet.set_cluster(away.clone(), has(8));
    assert_eq!(cpu(&fleet), 6);
    fleet.set_cluster(away, has(4));
    assert_eq!(cpu(&fleet), 4);
}

/// A tenant's template that is edited while its pods run made the root of the queues larger: they counted as if made by
/// the new one.
#[test]
fn pods_that_run_count_as_what_they_were_made_with_whatever_their_template_says_now() {
    let mut fleet = fleet();
    fleet.apply_update("m1", pod("a", false));
    let cpu = |fleet: &Fleet| fleet.compute_capacity_for_queues("m1", true).get("cpu").units_ceil();
    fleet.assume_pods("ns/rb", assume(1));
    let before = cpu(&fleet);
    let mut edited = assume(1);
    let mut gang = (*edited.gang).clone();
    gang.tasks[0].request = request(1_000);
    edited.gang = gang.into();
    fleet.assume_pods("ns/rb", edited);
    assert_eq!(cpu(&fleet), before);
}

/// A tenant's `spec.clusters: [nowhere]` was charged nothing, and what was assumed there counted as capacity.
#[test]
fn a_cluster_that_nobody_knows_gives_the_queues_nothing() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", AssumedPods { pods: [("nowhere".to_owned(), vec![3])].into(), ..assume(3) });
    assert!(fleet.list_known_and_assumed_clusters().any(|(name, cluster)| name == "nowhere" && cluster.is_none()));
    assert!(fleet.compute_capacity_for_queues("nowhere", false).is_empty());
}

/// What runs there is not held a second time in the summary, which counts it already.
#[test]
fn what_was_seen_before_an_outage_stays_seen() {
    let mut fleet = fleet();
    fleet.assume_pods("ns/rb", assume(3));
    for name in ["a", "b"] {
        fleet.apply_update("m1", pod(name, false));
    }
    let amounts = [("cpu", 10), ("pods", 10)].map(|(name, n)| (name, Quantity::from_units(n))).into_iter().collect();
    let cluster = Cluster { name: "m1".into(), ready: true, ..Cluster::default() };
    fleet.set_cluster(cluster, Capacity::from_summary(&amounts, &request(4), &Resources::new()));
    fleet.apply_update("m1", Update::Down("no route".into()));
    assert_eq!(cpu(&mut fleet), 4);
}

#[test]
fn assumed_pods_may_be_known_before_their_cluster() {
    let mut fleet = Fleet::default();
    fleet.assume_pods("ns/rb", assume(3));
    fleet.refresh_capacities();
    assert_eq!((fleet.clusters().count(), fleet.list_clusters_not_reported_yet().count()), (0, 0));
    let amounts = [("cpu", 10), ("pods", 10)].map(|(name, n)| (name, Quantity::from_units(n))).into_iter().collect();
    let summary = Capacity::from_summary(&amounts, &Resources::new(), &Resources::new());
    fleet.set_cluster(Cluster { name: "m1".into(), ..Cluster::default() }, summary);
    assert_eq!(cpu(&mut fleet), 0);
    fleet.apply_update("m1", Update::Down("forbidden".into()));
    assert_eq!(cpu(&mut fleet), 4);
}

/// Held in another order they would not both fit: each decision was made with what was left by those before it.
#[test]
fn assumed_pods_are_held_in_the_order_in_which_they_were_assumed() {
    let of = |name: &str, cpu, pods| {
        let mut one = assume(pods);
        one.workload.name = name.to_owned();
        Arc::make_mut(&mut one.gang).tasks[0].request = request(cpu);
        one
    };
    let mut fleet = fleet_of(&[3, 4]);
    fleet.assume_pods("ns/z", of("z", 3, 1));
    fleet.assume_pods("ns/a", of("a", 2, 2));
    assert_eq!(cpu(&mut fleet), 0);
    fleet.apply_update("m1", nodes(&[3, 4, 1]));
    assert_eq!(cpu(&mut fleet), 1);
    let after = fleet.compute_capacities_after_eviction(&[("ns/a".to_owned(), EvictedPods::All)].into());
    assert_eq!(after["m1"].sum_free().get("cpu"), Quantity::from_units(5));
}

#[test]
fn what_members_measured_counts_as_a_link_until_they_measure_none() {
    let mut fleet = fleet();
    let cluster = |name: &str| Cluster { name: name.into(), ready: true, ..Cluster::default() };
    fleet.set_cluster(cluster("m2"), Capacity::default());
    let tier = crate::split::LinkTier { name: "metro".into(), most_latency: Some(500), ..Default::default() };
    fleet.set_federation_topology(FederationTopology { tiers: vec![tier], links: Vec::new() });
    let mut report = |update: Update| {
        let changed = fleet.apply_update("m1", update);
        fleet.refresh_capacities();
        (changed, fleet.linked_groups()[0].groups.len())
    };
    let link = |latency: u64| {
        let link = crate::split::MeasuredLink { to: "m2".into(), latency: Some(latency), bandwidth: Some(7) };
        Update::Links(vec![link])
    };
    assert_eq!(report(link(400)), (true, 1));
    assert_eq!(report(link(400)), (false, 1));
    assert_eq!(report(link(600)), (true, 0), "it became worse, and what waits is decided anew");
    assert_eq!(report(link(400)), (true, 1));
    assert_eq!(report(Update::Links(Vec::new())), (true, 0));
    assert_eq!(report(link(400)), (true, 1));
    assert_eq!(report(Update::From(Origin::Member)), (true, 0), "its collector is silent");
    assert!(fleet.links().links.is_empty());
}

#[test]
fn who_is_near_whom_follows_links_and_clusters() {
    let names = |of: &[&str]| of.iter().map(|name| ClusterName::from(*name)).collect::<Vec<_>>();
    let (from, to) = (names(&["m1", "m2", "m1"]), names(&["m2", "m3"]));
    let links = FederationTopology {
        tiers: vec![crate::split::LinkTier { name: "metro".into(), ..Default::default() }],
        links: vec![crate::split::Link { from, to, ..Default::default() }],
    };
    let mut fleet = fleet();
    let cluster = |name: &str| Cluster { name: name.into(), ready: true, ..Cluster::default() };
    fleet.set_cluster(cluster("m2"), Capacity::default());
    assert!(fleet.set_federation_topology(links.clone()) && !fleet.set_federation_topology(links));
    let near = |fleet: &mut Fleet| {
        fleet.refresh_capacities();
        fleet.linked_groups()[0].groups.clone()
    };
    assert_eq!(near(&mut fleet), [names(&["m1", "m2"])]);
    fleet.set_cluster(cluster("m3"), Capacity::default());
    assert_eq!(near(&mut fleet), [names(&["m1", "m2", "m3"])]);
    fleet.remove_cluster("m1");
    assert_eq!(near(&mut fleet), [names(&["m2", "m3"])]);
    assert!(fleet.set_federation_topology(FederationTopology::default()));
    fleet.refresh_capacities();
    assert!(fleet.linked_groups().is_empty());
}

proptest::proptest! {
    #[test]
    fn what_is_free_is_that_of_holding_all_assumed_pods_again(
        steps in proptest::collection::vec((0u8..9, 0u8..4, 0u8..4, 0u32..4), 1..80)
    ) {
        let mut fleet = fleet_of(&[5, 4, 7, 4]);
        let groups = r#"[{"name":"a","nodes":{"pool":"a"},"max":2,"resources":{"cpu":"5"}}]"#;
        let autoscaling = groups.parse().unwrap();
        let grows = Cluster { name: "m1".into(), ready: true, autoscaling, ..Cluster::default() };
        fleet.set_cluster(grows, Capacity::default());
        for (what, job, which, pods) in steps {
            let key = format!("key{job}");
            let named = |mut update: Update| {
                if let Update::Change(Change::Pod(pod)) = &mut update
                    && let Some(owner) = &mut pod.owner
                {
                    owner.name = format!("job{job}");
                }
                update
            };
            let name = format!("{job}-{which}");
            match what {
                0 | 6.. => {
                    let mut assumed = assume(pods);
                    assumed.workload.name = format!("job{job}");
                    Arc::make_mut(&mut assumed.gang).tasks[0].request = request(i64::from(job) + 1);
                    fleet.assume_pods(&key, assumed);
                }
                1 => fleet.forget_assumed(&key),
                2 | 3 => drop(fleet.apply_update("m1", named(pod(&name, what == 3)))),
                4 => drop(fleet.apply_update("m1", Update::Change(Change::PodGone("ns".into(), name)))),
                _ => match pods {
                    0 => drop(fleet.apply_update("m1", Update::Down("gone".into()))),
                    1 => drop(fleet.apply_update("m1", Update::Up)),
                    2 => drop(fleet.apply_update("m1", nodes(&[5, 4, 7, 4]))),
                    _ => drop(fleet.apply_update("m1", Update::Change(Change::Pods(vec![])))),
                },
            }
            if which > 0 {
                fleet.refresh_capacities();
            }
            for (name, member) in fleet.members.iter().filter(|_| which > 0) {
                let mut anew = member.clone();
                let all = sort_by_age(&fleet.entries, member.assumed_keys.iter());
                refresh_free_capacity(&mut anew, name, false, all);
                proptest::prop_assert_eq!(&member.capacity, &anew.capacity);
                proptest::prop_assert_eq!(&member.upcoming, &anew.upcoming);
            }
        }
    }
}

/// Two members of one large node each.
fn two_members() -> Fleet {
    let mut fleet = Fleet::default();
    let mut allocatable = request(100);
    allocatable.set("pods", Quantity::from_units(100));
    for name in ["m1", "m2"] {
        fleet.set_cluster(Cluster { name: name.into(), ready: true, ..Cluster::default() }, Capacity::default());
        let node = Node { name: "n".into(), allocatable: allocatable.clone(), ready: true, ..Node::default() };
        fleet.apply_update(name, Update::Change(Change::Nodes(vec![node])));
        fleet.apply_update(name, Update::Change(Change::Pods(vec![])));
    }
    fleet
}

fn capacities_for_queues(fleet: &mut Fleet) -> Vec<Resources> {
    fleet.refresh_capacities();
    ["m1", "m2"].map(|name| fleet.compute_capacity_for_queues(name, true)).into()
}

/// Found on a sandbox: a gang was evicted before its pods in one of its clusters were seen. They came and went as
/// somebody else's, and that they went was not told: the gang was "more than all clusters have together" for ever.
#[test]
fn pods_that_are_seen_after_their_eviction_are_others_and_their_end_is_reported() {
    let mut fleet = two_members();
    let both = || [("m1".to_owned(), vec![2]), ("m2".to_owned(), vec![1])].into();
    fleet.assume_pods("ns/rb", AssumedPods { pods: both(), ..assume(0) });
    fleet.apply_update("m2", pod("c", false));
    fleet.forget_unbound_assumed("ns/rb");
    fleet.apply_update("m1", pod("a", false));
    assert!(fleet.take_other_pods_changed());
    let gone = Update::Change(Change::PodGone("ns".into(), "a".into()));
    let before = capacities_for_queues(&mut fleet);
    fleet.apply_update("m1", gone);
    assert!(fleet.take_other_pods_changed());
    assert_ne!(capacities_for_queues(&mut fleet), before);
}

proptest::proptest! {
    #[test]
    fn what_queues_can_hold_changes_with_pods_of_others_alone_and_that_is_reported(
        steps in proptest::collection::vec((0u8..8, 0u8..2, 0u8..3, 0u32..4, 0u32..4), 1..60)
    ) {
        let mut fleet = two_members();
        let mut known = capacities_for_queues(&mut fleet);
        for (what, job, which, first, second) in steps {
            let key = format!("key{job}");
            let cluster = if first % 2 == 0 { "m1" } else { "m2" };
            let name = format!("{job}-{which}");
            match what {
                0 | 1 => {
                    let in_each = [("m1".to_owned(), vec![first]), ("m2".to_owned(), vec![second])];
                    let mut assumed = assume(0);
                    assumed.workload.name = format!("job{job}");
                    assumed.pods = in_each.into_iter().filter(|(_, pods)| pods[0] > 0).collect();
                    if which > 0 {
                        fleet.assume_pods(&key, assumed);
                    } else {
                        fleet.assume_unqueued_pods(&key, assumed);
                    }
                }
                2 => fleet.forget_assumed(&key),
                3 => drop(fleet.forget_unbound_assumed(&key)),
                4..=6 => {
                    let Update::Change(Change::Pod(mut pod)) = pod(&name, what == 6) else { unreachable!() };
                    pod.owner.iter_mut().for_each(|owner| owner.name = format!("job{job}"));
                    fleet.apply_update(cluster, Update::Change(Change::Pod(pod)));
                }
                _ => drop(fleet.apply_update(cluster, Update::Change(Change::PodGone("ns".into(), name)))),
            }
            let now = capacities_for_queues(&mut fleet);
            proptest::prop_assert!(fleet.take_other_pods_changed() || now == known, "{known:?} became {now:?}");
            known = now;
        }
    }
}

#[test]
fn shapes_carry_what_gangs_select_on_for_as_long_as_one_does() {
    let mut fleet = fleet();
    let node = |name: &str| Node {
        name: name.into(),
        labels: [("pool".to_owned(), name.to_owned()), ("disk".to_owned(), name.to_owned())].into(),
        allocatable: request(10),
        ready: true,
        ..Node::default()
    };
    fleet.apply_update("m1", Update::Change(Change::Nodes(vec![node("a"), node("b")])));
    let shapes = |fleet: &mut Fleet| {
        fleet.refresh_capacities();
        fleet.clusters().next().unwrap().1.shapes.len()
    };
    assert_eq!(shapes(&mut fleet), 1);
    let mut selecting = (*gang()).clone();
    selecting.tasks[0].node.selector = [("pool".to_owned(), "a".to_owned())].into();
    fleet.set_selected_labels("one", Some(&selecting));
    fleet.set_selected_labels("two", Some(&selecting));
    fleet.set_selected_labels("two", Some(&selecting));
    assert_eq!(shapes(&mut fleet), 2);
    fleet.set_selected_labels("one", Some(&gang()));
    assert_eq!(shapes(&mut fleet), 2);
    fleet.set_selected_labels("two", None);
    fleet.set_selected_labels("three", None);
    assert_eq!(shapes(&mut fleet), 1);
}
