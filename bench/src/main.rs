//! Benchmarks of whole components: each subcommand is one question, answered with percentiles and with the spread of
//! several runs. What was measured is written down in `docs/benchmarks.md`.
//!
//! Servers and load run in this process on purpose: the numbers include the price of the load.
#![forbid(unsafe_code)]

mod apiserver;
mod baseline;
mod figures;
mod host;
mod machine;
mod place;
mod process;
mod relay;
mod release;
mod soak;
mod takeover;
mod webhook;
mod world;
mod writes;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "caldera-bench", about = "Benchmarks of Caldera's components; see docs/benchmarks.md")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Reviews a second, and how long one takes at a fixed rate, over TLS.
    Webhook(webhook::Args),
    /// From freed quota to the gate's patch with thousands waiting; memory; restart.
    Release(release::Args),
    /// The scheduler against the API server's floor, with thousands released at once; writes a binding.
    Place(place::Args),
    /// API writes of a job's whole life, by component.
    Writes(writes::Args),
    /// Kueue's baseline scenario: time to admission, writes a job, CPU and memory, on any API server.
    Baseline(baseline::Args),
    /// Hours of jobs against real processes that are killed and stopped: what was lost, and what memory does.
    Soak(soak::Args),
    /// From the loss of the controller that holds the Lease to the next release by the other one.
    Takeover(takeover::Args),
    /// Gate patches a second against the embedded API server: the floor for everything else.
    Apiserver(apiserver::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    caldera_runtime::tls::install_provider();
    let result = match parse_component() {
        Some(args) => {
            caldera_runtime::telemetry::start_logging("warn", args.log_format.into());
            caldera_cli::command::run_command(args.command).await
        }
        None => {
            caldera_runtime::telemetry::start_logging("error", caldera_runtime::telemetry::Format::Text);
            run_command(Args::parse().command).await.map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("caldera-bench: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run_command(command: Command) -> anyhow::Result<()> {
    machine::print_machine();
    match command {
        Command::Webhook(args) => webhook::run_benchmark(args).await?,
        Command::Release(args) => release::run_benchmark(args).await?,
        Command::Place(args) => place::run_benchmark(args).await?,
        Command::Writes(args) => writes::run_benchmark(args).await?,
        Command::Baseline(args) => baseline::run_benchmark(args).await?,
        Command::Soak(args) => soak::run_benchmark(args).await?,
        Command::Takeover(args) => takeover::run_benchmark(args).await?,
        Command::Apiserver(args) => apiserver::run_benchmark(args).await?,
    }
    machine::print_load("at the end");
    Ok(())
}

/// `caldera-bench caldera <args>` is the `caldera` command: a component under measure runs in a process of its own, and
/// still is what was built with this benchmark.
fn parse_component() -> Option<caldera_cli::args::Args> {
    let mut args = std::env::args_os().skip(1).peekable();
    (args.peek()? == "caldera").then(|| caldera_cli::args::Args::parse_from(args))
}
