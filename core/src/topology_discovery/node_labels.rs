//! Domains by labels of nodes.
//!
//! Rule (Volcano's label discoverer, `pkg/controllers/hypernode/discovery/label/label.go`): of a list of labels, from
//! the widest to the narrowest, the narrowest is tier 1 and the next one tier 2. Nodes with one value of a label are
//! one domain, the tier is called like the label, and what a node lacks ends the chain for it: a node without the
//! narrowest label is in no domain. `kubernetes.io/hostname` at the end, which Volcano wants there, is the node itself.
//!
//! Where it differs: racks `1` of two zones are two domains, as topologies of Kueue have it (KEP 2724, "levels").
//! Volcano makes one of them, and has two parents for it. So a domain is told by the values from the widest label down
//! to its own, and is in no other domain where a label in between is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use super::domain_names::DomainNames;
use crate::{
    gang::{Operator, Requirement},
    inventory::{HyperNode, HyperNodeMember},
    node_affinity::HOSTNAME,
};

/// Labels that a topology may have.
pub const MOST_LABELS: usize = 8;
/// Domains that labels may make in one member. An inventory has all of them in one part.
pub const MOST_LABEL_DOMAINS: usize = 1_024;
/// Bytes that these domains may take there, about: with nodes beside them a part then stays below what etcd takes,
/// 1.5 MiB. A thousand domains of three labels of a cloud take half of it.
pub const MOST_LABEL_BYTES: usize = 1 << 20;

/// Labels of nodes that say where in the network a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyLabels {
    /// From the narrowest to the widest, each once; one at least.
    keys: Vec<String>,
}

/// Why labels make no topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyLabelsError {
    /// There is none but that of the node itself.
    #[error("it names no label; want labels from the widest to the narrowest, for instance example.org/zone,rack")]
    Empty,
    /// There are too many.
    #[error("it names more than {MOST_LABELS} labels")]
    Labels,
    /// One is there twice.
    #[error("it names label {0} twice")]
    Twice(String),
    /// The nodes have too many values.
    #[error(
        "the labels make more than {MOST_LABEL_DOMAINS} domains of the nodes; is one of them a label of its own for \
         each node?"
    )]
    Domains,
    /// Their values, or the labels themselves, are too long for so many domains.
    #[error("the domains that the labels make take more than {} KiB; name fewer labels", MOST_LABEL_BYTES >> 10)]
    Bytes,
}

impl TopologyLabels {
    /// The labels, from the widest to the narrowest.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().rev().map(String::as_str)
    }
}

impl FromStr for TopologyLabels {
    type Err = TopologyLabelsError;

    /// Reads labels from the widest to the narrowest, separated by commas. Whether each may be a label is not asked.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut keys: Vec<String> =
            text.split(',').map(str::trim).filter(|key| !key.is_empty()).map(ToOwned::to_owned).collect();
        if keys.last().is_some_and(|key| key == HOSTNAME) {
            keys.pop();
        }
        if keys.is_empty() {
            return Err(TopologyLabelsError::Empty);
        }
        if keys.len() > MOST_LABELS {
            return Err(TopologyLabelsError::Labels);
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = keys.iter().find(|key| !known.insert(key.as_str())) {
            return Err(TopologyLabelsError::Twice(twice.clone()));
        }
        keys.reverse();
        Ok(Self { keys })
    }
}

/// A domain: its tier, counted from 0, and the values of its own label and of the wider ones, up to the first that is
/// missing.
type DomainKey<'a> = (usize, &'a [&'a str]);

/// The domains that the labels of nodes make. Each selects its nodes by label, so that a node that comes is in it too.
///
/// # Errors
/// [`TopologyLabelsError::Domains`] if there are more than [`MOST_LABEL_DOMAINS`], [`TopologyLabelsError::Bytes`] if
/// they take more than [`MOST_LABEL_BYTES`].
pub fn list_label_domains<'a>(
    labels: &TopologyLabels,
    nodes: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
) -> Result<Vec<HyperNode>, TopologyLabelsError> {
    let mut chains = BTreeSet::new();
    for node in nodes {
        let values = labels.keys.iter().map_while(|key| node.get(key).map(String::as_str));
        let chain: Vec<&str> = values.collect();
        if !chain.is_empty() {
            chains.insert(chain);
        }
        if chains.len() > MOST_LABEL_DOMAINS {
            return Err(TopologyLabelsError::Domains);
        }
    }
    let keys: BTreeSet<DomainKey<'_>> =
        chains.iter().flat_map(|chain| (0..chain.len()).map(|tier| (tier, &chain[tier..]))).collect();
    if keys.len() > MOST_LABEL_DOMAINS {
        return Err(TopologyLabelsError::Domains);
    }
    let mut names = DomainNames::default();
    let mut domains: BTreeMap<DomainKey<'_>, HyperNode> = BTreeMap::new();
    for (tier, values) in keys {
        let name = names.choose_name(&name_words(&labels.keys[tier], values));
        let members = vec![HyperNodeMember::Labels(select_nodes(&labels.keys, tier, values))];
        let number = u32::try_from(tier + 1).unwrap_or(u32::MAX);
        domains.insert((tier, values), HyperNode { name, tier: number, tier_name: labels.keys[tier].clone(), members });
    }
    let inner: Vec<(DomainKey<'_>, String)> = domains.iter().map(|(key, domain)| (*key, domain.name.clone())).collect();
    for ((tier, values), name) in inner {
        if let Some(outer) = domains.get_mut(&(tier + 1, &values[1..])) {
            outer.members.push(HyperNodeMember::HyperNode(name));
        }
    }
    if domains.values().map(estimate_bytes).sum::<usize>() > MOST_LABEL_BYTES {
        return Err(TopologyLabelsError::Bytes);
    }
    Ok(domains.into_values().collect())
}

/// About what a domain takes as JSON.
fn estimate_bytes(domain: &HyperNode) -> usize {
    let of_requirement =
        |one: &Requirement| 48 + one.key.len() + one.values.iter().map(|it| it.len() + 3).sum::<usize>();
    let of_member = |member: &HyperNodeMember| match member {
        HyperNodeMember::Labels(all) => 32 + all.iter().map(of_requirement).sum::<usize>(),
        HyperNodeMember::HyperNode(name) | HyperNodeMember::Node(name) | HyperNodeMember::Pattern(name) => {
            32 + name.len()
        }
    };
    let own = 64 + domain.name.len() + domain.tier_name.len();
    own + domain.members.iter().map(of_member).sum::<usize>()
}

/// The last part of the label, and the values from the widest to its own.
fn name_words<'a>(key: &'a str, values: &[&'a str]) -> Vec<&'a str> {
    let word = key.rsplit('/').next().unwrap_or(key);
    std::iter::once(word).chain(values.iter().rev().copied()).collect()
}

/// What the labels of exactly this domain's nodes are like: its own value and those of the wider labels, any value of
/// the narrower ones, and none of the first wider one that is missing.
fn select_nodes(keys: &[String], tier: usize, values: &[&str]) -> Vec<Requirement> {
    let require = |key: &String, operator, values: Vec<String>| Requirement { key: key.clone(), operator, values };
    let own = keys[tier..].iter().zip(values);
    let mut all: Vec<Requirement> =
        own.map(|(key, value)| require(key, Operator::In, vec![(*value).to_owned()])).collect();
    all.extend(keys[..tier].iter().map(|key| require(key, Operator::Exists, Vec::new())));
    all.extend(keys.get(tier + values.len()).map(|key| require(key, Operator::DoesNotExist, Vec::new())));
    all
}

#[cfg(test)]
mod tests;
