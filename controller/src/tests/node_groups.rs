//! Groups of nodes, and clusters, that the jobs of a queue use.

use caldera_core::{
    fleet::Update,
    inventory::{Change, Node},
    node_groups::NODE_GROUP,
    quantity::Quantity,
};
use caldera_crds::names::caldera::{CLUSTER_QUEUES, CLUSTER_SELECTOR};
use serde_json::{Value, json};

use super::world::World;
use crate::observe::Input;

/// A member of nodes of 4 cpus, each in a group or in none.
fn member(nodes: &[(&str, Option<&str>)]) -> World {
    let mut world = World::empty();
    world.cluster("m1", "100");
    world.controller.observe(Input::Member("m1".into(), Update::Up), world.now);
    world.controller.observe(Input::Member("m1".into(), Update::Change(Change::Nodes(vec![]))), world.now);
    world.controller.observe(Input::Member("m1".into(), Update::Change(Change::Pods(vec![]))), world.now);
    nodes.iter().for_each(|(name, group)| node(&mut world, name, *group));
    world.pass(5);
    world
}

fn node(world: &mut World, name: &str, group: Option<&str>) {
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
    world.controller.observe(Input::Member("m1".into(), Update::Change(Change::Node(node))), world.now);
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
    let told = "queue leaf uses only clusters whose labels match \"!old,tier in (gold)\"";
    assert!(message.contains(told), "{message}");
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
