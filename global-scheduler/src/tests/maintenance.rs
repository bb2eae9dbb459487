//! Maintenance windows of clusters: where a released gang goes before, during and after one.

use caldera_runtime::watch::Event;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{binding, cluster, index, job, key, now, placed, set_cores, targets, verdict};
use crate::{decide::placement::Step, observe::cache::Cache};

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

/// Seconds from the time that decisions of these tests are made at.
fn keep(world: &mut Cache, name: &str, start: i64, end: i64) {
    let mut object = cluster(name);
    let windows = json!([{"start": after(start).to_string(), "end": after(end).to_string()}]);
    object["metadata"]["annotations"] = json!({"caldera.dev/maintenance": windows.to_string()});
    world.apply_clusters(Event::Applied(serde_json::from_value(object).unwrap()));
}

fn estimated(seconds: i64) -> Value {
    let mut job = job(2, 2);
    job["metadata"]["annotations"] = json!({"caldera.dev/running-estimate": format!("{seconds}s")});
    job
}

#[test]
fn a_gang_that_would_run_into_a_window_goes_elsewhere_or_is_reported() {
    for (job, cluster) in [(estimated(100), "m0"), (estimated(101), "m1"), (job(2, 2), "m1")] {
        let mut world = index(&[4, 6], &[job, binding(2)]);
        keep(&mut world, "m0", 100, 200);
        assert_eq!(targets(&verdict(&mut world).step), [(cluster.into(), 2)]);
    }
    let mut world = index(&[4, 1], &[estimated(101), binding(2)]);
    keep(&mut world, "m0", 100, 200);
    let refused = verdict(&mut world);
    let Step::Refuse { reason: "Unschedulable", message, clear: false } = refused.step else { panic!("{refused:?}") };
    let window = "; cluster m0 is under maintenance from 2026-01-01T00:01:40Z to 2026-01-01T00:03:20Z: it would run \
                  until 2026-01-01T00:01:41Z";
    assert!(message.ends_with(window), "{message}");
    assert!(refused.awaits_capacity);
}

/// What the controller granted is what counts: the run began with the release.
#[test]
fn the_limit_of_the_run_counts_from_its_release() {
    let of = |from: i64| {
        let mut object = binding(2);
        let text = object["metadata"]["annotations"]["caldera.dev/admission"].as_str().unwrap();
        let mut record: Value = serde_json::from_str(text).unwrap();
        record["run"] = json!({"from": after(from).as_second(), "seconds": 120});
        object["metadata"]["annotations"]["caldera.dev/admission"] = record.to_string().into();
        let mut world = index(&[4, 6], &[job(2, 2), object]);
        keep(&mut world, "m0", 100, 200);
        targets(&verdict(&mut world).step)
    };
    assert_eq!(of(-20), [("m0".into(), 2)]);
    assert_eq!(of(-19), [("m1".into(), 2)]);
}

#[test]
fn what_waits_is_decided_about_again_when_the_window_ends() {
    let mut world = index(&[4], &[job(2, 2), binding(2)]);
    world.advance_time(now());
    keep(&mut world, "m0", -10, 200);
    assert!(verdict(&mut world).awaits_capacity);
    world.add_unschedulable(&key());
    world.take_due_bindings();
    assert_eq!(world.next_deadline(), Some(after(200)));
    world.advance_time(after(199));
    assert!(world.is_idle());
    world.advance_time(after(200));
    assert!(!world.is_idle());
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn a_gang_stays_in_a_cluster_that_is_under_maintenance() {
    let mut world = index(&[4], &[job(2, 2), binding(2)]);
    let object = placed(binding(2), &mut world);
    world.update_binding(crate::observe::binding::Binding::parse_binding(&object).unwrap());
    keep(&mut world, "m0", -10, 200);
    set_cores(&mut world, 0, 4);
    assert_eq!(verdict(&mut world).step, Step::Rest);
}
