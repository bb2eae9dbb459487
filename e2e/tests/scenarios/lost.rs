//! A member is lost: gangs are withdrawn whole, and run a second time only once the old copy is known to be gone.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::ensure;
use caldera_cli::stack::ControllerConfig;
use caldera_crds::names::caldera::FENCED_AT;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    line::Line,
    manifest::{aggregated, job, task},
    run_configured, skip,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::starting::{FAR, NEAR, charged, eviction, gang, halves, pods, run_far, runs_once, set, until_far_works};

/// How long a member is not ready before it is lost.
const LOST_AFTER: Option<SignedDuration> = Some(SignedDuration::from_secs(3));

fn is_withdrawn(binding: &Value) -> bool {
    let nowhere = binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty);
    nowhere && binding["spec"]["suspension"]["scheduling"] == true && eviction(binding)["reason"] == "MemberLost"
}

/// A gang of four that runs in both, of which one is lost and the other cleaned.
async fn lose(s: &Scenario, queue: &str, cut: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Value> {
    let gang = s.submit(Kind::Job, gang("gang", queue), &halves([FAR, NEAR])).await?;
    s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
    cut()?;
    let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
    let record = eviction(&binding);
    ensure!((&record["reason"], &record["avoid"]) == (&json!("MemberLost"), &json!([FAR])), "{record}");
    s.until_told("gang", "MemberLost").await?;
    s.until_gone_in_member(NEAR, Kind::Job, "gang").await?;
    s.until(Kind::Queue, queue, "is empty", |queue| charged(queue, "0")).await?;
    let says = |group: &Value| {
        group["status"]["conditions"][0]["message"].as_str().is_some_and(|it| it.contains("not known to be gone"))
    };
    s.until_podgroup(&gang, "says what it waits for", says).await?;
    // It has quota and a free cluster, and would start within a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(pods(s, FAR).await == 2, "what is out of reach runs on");
    let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
    ensure!(is_withdrawn(&binding), "placed again while its old copy may run: {binding}");
    Ok(gang)
}

#[test]
fn a_gang_in_a_lost_member_runs_again_once_that_is_fenced_and_what_comes_back_is_cleaned() {
    run_far("lost-fenced", LOST_AFTER, async |s, queue, line| {
        lose(&s, &queue, || set(&line, false)).await?;
        let now = jiff::Timestamp::now().to_string();
        s.patch(Kind::Cluster, FAR, &json!({"metadata": {"annotations": {FENCED_AT: now}}})).await?;
        let clusters = s.until_placed("gang-job").await?;
        ensure!(clusters == [(NEAR.to_owned(), 4)], "{clusters:?}");
        s.until(Kind::Job, "gang", "runs as a whole", |job| job["status"]["running"] == 4).await?;
        set(&line, true)?;
        until_far_works(&s, 0).await?;
        s.until_gone_in_member(FAR, Kind::Job, "gang").await?;
        runs_once(&s, &queue, NEAR, FAR).await
    });
}

/// The API server of a member of a given Karmada, stopped (SIGSTOP) until this goes.
struct StoppedServer(String);

impl StoppedServer {
    fn stop(pid: String) -> anyhow::Result<Self> {
        ensure!(signal("-STOP", &pid)?, "no process {pid}");
        Ok(Self(pid))
    }
}

impl Drop for StoppedServer {
    fn drop(&mut self) {
        let _ = signal("-CONT", &self.0);
    }
}

fn signal(which: &str, pid: &str) -> anyhow::Result<bool> {
    Ok(std::process::Command::new("kill").args([which, pid]).status()?.success())
}

/// The process of a member's API server: of `CALDERA_E2E_MEMBER_PIDS=m1=PID,m2=PID`, for who started them.
fn find_server(member: &str) -> Option<String> {
    let all = std::env::var("CALDERA_E2E_MEMBER_PIDS").ok()?;
    let mut pairs = all.split(',').filter_map(|part| part.split_once('='));
    pairs.find(|(name, _)| *name == member).map(|(_, pid)| pid.to_owned())
}

/// A member that can be put out of reach: a line is cut to that of a sandbox, the server of a given one is stopped.
enum Outage {
    Line(Arc<OnceLock<Line>>),
    Server(String, Option<StoppedServer>),
}

impl Outage {
    fn begin(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Line(line) => set(line, false)?,
            Self::Server(pid, stopped) => *stopped = Some(StoppedServer::stop(pid.clone())?),
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Line(line) => set(line, true)?,
            Self::Server(_, stopped) => *stopped = None,
        }
        Ok(())
    }

    /// Longer than Karmada takes to say that a member is not ready.
    const fn noticed_after(&self) -> Duration {
        match self {
            Self::Line(_) => Duration::from_secs(5),
            Self::Server(..) => Duration::from_secs(70),
        }
    }
}

