//! What a workload says of its queue, its priority, its waiting and its running time.

use super::*;

#[test]
fn a_pods_annotation_names_the_queue_before_its_owners() {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "annotations": { QUEUE_OLD: "owner", QUEUE: "owner-new" }, "labels": { QUEUE: "owner-label" } },
        "spec": { "template": { "metadata": { "annotations": { QUEUE_OLD: "pod" }, "labels": { QUEUE: "label" } } } },
    });
    let mut seen = Vec::new();
    for place in [
        "/spec/template/metadata/annotations",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
        "/metadata/labels",
    ] {
        seen.push(queue_of(&object).to_string());
        *object.pointer_mut(place).expect("a place") = json!({});
    }
    assert_eq!(seen, ["pod", "owner", "label", "owner-label"]);
    assert_eq!(queue_of(&object).as_str(), "default");
    assert!(!names_queue(&object));
}

#[test]
fn a_field_of_its_own_kind_names_the_queue_where_nothing_else_does() {
    for (api_version, kind, field) in [
        ("kubeflow.org/v1", "PyTorchJob", "/runPolicy/schedulingPolicy/queue"),
        ("kubeflow.org/v1", "TFJob", "/runPolicy/schedulingPolicy/queue"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "/batchSchedulerOptions/queue"),
    ] {
        let spec = json!({"runPolicy": {"schedulingPolicy": {}}, "batchSchedulerOptions": {}});
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec});
        assert!(!names_queue(&object), "{kind}");
        let (parent, last) = field.rsplit_once('/').unwrap();
        for (value, named) in [(json!("field"), true), (json!(""), false), (json!(7), false), (json!(null), false)] {
            object["spec"].pointer_mut(parent).unwrap()[last] = value;
            assert_eq!(names_queue(&object), named, "{object}");
        }
        object["spec"].pointer_mut(parent).unwrap()[last] = "field".into();
        assert_eq!(queue_of(&object).as_str(), "field");
        object["metadata"]["labels"] = json!({QUEUE: "label"});
        assert_eq!(queue_of(&object).as_str(), "label", "and then the field must say the same");
    }
}

#[test]
fn the_time_it_may_wait_is_on_the_workload_or_its_pods() {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "annotations": { SLA_WAITING_TIME: "1h" } },
        "spec": { "template": { "metadata": { "annotations": { SLA_WAITING_TIME: "90s" } } } },
    });
    assert_eq!(sla_waiting_time(&object), Some(90));
    object["spec"]["template"]["metadata"] = json!({});
    assert_eq!(sla_waiting_time(&object), Some(3600));
    for nothing in [json!("soon"), json!("-1h"), json!("0s"), json!(5), json!(null)] {
        object["metadata"]["annotations"][SLA_WAITING_TIME] = nothing;
        assert_eq!(sla_waiting_time(&object), None);
    }
}

#[test]
fn a_running_estimate_is_a_duration_or_the_deadline_that_kills() {
    let mut object = json!({ "kind": "Job", "apiVersion": "batch/v1", "spec": { "activeDeadlineSeconds": 600 } });
    assert_eq!(running_estimate(&object), Some(600));
    object["metadata"]["annotations"][crate::names::caldera::RUNNING_ESTIMATE] = "1h30m".into();
    assert_eq!(running_estimate(&object), Some(5400));
    object["spec"] = json!({});
    for nothing in [json!("a while"), json!("-1h"), json!("0s"), json!(7)] {
        object["metadata"]["annotations"][crate::names::caldera::RUNNING_ESTIMATE] = nothing;
        assert_eq!(running_estimate(&object), None);
    }
}

#[test]
fn volcanos_own_running_estimate_counts_unless_the_annotation_says_otherwise() {
    let mut object = job(json!({ "runningEstimate": "2h0m0s", "tasks": [{}] }));
    assert_eq!(running_estimate(&object), Some(7200));
    object["metadata"]["annotations"][crate::names::caldera::RUNNING_ESTIMATE] = "90m".into();
    assert_eq!(running_estimate(&object), Some(5400));
    for nothing in [json!("soon"), json!("0s"), json!(7200), json!(null)] {
        assert_eq!(running_estimate(&job(json!({ "runningEstimate": nothing }))), None);
    }
}

