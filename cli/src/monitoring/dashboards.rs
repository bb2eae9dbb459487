//! The dashboards for Grafana, one for each role: what it acts on, and no more.

use caldera_controller::metrics as controller;
use caldera_estimator::metrics as estimator;
use caldera_global_scheduler::metrics as scheduler;
use caldera_runtime::{
    members::collector::metrics as inventory,
    metric::{DROPPED_SPANS, LEADER, Metric},
    write_metrics,
};
use caldera_webhook::metrics as webhook;
use serde_json::{Value, json};

use crate::console::start_errors::EXPECTED_START_ERROR;

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Viewer {
    /// Who submits jobs: how his queues are.
    Tenant,
    /// Who gives quotas: all queues, and what the fleet makes of them.
    Admin,
    /// Who keeps it running.
    Sre,
}

use Viewer::{Admin, Sre, Tenant};

impl Viewer {
    pub(super) const ALL: [Self; 3] = [Tenant, Admin, Sre];

    const fn word(self) -> &'static str {
        match self {
            Tenant => "tenant",
            Admin => "admin",
            Sre => "sre",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Tenant => "Caldera: my queues",
            Admin => "Caldera: queues and fleet",
            Sre => "Caldera: operation",
        }
    }

    /// The file of his dashboard.
    pub(super) fn file(self) -> String {
        format!("manifests/monitoring/dashboard-{}.json", self.word())
    }
}

/// For whom, title, unit, and expressions with legends.
type Panel = (&'static [Viewer], &'static str, &'static str, Vec<(String, &'static str)>);

