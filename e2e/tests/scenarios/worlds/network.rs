//! Clusters as bridges, pods as network namespaces behind them, and between the clusters links of 100 Mbit/s (`tbf`).

use std::{collections::BTreeMap, net::Ipv4Addr, process::Command};

use anyhow::{Context, ensure};

/// See the module. What it laid goes with it.
pub(super) struct Network {
    /// The namespace of each cluster's bridge, and its part of the addresses.
    clusters: BTreeMap<String, (String, u8)>,
    namespaces: Vec<String>,
}

/// Where a pod is.
pub(super) struct PodPlace {
    pub(super) namespace: String,
    pub(super) address: Ipv4Addr,
}

impl Network {
    pub(super) fn lay(clusters: &[String]) -> anyhow::Result<Self> {
        let mut network = Self { clusters: BTreeMap::new(), namespaces: Vec::new() };
        for (at, cluster) in (0..).zip(clusters) {
            let namespace = network.add_namespace()?;
            run("ip", &["-n", &namespace, "link", "add", "br0", "type", "bridge"])?;
            run("ip", &["-n", &namespace, "link", "set", "br0", "up"])?;
            network.clusters.insert(cluster.clone(), (namespace, at));
        }
        let bridges: Vec<&str> = network.clusters.values().map(|(namespace, _)| namespace.as_str()).collect();
        for (at, pair) in bridges.windows(2).enumerate() {
            let link = format!("wan{at}");
            run("ip", &["-n", pair[0], "link", "add", &link, "type", "veth", "peer", "name", &link, "netns", pair[1]])?;
            for bridge in pair {
                run("ip", &["-n", bridge, "link", "set", &link, "master", "br0", "up"])?;
                let limit = ["rate", "100mbit", "burst", "64kb", "latency", "400ms"];
                run("tc", &[&["-n", bridge, "qdisc", "add", "dev", &link, "root", "tbf"][..], &limit].concat())?;
            }
        }
        Ok(network)
    }

    pub(super) fn add_pod(&mut self, cluster: &str) -> anyhow::Result<PodPlace> {
        let (bridge, part) = self.clusters.get(cluster).cloned().context("a cluster without a bridge")?;
        let namespace = self.add_namespace()?;
        let number = u8::try_from(self.namespaces.len())?;
        let (address, port) = (Ipv4Addr::new(10, 213, part, number), format!("pod{number}"));
        run("ip", &["-n", &namespace, "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns", &bridge])?;
        run("ip", &["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
        run("ip", &["-n", &namespace, "addr", "add", &format!("{address}/16"), "dev", "eth0"])?;
        run("ip", &["-n", &namespace, "link", "set", "eth0", "up"])?;
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"])?;
        Ok(PodPlace { namespace, address })
    }

    fn add_namespace(&mut self) -> anyhow::Result<String> {
        let namespace = format!("caldera-{}-{}", std::process::id(), self.namespaces.len());
        run("ip", &["netns", "add", &namespace])?;
        self.namespaces.push(namespace.clone());
        Ok(namespace)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = run("ip", &["netns", "del", namespace]);
        }
    }
}

fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("starting {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), said.trim());
    Ok(())
}
