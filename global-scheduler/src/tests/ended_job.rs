//! A job that has ended as a whole leaves the clusters where it goes on.

use super::*;

/// A master in m0 and workers in m0 and m1, whose job is complete when its master is.
fn world_job(policies: &Value) -> Value {
    let mut object = job(6, 6);
    let worker = object["spec"]["tasks"][0].clone();
    let mut master = worker.clone();
    master["name"] = "m".into();
    master["replicas"] = 1.into();
    master["minAvailable"] = 1.into();
    master["policies"] = policies.clone();
    object["spec"]["tasks"] = json!([master, worker]);
    object["spec"]["minAvailable"] = 7.into();
    object
}

/// It is placed.
fn running(policies: &Value) -> (Cache, Value) {
    let object = world_job(policies);
    let mut binding = binding(6);
    binding["metadata"]["annotations"]["caldera.dev/admission"] =
        json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"m": 1, "w": 6}, "charged": {}}).to_string().into();
    binding["spec"]["replicas"] = 7.into();
    let mut world = index(&[3, 4], &[object, binding.clone()]);
    let object = placed(binding, &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    (world, object)
}

/// What is decided once the members say these phases.
fn after(world: &mut Cache, object: &Value, phases: &[(&str, &str)]) -> Step {
    let mut object = object.clone();
    let item = |(cluster, phase): &(&str, &str)| json!({"clusterName": cluster, "status": {"state": {"phase": phase}}, "applied": true});
    object["status"]["aggregatedStatus"] = phases.iter().map(item).collect();
    object["metadata"]["resourceVersion"] = "99".into();
    world.update_binding(Binding::parse_binding(&object).unwrap());
    verdict(world).step
}

/// The cluster that holds the master, and another of the two.
fn homes(object: &Value) -> (String, String) {
    let plan: Value =
        serde_json::from_str(object["metadata"]["annotations"]["caldera.dev/plan"].as_str().unwrap()).unwrap();
    let has = |cluster: &str| plan["clusters"][cluster]["tasks"]["m"]["replicas"] == 1;
    assert_ne!(has("m0"), has("m1"));
    if has("m0") { ("m0".into(), "m1".into()) } else { ("m1".into(), "m0".into()) }
}

fn left(step: Step) -> Vec<String> {
    let Step::Place(decision) = step else { panic!("{step:?}") };
    let plan = decision.plan.unwrap();
    let targets: Vec<String> = decision.targets.into_iter().map(|target| target.cluster).collect();
    assert_eq!(plan.clusters.keys().map(ToString::to_string).collect::<Vec<_>>(), targets);
    targets
}

#[test]
fn a_job_whose_master_is_done_leaves_the_clusters_of_workers_that_serve_nobody() {
    let (mut world, object) = running(&json!([{"event": "TaskCompleted", "action": "CompleteJob"}]));
    let (master, other) = homes(&object);
    let done = [(master.as_str(), "Completed"), (other.as_str(), "Running")];
    assert_eq!(left(after(&mut world, &object, &done)), std::slice::from_ref(&master));
    let (mut world, object) = running(&json!(null));
    assert_eq!(after(&mut world, &object, &done), Step::Rest, "no policy says so");
}

#[test]
fn workers_that_are_done_complete_nothing_that_waits_for_the_master() {
    let (mut world, object) = running(&json!([{"event": "TaskCompleted", "action": "CompleteJob"}]));
    let (master, other) = homes(&object);
    let done = [(master.as_str(), "Running"), (other.as_str(), "Completed")];
    assert_eq!(after(&mut world, &object, &done), Step::Rest);
}

#[test]
fn what_failed_for_good_in_one_cluster_does_not_run_on_in_another() {
    for phase in ["Failed", "Terminated", "Aborted"] {
        let (mut world, object) = running(&json!(null));
        let (master, other) = homes(&object);
        let failed = [(master.as_str(), "Running"), (other.as_str(), phase)];
        assert_eq!(left(after(&mut world, &object, &failed)), [other]);
    }
    let (mut world, object) = running(&json!(null));
    let all = [("m0", "Failed"), ("m1", "Completed")];
    assert_eq!(after(&mut world, &object, &all), Step::Rest, "it has ended everywhere");
}

#[test]
fn a_job_of_which_enough_pods_succeeded_leaves_the_clusters_where_it_has_not_ended() {
    let (mut world, object) = running(&json!(null));
    let mut reported = world_job(&json!(null));
    let says = |world: &mut Cache, reported: &mut Value, version: &str, state: Value| {
        reported["status"] = json!({"state": state});
        reported["metadata"]["resourceVersion"] = version.into();
        world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(reported).unwrap()));
    };
    reported["spec"]["minSuccess"] = 2.into();
    says(&mut world, &mut reported, "100", json!({"phase": "Running"}));
    for phase in ["Completed", "Failed"] {
        let one = [("m0", phase), ("m1", "Running")];
        assert_eq!(after(&mut world, &object, &one), Step::Rest, "successes of all copies count: {phase}");
    }
    says(&mut world, &mut reported, "101", json!({"phase": "Completing", "reason": "MinSuccessReached"}));
    let none = [("m0", "Running"), ("m1", "Running")];
    assert_eq!(after(&mut world, &object, &none), Step::Rest, "the controller ends it");
    for phase in ["Completed", "Failed"] {
        assert_eq!(left(after(&mut world, &object, &[("m0", phase), ("m1", "Running")])), ["m0"]);
    }
    says(&mut world, &mut reported, "102", json!({"phase": "Failed"}));
    assert_eq!(left(after(&mut world, &object, &[("m0", "Failed"), ("m1", "Running")])), ["m0"]);
}

/// Else nothing would be left to restart: the controller reads the same failure, and may be later.
#[test]
fn what_failed_where_each_failed_pod_restarts_the_job_stays_until_the_job_says_that_it_has_ended() {
    let mut object = job(6, 6);
    object["spec"]["policies"] = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    let mut gated = binding(6);
    gated["metadata"]["annotations"]["caldera.dev/admission"] =
        json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": 6}, "charged": {}}).to_string().into();
    let mut world = index(&[3, 3], &[object.clone(), gated.clone()]);
    let placed = placed(gated, &mut world);
    world.update_binding(Binding::parse_binding(&placed).unwrap());
    let failed = [("m0", "Failed"), ("m1", "Running")];
    assert_eq!(after(&mut world, &placed, &failed), Step::Rest);
    let stopped = [("m0", "Terminated"), ("m1", "Running")];
    assert_eq!(left(after(&mut world, &placed, &stopped)), ["m0"]);
    // As Karmada adds it up: the copy that is to go runs.
    object["status"] = json!({"state": {"phase": "Failed"}, "running": 3});
    object["metadata"]["resourceVersion"] = "100".into();
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(&object).unwrap()));
    assert_eq!(left(after(&mut world, &placed, &failed)), ["m0"]);
}
