//! A network of switches, and the domains of the nodes at them.
//!
//! Rule for leaves (Volcano's `pkg/controllers/hypernode/discovery/ufm/ufm.go`, `classifyLeafs`): a switch with a node
//! is a leaf, and leaves that share a node are one domain, as where each adapter of a node has a leaf of its own (rail
//! by rail). Volcano puts all leaves of a fabric under one spine, whatever is between them.
//!
//! Here the links between switches say what is above. A switch is as high as it is far from the nearest node: leaves
//! are 1, what they are linked with is 2, and so on. What switches up to some height connect is one domain, and a link
//! between two switches of one height counts as one higher. So in a fat tree of three levels the leaves of a pod are in
//! its spine, and pods in what their core connects. A height at which nothing comes together that was apart makes no
//! tier. A domain is called after the first of its highest switches, so its name stays while that one does and none
//! comes before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{domain_names::DomainNames, node_names::NodeNames};
use crate::inventory::{HyperNode, HyperNodeMember};

/// Tiers that a fabric makes at most. Four levels of switches are the most that are built.
const MOST_TIERS: usize = 8;
/// Heights that are looked at: links above connect nothing. Only rings and meshes with few nodes are higher.
const MOST_HEIGHTS: usize = 32;
/// What tiers are called, from the lowest.
const TIER_NAMES: [&str; 3] = ["leaf", "spine", "core"];

/// Switches, what links them, and the hosts at them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fabric {
    /// By what tells a switch from all others.
    switches: BTreeMap<String, usize>,
    links: BTreeSet<(usize, usize)>,
    hosts: BTreeMap<String, BTreeSet<usize>>,
}

impl Fabric {
    /// Links two switches; one with itself is not linked.
    pub(super) fn link_switches(&mut self, one: &str, other: &str) {
        let (one, other) = (self.add_switch(one), self.add_switch(other));
        if one != other {
            self.links.insert((one.min(other), one.max(other)));
        }
    }

    /// Links a host with a switch.
    pub(super) fn link_host(&mut self, host: &str, switch: &str) {
        let switch = self.add_switch(switch);
        self.hosts.entry(host.to_owned()).or_default().insert(switch);
    }

    fn add_switch(&mut self, switch: &str) -> usize {
        let next = self.switches.len();
        *self.switches.entry(switch.to_owned()).or_insert(next)
    }

    /// The hosts at switches, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// The same fabric with the hosts that are nodes, by the nodes' names; and the other hosts.
    #[must_use]
    pub fn keep_nodes(self, nodes: &NodeNames) -> (Self, Vec<String>) {
        let (mut hosts, mut others) = (BTreeMap::<String, BTreeSet<usize>>::new(), Vec::new());
        for (host, switches) in self.hosts {
            match nodes.find_node(&host) {
                Some(node) => hosts.entry(node.to_owned()).or_default().extend(switches),
                None => others.push(host),
            }
        }
        (Self { hosts, ..self }, others)
    }
}

/// The domains of the hosts, each tier from the narrowest to the widest.
#[must_use]
pub fn list_fabric_domains(fabric: &Fabric) -> Vec<HyperNode> {
    let ids = list_switch_ids(fabric);
    let heights = measure_heights(fabric);
    let mut joined = join_leaves(fabric, None);
    let mut names = DomainNames::default();
    let mut domains = Vec::new();
    // Each host's first switch stands for all of its own.
    let hosts = fabric.hosts.iter().filter_map(|(host, switches)| Some((switches.first().copied()?, host)));
    let hosts = hosts.map(|(switch, host)| (switch, HyperNodeMember::Node(host.clone())));
    let mut lower = add_tier(&mut domains, hosts, &mut joined, (&heights, &ids), (1, &mut names));
    for links in list_links_by_height(fabric, &heights).into_values().take(MOST_HEIGHTS) {
        for (one, other) in links {
            joined.join(one, other);
        }
        let roots: BTreeSet<usize> = lower.iter().map(|(switch, _)| joined.find_root(*switch)).collect();
        if roots.len() == lower.len() {
            continue;
        }
        let tier = domains.last().map_or(1, |domain: &HyperNode| domain.tier + 1);
        let inner = lower.into_iter().map(|(switch, name)| (switch, HyperNodeMember::HyperNode(name)));
        lower = add_tier(&mut domains, inner, &mut joined, (&heights, &ids), (tier, &mut names));
        if tier as usize >= MOST_TIERS {
            break;
        }
    }
    domains
}

/// The switch with the most hosts, where it alone makes one leaf of several; and of how many. A switch for management
/// is such a one, where all hosts of some racks are at it.
#[must_use]
pub fn find_joining_switch(fabric: &Fabric) -> Option<(&str, usize)> {
    let ids = list_switch_ids(fabric);
    let mut hosts_at = vec![0_usize; ids.len()];
    fabric.hosts.values().flatten().for_each(|switch| hosts_at[*switch] += 1);
    let most = (0..ids.len()).max_by_key(|switch| (hosts_at[*switch], std::cmp::Reverse(ids[*switch])))?;
    let mut joined = join_leaves(fabric, Some(most));
    let at_it = fabric.hosts.values().filter(|switches| switches.contains(&most));
    let at_others = at_it.filter_map(|switches| switches.iter().find(|switch| **switch != most));
    let leaves: BTreeSet<usize> = at_others.map(|switch| joined.find_root(*switch)).collect();
    (leaves.len() > 1).then(|| (ids[most], leaves.len()))
}

