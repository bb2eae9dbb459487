//! Published inventories: used after a restart while the member is out of reach, not trusted when old, and never a way
//! for one member to harm another. Each scenario has a sandbox of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, ensure};
use axum::{Router, response::IntoResponse};
use caldera_e2e::{
    Component, Scenario,
    kinds::Kind,
    line::Line,
    manifest::{aggregated, job, task},
    run_in,
    world::{self, World, fleet, join},
};
use caldera_runtime::{client::WriteCounts, members::collector};
use caldera_sandbox::fleet::{self, Endpoint, Fleet};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The cluster behind the line: two nodes of 8 cores.
const FAR: &str = "far";

/// A host with a member behind a line. However long the line is down, on however busy a machine, the cluster stays
/// ready: these scenarios are about what is known of it.
async fn far(stop: &CancellationToken) -> anyhow::Result<(Fleet, Line)> {
    let (host, other) = (patient_fleet(stop).await?, fleet(1, stop).await?);
    let line = Line::to(&other.members[0].server).await?;
    let member = Endpoint { server: line.address.clone(), ..other.members[0].clone() };
    join(&host, FAR, &member).await?;
    Ok((host, line))
}

/// A host that never calls a member not ready.
async fn patient_fleet(stop: &CancellationToken) -> anyhow::Result<Fleet> {
    let config = fleet::Config { not_ready_after: Duration::from_secs(3600), ..fleet::Config::with_members(0) };
    Ok(Fleet::start(config, stop).await?)
}

/// The host and the line of a world with a member behind it, once it is there.
type FarEnd = Arc<OnceLock<(Fleet, Line)>>;

async fn far_world(far_end: FarEnd) -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let (host, line) = far(&stop).await?;
    let world = world::of_fleet(&host, stop).await?;
    assert!(far_end.set((host, line)).is_ok());
    Ok(world)
}

/// A collector of [`FAR`], and its writes.
async fn collect(s: &Scenario, host: &Endpoint, beat: u64) -> anyhow::Result<(CancellationToken, WriteCounts)> {
    let (stop, counts) = (CancellationToken::new(), WriteCounts::default());
    let pace = collector::Pace {
        least: Duration::from_millis(500),
        heartbeat: Duration::from_secs(beat),
        ..collector::Pace::default()
    };
    let config = collector::Config { pace, ..collector::Config::new(FAR) };
    tokio::spawn(collector::run_collector(config, host.client("inventory", &counts)?, stop.clone()));
    s.until(Kind::Inventory, FAR, "is published", |object| object["spec"]["heartbeat"]["nodes"] == 2).await?;
    Ok((stop, counts))
}

fn ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// A gang of so many pods of 5 cores: a node holds one, what the summary says adds up to three.
fn gang(name: &str, queue: &str, pods: u64, command: &str) -> Value {
    let mut gang = job(name, queue, &[task("a", u32::try_from(pods).unwrap(), "5", command)]);
    gang["spec"]["minAvailable"] = pods.into();
    gang
}

async fn is_unplaced(s: &Scenario, binding: &str) -> anyhow::Result<()> {
    let binding = s.get(Kind::Binding, binding).await?.context("no binding")?;
    ensure!(binding["spec"]["clusters"].as_array().is_none_or(Vec::is_empty), "placed: {binding}");
    Ok(())
}

