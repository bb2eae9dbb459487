//! The controller's rules by name, on a host of a few lines ([`world`]). The numbers are the peer's defects.

mod explain;
mod fleet;
mod foresight;
mod forged_record;
mod growth;
mod hyper_jobs;
mod job_commands;
mod lifecycle;
mod measure;
mod member_loss;
mod pods_ready;
mod policy_restart;
mod preemption;
mod queue_annotations;
mod refused_copy;
mod resize;
mod silent_copy;
mod snapshot;
mod stale_grant;
mod tenancy;
mod ttl;
mod two;
mod unsound;
mod usage;
mod waiting_state;
mod withdrawal;
mod world;

use std::collections::BTreeMap;

use caldera_crds::tenancy::NamespaceFacts;
use caldera_runtime::write::Failure;
use serde_json::{Value, json};

use self::world::{World, is_release, job};
use crate::{decide::decide, observe::Input};

#[test]
fn a_job_that_fits_is_released_with_a_record_and_its_podgroup_says_so() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    let binding = world.get("ResourceBinding", "a-job");
    assert_eq!(binding["spec"]["suspension"], json!({"scheduling": false}));
    assert_eq!(binding["metadata"]["annotations"]["caldera.dev/gate"], "open");
    let record: Value =
        serde_json::from_str(binding["metadata"]["annotations"]["caldera.dev/admission"].as_str().unwrap()).unwrap();
    assert_eq!(
        record,
        json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"worker": 4}, "charged": {"cpu": "4", "pods": "4"}})
    );
    world.pass(3);
    let group = world.group("a");
    assert_eq!(group["status"]["phase"], "Inqueue");
    assert_eq!(group["spec"]["minMember"], 4);
    assert_eq!(group["spec"]["minTaskMember"], json!({"worker": 4}));
    assert_eq!(group["spec"]["minResources"], json!({"cpu": "4", "pods": "4"}));
    assert_eq!(group["spec"]["queue"], "q");
    let workload = world.get("Job", "a");
    assert_eq!(group["metadata"]["name"], format!("a-{}", workload["metadata"]["uid"].as_str().unwrap()));
    assert_eq!(group["metadata"]["ownerReferences"][0]["uid"], workload["metadata"]["uid"]);
    assert!(world.events().is_empty(), "who does not wait needs no telling: {:?}", world.events());
}

#[test]
fn that_a_long_wait_is_over_is_told_on_the_users_own_object() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(60);
    world.delete("ResourceBinding", "first-job");
    world.pass(1);
    // By name.
    assert_eq!(world.events(), ["Admitted", "WaitingForQuota"].map(|reason| ("Normal".into(), reason.into())));
}

#[test]
fn a_whole_life_takes_three_writes_of_ours() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.settle();
    world.phase("a", "Running");
    world.pass(3);
    assert_eq!(world.group("a")["status"]["phase"], "Running");
    world.phase("a", "Completed");
    world.pass(3);
    assert_eq!(world.group("a")["status"]["phase"], "Completed");
    assert_eq!(world.says("a"), ("Finished".into(), "ended as Completed; queue q is charged nothing".into()));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for write in &world.writes {
        *counts.entry(&write.resource.plural).or_default() += 1;
    }
    // Created as Running, Completed; the release.
    counts.remove("queues");
    assert_eq!(counts, [("podgroups", 2), ("resourcebindings", 1)].into());
}

#[test]
fn of_a_job_that_starts_and_ends_at_once_one_write_says_so() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.pass(1);
    world.phase("a", "Running");
    world.pass(1);
    world.phase("a", "Completed");
    world.settle();
    assert_eq!(world.says("a"), ("Finished".into(), "ended as Completed; queue q is charged nothing".into()));
    world.pass(60);
    let groups = world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    assert_eq!((groups, world.events().len()), (1, 0));
}

