//! The network domains of a member: Volcano's HyperNodes, as a tree over its nodes.
//!
//! Rule: Volcano's `HyperNodesInfo` (`pkg/scheduler/api/hyper_node_info.go`): a HyperNode holds the nodes that its
//! members select by name, by pattern or by label, and the HyperNodes that it names; a HyperNode has one parent. Above
//! them all is a root with every node, one tier higher than the highest ([`Domains::cluster_tier`]).
//!
//! Here a node is in one domain only, the lowest that selects it (by tier, then name), and in that one's ancestors:
//! where HyperNodes of one tier overlap, a node counts for the first, so that a domain may look smaller than it is but
//! never larger.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use regex::Regex;

use super::NodeRef;
use crate::gang::{Operator, Requirement};

/// A member's HyperNode as the inventory needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HyperNode {
    /// Name.
    pub name: String,
    /// Lower is closer.
    pub tier: u32,
    /// What the tier is called; may be empty.
    pub tier_name: String,
    /// What is in it.
    pub members: Vec<HyperNodeMember>,
}

/// Members of a HyperNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HyperNodeMember {
    /// The node of this name.
    Node(String),
    /// Nodes in whose name the pattern is found. One that can not be read finds none.
    Pattern(String),
    /// Nodes with these labels. No requirement selects none.
    Labels(Vec<Requirement>),
    /// The HyperNode of this name.
    HyperNode(String),
}

/// A domain's place in [`Domains`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u32);

impl DomainId {
    /// The domain at an index.
    #[must_use]
    pub const fn at(index: u32) -> Self {
        Self(index)
    }

    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A network domain below the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Name of the HyperNode.
    pub name: Arc<str>,
    /// Lower is closer.
    pub tier: u32,
    /// What the tier is called; may be empty.
    pub tier_name: Arc<str>,
    /// The domain around it; `None` for the cluster.
    pub parent: Option<DomainId>,
    /// Alternatives that select exactly its nodes by label; `None` where names select some.
    pub labels: Option<Vec<Vec<Requirement>>>,
}

/// Domains by tier, then name: each comes before its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains {
    all: Vec<Domain>,
}

impl Domains {
    /// All, with their places.
    pub fn iter(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (0..).map(DomainId).zip(&self.all)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True for a member without HyperNodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The domain at a place.
    #[must_use]
    pub fn get(&self, id: DomainId) -> Option<&Domain> {
        self.all.get(id.index())
    }

    /// The tier of the whole cluster: one above the highest HyperNode, as Volcano's virtual root has it.
    #[must_use]
    pub fn cluster_tier(&self) -> u32 {
        self.all.last().map_or(1, |highest| highest.tier.saturating_add(1))
    }

    /// A domain and those around it, up to the cluster.
    pub fn self_and_ancestors(&self, from: DomainId) -> impl Iterator<Item = DomainId> {
        std::iter::successors(Some(from), |id| self.get(*id)?.parent)
    }

    /// Whether a domain is `outer` or within it.
    #[must_use]
    pub fn within(&self, inner: DomainId, outer: DomainId) -> bool {
        inner <= outer && self.self_and_ancestors(inner).any(|id| id == outer)
    }
}

/// Which domain each node is in.
#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    names: BTreeMap<String, DomainId>,
    patterns: Vec<(Regex, DomainId)>,
    /// By one label that must have this value; what else is asked for is in the list.
    labels: BTreeMap<String, BTreeMap<String, Vec<Labelled>>>,
    others: Vec<Labelled>,
}

type Labelled = (Vec<Requirement>, DomainId);

impl Matcher {
    /// The lowest domain that selects a node.
    pub(super) fn lowest_domain_of(&self, node: &NodeRef) -> Option<DomainId> {
        let name = &**node.name();
        let by_pattern = self.patterns.iter().filter(|(pattern, _)| pattern.is_match(name)).map(|(_, id)| *id);
        let found = self.lowest_domain_by_labels(node).into_iter().chain(by_pattern);
        found.chain(self.names.get(name).copied()).min()
    }

    /// The same of a node whose name is not known yet.
    pub(super) fn lowest_domain_by_labels(&self, node: &NodeRef) -> Option<DomainId> {
        let label = |key: &str| node.label(key);
        let fits = |(wanted, id): &Labelled| wanted.iter().all(|one| one.matches(label(&one.key))).then_some(*id);
        let by_label =
            self.labels.iter().filter_map(|(key, values)| values.get(label(key)?)).flatten().filter_map(fits);
        by_label.chain(self.others.iter().filter_map(fits)).min()
    }

    fn add_member(&mut self, member: &HyperNodeMember, id: DomainId) {
        match member {
            HyperNodeMember::Node(name) => {
                let known = self.names.entry(name.clone()).or_insert(id);
                *known = id.min(*known);
            }
            HyperNodeMember::Pattern(pattern) => {
                self.patterns.extend(Regex::new(pattern).ok().map(|regex| (regex, id)));
            }
            HyperNodeMember::Labels(wanted) if wanted.is_empty() => {}
            HyperNodeMember::Labels(wanted) => {
                let Some(first) = wanted.iter().find(|one| one.operator == Operator::In) else {
                    self.others.push((wanted.clone(), id));
                    return;
                };
                let values = self.labels.entry(first.key.clone()).or_default();
                for value in &first.values {
                    values.entry(value.clone()).or_default().push((wanted.clone(), id));
                }
            }
            HyperNodeMember::HyperNode(_) => {}
        }
    }
}

