//! `caldera sandbox`, `caldera member-sim`, `caldera karmada-sim`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use caldera_runtime::{client::WriteCounts, shutdown};
use caldera_sandbox::{
    fleet, karmada,
    member::{self, NodeGroup},
};

use crate::{
    args::{KarmadaSimArgs, MemberSimArgs, SandboxArgs},
    components::connect_client,
    output,
    stack::Stack,
};

/// Serves until a signal.
pub async fn run_sandbox(args: SandboxArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::on_signal();
    let config = fleet::Config { host: args.listen, ..fleet::Config::with_members(args.members.into()) };
    let fleet = fleet::Fleet::start(config, &stop).await?;
    let mut stack = None;
    if !args.bare {
        let stack = stack.insert(Stack::start(&fleet.host, &WriteCounts::default(), &stop).await?);
        for member in fleet.members.iter().filter(|_| args.collectors) {
            stack.collect(&member.name)?;
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
    if let Some(stack) = stack {
        stack.stopped().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a member's stand-ins until a signal.
pub async fn member_sim(args: MemberSimArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::on_signal();
    let client = connect_client(args.kubeconfig.as_deref(), "member-sim", &WriteCounts::default()).await?;
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
pub async fn karmada_sim(args: KarmadaSimArgs) -> anyhow::Result<ExitCode> {
    let stop = shutdown::on_signal();
    let client = connect_client(args.kubeconfig.as_deref(), "karmada", &WriteCounts::default()).await?;
    karmada::run(karmada::Config::default(), client, stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Parses `NAME=COUNT:RESOURCE=AMOUNT,...`.
pub fn node_group(text: &str) -> Result<NodeGroup, String> {
    let wanted = "want NAME=COUNT:RESOURCE=AMOUNT,..., for instance cpu=2:cpu=8,memory=32Gi";
    let (head, resources) = text.split_once(':').ok_or(wanted)?;
    let (prefix, count) = head.split_once('=').ok_or(wanted)?;
    let count = count.parse().map_err(|_| format!("{count:?} is not a number of nodes; {wanted}"))?;
    let mut allocatable = Vec::new();
    for part in resources.split(',') {
        let (name, amount) = part.split_once('=').ok_or(wanted)?;
        amount.parse::<caldera_core::quantity::Quantity>().map_err(|error| error.to_string())?;
        allocatable.push((name.to_owned(), amount.to_owned()));
    }
    Ok(NodeGroup { prefix: prefix.to_owned(), count, allocatable, labels: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_group_reads_back() {
        let group = node_group("gpu=2:cpu=16,nvidia.com/gpu=8").unwrap();
        assert_eq!((group.prefix.as_str(), group.count), ("gpu", 2));
        assert_eq!(group.allocatable[1], ("nvidia.com/gpu".to_owned(), "8".to_owned()));
    }

    #[test]
    fn a_bad_node_group_is_told() {
        assert!(node_group("x").unwrap_err().contains("want NAME=COUNT"));
        assert!(node_group("x=2:cpu=8Q").unwrap_err().contains("unknown suffix"));
    }
}
