use caldera_runtime::watch::api_resource;

use super::*;

fn binding(name: &str, annotations: Value, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name, "resourceVersion": "7", "annotations": annotations},
        "spec": {"schedulerName": "caldera", "resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name,
        }},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

fn waiting(name: &str) -> Value {
    binding(name, json!({"caldera.dev/gate": "closed", "own": "x"}), json!({"suspension": {"scheduling": true}}))
}

/// One that runs in these clusters.
fn running(name: &str, clusters: &[&str]) -> Value {
    let share = json!({"tasks": {"t": {"replicas": 1, "minAvailable": 1}}, "minAvailable": 1});
    let shares: serde_json::Map<String, Value> =
        clusters.iter().map(|name| ((*name).to_owned(), share.clone())).collect();
    let targets: Vec<Value> = clusters.iter().map(|name| json!({"name": name, "replicas": 1})).collect();
    binding(
        name,
        json!({
            "caldera.dev/gate": "open", "caldera.dev/admission": "{}", "caldera.dev/priority": "7",
            "caldera.dev/plan": json!({"clusters": shares}).to_string(),
        }),
        json!({"suspension": {"scheduling": false}, "clusters": targets, "schedulePriority": {"priority": 7}}),
    )
}

fn found(kind: &str, plural: &str, name: &str) -> InstalledObject {
    let object =
        json!({"kind": kind, "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "3"}});
    InstalledObject { resource: api_resource("g", "v1", kind, plural), object }
}

fn installed(bindings: Vec<Value>) -> Installed {
    let mut mutating = found("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "queue.caldera.dev");
    mutating.object["webhooks"] = json!([
        {"name": "jobs.gate.caldera.dev"}, {"name": COPIES, "matchConditions": [{"name": "queued", "expression": "x"}]},
    ]);
    Installed {
        bindings,
        pod_groups: vec![json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u"}})],
        queues: vec![json!({"metadata": {"name": "q", "annotations": {"caldera.dev/queue-status": "{}"}}})],
        mutating: vec![mutating],
        validating: vec![found(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "queue.caldera.dev",
        )],
        interpreters: vec![found("R", "resourceinterpreterwebhookconfigurations", "caldera")],
        policies: vec![found("P", "policies", "works.caldera.dev")],
        roles: ["controller", "webhook"]
            .map(|part| found("ClusterRoleBinding", "clusterrolebindings", &format!("caldera-{part}")))
            .into(),
        state: vec![found("Lease", "leases", "caldera-controller")],
        definitions: vec![found("CustomResourceDefinition", "customresourcedefinitions", "ours")],
        namespaces: vec![found("Namespace", "namespaces", "caldera-system")],
        ..Installed::default()
    }
}

const OPEN: Allowed = Allowed { open_gates: true, crds: false };

fn names(plan: &Plan) -> Vec<Vec<&str>> {
    plan.stages.iter().map(|stage| stage.writes.iter().map(|write| write.name.as_str()).collect()).collect()
}

fn patch_of<'a>(plan: &'a Plan, name: &str) -> &'a Value {
    let all = plan.stages.iter().flat_map(|stage| &stage.writes);
    match all.into_iter().find(|write| write.name == name).map(|write| &write.body) {
        Some(Body::JsonPatch(patch)) => patch,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn nothing_is_done_while_a_job_waits_unless_gates_may_be_opened() {
    let plan = plan_removal(&installed(vec![waiting("w")]), Allowed::default());
    assert_eq!((plan.is_refused, plan.stages.len(), plan.waiting), (true, 0, vec!["ns/w".to_owned()]));
    assert!(!plan_removal(&installed(vec![waiting("w")]), OPEN).is_refused);
    assert!(!plan_removal(&installed(vec![running("r", &["m1"])]), Allowed::default()).is_refused);
}

#[test]
fn who_decides_goes_first_then_the_hooks_then_gates_open_and_the_namespace_goes_last() {
    let plan = plan_removal(&installed(vec![waiting("w"), running("r", &["m1"])]), OPEN);
    assert_eq!(
        names(&plan),
        [
            vec!["caldera-controller"],
            vec!["queue.caldera.dev", "queue.caldera.dev"],
            vec!["w", "r"],
            vec!["g", "q"],
            vec!["caldera", "works.caldera.dev"],
            vec!["caldera-controller", "caldera-controller", "caldera-webhook"],
            vec!["caldera-system"],
        ]
    );
}

#[test]
fn a_gate_is_opened_by_a_patch_of_what_is_ours_and_nothing_else() {
    let plan = plan_removal(&installed(vec![waiting("w"), running("r", &["m1"])]), OPEN);
    let annotation = |name: &str| json!({"op": "remove", "path": format!("/metadata/annotations/caldera.dev~1{name}")});
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
    let hand_over = json!({"op": "replace", "path": "/spec/schedulerName", "value": "default-scheduler"});
    let lift = json!({"op": "remove", "path": "/spec/suspension"});
    assert_eq!(patch_of(&plan, "w"), &json!([test, lift, hand_over, annotation("gate")]));
    let priority = json!({"op": "remove", "path": "/spec/schedulePriority"});
    let taken = ["gate", "admission", "plan", "priority"].map(annotation);
    let wanted: Vec<Value> = [test, lift, priority, hand_over].into_iter().chain(taken).collect();
    assert_eq!(patch_of(&plan, "r"), &json!(wanted));
}

#[test]
fn a_users_own_suspension_scheduler_and_priority_stay() {
    let mut own = waiting("own");
    own["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/priority": "3"});
    own["spec"]["schedulerName"] = json!("mine");
    own["spec"]["schedulePriority"] = json!({"priority": 4});
    let mut both = waiting("both");
    both["spec"]["suspension"]["dispatching"] = json!(true);
    let plan = plan_removal(&installed(vec![own, both]), OPEN);
    let paths = |name: &str| -> Vec<String> {
        patch_of(&plan, name).as_array().unwrap().iter().map(|step| read_text_at(step, "/path").to_owned()).collect()
    };
    let ours = |name: &str| format!("/metadata/annotations/caldera.dev~1{name}");
    assert_eq!(paths("own"), ["/metadata/resourceVersion".to_owned(), ours("gate"), ours("priority")]);
    assert_eq!(paths("both")[1], "/spec/suspension/scheduling");
}

#[test]
fn a_split_job_that_runs_keeps_its_copies_and_all_that_they_need() {
    let all = vec![waiting("w"), running("whole", &["m1"]), running("split", &["m1", "m2"])];
    let plan = plan_removal(&installed(all.clone()), OPEN);
    assert_eq!(plan.kept, ["ns/split"]);
    let stages = [vec!["caldera-controller"], vec!["queue.caldera.dev"; 2], vec!["w", "whole"], vec!["g", "q"]];
    assert_eq!(names(&plan), stages);
    // Of the mutating hooks that on Works is left, for this job alone.
    let patch = plan.stages[1].writes.iter().find_map(|write| match &write.body {
        Body::JsonPatch(patch) => Some(patch),
        _ => None,
    });
    let hooks = &patch.unwrap()[1]["value"];
    assert_eq!((hooks.as_array().unwrap().len(), &hooks[0]["name"]), (1, &json!(COPIES)));
    let condition = read_text_at(&hooks[0], "/matchConditions/1/expression");
    assert!(
        condition.ends_with("in ['ns/split']") && hooks[0]["matchConditions"][0]["name"] == "queued",
        "{condition}"
    );
    // Done once, it is not done again.
    let mut done = installed(all);
    done.mutating[0].object["webhooks"] = hooks.clone();
    assert_eq!(plan_removal(&done, OPEN).stages[1].writes.len(), 1);
    // When it has ended, it needs nothing any more.
    done.ended.insert("ns/split".to_owned());
    assert_eq!(plan_removal(&done, OPEN).kept, Vec::<String>::new());
}

#[test]
fn a_job_in_a_network_domain_keeps_its_copy_and_a_service_in_two_clusters_does_not() {
    let mut pinned = running("pinned", &["m1"]);
    let plan = r#"{"clusters":{"m1":{"tasks":{},"minAvailable":1,"domain":{"name":"rack","tier":1}}}}"#;
    pinned["metadata"]["annotations"]["caldera.dev/plan"] = json!(plan);
    let mut service = running("service", &["m1", "m2"]);
    service["spec"]["resource"]["apiVersion"] = json!("apps/v1");
    service["spec"]["resource"]["kind"] = json!("Deployment");
    assert_eq!(plan_removal(&installed(vec![pinned, service]), OPEN).kept, ["ns/pinned"]);
}

#[test]
fn our_definitions_go_only_where_that_is_asked_for() {
    let crds = Allowed { crds: true, ..OPEN };
    let of = |allowed| names(&plan_removal(&installed(Vec::new()), allowed)).concat().contains(&"ours");
    assert_eq!((of(OPEN), of(crds)), (false, true));
}

#[test]
fn what_is_deleted_is_named_by_its_uid() {
    let plan = plan_removal(&installed(Vec::new()), Allowed { crds: true, ..OPEN });
    for write in plan.stages.iter().flat_map(|stage| &stage.writes) {
        match &write.body {
            Body::Delete { uid } => assert!(uid.as_ref().is_some_and(|uid| !uid.is_empty()), "{write:?}"),
            Body::JsonPatch(steps) => assert_eq!(steps[0]["op"], "test"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_is_left_to_do_when_all_is_gone() {
    assert_eq!(plan_removal(&Installed::default(), OPEN), Plan::default());
}
