//! Placed bindings of which Karmada has aggregated nothing.

use caldera_runtime::write::Body;
use serde_json::{Value, json};

use super::world::World;

/// A job that is placed, and scheduled, and of which Karmada tells nothing.
fn placed() -> World {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    let scheduled = json!({
        "spec": {"resource": {"resourceVersion": "7"}}, "status": {"lastScheduledTime": "1970-01-12T13:46:40Z"},
    });
    world.patch("ResourceBinding", "a-job", &scheduled);
    world
}

fn report(world: &mut World, items: &Value) {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
}

fn version(world: &World) -> Value {
    world.get("ResourceBinding", "a-job")["spec"]["resource"]["resourceVersion"].clone()
}

fn count_requests(world: &World) -> usize {
    let asks = |body: &Body| matches!(body, Body::JsonPatch(patch) if patch.to_string().contains("/spec/resource/"));
    world.writes.iter().filter(|write| asks(&write.body)).count()
}

#[test]
fn karmada_is_asked_to_aggregate_what_it_told_nothing_of_for_a_minute() {
    let mut world = placed();
    world.pass(58);
    assert_eq!((count_requests(&world), version(&world)), (0, json!("7")));
    world.pass(4);
    assert_eq!((count_requests(&world), version(&world)), (1, Value::Null));
    world.pass(130);
    assert_eq!((count_requests(&world), version(&world)), (2, json!("0")), "each time it is another one");
    report(&mut world, &json!([{"clusterName": "m1", "applied": true, "status": {"state": {"phase": "Completed"}}}]));
    world.pass(1000);
    assert_eq!(count_requests(&world), 2);
}

#[test]
fn a_binding_that_lists_each_of_its_clusters_is_left_alone() {
    let mut world = placed();
    report(&mut world, &json!([{"clusterName": "m1", "applied": false}, {"clusterName": "m2", "applied": true}]));
    world.pass(1000);
    assert_eq!(count_requests(&world), 0, "what it says is for others to judge");
    report(&mut world, &json!([{"clusterName": "m2", "applied": true}]));
    world.pass(62);
    assert_eq!(count_requests(&world), 1, "one of its clusters is missing");
}

/// Karmada aggregates a binding only once it has a `lastScheduledTime`.
#[test]
fn a_binding_that_nobody_called_scheduled_yet_is_left_alone() {
    let mut world = placed();
    world.patch("ResourceBinding", "a-job", &json!({"status": {"lastScheduledTime": null}}));
    world.pass(200);
    assert_eq!(count_requests(&world), 0);
}

#[test]
fn a_status_that_is_emptied_for_ever_costs_a_write_each_ten_minutes() {
    let mut world = placed();
    for _ in 0..40 {
        world.pass(300);
    }
    // In 200 minutes.
    assert!((18..26).contains(&count_requests(&world)), "{}", count_requests(&world));
}
