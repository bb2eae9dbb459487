//! Holds the server against recorded conversations with a real kube-apiserver.
//!
//! How to run it, from the workspace root:
//!
//! ```text
//! cargo test -p embedded-apiserver --test conformance -- --nocapture                      everything: one line per area
//! CALDERA_CONFORMANCE_CASE=crud-create cargo test ... --test conformance -- --nocapture   every difference of the cases
//!                                                                                         whose id begins so (or an area)
//! CALDERA_CONFORMANCE_FAILURES=1 cargo test ... --test conformance -- --nocapture         the first difference of each failing case
//! CALDERA_CONFORMANCE_GRADE=C ... with CASE or FAILURES                                   show optional (grade C) differences too
//! ```
//!
//! The recordings are in `fixtures/conformance`, or in the folder that `CALDERA_CONFORMANCE_DIR` names. `conformance
//! <area>: P of N` counts the cases without a difference of grade A or B; the line `  strict` counts those without any
//! difference at all. `CALDERA_CONFORMANCE_SERVER` and its tokens (see `target.rs`) point the runner at another server,
//! a real one for instance.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::needless_pass_by_value)]

mod bind;
mod case;
mod compare;
mod hooks;
mod http;
mod kubectl;
mod run;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use case::Case;
use compare::Grade;
use run::{Outcome, Runner};
use tokio::sync::Semaphore;

/// Differences of a case that are printed where all is to be told.
const DETAILED: usize = 200;

/// The least number of passing cases per area (of the recordings at hand): raised as the server improves.
const FLOORS: [(&str, usize); 21] = [
    ("apply", 19),
    ("auth", 32),
    ("crd", 41),
    ("crd_validation", 12),
    ("crud", 89),
    ("deletecollection", 3),
    ("deletion", 14),
    ("discovery", 5),
    ("events", 4),
    ("karmada", 9),
    ("kubectl", 29),
    ("leases", 3),
    ("metadata", 3),
    ("namespaces", 6),
    ("patch", 19),
    ("resource_version", 12),
    ("subresources", 13),
    ("tables", 6),
    ("volcano", 10),
    ("watch", 15),
    ("webhooks", 60),
];

struct Score {
    passed: usize,
    grade_a: usize,
    strict: usize,
    total: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_cases() {
    let folder = caldera_fixtures::find_folder("CALDERA_CONFORMANCE_DIR", "conformance");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wanted = std::env::var("CALDERA_CONFORMANCE_CASE").ok();
    let chosen = |c: &Case| wanted.as_ref().is_none_or(|w| c.id.starts_with(w.as_str()) || c.area == *w);
    let cases: Vec<Arc<Case>> = case::load(&folder).into_iter().filter(chosen).map(Arc::new).collect();

    let target = Arc::new(target::Target::start().await);
    let runner = Arc::new(Runner { http: http::Http::new(&target), target, hooks: hooks::Hooks::start().await });
    install_fixtures(&runner, &folder, &cases).await;
    let outcomes = run_all(&runner, &cases).await;
    report(&cases, &outcomes, wanted.is_some());
}

async fn install_fixtures(runner: &Arc<Runner>, folder: &std::path::Path, cases: &[Arc<Case>]) {
    let sets: BTreeSet<&String> = cases.iter().flat_map(|c| &c.requires).collect();
    let fixtures: Vec<_> = case::fixtures(folder).into_iter().filter(|f| sets.contains(&f.set)).collect();
    let mut created = Vec::new();
    for fixture in &fixtures {
        let request = case::Request {
            method: "POST".into(),
            path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(),
            query: BTreeMap::new(),
            headers: BTreeMap::from([
                ("Content-Type".to_owned(), "application/json".to_owned()),
                ("User-Agent".to_owned(), "conformance/1.0".to_owned()),
            ]),
            user: None,
            body: Some(fixture.body.clone()),
            body_text: None,
            body_repeat: None,
            body_from: None,
            content_type: None,
        };
        match runner.send_plain(&request).await {
            Ok(answer) if answer.status == 201 || answer.status == 409 => created.push(&fixture.name),
            Ok(answer) => println!("fixture {}: {} {}", fixture.name, answer.status, compare::clip(&answer.text, 400)),
            Err(why) => println!("fixture {}: {why}", fixture.name),
        }
    }
    for name in created {
        if let Err(why) = runner.wait_established(name).await {
            println!("fixture {name}: {why}");
        }
    }
}

/// Cases own their names, so most run side by side; webhook and CRD cases run one at a time, compaction last and alone.
async fn run_all(runner: &Arc<Runner>, cases: &[Arc<Case>]) -> BTreeMap<String, Outcome> {
    let slots = Arc::new(Semaphore::new(12));
    let kubectl_slots = Arc::new(Semaphore::new(3));
    let kubectl = kubectl::find();
    let mut tasks = Vec::new();
    let (mut webhooks, mut alone, mut compacting) = (Vec::new(), Vec::new(), Vec::new());
    for case in cases.iter().cloned() {
        if case.area == "kubectl" {
            if kubectl.is_none() {
                continue;
            }
            let (runner, slots) = (runner.clone(), kubectl_slots.clone());
            tasks.push(tokio::spawn(async move {
                let _slot = slots.acquire().await;
                let outcome = limited(kubectl::run(&runner, &case)).await;
                (case.id.clone(), outcome)
            }));
        } else if case.tagged("compact") {
            compacting.push(case);
        } else if case.area == "webhooks" {
            webhooks.push(case);
        } else if case.tagged("crd-lifecycle") || case.area == "auth" || case.names_service_address {
            alone.push(case);
        } else {
            let (runner, slots) = (runner.clone(), slots.clone());
            tasks.push(tokio::spawn(async move {
                let _slot = slots.acquire().await;
                let outcome = limited(runner.run(&case)).await;
                (case.id.clone(), outcome)
            }));
        }
    }
    let mut outcomes = BTreeMap::new();
    for result in futures::future::join_all(tasks).await {
        match result {
            Ok((id, outcome)) => drop(outcomes.insert(id, outcome)),
            Err(why) => println!("a case broke the runner: {why}"),
        }
    }
    // Some of these webhooks are asked about every write there is, a new kind is news to every client, rights that a
    // case binds in the whole cluster are alice's in every case, and two cases may want the same service address.
    for case in alone.into_iter().chain(webhooks) {
        outcomes.insert(case.id.clone(), limited(runner.run(&case)).await);
    }
    for case in compacting {
        outcomes.insert(case.id.clone(), limited(runner.run(&case)).await);
    }
    if kubectl.is_none() && cases.iter().any(|c| c.area == "kubectl") {
        println!("conformance kubectl: skipped, no kubectl on PATH");
    }
    outcomes
}

async fn limited(case: impl Future<Output = Outcome>) -> Outcome {
    match tokio::time::timeout(Duration::from_secs(300), case).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome { diffs: Vec::new(), skipped: Some("not finished after 300 s".into()) },
    }
}

