use caldera_crds::trusted::CONTROLLER_ACCOUNT;
use kube_cel::{
    KubeCelExt,
    cel::{Context, Program, Value as CelValue, to_value},
};
use serde_json::{Value, json};

use super::*;

fn holds(expression: &str, old: Option<&Value>, new: &Value) -> bool {
    let request = json!({"operation": if old.is_some() { "UPDATE" } else { "CREATE" }});
    holds_for(expression, &request, old, new)
}

fn holds_for(expression: &str, request: &Value, old: Option<&Value>, new: &Value) -> bool {
    let mut context = Context::default().with_all();
    for (name, value) in [("object", Some(new)), ("oldObject", old), ("request", Some(request))] {
        context.add_variable_from_value(name, to_value(value).unwrap());
    }
    Program::compile(expression).unwrap().execute(&context).unwrap() == CelValue::Bool(true)
}

/// What a condition keeps from us is what the rules leave alone.
#[test]
fn a_job_is_reviewed_when_it_is_made_and_when_its_spec_or_its_annotations_change() {
    let new_spec_or_stamps = match_new_spec_or_stamps();
    let annotations = json!({"a": "1", "caldera.dev/submitted": "1"});
    let job = json!({"metadata": {"name": "j", "annotations": annotations}, "spec": {"minAvailable": 1}});
    let with = |pointer: &str, value: Value| {
        let mut changed = job.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let finalized = with("/metadata", json!({"name": "j", "annotations": annotations, "finalizers": ["f"]}));
    for (new, reported) in [
        (&job, [false, false, false]),
        (&finalized, [false, false, false]),
        (&with("/spec/minAvailable", json!(2)), [true, true, true]),
        (&with("/metadata/annotations/a", json!("2")), [false, false, true]),
        (&with("/metadata/annotations/caldera.dev~1submitted", json!("2")), [false, true, true]),
        (&with("/metadata/annotations", json!({"a": "1"})), [false, true, true]),
        (&with("/metadata", json!({"name": "j"})), [false, true, true]),
        (
            &with("/metadata/annotations", json!({"a": "1", "caldera.dev/submitted": "1", "caldera.dev/hold": "true"})),
            [false, true, true],
        ),
    ] {
        let is_reported =
            [NEW_SPEC, &new_spec_or_stamps, NEW_SPEC_OR_ANNOTATIONS].map(|condition| holds(condition, Some(&job), new));
        assert_eq!(is_reported, reported, "{new}");
    }
    assert!([NEW_SPEC, &new_spec_or_stamps, NEW_SPEC_OR_ANNOTATIONS].iter().all(|one| holds(one, None, &job)));
    let new_stamps = match_new_stamps();
    let stamped_anew = with("/metadata/annotations/caldera.dev~1submitted", json!("2"));
    assert!(holds(&new_stamps, None, &job) && holds(&new_stamps, Some(&job), &stamped_anew));
    assert!(!holds(&new_stamps, Some(&job), &with("/spec/minAvailable", json!(2))));
    let bare = json!({"metadata": {"name": "j"}, "spec": {}});
    assert!(!holds(&new_spec_or_stamps, Some(&bare), &bare) && holds(&new_spec_or_stamps, Some(&bare), &job));
}

#[test]
fn a_member_is_reviewed_when_its_taints_or_annotations_change() {
    let member = |annotations: Value, taints: Value| json!({"metadata": {"name": "m1", "annotations": annotations}, "spec": {"taints": taints}});
    let old = member(json!({"a": "1"}), json!([]));
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"l": "v"});
    assert!(!holds(NEW_CLUSTER, Some(&old), &labelled));
    let mut beaten = old.clone();
    beaten["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    assert!(!holds(NEW_CLUSTER, Some(&old), &beaten), "a heartbeat");
    assert!(holds(NEW_CLUSTER, None, &labelled));
    assert!(holds(NEW_CLUSTER, Some(&old), &member(json!({"a": "2"}), json!([]))));
    assert!(holds(NEW_CLUSTER, Some(&old), &member(json!({"a": "1"}), json!([{"key": "k"}]))));
}

