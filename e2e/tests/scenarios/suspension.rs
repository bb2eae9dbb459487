//! Holds: ours, and the ones that are not ours to lift.

use anyhow::{Context, ensure};
use caldera_e2e::{
    kinds::Kind,
    manifest::{aggregated, job, task},
    run,
};
use serde_json::json;

#[test]
fn a_job_on_hold_waits_until_the_user_lets_it_go() {
    run("hold", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut workload = job("held", &queue, &[task("a", 1, "100m", "sleep 1")]);
        workload["metadata"]["annotations"] = json!({"caldera.dev/hold": "true"});
        let workload = s.submit(Kind::Job, workload, &aggregated()).await?;
        s.until_podgroup(&workload, "says that it is held", |group| {
            group["status"]["conditions"].to_string().contains("hold")
        })
        .await?;
        s.patch(Kind::Job, "held", &json!({"metadata": {"annotations": {"caldera.dev/hold": null}}})).await?;
        s.until_phase("held", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_16_a_policys_dispatching_suspension_survives_gate_and_release() {
    run("dispatching", async |s| {
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let workload = job("quiet", &queue, &[task("a", 1, "100m", "sleep 1")]);
        let mut policy = caldera_e2e::manifest::policy(&workload, &aggregated());
        policy["spec"]["suspension"] = json!({"dispatching": true});
        s.create(Kind::Policy, policy).await?;
        s.create(Kind::Job, workload).await?;
        let clusters = s.until_placed("quiet-job").await?;
        let binding = s.get(Kind::Binding, "quiet-job").await?.context("no binding")?;
        ensure!(binding["spec"]["suspension"]["dispatching"] == true, "{}", binding["spec"]["suspension"]);
        // Dispatching stays suspended: the member gets nothing until the policy lets it.
        let copy = s.get_in_member(&clusters[0].0, Kind::Job, "quiet").await?;
        ensure!(copy.is_none(), "it was dispatched");
        s.patch(Kind::Policy, "quiet", &json!({"spec": {"suspension": null}})).await?;
        s.until_phase("quiet", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_16_a_users_own_suspension_is_never_lifted() {
    run("foreign", async |s| {
        let queue = s.queue("q", json!({"cpu": "200m"})).await?;
        s.submit(Kind::Job, job("holder", &queue, &[task("a", 1, "200m", "sleep 600")]), &aggregated()).await?;
        s.until_placed("holder-job").await?;
        let workload =
            s.submit(Kind::Job, job("mine", &queue, &[task("a", 1, "200m", "sleep 1")]), &aggregated()).await?;
        s.until_podgroup(&workload, "waits", |group| group["status"]["conditions"][0]["message"].is_string()).await?;
        // The user takes the gate's ownership away: from now on the suspension is theirs.
        let own = json!({"metadata": {"annotations": {"caldera.dev/gate": null}}, "spec": {"suspension": {"scheduling": true}}});
        s.patch(Kind::Binding, "mine-job", &own).await?;
        s.delete(Kind::Job, "holder").await?;
        s.until_podgroup(&workload, "says whose hold it is", |group| {
            group["status"]["conditions"].to_string().contains("suspen")
        })
        .await?;
        let binding = s.get(Kind::Binding, "mine-job").await?.context("no binding")?;
        ensure!(binding["spec"]["suspension"]["scheduling"] == true, "{}", binding["spec"]["suspension"]);
        // Lifting it puts the job back in line: it is queued, and then runs.
        s.patch(Kind::Binding, "mine-job", &json!({"spec": {"suspension": {"scheduling": false}}})).await?;
        s.until_phase("mine", "Completed").await?;
        Ok(())
    });
}

#[test]
fn a2_22_what_is_not_ours_is_left_alone() {
    run("others", async |s| {
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"a": "b"}});
        s.submit(Kind::ConfigMap, config, &json!({})).await?;
        let clusters = s.until(Kind::Binding, "plain-configmap", "is placed", |binding| {
            binding["spec"]["clusters"].as_array().is_some_and(|all| !all.is_empty())
        });
        let binding = clusters.await?;
        ensure!(binding["spec"]["suspension"].is_null(), "{}", binding["spec"]["suspension"]);
        ensure!(binding["spec"]["schedulerName"] == "default-scheduler", "{}", binding["spec"]["schedulerName"]);
        for member in s.members() {
            s.until_in_member(member, Kind::ConfigMap, "plain", "is there", |_| true).await?;
        }
        Ok(())
    });
}
