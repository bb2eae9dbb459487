//! Karmada answers what is asked of copies by our scripts, as the agents of Pull members do, which may not reach the
//! webhook. Here nobody does for a while.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use caldera_e2e::{
    Component, PATIENCE, Scenario,
    kinds::Kind,
    manifest::{job, task},
    run_with_components, skip, world,
};
use caldera_webhook::build_member_customization;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::splitting::halves;

/// What Karmada says of a member's copy, on its Work: status and health.
async fn read_copy(s: &Scenario, member: &str, name: &str) -> anyhow::Result<Option<Value>> {
    let works = world::api(&s.host(), &Kind::Work.resource(), Some(&format!("karmada-es-{member}")));
    for work in works.list(&ListParams::default()).await? {
        let mut said = work.data["status"]["manifestStatuses"].as_array().into_iter().flatten();
        let is_copy = |one: &&Value| {
            let of = &one["identifier"];
            of["kind"] == "Job" && of["namespace"] == s.namespace.as_str() && of["name"] == name
        };
        if let Some(one) = said.find(is_copy) {
            return Ok(Some(one.clone()));
        }
    }
    Ok(None)
}

async fn until_copy(s: &Scenario, member: &str, name: &str, met: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let mut last = None;
    let told = async {
        loop {
            last = read_copy(s, member, name).await?;
            if last.as_ref().is_some_and(&met) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.unwrap_or_else(|_| Err(anyhow!("Karmada says of the copy in {member}: {last:?}")))
}

#[test]
fn copies_are_kept_and_told_of_while_nobody_reaches_the_webhook_and_their_job_completes_when_it_is_back() {
    run_with_components("scripts", async |s| {
        let members: Vec<String> = s.members().take(2).map(str::to_owned).collect();
        let [first, second] = members.as_slice() else { return skip("it needs two members") };
        s.create(Kind::Customization, build_member_customization()).await?;
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let mut workload = job("split", &queue, &[task("worker", 4, "100m", "sleep 3600")]);
        workload["spec"]["minAvailable"] = 4.into();
        s.submit(Kind::Job, workload, &halves(&members)).await?;
        s.until(Kind::Job, "split", "runs in both", |job| job["status"]["running"] == 4).await?;

        s.kill(Component::Webhook).await;
        // Somebody changes the copy there: Karmada puts it back, and asks first what to retain.
        let before = s.get_in_member(first, Kind::Job, "split").await?.context("no copy")?;
        s.patch_in_member(first, Kind::Job, "split", &json!({"spec": {"minAvailable": 1}})).await?;
        let is_back = |copy: &Value| copy["spec"]["minAvailable"] == 2;
        let after = s.until_in_member(first, Kind::Job, "split", "has its minimum again", is_back).await?;
        ensure!(after["spec"] == before["spec"], "{} is not {}", after["spec"], before["spec"]);
        // They end, and their Volcano forgets how many pods succeeded.
        for member in [first, second] {
            for pod in ["split-worker-0", "split-worker-1"] {
                s.end_pod_in_member(member, pod, 0).await?;
            }
        }
        for member in [first, second] {
            let has_ended = |copy: &Value| {
                let status = &copy["status"];
                copy["health"] == "Healthy" && status["state"]["phase"] == "Completed" && status["succeeded"] == 2
            };
            until_copy(&s, member, "split", has_ended).await?;
        }
        let job = s.get(Kind::Job, "split").await?.context("no job")?;
        ensure!(job["status"]["state"]["phase"] == "Running", "nobody merged it: {}", job["status"]);

        s.resume(Component::Webhook).await?;
        let done = s.until_phase("split", "Completed").await?;
        ensure!(done["status"]["succeeded"] == 4, "{}", done["status"]);
        let cpu = |queue: &Value| queue["status"]["allocated"]["cpu"].clone();
        s.until(Kind::Queue, &queue, "is empty", |queue| cpu(queue).is_null() || cpu(queue) == "0").await.map(drop)
    });
}
