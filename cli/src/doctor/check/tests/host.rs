//! Faults of definitions, rights, webhooks, interpreters, components and clocks.

use super::*;
use crate::{
    doctor::facts::{CommandFacts, InterpreterFailure, InventoryFacts, ProbeFailure, Right},
    objects::name_of,
};

fn definition<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Value {
    facts.definitions.as_mut().unwrap().iter_mut().find(|one| name_of(one) == name).unwrap()
}

const BINDINGS: &str = "resourcebindings.work.karmada.io";
const OURS: &str = "federationtopologies.federation.caldera.dev";

#[test]
fn a_definition_that_is_not_there_is_reported() {
    let remove = |facts: &mut Facts| facts.definitions.as_mut().unwrap().retain(|one| name_of(one) != OURS);
    finds(remove, Check::Definitions, Severity::Error, &["no CustomResourceDefinition", OURS]);
}

#[test]
fn a_workload_kind_that_does_not_count_is_reported_with_its_fault() {
    let plant = |facts: &mut Facts| facts.kind_faults = [("runs".to_owned(), "spec.queue: no path".to_owned())].into();
    finds(plant, Check::Definitions, Severity::Error, &["WorkloadKind runs does not count", "spec.queue: no path"]);
}

#[test]
fn a_definition_that_is_not_established_is_reported() {
    let plant = |facts: &mut Facts| definition(facts, OURS)["status"] = Value::Null;
    finds(plant, Check::Definitions, Severity::Error, &["not established"]);
}

#[test]
fn a_version_that_is_not_served_is_reported() {
    let plant = |facts: &mut Facts| definition(facts, OURS)["spec"]["versions"][0]["served"] = json!(false);
    finds(plant, Check::Definitions, Severity::Error, &["does not serve version v1alpha1"]);
}

#[test]
fn a_field_of_ours_that_the_server_would_drop_is_an_error_and_of_others_a_warning() {
    let drop_of = |facts: &mut Facts, name: &str, field: &str| {
        let versions = definition(facts, name)["spec"]["versions"].as_array_mut().unwrap();
        for version in versions {
            let spec =
                version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object_mut().unwrap();
            spec.remove(field);
        }
    };
    let older = |name: &'static str, field: &'static str| move |facts: &mut Facts| drop_of(facts, name, field);
    let links = build_federation_crds().iter().find(|one| name_of(one) == OURS).unwrap()["spec"]["versions"][0]["schema"]
        ["openAPIV3Schema"]["properties"]["spec"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    let links: &'static str = Box::leak(links.into_boxed_str());
    finds(older(OURS, links), Check::Definitions, Severity::Error, &["older", links]);
    let queues = "queues.scheduling.volcano.sh";
    finds(older(queues, "dequeueStrategy"), Check::Definitions, Severity::Warning, &["spec.dequeueStrategy"]);
}

#[test]
fn a_karmada_without_suspension_is_an_error_and_without_other_fields_a_warning() {
    let without = |field: &'static str| {
        move |facts: &mut Facts| {
            let spec =
                &mut definition(facts, BINDINGS)["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"];
            spec["spec"]["properties"].as_object_mut().unwrap().remove(field);
        }
    };
    let what = |finding: Severity| (Check::Definitions, finding);
    let (check, error) = what(Severity::Error);
    let fixed = |field: &'static str, severity| {
        let mut facts = healthy();
        without(field)(&mut facts);
        let found = find_faults(&facts);
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, check, severity), "{found:?}");
        assert!(found[0].what.contains(&format!("spec.{field}")), "{found:?}");
    };
    fixed("suspension", error);
    fixed("components", Severity::Warning);
}

#[test]
fn rights_that_an_account_lacks_are_reported_by_component() {
    let right = |verb: &str, allowed| Right {
        component: "controller".into(),
        verb: verb.into(),
        group: "work.karmada.io".into(),
        resource: "resourcebindings/status".into(),
        namespace: None,
        name: None,
        allowed,
    };
    let plant =
        |facts: &mut Facts| facts.rights = Ok(vec![right("patch", false), right("watch", false), right("list", true)]);
    let words = ["the controller may not patch resourcebindings.work.karmada.io/status, watch"];
    finds(plant, Check::Rights, Severity::Error, &words);
}

