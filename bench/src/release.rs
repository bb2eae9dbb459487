//! The controller with thousands waiting: from freed quota to the gate's patch, memory, and restart.
//!
//! The controller is a process of its own (`caldera controller`, from this binary) and talks HTTPS to an embedded API
//! server in this one. Nothing else runs there: this benchmark writes the jobs' ends and places what is released.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::time::timeout;

use crate::{
    figures::{Runs, Sample, format_millis},
    host::{Host, Seen},
    process::Component,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bindings that wait, all the time.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    #[arg(long, default_value_t = 30)]
    queues: usize,
    /// Jobs of a queue that hold quota at a time.
    #[arg(long, default_value_t = 4)]
    slots: usize,
    /// Jobs that end in a run.
    #[arg(long, default_value_t = 300)]
    completions: usize,
    /// Milliseconds from one end to the next.
    #[arg(long, default_value_t = 25)]
    every: u64,
    #[arg(long, default_value_t = 5)]
    runs: usize,
    #[arg(long, default_value_t = 5)]
    restarts: usize,
}

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(300);
/// The controller has nothing more to write after so long without a write.
const QUIET: Duration = Duration::from_secs(2);
/// Between two runs.
const REST: Duration = Duration::from_secs(15);

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let held = args.queues * args.slots;
    let total = args.waiting + held + args.runs * args.completions + args.restarts;
    let began = Instant::now();
    let mut host = Host::start("controller", args.queues, args.slots, total).await?;
    println!("{total} jobs and bindings in {} queues, written in {:.1?}", args.queues, began.elapsed());
    let mut bench =
        Bench { controller: Component::start("controller", &host.kubeconfig)?, running: make_queues(args.queues) };
    bench.fill_queues(&mut host, held, total).await?;
    bench.tell_memory("after the first start, everybody explained");

    let [mut sent, mut acked] = [(); 2].map(|()| Vec::new());
    let mut p99 = Runs::default();
    for _ in 0..args.runs {
        let latencies = bench.complete_all(&mut host, args.completions, Duration::from_millis(args.every)).await?;
        let [from_sent, from_acked] =
            [latencies.iter().map(|l| l.0).collect(), latencies.iter().map(|l| l.1).collect()]
                .map(|of: Vec<Duration>| Sample::new(of));
        println!("  from the status write sent: {from_sent}");
        println!("  from the status write acknowledged: {from_acked}");
        p99.push(from_acked.p99().as_secs_f64() * 1e3);
        sent.extend(latencies.iter().map(|l| l.0));
        acked.extend(latencies.iter().map(|l| l.1));
        host.rest_until_quiet(QUIET, REST).await;
    }
    println!("freed to release, status write sent until the gate's patch arrives: {}", Sample::new(sent));
    println!("freed to release, status write acknowledged until the gate's patch arrives: {}", Sample::new(acked));
    println!("  p99 of each run from acknowledged, ms: {p99}");
    bench.tell_memory("after the releases");

    let (mut first, mut memory) = (Runs::default(), Runs::default());
    for _ in 0..args.restarts {
        first.push(bench.restart_controller(&mut host).await?.as_secs_f64());
        host.rest_until_quiet(QUIET, REST).await;
        memory.push(bench.controller.read_memory("VmRSS")? as f64 / 1024.0);
    }
    println!("process start to first release patch, seconds: {first}");
    println!("controller RSS after a restart, MiB: {memory}");
    Ok(())
}

fn make_queues(count: usize) -> Vec<VecDeque<usize>> {
    vec![VecDeque::new(); count]
}

struct Bench {
    controller: Component,
    /// Jobs that hold quota, by queue, in the order of their release.
    running: Vec<VecDeque<usize>>,
}

impl Bench {
    /// Until all slots are taken, every job has its PodGroup, and the controller has no more to say.
    async fn fill_queues(&mut self, host: &mut Host, held: usize, total: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        for _ in 0..held {
            let seen = timeout(PATIENCE, host.next_patch()).await.context("the first releases did not come")??;
            if self.running.iter().all(VecDeque::is_empty) {
                println!("first start to first release patch: {} ms", format_millis(seen.at.duration_since(began)));
            }
            self.record_release(host, seen).await?;
        }
        host.wait_until_quiet(QUIET, PATIENCE).await?;
        let groups = host.count_pod_groups();
        anyhow::ensure!(groups == total, "{groups} PodGroups for {total} jobs");
        println!("{held} releases and {groups} PodGroups {:.1?} after its start", began.elapsed());
        Ok(())
    }

    /// A released job is placed, as the scheduler would.
    async fn record_release(&mut self, host: &Host, seen: Seen) -> anyhow::Result<()> {
        let queues = self.running.len();
        self.running[seen.job % queues].push_back(seen.job);
        host.place_job(seen.job).await
    }

    /// Ends one job after the other at a fixed pace; each end is answered by one release in its queue.
    async fn complete_all(
        &mut self,
        host: &mut Host,
        count: usize,
        every: Duration,
    ) -> anyhow::Result<Vec<(Duration, Duration)>> {
        let queues = self.running.len();
        let mut waiting: Vec<VecDeque<(Instant, Instant)>> = vec![VecDeque::new(); queues];
        let mut latencies = Vec::with_capacity(count);
        let mut ended = 0;
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while latencies.len() < count {
            tokio::select! {
                _ = tick.tick(), if ended < count => {
                    let queue = ended % queues;
                    let Some(job) = self.running[queue].pop_front() else { continue };
                    let sent = Instant::now();
                    host.end_job(job).await?;
                    waiting[queue].push_back((sent, Instant::now()));
                    ended += 1;
                }
                seen = timeout(PATIENCE, host.next_patch()) => {
                    let seen = seen.context("a release did not come")??;
                    let since = waiting[seen.job % queues].pop_front();
                    let (sent, acked) = since.context("a release came without an end")?;
                    // The watch may show the end to the controller before its writer has the answer.
                    let of = |since: Instant| seen.at.saturating_duration_since(since);
                    latencies.push((of(sent), of(acked)));
                    self.record_release(host, seen).await?;
                }
            }
        }
        Ok(latencies)
    }

    /// Kills the controller, frees quota while it is away, starts it, and waits for the release.
    async fn restart_controller(&mut self, host: &mut Host) -> anyhow::Result<Duration> {
        self.controller.kill()?;
        let job = self.running.iter_mut().find_map(VecDeque::pop_front).context("nothing runs")?;
        host.end_job(job).await?;
        let began = Instant::now();
        self.controller = Component::start("controller", &host.kubeconfig)?;
        let seen = timeout(PATIENCE, host.next_patch()).await.context("no release after the restart")??;
        let took = seen.at.duration_since(began);
        self.record_release(host, seen).await?;
        Ok(took)
    }

    fn tell_memory(&self, when: &str) {
        let mib = |field| self.controller.read_memory(field).map_or(0.0, |kib| kib as f64 / 1024.0);
        println!("controller memory {when}: RSS {:.1} MiB, highest {:.1} MiB", mib("VmRSS"), mib("VmHWM"));
    }
}
