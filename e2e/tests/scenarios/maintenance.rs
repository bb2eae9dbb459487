//! Maintenance windows of clusters.

use anyhow::ensure;
use caldera_crds::names::caldera::{MAINTENANCE, RUNNING_ESTIMATE};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Keeps a cluster for nobody from so many seconds from now on; not any more without them.
async fn keep(s: &Scenario, cluster: &str, seconds: Option<(i64, i64)>) -> anyhow::Result<()> {
    keep_for(s, cluster, seconds, &[]).await
}

/// The same for jobs of these queues alone.
async fn keep_for(s: &Scenario, cluster: &str, seconds: Option<(i64, i64)>, queues: &[&str]) -> anyhow::Result<()> {
    let at = |seconds| (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string();
    let windows = seconds.map(|(start, end)| {
        let (start, end) = (at(start), at(end));
        json!([{"start": start, "end": end, "reason": "new kernels", "notice": "1m", "queues": queues}]).to_string()
    });
    s.patch(Kind::Cluster, cluster, &json!({"metadata": {"annotations": {MAINTENANCE: windows}}})).await?;
    Ok(())
}

/// A job of one pod that says that it runs for ten minutes.
fn ten_minutes(name: &str, queue: &str) -> Value {
    let mut job = job(name, queue, &[task("a", 1, "100m", "sleep 600")]);
    job["metadata"]["annotations"] = json!({RUNNING_ESTIMATE: "10m"});
    job
}

fn only(clusters: &[&str]) -> Value {
    let mut placement = aggregated();
    placement["clusterAffinity"] = json!({"clusterNames": clusters});
    placement
}

#[test]
fn a_job_that_would_run_into_a_maintenance_window_goes_elsewhere_or_waits_for_its_end() {
    run_alone("maintenance", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let (kept, other) = (members[0].as_str(), members[1].as_str());
        s.write_unreadable_annotation(kept, MAINTENANCE).await?;
        s.submit(Kind::Job, ten_minutes("before", &queue), &only(&[kept])).await?;
        s.until_phase("before", "Running").await?;
        keep(&s, kept, Some((300, 3_600))).await?;
        let waits = s.submit(Kind::Job, ten_minutes("waits", &queue), &only(&[kept])).await?;
        s.until_podgroup(&waits, "says which window is in its way", |group| {
            let said = group["status"]["conditions"].to_string();
            said.contains(&format!("cluster {kept} is under maintenance from "))
                && said.contains("(new kernels): it would run until ")
        })
        .await?;
        s.submit(Kind::Job, ten_minutes("elsewhere", &queue), &only(&[kept, other])).await?;
        let clusters = s.until_placed("elsewhere-job").await?;
        ensure!(clusters == [(other.to_owned(), 1)], "{clusters:?}");
        // Those that it is kept for start there all the same.
        let ops = s.queue("ops", json!({"cpu": "1"})).await?;
        keep_for(&s, kept, Some((300, 3_600)), &[&ops]).await?;
        s.submit(Kind::Job, ten_minutes("theirs", &ops), &only(&[kept])).await?;
        let clusters = s.until_placed("theirs-job").await?;
        ensure!(clusters == [(kept.to_owned(), 1)], "{clusters:?}");
        // It begins, and what runs there runs on; it ends, and who waited starts without anything else happening.
        keep(&s, kept, Some((-5, 10))).await?;
        let clusters = s.until_placed("waits-job").await?;
        ensure!(clusters == [(kept.to_owned(), 1)], "{clusters:?}");
        s.until_phase("before", "Running").await?;
        keep(&s, kept, None).await
    });
}
