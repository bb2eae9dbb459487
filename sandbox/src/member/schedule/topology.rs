//! In which HyperNodes a gang with hard topology may be (`plugins/network-topology-aware`, `api/hyper_node_info.go`).
//!
//! Rule: a HyperNode holds the nodes that its members select and those of the HyperNodes that it names, one parent
//! each; a root above all, one tier higher than the highest, holds every node. A gang is tried in the HyperNodes up to
//! the highest tier that it allows, lower tiers first; once some of it has nodes, only in those that hold these too. A
//! tier's name is its number; a name that no HyperNode has is dropped, and mode hard with neither asks for nothing.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::Value;

use crate::member::{
    object::{list, name, number, text},
    world::{Kind, World},
};

/// The nodes of every HyperNode.
#[derive(Debug, Default)]
pub(super) struct HyperNodes {
    /// By tier, then name; the root last.
    domains: BTreeMap<(i64, String), BTreeSet<String>>,
    tiers: BTreeMap<String, i64>,
    root_tier: i64,
}

impl HyperNodes {
    pub(super) fn of(world: &World) -> Self {
        let objects: BTreeMap<&str, &Value> = world.of(Kind::HyperNode).map(|one| (name(one), one)).collect();
        let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
        for (parent, object) in &objects {
            for child in list_members(object).filter(|member| text(member, "/type") == "HyperNode").map(exact_name) {
                parents.entry(child).or_insert(parent);
            }
        }
        let mut hyper_nodes = Self::default();
        for (at, object) in &objects {
            let mut nodes = BTreeSet::new();
            gather_nodes(world, &objects, &parents, at, &mut BTreeSet::new(), &mut nodes);
            let tier = number(object, "/spec/tier");
            hyper_nodes.domains.insert((tier, (*at).to_owned()), nodes);
            hyper_nodes.root_tier = hyper_nodes.root_tier.max(tier);
            if !text(object, "/spec/tierName").is_empty() {
                hyper_nodes.tiers.insert(text(object, "/spec/tierName").to_owned(), tier);
            }
        }
        hyper_nodes.root_tier += 1;
        hyper_nodes
    }

    /// The sets of nodes that a PodGroup is tried in, first to last; `None` stands for all nodes. `used` are the nodes
    /// that it has.
    pub(super) fn candidates(&self, group: &Value, used: &BTreeSet<String>) -> Vec<Option<BTreeSet<String>>> {
        let topology = |field: &str| group.pointer(&format!("/spec/networkTopology/{field}"));
        let by_name =
            topology("highestTierName").and_then(Value::as_str).and_then(|name| self.tiers.get(name).copied());
        let highest = topology("highestTierAllowed").and_then(Value::as_i64).or(by_name);
        let soft = topology("mode").and_then(Value::as_str) == Some("soft");
        let Some(highest) = highest.filter(|_| !soft) else { return vec![None] };
        let low = self.domains.iter().filter(|((tier, _), nodes)| *tier <= highest && used.is_subset(nodes));
        let low = low.map(|(_, nodes)| Some(nodes.clone()));
        low.chain((self.root_tier <= highest).then_some(None)).collect()
    }
}

fn list_members(object: &Value) -> impl Iterator<Item = &Value> {
    list(object, "/spec/members").iter()
}

fn exact_name(member: &Value) -> &str {
    text(member, "/selector/exactMatch/name")
}

/// Adds the nodes of a HyperNode and of those below it.
fn gather_nodes<'a>(
    world: &World,
    objects: &BTreeMap<&'a str, &'a Value>,
    parents: &BTreeMap<&str, &str>,
    at: &'a str,
    seen: &mut BTreeSet<&'a str>,
    nodes: &mut BTreeSet<String>,
) {
    let Some(object) = objects.get(at).filter(|_| seen.insert(at)) else { return };
    for member in list_members(object) {
        if text(member, "/type") == "HyperNode" {
            let child = exact_name(member);
            if parents.get(child) == Some(&at) {
                gather_nodes(world, objects, parents, child, seen, nodes);
            }
        } else {
            nodes.extend(
                world
                    .nodes()
                    .filter(|(name, node)| selects_node(member, name, &node.labels))
                    .map(|(name, _)| name.clone()),
            );
        }
    }
}

fn selects_node(member: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let pattern = text(member, "/selector/regexMatch/pattern");
    let by_pattern = || !pattern.is_empty() && Regex::new(pattern).is_ok_and(|regex| regex.is_match(name));
    exact_name(member) == name
        || by_pattern()
        || member.pointer("/selector/labelMatch").is_some_and(|selector| matches_labels(selector, labels))
}

/// A label selector; one that asks for nothing selects nothing here.
fn matches_labels(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let equal: Vec<(&String, &Value)> =
        selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten().collect();
    let expressions = list(selector, "/matchExpressions");
    let holds = |one: &Value| {
        let value = labels.get(text(one, "/key"));
        let listed = || value.is_some_and(|value| list(one, "/values").iter().any(|wanted| wanted == value.as_str()));
        match text(one, "/operator") {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    !(equal.is_empty() && expressions.is_empty())
        && equal.iter().all(|(key, value)| labels.get(*key).is_some_and(|label| value.as_str() == Some(label)))
        && expressions.iter().all(holds)
}