#[test]
fn of_a_long_line_whose_reasons_change_few_are_written_in_a_second_and_each_in_its_turn() {
    let mut world = World::new(10);
    world.cluster("m2", "200");
    let submit = |world: &mut World, name: &str, pods: u32| {
        world.job(name, "q", pods);
        let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
        world.patch("ResourceBinding", &format!("{name}-job"), &only);
    };
    submit(&mut world, "first", 10);
    (0..60).for_each(|i| submit(&mut world, &format!("w{i}"), 1));
    world.pass(2);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    let before = groups(&world);
    // There is quota now, and no room.
    world.cluster("m1", "10");
    world.queue("q", &json!({"capability": {"cpu": "100"}}));
    world.pass(2);
    let written = groups(&world) - before;
    assert!((1..=30).contains(&written), "{written} writes");
    world.pass(30);
    (0..60).for_each(|i| assert_eq!(world.says(&format!("w{i}")).0, "InsufficientCapacity"));
}

#[test]
fn that_it_may_start_and_that_it_runs_is_one_write() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    world.delete("ResourceBinding", "first-job");
    let before = groups(&world);
    world.settle();
    world.place("a-job", 2);
    world.pass(2);
    assert_eq!((groups(&world) - before, world.group("a")["status"]["phase"].as_str()), (1, Some("Pending")));
    world.phase("a", "Running");
    world.pass(1);
    assert_eq!((groups(&world) - before, world.group("a")["status"]["phase"].as_str()), (2, Some("Running")));
}

/// Its text had waited for its turn for longer than a start does.
#[test]
fn a_text_that_waited_makes_no_start_more_urgent() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    let groups = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "podgroups").count();
    // Of what it waits for only numbers change, which is written in half a minute.
    world.queue("q", &json!({"capability": {"cpu": "3"}}));
    world.pass(10);
    let before = groups(&world);
    world.delete("ResourceBinding", "first-job");
    world.settle();
    world.place("a-job", 2);
    world.pass(2);
    world.phase("a", "Completed");
    world.settle();
    assert_eq!((groups(&world) - before, world.says("a").0.as_str()), (2, "Finished"), "one deletion, one end");
}

#[test]
fn a_job_that_does_not_run_soon_says_that_it_may_start() {
    let mut world = World::new(2);
    world.job("first", "q", 2);
    world.job("a", "q", 2);
    world.pass(5);
    world.delete("ResourceBinding", "first-job");
    world.pass(4);
    assert_eq!(world.group("a")["status"]["phase"], "Inqueue");
}

#[test]
fn a_queue_s_numbers_are_written_every_ten_seconds_at_most() {
    let mut world = World::new(9);
    world.pass(5);
    let queues = |world: &World| world.writes.iter().filter(|write| write.resource.plural == "queues").count();
    let before = queues(&world);
    for i in 0..9 {
        world.job(&format!("j{i}"), "q", 1);
        world.pass(1);
    }
    world.pass(12);
    let written = queues(&world) - before;
    assert!((2..=3).contains(&written), "{written} writes");
    assert_eq!(world.get("Queue", "q")["status"]["allocated"]["cpu"], "9");
    world.pass(60);
    assert_eq!(queues(&world) - before, written);
}

/// However many change, one in a second. Those that do not change delay nobody.
#[test]
fn of_many_queues_that_change_each_one_s_numbers_are_written_in_as_many_seconds() {
    let written_in_24_seconds = |busy: usize| {
        let mut world = World::new(100);
        (0..40).for_each(|at| world.queue(&format!("q{at}"), &json!({"capability": {"cpu": "100"}})));
        world.pass(70);
        (0..busy).for_each(|at| world.job(&format!("first{at}"), &format!("q{at}"), 1));
        world.pass(5);
        let of_q0 = |world: &World| {
            world.writes.iter().filter(|write| write.resource.plural == "queues" && write.name == "q0").count()
        };
        let before = of_q0(&world);
        for at in 0..8 {
            world.job(&format!("j{at}"), "q0", 1);
            world.pass(3);
        }
        let written = of_q0(&world) - before;
        world.pass(60);
        assert_eq!(world.get("Queue", "q0")["status"]["inqueue"], 9);
        written
    };
    assert!((2..=3).contains(&written_in_24_seconds(1)));
    assert_eq!(written_in_24_seconds(40), 0);
}

