//! Which nodes the jobs of a queue may use, by the groups that nodes are in (label [`NODE_GROUP`]).
//!
//! Rule: Volcano's nodegroup plugin (`pkg/scheduler/plugins/nodegroup/nodegroup.go`, `predicate` and `score`) with
//! `enableHierarchy` and `strict: false`, of the whole fleet. A queue admits the groups that its affinity requires or
//! prefers and its anti-affinity does not require to avoid, and those that its anti-affinity only prefers to avoid; it
//! uses no other node. A queue that says nothing has the affinity of the nearest queue above that says something. One
//! without any affinity uses the nodes that are in no group, once some queue of the fleet has an affinity: until then
//! nobody uses groups, and the label means nothing.
//!
//! What a job may use is fixed with its admission and required in the copy that goes out, so that a member does the
//! same whether it runs the plugin or not. What the plugin scores is preferred there: a group that the affinity
//! requires counts 100, one that it prefers 50, both add up, and one that is better avoided counts nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    gang::{Gang, NodeTerm, Operator, QueueName, Requirement, Task},
    text::name_some,
};

/// The label that says which group a node is in.
pub const NODE_GROUP: &str = "volcano.sh/nodegroup-name";
/// What the plugin gives a node of a group that the affinity requires, and of one that it prefers.
const SCORES: (u32, u32) = (100, 50);
/// The greatest weight of a preferred term.
const MOST_WEIGHT: u32 = 100;

/// A queue's `spec.affinity`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGroupAffinity {
    /// Groups that `nodeGroupAffinity` requires.
    pub required: BTreeSet<String>,
    /// Groups that it prefers.
    pub preferred: BTreeSet<String>,
    /// Groups that `nodeGroupAntiAffinity` requires to avoid.
    pub avoided: BTreeSet<String>,
    /// Groups that it prefers to avoid.
    pub avoided_if_possible: BTreeSet<String>,
}

impl NodeGroupAffinity {
    /// Whether it names no group at all: then it is as good as none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.required, &self.preferred, &self.avoided, &self.avoided_if_possible].iter().all(|set| set.is_empty())
    }

    /// The groups whose nodes may be used, each with its score.
    #[must_use]
    pub fn score_admitted_groups(&self) -> BTreeMap<&str, u32> {
        let mut admitted = BTreeMap::new();
        for (groups, score) in [(&self.required, SCORES.0), (&self.preferred, SCORES.1)] {
            for group in groups.difference(&self.avoided) {
                *admitted.entry(group.as_str()).or_default() += score;
            }
        }
        admitted.extend(self.avoided_if_possible.iter().map(|group| (group.as_str(), 0)));
        admitted
    }
}

/// Which nodes the pods of an admission may run on, by labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRestriction {
    /// All of it must hold of a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<Requirement>,
    /// Which of these nodes are better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<PreferredNodes>,
}

/// Nodes that are better than others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferredNodes {
    /// By how much: 1 to 100.
    pub weight: u32,
    /// Which: what must hold of their labels.
    pub labels: Vec<Requirement>,
}

impl NodeRestriction {
    /// Whether any node will do, and none is better.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }

    /// What is required, as the alternatives of a node affinity; none where any node will do.
    #[must_use]
    pub fn alternatives(&self) -> Vec<Vec<Requirement>> {
        if self.required.is_empty() { Vec::new() } else { vec![self.required.clone()] }
    }

    /// Which nodes, as a sentence about the queue that keeps its jobs there; `None` where any node will do.
    #[must_use]
    pub fn describe(&self, queue: &QueueName) -> Option<String> {
        let groups = self.required.iter().find(|one| one.key == NODE_GROUP)?;
        if groups.operator == Operator::DoesNotExist {
            return Some(format!("queue {queue} names no group of nodes and uses only nodes that are in none"));
        }
        Some(match groups.values.as_slice() {
            [] => format!("queue {queue} admits no group of nodes"),
            groups => format!("queue {queue} uses only nodes of the groups {}", name_some(groups)),
        })
    }
}

