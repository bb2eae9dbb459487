//! A member that scenarios put out of reach.
//!
//! In the sandbox one of two members is behind a line that is cut. Of a given Karmada the API server of a member is
//! stopped, as SIGSTOP does: connections stay, nobody answers, and what was sent is read once it goes on. Who started
//! the servers says their processes: `CALDERA_E2E_MEMBER_PIDS=m1=PID,m2=PID`.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, ensure};
use caldera_cli::stack::ControllerConfig;
use caldera_e2e::{
    PATIENCE, Scenario,
    kinds::Kind,
    line::Line,
    manifest::{aggregated, job, task},
    run_configured, run_in, skip,
    world::{self, World, join},
};
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::fleet::{Config, Endpoint, Fleet};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The sandbox's member behind the line.
const FAR: &str = "far";
/// The one beside the host.
const NEAR: &str = "member1";

/// The API server of a member of a given Karmada, stopped until this goes.
pub(crate) struct StoppedServer(String);

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

fn find_server(member: &str) -> Option<String> {
    let all = std::env::var("CALDERA_E2E_MEMBER_PIDS").ok()?;
    let mut pairs = all.split(',').filter_map(|part| part.split_once('='));
    pairs.find(|(name, _)| *name == member).map(|(_, pid)| pid.to_owned())
}

/// How a member is put out of reach, and back.
pub(crate) enum Outage {
    Line(Arc<OnceLock<Line>>),
    Server { pid: String, stopped: Option<StoppedServer> },
}

impl Outage {
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Line(line) => drop(line.get().context("no line")?.up.send_replace(false)),
            Self::Server { pid, stopped } => *stopped = Some(StoppedServer::stop(pid.clone())?),
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Line(line) => drop(line.get().context("no line")?.up.send_replace(true)),
            Self::Server { stopped, .. } => *stopped = None,
        }
        Ok(())
    }

    /// Whether this process still sees what the member does, whom Karmada does not reach.
    pub(crate) const fn lets_look(&self) -> bool {
        matches!(self, Self::Line(_))
    }

    /// Longer than Karmada takes to say that a member is not ready.
    pub(crate) const fn noticed_after(&self) -> Duration {
        match self {
            Self::Line(_) => Duration::from_secs(5),
            Self::Server { .. } => Duration::from_secs(70),
        }
    }
}

/// A world of two members, one of them behind a line that can be cut.
async fn start_far_world(line: Arc<OnceLock<Line>>, change: fn(&mut ControllerConfig)) -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let own = Config { evicts_by_taints: true, ..Config::with_members(1) };
    let (host, other) = (Fleet::start(own, &stop).await?, Fleet::start(Config::with_members(1), &stop).await?);
    let far = other.members[0].clone();
    let own = Line::to(&far.server).await?;
    join(&host, FAR, &Endpoint { server: own.address.clone(), ..far.clone() }).await?;
    let mut world = world::of_fleet(&host, stop).await?;
    world.reconfigure(change).await?;
    world.members.insert(FAR.to_owned(), far.client("e2e", &WriteCounts::default())?);
    ensure!(line.set(own).is_ok(), "two lines");
    Ok(world)
}

/// Runs with a queue that two members have: one that stays, and one that can be put out of reach.
pub(crate) fn run_with_outage<F>(
    name: &str,
    change: fn(&mut ControllerConfig),
    play: impl FnOnce(Arc<Scenario>, String, [String; 2], Outage) -> F,
) where
    F: Future<Output = anyhow::Result<()>>,
{
    if std::env::var_os("CALDERA_E2E_HOST_KUBECONFIG").is_some() {
        return run_configured(name, change, async |s| {
            let members: Vec<String> = s.members().map(str::to_owned).collect();
            let [stays, lost, ..] = members.as_slice() else { return skip("it needs two members") };
            let Some(pid) = find_server(lost) else { return skip("no member's server can be stopped") };
            let outage = Outage::Server { pid, stopped: None };
            play_with(s.clone(), [stays, lost], outage, play).await?;
            until_serves(&s, lost).await
        });
    }
    let line = Arc::<OnceLock<Line>>::default();
    run_in(name, start_far_world(line.clone(), change), async |s| {
        s.until(Kind::Cluster, FAR, "is ready", is_ready).await?;
        play_with(s, [NEAR, FAR], Outage::Line(line), play).await
    });
}

async fn play_with<F>(
    s: Arc<Scenario>,
    members: [&str; 2],
    outage: Outage,
    play: impl FnOnce(Arc<Scenario>, String, [String; 2], Outage) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let queue = s.queue("q", json!({"cpu": "1"})).await?;
    for member in members {
        let open = |queue: &Value| queue["status"]["state"] == "Open";
        s.until_in_member(member, Kind::Queue, &queue, "is open", open).await?;
    }
    play(s, queue, members.map(str::to_owned), outage).await
}

/// Waits until a member runs jobs again, for those who come next.
async fn until_serves(s: &Scenario, member: &str) -> anyhow::Result<()> {
    let queue = s.queue("after", json!({})).await?;
    let placement =
        json!({"clusterAffinity": {"clusterNames": [member]}, "replicaScheduling": aggregated()["replicaScheduling"]});
    s.submit(Kind::Job, job("after", &queue, &[task("a", 1, "100m", "sleep 1")]), &placement).await?;
    s.until_phase("after", "Completed").await.map(drop)
}

pub(crate) fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Works of the gang for a member.
async fn count_works(s: &Scenario, member: &str) -> anyhow::Result<usize> {
    let works = world::api(&s.host(), &Kind::Work.resource(), Some(&format!("karmada-es-{member}")));
    let binding =
        |work: &DynamicObject| work.metadata.annotations.as_ref()?.get("resourcebinding.karmada.io/name").cloned();
    let own = |work: &&DynamicObject| {
        let of = work.metadata.annotations.as_ref().and_then(|all| all.get("resourcebinding.karmada.io/namespace"));
        binding(work).is_some_and(|name| name == "gang-job") && of == Some(&s.namespace)
    };
    Ok(works.list(&ListParams::default()).await?.items.iter().filter(own).count())
}

pub(crate) async fn until_works(s: &Scenario, member: &str, count: usize) -> anyhow::Result<()> {
    let there = async {
        while count_works(s, member).await? != count {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, there).await.with_context(|| format!("the Works of {member} are others"))?
}
