//! The scheduler with many released bindings at once: how much of what the API server takes in bare patches it uses,
//! and how many writes a binding costs.
//!
//! Bare: the same bindings on a server of their own, each patched once (as `apiserver` does). Then the scheduler, a
//! process of its own over HTTPS, finds them released and places them over three members whose nodes it watches. The
//! time runs from the first placement that arrives to the last, and its status writes are counted to the same rate.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::timeout;

use crate::{apiserver, figures::Runs, host::Host, process::Component};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Released bindings.
    #[arg(long, default_value_t = 4000)]
    bindings: usize,
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// How long the next placement may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The scheduler has nothing more to write after so long without a write.
const QUIET: Duration = Duration::from_secs(2);
/// Writes in flight at most, as the scheduler's.
const CONCURRENCY: usize = 64;

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let [mut bare, mut placed, mut written, mut share] = [(); 4].map(|()| Runs::default());
    let [mut writes, mut events] = [(); 2].map(|()| Runs::default());
    for _ in 0..args.runs {
        let floor =
            args.bindings as f64 / apiserver::measure_bare_patches(args.bindings, CONCURRENCY).await?.as_secs_f64();
        let mut host = Host::start("scheduler", 1, args.bindings, args.bindings).await?;
        host.release_all(args.bindings).await?;
        let scheduler = Component::start("scheduler", &host.kubeconfig)?;
        let mut first = None;
        let mut last = Instant::now();
        for _ in 0..args.bindings {
            let seen = timeout(PATIENCE, host.next_patch()).await.context("a binding was not placed")??;
            first.get_or_insert(seen.at);
            last = seen.at;
        }
        host.wait_until_quiet(QUIET, PATIENCE).await?;
        let took = last.duration_since(first.unwrap_or(last)).as_secs_f64();
        let (told, others) = host.events_and_others();
        let all = host.last_write().duration_since(first.unwrap_or(last)).as_secs_f64();
        let rate = (told + others) as f64 / all;
        bare.push(floor);
        placed.push(args.bindings as f64 / took);
        written.push(rate);
        share.push(100.0 * rate / floor);
        writes.push(others as f64 / args.bindings as f64);
        events.push(told as f64 / args.bindings as f64);
        drop(scheduler);
    }
    println!("{} bindings, bare patches/s, {CONCURRENCY} at a time: {bare}", args.bindings);
    println!("placements/s, first to last: {placed}");
    println!("writes/s of the scheduler, first placement to last write: {written}; in % of bare patches: {share}");
    println!("writes a binding: {writes}; events a binding: {events}");
    Ok(())
}
