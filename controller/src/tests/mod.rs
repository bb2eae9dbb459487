//! The controller's rules by name, on a host of a few lines ([`world`]).

mod admission_events;
mod autoscaling;
mod capacity_reservations;
mod card_quota;
mod cluster_choice;
mod coalesced_writes;
mod cron_jobs;
mod data_catalogue;
mod data_claims;
mod decision_log;
mod defects;
mod ended_jobs;
mod explain;
mod failed_job;
mod fleet;
mod foresight;
mod forged_record;
mod group_pods;
mod growth;
mod hyper_jobs;
mod image_locality;
mod job_commands;
mod job_gangs;
mod lifecycle;
mod link_aware;
mod load_aware;
mod maintenance;
mod measure;
mod member_loss;
mod min_success;
mod node_groups;
mod old_copies;
mod orphan_copy;
mod own_grants;
mod pod_group_names;
mod pods_ready;
mod policy_restart;
mod preemption;
mod queue_annotations;
mod queue_limits;
mod recorded_actions;
mod refused_copy;
mod reported_places;
mod reservations;
mod resize;
mod run_limits;
mod running_limits;
mod sent_writes;
mod shadow;
mod silent_copy;
mod snapshot;
mod stale_grant;
mod state;
mod tenancy;
mod ttl;
mod two;
mod unanswered_release;
mod unreported_copy;
mod unsound;
mod usage;
mod waiting_state;
mod withdrawal;
mod world;

use caldera_crds::tenancy::NamespaceFacts;
use serde_json::{Value, json};

use self::world::{World, job};
use crate::observe::Input;

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
    assert_eq!(group["metadata"]["name"], "a-vcjob");
    assert_eq!(group["metadata"]["ownerReferences"][0]["uid"], workload["metadata"]["uid"]);
    assert!(world.events().is_empty(), "who does not wait needs no telling: {:?}", world.events());
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
    let (reason, message) = world.says("s1");
    assert_eq!(reason, "ClustersReserved");
    assert!(message.contains("reserved for a job that ranks before it"), "{message}");
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
fn quota_without_room_is_no_release_and_names_what_is_short() {
    let mut world = World::new(1000);
    world.job("a", "q", 90);
    assert_eq!(world.settle(), ["a-job"]);
    world.job("b", "q", 20);
    assert!(world.pass(2).is_empty(), "what was promised to the first is not given away again");
    let (reason, message) = world.says("b");
    assert!(reason == "InsufficientCapacity" || reason == "WaitingForQuota", "{reason}: {message}");
    world.place("a-job", 90);
    world.phase("a", "Completed");
    assert_eq!(world.settle(), ["b-job"]);
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
fn garbage_is_reported_and_delays_nobody() {
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
    // Of a kind that is not refused at submission.
    let mut claims = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "claims", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
    });
    claims["spec"]["template"]["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
    let claims = world.put(claims);
    world.bind(&claims, 1, true);
    world.job("fine", "q", 2);
    assert_eq!(world.settle(), ["fine-job"]);
    for job in ["garbage", "negative", "empty", "above", "claims"] {
        let (reason, message) = world.says(job);
        assert_eq!(reason, "InvalidDemand", "{job}: {message}");
        assert!(message.starts_with("spec."), "{job}: {message}");
    }
}

/// Their bindings' UIDs, and the names that a directory lists them by, say nothing of it.
#[test]
fn jobs_of_one_second_start_in_the_order_in_which_they_were_submitted() {
    let mut world = World::new(100);
    world.queue("q", &json!({}));
    let second = caldera_runtime::clock::format_time(world.now);
    let second = second.trim_end_matches('Z');
    let mut submitted = Vec::new();
    for at in 0..30_u32 {
        // Bound in another order than the one in which they came.
        let turn = at * 7 % 30;
        let mut one = job(&format!("j{at:02}"), "q", 1);
        one["metadata"]["annotations"] = json!({"caldera.dev/submitted": format!("{second}.{:06}Z", 1 + turn * 20)});
        let one = world.put(one);
        world.bind(&one, 1, true);
        submitted.push((turn, format!("j{at:02}-job")));
    }
    submitted.sort();
    let expected: Vec<String> = submitted.into_iter().map(|(_, name)| name).collect();
    assert_eq!(world.settle(), expected);
}

/// Of two jobs the first is stamped as earlier; who starts first where there is room for one.
fn first_of_two(stamped_before: i64, bound_after: i64) -> Vec<String> {
    let mut world = World::new(1);
    let stamp = |world: &World, before: i64| {
        caldera_runtime::clock::format_time(world.now.saturating_sub(jiff::SignedDuration::from_secs(before)).unwrap())
    };
    let mut early = job("early", "q", 1);
    early["metadata"]["creationTimestamp"] = stamp(&world, stamped_before).into();
    early["metadata"]["annotations"] = json!({"caldera.dev/submitted": stamp(&world, stamped_before)});
    let early = world.put(early);
    let mut bound = job("bound", "q", 1);
    bound["metadata"]["annotations"] = json!({"caldera.dev/submitted": stamp(&world, 0)});
    let bound = world.put(bound);
    world.bind(&bound, 1, true);
    world.now = world.now.saturating_add(jiff::SignedDuration::from_secs(bound_after)).unwrap();
    world.bind(&early, 1, true);
    world.settle()
}

/// It was there for an hour before a policy selected it.
#[test]
fn a_job_is_as_old_as_its_binding_whatever_its_stamp_says() {
    assert_eq!(first_of_two(3600, 1), ["bound-job"]);
    assert_eq!(first_of_two(10, 1), ["bound-job"], "nor does a clock that is wrong put it before an earlier second");
    assert_eq!(first_of_two(10, 0), ["early-job"], "of one second");
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
    assert_eq!(world.group("queued")["metadata"]["name"], "queued-deployment");
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
