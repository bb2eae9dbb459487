//! Plays the acts. Each step waits for what the next one needs to be seen in the API.

use std::time::Instant;

use anyhow::Context;
use caldera_crds::{names::caldera::RUNNING_ESTIMATE, workload::WorkloadKind};
use caldera_runtime::{
    client::WriteCounts,
    watch::{Event, Follower},
};
use caldera_sandbox::fleet::Fleet;
use caldera_simulate::time::Millis;
use kube::{Client, runtime::watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    acts::DemoAct,
    expectations::check_expectations,
    observed::{Observed, ObservedKind},
    screen::DemoScreen,
};
use crate::{args::JobName, cluster, job::requeue::requeue_job, stack, why};

const QUEUES: &str = include_str!("../../../manifests/examples/00-queues.yaml");
const MINDSPORE: &str = include_str!("../../../manifests/examples/10-mindspore-cpu.yaml");
const PYTORCH: &str = include_str!("../../../manifests/examples/20-pytorch-gpu.yaml");
const TOO_BIG: &str = include_str!("../../../manifests/examples/30-too-big.yaml");
const LOW_PRIORITY: &str = include_str!("../../../manifests/examples/40-low-priority.yaml");
const URGENT: &str = include_str!("../../../manifests/examples/50-urgent-report.yaml");
const WEB: &str = include_str!("../../../manifests/examples/60-web.yaml");
const LENDING_QUEUES: &str = include_str!("../../../manifests/examples/70-lending-queues.yaml");
const LENT: &str = include_str!("../../../manifests/examples/71-lent.yaml");
const OWNER: &str = include_str!("../../../manifests/examples/72-owner.yaml");
const SURVIVOR: &str = include_str!("../../../manifests/examples/80-survivor.yaml");

/// The estimate that the demo's users give, a little more than their jobs take.
const ESTIMATE: Option<&str> = Some("5s");

/// How long a job is taken to run that gives none: of those before low-priority there is none.
const ASSUMED: Millis = Millis(60_000);

pub struct Demo<'a> {
    client: Client,
    fleet: &'a Fleet,
    events: mpsc::Receiver<(ObservedKind, Event<Value>)>,
    pub observed: Observed,
    pub screen: DemoScreen,
    started: Instant,
    counts: WriteCounts,
    /// Writes before the first job was submitted, such as those for queues.
    pub setup_writes: u64,
}

impl<'a> Demo<'a> {
    pub fn new(
        client: Client,
        fleet: &'a Fleet,
        screen: DemoScreen,
        counts: WriteCounts,
        stop: &CancellationToken,
    ) -> Self {
        let (sender, events) = mpsc::channel(256);
        let follower = Follower::new(client.clone(), sender, stop.clone());
        for kind in ObservedKind::ALL {
            follower
                .follow_json(kind.api_resource(), watcher::Config::default(), Some, move |event| Some((kind, event)));
        }
        let (observed, started) = (Observed::default(), screen.started());
        Self { client, fleet, events, observed, screen, started, counts, setup_writes: 0 }
    }

    /// Plays all acts.
    pub async fn play_acts(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.apply_yaml(QUEUES).await?;
        self.apply_yaml(LENDING_QUEUES).await?;
        self.wait_until(deadline, "the queues to open", |seen| {
            ["research", "training", "services", "lab-speech", "lab-vision"].iter().all(|it| seen.queue_is_open(it))
        })
        .await?;
        self.setup_writes = self.counts.read_counts().values().sum();
        self.play_gangs(deadline).await?;
        self.play_line(deadline).await?;
        self.play_start(deadline).await?;
        self.play_lent(deadline).await?;
        self.play_lost(deadline).await?;
        self.wait_until(deadline, "all expectations", |seen| check_expectations(seen).iter().all(|e| e.held)).await
    }

    fn begin_act(&mut self, act: DemoAct) {
        self.observed.begun.insert(act);
        self.screen.print_act(act);
    }

    async fn play_gangs(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.begin_act(DemoAct::Gangs);
        self.screen.print_line("a gang of 20 cores in ten pods: more than one CPU member has");
        // So long that the others wait for it on a busy machine, too.
        self.apply_jobs(&MINDSPORE.replace("sleep 4", "sleep 8"), Some("9s")).await?;
        self.screen.print_line("a master and three workers with 14 GPUs, which must stay together");
        self.apply_jobs(PYTORCH, ESTIMATE).await?;
        self.wait_until(deadline, "both to be placed", |seen| {
            ["mindspore-cpu", "pytorch-gpu"].iter().all(|name| seen.job(name).is_placed())
        })
        .await
    }

    async fn play_line(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.begin_act(DemoAct::Line);
        self.screen.print_line("a job of 48 cores in a queue of 20, and one that must wait for mindspore-cpu");
        self.apply_yaml(TOO_BIG).await?;
        self.apply_jobs(LOW_PRIORITY, ESTIMATE).await?;
        self.wait_until(deadline, "low-priority to wait in its queue", |seen| seen.job("low-priority").is_waiting())
            .await?;
        self.screen.print_line("and a more urgent one, submitted after it");
        self.apply_jobs(URGENT, ESTIMATE).await?;
        self.wait_until(deadline, "urgent-report to wait", |seen| seen.job("urgent-report").is_waiting()).await
    }

