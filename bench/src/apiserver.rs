//! Gate patches a second against the embedded API server: what no controller on it can beat.

use std::time::{Duration, Instant};

use caldera_runtime::client::WriteCounts;
use futures::StreamExt;
use kube::Client;
use serde_json::Value;

use crate::{
    figures::{Runs, Sample},
    world,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bindings, each patched once in every run.
    #[arg(long, default_value_t = 4000)]
    bindings: usize,
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    for (transport, encrypted) in [("HTTPS", true), ("in-process", false)] {
        for concurrency in [1, 16, 64] {
            let (mut rate, mut creates, mut lists) = (Runs::default(), Runs::default(), Runs::default());
            let mut times = Vec::new();
            for _ in 0..args.runs {
                // A world of its own, so that no run inherits another's history.
                let (server, local) = world::start_host().await?;
                let client = if encrypted {
                    world::serve_router("host", &server, server.router())?.client("bench", &WriteCounts::default())?
                } else {
                    local
                };
                let began = Instant::now();
                let bindings = (0..args.bindings).map(|i| world::make_binding(i, ""));
                world::create_all(&client, world::BINDINGS, bindings).await?;
                creates.push(args.bindings as f64 / began.elapsed().as_secs_f64());
                let began = Instant::now();
                let list = world::get_object(&client, world::BINDINGS).await?;
                lists.push(began.elapsed().as_secs_f64() * 1e3);
                let (elapsed, taken) = patch_all(&client, &list, concurrency).await?;
                rate.push(args.bindings as f64 / elapsed.as_secs_f64());
                times.extend(taken);
            }
            println!("{transport}, {concurrency} at a time: gate patches/s {rate}; {}", Sample::new(times));
            println!("  creates/s (16 at a time) {creates}; LIST of {} in ms {lists}", args.bindings);
        }
    }
    Ok(())
}

/// How long the gates of so many bindings take over HTTPS, on a server of their own.
pub async fn measure_bare_patches(bindings: usize, concurrency: usize) -> anyhow::Result<Duration> {
    let (server, _) = world::start_host().await?;
    let client = world::serve_router("host", &server, server.router())?.client("bench", &WriteCounts::default())?;
    world::create_all(&client, world::BINDINGS, (0..bindings).map(|i| world::make_binding(i, ""))).await?;
    let list = world::get_object(&client, world::BINDINGS).await?;
    Ok(patch_all(&client, &list, concurrency).await?.0)
}

async fn patch_all(client: &Client, list: &Value, concurrency: usize) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let items = list["items"].as_array().into_iter().flatten();
    let began = Instant::now();
    let patching = futures::stream::iter(items).map(|item| async move {
        let patch = world::make_release_patch(world::read_text(item, "/metadata/resourceVersion"));
        let path = format!("{}/{}", world::BINDINGS, world::read_text(item, "/metadata/name"));
        let sent = Instant::now();
        world::patch_object(client, &path, "json", &patch).await.map(|_| sent.elapsed())
    });
    let taken: Vec<anyhow::Result<Duration>> = patching.buffer_unordered(concurrency).collect().await;
    let elapsed = began.elapsed();
    Ok((elapsed, taken.into_iter().collect::<anyhow::Result<_>>()?))
}
