//! The admission policies say of each write what the webhook says, and what only they can say of statuses. Each attack
//! is one write.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::HashMap, sync::LazyLock};

use caldera_crds::{
    action::build_action_policy,
    queue_access::{build_command_policy, build_hyper_job_policy, build_queue_access_policies},
    trusted::{
        BINDING_ANNOTATIONS, BINDING_SPEC, TrustedWriters, build_admission_policies, build_submission_policy,
        carries_workload, find_protected_change,
    },
    workload::{declared::declare_kind, kind_declaration::KindDeclarationSpec, names_queue, queue_of},
};
use kube_cel::{
    KubeCelExt,
    cel::{Context, Program, Value as CelValue, to_value},
};
use serde_json::{Value, json};

const TENANT: &str = "tenant";
const KARMADA: &str = "system:serviceaccount:karmada-system:karmada-controller-manager";

/// A write as a policy sees it.
struct Write<'a> {
    user: &'a str,
    status: bool,
    old: Option<&'a Value>,
    new: &'a Value,
}

fn evaluate(expression: &str, context: &Context<'_>) -> CelValue {
    let program = Program::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    program.execute(context).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// The messages of the rules that refuse a write, as an API server evaluates them.
fn refusals(policy: &Value, write: &Write<'_>) -> Vec<String> {
    let mut context = Context::default().with_all();
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) = write.user.strip_prefix("system:serviceaccount:").and_then(|own| own.split_once(':'))
    {
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let mut request = json!({
        "operation": if write.old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": write.user, "groups": groups},
    });
    if write.status {
        request["subResource"] = "status".into();
    }
    context.add_variable_from_value("object", to_value(write.new).unwrap());
    context.add_variable_from_value("oldObject", to_value(write.old).unwrap());
    context.add_variable_from_value("request", to_value(&request).unwrap());
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let list = |name: &str| policy["spec"][name].as_array().unwrap().clone();
    let holds =
        |value: &Value, context: &Context<'_>| evaluate(&text(value, "expression"), context) == CelValue::Bool(true);
    if !list("matchConditions").iter().all(|condition| holds(condition, &context)) {
        return Vec::new();
    }
    let mut variables: HashMap<String, CelValue> = HashMap::new();
    for variable in list("variables") {
        let value = evaluate(&text(&variable, "expression"), &context);
        variables.insert(text(&variable, "name"), value);
        context.add_variable_from_value("variables", CelValue::from(variables.clone()));
    }
    let refused = list("validations").into_iter().filter(|rule| !holds(rule, &context));
    refused.map(|rule| text(&rule, "message")).collect()
}

/// The policies as they are printed where a kind is declared.
fn policies() -> [Value; 3] {
    LazyLock::force(&DECLARED);
    let all = build_admission_policies(&TrustedWriters::default());
    let of = |kind: &str| all.iter().filter(|object| object["kind"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(of("ValidatingAdmissionPolicyBinding").len(), 3);
    of("ValidatingAdmissionPolicy").try_into().unwrap()
}

/// The refusals of a binding's write by a tenant; the webhook refuses the same ones.
fn tenant_writes(old: Option<&Value>, new: &Value) -> Vec<String> {
    let [bindings, of_workloads, _] = policies();
    let mut refused = Vec::new();
    for policy in [bindings, of_workloads] {
        assert_eq!(refusals(&policy, &Write { user: KARMADA, status: false, old, new }), Vec::<String>::new());
        refused.extend(refusals(&policy, &Write { user: TENANT, status: false, old, new }));
    }
    // Both speak of where it is placed, in the same words.
    refused = refused
        .iter()
        .enumerate()
        .filter(|(at, one)| !refused[..*at].contains(one))
        .map(|(_, one)| one.clone())
        .collect();
    let by_webhook = find_protected_change(old, new);
    // Whoever lifts our suspension is not refused by the webhook, which sets it again.
    let lifts = refused.len() == 1 && refused[0].starts_with("the end of the suspension");
    assert_eq!(!refused.is_empty() && !lifts, by_webhook.is_some(), "{refused:?}, {by_webhook:?}: {old:?} to {new}");
    refused
}

fn binding(annotations: &Value, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "x-job", "namespace": "team", "annotations": annotations},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "x", "namespace": "team"},
        },
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    object
}

