//! Fleets: YAML or CSV of ours, `spot_nodes.csv`, `openb_nodes.csv`.
//!
//! ```yaml
//! clusters:
//! - name: east
//!   region: eu            # optional, as are provider, zones, labels
//!   nodes:
//!   - count: 4
//!     allocatable: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}
//!     labels: {disk: ssd}                                    # optional
//!     taints: [{key: gpu, value: "", effect: NoSchedule}]    # optional
//! ```
//! As CSV: `cluster,count` and a column for each resource. The public files have a node a row and no clusters: nodes of
//! one kind are dealt out in turn, so that every cluster has its part of each.

use std::collections::BTreeMap;

use caldera_core::{gang::Taint, inventory::Node, quantity::Quantity, resources::Resources};
use serde::Deserialize;

use super::{GPU, GPU_MODEL, ReadError, table::Table};
use crate::world::{self, MemberCluster};

/// Most nodes that a file may ask for; more is a slip of the pen.
const MOST_NODES: u64 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetFile {
    clusters: Vec<ClusterEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterEntry {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    zones: Vec<String>,
    nodes: Vec<NodeEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    #[serde(default = "one")]
    count: u32,
    allocatable: Resources,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<Taint>,
}

const fn one() -> u32 {
    1
}

/// Reads a fleet. A file without clusters is cut into `cut` of them, and only every `every`-th node of a kind is used.
///
/// # Errors
/// [`ReadError`], with the line.
pub fn read_fleet(text: &str, cut: u32, every: u32) -> Result<Vec<MemberCluster>, ReadError> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    let has = |names: &[&str]| names.iter().all(|name| columns.contains(name));
    if has(&["gpu_model", "gpu_capacity_num", "cpu_num"]) {
        Ok(deal_nodes_to_clusters(read_spot_nodes(text)?, cut, every))
    } else if has(&["sn", "cpu_milli", "memory_mib", "gpu"]) {
        Ok(deal_nodes_to_clusters(read_openb_nodes(text)?, cut, every))
    } else if has(&["cluster", "count"]) {
        read_fleet_table(text)
    } else {
        read_fleet_yaml(text)
    }
}

fn read_fleet_yaml(text: &str) -> Result<Vec<MemberCluster>, ReadError> {
    let file: FleetFile =
        serde_saphyr::from_str(text).map_err(|error| ReadError::File(format!("it is no fleet: {error}")))?;
    let mut made = 0;
    let mut clusters = Vec::new();
    for entry in file.clusters {
        let mut cluster = world::cluster(&entry.name, &[]);
        let place = &mut cluster.cluster;
        (place.labels, place.provider) = (entry.labels, entry.provider);
        (place.region, place.zones) = (entry.region, entry.zones);
        for (group, nodes) in entry.nodes.into_iter().enumerate() {
            add(&mut cluster, group, nodes, &mut made).map_err(ReadError::File)?;
        }
        clusters.push(cluster);
    }
    Ok(clusters)
}

fn add(cluster: &mut MemberCluster, group: usize, entry: NodeEntry, made: &mut u64) -> Result<(), String> {
    let name = &cluster.cluster.name;
    if let Some((resource, _)) = entry.allocatable.iter().find(|(_, amount)| amount.is_negative()) {
        return Err(format!("cluster {name}: {resource} is negative"));
    }
    *made += u64::from(entry.count);
    if *made > MOST_NODES {
        return Err(format!("cluster {name}: more than {MOST_NODES} nodes in all"));
    }
    for i in 0..entry.count {
        let node = world::node(format!("{name}-{group}-{i:05}"), entry.allocatable.clone());
        cluster.nodes.push(Node { labels: entry.labels.clone(), taints: entry.taints.clone(), ..node });
    }
    Ok(())
}

fn read_fleet_table(text: &str) -> Result<Vec<MemberCluster>, ReadError> {
    let table = Table::read(text, &["cluster", "count"])?;
    let mut clusters: BTreeMap<String, MemberCluster> = BTreeMap::new();
    let mut made = 0;
    for (group, row) in table.rows().enumerate() {
        let name: String = row.read("cluster")?;
        let mut allocatable = Resources::new();
        for resource in table.header.iter().filter(|name| !matches!(name.as_str(), "cluster" | "count")) {
            if let Some(amount) = row.maybe::<Quantity>(resource)? {
                allocatable.set(resource.as_str(), amount);
            }
        }
        let entry = NodeEntry { count: row.read("count")?, allocatable, labels: BTreeMap::new(), taints: Vec::new() };
        let cluster = clusters.entry(name.clone()).or_insert_with(|| world::cluster(&name, &[]));
        add(cluster, group, entry, &mut made).map_err(|what| row.wrong(what))?;
    }
    Ok(clusters.into_values().collect())
}

/// Nodes by kind; a kind's nodes in the order of the file.
type Kinds = BTreeMap<(String, Vec<i64>), Vec<Node>>;

