mod unadmitted;

use super::*;
use crate::{
    decide::patch::tests::applied,
    observe::{
        cache::{Cache, CachedWorkload, LiveRead},
        request::parse_review,
    },
};

fn work(revised: u32) -> Value {
    json!({
        "metadata": {"name": "w", "annotations": {
            "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "j-job",
        }},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "annotations": {"caldera.dev/revised-replicas": revised.to_string()}},
            "spec": {"minAvailable": 10, "tasks": [{
                "name": "t", "replicas": 10, "minAvailable": 10,
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            }]},
        }]}},
    })
}

fn binding(plan: Option<u32>) -> CachedBinding {
    let record = json!({"queue": "default", "priority": 0, "copies": 1, "tasks": {"t": 4}, "charged": {"pods": "4"}});
    let mut object = json!({
        "metadata": {"annotations": {"caldera.dev/gate": "open", "caldera.dev/admission": record.to_string()}},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"},
            "clusters": [{"name": "m1", "replicas": 4}],
        },
    });
    if let Some(replicas) = plan {
        let plan = json!({"clusters": {"m1": {
            "tasks": {"t": {"replicas": replicas, "minAvailable": replicas}}, "minAvailable": replicas,
        }}});
        object["metadata"]["annotations"]["caldera.dev/plan"] = plan.to_string().into();
    }
    CachedBinding::from_object(&object)
}

