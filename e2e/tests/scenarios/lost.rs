//! A member is lost: gangs are withdrawn whole, and run a second time only once the old copy is known to be gone.

use std::time::Duration;

use anyhow::ensure;
use caldera_cli::stack::ControllerConfig;
use caldera_crds::names::caldera::FENCED_AT;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, deployment, job, task},
    skip,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    outage::{Outage, is_ready, run_with_outage, until_works},
    starting::{charged, eviction, gang, halves, pods, runs_once, until_no_pods},
};

/// How long a member is not ready before it is lost.
const LOST_AFTER: Option<SignedDuration> = Some(SignedDuration::from_secs(3));

fn is_withdrawn(binding: &Value) -> bool {
    let nowhere = binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty);
    nowhere && binding["spec"]["suspension"]["scheduling"] == true && eviction(binding)["reason"] == "MemberLost"
}

/// A gang of four that runs in both, of which one is lost and the other cleaned.
async fn lose(s: &Scenario, queue: &str, [stays, lost]: [&str; 2], outage: &mut Outage) -> anyhow::Result<()> {
    let gang = s.submit(Kind::Job, gang("gang", queue), &halves([lost, stays])).await?;
    s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
    outage.begin()?;
    let binding = s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
    let record = eviction(&binding);
    ensure!((&record["reason"], &record["avoid"]) == (&json!("MemberLost"), &json!([lost])), "{record}");
    s.until_told("gang", "MemberLost").await?;
    s.until_gone_in_member(stays, Kind::Job, "gang").await?;
    s.until(Kind::Queue, queue, "is empty", |queue| charged(queue, "0")).await?;
    let says = |group: &Value| {
        group["status"]["conditions"][0]["message"].as_str().is_some_and(|it| it.contains("not known to be gone"))
    };
    s.until_podgroup(&gang, "says what it waits for", says).await?;
    // It has quota and a free cluster, and would start within a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(!outage.lets_look() || pods(s, lost).await == 2, "what is out of reach runs on");
    let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
    ensure!(is_withdrawn(&binding), "placed again while its old copy may run: {binding}");
    Ok(())
}

#[test]
fn a_gang_in_a_lost_member_runs_again_once_that_is_fenced_and_what_comes_back_is_cleaned() {
    run_with_outage("lost-fenced", set_lost_after, async |s, queue, [stays, lost], mut outage| {
        lose(&s, &queue, [&stays, &lost], &mut outage).await?;
        let now = jiff::Timestamp::now().to_string();
        s.patch(Kind::Cluster, &lost, &json!({"metadata": {"annotations": {FENCED_AT: now}}})).await?;
        let clusters = s.until_placed("gang-job").await?;
        ensure!(clusters == [(stays.clone(), 4)], "{clusters:?}");
        s.until(Kind::Job, "gang", "runs as a whole", |job| job["status"]["running"] == 4).await?;
        outage.end()?;
        until_works(&s, &lost, 0).await?;
        s.until_gone_in_member(&lost, Kind::Job, "gang").await?;
        runs_once(&s, &queue, &stays).await?;
        until_no_pods(&s, &lost).await?;
        // Its word is for one outage.
        s.patch(Kind::Cluster, &lost, &json!({"metadata": {"annotations": {FENCED_AT: null}}})).await.map(drop)
    });
}

fn set_lost_after(controller: &mut ControllerConfig) {
    controller.member_lost_after = LOST_AFTER;
}

#[test]
fn what_ended_while_its_member_was_lost_counts_and_does_not_run_again() {
    run_with_outage("lost-ended", set_lost_after, async |s, queue, [stays, lost], mut outage| {
        let mut only = aggregated();
        only["clusterAffinity"] = json!({"clusterNames": [lost]});
        s.submit(Kind::Job, job("gang", &queue, &[task("a", 2, "250m", "sleep 20")]), &only).await?;
        s.until(Kind::Job, "gang", "runs", |job| job["status"]["running"] == 2).await?;
        outage.begin()?;
        s.until(Kind::Binding, "gang-job", "is withdrawn", is_withdrawn).await?;
        s.until(Kind::Queue, &queue, "is empty", |queue| charged(queue, "0")).await?;
        // It may go anywhere, and waits all the same.
        s.patch(Kind::Policy, "gang", &json!({"spec": {"placement": {"clusterAffinity": null}}})).await?;
        if outage.lets_look() {
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
    run_with_outage("lost-back", set_lost_after, async |s, queue, [stays, lost], mut outage| {
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
        |_| {},
        async |s, queue, [stays, lost], mut outage| {
            s.submit(Kind::Job, gang("gang", &queue), &halves([&stays, &lost])).await?;
            s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
            let before = s.until_placed("gang-job").await?;
            outage.begin()?;
            tokio::time::sleep(outage.noticed_after()).await;
            outage.end()?;
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

/// Longer than Karmada takes to evict for a taint.
const EVICTED_WITHIN: Duration = Duration::from_secs(60);

/// A ClusterTaintPolicy gives what is not ready a taint that evicts.
#[test]
fn karmada_evicts_no_part_of_a_gang_for_the_loss_of_its_member() {
    run_with_outage(
        "lost-tainted",
        |_| {},
        async |s, queue, [stays, lost], mut outage| {
            s.submit(Kind::Job, gang("gang", &queue), &halves([&stays, &lost])).await?;
            s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await?;
            let before = s.until_placed("gang-job").await?;
            let mut there = aggregated();
            there["clusterAffinity"] = json!({"clusterNames": [lost]});
            s.submit(Kind::Deployment, deployment("web", None, 1, "50m"), &there).await?;
            s.until_placed("web-deployment").await?;
            outage.begin()?;
            s.until(Kind::Cluster, &lost, "is not ready", |cluster| !is_ready(cluster)).await?;
            let taint = json!({"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"});
            s.patch(Kind::Cluster, &lost, &json!({"spec": {"taints": [taint]}})).await?;
            let is_evicted = |binding: &Value| binding["spec"]["gracefulEvictionTasks"][0]["fromCluster"] == lost;
            let other = s.until(Kind::Binding, "web-deployment", "is evicted", is_evicted);
            let evicts = tokio::time::timeout(EVICTED_WITHIN, other).await.is_ok_and(|it| it.is_ok());
            let binding = s.get(Kind::Binding, "gang-job").await?.unwrap_or_default();
            outage.end()?;
            s.patch(Kind::Cluster, &lost, &json!({"spec": {"taints": null}})).await?;
            s.until(Kind::Cluster, &lost, "is ready", is_ready).await?;
            if !evicts {
                return skip("this Karmada evicts nothing for a taint");
            }
            ensure!(binding["spec"]["gracefulEvictionTasks"].is_null(), "{binding}");
            ensure!(s.until_placed("gang-job").await? == before, "{binding}");
            s.until_gone_in_member(&lost, Kind::Deployment, "web").await?;
            s.until(Kind::Job, "gang", "runs in both", |job| job["status"]["running"] == 4).await.map(drop)
        },
    );
}