fn waiting() -> Value {
    binding(
        &json!({"caldera.dev/gate": "closed"}),
        json!({"suspension": {"scheduling": true}, "schedulerName": "caldera"}),
    )
}

fn placed() -> Value {
    let annotations = json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}", "caldera.dev/epoch": "3.me"});
    let spec = json!({
        "suspension": {"scheduling": false}, "schedulerName": "caldera", "replicas": 2,
        "clusters": [{"name": "m1", "replicas": 2}],
    });
    binding(&annotations, spec)
}

#[test]
fn a_forged_record_is_refused_without_the_webhook() {
    let mut forged = waiting();
    forged["metadata"]["annotations"] =
        json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{\"queue\":\"q\"}"});
    forged["spec"]["suspension"]["scheduling"] = false.into();
    let refused = tenant_writes(Some(&waiting()), &forged);
    assert!(refused[0].contains("what is admitted"), "{refused:?}");
    assert_eq!(tenant_writes(None, &forged).len(), 1);
}

#[test]
fn every_protected_field_is_refused_by_both_and_the_same() {
    for old in [waiting(), placed()] {
        for name in BINDING_ANNOTATIONS {
            let mut new = old.clone();
            new["metadata"]["annotations"][name] = "forged".into();
            assert_eq!(tenant_writes(Some(&old), &new).len(), 1, "{name}");
            let is_there = old["metadata"]["annotations"][name].is_string();
            new["metadata"]["annotations"].as_object_mut().unwrap().remove(name);
            assert_eq!(tenant_writes(Some(&old), &new).is_empty(), !is_there, "{name} taken away");
        }
        for name in BINDING_SPEC {
            let mut new = old.clone();
            new["spec"][name] = match name {
                "replicas" => json!(7),
                "schedulerName" => json!("default-scheduler"),
                "conflictResolution" => json!("Overwrite"),
                "rescheduleTriggeredAt" => json!("2026-01-01T00:00:00Z"),
                "placement" | "replicaRequirements" | "failover" => json!({"a": "b"}),
                "resource" => json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "other"}),
                _ => json!([{"name": "nowhere", "replicas": 2_147_483_647}]),
            };
            assert_eq!(tenant_writes(Some(&old), &new).len(), 1 + usize::from(name == "resource"), "{name}");
            tenant_writes(None, &new);
            if name != "resource" {
                new["spec"].as_object_mut().unwrap().remove(name);
                let is_there = !old["spec"][name].is_null();
                assert_eq!(tenant_writes(Some(&old), &new).is_empty(), !is_there, "{name} taken away");
            }
        }
    }
}

#[test]
fn a_users_own_suspension_and_annotations_are_let_through() {
    let mut held = placed();
    held["spec"]["suspension"] = json!({"scheduling": true});
    held["metadata"]["annotations"]["team"] = "own".into();
    assert!(tenant_writes(Some(&placed()), &held).is_empty());
    assert!(tenant_writes(Some(&held), &placed()).is_empty());
    let bare = json!({"metadata": {"name": "x"}, "spec": waiting()["spec"]});
    assert!(tenant_writes(Some(&bare), &bare).is_empty());
    // What our webhook makes of a tenant's write.
    assert!(tenant_writes(Some(&bare), &waiting()).is_empty());
    assert!(tenant_writes(None, &waiting()).is_empty());
}

#[test]
fn the_gate_of_a_job_that_waits_is_not_opened_while_the_webhook_is_away() {
    let mut open = waiting();
    open["spec"]["suspension"]["scheduling"] = false.into();
    assert_eq!(tenant_writes(Some(&waiting()), &open).len(), 1);
    open["spec"].as_object_mut().unwrap().remove("suspension");
    assert_eq!(tenant_writes(Some(&waiting()), &open).len(), 1);
}

