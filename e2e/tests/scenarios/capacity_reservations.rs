//! Amounts of the fleet that are kept for a time.

use anyhow::{Context, ensure};
use caldera_crds::names::caldera::RUNNING_ESTIMATE;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_alone,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// More cores than the fleet has, for jobs of this queue, from and until so many seconds from now on.
fn spec_for(queue: &str, (start, end): (i64, i64)) -> Value {
    let at = |seconds| {
        let second = (Timestamp::now() + SignedDuration::from_secs(seconds)).as_second();
        Timestamp::from_second(second).map(|at| at.to_string()).unwrap_or_default()
    };
    json!({
        "amounts": {"cpu": "1M"}, "start": at(start), "end": at(end), "queues": [queue], "noticeSeconds": 60,
        "reason": "new model",
    })
}

fn reservation(s: &Scenario, spec: &Value) -> Value {
    json!({
        "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "CapacityReservation",
        "metadata": {"name": s.own("kept")}, "spec": spec,
    })
}

/// A job of one pod that says that it runs for so long.
fn bounded(name: &str, queue: &str, minutes: u32) -> Value {
    let mut job = job(name, queue, &[task("a", 1, "100m", "sleep 600")]);
    job["metadata"]["annotations"] = json!({RUNNING_ESTIMATE: format!("{minutes}m")});
    job
}

#[test]
fn what_is_kept_for_a_queue_nobody_else_takes_into_its_time() {
    run_alone("kept", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let ops = s.queue("ops", json!({"cpu": "1"})).await?;
        let backwards = s.create(Kind::CapacityReservation, reservation(&s, &spec_for(&ops, (60, -60)))).await;
        let refused = backwards.err().context("a reservation that ends before it starts is taken")?;
        ensure!(format!("{refused:#}").contains("end must be after start"), "{refused:#}");
        s.create(Kind::CapacityReservation, reservation(&s, &spec_for(&ops, (300, 3_600)))).await?;
        let waits = s.submit(Kind::Job, bounded("waits", &queue, 10), &aggregated()).await?;
        s.until_podgroup(&waits, "says what is kept, and for whom", |group| {
            let said = group["status"]["conditions"].to_string();
            said.contains("CapacityReserved")
                && said.contains(&format!("for all but jobs of queue {ops}, and it runs for 10m: "))
        })
        .await?;
        // Who will have ended by then starts, and who it is kept for.
        s.submit(Kind::Job, bounded("in-time", &queue, 2), &aggregated()).await?;
        s.until_phase("in-time", "Running").await?;
        s.submit(Kind::Job, bounded("theirs", &ops, 10), &aggregated()).await?;
        s.until_phase("theirs", "Running").await?;
        // Its time comes and goes, and nothing else happens.
        let open = json!({"spec": spec_for(&ops, (-5, 10))});
        s.patch(Kind::CapacityReservation, &s.own("kept"), &open).await?;
        s.until_phase("waits", "Running").await?;
        s.delete(Kind::CapacityReservation, &s.own("kept")).await
    });
}
