//! Scenarios in sandboxes of their own: members that are down from the start or later, members of which Karmada knows
//! nothing, and members that bring no Volcano.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use caldera_cli::{
    roles,
    stack::{ControllerConfig, apply_object},
};
use caldera_controller::shadow::{self, ShadowJob, ShadowReport, ShadowVerdict};
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_in,
    world::{self, fleet, join},
};
use caldera_runtime::{
    client::{self, WriteCounts},
    metric::SharedRegistry,
};
use caldera_sandbox::fleet::Endpoint;
use kube::api::{Patch, PatchParams};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn message(group: &Value) -> String {
    let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().filter_map(|condition| condition["message"].as_str()).collect::<Vec<_>>().join(" / ")
}

fn only(cluster: &str) -> Value {
    let mut placement = aggregated();
    placement["clusterAffinity"] = json!({"clusterNames": [cluster]});
    placement
}

fn small(name: &str, queue: &str) -> Value {
    job(name, queue, &[task("a", 2, "100m", "sleep 1")])
}

fn ready(cluster: &Value, status: &str) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == status)
}

/// A job that can only run in `cluster` says why it waits; one that can run anywhere completes elsewhere.
async fn degrades_only_itself(s: &Scenario, cluster: &str) -> anyhow::Result<()> {
    let queue = s.queue("q", json!({"cpu": "1"})).await?;
    let stuck = s.submit(Kind::Job, small("stuck", &queue), &only(cluster)).await?;
    let group = s.until_podgroup(&stuck, "says why it waits", |group| message(group).contains("ready")).await?;
    ensure!(group["status"]["phase"] == "Pending", "{group}");
    let text = message(&group);
    ensure!(text.contains("cluster"), "unclear: {text:?}");
    s.submit(Kind::Job, small("free", &queue), &aggregated()).await?;
    let clusters = s.until_placed("free-job").await?;
    ensure!(clusters.iter().all(|(name, _)| name != cluster), "{clusters:?}");
    s.until_phase("free", "Completed").await?;
    let binding = s.get(Kind::Binding, "stuck-job").await?.context("no binding")?;
    ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "placed: {binding}");
    Ok(())
}

#[test]
fn a_member_that_is_down_from_the_start_degrades_only_itself() {
    let start = async {
        let stop = CancellationToken::new();
        let fleet = fleet(1, &stop).await?;
        let nobody = Endpoint { server: "https://127.0.0.1:1".into(), ..fleet.members[0].clone() };
        join(&fleet, "gone", &nobody).await?;
        world::of_fleet(&fleet, stop).await
    };
    run_in("down", start, async |s| {
        s.until(Kind::Cluster, "gone", "is known to be down", |cluster| !ready(cluster, "True")).await?;
        degrades_only_itself(&s, "gone").await
    });
}

#[test]
fn a_member_that_goes_down_later_degrades_only_itself() {
    let member = CancellationToken::new();
    let down = member.clone();
    let start = async {
        let stop = CancellationToken::new();
        let (fleet, other) = (fleet(1, &stop).await?, fleet(1, &member).await?);
        join(&fleet, "late", &other.members[0]).await?;
        world::of_fleet(&fleet, stop).await
    };
    run_in("later", start, async |s| {
        s.until(Kind::Cluster, "late", "is ready", |cluster| ready(cluster, "True")).await?;
        s.submit(Kind::Job, small("before", "default"), &only("late")).await?;
        s.until_phase("before", "Completed").await?;
        down.cancel();
        // While nobody has noticed yet, jobs that need not go there are not held up.
        s.submit(Kind::Job, small("during", "default"), &only("member1")).await?;
        s.until_phase("during", "Completed").await?;
        s.until(Kind::Cluster, "late", "is known to be down", |cluster| !ready(cluster, "True")).await?;
        degrades_only_itself(&s, "late").await
    });
}

