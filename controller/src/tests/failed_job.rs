//! Batch Jobs that failed in their clusters.

use serde_json::{Value, json};

use super::world::World;

/// A Job of two pods in two clusters, of which it is seen that it began.
fn placed() -> World {
    let mut world = World::new(2);
    let job = world.put(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
        "status": {"startTime": "2026-11-26T10:00:00Z", "active": 2},
    }));
    world.bind(&job, 2, true);
    assert_eq!(world.settle(), ["a-job"]);
    let clusters = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": clusters}}));
    world.settle();
    world
}

fn report(world: &mut World, one: &Value, other: &Value) {
    let reported = |cluster: &str, status: &Value| json!({"clusterName": cluster, "applied": true, "status": status});
    let items = [reported("m1", one), reported("m2", other)];
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    world.settle();
}

fn ended(kind: &str, succeeded: u32, failed: u32) -> Value {
    let condition = json!({"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"});
    json!({"conditions": [condition], "startTime": "2026-11-26T10:00:05Z", "succeeded": succeeded, "failed": failed})
}

fn status(world: &World) -> &Value {
    &world.get("Job", "a")["status"]
}

fn count_status_writes(world: &World) -> usize {
    world.writes.iter().filter(|write| write.resource.kind == "Job" && write.subresource.is_some()).count()
}

#[test]
fn a_job_that_failed_in_its_clusters_says_so_and_gives_its_charge_back() {
    let mut world = placed();
    report(&mut world, &ended("Complete", 1, 0), &ended("Failed", 0, 1));
    assert_eq!(status(&world)["conditions"], Value::Null, "Karmada comes first");
    world.pass(4);
    let conditions = status(&world)["conditions"].as_array().unwrap();
    let kinds: Vec<&str> = conditions.iter().filter_map(|condition| condition["type"].as_str()).collect();
    assert_eq!(kinds, ["FailureTarget", "Failed"]);
    assert_eq!(conditions[1]["reason"], "BackoffLimitExceeded");
    assert_eq!(conditions[1]["message"], "failed in cluster m2: too often");
    assert_eq!((&status(&world)["succeeded"], &status(&world)["failed"]), (&json!(1), &json!(1)));
    assert_eq!(status(&world)["active"], Value::Null, "none of a Job that has ended");
    assert_eq!(status(&world)["startTime"], "2026-11-26T10:00:00Z", "that is said once");
    assert_eq!(world.used("q"), "0");
    world.pass(60);
    assert_eq!(count_status_writes(&world), 1);
}

#[test]
fn a_job_that_runs_on_somewhere_or_that_karmada_ends_is_left_alone() {
    let mut world = placed();
    report(&mut world, &ended("Failed", 0, 1), &json!({"active": 1}));
    world.pass(30);
    assert_eq!(count_status_writes(&world), 0);
    report(&mut world, &ended("Complete", 1, 0), &ended("Complete", 1, 0));
    world.pass(30);
    assert_eq!(count_status_writes(&world), 0);
    report(&mut world, &ended("Failed", 0, 1), &ended("Complete", 1, 0));
    world.patch("Job", "a", &json!({"status": ended("Failed", 1, 1)}));
    world.pass(30);
    assert_eq!((count_status_writes(&world), world.used("q").as_str()), (0, "0"));
}
