//! Clusters that are lost.

mod left_copies;

use std::collections::BTreeSet;

use caldera_core::{
    fleet::Update,
    gang::ClusterName,
    inventory::{Change, Node, Owner, Pod},
    quantity::Quantity,
};
use caldera_crds::{
    karmada::work::Work,
    names::caldera::{EVICTION, FENCED_AT},
};
use caldera_runtime::{clock::format_time, watch::Event, write::Failure};
use serde_json::{Value, json};

use super::{
    sent_writes::{IN_AN_HOUR, count_unseen},
    world::World,
};
use crate::{
    decide::{MemberLoss, decide},
    observe::{Input, WorkFacts},
    write::Decision,
};

/// Job `a` of five pods in m1 and m2, running.
fn split() -> World {
    let mut world = World::new(10);
    world.cluster("m2", "100");
    world.job("a", "q", 5);
    assert_eq!(world.settle(), ["a-job"]);
    place(&mut world);
    world.phase("a", "Running");
    world.settle();
    world
}

fn place(world: &mut World) {
    let clusters = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 2}]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": clusters}}));
}

fn set_ready(world: &mut World, cluster: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let at = format_time(world.now);
    let ready = json!({"type": "Ready", "status": status, "reason": "r", "message": "m", "lastTransitionTime": at});
    world.patch("Cluster", cluster, &json!({"status": {"conditions": [ready]}}));
    world.settle();
}

fn works(cluster: &str, of: &[&str]) -> Input {
    let work = |name: &&str| {
        let annotations = json!({
            "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": format!("{name}-job"),
        });
        let work: Work = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-x"), "namespace": "karmada-es-m2", "annotations": annotations}, "spec": {},
        }))
        .unwrap();
        assert!(WorkFacts::read(&work).is_none(), "it was never sent");
        let mut work = serde_json::to_value(&work).unwrap();
        let at = "2026-01-01T00:00:00Z";
        let applied =
            json!({"type": "Applied", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": at});
        work["status"] = json!({"conditions": [applied]});
        WorkFacts::read(&serde_json::from_value(work).unwrap()).unwrap()
    };
    Input::Works(cluster.into(), Event::Reset(of.iter().map(work).collect()))
}

fn report(world: &mut World, input: Input) -> Vec<String> {
    world.controller.observe(input, world.now);
    world.settle()
}

/// Karmada deletes what it can reach: it lists no copy that is on its way out.
fn copies_go(world: &mut World) {
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": null}}));
    world.settle();
}

fn eviction(world: &World) -> Value {
    let record = &world.get("ResourceBinding", "a-job")["metadata"]["annotations"][EVICTION];
    record.as_str().map_or(Value::Null, |record| serde_json::from_str(record).unwrap())
}

fn watched(world: &World) -> BTreeSet<ClusterName> {
    world.controller.list_clusters_to_watch_works()
}

#[test]
fn a_gang_in_a_lost_cluster_is_withdrawn_whole_and_its_charge_returns() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    assert_eq!(watched(&world), ["m2".into()].into());
    world.pass(298);
    assert!(eviction(&world).is_null(), "it may come back");
    world.pass(5);
    let record = eviction(&world);
    assert_eq!((&record["reason"], &record["avoid"]), (&json!("MemberLost"), &json!(["m2"])), "{record}");
    let binding = world.get("ResourceBinding", "a-job");
    assert!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "{binding}");
    // Others have the quota of ten: a job of all of it starts.
    copies_go(&mut world);
    world.job("b", "q", 10);
    assert_eq!(world.pass(5), ["b-job"]);
}

#[test]
fn that_a_gang_is_withdrawn_is_reported_once_it_is_written() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.refuse_evictions = vec![Failure::Transient("busy".into()), Failure::Transient("busy".into())];
    let reported = |world: &World| world.events().into_iter().filter(|(_, reason)| reason == "MemberLost").count();
    world.pass(305);
    assert!(eviction(&world).is_null());
    assert_eq!(reported(&world), 0, "nothing was written");
    world.pass(900);
    assert_eq!((&eviction(&world)["reason"], reported(&world)), (&json!("MemberLost"), 1));
}

