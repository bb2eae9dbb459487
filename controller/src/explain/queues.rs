//! Queues with amounts, faults and job counts, and the jobs that wait in a queue, as values to print.
//!
//! Rule: a job counts in its queue and in every queue above it. A job that somebody must change counts as blocked, and
//! has no position.
//! Without a view of all objects the usage that the controller last wrote is shown, and no counts or lists of jobs.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    capacity_reservation::CapacityReservation,
    gang::{QueueName, WorkloadRef},
    quantity::Quantity,
    queue::{Dequeue, JobId, TenantOrder, ledger::AdmissionStage},
    reason::{Position, QueueProblem, Reason},
    resources::{ResourceName, Resources},
    tenant::Tenant,
};
use caldera_crds::names::volcano::ROOT_QUEUE;
use serde::Serialize;

use super::{
    amount_form::{write_amount, write_amounts, write_known_amount},
    format_second,
    tenant_turn::{TenantTurn, list_tenant_shares},
};
use crate::{
    decide::{
        Controller,
        admission::assess::ask_of,
        bindings::{job_gangs::Part, jobs::JobPhase},
    },
    observe::{Key, ObjectKind},
    write::pod_group::phase_of,
};

/// One resource of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Of what.
    pub resource: ResourceName,
    /// Charged, with all queues below.
    #[serde(serialize_with = "write_amount")]
    pub used: Quantity,
    /// What it may take back up to.
    #[serde(serialize_with = "write_amount")]
    pub deserved: Quantity,
    /// Kept free for it.
    #[serde(serialize_with = "write_amount")]
    pub guarantee: Quantity,
    /// As its object says; `None` where it says nothing.
    #[serde(serialize_with = "write_known_amount")]
    pub capability: Option<Quantity>,
    /// What of it the queues above, others' guarantees and the clusters leave; `None` if the clusters can not be seen.
    #[serde(serialize_with = "write_known_amount")]
    pub real_capability: Option<Quantity>,
    /// Used beyond what it deserves.
    #[serde(serialize_with = "write_amount")]
    pub borrowed: Quantity,
    /// What it used lately, where that counts (order `fair-history`), of what it deserves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_lately: Option<UsedLately>,
    /// Whether the asker sees what is used; else it is 0 here, and says nothing.
    #[serde(skip)]
    pub is_use_seen: bool,
    /// Whether the asker sees what it deserves and what is kept free for it; else they are 0 here, and say nothing.
    #[serde(skip)]
    pub is_share_seen: bool,
}

/// What a queue used lately of a resource: a mean in which what is longer ago counts less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsedLately {
    /// The mean.
    #[serde(serialize_with = "write_amount")]
    pub amount: Quantity,
    /// Seconds after which what was used counts half.
    pub half_life: i64,
}

/// One queue on the way from the root to a job's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathQueue {
    /// Which.
    pub queue: QueueName,
    /// `Open`, `Closing`, `Closed`, or `Missing`; `NotVisible` where queues can not be seen.
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

/// A limit of running jobs, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningLimit {
    /// Whose jobs it counts; `None` for those of all.
    pub namespace: Option<String>,
    /// The same where it counts those of a user.
    pub user: Option<String>,
    /// Jobs that hold anything of the queue or of those below it.
    pub running: u64,
    /// The limit.
    pub limit: u32,
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
    /// How priorities of its jobs rise while they wait, if it says so.
    pub priority_aging: Option<String>,
    /// Which tenants take turns in it, if it says so.
    pub tenant_order: Option<&'static str>,
    /// What its tenants have of it where they take turns, the largest first; empty if its jobs can not be seen.
    pub tenant_shares: Vec<TenantTurn>,
    /// By resource.
    pub amounts: Vec<Amounts>,
    /// The limits of jobs that it sets; empty if its jobs can not be seen.
    pub running_limits: Vec<RunningLimit>,
    /// `None` if its jobs can not be seen.
    pub jobs: Option<Counts>,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InLine {
    /// From 1; `None` for one that is not in line: it was evicted, or somebody has to change something.
    pub position: Option<usize>,
    /// Which.
    pub workload: WorkloadRef,
    /// Its value.
    pub priority: i32,
    /// By how much it has risen while it waits.
    pub priority_gained: i32,
    /// When its binding was made.
    pub created: Option<String>,
    /// What it needs at least.
    #[serde(serialize_with = "write_amounts")]
    pub minimum: Resources,
    /// Why it waits, for machines.
    pub token: String,
    /// Why it waits, for people.
    pub sentence: String,
}