#[test]
fn a_webhook_configuration_that_is_not_there_is_reported_and_not_blamed_on_the_webhook() {
    let plant = |facts: &mut Facts| {
        facts.mutating = Ok(Vec::new());
        facts.binding_probe = Ok(json!({}));
        facts.job_probe = Ok(json!({"spec": {"tasks": [{}]}}));
    };
    finds(plant, Check::Webhooks, Severity::Error, &["no MutatingWebhookConfiguration queue.caldera.dev", "gated"]);
    let plant = |facts: &mut Facts| facts.validating = Ok(Vec::new());
    finds(plant, Check::Webhooks, Severity::Error, &["no ValidatingWebhookConfiguration"]);
}

#[test]
fn a_hook_that_is_missing_or_other_than_this_versions_is_reported() {
    let remove =
        |facts: &mut Facts| drop(facts.mutating.as_mut().unwrap()[0]["webhooks"].as_array_mut().unwrap().remove(0));
    finds(remove, Check::Webhooks, Severity::Error, &["lacks jobs.gate.caldera.dev"]);
    let change =
        |facts: &mut Facts| facts.mutating.as_mut().unwrap()[0]["webhooks"][0]["failurePolicy"] = json!("Ignore");
    finds(change, Check::Webhooks, Severity::Warning, &["failurePolicy of jobs.gate.caldera.dev"]);
}

#[test]
fn a_second_registration_is_reported() {
    let plant = |facts: &mut Facts| {
        let all = facts.mutating.as_mut().unwrap();
        let mut copy = all[0].clone();
        copy["metadata"]["name"] = json!("a-copy");
        all.push(copy);
    };
    finds(plant, Check::Webhooks, Severity::Error, &["a-copy", "second time"]);
}