/// `gpu_model,gpu_capacity_num,cpu_num,node_name`. It does not say how much memory there is.
fn read_spot_nodes(text: &str) -> Result<Kinds, ReadError> {
    let table = Table::read(text, &["gpu_model", "gpu_capacity_num", "cpu_num", "node_name"])?;
    let mut kinds = Kinds::new();
    for row in table.rows() {
        let (model, name): (String, String) = (row.read("gpu_model")?, row.read("node_name")?);
        let (gpus, cpus): (u32, u32) = (row.read("gpu_capacity_num")?, row.read("cpu_num")?);
        let amounts = [(GPU, i64::from(gpus)), ("cpu", i64::from(cpus))].map(|(n, a)| (n, Quantity::from_units(a)));
        let node = world::node(format!("node-{name}"), amounts.into_iter().collect());
        push(&mut kinds, model, vec![gpus.into(), cpus.into()], node);
    }
    Ok(kinds)
}

/// `sn,cpu_milli,memory_mib,gpu,model`.
fn read_openb_nodes(text: &str) -> Result<Kinds, ReadError> {
    let table = Table::read(text, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let mut kinds = Kinds::new();
    for row in table.rows() {
        let (gpus, milli, mib): (u32, u32, u32) = (row.read("gpu")?, row.read("cpu_milli")?, row.read("memory_mib")?);
        let amounts = [
            (GPU, Quantity::from_units(gpus.into())),
            ("cpu", Quantity::from_milli(milli.into())),
            ("memory", Quantity::from_units(i64::from(mib) << 20).in_binary()),
        ];
        let node = world::node(row.read("sn")?, amounts.into_iter().collect());
        push(&mut kinds, row.text("model").to_owned(), vec![gpus.into(), milli.into(), mib.into()], node);
    }
    Ok(kinds)
}

fn push(kinds: &mut Kinds, model: String, sizes: Vec<i64>, mut node: Node) {
    if !model.is_empty() {
        node.labels.insert(GPU_MODEL.to_owned(), model.clone());
    }
    kinds.entry((model, sizes)).or_default().push(node);
}

/// Deals nodes out to clusters in turn, kind after kind.
fn deal_nodes_to_clusters(kinds: Kinds, cut: u32, every: u32) -> Vec<MemberCluster> {
    let (cut, every) = (cut.max(1), every.max(1) as usize);
    let mut clusters: Vec<MemberCluster> = (1..=cut).map(|i| world::cluster(&format!("member{i:02}"), &[])).collect();
    let nodes = kinds.into_values().flat_map(|nodes| nodes.into_iter().step_by(every));
    for (i, node) in nodes.enumerate() {
        clusters[i % cut as usize].nodes.push(node);
    }
    clusters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(cluster: &MemberCluster, name: &str) -> i128 {
        cluster.nodes.iter().map(|node| node.allocatable.get(name).units_ceil()).sum()
    }

    #[test]
    fn yaml_and_csv_say_the_same() {
        let yaml = "clusters:\n- name: a\n  nodes:\n  - count: 2\n    allocatable: {cpu: 8, memory: 32Gi}\n- name: b\n  \
                    region: eu\n  nodes:\n  - allocatable: {cpu: 4, nvidia.com/gpu: 8}\n";
        let csv = "# a comment\ncluster,count,cpu,memory,nvidia.com/gpu\na,2,8,32Gi,\nb,1,4,,8\n";
        let (yaml, csv) = (read_fleet(yaml, 1, 1).unwrap(), read_fleet(csv, 1, 1).unwrap());
        for (a, b) in yaml.iter().zip(&csv) {
            let sizes = |one: &MemberCluster| -> Vec<Resources> {
                one.nodes.iter().map(|node| node.allocatable.clone()).collect()
            };
            assert_eq!((&a.cluster.name, sizes(a)), (&b.cluster.name, sizes(b)));
        }
        assert_eq!((yaml.len(), amount(&yaml[0], "cpu"), amount(&yaml[1], GPU)), (2, 16, 8));
        assert_eq!(yaml[1].cluster.region, "eu");
    }

    #[test]
    fn public_files_are_dealt_out_kind_by_kind() {
        let text =
            "gpu_model,gpu_capacity_num,cpu_num,node_name\nA,8,128,0\nA,8,128,1\nB,1,64,2\nB,1,64,3\nA,8,128,4\n";
        let two = read_fleet(text, 2, 1).unwrap();
        assert_eq!(two.iter().map(|one| amount(one, GPU)).collect::<Vec<_>>(), [17, 9]);
        assert_eq!(two[0].nodes[0].labels[GPU_MODEL], "A");
        let fewer = read_fleet(text, 1, 2).unwrap();
        assert_eq!((amount(&fewer[0], GPU), fewer[0].nodes.len()), (17, 3));
        let openb = read_fleet("sn,cpu_milli,memory_mib,gpu,model\nn,32000,1024,0,\n", 1, 1).unwrap();
        assert_eq!((amount(&openb[0], "cpu"), amount(&openb[0], "memory")), (32, 1 << 30));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        let error = |text: &str| read_fleet(text, 1, 1).unwrap_err().to_string();
        assert_eq!(error("cluster,count,cpu\na,x,4\n"), "line 2: count \"x\": invalid digit found in string");
        assert_eq!(error("cluster,count,cpu\na,1\n"), "line 2: it has 2 fields, and the header has 3");
        assert!(error("cluster,count,cpu\na,1,4cores\n").starts_with("line 2: cpu \"4cores\": "));
        assert!(error("clusters:\n- name: a\n  nods: []\n").contains("nods"));
        assert_eq!(error("cluster,count,cpu\na,1000001,4\n"), "line 2: cluster a: more than 1000000 nodes in all");
        assert!(error("").contains("no fleet"));
    }
}