    async fn play_start(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.begin_act(DemoAct::Start);
        let job = JobName { kind: WorkloadKind::VolcanoJob, name: "low-priority".to_owned() };
        let asked = self.started.elapsed();
        let (answer, expected) = why::explain_with_start(&self.client, &job, "default", ASSUMED).await?;
        self.screen.print_answer("caldera why low-priority", &answer);
        self.observed.forecast = expected.map(|expected| (asked, expected));
        self.wait_until(deadline, "low-priority to start", |seen| seen.job("low-priority").released.is_some()).await?;
        if let Some(reported) = self.observed.compare_forecast("low-priority") {
            self.screen.print_line(&format!("{:<15} {}", "low-priority", reported.describe()));
        }
        Ok(())
    }

    async fn play_lent(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.begin_act(DemoAct::Lent);
        self.screen.print_line("two jobs of team speech use all 16 cores of the lab: 8 are lent by team vision");
        self.apply_yaml(LENT).await?;
        self.screen.print_line("a Deployment that names a queue is charged to it like a job");
        self.apply_yaml(WEB).await?;
        let run = |seen: &Observed| ["speech-1", "speech-2"].iter().all(|name| seen.job(name).runs());
        self.wait_until(deadline, "both to run", run).await?;
        self.screen.print_line("team vision wants its own 8 cores");
        self.apply_yaml(OWNER).await?;
        self.wait_until(deadline, "lent quota to come back", |seen| seen.job("vision").started.is_some()).await?;
        let is_back = |seen: &Observed| ["speech-1", "speech-2"].iter().all(|name| seen.job(name).has_started_again());
        self.wait_until(deadline, "what gave way to run again", is_back).await
    }

    async fn play_lost(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.begin_act(DemoAct::Lost);
        self.apply_yaml(SURVIVOR).await?;
        self.wait_until(deadline, "survivor to run", |seen| seen.job("survivor").runs()).await?;
        let drained = self.find_survivors_cluster()?;
        self.screen.print_line(&format!("caldera cluster drain {drained}: its gang goes elsewhere, whole"));
        self.observed.drained = Some(drained.clone());
        cluster::cordon_cluster(&self.client, &drained, true).await?;
        let job = JobName { kind: WorkloadKind::VolcanoJob, name: "survivor".to_owned() };
        requeue_job(&self.client, "default", &job).await?;
        self.wait_until(deadline, "survivor to run elsewhere", |seen| {
            let job = seen.job("survivor");
            job.runs() && !job.clusters.contains_key(&drained)
        })
        .await?;
        self.observed.moved_to = self.observed.job("survivor").clusters;
        let lost = self.find_survivors_cluster()?;
        self.screen.print_line(&format!("{lost} is switched off, with its API server and all its pods"));
        self.fleet.stop_member(&lost);
        self.observed.lost = Some(lost.clone());
        self.wait_until(deadline, "survivor to be withdrawn", |seen| seen.job("survivor").is_withdrawn("MemberLost"))
            .await?;
        self.screen.print_line("its pods may still run there, so that it starts nowhere else until that is clear");
        let waits = |seen: &Observed| seen.job("survivor").message.contains("not known to be gone");
        self.wait_until(deadline, "survivor to say what it waits for", waits).await
    }

    fn find_survivors_cluster(&self) -> anyhow::Result<String> {
        self.observed.job("survivor").clusters.into_keys().next().context("survivor is nowhere")
    }

    async fn apply_yaml(&self, yaml: &str) -> anyhow::Result<()> {
        self.apply_jobs(yaml, None).await
    }

    /// Its jobs say how long they run.
    async fn apply_jobs(&self, yaml: &str, estimate: Option<&str>) -> anyhow::Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("an example is not YAML")?;
        for mut object in documents {
            if object["kind"] == "Job" && estimate.is_some() {
                object["metadata"]["annotations"] = json!({RUNNING_ESTIMATE: estimate});
            }
            stack::apply_object(&self.client, object).await?;
        }
        Ok(())
    }

    async fn wait_until(
        &mut self,
        deadline: Instant,
        what: &str,
        met: impl Fn(&Observed) -> bool,
    ) -> anyhow::Result<()> {
        while !met(&self.observed) {
            let next = tokio::time::timeout_at(deadline.into(), self.events.recv()).await;
            let Ok(next) = next else {
                let after = deadline.duration_since(self.started);
                self.observed.time_over = Some(after);
                anyhow::bail!("waited in vain for {what}: the time is over after {} s (--deadline)", after.as_secs());
            };
            let (kind, event) = next.with_context(|| format!("waited in vain for {what}: the host is gone"))?;
            for line in self.observed.observe_event(kind, event, self.started.elapsed()) {
                self.screen.print_line(&line);
            }
        }
        Ok(())
    }
}