#[test]
fn who_changes_bindings_after_us_and_volcanos_own_admission_on_the_host_are_reported() {
    let other = |name: &str, group: &str, resource: &str| {
        json!({"metadata": {"name": name}, "webhooks": [{
            "name": "x.example.com", "rules": [{"apiGroups": [group], "resources": [resource]}],
        }]})
    };
    let add = |config: Value| move |facts: &mut Facts| facts.mutating.as_mut().unwrap().push(config);
    let late = other("zz", "work.karmada.io", "resourcebindings");
    finds(add(late), Check::Webhooks, Severity::Warning, &["zz is called after ours"]);
    let volcano = other("volcano-admission-service-jobs-mutate", "batch.volcano.sh", "jobs");
    finds(add(volcano), Check::Webhooks, Severity::Warning, &["Volcano's own admission"]);
    let mut facts = healthy();
    add(other("mutating-config", "work.karmada.io", "resourcebindings"))(&mut facts);
    add(other("zz", "apps", "deployments"))(&mut facts);
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn ca_bundles_that_differ_or_can_not_be_read_are_reported() {
    let other = caldera_runtime::tls::Authority::new("other").unwrap().cert_pem;
    let other = build_configurations(&Endpoint::Url("https://h:1".into()), &other);
    let plant = |facts: &mut Facts| facts.validating = Ok(vec![other[1].clone()]);
    finds(plant, Check::Webhooks, Severity::Error, &["different CA bundles", "ValidatingWebhookConfiguration"]);
    let plant = |facts: &mut Facts| {
        let garbage = build_configurations(&Endpoint::Url("https://h:1".into()), "garbage");
        let [one, two, three] = <[Value; 3]>::try_from(garbage).unwrap();
        (facts.mutating, facts.validating, facts.interpreters) = (Ok(vec![one]), Ok(vec![two]), Ok(vec![three]));
    };
    finds(plant, Check::Webhooks, Severity::Error, &["no certificate in PEM"]);
}

#[test]
fn a_webhook_that_does_not_answer_the_api_server_is_reported_with_its_words() {
    let failing = |message: &str| {
        let failure = ProbeFailure { code: 500, message: message.to_owned() };
        move |facts: &mut Facts| facts.binding_probe = Err(failure)
    };
    let called = "Internal error occurred: failed calling webhook \"jobs.gate.caldera.dev\": failed to call webhook: ";
    let untrusted = format!("{called}x509: certificate signed by unknown authority");
    finds(failing(&untrusted), Check::Webhooks, Severity::Error, &["can not call a webhook", "x509"]);
    let refused = format!("{called}connect: connection refused");
    finds(failing(&refused), Check::Webhooks, Severity::Error, &["connection refused"]);
    let fix = |message: &str| {
        let mut facts = healthy();
        failing(message)(&mut facts);
        find_faults(&facts).remove(0).fix.unwrap()
    };
    assert!(fix(&untrusted).contains("--ca-bundle") && fix(&refused).starts_with("caldera webhook"));
}

#[test]
fn a_refusal_of_ours_is_an_answer_and_one_of_others_says_nothing() {
    let mut facts = healthy();
    let refused = |message: &str| Err(ProbeFailure { code: 403, message: message.to_owned() });
    facts.job_probe = refused("admission webhook \"jobs.rules.caldera.dev\" denied the request: no");
    assert_eq!(find_faults(&facts), []);
    let forbidden = |facts: &mut Facts| facts.job_probe = refused("user may not create jobs");
    finds(forbidden, Check::Webhooks, Severity::Note, &["not examined", "user may not create jobs (403)"]);
}

#[test]
fn what_comes_back_without_a_gate_or_without_defaults_is_reported() {
    let plant = |facts: &mut Facts| facts.binding_probe = Ok(json!({"metadata": {}, "spec": {}}));
    finds(plant, Check::Webhooks, Severity::Error, &["without a gate"]);
    let plant = |facts: &mut Facts| facts.job_probe = Ok(json!({"spec": {"tasks": [{"name": "t", "replicas": 1}]}}));
    finds(plant, Check::Webhooks, Severity::Error, &["without Volcano's defaults"]);
}

#[test]
fn who_else_explains_volcano_jobs_is_reported() {
    let plant = |facts: &mut Facts| facts.interpreters = Ok(Vec::new());
    finds(plant, Check::Interpreter, Severity::Error, &["no ResourceInterpreterWebhookConfiguration caldera"]);
    let custom = |kind: &str| {
        json!({"metadata": {"name": "mine"}, "spec": {
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": kind},
            "customizations": {"retention": {"luaScript": "x"}},
        }})
    };
    let plant = |facts: &mut Facts| facts.customizations = Ok(vec![custom("Job"), custom("Queue")]);
    finds(plant, Check::Interpreter, Severity::Error, &["mine outranks", "(retention)"]);
    let mut of_queues = custom("Queue");
    of_queues["spec"]["target"]["apiVersion"] = "scheduling.volcano.sh/v1beta1".into();
    let harmless = of_queues.clone();
    let plant = |facts: &mut Facts| facts.customizations = Ok(vec![harmless]);
    let mut facts = healthy();
    plant(&mut facts);
    assert_eq!(find_faults(&facts), []);
    of_queues["spec"]["customizations"] = json!({"statusAggregation": {"luaScript": "x"}});
    let plant = |facts: &mut Facts| facts.customizations = Ok(vec![of_queues]);
    finds(plant, Check::Interpreter, Severity::Error, &["mine writes the status of queues"]);
    let plant = |facts: &mut Facts| {
        let all = facts.interpreters.as_mut().unwrap();
        let mut other = all[0].clone();
        other["metadata"]["name"] = json!("other");
        all.push(other);
    };
    finds(plant, Check::Interpreter, Severity::Error, &["other explains Volcano Jobs too"]);
}

#[test]
fn what_answers_in_pull_members_is_wanted_there_and_as_this_version_prints_it() {
    let pull = |facts: &mut Facts| facts.members.as_mut().unwrap()[0].is_pull = true;
    finds(pull, Check::Interpreter, Severity::Note, &["m1", "volcano-jobs.caldera.dev"]);
    let ours = caldera_webhook::build_member_customization();
    let mut facts = healthy();
    pull(&mut facts);
    facts.customizations = Ok(vec![ours.clone()]);
    assert_eq!(find_faults(&facts), []);
    let failure = InterpreterFailure {
        about: "Work karmada-es-m1/j-1".into(),
        message: "failed calling webhook \"caldera/volcano-jobs.caldera.dev\": no route to host".into(),
        last: second(-5),
    };
    let mut facts = healthy();
    pull(&mut facts);
    facts.interpreter_failures = Ok(vec![failure.clone()]);
    let words: Vec<String> = find_faults(&facts).into_iter().map(|one| one.what).collect();
    assert!(words[0].starts_with("the karmada-agent of m1 can not call the interpreter"), "{words:?}");
    let plant = |facts: &mut Facts| facts.interpreter_failures = Ok(vec![failure]);
    finds(plant, Check::Interpreter, Severity::Error, &["karmada-controller-manager can not call"]);
    let mut older = ours.clone();
    older["spec"]["customizations"]["retention"]["luaScript"] = "function Retain(desired) return desired end".into();
    let plant = |facts: &mut Facts| facts.customizations = Ok(vec![older]);
    finds(plant, Check::Interpreter, Severity::Warning, &["not as this version prints it: retention"]);
    let mut more = ours;
    more["spec"]["customizations"]["statusAggregation"] = json!({"luaScript": "x"});
    let plant = |facts: &mut Facts| facts.customizations = Ok(vec![more]);
    finds(plant, Check::Interpreter, Severity::Warning, &["it says more than that"]);
}

fn lease<'a>(facts: &'a mut Facts, name: &str) -> &'a mut LeaseFacts {
    facts.leases.as_mut().unwrap().iter_mut().find(|one| one.name == name).unwrap()
}

