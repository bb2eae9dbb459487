//! What is placed follows what was granted, and no more.

use std::sync::Arc;

use super::*;

/// Where the job's minimum is below the sum of its tasks' own, those do not count (Volcano, `CheckTaskMinAvailable`).
#[test]
fn a_gang_of_several_tasks_may_be_granted_less_than_each_task_wants() {
    let task = |name: &str, replicas: u32| {
        json!({
            "name": name, "replicas": replicas, "minAvailable": replicas,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        })
    };
    let mut workload = job(0, 3);
    workload["spec"]["tasks"] = json!([task("launcher", 1), task("worker", 8)]);
    let mut object = binding(3);
    let admission =
        json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"launcher": 1, "worker": 2}, "charged": {}});
    object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
    let mut index = index(&[20], &[workload, object]);
    assert_eq!(targets(&verdict(&mut index).step), [("m0".to_owned(), 3)]);
}

#[test]
fn a_gang_that_is_granted_less_than_before_is_cut() {
    let mut index = index(&[4, 2], &[job(6, 2), binding(6)]);
    let mut object = placed(binding(6), &mut index);
    let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": 3}, "charged": {}});
    object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
    index.update_binding(Binding::parse_binding(&object).unwrap());
    // From the smallest part first.
    assert_eq!(targets(&verdict(&mut index).step), [("m0".to_owned(), 3)]);
}

#[test]
fn never_more_than_was_admitted() {
    let mut grown = index(&[20], &[job(9, 2), binding(4)]);
    assert_eq!(targets(&verdict(&mut grown).step), [("m0".into(), 4)]);
    let mut too_few = index(&[20], &[job(9, 6), binding(4)]);
    let Step::Refuse { reason: "Unschedulable", message, clear: false } = verdict(&mut too_few).step else {
        panic!("not refused");
    };
    assert!(message.contains("needs 6 pods and has quota for 4"), "{message}");
}

/// Four partitions of four, of which three are needed; a record from before partitions were granted whole says fourteen
/// pods.
#[test]
fn a_grant_that_cuts_a_partition_is_placed_without_it() {
    let mut workload = job(16, 12);
    workload["spec"]["tasks"][0]["partitionPolicy"] =
        json!({"totalPartitions": 4, "partitionSize": 4, "minPartitions": 3});
    let mut world = index(&[9, 9], &[workload.clone(), binding(14)]);
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 4), ("m1".into(), 8)]);
    let mut too_few = index(&[9, 9], &[workload, binding(11)]);
    let Step::Refuse { message, .. } = verdict(&mut too_few).step else { panic!("not refused") };
    assert!(message.contains("task w needs 12 pods and has quota for 11"), "{message}");
}

#[test]
fn a_duplicated_job_never_runs_in_more_clusters_than_it_was_admitted_for() {
    let mut object = binding(2);
    object["spec"]["placement"] = json!({});
    let mut world = index(&[9, 9, 9], &[job(2, 2), object]);
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 2)]);
}

/// Whoever could write a plan could bring the scheduler down: two clusters of 4294967295 pods are more than a number
/// holds.
#[test]
fn a_plan_of_absurd_numbers_is_replaced_by_what_was_admitted() {
    let mut forged = binding(4);
    let share = json!({"tasks": {"w": {"replicas": u32::MAX, "minAvailable": u32::MAX}}, "minAvailable": u32::MAX});
    let plan = json!({"clusters": {"m0": share, "m1": share}});
    let applied = forged["spec"]["placement"].to_string();
    forged["metadata"]["annotations"]["caldera.dev/plan"] = plan.to_string().into();
    forged["metadata"]["annotations"]["policy.karmada.io/applied-placement"] = applied.into();
    forged["spec"]["clusters"] = json!([{"name": "m0", "replicas": i32::MAX}, {"name": "m1", "replicas": i32::MAX}]);
    let mut index = index(&[10, 10], &[job(4, 4), forged]);
    let verdict = verdict(&mut index);
    assert_eq!(targets(&verdict.step).iter().map(|(_, pods)| pods).sum::<i64>(), 4, "{verdict:?}");
}

#[test]
fn a_gang_smaller_than_it_wants_grows_where_it_is_not_moved() {
    let mut world = index(&[3], &[job(6, 2), binding(6)]);
    let verdict_now = verdict(&mut world);
    assert!(verdict_now.awaits_capacity);
    let object = placed(binding(6), &mut world);
    world.update_binding(Binding::parse_binding(&object).unwrap());
    let same = verdict(&mut world);
    assert_eq!((same.step, same.awaits_capacity), (Step::Rest, true));
    set_cores(&mut world, 0, 5);
    assert_eq!(targets(&verdict(&mut world).step), [("m0".into(), 5)]);
    // Not once it is done there, whatever the record still allows.
    let mut done = object;
    done["status"]["aggregatedStatus"] =
        json!([{"clusterName": "m0", "applied": true, "status": {"state": {"phase": "Completed"}}}]);
    world.update_binding(Binding::parse_binding(&done).unwrap());
    assert_eq!(verdict(&mut world).step, Step::Rest);
}