/// The nodes that jobs may use by the affinity of their queue. `are_used`: some queue of the fleet names groups.
#[must_use]
pub fn restrict_nodes(affinity: Option<&NodeGroupAffinity>, are_used: bool) -> NodeRestriction {
    let of = |operator, groups: Vec<&str>| Requirement {
        key: NODE_GROUP.to_owned(),
        operator,
        values: groups.into_iter().map(str::to_owned).collect(),
    };
    let Some(affinity) = affinity.filter(|affinity| !affinity.is_empty()) else {
        let required = are_used.then(|| of(Operator::DoesNotExist, Vec::new()));
        return NodeRestriction { required: required.into_iter().collect(), preferred: Vec::new() };
    };
    let admitted = affinity.score_admitted_groups();
    let scores: BTreeSet<u32> = admitted.values().copied().collect();
    // Of nodes that are all as good as each other none is preferred.
    let best = scores.last().copied().filter(|best| *best > 0 && scores.len() > 1);
    let prefer = |best: u32, score: u32| PreferredNodes {
        weight: score * MOST_WEIGHT / best,
        labels: vec![of(Operator::In, admitted.iter().filter(|one| *one.1 == score).map(|one| *one.0).collect())],
    };
    let better = scores.iter().rev().filter(|score| **score > 0);
    let preferred = best.iter().flat_map(|best| better.clone().map(|score| prefer(*best, *score))).collect();
    NodeRestriction { required: vec![of(Operator::In, admitted.into_keys().collect())], preferred }
}

/// Whether two requirements of groups, as [`restrict_nodes`] makes them, leave nodes that satisfy both.
#[must_use]
pub fn have_common_nodes(one: &Requirement, other: &Requirement) -> bool {
    match (one.operator, other.operator) {
        (Operator::In, Operator::In) => one.values.iter().any(|group| other.values.contains(group)),
        (Operator::In, Operator::DoesNotExist) | (Operator::DoesNotExist, Operator::In) => false,
        _ => true,
    }
}

impl Gang {
    /// The groups that all its pods are kept to, if they are.
    #[must_use]
    pub fn node_groups(&self) -> Option<&Requirement> {
        let mut terms = self.tasks.iter().flat_map(|task| &task.node.affinity);
        let groups = terms.next()?.labels.iter().find(|one| one.key == NODE_GROUP)?;
        let is_kept = |task: &Task| {
            let mut terms = task.node.affinity.iter();
            !task.node.affinity.is_empty() && terms.all(|term| term.labels.contains(groups))
        };
        self.tasks.iter().all(is_kept).then_some(groups)
    }

    /// The same on nodes of a restriction only; twice is as once.
    #[must_use]
    pub fn restrict_to_nodes(&self, nodes: &NodeRestriction) -> Self {
        let within = nodes.alternatives();
        let has = |term: &NodeTerm| nodes.required.iter().all(|one| term.labels.contains(one));
        let is_kept = |task: &Task| !task.node.affinity.is_empty() && task.node.affinity.iter().all(has);
        let restrict = |task: &Task| match is_kept(task) {
            true => task.clone(),
            false => Task { node: task.node.restrict_to(&within), ..task.clone() },
        };
        Self { tasks: self.tasks.iter().map(restrict).collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gang::NodeClaim;

    fn set(groups: &[&str]) -> BTreeSet<String> {
        groups.iter().map(|group| (*group).to_owned()).collect()
    }

    fn affinity(required: &[&str], preferred: &[&str], avoided: &[&str], better_not: &[&str]) -> NodeGroupAffinity {
        NodeGroupAffinity {
            required: set(required),
            preferred: set(preferred),
            avoided: set(avoided),
            avoided_if_possible: set(better_not),
        }
    }

    fn admits(restriction: &NodeRestriction, group: Option<&str>) -> bool {
        restriction.required.iter().all(|one| one.key == NODE_GROUP && one.matches(group))
    }

    #[test]
    fn a_queue_uses_the_groups_that_it_names_and_no_other_node() {
        let nodes = restrict_nodes(Some(&affinity(&["a"], &["b"], &["c"], &["d"])), true);
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|group| admits(&nodes, Some(group))),
            [true, true, false, true, false]
        );
        assert!(!admits(&nodes, None));
    }

