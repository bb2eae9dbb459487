//! Components killed and started again in the middle of a job's way: none lost, none placed twice, no queue over its
//! limit.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use caldera_e2e::{
    Component, PATIENCE, Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_with_components,
};
use serde_json::{Value, json};

fn gate(binding: &Value) -> &str {
    binding["metadata"]["annotations"]["caldera.dev/gate"].as_str().unwrap_or_default()
}

fn is_placed(binding: &Value) -> bool {
    binding["spec"]["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty())
}

fn empty(queue: &Value) -> bool {
    let cpu = &queue["status"]["allocated"]["cpu"];
    cpu.is_null() || cpu == "0"
}

async fn submit(s: &Scenario, name: &str, queue: &str, command: &str) -> anyhow::Result<Value> {
    s.submit(Kind::Job, job(name, queue, &[task("a", 2, "100m", command)]), &aggregated()).await
}

#[test]
fn a_controller_killed_before_the_release_releases_when_it_is_back() {
    run_with_components("ctrlwait", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.kill(Component::Controller).await;
        submit(&s, "one", &queue, "sleep 1").await?;
        submit(&s, "two", &queue, "sleep 1").await?;
        for name in ["one-job", "two-job"] {
            let binding = s.until(Kind::Binding, name, "is gated", |binding| gate(binding) == "closed").await?;
            ensure!(binding["spec"]["suspension"]["scheduling"] == true, "{binding}");
        }
        s.resume(Component::Controller).await?;
        s.until_phase("one", "Completed").await?;
        s.until_phase("two", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

#[test]
fn controller_and_scheduler_killed_between_release_and_placement_charge_and_place_once() {
    run_with_components("between", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.kill(Component::Scheduler).await;
        submit(&s, "one", &queue, "sleep 3").await?;
        s.until(Kind::Binding, "one-job", "is released", |binding| gate(binding) == "open").await?;
        s.kill(Component::Controller).await;
        // The queue holds one of the two: what was released before the restart is still charged after it.
        let two = submit(&s, "two", &queue, "sleep 1").await?;
        s.until(Kind::Binding, "two-job", "is gated", |binding| gate(binding) == "closed").await?;
        s.resume(Component::Controller).await?;
        s.until_podgroup(&two, "waits", |group| group["status"]["conditions"][0]["message"].is_string()).await?;
        let waiting = s.get(Kind::Binding, "two-job").await?.context("no binding")?;
        ensure!(gate(&waiting) == "closed" && waiting["spec"]["suspension"]["scheduling"] == true, "{waiting}");
        let released = s.get(Kind::Binding, "one-job").await?.context("no binding")?;
        ensure!(!is_placed(&released), "placed without a scheduler: {released}");

        s.resume(Component::Scheduler).await?;
        let placed = s.until(Kind::Binding, "one-job", "is placed", is_placed).await?;
        s.kill(Component::Scheduler).await;
        s.kill(Component::Controller).await;
        s.resume(Component::Scheduler).await?;
        s.resume(Component::Controller).await?;
        s.until_phase("one", "Completed").await?;
        let after = s.get(Kind::Binding, "one-job").await?.context("no binding")?;
        ensure!(after["spec"]["clusters"] == placed["spec"]["clusters"], "placed twice: {placed} {after}");
        let plan = |binding: &Value| binding["metadata"]["annotations"]["caldera.dev/plan"].clone();
        ensure!(plan(&after) == plan(&placed), "planned twice: {placed} {after}");
        s.until_phase("two", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

#[test]
fn a_controller_that_was_away_when_a_job_ended_gives_its_quota_back() {
    run_with_components("ctrlend", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        submit(&s, "one", &queue, "sleep 1").await?;
        s.until_placed("one-job").await?;
        s.kill(Component::Controller).await;
        s.until_phase("one", "Completed").await?;
        submit(&s, "two", &queue, "sleep 1").await?;
        s.resume(Component::Controller).await?;
        s.until_phase("two", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}

#[test]
fn a_controller_that_was_away_when_a_job_was_deleted_gives_its_quota_back() {
    run_with_components("ctrldel", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        let one = submit(&s, "one", &queue, "sleep 600").await?;
        s.until_placed("one-job").await?;
        let group = s.until_podgroup(&one, "is there", |_| true).await?;
        s.kill(Component::Controller).await;
        s.delete(Kind::Job, "one").await?;
        s.until_gone(Kind::Binding, "one-job").await?;
        submit(&s, "two", &queue, "sleep 1").await?;
        s.resume(Component::Controller).await?;
        s.until_phase("two", "Completed").await?;
        s.until_gone(Kind::PodGroup, group["metadata"]["name"].as_str().unwrap_or_default()).await?;
        Ok(())
    });
}

#[test]
fn a_webhook_away_for_a_while_lets_nothing_past_the_gate() {
    run_with_components("webhook", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        // One waits at the gate while the webhook goes; a second is submitted while it is away.
        s.kill(Component::Controller).await;
        submit(&s, "one", &queue, "sleep 1").await?;
        s.until(Kind::Binding, "one-job", "is gated", |binding| gate(binding) == "closed").await?;
        s.kill(Component::Webhook).await;
        s.resume(Component::Controller).await?;
        let two = || job("two", &queue, &[task("a", 2, "100m", "sleep 1")]);
        match s.submit(Kind::Job, two(), &aggregated()).await {
            Ok(_) => anyhow::bail!("a job was accepted unchecked"),
            Err(error) => ensure!(error.to_string().contains("webhook"), "no cause in {error:#}"),
        }
        s.resume(Component::Webhook).await?;
        // The API server may take a moment to reach it again.
        let began = Instant::now();
        while let Err(error) = s.create(Kind::Job, two()).await {
            ensure!(began.elapsed() < PATIENCE, "the webhook did not come back: {error:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        s.until_phase("one", "Completed").await?;
        let binding = s.until(Kind::Binding, "two-job", "is placed", is_placed).await?;
        let admission = &binding["metadata"]["annotations"]["caldera.dev/admission"];
        ensure!(admission.is_string(), "placed without an admission: {binding}");
        s.until_phase("two", "Completed").await?;
        s.until(Kind::Queue, &queue, "is empty again", empty).await?;
        Ok(())
    });
}
