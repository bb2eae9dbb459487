//! Groups of nodes, and clusters, that the jobs of a queue use.

use caldera_core::{
    cluster_choice::ClusterChoice,
    fleet::Update,
    inventory::{Change, Node},
    node_groups::NODE_GROUP,
    quantity::Quantity,
};
use caldera_crds::names::caldera::{CLUSTER_QUEUES, CLUSTER_SELECTOR};
use serde_json::{Value, json};

use super::world::World;
use crate::{
    explain::{MoveAnswer, explain_move},
    observe::{Input, Key},
};

/// A member of nodes of 4 cpus, each in a group or in none.
fn member(nodes: &[(&str, Option<&str>)]) -> World {
    let mut world = World::empty();
    add_member(&mut world, "m1");
    nodes.iter().for_each(|(name, group)| node(&mut world, name, *group));
    world.pass(5);
    world
}

fn add_member(world: &mut World, name: &str) {
    world.cluster(name, "100");
    for update in [Update::Up, Update::Change(Change::Nodes(vec![])), Update::Change(Change::Pods(vec![]))] {
        world.controller.observe(Input::Member(name.into(), update), world.now);
    }
}

fn node(world: &mut World, name: &str, group: Option<&str>) {
    node_in(world, "m1", name, group);
}

fn node_in(world: &mut World, member: &str, name: &str, group: Option<&str>) {
    let node = Node {
        name: name.into(),
        labels: group.map(|group| (NODE_GROUP.to_owned(), group.to_owned())).into_iter().collect(),
        allocatable: [("cpu", 4), ("pods", 100)]
            .map(|(name, units)| (name, Quantity::from_units(units)))
            .into_iter()
            .collect(),
        ready: true,
        ..Node::default()
    };
    world.controller.observe(Input::Member(member.into(), Update::Change(Change::Node(node))), world.now);
}

/// Whether a job could be moved to a cluster.
fn move_to(world: &mut World, job: &str, cluster: &str) -> MoveAnswer {
    let choice = ClusterChoice { only: [cluster.to_owned()].into(), ..ClusterChoice::default() };
    explain_move(&mut world.controller, &Key::new("ns", &format!("{job}-job")), choice).unwrap()
}

fn names(groups: &[&str]) -> Value {
    json!({"affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": groups}}})
}

fn record(world: &World, binding: &str) -> Value {
    let text = world.get("ResourceBinding", binding)["metadata"]["annotations"]["caldera.dev/admission"].clone();
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[test]
fn a_job_waits_for_room_in_the_groups_of_its_queue_and_its_record_says_them() {
    let mut world = member(&[("n1", None), ("n2", Some("b"))]);
    world.queue("q", &names(&["a"]));
    world.job("a", "q", 2);
    assert!(world.pass(5).is_empty());
    let (reason, message) = world.says("a");
    assert_eq!(reason, "NeverFits", "no node is in the group");
    assert!(message.contains("; queue q uses only nodes of the groups a"), "{message}");
    node(&mut world, "n1", Some("a"));
    assert_eq!(world.pass(5), ["a-job"]);
    let nodes = json!({"required": [{"key": NODE_GROUP, "operator": "In", "values": ["a"]}]});
    assert_eq!(record(&world, "a-job")["nodes"], nodes);
    // What the first one holds there is taken.
    world.job("b", "q", 3);
    assert!(world.pass(5).is_empty());
    assert_eq!(world.says("b").0, "InsufficientCapacity");
    node(&mut world, "n3", Some("a"));
    assert_eq!(world.pass(5), ["b-job"]);
}

#[test]
fn a_queue_below_uses_the_groups_of_the_queue_above_and_another_affinity_counts_at_once() {
    let mut world = member(&[("n1", Some("a"))]);
    world.queue("top", &names(&["b"]));
    world.queue("leaf", &json!({"parent": "top"}));
    world.job("a", "leaf", 2);
    assert!(world.pass(5).is_empty());
    assert!(world.says("a").1.contains("queue leaf uses only nodes of the groups b"), "{:?}", world.says("a"));
    world.patch("Queue", "top", &json!({"spec": names(&["a", "b"])}));
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn queues_that_name_no_group_keep_off_groups_as_long_as_some_queue_names_one() {
    let mut world = member(&[("n1", Some("a"))]);
    world.queue("free", &json!({}));
    world.job("before", "free", 1);
    assert_eq!(world.pass(5), ["before-job"]);
    assert_eq!(record(&world, "before-job")["nodes"], Value::Null);
    world.queue("q", &names(&["a"]));
    world.job("after", "free", 1);
    assert!(world.pass(5).is_empty());
    let message = world.says("after").1;
    assert!(message.contains("queue free names no group of nodes and uses only nodes that are in none"), "{message}");
    world.delete("Queue", "q");
    assert_eq!(world.pass(5), ["after-job"]);
}

#[test]
fn a_group_that_no_node_can_be_in_is_said_on_the_queue() {
    let mut world = member(&[("n1", Some("a"))]);
    world.queue("q", &names(&["a", "not a label"]));
    world.pass(60);
    let note = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(note.contains("spec.affinity.nodeGroupAffinity") && note.contains("no node is in that group"), "{note}");
    world.job("a", "q", 1);
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn a_job_goes_to_the_clusters_that_its_queues_select_and_its_record_says_which() {
    let mut world = World::new(10);
    world.queue("top", &json!({}));
    world.queue("leaf", &json!({"parent": "top"}));
    let select = |world: &mut World, queue: &str, selector: Option<&str>| {
        world.patch("Queue", queue, &json!({"metadata": {"annotations": {CLUSTER_SELECTOR: selector}}}));
    };
    select(&mut world, "top", Some("tier=gold"));
    select(&mut world, "leaf", Some("!old"));
    world.job("a", "leaf", 2);
    assert!(world.pass(5).is_empty());
    let message = world.says("a").1;
    let reported = "queue leaf uses only clusters whose labels match \"!old,tier in (gold)\"";
    assert!(message.contains(reported), "{message}");
    world.patch("Cluster", "m1", &json!({"metadata": {"labels": {"tier": "gold"}}}));
    assert_eq!(world.pass(5), ["a-job"]);
    let clusters = record(&world, "a-job")["clusters"].clone();
    let want = json!([
        {"key": "old", "operator": "DoesNotExist", "values": []},
        {"key": "tier", "operator": "In", "values": ["gold"]},
    ]);
    assert_eq!(clusters, want);
    // What can not be read selects none, and the queue says so.
    select(&mut world, "q", Some("tier in gold"));
    world.job("b", "q", 1);
    assert!(world.pass(60).is_empty());
    let note = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(note.contains("it uses no cluster"), "{note}");
    select(&mut world, "q", None);
    assert_eq!(world.pass(5), ["b-job"]);
}

#[test]
fn a_cluster_of_some_queues_takes_jobs_of_these_and_of_those_below_them_alone() {
    let mut world = World::new(10);
    world.queue("top", &json!({}));
    world.queue("leaf", &json!({"parent": "top"}));
    // Alike but for their queues, and refused once before.
    let keep = |world: &mut World, queues: Option<&str>| {
        world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {CLUSTER_QUEUES: queues}}}));
    };
    keep(&mut world, Some("top, bio"));
    world.job("a", "q", 2);
    world.job("b", "leaf", 2);
    assert_eq!(world.pass(5), ["b-job"]);
    let message = world.says("a").1;
    assert!(message.contains("cluster m1 is for jobs of queue top, bio alone, and not for those of q"), "{message}");
    keep(&mut world, None);
    assert_eq!(world.pass(5), ["a-job"]);
}

