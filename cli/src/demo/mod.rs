//! `caldera demo`: starts a sandbox and Caldera's components, plays five acts of example queues and jobs, and reports
//! the outcome.
//!
//! [`acts`] says what is shown, [`script`] plays it, [`observed`] keeps what the API showed, [`expectations`] checks
//! it, [`screen`] and [`report`] print it. The exit code is 0 only if every expectation of every act held.

mod acts;
mod expectations;
mod observed;
mod report;
mod screen;
mod script;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use caldera_core::text::count_noun;
use caldera_runtime::{client::WriteCounts, shutdown};
use caldera_sandbox::fleet::{self, Fleet};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::{
    args::DemoArgs,
    change::to_exit_code,
    output,
    stack::{Component, Stack},
    style::Style,
};
use screen::DemoScreen;
use script::Demo;

/// How long a member is out of reach until Karmada calls it not ready, and after that until its jobs are withdrawn: in
/// a demo nobody waits the minutes that these take elsewhere.
const NOT_READY_AFTER: Duration = Duration::from_secs(3);
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// Runs the demo.
pub async fn run_demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::cancel_on_signal();
    let started = Instant::now();
    let screen = DemoScreen::new(started, args.json);
    screen.print_opening();
    let counts = WriteCounts::default();
    let config = fleet::Config { not_ready_after: NOT_READY_AFTER, ..fleet::Config::with_members(3) };
    // Caldera's components save what they account as they end: the host serves until they have.
    let fleet_stop = CancellationToken::new();
    let _fleet_ends = fleet_stop.clone().drop_guard();
    let fleet = tokio::select! {
        biased;
        started = Fleet::start(config, &fleet_stop) => started?,
        () = stop.cancelled() => anyhow::bail!("interrupted"),
    };
    let sandbox_ready = started.elapsed();
    if let Some(dir) = &args.dir {
        fleet.write_kubeconfigs(dir)?;
    }
    let mut stack = Stack::start(&fleet.host, &counts, &stop).await?;
    stack.controller_config_mut().member_lost_after = Some(LOST_AFTER);
    stack.kill(Component::Controller).await;
    stack.restart_component(Component::Controller).await?;
    screen.print_line(&format!(
        "a Karmada host and {}, ready after {sandbox_ready:.1?}",
        count_noun(fleet.members.len(), "member")
    ));
    let viewer = fleet.host.client("demo", &WriteCounts::default())?;
    let mut demo = Demo::new(viewer, &fleet, screen, counts.clone(), &stop);

    let deadline = started + Duration::from_secs(args.deadline);
    let played = tokio::select! {
        biased;
        played = demo.play_acts(deadline) => played,
        () = stop.cancelled() => anyhow::bail!("interrupted"),
    };
    let (writes, total) = (counts.read_counts(), started.elapsed());
    let summary = report::Summary::new(&demo.observed, writes, demo.setup_writes, sandbox_ready, total);
    if args.json {
        output::write_stdout(&(serde_json::to_string_pretty(&summary)? + "\n"));
    } else {
        output::try_write(&summary.format_report(Style::of_stdout()));
    }
    if let Err(error) = played {
        output::write_warning(&format!("{error:#}"));
    }
    demo.screen.print_closing();
    if args.keep {
        if let Some(dir) = &args.dir {
            eprintln!(
                "kept: kubectl --kubeconfig {} get jobs.batch.volcano.sh; Ctrl-C ends it",
                dir.join("host.kubeconfig").display()
            );
        } else {
            eprintln!("kept until Ctrl-C at {} (give --dir to have kubeconfigs)", fleet.host.server);
        }
        stop.cancelled().await;
    }
    stop.cancel();
    stack.wait_until_stopped().await;
    Ok(to_exit_code(summary.all_held()))
}
