//! What a queue says about each job: the largest that it takes, and that all of them are preemptable.

use serde_json::{Value, json};

use super::world::World;

fn annotate(world: &mut World, queue: &str, annotations: &Value) {
    world.patch("Queue", queue, &json!({"metadata": {"annotations": annotations}}));
}

#[test]
fn a_job_larger_than_its_queue_takes_waits_for_a_change_and_holds_nobody_up() {
    let mut world = World::new(10);
    world.queue("top", &json!({}));
    world.queue("leaf", &json!({"parent": "top", "dequeueStrategy": "fifo"}));
    annotate(&mut world, "top", &json!({"caldera.dev/max-job": "cpu=3"}));
    world.job("large", "leaf", 4);
    world.job("small", "leaf", 3);
    assert_eq!(world.pass(5), ["small-job"]);
    assert_eq!(
        world.says("large"),
        (
            "ExceedsMaxJob".into(),
            "asks for cpu 4, more than 3, which is the largest job that queue top, above queue leaf, takes".into()
        )
    );
    world.restart();
    assert!(world.pass(60).is_empty());
    annotate(&mut world, "top", &json!({"caldera.dev/max-job": "cpu=4"}));
    assert_eq!(world.pass(5), ["large-job"]);
}

#[test]
fn what_runs_gets_no_more_than_the_largest_job() {
    let mut world = World::new(10);
    annotate(&mut world, "q", &json!({"caldera.dev/max-job": "cpu=3"}));
    world.job("a", "q", 2);
    assert_eq!(world.pass(1), ["a-job"]);
    world.place("a-job", 2);
    world.phase("a", "Running");
    world.patch("Job", "a", &json!({"spec": {"minAvailable": 4}}));
    let mut tasks = world.get("Job", "a")["spec"]["tasks"].clone();
    tasks[0]["replicas"] = 4.into();
    world.patch("Job", "a", &json!({"spec": {"tasks": tasks}}));
    world.pass(60);
    assert_eq!(world.used("q"), "2");
    let (_, message) = world.says("a");
    assert!(message.contains("asks for cpu 4, more than 3") && message.contains("it gets no more"), "{message}");
}

#[test]
fn a_largest_job_that_can_not_be_read_takes_none_and_is_said_on_the_queue() {
    let mut world = World::new(10);
    annotate(&mut world, "q", &json!({"caldera.dev/max-job": "some"}));
    world.job("a", "q", 1);
    assert!(world.pass(60).is_empty());
    let note = world.get("Queue", "q")["metadata"]["annotations"]["caldera.dev/queue-status"].to_string();
    assert!(note.contains("is no amount of a resource") && note.contains("it takes no job"), "{note}");
}

#[test]
fn a_job_that_says_no_is_evicted_where_a_queue_above_says_that_all_are_preemptable() {
    for (says, is_evicted) in [("false", false), ("true", true)] {
        let mut world = World::empty();
        world.cluster("m1", "8");
        world.queue("top", &json!({"deserved": {"cpu": "4", "pods": "4"}}));
        world.queue("lent", &json!({"parent": "top", "deserved": {"cpu": "4", "pods": "4"}}));
        world.queue("owner", &json!({"deserved": {"cpu": "4", "pods": "4"}}));
        annotate(&mut world, "top", &json!({"caldera.dev/all-jobs-preemptable": says}));
        world.pass(10);
        for name in ["a", "b"] {
            world.job(name, "lent", 4);
            let no = json!({"metadata": {"annotations": {"volcano.sh/preemptable": "false"}}});
            world.patch("Job", name, &no);
            world.pass(1);
            world.place(&format!("{name}-job"), 4);
            world.phase(name, "Running");
            world.pass(1);
        }
        world.job("wants", "owner", 4);
        let released = world.pass(5);
        assert_eq!(released == ["wants-job"], is_evicted, "{says}: {:?}", world.says("wants"));
    }
}