#[test]
fn it_runs_a_second_time_only_once_its_old_copy_is_known_to_be_gone() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    copies_go(&mut world);
    assert!(world.pass(900).is_empty(), "nobody has looked for its Work");
    assert!(report(&mut world, works("m2", &["a", "other"])).is_empty());
    assert!(world.pass(900).is_empty(), "its Work is there");
    let (reason, message) = world.says("a");
    assert_eq!(reason, "Requeued");
    assert!(message.contains("m2 is lost since") && message.contains(FENCED_AT), "{message}");
    // A restart forgets none of it.
    world.restart();
    assert!(world.pass(60).is_empty());
    assert!(report(&mut world, works("m2", &["a"])).is_empty());
    // It is back, and Karmada has cleaned it.
    set_ready(&mut world, "m2", true);
    assert_eq!(watched(&world), ["m2".into()].into(), "the job waits for its Work yet");
    assert!(world.pass(60).is_empty());
    assert_eq!(report(&mut world, works("m2", &[])), ["a-job"]);
    place(&mut world);
    assert_eq!(watched(&world), BTreeSet::new());
}

#[test]
fn an_admins_word_fences_a_cluster_for_this_loss_and_for_no_later_one() {
    let mut world = split();
    let said_before = format_time(world.now);
    world.pass(10);
    set_ready(&mut world, "m2", false);
    let fence = |world: &mut World, at: String| {
        world.patch("Cluster", "m2", &json!({"metadata": {"annotations": {FENCED_AT: at}}}));
        world.settle()
    };
    fence(&mut world, said_before);
    world.pass(305);
    copies_go(&mut world);
    report(&mut world, works("m2", &["a"]));
    assert!(world.pass(60).is_empty(), "that was said of another loss");
    let now = format_time(world.now);
    assert_eq!(fence(&mut world, now), ["a-job"]);
}

/// Found by the demo: Karmada looks at a status again when a Work changed its own, so that a copy in a cluster that is
/// off stays listed where it was the only one.
#[test]
fn a_copy_that_is_still_listed_in_a_fenced_cluster_holds_nobody_back() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    let item = json!({"clusterName": "m2", "applied": true, "status": {"state": {"phase": "Running"}}});
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": [item]}}));
    report(&mut world, works("m2", &["a"]));
    assert!(world.pass(60).is_empty(), "it may run there");
    let now = format_time(world.now);
    world.patch("Cluster", "m2", &json!({"metadata": {"annotations": {FENCED_AT: now}}}));
    // Members forget a job in three minutes at most; what is listed would count for ten.
    assert_eq!(world.pass(185), ["a-job"]);
}

#[test]
fn a_cluster_that_is_unjoined_holds_nobody_back() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    copies_go(&mut world);
    assert!(report(&mut world, works("m2", &["a"])).is_empty());
    world.delete("Cluster", "m2");
    assert_eq!(world.pass(10), ["a-job"]);
}

#[test]
fn a_blink_moves_nothing() {
    let mut world = split();
    world.pass(70);
    set_ready(&mut world, "m2", false);
    world.pass(200);
    set_ready(&mut world, "m2", true);
    world.pass(30);
    set_ready(&mut world, "m2", false);
    world.pass(200);
    assert!(eviction(&world).is_null(), "it was never lost for long");
}

#[test]
fn a_part_that_ended_takes_nothing_with_it() {
    let mut world = split();
    let reported = json!([
        {"clusterName": "m1", "applied": true, "status": {"state": {"phase": "Running"}}},
        {"clusterName": "m2", "applied": true, "status": {"state": {"phase": "Completed"}}},
    ]);
    world.patch("ResourceBinding", "a-job", &json!({"status": {"aggregatedStatus": reported}}));
    set_ready(&mut world, "m2", false);
    world.pass(400);
    assert!(eviction(&world).is_null());
}

