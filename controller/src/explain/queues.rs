//! What the queues hold and who waits in them, as values to print.

use std::collections::BTreeMap;

use caldera_core::{
    gang::{QueueName, WorkloadRef},
    quantity::Quantity,
    queue::{Dequeue, JobId, ledger::Stage},
    reason::{Position, QueueProblem, Reason},
    resources::{ResourceName, Resources},
};
use caldera_crds::names::volcano::ROOT_QUEUE;
use serde::Serialize;

use super::{Asks, asked, at, queue_of};
use crate::{
    index::{Index, Source, State},
    podgroup,
};

/// One resource of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Of what.
    pub resource: ResourceName,
    /// Charged, with all queues below.
    pub used: Quantity,
    /// What it may take back up to.
    pub deserved: Quantity,
    /// Kept free for it.
    pub guarantee: Quantity,
    /// As its object says; `None` where it says nothing.
    pub capability: Option<Quantity>,
    /// The most it can have now: its capability, what is above it, what others' guarantees leave. `None` if the clusters
    /// can not be seen.
    pub limit: Option<Quantity>,
    /// Used beyond what it deserves.
    pub borrowed: Quantity,
}

/// One queue on the way from the root to a job's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Which.
    pub queue: QueueName,
    /// `Open`, `Closing`, `Closed`, or `Missing`.
    pub state: &'static str,
    /// What is wrong with it.
    pub faults: Vec<String>,
    /// Of the resources that the job asks for.
    pub amounts: Vec<Amounts>,
}

/// Jobs of a queue and of all below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// In line, or soon to be.
    pub waiting: usize,
    /// Not in line until somebody changes something.
    pub blocked: usize,
    /// Released; their minimum does not run yet.
    pub starting: usize,
    /// Running.
    pub running: usize,
    /// Ended.
    pub finished: usize,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// Name.
    pub name: QueueName,
    /// The queue above; `None` for the root.
    pub parent: Option<QueueName>,
    /// Steps from the root.
    pub depth: usize,
    /// `Open`, `Closing` or `Closed`.
    pub state: &'static str,
    /// Why none of its jobs may start, if so.
    pub problem: Option<String>,
    /// What is wrong with its amounts, and what counts instead.
    pub faults: Vec<String>,
    /// Larger goes first.
    pub priority: i32,
    /// Its part where it says nothing of what it deserves.
    pub weight: u32,
    /// Others may take back what it borrowed.
    pub reclaimable: bool,
    /// `traverse` or `fifo`.
    pub dequeue: &'static str,
    /// By resource.
    pub amounts: Vec<Amounts>,
    /// `None` if its jobs can not be seen.
    pub jobs: Option<Counts>,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InLine {
    /// From 1; `None` for one that is not in line: it gave way, or somebody has to change something.
    pub position: Option<usize>,
    /// Which.
    pub workload: WorkloadRef,
    /// Its value.
    pub priority: i32,
    /// When its binding was made.
    pub created: Option<String>,
    /// What it needs at least.
    pub minimum: Resources,
    /// Why it waits, for machines.
    pub token: String,
    /// Why it waits, for people.
    pub sentence: String,
}

/// All queues, parents before their children, siblings by name; those whose parents lead nowhere at the end.
#[must_use]
pub fn queues(index: &Index) -> Vec<QueueView> {
    let counts = index.is_complete().then(|| counts(index));
    let mut children: BTreeMap<&str, Vec<&QueueName>> = BTreeMap::new();
    for (name, queue) in &index.queues {
        let parent = queue.spec.parent.as_ref().map_or(ROOT_QUEUE, QueueName::as_str);
        if name.as_str() != ROOT_QUEUE {
            children.entry(parent).or_default().push(name);
        }
    }
    let root = QueueName::from(ROOT_QUEUE);
    let mut views = Vec::new();
    let mut stack = vec![(&root, 0)];
    while let Some((name, depth)) = stack.pop() {
        views.push(view(index, name, depth, counts.as_ref()));
        stack.extend(children.remove(name.as_str()).into_iter().flatten().rev().map(|child| (child, depth + 1)));
    }
    for lost in children.into_values().flatten() {
        views.push(view(index, lost, 1, counts.as_ref()));
    }
    views
}

