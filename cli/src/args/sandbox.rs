//! What the demo, the sandbox and its stand-ins take.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args as ClapArgs;

use super::values::parse_node_group;

#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    /// Prints one JSON document instead of progress and tables.
    #[arg(long)]
    pub json: bool,
    /// Leaves everything running at the end, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
    /// With --keep: where kubeconfigs are written.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Gives up after this many seconds.
    #[arg(long, default_value_t = 55)]
    pub deadline: u64,
}

#[derive(Debug, ClapArgs)]
pub struct SandboxArgs {
    /// Where `host.kubeconfig` and `members/NAME.kubeconfig` are written.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// How many members.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub members: u16,
    /// Where the host's API server listens; port 0 for any.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Only the servers and the stand-ins, without Caldera's own components.
    #[arg(long)]
    pub bare: bool,
    /// A collector for each member too, which publishes its nodes: `kubectl get clusterinventories`. It writes also
    /// when nothing happens, a heartbeat each 30 s.
    #[arg(long, conflicts_with = "bare")]
    pub collectors: bool,
}

#[derive(Debug, ClapArgs)]
pub struct MemberSimArgs {
    /// Kubeconfig of the member; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Simulated nodes: NAME=COUNT:RESOURCE=AMOUNT,... (may be repeated), for instance cpu=2:cpu=8,memory=32Gi.
    #[arg(long = "nodes", value_name = "GROUP", value_parser = parse_node_group)]
    pub nodes: Vec<caldera_sandbox::member::NodeGroup>,
    /// Seconds that a pod runs if its manifest says nothing.
    #[arg(long, default_value_t = 2.0)]
    pub default_run: f64,
    /// Leaves Deployments, StatefulSets and batch Jobs to a kube-controller-manager.
    #[arg(long)]
    pub no_workloads: bool,
    /// Where the simulated Volcano's admission listens; the API server must reach it.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub admission: SocketAddr,
}

#[derive(Debug, ClapArgs)]
pub struct KarmadaSimArgs {
    /// Kubeconfig of the host; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