#[test]
fn a_status_that_a_tenant_writes_is_refused_and_karmadas_own_is_not() {
    let [bindings, _, works] = policies();
    let mut done = placed();
    done["status"] = json!({"aggregatedStatus": [{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]});
    let of = |policy: &Value, user: &str, old: &Value, new: &Value| {
        refusals(policy, &Write { user, status: true, old: Some(old), new }).len()
    };
    assert_eq!(of(&bindings, TENANT, &placed(), &done), 1);
    assert_eq!(of(&bindings, KARMADA, &placed(), &done), 0);
    let work = work("batch.volcano.sh/v1alpha1", 1);
    let mut done = work.clone();
    done["status"] = json!({"manifestStatuses": [{"identifier": {}, "status": {"state": {"phase": "Completed"}}}]});
    assert_eq!(of(&works, TENANT, &work, &done), 1);
    assert_eq!(of(&works, KARMADA, &work, &done), 0);
}

fn work(api_version: &str, replicas: u32) -> Value {
    json!({"metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {"workload": {"manifests": [
        {"apiVersion": api_version, "kind": "Job", "metadata": {"name": "x"}, "spec": {"replicas": replicas}},
    ]}}})
}

#[test]
fn a_work_that_carries_a_workload_is_karmadas_alone() {
    let [_, _, works] = policies();
    let of = |user: &str, old: Option<&Value>, new: &Value| {
        !refusals(&works, &Write { user, status: false, old, new }).is_empty()
    };
    for version in ["batch/v1", "batch.volcano.sh/v1alpha1"] {
        let (one, two) = (work(version, 1), work(version, 2));
        assert!(of(TENANT, None, &one) && of(TENANT, Some(&one), &two));
        assert!(!of(KARMADA, None, &one) && !of(KARMADA, Some(&one), &two));
        let mut labelled = one.clone();
        labelled["metadata"]["labels"] = json!({});
        assert!(of(TENANT, Some(&one), &labelled) && !of(TENANT, Some(&one), &one));
    }
    assert!(!of(TENANT, None, &work("example.com/v1", 1)), "what is no workload is not ours");
}

/// Told before any policy is built in this process, as `caldera upgrade` prints them.
static DECLARED: LazyLock<()> = LazyLock::new(|| {
    let reported: KindDeclarationSpec = serde_json::from_value(json!({
        "group": "training.example.com", "version": "v1", "kind": "TrainRun", "plural": "trainruns",
        "podSets": [{"path": "spec.workers", "form": "List", "nameField": "name", "template": "template"}],
        "queue": "spec.queue", "status": {"runningPods": "status.ready"}, "pods": {"jobLabel": "training.example.com/job"},
    }))
    .unwrap();
    declare_kind(&reported).unwrap();
});

/// Bindings, Works and statuses, each in two versions of the kind.
#[test]
fn a_kind_told_by_data_is_protected_like_any_once_the_policies_are_printed_anew() {
    for version in ["training.example.com/v1", "training.example.com/v2alpha1", "ray.io/v1alpha1", "apps/v1beta2"] {
        let kind = match version.split('/').next().unwrap() {
            "training.example.com" => "TrainRun",
            "apps" => "Deployment",
            _ => "RayJob",
        };
        let resource = json!({"apiVersion": version, "kind": kind, "name": "x", "namespace": "team"});
        let mut old = binding(&json!({}), json!({"resource": resource}));
        old["metadata"]["name"] = format!("x-{}", kind.to_lowercase()).into();
        let mut placed = old.clone();
        placed["spec"]["clusters"] = json!([{"name": "m1", "replicas": 10}]);
        assert_eq!(tenant_writes(Some(&old), &placed).len(), 1, "{version}");
        assert_eq!(tenant_writes(None, &placed).len(), 1, "{version}");
        let mut second = old.clone();
        second["metadata"]["name"] = "second".into();
        assert_eq!(tenant_writes(None, &second).len(), 1, "{version}");
        assert!(tenant_writes(None, &old).is_empty(), "{version}");
        let [_, _, works] = policies();
        let mut sent = work(version, 1);
        sent["spec"]["workload"]["manifests"][0]["kind"] = kind.into();
        let refused = |status: bool, user: &str| {
            !refusals(&works, &Write { user, status, old: status.then_some(&sent), new: &sent }).is_empty()
        };
        assert!(refused(false, TENANT) && refused(true, TENANT), "{version}");
        assert!(!refused(false, KARMADA) && !refused(true, KARMADA), "{version}");
    }
}