/// The tree that these HyperNodes make, and how nodes find their place in it. A member that is not there, is not lower
/// than the HyperNode that names it, or was named by another one before, is not taken.
pub(super) fn build_tree<'a>(nodes: impl Iterator<Item = &'a HyperNode>) -> (Domains, Matcher) {
    let mut nodes: Vec<&HyperNode> = nodes.collect();
    nodes.sort_by(|a, b| (a.tier, &a.name).cmp(&(b.tier, &b.name)));
    let ids: BTreeMap<&str, DomainId> = nodes.iter().map(|node| node.name.as_str()).zip((0..).map(DomainId)).collect();
    let mut all: Vec<Domain> = Vec::with_capacity(nodes.len());
    let mut matcher = Matcher::default();
    for (id, node) in (0..).map(DomainId).zip(&nodes) {
        // Alternatives; none of a member that names say.
        let mut labels: Option<Vec<Vec<Requirement>>> = Some(Vec::new());
        for member in &node.members {
            matcher.add_member(member, id);
            match member {
                HyperNodeMember::Labels(wanted) if wanted.is_empty() => {}
                HyperNodeMember::Labels(wanted) => labels.iter_mut().for_each(|all| all.push(wanted.clone())),
                HyperNodeMember::HyperNode(name) => {
                    let child = ids.get(name.as_str()).and_then(|child| all.get_mut(child.index()));
                    if let Some(child) = child.filter(|child| child.parent.is_none() && child.tier < node.tier) {
                        child.parent = Some(id);
                        labels = labels.zip(child.labels.clone()).map(|(all, more)| [all, more].concat());
                    }
                }
                HyperNodeMember::Node(_) | HyperNodeMember::Pattern(_) => labels = None,
            }
        }
        let labels = labels.map(simplify_label_selectors);
        let (name, tier_name) = (Arc::from(node.name.as_str()), Arc::from(node.tier_name.as_str()));
        all.push(Domain { name, tier: node.tier, tier_name, parent: None, labels });
    }
    (Domains { all }, matcher)
}

/// The fewest alternatives that say the same, whichever was named first: those that ask one label for a value become
/// one that takes any of them, and one that asks for more than another goes.
fn simplify_label_selectors(all: Vec<Vec<Requirement>>) -> Vec<Vec<Requirement>> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut alternatives = BTreeSet::new();
    for wanted in all {
        match wanted.as_slice() {
            [one] if one.operator == Operator::In => {
                values.entry(one.key.clone()).or_default().extend(one.values.iter().cloned());
            }
            _ => _ = alternatives.insert(wanted),
        }
    }
    let merged = values
        .into_iter()
        .map(|(key, values)| vec![Requirement { key, operator: Operator::In, values: values.into_iter().collect() }]);
    alternatives.extend(merged);
    let is_needed = |wanted: &&Vec<Requirement>| {
        let asks_for_more = |other: &&Vec<Requirement>| asks_for_all(wanted, other);
        // Of two that ask for the same in other words the first stays.
        !alternatives
            .iter()
            .filter(|other| other != wanted)
            .filter(asks_for_more)
            .any(|other| other < *wanted || !asks_for_all(other, wanted))
    };
    alternatives.iter().filter(is_needed).cloned().collect()
}

/// Whether labels that are as wanted are as another alternative says, too.
fn asks_for_all(wanted: &[Requirement], other: &[Requirement]) -> bool {
    other.iter().all(|one| asks_for(wanted, one))
}

fn asks_for(wanted: &[Requirement], one: &Requirement) -> bool {
    let is_in = |other: &&Requirement| other.key == one.key && other.operator == Operator::In;
    let fits = |other: &Requirement| match one.operator {
        Operator::In => other.values.iter().all(|value| one.values.contains(value)),
        Operator::Exists => true,
        _ => false,
    };
    wanted.contains(one) || wanted.iter().filter(is_in).any(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(key: &str, values: &[&str]) -> Requirement {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        Requirement { key: key.to_owned(), operator: Operator::In, values }
    }

    fn selectors_of(members: &[HyperNodeMember]) -> Vec<Vec<Requirement>> {
        let inner = HyperNodeMember::Labels(vec![is_in("pool", &["1"]), is_in("rack", &["2"])]);
        let inner = HyperNode { name: "inner".into(), tier: 1, members: vec![inner], ..HyperNode::default() };
        let outer = HyperNode { name: "outer".into(), tier: 2, members: members.to_vec(), ..HyperNode::default() };
        let (domains, _) = build_tree([&inner, &outer].into_iter());
        domains.all[1].labels.clone().unwrap()
    }

    #[test]
    fn what_selects_a_domain_does_not_depend_on_the_order_of_its_members() {
        let pool = |value| HyperNodeMember::Labels(vec![is_in("pool", &[value])]);
        let members = [HyperNodeMember::HyperNode("inner".into()), pool("1"), pool("3")];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let selectors = selectors_of(&order.map(|at: usize| members[at].clone()));
            assert_eq!(selectors, [vec![is_in("pool", &["1", "3"])]], "{order:?}");
        }
    }

    #[test]
    fn of_alternatives_that_say_the_same_in_other_words_one_stays() {
        let exists = Requirement { key: "pool".into(), operator: Operator::Exists, values: Vec::new() };
        let twice = vec![is_in("pool", &["1"]), is_in("pool", &["1", "2"])];
        let both = vec![is_in("pool", &["1"]), is_in("rack", &["2"])];
        let rack = vec![is_in("rack", &["2"]), is_in("pool", &["1"])];
        let all = vec![twice.clone(), both.clone(), rack.clone()];
        assert_eq!(simplify_label_selectors(all), std::slice::from_ref(&twice));
        assert_eq!(simplify_label_selectors(vec![rack, both.clone()]), [both]);
        assert_eq!(simplify_label_selectors(vec![twice, vec![exists.clone()]]), [vec![exists]]);
    }
}
