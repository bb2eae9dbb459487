//! Credentials that end, and an interpreter that nobody asked yet.

use caldera_runtime::client::credentials::Lifetime;

use super::*;
use crate::{doctor::facts::KubeconfigFacts, objects::Visible};

const DAY: i64 = 86_400;

/// Of a year, that ends in so many seconds.
fn of_a_year(left: i64) -> Lifetime {
    Lifetime { begins: second(left - 365 * DAY), ends: second(left).unwrap() }
}

#[test]
fn a_lease_whose_holders_credentials_end_soon_or_have_ended_is_reported_with_what_renews_them() {
    let plant =
        |lifetime: Lifetime| move |facts: &mut Facts| facts.leases.as_mut().unwrap()[0].credentials = Some(lifetime);
    let soon = ["credentials of the controller", "Lease caldera-system/caldera-controller", "end in 30d"];
    finds(plant(of_a_year(30 * DAY)), Check::Components, Severity::Warning, &soon);
    let mut facts = healthy();
    plant(of_a_year(-3600))(&mut facts);
    facts.leases.as_mut().unwrap()[0].renewed = second(-3700);
    let is_reported = |finding: &crate::doctor::finding::Finding| {
        finding.severity == Severity::Error && finding.what.contains("ended 1h ago")
    };
    assert!(find_faults(&facts).iter().any(is_reported));
    let mut facts = healthy();
    facts.leases.as_mut().unwrap()[0].credentials = Some(of_a_year(-3600));
    assert_eq!(find_faults(&facts), [], "it was renewed a moment ago, by others than those");
    plant(of_a_year(30 * DAY))(&mut facts);
    let fix = "kubectl -n caldera-system create token caldera-controller --duration 8760h";
    assert_eq!(find_faults(&facts)[0].fix.as_deref(), Some(fix));
    let hour = Lifetime { begins: second(-2900), ends: second(700).unwrap() };
    for lifetime in [of_a_year(30 * DAY + 1), hour] {
        plant(lifetime)(&mut facts);
        assert_eq!(find_faults(&facts), [], "{lifetime}");
    }
}

#[test]
fn a_kubeconfig_that_ends_is_reported_by_its_file_and_yours_in_a_note() {
    let plant = |file: Option<&str>, credentials: Visible<Option<Lifetime>>| {
        let file = file.map(str::to_owned);
        move |facts: &mut Facts| facts.kubeconfigs = vec![KubeconfigFacts { file, credentials }]
    };
    let file = Some("caldera/caldera-webhook.kubeconfig");
    let words = ["credentials in caldera/caldera-webhook.kubeconfig end in 3d"];
    finds(plant(file, Ok(Some(of_a_year(3 * DAY)))), Check::Components, Severity::Warning, &words);
    finds(plant(None, Ok(Some(of_a_year(3 * DAY)))), Check::Components, Severity::Note, &["your own", "end in 3d"]);
    finds(plant(file, Err("it is no YAML".into())), Check::Components, Severity::Note, &["not examined", "no YAML"]);
    let mut facts = healthy();
    plant(file, Ok(Some(of_a_year(-1))))(&mut facts);
    let found = find_faults(&facts).remove(0);
    assert!(found.severity == Severity::Error && found.fix.unwrap().contains("create token caldera-webhook "));
    plant(file, Ok(None))(&mut facts);
    assert_eq!(find_faults(&facts), [], "one that is no JWT");
    plant(Some("caldera/karmada.kubeconfig"), Ok(Some(of_a_year(-1))))(&mut facts);
    let found = find_faults(&facts).remove(0);
    assert!(found.severity == Severity::Note && found.fix.is_none(), "a person's own: {found:?}");
}

#[test]
fn an_interpreter_that_nobody_asked_is_a_note_and_not_in_order() {
    let no_jobs = |facts: &mut Facts| {
        facts.bindings = Ok(Vec::new());
        facts.pod_groups = Ok(Vec::new());
    };
    finds(no_jobs, Check::Interpreter, Severity::Note, &["not asked yet", "Submit one"]);
    // One that is new was not counted yet, and Karmada's own interpreter tells components.
    let new = |facts: &mut Facts| {
        let binding = &mut facts.bindings.as_mut().unwrap()[0];
        (binding.replicas, binding.created) = (0, second(-1));
    };
    finds(new, Check::Interpreter, Severity::Note, &["not asked yet"]);
    let mut facts = healthy();
    new(&mut facts);
    facts.interpreter_failures = Ok(vec![crate::doctor::facts::InterpreterFailure {
        about: "Job ns/j".into(),
        message: "connection refused".into(),
        last: second(-200),
    }]);
    let found = find_faults(&facts);
    assert!(found.len() == 1 && found[0].severity == Severity::Warning, "it was asked: {found:?}");
}
