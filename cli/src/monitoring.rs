//! Tests, and the generator behind them: render `docs/metrics.md`, the alert rules and the dashboard from the constants
//! that the metrics are registered by, and check that the files are current. With `CALDERA_WRITE_DOCS=1` they are
//! written instead.
//!
//! Rule: an expression names a metric by its constant, so that none can name one that does not exist. An alert is about
//! something that a person has to act on, and says how.

use std::{fmt::Write as _, fs, path::PathBuf};

use caldera_controller::metrics as controller;
use caldera_global_scheduler::metrics as scheduler;
use caldera_runtime::{
    metric::{COMMON, Kind, LEADER, Metric},
    tls::CERTIFICATE_EXPIRY,
    write_metrics::{self, WRITES},
};
use caldera_webhook::metrics as webhook;
use serde_json::{Value, json};

use crate::console::start_errors::EXPECTED_START_ERROR;

const BEGIN: &str =
    "<!-- made of the constants: `CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib monitoring` -->\n";

/// Metrics by the component that shows them.
fn list_metrics() -> Vec<(&'static str, Vec<Metric>)> {
    vec![
        ("Every component", COMMON.into_iter().chain(WRITES).collect()),
        ("Controller", controller::ALL.to_vec()),
        ("Scheduler", scheduler::ALL.to_vec()),
        ("Webhook", webhook::ALL.into_iter().chain([CERTIFICATE_EXPIRY]).collect()),
        ("Console", vec![EXPECTED_START_ERROR]),
    ]
}

struct Alert {
    name: &'static str,
    severity: &'static str,
    expression: String,
    lasts: &'static str,
    summary: &'static str,
    runbook: &'static str,
}

