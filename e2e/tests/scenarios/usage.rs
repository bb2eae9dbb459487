//! What is accounted of jobs outlives them, and the controller.

use anyhow::{bail, ensure};
use caldera_controller::{
    history::{self, ADMIN_ACTIONS, EndedJob, History, JOB_ACTIONS, JobHistory, Pages, RecordedAction},
    usage::{NAME, Usage, UsageHistory},
};
use caldera_crds::names::caldera::{ACTED_BY, HOLD};
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_configured,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// What is written of a queue, once it is enough.
async fn account(s: &Scenario, queue: &str, is_enough: impl Fn(&Usage) -> bool) -> anyhow::Result<Usage> {
    let mut last = Usage::default();
    for _ in 0..600 {
        if let Some(map) = s.get_in(Kind::ConfigMap, "caldera-system", NAME).await? {
            let history = UsageHistory::read_config_map(&map).map_err(anyhow::Error::msg)?;
            let rows = history.months.values().flatten();
            let own = rows.filter(|(account, _)| account.queue.as_str() == queue && account.namespace == s.namespace);
            last = Usage::default();
            own.for_each(|(_, usage)| last.add(usage));
            if is_enough(&last) {
                return Ok(last);
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    bail!("{last:?} is all that is accounted after two minutes")
}

/// What is recorded of the end of a job, once it is.
async fn ended(s: &Scenario, job: &str) -> anyhow::Result<EndedJob> {
    for _ in 0..600 {
        let mut history = JobHistory::default();
        for page in 0..history::ENDED_JOBS.count {
            let name = history::ENDED_JOBS.name_page(page);
            if let Some(map) = s.get_in(Kind::ConfigMap, "caldera-system", &name).await? {
                history.read_page(page, &map).map_err(anyhow::Error::msg)?;
            }
        }
        let mut own =
            history.list_lines().into_iter().filter(|ended| ended.namespace == s.namespace && ended.name == job);
        if let Some(found) = own.next() {
            ensure!(own.next().is_none(), "{job} is recorded twice");
            return Ok(found);
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    bail!("the end of {job} is not recorded after two minutes")
}

/// What is recorded of somebody's action, once it is.
async fn done(s: &Scenario, pages: Pages, is_it: impl Fn(&RecordedAction) -> bool) -> anyhow::Result<RecordedAction> {
    let mut last = Vec::new();
    for _ in 0..600 {
        let mut history = History::<RecordedAction>::new(pages);
        for (page, name) in pages.list_names().enumerate() {
            if let Some(map) = s.get_in(Kind::ConfigMap, "caldera-system", &name).await? {
                history.read_page(page, &map).map_err(anyhow::Error::msg)?;
            }
        }
        last = history.list_lines();
        if let Some(found) = last.iter().find(|action| is_it(action)) {
            return Ok(found.clone());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    bail!("it is not recorded after two minutes: {last:?}")
}

fn core_seconds(usage: &Usage) -> i128 {
    usage.seconds.get("cpu").as_nano() / 1_000_000_000
}

#[test]
fn what_a_job_used_is_known_after_it_and_the_controller_are_gone() {
    run_configured(
        "usage",
        |config| config.save_usage_every = SignedDuration::from_secs(1),
        async |s| {
            let queue = s.queue("q", json!({"cpu": "4"})).await?;
            let began = Timestamp::now();
            let long = job("long", &queue, &[task("a", 2, "1", "sleep 8")]);
            s.submit(Kind::Job, long, &aggregated()).await?;
            s.until_phase("long", "Running").await?;
            account(&s, &queue, |usage| core_seconds(usage) > 0).await?;
            s.kill(Component::Controller).await;
            s.resume(Component::Controller).await?;
            s.until_phase("long", "Completed").await?;
            s.delete(Kind::Job, "long").await?;
            let cut = job("cut", &queue, &[task("a", 1, "1", "sleep 600")]);
            s.submit(Kind::Job, cut, &aggregated()).await?;
            s.until_phase("cut", "Running").await?;
            let hold = json!({"metadata": {"annotations": {HOLD: "true", ACTED_BY: "eve"}}});
            s.patch(Kind::Job, "cut", &hold).await?;
            s.patch(Kind::Queue, &queue, &json!({"spec": {"weight": 7}})).await?;
            let held = done(&s, JOB_ACTIONS, |it| it.namespace == s.namespace && it.name == "cut").await?;
            ensure!(held.did == "held" && held.by != "eve" && !held.by.is_empty(), "{held:?}");
            let set = done(&s, ADMIN_ACTIONS, |it| it.name == queue && it.did.contains("weight")).await?;
            ensure!(set.did == "set weight to 7" && set.by == held.by, "{set:?}");
            s.delete(Kind::Job, "cut").await?;
            for (name, result, cores) in [("long", "Completed", 2), ("cut", "Deleted", 1)] {
                let ended = ended(&s, name).await?;
                let charged = ended.charged.get("cpu").as_nano() / 1_000_000_000;
                ensure!((&*ended.result, charged) == (result, cores), "{ended:?}");
                ensure!(ended.queue.as_str() == queue && !ended.clusters.is_empty(), "{ended:?}");
            }
            let gone = account(&s, &queue, |usage| core_seconds(usage) >= 2 * 6 && usage.admissions == 2).await?;
            let took = i128::from(Timestamp::now().duration_since(began).as_secs()) + 1;
            ensure!(gone.admissions == 2, "{gone:?}: two jobs, each admitted once");
            ensure!(core_seconds(&gone) <= 3 * took, "{gone:?} in {took} s");
            Ok(())
        },
    );
}
