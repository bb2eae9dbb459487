//! Copies that Karmada did not take away.

use caldera_runtime::write::Body;
use serde_json::{Value, json};

use super::world::World;

/// A job that its user restarted while Karmada lists a copy.
fn withdrawn() -> World {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.phase("a", "Running");
    list_copies(&mut world, &json!([{"clusterName": "m1", "applied": true, "status": {"running": 4}}]));
    world.put(json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"namespace": "ns", "name": "again"},
        "action": "RestartJob", "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a"},
    }));
    world.pass(2);
    assert_eq!(world.get("ResourceBinding", "a-job")["spec"]["clusters"], json!([]));
    world
}

fn list_copies(world: &mut World, items: &Value) {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
}

fn dispatching(world: &World) -> Value {
    world.get("ResourceBinding", "a-job")["spec"]["suspension"]["dispatching"].clone()
}

fn count_touches(world: &World) -> usize {
    let touches = |body: &Body| matches!(body, Body::JsonPatch(patch) if patch.to_string().contains("/dispatching\""));
    world.writes.iter().filter(|write| touches(&write.body)).count()
}

#[test]
fn a_binding_is_touched_until_its_copies_go_and_its_job_is_in_line_again() {
    let mut world = withdrawn();
    world.pass(3);
    assert_eq!((count_touches(&world), dispatching(&world)), (0, Value::Null), "copies take a moment to go");
    world.pass(4);
    assert_eq!((count_touches(&world), dispatching(&world)), (1, json!(false)));
    world.pass(60);
    assert!((3..6).contains(&count_touches(&world)), "less and less often: {}", count_touches(&world));
    let touched = count_touches(&world);
    list_copies(&mut world, &Value::Null);
    assert_eq!(world.pass(90), ["a-job"]);
    assert_eq!(count_touches(&world), touched);
}

#[test]
fn copies_that_are_listed_for_ever_are_touched_for_ten_minutes() {
    let mut world = withdrawn();
    world.pass(700);
    assert_eq!(count_touches(&world), 8);
    world.pass(3000);
    assert_eq!(count_touches(&world), 8, "a status that a tenant writes costs no write for ever");
}

#[test]
fn copies_where_the_binding_is_or_leaves_with_grace_are_no_orphans() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    let task = json!({"fromCluster": "m2", "reason": "TaintUntolerated", "producer": "TaintManager"});
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"gracefulEvictionTasks": [task]}}));
    list_copies(&mut world, &json!([{"clusterName": "m1"}, {"clusterName": "m2"}]));
    world.pass(30);
    assert_eq!(count_touches(&world), 0);
    list_copies(&mut world, &json!([{"clusterName": "m1"}, {"clusterName": "m3"}]));
    world.pass(7);
    assert_eq!(count_touches(&world), 1);
}

#[test]
fn what_its_user_suspends_is_not_touched() {
    let mut world = withdrawn();
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"dispatching": true}}}));
    world.pass(60);
    assert_eq!((count_touches(&world), dispatching(&world)), (0, json!(true)));
}