#[test]
fn what_was_published_is_used_after_a_restart_while_the_member_is_out_of_reach() {
    let far_end = FarEnd::default();
    let start = far_world(far_end.clone());
    run_in("warm", start, async |s| {
        let (host, line) = far_end.get().unwrap();
        s.until(Kind::Cluster, FAR, "is ready", ready).await?;
        let began = std::time::Instant::now();
        let (_stop, counts) = collect(&s, &host.host, 20).await?;
        let queue = s.queue("q", json!({"cpu": "100"})).await?;
        s.submit(Kind::Job, gang("before", &queue, 2, "sleep 1"), &aggregated()).await?;
        s.until_phase("before", "Completed").await?;

        for component in [Component::Scheduler, Component::Controller] {
            s.kill(component).await;
        }
        line.up.send_replace(false);
        // What the summary would let through and the nodes do not hold; and what they do hold.
        s.submit(Kind::Job, gang("wide", &queue, 3, "sleep 1"), &aggregated()).await?;
        let fits = s.submit(Kind::Job, gang("fits", &queue, 2, "sleep 1"), &aggregated()).await?;
        for component in [Component::Controller, Component::Scheduler] {
            s.resume(component).await?;
        }
        let placed = s.until_placed("fits-job").await?;
        ensure!(placed == [(FAR.to_owned(), 2)], "{placed:?}");
        ensure!(!*line.up.borrow(), "the line was down all the while");
        is_unplaced(&s, "wide-job").await?;
        line.up.send_replace(true);
        ensure!(fits["metadata"]["uid"].is_string(), "{fits}");
        s.until_phase("fits", "Completed").await?;
        is_unplaced(&s, "wide-job").await?;
        // A part and a heartbeat each half second, however many jobs there are.
        let (writes, most) = (counts.read_counts().values().sum::<u64>(), 4 + began.elapsed().as_millis() as u64 / 250);
        ensure!(writes <= most, "{writes} writes, more than {most}");
        Ok(())
    });
}

#[test]
fn what_was_published_is_not_trusted_beyond_its_bound() {
    let far_end = FarEnd::default();
    let start = far_world(far_end.clone());
    run_in("stale", start, async |s| {
        let (host, line) = far_end.get().unwrap();
        s.until(Kind::Cluster, FAR, "is ready", ready).await?;
        // Not so short that its collector is late on a busy machine: others would connect to the member themselves.
        let (stop, _) = collect(&s, &host.host, 10).await?;
        let queue = s.queue("q", json!({"cpu": "100"})).await?;
        let wide = s.submit(Kind::Job, gang("wide", &queue, 3, "sleep 1"), &aggregated()).await?;
        s.until_podgroup(&wide, "says why it waits", |group| group["status"]["conditions"][0].is_object()).await?;
        is_unplaced(&s, "wide-job").await?;
        // Nobody says any more what the member has. Then its summary counts, which thinks that there is room.
        stop.cancel();
        line.up.send_replace(false);
        s.until_placed("wide-job").await?;
        // And as soon as the member answers, its nodes do again.
        line.up.send_replace(true);
        let other = s.submit(Kind::Job, gang("other", &queue, 3, "sleep 1"), &aggregated()).await?;
        s.until_podgroup(&other, "says why it waits", |group| group["status"]["conditions"][0].is_object()).await?;
        Ok(())
    });
}

/// A gang that must be in one tier: only nodes say which tiers a cluster has, and no summary is good enough for it.
fn near(name: &str, queue: &str, pods: u64, cores: &str) -> Value {
    let mut near = job(name, queue, &[task("a", u32::try_from(pods).unwrap(), cores, "sleep 1")]);
    near["spec"]["minAvailable"] = pods.into();
    near["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierAllowed": 1});
    near
}

