//! Decisions from objects as they come from the API, without an API.

mod applied_placement;
mod assumed;
mod autoscaling;
mod cluster_choice;
mod data_claims;
mod ended_job;
mod first_status;
mod grants;
mod image_locality;
mod maintenance;
mod numa;
mod parity;
mod ranking;
mod staying;
mod topology;
mod writes;

use std::collections::BTreeMap;

use caldera_core::{
    fleet::{Fleet, MemberVolcanoQueue, Update},
    inventory::{Change, Node},
    place,
    quantity::Quantity,
    resources::Resources,
};
use caldera_crds::{karmada::cluster::Cluster, workload::WorkloadKind};
use caldera_runtime::{watch::Event, write::Body};
use serde_json::{Value, json};

use crate::{
    decide::placement::{self, SchedulingContext, Step, Verdict},
    observe::{
        binding::{Binding, BindingKey},
        cache::{Cache, WorkloadRequest, read_workload},
    },
    write::{binding_writes, confirmations::Confirmations},
};

/// A decision without any answers of estimators.
fn decide_binding(
    binding: &Binding,
    request: Option<&WorkloadRequest>,
    context: SchedulingContext,
    fleet: &Fleet,
) -> Verdict {
    placement::decide_binding(binding, request, context, fleet, &BTreeMap::new())
}

fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn key() -> BindingKey {
    BindingKey { namespace: "ns".into(), name: "train-job".into() }
}

fn job(replicas: u32, min: u32) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "uid": "j"},
        "spec": {"minAvailable": min, "tasks": [{
            "name": "w", "replicas": replicas, "minAvailable": min,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        }]},
    })
}

fn binding(admitted: u32) -> Value {
    let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": admitted}, "charged": {}});
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": "train-job", "namespace": "ns", "uid": "b", "resourceVersion": "7", "generation": 2,
            "annotations": {"caldera.dev/gate": "open", "caldera.dev/admission": admission.to_string()},
        },
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "train", "uid": "j"},
            "replicas": admitted, "schedulerName": "caldera", "suspension": {"scheduling": false},
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            }},
        },
    })
}

fn cluster(name: &str) -> Value {
    json!({
        "metadata": {"name": name}, "spec": {"syncMode": "Push"},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "apiEnablements": [{
                "groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}],
            }],
        },
    })
}

/// Members with one node each of so many cores, and the objects.
fn index(cores: &[i64], objects: &[Value]) -> Cache {
    let mut index = Cache::default();
    let clusters: Vec<Cluster> =
        (0..cores.len()).map(|i| serde_json::from_value(cluster(&format!("m{i}"))).unwrap()).collect();
    index.apply_clusters(Event::Reset(clusters));
    for (i, cores) in cores.iter().enumerate() {
        set_cores(&mut index, i, *cores);
        index.apply_member(&format!("m{i}"), Update::Change(Change::Pods(vec![])));
    }
    for object in objects {
        match read_workload(object) {
            Some(workload) => {
                index.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(workload));
            }
            None => index.update_binding(Binding::parse_binding(object).unwrap()),
        }
    }
    index
}

fn set_cores(index: &mut Cache, member: usize, cores: i64) {
    let allocatable: Resources =
        [("cpu", Quantity::from_units(cores)), ("pods", Quantity::from_units(100))].into_iter().collect();
    let node = Node { name: "n".into(), allocatable, ready: true, ..Node::default() };
    index.apply_member(&format!("m{member}"), Update::Change(Change::Nodes(vec![node])));
}

fn verdict(index: &mut Cache) -> Verdict {
    index.fleet.refresh_capacities();
    let binding = &index.bindings[&key()];
    decide_binding(binding, index.request_of(binding), index.context_of(binding, now()), &index.fleet)
}

fn targets(step: &Step) -> Vec<(String, i64)> {
    let Step::Place(decision) = step else { panic!("{step:?}") };
    decision.targets.iter().map(|target| (target.cluster.clone(), target.replicas)).collect()
}