#[test]
fn a_volcano_job_names_its_queue_and_priority_in_its_spec() {
    let object = job(json!({ "queue": "q", "priorityClassName": "high", "tasks": [{}] }));
    assert_eq!(queue_of(&object).as_str(), "q");
    assert_eq!(priority_class_of(&object), "high");
    assert_eq!(queue_of(&job(json!({}))).as_str(), "default");
    let pod = pod(json!({ "priorityClassName": "low" }));
    assert_eq!(priority_class_of(&pod), "low");
}

#[test]
fn preemptable_is_said_by_the_workload_or_else_by_all_its_pods() {
    let says = |own: Value, pods: &[Value]| {
        let tasks: Vec<Value> = pods.iter().map(|pod| json!({"template": {"metadata": pod}})).collect();
        read_preemptable(&json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": own, "spec": {"tasks": tasks},
        }))
    };
    let key = |at: &str, value: &str| json!({at: {PREEMPTABLE: value}});
    assert_eq!(says(json!({}), &[]), None);
    assert_eq!(says(key("labels", "true"), &[]), Some(true));
    let both = json!({"annotations": {PREEMPTABLE: "false"}, "labels": {PREEMPTABLE: "true"}});
    assert_eq!(says(both, &[]), Some(false));
    assert_eq!(says(key("annotations", "perhaps"), &[]), Some(false));
    assert_eq!(says(json!({}), &[key("labels", "true"), json!({})]), Some(true));
    assert_eq!(says(json!({}), &[key("labels", "true"), key("annotations", "false")]), Some(false));
    assert_eq!(says(key("annotations", "true"), &[key("annotations", "false")]), Some(true));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {PREEMPTABLE: "1"}}});
    assert_eq!(read_preemptable(&pod), Some(true));
}

/// Its PodGroup says queue and class, and may be the tenant's own.
#[test]
fn pods_that_name_a_group_are_refused_but_a_volcano_jobs() {
    let group = "scheduling.k8s.io/group-name";
    let named = json!({ group: "evil" });
    let spec = || json!({ "template": { "metadata": { "annotations": named }, "spec": {} } });
    let of = |api: &str, kind: &str, metadata: Value, spec: Value| {
        let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
        object["spec"] = spec;
        object
    };
    let why = "its pods would have queue and priority class of that PodGroup, which nobody charged: leave it out";
    for (api, kind) in [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")] {
        let reported = format!("spec.template.metadata.annotations[{group}]: {why}");
        assert_eq!(refused(&of(api, kind, json!({}), spec())), reported);
        // A template has no owners that could say who made its group.
        let mut owned = spec();
        owned["template"]["metadata"]["ownerReferences"] = json!([{ "controller": true }]);
        assert_eq!(refused(&of(api, kind, json!({}), owned)), reported);
        read(&of(api, kind, json!({ "annotations": named }), json!({ "template": { "spec": {} } })));
    }
    let pod = |metadata: Value| of("v1", "Pod", metadata, json!({}));
    assert_eq!(refused(&pod(json!({ "annotations": named }))), format!("metadata.annotations[{group}]: {why}"));
    // Whoever writes a pod writes its owners.
    let owned = json!({ "annotations": named, "ownerReferences": [{ "controller": true }] });
    assert_eq!(refused(&pod(owned)), format!("metadata.annotations[{group}]: {why}"));
    // Volcano writes its own name over it.
    read(&job_of(json!({ "template": spec()["template"] })));
}

#[test]
fn images_count_for_a_volcano_job_of_its_own_and_not_for_one_of_a_hyper_job() {
    let mut job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {},
        "spec": {"tasks": [{"replicas": 1, "template": {"spec": {"containers": [{"image": "train"}]}}}]},
    });
    assert!(read_pod_images(&job).is_some());
    let owner = json!({"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "name": "h", "uid": "u"});
    job["metadata"]["ownerReferences"] = json!([owner]);
    assert!(read_pod_images(&job).is_some(), "an owner that does not control it");
    job["metadata"]["ownerReferences"][0]["controller"] = true.into();
    assert!(read_pod_images(&job).is_none());
}
