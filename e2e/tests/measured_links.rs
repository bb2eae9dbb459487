//! Collectors measure the way between their members, and gangs over clusters go by it. The scenario has a sandbox of
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    net::TcpListener,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::ensure;
use caldera_e2e::{
    Scenario,
    kinds::Kind,
    manifest::{aggregated, job, task},
    run_in,
    world::{self, World},
};
use caldera_runtime::{
    client::WriteCounts,
    clock::SystemClock,
    members::collector,
    metric::SharedRegistry,
    probe::{Peer, ProbeConfig, ProbePace, ProbeServer, run_probe_server, run_prober},
};
use caldera_sandbox::fleet::{self, Endpoint, Fleet};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const CAMPUS: &str = "campus";

async fn three_members(host: Arc<OnceLock<Fleet>>) -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let started = Fleet::start(fleet::Config::with_members(3), &stop).await?;
    let world = world::of_fleet(&started, stop).await?;
    ensure!(host.set(started).is_ok(), "it is started once");
    Ok(world)
}

/// The collector of a member that asks another one's; and what ends its answers.
fn collect(host: &Endpoint, member: &str, listener: TcpListener, peer: Peer) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (cluster, registry) = (member.to_owned(), SharedRegistry::default());
    let server =
        ProbeServer { cluster: cluster.clone(), listener, tls: None, bytes_a_day: 1 << 40, registry: registry.clone() };
    tokio::spawn(run_probe_server(server, stop.clone()));
    let (links, measured) = watch::channel(None);
    let pace =
        ProbePace { latency: Duration::from_millis(500), bandwidth: Duration::from_secs(60), bytes_a_day: 1 << 40 };
    let (peers, clock) = (vec![peer], Arc::new(SystemClock));
    let prober = ProbeConfig { cluster, peers, pace, tls: Box::new(|| Ok(None)), clock, registry };
    tokio::spawn(run_prober(prober, links, CancellationToken::new()));
    // Not so short that its collector is late on a busy machine.
    let pace = collector::Pace { heartbeat: Duration::from_secs(10), ..collector::Pace::default() };
    let config = collector::Config { pace, links: measured, ..collector::Config::new(member) };
    let client = host.client("inventory", &WriteCounts::default())?;
    tokio::spawn(collector::run_collector(config, client, CancellationToken::new()));
    Ok(stop)
}

/// More pods than one member holds: a node has 8 cores, and a member two of these.
fn gang(name: &str, queue: &str) -> Value {
    let mut gang = job(name, queue, &[task("worker", 5, "4", "sleep 2")]);
    gang["spec"]["minAvailable"] = 5.into();
    gang["spec"]["networkTopology"] = json!({"mode": "hard", "highestTierName": CAMPUS});
    gang
}

async fn waits(s: &Scenario, group: &Value) -> anyhow::Result<()> {
    let says = |group: &Value| group["status"]["conditions"].to_string().contains("campus");
    s.until_podgroup(group, "waits for a link", says).await.map(drop)
}

#[test]
fn a_gang_over_clusters_goes_where_collectors_measured_a_good_way_and_only_while_there_is_one() {
    let host = Arc::new(OnceLock::new());
    let start = three_members(host.clone());
    run_in("measured", start, async |s| {
        let host = &host.get().unwrap().host;
        // Nobody declares a link. Within one machine each way is shorter than that, however busy it is.
        let tiers = json!([{"name": CAMPUS, "maxLatencyMicroseconds": 2_000_000}]);
        let topology = json!({
            "apiVersion": "federation.caldera.dev/v1alpha1", "kind": "FederationTopology",
            "metadata": {"name": "tiers"}, "spec": {"tiers": tiers},
        });
        s.create(Kind::Links, topology).await?;
        let queue = s.queue("q", json!({})).await?;
        // The third has nodes of another size.
        let mut policy = aggregated();
        policy["clusterAffinity"] = json!({"clusterNames": ["member1", "member2"]});
        let early = s.submit(Kind::Job, gang("early", &queue), &policy).await?;
        waits(&s, &early).await?;

        let [one, other] = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let peer = |cluster: &str, listener: &TcpListener| {
            Ok::<_, std::io::Error>(Peer { cluster: cluster.to_owned(), address: listener.local_addr()?.to_string() })
        };
        let (to_first, to_second) = (peer("member1", &one)?, peer("member2", &other)?);
        let stops = [collect(host, "member1", one, to_second)?, collect(host, "member2", other, to_first)?];
        let has_links = |object: &Value| {
            let link = &object["spec"]["heartbeat"]["links"][0];
            link["latencyMicroseconds"].is_u64() && link["bandwidthMegabits"].is_u64()
        };
        for member in ["member1", "member2"] {
            s.until(Kind::Inventory, member, "says how far the other one is", has_links).await?;
        }
        let clusters = s.until_placed("early-job").await?;
        let names: Vec<&str> = clusters.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(names == ["member1", "member2"], "{clusters:?}");
        s.until_phase("early", "Completed").await?;

        // The way between them is cut.
        for stop in stops {
            stop.cancel();
        }
        for member in ["member1", "member2"] {
            let cut = |object: &Value| object["spec"]["heartbeat"]["links"].as_array().is_none_or(Vec::is_empty);
            s.until(Kind::Inventory, member, "has no way any more", cut).await?;
        }
        let late = s.submit(Kind::Job, gang("late", &queue), &policy).await?;
        waits(&s, &late).await
    });
}
