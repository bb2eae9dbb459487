//! Which namespaces may use a queue, asked again before a job starts.

use caldera_crds::tenancy::NamespaceFacts;
use caldera_runtime::watch::Event;
use serde_json::{Value, json};

use super::world::World;
use crate::observe::Input;

const SELECTOR: &str = "caldera.dev/namespace-selector";

/// Labels namespace `ns`, where all jobs of these tests are.
fn label(world: &mut World, labels: &Value) {
    let facts = NamespaceFacts::from_object(&json!({"metadata": {"labels": labels}}));
    world.controller.observe(Input::Namespaces(Event::Applied(("ns".into(), facts))), world.now);
}

fn select(world: &mut World, queue: &str, selector: Option<&str>) {
    world.patch("Queue", queue, &json!({"metadata": {"annotations": {SELECTOR: selector}}}));
}

#[test]
fn a_job_of_a_namespace_that_its_queue_does_not_select_waits_until_the_labels_change() {
    let mut world = World::new(10);
    select(&mut world, "q", Some("team in (ml,bio)"));
    world.job("a", "q", 2);
    assert!(world.pass(5).is_empty());
    let (reason, message) = world.says("a");
    assert_eq!(reason, "NamespaceNotSelected");
    assert_eq!(
        message,
        "queue q takes no jobs of namespace ns: its labels do not match the queue's namespace selector \"team in \
         (ml,bio)\""
    );
    label(&mut world, &json!({"team": "web"}));
    assert!(world.pass(5).is_empty());
    label(&mut world, &json!({"team": "ml"}));
    assert_eq!(world.pass(2), ["a-job"]);
}

#[test]
fn a_job_that_its_queue_does_not_take_holds_nobody_up_and_starts_when_the_selector_changes() {
    let mut world = World::new(2);
    world.queue("other", &json!({"dequeueStrategy": "fifo"}));
    select(&mut world, "other", Some("team=ml"));
    world.job("a", "other", 2);
    world.job("b", "q", 2);
    assert_eq!(world.pass(120), ["b-job"]);
    assert_eq!(world.says("a").0, "NamespaceNotSelected");
    select(&mut world, "other", Some("!team"));
    assert_eq!(world.pass(2), ["a-job"]);
}

#[test]
fn a_selector_holds_for_the_queues_below_also_where_they_move() {
    let mut world = World::new(10);
    world.queue("closed", &json!({}));
    select(&mut world, "closed", Some("team=ml"));
    world.queue("leaf", &json!({"parent": "closed"}));
    select(&mut world, "leaf", Some(""));
    world.job("a", "leaf", 2);
    assert!(world.pass(5).is_empty());
    assert!(world.says("a").1.starts_with("queue closed, above queue leaf, takes no jobs"), "{:?}", world.says("a"));
    world.patch("Queue", "leaf", &json!({"spec": {"parent": "root"}}));
    assert_eq!(world.pass(2), ["a-job"]);
}

/// So no gap in the path passes by what stands above it.
#[test]
fn in_a_queue_whose_parent_is_not_there_or_leads_in_a_circle_nothing_starts() {
    let mut world = World::new(10);
    world.queue("leaf", &json!({"parent": "gone"}));
    select(&mut world, "leaf", Some(""));
    world.job("a", "leaf", 2);
    assert!(world.pass(60).is_empty());
    assert_eq!(
        world.says("a"),
        ("QueueMisconfigured".into(), "queue leaf has the parent gone, which does not exist".into())
    );
    world.queue("gone", &json!({"parent": "leaf"}));
    assert!(world.pass(60).is_empty());
    assert_eq!(world.says("a").0, "QueueMisconfigured");
    world.patch("Queue", "gone", &json!({"spec": {"parent": "root"}}));
    assert_eq!(world.pass(2), ["a-job"]);
}

#[test]
fn a_selector_that_can_not_be_read_takes_nobody_and_is_said_on_the_queue() {
    let mut world = World::new(10);
    label(&mut world, &json!({"team": "ml"}));
    select(&mut world, "q", Some("team in ml"));
    world.job("a", "q", 2);
    assert!(world.pass(60).is_empty());
    let note = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].clone();
    let said = "metadata.annotations[caldera.dev/namespace-selector]: \\\"team in ml\\\" is no requirement of labels";
    let note = note.to_string().replace("\\\\\\\"", "\\\"");
    assert!(note.contains(said) && note.contains("it takes no namespace's jobs"), "{note}");
    select(&mut world, "q", None);
    assert_eq!(world.pass(2), ["a-job"]);
}

#[test]
fn what_runs_runs_on_without_its_label_and_gets_no_more() {
    let mut world = World::new(10);
    label(&mut world, &json!({"team": "ml"}));
    select(&mut world, "q", Some("team=ml"));
    world.job("a", "q", 2);
    assert_eq!(world.pass(1), ["a-job"]);
    world.place("a-job", 2);
    world.phase("a", "Running");
    label(&mut world, &json!({}));
    world.patch("Job", "a", &json!({"spec": {"minAvailable": 4}}));
    let mut tasks = world.get("Job", "a")["spec"]["tasks"].clone();
    tasks[0]["replicas"] = 4.into();
    world.patch("Job", "a", &json!({"spec": {"tasks": tasks}}));
    assert!(world.pass(60).is_empty());
    assert_eq!(world.used("q"), "2");
    let (_, message) = world.says("a");
    assert!(message.contains("takes no jobs of namespace ns") && message.contains("it gets no more"), "{message}");
    label(&mut world, &json!({"team": "ml"}));
    world.pass(5);
    assert_eq!(world.used("q"), "4");
}