/// The same binding after the writes that place it.
fn placed(mut object: Value, index: &mut Cache) -> Value {
    let Step::Place(decision) = verdict(index).step else { panic!("not placed") };
    object["spec"]["clusters"] = decision
        .targets
        .iter()
        .map(|target| json!({"name": target.cluster, "replicas": target.replicas}))
        .collect::<Vec<_>>()
        .into();
    let applied = object["spec"]["placement"].to_string();
    let annotations = &mut object["metadata"]["annotations"];
    annotations["caldera.dev/plan"] = serde_json::to_string(&decision.plan.unwrap()).unwrap().into();
    annotations["policy.karmada.io/applied-placement"] = applied.into();
    object["metadata"]["generation"] = 3.into();
    object["metadata"]["resourceVersion"] = "8".into();
    object["status"] = json!({
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "schedulerObservedGeneration": 3, "lastScheduledTime": "2026-01-01T00:00:00Z",
    });
    object
}

#[test]
fn a_released_gang_is_placed_whole() {
    let mut index = index(&[2, 4], &[job(6, 6), binding(6)]);
    assert_eq!(targets(&verdict(&mut index).step), [("m0".into(), 2), ("m1".into(), 4)]);
}

#[test]
fn where_it_did_not_start_before_it_goes_only_if_it_must() {
    let mut object = binding(2);
    let record = json!({"count": 1, "at": 1, "until": 2, "preemptor": "", "reason": "PodsReadyTimeout", "message": "", "avoid": ["m0"]});
    object["metadata"]["annotations"]["caldera.dev/eviction"] = record.to_string().into();
    let mut world = index(&[4, 4], &[job(2, 2), object.clone()]);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 2)]);
    let mut world = index(&[4, 1], &[job(2, 2), object]);
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 2)]);
}

#[test]
fn a_member_whose_own_queue_is_closed_gets_no_new_job_and_the_refusal_says_so() {
    let queue = |state: &str, cpu: i64| {
        let mut queue = MemberVolcanoQueue { state: state.into(), ..MemberVolcanoQueue::default() };
        queue.capability.set("cpu", Quantity::from_units(cpu));
        Update::Queues([("q".to_owned(), queue)].into())
    };
    let mut world = index(&[4, 6], &[job(4, 4), binding(4)]);
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4)]);
    world.apply_member("m0", queue("Closed", 9));
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 4)]);
    world.apply_member("m1", queue("Open", 3));
    let Step::Refuse { reason: "Unschedulable", message, clear: false } = verdict(&mut world).step else {
        panic!("it is placed")
    };
    let why = "; m0: its own queue is Closed; m1: its own queue has cpu 3 left";
    assert!(message.starts_with("needs 4 pods at once; 3 fit now") && message.ends_with(why), "{message}");
    // A queue that opens is room for those who wait.
    world.add_unschedulable(&key());
    world.take_due_bindings();
    world.apply_member("m0", queue("Open", 9));
    assert!(!world.is_idle());
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4)]);
}

#[test]
fn a_gang_waits_for_its_queue_to_reach_a_member_but_not_for_ever() {
    let queues = |named: &[(&str, &str)]| {
        let queue = |(name, state): &(&str, &str)| {
            ((*name).to_owned(), MemberVolcanoQueue { state: (*state).to_owned(), ..MemberVolcanoQueue::default() })
        };
        Update::Queues(named.iter().map(queue).collect())
    };
    let waits = |world: &mut Cache| {
        let Step::Place(decision) = verdict(world).step else { panic!("not placed") };
        world.start_or_check_queue_wait(&key(), &decision.targets)
    };
    let mut world = index(&[9], &[job(4, 4), binding(4)]);
    world.advance_time(now());
    assert!(!waits(&mut world), "nothing is known of its queues");
    for not_open in [&[("root", "Open")][..], &[("root", "Open"), ("q", "")]] {
        world.apply_member("m0", queues(not_open));
        assert!(waits(&mut world), "{not_open:?}");
        world.add_unschedulable(&key());
        world.take_due_bindings();
    }
    // It goes as soon as its queue is open there.
    world.apply_member("m0", queues(&[("root", "Open"), ("q", "Open")]));
    assert!(!world.is_idle());
    assert!(!waits(&mut world));
    assert_eq!(world.next_deadline(), None);
    // A queue that never comes holds it up for half a minute.
    world.apply_member("m0", queues(&[("root", "Open")]));
    world.take_due_bindings();
    assert!(waits(&mut world));
    let late = now() + jiff::SignedDuration::from_secs(30);
    assert_eq!(world.next_deadline(), Some(late));
    world.advance_time(late);
    assert!(!world.is_idle());
    assert!(!waits(&mut world));
    assert_eq!(world.next_deadline(), None);
    // What is there stays, and may change.
    let object = placed(binding(4), &mut world);
    let mut there = index(&[9], &[job(4, 4), object]);
    there.apply_member("m0", queues(&[("root", "Open")]));
    let there_already = [place::Target { cluster: "m0".into(), replicas: 3 }];
    assert!(!there.start_or_check_queue_wait(&key(), &there_already));
}

