//! What is promised to workloads whose template is not read.

use super::{
    parity::{aggregated, goes, to, widget, world},
    *,
};

/// A widget under a name.
fn named(name: &str, replicas: u32) -> Value {
    let mut object = widget(replicas, &aggregated(&json!({})));
    object["metadata"]["name"] = format!("{name}-widget").into();
    object["metadata"]["uid"] = name.into();
    object["spec"]["resource"]["name"] = name.into();
    object
}

/// Decides and, as the scheduler does, holds it.
fn decided(world: &mut Cache, object: &Value) -> Vec<(String, i64)> {
    let goes = goes(world, object);
    let targets: Vec<place::Target> = goes
        .iter()
        .map(|(cluster, replicas)| place::Target { cluster: cluster.clone(), replicas: *replicas })
        .collect();
    world.assume_decision(&Binding::parse_binding(object).unwrap().key, &targets, None);
    goes
}

fn written(mut object: Value, cluster: &str, replicas: u32, last: &str) -> Value {
    object["metadata"]["resourceVersion"] = "10".into();
    object["spec"]["clusters"] = json!([{"name": cluster, "replicas": replicas}]);
    object["status"] = json!({"lastScheduledTime": last});
    object
}

fn free(world: &mut Cache, member: usize) -> i128 {
    world.fleet.refresh_capacities();
    world.fleet.clusters().nth(member).unwrap().1.sum_free().get("cpu").units_ceil()
}

#[test]
fn two_of_one_turn_do_not_get_the_same_room() {
    let mut world = world(&[4, 3], |_, _| {});
    world.advance_time(now());
    assert_eq!(decided(&mut world, &named("a", 3)), to(&[("m0", 3)]));
    assert_eq!(decided(&mut world, &named("b", 3)), to(&[("m1", 3)]));
    assert_eq!((free(&mut world, 0), free(&mut world, 1)), (1, 0));
}

#[test]
fn what_can_not_be_seen_is_held_for_five_minutes_or_until_it_is_healthy() {
    let after = |world: &mut Cache, minutes: i64| {
        world.advance_time(now() + jiff::SignedDuration::from_mins(minutes));
        free(world, 0)
    };
    let mut one = world(&[4], |_, _| {});
    one.advance_time(now());
    assert_eq!(decided(&mut one, &named("a", 3)), to(&[("m0", 3)]));
    // It is written, and then that it was scheduled.
    one.update_binding(Binding::parse_binding(&written(named("a", 3), "m0", 3, "2025-01-01T00:00:00Z")).unwrap());
    assert_eq!([after(&mut one, 1), after(&mut one, 4)], [1, 1]);
    assert_eq!(one.next_deadline(), Some(now() + jiff::SignedDuration::from_mins(5)));
    assert_eq!([after(&mut one, 5), after(&mut one, 6)], [4, 4]);
    assert_eq!(one.next_deadline(), None);
    // After a restart what was scheduled two minutes ago is held for three more.
    let mut two = world(&[4], |_, _| {});
    two.update_binding(Binding::parse_binding(&written(named("a", 3), "m0", 3, "2025-12-31T23:58:00Z")).unwrap());
    assert_eq!([after(&mut two, 0), after(&mut two, 2), after(&mut two, 3)], [1, 1, 4]);
    let mut three = world(&[4], |_, _| {});
    let mut object = written(named("a", 3), "m0", 3, "2025-12-31T23:58:00Z");
    three.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(after(&mut three, 0), 1);
    object["metadata"]["resourceVersion"] = "11".into();
    object["status"]["aggregatedStatus"] = json!([{"clusterName": "m0", "health": "Healthy"}]);
    three.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(after(&mut three, 0), 4);
}