#[test]
fn a_cluster_without_a_resource_summary_holds_nothing_and_says_so() {
    let start = async {
        let stop = CancellationToken::new();
        let fleet = fleet(1, &stop).await?;
        world::of_fleet(&fleet, stop).await
    };
    run_in("nosummary", start, async |s| {
        // An agent's cluster (Pull), of which nobody has told what it has.
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "silent"},
            "spec": {"syncMode": "Pull"},
        });
        s.create(Kind::Cluster, cluster).await?;
        let client = s.host();
        let clusters = world::api(&client, &Kind::Cluster.resource(), None);
        let now = "2026-01-01T00:00:00Z";
        let status = json!({"status": {
            "kubernetesVersion": "v1.33.0",
            "apiEnablements": [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": now}],
        }});
        clusters.patch_status("silent", &PatchParams::default(), &Patch::Merge(status)).await?;
        let queue = s.queue("q", json!({"cpu": "1"})).await?;
        let stuck = s.submit(Kind::Job, small("stuck", &queue), &only("silent")).await?;
        let group = s.until_podgroup(&stuck, "says why it waits", |group| !message(group).is_empty()).await?;
        ensure!(group["status"]["phase"] == "Pending", "{group}");
        s.submit(Kind::Job, small("free", &queue), &aggregated()).await?;
        let placed = s.until_placed("free-job").await?;
        ensure!(placed.iter().all(|(name, _)| name == "member1"), "{placed:?}");
        s.until_phase("free", "Completed").await?;
        let binding = s.get(Kind::Binding, "stuck-job").await?.context("no binding")?;
        ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "placed: {binding}");
        Ok(())
    });
}

