//! Arguments of `caldera topology`.

use std::path::PathBuf;

use caldera_core::topology_discovery::TopologyLabels;
use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::values::parse_topology_labels;

/// How it ends.
const DISCOVER_EXIT: &str = "Exit codes: 0 HyperNodes are printed; 2 wrong usage, or a file that is cut short, is \
                             something else, or says nothing of nodes.";

#[derive(Debug, Subcommand)]
pub enum TopologyAction {
    /// Prints HyperNodes to apply in a member, with `kubectl apply -f -`: domains by labels of its nodes, or by what
    /// tools say of its switches.
    #[command(after_help = DISCOVER_EXIT)]
    Discover(DiscoverArgs),
}

#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("source").required(true).args(["labels", "ibnetdiscover", "lldp"])))]
pub struct DiscoverArgs {
    /// Labels of nodes, from that of the widest domain to that of the narrowest, as in
    /// `example.org/zone,example.org/rack`. kubernetes.io/hostname at the end means nothing.
    #[arg(long, value_name = "LABELS", value_parser = parse_topology_labels, requires = "nodes")]
    pub labels: Option<TopologyLabels>,
    /// What `ibnetdiscover` prints of an InfiniBand fabric; - for standard input.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub ibnetdiscover: Option<PathBuf>,
    /// What `lldpcli show neighbors -f json` prints on each host, in files NODE.json. With --nodes, files of switches
    /// that run lldpd too.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub lldp: Vec<PathBuf>,
    /// Interfaces of nodes that are on the network, as in `eth2,eth3`. Without it those for management count too.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "lldp")]
    pub interfaces: Vec<String>,
    /// What `kubectl get nodes -o json` prints in the member; - for standard input. Without it every host with a file
    /// of --lldp counts as a node of its name.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
}
