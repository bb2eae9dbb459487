//! Node groups that may grow: where a released gang goes that fits nowhere now.

use caldera_runtime::watch::Event;
use serde_json::{Value, json};

use super::{binding, cluster, index, job, key, parity, placed, set_cores, targets, verdict};
use crate::{decide::placement::Step, observe::cache::Cache};

/// So many nodes of four cores may come beside the one that a member has.
fn grow(world: &mut Cache, name: &str, more: u32, delay: &str) {
    grow_before(world, name, more, delay, &json!([]));
}

/// The same before these windows.
fn grow_before(world: &mut Cache, name: &str, more: u32, delay: &str, windows: &Value) {
    let mut object = cluster(name);
    let groups = json!([{
        "name": "a", "nodes": {"pool": "a"}, "max": more, "resources": {"cpu": "4"}, "delay": delay,
    }]);
    object["metadata"]["annotations"] = json!({
        "caldera.dev/autoscaled-groups": groups.to_string(), "caldera.dev/maintenance": windows.to_string(),
    });
    world.apply_clusters(Event::Applied(serde_json::from_value(object).unwrap()));
}

#[test]
fn a_gang_goes_where_it_fits_now_and_else_where_nodes_come_soonest() {
    let mut world = index(&[4, 3], &[job(4, 4), binding(4)]);
    grow(&mut world, "m0", 9, "5m");
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4)]);
    set_cores(&mut world, 0, 3);
    set_cores(&mut world, 1, 4);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4)], "m0 would have to grow");
    let mut world = index(&[1, 1], &[job(4, 4), binding(4)]);
    grow(&mut world, "m0", 9, "5m");
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4)]);
    grow(&mut world, "m1", 1, "2m");
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4)]);
}

#[test]
fn a_gang_that_is_too_large_for_what_may_come_is_refused_by_what_there_is() {
    let mut world = index(&[4], &[job(13, 13), binding(13)]);
    grow(&mut world, "m0", 2, "5m");
    let refused = verdict(&mut world);
    let Step::Refuse { reason: "Unschedulable", message, clear: false } = refused.step else { panic!("{refused:?}") };
    assert!(message.starts_with("needs 13 pods at once; 4 fit now"), "{message}");
    assert!(refused.awaits_capacity);
    // An admin lets the group be larger: that is news for those who wait.
    world.add_unschedulable(&key());
    world.take_due_bindings();
    grow(&mut world, "m0", 3, "5m");
    assert!(!world.is_idle());
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 13)]);
}

#[test]
fn a_gang_does_not_wait_for_nodes_that_come_too_late_before_a_window() {
    let windows = json!([{"start": "2026-01-01T00:10:00Z", "end": "2026-01-01T01:00:00Z"}]);
    let world = |seconds: i64| {
        let mut job = job(4, 4);
        job["metadata"]["annotations"] = json!({"caldera.dev/running-estimate": format!("{seconds}s")});
        let mut world = index(&[1, 1], &[job, binding(4)]);
        grow_before(&mut world, "m0", 9, "5m", &windows);
        world
    };
    assert_eq!(targets(&verdict(&mut world(300)).step), [("m0".into(), 4)]);
    assert!(verdict(&mut world(301)).awaits_capacity);
    let mut world = world(301);
    grow(&mut world, "m1", 9, "20m");
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4)]);
    grow_before(&mut world, "m1", 9, "4m", &windows);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4)], "there they come sooner");
}

#[test]
fn what_waits_for_nodes_stays_where_it_is_and_the_next_gang_does_not_get_them() {
    let mut world = index(&[4], &[job(8, 8), binding(8)]);
    grow(&mut world, "m0", 1, "5m");
    let object = placed(binding(8), &mut world);
    world.update_binding(crate::observe::binding::Binding::parse_binding(&object).unwrap());
    assert_eq!(verdict(&mut world).step, Step::Rest);
    let mut next = job(1, 1);
    (next["metadata"]["name"], next["metadata"]["uid"]) = ("next".into(), "n".into());
    let mut of_next = binding(1);
    of_next["metadata"]["name"] = "next-job".into();
    (of_next["spec"]["resource"]["name"], of_next["spec"]["resource"]["uid"]) = ("next".into(), "n".into());
    let workload = crate::observe::cache::read_workload(&next).unwrap();
    world.apply_workloads(caldera_crds::workload::WorkloadKind::VolcanoJob, Event::Applied(workload));
    world.update_binding(crate::observe::binding::Binding::parse_binding(&of_next).unwrap());
    world.fleet.refresh_capacities();
    let binding = world.bindings.values().find(|binding| &*binding.key.name == "next-job").unwrap();
    let context = world.context_of(binding, super::now());
    let said = super::decide_binding(binding, world.request_of(binding), context, &world.fleet);
    assert!(matches!(said.step, Step::Refuse { reason: "Unschedulable", .. }), "{said:?}");
}

/// karmada-scheduler would not place it there either.
#[test]
fn what_is_not_queued_waits_for_no_node() {
    let mut world = parity::world(&[1], |_, object| {
        let groups = json!([{"name": "a", "nodes": {"pool": "a"}, "max": 9, "resources": {"cpu": "4"}}]);
        object["metadata"]["annotations"] = json!({"caldera.dev/autoscaled-groups": groups.to_string()});
    });
    let said = parity::ask(&mut world, &parity::widget(4, &parity::aggregated(&json!({}))));
    assert!(matches!(said.step, Step::Refuse { reason: "Unschedulable", .. }), "{said:?}");
}
