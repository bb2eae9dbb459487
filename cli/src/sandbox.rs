//! Runs `caldera sandbox`, a Karmada host and members of stand-ins with Caldera on it unless `--bare` is given. Also
//! runs the stand-ins alone: `caldera member-sim` for one member, `caldera karmada-sim` for Karmada's controllers.
//!
//! A sandbox locks its directory, so that a second one can not overwrite its kubeconfigs.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use caldera_core::text::count_noun;
use caldera_runtime::{client::WriteCounts, shutdown};
use caldera_sandbox::{fleet, karmada, member};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{KarmadaSimArgs, MemberSimArgs, SandboxArgs},
    components::connect_for_command,
    output,
    stack::Stack,
};

/// Serves until a signal.
pub async fn run_sandbox(args: SandboxArgs) -> anyhow::Result<ExitCode> {
    let _claim = claim_dir(&args.dir)?;
    let stop = shutdown::cancel_on_signal();
    eprintln!("{}", describe_start(&args));
    let config = fleet::Config { host: args.listen, ..fleet::Config::with_members(args.members.into()) };
    // Caldera's components save what they account as they end: the host serves until they have.
    let fleet_stop = CancellationToken::new();
    let _fleet_ends = fleet_stop.clone().drop_guard();
    let fleet = tokio::select! {
        biased;
        started = fleet::Fleet::start(config, &fleet_stop) => started?,
        () = stop.cancelled() => return Ok(ExitCode::SUCCESS),
    };
    let mut stack = None;
    if !args.bare {
        let stack = stack.insert(Stack::start(&fleet.host, &WriteCounts::default(), &stop).await?);
        for member in fleet.members.iter().filter(|_| args.collectors) {
            stack.start_collector(&member.name)?;
        }
    }
    fleet.write_kubeconfigs(&args.dir)?;
    let mut text = format!("host     {}  {}\n", fleet.host.server, args.dir.join("host.kubeconfig").display());
    for member in &fleet.members {
        let path = args.dir.join("members").join(format!("{}.kubeconfig", member.name));
        text += &format!("{:<8} {}  {}\n", member.name, member.server, path.display());
    }
    output::write_stdout(&(text + "ready\n"));
    stop.cancelled().await;
    eprintln!("stopping: nothing of this host and its members is kept");
    if let Some(stack) = stack {
        stack.wait_until_stopped().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// What takes the seconds before anything else is printed, and how to end it.
fn describe_start(args: &SandboxArgs) -> String {
    let members = count_noun(args.members, "member");
    let caldera = if args.bare { "" } else { ", and Caldera's components" };
    format!("starting a host, {members}{caldera} in this process; Ctrl-C stops all of it")
}

/// A second sandbox in a directory would write its kubeconfigs over those of the first. The lock goes with the process,
/// however that ends.
fn claim_dir(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join(".sandbox.lock");
    fs::create_dir_all(dir).with_context(|| format!("failed to make {}", dir.display()))?;
    let file = File::create(&path).with_context(|| format!("failed to write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "a sandbox serves from {} already, and its kubeconfigs would be overwritten: stop it, or give another --dir",
            dir.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("failed to lock {}", path.display())),
    }
}

/// Runs a member's stand-ins until a signal.
pub async fn run_member_sim(args: MemberSimArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::cancel_on_signal();
    let client = connect_for_command(args.kubeconfig.as_deref(), "member-sim").await?;
    let config = member::Config {
        nodes: args.nodes,
        default_run: Duration::try_from_secs_f64(args.default_run).context("--default-run is not a time")?,
        admission: args.admission,
        workloads: !args.no_workloads,
        ..member::Config::default()
    };
    member::run(config, client, stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the Karmada stand-ins until a signal.
pub async fn run_karmada_sim(args: KarmadaSimArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::cancel_on_signal();
    let client = connect_for_command(args.kubeconfig.as_deref(), "karmada").await?;
    karmada::run(karmada::Config::default(), client, stop).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn what_starts_is_said_before_it_takes_its_seconds() {
        let words = |line: &str| {
            let Command::Sandbox(args) = Args::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("another command")
            };
            describe_start(&args)
        };
        let all = words("caldera sandbox --dir d --members 1");
        assert_eq!(all, "starting a host, 1 member, and Caldera's components in this process; Ctrl-C stops all of it");
        assert!(!words("caldera sandbox --dir d --bare").contains("components"));
    }

    #[test]
    fn a_second_sandbox_in_a_directory_is_refused_until_the_first_has_ended() {
        let dir = std::env::temp_dir().join(format!("caldera-sandbox-{}", std::process::id()));
        let first = claim_dir(&dir).unwrap();
        let refused = claim_dir(&dir).unwrap_err().to_string();
        assert!(refused.contains("already") && refused.contains("--dir"), "{refused}");
        drop(first);
        claim_dir(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
