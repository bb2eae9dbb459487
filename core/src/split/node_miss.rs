//! Why no node takes a task's pods: which taints keep how many nodes out, and what the closest nodes lack of labels and
//! of NUMA policies.
//!
//! Rule: a node whose labels are right is kept out by the first taint that is not tolerated, as Kubernetes' scheduler
//! names it (`v1helper.FindMatchingUntoleratedTaint`). Of the others those are closest that miss the fewest labels, of
//! as many the more numerous. So many taints are named and no more, those first that keep most nodes out. Tenants read
//! this, and a taint's value may be somebody's name: its key is said alone.
//!
//! A tenant writes selectors and terms, so what is looked at has bounds: some tasks, nodes and labels, not all.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use super::{SplitSearch, packing::FreeNodes};
use crate::{
    gang::{ClusterName, NodeClaim, NodeTerm, Operator, Requirement, Taint},
    inventory::{NodeRef, NodeShape},
    node_affinity::NODE_NAME_FIELD,
    text::{count_noun, name_some},
};

/// Taints that are named, each of one cluster.
const MOST_TAINTS: usize = 3;
/// Tasks of a gang of which it is said: the text names no more of them.
pub(super) const MOST_TASKS_LOOKED_AT: usize = 4;
/// Nodes, or shapes of nodes that are alike, that are looked at for one task.
const MOST_NODES_LOOKED_AT: usize = 1_000;
/// Labels that a node may miss and still be among the closest; and affinity terms that are looked at.
const MOST_MISSING: usize = 16;

/// Why no node takes a task's pods; nothing where no nodes are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMiss {
    /// Taints of nodes whose labels are right, by key and effect: the cluster, and how many nodes.
    pub taints: Vec<(String, ClusterName, usize)>,
    /// Others like that, which are not named.
    pub more_taints: usize,
    /// What the closest nodes with other labels lack, of which cluster they are, and how many.
    pub closest: Option<(Vec<String>, ClusterName, usize)>,
}

/// Looks at the nodes of the clusters of a refusal.
pub(super) fn find_node_miss(
    search: &SplitSearch<'_>,
    task: usize,
    free_by_cluster: &[(&ClusterName, FreeNodes)],
) -> NodeMiss {
    let claim = &search.requests.gang.tasks[task].node;
    let mut taints: BTreeMap<(String, &ClusterName), usize> = BTreeMap::new();
    let mut lacks: BTreeMap<(Vec<String>, &ClusterName), usize> = BTreeMap::new();
    let mut left = MOST_NODES_LOOKED_AT;
    let sites = search.sites.iter().filter(|site| free_by_cluster.iter().any(|(name, _)| *name == site.name));
    for site in sites {
        let single = search.requests.needs_single_nodes(site.capacity);
        for shape in site.capacity.shapes.iter().filter(|shape| shape.labels.is_some()) {
            // Nodes of one shape are alike.
            let looked_at = if single { shape.nodes.len() } else { 1 };
            let each = if single { 1 } else { shape.nodes.len() };
            for node in shape.nodes.iter().take(looked_at.min(left)) {
                left -= 1;
                let mut missing = list_missing_labels(claim, shape, node);
                let numa = claim.numa.as_deref().filter(|numa| !site.capacity.aligns_pods(shape, Some(numa)));
                missing.extend(numa.map(|numa| format!("topologyPolicy {}", numa.policy.as_str())));
                if !missing.is_empty() {
                    *lacks.entry((missing, site.name)).or_default() += each;
                } else if let Some(taint) = find_forbidding_taint(claim, shape) {
                    *taints.entry((describe_taint(taint), site.name)).or_default() += each;
                }
            }
        }
    }
    let mut taints: Vec<(String, ClusterName, usize)> =
        taints.into_iter().map(|((taint, cluster), nodes)| (taint, cluster.clone(), nodes)).collect();
    taints.sort_by_key(|(.., nodes)| Reverse(*nodes));
    let more_taints = taints.len().saturating_sub(MOST_TAINTS);
    taints.truncate(MOST_TAINTS);
    let closest = lacks.into_iter().min_by_key(|((missing, _), nodes)| (missing.len(), Reverse(*nodes)));
    NodeMiss {
        taints,
        more_taints,
        closest: closest.map(|((missing, cluster), nodes)| (missing, cluster.clone(), nodes)),
    }
}

fn find_forbidding_taint<'a>(claim: &NodeClaim, shape: &'a NodeShape) -> Option<&'a Taint> {
    shape.taints.iter().filter(|taint| taint.forbids()).find(|taint| !taint.tolerated_by(&claim.tolerations))
}

