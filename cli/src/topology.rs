//! `caldera topology discover`: prints HyperNodes of the network domains that labels, `ibnetdiscover` or LLDP tell of.
//!
//! Rule: [`caldera_core::topology_discovery`] decides; here files are read and HyperNodes written. Where the nodes of
//! the member are known, a host that is none is left out and named, as storage at a spine would else make a leaf of it.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path, process::ExitCode};

use anyhow::Context;
use caldera_core::{
    inventory::HyperNode,
    text::name_some,
    topology_discovery::{
        Fabric, LldpScope, MOST_BYTES, NodeNames, TopologyLabels, find_joining_switch, join_neighbors,
        list_fabric_domains, list_label_domains, read_host_name, read_ibnetdiscover, read_neighbors,
    },
};
use caldera_crds::discovered_domains::build_hyper_node;
use serde::Deserialize;

use crate::{
    args::{DiscoverArgs, TopologyAction},
    output,
};

/// Bytes of a list of nodes: of 10,000 with all their images.
const MOST_NODE_BYTES: usize = 512 << 20;

pub fn run_topology(action: TopologyAction) -> anyhow::Result<ExitCode> {
    let TopologyAction::Discover(args) = action;
    match discover_domains(&args) {
        Ok(domains) => {
            let mut text = String::new();
            for domain in &domains {
                let yaml = serde_saphyr::to_string(&build_hyper_node(domain)).context("failed to write YAML")?;
                text += &format!("---\n{}\n", yaml.trim_end());
            }
            output::write_stdout(&text);
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            output::write_warning(&why);
            Ok(ExitCode::from(2))
        }
    }
}

/// The domains that were asked for, or what is wrong with a file.
fn discover_domains(args: &DiscoverArgs) -> Result<Vec<HyperNode>, String> {
    if args.nodes.iter().chain(&args.ibnetdiscover).filter(|path| is_stdin(path)).count() > 1 {
        return Err("only one file can be standard input".to_owned());
    }
    let nodes = args.nodes.as_deref().map(read_nodes).transpose()?;
    if let (Some(labels), Some(nodes)) = (&args.labels, &nodes) {
        return discover_by_labels(labels, nodes);
    }
    let names: Option<NodeNames> =
        nodes.as_ref().map(|nodes| nodes.iter().map(|(name, labels)| (name.as_str(), labels)).collect());
    let (fabric, others) = match &args.ibnetdiscover {
        Some(path) => {
            let fabric = read_ibnetdiscover(&read_bytes(path, MOST_BYTES)?);
            (fabric.map_err(|error| format!("{}: {error}", path.display()))?, Vec::new())
        }
        None => read_lldp_files(args, names.as_ref())?,
    };
    discover_by_fabric(fabric, others, names.as_ref())
}

fn discover_by_labels(
    labels: &TopologyLabels,
    nodes: &BTreeMap<String, BTreeMap<String, String>>,
) -> Result<Vec<HyperNode>, String> {
    let domains = list_label_domains(labels, nodes.values()).map_err(|error| format!("--labels: {error}"))?;
    if domains.is_empty() {
        let narrowest = labels.keys().last().unwrap_or_default();
        return Err(format!("--labels: of {} nodes none has label {narrowest}", nodes.len()));
    }
    Ok(domains)
}

/// The domains of a fabric's nodes. `others` are hosts that were left out before.
fn discover_by_fabric(
    fabric: Fabric,
    mut others: Vec<String>,
    names: Option<&NodeNames>,
) -> Result<Vec<HyperNode>, String> {
    let (fabric, no_nodes) = match names {
        Some(names) => fabric.keep_nodes(names),
        None => (fabric, Vec::new()),
    };
    others.extend(no_nodes);
    let domains = list_fabric_domains(&fabric);
    if domains.is_empty() {
        return Err(format!("none of the hosts is a node of --nodes: {}", name_some(&others)));
    }
    if !others.is_empty() {
        output::write_warning(&format!("hosts that are no nodes are left out: {}", name_some(&others)));
    }
    if let Some((switch, leaves)) = find_joining_switch(&fabric) {
        output::write_warning(&format!(
            "switch {switch} alone makes one leaf of {leaves}; if it is for management, leave its interfaces out"
        ));
    }
    Ok(domains)
}

/// The fabric that the files of hosts tell of, each called after its host; and the hosts that are left out.
fn read_lldp_files(args: &DiscoverArgs, names: Option<&NodeNames>) -> Result<(Fabric, Vec<String>), String> {
    let mut hosts = BTreeMap::new();
    for path in &args.lldp {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let host = read_host_name(file.strip_suffix(".json").unwrap_or(file));
        let host = host.ok_or_else(|| format!("{}: want a file with the name of its host", path.display()))?;
        let neighbors = read_neighbors(&read_bytes(path, MOST_BYTES)?);
        let neighbors = neighbors.map_err(|error| format!("{}: {error}", path.display()))?;
        if hosts.insert(host.clone(), neighbors).is_some() {
            return Err(format!("{}: there is another file of host {host}", path.display()));
        }
    }
    let scope = LldpScope { nodes: names, interfaces: &args.interfaces };
    let (fabric, others) = join_neighbors(&hosts, scope).map_err(|error| format!("--lldp: {error}"))?;
    Ok((fabric, others.into_iter().map(ToOwned::to_owned).collect()))
}

/// A list of nodes, as far as it is looked at.
#[derive(Deserialize)]
struct NodeList {
    items: Vec<ListedNode>,
}

#[derive(Deserialize)]
struct ListedNode {
    metadata: ListedMetadata,
}

#[derive(Deserialize)]
struct ListedMetadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Labels of nodes by name.
fn read_nodes(path: &Path) -> Result<BTreeMap<String, BTreeMap<String, String>>, String> {
    let list: NodeList = serde_json::from_slice(&read_bytes(path, MOST_NODE_BYTES)?)
        .map_err(|error| format!("{}: it is not what kubectl get nodes -o json prints: {error}", path.display()))?;
    Ok(list.items.into_iter().map(|node| (node.metadata.name, node.metadata.labels)).collect())
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file, or standard input, of so many bytes at most.
fn read_bytes(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
    let from: Box<dyn Read> =
        if is_stdin(path) { Box::new(std::io::stdin().lock()) } else { Box::new(File::open(path).map_err(failed)?) };
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(format!("{}: it has more than {} MiB", path.display(), most >> 20));
    }
    Ok(bytes)
}