fn list_alerts() -> Vec<Alert> {
    let alert = |name, severity, expression, lasts, summary, runbook| Alert {
        name,
        severity,
        expression,
        lasts,
        summary,
        runbook,
    };
    vec![
        alert(
            "CalderaNoLeader",
            "critical",
            format!("(max by (lease) ({}) < 1) or absent({0}{{lease=\"caldera-controller\"}})", LEADER.series_name()),
            "2m",
            "No replica holds {{ $labels.lease }}: nothing is released or placed",
            "`caldera doctor` tells who holds the Leases. Look at the logs of the replicas: are they up, do they reach the \
             Karmada API, do their clocks agree?",
        ),
        alert(
            "CalderaWritesFail",
            "critical",
            format!(
                "sum by (job, kind, outcome) (rate({}{{outcome=~\"refused|unavailable\"}}[5m])) > 0.05",
                write_metrics::FAILED.series_name()
            ),
            "5m",
            "Writes of {{ $labels.kind }} are {{ $labels.outcome }}",
            "`refused`: `caldera doctor` checks each right of the accounts. `unavailable`: the Karmada API is down or \
             overloaded. `/readyz` of the component says the same after a minute without a success.",
        ),
        alert(
            "CalderaWebhookSlow",
            "warning",
            format!(
                "histogram_quantile(0.99, sum by (le, route) (rate({}_bucket[5m]))) > 1",
                webhook::REVIEW.series_name()
            ),
            "10m",
            "One review of {{ $labels.route }} in a hundred takes more than a second",
            "Reviews hold up every write of our kinds. Give the webhook more CPU or replicas; look for a flood of writes.",
        ),
        alert(
            "CalderaCertificateExpires",
            "critical",
            format!("min by (job, certificate) ({}) - time() < 7 * 86400", CERTIFICATE_EXPIRY.series_name()),
            "1h",
            "The webhook's {{ $labels.certificate }} certificate ends within a week, and then no job is accepted",
            "Renew what you brought by `--tls-cert` and `--ca-bundle`. One that the webhook makes itself it also replaces: \
             its log says why it could not. Page tasks/certificates.md has both.",
        ),
        alert(
            "CalderaQueueStuck",
            "warning",
            format!(
                "{jobs}{{state=\"waiting\"}} > 0 unless on (queue) increase({wait}_count[1h]) > 0",
                jobs = controller::JOBS.series_name(),
                wait = controller::WAIT.series_name()
            ),
            "1h",
            "Jobs of queue {{ $labels.queue }} wait, and none was released for an hour",
            "`caldera queue describe QUEUE` says why each waits, `caldera why JOB` what would help.",
        ),
        alert(
            "CalderaJobsInadmissible",
            "info",
            format!("{}{{state=\"inadmissible\"}} > 0", controller::JOBS.series_name()),
            "30m",
            "Jobs of queue {{ $labels.queue }} never start as they are",
            "`caldera job list -A --queue QUEUE` names them, and `caldera why JOB` says what has to change.",
        ),
        alert(
            "CalderaGangsStartSlowly",
            "warning",
            format!(
                "histogram_quantile(0.9, sum by (le, queue) (rate({}_bucket[30m]))) > 240",
                controller::START.series_name()
            ),
            "15m",
            "Gangs of queue {{ $labels.queue }} take more than four minutes from release to running",
            "After five minutes they are requeued. Look for image pulls, members' own quotas and closed queues in members.",
        ),
        alert(
            "CalderaEvictionStorm",
            "warning",
            format!("sum(rate({}[10m])) * 60 > 16", controller::EVICTED.series_name()),
            "10m",
            "More than 16 evictions a minute",
            "Queues take from each other all the time: raise `--preempt-after`, lower `--evictions-per-minute`, or look at \
             priorities and deserved shares.",
        ),
        alert(
            "CalderaForgedRecords",
            "critical",
            format!("increase({}[10m]) > 0", controller::FORGED.series_name()),
            "0m",
            "Somebody wrote admissions or placements that no controller made",
            "They were taken away. Event `ForgedRecord` names the binding; the API server's audit log names the writer.",
        ),
        alert(
            "CalderaClusterNotReady",
            "warning",
            format!("{} == 0", controller::CLUSTER_READY.series_name()),
            "5m",
            "Cluster {{ $labels.cluster }} is not ready",
            "`caldera cluster describe CLUSTER` shows its conditions. Gangs that have a part there are moved by Karmada's \
             failover, if that is on.",
        ),
        alert(
            "CalderaClusterFragmented",
            "info",
            format!(
                "{frag}{{resource!~\"memory|pods|ephemeral-storage\"}} > 0.8 and on (cluster, resource) {used} / {all} < 0.8",
                frag = controller::CLUSTER_FRAGMENTATION.series_name(),
                used = controller::CLUSTER_ALLOCATED.series_name(),
                all = controller::CLUSTER_CAPACITY.series_name()
            ),
            "1h",
            "Most nodes of {{ $labels.cluster }} are used in part: pods that want a whole node's {{ $labels.resource }} wait",
            "`caldera cluster drain` and `uncordon` packs it anew, at the price of a restart of what is there.",
        ),
        alert(
            "CalderaWriteBacklog",
            "warning",
            format!("{} > 1000", controller::PENDING_WRITES.series_name()),
            "5m",
            "The controller has more writes to send than the Karmada API takes",
            "What users read is late, decisions go first. Look at the API server's latency and priority levels.",
        ),
    ]
}

/// Names of the alerts, in their order.
pub(crate) fn list_alert_names() -> Vec<&'static str> {
    list_alerts().into_iter().map(|alert| alert.name).collect()
}

fn render_alerts() -> String {
    let rules: Vec<Value> = list_alerts()
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.lasts,
                "labels": {"severity": alert.severity},
                "annotations": {
                    "summary": alert.summary,
                    "description": alert.runbook,
                    "runbook": format!("docs/metrics.md#{}", alert.name.to_lowercase()),
                },
            })
        })
        .collect();
    let groups = json!({"groups": [{"name": "caldera", "rules": rules}]});
    format!(
        "# Made of the constants, as docs/metrics.md says.\n{}\n",
        serde_saphyr::to_string(&groups).unwrap().trim_end()
    )
}

