//! What is said on a queue that does not count as it says.

use serde_json::{Value, json};

use super::world::World;

fn note(world: &World, queue: &str) -> Value {
    let note = &world.get("Queue", queue)["metadata"]["annotations"]["caldera.dev/queue-status"];
    note.as_str().map_or(Value::Null, |note| serde_json::from_str(note).unwrap())
}

fn warnings(world: &World) -> Vec<String> {
    let events = world.objects.values().filter(|object| object["reason"] == "QueueMisconfigured");
    events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

fn notes_written(world: &World) -> usize {
    let notes = world.writes.iter().filter(|write| write.resource.plural == "queues" && write.subresource.is_none());
    notes.count()
}

#[test]
fn a_queue_that_is_wrong_says_so_and_one_event_is_sent() {
    let mut world = World::new(10);
    world.queue("q", &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "20"}}));
    world.pass(5);
    let said = "spec.deserved.cpu is 20, more than spec.capability.cpu, which is 10: it counts as 10";
    assert_eq!(note(&world, "q"), json!({"deserved": {"cpu": "10"}, "faults": [said]}));
    assert_eq!(warnings(&world), [said]);
    // Other numbers are no other fault.
    world.queue("q", &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "30"}}));
    world.pass(60);
    assert!(note(&world, "q")["faults"][0].as_str().unwrap().contains("is 30"));
    world.restart();
    world.pass(60);
    assert_eq!(warnings(&world).len(), 1, "{:?}", warnings(&world));
    // Another one is.
    world.queue("q", &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "30"}, "weight": 70000}));
    world.pass(60);
    assert_eq!(warnings(&world).len(), 2, "{:?}", warnings(&world));
    world.queue("q", &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "10"}}));
    world.pass(60);
    assert_eq!(note(&world, "q"), Value::Null);
}

#[test]
fn a_wait_for_reservations_counts_and_one_that_can_not_be_read_is_said() {
    let mut world = World::new(10);
    let annotate = |world: &mut World, wait: &str| {
        world.patch("Queue", "q", &json!({"metadata": {"annotations": {"caldera.dev/reservation-after": wait}}}));
    };
    annotate(&mut world, "5s");
    world.job("runs", "q", 6);
    assert_eq!(world.pass(1), ["runs-job"]);
    world.job("big", "q", 8);
    world.pass(20);
    world.job("small", "q", 2);
    world.pass(5);
    assert_eq!(world.says("small").0, "BlockedByReservation");
    // The word of a queue above, or none, counts again.
    annotate(&mut world, "soon");
    assert_eq!(world.pass(5), ["small-job"]);
    world.pass(60);
    let said = &note(&world, "q")["faults"][0];
    let said = said.as_str().unwrap();
    assert!(said.starts_with("metadata.annotations[caldera.dev/reservation-after]: \"soon\" is no wait"), "{said}");
}

#[test]
fn a_queue_with_queues_below_it_and_jobs_of_its_own_says_so_until_they_are_gone() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.pass(5);
    world.queue("leaf", &json!({"parent": "q", "deserved": {"cpu": "1"}}));
    world.pass(60);
    assert!(note(&world, "q")["faults"][0].as_str().unwrap().contains("jobs of its own"), "{}", note(&world, "q"));
    assert_eq!(warnings(&world).len(), 1);
    world.delete("ResourceBinding", "a-job");
    world.pass(60);
    assert_eq!(note(&world, "q")["faults"], Value::Null);
}

#[test]
fn a_queue_of_which_everything_counts_gets_no_note() {
    let mut world = World::new(10);
    world.queue(
        "q",
        &json!({"capability": {"cpu": "10"}, "deserved": {"cpu": "5"}, "guarantee": {"resource": {"cpu": "2"}}}),
    );
    world.queue("default", &json!({"deserved": {"cpu": "5"}}));
    world.pass(60);
    assert_eq!((note(&world, "q"), note(&world, "default")), (Value::Null, Value::Null));
    assert!(warnings(&world).is_empty());
}