#[test]
fn a_copy_that_was_charged_is_deleted_with_its_work_and_keeps_no_replicas_of_its_members_own() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    let mut work = work(4);
    work["spec"]["preserveResourcesOnDeletion"] = true.into();
    let retains = json!({"resourcetemplate.karmada.io/retain-replicas": "true", "app": "x"});
    work["spec"]["workload"]["manifests"][0]["metadata"]["labels"] = retains;
    for old in [None, Some(&work)] {
        let Verdict::Allow { patch, .. } = review(&work, old, Snapshot::of_cache(&cache)) else { panic!() };
        let sent = applied(&work, &patch);
        assert_eq!(sent["spec"]["preserveResourcesOnDeletion"], false);
        assert_eq!(sent["spec"]["workload"]["manifests"][0]["metadata"]["labels"], json!({"app": "x"}));
        assert_eq!(review(&sent, Some(&work), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }
    let mut web = work.clone();
    web["spec"]["workload"]["manifests"][0]["apiVersion"] = "apps/v1".into();
    web["spec"]["workload"]["manifests"][0]["kind"] = "Deployment".into();
    cache.put_binding(key(), CachedBinding { gated: false, ..binding(Some(4)) });
    let verdict = review(&web, None, Snapshot::of_cache(&cache));
    assert_eq!(verdict, Verdict::UNCHANGED, "nobody is charged for it");
}

#[test]
fn the_pods_of_a_copy_use_the_nodes_that_its_job_was_admitted_to() {
    let mut cache = Cache::default();
    let mut placed = binding(Some(4));
    let group = |groups: &[&str]| json!([{"key": "volcano.sh/nodegroup-name", "operator": "In", "values": groups}]);
    let nodes = json!({"required": group(&["a", "b"]), "preferred": [{"weight": 100, "labels": group(&["a"])}]});
    let mut record: Value = serde_json::from_str(&placed.admission.as_ref().unwrap().to_json()).unwrap();
    record["nodes"] = nodes;
    placed.admission = Some(caldera_core::admission::Admission::parse(&record.to_string()).unwrap().into());
    cache.put_binding(key(), placed);
    let Verdict::Allow { patch, .. } = review(&work(4), None, Snapshot::of_cache(&cache)) else { panic!() };
    let sent = applied(&work(4), &patch);
    let pod = &sent["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"]["spec"];
    let want = json!({
        "requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": group(&["a", "b"])}]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "preference": {"matchExpressions": group(&["a"])}}],
    });
    assert_eq!(pod["affinity"]["nodeAffinity"], want);
    assert_eq!(review(&sent, Some(&work(4)), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

fn key() -> (String, String) {
    ("ns".into(), "j-job".into())
}

fn review(object: &Value, old: Option<&Value>, snapshot: Snapshot<'_>) -> Verdict {
    let body = json!({"request": {
        "uid": "u", "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "namespace": "karmada-es-m1",
        "object": object, "oldObject": old,
    }})
    .to_string();
    rewrite_work(&parse_review::<ReviewedWork<'_>>(body.as_bytes()).unwrap(), snapshot)
}

#[test]
fn a_work_gets_the_numbers_of_its_clusters_share() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    let object = work(4);
    let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
    let rewritten = applied(&object, &patch);
    let spec = &rewritten["spec"]["workload"]["manifests"][0]["spec"];
    assert_eq!(spec["tasks"][0]["replicas"], 4);
    assert_eq!(spec["minAvailable"], 4);
    // Again: nothing to do.
    assert_eq!(review(&rewritten, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

/// It was refused, as asking for all of the job's pods.
#[test]
fn a_work_in_another_version_of_its_kind_gets_the_numbers_of_its_clusters_share_too() {
    let mut object = work(4);
    object["spec"]["workload"]["manifests"][0]["apiVersion"] = "batch.volcano.sh/v2".into();
    let placed = CachedBinding { resource: ("batch.volcano.sh/v2".into(), "Job".into()), ..binding(Some(4)) };
    let mut cache = Cache::default();
    cache.put_binding(key(), placed);
    let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!("it waits") };
    let spec = &applied(&object, &patch)["spec"]["workload"]["manifests"][0]["spec"];
    assert_eq!((&spec["minAvailable"], &spec["tasks"][0]["replicas"]), (&json!(4), &json!(4)));
}

/// As Karmada's taint manager does where karmada-scheduler places: the plan is still that of all clusters.
#[test]
fn a_copy_stays_as_it_is_where_another_cluster_was_taken_away_from_its_job() {
    let mut cache = Cache::default();
    let mut left = binding(None);
    let share = |pods: u32| json!({"tasks": {"t": {"replicas": pods, "minAvailable": pods}}, "minAvailable": pods});
    let plan = json!({"clusters": {"m1": share(4), "m2": share(6)}});
    left.plan = Some(Ok(serde_json::from_value::<caldera_core::plan::Plan>(plan).unwrap().into()));
    let both = CachedBinding { clusters: [("m1".into(), 4), ("m2".into(), 6)].into(), ..left.clone() };
    let copies = [both, left].map(|binding| {
        cache.put_binding(key(), binding);
        let Verdict::Allow { patch, .. } = review(&work(4), None, Snapshot::of_cache(&cache)) else { panic!() };
        applied(&work(4), &patch)
    });
    assert_eq!(copies[0], copies[1]);
    assert_eq!(copies[0]["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["replicas"], 4);
}

#[test]
fn a_copy_made_anew_has_what_its_jobs_restarts_left_of_max_retry() {
    for (restarts, left) in [(0, json!(5)), (2, json!(3)), (9, json!(1))] {
        let mut cache = Cache::default();
        cache.put_binding(key(), CachedBinding { restarts, ..binding(Some(4)) });
        let mut object = work(4);
        object["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"] = 5.into();
        let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
        let copy = applied(&object, &patch);
        assert_eq!(copy["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"], left);
        // Somebody else writes the Work, and says the same of the job; Karmada writes it from the template.
        let mut touched = copy.clone();
        touched["spec"]["suspendDispatching"] = false.into();
        assert_eq!(review(&touched, Some(&copy), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        let Verdict::Allow { patch, .. } = review(&object, Some(&copy), Snapshot::of_cache(&cache)) else { panic!() };
        let again = applied(&object, &patch);
        assert_eq!(again["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"], left);
    }
    let record =
        json!({"count": 0, "at": 1, "until": 1, "preemptor": "", "reason": "r", "message": "m", "restarts": 2});
    let object = json!({"metadata": {"annotations": {"caldera.dev/eviction": record.to_string()}}});
    assert_eq!(CachedBinding::from_object(&object).restarts, 2);
}

#[test]
fn an_override_policy_that_asks_for_more_than_was_charged_is_refused_until_it_is_admitted() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    let mut object = work(4);
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "7"}}}]}});
    object["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"] = pod;
    // Memory may be behind: it is read once more.
    assert_eq!(review(&object, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    let mut grown = binding(Some(4));
    let live = LiveRead::Binding(Some(Box::new(grown.clone())));
    let Verdict::Deny(denial) = review(&object, None, Snapshot::of_read(&cache, Some(&live))) else { panic!() };
    assert_eq!(denial.code, 503);
    assert!(denial.message.contains("cpu 28, and queue default is charged 0"), "{}", denial.message);
    let mut record = grown.admission.as_deref().unwrap().clone();
    record.charged.set("cpu", "28".parse().unwrap());
    grown.admission = Some(std::sync::Arc::new(record));
    let live = LiveRead::Binding(Some(Box::new(grown)));
    assert!(matches!(review(&object, None, Snapshot::of_read(&cache, Some(&live))), Verdict::Allow { .. }));
}

#[test]
fn each_copy_of_a_duplicated_job_counts_its_own_pods_and_a_split_one_goes_on_from_the_cluster_before() {
    for (copies, offset) in [(1, Some("4")), (2, None)] {
        let mut placed = binding(Some(4));
        let mut plan = (**placed.plan.as_ref().unwrap().as_ref().unwrap()).clone();
        let share = plan.clusters[&ClusterName::from("m1")].clone();
        plan.clusters.insert("m0".into(), share);
        placed.plan = Some(Ok(std::sync::Arc::new(plan)));
        let mut record = placed.admission.as_deref().unwrap().clone();
        record.copies = copies;
        record.charged.set("pods", "8".parse().unwrap());
        placed.admission = Some(std::sync::Arc::new(record));
        let mut cache = Cache::default();
        cache.put_binding(key(), placed);
        let mut object = work(4);
        let job = &mut object["spec"]["workload"]["manifests"][0]["spec"];
        job["plugins"] = json!({"env": []});
        job["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "true"]);
        let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
        let copy = applied(&object, &patch);
        let container =
            &copy["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["value"].as_str(), offset);
    }
}

#[test]
fn a_deployments_work_is_held_against_its_record_and_one_that_is_not_queued_is_not() {
    let web = json!({
        "metadata": {"name": "w", "annotations": {
            "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "j-job",
        }},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }]}},
    });
    let service = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "j".into() };
    let binding = |_: Option<u32>| CachedBinding { workload: Some(service.clone()), ..binding(None) };
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(None));
    assert_eq!(review(&web, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    let mut more = web.clone();
    more["spec"]["workload"]["manifests"][0]["spec"]["replicas"] = 14.into();
    assert_eq!(review(&more, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    cache.put_binding(key(), CachedBinding { admission: None, ..binding(None) });
    assert_eq!(review(&web, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    cache.put_binding(key(), CachedBinding { gated: false, admission: None, ..binding(None) });
    assert_eq!(review(&more, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

#[test]
fn an_override_of_kind_namespace_or_name_is_refused() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    let live = LiveRead::Binding(Some(Box::new(binding(Some(4)))));
    for (pointer, value) in [
        ("/apiVersion", "apps/v1"),
        ("/kind", "ReplicaSet"),
        ("/metadata/namespace", "theirs"),
        ("/metadata/name", "other"),
    ] {
        let mut object = work(4);
        *object["spec"]["workload"]["manifests"][0].pointer_mut(pointer).unwrap() = value.into();
        let verdict = review(&object, None, Snapshot::of_read(&cache, Some(&live)));
        let Verdict::Deny(denial) = verdict else { panic!("{pointer}: {verdict:?}") };
        assert!(denial.message.contains("no override may change"), "{}", denial.message);
    }
    // Of a binding that is not queued, and of none, that is not ours to say.
    let mut map = work(4);
    map["spec"]["workload"]["manifests"][0]["kind"] = "ConfigMap".into();
    let gone = LiveRead::Binding(None);
    assert_eq!(review(&map, None, Snapshot::of_read(&cache, Some(&gone))), Verdict::UNCHANGED);
    cache.put_binding(key(), CachedBinding { gated: false, ..binding(None) });
    assert_eq!(review(&map, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

#[test]
fn a_plan_that_memory_does_not_have_yet_is_read_live_and_a_wrong_one_is_refused_for_now() {
    let mut cache = Cache::default();
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    cache.put_binding(key(), binding(None));
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    cache.put_binding(key(), binding(Some(3)));
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    let live = LiveRead::Binding(Some(Box::new(binding(Some(3)))));
    let snapshot = Snapshot::of_read(&cache, Some(&live));
    let Verdict::Deny(denial) = review(&work(4), None, snapshot) else { panic!() };
    assert_eq!(denial.code, 503);
    assert!(denial.message.contains("3 replicas") && denial.message.contains('4'), "{}", denial.message);
    let live = LiveRead::Binding(Some(Box::new(binding(Some(4)))));
    let snapshot = Snapshot::of_read(&cache, Some(&live));
    assert!(matches!(review(&work(4), None, snapshot), Verdict::Allow { .. }));
}

#[test]
fn a_work_that_goes_away_or_keeps_its_manifests_is_let_through() {
    let cache = Cache::default();
    let mut going = work(4);
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(review(&going, Some(&work(4)), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    let mut labelled = work(4);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let gone = LiveRead::Binding(None);
    let snapshot = Snapshot::of_read(&cache, Some(&gone));
    assert_eq!(review(&labelled, Some(&work(4)), snapshot), Verdict::UNCHANGED);
    let Verdict::Deny(denial) = review(&work(4), Some(&work(3)), snapshot) else { panic!() };
    assert!(denial.message.contains("does not exist"), "{}", denial.message);
}

#[test]
fn a_plan_that_changed_only_a_minimum_reaches_a_work_whose_manifest_did_not_change() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    assert!(
        matches!(review(&work(4), Some(&work(4)), Snapshot::of_cache(&cache)), Verdict::Allow { patch, .. } if !patch.is_empty())
    );
}

#[test]
fn a_binding_from_before_its_placement_never_lets_a_whole_copy_through() {
    let mut cache = Cache::default();
    let mut before = binding(Some(4));
    before.clusters.clear();
    cache.put_binding(key(), before.clone());
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    let live = LiveRead::Binding(Some(Box::new(before)));
    let snapshot = Snapshot::of_read(&cache, Some(&live));
    let Verdict::Deny(denial) = review(&work(4), None, snapshot) else { panic!() };
    assert!(denial.message.contains("does not place the job in cluster m1"), "{}", denial.message);
}

#[test]
fn an_announced_plan_makes_memory_stale_until_the_watch_shows_it() {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding(Some(4)));
    cache.note_reviewed_plan(key(), 12345);
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
}

fn work_of_cron_job(api_version: &str, namespace: &str, template: Value) -> Value {
    let mut work = work(1);
    work["spec"]["workload"]["manifests"][0] = json!({
        "apiVersion": api_version, "kind": "CronJob", "metadata": {"name": "c", "namespace": namespace},
        "spec": {"schedule": "* * * * *", "jobTemplate": template},
    });
    work
}

#[test]
fn a_cron_job_whose_jobs_are_queued_goes_to_no_member() {
    let mut cache = Cache::default();
    let opted_in = caldera_crds::tenancy::NamespaceFacts { opted_in: true, ..Default::default() };
    cache.namespaces.insert("queued".into(), opted_in);
    cache.put_binding(key(), CachedBinding::default());
    let judge = |work: &Value| match review(work, None, Snapshot::of_cache(&cache)) {
        Verdict::Deny(denial) => denial.message,
        verdict => {
            assert_eq!(verdict, Verdict::UNCHANGED);
            String::new()
        }
    };
    let named = json!({"metadata": {"labels": {"volcano.sh/queue-name": "q"}}});
    let by_pods =
        json!({"spec": {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}}}});
    for (work, why) in [
        (work_of_cron_job("batch.volcano.sh/v1alpha1", "ns", json!({})), "jobs of Volcano are queued"),
        (work_of_cron_job("batch/v1", "ns", named), "its jobs name a queue"),
        (work_of_cron_job("batch/v1", "ns", by_pods), "its jobs name a queue"),
        (work_of_cron_job("batch/v1", "queued", json!({})), "namespace queued opted in"),
    ] {
        let reported = judge(&work);
        assert!(reported.starts_with("CronJob ") && reported.contains(why), "{reported}");
    }
    assert_eq!(judge(&work_of_cron_job("batch/v1", "ns", json!({}))), "", "nobody queues its jobs");
    let mut overridden = work_of_cron_job("batch/v1", "elsewhere", json!({}));
    overridden["metadata"]["annotations"]["resourcebinding.karmada.io/namespace"] = "queued".into();
    assert!(judge(&overridden).contains("namespace queued opted in"), "an override of its namespace");
    overridden["metadata"]["annotations"] = json!({});
    overridden["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] = "queued".into();
    assert!(judge(&overridden).contains("namespace queued opted in"), "a Work of no binding");
}

#[test]
fn a_job_flow_goes_to_no_member_and_its_templates_do() {
    let of = |api_version: &str, kind: &str| {
        let mut work = work(1);
        work["spec"]["workload"]["manifests"][0] = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "f", "namespace": "ns"}, "spec": {},
        });
        work
    };
    let mut cache = Cache::default();
    cache.put_binding(key(), CachedBinding::default());
    let Verdict::Deny(denial) = review(&of("flow.volcano.sh/v1alpha1", "JobFlow"), None, Snapshot::of_cache(&cache))
    else {
        panic!("it goes");
    };
    assert_eq!(
        denial.message,
        "JobFlow ns/f does not go to members, where no queue would be charged for its jobs, and jobs of Volcano are \
         queued: let the policy select no JobFlow; Volcano Jobs that are made on the host wait in line, whoever makes them"
    );
    let Verdict::Deny(denial) =
        review(&of("scheduling.volcano.sh/v1beta1", "PodGroup"), None, Snapshot::of_cache(&cache))
    else {
        panic!("it goes");
    };
    assert!(denial.message.starts_with("PodGroup ns/f does not go to members"), "{}", denial.message);
    for other in [
        of("flow.volcano.sh/v1alpha1", "JobTemplate"),
        of("example.com/v1", "JobFlow"),
        of("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    ] {
        assert_eq!(review(&other, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }
    // A member has it already.
    let flow = of("flow.volcano.sh/v1alpha1", "JobFlow");
    let mut labelled = flow.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(review(&labelled, Some(&flow), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

#[test]
fn a_cron_job_that_a_member_has_already_stays_until_its_copy_changes() {
    let cache = Cache::default();
    let work = work_of_cron_job("batch.volcano.sh/v1alpha1", "ns", json!({}));
    let mut labelled = work.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let gone = LiveRead::Binding(None);
    let snapshot = Snapshot::of_read(&cache, Some(&gone));
    assert_eq!(review(&labelled, Some(&work), snapshot), Verdict::UNCHANGED);
    let mut sooner = work.clone();
    sooner["spec"]["workload"]["manifests"][0]["spec"]["schedule"] = "1 * * * *".into();
    assert!(matches!(review(&sooner, Some(&work), snapshot), Verdict::Deny(_)));
    sooner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(review(&sooner, Some(&work), snapshot), Verdict::UNCHANGED);
}

/// The host's own object does not tell: whoever edits a Deployment edits that too.
#[test]
fn a_running_deployment_that_is_edited_to_a_class_that_its_queue_does_not_take_goes_out_as_it_was() {
    let mut cache = Cache::default();
    let annotations = json!({"caldera.dev/priority-classes": "batch"});
    cache.queues.insert("q".into(), json!({"metadata": {"name": "q", "annotations": annotations}}));
    let record = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"pods": 2}, "charged": {"pods": "2"}});
    let key = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "web".into() };
    let placed = CachedBinding {
        gated: true,
        workload: Some(key.clone()),
        admission: Some(caldera_core::admission::Admission::parse(&record.to_string()).unwrap().into()),
        clusters: [("m1".to_owned(), 2)].into(),
        ..CachedBinding::default()
    };
    let web = |class: &str, image: &str| {
        let annotations = json!({"scheduling.volcano.sh/queue-name": "q"});
        let containers = json!([{"name": "c", "image": image}]);
        let mut work = work(2);
        work["spec"]["workload"]["manifests"][0] = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "ns", "annotations": annotations},
            "spec": {"replicas": 2, "template": {"spec": {"priorityClassName": class, "containers": containers}}},
        });
        work
    };
    let review = |old: &Value, new: &Value| {
        let class = new.pointer("/spec/workload/manifests/0/spec/template/spec/priorityClassName");
        let mut cache = cache.clone();
        let host =
            CachedWorkload { priority_class: Some(class.unwrap().as_str().unwrap().into()), ..Default::default() };
        cache.workloads.insert(key.clone(), host);
        let live = LiveRead::Binding(Some(Box::new(placed.clone())));
        review(new, Some(old), Snapshot::of_read(&cache, Some(&live)))
    };
    let Verdict::Deny(denial) = review(&web("batch", "i"), &web("critical", "i")) else { panic!("it goes out") };
    let reported =
        "queue q takes no jobs of priority class critical: of batch alone, and it was not admitted with that class";
    assert!(denial.message.contains(reported), "{}", denial.message);
    for (before, after) in [(["batch", "i"], ["batch", "j"]), (["critical", "i"], ["critical", "j"])] {
        let verdict = review(&web(before[0], before[1]), &web(after[0], after[1]));
        assert!(matches!(verdict, Verdict::Allow { .. }), "{before:?}: {verdict:?}");
    }
}

#[test]
fn a_copy_takes_what_it_claims_along_and_no_override_makes_it_more() {
    let asks = |count: u32| json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.io", "count": count}}]}});
    let claiming = |count: u32| {
        let mut work = work(4);
        let template = &mut work["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"];
        let written = json!({"two": asks(count)}).to_string();
        template["metadata"] = json!({"annotations": {"caldera.dev/device-claims": written}});
        template["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "two"}]);
        work
    };
    let mut placed = binding(Some(4));
    let charged = json!({"pods": "4", "deviceclass/gpu.io": "8"});
    let record = json!({"queue": "default", "priority": 0, "copies": 1, "tasks": {"t": 4}, "charged": charged});
    placed.admission = Some(caldera_core::admission::Admission::parse(&record.to_string()).unwrap().into());
    let mut cache = Cache::default();
    cache.put_binding(key(), placed);
    let Verdict::Allow { patch, .. } = review(&claiming(2), None, Snapshot::of_cache(&cache)) else { panic!() };
    let sent = applied(&claiming(2), &patch);
    let [job, template] = sent["spec"]["workload"]["manifests"].as_array().unwrap().as_slice() else {
        panic!("{sent}")
    };
    let name = &template["metadata"]["name"];
    let claim = &job["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"][0];
    assert_eq!((&claim["resourceClaimTemplateName"], &template["metadata"]["namespace"]), (name, &json!("ns")));
    assert_eq!((&template["kind"], &template["spec"]["spec"]), (&json!("ResourceClaimTemplate"), &asks(2)));
    // Karmada writes the Work again as it was, or touches it as it is.
    for old in [&claiming(2), &sent] {
        let Verdict::Allow { patch, .. } = review(old, Some(&sent), Snapshot::of_cache(&cache)) else { panic!() };
        assert_eq!(applied(old, &patch), sent);
    }
    // What an override makes of the template that goes along is undone, and of what is written down refused.
    let mut more = sent.clone();
    more["spec"]["workload"]["manifests"][1]["spec"]["spec"] = asks(8);
    let Verdict::Allow { patch, .. } = review(&more, Some(&sent), Snapshot::of_cache(&cache)) else { panic!() };
    assert_eq!(applied(&more, &patch), sent);
    let live = LiveRead::Binding(cache.bindings.get(&key()).cloned().map(Box::new));
    let Verdict::Deny(denial) = review(&claiming(3), None, Snapshot::of_read(&cache, Some(&live))) else { panic!() };
    let why = "asks for deviceclass/gpu.io 12, and queue default is charged 8";
    assert!(denial.message.contains(why), "{}", denial.message);
}

/// Found by a reader: the first template of a name stays in the member, and its job would run with that.
#[test]
fn nobody_sends_a_template_under_a_name_of_those_that_go_with_jobs() {
    let name = format!("j-devices-{}", "0a".repeat(16));
    let of = |name: &str, gated: bool| {
        let mut work = work(4);
        let metadata = json!({"name": name, "namespace": "ns"});
        let template =
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata});
        work["spec"]["workload"]["manifests"] = json!([template]);
        let mut cache = Cache::default();
        let resource = ("resource.k8s.io/v1".into(), "ResourceClaimTemplate".into());
        let workload = binding(None).workload.filter(|_| gated);
        cache.put_binding(key(), CachedBinding { gated, workload, resource, ..binding(None) });
        let live = LiveRead::Binding(cache.bindings.get(&key()).cloned().map(Box::new));
        review(&work, None, Snapshot::of_read(&cache, Some(&live)))
    };
    assert_eq!(of("mine", false), Verdict::UNCHANGED);
    let Verdict::Deny(denial) = of(&name, false) else { panic!() };
    assert!(denial.message.contains("does not go with one"), "{}", denial.message);
    let Verdict::Deny(denial) = of(&name, true) else { panic!() };
    assert!(denial.message.contains("carries no copy of its workload"), "{}", denial.message);
}
