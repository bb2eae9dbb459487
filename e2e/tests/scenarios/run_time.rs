//! How long a job may run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, queue, task},
    run, run_with_components,
};
use serde_json::{Value, json};

const MAX_RUN_TIME: &str = "caldera.dev/max-run-time";

fn annotations(limit: Option<&str>) -> Value {
    limit.map_or_else(|| json!({}), |limit| json!({MAX_RUN_TIME: limit}))
}

/// A job of one pod that sleeps for ten minutes.
fn limited(name: &str, queue: &str, limit: Option<&str>) -> Value {
    let mut job = job(name, queue, &[task("a", 1, "200m", "sleep 600")]);
    job["metadata"]["annotations"] = annotations(limit);
    job
}

/// A queue in which one of these jobs runs, and its annotation.
async fn limited_queue(s: &Scenario, limit: Option<&str>) -> anyhow::Result<String> {
    let name = s.own("q");
    let mut object = queue(&name, &json!({"cpu": "200m"}));
    object["metadata"]["annotations"] = annotations(limit);
    s.create(Kind::Queue, object).await?;
    s.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
    Ok(name)
}

fn ensure_words(text: &str, words: &[&str]) -> anyhow::Result<()> {
    words.iter().try_for_each(|word| {
        ensure!(text.contains(word), "{word:?} is not in {text:?}");
        Ok(())
    })
}

fn record(binding: &Value, annotation: &str) -> anyhow::Result<Value> {
    let text = binding["metadata"]["annotations"][annotation].as_str();
    Ok(serde_json::from_str(text.with_context(|| format!("no {annotation}: {binding}"))?)?)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap())
}

async fn ensure_stays_off(s: &Scenario, binding: &str) -> anyhow::Result<()> {
    let binding = s.get(Kind::Binding, binding).await?.context("no binding")?;
    let clusters = binding["spec"]["clusters"].as_array().map_or(0, Vec::len);
    ensure!(clusters == 0 && binding["spec"]["suspension"]["scheduling"] == true, "it starts again: {binding}");
    ensure!(record(&binding, "caldera.dev/eviction")?["reason"] == "RunTimeExceeded", "{binding}");
    Ok(())
}

#[test]
fn a_job_that_ran_for_as_long_as_it_may_is_warned_ended_and_told_and_its_quota_is_free_for_others() {
    run("run-time", async |s| {
        let queue = limited_queue(&s, Some("1h")).await?;
        s.submit(Kind::Job, limited("long", &queue, Some("30s")), &aggregated()).await?;
        let clusters = s.until_placed("long-job").await?;
        let next = s.submit(Kind::Job, limited("next", &queue, None), &aggregated()).await?;
        s.until_told("long", "RunTimeEnding").await?;
        s.until_told("long", "RunTimeExceeded").await?;
        let ended = s.until_phase("long", "Terminated").await?;
        ensure!(ended["status"]["state"]["reason"] == "RunTimeExceeded", "{}", ended["status"]["state"]);
        for (cluster, _) in clusters {
            s.until_gone_in_member(&cluster, Kind::Job, "long").await?;
        }
        s.until_placed("next-job").await?;
        s.until_podgroup(&next, "says how long it may run", |group| {
            group["status"]["conditions"].to_string().contains("it may run for 1h and is ended at")
        })
        .await?;
        // The queue is free again, and who comes later has it: the one that was ended does not.
        s.delete(Kind::Job, "next").await?;
        s.submit(Kind::Job, limited("later", &queue, None), &aggregated()).await?;
        s.until_placed("later-job").await?;
        ensure_stays_off(&s, "long-job").await
    });
}

#[test]
fn a_job_that_asks_for_longer_than_its_queue_allows_is_refused_and_other_kinds_say_why_they_wait() {
    run("longest-run", async |s| {
        let mut wrong = queue(&s.own("wrong"), &json!({"cpu": "1"}));
        wrong["metadata"]["annotations"] = json!({MAX_RUN_TIME: "two hours"});
        let refused = s.create(Kind::Queue, wrong).await.err().context("it was accepted")?;
        ensure_words(&refused.to_string(), &[MAX_RUN_TIME, "two hours", "1h30m"])?;
        let queue = limited_queue(&s, Some("1h")).await?;
        // As soon as the webhook has seen the queue.
        let refused = async {
            for number in 0.. {
                let job = limited(&format!("long{number}"), &queue, Some("90m"));
                if let Err(error) = s.create(Kind::Job, job).await {
                    return ensure_words(&error.to_string(), &[MAX_RUN_TIME, "1h30m", "the 1h that queue", &queue]);
                }
            }
            Ok(())
        };
        tokio::time::timeout(Duration::from_secs(60), refused).await??;
        let mut web = deployment("web", Some(&queue), 1, "100m");
        web["metadata"]["annotations"][MAX_RUN_TIME] = json!("90m");
        let web = s.submit(Kind::Deployment, web, &aggregated()).await?;
        s.until_podgroup(&web, "asks for too long", |group| {
            group["status"]["conditions"][0]["reason"] == "ExceedsMaxRunTime"
        })
        .await?;
        s.patch(Kind::Deployment, "web", &json!({"metadata": {"annotations": {MAX_RUN_TIME: "30m"}}})).await?;
        s.until_placed("web-deployment").await?;
        Ok(())
    });
}

#[test]
fn a_controller_that_was_away_when_a_runs_time_was_over_ends_it_when_it_is_back() {
    run_with_components("run-time-restart", async |s| {
        let queue = limited_queue(&s, None).await?;
        s.submit(Kind::Job, limited("long", &queue, Some("40s")), &aggregated()).await?;
        s.until_placed("long-job").await?;
        s.kill(Component::Controller).await;
        let binding = s.get(Kind::Binding, "long-job").await?.context("no binding")?;
        let run = &record(&binding, "caldera.dev/admission")?["run"];
        let (from, seconds) = (run["from"].as_i64().context("no limit")?, run["seconds"].as_i64().context("no limit")?);
        ensure!(seconds == 40, "{run}");
        let left = u64::try_from((from + seconds - now()).max(0))?;
        tokio::time::sleep(Duration::from_secs(left)).await;
        let back = now();
        s.resume(Component::Controller).await?;
        s.until_phase("long", "Terminated").await?;
        let binding = s.get(Kind::Binding, "long-job").await?.context("no binding")?;
        let at = record(&binding, "caldera.dev/eviction")?["at"].as_i64().context("no time")?;
        ensure!((from + seconds..back + seconds).contains(&at), "ended at {at}: of {run}, and it was back at {back}");
        s.kill(Component::Controller).await;
        s.resume(Component::Controller).await?;
        s.submit(Kind::Job, limited("later", &queue, None), &aggregated()).await?;
        s.until_placed("later-job").await?;
        ensure_stays_off(&s, "long-job").await
    });
}