#[test]
fn what_a_blocked_job_lacks_is_kept_for_it_after_a_minute_and_told() {
    let mut world = World::new(10);
    world.job("s0", "q", 4);
    world.job("big", "q", 10);
    world.job("s1", "q", 4);
    let mut released = world.settle();
    released.sort();
    assert_eq!(released, ["s0-job", "s1-job"]);
    world.pass(100);
    assert!(world.says("big").1.contains("what it lacks is reserved for it"), "{:?}", world.says("big"));
    world.job("s2", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.says("s2").0, "BlockedByReservation");
    world.delete("ResourceBinding", "s0-job");
    world.delete("ResourceBinding", "s1-job");
    assert_eq!(world.pass(1), ["big-job"]);
}

#[test]
fn clusters_are_kept_for_a_job_that_lacks_room() {
    let mut world = World::new(1000);
    world.cluster("m2", "100");
    let submit = |world: &mut World, name: &str, pods: u32| {
        world.job(name, "q", pods);
        let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
        world.patch("ResourceBinding", &format!("{name}-job"), &only);
    };
    submit(&mut world, "s0", 60);
    assert_eq!(world.settle(), ["s0-job"]);
    world.place("s0-job", 60);
    submit(&mut world, "big", 90);
    world.pass(100);
    assert!(world.says("big").1.contains("reserved for it in m1"), "{:?}", world.says("big"));
    submit(&mut world, "s1", 10);
    world.job("elsewhere", "q", 10);
    assert_eq!(world.pass(3), ["elsewhere-job"]);
    assert!(world.says("s1").1.contains("reserved for a job that ranks before it"), "{:?}", world.says("s1"));
    world.delete("ResourceBinding", "s0-job");
    let mut released = world.pass(1);
    released.sort();
    assert_eq!(released, ["big-job", "s1-job"]);
}

#[test]
fn a_job_that_ends_before_the_blocked_one_can_start_passes_it() {
    let mut world = World::new(10);
    let submit = |world: &mut World, name: &str, pods: u32, estimate: &str| {
        let mut object = job(name, "q", pods);
        object["metadata"]["annotations"]["caldera.dev/running-estimate"] = estimate.into();
        let object = world.put(object);
        world.bind(&object, pods, true);
    };
    submit(&mut world, "s0", 8, "1h");
    world.job("big", "q", 10);
    world.pass(100);
    assert!(world.says("big").1.contains("it starts at"), "{:?}", world.says("big"));
    submit(&mut world, "long", 1, "2h");
    submit(&mut world, "short", 1, "10m");
    assert_eq!(world.pass(1), ["short-job"]);
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    // After a minute its place is kept, which is told.
    world.pass(120);
    let before = world.writes.len();
    assert!(world.pass(120).is_empty());
    let binding = world.get("ResourceBinding", "b-job").clone();
    world.put(binding);
    world.pass(120);
    assert_eq!(world.writes.len(), before);
}

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
    world.patch(
        "Job",
        "a",
        &json!({"status": {"taskStatusCount": {"worker": {"phase": {"Succeeded": 3, "Running": 1}}}}}),
    );
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
    assert!(world.says("a").1.ends_with("; PriorityClass nowhere does not exist: priority 0 is assumed"));
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
    let told = ("Warning".to_owned(), "PriorityClassNotFound".to_owned());
    assert_eq!(world.events().iter().filter(|event| **event == told).count(), 1, "{:?}", world.events());
    world.restart();
    world.pass(40);
    assert_eq!(world.events().iter().filter(|event| **event == told).count(), 1, "told once");
}

