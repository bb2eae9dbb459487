//! The queues as a tree: who is above whom, which ceilings hold where, and what is wrong with a queue.
//!
//! Rule: Volcano's hierarchical capacity (`capacity.go:1212-1556`), where every ancestor's ceiling holds, a missing
//! ceiling is the parent's, and a sibling's `guarantee` lowers what is left (`1527-1536`). Two differences on purpose: the
//! root is bounded by the fleet (Volcano leaves that to the nodes), and a queue with a missing parent or in a circle
//! stops its own jobs only (Volcano refuses every job of every queue, `1226-1243`).

use std::collections::BTreeMap;

use super::{
    dense::{Ceilings, Dense, Dims, Sparse},
    line::Line,
    spec::{Fleet, QueueSpec, QueueState},
};
use crate::{
    gang::QueueName,
    quantity::Quantity,
    reason::QueueProblem,
    resources::{Limits, Resources},
};

/// A queue's place in the engine's table. The root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node(pub(super) u32);

impl Node {
    pub(super) const ROOT: Self = Self(0);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The name of the queue above all queues.
pub(super) const ROOT: &str = "root";

/// All that is known about one queue. A name that only jobs know has no `spec`.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) name: QueueName,
    pub(super) spec: Option<QueueSpec>,
    /// The queue itself first, the root last.
    pub(super) path: Box<[Node]>,
    pub(super) problem: Option<QueueProblem>,
    /// Its own `capability`.
    pub(super) capability: Ceilings,
    /// What siblings' guarantees leave to it; for the root, what the clusters have.
    pub(super) left: Ceilings,
    /// The smallest of both and of everything above.
    real: Ceilings,
    pub(super) deserved: Sparse,
    /// What its own jobs are charged.
    pub(super) own: Dense,
    /// The same with all queues below.
    pub(super) used: Dense,
    pub(super) line: Line,
}

impl Slot {
    pub(super) fn new(name: QueueName, node: Node) -> Self {
        let path = if node == Node::ROOT { vec![node] } else { vec![node, Node::ROOT] };
        let left = if node == Node::ROOT { Ceilings::nothing() } else { Ceilings::default() };
        let problem = if node == Node::ROOT { QueueProblem::Root } else { QueueProblem::Missing };
        Self {
            name,
            spec: None,
            path: path.into(),
            problem: Some(problem),
            capability: Ceilings::default(),
            left,
            real: Ceilings::default(),
            deserved: Sparse::default(),
            own: Dense::default(),
            used: Dense::default(),
            line: Line::default(),
        }
    }

    fn parent(&self) -> Option<&QueueName> {
        let parent = self.spec.as_ref().and_then(|spec| spec.parent.as_ref());
        parent.filter(|parent| !matches!(parent.as_str(), "" | ROOT))
    }
}

/// Works out paths, problems, ceilings and sums anew, after queues or the fleet changed; returns the children of each
/// queue, in the order of their names.
pub(super) fn resolve(
    slots: &mut [Slot],
    index: &BTreeMap<QueueName, Node>,
    dims: &mut Dims,
    fleet: &Fleet,
) -> Vec<Vec<Node>> {
    let children = resolve_paths(slots, index);
    resolve_openness(slots, &children);
    resolve_ceilings(slots, &children, dims, fleet);
    for slot in slots.iter_mut() {
        slot.used = Dense::default();
    }
    for i in 0..slots.len() {
        let own = std::mem::take(&mut slots[i].own);
        for node in slots[i].path.clone() {
            slots[node.index()].used.add_dense(&own);
        }
        slots[i].own = own;
    }
    children
}

/// Sets paths and the problems of descent; returns the children of each queue, in the order of their names.
fn resolve_paths(slots: &mut [Slot], index: &BTreeMap<QueueName, Node>) -> Vec<Vec<Node>> {
    let mut children = vec![Vec::new(); slots.len()];
    for node in index.values().copied().filter(|node| *node != Node::ROOT) {
        let (path, problem) = path_of(slots, index, node);
        if slots[node.index()].spec.is_some() && !matches!(problem, Some(QueueProblem::Cycle)) {
            children[path[1].index()].push(node);
        }
        let slot = &mut slots[node.index()];
        slot.path = path.into();
        slot.problem = if slot.spec.is_none() { Some(QueueProblem::Missing) } else { problem };
    }
    children
}