fn describe_taint(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// What a node's labels lack: of affinity terms, which are alternatives, the one that lacks least.
fn list_missing_labels(claim: &NodeClaim, shape: &NodeShape, node: &NodeRef) -> Vec<String> {
    let selector = claim.selector.iter().filter(|(key, value)| shape.label(node, key) != Some(value.as_str()));
    let mut missing: Vec<String> = selector.take(MOST_MISSING).map(|(key, value)| format!("{key}={value}")).collect();
    let of_term = |term: &NodeTerm| -> Vec<String> {
        let labels = term.labels.iter().filter(|one| !one.matches(shape.label(node, &one.key)));
        let fields = term.fields.iter().filter(|one| one.key != NODE_NAME_FIELD || !one.matches(Some(&**node)));
        let nothing = term.labels.is_empty() && term.fields.is_empty();
        let empty = nothing.then(|| "an affinity term with a condition".to_owned());
        labels.chain(fields).take(MOST_MISSING).map(describe_requirement).chain(empty).collect()
    };
    missing.extend(claim.affinity.iter().take(MOST_MISSING).map(of_term).min_by_key(Vec::len).into_iter().flatten());
    missing
}

fn describe_requirement(one: &Requirement) -> String {
    let (key, values) = (&one.key, name_some(&one.values));
    match one.operator {
        Operator::In => format!("{key} in ({values})"),
        Operator::NotIn => format!("{key} not in ({values})"),
        Operator::Exists => format!("label {key}"),
        Operator::DoesNotExist => format!("absence of label {key}"),
        Operator::Gt => format!("{key} above {values}"),
        Operator::Lt => format!("{key} below {values}"),
    }
}

impl fmt::Display for NodeMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (taint, cluster, count)) in self.taints.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}taint {taint} keeps {} of {cluster} out", count_noun(*count, "node"))?;
        }
        if self.more_taints > 0 {
            write!(f, " and {} more", self.more_taints)?;
        }
        let Some((missing, cluster, count)) = &self.closest else { return Ok(()) };
        let before = if self.taints.is_empty() { ": " } else { ", " };
        let lack = if *count == 1 { "lacks" } else { "lack" };
        write!(f, "{before}{} of {cluster} {lack} {}", count_noun(*count, "node"), name_some(missing))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        gang::{Gang, TaskName},
        inventory::{Amounts, Capacity, NodeShape, Source},
        quantity::Quantity,
        split::{
            refusal::{GangRefusal, Lack},
            split_gang,
            tests::{problem_in_one_cluster, task},
        },
    };

    /// A tenant writes the tasks and their selectors, and no member is asked how large it is.
    #[test]
    fn of_a_hundred_thousand_unlike_nodes_and_many_selectors_so_many_are_looked_at() {
        let taint = |at: usize| Taint { key: format!("k{at:06}"), value: "acme".into(), effect: "NoSchedule".into() };
        let free: Arc<Amounts> =
            Arc::new([("cpu", 9), ("pods", 9)].map(|(n, q)| (n.into(), Quantity::from_units(q))).into());
        let shape = |at: usize| NodeShape {
            labels: Some(Arc::default()),
            taints: [taint(at)].into(),
            allocatable: Arc::clone(&free),
            free: Arc::clone(&free),
            nodes: vec![NodeRef::from(format!("n{at}"))],
            ..NodeShape::default()
        };
        let capacity = Capacity::new((0..100_000).map(shape).collect(), Source::Nodes);
        let mut tasks: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| task(name, 1, 1, 1, 0)).into();
        tasks[1].node.selector = (0..10_000).map(|at| (format!("s{at:05}"), "x".to_owned())).collect();
        let gang = Gang::new(tasks, 6);
        let (name, problem) = ("m0".into(), problem_in_one_cluster);
        let Err(GangRefusal::Short(shortage)) = split_gang(&problem(&gang, &name, &capacity)) else { panic!() };
        let miss = |task: &str| match &shortage.tasks[&TaskName::from(task)].lack {
            Lack::NoNodeMatches(miss) => (**miss).clone(),
            other => panic!("{other:?}"),
        };
        let tainted = miss("a");
        assert_eq!((tainted.taints.len(), tainted.more_taints), (MOST_TAINTS, MOST_NODES_LOOKED_AT - MOST_TAINTS));
        assert_eq!(tainted.taints[0], ("k000000:NoSchedule".to_owned(), name.clone(), 1), "nobody's name is told");
        let (lacks, _, nodes) = miss("b").closest.unwrap();
        assert_eq!((lacks.len(), nodes), (MOST_MISSING, MOST_NODES_LOOKED_AT));
        let looked_at = ["a", "b", "c", "d", "e", "f"].map(|task| miss(task) != NodeMiss::default());
        assert_eq!(looked_at, [true, true, true, true, false, false]);
        assert!(shortage.to_string().len() < 2_000, "{shortage}");
    }
}
