//! Which PodGroup is that of a workload, and what its name is.

use serde_json::{Value, json};

use super::world::{World, job};

/// Names of all PodGroups that there are.
fn list_names(world: &World) -> Vec<String> {
    world.objects.keys().filter(|key| key.0 == "PodGroup").map(|key| key.2.clone()).collect()
}

/// A PodGroup with our label, of the workload with this UID.
fn pod_group(name: &str, workload: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": "ns",
            "labels": {"caldera.dev/workload-kind": "Job", "caldera.dev/workload-name": workload},
            "ownerReferences": [{
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": workload, "uid": uid,
            }],
        },
        "spec": {},
    })
}

fn uid_of(world: &World, job: &str) -> String {
    world.get("Job", job)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// There, and not told to the controller: without our label no watch tells of it, or the watch is behind.
fn hide(world: &mut World, group: Value) {
    let name = group["metadata"]["name"].as_str().unwrap().to_owned();
    world.objects.insert(("PodGroup".into(), "ns".into(), name), group);
}

#[test]
fn a_podgroup_is_named_after_its_workload_and_its_kind() {
    let mut world = World::new(0);
    world.job("train", "q", 1);
    let deployment = world.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "train", "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"},
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }));
    world.bind(&deployment, 2, true);
    world.pass(4);
    assert_eq!(list_names(&world), ["train-deployment", "train-vcjob"]);
}

#[test]
fn a_name_that_would_be_too_long_is_the_one_with_the_uid() {
    let mut world = World::new(0);
    let name = "x".repeat(250);
    world.job(&name, "q", 1);
    let deployment = world.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }));
    world.bind(&deployment, 1, true);
    world.pass(4);
    let named = |uid: &Value| format!("podgroup-{}", uid.as_str().unwrap());
    let mut expected = vec![named(&deployment["metadata"]["uid"]), named(&uid_of(&world, &name).into())];
    expected.sort();
    assert_eq!(list_names(&world), expected);
}

#[test]
fn an_upgrade_keeps_the_podgroup_that_a_running_job_has() {
    let mut world = World::new(4);
    let job = world.put(job("old", "q", 4));
    let uid = uid_of(&world, "old");
    let name = format!("old-{uid}");
    world.put(pod_group(&name, "old", &uid));
    world.bind(&job, 4, true);
    world.settle();
    world.place("old-job", 4);
    world.phase("old", "Running");
    world.pass(20);
    assert_eq!(list_names(&world), [name.as_str()]);
    assert_eq!(world.group("old")["status"]["phase"], "Running");
    // Its binding goes: the PodGroup is no orphan.
    world.delete("ResourceBinding", "old-job");
    world.settle();
    assert!(list_names(&world).is_empty());
}

#[test]
fn a_podgroup_of_its_user_is_never_taken_over() {
    let mut world = World::new(0);
    let own = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "train-vcjob", "namespace": "ns", "uid": "mine"}, "spec": {"minMember": 7},
    });
    hide(&mut world, own.clone());
    world.job("train", "q", 1);
    world.pass(20);
    assert_eq!(*world.get("PodGroup", "train-vcjob"), own);
    let name = format!("train-{}", uid_of(&world, "train"));
    assert_eq!(list_names(&world), [name.as_str(), "train-vcjob"]);
    assert_eq!(world.says("train").0, "Admitted");
    // The next controller finds the one that there is, and so does this one when the name is free.
    world.restart();
    world.objects.remove(&("PodGroup".into(), "ns".into(), "train-vcjob".into()));
    world.pass(60);
    assert_eq!(list_names(&world), [name.as_str()]);
}

#[test]
fn a_podgroup_that_has_our_label_and_another_owner_is_left_alone() {
    let mut world = World::new(0);
    world.put(pod_group("train-vcjob", "train", "of-the-job-before"));
    world.job("train", "q", 1);
    world.pass(20);
    let name = format!("train-{}", uid_of(&world, "train"));
    assert_eq!(list_names(&world), [name.as_str(), "train-vcjob"]);
    assert!(world.get("PodGroup", "train-vcjob")["status"].is_null());
    world.delete("ResourceBinding", "train-job");
    world.settle();
    assert_eq!(list_names(&world), ["train-vcjob"]);
}

#[test]
fn a_job_made_anew_gets_the_name_that_the_garbage_collector_frees() {
    let mut world = World::new(0);
    world.put(pod_group("train-vcjob", "train", "of-the-job-before"));
    world.job("train", "q", 1);
    world.pass(6);
    assert_eq!(list_names(&world), ["train-vcjob"]);
    world.delete("PodGroup", "train-vcjob");
    world.pass(4);
    assert_eq!((list_names(&world), world.says("train").0), (vec!["train-vcjob".to_owned()], "Admitted".to_owned()));
}

#[test]
fn one_that_was_made_and_not_seen_is_made_no_second_time() {
    let mut world = World::new(0);
    world.job("train", "q", 1);
    let unseen = pod_group("train-vcjob", "train", &uid_of(&world, "train"));
    hide(&mut world, unseen.clone());
    world.pass(3);
    assert_eq!(world.says("train").0, "", "its creation was refused: it is there");
    world.put(unseen);
    world.pass(10);
    assert_eq!(list_names(&world), ["train-vcjob"]);
    assert_eq!(world.says("train").0, "Admitted");
}

#[test]
fn of_two_podgroups_of_one_job_the_one_with_the_uid_is_deleted() {
    let mut world = World::new(0);
    world.job("train", "q", 1);
    world.pass(4);
    let uid = uid_of(&world, "train");
    world.put(pod_group(&format!("train-{uid}"), "train", &uid));
    world.pass(4);
    assert_eq!(list_names(&world), ["train-vcjob"]);
    assert_eq!(world.says("train").0, "Admitted");
}