/// Joins the switches of each host, as if one of them were not there.
fn join_leaves(fabric: &Fabric, without: Option<usize>) -> DisjointSets {
    let mut joined = DisjointSets::new(fabric.switches.len());
    for switches in fabric.hosts.values() {
        let mut counted = switches.iter().copied().filter(|switch| Some(*switch) != without);
        let Some(first) = counted.next() else { continue };
        counted.for_each(|other| joined.join(first, other));
    }
    joined
}

/// Adds the domains that members make which are at a switch each; a switch and the name of every new domain.
fn add_tier(
    domains: &mut Vec<HyperNode>,
    members: impl Iterator<Item = (usize, HyperNodeMember)>,
    joined: &mut DisjointSets,
    (heights, ids): (&[usize], &[&str]),
    (tier, names): (u32, &mut DomainNames),
) -> Vec<(usize, String)> {
    let mut grouped: BTreeMap<usize, Vec<HyperNodeMember>> = BTreeMap::new();
    for (switch, member) in members {
        grouped.entry(joined.find_root(switch)).or_default().push(member);
    }
    // The first of the highest switches of each.
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for switch in (0..ids.len()).filter(|switch| heights[*switch] > 0) {
        let root = joined.find_root(switch);
        let key = |switch: usize| (std::cmp::Reverse(heights[switch]), ids[switch]);
        let known = first.entry(root).or_insert(switch);
        if key(switch) < key(*known) {
            *known = switch;
        }
    }
    let numbered = format!("tier-{tier}");
    let tier_name = TIER_NAMES.get(tier as usize - 1).copied().unwrap_or(&numbered);
    let mut by_id: Vec<(&str, usize, Vec<HyperNodeMember>)> = grouped
        .into_iter()
        .map(|(root, members)| (first.get(&root).map_or("", |switch| ids[*switch]), root, members))
        .collect();
    by_id.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut added = Vec::with_capacity(by_id.len());
    for (id, root, members) in by_id {
        let name = names.choose_name(&[tier_name, id]);
        added.push((root, name.clone()));
        domains.push(HyperNode { name, tier, tier_name: tier_name.to_owned(), members });
    }
    added
}

fn list_switch_ids(fabric: &Fabric) -> Vec<&str> {
    let mut ids = vec![""; fabric.switches.len()];
    for (id, switch) in &fabric.switches {
        ids[*switch] = id.as_str();
    }
    ids
}

/// How far each switch is from the nearest host, a leaf at 1; 0 for what no host reaches.
fn measure_heights(fabric: &Fabric) -> Vec<usize> {
    let mut beside: Vec<Vec<usize>> = vec![Vec::new(); fabric.switches.len()];
    for (one, other) in &fabric.links {
        beside[*one].push(*other);
        beside[*other].push(*one);
    }
    let mut heights = vec![0; fabric.switches.len()];
    let mut next: VecDeque<usize> = VecDeque::new();
    for leaf in fabric.hosts.values().flatten().copied() {
        if heights[leaf] == 0 {
            heights[leaf] = 1;
            next.push_back(leaf);
        }
    }
    while let Some(switch) = next.pop_front() {
        for other in &beside[switch] {
            if heights[*other] == 0 {
                heights[*other] = heights[switch] + 1;
                next.push_back(*other);
            }
        }
    }
    heights
}

/// The links by the height at which they connect.
fn list_links_by_height(fabric: &Fabric, heights: &[usize]) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut links: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (one, other) in fabric.links.iter().copied().filter(|(one, _)| heights[*one] > 0) {
        let height = heights[one].max(heights[other]) + usize::from(heights[one] == heights[other]);
        links.entry(height).or_default().push((one, other));
    }
    links
}

/// Which of some numbers are connected.
struct DisjointSets {
    parents: Vec<usize>,
    sizes: Vec<usize>,
}

impl DisjointSets {
    fn new(count: usize) -> Self {
        Self { parents: (0..count).collect(), sizes: vec![1; count] }
    }

    fn find_root(&mut self, mut of: usize) -> usize {
        while self.parents[of] != of {
            self.parents[of] = self.parents[self.parents[of]];
            of = self.parents[of];
        }
        of
    }

    fn join(&mut self, one: usize, other: usize) {
        let (mut large, mut small) = (self.find_root(one), self.find_root(other));
        if large == small {
            return;
        }
        if self.sizes[large] < self.sizes[small] {
            (large, small) = (small, large);
        }
        self.parents[small] = large;
        self.sizes[large] += self.sizes[small];
    }
}

#[cfg(test)]
mod tests;