#[test]
fn a_workload_is_asked_about_when_it_is_made_to_be_queued_or_with_stamps_and_when_a_user_acts_on_it() {
    let with = |annotations: Value| json!({"metadata": {"name": "d", "annotations": annotations}});
    let (bare, queued) = (json!({"metadata": {"name": "d"}}), with(json!({"scheduling.volcano.sh/queue-name": "q"})));
    let (acts, in_namespace) = (match_new_actions(), match_new_actions_in_namespace());
    for stamp in ACTION_STAMPS.into_iter().chain(STAMPS) {
        for value in ["ada", ""] {
            assert!(holds(&acts, None, &with(json!({stamp: value}))), "{stamp}={value}");
        }
    }
    let spec = |spec: Value| json!({"metadata": {"name": "d"}, "spec": spec});
    let of_pods = spec(json!({"template": {"metadata": {"labels": {"volcano.sh/queue-name": "q"}}}}));
    let of_kubeflow = spec(json!({"runPolicy": {"schedulingPolicy": {"queue": "q"}}}));
    let of_spark = spec(json!({"batchSchedulerOptions": {"queue": "q"}}));
    for made in [&queued, &of_pods, &of_kubeflow, &of_spark] {
        assert!(holds(&acts, None, made), "{made}");
    }
    let of_none = spec(json!({"runPolicy": {"schedulingPolicy": {"queue": ""}}, "template": {"metadata": {}}}));
    for made in [&bare, &of_none, &spec(json!({"runPolicy": {}}))] {
        assert!(!holds(&acts, None, made) && holds(&in_namespace, None, made), "{made}");
    }
    for acts in [&acts, &in_namespace] {
        assert!(holds(acts, Some(&queued), &with(json!({"caldera.dev/hold": "true"}))));
        assert!(holds(acts, Some(&bare), &with(json!({"caldera.dev/submitter": "eve"}))));
        assert!(!holds(acts, Some(&queued), &queued) && !holds(acts, Some(&bare), &bare));
        let mut scaled = queued.clone();
        scaled["spec"] = json!({"replicas": 2});
        assert!(!holds(acts, Some(&queued), &scaled), "what others than its user do to it most");
    }
}

#[test]
fn a_binding_is_reviewed_unless_it_has_a_gate_and_keeps_spec_and_annotations() {
    let gated = json!({
        "metadata": {"name": "j-job", "annotations": {"caldera.dev/gate": "closed"}},
        "spec": {"suspension": {"scheduling": true}},
    });
    let mut finalized = gated.clone();
    finalized["metadata"]["finalizers"] = json!(["f"]);
    finalized["metadata"]["labels"] = json!({"l": "v"});
    assert!(!holds(NEW_BINDING, Some(&gated), &finalized));
    let mut lifted = gated.clone();
    lifted["spec"]["suspension"]["scheduling"] = false.into();
    let mut forged = gated.clone();
    forged["metadata"]["annotations"]["caldera.dev/admission"] = "{}".into();
    let mut stripped = gated.clone();
    stripped["metadata"] = json!({"name": "j-job"});
    for (old, new) in [(&gated, &lifted), (&gated, &forged), (&gated, &stripped), (&stripped, &gated)] {
        assert!(holds(NEW_BINDING, Some(old), new), "{new}");
    }
    assert!(holds(NEW_BINDING, Some(&stripped), &stripped), "its next update gates it");
    assert!(holds(NEW_BINDING, None, &gated));
}

/// Who can not have that name, and what changes whether a binding is gated, is told.
#[test]
fn of_gated_bindings_the_controllers_own_updates_alone_are_not_told() {
    let open = json!({"metadata": {"annotations": {"caldera.dev/gate": "open"}}, "spec": {}});
    let mut closed = open.clone();
    closed["spec"] = json!({"suspension": {"scheduling": true}});
    let mut gated = open.clone();
    gated["metadata"]["annotations"]["caldera.dev/admission"] = "{}".into();
    let (bare, other) = (json!({"metadata": {}}), json!({"metadata": {"annotations": {"a": "b"}}}));
    let is_reported = |user: &str, old: Option<&Value>, new: &Value| {
        let request = json!({
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "userInfo": {"username": user},
        });
        holds_for(BY_OTHERS, &request, old, new)
    };
    assert!(!is_reported(CONTROLLER_ACCOUNT, Some(&closed), &gated), "a release");
    assert!(!is_reported(CONTROLLER_ACCOUNT, Some(&gated), &closed), "an eviction");
    assert!(is_reported(CONTROLLER_ACCOUNT, Some(&closed), &open), "a gate opened without a record");
    assert!(is_reported(CONTROLLER_ACCOUNT, None, &gated));
    for (old, new) in [(&gated, &bare), (&bare, &gated), (&other, &gated), (&gated, &other)] {
        assert!(is_reported(CONTROLLER_ACCOUNT, Some(old), new), "{new}");
    }
    for user in ["tenant", "caldera-controller", "system:serviceaccount:ns:caldera-controller", ""] {
        assert!(is_reported(user, Some(&gated), &gated), "{user}");
    }
}