/// All queues, parents before their children, siblings by name; those whose parents lead nowhere at the end.
#[must_use]
pub fn list_queues(controller: &Controller) -> Vec<QueueView> {
    let counts = controller.is_complete().then(|| count_jobs(controller));
    let mut children: BTreeMap<&str, Vec<&QueueName>> = BTreeMap::new();
    for (name, queue) in &controller.objects.queues {
        let parent = queue.spec.parent.as_ref().map_or(ROOT_QUEUE, QueueName::as_str);
        if name.as_str() != ROOT_QUEUE {
            children.entry(parent).or_default().push(name);
        }
    }
    let root = QueueName::from(ROOT_QUEUE);
    let mut views = Vec::new();
    let mut stack = vec![(&root, 0)];
    while let Some((name, depth)) = stack.pop() {
        views.push(view_queue(controller, name, depth, counts.as_ref()));
        stack.extend(children.remove(name.as_str()).into_iter().flatten().rev().map(|child| (child, depth + 1)));
    }
    for lost in children.into_values().flatten() {
        views.push(view_queue(controller, lost, 1, counts.as_ref()));
    }
    for gone in list_gone_queues(controller) {
        views.push(view_queue(controller, &gone, 1, counts.as_ref()));
    }
    views
}

/// Queues without an object to which something is charged: the fleet has that less all the same.
fn list_gone_queues(controller: &Controller) -> BTreeSet<QueueName> {
    let bindings = controller.objects.bindings.values();
    let holds = |key: &Key| {
        let stage = controller.jobs.states.get(key).and_then(|state| state.stage());
        stage.is_some_and(|stage| stage != AdmissionStage::Finished)
    };
    let queues = bindings.filter(|binding| holds(&binding.key)).filter_map(|b| controller.objects.queue_of(b));
    queues.filter(|queue| !controller.objects.queues.contains_key(*queue)).cloned().collect()
}

fn view_queue(
    controller: &Controller,
    name: &QueueName,
    depth: usize,
    counts: Option<&BTreeMap<QueueName, Counts>>,
) -> QueueView {
    let spec = controller.objects.queues.get(name).map(|queue| &queue.spec);
    let root = name.as_str() == ROOT_QUEUE;
    let parent = spec.and_then(|spec| spec.parent.clone()).unwrap_or_else(|| ROOT_QUEUE.into());
    // A fifo queue says it in vain.
    let is_followed = |order: &TenantOrder| *order == TenantOrder::None || controller.jobs.engine.takes_turns(name);
    QueueView {
        name: name.clone(),
        parent: (!root).then_some(parent),
        depth,
        state: spec.map_or(if root { "Open" } else { "Missing" }, |spec| spec.state.as_str()),
        problem: describe_problem(controller, name),
        faults: list_faults(controller, name),
        priority: spec.map_or(0, |spec| spec.priority),
        weight: spec.map_or(1, |spec| spec.weight),
        reclaimable: spec.is_none_or(|spec| spec.reclaimable),
        dequeue: match spec.map(|spec| spec.dequeue) {
            Some(Dequeue::Fifo) => "fifo",
            _ => "traverse",
        },
        tenant_order: spec.and_then(|spec| spec.tenant_order).filter(is_followed).map(TenantOrder::as_str),
        tenant_shares: counts.map(|_| list_tenant_shares(&controller.jobs.engine, name)).unwrap_or_default(),
        priority_aging: spec.and_then(|spec| spec.aging).map(|aging| aging.to_string()),
        amounts: list_amounts(controller, name, None),
        running_limits: counts.map(|_| list_running_limits(controller, name)).unwrap_or_default(),
        jobs: counts.map(|counts| counts.get(name).copied().unwrap_or_default()),
    }
}

fn list_running_limits(controller: &Controller, name: &QueueName) -> Vec<RunningLimit> {
    let engine = &controller.jobs.engine;
    let Some(limits) = engine.queue_spec(name).map(|spec| spec.running) else { return Vec::new() };
    let usage = engine.usage_of(name);
    let all = limits.all.map(|limit| RunningLimit { namespace: None, user: None, running: usage.running, limit });
    let of_tenant = |(tenant, running): (&Tenant, &u64)| {
        let limit = if tenant.user().is_some() { limits.of_user } else { limits.of_namespace }?;
        let [namespace, user] = [tenant.namespace(), tenant.user()].map(|name| name.map(str::to_owned));
        Some(RunningLimit { namespace, user, running: *running, limit })
    };
    all.into_iter().chain(usage.running_of.iter().filter_map(of_tenant)).collect()
}