#[test]
fn a_gang_waits_for_no_queue_of_a_member_that_can_not_be_read() {
    let mut world = index(&[9], &[job(4, 4), binding(4)]);
    world.advance_time(now());
    world.apply_member("m0", Update::Queues([("root".to_owned(), MemberVolcanoQueue::default())].into()));
    let targets = [place::Target { cluster: "m0".into(), replicas: 4 }];
    assert!(world.start_or_check_queue_wait(&key(), &targets));
    world.add_unschedulable(&key());
    world.take_due_bindings();
    world.apply_member("m0", Update::Down("no route".into()));
    assert!(!world.is_idle(), "it is decided about anew");
    assert!(!world.start_or_check_queue_wait(&key(), &targets), "nobody would tell that the queue is there");
}

#[test]
fn what_is_not_released_is_left_alone() {
    let change = |pointer: &str, value: Value| {
        let mut object = binding(2);
        *object.pointer_mut(pointer).unwrap() = value;
        verdict(&mut index(&[9], &[job(2, 2), object])).step
    };
    assert_eq!(change("/metadata/annotations/caldera.dev~1gate", json!("closed")), Step::Rest);
    assert_eq!(change("/metadata/annotations/caldera.dev~1admission", json!("garbage")), Step::Rest);
    assert_eq!(change("/spec/suspension/scheduling", json!(true)), Step::Rest);
    assert_eq!(change("/spec/schedulerName", json!("default-scheduler")), Step::Rest);
    assert_eq!(change("/spec/placement", Value::Null), Step::Rest);
    // A workload that was not seen yet is waited for.
    assert_eq!(verdict(&mut index(&[9], &[binding(2)])).step, Step::Rest);
}

