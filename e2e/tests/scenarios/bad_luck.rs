//! Bindings deleted at any moment: the job comes back and ends well, nothing leaks, nobody else is delayed.

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::{Value, json};

fn empty(queue: &Value) -> bool {
    let cpu = &queue["status"]["allocated"]["cpu"];
    cpu.is_null() || cpu == "0"
}

/// A job in a queue that holds only it, and the queue.
async fn lonely(s: &Scenario, command: &str) -> anyhow::Result<String> {
    let queue = s.queue("q", json!({"cpu": "200m"})).await?;
    s.submit(Kind::Job, job("lost", &queue, &[task("a", 2, "100m", command)]), &aggregated()).await?;
    Ok(queue)
}

/// After all of it: the job is completed, what follows it in the queue completes too, and the queue is empty.
async fn ends_well(s: &Scenario, queue: &str) -> anyhow::Result<()> {
    s.submit(Kind::Job, job("after", queue, &[task("a", 1, "200m", "sleep 1")]), &aggregated()).await?;
    s.until_phase("lost", "Completed").await?;
    s.until_phase("after", "Completed").await?;
    s.until(Kind::Queue, queue, "is empty again", empty).await?;
    Ok(())
}

#[test]
fn a_waiting_jobs_binding_may_be_deleted() {
    run("losewait", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.submit(Kind::Job, job("first", &queue, &[task("a", 1, "200m", "sleep 600")]), &aggregated()).await?;
        s.until_placed("first-job").await?;
        let lost = s.submit(Kind::Job, job("lost", &queue, &[task("a", 1, "200m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&lost, "waits", |group| group["status"]["conditions"][0].is_object()).await?;
        let renewed = s.lose_binding("lost").await?;
        ensure!(renewed["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "placed at once: {renewed}");
        s.delete(Kind::Job, "first").await?;
        ends_well(&s, &queue).await
    });
}

#[test]
fn a_released_jobs_binding_may_be_deleted() {
    run("loserel", async |s| {
        let queue = lonely(&s, "sleep 1").await?;
        // As early as one can see it released: whether it is placed by then is the scheduler's luck.
        s.until(Kind::Binding, "lost-job", "is released", |b| {
            b["metadata"]["annotations"]["caldera.dev/gate"] == "open"
        })
        .await?;
        s.lose_binding("lost").await?;
        ends_well(&s, &queue).await
    });
}

#[test]
fn a_placed_jobs_binding_may_be_deleted() {
    run("loseplaced", async |s| {
        let queue = lonely(&s, "sleep 2").await?;
        s.until_placed("lost-job").await?;
        s.lose_binding("lost").await?;
        ends_well(&s, &queue).await
    });
}

#[test]
fn a_running_jobs_binding_may_be_deleted() {
    run("loserun", async |s| {
        // Long enough to be seen running where the machine is busy.
        let queue = lonely(&s, "sleep 20").await?;
        s.until_phase("lost", "Running").await?;
        s.lose_binding("lost").await?;
        ends_well(&s, &queue).await
    });
}

/// As where a binding is made anew after its copy ended: no status of a Work changes any more.
#[test]
fn a_status_that_karmada_does_not_aggregate_is_asked_for() {
    run("losestatus", async |s| {
        let queue = lonely(&s, "sleep 600").await?;
        s.until_phase("lost", "Running").await?;
        // What its pods say has arrived, and nothing else is to be said.
        let tells = |b: &Value| b["status"]["aggregatedStatus"][0]["status"]["running"] == 2;
        let version = |b: &Value| b["spec"]["resource"]["resourceVersion"].clone();
        let before = version(&s.until(Kind::Binding, "lost-job", "tells of its pods", tells).await?);
        s.patch_status(Kind::Binding, "lost-job", &json!({"status": {"aggregatedStatus": null}})).await?;
        let told = s.until(Kind::Binding, "lost-job", "tells of its pods again", tells).await?;
        ensure!(version(&told) != before, "Karmada told it by itself: {told}");
        s.delete(Kind::Job, "lost").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

#[test]
fn a_lost_binding_delays_nobody_else() {
    run("loseothers", async |s| {
        let queue = lonely(&s, "sleep 600").await?;
        s.until_placed("lost-job").await?;
        let other = s.queue("other", json!({"cpu": "100m"})).await?;
        s.delete(Kind::Binding, "lost-job").await?;
        s.submit(Kind::Job, job("other", &other, &[task("a", 1, "100m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("other", "Completed").await?;
        // What the deleted binding held goes to the next in line if the job is gone too.
        s.delete(Kind::Job, "lost").await?;
        s.submit(Kind::Job, job("next", &queue, &[task("a", 1, "200m", "sleep 1")]), &aggregated()).await?;
        s.until_phase("next", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}
