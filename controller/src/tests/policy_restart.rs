//! Split jobs of which a copy restarts by its own policies.

use caldera_crds::names::caldera::{END_AS, EVICTION};
use serde_json::{Value, json};

use super::world::World;

/// Places job `a` of two pods in two members, as the scheduler does, and has it run.
fn place(world: &mut World) {
    let share = json!({"tasks": {"worker": {"replicas": 1, "minAvailable": 1}}, "minAvailable": 1});
    let plan = json!({"clusters": {"m1": share, "m2": share}});
    world.patch(
        "ResourceBinding",
        "a-job",
        &json!({
            "metadata": {"annotations": {"caldera.dev/plan": plan.to_string()}},
            "spec": {"clusters": [{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]},
        }),
    );
    world.phase("a", "Running");
    world.settle();
}

fn split(max_retry: &Value) -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 2);
    world.patch("Job", "a", &json!({"spec": {"maxRetry": max_retry}}));
    assert_eq!(world.settle(), ["a-job"]);
    place(&mut world);
    world
}

/// What the copy in m2 says beside its phase; that in m1 runs.
fn report(world: &mut World, phase: &str, retries: u32, version: u32) {
    let m2 = json!({"state": {"phase": phase}, "retryCount": retries, "version": version});
    let reported = json!([
        {"clusterName": "m1", "applied": true, "status": {"state": {"phase": "Running"}}},
        {"clusterName": "m2", "applied": true, "status": m2},
    ]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    world.settle();
}

/// The old copies are gone.
fn lose_copies(world: &mut World) -> Vec<String> {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.patch("Job", "a", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
    world.pass(40)
}

fn clusters(world: &World) -> usize {
    world.get("ResourceBinding", "a-job")["spec"]["clusters"].as_array().map_or(0, Vec::len)
}

fn record(world: &World) -> Value {
    let record = &world.get("ResourceBinding", "a-job")["metadata"]["annotations"][EVICTION];
    record.as_str().map_or(Value::Null, |record| serde_json::from_str(record).unwrap())
}

#[test]
fn a_copy_that_its_policies_restart_restarts_the_whole_job_and_is_counted_once() {
    let mut world = split(&json!(3));
    report(&mut world, "Restarting", 1, 1);
    assert_eq!((clusters(&world), world.used("q").as_str()), (0, "0"), "the part in m1 goes too");
    let record = record(&world);
    assert_eq!(
        (&record["reason"], &record["restarts"], &record["count"]),
        (&json!("RestartedByPolicy"), &json!(1), &json!(0))
    );
    // What its old copies still say counts no second time, and nothing starts beside them.
    report(&mut world, "Pending", 1, 2);
    assert!(world.pass(30).is_empty());
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.starts_with("its part in m2 was restarted by the job's policies"), "{message}");
    assert!(message.contains("1 of at most 3 times"), "{message}");
    assert_eq!(lose_copies(&mut world), ["a-job"]);
    assert_eq!(self::record(&world)["restarts"], 1);
}

#[test]
fn pods_tasks_and_partitions_that_restart_are_one_clusters_matter() {
    let mut world = split(&json!(3));
    report(&mut world, "Restarting", 1, 0);
    assert_eq!((clusters(&world), record(&world)), (2, Value::Null));
    // A copy that was killed by a policy that ends it restarts nothing either.
    report(&mut world, "Failed", 3, 3);
    assert_eq!((clusters(&world), record(&world)), (2, Value::Null));
}

/// Its Volcano saw the copy's only pod fail before it looked at the policy.
#[test]
fn a_copy_that_failed_restarts_the_whole_job_if_its_policies_restart_it_at_a_failed_pod() {
    for (action, clusters_left) in [("RestartJob", 0), ("AbortJob", 2)] {
        let mut world = split(&json!(2));
        let policies = json!([{"event": "PodFailed", "action": action}]);
        world.patch("Job", "a", &json!({"spec": {"policies": policies}}));
        world.settle();
        report(&mut world, "Failed", 0, 2);
        assert_eq!(clusters(&world), clusters_left, "{action}");
    }
}

#[test]
fn a_copy_that_failed_after_max_retry_restarts_fails_the_job() {
    let mut world = split(&json!(3));
    let policies = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    world.patch("Job", "a", &json!({"spec": {"policies": policies}}));
    world.settle();
    report(&mut world, "Failed", 3, 4);
    assert_eq!((clusters(&world), record(&world)), (2, Value::Null));
}

#[test]
fn a_job_in_one_cluster_restarts_there() {
    let mut world = World::new(10);
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    world.phase("a", "Running");
    let reported = json!([{"clusterName": "m1", "applied": true, "status": {
        "state": {"phase": "Restarting"}, "retryCount": 1, "version": 1,
    }}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    world.settle();
    assert_eq!((clusters(&world), record(&world)), (1, Value::Null));
}

/// It ran in m1 alone, was restarted there, and had room in m2 later.
#[test]
fn what_a_copy_counted_while_it_was_the_whole_job_restarts_nothing_once_it_is_split() {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.place("a-job", 2);
    world.phase("a", "Running");
    let m1 = |retries: u32| {
        let status = json!({"state": {"phase": "Running"}, "retryCount": retries, "version": retries});
        json!({"clusterName": "m1", "applied": true, "status": status})
    };
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": [m1(1)]}}));
    world.settle();
    place(&mut world);
    let both =
        |m1: Value| json!([m1, {"clusterName": "m2", "applied": true, "status": {"state": {"phase": "Running"}}}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": both(m1(1))}}));
    world.settle();
    assert_eq!((clusters(&world), record(&world)), (2, Value::Null));
    // The next one is the whole job's.
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": both(m1(2))}}));
    world.settle();
    assert_eq!(record(&world)["restarts"], 1);
}

#[test]
fn a_job_that_restarted_as_often_as_it_may_fails_and_starts_no_more() {
    for (max_retry, restarts) in [(json!(2), 2), (Value::Null, 3)] {
        let mut world = split(&max_retry);
        for times in 1..=restarts {
            report(&mut world, "Restarting", 1, 1);
            assert_eq!(record(&world)["restarts"], times);
            assert_eq!(clusters(&world), 0);
            let released = lose_copies(&mut world);
            if times < restarts {
                assert_eq!(released, ["a-job"]);
                place(&mut world);
            } else {
                assert!(released.is_empty());
            }
        }
        world.pass(10);
        assert_eq!(world.get("Job", "a")["metadata"]["annotations"][END_AS], "Failed");
        let state = &world.get("Job", "a")["status"]["state"];
        assert_eq!((&state["phase"], &state["reason"]), (&json!("Failed"), &json!("MaxRetryReached")));
        assert!(world.events().contains(&("Warning".into(), "MaxRetryReached".into())), "{:?}", world.events());
        let before = world.writes.len();
        world.pass(60);
        let after: Vec<_> = world.writes[before..].iter().filter(|write| write.resource.plural == "jobs").collect();
        assert!(after.is_empty(), "it has failed, once: {after:?}");
    }
}

#[test]
fn a_controller_that_begins_anew_counts_what_the_record_says() {
    let mut world = split(&json!(2));
    report(&mut world, "Restarting", 1, 1);
    lose_copies(&mut world);
    place(&mut world);
    world.begin_anew();
    world.pass(2);
    report(&mut world, "Running", 1, 1);
    assert_eq!(record(&world)["restarts"], 2);
}
