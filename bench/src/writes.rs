//! API writes of a job's whole life, by component: on a small host everybody is bound by the API server, so writes a
//! job decide how many jobs a second there can be.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use caldera_cli::stack::{self, Stack};
use caldera_runtime::client::{WriteCounts, WriteKey};
use caldera_sandbox::fleet::{self, Fleet};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{figures::Runs, world};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Jobs, all submitted at once.
    #[arg(long, default_value_t = 50)]
    jobs: usize,
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// How long all jobs together may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Nothing more is written about jobs that ended so long ago.
const QUIET: Duration = Duration::from_secs(3);

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let mut runs = Runs::default();
    let mut took = Runs::default();
    let mut by_key: BTreeMap<WriteKey, Runs> = BTreeMap::new();
    for _ in 0..args.runs {
        let (elapsed, counts) = run_jobs(args.jobs).await?;
        let jobs = args.jobs as f64;
        runs.push(counts.values().sum::<u64>() as f64 / jobs);
        took.push(elapsed.as_secs_f64());
        for (key, count) in counts {
            by_key.entry(key).or_default().push(count as f64 / jobs);
        }
    }
    for (WriteKey { component, verb, resource }, of) in by_key {
        println!("  {component:<11} {verb:<7} {resource:<26} {of}");
    }
    println!("writes a job over its whole life: {runs}");
    println!("{} jobs from the first submission to the last completion, seconds: {took}", args.jobs);
    Ok(())
}

/// A sandbox with three members and all components; the writes of `jobs` jobs from submission until nobody has more to
/// say about them.
async fn run_jobs(jobs: usize) -> anyhow::Result<(Duration, BTreeMap<WriteKey, u64>)> {
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let counts = WriteCounts::default();
    let fleet = Fleet::start(fleet::Config::with_members(3), &stop).await?;
    let stack = Stack::start(&fleet.host, &counts, &stop).await?;
    let client = fleet.host.client("bench", &WriteCounts::default())?;
    for object in [make_queue(), make_policy()] {
        stack::apply_object(&client, object).await?;
    }
    wait_until_settled(&counts).await;
    let before = counts.read_counts();
    let began = Instant::now();
    for i in 0..jobs {
        world::create_object(&client, world::JOBS, &make_small_job(i)).await?;
    }
    while count_completed(&client).await? < jobs {
        anyhow::ensure!(began.elapsed() < PATIENCE, "{} of {jobs} jobs completed", count_completed(&client).await?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let elapsed = began.elapsed();
    wait_until_settled(&counts).await;
    let mut after = counts.read_counts();
    for (key, count) in before {
        after.entry(key).and_modify(|after| *after -= count);
    }
    after.retain(|_, count| *count > 0);
    stop.cancel();
    stack.wait_until_stopped().await;
    Ok((elapsed, after))
}

async fn wait_until_settled(counts: &WriteCounts) {
    let (mut last, mut since) = (counts.read_counts(), Instant::now());
    while since.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = counts.read_counts();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

async fn count_completed(client: &Client) -> anyhow::Result<usize> {
    let list = world::get_object(client, world::JOBS).await?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter(|job| world::read_text(job, "/status/state/phase") == "Completed").count())
}

/// Room for a third of fifty jobs, so that most of them wait.
fn make_queue() -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "bench"},
        "spec": {"weight": 1, "capability": {"cpu": "32"}},
    })
}

fn make_policy() -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "bench", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            }},
        },
    })
}

/// Two pods of a core for a second.
fn make_small_job(i: usize) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": format!("job-{i}"), "namespace": "default"},
        "spec": {"queue": "bench", "minAvailable": 2, "schedulerName": "volcano", "tasks": [
            {"name": "main", "replicas": 2, "template": {"spec": {
                "restartPolicy": "OnFailure",
                "containers": [{
                    "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 1"],
                    "resources": {"requests": {"cpu": "1", "memory": "256Mi"}},
                }],
            }}},
        ]},
    })
}