/// A part did not start in time.
fn time_out(world: &mut World, late: &str) {
    let record = json!({
        "count": 0, "requeues": 1, "at": 1_000_000, "until": 1_000_060, "preemptor": "", "reason": "PodsReadyTimeout",
        "message": "0 of the 2 pods needed are on nodes after 300 s", "avoid": [late],
    });
    let annotations = json!({
        "caldera.dev/eviction": record.to_string(), "caldera.dev/admission": null, "caldera.dev/plan": null,
        "caldera.dev/gate": "closed",
    });
    let spec = json!({"clusters": [], "suspension": {"scheduling": true}});
    world.patch("ResourceBinding", "a-job", &json!({"metadata": {"annotations": annotations}, "spec": spec}));
    copies_go(world);
}

#[test]
fn a_gang_of_which_a_part_never_started_waits_for_no_lost_cluster() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    report(&mut world, works("m2", &["a"]));
    time_out(&mut world, "m2");
    assert_eq!(world.pass(100), ["a-job"]);
}

/// Takes a job off its clusters and lets it run again.
fn suspend_and_resume(world: &mut World) {
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": "true"}}}));
    world.settle();
    copies_go(world);
    world.patch("Job", "a", &json!({"metadata": {"annotations": {"caldera.dev/suspended": null}}}));
}

#[test]
fn a_lost_cluster_where_a_part_never_started_is_not_waited_for_after_a_later_withdrawal_either() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    report(&mut world, works("m2", &["a"]));
    time_out(&mut world, "m2");
    assert_eq!(world.pass(100), ["a-job"]);
    for _ in 0..2 {
        world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m1", "replicas": 5}]}}));
        suspend_and_resume(&mut world);
        assert_eq!(world.pass(100), ["a-job"], "{}", eviction(&world));
        assert_eq!(eviction(&world)["unstarted"], json!(["m2"]));
    }
    // In m2 again, who knows what started there.
    place(&mut world);
    suspend_and_resume(&mut world);
    assert!(world.pass(2000).is_empty(), "it would run twice");
    assert!(eviction(&world)["unstarted"].is_null());
}

#[test]
fn a_cluster_that_is_back_is_waited_for_even_where_a_part_never_started() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    report(&mut world, works("m2", &["a"]));
    time_out(&mut world, "m2");
    assert_eq!(world.pass(100), ["a-job"]);
    world.patch("ResourceBinding", "a-job", &json!({"spec": {"clusters": [{"name": "m1", "replicas": 5}]}}));
    set_ready(&mut world, "m2", true);
    suspend_and_resume(&mut world);
    assert!(world.pass(100).is_empty(), "Karmada has not cleaned it");
    assert_eq!(report(&mut world, works("m2", &[])), ["a-job"]);
}

#[test]
fn what_is_evicted_while_its_cluster_is_lost_waits_for_its_old_copy_too() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    report(&mut world, works("m2", &["a"]));
    suspend_and_resume(&mut world);
    assert!(world.pass(2000).is_empty(), "it would run twice");
    // A restart does not know yet what Works there are.
    world.restart();
    assert!(world.pass(60).is_empty(), "nobody has listed the Works");
    assert!(report(&mut world, works("m2", &["a"])).is_empty());
    // It is back, and Karmada has not cleaned it.
    set_ready(&mut world, "m2", true);
    assert_eq!(watched(&world), ["m2".into()].into());
    assert!(world.pass(60).is_empty(), "its Work is there");
    assert_eq!(report(&mut world, works("m2", &[])), ["a-job"]);
    assert_eq!(watched(&world), BTreeSet::new());
    // What the watch sent before it ended is of no account.
    world.controller.observe(Input::WorksUnwatched("m2".into()), world.now);
    report(&mut world, works("m2", &["a"]));
    assert_eq!(watched(&world), BTreeSet::new());
}

