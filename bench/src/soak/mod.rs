//! Real processes for hours: a webhook, two controllers and two schedulers, each under the rights of its own account,
//! against the sandbox's host and members in this process, while jobs of several kinds come and go.
//!
//! For two thirds of the time processes are killed and stopped at random; then they are only stopped for moments, so
//! that one life is long enough to see what becomes of its memory. The webhook's certificate is replaced every few
//! minutes. At the end it says what was lost, run twice, above a limit, or left behind: nothing of it may be.

mod load;
mod processes;
mod witness;

use std::time::{Duration, Instant};

use anyhow::Context;
use caldera_cli::{manifests, roles, stack};
use caldera_crds::trusted::TrustedWriters;
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::{
    fleet::{Config, Fleet, Member},
    member::NodeGroup,
};
use tokio_util::sync::CancellationToken;

use self::{load::Load, processes::Processes, witness::Witness};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// For how long jobs come.
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Jobs offered in a minute.
    #[arg(long, default_value_t = 170)]
    jobs_per_minute: u64,
    /// Seconds between two faults, on average.
    #[arg(long, default_value_t = 45)]
    fault_every: u64,
    /// What is thrown with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How often memory and open files are read.
const SAMPLE: Duration = Duration::from_secs(15);
/// How often the webhook gets a new certificate.
const ROTATE: Duration = Duration::from_secs(300);
/// Until everything that was offered has ended, and nothing is left.
const SETTLE: Duration = Duration::from_secs(900);

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let fleet = Fleet::start(fleet_config(), &stop).await?;
    let admin = fleet.host.client("soak", &WriteCounts::default())?;
    let dir = tempfile::tempdir()?;
    for object in roles::build_component_roles(&roles::Granted::default()) {
        stack::apply_object(&admin, object).await?;
    }
    let mut processes = Processes::start(dir.path(), &fleet.host, args.seed)?;
    let endpoint = caldera_webhook::Endpoint::Url(processes.webhook_url());
    let mut objects = caldera_crds::manifests::build_federation_crds();
    objects.extend(caldera_webhook::build_configurations(&endpoint, processes.authority_pem()));
    objects.extend(manifests::list_admission_policies(&TrustedWriters::default(), false));
    objects.extend(manifests::build_propagation_policies());
    for object in objects {
        stack::apply_object(&admin, object).await?;
    }
    let witness = Witness::start(&fleet, &admin)?;
    let mut load = Load::prepare(admin.clone(), witness.clone(), args.seed).await?;

    let (started, lasts) = (Instant::now(), Duration::from_secs(args.minutes * 60));
    let gap = Duration::from_secs_f64(60.0 / args.jobs_per_minute as f64);
    let (mut offer, mut sample) = (tokio::time::interval(gap), tokio::time::interval(SAMPLE));
    let (mut rotate, mut report) = (tokio::time::interval(ROTATE), tokio::time::interval(Duration::from_secs(60)));
    let mut fault = tokio::time::interval(Duration::from_secs(args.fault_every.max(1)));
    while started.elapsed() < lasts {
        tokio::select! {
            _ = offer.tick() => load.offer_job(),
            _ = sample.tick() => processes.sample(),
            _ = rotate.tick() => processes.rotate_certificate()?,
            _ = fault.tick() => processes.harm_one(started.elapsed() < lasts * 2 / 3)?,
            _ = report.tick() => {
                println!("{:>4} min  {}  {}", started.elapsed().as_secs() / 60, load.summarize(), processes.summarize());
            }
        }
        processes.revive()?;
    }
    println!("no more jobs come");
    let deadline = Instant::now() + SETTLE;
    while !load.is_done() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
        processes.revive()?;
    }
    println!("{}", load.summarize());
    let left = witness::wait_until_empty(&admin, deadline).await.context("failed to see what is left")?;
    processes.print_table();
    let faults = witness.faults().into_iter().chain(load.faults()).chain(left).collect::<Vec<_>>();
    faults.iter().for_each(|fault| println!("FAULT {fault}"));
    anyhow::ensure!(faults.is_empty(), "{} faults", faults.len());
    println!("nothing lost, run twice, above a limit or left behind");
    Ok(())
}

/// Three members of 128 cores.
fn fleet_config() -> Config {
    let mut config = Config::with_members(0);
    config.members = (1..=3)
        .map(|index| Member {
            name: format!("member{index}"),
            region: format!("region-{}", index % 2 + 1),
            labels: Vec::new(),
            nodes: vec![NodeGroup {
                prefix: format!("member{index}-cpu"),
                count: 8,
                allocatable: [("cpu", "16"), ("memory", "64Gi")].map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec(),
                labels: Vec::new(),
            }],
        })
        .collect();
    config
}