/// Being above others is not a fault.
fn describe_problem(controller: &Controller, name: &QueueName) -> Option<String> {
    let problem = controller.jobs.engine.queue_problem(name)?;
    let wrong = !matches!(problem, QueueProblem::NotLeaf(_) | QueueProblem::Root);
    wrong.then(|| Reason::Queue { queue: name.clone(), problem }.to_string())
}

fn list_faults(controller: &Controller, name: &QueueName) -> Vec<String> {
    let unread = controller.objects.queues.get(name).into_iter().flat_map(|queue| &queue.wrong);
    let unread = unread.map(|wrong| format!("{wrong}: taken for 0"));
    unread.chain(controller.jobs.engine.queue_faults(name).iter().map(ToString::to_string)).collect()
}

/// The resources that matter to a queue, or those that a job asks for.
pub(crate) fn list_amounts(controller: &Controller, name: &QueueName, only: Option<&Resources>) -> Vec<Amounts> {
    let hidden = controller.list_unlisted_kinds();
    let has = controller.jobs.engine.entitlement_of(name);
    let facts = controller.objects.queues.get(name);
    // Whose bindings can not be seen has what the controller last wrote.
    let reported = !controller.is_complete();
    let used = match facts {
        Some(facts) if reported => &facts.status.allocated,
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
    let engine = &controller.jobs.engine;
    let lately = engine.history_half_life().zip(engine.mean_used_of(name));
    let used_lately = |resource: &ResourceName| {
        let (half_life, mean) = lately.as_ref()?;
        let amount = mean.iter().find(|(known, _)| *known == resource).map(|(_, amount)| amount)?;
        Some(UsedLately { amount, half_life: *half_life })
    };
    let is_share_seen = !hidden.contains(&ObjectKind::Clusters) && !hidden.contains(&ObjectKind::Queues);
    let one = |name: &ResourceName| {
        let of = |list: &Resources| list.get(name.as_str());
        let borrowed = of(used).saturating_sub(of(&has.deserved)).max(Quantity::ZERO);
        Amounts {
            resource: name.clone(),
            used: of(used),
            deserved: of(&has.deserved),
            guarantee: of(&has.guarantee),
            capability: facts.and_then(|facts| facts.spec.capability.get(name.as_str())),
            // Where no queue says how much of a card model there is at most, nobody does.
            real_capability: (!hidden.contains(&ObjectKind::Clusters) && (!name.is_card() || !of(&has.real).is_zero()))
                .then(|| of(&has.real)),
            borrowed: if reported { borrowed } else { of(&has.borrowed) },
            used_lately: used_lately(name),
            is_use_seen: !reported || facts.is_some(),
            is_share_seen,
        }
    };
    names.into_iter().map(one).collect()
}

/// Jobs by queue, each counted in all queues above its own too.
fn count_jobs(controller: &Controller) -> BTreeMap<QueueName, Counts> {
    let mut all: BTreeMap<QueueName, Counts> = BTreeMap::new();
    for (key, state) in &controller.jobs.states {
        let Some(binding) = controller.objects.bindings.get(key) else { continue };
        let workload = controller.objects.workload_of(binding);
        let Some(queue) = controller.objects.queue_of(binding) else { continue };
        let count: fn(&mut Counts) -> &mut usize = match (&state.assumed, &state.phase) {
            (_, JobPhase::OutOfScope) => continue,
            (None, JobPhase::Blocked(reason)) if reason.needs_user_action() => |counts| &mut counts.blocked,
            (None, JobPhase::Pending) if controller.jobs.engine.is_unsatisfiable(binding.id.as_str()) => {
                |counts| &mut counts.blocked
            }
            (None, JobPhase::Holding { stage: AdmissionStage::Finished, .. }) => |counts| &mut counts.finished,
            (None, JobPhase::Holding { stage, .. }) => {
                match workload.map(|workload| phase_of(workload, Some(*stage))) {
                    Some("Running") => |counts| &mut counts.running,
                    _ => |counts| &mut counts.starting,
                }
            }
            (Some(_), _) | (None, JobPhase::Pending | JobPhase::Blocked(_)) => |counts| &mut counts.waiting,
        };
        for name in controller.objects.queue_path(queue) {
            *count(all.entry(name).or_default()) += 1;
        }
    }
    all
}

pub(super) fn list_path(controller: &Controller, queue: &QueueName, asked: Option<&Resources>) -> Vec<PathQueue> {
    let nothing = Resources::new();
    let only = asked.unwrap_or(&nothing);
    let absent = if controller.list_unlisted_kinds().contains(&ObjectKind::Queues) { "NotVisible" } else { "Missing" };
    let step = |name: QueueName| {
        let there = name.as_str() == ROOT_QUEUE || controller.objects.queues.contains_key(&name);
        let state = controller.objects.queues.get(&name).map_or("Open", |queue| queue.spec.state.as_str());
        PathQueue {
            state: if there { state } else { absent },
            faults: list_faults(controller, &name),
            amounts: if there { list_amounts(controller, &name, Some(only)) } else { Vec::new() },
            queue: name,
        }
    };
    controller.objects.queue_path(queue).into_iter().rev().map(step).collect()
}

/// Amounts of the fleet that are kept for a time, also those that are over.
#[must_use]
pub fn list_capacity_reservations(controller: &Controller) -> Vec<CapacityReservation> {
    controller.objects.capacity_reservations.list_kept()
}

/// The first jobs of a queue's line, as many that can never start, then those that are not in line for another reason;
/// empty if they can not be seen.
#[must_use]
pub fn list_waiting_jobs(controller: &Controller, queue: &QueueName, first: usize) -> Vec<InLine> {
    if !controller.is_complete() {
        return Vec::new();
    }
    let (in_line, never): (Vec<_>, Vec<_>) =
        list_positions(controller, queue).partition(|(id, _)| !controller.jobs.engine.is_unsatisfiable(id.as_str()));
    let listed = in_line.into_iter().take(first).chain(never.into_iter().take(first));
    let mut jobs: Vec<InLine> = listed.filter_map(|(id, at)| describe_pending(controller, id, at)).collect();
    for (key, state) in &controller.jobs.states {
        let (JobPhase::Blocked(reason), Some(binding)) = (&state.phase, controller.objects.bindings.get(key)) else {
            continue;
        };
        if controller.objects.queue_of(binding) == Some(queue) {
            jobs.extend(describe_waiting(controller, &binding.id, None, reason));
        }
    }
    jobs
}

fn list_positions<'a>(controller: &'a Controller, queue: &'a QueueName) -> impl Iterator<Item = (&'a JobId, Position)> {
    let here = move |id: &JobId| find_queue(controller, id) == Some(queue);
    controller.jobs.engine.list_pending_positions().filter(move |(id, _)| here(id))
}

