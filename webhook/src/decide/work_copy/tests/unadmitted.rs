//! What was admitted by nobody and would be in somebody's queue in a member.

use super::*;

#[test]
fn an_override_makes_no_queued_workload_of_what_is_none() {
    let of_map = || CachedBinding { resource: ("v1".into(), "ConfigMap".into()), ..CachedBinding::default() };
    let mut cache = Cache::default();
    cache.put_binding(key(), of_map());
    assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    let live = LiveRead::Binding(Some(Box::new(of_map())));
    let judge =
        |cache: &Cache, work: &Value, old: Option<&Value>| review(work, old, Snapshot::of_read(cache, Some(&live)));
    let Verdict::Deny(denial) = judge(&cache, &work(4), None) else { panic!("a Volcano Job") };
    assert!(denial.message.contains("no override may make"), "{}", denial.message);
    assert_eq!(judge(&cache, &work(4), Some(&work(4))), Verdict::UNCHANGED, "it is there already");
    let mut web = work(4);
    web["spec"]["workload"]["manifests"][0] = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "j", "namespace": "ns"}, "spec": {},
    });
    assert_eq!(judge(&cache, &web, None), Verdict::UNCHANGED, "nobody queues it");
    let mut named = web.clone();
    named["spec"]["workload"]["manifests"][0]["metadata"]["labels"] = json!({"volcano.sh/queue-name": "q"});
    assert!(matches!(judge(&cache, &named, None), Verdict::Deny(_)), "it names a queue");
    let opted_in = caldera_crds::tenancy::NamespaceFacts { opted_in: true, ..Default::default() };
    cache.namespaces.insert("ns".into(), opted_in);
    assert!(matches!(judge(&cache, &web, None), Verdict::Deny(_)), "its namespace is queued");
    // The binding's own, which joined no queue when it was made.
    let own = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "j".into() };
    cache.put_binding(key(), CachedBinding { workload: Some(own), ..CachedBinding::default() });
    assert_eq!(review(&web, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
}

const NAMES: [&str; 2] = ["volcano.sh/queue-name", "scheduling.volcano.sh/queue-name"];

/// A Work of a manifest of this kind with a template of pods.
fn work_of(api_version: &str, kind: &str) -> Value {
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut sent = work(1);
    sent["spec"]["workload"]["manifests"][0] = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"replicas": 2, "template": template},
    });
    sent
}

/// The same, where something names a queue at this place of the manifest.
fn naming(mut work: Value, place: &str, name: &str) -> Value {
    let manifest = &mut work["spec"]["workload"]["manifests"][0];
    let mut at = manifest;
    for field in place.split('/') {
        at = &mut at[field];
    }
    at[name] = "victim".into();
    work
}

fn unqueued(kind: WorkloadKind) -> CachedBinding {
    let own = WorkloadKey { kind, namespace: "ns".into(), name: "j".into() };
    CachedBinding {
        resource: (kind.api_version().into(), kind.kind().into()),
        workload: Some(own),
        clusters: [("m1".to_owned(), 2)].into(),
        ..CachedBinding::default()
    }
}

/// The refusal, empty if it goes out untouched.
fn judge(binding: &CachedBinding, work: &Value, old: Option<&Value>) -> String {
    let mut cache = Cache::default();
    cache.put_binding(key(), binding.clone());
    let live = LiveRead::Binding(Some(Box::new(binding.clone())));
    match review(work, old, Snapshot::of_read(&cache, Some(&live))) {
        Verdict::Deny(denial) => denial.message,
        verdict => {
            assert_eq!(verdict, Verdict::UNCHANGED);
            String::new()
        }
    }
}

/// An OverridePolicy of its owner, or his later edit: its pods would hold a queue that nobody charged for them.
#[test]
fn what_was_placed_without_a_gate_names_no_queue_by_an_override_or_an_edit() {
    let web = unqueued(WorkloadKind::Deployment);
    let plain = work_of("apps/v1", "Deployment");
    assert_eq!(judge(&web, &plain, None), "", "nobody queues it");
    for name in NAMES {
        for place in ["spec/template/metadata/annotations", "spec/template/metadata/labels", "metadata/annotations"] {
            if (place, name) == ("spec/template/metadata/labels", NAMES[1]) {
                continue;
            }
            let named = naming(plain.clone(), place, name);
            for old in [None, Some(&plain)] {
                let reported = judge(&web, &named, old);
                assert!(
                    reported.contains("would be in queue victim") && reported.contains("ns/j-job"),
                    "{place}: {reported}"
                );
            }
        }
    }
    let job = unqueued(WorkloadKind::VolcanoJob);
    assert!(judge(&job, &work(4), None).contains("would be in queue default"), "a Volcano Job always is");
}