/// Plays with a member that stays, one that can be put out of reach, and a queue.
fn run_with_outage<F>(
    name: &str,
    lost_after: Option<SignedDuration>,
    change: fn(&mut ControllerConfig),
    play: impl FnOnce(Arc<Scenario>, String, [String; 2], Outage) -> F,
) where
    F: Future<Output = anyhow::Result<()>>,
{
    if std::env::var_os("CALDERA_E2E_HOST_KUBECONFIG").is_none() {
        return run_far(name, lost_after, async |s, queue, line| {
            play(s, queue, [NEAR.to_owned(), FAR.to_owned()], Outage::Line(line)).await
        });
    }
    run_configured(name, change, async |s| {
        let members: Vec<String> = s.members().map(str::to_owned).collect();
        let [stays, lost, ..] = members.as_slice() else { return skip("it needs two members") };
        let Some(pid) = find_server(lost) else { return skip("no member's server can be stopped") };
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        play(s, queue, [stays.clone(), lost.clone()], Outage::Server(pid, None)).await
    });
}

fn set_lost_after(controller: &mut ControllerConfig) {
    controller.member_lost_after = LOST_AFTER;
}

#[test]
fn what_ended_while_its_member_was_lost_counts_and_does_not_run_again() {
    run_with_outage("lost-ended", LOST_AFTER, set_lost_after, async |s, queue, [stays, lost], mut outage| {
        let mut only = aggregated();
        only["clusterAffinity"] = json!({"clusterNames": [lost]});
        s.submit(Kind::Job, job("gang", &queue, &[task("a", 2, "250m", "sleep 20")]), &only).await?;
        s.until(Kind::Job, "gang", "runs", |job| job["status"]["running"] == 2).await?;
        outage.begin()?;
        s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        // It may go anywhere, and waits all the same.
        s.patch(Kind::Policy, "gang", &json!({"spec": {"placement": {"clusterAffinity": null}}})).await?;
        if matches!(outage, Outage::Line(_)) {
            let ended = |job: &Value| job["status"]["state"]["phase"] == "Completed";
            s.until_in_member(&lost, Kind::Job, "gang", "ends out of reach", ended).await?;
        } else {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        outage.end()?;
        s.until_phase("gang", "Completed").await?;
        let finished = |group: &Value| group["status"]["conditions"][0]["reason"] == "Finished";
        let gang = s.get(Kind::Job, "gang").await?.unwrap_or_default();
        s.until_podgroup(&gang, "says that it finished", finished).await?;
        let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
        ensure!(is_withdrawn(&binding) && pods(&s, &stays).await == 0, "it ran again: {binding}");
        Ok(())
    });
}

#[test]
fn a_gang_in_a_lost_member_runs_again_once_that_is_back_and_cleaned() {
    run_with_outage("lost-back", LOST_AFTER, set_lost_after, async |s, queue, [stays, lost], mut outage| {
        s.submit(Kind::Job, gang("gang", &queue), &halves([&stays, &lost])).await?;
        s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
        outage.begin()?;
        let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        ensure!(eviction(&binding)["avoid"] == json!([lost]), "{}", eviction(&binding));
        s.until_told("gang", "MemberLost").await?;
        s.until_gone_in_member(&stays, Kind::Job, "gang").await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
        ensure!(is_withdrawn(&binding), "placed again while its old copy may run: {binding}");
        outage.end()?;
        s.until_placed("gang-job").await?;
        s.until(Kind::Job, "gang", "runs as a whole", |job| job["status"]["running"] == 4).await?;
        let all = pods(&s, &stays).await + pods(&s, &lost).await;
        ensure!(all == 4, "{all} pods");
        Ok(())
    });
}

#[test]
fn a_member_that_is_out_of_reach_for_a_moment_loses_nothing() {
    run_with_outage(
        "lost-blink",
        None,
        |_| {},
        async |s, queue, [stays, lost], mut outage| {
            s.submit(Kind::Job, gang("gang", &queue), &halves([&stays, &lost])).await?;
            s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
            let before = s.until_placed("gang-job").await?;
            outage.begin()?;
            tokio::time::sleep(outage.noticed_after()).await;
            outage.end()?;
            let is_ready = |cluster: &Value| {
                let conditions = cluster["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            s.until(Kind::Cluster, &lost, "is ready", is_ready).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            ensure!(s.until_placed("gang-job").await? == before);
            let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
            ensure!(eviction(&binding).is_null(), "{}", eviction(&binding));
            ensure!(pods(&s, &stays).await + pods(&s, &lost).await == 4);
            Ok(())
        },
    );
}
