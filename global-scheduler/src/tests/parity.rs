//! What a Karmada policy can say, each once (docs/parity.md).

use super::*;

/// A binding of something that is not queued, as a policy with our scheduler's name makes it.
fn unqueued(kind: (&str, &str), spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": "web-deployment", "namespace": "ns", "uid": "w", "resourceVersion": "3", "generation": 1,
            "labels": {"propagationpolicy.karmada.io/permanent-id": "p"},
        },
        "spec": {
            "resource": {"apiVersion": kind.0, "kind": kind.1, "namespace": "ns", "name": "web", "uid": ""},
            "schedulerName": "caldera", "placement": {},
        },
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

pub(super) fn widget(replicas: u32, placement: &Value) -> Value {
    let spec = json!({
        "replicas": replicas, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}, "placement": placement,
    });
    unqueued(("example.io/v1", "Widget"), spec)
}

pub(super) fn aggregated(rest: &Value) -> Value {
    let mut placement = json!({
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    });
    json_patch::merge(&mut placement, rest);
    placement
}

/// Members of so many cores, each with what `edit` says of it.
pub(super) fn world(cores: &[i64], edit: impl Fn(usize, &mut Value)) -> Cache {
    let mut index = index(cores, &[]);
    for i in 0..cores.len() {
        let mut object = cluster(&format!("m{i}"));
        object["status"]["apiEnablements"] = json!([
            {"groupVersion": "example.io/v1", "resources": [{"name": "widgets", "kind": "Widget"}]},
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
        ]);
        edit(i, &mut object);
        index.apply_clusters(Event::Applied(serde_json::from_value(object).unwrap()));
    }
    index
}

pub(super) fn ask(index: &mut Cache, object: &Value) -> Verdict {
    let binding = Binding::parse_binding(object).unwrap();
    let key = binding.key.clone();
    index.update_binding(binding);
    index.fleet.refresh_capacities();
    let binding = &index.bindings[&key];
    decide_binding(binding, index.request_of(binding), index.context_of(binding, now()), &index.fleet)
}

pub(super) fn goes(index: &mut Cache, object: &Value) -> Vec<(String, i64)> {
    targets(&ask(index, object).step)
}

fn refused(verdict: Verdict) -> (&'static str, String) {
    let Step::Refuse { reason, message, .. } = verdict.step else { panic!("{verdict:?}") };
    (reason, message)
}

pub(super) fn to(targets: &[(&str, i64)]) -> Vec<(String, i64)> {
    targets.iter().map(|(name, replicas)| ((*name).to_owned(), *replicas)).collect()
}

#[test]
fn what_is_not_queued_goes_where_karmada_would_send_it() {
    let mut world = world(&[3, 4], |_, _| {});
    let config = unqueued(("v1", "ConfigMap"), json!({}));
    assert_eq!(goes(&mut world, &config), to(&[("m0", 0), ("m1", 0)]));
    assert_eq!(goes(&mut world, &widget(6, &aggregated(&json!({})))), to(&[("m0", 3), ("m1", 3)]));
    // Made by nobody's policy; being held; named for another scheduler.
    for (pointer, value) in [
        ("/metadata/labels", json!({})),
        ("/spec/suspension", json!({"scheduling": true})),
        ("/spec/schedulerName", json!("default-scheduler")),
    ] {
        let mut object = config.clone();
        object["spec"]["suspension"] = json!({});
        *object.pointer_mut(pointer).unwrap() = value;
        object["metadata"]["resourceVersion"] = "9".into();
        assert_eq!(ask(&mut super::index(&[1], &[]), &object), Verdict { step: Step::Rest, awaits_capacity: false });
    }
}

/// karmada-scheduler's `--enable-empty-workload-propagation`.
#[test]
fn clusters_that_get_nothing_are_listed_where_that_is_asked_for() {
    let mut world = world(&[3, 4], |_, _| {});
    let (some, none) = (widget(2, &aggregated(&json!({}))), widget(0, &aggregated(&json!({}))));
    assert_eq!(goes(&mut world, &some), to(&[("m1", 2)]));
    world.empty_workloads = true;
    assert_eq!(goes(&mut world, &some), to(&[("m0", 0), ("m1", 2)]));
    assert_eq!(goes(&mut world, &none), to(&[("m0", 0), ("m1", 0)]));
    // What is written so is where it should be.
    let mut placed = some.clone();
    placed["spec"]["clusters"] = json!([{"name": "m0"}, {"name": "m1", "replicas": 2}]);
    placed["metadata"]["annotations"] =
        json!({"policy.karmada.io/applied-placement": placed["spec"]["placement"].to_string()});
    assert!(matches!(ask(&mut world, &placed).step, Step::Confirm { .. }));
}