fn view(index: &Index, name: &QueueName, depth: usize, counts: Option<&BTreeMap<QueueName, Counts>>) -> QueueView {
    let spec = index.queues.get(name).map(|queue| &queue.spec);
    let root = name.as_str() == ROOT_QUEUE;
    let parent = spec.and_then(|spec| spec.parent.clone()).unwrap_or_else(|| ROOT_QUEUE.into());
    QueueView {
        name: name.clone(),
        parent: (!root).then_some(parent),
        depth,
        state: spec.map_or("Open", |spec| spec.state.as_str()),
        problem: problem(index, name),
        faults: faults(index, name),
        priority: spec.map_or(0, |spec| spec.priority),
        weight: spec.map_or(1, |spec| spec.weight),
        reclaimable: spec.is_none_or(|spec| spec.reclaimable),
        dequeue: match spec.map(|spec| spec.dequeue) {
            Some(Dequeue::Fifo) => "fifo",
            _ => "traverse",
        },
        amounts: amounts(index, name, None),
        jobs: counts.map(|counts| counts.get(name).copied().unwrap_or_default()),
    }
}

/// Being above others is not a fault.
fn problem(index: &Index, name: &QueueName) -> Option<String> {
    let problem = index.engine.queue_problem(name)?;
    let wrong = !matches!(problem, QueueProblem::NotLeaf(_) | QueueProblem::Root);
    wrong.then(|| Reason::Queue { queue: name.clone(), problem }.to_string())
}

fn faults(index: &Index, name: &QueueName) -> Vec<String> {
    let unread = index.queues.get(name).into_iter().flat_map(|queue| &queue.wrong);
    let unread = unread.map(|wrong| format!("{wrong}: taken for 0"));
    unread.chain(index.engine.queue_faults(name).iter().map(ToString::to_string)).collect()
}

/// The resources that matter to a queue, or those that a job asks for.
fn amounts(index: &Index, name: &QueueName, only: Option<&Resources>) -> Vec<Amounts> {
    let hidden = index.waits_for();
    let has = index.engine.entitlement_of(name);
    let facts = index.queues.get(name);
    // Whose bindings can not be seen has what the controller last wrote.
    let told = !index.is_complete();
    let used = match facts {
        Some(facts) if told => &facts.status.allocated,
        _ => &has.used,
    };
    let mut names: Vec<&ResourceName> = match only {
        Some(only) => only.iter().map(|(name, _)| name).collect(),
        None => {
            let said = facts.into_iter().flat_map(|facts| facts.spec.capability.iter().map(|(name, _)| name));
            let lists = [used, &has.deserved, &has.guarantee].into_iter().flat_map(Resources::iter);
            let whole = if name.as_str() == ROOT_QUEUE { Some(&has.real) } else { None };
            lists.chain(whole.into_iter().flat_map(Resources::iter)).map(|(name, _)| name).chain(said).collect()
        }
    };
    names.sort();
    names.dedup();
    let one = |name: &ResourceName| {
        let of = |list: &Resources| list.get(name.as_str());
        let borrowed = of(used).saturating_sub(of(&has.deserved)).max(Quantity::ZERO);
        Amounts {
            resource: name.clone(),
            used: of(used),
            deserved: of(&has.deserved),
            guarantee: of(&has.guarantee),
            capability: facts.and_then(|facts| facts.spec.capability.get(name.as_str())),
            limit: (!hidden.contains(&Source::Clusters)).then(|| of(&has.real)),
            borrowed: if told { borrowed } else { of(&has.borrowed) },
        }
    };
    names.into_iter().map(one).collect()
}

/// Jobs by queue, each counted in all queues above its own too.
fn counts(index: &Index) -> BTreeMap<QueueName, Counts> {
    let mut all: BTreeMap<QueueName, Counts> = BTreeMap::new();
    for entry in index.entries.values() {
        let workload = index.workload_of(&entry.binding);
        let Some(queue) = queue_of(entry, workload) else { continue };
        let count: fn(&mut Counts) -> &mut usize = match (&entry.assumed, &entry.state) {
            (_, State::OutOfScope) => continue,
            (None, State::Blocked(reason)) if reason.needs_a_change() => |counts| &mut counts.blocked,
            (None, State::Holding { stage: Stage::Finished, .. }) => |counts| &mut counts.finished,
            (None, State::Holding { stage, .. }) => {
                match workload.map(|workload| podgroup::phase(workload, Some(*stage))) {
                    Some("Running") => |counts| &mut counts.running,
                    _ => |counts| &mut counts.starting,
                }
            }
            (Some(_), _) | (None, State::InLine | State::Blocked(_)) => |counts| &mut counts.waiting,
        };
        for name in names(index, queue) {
            *count(all.entry(name).or_default()) += 1;
        }
    }
    all
}