#[test]
fn members_without_a_volcano_are_brought_a_simulated_one() {
    // API servers with nodes and nothing that runs pods: what a real Karmada's members may be in a test installation.
    let start = async {
        let stop = CancellationToken::new();
        let host = fleet(0, &stop).await?;
        for name in ["plain1", "plain2"] {
            let plain = fleet(0, &stop).await?.host;
            let client = plain.client("e2e", &WriteCounts::default())?;
            for node in ["node1", "node2"] {
                let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
                let nodes = world::api(&client, &Kind::Node.resource(), None);
                nodes.create(&kube::api::PostParams::default(), &serde_json::from_value(object)?).await?;
                let status = json!({"status": {
                    "capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"},
                    "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                }});
                nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await?;
            }
            ensure!(world::bring_volcano(name, &client, &stop).await?, "{name} was said to have a real Volcano");
            join(&host, name, &plain).await?;
        }
        world::of_fleet(&host, stop).await
    };
    run_in("plain", start, async |s| {
        let queue = s.queue("q", json!({"cpu": "200"})).await?;
        // More than one of them holds.
        let mut wide = job("wide", &queue, &[task("a", 3, "30", "sleep 1")]);
        wide["spec"]["minAvailable"] = 3.into();
        s.submit(Kind::Job, wide, &aggregated()).await?;
        let clusters = s.until_placed("wide-job").await?;
        ensure!(clusters.len() == 2, "{clusters:?}");
        s.until_phase("wide", "Completed").await?;
        Ok(())
    });
}

/// Starts a controller in shadow mode with the rights of its account and no others.
async fn start_shadow(s: &Scenario, mut host: kube::Config, counts: &WriteCounts) -> anyhow::Result<CancellationToken> {
    for object in roles::build_shadow_roles(&[]) {
        apply_object(&s.host(), object).await?;
    }
    host.auth_info.impersonate = Some(roles::name_account("shadow"));
    let (client, stop) = (client::from_config(host, "shadow", counts)?, CancellationToken::new());
    let config = ControllerConfig { namespace: roles::NAMESPACE.to_owned(), ..ControllerConfig::default() };
    let (ready, registry) = (config.ready.clone(), config.registry.clone());
    tokio::spawn(caldera_controller::run_in_shadow(config, client, stop.clone()));
    for _ in 0..1_800 {
        if ready.is_ready() && knows_capacity(&registry)? {
            return Ok(stop);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the shadow did not know within three minutes what its members have")
}

/// Whether it has read what both members have: before that it says of every job that it waits. It is ready before.
fn knows_capacity(registry: &SharedRegistry) -> anyhow::Result<bool> {
    let mut text = String::new();
    encode(&mut text, &registry.lock().unwrap_or_else(PoisonError::into_inner))?;
    let is_known = |member: &str| {
        let cpus = format!("caldera_cluster_capacity{{cluster=\"{member}\",resource=\"cpu\"}} ");
        let told = text.lines().find_map(|line| line.strip_prefix(&cpus));
        told.and_then(|cpus| cpus.parse::<f64>().ok()).is_some_and(|cpus| cpus > 0.0)
    };
    Ok(["member1", "member2"].into_iter().all(is_known))
}

/// Its report once that says so.
async fn until_reported(s: &Scenario, met: impl Fn(&ShadowReport) -> bool) -> anyhow::Result<ShadowReport> {
    let mut last = None;
    for _ in 0..1_800 {
        if let Some(map) = s.get_in(Kind::ConfigMap, roles::NAMESPACE, shadow::NAME).await? {
            let report = ShadowReport::read_config_map(&map).map_err(anyhow::Error::msg)?;
            if met(&report) {
                return Ok(report);
            }
            last = Some(report);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("it was not reported within three minutes: {last:?}")
}

#[test]
fn a_shadow_tells_where_it_differs_from_karmada_scheduler_and_writes_nothing_but_its_report() {
    let host: Arc<OnceLock<kube::Config>> = Arc::default();
    let of_host = Arc::clone(&host);
    let start = async move {
        let stop = CancellationToken::new();
        let fleet = fleet(2, &stop).await?;
        let _ = of_host.set(fleet.host.config()?);
        world::without_components(&fleet, stop)
    };
    run_in("shadow", start, async |s| {
        let (counts, queue) = (WriteCounts::default(), s.own("q"));
        s.create(Kind::Queue, caldera_e2e::manifest::queue(&queue, &json!({"cpu": "1"}))).await?;
        let has_capacity = |cluster: &Value| ready(cluster, "True") && !cluster["status"]["resourceSummary"].is_null();
        for member in ["member1", "member2"] {
            s.until(Kind::Cluster, member, "is ready and says what it has", has_capacity).await?;
        }
        // Once it is ready it knows these clusters: before that it would rightly say that every job waits.
        let stop = start_shadow(&s, host.get().context("no host")?.clone(), &counts).await?;
        let pods = |name: &str, pods: u32| job(name, &queue, &[task("a", pods, "250m", "sleep 600")]);
        s.submit(Kind::Job, pods("first", 2), &aggregated()).await?;
        let placed = s.until_placed("first-job").await?;
        s.submit(Kind::Job, pods("second", 3), &aggregated()).await?;
        s.until_placed("second-job").await?;
        let report =
            until_reported(&s, |report| report.jobs.len() == 2 && report.jobs.iter().all(|job| job.placed.is_some()))
                .await?;
        let find = |name: &str| -> anyhow::Result<&ShadowJob> {
            report.jobs.iter().find(|job| job.name == name).context("it is not told")
        };
        let (first, second) = (find("first")?, find("second")?);
        ensure!(matches!(first.verdict(), ShadowVerdict::Same | ShadowVerdict::Elsewhere), "{first:?}");
        ensure!(placed.iter().all(|(cluster, _)| first.placed_in.contains(cluster)), "{first:?}");
        ensure!(first.clusters.len() == 1, "{first:?}");
        ensure!(second.verdict() == ShadowVerdict::WouldWait, "{second:?}");
        ensure!(second.message.as_deref().is_some_and(|why| why.contains("cpu")), "{second:?}");
        ensure!(report.totals.would_wait == 1 && report.totals.same + report.totals.elsewhere == 1, "{report:?}");

        stop.cancel();
        let written = counts.read_counts();
        ensure!(written.keys().all(|write| write.resource == "configmaps" && write.verb == "patch"), "{written:?}");
        for name in ["first-job", "second-job"] {
            let binding = s.get(Kind::Binding, name).await?.context("no binding")?;
            ensure!(!binding.to_string().contains("caldera"), "{binding}");
        }
        Ok(())
    });
}
