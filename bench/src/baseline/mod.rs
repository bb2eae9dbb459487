//! Kueue's own baseline scenario for Caldera: wall time, time to release and to placement by size, writes a job by
//! component, CPU and memory of each process, and whether a limit was broken.
//!
//! Rule (Kueue `test/performance/scheduler/configs/baseline/generator.yaml`): five cohorts of six queues, each nominal
//! 20 cores and 100 to borrow; in each queue 350 jobs of one core and 200 ms, one in 100 ms, 100 of five cores and
//! 500 ms, one in 500 ms, 50 of twenty cores and 1 s, one in 1.2 s; the larger has the higher priority. `--scale`
//! divides the numbers of jobs. With `--unsaturated` the same jobs come one after another, so that all start at once.
//!
//! This process plays Karmada's detector, which makes the binding of each job, and the members, which tell that it has
//! ended. Webhook, controller and scheduler are processes, or one process, with the rights of their own accounts and
//! the flags that are shipped.

mod host;
mod load;
mod parts;
mod report;
mod witness;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_runtime::client::{WriteCounts, from_config, load_config};

use self::{
    load::Load,
    parts::{Choice, Parts},
    witness::Witness,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// An empty Kubernetes API server to measure on; without it the embedded one, in this process.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What the numbers of jobs are divided by: 1 is 15,000 jobs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    scale: u32,
    /// One job after another, fewer than the queues have room for.
    #[arg(long)]
    unsaturated: bool,
    /// Jobs a second with `--unsaturated`.
    #[arg(long, default_value_t = 5.0)]
    rate: f64,
    #[command(flatten)]
    choice: Choice,
    /// Another process whose CPU and memory are shown, as the API server's: its name and id.
    #[arg(long, value_name = "NAME=PID", value_parser = parse_process)]
    process: Vec<(String, u32)>,
}

/// How long nobody may make progress.
const PATIENCE: Duration = Duration::from_secs(300);
/// Whatever is said late about the last jobs is said by then.
const QUIET: Duration = Duration::from_secs(6);

fn parse_process(text: &str) -> Result<(String, u32), String> {
    let (name, pid) = text.split_once('=').ok_or("want NAME=PID")?;
    Ok((name.to_owned(), pid.parse().map_err(|error| format!("{pid:?} is no process id: {error}"))?))
}

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = match &args.kubeconfig {
        Some(file) => file.clone(),
        None => host::serve_embedded(dir.path())?,
    };
    let counts = WriteCounts::default();
    let admin = from_config(load_config(Some(&kubeconfig)).await?, "baseline", &counts)?;
    host::install_members(&admin).await.context("the API server is not empty, or can not be installed on")?;
    let mut parts = Parts::start(dir.path(), &kubeconfig, &args.process, &args.choice)?;
    host::install_caldera(&admin, &parts).await?;
    parts.wait_until_ready().await?;
    // At once, as a fresh install does.
    host::create_queues(&admin).await?;
    tokio::time::sleep(QUIET).await;

    let (own, harness) = (parts.read_writes().await?, count_all(&counts));
    parts.begin_measure();
    let witness = Witness::start(&admin);
    let load = Load::new(admin.clone(), witness.clone(), &args.schedule());
    let began = Instant::now();
    load.offer_all();
    load.wait_for_all(PATIENCE).await?;
    let wall = began.elapsed();
    let used = parts.measure();
    tokio::time::sleep(QUIET).await;
    let written = report::subtract(parts.read_writes().await?, &own);
    let by_harness = count_all(&counts) - harness;

    println!("{} jobs, {}", load.count(), if args.unsaturated { "unsaturated" } else { "saturated" });
    println!("wall: {:.1} s", wall.as_secs_f64());
    load.print_times();
    report::print_writes(&written, by_harness, load.count());
    report::print_used(&used, args.kubeconfig.is_none());
    let broken = witness.list_broken_limits();
    broken.iter().for_each(|told| println!("LIMIT {told}"));
    println!("limits broken: {}; evictions: {}", broken.len(), witness.count_evictions());
    anyhow::ensure!(broken.is_empty(), "limits were broken");
    Ok(())
}

fn count_all(counts: &WriteCounts) -> u64 {
    counts.read_counts().values().sum()
}

impl Args {
    fn schedule(&self) -> load::Schedule {
        load::Schedule { scale: self.scale, apart: self.unsaturated.then(|| Duration::from_secs_f64(1.0 / self.rate)) }
    }
}
