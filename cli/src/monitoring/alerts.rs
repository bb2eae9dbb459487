//! The alert rules. An alert is about something that a person has to act on, and says how.
//!
//! Rule: what is gone shows nothing, so that a part that has to be there is missed by `absent`. Whether a scheduler of
//! ours has to be there the controller says (`caldera_stock_scheduler`), for ten minutes after it was last heard. In
//! `caldera server` each part shows its component and its lease as a process of its own does. Beside a controller in
//! shadow mode no part has to be there.

use caldera_controller::metrics as controller;
use caldera_runtime::{
    client::credentials::{CREDENTIALS_EXPIRY, CREDENTIALS_ISSUED, LAST_PART},
    members::collector::metrics as inventory,
    metric::{BUILD_INFO, LEADER},
    tls::CERTIFICATE_EXPIRY,
    write_metrics,
};
use caldera_webhook::metrics as webhook;
use serde_json::{Value, json};

/// The page that says what to do, as a path from the project's root. Where people read it nobody here knows: the chart
/// has a value for that.
pub(crate) const RUNBOOK_PAGE: &str = "docs/metrics.md";

pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) severity: &'static str,
    pub(super) expression: String,
    pub(super) lasts: &'static str,
    pub(super) summary: &'static str,
    pub(super) runbook: &'static str,
}

impl Alert {
    /// Where the page says what to do.
    pub(super) fn runbook_url(&self) -> String {
        format!("{RUNBOOK_PAGE}#{}", self.name.to_lowercase())
    }
}

/// No replica leads, or those that might are gone.
fn find_missing_leaders() -> String {
    let leader = LEADER.series_name();
    let stock = controller::STOCK_SCHEDULER.series_name();
    format!(
        "max by (lease) ({leader}) < 1 or (absent({leader}{{lease=\"caldera-controller\"}}) or \
         absent({leader}{{lease=\"caldera-scheduler\"}}) and on () max(last_over_time({stock}[10m])) == 0) {}",
        exclude_shadow_mode()
    )
}

/// Where a controller in shadow mode is all that there is.
fn exclude_shadow_mode() -> String {
    format!("unless on () {}{{component=\"shadow\"}}", BUILD_INFO.series_name())
}

/// Credentials that somebody has to renew now. Of those that a machine renews, which live for a short time, only the
/// last part of it counts.
fn find_ending_credentials() -> String {
    let left = format!("{} - time()", CREDENTIALS_EXPIRY.series_name());
    let last_part =
        format!("({} - {}) / {LAST_PART}", CREDENTIALS_EXPIRY.series_name(), CREDENTIALS_ISSUED.series_name());
    format!("min by (job, component, server) ({left} < 14 * 86400 unless {left} > {last_part})")
}

/// A collector that does not see its member, or can not tell; a member whose nodes were known within a day. What is not
/// ready has an alert of its own.
fn find_old_inventories() -> String {
    let known = controller::INVENTORY_KNOWN.series_name();
    format!(
        "(time() - max by (cluster) ({}) > 300 or max by (cluster) ({known}) < max by (cluster) (max_over_time({known}[1d]))) \
         unless on (cluster) {} == 0",
        inventory::SEEN.series_name(),
        controller::CLUSTER_READY.series_name()
    )
}

pub(super) fn list_alerts() -> Vec<Alert> {
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
            find_missing_leaders(),
            "2m",
            "No replica holds {{ $labels.lease }}: nothing is released or placed",
            "`caldera doctor` tells who holds the Leases. Look at the logs of the replicas: are they up, do they reach the \
             Karmada API, do their clocks agree? Of the scheduler this is said where the controller runs without \
             `--stock-scheduler`.",
        ),
        alert(
            "CalderaNoWebhook",
            "critical",
            format!("absent({}{{component=\"webhook\"}}) {}", BUILD_INFO.series_name(), exclude_shadow_mode()),
            "2m",
            "No webhook is seen: while none answers, no write of our kinds is accepted",
            "It fails closed: jobs and bindings can not be made or changed, in no namespace. Look at its pods and their logs. \
             `caldera doctor` asks it as the Karmada API server does, and says if that reaches one all the same: then look \
             at what Prometheus scrapes.",
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
            "CalderaCredentialsExpire",
            "critical",
            find_ending_credentials(),
            "1h",
            "The {{ $labels.component }}'s credentials for {{ $labels.server }} end within two weeks, and then it does nothing",
            "Make a new token and put it into the kubeconfig: `caldera install` does, once half of the time of the old one is \
             over, else the fourth step of page install.md. A kubeconfig that is replaced is used within ten seconds, a \
             Secret that is mounted within two minutes, without a restart. `caldera doctor` tells the same of who holds a \
             Lease. Where the server is a member it is the token in the Secret of its Cluster: Karmada needs that too.",
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
            "`caldera cluster describe CLUSTER` shows its conditions. Gangs that have a part there are withdrawn after \
             `--member-lost-after`, and run again once their old copies are known to be gone: page tasks/disaster.md.",
        ),
        alert(
            "CalderaInventoryOld",
            "warning",
            find_old_inventories(),
            "5m",
            "What is known of the nodes of {{ $labels.cluster }} is old: it gets jobs by Karmada's summary, or by its estimator",
            "`kubectl get clusterinventories` tells when its collector last saw it and what is wrong, the collector's log the \
             same. Without a collector the controller reads the member itself: does it still reach it? Page inventory.md \
             has both ways.",
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

pub(super) fn render_alerts() -> String {
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
                    "runbook_url": alert.runbook_url(),
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