    #[test]
    fn what_anti_affinity_requires_counts_more_than_affinity_and_what_it_prefers_more_than_both() {
        let nodes = restrict_nodes(Some(&affinity(&["a", "b"], &["b", "c"], &["a", "b", "c"], &["c"])), true);
        assert_eq!(["a", "b", "c"].map(|group| admits(&nodes, Some(group))), [false, false, true]);
        let none = restrict_nodes(Some(&affinity(&[], &[], &["a"], &[])), true);
        assert!(!["a", "b"].iter().any(|group| admits(&none, Some(group))), "it admits no group");
    }

    #[test]
    fn a_queue_without_affinity_keeps_off_groups_once_some_queue_names_one() {
        for nothing in [None, Some(NodeGroupAffinity::default())] {
            assert_eq!(restrict_nodes(nothing.as_ref(), false), NodeRestriction::default());
            let nodes = restrict_nodes(nothing.as_ref(), true);
            assert!(admits(&nodes, None) && !admits(&nodes, Some("a")));
        }
    }

    #[test]
    fn better_groups_are_preferred_as_the_plugin_scores_them() {
        let weights = |affinity: &NodeGroupAffinity| -> Vec<(u32, Vec<String>)> {
            let all = restrict_nodes(Some(affinity), true).preferred;
            all.into_iter().map(|one| (one.weight, one.labels[0].values.clone())).collect()
        };
        assert_eq!(weights(&affinity(&["a", "b"], &[], &[], &[])), []);
        assert_eq!(weights(&affinity(&["a"], &["b"], &[], &["c"])), [(100, vec!["a".into()]), (50, vec!["b".into()])]);
        assert_eq!(
            weights(&affinity(&["a"], &["a", "b"], &[], &[])),
            [(100, vec!["a".into()]), (33, vec!["b".into()])]
        );
        assert_eq!(weights(&affinity(&[], &["a"], &[], &["b"])), [(100, vec!["a".into()])]);
    }

    #[test]
    fn queues_of_other_groups_share_no_nodes() {
        let of = |groups: &[&str]| restrict_nodes(Some(&affinity(groups, &[], &[], &[])), true).required.remove(0);
        let none = restrict_nodes(None, true).required.remove(0);
        assert!(have_common_nodes(&of(&["a", "b"]), &of(&["b", "c"])) && have_common_nodes(&none, &none));
        assert!(!have_common_nodes(&of(&["a"]), &of(&["b"])) && !have_common_nodes(&of(&["a"]), &none));
    }

    #[test]
    fn a_gang_is_kept_to_groups_where_all_its_pods_are_and_twice_is_as_once() {
        let task = |name: &str, affinity| Task {
            name: name.into(),
            replicas: 1,
            min_available: 1,
            request: crate::resources::Resources::new(),
            node: NodeClaim { affinity, ..NodeClaim::default() },
            priority_class: String::new(),
            partition: None,
        };
        let zone = Requirement { key: "zone".into(), operator: Operator::Exists, values: Vec::new() };
        let term = NodeTerm { labels: vec![zone], fields: Vec::new() };
        let gang = Gang::new(vec![task("a", vec![]), task("b", vec![term.clone(), term])], 2);
        assert_eq!((gang.node_groups(), gang.restrict_to_nodes(&NodeRestriction::default())), (None, gang.clone()));
        let nodes = restrict_nodes(Some(&affinity(&["a"], &[], &[], &[])), true);
        let kept = gang.restrict_to_nodes(&nodes);
        assert_eq!(kept.node_groups(), nodes.required.first());
        assert_eq!(kept.restrict_to_nodes(&nodes), kept);
        let mut partly = kept;
        partly.tasks[1].node = NodeClaim::default();
        assert_eq!(partly.node_groups(), None);
    }