#[test]
fn a_lease_that_nobody_renews_or_holds_is_reported() {
    let plant = |facts: &mut Facts| lease(facts, "caldera-scheduler").renewed = second(-16);
    finds(plant, Check::Components, Severity::Error, &["not renewed for 16s", "holder h"]);
    let plant = |facts: &mut Facts| lease(facts, "caldera-controller").holder.clear();
    finds(plant, Check::Components, Severity::Error, &["nobody holds Lease caldera-system/caldera-controller"]);
    let plant = |facts: &mut Facts| facts.leases.as_mut().unwrap().retain(|one| one.name != "caldera-scheduler");
    finds(plant, Check::Components, Severity::Note, &["runs without one, or not at all"]);
}

#[test]
fn where_karmada_scheduler_places_nobody_misses_our_scheduler() {
    let mut facts = healthy();
    facts.leases.as_mut().unwrap().retain(|one| one.name != "caldera-scheduler");
    facts.settings = vec![Ok(Settings { stock_scheduler: true, ..Settings::default() })];
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn two_controllers_with_a_lease_each_are_reported_and_a_dead_one_beside_a_live_one_is_not() {
    let second_lease = |age: i64| {
        move |facts: &mut Facts| {
            let mut other = lease(facts, "caldera-controller").clone();
            (other.namespace, other.renewed) = ("default".into(), second(-age));
            facts.leases.as_mut().unwrap().push(other);
        }
    };
    finds(second_lease(3), Check::Components, Severity::Error, &["2 controllers are active", "default"]);
    let mut facts = healthy();
    second_lease(999)(&mut facts);
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn a_job_that_waits_without_a_pod_group_shows_that_no_controller_runs() {
    let plant = |facts: &mut Facts| facts.pod_groups = Ok(Vec::new());
    finds(plant, Check::Components, Severity::Error, &["1 waiting job without", "no controller", "ns/j-job"]);
    let mut facts = healthy();
    facts.pod_groups = Ok(Vec::new());
    facts.bindings.as_mut().unwrap()[0].created = second(-30);
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn commands_and_heartbeats_that_nobody_sends_are_reported() {
    let plant = |facts: &mut Facts| {
        facts.commands = Ok(vec![CommandFacts { key: "ns/c".into(), queue: "q".into(), created: second(-61) }]);
    };
    finds(plant, Check::Components, Severity::Warning, &["nobody carries out Commands", "q"]);
    let beat = |seen| InventoryFacts { cluster: "m1".into(), seen: second(seen), interval: 30 };
    let plant = |facts: &mut Facts| facts.inventories = Ok(vec![beat(-91), beat(-90)]);
    finds(plant, Check::Components, Severity::Warning, &["collector of m1", "1m31s"]);
    let plant = |facts: &mut Facts| facts.settings = vec![Err("there is none".into())];
    finds(plant, Check::Components, Severity::Note, &["settings", "there is none"]);
}

#[test]
fn clocks_that_differ_are_reported() {
    let plant = |facts: &mut Facts| facts.our_clock = Some(-11);
    finds(plant, Check::Clocks, Severity::Note, &["this machine is 11s behind"]);
    let plant = |facts: &mut Facts| lease(facts, "caldera-controller").renewed = second(11);
    finds(plant, Check::Clocks, Severity::Warning, &["h of Lease", "11s ahead of"]);
    let plant = |facts: &mut Facts| inside(facts).clock = Some(60);
    finds(plant, Check::Clocks, Severity::Warning, &["clock of m1 is 1m ahead of"]);
}

#[test]
fn a_component_of_another_version_or_of_none_is_reported_with_the_upgrade() {
    let lease = |version: Option<&'static str>| {
        move |facts: &mut Facts| facts.leases.as_mut().unwrap()[0].version = version.map(str::to_owned)
    };
    finds(lease(Some("1.9.0")), Check::Versions, Severity::Warning, &["controller is Caldera 1.9.0", "2.0.0"]);
    finds(lease(None), Check::Versions, Severity::Warning, &["controller says no version", "older"]);
    let webhook = |facts: &mut Facts| {
        facts.binding_probe.as_mut().unwrap()["metadata"]["annotations"]["caldera.dev/webhook-version"] = Value::Null;
    };
    finds(webhook, Check::Versions, Severity::Warning, &["the webhook says no version"]);
}

#[test]
fn versions_that_nobody_tested_and_gates_that_show_are_notes() {
    let host = |facts: &mut Facts| facts.versions.host = "v1.27.3+k3s1".into();
    finds(host, Check::Versions, Severity::Note, &["the host 1.27", "tested: 1.36"]);
    let volcano = |facts: &mut Facts| {
        facts.members.as_mut().unwrap()[0].inside.as_mut().unwrap().volcano_version = Some("v1.2.0".into());
    };
    finds(volcano, Check::Versions, Severity::Note, &["v1.2.0"]);
    let gate = |facts: &mut Facts| facts.bindings.as_mut().unwrap()[0].components = true;
    finds(gate, Check::Versions, Severity::Note, &["MultiplePodTemplatesScheduling"]);
}

#[test]
fn calls_to_the_interpreter_that_failed_lately_and_jobs_that_karmada_can_not_count_are_reported() {
    let failed = |seconds: i64| {
        move |facts: &mut Facts| {
            let message = "failed calling webhook \"caldera/x\": connection refused".to_owned();
            facts.interpreter_failures =
                Ok(vec![InterpreterFailure { about: "Job ns/j".into(), message, last: second(seconds) }]);
        }
    };
    finds(failed(-20), Check::Interpreter, Severity::Error, &["can not call the interpreter", "connection refused"]);
    finds(failed(-200), Check::Interpreter, Severity::Warning, &["can not call the interpreter"]);
    let mut facts = healthy();
    failed(-900)(&mut facts);
    assert!(find_faults(&facts).is_empty(), "mended since");
    let uncounted = |facts: &mut Facts| facts.bindings.as_mut().unwrap()[0].replicas = 0;
    finds(uncounted, Check::Interpreter, Severity::Warning, &["knows no pods", "ns/j-job"]);
}

#[test]
fn karmada_must_be_able_to_carry_out_what_is_admitted() {
    let denied = |facts: &mut Facts| {
        facts.karmada.as_mut().unwrap().denied = vec!["patch works.work.karmada.io".to_owned()];
    };
    // Nobody said whom it is, so that it may be somebody else.
    let words = ["system:admin", "may not patch works.work.karmada.io", "--karmada-user"];
    finds(denied, Check::Rights, Severity::Warning, &words);
    let named = |facts: &mut Facts| {
        denied(facts);
        facts.karmada.as_mut().unwrap().account.user = "karmada".to_owned();
    };
    finds(named, Check::Rights, Severity::Error, &["karmada", "may not patch works.work.karmada.io"]);
    let refused = |facts: &mut Facts| {
        let said = format!("spec.clusters {} and nobody else", caldera_crds::trusted::REFUSED_TO_OTHERS);
        facts.karmada.as_mut().unwrap().refused = vec![("resourcebindings.work.karmada.io".to_owned(), said)];
    };
    finds(refused, Check::Rights, Severity::Warning, &["no trusted writer", "spec.clusters is written by"]);
}

/// Found by a user: a policy of ours that was deleted was told only once a member lacked a queue.
#[test]
fn queues_and_classes_that_no_policy_takes_to_the_members_are_reported_whoever_made_the_policy() {
    let mut renamed = healthy();
    renamed.propagation_policies.as_mut().unwrap()[0]["metadata"]["name"] = json!("of-our-own");
    assert_eq!(find_faults(&renamed), []);
    let gone = |facts: &mut Facts| _ = facts.propagation_policies.as_mut().unwrap().remove(0);
    finds(gone, Check::Queues, Severity::Warning, &["selects every Queue"]);
    for narrower in [json!({"name": "high"}), json!({"labelSelector": {"matchLabels": {"a": "b"}}})] {
        let narrow = |facts: &mut Facts| {
            let selector = &mut facts.propagation_policies.as_mut().unwrap()[1]["spec"]["resourceSelectors"][0];
            selector.as_object_mut().unwrap().extend(narrower.as_object().unwrap().clone());
        };
        finds(narrow, Check::Queues, Severity::Warning, &["selects every PriorityClass"]);
    }
}