#[test]
fn a_gang_of_which_a_part_never_started_waits_for_its_parts_that_did() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    report(&mut world, works("m2", &["a"]));
    time_out(&mut world, "m1");
    assert!(world.pass(100).is_empty(), "its part in m2 ran");
    assert_eq!(report(&mut world, works("m2", &[])), ["a-job"]);
}

#[test]
fn an_admins_word_of_a_time_to_come_fences_nothing() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    copies_go(&mut world);
    report(&mut world, works("m2", &["a"]));
    world.patch("Cluster", "m2", &json!({"metadata": {"annotations": {FENCED_AT: "2099-01-01T00:00:00Z"}}}));
    assert!(world.pass(60).is_empty(), "a wrong year would fence every later loss");
}

/// A member tells its pods once its Work is gone: they have their grace period.
#[test]
fn what_was_lost_for_long_waits_for_its_pods_to_end_when_it_is_back() {
    let mut world = split();
    set_ready(&mut world, "m2", false);
    world.pass(305);
    copies_go(&mut world);
    report(&mut world, works("m2", &["a"]));
    world.pass(2000);
    set_ready(&mut world, "m2", true);
    let pod = |finished: bool| {
        Input::Member(
            "m2".into(),
            Update::Change(Change::Pod(Pod {
                namespace: "ns".into(),
                name: "a-0".into(),
                node: Some("n".into()),
                request: [("cpu", Quantity::from_units(1))].into_iter().collect(),
                finished,
                owner: Some(Owner {
                    group: "batch.volcano.sh".into(),
                    kind: "Job".into(),
                    name: "a".into(),
                    task: Some("worker".into()),
                }),
            })),
        )
    };
    let cpu = [("cpu", Quantity::from_units(50)), ("pods", Quantity::from_units(100))];
    let node = Node { name: "n".into(), allocatable: cpu.into_iter().collect(), ready: true, ..Node::default() };
    for update in [Update::Up, Update::Change(Change::Nodes(vec![node])), Update::Change(Change::Pods(vec![]))] {
        report(&mut world, Input::Member("m2".into(), update));
    }
    report(&mut world, pod(false));
    assert!(report(&mut world, works("m2", &[])).is_empty(), "its pod is ending");
    assert!(world.pass(60).is_empty());
    assert!(report(&mut world, pod(true)).is_empty(), "m2 would forget the new copy with the old one");
    assert!(world.pass(59).is_empty());
    assert_eq!(world.pass(3), ["a-job"]);
}

#[test]
fn where_no_cluster_is_ever_lost_the_controller_rests() {
    let mut world = World::new(10);
    world.controller.member_loss = MemberLoss::new(None);
    set_ready(&mut world, "m1", false);
    world.pass(600);
    assert!(decide(&mut world.controller, world.now).next.is_none_or(|next| next > world.now));
}

#[test]
fn a_job_that_left_a_lost_cluster_long_ago_and_is_released_again_is_not_decided_about_each_second() {
    let mut world = split();
    let at = world.now.as_second();
    let record = json!({
        "count": 0, "requeues": 1, "at": at - 700, "until": at - 690, "preemptor": "", "reason": "MemberLost",
        "message": "m2 is lost", "avoid": [],
    });
    let metadata = json!({"annotations": {EVICTION: record.to_string()}});
    let spec = json!({"clusters": [], "suspension": {"scheduling": false}});
    world.patch("Job", "a", &json!({"status": {"running": 0, "state": {"phase": "Pending"}}}));
    let status = json!({"aggregatedStatus": null});
    world.patch("ResourceBinding", "a-job", &json!({"metadata": metadata, "spec": spec, "status": status}));
    world.pass(5);
    let swept = world.controller.reasons.last;
    world.pass(30);
    assert_eq!(world.controller.reasons.last, swept, "nothing has changed");
}
