//! What the root of the queues may hold, and what could never fit: of clusters that are away, tainted, or used by
//! others.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
};
use serde_json::{Value, json};

use super::world::{World, job};
use crate::observe::Input;

fn amounts(cpu: i64) -> caldera_core::resources::Resources {
    [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(100))].into_iter().collect()
}

pub(super) fn report(world: &mut World, member: &str, change: Change) {
    world.controller.observe(Input::Member(member.into(), Update::Change(change)), world.now);
}

/// Members of one node of 10 cpus each, of which everything is seen.
pub(super) fn members(names: &[&str]) -> World {
    let mut world = World::empty();
    world.queue("q", &json!({}));
    for name in names {
        world.cluster(name, "10");
        world.controller.observe(Input::Member((*name).into(), Update::Up), world.now);
        let node = Node { name: "n".into(), allocatable: amounts(10), ready: true, ..Node::default() };
        report(&mut world, name, Change::Nodes(vec![node]));
        report(&mut world, name, Change::Pods(vec![]));
    }
    world.pass(5);
    world
}

/// A pod on the member's node: of a job, or of nobody that is queued.
pub(super) fn pod(world: &mut World, member: &str, name: &str, cpu: i64, of: Option<&str>) {
    let owner = |name: &str| Owner {
        group: "batch.volcano.sh".into(),
        kind: "Job".into(),
        name: name.into(),
        task: Some("worker".into()),
    };
    let request = [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(1))].into_iter().collect();
    let pod = Pod {
        namespace: "ns".into(),
        name: name.into(),
        node: Some("n".into()),
        request,
        finished: false,
        owner: of.map(owner),
    };
    report(world, member, Change::Pod(pod));
}

fn root(world: &mut World) -> String {
    world.controller.capacity.sum_fleet().ready.get("cpu").to_string()
}

pub(super) fn on(world: &mut World, job: &str, member: &str, pods: u32) {
    let clusters = json!({"spec": {"clusters": [{"name": member, "replicas": pods}]}});
    world.patch("ResourceBinding", &format!("{job}-job"), &clusters);
    for i in 0..pods {
        pod(world, member, &format!("{job}-worker-{i}"), 1, Some(job));
    }
    world.phase(job, "Running");
    world.pass(2);
}

fn taint(world: &mut World, member: &str, key: &str) {
    let taints = if key.is_empty() { json!([]) } else { json!([{"key": key, "effect": "NoSchedule"}]) };
    world.patch("Cluster", member, &json!({"spec": {"taints": taints}}));
}

#[test]
fn a_cordoned_cluster_does_not_idle_the_others() {
    for ready in ["True", "False"] {
        let mut world = members(&["m1", "m2"]);
        world.job("a", "q", 10);
        assert_eq!(world.settle(), ["a-job"]);
        on(&mut world, "a", "m1", 10);
        taint(&mut world, "m1", "cluster.karmada.io/unschedulable");
        let condition = json!({"type": "Ready", "status": ready, "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        world.patch("Cluster", "m1", &json!({"status": {"conditions": [condition]}}));
        world.pass(3);
        assert_eq!(root(&mut world), "20");
        world.job("b", "q", 10);
        assert_eq!(world.pass(2), ["b-job"], "{ready}");
        on(&mut world, "b", "m2", 10);
        // What ends there is not there for anybody else.
        world.phase("a", "Completed");
        world.job("c", "q", 1);
        assert!(world.pass(2).is_empty());
        assert_eq!(root(&mut world), "10");
    }
}

#[test]
fn what_others_use_is_not_the_queues_and_what_jobs_use_is() {
    let mut world = members(&["m1"]);
    pod(&mut world, "m1", "foreign", 3, None);
    world.pass(2);
    assert_eq!(root(&mut world), "7");
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(root(&mut world), "7");
    on(&mut world, "a", "m1", 4);
    assert_eq!(root(&mut world), "7");
    world.job("b", "q", 5);
    assert!(world.pass(2).is_empty());
    assert!(world.says("b").1.contains("used 4 of 7"), "{:?}", world.says("b"));
    // The pods of who was queued and is not any more are somebody else's until they are gone.
    world.delete("ResourceBinding", "a-job");
    world.pass(2);
    assert_eq!(root(&mut world), "3");
    for i in 0..4 {
        report(&mut world, "m1", Change::PodGone("ns".into(), format!("a-worker-{i}")));
    }
    assert_eq!(world.pass(2), ["b-job"]);
    report(&mut world, "m1", Change::PodGone("ns".into(), "foreign".into()));
    world.pass(2);
    assert_eq!(root(&mut world), "10");
}

/// Found by a command line's test: it waited for an event that nobody owed it, and said that the fleet is too small.
#[test]
fn a_restarted_job_is_released_as_long_after_its_old_pods_are_gone_as_they_took() {
    let mut world = members(&["m1"]);
    world.job("a", "q", 10);
    assert_eq!(world.settle(), ["a-job"]);
    on(&mut world, "a", "m1", 10);
    world.put(json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"namespace": "ns", "name": "again"},
        "action": "RestartJob", "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": ""},
    }));
    world.pass(5);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    assert!(world.pass(30).is_empty(), "its old pods are there");
    for i in 0..10 {
        report(&mut world, "m1", Change::PodGone("ns".into(), format!("a-worker-{i}")));
    }
    assert!(world.pass(30).is_empty(), "a member's Volcano would forget the new copy with the old one");
    let (_, message) = world.says("a");
    assert!(message.contains("their members have forgotten them"), "{message}");
    assert_eq!(world.pass(10), ["a-job"]);
}

