//! Copies that were left in a cluster that was lost: what they say when it is back.

use super::*;

/// Job `a` of five pods, running in m2 alone.
fn in_m2() -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 5);
    assert_eq!(world.settle(), ["a-job"]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m2", "replicas": 5}]}}));
    world.phase("a", "Running");
    world.settle();
    world
}

fn held(world: &World) -> &Value {
    &world.get("ResourceBinding", "a-job")["spec"]["gracefulEvictionTasks"]
}

/// What Karmada tells of the copy in m2, and so of the job.
fn report_m2(world: &mut World, phase: &str) -> Vec<String> {
    let reported = json!([{"clusterName": "m2", "applied": true, "status": {"state": {"phase": phase}}}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    world.patch("Job", "a", &json!({"status": {"state": {"phase": phase}}}));
    world.settle()
}

/// It is withdrawn from m2, which was lost with all of it.
fn lose_all() -> World {
    let mut world = in_m2();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    let task = &held(&world)[0];
    assert_eq!((&task["fromCluster"], &task["suppressDeletion"]), (&json!("m2"), &json!(true)), "{task}");
    assert_eq!(eviction(&world)["reason"], "MemberLost");
    report(&mut world, works("m2", &["a"]));
    world.job("b", "q", 10);
    assert_eq!(world.pass(5), ["b-job"], "its charge has returned");
    world.delete("ResourceBinding", "b-job");
    world.delete("Job", "b");
    assert!(world.pass(60).is_empty(), "it may run on");
    world
}

#[test]
fn what_ended_in_a_lost_cluster_counts_and_does_not_run_again() {
    let mut world = lose_all();
    world.restart();
    report(&mut world, works("m2", &["a"]));
    set_ready(&mut world, "m2", true);
    assert!(world.pass(40).is_empty(), "it has not told yet");
    assert!(report_m2(&mut world, "Completed").is_empty());
    assert!(world.pass(2000).is_empty());
    assert_eq!(held(&world).as_array().map(Vec::len), Some(1), "its pods' logs stay as those of any other");
    assert_eq!(world.says("a").0, "Finished");
    assert_eq!(watched(&world), BTreeSet::new());
}

#[test]
fn what_has_not_ended_in_a_cluster_that_is_back_is_deleted_and_runs_again() {
    let mut world = lose_all();
    set_ready(&mut world, "m2", true);
    assert!(world.pass(58).is_empty() && held(&world).is_array());
    assert!(world.pass(5).is_empty());
    assert!(held(&world).is_null(), "{}", held(&world));
    assert!(world.pass(60).is_empty(), "Karmada has yet to delete it");
    copies_go(&mut world);
    assert!(report(&mut world, works("m2", &[])).is_empty(), "m2 would forget the new copy with the old one");
    assert_eq!(world.pass(70), ["a-job"], "it took a minute to go");
}

#[test]
fn what_karmada_is_to_delete_is_not_written_for_ever_while_nobody_sees_that_it_was() {
    let mut world = lose_all();
    set_ready(&mut world, "m2", true);
    world.pass(58);
    let drops = |write: &Decision| matches!(write, Decision::DropHeldCopies { .. });
    let sent = count_unseen(&mut world, 3600, drops);
    assert!(IN_AN_HOUR.contains(&sent), "{sent}");
}

#[test]
fn nobody_waits_for_the_end_of_what_an_admin_gave_up() {
    let mut world = lose_all();
    let now = format_time(world.now);
    world.patch("Cluster", "m2", &json!({"metadata": {"annotations": {FENCED_AT: now}}}));
    let mut released = world.pass(3);
    assert!(held(&world).is_null());
    copies_go(&mut world);
    released.extend(world.pass(10));
    assert_eq!(released, ["a-job"]);
}

#[test]
fn what_its_user_ends_is_not_left_in_a_lost_cluster() {
    let mut world = lose_all();
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.pass(3);
    assert!(held(&world).is_null());
}

#[test]
fn a_copy_that_has_not_begun_is_not_left_to_begin_when_its_cluster_is_back() {
    let mut world = in_m2();
    report_m2(&mut world, "Pending");
    set_ready(&mut world, "m2", false);
    world.pass(305);
    assert_eq!(eviction(&world)["reason"], "MemberLost");
    assert!(held(&world).is_null());
}

fn set_both_ready(world: &mut World, ready: bool) {
    ["m1", "m2"].into_iter().for_each(|cluster| set_ready(world, cluster, ready));
}

/// Job `a` of five pods in m1 and m2, whose policies restart it: both were lost, and are back.
fn split_and_back() -> World {
    let mut world = split();
    let policies = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    world.patch("Job", "a", &json!({"spec": {"policies": policies}}));
    set_both_ready(&mut world, false);
    world.pass(305);
    ["m1", "m2"].into_iter().for_each(|cluster| drop(report(&mut world, works(cluster, &["a"]))));
    assert_eq!(held(&world).as_array().map(Vec::len), Some(2));
    assert_eq!(world.controller.deadlines.held.0.next_due(), None, "nothing changes by itself");
    set_both_ready(&mut world, true);
    world
}

/// What Karmada tells of the copies in m1 and m2.
fn report_both(world: &mut World, phases: [&str; 2]) {
    let item =
        |(cluster, phase)| json!({"clusterName": cluster, "applied": true, "status": {"state": {"phase": phase}}});
    let reported: Vec<Value> = ["m1", "m2"].into_iter().zip(phases).map(item).collect();
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    world.settle();
}

#[test]
fn a_part_that_failed_while_its_cluster_was_lost_restarts_the_job_by_its_policies() {
    let mut world = split_and_back();
    report_both(&mut world, ["Completed", "Failed"]);
    world.patch("Job", "a", &json!({"status": {"state": {"phase": "Restarting"}}}));
    assert!(world.pass(110).is_empty());
    assert!(held(&world).is_array(), "Karmada may say yet that the job failed");
    assert!(world.pass(12).is_empty(), "its old copies are there");
    assert!(held(&world).is_null(), "{}", held(&world));
    let record = eviction(&world);
    assert_eq!((&record["reason"], &record["restarts"]), (&json!("RestartedByPolicy"), &json!(1)), "{record}");
    assert!(world.events().contains(&("Warning".into(), "RestartedByPolicy".into())), "{:?}", world.events());
    copies_go(&mut world);
    ["m1", "m2"].into_iter().for_each(|cluster| drop(report(&mut world, works(cluster, &[]))));
    assert_eq!(world.pass(300), ["a-job"]);
    assert_eq!(eviction(&world)["restarts"], 1);
}

#[test]
fn what_completed_in_lost_clusters_never_runs_again_however_long_nobody_says_that_the_job_did() {
    let mut world = split_and_back();
    report_both(&mut world, ["Completed", "Completed"]);
    assert!(world.pass(600).is_empty());
    assert_eq!(held(&world).as_array().map(Vec::len), Some(2));
}
