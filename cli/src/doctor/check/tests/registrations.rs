//! Faults of admission policies, of declared kinds, and bundles that expire.

use caldera_runtime::tls::{Authority, Validity};

use super::*;
use crate::{
    doctor::{
        check::{policies::check_policies, webhooks::check_webhooks},
        facts::{DeclaredKind, Right},
        finding::Finding,
    },
    objects::{Visible, name_of},
};

const POLICIES: [&str; 7] =
    ["bindings", "workload-bindings", "works", "actions", "submissions", "commands", "hyperjobs"];

fn policy<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Value {
    facts.policies.as_mut().unwrap().iter_mut().find(|one| name_of(one) == name).unwrap()
}

fn fix_after(plant: impl FnOnce(&mut Facts)) -> String {
    let mut facts = healthy();
    plant(&mut facts);
    find_faults(&facts).remove(0).fix.unwrap()
}

#[test]
fn each_policy_that_is_printed_is_wanted_and_so_is_its_binding() {
    let facts = healthy();
    assert_eq!(check_policies(&facts), []);
    let find = |facts: &Facts, words: &str| {
        let found = check_policies(facts);
        let is_it = |one: &Finding| one.severity == Severity::Warning && one.what.contains(words) && one.fix.is_some();
        assert!(found.len() == 1 && is_it(&found[0]), "{words}: {found:?}");
    };
    for name in POLICIES.map(|name| format!("{name}.caldera.dev")) {
        let without =
            |all: &Visible<Vec<Value>>| Ok(all.iter().flatten().filter(|one| name_of(one) != name).cloned().collect());
        let gone = Facts { policies: without(&facts.policies), ..facts.clone() };
        find(&gone, &format!("no ValidatingAdmissionPolicy {name}"));
        let unbound = Facts { policy_bindings: without(&facts.policy_bindings), ..facts.clone() };
        find(
            &unbound,
            &format!("no ValidatingAdmissionPolicyBinding {name}: while the webhook is away, the policies hold"),
        );
    }
    assert_eq!(facts.policies.unwrap().len(), POLICIES.len(), "one that is new is checked as well");
}

#[test]
fn a_policy_or_a_binding_that_says_another_thing_is_reported_by_its_field() {
    let weaker = |facts: &mut Facts| {
        policy(facts, "works.caldera.dev")["spec"]["validations"].as_array_mut().unwrap().pop();
    };
    finds(weaker, Check::Webhooks, Severity::Warning, &["validations of works.caldera.dev"]);
    let ignored = |facts: &mut Facts| policy(facts, "bindings.caldera.dev")["spec"]["failurePolicy"] = json!("Ignore");
    finds(ignored, Check::Webhooks, Severity::Warning, &["failurePolicy of bindings.caldera.dev"]);
    let elsewhere = |facts: &mut Facts| {
        policy(facts, "works.caldera.dev")["spec"]["matchConstraints"]["namespaceSelector"] =
            json!({"matchLabels": {"nobody": "has it"}});
    };
    finds(elsewhere, Check::Webhooks, Severity::Warning, &["matchConstraints of works.caldera.dev"]);
    let audited = |facts: &mut Facts| {
        facts.policy_bindings.as_mut().unwrap()[0]["spec"]["validationActions"] = json!(["Audit"]);
    };
    let words = ["ValidatingAdmissionPolicyBinding", "validationActions of bindings.caldera.dev"];
    finds(audited, Check::Webhooks, Severity::Warning, &words);
    let narrow = |facts: &mut Facts| {
        facts.policy_bindings.as_mut().unwrap()[0]["spec"]["matchResources"] =
            json!({"objectSelector": {"matchLabels": {"nobody": "has it"}}});
    };
    finds(narrow, Check::Webhooks, Severity::Warning, &["matchResources of bindings.caldera.dev"]);
}

#[test]
fn what_an_api_server_fills_in_is_no_difference() {
    let mut facts = healthy();
    for policy in facts.policies.as_mut().unwrap() {
        let spec = policy["spec"].as_object_mut().unwrap();
        // It keeps no list that is empty.
        spec.retain(|_, value| value.as_array().is_none_or(|all| !all.is_empty()));
        let constraints = &mut spec["matchConstraints"];
        constraints["matchPolicy"] = json!("Equivalent");
        (constraints["namespaceSelector"], constraints["objectSelector"]) = (json!({}), json!({}));
        for rule in constraints["resourceRules"].as_array_mut().unwrap() {
            rule["scope"] = json!("*");
        }
        policy["status"] = json!({"observedGeneration": 1});
    }
    assert_eq!(find_faults(&facts), []);
}