/// Between the declaration and the upgrade the webhook alone knows the kind.
#[test]
fn policies_that_were_printed_before_a_kind_was_told_do_not_know_it() {
    let [_, _, works] = policies();
    let condition = works["spec"]["matchConditions"][1]["expression"].as_str().unwrap();
    assert!(condition.contains("['training.example.com/', 'TrainRun']"), "{condition}");
    let before = condition.replace(", ['training.example.com/', 'TrainRun']", "");
    let mut works = works.clone();
    works["spec"]["matchConditions"][1]["expression"] = before.into();
    let mut sent = work("training.example.com/v1", 1);
    sent["spec"]["workload"]["manifests"][0]["kind"] = "TrainRun".into();
    let write = Write { user: TENANT, status: false, old: None, new: &sent };
    assert!(refusals(&works, &write).is_empty());
    assert!(carries_workload(&sent), "the webhook refuses it");
}

#[test]
fn what_is_not_queued_is_everybodys() {
    let [bindings, ..] = policies();
    let old = json!({
        "metadata": {"name": "x"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}},
    });
    let mut new = old.clone();
    new["spec"]["clusters"] = json!([{"name": "m1"}]);
    assert!(refusals(&bindings, &Write { user: TENANT, status: false, old: Some(&old), new: &new }).is_empty());
    let mut gated = old;
    gated["metadata"]["annotations"] = json!({"caldera.dev/gate": "closed"});
    assert!(!refusals(&bindings, &Write { user: TENANT, status: false, old: Some(&gated), new: &new }).is_empty());
}

/// The queues that a write names, by the policy of its kind.
fn named(kind: usize, variable: &str, old: Option<&Value>, new: &Value) -> Vec<String> {
    let policies = build_queue_access_policies();
    let policy = policies.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy").nth(kind).unwrap();
    let mut context = Context::default().with_all();
    context.add_variable_from_value("object", to_value(new).unwrap());
    context.add_variable_from_value("oldObject", to_value(old).unwrap());
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let expression = variables.iter().find(|found| found["name"] == variable).unwrap()["expression"].as_str().unwrap();
    let CelValue::List(all) = evaluate(expression, &context) else { panic!("{expression} is no list") };
    let text = |value: &CelValue| match value {
        CelValue::String(text) => text.to_string(),
        other => panic!("{other:?} is no name"),
    };
    all.iter().map(text).collect()
}

#[test]
fn a_queue_that_is_named_anywhere_is_asked_about() {
    let job =
        |spec: Value| json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "spec": spec});
    assert_eq!(named(0, "names", None, &job(json!({"queue": "ml"}))), ["ml"]);
    for none in [json!({}), json!({"queue": ""})] {
        assert!(named(0, "names", None, &job(none)).is_empty(), "queue default is everybody's");
    }
    assert_eq!(named(0, "before", Some(&job(json!({"queue": "ml"}))), &job(json!({}))), ["ml"]);
    assert!(named(0, "before", None, &job(json!({"queue": "ml"}))).is_empty());
    let places = [
        "/metadata/annotations",
        "/metadata/labels",
        "/spec/template/metadata/annotations",
        "/spec/template/metadata/labels",
    ];
    for place in places {
        for key in ["volcano.sh/queue-name", "scheduling.volcano.sh/queue-name"] {
            let empty = json!({"annotations": {}, "labels": {}});
            let mut web = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": empty,
                "spec": {"template": {"metadata": empty}},
            });
            web.pointer_mut(place).unwrap()[key] = "ml".into();
            let reported = named(1, "names", None, &web);
            assert_eq!(!reported.is_empty(), names_queue(&web), "{place} {key}");
            assert!(reported.is_empty() || reported == [queue_of(&web).as_str()], "{place} {key}");
        }
    }
    assert!(
        named(1, "names", None, &json!({"metadata": {"name": "p"}, "spec": {}})).is_empty(),
        "a Pod has no template"
    );
}

