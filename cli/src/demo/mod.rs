//! `caldera demo`: starts a sandbox and Caldera's components, submits example queues and jobs, and reports the outcome.
//!
//! `Demo::play_script` is the script, [`observed`] keeps what the API showed, and [`report`] prints it. The exit code
//! is 0 only if every expectation held.

mod observed;
mod report;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_runtime::{
    client::WriteCounts,
    shutdown,
    watch::{Event, Follower},
};
use caldera_sandbox::fleet::{self, Fleet};
use kube::{Client, runtime::watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    args::DemoArgs,
    change::to_exit_code,
    output,
    stack::{self, Stack},
};
use observed::{Observed, ObservedKind};

const QUEUES: &str = include_str!("../../../manifests/examples/00-queues.yaml");
const MINDSPORE: &str = include_str!("../../../manifests/examples/10-mindspore-cpu.yaml");
const PYTORCH: &str = include_str!("../../../manifests/examples/20-pytorch-gpu.yaml");
const TOO_BIG: &str = include_str!("../../../manifests/examples/30-too-big.yaml");
const LOW_PRIORITY: &str = include_str!("../../../manifests/examples/40-low-priority.yaml");
const URGENT: &str = include_str!("../../../manifests/examples/50-urgent-report.yaml");
const WEB: &str = include_str!("../../../manifests/examples/60-web.yaml");

/// Runs the demo.
pub async fn run_demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::cancel_on_signal();
    let started = Instant::now();
    let counts = WriteCounts::default();
    let fleet = Fleet::start(fleet::Config::with_members(3), &stop).await?;
    let sandbox_ready = started.elapsed();
    if let Some(dir) = &args.dir {
        fleet.write_kubeconfigs(dir)?;
    }
    let stack = Stack::start(&fleet.host, &counts, &stop).await?;
    let viewer = fleet.host.client("demo", &WriteCounts::default())?;
    let mut demo = Demo::new(viewer, started, args.json, counts.clone(), &stop);
    demo.print_line(&format!(
        "sandbox: a Karmada host and {} members, ready after {sandbox_ready:.1?}",
        fleet.members.len()
    ));

    let deadline = started + Duration::from_secs(args.deadline);
    let played = tokio::select! {
        biased;
        played = demo.play_script(deadline) => played,
        () = stop.cancelled() => anyhow::bail!("interrupted"),
    };
    let summary = report::Summary::new(&demo.observed, &counts, demo.setup_writes, sandbox_ready, started.elapsed());
    let text = if args.json { serde_json::to_string_pretty(&summary)? + "\n" } else { summary.to_string() };
    output::write_stdout(&text);
    if let Err(error) = played {
        output::write_warning(&format!("{error:#}"));
    }
    if args.keep {
        if let Some(dir) = &args.dir {
            eprintln!(
                "kept: kubectl --kubeconfig {} get jobs.batch.volcano.sh; Ctrl-C ends it",
                dir.join("host.kubeconfig").display()
            );
        } else {
            eprintln!("kept until Ctrl-C at {} (give --dir to have kubeconfigs)", fleet.host.server);
        }
        stop.cancelled().await;
    }
    stop.cancel();
    stack.wait_until_stopped().await;
    Ok(to_exit_code(summary.all_held()))
}

struct Demo {
    client: Client,
    events: mpsc::Receiver<(ObservedKind, Event<Value>)>,
    observed: Observed,
    started: Instant,
    quiet: bool,
    counts: WriteCounts,
    /// Writes before the first job was submitted, such as those for queues.
    setup_writes: u64,
}

impl Demo {
    fn new(client: Client, started: Instant, quiet: bool, counts: WriteCounts, stop: &CancellationToken) -> Self {
        let (sender, events) = mpsc::channel(256);
        let follower = Follower::new(client.clone(), sender, stop.clone());
        for kind in ObservedKind::ALL {
            follower
                .follow_json(kind.api_resource(), watcher::Config::default(), Some, move |event| Some((kind, event)));
        }
        Self { client, events, observed: Observed::default(), started, quiet, counts, setup_writes: 0 }
    }

    /// Plays the script. Each step waits for the state that the next step needs.
    async fn play_script(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.apply_yaml(QUEUES).await?;
        self.wait_until(deadline, "the queues to open", |seen| {
            ["research", "training", "services"].iter().all(|queue| seen.queue_is_open(queue))
        })
        .await?;
        self.setup_writes = self.counts.read_counts().values().sum();
        self.print_line("a single-template job of 20 cores: more than one CPU member has");
        self.apply_yaml(MINDSPORE).await?;
        self.print_line("a master and three workers with 14 GPUs, which must stay together");
        self.apply_yaml(PYTORCH).await?;
        self.print_line("a Deployment that names a queue");
        self.apply_yaml(WEB).await?;
        self.wait_until(deadline, "mindspore-cpu to be placed", |seen| seen.job("mindspore-cpu").is_placed()).await?;
        self.print_line("a job of 48 cores in a queue of 20");
        self.apply_yaml(TOO_BIG).await?;
        self.print_line("a job that must wait for mindspore-cpu");
        self.apply_yaml(LOW_PRIORITY).await?;
        self.wait_until(deadline, "low-priority to wait in its queue", |seen| seen.job("low-priority").is_waiting())
            .await?;
        self.print_line("and a more urgent one, submitted after it");
        self.apply_yaml(URGENT).await?;
        self.wait_until(deadline, "all expectations", |seen| report::check_expectations(seen).iter().all(|e| e.held))
            .await
    }

    fn print_line(&self, text: &str) {
        if !self.quiet {
            output::write_stdout(&format!("{:>6.1}s  {text}\n", self.started.elapsed().as_secs_f64()));
        }
    }

    async fn apply_yaml(&self, yaml: &str) -> anyhow::Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("an example is not YAML")?;
        for object in documents {
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
            let Ok(Some((kind, event))) = next else {
                anyhow::bail!("waited in vain for {what}");
            };
            for line in self.observed.observe_event(kind, event, self.started.elapsed()) {
                self.print_line(&line);
            }
        }
        Ok(())
    }
}
