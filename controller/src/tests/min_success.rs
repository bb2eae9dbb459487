//! Split jobs of which enough pods succeeded over all clusters.

use caldera_crds::names::caldera::{END_AS, SCHEDULER_NAME};
use serde_json::{Value, json};

use super::world::World;

/// Job `a` in two members; what each says of its copy, and what all of it says then.
fn reported(m1: &str, m2: &str, state: &Value) -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 2);
    world.patch("Job", "a", &json!({"spec": {"minSuccess": 1}}));
    assert_eq!(world.settle(), ["a-job"]);
    let share = json!({"tasks": {"worker": {"replicas": 1, "minAvailable": 1}}, "minAvailable": 1, "minSuccess": 1});
    let copy = |cluster: &str, phase: &str| json!({"clusterName": cluster, "applied": true, "status": {"state": {"phase": phase}, "succeeded": 1}});
    world.patch(
        "ResourceBinding",
        "a-job",
        &json!({
            "metadata": {"annotations": {"caldera.dev/plan": json!({"clusters": {"m1": share, "m2": share}}).to_string()}},
            "spec": {"schedulerName": SCHEDULER_NAME, "clusters": [{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]},
        }),
    );
    world.phase("a", "Running");
    world.settle();
    let copies = [copy("m1", m1), copy("m2", m2)];
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": copies}}));
    world.patch("Job", "a", &json!({"status": {"state": state, "succeeded": 1}}));
    world.settle();
    world
}

fn clusters(world: &World) -> usize {
    world.get("ResourceBinding", "a-job")["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_job_of_which_enough_pods_succeeded_ends_although_no_copy_did() {
    let enough = json!({"phase": "Completing", "reason": "MinSuccessReached"});
    let mut world = reported("Running", "Running", &enough);
    world.settle();
    assert_eq!((clusters(&world), world.used("q").as_str()), (0, "0"));
    // Its copies are gone, and Karmada has not said so on the job.
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    assert!(world.pass(40).is_empty(), "it does not start again");
    let job = world.get("Job", "a");
    assert_eq!(job["metadata"]["annotations"][END_AS], "Completed");
    let state = &job["status"]["state"];
    assert_eq!((&state["phase"], &state["reason"]), (&json!("Completed"), &json!("MinSuccessReached")));
}

#[test]
fn a_job_with_a_copy_that_ended_is_left_to_the_scheduler_and_one_without_enough_successes_to_itself() {
    let enough = json!({"phase": "Completing", "reason": "MinSuccessReached"});
    for (m1, state) in [("Completed", enough.clone()), ("Failed", enough), ("Running", json!({"phase": "Completing"}))]
    {
        let world = reported(m1, "Running", &state);
        assert_eq!((clusters(&world), &world.get("Job", "a")["metadata"]["annotations"][END_AS]), (2, &Value::Null));
    }
}
