//! Tests, and the generator behind them: render `docs/metrics.md`, the alert rules and the dashboards from the
//! constants that the metrics are registered by, and check that the files are current. With `CALDERA_WRITE_DOCS=1` they
//! are written instead.
//!
//! Rule: an expression names a metric by its constant, so that none can name one that does not exist.

mod alert_cases;
mod alerts;
mod dashboards;
mod page;

use std::{fs, path::PathBuf};

use caldera_controller::metrics as controller;
use caldera_estimator::metrics as estimator;
use caldera_global_scheduler::metrics as scheduler;
use caldera_runtime::{
    client::credentials::CREDENTIALS,
    members::collector::metrics as inventory,
    metric::{COMMON, Kind, Metric},
    probe::metrics as probe,
    tls::CERTIFICATE_EXPIRY,
    write_metrics::WRITES,
};
use caldera_webhook::metrics as webhook;
use serde_json::Value;

pub(crate) use self::alerts::{RUNBOOK_PAGE, list_alert_names};
use self::{
    alert_cases::render_alert_cases,
    alerts::{list_alerts, render_alerts},
    dashboards::{Viewer, render_dashboard},
    page::render_page,
};
use crate::console::start_errors::EXPECTED_START_ERROR;

const BEGIN: &str =
    "<!-- made of the constants: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib monitoring` -->\n";

/// Metrics by the component that shows them.
fn list_metrics() -> Vec<(&'static str, Vec<Metric>)> {
    vec![
        ("Every component", COMMON.into_iter().chain(CREDENTIALS).chain(WRITES).collect()),
        ("Controller", controller::ALL.to_vec()),
        ("Controller in shadow mode", controller::SHADOW.to_vec()),
        ("Scheduler", scheduler::ALL.into_iter().chain(scheduler::WRITE_QUEUE).collect()),
        ("Webhook", webhook::ALL.into_iter().chain([CERTIFICATE_EXPIRY]).collect()),
        ("Inventory", inventory::ALL.to_vec()),
        ("Inventory that measures the way to other members", probe::ALL.to_vec()),
        ("Estimator", estimator::ALL.to_vec()),
        ("Console", vec![EXPECTED_START_ERROR]),
    ]
}

/// Compares a file of the project with what it should be, or writes it.
#[track_caller]
pub(crate) fn check_or_write_file(path: &str, wanted: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("CALDERA_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, wanted).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == wanted, "{} is not current: CALDERA_WRITE_DOCS=1 writes it", path.display());
}

#[test]
fn the_page_the_rules_and_the_dashboards_are_made_of_the_constants() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, _) = text.split_once(BEGIN).expect("docs/metrics.md has no mark where what is made begins");
    let page = format!("{head}{BEGIN}{}", render_page());
    let is_long = |line: &&str| line.chars().count() > 120 && !line.starts_with('|') && !line.contains("://");
    assert_eq!(page.lines().find(is_long), None);
    check_or_write_file("docs/metrics.md", &page);
    check_or_write_file("manifests/monitoring/alerts.yaml", &render_alerts());
    check_or_write_file("manifests/monitoring/alerts.test.yaml", &render_alert_cases());
    for viewer in Viewer::ALL {
        check_or_write_file(&viewer.file(), &render_dashboard(viewer));
    }
}

/// The heading that an anchor leads to, as renderers of Markdown make it.
fn has_anchor(page: &str, anchor: &str) -> bool {
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    headings.map(|heading| heading.to_lowercase().replace(' ', "-")).any(|heading| heading == anchor)
}

#[test]
fn every_runbook_link_leads_to_what_to_do_about_its_alert() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let rules: Value =
        serde_saphyr::from_str(&fs::read_to_string(root.join("manifests/monitoring/alerts.yaml")).unwrap()).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), list_alerts().len());
    for rule in rules {
        let link = rule["annotations"]["runbook_url"].as_str().unwrap();
        let (path, anchor) = link.split_once('#').unwrap();
        let page = fs::read_to_string(root.join(path)).unwrap();
        assert!(has_anchor(&page, anchor), "{link}");
    }
    assert!(!has_anchor("### One\n", "two"));
}

/// Words of an expression that begin like our metrics.
fn list_metric_names(text: &str) -> Vec<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("caldera_")).collect()
}

#[test]
fn every_series_that_an_alert_or_the_dashboard_names_exists() {
    let all: Vec<Metric> = list_metrics().into_iter().flat_map(|(_, metrics)| metrics).collect();
    let is_series = |name: &str| {
        all.iter().any(|metric| match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{}{end}", metric.name)),
            _ => name == metric.series_name(),
        })
    };
    let dashboards = Viewer::ALL.map(Viewer::file);
    let rules = ["manifests/monitoring/alerts.yaml", "manifests/monitoring/alerts.test.yaml"];
    for path in dashboards.iter().map(String::as_str).chain(rules) {
        let text = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap();
        let names = list_metric_names(&text);
        assert!(names.len() > 10, "{path}: {names:?}");
        for name in names {
            assert!(is_series(name), "{path} names {name}, which does not exist");
        }
    }
    assert!(!is_series("caldera_queue_wait_seconds") && !is_series("caldera_evicted_bindings"));
}

#[test]
fn names_and_units_follow_the_conventions_and_no_label_is_a_jobs_name() {
    const LABELS: [&str; 19] = [
        "queue",
        "resource",
        "cluster",
        "clusters",
        "state",
        "reason",
        "kind",
        "outcome",
        "result",
        "route",
        "method",
        "status",
        "lease",
        "verb",
        "certificate",
        "basis",
        "verdict",
        "server",
        "peer",
    ];
    let all: Vec<Metric> = list_metrics().into_iter().flat_map(|(_, metrics)| metrics).collect();
    for metric in &all {
        let (is_time, is_histogram) = (metric.name.ends_with("_seconds"), metric.kind == Kind::Histogram);
        assert!(is_time || !is_histogram, "{}", metric.name);
        assert!(!is_time || metric.kind != Kind::Counter, "{}", metric.name);
        assert!(metric.name.starts_with("caldera_") && !metric.name.ends_with("_total"), "{}", metric.name);
        assert!(!metric.help.ends_with('.'), "{}", metric.name);
        let is_known = |label: &&str| LABELS.contains(label) || ["component", "version"].contains(label);
        assert!(metric.labels.iter().all(is_known), "{}", metric.name);
    }
    let mut names: Vec<&str> = all.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
}