fn list_panels() -> Vec<Panel> {
    use controller as c;
    let quantile = |q: f64, metric: &Metric, by: &str| {
        format!("histogram_quantile({q}, sum by (le, {by}) (rate({}_bucket[$__rate_interval])))", metric.series_name())
    };
    let rate = |metric: &Metric, by: &str| format!("sum by ({by}) (rate({}[$__rate_interval]))", metric.series_name());
    let error = |q: f64| {
        let of = EXPECTED_START_ERROR.series_name();
        let by = "le, queue, basis";
        format!("histogram_quantile({q}, sum by ({by}) (rate({of}_bucket{{queue=~\"$queue\"}}[$__rate_interval])))")
    };
    let in_an_hour = |metric: &Metric| {
        format!("sum by (queue, reason) (increase({}{{queue=~\"$queue\"}}[1h]))", metric.series_name())
    };
    let since = |metric: &Metric| format!("time() - {}", metric.series_name());
    let of_queue = |metric: &Metric| format!("{}{{queue=~\"$queue\", resource=~\"$resource\"}}", metric.series_name());
    let of_cluster = |metric: &Metric| format!("{}{{resource=~\"$resource\"}}", metric.series_name());
    let jobs =
        |state: &str| format!("sum by (queue) ({}{{queue=~\"$queue\", state=\"{state}\"}})", c::JOBS.series_name());
    vec![
        (&[Tenant, Admin, Sre], "Jobs that wait", "short", vec![(jobs("waiting"), "{{queue}}")]),
        (&[Tenant, Admin], "Jobs that never start as they are", "short", vec![(jobs("inadmissible"), "{{queue}}")]),
        (
            &[Tenant, Admin],
            "Jobs that run",
            "short",
            vec![(jobs("running"), "{{queue}}"), (jobs("admitted"), "{{queue}} starting")],
        ),
        (
            &[Tenant, Admin],
            "Used and deserved",
            "short",
            vec![
                (of_queue(&c::USED), "{{queue}} {{resource}} used"),
                (of_queue(&c::DESERVED), "{{queue}} {{resource}} deserved"),
                (of_queue(&c::CAPABILITY), "{{queue}} {{resource}} capability"),
            ],
        ),
        (&[Admin], "Borrowed", "short", vec![(of_queue(&c::BORROWED), "{{queue}} {{resource}}")]),
        (&[Tenant, Admin], "Wait, 9 of 10", "s", vec![(quantile(0.9, &c::WAIT, "queue"), "{{queue}}")]),
        (
            &[Tenant, Admin],
            "Error of expected starts, half and 9 of 10",
            "s",
            vec![(error(0.5), "{{queue}} {{basis}}, half"), (error(0.9), "{{queue}} {{basis}}, 9 of 10")],
        ),
        (
            &[Tenant, Admin],
            "Evicted and requeued in an hour",
            "short",
            vec![
                (in_an_hour(&c::EVICTED), "{{queue}} evicted {{reason}}"),
                (in_an_hour(&c::REQUEUED), "{{queue}} requeued {{reason}}"),
            ],
        ),
        (
            &[Tenant, Admin, Sre],
            "From release to running, 9 of 10",
            "s",
            vec![(quantile(0.9, &c::START, "queue"), "{{queue}}")],
        ),
        (
            &[Admin, Sre],
            "Released, evicted and requeued a second",
            "short",
            vec![
                (format!("sum(rate({}[$__rate_interval]))", c::RELEASED.series_name()), "released"),
                (rate(&c::EVICTED, "reason"), "evicted {{reason}}"),
                (rate(&c::REQUEUED, "reason"), "requeued {{reason}}"),
            ],
        ),
        (&[Admin], "Jobs with a reservation", "short", vec![(c::RESERVATIONS.series_name(), "{{queue}}")]),
        (
            &[Admin, Sre],
            "Allocated (GAR)",
            "percentunit",
            vec![(
                format!("{} / {}", of_cluster(&c::CLUSTER_ALLOCATED), of_cluster(&c::CLUSTER_CAPACITY)),
                "{{cluster}} {{resource}}",
            )],
        ),
        (
            &[Admin],
            "Fragmented nodes (GFR)",
            "percentunit",
            vec![(of_cluster(&c::CLUSTER_FRAGMENTATION), "{{cluster}} {{resource}}")],
        ),
        (
            &[Admin],
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
            &[Admin],
            "Idle for reservations, resource-seconds an hour",
            "short",
            vec![(
                format!("3600 * avg_over_time({}[1h])", of_cluster(&c::CLUSTER_RESERVED_IDLE)),
                "{{cluster}} {{resource}}",
            )],
        ),
        (
            &[Tenant, Admin],
            "Idle for a queue's reservations, resource-seconds an hour",
            "short",
            vec![(
                format!("3600 * avg_over_time({}[1h])", of_queue(&c::QUEUE_RESERVED_IDLE)),
                "{{queue}} {{resource}}",
            )],
        ),
        (
            &[Admin],
            "Gangs that begin to run a second, by clusters",
            "short",
            vec![(rate(&c::STARTED_GANGS, "clusters"), "in {{clusters}}")],
        ),
        (
            &[Sre],
            "Since the last event of a watched kind",
            "s",
            vec![
                (since(&c::LAST_EVENT), "controller {{kind}}"),
                (since(&scheduler::LAST_EVENT), "scheduler {{kind}}"),
                (since(&webhook::LAST_EVENT), "webhook {{kind}}"),
            ],
        ),
        (
            &[Sre],
            "Age of inventories",
            "s",
            vec![
                (since(&c::INVENTORY_SEEN), "{{cluster}} as read"),
                (since(&inventory::SEEN), "{{cluster}} as written"),
            ],
        ),
        (
            &[Sre],
            "Inventories: bytes written and failures a second",
            "short",
            vec![
                (rate(&inventory::PUBLISHED_BYTES, "cluster"), "{{cluster}} bytes"),
                (rate(&inventory::FAILURES, "cluster, kind"), "{{cluster}} {{kind}}"),
            ],
        ),
        (&[Sre], "Estimators, 99 of 100", "s", vec![(quantile(0.99, &estimator::ANSWER, "method"), "{{method}}")]),
        (
            &[Sre],
            "Questions that estimators refuse a second",
            "short",
            vec![(rate(&estimator::REFUSED, "method, status"), "{{method}} {{status}}")],
        ),
        (&[Sre], "Clusters that are ready", "short", vec![(c::CLUSTER_READY.series_name(), "{{cluster}}")]),
        (&[Sre], "Writes, 99 of 100", "s", vec![(quantile(0.99, &write_metrics::DURATION, "kind"), "{{kind}}")]),
        (
            &[Sre],
            "Writes that fail a second",
            "short",
            vec![(rate(&write_metrics::FAILED, "kind, outcome"), "{{kind}} {{outcome}}")],
        ),
        (&[Sre], "Reviews, 99 of 100", "s", vec![(quantile(0.99, &webhook::REVIEW, "route"), "{{route}}")]),
        (
            &[Sre],
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
        (&[Sre], "Leaders", "short", vec![(LEADER.series_name(), "{{lease}} {{instance}}")]),
        (
            &[Admin],
            "Shadow mode: what the other scheduler placed, an hour",
            "short",
            vec![(format!("sum by (verdict) (increase({}[1h]))", c::SHADOW_COMPARED.series_name()), "{{verdict}}")],
        ),
        (
            &[Sre],
            "Writes that wait or are in flight, and may be in flight",
            "short",
            vec![
                (c::PENDING_WRITES.series_name(), "controller"),
                (c::WRITES_IN_FLIGHT.series_name(), "controller, in flight"),
                (c::MOST_WRITES_IN_FLIGHT.series_name(), "controller, at most"),
                (scheduler::PENDING_WRITES.series_name(), "scheduler"),
                (scheduler::WRITES_IN_FLIGHT.series_name(), "scheduler, in flight"),
                (scheduler::MOST_WRITES_IN_FLIGHT.series_name(), "scheduler, at most"),
            ],
        ),
        (
            &[Sre],
            "Spans dropped a second",
            "short",
            vec![(format!("sum(rate({}[$__rate_interval]))", DROPPED_SPANS.series_name()), "spans")],
        ),
        (&[Sre], "Admitted, and no place", "short", vec![(scheduler::UNSCHEDULABLE.series_name(), "bindings")]),
    ]
}

/// What Grafana imports.
pub(super) fn render_dashboard(viewer: Viewer) -> String {
    let source = json!({"type": "prometheus", "uid": "${source}"});
    let panels: Vec<Value> = list_panels()
        .into_iter()
        .filter(|(viewers, ..)| viewers.contains(&viewer))
        .enumerate()
        .map(|(at, (_, title, unit, queries))| {
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
        "uid": format!("caldera-{}", viewer.word()), "title": viewer.title(), "tags": ["caldera"],
        "links": [{"type": "dashboards", "tags": ["caldera"], "title": "Caldera", "asDropdown": true}],
        "schemaVersion": 39, "editable": true, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "panels": panels,
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus"},
            variable("queue", &controller::JOBS), variable("resource", &controller::USED),
        ]},
    });
    format!("{dashboard:#}\n")
}
