//! Runs the subcommand that the command line names.

use std::process::ExitCode;

use crate::{args::Command, components, demo, manifests, queue, sandbox, simulate, why};

/// Runs a subcommand to its end.
///
/// # Errors
/// What it failed at, as a chain of causes.
pub async fn run_command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run_demo(args).await,
        Command::Sandbox(args) => sandbox::run_sandbox(args).await,
        Command::MemberSim(args) => sandbox::member_sim(args).await,
        Command::KarmadaSim(args) => sandbox::karmada_sim(args).await,
        Command::Webhook(args) => components::run_webhook(args).await,
        Command::Controller(args) => components::run_controller(args).await,
        Command::Scheduler(args) => components::run_scheduler(args).await,
        Command::Inventory(args) => components::run_collector(args).await,
        Command::Estimator(args) => components::run_estimator(args).await,
        Command::Manifests(args) => manifests::print_manifests(&args),
        Command::Why(args) => why::run_why(args).await,
        Command::Queue(args) => queue::run_queue(args).await,
        Command::Simulate(args) => simulate::run_simulate(args).await,
    }
}