/// Among equals the older one, then the name.
#[test]
fn whoever_has_the_higher_schedule_priority_is_looked_at_first() {
    let mut world = world(&[9], |_, _| {});
    for (name, priority, created) in [("a", 0, "03"), ("b", 5, "02"), ("c", 5, "01"), ("d", 0, "03")] {
        let mut object = widget(1, &aggregated(&json!({})));
        object["metadata"]["name"] = name.into();
        object["metadata"]["creationTimestamp"] = format!("2026-01-{created}T00:00:00Z").into();
        object["spec"]["resource"]["name"] = name.into();
        object["spec"]["schedulePriority"] = json!({"priority": priority});
        world.update_binding(Binding::parse_binding(&object).unwrap());
    }
    let order: Vec<String> = world.take_due_bindings().into_iter().map(|key| key.name).collect();
    assert_eq!(order, ["c", "b", "a", "d"]);
}

#[test]
fn a_volcano_job_without_a_gate_goes_nowhere() {
    let mut world = world(&[9], |_, _| {});
    let ungated = unqueued(("batch.volcano.sh/v1alpha1", "Job"), json!({"replicas": 1}));
    assert_eq!(ask(&mut world, &ungated).step, Step::Rest);
}

#[test]
fn a_deployment_that_names_a_queue_waits_for_its_gate() {
    let deployment = |annotations: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "ns", "annotations": annotations},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
        })
    };
    let mut world = world(&[9], |_, _| {});
    let object = unqueued(("apps/v1", "Deployment"), json!({"replicas": 1}));
    assert_eq!(ask(&mut world, &object).step, Step::Rest, "its template may name a queue");
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(&deployment(json!({}))).unwrap()));
    assert_eq!(goes(&mut world, &object), to(&[("m0", 1)]));
    let named = deployment(json!({"volcano.sh/queue-name": "q"}));
    world.apply_workloads(WorkloadKind::VolcanoJob, Event::Applied(read_workload(&named).unwrap()));
    let (reason, message) = refused(ask(&mut world, &object));
    assert_eq!(reason, "SchedulerError");
    assert!(message.contains("names a queue"), "{message}");
}

#[test]
fn a_cluster_scoped_template_has_a_binding_of_its_own() {
    let mut world = world(&[1, 1], |_, _| {});
    let mut object = unqueued(("v1", "ConfigMap"), json!({}));
    object["kind"] = "ClusterResourceBinding".into();
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let binding = Binding::parse_binding(&object).unwrap();
    let Step::Place(decision) = ask(&mut world, &object).step else { panic!("not placed") };
    let write = binding_writes::build_placement_write(&binding, &decision);
    assert_eq!((write.resource.plural.as_str(), write.namespace.as_str()), ("clusterresourcebindings", ""));
    let Body::JsonPatch(patch) = write.body else { panic!("no patch") };
    let operations: json_patch::Patch = serde_json::from_value(patch).unwrap();
    json_patch::patch(&mut object, &operations).unwrap();
    assert_eq!(object["metadata"]["annotations"]["policy.karmada.io/applied-placement"], "{}");
    // Each kind is listed by itself.
    world.apply_bindings(false, Event::Reset(vec![]));
    assert_eq!(world.bindings.len(), 1);
    world.apply_bindings(true, Event::Reset(vec![]));
    assert!(world.bindings.is_empty());
}

#[test]
fn spread_constraints_choose_regions_and_clusters() {
    let regions = |i: usize, object: &mut Value| object["spec"]["region"] = ["a", "a", "b", ""][i].into();
    let by = |field: &str, min: i64, max: i64| json!({"spreadByField": field, "minGroups": min, "maxGroups": max});
    let spread = |constraints: Value| aggregated(&json!({"spreadConstraints": constraints}));
    let mut world = world(&[4, 4, 4, 9], regions);
    let one = spread(json!([by("cluster", 1, 1)]));
    assert_eq!(goes(&mut world, &widget(6, &one)), to(&[("m3", 6)]));
    // A region each, and no more than two clusters: the one without a region is out.
    let both = spread(json!([by("region", 2, 2), by("cluster", 2, 2)]));
    assert_eq!(goes(&mut world, &widget(6, &both)), to(&[("m0", 3), ("m2", 3)]));
    let (reason, message) = refused(ask(&mut world, &widget(6, &spread(json!([by("region", 3, 3)])))));
    let text = "the number of feasible region is less than spreadConstraint.MinGroups";
    assert_eq!((reason, message.as_str()), ("SchedulerError", text));
}

