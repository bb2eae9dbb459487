//! Input that is wrong: refused with a clear sentence, or told where the user looks; nobody else is delayed.

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
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
        let mut workload =
            job("greedy", "default", &[task("a", 2, "100m", "sleep 1"), task("b", 2, "100m", "sleep 1")]);
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

#[test]
fn zero_is_a_number() {
    run("zero", async |s| {
        // As in Volcano, a limit of zero cores is none; of anything else zero is zero.
        let queue = s.queue("q", json!({"cpu": "0", "nvidia.com/gpu": "0"})).await?;
        let mut greedy = task("a", 1, "100m", "sleep 1");
        greedy["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}});
        let greedy = s.submit(Kind::Job, job("greedy", &queue, &[greedy]), &aggregated()).await?;
        s.until_podgroup(&greedy, "says that it can never start", |group| {
            group["status"]["conditions"].to_string().contains("never")
        })
        .await?;
        for (name, cpu) in [("some", "100m"), ("none", "0")] {
            s.submit(Kind::Job, job(name, &queue, &[task("a", 1, cpu, "sleep 1")]), &aggregated()).await?;
        }
        s.until_phase("some", "Completed").await?;
        s.until_phase("none", "Completed").await?;
        // A task without replicas beside one that has some.
        let queue = s.queue("r", json!({"cpu": "1"})).await?;
        let tasks = [task("idle", 0, "100m", "sleep 1"), task("busy", 1, "100m", "sleep 1")];
        s.submit(Kind::Job, job("half", &queue, &tasks), &aggregated()).await?;
        s.until_phase("half", "Completed").await?;
        Ok(())
    });
}
