//! Queues whose objects are gone or can not be read, and jobs that are out of line: what they hold and what they rank.

use super::*;

/// Below queue `top`, which may have 4, a job holds 3 in queue `lost`, whose object is then gone.
fn lost() -> World {
    let mut world = World::new(100);
    world.queue("top", &json!({"capability": {"cpu": "4"}}));
    world.queue("lost", &json!({"parent": "top"}));
    world.queue("other", &json!({"parent": "top"}));
    world.job("runs", "lost", 3);
    assert_eq!(world.settle(), ["runs-job"]);
    world.place("runs-job", 3);
    world.delete("Queue", "lost");
    world.settle();
    world
}

#[test]
fn a_queue_that_is_deleted_under_a_running_job_stays_charged_above_and_after_a_restart() {
    let mut world = lost();
    world.job("waits", "other", 3);
    assert!(world.settle().is_empty());
    assert_eq!(world.used("top"), "3");
    let record = world.get("ResourceBinding", "runs-job")["metadata"]["annotations"]["caldera.dev/admission"].clone();
    assert!(record.as_str().unwrap().contains(r#""above":["top"]"#), "{record}");
    world.restart();
    assert!(world.pass(70).is_empty());
    assert_eq!((world.used("top"), world.says("waits").0), ("3".to_owned(), "WaitingForQuota".to_owned()));
    world.phase("runs", "Completed");
    assert_eq!(world.pass(1), ["waits-job"]);
}

#[test]
fn a_capability_that_nobody_can_read_starts_nothing_and_is_reported() {
    let mut world = World::new(100);
    world.queue("broken", &json!({"capability": {"cpu": "many"}}));
    world.job("a", "broken", 1);
    assert!(world.settle().is_empty());
    assert_eq!(world.says("a").0, "ExceedsCapability");
    world.pass(60);
    assert!(world.events().contains(&("Warning".to_owned(), "QueueMisconfigured".to_owned())));
    world.queue("broken", &json!({"capability": {"cpu": "1"}}));
    assert_eq!(world.pass(1), ["a-job"]);
}

#[test]
fn who_found_no_place_is_passed_by_lower_priority_only_after_a_while() {
    let mut world = World::new(4);
    world.put(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100,
    }));
    let mut high = job("high", "q", 4);
    high["spec"]["priorityClassName"] = "high".into();
    let high = world.put(high);
    world.bind(&high, 4, true);
    assert_eq!(world.settle(), ["high-job"]);
    world.job("low", "q", 4);
    let refused = json!({"type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": "0 of 1 clusters fit", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.patch("ResourceBinding", "high-job", &json!({"status": {"conditions": [refused]}}));
    assert!(world.pass(63).is_empty());
    assert_eq!(world.says("high").0, "Requeued");
    assert_eq!(world.says("low").0, "BlockedByReservation");
    // It is in line again before its minute is over, is put back again, and waits longer.
    assert_eq!(world.pass(61), ["high-job"]);
    let refused = json!({"type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": "0 of 1 clusters fit still", "lastTransitionTime": "2026-01-01T00:03:00Z"});
    world.patch("ResourceBinding", "high-job", &json!({"status": {"conditions": [refused]}}));
    assert!(world.pass(100).is_empty());
    assert_eq!(world.pass(40), ["low-job"]);
}

#[test]
fn an_object_named_root_limits_nothing_and_closes_nothing() {
    for (parent, state) in [("", "Open"), ("q", "Closed"), ("root", "Unknown")] {
        let mut world = World::new(8);
        let amounts = json!({"cpu": "1"});
        let mut spec = json!({"capability": amounts, "deserved": amounts, "guarantee": {"resource": amounts}});
        spec["parent"] = parent.into();
        world.queue("root", &spec);
        world.patch("Queue", "root", &json!({"status": {"state": state}}));
        world.job("a", "q", 4);
        assert_eq!(world.settle(), ["a-job"], "below {parent:?}, {state}");
        world.delete("Queue", "root");
        world.job("b", "q", 4);
        assert_eq!(world.settle(), ["b-job"]);
    }
}