#[test]
fn that_a_job_waits_for_another_reason_is_told_on_it() {
    let mut world = World::new(10);
    world.job("s0", "q", 4);
    world.job("big", "q", 10);
    world.pass(40);
    assert_eq!(world.events(), [("Normal".into(), "WaitingForQuota".into())], "the first reason");
    world.queue("q", &json!({"capability": {"cpu": "8"}}));
    world.pass(5);
    assert_eq!((world.events().len(), &world.events()[0]), (2, &("Warning".into(), "ExceedsCapability".into())));
    world.queue("q", &json!({"capability": {"cpu": "12"}}));
    world.pass(5);
    assert_eq!(world.events()[2..], [("Normal".into(), "WaitingForQuota".into())]);
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
    assert!(world.settle().is_empty());
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

/// With the webhook of queues away, each answer was followed by the next try: 21,807 in 54 s.
#[test]
fn a_default_queue_that_can_not_be_created_is_tried_less_and_less_often() {
    let mut world = World::empty();
    let away = || ("queues", Failure::Transient("failed calling webhook".into()));
    world.fail = std::iter::repeat_with(away).take(100_000).collect();
    world.pass(1);
    let tried = |world: &World| 100_000 - world.fail.len();
    assert_eq!(tried(&world), 1);
    world.pass(60);
    assert_eq!(tried(&world), 6, "after 1, 3, 7, 15 and 31 seconds");
    world.pass(3_600);
    assert!((50..70).contains(&tried(&world)), "{}", tried(&world));
    world.fail.clear();
    world.pass(65);
    assert_eq!(world.get("Queue", "default")["status"]["state"], "Open");
}

#[test]
fn a_pod_group_that_can_not_be_written_is_tried_less_and_less_often() {
    let mut world = World::new(10);
    let away = || ("podgroups", Failure::Transient("away".into()));
    world.fail = std::iter::repeat_with(away).take(100_000).collect();
    world.job("a", "q", 4);
    world.pass(600);
    let tried = 100_000 - world.fail.len();
    assert!((5..20).contains(&tried), "{tried}");
    world.fail.clear();
    world.pass(70);
    assert_eq!(world.says("a").0, "Admitted");
}

#[test]
fn an_existing_default_queue_is_left_alone() {
    let mut world = World::empty();
    world.queue("default", &json!({"priority": 7}));
    world.settle();
    assert_eq!(world.get("Queue", "default")["spec"], json!({"priority": 7}));
    assert!(world.writes.iter().all(|write| write.subresource == Some("status")), "{:?}", world.writes);
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
fn quota_without_room_is_no_release_and_names_what_is_short() {
    let mut world = World::new(1000);
    world.job("a", "q", 90);
    assert_eq!(world.settle(), ["a-job"]);
    world.job("b", "q", 20);
    assert!(world.settle().is_empty(), "what was promised to the first is not given away again");
    let (reason, message) = world.says("b");
    assert!(reason == "InsufficientCapacity" || reason == "WaitingForQuota", "{reason}: {message}");
    world.place("a-job", 90);
    world.phase("a", "Completed");
    assert_eq!(world.settle(), ["b-job"]);
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
    world.tell(&before, false);
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
    world.tell(&before, false);
    assert!(world.settle().is_empty());
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_conflict_is_decided_again_from_fresh_state() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.refuse = vec![Failure::Conflict("changed".into())];
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4", "it may have been stored: the quota is not given away");
    let binding = world.get("ResourceBinding", "a-job").clone();
    world.put(binding);
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_conflict_that_nothing_explains_is_looked_at_again() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.refuse = vec![Failure::Conflict("for no reason".into())];
    world.settle();
    assert_eq!(world.pass(6), ["a-job"]);
}

#[test]
fn a_release_without_an_answer_is_sent_again_and_can_only_succeed_once() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.refuse = vec![Failure::Transient("no answer".into())];
    assert_eq!(world.settle(), ["a-job"]);
    assert_eq!(world.used("q"), "4");
    assert_eq!(world.pass(2), ["a-job"]);
    assert_eq!(world.get("ResourceBinding", "a-job")["spec"]["suspension"]["scheduling"], false);
    assert_eq!(world.used("q"), "4");
}

#[test]
fn a_release_that_was_stored_stays_charged_however_late_the_watch_is() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    (world.lost, world.echo) = (1, false);
    world.settle();
    for _ in 0..120 {
        assert!(!world.pass(1).contains(&"b-job".to_owned()));
        assert_eq!(world.used("q"), "4");
    }
    let tries = world.writes.iter().filter(|write| write.resource.plural == "resourcebindings").count();
    assert!(tries < 8, "{tries} tries");
    world.echo = true;
    let stored = world.get("ResourceBinding", "a-job").clone();
    world.tell(&stored, false);
    assert!(world.pass(3).is_empty());
    assert_eq!((world.used("q").as_str(), world.says("a").0.as_str()), ("4", "Admitted"));
}