/// Karmada filters by zone and provider, but can not choose by them.
#[test]
fn spread_by_zone_or_provider_alone_is_refused_as_karmada_does() {
    let provided = |_: usize, object: &mut Value| {
        object["spec"]["provider"] = "p".into();
        object["spec"]["zones"] = json!(["z"]);
    };
    for field in ["zone", "provider"] {
        let constraint = json!([{"spreadByField": field, "minGroups": 1, "maxGroups": 1}]);
        let object = widget(1, &aggregated(&json!({"spreadConstraints": constraint})));
        let (reason, message) = refused(ask(&mut world(&[4, 4], provided), &object));
        let text = "just support cluster and region spread constraint";
        assert_eq!((reason, message.as_str()), ("SchedulerError", text));
        let (reason, message) = refused(ask(&mut world(&[4], |_, _| {}), &object));
        let property = if field == "zone" { "zones" } else { field };
        let text = format!("0/1 clusters are available: 1 cluster(s) did not have {property} property.");
        assert_eq!((reason, message), ("NoClusterFit", text));
    }
}

#[test]
fn the_next_affinity_is_tried_where_one_has_no_room_and_there_it_stays() {
    let terms = json!({"clusterAffinities": [
        {"affinityName": "near", "clusterNames": ["m0"]}, {"affinityName": "far", "clusterNames": ["m1"]},
    ]});
    let mut world = world(&[2, 9], |_, _| {});
    let mut object = widget(4, &aggregated(&terms));
    let verdict = ask(&mut world, &object);
    assert_eq!(targets(&verdict.step), to(&[("m1", 4)]));
    let Step::Place(decision) = &verdict.step else { unreachable!() };
    assert_eq!(decision.affinity.as_deref(), Some("far"));
    let binding = Binding::parse_binding(&object).unwrap();
    let Body::MergePatch(patch) = binding_writes::build_scheduled_status_write(
        &binding,
        decision.affinity.as_deref(),
        Some(now()),
        "2026-01-01T00:00:00Z".parse().unwrap(),
    )
    .body
    else {
        panic!("no patch")
    };
    assert_eq!(patch["status"]["schedulerObservingAffinityName"], "far");
    // Room in the first one does not bring it back; a triggered reschedule does.
    object["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    object["spec"]["replicas"] = 5.into();
    object["metadata"]["resourceVersion"] = "4".into();
    object["status"] = json!({"schedulerObservingAffinityName": "far", "lastScheduledTime": "2026-01-01T00:00:00Z"});
    set_cores(&mut world, 0, 9);
    assert_eq!(goes(&mut world, &object), to(&[("m1", 5)]));
    object["spec"]["rescheduleTriggeredAt"] = "2026-01-02T00:00:00Z".into();
    object["metadata"]["resourceVersion"] = "5".into();
    assert_eq!(goes(&mut world, &object), to(&[("m0", 5)]));
}

#[test]
fn an_affinity_that_is_full_overflows_in_order() {
    let term = json!({"clusterAffinities": [{
        "affinityName": "own", "clusterNames": ["m0"],
        "overflowAffinities": [
            {"affinityName": "next", "clusterNames": ["m2"]}, {"affinityName": "last", "clusterNames": ["m1"]},
        ],
    }]});
    let mut world = world(&[2, 9, 3], |_, _| {});
    assert_eq!(goes(&mut world, &widget(7, &aggregated(&term))), to(&[("m0", 2), ("m1", 2), ("m2", 3)]));
    let (reason, message) = refused(ask(&mut world, &widget(15, &aggregated(&term))));
    let text = "Clusters available replicas are not enough to schedule.";
    assert_eq!((reason, message.as_str()), ("Unschedulable", text));
}

#[test]
fn a_cluster_that_the_binding_is_evicted_from_is_not_used() {
    let mut world = world(&[9, 4], |_, _| {});
    let mut object = widget(4, &aggregated(&json!({})));
    object["spec"]["gracefulEvictionTasks"] =
        json!([{"fromCluster": "m0", "reason": "TaintUntolerated", "producer": "TaintManager", "purgeMode": "Never"}]);
    assert_eq!(goes(&mut world, &object), to(&[("m1", 4)]));
}

/// Taints keep new bindings away; who is there already is taken away by eviction alone.
#[test]
fn taints_and_lost_apis_move_nobody() {
    let spoilt = |i: usize, object: &mut Value| {
        if i == 0 {
            object["spec"]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
        } else {
            object["status"]["apiEnablements"] = json!([]);
        }
    };
    let mut world = world(&[9, 9], spoilt);
    let (reason, message) = refused(ask(&mut world, &widget(2, &aggregated(&json!({})))));
    assert_eq!(reason, "NoClusterFit");
    assert!(message.contains("1 cluster(s) did not have the API resource"), "{message}");
    assert!(message.contains("1 cluster(s) had untolerated taint {k:NoExecute}"), "{message}");
    let mut placed = widget(3, &aggregated(&json!({})));
    placed["spec"]["clusters"] = json!([{"name": "m0", "replicas": 1}, {"name": "m1", "replicas": 1}]);
    placed["metadata"]["resourceVersion"] = "4".into();
    assert_eq!(goes(&mut world, &placed).iter().map(|(_, replicas)| replicas).sum::<i64>(), 3);
    let tolerant = json!({"clusterTolerations": [{"key": "k", "operator": "Exists"}]});
    let mut fresh = super::parity::world(&[9, 9], spoilt);
    assert_eq!(goes(&mut fresh, &widget(2, &aggregated(&tolerant))), to(&[("m0", 2)]));
}

#[test]
fn a_cluster_that_is_being_deleted_is_left_and_only_its_part_moves() {
    let leaving = |i: usize, object: &mut Value| {
        if i == 0 {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
    };
    let mut world = world(&[9, 9, 9], leaving);
    let mut object = widget(4, &aggregated(&json!({})));
    object["spec"]["clusters"] = json!([{"name": "m0", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    assert_eq!(goes(&mut world, &object), to(&[("m2", 4)]));
}

#[test]
fn workloads_of_an_affinity_group_go_together_and_of_an_anti_affinity_group_apart() {
    let mut world = world(&[4, 9], |_, _| {});
    let member = |name: &str, groups: Value, clusters: Value| {
        let mut object = widget(1, &aggregated(&json!({})));
        object["metadata"]["name"] = name.into();
        object["spec"]["resource"]["name"] = name.into();
        object["spec"]["workloadAffinityGroups"] = groups;
        object["spec"]["clusters"] = clusters;
        object
    };
    let together = || json!({"affinityGroup": "app=a"});
    let apart = || json!({"antiAffinityGroup": "app=a"});
    // The first of a group goes anywhere.
    assert_eq!(goes(&mut world, &member("a1", together(), json!([]))), to(&[("m1", 1)]));
    world.update_binding(
        Binding::parse_binding(&member("a0", together(), json!([{"name": "m0", "replicas": 1}]))).unwrap(),
    );
    assert_eq!(goes(&mut world, &member("a2", together(), json!([]))), to(&[("m0", 1)]));
    assert_eq!(goes(&mut world, &member("b1", apart(), json!([]))), to(&[("m1", 1)]));
    // What is decided and not yet written counts too.
    let first = BindingKey { namespace: "ns".into(), name: "b1".into() };
    world.assume_decision(&first, &[place::Target { cluster: "m1".into(), replicas: 1 }], None);
    assert_eq!(goes(&mut world, &member("b2", apart(), json!([]))), to(&[("m0", 1)]));
    world.update_binding(
        Binding::parse_binding(&member("b0", apart(), json!([{"name": "m0", "replicas": 1}]))).unwrap(),
    );
    let (reason, message) = refused(ask(&mut world, &member("b3", apart(), json!([]))));
    let text = "0/2 clusters are available: 2 cluster already has workload with the same anti-affinity group.";
    assert_eq!((reason, message.as_str()), ("NoClusterFit", text));
    // In another namespace it is another group.
    let mut stranger = member("b4", apart(), json!([]));
    stranger["metadata"]["namespace"] = "other".into();
    assert_eq!(goes(&mut world, &stranger), to(&[("m1", 1)]));
}