#[test]
fn what_our_scheduler_places_of_no_queue_is_not_the_queues() {
    let mut world = members(&["m1"]);
    let plain = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain", "namespace": "ns"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "plain"}}, "template": {
            "metadata": {"labels": {"app": "plain"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    });
    let plain = world.put(plain);
    world.bind(&plain, 3, false);
    let ours = json!({"spec": {"schedulerName": caldera_crds::names::caldera::SCHEDULER_NAME}});
    world.patch("ResourceBinding", "plain-deployment", &ours);
    world.place("plain-deployment", 3);
    let owner = Owner { group: "apps".into(), kind: "Deployment".into(), name: "plain".into(), task: None };
    for i in 0..3 {
        let request = [("cpu", Quantity::from_units(1)), ("pods", Quantity::from_units(1))].into_iter().collect();
        let pod = Pod {
            namespace: "ns".into(),
            name: format!("plain-{i}"),
            node: Some("n".into()),
            request,
            finished: false,
            owner: Some(owner.clone()),
        };
        report(&mut world, "m1", Change::Pod(pod));
    }
    world.pass(2);
    assert_eq!((root(&mut world).as_str(), world.used("q").as_str()), ("7", "0"));
}

#[test]
fn that_others_come_and_go_makes_no_writes() {
    let mut world = members(&["m1"]);
    world.queue("other", &json!({"weight": 3}));
    world.job("a", "q", 4);
    world.settle();
    on(&mut world, "a", "m1", 4);
    world.pass(400);
    let before = world.writes.len();
    for i in 0..400 {
        match i % 2 {
            0 => pod(&mut world, "m1", "foreign", 3, None),
            _ => report(&mut world, "m1", Change::PodGone("ns".into(), "foreign".into())),
        }
        world.pass(1);
    }
    assert_eq!(world.writes.len(), before, "{:?}", world.writes.last());
}

fn submit(world: &mut World, name: &str, pods: u32, tolerates: Option<&str>) {
    let object = world.put(job(name, "q", pods));
    world.bind(&object, pods, true);
    let tolerations: Vec<Value> = tolerates.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
    let placement = json!({"spec": {"placement": {"clusterTolerations": tolerations}}});
    world.patch("ResourceBinding", &format!("{name}-job"), &placement);
}

#[test]
fn a_tainted_cluster_counts_while_somebody_stands_its_taint() {
    let mut world = members(&["m1", "m2"]);
    taint(&mut world, "m1", "maintenance");
    world.pass(1);
    assert_eq!(root(&mut world), "10");
    submit(&mut world, "a", 15, Some("maintenance"));
    assert_eq!(world.pass(2), ["a-job"]);
    assert_eq!(root(&mut world), "20");
    world.place("a-job", 15);
    world.phase("a", "Completed");
    world.pass(1);
    assert_eq!(root(&mut world), "10");
    submit(&mut world, "b", 15, None);
    assert!(world.pass(2).is_empty());
}

#[test]
fn what_a_daemonset_takes_can_never_be_had_defect_7() {
    let mut world = members(&["m1", "m2"]);
    pod(&mut world, "m1", "daemon", 1, None);
    pod(&mut world, "m2", "daemon", 1, None);
    let whole = |world: &mut World, name: &str| {
        let mut object = job(name, "q", 1);
        object["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10".into();
        let object = world.put(object);
        world.bind(&object, 1, true);
    };
    whole(&mut world, "a");
    world.pass(100);
    assert_eq!(world.says("a").0, "NeverFits", "{:?}", world.says("a"));
    assert!(!world.says("a").1.contains("reserved for it"), "{:?}", world.says("a"));
    let largest = "asks for 10 cpu on one node; the largest has 9 free in m1";
    assert!(world.says("a").1.contains(largest), "{:?}", world.says("a"));
    // That somebody else stands other taints gives no room; it is not forgotten over that who could never fit.
    submit(&mut world, "c", 30, Some("maintenance"));
    assert!(world.pass(3).is_empty());
    // Should it go after all, the job starts.
    report(&mut world, "m1", Change::PodGone("ns".into(), "daemon".into()));
    assert_eq!(world.pass(3), ["a-job"]);
    // Nor by all clusters together.
    world.job("b", "q", 20);
    world.pass(2);
    assert_eq!(world.says("b").0, "ExceedsFleet", "{:?}", world.says("b"));
}

#[test]
fn a_duplicated_job_is_charged_for_the_clusters_that_its_policy_chooses_defect_10() {
    let names = ["m1", "m2", "m3", "m4"];
    let copies = |placement: Value| {
        let mut world = members(&names);
        let object = world.put(job("a", "q", 2));
        world.bind(&object, 2, true);
        let mut placement = placement;
        placement["replicaScheduling"] =
            json!({"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null});
        world.patch("ResourceBinding", "a-job", &json!({"spec": {"placement": placement}}));
        assert_eq!(world.pass(1), ["a-job"]);
        world.used("q")
    };
    assert_eq!(copies(json!({})), "8");
    let most = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}]);
    assert_eq!(copies(json!({"spreadConstraints": most})), "4");
    let terms = json!([
        {"affinityName": "none", "clusterNames": ["gone"]},
        {"affinityName": "one", "clusterNames": ["m3"]},
        {"affinityName": "all"},
    ]);
    assert_eq!(copies(json!({"clusterAffinities": terms})), "2");
}

#[test]
fn a_running_duplicated_job_asks_for_its_copy_in_a_cluster_that_joins() {
    let mut world = members(&["m1"]);
    let object = world.put(job("a", "q", 2));
    world.bind(&object, 2, true);
    let placement =
        json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null}});
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"placement": placement}}));
    assert_eq!(world.pass(1), ["a-job"]);
    on(&mut world, "a", "m1", 2);
    assert_eq!(world.used("q"), "2");
    world.cluster("m2", "10");
    world.pass(3);
    assert_eq!(world.used("q"), "4");
}
