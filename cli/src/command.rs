//! Runs the subcommand that the command line names.

use std::process::ExitCode;

use crate::{
    args::Command, cluster, completion, components, console, demo, doctor, events, history, install, job, manifests,
    output, queue, reservation, sandbox, server, shadow, simulate, top, topology, uninstall, upgrade, usage, why,
};

/// Runs a subcommand to its end.
///
/// # Errors
/// What it failed at, as a chain of causes.
pub async fn run_command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run_demo(args).await,
        Command::Sandbox(args) => sandbox::run_sandbox(args).await,
        Command::MemberSim(args) => sandbox::run_member_sim(args).await,
        Command::KarmadaSim(args) => sandbox::run_karmada_sim(args).await,
        Command::Webhook(args) => components::run_webhook(args).await,
        Command::Controller(args) => components::run_controller(args).await,
        Command::Scheduler(args) => components::run_scheduler(args).await,
        Command::Server(args) => server::run_server(*args).await,
        Command::Inventory(args) => components::run_collector(args).await,
        Command::Console(args) => console::run_console(args).await,
        Command::Estimator(args) => components::run_estimator(args).await,
        Command::Manifests(args) => manifests::print_manifests(&args),
        Command::Install(args) => install::run_install(*args).await,
        Command::Upgrade(args) => upgrade::run_upgrade(*args).await,
        Command::Why(args) => why::run_why(args).await,
        Command::Queue(args) => queue::run_queue(args).await,
        Command::Job(action) => job::run_job(action).await,
        Command::Events(args) => events::run_events(args).await,
        Command::Cluster(action) => cluster::run_cluster(action).await,
        Command::Reservation(action) => reservation::run_reservation(action).await,
        Command::Pause(args) => queue::pause_releases(args).await,
        Command::Unpause(args) => queue::unpause_releases(args).await,
        Command::History(args) => history::run_history(args).await,
        Command::Usage(args) => usage::run_usage(args).await,
        Command::Shadow(args) => shadow::run_shadow(args).await,
        Command::Top(args) => top::run_top(args).await,
        Command::Topology(action) => topology::run_topology(action),
        Command::Completions { shell } => {
            output::write_script(&completion::build_script(shell)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor(args) => doctor::run_doctor(args).await,
        Command::Uninstall(args) => uninstall::run_uninstall(args).await,
        Command::Simulate(args) => simulate::run_simulate(args).await,
    }
}