fn report(cases: &[Arc<Case>], outcomes: &BTreeMap<String, Outcome>, detailed: bool) {
    let least = match std::env::var("CALDERA_CONFORMANCE_GRADE").as_deref() {
        Ok("C") => Grade::C,
        Ok("A") => Grade::A,
        _ => Grade::B,
    };
    let brief = std::env::var_os("CALDERA_CONFORMANCE_FAILURES").is_some();
    let mut scores: BTreeMap<&str, Score> = BTreeMap::new();
    for case in cases {
        let Some(outcome) = outcomes.get(&case.id) else { continue };
        let score = scores.entry(&case.area).or_insert(Score { passed: 0, grade_a: 0, strict: 0, total: 0 });
        let worst = outcome.diffs.iter().map(|d| d.grade).max();
        score.total += 1;
        score.passed += usize::from(outcome.skipped.is_none() && worst.is_none_or(|g| g < Grade::B));
        score.grade_a += usize::from(outcome.skipped.is_none() && worst.is_none_or(|g| g < Grade::A));
        score.strict += usize::from(outcome.skipped.is_none() && worst.is_none());
        if detailed || brief {
            print_case(case, outcome, least, if detailed { DETAILED } else { 1 });
        }
    }
    // Our own recordings are all there; others may have fewer areas. Area `kubectl` needs a kubectl.
    let ours = std::env::var_os("CALDERA_CONFORMANCE_DIR").is_none();
    let absent = |area: &str| !scores.contains_key(area) && (area != "kubectl" || kubectl::find().is_some());
    let missing = FLOORS.iter().filter(|(area, _)| ours && absent(area));
    let mut below: Vec<String> = missing.map(|(area, floor)| format!("{area}: absent, {floor} are recorded")).collect();
    for (area, score) in &scores {
        println!("conformance {area}: {} of {}", score.passed, score.total);
        println!("  strict {area}: {}, without message texts: {}", score.strict, score.grade_a);
        if let Some((_, floor)) = FLOORS.iter().find(|(a, _)| a == area)
            && score.passed < *floor
        {
            below.push(format!("{area}: {} passed, {floor} are recorded", score.passed));
        }
    }
    let all: usize = scores.values().map(|s| s.passed).sum();
    let total: usize = scores.values().map(|s| s.total).sum();
    println!("conformance total: {all} of {total}");
    if !detailed && !brief && !below.is_empty() {
        for case in cases {
            if let Some(outcome) = outcomes.get(&case.id) {
                print_case(case, outcome, Grade::B, 20);
            }
        }
    }
    assert!(detailed || below.is_empty(), "areas below their recorded floor: {}", below.join("; "));
}

fn print_case(case: &Case, outcome: &Outcome, least: Grade, limit: usize) {
    let shown: Vec<_> = outcome.diffs.iter().filter(|d| d.grade >= least).collect();
    if shown.is_empty() && outcome.skipped.is_none() {
        if limit == DETAILED {
            println!("PASS {}", case.id);
        }
        return;
    }
    println!("FAIL {} ({} differences): {}", case.id, shown.len(), case.why);
    if let Some(why) = &outcome.skipped {
        println!("  {why}");
    }
    for diff in shown.iter().take(limit) {
        println!("  [{:?}] {}\n      want: {}\n      have: {}", diff.grade, diff.place, diff.golden, diff.actual);
    }
}