#[test]
fn what_a_queue_deserves_by_weight_is_noted_and_not_again_for_what_it_uses() {
    let mut world = World::new(10);
    world.queue("q", &json!({"weight": 3, "capability": {"memory": "0", "pods": "0"}}));
    world.queue("default", &json!({"weight": 1, "capability": {"memory": "0", "pods": "0"}}));
    world.pass(60);
    assert_eq!(note(&world, "q")["deserved"]["cpu"], "75");
    assert_eq!(note(&world, "default")["deserved"]["cpu"], "25");
    let before = notes_written(&world);
    for i in 0..5 {
        world.job(&format!("j{i}"), "q", 1);
        world.pass(40);
    }
    assert_eq!(notes_written(&world), before);
}

/// Found by a user: what `caldera top` said a queue deserves was minutes old.
#[test]
fn what_a_queue_deserves_is_noted_in_half_a_minute_where_it_changed_by_a_tenth() {
    let mut world = World::new(10);
    world.queue("q", &json!({"weight": 1}));
    world.queue("default", &json!({"weight": 1}));
    world.pass(5);
    assert_eq!(note(&world, "q")["deserved"]["cpu"], "50");
    world.queue("q", &json!({"weight": 4}));
    world.pass(30);
    assert_eq!(note(&world, "q")["deserved"]["cpu"], "80");
    assert_eq!(note(&world, "default")["deserved"]["cpu"], "20");
    // From what the annotation says to what the spec says, too.
    world.queue("q", &json!({"deserved": {"cpu": "70"}}));
    world.pass(30);
    assert_eq!(note(&world, "q"), Value::Null);
    let before = notes_written(&world);
    world.pass(600);
    assert_eq!(notes_written(&world), before);
}

#[test]
fn a_circle_and_a_parent_that_is_not_there_are_told_on_the_queue() {
    let mut world = World::new(10);
    world.queue("a", &json!({"parent": "b"}));
    world.queue("b", &json!({"parent": "a"}));
    world.queue("orphan", &json!({"parent": "nobody"}));
    world.queue("child-first", &json!({"parent": "then-parent"}));
    world.queue("then-parent", &json!({}));
    world.pass(5);
    let circle = "spec.parent leads back to the queue itself: its jobs wait";
    assert_eq!(note(&world, "a")["faults"], json!([circle]));
    assert_eq!(note(&world, "b")["faults"], json!([circle]));
    let missing = "spec.parent leads to queue nobody, which does not exist: its jobs wait";
    assert_eq!(note(&world, "orphan")["faults"], json!([missing]));
    assert_eq!(warnings(&world).len(), 3, "{:?}", warnings(&world));
}

#[test]
fn many_queues_are_noted_ten_in_a_second_and_amounts_that_changed_slightly_every_five_minutes() {
    let mut world = World::new(10);
    for i in 0..60 {
        world.queue(&format!("q{i}"), &json!({"weight": 1}));
    }
    world.pass(3);
    let first = notes_written(&world);
    assert!((1..=20).contains(&first), "{first}");
    world.pass(10);
    assert_eq!(notes_written(&world), 62);
    // The fleet grows again and again, in the end by less than a tenth.
    for cpus in 101..=109 {
        world.cluster("m1", &cpus.to_string());
        world.pass(4);
    }
    assert_eq!(notes_written(&world), 62);
    world.pass(300);
    assert_eq!(notes_written(&world), 2 * 62);
    // By more: to two cpus for each queue.
    world.cluster("m1", "124");
    world.pass(10);
    assert_eq!(notes_written(&world), 3 * 62);
    let cpus: Vec<Value> = (0..60).map(|i| note(&world, &format!("q{i}"))["deserved"]["cpu"].clone()).collect();
    assert!(cpus.iter().all(|cpu| *cpu == "2"), "{cpus:?}");
    let before = world.writes.len();
    world.pass(300);
    assert_eq!(world.writes.len(), before);
}