#[test]
fn a_job_could_be_moved_to_nodes_of_the_groups_of_its_queue_alone() {
    let mut world = member(&[("n1", Some("gpu"))]);
    add_member(&mut world, "m2");
    node_in(&mut world, "m2", "n2", None);
    world.queue("q", &names(&["gpu"]));
    world.job("a", "q", 2);
    assert_eq!(world.pass(5), ["a-job"]);
    world.place("a-job", 2);
    world.settle();
    let answer = move_to(&mut world, "a", "m2");
    assert!(matches!(answer, MoveAnswer::Never(_)), "{answer:?}");
    // What counts is what its queue says by now.
    world.queue("q", &names(&["gpu", "cpu"]));
    node_in(&mut world, "m2", "n2", Some("cpu"));
    world.settle();
    assert_eq!(move_to(&mut world, "a", "m2"), MoveAnswer::Fits([("m2".to_owned(), 2)].into()));
}

#[test]
fn a_job_could_be_moved_to_the_clusters_that_its_queue_selects_by_now() {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    let select = |world: &mut World, selector: &str| {
        world.patch("Queue", "q", &json!({"metadata": {"annotations": {CLUSTER_SELECTOR: selector}}}));
    };
    for (cluster, tier) in [("m1", "gold"), ("m2", "silver")] {
        world.patch("Cluster", cluster, &json!({"metadata": {"labels": {"tier": tier}}}));
    }
    select(&mut world, "tier=gold");
    world.job("a", "q", 2);
    assert_eq!(world.pass(5), ["a-job"]);
    world.place("a-job", 2);
    world.settle();
    assert!(!matches!(move_to(&mut world, "a", "m2"), MoveAnswer::Fits(_)));
    select(&mut world, "tier=silver");
    world.settle();
    assert_eq!(move_to(&mut world, "a", "m2"), MoveAnswer::Fits([("m2".to_owned(), 2)].into()));
    assert!(!matches!(move_to(&mut world, "a", "m1"), MoveAnswer::Fits(_)));
}

#[test]
fn a_job_that_grows_finds_the_clusters_open_that_were_open_to_its_queue_when_it_was_admitted() {
    let mut world = World::new(10);
    let below = |world: &mut World, parent: &str| world.queue("leaf", &json!({"parent": parent}));
    world.queue("a", &json!({}));
    world.queue("b", &json!({}));
    below(&mut world, "a");
    let keep = |world: &mut World, queues: &str| {
        world.patch("Cluster", "m1", &json!({"metadata": {"annotations": {CLUSTER_QUEUES: queues}}}));
    };
    keep(&mut world, "a");
    world.job("grows", "leaf", 2);
    assert_eq!(world.pass(5), ["grows-job"]);
    assert_eq!(record(&world, "grows-job")["above"], json!(["a"]));
    world.place("grows-job", 2);
    world.phase("grows", "Running");
    keep(&mut world, "b");
    below(&mut world, "b");
    let mut job = world.get("Job", "grows").clone();
    job["spec"]["tasks"][0]["replicas"] = 3.into();
    world.put(job);
    assert!(world.pass(5).is_empty());
    assert_eq!(record(&world, "grows-job")["tasks"], json!({"worker": 2}), "the scheduler would refuse m1");
    keep(&mut world, "a");
    world.pass(5);
    assert_eq!(record(&world, "grows-job")["tasks"], json!({"worker": 3}));
}
