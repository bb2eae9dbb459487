//! The peer's defects by number: we have none of them.

use caldera_runtime::write::Failure;
use serde_json::json;

use super::world::{World, is_release, job};
use crate::decide::decide;

#[test]
fn finished_jobs_give_quota_back_without_deletion_defect_1() {
    for end in ["Completed", "Failed", "Terminated", "Aborted"] {
        let mut world = World::new(4);
        world.job("a", "q", 4);
        world.job("b", "q", 4);
        assert_eq!(world.settle(), ["a-job"]);
        world.place("a-job", 4);
        assert!(world.settle().is_empty());
        world.phase("a", end);
        assert_eq!(world.settle(), ["b-job"], "{end}");
        assert!(!world.get("Job", "a").is_null());
    }
}

#[test]
fn pods_that_finished_shrink_the_charge_defect_1() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 3);
    world.settle();
    world.place("a-job", 4);
    let status = json!({"taskStatusCount": {"worker": {"phase": {"Succeeded": 3, "Running": 1}}}});
    let items = json!([{"clusterName": "m1", "applied": true, "status": status}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    world.patch("Job", "a", &json!({"status": status}));
    assert_eq!(world.settle(), ["b-job"]);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_binding_without_requirements_is_not_free_defect_3() {
    let mut world = World::new(10);
    world.queue("q", &json!({"capability": {"pods": "3"}}));
    let mut free = job("a", "q", 5);
    free["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
    let free = world.put(free);
    world.bind(&free, 0, true);
    assert!(world.settle().is_empty());
    assert_eq!(world.says("a").0, "ExceedsCapability");
}

#[test]
fn an_unknown_priority_class_counts_as_zero_and_is_told_defect_4() {
    let mut world = World::new(4);
    let mut a = job("a", "q", 4);
    a["spec"]["priorityClassName"] = "nowhere".into();
    let a = world.put(a);
    world.bind(&a, 4, true);
    assert_eq!(world.settle(), ["a-job"]);
    let why = "PriorityClass nowhere does not exist: priority 0 is assumed, and members without it refuse its pods";
    assert!(world.says("a").1.ends_with(&format!("; {why}")));
    assert!(world.events().contains(&("Warning".into(), "PriorityClassNotFound".into())));
    world.pass(100);
    assert_eq!(world.events().len(), 1, "told once");
}

#[test]
fn who_names_a_class_that_there_is_not_counts_as_who_names_none_defect_4() {
    let mut world = World::new(4);
    let class = |name: &str, value: i32, default: bool| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value, "globalDefault": default})
    };
    world.put(class("usual", 50, true));
    world.put(class("mine", 70, false));
    world.job("holder", "q", 4);
    assert_eq!(world.settle(), ["holder-job"]);
    let mut a = job("a", "q", 4);
    a["spec"]["priorityClassName"] = "mine".into();
    let a = world.put(a);
    world.bind(&a, 4, true);
    world.pass(40);
    assert_eq!(world.events(), [("Normal".into(), "WaitingForQuota".into())]);
    world.delete("PriorityClass", "mine");
    world.pass(40);
    let said = "PriorityClass mine does not exist: priority 50 is assumed";
    assert!(world.says("a").1.contains(said), "{:?}", world.says("a"));
    let reported = ("Warning".to_owned(), "PriorityClassNotFound".to_owned());
    assert_eq!(world.events().iter().filter(|event| **event == reported).count(), 1, "{:?}", world.events());
    world.restart();
    world.pass(40);
    assert_eq!(world.events().iter().filter(|event| **event == reported).count(), 1, "told once");
}

#[test]
fn a_priority_class_that_goes_changes_the_order_but_not_the_books_defect_4() {
    let mut world = World::new(4);
    let class = |name: &str, value: i32| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    world.put(class("high", 100));
    world.job("holder", "q", 4);
    assert_eq!(world.settle(), ["holder-job"]);
    world.job("low", "q", 4);
    let mut high = job("high", "q", 4);
    high["spec"]["priorityClassName"] = "high".into();
    let high = world.put(high);
    world.bind(&high, 4, true);
    world.settle();
    assert!(world.says("low").1.contains("position 1 of 2") || world.pass(60).is_empty());
    assert!(world.says("low").1.contains("position 2 of 2"), "{:?}", world.says("low"));
    world.delete("PriorityClass", "high");
    world.pass(60);
    assert!(world.says("low").1.contains("position 1 of 2"), "{:?}", world.says("low"));
    assert_eq!(world.used("q"), "4");
}

#[test]
fn only_ready_clusters_count_and_one_without_a_summary_is_nothing_defects_6_and_7() {
    let mut world = World::new(1000);
    world.put(json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "new"}, "spec": {},
    }));
    world.patch("Cluster", "m1", &json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}}));
    world.job("a", "q", 4);
    assert!(world.pass(2).is_empty());
    assert_eq!(world.says("a").0, "NoReadyCluster");
    world.cluster("m1", "100");
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn a_job_without_a_queue_is_in_the_default_queue_which_we_create_defect_8() {
    let mut world = World::new(10);
    world.pass(1);
    assert_eq!(world.get("Queue", "default")["status"]["state"], "Open");
    let mut a = job("a", "", 4);
    a["spec"]["queue"].take();
    let a = world.put(a);
    world.bind(&a, 4, true);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("default"), "4");
}