#[test]
fn of_any_workloads_binding_copies_are_left_to_nobody_and_none_is_placed_or_made_for_another_namespace() {
    let mut old = binding(&json!({}), json!({}));
    old["spec"]["resource"]["apiVersion"] = "apps/v1".into();
    old["spec"]["resource"]["kind"] = "Deployment".into();
    old["metadata"]["name"] = "x-deployment".into();
    old["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "1"});
    old["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    assert!(tenant_writes(None, &old).is_empty() && tenant_writes(Some(&old), &old).is_empty());
    for (pointer, value) in [
        ("/spec/resource/namespace", json!("other")),
        ("/metadata/labels", json!({})),
        ("/metadata/labels", json!({"resourcebinding.karmada.io/permanent-id": "2"})),
        ("/metadata/finalizers", json!([])),
        ("/spec/resource", json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "namespace": "other"})),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        assert_eq!(tenant_writes(Some(&old), &new).len(), 1, "{pointer}");
    }
    let mut placed = old.clone();
    placed["spec"]["clusters"] = json!([{"name": "m1", "replicas": 10}]);
    assert_eq!((tenant_writes(Some(&old), &placed).len(), tenant_writes(None, &placed).len()), (1, 1));
    let mut foreign = old.clone();
    foreign["spec"]["resource"]["namespace"] = "other".into();
    assert_eq!(tenant_writes(None, &foreign).len(), 1);
    // A workload has one binding, and Karmada names it.
    for name in ["second", "x-Deployment", "x-job"] {
        let mut second = old.clone();
        second["metadata"]["name"] = name.into();
        assert_eq!(
            tenant_writes(None, &second),
            ["metadata.name of a workload's binding is written by Caldera and Karmada alone"]
        );
        assert!(tenant_writes(Some(&second), &second).is_empty());
    }
}

#[test]
fn every_expression_of_the_policies_is_one() {
    let all = build_admission_policies(&TrustedWriters::default());
    let all = all
        .into_iter()
        .chain(build_queue_access_policies())
        .chain(build_command_policy())
        .chain(build_hyper_job_policy())
        .chain(build_submission_policy(&TrustedWriters::default()));
    for policy in all.filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        for part in ["matchConditions", "variables", "validations"] {
            for entry in policy["spec"][part].as_array().into_iter().flatten() {
                for field in ["expression", "messageExpression"] {
                    let Some(expression) = entry[field].as_str() else { continue };
                    Program::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
                }
            }
        }
    }
}

#[test]
fn nobody_writes_anothers_name_to_what_was_done_with_or_without_the_webhook() {
    let [policy, _] = build_action_policy();
    let stamped = |by: &str, at: &str| {
        let annotations = json!({"caldera.dev/acted-by": by, "caldera.dev/action": at});
        json!({"metadata": {"name": "q", "annotations": annotations}})
    };
    let plain = json!({"metadata": {"name": "q"}});
    let is_refused = |old: Option<&Value>, new: &Value| {
        !refusals(&policy, &Write { user: TENANT, status: false, old, new }).is_empty()
    };
    assert!(!is_refused(None, &plain) && !is_refused(Some(&plain), &plain));
    assert!(!is_refused(Some(&plain), &stamped(TENANT, "1")), "the webhook stamps him");
    assert!(is_refused(Some(&plain), &stamped("ada", "1")));
    assert!(is_refused(None, &stamped("ada", "1")));
    assert!(is_refused(Some(&stamped("ada", "1")), &stamped("ada", "2")), "another deed under her name");
    assert!(is_refused(Some(&stamped(TENANT, "1")), &stamped("ada", "1")));
    assert!(!is_refused(Some(&stamped("ada", "1")), &stamped("ada", "1")), "what is there stays");
    assert!(!is_refused(Some(&stamped("ada", "1")), &plain), "the controller has recorded it");
    assert!(!is_refused(Some(&stamped("ada", "1")), &stamped(TENANT, "2")));
}

