//! The `caldera` binary: starts logging, runs the subcommand of the command line, and prints its error.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use caldera_runtime::{
    otlp::{choose_endpoint, start_span_exporter},
    telemetry::start_logging_and_tracing,
};
use clap::FromArgMatches;

fn main() -> ExitCode {
    match caldera_cli::completion::answer_completion() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => run(),
        Err(error) => error.exit(),
    }
}

#[tokio::main]
async fn run() -> ExitCode {
    let matches = caldera_cli::completion::name_command().get_matches();
    let args = caldera_cli::args::Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    caldera_runtime::tls::install_provider();
    let service = format!("caldera-{}", matches.subcommand_name().unwrap_or_default());
    let process = args.command.process();
    let collector = process
        .and_then(|args| choose_endpoint(args.otlp_endpoint.as_deref(), |variable| std::env::var(variable).ok()));
    let started = collector.as_ref().map(|collector| start_span_exporter(&collector.url, &service)).transpose();
    let (otlp, ignored) = match (started, collector.and_then(|collector| collector.variable)) {
        (Ok(otlp), _) => (otlp, None),
        // It may be meant for others.
        (Err(error), Some(variable)) => (None, Some((error, variable))),
        (Err(error), None) => {
            caldera_cli::output::write_warning(&caldera_cli::output::describe_failure(&error.into()));
            return ExitCode::FAILURE;
        }
    };
    start_logging_and_tracing(args.command.default_log_filter(), args.log_format.into(), otlp);
    if let Some((error, variable)) = ignored {
        tracing::warn!(variable, %error, "the variable is not understood: no spans are sent");
    }
    match caldera_cli::command::run_command(args.command).await {
        Ok(_) if caldera_cli::output::is_output_lost() => ExitCode::FAILURE,
        Ok(code) => code,
        Err(error) => {
            let text = caldera_cli::output::describe_failure(&error);
            caldera_cli::output::write_warning(&text);
            ExitCode::FAILURE
        }
    }
}