#[test]
fn more_than_was_admitted_is_accounted_and_told_defect_9() {
    let mut world = World::new(6);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.settle();
    world.patch("Job", "a", &json!({"spec": {"minAvailable": 8, "tasks": [{
        "name": "worker", "replicas": 8,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}},
    }]}}));
    world.pass(3);
    // Four more than the four that it has are more than its queue can ever have.
    assert_eq!(world.says("a").0, "ExceedsCapability");
    assert_eq!(world.used("q"), "4");
    // If something else has placed them nevertheless, the books say so.
    world.place("a-job", 8);
    world.begin_anew();
    world.pass(3);
    assert_eq!(world.says("a").0, "HoldsMoreThanAdmitted");
    assert_eq!(world.used("q"), "8");
    assert!(world.events().contains(&("Warning".into(), "HoldsMoreThanAdmitted".into())));
}

#[test]
fn every_copy_of_a_duplicated_job_is_charged_defect_10() {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.cluster("m3", "100");
    let a = world.put(job("a", "q", 3));
    world.bind(&a, 3, true);
    world.patch(
        "ResourceBinding",
        "a-job",
        &json!({"spec": {"placement": {"replicaScheduling": {
            "replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null,
        }}}}),
    );
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "9");
    assert!(world.get("ResourceBinding", "a-job").to_string().contains(r#"\"copies\":3"#));
}

#[test]
fn a_queue_that_is_closed_or_gone_starts_nothing_and_says_so_defect_11() {
    let mut world = World::new(10);
    world.job("runs", "q", 2);
    world.settle();
    world.patch("Queue", "q", &json!({"status": {"state": "Closed"}}));
    world.job("a", "q", 2);
    assert!(world.pass(2).is_empty());
    assert_eq!(world.says("a").0, "QueueNotOpen");
    assert_eq!(world.get("Queue", "q")["status"]["state"], "Closing", "while something runs");
    assert!(world.pass(31).is_empty());
    assert_eq!(world.says("a"), ("QueueNotOpen".into(), "queue q is Closing: it starts no jobs".into()));
    world.delete("Queue", "q");
    world.pass(2);
    assert_eq!(world.says("a"), ("QueueNotFound".into(), "queue q does not exist".into()));
    assert_eq!(world.used("q"), "2");
    world.queue("q", &json!({"capability": {"cpu": "10"}}));
    assert_eq!(world.settle(), ["a-job"]);
    assert!(world.events().contains(&("Warning".into(), "QueueNotFound".into())));
}

#[test]
fn a_users_suspension_is_never_lifted_defect_16() {
    let mut world = World::new(10);
    let a = world.put(job("a", "q", 2));
    world.bind(&a, 2, false);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    assert!(world.pass(100).is_empty());
    assert_eq!(world.says("a").0, "Suspended");
    // A gate that is open is not ours to open again either.
    world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": {"caldera.dev/gate": "open"}}}));
    assert!(world.pass(100).is_empty());
    // A user may suspend after the release: it stays charged.
    world.job("b", "q", 3);
    assert_eq!(world.settle(), ["b-job"]);
    world.patch("ResourceBinding", "b-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    assert!(world.pass(100).is_empty());
    assert_eq!((world.says("b").0.as_str(), world.used("q").as_str()), ("Suspended", "3"));
}

#[test]
fn a_binding_that_vanishes_blocks_nobody_and_may_come_back_defect_17() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    // Gone while its release is under way.
    world.refuse = vec![Failure::Gone("a-job".into())];
    assert_eq!(world.settle(), ["a-job", "b-job"]);
    world.delete("ResourceBinding", "a-job");
    world.delete("Job", "a");
    world.delete("ResourceBinding", "b-job");
    assert_eq!(world.used("q"), "0");
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_workload_that_comes_after_its_binding_is_enough_defect_18() {
    let mut world = World::new(4);
    let mut a = job("a", "q", 4);
    a["metadata"]["uid"] = "early".into();
    world.bind(&a, 4, true);
    assert!(world.settle().is_empty());
    world.put(a);
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn a_release_under_way_is_neither_repeated_nor_forgotten_defect_19() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    let decisions = decide(&mut world.controller, world.now);
    assert_eq!(decisions.writes.iter().filter(|write| is_release(write)).count(), 1);
    // An echo of the binding as it was: nothing is known of the release yet.
    let before = world.get("ResourceBinding", "a-job").clone();
    world.report(&before, false);
    let again = decide(&mut world.controller, world.now);
    assert!(!again.writes.iter().any(is_release));
    assert_eq!(world.used("q"), "4");
}

#[test]
fn an_older_event_after_a_release_changes_nothing_defect_19() {
    let mut world = World::new(4);
    world.echo = false;
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    let before = world.get("ResourceBinding", "a-job").clone();
    assert_eq!(world.settle(), ["a-job"]);
    world.report(&before, false);
    assert!(world.settle().is_empty());
    assert_eq!(world.used("q"), "4");
}