#[test]
fn a_release_that_is_refused_says_so_and_lets_others_pass() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    let refusal = Failure::Refused { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.refuse = vec![refusal];
    assert_eq!(world.settle(), ["a-job", "b-job"]);
    world.pass(3);
    assert_eq!(world.says("a").0, "NotReleased");
}

#[test]
fn a_job_with_a_deadline_goes_before_older_ones_without() {
    let mut world = World::new(4);
    world.job("runs", "q", 4);
    assert_eq!(world.settle(), ["runs-job"]);
    world.place("runs-job", 4);
    world.job("old", "q", 4);
    world.job("urgent", "q", 4);
    let annotations = json!({"metadata": {"annotations": {"volcano.sh/sla-waiting-time": "1h"}}});
    world.patch("Job", "urgent", &annotations);
    assert!(world.settle().is_empty());
    world.phase("runs", "Completed");
    assert_eq!(world.settle(), ["urgent-job"]);
}

#[test]
fn a_job_on_hold_waits_and_keeps_its_age() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/hold": "true"}}}));
    world.job("b", "q", 1);
    assert_eq!(world.settle(), ["b-job"]);
    assert_eq!(world.says("a").0, "OnHold");
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/hold": null}}}));
    world.delete("ResourceBinding", "b-job");
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn what_can_never_start_is_told_from_what_waits() {
    let mut world = World::new(4);
    world.job("big", "q", 5);
    world.job("fits", "q", 4);
    world.job("later", "q", 4);
    assert_eq!(world.settle(), ["fits-job"]);
    world.pass(3);
    let (reason, message) = world.says("big");
    assert_eq!(reason, "ExceedsCapability");
    assert_eq!(message, "can never start in queue q: needs cpu 5, more than 4, which is the capability of queue q");
    assert_eq!(world.says("later").0, "WaitingForQuota");
    assert_eq!(world.events().iter().filter(|(kind, _)| kind == "Warning").count(), 1);
    // Raising the limit is enough.
    world.delete("ResourceBinding", "fits-job");
    world.queue("q", &json!({"capability": {"cpu": "9"}}));
    assert_eq!(world.settle(), ["big-job", "later-job"]);
}