#[test]
fn a_gang_that_needs_nodes_is_placed_by_what_was_published_within_its_bound_and_refused_beyond() {
    // The bound is three beats: long enough for two restarts on however busy a machine.
    const BEAT: u64 = 90;
    let far_end = FarEnd::default();
    let start = far_world(far_end.clone());
    run_in("bound", start, async |s| {
        let (host, line) = far_end.get().unwrap();
        s.until(Kind::Cluster, FAR, "is ready", ready).await?;
        let (stop, _) = collect(&s, &host.host, BEAT).await?;
        let queue = s.queue("q", json!({"cpu": "100"})).await?;
        // A gang waits for its queue where the others of the member are known.
        while !s.list(Kind::Inventory).await?.iter().any(|part| part.to_string().contains(&queue)) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for component in [Component::Scheduler, Component::Controller] {
            s.kill(component).await;
        }
        line.up.send_replace(false);
        s.submit(Kind::Job, near("within", &queue, 2, "5"), &aggregated()).await?;
        for component in [Component::Controller, Component::Scheduler] {
            s.resume(component).await?;
        }
        let placed = s.until_placed("within-job").await?;
        ensure!(placed == [(FAR.to_owned(), 2)] && !*line.up.borrow(), "{placed:?}");

        // Nobody says any more what the member has: what was published grows old.
        stop.cancel();
        let old = json!({"spec": {"heartbeat": {"seenAt": "2026-01-01T00:00:00Z"}}});
        let is_old = |object: &Value| object["spec"]["heartbeat"]["seenAt"] == old["spec"]["heartbeat"]["seenAt"];
        while !s.get(Kind::Inventory, FAR).await?.is_some_and(|object| is_old(&object)) {
            s.patch(Kind::Inventory, FAR, &old).await?;
            // A beat may have been under way.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let beyond = s.submit(Kind::Job, near("beyond", &queue, 1, "1"), &aggregated()).await?;
        let text = |group: &Value| group["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
        s.until_podgroup(&beyond, "says that nodes are not known", |group| text(group).contains("tier")).await?;
        is_unplaced(&s, "beyond-job").await?;
        line.up.send_replace(true);
        let placed = s.until_placed("beyond-job").await?;
        ensure!(placed == [(FAR.to_owned(), 1)], "{placed:?}");
        Ok(())
    });
}

#[test]
fn a_member_that_can_not_be_read_is_asked_about_through_its_estimator() {
    let far_end = Arc::new(OnceLock::new());
    let set = far_end.clone();
    let start = async {
        let stop = CancellationToken::new();
        let (host, other) = (patient_fleet(&stop).await?, fleet(1, &stop).await?);
        let line = Line::to(&other.members[0].server).await?;
        let member = Endpoint { server: line.address.clone(), ..other.members[0].clone() };
        join(&host, FAR, &member).await?;
        // The estimator is inside the member: the line is not its way.
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let config = caldera_estimator::serve::Config {
            listener,
            tls: None,
            cluster: FAR.to_owned(),
            member: Some(other.members[0].client("estimator", &WriteCounts::default())?),
            clock: Arc::new(caldera_runtime::clock::SystemClock),
            ready: caldera_runtime::serve::Ready::default(),
            counts: WriteCounts::default(),
            registry: caldera_runtime::serve::SharedRegistry::default(),
        };
        let client = host.host.client("estimator", &WriteCounts::default())?;
        tokio::spawn(caldera_estimator::serve::run(config, client, stop.clone()));
        let world = world::of_fleet(&host, stop).await?;
        assert!(set.set((line, address)).is_ok());
        Ok(world)
    };
    run_in("estimator", start, async |s| {
        let (line, address) = far_end.get().unwrap();
        s.until(Kind::Cluster, FAR, "is ready", ready).await?;
        let annotations = json!({"caldera.dev/estimator": address});
        s.patch(Kind::Cluster, FAR, &json!({"metadata": {"annotations": annotations}})).await?;
        let queue = s.queue("q", json!({"cpu": "100"})).await?;
        for component in [Component::Scheduler, Component::Controller] {
            s.kill(component).await;
        }
        line.up.send_replace(false);
        for component in [Component::Controller, Component::Scheduler] {
            s.resume(component).await?;
        }
        // The controller goes by the summary and lets it through; the estimator knows the nodes.
        s.submit(Kind::Job, gang("wide", &queue, 3, "sleep 1"), &aggregated()).await?;
        let said = |binding: &Value| {
            let conditions = binding["status"]["conditions"].as_array();
            let mut texts = conditions.into_iter().flatten().filter_map(|condition| condition["message"].as_str());
            texts.any(|text| text.contains("far: its estimator was asked"))
        };
        s.until(Kind::Binding, "wide-job", "is refused by what the estimator says", said).await?;
        s.delete(Kind::Job, "wide").await?;
        s.submit(Kind::Job, gang("fits", &queue, 2, "sleep 1"), &aggregated()).await?;
        let placed = s.until_placed("fits-job").await?;
        ensure!(placed == [(FAR.to_owned(), 2)] && !*line.up.borrow(), "{placed:?}");
        line.up.send_replace(true);
        s.until_phase("fits", "Completed").await?;
        Ok(())
    });
}

/// A member's API server that answers everything with the same.
async fn says(answer: Option<Value>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let answers = Router::new().fallback(move || {
        let answer = answer.clone();
        async move {
            match answer {
                Some(answer) => axum::Json(answer).into_response(),
                None => std::future::pending().await,
            }
        }
    });
    tokio::spawn(async move { axum::serve(listener, answers).await });
    Ok(address)
}

/// A cluster that Karmada holds for ready, without a summary, at this address.
async fn claim(s: &Scenario, name: &str, address: &str) -> anyhow::Result<()> {
    let client = s.host();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": s.namespace},
        "stringData": {"token": "t"},
    });
    let secrets: kube::Api<kube::api::DynamicObject> = kube::Api::namespaced_with(
        client.clone(),
        &s.namespace,
        &caldera_runtime::watch::api_resource("", "v1", "Secret", "secrets"),
    );
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "apiEndpoint": address},
    });
    s.create(Kind::Cluster, cluster).await?;
    let status = json!({"status": {
        "kubernetesVersion": "v1.33.0",
        "apiEnablements": [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    let clusters = world::api(&client, &Kind::Cluster.resource(), None);
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    // Only now: Karmada looks after Push members itself and would find out.
    let direct = json!({"spec": {"syncMode": "Push", "secretRef": {"namespace": s.namespace, "name": name}}});
    s.patch(Kind::Cluster, name, &direct).await?;
    Ok(())
}

#[test]
fn members_that_talk_nonsense_or_hang_degrade_only_themselves() {
    let start = async {
        let stop = CancellationToken::new();
        let fleet = fleet(1, &stop).await?;
        world::of_fleet(&fleet, stop).await
    };
    run_in("nonsense", start, async |s| {
        let node = |allocatable: Value| {
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [
                {"metadata": {"name": "n"}, "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}},
                {"metadata": {}}, {"spec": {"nodeName": 3}},
            ]})
        };
        for (name, answer) in [
            ("garbage", Some(json!({"hello": ["world"]}))),
            ("silent", None),
            ("absurd", Some(node(json!({"cpu": "-5", "memory": "1e999", "pods": {}})))),
        ] {
            claim(&s, name, &says(answer).await?).await?;
        }
        // Somebody publishes nonsense about one of them.
        let published = json!({"cluster": "garbage", "heartbeat": {
            "seenAt": caldera_runtime::clock::format_micro_time(jiff::Timestamp::now()), "everySeconds": 100,
            "reached": "Direct", "parts": 1, "nodes": 4_000_000_000u32,
        }});
        let part = json!({"cluster": "garbage", "part": {"index": 0, "of": 1, "shapes": [
            {"names": ["n[0-4294967295]"], "allocatable": {"cpu": "100000"}},
        ]}});
        for (name, spec) in [("garbage.0", part), ("garbage", published)] {
            let object = json!({
                "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "ClusterInventory",
                "metadata": {"name": name}, "spec": spec,
            });
            s.create(Kind::Inventory, object).await?;
        }
        let queue = s.queue("q", json!({"cpu": "100"})).await?;
        for name in ["garbage", "silent", "absurd"] {
            let mut only = aggregated();
            only["clusterAffinity"] = json!({"clusterNames": [name]});
            let stuck = job(&format!("on-{name}"), &queue, &[task("a", 1, "1", "sleep 1")]);
            s.submit(Kind::Job, stuck, &only).await?;
        }
        s.submit(Kind::Job, job("free", &queue, &[task("a", 2, "1", "sleep 1")]), &aggregated()).await?;
        let placed = s.until_placed("free-job").await?;
        ensure!(placed.iter().all(|(name, _)| name == "member1"), "{placed:?}");
        s.until_phase("free", "Completed").await?;
        for name in ["garbage", "silent", "absurd"] {
            is_unplaced(&s, &format!("on-{name}-job")).await?;
        }
        Ok(())
    });
}