/// Title, unit, and expressions with legends.
type Panel = (&'static str, &'static str, Vec<(String, &'static str)>);

fn list_panels() -> Vec<Panel> {
    use controller as c;
    let quantile = |q: f64, metric: &Metric, by: &str| {
        format!("histogram_quantile({q}, sum by (le, {by}) (rate({}_bucket[$__rate_interval])))", metric.series_name())
    };
    let rate = |metric: &Metric, by: &str| format!("sum by ({by}) (rate({}[$__rate_interval]))", metric.series_name());
    let of_queue = |metric: &Metric| format!("{}{{queue=~\"$queue\", resource=~\"$resource\"}}", metric.series_name());
    let of_cluster = |metric: &Metric| format!("{}{{resource=~\"$resource\"}}", metric.series_name());
    let jobs =
        |state: &str| format!("sum by (queue) ({}{{queue=~\"$queue\", state=\"{state}\"}})", c::JOBS.series_name());
    vec![
        ("Jobs that wait", "short", vec![(jobs("waiting"), "{{queue}}")]),
        ("Jobs that never start as they are", "short", vec![(jobs("inadmissible"), "{{queue}}")]),
        ("Jobs that run", "short", vec![(jobs("running"), "{{queue}}"), (jobs("admitted"), "{{queue}} starting")]),
        (
            "Used and deserved",
            "short",
            vec![
                (of_queue(&c::USED), "{{queue}} {{resource}} used"),
                (of_queue(&c::DESERVED), "{{queue}} {{resource}} deserved"),
                (of_queue(&c::CAPABILITY), "{{queue}} {{resource}} capability"),
            ],
        ),
        ("Borrowed", "short", vec![(of_queue(&c::BORROWED), "{{queue}} {{resource}}")]),
        ("Wait, 9 of 10", "s", vec![(quantile(0.9, &c::WAIT, "queue"), "{{queue}}")]),
        (
            "Error of expected starts, half and 9 of 10",
            "s",
            vec![
                (quantile(0.5, &EXPECTED_START_ERROR, "basis"), "{{basis}}, half"),
                (quantile(0.9, &EXPECTED_START_ERROR, "basis"), "{{basis}}, 9 of 10"),
            ],
        ),
        ("From release to running, 9 of 10", "s", vec![(quantile(0.9, &c::START, "queue"), "{{queue}}")]),
        (
            "Released, evicted and requeued a second",
            "short",
            vec![
                (format!("sum(rate({}[$__rate_interval]))", c::RELEASED.series_name()), "released"),
                (rate(&c::EVICTED, "reason"), "evicted {{reason}}"),
                (rate(&c::REQUEUED, "reason"), "requeued {{reason}}"),
            ],
        ),
        ("Jobs with a reservation", "short", vec![(c::RESERVATIONS.series_name(), "{{queue}}")]),
        (
            "Allocated (GAR)",
            "percentunit",
            vec![(
                format!("{} / {}", of_cluster(&c::CLUSTER_ALLOCATED), of_cluster(&c::CLUSTER_CAPACITY)),
                "{{cluster}} {{resource}}",
            )],
        ),
        (
            "Fragmented nodes (GFR)",
            "percentunit",
            vec![(of_cluster(&c::CLUSTER_FRAGMENTATION), "{{cluster}} {{resource}}")],
        ),
        (
            "Occupied over a day (SOR)",
            "percentunit",
            vec![(
                format!(
                    "avg_over_time({}[1d]) / avg_over_time({}[1d])",
                    of_cluster(&c::CLUSTER_ALLOCATED),
                    of_cluster(&c::CLUSTER_CAPACITY)
                ),
                "{{cluster}} {{resource}}",
            )],
        ),
        (
            "Idle for reservations, resource-seconds an hour",
            "short",
            vec![(
                format!("3600 * avg_over_time({}[1h])", of_cluster(&c::CLUSTER_RESERVED_IDLE)),
                "{{cluster}} {{resource}}",
            )],
        ),
        (
            "Gangs that begin to run a second, by clusters",
            "short",
            vec![(rate(&c::STARTED_GANGS, "clusters"), "in {{clusters}}")],
        ),
        (
            "Since the last event of a watched kind",
            "s",
            vec![(format!("time() - {}", c::LAST_EVENT.series_name()), "{{kind}}")],
        ),
        ("Clusters that are ready", "short", vec![(c::CLUSTER_READY.series_name(), "{{cluster}}")]),
        ("Writes, 99 of 100", "s", vec![(quantile(0.99, &write_metrics::DURATION, "kind"), "{{kind}}")]),
        (
            "Writes that fail a second",
            "short",
            vec![(rate(&write_metrics::FAILED, "kind, outcome"), "{{kind}} {{outcome}}")],
        ),
        ("Reviews, 99 of 100", "s", vec![(quantile(0.99, &webhook::REVIEW, "route"), "{{route}}")]),
        (
            "Decisions, 99 of 100",
            "s",
            vec![
                (
                    format!(
                        "histogram_quantile(0.99, sum by (le) (rate({}_bucket[$__rate_interval])))",
                        c::DECISION.series_name()
                    ),
                    "controller",
                ),
                (
                    format!(
                        "histogram_quantile(0.99, sum by (le) (rate({}_bucket[$__rate_interval])))",
                        scheduler::DECISION.series_name()
                    ),
                    "scheduler",
                ),
            ],
        ),
        ("Leaders", "short", vec![(LEADER.series_name(), "{{lease}} {{instance}}")]),
        ("Admitted, and no place", "short", vec![(scheduler::UNSCHEDULABLE.series_name(), "bindings")]),
    ]
}

fn render_dashboard() -> String {
    let source = json!({"type": "prometheus", "uid": "${source}"});
    let panels: Vec<Value> = list_panels()
        .into_iter()
        .enumerate()
        .map(|(at, (title, unit, queries))| {
            let targets: Vec<Value> = queries
                .iter()
                .zip('A'..)
                .map(|((expr, legend), id)| json!({"refId": id, "expr": expr, "legendFormat": legend, "datasource": source}))
                .collect();
            json!({
                "id": at + 1, "type": "timeseries", "title": title, "datasource": source, "targets": targets,
                "gridPos": {"x": at % 3 * 8, "y": at / 3 * 8, "w": 8, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            })
        })
        .collect();
    let variable = |name: &str, metric: &Metric| {
        json!({
            "name": name, "type": "query", "datasource": source, "multi": true, "includeAll": true, "refresh": 2,
            "query": format!("label_values({}, {name})", metric.series_name()), "current": {"text": "All", "value": "$__all"},
        })
    };
    let dashboard = json!({
        "uid": "caldera", "title": "Caldera", "tags": ["caldera"], "schemaVersion": 39, "editable": true, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "panels": panels,
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus"},
            variable("queue", &controller::JOBS), variable("resource", &controller::USED),
        ]},
    });
    format!("{dashboard:#}\n")
}

fn render_page() -> String {
    let mut text = String::new();
    for (component, metrics) in list_metrics() {
        let _ = writeln!(text, "\n### {component}\n\n| series | kind | labels | means |\n|---|---|---|---|");
        for metric in metrics {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", metric.series_name(), labels.join(", "), metric.help);
        }
    }
    text.push_str("\n## Alerts\n");
    for alert in list_alerts() {
        let _ = writeln!(
            text,
            "\n### {}\n\n{}, after {}: {}.\n\n```promql\n{}\n```\n\n{}",
            alert.name,
            alert.severity,
            alert.lasts,
            alert.summary.replace("{{ $labels.", "").replace(" }}", ""),
            alert.expression,
            wrap_words(alert.runbook)
        );
    }
    text
}

/// The words of a paragraph, in lines that fit the page.
fn wrap_words(paragraph: &str) -> String {
    let (mut text, mut length) = (String::new(), 0);
    for word in paragraph.split(' ') {
        let gap = match length {
            0 => "",
            _ if length + 1 + word.chars().count() > 120 => "\n",
            _ => " ",
        };
        length = if gap == "\n" { 0 } else { length + gap.len() } + word.chars().count();
        text.push_str(gap);
        text.push_str(word);
    }
    text
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
fn the_page_the_rules_and_the_dashboard_are_made_of_the_constants() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, _) = text.split_once(BEGIN).expect("docs/metrics.md has no mark where what is made begins");
    check_or_write_file("docs/metrics.md", &format!("{head}{BEGIN}{}", render_page()));
    check_or_write_file("manifests/monitoring/alerts.yaml", &render_alerts());
    check_or_write_file("manifests/monitoring/dashboard.json", &render_dashboard());
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
        let link = rule["annotations"]["runbook"].as_str().unwrap();
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
    for path in ["manifests/monitoring/alerts.yaml", "manifests/monitoring/dashboard.json"] {
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
    const LABELS: [&str; 15] = [
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
        "status",
        "lease",
        "verb",
        "certificate",
        "basis",
    ];
    let all: Vec<Metric> = list_metrics().into_iter().flat_map(|(_, metrics)| metrics).collect();
    for metric in &all {
        let is_time = metric.kind == Kind::Histogram;
        let is_timestamp = metric.name.ends_with("_timestamp_seconds");
        assert_eq!(metric.name.ends_with("_seconds") && !is_timestamp, is_time, "{}", metric.name);
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