#[test]
fn what_can_not_be_queued_names_no_queue_whatever_its_kind_and_goes_untouched_without_one() {
    let nobodys = CachedBinding { resource: ("x".into(), "X".into()), ..CachedBinding::default() };
    for (api_version, kind) in [
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "DaemonSet"),
        ("v1", "ReplicationController"),
        ("argoproj.io/v1alpha1", "Workflow"),
        ("kubeflow.org/v1", "XGBoostJob"),
    ] {
        let plain = work_of(api_version, kind);
        let named = naming(plain.clone(), "spec/template/metadata/annotations", NAMES[1]);
        assert_eq!(judge(&nobodys, &plain, None), "", "{kind}");
        let reported = judge(&nobodys, &named, None);
        assert!(reported.starts_with(&format!("{kind} ns/j does not go to members")), "{reported}");
        let mut unbound = named.clone();
        unbound["metadata"]["annotations"] = json!({});
        assert!(judge(&nobodys, &unbound, None).starts_with(kind), "a Work of no binding");
        assert_eq!(judge(&nobodys, &unbound, Some(&unbound)), "");
        unbound["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] = json!(null);
        assert_eq!(judge(&nobodys, &unbound, None), "", "a fleet admin's");
        let gone = LiveRead::Binding(None);
        let cache = Cache::default();
        let of_none = |work: &Value| review(work, None, Snapshot::of_read(&cache, Some(&gone)));
        assert!(matches!(of_none(&named), Verdict::Deny(_)), "{kind} of a binding that is not there");
        assert_eq!(of_none(&plain), Verdict::UNCHANGED);
        // Nor is one sent under the name of somebody's job that was admitted.
        assert!(judge(&binding(Some(4)), &named, None).contains("no override may change"), "{kind}");
    }
}

#[test]
fn another_version_of_a_kind_goes_no_other_way() {
    let own = unqueued(WorkloadKind::RayJob);
    let mut ray = work_of("ray.io/v1alpha1", "RayJob");
    assert_eq!(judge(&own, &ray, None), "");
    ray = naming(ray, "metadata/labels", NAMES[0]);
    assert!(judge(&own, &ray, None).contains("would be in queue victim"));
}

/// What went out by its gate goes on to be held against its record; what did not is in its member as it is.
#[test]
fn after_an_upgrade_what_a_gate_let_out_goes_on_and_what_none_did_keeps_the_copy_that_it_has() {
    let web = unqueued(WorkloadKind::Deployment);
    let before = naming(work_of("apps/v1", "Deployment"), "spec/template/metadata/annotations", NAMES[1]);
    let mut labelled = before.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(judge(&web, &labelled, Some(&before)), "", "its manifest is the same");
    let mut more = before.clone();
    more["spec"]["workload"]["manifests"][0]["spec"]["replicas"] = 200.into();
    assert!(judge(&web, &more, Some(&before)).contains("would be in queue victim"), "under the same name");
    let record = json!({"queue": "victim", "priority": 0, "copies": 1, "tasks": {"pods": 2}, "charged": {"pods": "2"}});
    for annotations in [
        json!({"caldera.dev/gate": "open", "caldera.dev/admission": record.to_string()}),
        json!({"caldera.dev/admission": record.to_string()}),
    ] {
        let let_out = CachedBinding::from_object(&json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "j"},
                "clusters": [{"name": "m1", "replicas": 2}],
            },
        }));
        let mut image = before.clone();
        image["spec"]["workload"]["manifests"][0]["spec"]["template"]["spec"]["containers"][0]["image"] = "k".into();
        assert_eq!(judge(&let_out, &image, Some(&before)), "");
        assert!(judge(&let_out, &more, Some(&before)).contains("200 pods"), "no more than its record");
    }
}