#[test]
fn of_a_cron_job_that_is_queued_whatever_its_namespace_no_outage_lets_one_pass() {
    let work = |api_version: &str, kind: &str, template: Value| {
        let manifest = json!({"apiVersion": api_version, "kind": kind, "spec": {"jobTemplate": template}});
        json!({"spec": {"workload": {"manifests": [manifest]}}})
    };
    let named = json!({"labels": {"volcano.sh/queue-name": "q"}});
    let by_pods = json!({"spec": {"template": {"metadata": {"annotations": {
        "scheduling.volcano.sh/queue-name": "q",
    }}}}});
    let (queued, cron_job) = (match_queued_cron_job(), match_cron_job());
    for (work, is_queued, is_cron_job) in [
        (work("batch.volcano.sh/v1alpha1", "CronJob", json!({})), true, false),
        (work("batch/v1", "CronJob", json!({"metadata": named})), true, true),
        (work("batch/v1", "CronJob", by_pods), true, true),
        (work("batch/v1", "CronJob", json!({"metadata": {}, "spec": {"template": {}}})), false, true),
        (work("batch/v1", "CronJob", json!({})), false, true),
        (work("batch/v1", "Job", json!({"metadata": named})), false, false),
        (json!({"spec": {}}), false, false),
    ] {
        assert_eq!(holds(&queued, None, &work), is_queued, "{work}");
        assert_eq!(holds(&cron_job, None, &work), is_cron_job, "{work}");
    }
}

#[test]
fn a_job_flow_and_a_pod_group_reach_the_webhook_and_a_job_template_does_not() {
    let work = |api_version: &str, kind: &str| {
        let manifest = json!({"apiVersion": api_version, "kind": kind});
        json!({"spec": {"workload": {"manifests": [manifest]}}})
    };
    let (job_flow, pod_group) = (match_job_flow(), match_pod_group());
    assert!(holds(&job_flow, None, &work("flow.volcano.sh/v1alpha1", "JobFlow")));
    assert!(!holds(&job_flow, None, &work("flow.volcano.sh/v1alpha1", "JobTemplate")));
    assert!(!holds(&job_flow, None, &work("example.com/v1", "JobFlow")));
    assert!(!holds(&job_flow, None, &json!({"spec": {}})));
    assert!(holds(&pod_group, None, &work("scheduling.volcano.sh/v1beta1", "PodGroup")));
    assert!(!holds(&pod_group, None, &work("scheduling.x-k8s.io/v1alpha1", "PodGroup")));
    assert!(!holds(&pod_group, None, &json!({"spec": {}})));
}

/// Nobody pays a call for what names none and was not asked about before.
#[test]
fn what_names_a_queue_reaches_the_webhook_in_an_outage_too_whatever_kind_and_version_it_is() {
    let kinds = KindsInCel::new();
    let (queued, other, undeclared) =
        (kinds.match_queued_work(), kinds.match_other_work(), kinds.match_undeclared_work());
    let conditions = [queued.as_str(), other.as_str(), undeclared.as_str()];
    let is_reported = |version: &str, kind: &str, own: Value, of_pods: Value| {
        let manifest = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": "x", "annotations": own},
            "spec": {"template": {"metadata": {"annotations": of_pods}}},
        });
        let work = json!({"spec": {"workload": {"manifests": [manifest]}}});
        conditions.map(|condition| holds(condition, None, &work))
    };
    let (named, none) = (json!({"scheduling.volcano.sh/queue-name": "q"}), json!({"a": "b"}));
    for (version, kind, unnamed) in [
        ("apps/v1", "Deployment", [false, true, false]),
        ("apps/v1beta2", "Deployment", [false, true, false]),
        ("v1", "Pod", [false, true, false]),
        ("ray.io/v1alpha1", "RayJob", [false, true, false]),
        ("apps/v1", "ReplicaSet", [false, false, false]),
        ("apps/v1", "DaemonSet", [false, false, false]),
        ("v1", "ReplicationController", [false, false, false]),
        ("argoproj.io/v1alpha1", "Workflow", [false, false, true]),
        ("batch.volcano.sh/v2", "Job", [true, false, false]),
    ] {
        assert_eq!(is_reported(version, kind, none.clone(), none.clone()), unnamed, "{version} {kind}");
        assert!(is_reported(version, kind, named.clone(), none.clone())[0], "{version} {kind}");
        // The templates of what is nobody's may have any form: while the webhook is there it looks at all.
        let [by_pods, ..] = is_reported(version, kind, none.clone(), named.clone());
        assert_eq!(by_pods, kind != "Workflow", "{version} {kind}");
    }
    for (version, kind) in [("v1", "ConfigMap"), ("v1", "Service"), ("networking.k8s.io/v1", "Ingress")] {
        assert_eq!(is_reported(version, kind, named.clone(), none.clone()), [false; 3], "{kind} makes no pods");
    }
    let scheduled = is_reported("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", none.clone(), none);
    assert_eq!(scheduled, [false, false, true]);
}

