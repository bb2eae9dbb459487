//! The webhook over TLS on the loopback, load generator in the same process.

mod load;
mod reviews;

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use caldera_runtime::tls::{Authority, server_config};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    figures::{Runs, format_millis},
    world,
};
use load::{Protocol, Target};
use reviews::Review;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Bytes of a review.
    #[arg(long, default_value_t = 8192)]
    size: usize,
    /// Reviews a second where the rate is fixed.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Length of a run.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Jobs and bindings that the webhook remembers.
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Only the largest job, alone and beside others.
    #[arg(long)]
    largest: bool,
}

pub async fn run_benchmark(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let target = start_webhook(args.objects, &stop).await?;
    let lasts = Duration::from_secs(args.seconds);
    let kinds = [
        ("ResourceBinding", reviews::make_binding_reviews(args.objects, args.size)),
        ("Work", reviews::make_work_reviews(args.objects, args.size)),
    ];
    for (kind, reviews) in kinds.iter().filter(|_| !args.largest) {
        load::check_answers(&target, reviews).await?;
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let what = format!("{kind} {protocol:?}, {} connections, {} bytes", args.connections, args.size);
            let mut rates = Runs::default();
            let mut answers = Runs::default();
            // The first run warms up.
            for run in 0..=args.runs {
                let (rate, taken) = load::load_closed_loop(&target, protocol, args.connections, reviews, lasts).await?;
                if run > 0 {
                    rates.push(rate);
                    answers.push(taken.p99().as_secs_f64() * 1e3);
                }
            }
            println!("{what}: full speed, reviews/s {rates}; p99 in ms {answers}");
            let [mut p50, mut p99, mut p999, mut late] = [(); 4].map(|()| Runs::default());
            for _ in 0..args.runs {
                let seen = load::load_open_loop(&target, protocol, args.connections, reviews, args.rate, lasts).await?;
                for (runs, of) in [
                    (&mut p50, seen.taken.percentile(5_000)),
                    (&mut p99, seen.taken.p99()),
                    (&mut p999, seen.taken.percentile(9_990)),
                ] {
                    runs.push(of.as_secs_f64() * 1e3);
                }
                late.push(seen.late.p99().as_secs_f64() * 1e3);
                println!("  {}; clock late p99 {} ms", seen.taken, format_millis(seen.late.p99()));
            }
            println!("{what}: at {}/s, ms: p50 {p50}; p99 {p99}; p999 {p999}; clock late p99 {late}", args.rate);
        }
    }
    beside_the_largest(&target, &args, &kinds[0].1).await
}

/// Reviews at a fixed rate while the largest jobs are reviewed, one after the other on a connection of its own.
async fn beside_the_largest(target: &Target, args: &Args, small: &[Review]) -> anyhow::Result<()> {
    let lasts = Duration::from_secs(args.seconds);
    for path in ["/mutate-job", "/validate-job"] {
        let large = [reviews::make_largest_review(path)];
        let bytes = large[0].body.len();
        println!("{path}, the largest job without HTTP and TLS: {}", measure_floor(&large[0].body));
        let (alone, taken) = load::load_closed_loop(target, Protocol::Http2, 1, &large, lasts).await?;
        let fastest = format_millis(taken.percentile(1));
        println!("{path}, the largest job, {bytes} bytes: alone {alone:.1} a second; fastest {fastest}, {taken}");
        let (at_rate, beside) = tokio::try_join!(
            load::load_open_loop(target, Protocol::Http2, args.connections, small, args.rate, lasts),
            load::load_closed_loop(target, Protocol::Http2, 1, &large, lasts),
        )?;
        println!("{path}, the largest job beside {} reviews a second: {}", args.rate, beside.1);
        let late = format_millis(at_rate.late.p99());
        println!("{} reviews a second beside the largest job: {}; clock late p99 {late} ms", args.rate, at_rate.taken);
    }
    Ok(())
}

/// What a review that makes values of this body can not be faster than: serde_json alone. The fastest of some.
fn measure_floor(body: &[u8]) -> String {
    let fastest = |work: &dyn Fn() -> bool| {
        let taken = (0..10).map(|_| {
            let began = Instant::now();
            std::hint::black_box(work());
            began.elapsed()
        });
        format_millis(taken.min().unwrap_or_default())
    };
    let made = fastest(&|| serde_json::from_slice::<Value>(body).is_ok());
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let written = fastest(&|| serde_json::to_vec(&value).is_ok());
    format!("serde_json makes and drops its values in {made} ms, writes them in {written} ms")
}

/// A webhook that remembers `objects` jobs with their bindings.
async fn start_webhook(objects: usize, stop: &CancellationToken) -> anyhow::Result<Target> {
    let (_server, client) = world::start_host().await?;
    world::create_all(&client, world::JOBS, (0..objects).map(|i| world::make_job(i, "q0"))).await?;
    world::create_all(&client, world::BINDINGS, (0..objects).map(reviews::make_placed_binding)).await?;
    let authority = Authority::new("caldera-webhook")?;
    let identity = authority.issue_server_identity("caldera-webhook", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
    let (listener, address) = world::open_listener()?;
    let config = caldera_webhook::Config::new(listener, server_config(&identity)?.into());
    let ready = config.ready.clone();
    let (running, stopped) = (client.clone(), stop.clone());
    tokio::spawn(async move {
        if let Err(error) = caldera_webhook::run(config, running, stopped).await {
            eprintln!("the webhook stopped: {error}");
        }
    });
    while !ready.is_ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Target { address, ca_pem: authority.cert_pem })
}