/// A queue and all above it, the root first.
fn names(index: &Index, queue: &QueueName) -> Vec<QueueName> {
    let mut path = vec![queue.clone()];
    let mut at = queue;
    while let Some(parent) = index.queues.get(at).and_then(|queue| queue.spec.parent.as_ref()) {
        if parent.as_str() == ROOT_QUEUE || path.contains(parent) {
            break;
        }
        path.push(parent.clone());
        at = parent;
    }
    if queue.as_str() != ROOT_QUEUE {
        path.push(ROOT_QUEUE.into());
    }
    path.reverse();
    path
}

pub(super) fn path(index: &Index, queue: &QueueName, asks: Option<&Asks>) -> Vec<Step> {
    let nothing = Resources::new();
    let only = asks.map_or(&nothing, |asks| &asks.full);
    let step = |name: QueueName| {
        let there = name.as_str() == ROOT_QUEUE || index.queues.contains_key(&name);
        let state = index.queues.get(&name).map_or("Open", |queue| queue.spec.state.as_str());
        Step {
            state: if there { state } else { "Missing" },
            faults: faults(index, &name),
            amounts: if there { amounts(index, &name, Some(only)) } else { Vec::new() },
            queue: name,
        }
    };
    names(index, queue).into_iter().map(step).collect()
}

/// The first jobs of a queue's line, then those of its jobs that are not in line; empty if they can not be seen.
#[must_use]
pub fn line(index: &Index, queue: &QueueName, first: usize) -> Vec<InLine> {
    if !index.is_complete() {
        return Vec::new();
    }
    let mut jobs: Vec<InLine> =
        line_of(index, queue).take(first).filter_map(|(id, at)| in_line(index, id, at)).collect();
    for entry in index.entries.values() {
        let State::Blocked(reason) = &entry.state else { continue };
        if queue_of(entry, index.workload_of(&entry.binding)) == Some(queue) {
            jobs.extend(waiting(index, &entry.binding.id, None, reason));
        }
    }
    jobs
}

fn line_of<'a>(index: &'a Index, queue: &'a QueueName) -> impl Iterator<Item = (&'a JobId, Position)> {
    let here = move |id: &JobId| {
        let entry = index.ids.get(id).and_then(|key| index.entries.get(key));
        entry.is_some_and(|entry| queue_of(entry, index.workload_of(&entry.binding)) == Some(queue))
    };
    index.engine.pending_positions().filter(move |(id, _)| here(id))
}

/// Where a job is in its line, and the first `most` of those ahead of it.
pub(super) fn ahead(index: &Index, id: &str, most: usize) -> (Option<Position>, Vec<InLine>) {
    let entry = index.ids.get(id).and_then(|key| index.entries.get(key));
    let queue = entry.and_then(|entry| queue_of(entry, index.workload_of(&entry.binding)));
    let Some(queue) = queue else { return (None, Vec::new()) };
    let place = line_of(index, queue).find(|(other, _)| other.as_str() == id).map(|(_, position)| position);
    let before = place.map_or(0, |position| position.place.saturating_sub(1)).min(most);
    let ahead = line_of(index, queue).take(before).filter_map(|(other, at)| in_line(index, other, at)).collect();
    (place, ahead)
}

fn in_line(index: &Index, id: &JobId, position: Position) -> Option<InLine> {
    let reason = index.engine.explain_pending_at(id.as_str(), position)?;
    waiting(index, id, Some(position.place), &reason)
}

fn waiting(index: &Index, id: &JobId, position: Option<usize>, reason: &Reason) -> Option<InLine> {
    let key = index.ids.get(id)?;
    let entry = index.entries.get(key)?;
    let binding = &entry.binding;
    let minimum = match entry.grows_as(id) {
        Some(growth) => Some(growth.more.ask.minimum()),
        None => asked(index, key).map(|ask| ask.minimum()),
    };
    let class = index.workload_of(binding).map_or("", |workload| &workload.class);
    Some(InLine {
        position,
        workload: (*binding.workload).clone(),
        priority: index.priority_of(class),
        created: at(binding.created),
        minimum: minimum.unwrap_or_default(),
        token: reason.token().to_owned(),
        sentence: reason.to_string(),
    })
}