#[test]
fn nobody_submits_in_anothers_name_with_or_without_the_webhook() {
    let [policy, _] = build_submission_policy(&TrustedWriters::default());
    let with = |annotations: Value| json!({"metadata": {"name": "d", "annotations": annotations}});
    let stamped = |by: &str, at: &str| with(json!({"caldera.dev/submitter": by, "caldera.dev/submitted": at}));
    let plain = json!({"metadata": {"name": "d"}});
    let refused_to = |user: &str, old: Option<&Value>, new: &Value| {
        [false, true].map(|status| refusals(&policy, &Write { user, status, old, new }).len())
    };
    let is_refused = |old: Option<&Value>, new: &Value| refused_to(TENANT, old, new) != [0, 0];
    assert!(!is_refused(None, &plain) && !is_refused(Some(&plain), &plain));
    assert!(!is_refused(None, &stamped(TENANT, "1")), "as the webhook stamps him");
    assert!(is_refused(None, &stamped("ada", "1")) && is_refused(None, &with(json!({"caldera.dev/submitter": ""}))));
    // A time says nothing without a name, and counts only where it agrees with the creation.
    assert!(!is_refused(None, &with(json!({"caldera.dev/submitted": "2020-01-01T00:00:00Z"}))));
    let ada = stamped("ada", "1");
    for changed in [
        stamped(TENANT, "1"),
        stamped("ada", "2"),
        with(json!({"caldera.dev/submitter": "ada"})),
        with(json!({"caldera.dev/submitted": "1"})),
        plain.clone(),
    ] {
        assert!(is_refused(Some(&ada), &changed), "{changed}");
        assert_eq!(refused_to(KARMADA, Some(&ada), &changed), [0, 0]);
        assert_eq!(refused_to(KARMADA, None, &changed), [0, 0], "a trusted writer says for whom he makes it");
    }
    assert!(is_refused(Some(&plain), &stamped(TENANT, "1")), "what was made without the webhook gets none later");
    let mut labelled = ada.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(!is_refused(Some(&ada), &labelled), "what is there stays");
}

/// A template's annotations are copied to what is made of it.
#[test]
fn who_makes_what_a_template_says_is_not_refused_for_its_annotations() {
    let [policy, _] = build_submission_policy(&TrustedWriters::default());
    let mut made = json!({"metadata": {"name": "d-1", "annotations": {"caldera.dev/submitter": "ada"}}});
    let refused = |user: &str, new: &Value| refusals(&policy, &Write { user, status: false, old: None, new }).len();
    let (cron_jobs, manager) =
        ("system:serviceaccount:kube-system:cronjob-controller", "system:kube-controller-manager");
    for user in [cron_jobs, manager, TENANT] {
        assert_eq!(refused(user, &made), 1, "{user} makes it for nobody");
    }
    made["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "controller": true}]);
    assert_eq!([cron_jobs, manager].map(|user| refused(user, &made)), [0, 0]);
    for user in [TENANT, "system:serviceaccount:team:cronjob-controller", "system:serviceaccount:kube-system-x:a"] {
        assert_eq!(refused(user, &made), 1, "{user} owns it in words alone");
    }
    // Its template is as anybody wrote it: nothing reads a stamp there.
    let template = json!({"metadata": {"annotations": {"caldera.dev/submitter": "ada"}}});
    let maker = json!({"metadata": {"name": "d"}, "spec": {"template": template, "jobTemplate": template}});
    assert_eq!(refused(TENANT, &maker), 0);
}