#[test]
fn a_binding_is_asked_about_in_whichever_version_of_its_kind() {
    let kinds = KindsInCel::new();
    let other = kinds.match_other_kind();
    for (version, kind, reported) in [
        ("batch.volcano.sh/v1alpha1", "Job", [true, false]),
        ("batch.volcano.sh/v2", "Job", [true, false]),
        ("batch/v1", "Job", [false, true]),
        ("ray.io/v1alpha1", "RayJob", [false, true]),
        ("v1", "Pod", [false, true]),
        ("v1.example.com/v1", "Pod", [false, false]),
        ("apps/v1", "DaemonSet", [false, false]),
    ] {
        let binding = json!({"spec": {"resource": {"apiVersion": version, "kind": kind}}});
        let is_reported = [VOLCANO_KIND, &other].map(|condition| holds(condition, None, &binding));
        assert_eq!(is_reported, reported, "{version} {kind}");
    }
}

/// What was told before is among the kinds that the others are, and an outage stops it in namespaces that opted in.
#[test]
fn objects_of_kinds_that_are_told_later_reach_the_webhook() {
    let kinds = KindsInCel::new();
    let (of_binding, of_work) = (kinds.match_undeclared_kind(), kinds.match_undeclared_work());
    for (version, kind, is_reported) in [
        ("training.example.com/v1", "TrainRun", true),
        ("mykarmada.io/v1", "TrainRun", true),
        ("karmada.io/v1", "TrainRun", false),
        ("my.karmada.io/v1", "TrainRun", false),
        ("ray.io/v1", "RayJob", false),
        ("batch.volcano.sh/v1alpha1", "Job", false),
        ("scheduling.volcano.sh/v1beta1", "Queue", false),
        ("rbac.authorization.k8s.io/v1", "Role", false),
        ("apps/v1", "Deployment", false),
        ("v1", "ConfigMap", false),
    ] {
        let binding = json!({"spec": {"resource": {"apiVersion": version, "kind": kind}}});
        let manifest = json!({"apiVersion": version, "kind": kind});
        let work = json!({"spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "Secret"}, manifest]}}});
        assert_eq!(holds(&of_binding, None, &binding), is_reported, "{version} {kind}");
        assert_eq!(holds(&of_work, None, &work), is_reported, "{version} {kind}");
    }
}

#[test]
fn what_claims_devices_is_reviewed_and_nothing_else_of_these_kinds() {
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    let spec = |claims: Option<&Value>| claims.map_or_else(|| json!({}), |claims| json!({"resourceClaims": claims}));
    for (claims, is_reviewed) in [(None, false), (Some(&claims), true)] {
        let job = json!({"spec": {"tasks": [{"name": "a"}, {"template": {"spec": spec(claims)}}]}});
        assert_eq!(holds(JOB_CLAIMS_DEVICES, None, &job), is_reviewed);
        for object in [json!({"spec": spec(claims)}), json!({"spec": {"template": {"spec": spec(claims)}}})] {
            assert_eq!(holds(CLAIMS_DEVICES, None, &object), is_reviewed, "{object}");
        }
    }
    assert!(!holds(JOB_CLAIMS_DEVICES, None, &json!({"spec": {}})) && !holds(JOB_CLAIMS_DEVICES, None, &json!({})));
}