fn find_queue<'a>(controller: &'a Controller, id: &JobId) -> Option<&'a QueueName> {
    let binding = controller.objects.bindings.get(controller.jobs.keys.get(id)?)?;
    controller.objects.queue_of(binding)
}

/// Where a job is in its line, and the first `most` of those ahead of it.
pub(super) fn list_ahead(controller: &Controller, id: &str, most: usize) -> (Option<Position>, Vec<InLine>) {
    let Some(queue) = find_queue(controller, &id.into()) else { return (None, Vec::new()) };
    let place = list_positions(controller, queue).find(|(other, _)| other.as_str() == id).map(|(_, position)| position);
    let before = place.map_or(0, |position| position.place.saturating_sub(1)).min(most);
    let ahead = list_positions(controller, queue)
        .filter(|(other, _)| !controller.jobs.engine.is_unsatisfiable(other.as_str()))
        .take(before)
        .filter_map(|(other, at)| describe_pending(controller, other, at))
        .collect();
    (place, ahead)
}

fn describe_pending(controller: &Controller, id: &JobId, position: Position) -> Option<InLine> {
    let reason = controller.jobs.engine.explain_pending_at(id.as_str(), position)?;
    describe_waiting(controller, id, (!reason.is_unsatisfiable()).then_some(position.place), &reason)
}

fn sum_minimums(unit: &[Part]) -> Resources {
    let mut sum = Resources::new();
    unit.iter().for_each(|part| sum.add(&part.job.ask.minimum()));
    sum
}

fn describe_waiting(controller: &Controller, id: &JobId, position: Option<usize>, reason: &Reason) -> Option<InLine> {
    let key = controller.jobs.keys.get(id)?;
    let (binding, state) = (controller.objects.bindings.get(key)?, controller.jobs.states.get(key)?);
    let unit = controller.jobs.gangs.parts_of_leader(id);
    let minimum = match state.increase_named(id) {
        Some(increase) => Some(increase.ask.minimum()),
        // Those that start together have one place.
        None if !unit.is_empty() => Some(sum_minimums(unit)),
        None => ask_of(&controller.objects, &controller.capacity, binding).map(|ask| ask.minimum()),
    };
    let class = controller.objects.workload_of(binding).map_or("", |workload| &workload.class);
    Some(InLine {
        position,
        workload: (*binding.workload).clone(),
        priority: controller.objects.priority_of_class(class),
        priority_gained: controller.jobs.engine.priority_gained(id.as_str()),
        created: format_second(binding.created),
        minimum: minimum.unwrap_or_default(),
        token: reason.token().to_owned(),
        sentence: reason.to_string(),
    })
}
