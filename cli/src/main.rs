//! The `caldera` binary: starts logging, runs the subcommand of the command line, and prints its error.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let args = caldera_cli::args::Args::parse();
    caldera_runtime::tls::install_provider();
    caldera_runtime::telemetry::start_logging(args.command.default_log_filter(), args.log_format.into());
    match caldera_cli::command::run_command(args.command).await {
        Ok(code) => code,
        Err(error) => {
            let text = caldera_cli::output::describe_failure(&error);
            caldera_cli::output::write_warning(&text);
            ExitCode::FAILURE
        }
    }
}
