//! Input that is wrong: refused with a clear sentence, or told where the user looks; nobody else is delayed.

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{job, task},
    run,
};
use serde_json::{Value, json};

async fn refused(s: &Scenario, kind: Kind, object: Value, words: &[&str]) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match s.create(kind, object).await {
        Ok(_) => anyhow::bail!("{name} was accepted"),
        Err(error) => {
            let text = error.to_string();
            for word in words {
                ensure!(text.contains(word), "{word:?} is not in {text:?}");
            }
            ensure!(!text.contains("panick"), "{text}");
            Ok(())
        }
    }
}

#[test]
fn more_minimum_than_replicas_is_refused() {
    run("minimum", async |s| {
        let mut workload = job("greedy", "default", &[task("a", 2, "100m", "sleep 1"), task("b", 2, "100m", "sleep 1")]);
        workload["spec"]["minAvailable"] = 5.into();
        refused(&s, Kind::Job, workload, &["minAvailable"]).await?;
        let mut workload = job("greedytask", "default", &[task("a", 2, "100m", "sleep 1")]);
        workload["spec"]["tasks"][0]["minAvailable"] = 3.into();
        refused(&s, Kind::Job, workload, &["minAvailable"]).await
    });
}

#[test]
fn a_job_without_tasks_is_refused() {
    run("notasks", async |s| refused(&s, Kind::Job, job("empty", "default", &[]), &["task"]).await);
}

#[test]
fn nonsense_quantities_are_refused() {
    run("quantities", async |s| {
        refused(&s, Kind::Job, job("negative", "default", &[task("a", 1, "-1", "sleep 1")]), &["cpu"]).await?;
        refused(&s, Kind::Job, job("garbage", "default", &[task("a", 1, "lots", "sleep 1")]), &[]).await?;
        let queue = caldera_e2e::manifest::queue(&s.own("negative"), &json!({"cpu": "-4"}));
        refused(&s, Kind::Queue, queue, &["cpu"]).await?;
        let queue = caldera_e2e::manifest::queue(&s.own("garbage"), &json!({"cpu": "many"}));
        refused(&s, Kind::Queue, queue, &[]).await
    });
}

#[test]
fn tasks_of_one_name_are_refused() {
    run("names", async |s| {
        let tasks = [task("a", 1, "100m", "sleep 1"), task("a", 1, "100m", "sleep 1")];
        refused(&s, Kind::Job, job("same", "default", &tasks), &["a"]).await
    });
}

#[test]
fn a_queue_that_contradicts_itself_is_refused() {
    run("badqueue", async |s| {
        let mut queue = caldera_e2e::manifest::queue(&s.own("q"), &json!({"cpu": "1"}));
        queue["spec"]["deserved"] = json!({"cpu": "2"});
        refused(&s, Kind::Queue, queue, &["cpu"]).await
    });
}