#[test]
fn whom_the_policies_trust_is_read_from_them_and_must_be_the_same_in_all() {
    let others: TrustedWriters = ["user:ops".parse().unwrap()].into_iter().collect();
    let mut facts = healthy();
    let (policies, _) = split_policies(list_admission_policies(&others, false));
    facts.policies = Ok(policies.clone());
    // A controller that is not trusted by name is told of by the webhook's configuration.
    let found = find_faults(&facts);
    let words = "matchConditions of jobs.gate.caldera.dev";
    assert!(found.len() == 1 && found[0].what.contains(words), "{found:?}");
    let all = caldera_webhook::build_configurations_for(&Endpoint::Url("https://h:1".into()), "", &others);
    let mut webhooks = all[0]["webhooks"].clone();
    let bundle = facts.mutating.as_ref().unwrap()[0]["webhooks"][0]["clientConfig"]["caBundle"].clone();
    for hook in webhooks.as_array_mut().unwrap() {
        hook["clientConfig"]["caBundle"] = bundle.clone();
    }
    facts.mutating.as_mut().unwrap()[0]["webhooks"] = webhooks;
    assert_eq!(find_faults(&facts), []);
    let mixed = |facts: &mut Facts| {
        let works = policies.iter().find(|one| name_of(one) == "works.caldera.dev").unwrap();
        *policy(facts, "works.caldera.dev") = works.clone();
    };
    finds(mixed, Check::Webhooks, Severity::Warning, &["matchConditions of works.caldera.dev"]);
}

#[test]
fn policies_on_who_may_use_queues_are_wanted_where_one_of_them_is_there() {
    let mut facts = healthy();
    let (policies, bindings) = split_policies(list_admission_policies(&TrustedWriters::default(), true));
    (facts.policies, facts.policy_bindings) = (Ok(policies), Ok(bindings));
    assert_eq!(find_faults(&facts), []);
    let name = "cronjobs.queue-access.caldera.dev";
    facts.policies.as_mut().unwrap().retain(|one| name_of(one) != name);
    let found = find_faults(&facts);
    assert!(found.len() == 1 && found[0].what.contains(name), "{found:?}");
}

/// As if this kind, which is told in code, were declared.
fn reported() -> DeclaredKind {
    DeclaredKind { group: "ray.io".into(), kind: "RayJob".into(), plural: "rayjobs".into() }
}

#[test]
fn a_kind_that_was_told_after_webhooks_and_policies_were_made_is_reported_with_the_upgrade() {
    let plant = |facts: &mut Facts| {
        facts.declared_kinds = vec![reported()];
        for object in facts.mutating.iter_mut().chain(&mut facts.policies).flatten() {
            *object = serde_json::from_str(&object.to_string().replace("ray.io", "elsewhere.example")).unwrap();
        }
    };
    let words = [
        "rayjobs.ray.io is told by a WorkloadKind",
        "MutatingWebhookConfiguration queue.caldera.dev",
        "ValidatingAdmissionPolicy workload-bindings.caldera.dev",
        "ValidatingAdmissionPolicy works.caldera.dev",
        "ValidatingAdmissionPolicy actions.caldera.dev",
        "ValidatingAdmissionPolicy submissions.caldera.dev",
    ];
    finds(plant, Check::Webhooks, Severity::Warning, &words);
    assert!(fix_after(plant).starts_with("caldera upgrade"));
    let mut facts = healthy();
    facts.declared_kinds = vec![reported()];
    assert_eq!(find_faults(&facts), [], "they were made since");
}

#[test]
fn where_kinds_are_told_nothing_is_mended_by_what_is_printed_without_them() {
    let change =
        |facts: &mut Facts| facts.mutating.as_mut().unwrap()[0]["webhooks"][0]["failurePolicy"] = json!("Ignore");
    assert!(fix_after(change).starts_with("caldera manifests --only webhooks"));
    let with_kinds = |facts: &mut Facts| {
        facts.declared_kinds = vec![reported()];
        change(facts);
    };
    assert!(fix_after(with_kinds).starts_with("caldera upgrade"));
}

