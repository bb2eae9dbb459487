//! What the controller granted itself stays charged until it is known to hold nothing, and is no forgery.

use serde_json::json;

use super::{
    forged_record::{annotation, assert_record, forge, record, world},
    world::{World, job},
};

/// A Deployment of two pods that runs in queue q.
fn run_web(world: &mut World) {
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    });
    let web = world.put(web);
    world.bind(&web, 2, true);
    assert_eq!(world.settle(), ["web-deployment"]);
    world.place("web-deployment", 2);
    world.settle();
}

#[test]
fn a_grant_without_an_epoch_is_granted_anew_or_taken_back_as_a_stale_one() {
    let mut world = world();
    world.job("first", "q", 2);
    world.settle();
    world.job("a", "q", 2);
    world.settle();
    forge(&mut world, "a-job", &record("q", 2, "2"), None, &json!([]));
    world.pass(2);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_null(), "the queue is full");
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_is_not_seen_for_a_while_keeps_its_charge() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    // A list of jobs that is older than the one of bindings: the scheduler may place it at any time.
    world.delete("Job", "a");
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_was_never_seen_keeps_its_charge_until_its_grant_is_taken_back() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.delete("Job", "a");
    world.job("b", "q", 2);
    world.begin_anew();
    assert!(world.pass(59).is_empty());
    assert_eq!(world.used("q"), "2", "a list of jobs may be older than the one of bindings");
    assert!(!annotation(&world, "a-job", "caldera.dev/admission").is_null());
    assert_eq!(world.pass(3), ["b-job"]);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_null());
    // One that comes in time keeps what it was granted.
    let seen_late = world.get("Job", "b").clone();
    world.delete("Job", "b");
    world.begin_anew();
    world.pass(30);
    world.put(seen_late);
    world.pass(60);
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_is_scaled_down_keeps_its_charge_until_a_smaller_record_is_stored() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    // Its user suspends it before it is placed.
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"suspension": {"scheduling": true}}}));
    world.settle();
    world.job("b", "q", 1);
    world.patch("Job", "a", &job("a", "q", 1));
    assert_eq!(world.used("q"), "2", "it may be scaled up again");
    assert_eq!(world.settle(), ["b-job"]);
    assert_record(&world, "a-job", &record("q", 1, "1"));
    world.patch("Job", "a", &job("a", "q", 2));
    world.settle();
    assert_eq!(world.used("q"), "2");
}

#[test]
fn a_granted_job_that_was_scaled_down_while_no_controller_ran_keeps_its_charge_until_its_record_is_cut() {
    let mut world = world();
    world.job("a", "q", 2);
    assert_eq!(world.settle(), ["a-job"]);
    world.patch("Job", "a", &job("a", "q", 1));
    world.begin_anew();
    assert_eq!(world.used("q"), "2");
    world.settle();
    assert_eq!(world.used("q"), "1");
    assert_record(&world, "a-job", &record("q", 1, "1"));
}

#[test]
fn pods_beyond_a_record_that_was_cut_are_charged_by_the_next_controller_too() {
    let mut world = world();
    run_web(&mut world);
    world.patch("Deployment", "web", &json!({"spec": {"replicas": 1}}));
    world.settle();
    let record = annotation(&world, "web-deployment", "caldera.dev/admission").to_string();
    assert!(record.contains("\\\"pods\\\":1"), "{record}");
    assert_eq!(world.used("q"), "2", "the scheduler has not cut its clusters yet");
    world.begin_anew();
    assert_eq!(world.used("q"), "2");
    // Whichever is listed first.
    let member = world.get("Cluster", "m1").clone();
    world.delete("Cluster", "m1");
    world.begin_anew();
    assert_eq!(world.used("q"), "1");
    world.put(member.clone());
    world.list_clusters(vec![member]);
    assert_eq!(world.used("q"), "2");
    // Of clusters that there are not, nothing is charged.
    let elsewhere = json!([{"name": "m1", "replicas": 1}, {"name": "nowhere", "replicas": 2_147_483_647}]);
    world.patch("ResourceBinding", "web-deployment", &json!({"spec": {"clusters": elsewhere}}));
    world.begin_anew();
    assert_eq!(world.used("q"), "1");
    world.place("web-deployment", 1);
    world.settle();
    assert_eq!(world.used("q"), "1");
}