fn path_of(slots: &[Slot], index: &BTreeMap<QueueName, Node>, node: Node) -> (Vec<Node>, Option<QueueProblem>) {
    let mut path = vec![node];
    let mut at = node;
    let mut problem = None;
    while let Some(parent) = slots[at.index()].parent() {
        match index.get(parent).filter(|parent| slots[parent.index()].spec.is_some()) {
            None => {
                problem = Some(QueueProblem::ParentMissing(parent.clone()));
                break;
            }
            Some(parent) if path.contains(parent) => return (vec![node, Node::ROOT], Some(QueueProblem::Cycle)),
            Some(parent) => {
                path.push(*parent);
                at = *parent;
            }
        }
    }
    path.push(Node::ROOT);
    (path, problem)
}

fn resolve_openness(slots: &mut [Slot], children: &[Vec<Node>]) {
    for i in 0..slots.len() {
        if slots[i].problem.as_ref().is_some_and(|problem| *problem != QueueProblem::Root) {
            continue;
        }
        let closed = slots[i].path.iter().find_map(|node| {
            let spec = slots[node.index()].spec.as_ref()?;
            let state = spec.state;
            (state != QueueState::Open)
                .then(|| QueueProblem::NotOpen { queue: spec.name.clone(), state: state.as_str() })
        });
        let not_leaf = || children[i].first().map(|child| QueueProblem::NotLeaf(slots[child.index()].name.clone()));
        let root = (i == Node::ROOT.index()).then_some(QueueProblem::Root);
        slots[i].problem = root.or(closed).or_else(not_leaf);
    }
}

fn resolve_ceilings(slots: &mut [Slot], children: &[Vec<Node>], dims: &mut Dims, fleet: &Fleet) {
    for slot in slots.iter_mut() {
        slot.capability = Ceilings::default();
        slot.left = Ceilings::default();
        slot.deserved = Sparse::default();
        let Some(spec) = &slot.spec else { continue };
        for (name, ceiling) in spec.ceilings() {
            slot.capability.set(dims.intern(name), Some(ceiling.as_nano()));
        }
        slot.deserved = spec.deserved.iter().map(|(name, amount)| (dims.intern(name), amount.as_nano())).collect();
        // So that every dimension of a guarantee is known below.
        let _ = dims.sparse(&spec.guarantee);
    }
    let root = &mut slots[Node::ROOT.index()];
    root.left = Ceilings::nothing();
    for (dim, amount) in dims.sparse(&fleet.ready) {
        root.left.set(dim, Some(amount));
    }
    root.real = lower(&root.capability, &root.left, None, dims);
    let mut below = vec![Node::ROOT];
    while let Some(parent) = below.pop() {
        let guarantees: Vec<(Node, Resources)> =
            children[parent.index()].iter().map(|child| (*child, guarantee(&slots[child.index()]))).collect();
        let mut sum = Resources::new();
        guarantees.iter().for_each(|(_, guarantee)| sum.add(guarantee));
        for (child, mine) in guarantees {
            let mut others = sum.clone();
            others.saturating_sub(&mine);
            let mut left = Ceilings::default();
            for (dim, _) in dims.sparse(&others) {
                let name = dims.name(dim).as_str();
                if let Some(real) = slots[parent.index()].real.get(dim) {
                    let free = (real - sum.get(name).as_nano()).max(0) + mine.get(name).as_nano();
                    left.set(dim, Some(free));
                }
            }
            let real = lower(&slots[child.index()].capability, &left, Some(&slots[parent.index()].real), dims);
            let slot = &mut slots[child.index()];
            (slot.left, slot.real) = (left, real);
            below.push(child);
        }
    }
}

/// A guarantee above the queue's own ceiling would take from its siblings what it can never use.
fn guarantee(slot: &Slot) -> Resources {
    let Some(spec) = &slot.spec else { return Resources::new() };
    let own = |name: &str, amount: Quantity| ceiling(&spec.capability, name).map_or(amount, |most| amount.min(most));
    spec.guarantee
        .iter()
        .filter(|(_, amount)| !amount.is_negative())
        .map(|(name, amount)| (name.clone(), own(name.as_str(), amount)))
        .collect()
}

fn ceiling(limits: &Limits, name: &str) -> Option<Quantity> {
    limits.get(name).filter(|limit| *limit > Quantity::ZERO)
}

fn lower(a: &Ceilings, b: &Ceilings, above: Option<&Ceilings>, dims: &Dims) -> Ceilings {
    let mut lowest = if above.is_none() { Ceilings::nothing() } else { Ceilings::default() };
    for dim in dims.all() {
        let all = [a.get(dim), b.get(dim), above.and_then(|above| above.get(dim))];
        lowest.set(dim, all.into_iter().flatten().min());
    }
    lowest
}