#[test]
fn garbage_is_told_and_delays_nobody() {
    let mut world = World::new(10);
    let mut garbage = job("garbage", "q", 2);
    garbage["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots".into();
    let garbage = world.put(garbage);
    world.bind(&garbage, 2, true);
    let mut negative = job("negative", "q", 2);
    negative["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1".into();
    let negative = world.put(negative);
    world.bind(&negative, 2, true);
    let mut empty = job("empty", "q", 2);
    empty["spec"]["tasks"] = json!([]);
    let empty = world.put(empty);
    world.bind(&empty, 0, true);
    let mut above = job("above", "q", 2);
    above["spec"]["minAvailable"] = 3.into();
    let above = world.put(above);
    world.bind(&above, 2, true);
    world.job("fine", "q", 2);
    assert_eq!(world.settle(), ["fine-job"]);
    for job in ["garbage", "negative", "empty", "above"] {
        let (reason, message) = world.says(job);
        assert_eq!(reason, "InvalidDemand", "{job}: {message}");
        assert!(message.starts_with("spec."), "{job}: {message}");
    }
}

#[test]
fn a_queue_with_garbage_says_so_to_its_jobs() {
    let mut world = World::new(10);
    world.queue("q", &json!({"capability": {"cpu": "ten", "memory": "1Gi"}, "guarantee": {"resource": {"cpu": "x"}}}));
    world.job("a", "q", 1);
    world.settle();
    assert!(world.says("a").1.contains("queue q: spec.capability.cpu: "), "{:?}", world.says("a"));
}

#[test]
fn foreign_bindings_are_charged_and_told() {
    let mut world = World::new(4);
    let a = world.put(job("a", "q", 3));
    world.bind(&a, 3, false);
    world.place("a-job", 3);
    world.job("b", "q", 2);
    assert!(world.settle().is_empty());
    assert_eq!(world.used("q"), "3");
    assert_eq!(world.says("a").0, "PlacedWithoutAdmission");
}

#[test]
fn what_is_not_in_scope_gets_no_podgroup() {
    let mut world = World::new(4);
    let deployment = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}}},
        })
    };
    let plain = world.put(deployment("plain", json!({})));
    world.bind(&plain, 2, false);
    world.place("plain-deployment", 2);
    world.settle();
    assert!(world.group("plain").is_null());
    assert_eq!(world.used("default"), "0");
    let queued = world.put(deployment("queued", json!({"scheduling.volcano.sh/queue-name": "q"})));
    world.bind(&queued, 2, true);
    assert_eq!(world.pass(4), ["queued-deployment"]);
    let name = format!("podgroup-{}", world.get("Deployment", "queued")["metadata"]["uid"].as_str().unwrap());
    assert_eq!(world.group("queued")["metadata"]["name"], name);
    assert_eq!(world.used("q"), "2");
    // A namespace may ask for all.
    let opted_in = NamespaceFacts { opted_in: true, ..NamespaceFacts::default() };
    let input = Input::Namespaces(caldera_runtime::watch::Event::Applied(("ns".into(), opted_in)));
    world.controller.observe(input, world.now);
    world.pass(2);
    assert_eq!(world.says("plain").0, "PlacedWithoutAdmission");
}

#[test]
fn eviction_puts_a_job_back_in_line_with_its_age() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.job("b", "q", 4);
    assert!(world.settle().is_empty());
    world.patch(
        "ResourceBinding",
        "a-job",
        &json!({
            "metadata": {"annotations": {"caldera.dev/gate": "closed", "caldera.dev/admission": null}},
            "spec": {"clusters": [], "suspension": {"scheduling": true}},
        }),
    );
    assert_eq!(world.settle(), ["a-job"]);
}

#[test]
fn a_restart_comes_to_the_same_books_and_releases_nothing_twice() {
    let mut world = World::new(10);
    for i in 0..6 {
        world.job(&format!("j{i}"), "q", 3);
    }
    assert_eq!(world.settle(), ["j0-job", "j1-job", "j2-job"]);
    world.place("j0-job", 3);
    world.pass(2);
    let mut again = World::new(10);
    again.now = world.now;
    again.objects = world.objects.clone();
    again.begin_anew();
    assert!(again.settle().is_empty());
    assert_eq!(again.used("q"), world.used("q"));
    assert!(again.writes.is_empty(), "{:?}", again.writes);
}

#[test]
fn nothing_is_decided_on_half_a_view() {
    let mut world = World::new(10);
    world.controller.objects.forget_listed(crate::observe::ObjectKind::Bindings);
    world.job("a", "q", 1);
    assert!(world.settle().is_empty());
}