#[test]
fn a_grant_whose_answer_is_lost_is_no_forgery() {
    let mut world = world();
    world.lost = 2;
    world.job("a", "q", 2);
    world.pass(20);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_string());
    world.begin_anew();
    world.pass(20);
    assert!(annotation(&world, "a-job", "caldera.dev/admission").is_string());
    assert!(!world.events().contains(&("Warning".into(), "ForgedRecord".into())));
}

#[test]
fn who_names_another_queue_while_it_runs_waits_in_that() {
    let mut world = world();
    run_web(&mut world);
    let queue = json!({"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}});
    world.patch("Deployment", "web", &queue);
    assert_eq!(world.used("q"), "0");
    assert_eq!(world.pass(2), ["web-deployment"]);
    assert_eq!((world.used("other").as_str(), world.used("q").as_str()), ("2", "0"));
    assert!(world.events().contains(&("Normal".into(), "QueueChanged".into())), "{:?}", world.events());
    assert!(!world.events().contains(&("Warning".into(), "ForgedRecord".into())));
}

#[test]
fn a_status_that_says_the_end_of_what_is_nowhere_frees_nothing() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.phase("a", "Completed");
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
}

/// Found by the simulation: the tenant wrote it before the job was admitted, and then the job grew beyond its queue.
#[test]
fn a_status_that_says_that_pods_ended_frees_nothing_before_the_clusters_say_so() {
    let mut world = world();
    world.job("a", "q", 2);
    let ended = json!({"state": {"phase": "Running"}, "taskStatusCount": {"worker": {"phase": {"Succeeded": 9}}}});
    world.patch("Job", "a", &json!({"status": ended}));
    world.settle();
    world.place("a-job", 2);
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
    let reported = |count: u32| {
        let status =
            json!({"state": {"phase": "Running"}, "taskStatusCount": {"worker": {"phase": {"Succeeded": count}}}});
        // The second word about a cluster counts for nothing, nor does one about a cluster that it is not in.
        let items = ["m1", "m1", "m2"].map(|cluster| json!({"clusterName": cluster, "status": status}));
        json!({"status": {"aggregatedStatus": items}})
    };
    world.patch("ResourceBinding", "a-job", &reported(0));
    assert_eq!(world.used("q"), "2");
    world.patch("ResourceBinding", "a-job", &reported(1));
    assert_eq!(world.used("q"), "1");
}

/// Volcano forgets the counts of a copy that has completed (volcano#4616).
#[test]
fn of_a_copy_that_has_ended_as_a_whole_all_pods_may_have_ended() {
    let mut world = World::new(10);
    world.job("a", "q", 4);
    world.settle();
    let both = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": both}}));
    let items = json!([
        {"clusterName": "m1", "status": {"state": {"phase": "Completed"}}},
        {"clusterName": "m2", "status": {"state": {"phase": "Running"}}},
    ]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    let merged = |ended: u32| json!({"status": {"state": {"phase": "Running"}, "taskStatusCount": {"worker": {"phase": {"Succeeded": ended}}}}});
    world.patch("Job", "a", &merged(3));
    assert_eq!(world.used("q"), "1");
    world.patch("Job", "a", &merged(4));
    assert_eq!(world.used("q"), "1", "what m2 has not said is not believed");
}

/// Its own status, which Karmada makes of its Works, has to say so too.
#[test]
fn a_status_of_a_binding_that_says_the_end_of_a_placed_job_frees_nothing_alone() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    let items = json!([{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    world.job("b", "q", 2);
    assert!(world.pass(3).is_empty());
    assert_eq!(world.used("q"), "2");
    world.phase("a", "Completed");
    assert_eq!(world.used("q"), "0");
}

/// Found by the simulation: a second copy began when the first had completed, and others had its quota.
#[test]
fn the_end_is_not_believed_before_a_cluster_that_was_added_has_told_a_status() {
    let mut world = world();
    world.job("a", "q", 2);
    world.settle();
    world.place("a-job", 2);
    world.phase("a", "Completed");
    assert_eq!(world.used("q"), "0");
    let both = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": both}}));
    assert_eq!(world.used("q"), "2");
    // Karmada writes what the copies say into the binding first.
    let reported = |phase: &str| json!({"state": {"phase": phase}});
    let items = json!([
        {"clusterName": "m1", "status": reported("Completed")},
        {"clusterName": "m2", "status": reported("Running")},
    ]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": items}}));
    assert_eq!(world.used("q"), "2");
    world.phase("a", "Completed");
    assert_eq!(world.used("q"), "0");
}