/// The record says the nodes, and what is assumed for it is taken from them.
#[test]
fn a_gang_goes_where_the_nodes_are_that_it_was_admitted_to() {
    let mut object = binding(3);
    let nodes = json!({"required": [{"key": "pool", "operator": "In", "values": ["a"]}]});
    let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": 3}, "charged": {}, "nodes": nodes});
    object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
    let mut world = index(&[9, 4], &[job(3, 3), object.clone()]);
    let Step::Refuse { message, .. } = verdict(&mut world).step else { panic!("no node is in the pool") };
    assert!(message.contains("0 fit now"), "{message}");
    let amounts = [("cpu", 4), ("pods", 100)].map(|(name, units)| (name, Quantity::from_units(units)));
    let labels = [("pool".to_owned(), "a".to_owned())].into();
    let allocatable = amounts.into_iter().collect();
    let node = Node { name: "n".into(), labels, allocatable, ready: true, ..Node::default() };
    world.apply_member("m1", Update::Change(Change::Node(node)));
    assert_eq!(targets(&verdict(&mut world).step), [("m1".into(), 3)]);
    let placed = placed(object, &mut world);
    world.update_binding(Binding::parse_binding(&placed).unwrap());
    world.fleet.refresh_capacities();
    let free = |name: &str| world.fleet.clusters().find(|(cluster, _)| cluster.name == name).unwrap().1.sum_free();
    assert_eq!([free("m0"), free("m1")].map(|free| free.get("cpu")), [9, 1].map(Quantity::from_units));
}

#[test]
fn what_jobs_of_one_template_ask_for_on_the_same_nodes_is_kept_once() {
    let nodes = json!({"required": [{"key": "pool", "operator": "In", "values": ["a"]}]});
    let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"w": 3}, "charged": {}, "nodes": nodes});
    let named = |mut object: Value, name: &str| {
        object["metadata"]["name"] = name.into();
        object["metadata"]["uid"] = name.into();
        object
    };
    let bound = |name: &str| {
        let mut object = named(binding(3), &format!("{name}-job"));
        object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
        (object["spec"]["resource"]["name"], object["spec"]["clusters"]) =
            (name.into(), json!([{"name": "m0", "replicas": 3}]));
        object
    };
    let mut world = index(&[9], &[named(job(3, 3), "a"), named(job(3, 3), "b"), bound("a"), bound("b")]);
    let mut gang_of = |name: &str| {
        let key = BindingKey { namespace: "ns".into(), name: name.into() };
        world.gang_of(&key).unwrap().0
    };
    let (one, other) = (gang_of("a-job"), gang_of("b-job"));
    assert!(Arc::ptr_eq(&one, &other));
    assert!(Arc::strong_count(&one) > 3, "what is assumed for them is the same one");
}

#[test]
fn a_gang_goes_to_the_clusters_that_its_queues_may_use() {
    let labelled = |name: &str, label: Option<&str>, queues: Option<&str>| {
        let mut object = cluster(name);
        object["metadata"]["labels"] = json!({"tier": label.unwrap_or("iron")});
        object["metadata"]["annotations"] = json!({"caldera.dev/queues": queues.unwrap_or_default()});
        serde_json::from_value::<Cluster>(object).unwrap()
    };
    let mut object = binding(3);
    let admission = json!({
        "queue": "q", "above": ["top"], "priority": 0, "copies": 1, "tasks": {"w": 3}, "charged": {},
        "clusters": [{"key": "tier", "operator": "In", "values": ["gold"]}],
    });
    object["metadata"]["annotations"]["caldera.dev/admission"] = admission.to_string().into();
    let mut world = index(&[9, 9, 9], &[job(3, 3), object]);
    world.apply_clusters(Event::Applied(labelled("m1", Some("gold"), Some("other"))));
    world.apply_clusters(Event::Applied(labelled("m2", Some("gold"), Some("other,top"))));
    assert_eq!(targets(&verdict(&mut world).step), [("m2".into(), 3)]);
    world.apply_clusters(Event::Applied(labelled("m2", None, Some("top"))));
    let Step::Refuse { reason: "NoClusterFit", message, .. } = verdict(&mut world).step else { panic!("it is placed") };
    assert!(message.contains("3 cluster(s) is not for jobs of its queue"), "{message}");
    assert!(message.contains("cluster m1 is for jobs of queue other alone, and not for those of q"), "{message}");
}

/// Two operators define MPIJobs, of which a host has one: the other version's list is empty.
#[test]
fn a_list_of_one_version_of_a_kind_forgets_nothing_of_another() {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let of = |replicas: u32| json!({"replicas": replicas, "template": template});
    let replicas = json!({"Launcher": of(1), "Worker": of(3)});
    let mpi = json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
        "metadata": {"name": "train", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}},
        "spec": {"mpiReplicaSpecs": replicas},
    });
    let mut object = binding(4);
    object["spec"]["resource"]["apiVersion"] = "kubeflow.org/v2beta1".into();
    object["spec"]["resource"]["kind"] = "MPIJob".into();
    let mut world = index(&[9], &[mpi, object.clone()]);
    let of_mpi = Binding::parse_binding(&object).unwrap();
    world.apply_workloads(WorkloadKind::MpiJobV1, Event::Reset(Vec::new()));
    assert!(world.request_of(&of_mpi).is_some());
    world.apply_workloads(WorkloadKind::MpiJob, Event::Reset(Vec::new()));
    assert!(world.request_of(&of_mpi).is_none());
}
