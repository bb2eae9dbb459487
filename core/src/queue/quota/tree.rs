//! The queues as a tree: which is above which, what each holds, and why a queue starts no jobs.
//!
//! Rule: Volcano's hierarchical capacity (`capacity.go:1212-1556`): jobs are in leaves and charged on the whole path,
//! where every ancestor's ceiling holds ([`super::entitlement`]). Two differences on purpose. The root is bounded by
//! the fleet (Volcano leaves that to the nodes). And a queue with a missing parent or in a cycle stops only its own
//! jobs (Volcano refuses every job of every queue, `1226-1243`); what its jobs hold stays charged where it was last.

use std::collections::BTreeMap;

use crate::{
    gang::QueueName,
    queue::{
        pending::line::PendingLine,
        quota::{
            amounts::{Ceilings, Dense, Dim, Dims, Sparse},
            entitlement::{self, QuotaRequest},
            running::RunningJobs,
        },
        spec::{Dequeue, FleetResources, QueueSpec, QueueState},
    },
    reason::QueueProblem,
};

/// A queue's place in the engine's table. The root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueIndex(pub(crate) u32);

impl QueueIndex {
    pub(crate) const ROOT: Self = Self(0);
    pub(crate) const LAST: Self = Self(u32::MAX);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The name of the queue above all queues.
pub(crate) const ROOT: &str = "root";

/// All that is known about one queue. A name that only jobs know has no `spec`.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) name: QueueName,
    pub(crate) spec: Option<QueueSpec>,
    /// The queue itself first, the root last: where its jobs are charged.
    pub(crate) path: Box<[QueueIndex]>,
    /// The queue above it, among whose children it counts; `None` for the root and outside the tree.
    pub(crate) parent: Option<QueueIndex>,
    /// The queues above it when that was last known.
    pub(crate) last_ancestors: Option<LastAncestors>,
    /// In the order of their names.
    pub(crate) children: Box<[QueueIndex]>,
    pub(crate) problem: Option<QueueProblem>,
    /// Its own `capability`.
    pub(crate) capability: Ceilings,
    /// What siblings' guarantees leave to it; for the root, what the clusters have.
    pub(crate) left: Ceilings,
    /// The smallest of both and of everything above.
    pub(crate) real: Ceilings,
    /// The most it can have while queues are as they are: if nothing ran and no cluster were away.
    pub(crate) reach: Ceilings,
    /// Kept free for it and all below, as far as that can be.
    pub(crate) guarantee: Dense,
    /// What it is entitled to; nothing where it deserves nothing.
    pub(crate) deserved: Sparse,
    pub(crate) asked: QuotaRequest,
    /// What its own jobs are charged.
    pub(crate) own: Dense,
    /// The same with all queues below.
    pub(crate) used: Dense,
    /// Its own jobs that are charged.
    pub(crate) own_running: RunningJobs,
    /// The same with all queues below.
    pub(crate) running: RunningJobs,
    /// The mean of that over the last time, where it counts.
    pub(crate) mean_used: Dense,
    pub(crate) line: PendingLine,
}

impl Slot {
    pub(crate) fn new(name: QueueName, node: QueueIndex) -> Self {
        let path = if node == QueueIndex::ROOT { vec![node] } else { vec![node, QueueIndex::ROOT] };
        let left = if node == QueueIndex::ROOT { Ceilings::nothing() } else { Ceilings::default() };
        let problem = if node == QueueIndex::ROOT { QueueProblem::Root } else { QueueProblem::Missing };
        Self {
            name,
            spec: None,
            path: path.into(),
            parent: None,
            last_ancestors: None,
            children: Box::default(),
            problem: Some(problem),
            capability: Ceilings::default(),
            left,
            real: Ceilings::default(),
            reach: Ceilings::default(),
            guarantee: Dense::default(),
            deserved: Sparse::default(),
            asked: QuotaRequest::default(),
            own: Dense::default(),
            used: Dense::default(),
            own_running: RunningJobs::default(),
            running: RunningJobs::default(),
            mean_used: Dense::default(),
            line: PendingLine::default(),
        }
    }

    /// Whether it says what it deserves, so that its weight does not.
    pub(crate) fn sets_deserved(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.deserved.iter().any(|(name, _)| name.counts_in_queues()))
    }

    /// Charges its own jobs these amounts so many times; -1 takes them back. What is no resource counts jobs.
    pub(crate) fn charge_own(&mut self, amounts: &[(Dim, i128)], times: i128) {
        add_charge((&mut self.own, &mut self.own_running), amounts, times);
    }

    /// The same of its own jobs and those below it.
    pub(crate) fn charge_subtree(&mut self, amounts: &[(Dim, i128)], times: i128) {
        add_charge((&mut self.used, &mut self.running), amounts, times);
    }

    /// Whether only the head may start.
    pub(crate) fn is_fifo(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.dequeue == Dequeue::Fifo)
    }

    /// The most of `dim` that it can have now.
    pub(crate) fn real_capability(&self, dim: Dim) -> i128 {
        self.real.get(dim).unwrap_or(Self::UNBOUNDED)
    }

    /// More than any quantity, and small enough to be added up and multiplied.
    const UNBOUNDED: i128 = 1 << 94;

    /// Takes down what a record says about the queues above, unless more is known; true if that changes anything.
    pub(crate) fn record_ancestors(&mut self, above: &[QueueName]) -> bool {
        let recorded = (!above.is_empty()).then(|| LastAncestors::FromRecord(above.into()));
        // Of several records always the same one, in whatever order they come.
        let is_news = recorded > self.last_ancestors;
        if is_news {
            self.last_ancestors = recorded;
        }
        is_news
    }

    fn parent_in_spec(&self) -> Option<&QueueName> {
        let parent = self.spec.as_ref().and_then(|spec| spec.parent.as_ref());
        parent.filter(|parent| !matches!(parent.as_str(), "" | ROOT))
    }
}

