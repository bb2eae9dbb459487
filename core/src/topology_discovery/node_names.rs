//! Which node a host is. Rule: a network knows hosts by their host names, which may be a node's name, its label
//! `kubernetes.io/hostname`, or either without its domain (`rdma-ndd` writes it so). The first of these that a node has
//! counts; a name that two nodes have is neither's.

use std::collections::{BTreeMap, BTreeSet};

use crate::node_affinity::HOSTNAME;

/// The nodes of a member by the names of their hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNames {
    nodes: BTreeSet<String>,
    /// By other names; `None` where several nodes have it.
    others: [BTreeMap<String, Option<String>>; 2],
}

impl NodeNames {
    /// The node that a host is, if it is one.
    #[must_use]
    pub fn find_node(&self, host: &str) -> Option<&str> {
        if let Some(node) = self.nodes.get(host) {
            return Some(node);
        }
        self.others.iter().find_map(|names| names.get(host)).and_then(Option::as_deref)
    }
}

impl<'a> FromIterator<(&'a str, &'a BTreeMap<String, String>)> for NodeNames {
    /// Of names of nodes and their labels.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a BTreeMap<String, String>)>>(nodes: I) -> Self {
        let mut all = Self::default();
        for (node, labels) in nodes {
            all.nodes.insert(node.to_owned());
            let hostname = labels.get(HOSTNAME).map(|name| name.to_ascii_lowercase());
            let shorten = |name: &str| name.split('.').next().map(ToOwned::to_owned);
            let short = [Some(node), hostname.as_deref()].map(|name| name.and_then(shorten));
            let [hostnames, short_names] = &mut all.others;
            hostname.into_iter().for_each(|name| insert_name(hostnames, name, node));
            short.into_iter().flatten().for_each(|name| insert_name(short_names, name, node));
        }
        all
    }
}

/// The node's by this name, or nobody's where another has it too.
fn insert_name(names: &mut BTreeMap<String, Option<String>>, name: String, node: &str) {
    let known = names.entry(name).or_insert_with(|| Some(node.to_owned()));
    if known.as_deref() != Some(node) {
        *known = None;
    }
}

/// A host's name as nodes have it; `None` where no node can have it.
#[must_use]
pub fn read_host_name(text: &str) -> Option<String> {
    let name = text.to_ascii_lowercase();
    let is_part = |part: &str| {
        part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    (name.len() <= 253 && name.split('.').all(is_part)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_the_node_of_its_name_its_hostname_or_its_short_name() {
        let label = |name: &str| BTreeMap::from([(HOSTNAME.to_owned(), name.to_owned())]);
        let (none, b, c, d) = (BTreeMap::new(), label("B.example"), label("n1.example"), label("n1.other"));
        let nodes = [("a.example", &none), ("node-b", &b), ("node-c", &c), ("node-d", &d), ("n1", &none)];
        let names: NodeNames = nodes.into_iter().collect();
        let find = |host| names.find_node(host);
        assert_eq!(
            [find("a.example"), find("a"), find("b"), find("b.example")].map(Option::unwrap_or_default),
            ["a.example", "a.example", "node-b", "node-b"]
        );
        // A node's own name is before what others are called.
        assert_eq!((find("n1"), find("n1.other"), find("x")), (Some("n1"), Some("node-d"), None));
        let names: NodeNames = [("node-c", &c), ("node-d", &d)].into_iter().collect();
        assert_eq!(names.find_node("n1"), None);
    }

    #[test]
    fn a_node_whose_hostname_is_another_is_known_by_both_short_names() {
        let label = |name: &str| BTreeMap::from([(HOSTNAME.to_owned(), name.to_owned())]);
        let (a, b) = (label("gpu-1.x"), label("node-a"));
        let names: NodeNames = [("ip-10-0-0-1.ec2.internal", &a), ("node-b.x", &b)].into_iter().collect();
        for host in ["ip-10-0-0-1", "gpu-1", "gpu-1.x"] {
            assert_eq!(names.find_node(host), Some("ip-10-0-0-1.ec2.internal"), "{host}");
        }
        assert_eq!((names.find_node("node-a"), names.find_node("node-b")), (Some("node-b.x"), Some("node-b.x")));
    }

    #[test]
    fn a_name_that_no_node_can_have_is_none() {
        assert_eq!(read_host_name("GPU-01.example").as_deref(), Some("gpu-01.example"));
        for text in ["", "-a", "a-", "a_b", "a..b", "a b", "\u{e4}", &"x".repeat(254)] {
            assert_eq!(read_host_name(text), None, "{text}");
        }
    }
}