    #[test]
    fn the_nodes_of_a_queue_are_told_in_a_sentence() {
        let reported = |affinity: Option<&NodeGroupAffinity>| restrict_nodes(affinity, true).describe(&"q".into());
        assert_eq!(NodeRestriction::default().describe(&"q".into()), None);
        assert_eq!(
            reported(None).as_deref(),
            Some("queue q names no group of nodes and uses only nodes that are in none")
        );
        let some = affinity(&["b", "a"], &[], &[], &[]);
        assert_eq!(reported(Some(&some)).as_deref(), Some("queue q uses only nodes of the groups a, b"));
        let many = affinity(&["a", "b", "c", "d", "e", "f", "g"], &[], &[], &[]);
        let want = "queue q uses only nodes of the groups a, b, c, d and 3 more";
        assert_eq!(reported(Some(&many)).as_deref(), Some(want));
        let none = affinity(&[], &[], &["a"], &[]);
        assert_eq!(reported(Some(&none)).as_deref(), Some("queue q admits no group of nodes"));
    }

    #[test]
    fn a_restriction_is_written_as_kubernetes_writes_terms_and_reads_back() {
        let nodes = restrict_nodes(Some(&affinity(&["a"], &["b"], &[], &[])), true);
        let text = serde_json::to_string(&nodes).unwrap();
        let term = |values: &str| format!(r#"{{"key":"{NODE_GROUP}","operator":"In","values":[{values}]}}"#);
        let (both, a, b) = (term(r#""a","b""#), term(r#""a""#), term(r#""b""#));
        let want = format!(
            r#"{{"required":[{both}],"preferred":[{{"weight":100,"labels":[{a}]}},{{"weight":50,"labels":[{b}]}}]}}"#
        );
        assert_eq!(text, want);
        assert_eq!(serde_json::from_str::<NodeRestriction>(&text).unwrap(), nodes);
        assert!(serde_json::from_str::<NodeRestriction>(r#"{"require":[]}"#).is_err());
    }

    /// Volcano's `predicate` with `strict: false`, word for word.
    fn plugin_admits(affinity: &NodeGroupAffinity, group: Option<&str>) -> bool {
        let Some(group) = group else { return affinity.is_empty() };
        if affinity.is_empty() {
            return false;
        }
        let mut flag = affinity.required.contains(group) || affinity.preferred.contains(group);
        if affinity.avoided.contains(group) {
            flag = false;
        }
        flag || affinity.avoided_if_possible.contains(group)
    }

    fn any_groups() -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set(prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned), 0..4)
    }

    proptest! {
        #[test]
        fn a_node_is_used_if_and_only_if_the_plugin_would_use_it(
            required in any_groups(), preferred in any_groups(),
            avoided in any_groups(), avoided_if_possible in any_groups(),
        ) {
            let affinity = NodeGroupAffinity { required, preferred, avoided, avoided_if_possible };
            let nodes = restrict_nodes(Some(&affinity), true);
            for group in [None, Some("a"), Some("b"), Some("c"), Some("d"), Some("e")] {
                prop_assert_eq!(admits(&nodes, group), plugin_admits(&affinity, group), "{:?}", group);
            }
            // What is preferred is admitted, and nothing twice.
            let named: Vec<&String> = nodes.preferred.iter().flat_map(|one| &one.labels[0].values).collect();
            prop_assert!(named.iter().all(|group| admits(&nodes, Some(group))));
            prop_assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());
        }
    }
}