fn add_charge((used, running): (&mut Dense, &mut RunningJobs), amounts: &[(Dim, i128)], times: i128) {
    let (resources, counts) = split_counts(amounts);
    used.add_times(resources, times);
    running.add(counts.iter().map(|(dim, count)| (*dim, times * count)));
}

type SparseRef<'a> = &'a [(Dim, i128)];

/// A charge has its resources first, then what it counts as.
pub(crate) fn split_counts(amounts: &[(Dim, i128)]) -> (SparseRef<'_>, SparseRef<'_>) {
    amounts.split_at(amounts.partition_point(|(dim, _)| !dim.is_count()))
}

/// The queues above one when that was last known, nearest first and without the root. What it was charged with stays
/// charged there while its object is gone, or its parents are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LastAncestors {
    /// By the record of one of its jobs.
    FromRecord(Box<[QueueName]>),
    /// By the queues.
    FromQueues(Box<[QueueName]>),
}

impl LastAncestors {
    fn list_above(&self) -> &[QueueName] {
        let (Self::FromRecord(above) | Self::FromQueues(above)) = self;
        above
    }
}

/// Works out paths, problems, ceilings and sums anew, after queues or the fleet changed.
pub(crate) fn resolve_tree(
    slots: &mut [Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    dims: &mut Dims,
    fleet: &FleetResources,
) {
    resolve_paths(slots, index);
    set_queue_problems(slots);
    entitlement::resolve_entitlements(slots, dims, fleet);
    for slot in slots.iter_mut() {
        slot.used = Dense::default();
        slot.running = RunningJobs::default();
    }
    for i in 0..slots.len() {
        let (own, own_running) = (std::mem::take(&mut slots[i].own), std::mem::take(&mut slots[i].own_running));
        for node in slots[i].path.clone() {
            slots[node.index()].used.add_dense(&own);
            slots[node.index()].running.add(own_running.iter().map(|(dim, count)| (*dim, *count)));
        }
        (slots[i].own, slots[i].own_running) = (own, own_running);
    }
}

/// Sets paths, children and the problems of paths.
fn resolve_paths(slots: &mut [Slot], index: &BTreeMap<QueueName, QueueIndex>) {
    let mut children = vec![Vec::new(); slots.len()];
    let mut lost = Vec::new();
    for node in index.values().copied().filter(|node| *node != QueueIndex::ROOT) {
        let (path, problem) = resolve_path(slots, index, node);
        let counts = slots[node.index()].spec.is_some() && !matches!(problem, Some(QueueProblem::Cycle));
        if counts {
            children[path[1].index()].push(node);
        }
        let above = path[1..path.len() - 1].iter().map(|at| slots[at.index()].name.clone()).collect();
        let slot = &mut slots[node.index()];
        slot.parent = counts.then_some(path[1]);
        slot.path = path.into();
        slot.problem = if slot.spec.is_none() { Some(QueueProblem::Missing) } else { problem };
        match slot.problem {
            None => slot.last_ancestors = Some(LastAncestors::FromQueues(above)),
            Some(_) => lost.push(node),
        }
    }
    let paths: Vec<_> =
        lost.iter().filter_map(|node| Some((*node, find_last_known_path(slots, index, *node)?))).collect();
    for (node, path) in paths {
        slots[node.index()].path = path.into();
    }
    for (slot, children) in slots.iter_mut().zip(children) {
        slot.children = children.into();
    }
}

/// Where a queue without a sound path was, as far as those above it are still there: from the first that has one, where
/// that one is now.
fn find_last_known_path(
    slots: &[Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    node: QueueIndex,
) -> Option<Vec<QueueIndex>> {
    let mut path = vec![node];
    for at in slots[node.index()].last_ancestors.as_ref()?.list_above().iter().filter_map(|name| index.get(name)) {
        let slot = &slots[at.index()];
        if slot.problem.is_none() {
            path.extend(&slot.path);
            return Some(path);
        }
        if slot.spec.is_some() {
            path.push(*at);
        }
    }
    path.push(QueueIndex::ROOT);
    Some(path)
}

fn resolve_path(
    slots: &[Slot],
    index: &BTreeMap<QueueName, QueueIndex>,
    node: QueueIndex,
) -> (Vec<QueueIndex>, Option<QueueProblem>) {
    let mut path = vec![node];
    let mut at = node;
    let mut problem = None;
    while let Some(parent) = slots[at.index()].parent_in_spec() {
        match index.get(parent).filter(|parent| slots[parent.index()].spec.is_some()) {
            None => {
                problem = Some(QueueProblem::ParentMissing(parent.clone()));
                break;
            }
            Some(parent) if path.contains(parent) => return (vec![node, QueueIndex::ROOT], Some(QueueProblem::Cycle)),
            Some(parent) => {
                path.push(*parent);
                at = *parent;
            }
        }
    }
    path.push(QueueIndex::ROOT);
    (path, problem)
}

fn set_queue_problems(slots: &mut [Slot]) {
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
        let not_leaf =
            || slots[i].children.first().map(|child| QueueProblem::NotLeaf(slots[child.index()].name.clone()));
        let root = (i == QueueIndex::ROOT.index()).then_some(QueueProblem::Root);
        slots[i].problem = root.or(closed).or_else(not_leaf);
    }
}