#[test]
fn rights_to_a_kind_that_is_told_are_told_apart_with_the_upgrade() {
    let right = |group: &str, resource: &str| Right {
        component: "scheduler".into(),
        verb: "list".into(),
        group: group.into(),
        resource: resource.into(),
        namespace: None,
        name: None,
        allowed: false,
    };
    let plant = |facts: &mut Facts| {
        facts.declared_kinds = vec![reported()];
        facts.rights = Ok(vec![right("ray.io", "rayjobs")]);
    };
    let words = ["the scheduler may not list rayjobs.ray.io, which a WorkloadKind tells"];
    finds(plant, Check::Rights, Severity::Error, &words);
    assert!(fix_after(plant).starts_with("caldera upgrade"));
    let of_ours = |facts: &mut Facts| facts.rights = Ok(vec![right("ray.io", "rayjobs")]);
    assert!(fix_after(of_ours).starts_with("caldera manifests --only rbac"));
}

/// All configurations trust this.
fn trust(facts: &mut Facts, pem: &str) {
    let all = build_configurations(&Endpoint::Url("https://h:1".into()), pem);
    let [mutating, validating, interpreter] = <[Value; 3]>::try_from(all).unwrap();
    (facts.mutating, facts.validating, facts.interpreters) =
        (Ok(vec![mutating]), Ok(vec![validating]), Ok(vec![interpreter]));
}

#[test]
fn a_bundle_that_has_expired_or_will_soon_is_reported_with_what_renews_it() {
    let until = |seconds: i64| {
        let validity = Validity { begins: second(-1000).unwrap(), ends: second(seconds).unwrap() };
        Authority::with_validity("test", validity).unwrap().cert_pem
    };
    let mut facts = healthy();
    let mut find = |seconds: i64| {
        trust(&mut facts, &until(seconds));
        check_webhooks(&facts)
    };
    let day = 86_400;
    for (seconds, severity, words) in [
        (3 * day, Severity::Warning, "expires in 3d"),
        (14 * day, Severity::Warning, "expires in 14d"),
        (-60, Severity::Error, "expired 1m ago"),
    ] {
        let found = find(seconds);
        assert!(found.len() == 1 && found[0].severity == severity && found[0].what.contains(words), "{found:?}");
        assert!(found[0].fix.as_ref().is_some_and(|fix| fix.contains("--ca-bundle")), "{found:?}");
    }
    assert_eq!(find(14 * day + 1), []);
    // While one is replaced both are there, and what callers need is the new one.
    trust(&mut facts, &format!("{}{}", until(-60), until(300 * day)));
    assert_eq!(check_webhooks(&facts), []);
    facts.registers = true;
    trust(&mut facts, &until(3 * day));
    let found = check_webhooks(&facts);
    assert!(found[0].fix.as_ref().is_some_and(|fix| fix.contains("caldera.dev/rotate=now")), "{found:?}");
}

/// Found by a user: the advice said `https://HOST:PORT` of a webhook that was registered.
#[test]
fn a_fix_has_what_is_known_of_the_installation_and_capitals_only_for_the_rest() {
    let gone = |facts: &mut Facts| facts.validating = Ok(Vec::new());
    let of_url = fix_after(gone);
    assert!(of_url.contains("--webhook-url https://h:1 --ca-bundle"), "{of_url}");
    let of_service = fix_after(|facts| {
        gone(facts);
        let service = json!({"service": {"namespace": "caldera-system", "name": "caldera-webhook", "port": 443}});
        for hook in facts.mutating.as_mut().unwrap()[0]["webhooks"].as_array_mut().unwrap() {
            hook["clientConfig"] = service.clone();
        }
        facts.interpreters = Err("forbidden".into());
    });
    assert!(of_service.contains("--webhook-service caldera-system/caldera-webhook:443 "), "{of_service}");
    let unknown = fix_after(|facts| {
        (facts.mutating, facts.validating, facts.interpreters) = (Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new()));
    });
    assert!(unknown.contains("https://HOST:PORT"), "{unknown}");
    let other = |facts: &mut Facts| facts.leases.as_mut().unwrap()[0].version = Some("1.0.0".into());
    assert_eq!(fix_after(other), "caldera upgrade");
    let named = fix_after(|facts| {
        other(facts);
        facts.host_kubeconfig = Some("host.kubeconfig".into());
    });
    assert_eq!(named, "caldera upgrade --kubeconfig host.kubeconfig");
}