#[test]
fn what_is_placed_and_said_needs_no_write() {
    let mut world = index(&[3, 4], &[job(6, 6), binding(6)]);
    let object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(verdict(&mut world), Verdict { step: Step::Rest, awaits_capacity: false });
    let mut newer = object.clone();
    newer["metadata"]["generation"] = 4.into();
    newer["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&newer).unwrap());
    assert_eq!(verdict(&mut world).step, Step::Confirm { anew: false });
    // An older state that arrives late changes nothing.
    world.update_binding(Binding::parse_binding(&object).unwrap());
    assert_eq!(verdict(&mut world).step, Step::Confirm { anew: false });
}

#[test]
fn assumed_capacity_is_not_given_twice() {
    let mut world = index(&[2, 4, 1], &[job(6, 6), binding(6)]);
    let object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    let mut second = binding(2);
    second["metadata"]["name"] = "other-job".into();
    second["spec"]["resource"]["name"] = "other".into();
    let mut other = job(2, 2);
    other["metadata"]["name"] = "other".into();
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(&other).unwrap()));
    world.update_binding(Binding::parse_binding(&second).unwrap());
    world.fleet.refresh_capacities();
    let binding = &world.bindings[&BindingKey { name: "other-job".into(), ..key() }];
    let verdict = decide_binding(binding, world.request_of(binding), world.context_of(binding, now()), &world.fleet);
    let Step::Refuse { reason: "Unschedulable", message, .. } = verdict.step else { panic!("{verdict:?}") };
    assert!(message.starts_with("needs 2 pods at once; 1 fit now in 3 clusters; best cluster m2 takes 1"), "{message}");
    assert!(verdict.awaits_capacity);
    // The first job ends in m1: its room is free again.
    let mut ended = object;
    ended["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]);
    ended["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&ended).unwrap());
    world.fleet.refresh_capacities();
    let binding = &world.bindings[&BindingKey { name: "other-job".into(), ..key() }];
    assert_eq!(
        targets(
            &decide_binding(binding, world.request_of(binding), world.context_of(binding, now()), &world.fleet).step
        ),
        [("m1".into(), 2)]
    );
}

#[test]
fn an_answer_about_a_deleted_binding_is_not_taken_for_the_one_made_anew() {
    let mut world = index(&[8], &[job(2, 2), binding(2)]);
    let old = Binding::parse_binding(&placed(binding(2), &mut world)).unwrap();
    world.fleet.refresh_capacities();
    let free = |world: &mut Cache| {
        world.fleet.refresh_capacities();
        world.fleet.clusters().next().unwrap().1.sum_free().get("cpu").units_ceil()
    };
    world.update_binding(old.clone());
    let taken = free(&mut world);
    // Deleted: a late answer does not bring it back, nor what it held.
    world.apply_bindings(false, Event::Deleted(old.clone()));
    let empty = free(&mut world);
    assert!(!world.store_written_binding(old.clone()));
    assert!(world.bindings.is_empty() && empty > taken && free(&mut world) == empty);
    // Made anew: the answer says nothing about it, and it is still to be placed.
    let mut anew = binding(2);
    anew["metadata"]["uid"] = "made-anew".into();
    anew["metadata"]["resourceVersion"] = "99".into();
    world.update_binding(Binding::parse_binding(&anew).unwrap());
    assert!(!world.store_written_binding(old));
    assert!(world.bindings[&key()].place.previous.is_empty());
    assert!(matches!(verdict(&mut world).step, Step::Place(_)));
}

#[test]
fn no_fitting_cluster_takes_the_clusters_away() {
    let mut world = index(&[9], &[job(2, 2), binding(2)]);
    let mut object = placed(binding(2), &mut world);
    object["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["elsewhere"]});
    object["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&object).unwrap());
    let Step::Refuse { reason: "NoClusterFit", message, clear: true } = verdict(&mut world).step else {
        panic!("{:?}", verdict(&mut world));
    };
    let text = "0/1 clusters are available: 1 cluster(s) did not match the placement cluster affinity constraint.";
    assert_eq!(message, text);
}

#[test]
fn a_triggered_reschedule_starts_afresh_with_its_own_room() {
    let mut world = index(&[3, 4], &[job(6, 6), binding(6)]);
    let mut object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    object["spec"]["rescheduleTriggeredAt"] = "2026-01-02T00:00:00Z".into();
    object["metadata"]["resourceVersion"] = "9".into();
    world.update_binding(Binding::parse_binding(&object).unwrap());
    // Nothing better: the same clusters, and status says when it was asked.
    assert_eq!(verdict(&mut world).step, Step::Confirm { anew: true });
    set_cores(&mut world, 1, 8);
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 6)]);
}

#[test]
fn a_workload_that_makes_no_sense_is_reported_and_stops_nobody() {
    let mut garbage = job(2, 2);
    garbage["spec"]["tasks"][0]["replicas"] = json!("many");
    let mut world = index(&[9], &[garbage, binding(2)]);
    let Step::Refuse { reason: "SchedulerError", message, clear: false } = verdict(&mut world).step else {
        panic!("not refused");
    };
    assert!(message.contains("spec.tasks[0].replicas"), "{message}");
}

#[test]
fn pods_that_a_member_starts_only_together_are_not_divided_over_members() {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let deployment = |minimum: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "train", "namespace": "ns", "annotations": {"scheduling.volcano.sh/group-min-member": minimum}},
            "spec": {"replicas": 4, "template": template},
        })
    };
    for (minimum, cores, goes) in
        [("1", [2, 2], vec![("m0".to_owned(), 2), ("m1".to_owned(), 2)]), ("3", [3, 4], vec![("m1".to_owned(), 4)])]
    {
        let mut object = binding(4);
        object["spec"]["resource"]["apiVersion"] = "apps/v1".into();
        object["spec"]["resource"]["kind"] = "Deployment".into();
        object["metadata"]["annotations"]["caldera.dev/admission"] =
            json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"pods": 4}, "charged": {}}).to_string().into();
        object["spec"]["replicaRequirements"] = json!({"resourceRequest": {"cpu": "1"}});
        let mut world = index(&cores, &[deployment(minimum), object]);
        for i in 0..2 {
            let mut member = cluster(&format!("m{i}"));
            member["status"]["apiEnablements"] =
                json!([{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]);
            world.apply_clusters(Event::Applied(serde_json::from_value(member).unwrap()));
        }
        assert_eq!(targets(&verdict(&mut world).step), goes);
    }
}
