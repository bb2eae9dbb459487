//! The test of the alert rules that `promtool` runs: for each alert, what series there are, and when it fires and when
//! not. `manifests/monitoring/alerts.test.yaml` is made of it.

use caldera_controller::metrics as controller;
use caldera_runtime::{
    client::credentials::{CREDENTIALS_EXPIRY, CREDENTIALS_ISSUED},
    members::collector::metrics as inventory,
    metric::{BUILD_INFO, LEADER, Metric},
    tls::CERTIFICATE_EXPIRY,
    write_metrics,
};
use caldera_webhook::metrics as webhook;
use serde_json::{Map, Value, json};

use super::alerts::list_alerts;

/// Labels of an alert, beside its severity.
type AlertLabels = &'static [(&'static str, &'static str)];

/// A case: the alert, its series, and at some times those that fire.
#[derive(Clone)]
struct AlertCase {
    alert: &'static str,
    /// Series with its labels, and a value each minute, as `promtool` writes them.
    series: Vec<(String, &'static str)>,
    looks: Vec<(&'static str, Vec<AlertLabels>)>,
}

impl AlertCase {
    const fn of(alert: &'static str) -> Self {
        Self { alert, series: Vec::new(), looks: Vec::new() }
    }

    /// With a series of this metric.
    fn with(self, metric: &Metric, labels: &str, values: &'static str) -> Self {
        self.with_series(&metric.series_name(), labels, values)
    }

    /// With the buckets of a histogram: those below a bound, and all.
    fn with_buckets(self, metric: &Metric, labels: &str, buckets: [(&str, &'static str); 3]) -> Self {
        let name = format!("{}_bucket", metric.series_name());
        buckets
            .into_iter()
            .fold(self, |case, (le, values)| case.with_series(&name, &format!("{labels}, le=\"{le}\""), values))
    }

    fn with_series(mut self, name: &str, labels: &str, values: &'static str) -> Self {
        self.series.push((format!("{name}{{{labels}}}"), values));
        self
    }

    fn fires(mut self, at: &'static str, labels: &[AlertLabels]) -> Self {
        self.looks.push((at, labels.to_vec()));
        self
    }

    fn rests(self, at: &'static str) -> Self {
        self.fires(at, &[])
    }

    /// As `promtool` takes it. What an alert says has its labels in it.
    fn render(&self) -> Value {
        let alerts = list_alerts();
        let alert = alerts.iter().find(|alert| alert.name == self.alert).unwrap();
        let look = |(at, firing): &(&str, Vec<AlertLabels>)| {
            let expect = |labels: &AlertLabels| {
                let fill = |text: &str| {
                    let put = |text: String, (name, value): &(&str, &str)| {
                        text.replace(&format!("{{{{ $labels.{name} }}}}"), value)
                    };
                    labels.iter().fold(text.to_owned(), put)
                };
                let mut all: Map<String, Value> =
                    labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                all.insert("severity".to_owned(), alert.severity.into());
                json!({"exp_labels": all, "exp_annotations": {
                    "summary": fill(alert.summary), "description": fill(alert.runbook),
                    "runbook_url": alert.runbook_url(),
                }})
            };
            let expected: Vec<Value> = firing.iter().map(expect).collect();
            json!({"eval_time": at, "alertname": self.alert, "exp_alerts": expected})
        };
        let series = self.series.iter().map(|(series, values)| json!({"series": series, "values": values}));
        json!({
            "interval": "1m", "input_series": series.collect::<Vec<_>>(),
            "alert_rule_test": self.looks.iter().map(look).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn render_alert_cases() -> String {
    let cases: Vec<Value> = list_cases().iter().map(AlertCase::render).collect();
    let all = json!({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": cases});
    format!(
        "# Made of the constants, as docs/metrics.md says. Alerts fire and resolve:\n\
         # `promtool test rules manifests/monitoring/alerts.test.yaml`.\n{}\n",
        serde_saphyr::to_string(&all).unwrap().trim_end()
    )
}

fn list_cases() -> Vec<AlertCase> {
    [list_cases_of_parts(), list_cases_of_jobs(), list_cases_of_clusters()].concat()
}

const CONTROLLER: &str = "lease=\"caldera-controller\"";
const SCHEDULER: &str = "lease=\"caldera-scheduler\"";

fn list_cases_of_parts() -> Vec<AlertCase> {
    let leader = || AlertCase::of("CalderaNoLeader");
    let stock = &controller::STOCK_SCHEDULER;
    let slow = [("1.0", "0+10x30"), ("3.0", "0+100x30"), ("+Inf", "0+100x30")];
    let quick = [("1.0", "0+100x30"), ("3.0", "0+100x30"), ("+Inf", "0+100x30")];
    vec![
        // Of two replicas none leads for a while.
        leader()
            .with(&LEADER, &format!("{CONTROLLER}, instance=\"a\""), "1 1 1 0 0 0 0 0 0 1")
            .with(&LEADER, &format!("{CONTROLLER}, instance=\"b\""), "0 0 0 0 0 0 0 0 1 1")
            .rests("2m")
            .fires("6m", &[&[("lease", "caldera-controller")]])
            .rests("9m"),
        // The scheduler is gone, where it has to be there.
        leader()
            .with(&LEADER, CONTROLLER, "1x20")
            .with(&LEADER, SCHEDULER, "1 1 stale _x6 1x10")
            .with(stock, "", "0x20")
            .rests("1m")
            .fires("6m", &[&[("lease", "caldera-scheduler")]])
            .rests("12m"),
        // karmada-scheduler places.
        leader().with(&LEADER, CONTROLLER, "1x20").with(stock, "", "1x20").rests("6m"),
        // Nothing is there, and where something was it was said a while ago who places.
        leader()
            .with(&LEADER, CONTROLLER, "1 1 stale")
            .with(&LEADER, SCHEDULER, "1 1 stale")
            .with(stock, "", "0 0 stale")
            .fires("6m", &[&[("lease", "caldera-controller")], &[("lease", "caldera-scheduler")]])
            .fires("20m", &[&[("lease", "caldera-controller")]]),
        leader().with(&BUILD_INFO, "component=\"shadow\"", "1x20").with(stock, "", "0x20").rests("6m"),
        AlertCase::of("CalderaNoWebhook")
            .with(&BUILD_INFO, "component=\"controller\"", "1x20")
            .with(&BUILD_INFO, "component=\"webhook\"", "1 1 stale _x6 1x10")
            .rests("1m")
            .fires("6m", &[&[("component", "webhook")]])
            .rests("12m"),
        AlertCase::of("CalderaNoWebhook").with(&BUILD_INFO, "component=\"shadow\"", "1x20").rests("6m"),
        AlertCase::of("CalderaWritesFail")
            .with(&write_metrics::FAILED, "job=\"c\", kind=\"queues/status\", outcome=\"refused\"", "0+6x20 120x20")
            .with(&write_metrics::FAILED, "job=\"c\", kind=\"queues/status\", outcome=\"conflict\"", "0+60x40")
            .rests("3m")
            .fires("15m", &[&[("job", "c"), ("kind", "queues/status"), ("outcome", "refused")]])
            .rests("35m"),
        AlertCase::of("CalderaWriteBacklog")
            .with(&controller::PENDING_WRITES, "", "2000x9 0x10")
            .rests("2m")
            .fires("8m", &[&[]])
            .rests("15m"),
        AlertCase::of("CalderaWebhookSlow")
            .with_buckets(&webhook::REVIEW, "route=\"works\"", slow)
            .with_buckets(&webhook::REVIEW, "route=\"jobs\"", quick)
            .rests("5m")
            .fires("20m", &[&[("route", "works")]]),
        AlertCase::of("CalderaCertificateExpires")
            .with(&CERTIFICATE_EXPIRY, "job=\"c\", certificate=\"serving\"", "259200x120 9000000x60")
            .with(&CERTIFICATE_EXPIRY, "job=\"c\", certificate=\"authority\"", "9000000x180")
            .rests("30m")
            .fires("90m", &[&[("job", "c"), ("certificate", "serving")]])
            .rests("150m"),
        // The first has a token of a year, and gets another one. Of the second nobody knows how long it serves. The
        // third has that of a pod, which is renewed.
        AlertCase::of("CalderaCredentialsExpire")
            .with(&CREDENTIALS_EXPIRY, "job=\"c\", component=\"controller\", server=\"h\"", "864000x120 31536000x60")
            .with(&CREDENTIALS_ISSUED, "job=\"c\", component=\"controller\", server=\"h\"", "-30672000x120 0x60")
            .with(&CREDENTIALS_EXPIRY, "job=\"s\", component=\"scheduler\", server=\"h\"", "864000x120 31536000x60")
            .with(&CREDENTIALS_EXPIRY, "job=\"i\", component=\"inventory\", server=\"m\"", "3600+60x180")
            .with(&CREDENTIALS_ISSUED, "job=\"i\", component=\"inventory\", server=\"m\"", "0+60x180")
            .rests("30m")
            .fires(
                "90m",
                &[
                    &[("job", "c"), ("component", "controller"), ("server", "h")],
                    &[("job", "s"), ("component", "scheduler"), ("server", "h")],
                ],
            )
            .rests("150m"),
        AlertCase::of("CalderaForgedRecords")
            .with(&controller::FORGED, "", "0 0 3 3x20")
            .rests("1m")
            .fires("4m", &[&[]])
            .rests("20m"),
    ]
}

fn list_cases_of_jobs() -> Vec<AlertCase> {
    let wait = format!("{}_count", controller::WAIT.series_name());
    let slow = [("120.0", "0+1x60"), ("300.0", "0+10x60"), ("+Inf", "0+10x60")];
    let quick = [("120.0", "0+10x60"), ("300.0", "0+10x60"), ("+Inf", "0+10x60")];
    vec![
        AlertCase::of("CalderaQueueStuck")
            .with(&controller::JOBS, "queue=\"stuck\", state=\"waiting\"", "2x180")
            .with_series(&wait, "queue=\"stuck\"", "5x180")
            .with(&controller::JOBS, "queue=\"moves\", state=\"waiting\"", "2x180")
            .with_series(&wait, "queue=\"moves\"", "5+1x180")
            .rests("50m")
            .fires("170m", &[&[("queue", "stuck"), ("state", "waiting")]]),
        AlertCase::of("CalderaJobsInadmissible")
            .with(&controller::JOBS, "queue=\"q\", state=\"inadmissible\"", "1x40 0x20")
            .with(&controller::JOBS, "queue=\"q\", state=\"held\"", "1x60")
            .rests("20m")
            .fires("35m", &[&[("queue", "q"), ("state", "inadmissible")]])
            .rests("50m"),
        AlertCase::of("CalderaGangsStartSlowly")
            .with_buckets(&controller::START, "queue=\"slow\"", slow)
            .with_buckets(&controller::START, "queue=\"quick\"", quick)
            .rests("10m")
            .fires("40m", &[&[("queue", "slow")]]),
        AlertCase::of("CalderaEvictionStorm")
            .with(&controller::EVICTED, "queue=\"a\", reason=\"Reclaimed\"", "0+10x40 400x40")
            .with(&controller::EVICTED, "queue=\"b\", reason=\"Preempted\"", "0+10x40 400x40")
            .rests("5m")
            .fires("30m", &[&[]])
            .rests("70m"),
    ]
}

fn list_cases_of_clusters() -> Vec<AlertCase> {
    let gpus = "resource=\"nvidia.com/gpu\"";
    vec![
        AlertCase::of("CalderaClusterNotReady")
            .with(&controller::CLUSTER_READY, "cluster=\"m1\"", "1 0x19 1x10")
            .with(&controller::CLUSTER_READY, "cluster=\"m2\"", "1x30")
            .rests("4m")
            .fires("10m", &[&[("cluster", "m1")]])
            .rests("24m"),
        // The first has a collector that is cut off, the second is not read any more; the third is not ready, the
        // fourth was never read, of the last the collector is well.
        AlertCase::of("CalderaInventoryOld")
            .with(&inventory::SEEN, "cluster=\"m1\"", "0x20 1200+60x10")
            .with(&controller::INVENTORY_KNOWN, "cluster=\"m2\"", "1 1 0x18 1x10")
            .with(&inventory::SEEN, "cluster=\"m3\"", "0x30")
            .with(&controller::CLUSTER_READY, "cluster=\"m3\"", "0x30")
            .with(&controller::INVENTORY_KNOWN, "cluster=\"m4\"", "0x30")
            .with(&inventory::SEEN, "cluster=\"m5\"", "0+60x30")
            .rests("4m")
            .fires("15m", &[&[("cluster", "m1")], &[("cluster", "m2")]])
            .rests("28m"),
        AlertCase::of("CalderaClusterFragmented")
            .with(&controller::CLUSTER_FRAGMENTATION, &format!("cluster=\"m1\", {gpus}"), "0.9x120")
            .with(&controller::CLUSTER_ALLOCATED, &format!("cluster=\"m1\", {gpus}"), "5x120")
            .with(&controller::CLUSTER_CAPACITY, &format!("cluster=\"m1\", {gpus}"), "10x120")
            .with(&controller::CLUSTER_FRAGMENTATION, &format!("cluster=\"m2\", {gpus}"), "0.9x120")
            .with(&controller::CLUSTER_ALLOCATED, &format!("cluster=\"m2\", {gpus}"), "9x120")
            .with(&controller::CLUSTER_CAPACITY, &format!("cluster=\"m2\", {gpus}"), "10x120")
            .rests("30m")
            .fires("90m", &[&[("cluster", "m1"), ("resource", "nvidia.com/gpu")]]),
    ]
}

#[test]
fn each_alert_is_seen_to_fire_and_to_rest() {
    let cases = list_cases();
    for alert in list_alerts() {
        let looks = || cases.iter().filter(|case| case.alert == alert.name).flat_map(|case| &case.looks);
        assert!(looks().any(|(_, firing)| !firing.is_empty()), "{} never fires", alert.name);
        assert!(looks().any(|(_, firing)| firing.is_empty()), "{} always fires", alert.name);
    }
}