#[test]
fn a_queue_s_status_is_open_and_counts() {
    let mut world = World::new(4);
    assert_eq!(world.get("Queue", "q")["status"]["state"], "Open");
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    world.pass(4);
    let status = &world.get("Queue", "q")["status"];
    assert_eq!(status["allocated"], json!({"cpu": "4", "pods": "4"}));
    assert_eq!((&status["pending"], &status["inqueue"]), (&json!(1), &json!(1)));
    world.delete("ResourceBinding", "a-job");
    world.delete("ResourceBinding", "b-job");
    world.pass(12);
    let status = &world.get("Queue", "q")["status"];
    assert_eq!((&status["allocated"], &status["pending"]), (&json!({}), &json!(0)));
}

#[test]
fn a_binding_that_goes_while_its_workload_stays_takes_the_podgroup_along() {
    let mut world = World::new(0);
    world.job("a", "q", 1);
    world.pass(4);
    assert!(!world.group("a").is_null());
    world.delete("ResourceBinding", "a-job");
    world.settle();
    assert!(world.group("a").is_null());
}

#[test]
fn a_deleted_podgroup_is_made_again() {
    let mut world = World::new(2);
    world.job("a", "q", 2);
    world.job("b", "q", 2);
    world.pass(2);
    let name = world.group("b")["metadata"]["name"].as_str().unwrap().to_owned();
    world.delete("PodGroup", &name);
    world.pass(2);
    assert_eq!(world.says("b").0, "WaitingForQuota");
}

#[test]
fn numbers_alone_are_refreshed_seldom() {
    let mut world = World::new(2);
    for i in 0..4 {
        world.job(&format!("j{i}"), "q", 2);
    }
    world.pass(2);
    assert!(world.says("j3").1.contains("position 3 of 3"));
    world.delete("ResourceBinding", "j1-job");
    world.pass(5);
    assert!(world.says("j3").1.contains("position 3 of 3"), "too early: {:?}", world.says("j3"));
    world.pass(30);
    assert!(world.says("j3").1.contains("position 2 of 2"), "{:?}", world.says("j3"));
}

#[test]
fn other_clusters_are_told_at_once() {
    let mut world = World::new(4);
    world.cluster("m2", "100");
    world.job("a", "q", 4);
    world.settle();
    world.place("a-job", 4);
    world.pass(5);
    assert!(world.says("a").1.starts_with("placed on m1"), "{:?}", world.says("a"));
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": clusters}}));
    world.pass(2);
    assert!(world.says("a").1.contains("m2"), "{:?}", world.says("a"));
}

#[test]
fn a_scheduler_that_is_away_for_some_minutes_finds_all_as_it_was() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    assert!(world.pass(590).is_empty());
    assert_eq!(world.says("a").0, "Admitted");
    assert_eq!(world.pass(20), ["b-job"]);
}

#[test]
fn who_is_not_placed_within_a_minute_gives_its_quota_back_and_keeps_its_age() {
    let mut world = World::new(4);
    world.job("a", "q", 4);
    world.job("b", "q", 4);
    assert_eq!(world.settle(), ["a-job"]);
    let refused = json!({"type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": "0 of 1 clusters fit", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.patch("ResourceBinding", "a-job", &json!({"status": {"conditions": [refused]}}));
    assert!(world.pass(58).is_empty());
    assert_eq!(world.pass(5), ["b-job"]);
    assert_eq!(world.says("a").0, "Requeued");
    let binding = world.get("ResourceBinding", "a-job");
    assert_eq!(binding["spec"]["suspension"], json!({"scheduling": true}));
    assert!(binding["metadata"]["annotations"]["caldera.dev/admission"].is_null());
    world.place("b-job", 4);
    world.restart();
    world.pass(70);
    assert_eq!(world.says("a").0, "WaitingForQuota");
    // It tries again, and waits longer the next time.
    world.delete("ResourceBinding", "b-job");
    assert_eq!(world.pass(1), ["a-job"]);
    assert!(world.pass(60 + 110).is_empty());
    assert_eq!(world.pass(60), ["a-job"]);
    world.place("a-job", 4);
    assert!(world.pass(300).is_empty());
    assert_eq!(world.says("a").0, "Placed");
}
