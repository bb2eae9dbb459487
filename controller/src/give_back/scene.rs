//! What a claim is decided on, from the index: queues, jobs that hold something, who may claim, and whether it would fit.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    fleet::EvictedPods,
    gang::{ClusterName, Gang, QueueName, TaskName, WorkloadRef},
    place::{self, Division, spread_constraints::is_duplicated},
    quantity::Quantity,
    queue::{
        JobId,
        ledger::Stage,
        preemption::{
            ElasticGang, EvictedPart, FailedAttempts, PlacedTask, Preemptor, QueueAccount, RuleScope, RunningJob,
            Victim,
        },
    },
    reason::{Bound, Reason},
    resources::{ResourceName, Resources},
    split::Strategy,
    webster::Tie,
};
use caldera_crds::{names::volcano::ROOT_QUEUE, workload::WorkloadKind};

use crate::{
    affinity,
    facts::{Binding, Key, Workload},
    index::{Entry, Index, State},
    room::{Question, Room},
    standing::Standing,
};

/// A job that may claim.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) id: JobId,
    pub(super) key: Key,
    pub(super) queue: QueueName,
    priority: i32,
    /// The whole of its minimum.
    asks: Resources,
    /// Its queue and those above it, the root last.
    path: Vec<QueueName>,
}

/// The first `each` jobs of each queue that wait for quota or room and whose claim could come to something, the most
/// important first; and when the first of those is old enough that are not yet.
pub(super) fn heads(index: &Index, each: usize, grace: i64) -> (Vec<Head>, Option<i64>) {
    let prospects = Prospects::new(index);
    let mut below: BTreeMap<QueueName, bool> = BTreeMap::new();
    let mut heads: Vec<(Reverse<i32>, Reverse<i32>, i64, Head)> = Vec::new();
    let mut young = None;
    for (id, position) in index.engine.queue_heads(each) {
        let Some(reason) = index.engine.explain_pending_at(id.as_str(), position) else { continue };
        let (Reason::Quota { queue, .. } | Reason::InsufficientCapacity { queue, .. }) = &reason else { continue };
        // What its own queue may have at most nobody else can give it.
        let own =
            matches!(&reason, Reason::Quota { bound: Bound::Queue(at) | Bound::Guaranteed(at), .. } if at == queue);
        let reclaims =
            !own && *below.entry(queue.clone()).or_insert_with(|| prospects.reclaims && deserves_more(index, queue));
        let lowest = prospects.lowest(queue);
        if !reclaims && lowest.is_none() || index.engine.is_blocked_by_reservation(id.as_str()) {
            continue;
        }
        let Some(key) = index.ids.get(id).cloned() else { continue };
        let Some(Standing::InLine(job)) = index.standing_of(&key) else { continue };
        let since = job.created.saturating_add(grace);
        let workload = index.entries.get(&key).and_then(|entry| index.workload_of(&entry.binding));
        let never = workload.is_none_or(|workload| index.never_preempts(&workload.class));
        if never || !(reclaims || lowest.is_some_and(|lowest| lowest < job.priority)) {
            continue;
        }
        if since > index.now.as_second() {
            young = Some(young.map_or(since, |young: i64| young.min(since)));
            continue;
        }
        let queue_priority = index.queues.get(&job.queue).map_or(0, |queue| queue.spec.priority);
        let (path, asks) = (path(index, &job.queue), job.ask.minimum());
        let head = Head { id: id.clone(), key, path, priority: job.priority, asks, queue: job.queue };
        heads.push((Reverse(queue_priority), Reverse(head.priority), job.created, head));
    }
    heads.sort_by(|a, b| (&a.0, &a.1, a.2, &a.3.id).cmp(&(&b.0, &b.1, b.2, &b.3.id)));
    (heads.into_iter().map(|(.., head)| head).collect(), young)
}

/// Whether a queue, or one above it, has less than it deserves of something.
fn deserves_more(index: &Index, queue: &QueueName) -> bool {
    path(index, queue).iter().filter(|name| name.as_str() != ROOT_QUEUE).any(|name| {
        let is = index.engine.entitlement_of(name);
        is.deserved.iter().any(|(name, deserved)| is.used.get(name.as_str()) < deserved)
    })
}

/// What is cheap to tell beforehand: the lowest priority of jobs that could be preempted, by queue and in all.
struct Prospects {
    reclaims: bool,
    /// Only a job's own queue counts.
    near: bool,
    by_queue: BTreeMap<QueueName, i32>,
    anywhere: Option<i32>,
}

impl Prospects {
    fn new(index: &Index) -> Self {
        let policy = &index.claims.policy;
        let near = policy.preempt.iter().all(|rule| rule.scope == RuleScope::SameQueue);
        let mut prospects = Self { reclaims: policy.reclaim, near, by_queue: BTreeMap::new(), anywhere: None };
        if policy.preempt.is_empty() {
            return prospects;
        }
        for entry in index.entries.values().filter(|entry| matches!(entry.state, State::Holding { .. })) {
            let Some(record) = &entry.binding.admission else { continue };
            let says = index.workload_of(&entry.binding).and_then(|workload| workload.preemptable);
            if says.unwrap_or(policy.unset.preempt) {
                let lowest = prospects.by_queue.entry(record.queue.clone()).or_insert(record.priority);
                *lowest = record.priority.min(*lowest);
            }
        }
        prospects.anywhere = prospects.by_queue.values().copied().min();
        prospects
    }

    fn lowest(&self, queue: &QueueName) -> Option<i32> {
        if self.near { self.by_queue.get(queue).copied() } else { self.anywhere }
    }
}

/// The queue and those above it, the root last.
pub(crate) fn path(index: &Index, queue: &QueueName) -> Vec<QueueName> {
    let mut path = vec![queue.clone()];
    while let Some(parent) = path.last().and_then(|at| index.queues.get(at)?.spec.parent.clone()) {
        if path.contains(&parent) || parent.as_str() == ROOT_QUEUE {
            break;
        }
        path.push(parent);
    }
    path.push(ROOT_QUEUE.into());
    path
}

/// Every queue but the root.
pub(super) fn accounts(index: &Index) -> BTreeMap<QueueName, QueueAccount> {
    let account = |(name, queue): (&QueueName, &crate::facts::QueueFacts)| {
        let is = index.engine.entitlement_of(name);
        let account = QueueAccount {
            parent: queue.spec.parent.clone().filter(|parent| parent.as_str() != ROOT_QUEUE),
            guarantee: is.guarantee,
            deserved: is.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect(),
            used: is.used,
            reclaimable: queue.spec.reclaimable,
            priority: queue.spec.priority,
        };
        (name.clone(), account)
    };
    index.queues.iter().filter(|(name, _)| name.as_str() != ROOT_QUEUE).map(account).collect()
}

/// Every job that holds something.
pub(super) fn holders(index: &Index) -> Vec<RunningJob> {
    index.entries.values().filter_map(|entry| holder(index, entry)).collect()
}

fn holder(index: &Index, entry: &Entry) -> Option<RunningJob> {
    let binding = &entry.binding;
    let charge = index.engine.charge_of(binding.id.as_str()).filter(|charge| !charge.is_empty())?;
    let stage = match (&entry.assumed, &entry.state) {
        (None, State::Holding { stage, .. }) => Some(*stage),
        _ => None,
    };
    let workload = index.workload_of(binding);
    let queue = binding.admission.as_ref().map(|record| &record.queue).or(workload.map(|workload| &workload.queue))?;
    let ours = matches!(stage, Some(Stage::Admitted | Stage::Placed))
        && binding.admission.is_some()
        && !binding.deleting
        && !binding.suspended
        && workload.is_some_and(|workload| !workload.deleting);
    let placed = stage == Some(Stage::Placed) || stage == Some(Stage::Foreign);
    Some(RunningJob {
        id: binding.id.clone(),
        queue: queue.clone(),
        namespace: Arc::clone(&binding.key.namespace),
        priority: binding.admission.as_ref().map_or(0, |record| record.priority),
        preemptable: workload.and_then(|workload| workload.preemptable),
        ours,
        created: binding.created,
        started: placed.then(|| binding.scheduled.unwrap_or(binding.created)),
        charge,
        elastic: workload.filter(|_| ours && placed).and_then(|workload| elastic(index, binding, workload)),
        evictions: binding.eviction.as_ref().map(|eviction| eviction.eviction_history()).unwrap_or_default(),
        progressed: workload.is_some_and(|workload| workload.progress.succeeded > 0),
    })
}

/// The pods that a placed gang could spare. Only Volcano's kinds know what to do with fewer replicas and the same minimum,
/// and of a gang of several tasks only where each task's own minimum counts: else the scheduler would not cut it.
fn elastic(index: &Index, binding: &Binding, workload: &Workload) -> Option<ElasticGang> {
    let gang = workload.gang.as_ref().ok()?;
    let placement = binding.placement.as_deref()?;
    let division = placement.placement.division.as_ref();
    let strategy = match division? {
        Division::Duplicated => return None,
        Division::Aggregated | Division::Unsupported => Strategy::Aggregated,
        Division::StaticWeight { .. } => Strategy::StaticWeight,
        Division::DynamicWeight => Strategy::DynamicWeight,
    };
    let binds = gang.task_minimums_bind();
    let cuts = binds || (gang.tasks.len() == 1 && gang.tasks[0].partition.is_none());
    let finished = workload.progress.succeeded > 0 || workload.progress.failed > 0;
    if workload.kind != WorkloadKind::VolcanoJob || is_duplicated(division) || !cuts || finished {
        return None;
    }
    let tasks = gang.tasks.iter().zip(placed(binding, gang)).map(|(task, placed)| PlacedTask {
        name: task.name.clone(),
        request: task.request.clone(),
        priority: index.priority_of(&task.priority_class),
        min: if binds { task.min_available } else { 0 },
        fixed: task.partition.is_some(),
        placed,
    });
    let (tasks, tie) = (tasks.collect(), Tie::of_uid(&placement.uid));
    Some(ElasticGang { tasks, min_available: gang.min_available, strategy, tie })
}

/// Where the pods of each task are: by the plan, else (one task) by the replicas.
pub(crate) fn placed(binding: &Binding, gang: &Gang) -> Vec<BTreeMap<ClusterName, u32>> {
    let of = |task: &caldera_core::gang::Task| {
        let pods = |(cluster, replicas): &(ClusterName, u32)| {
            let share = binding.plan.as_ref().and_then(|plan| plan.clusters.get(cluster));
            let pods = match share {
                Some(share) => share.tasks.get(&task.name).map_or(0, |share| share.replicas),
                None if gang.tasks.len() == 1 => *replicas,
                None => task.replicas,
            };
            (cluster.clone(), pods)
        };
        binding.clusters.iter().map(pods).collect()
    };
    gang.tasks.iter().map(of).collect()
}

/// What a job claims.
pub(super) fn claim(index: &mut Index, head: &Head, attempts: FailedAttempts) -> Preemptor {
    let mut lacks: BTreeSet<ResourceName> = BTreeSet::new();
    for name in &head.path {
        let is = index.engine.entitlement_of(name);
        let short = |(name, asked): &(&ResourceName, Quantity)| {
            is.used.get(name.as_str()).saturating_add(*asked) > is.real.get(name.as_str())
        };
        lacks.extend(head.asks.iter().filter(short).map(|(name, _)| name.clone()));
    }
    let free = index.room.free();
    let short = head.asks.iter().filter(|(name, asked)| *asked > free.get(name.as_str()));
    lacks.extend(short.map(|(name, _)| name.clone()));
    Preemptor {
        id: head.id.clone(),
        queue: head.queue.clone(),
        priority: head.priority,
        // Else it would not have come here.
        never_preempts: false,
        asks: head.asks.clone(),
        lacks,
        attempts,
    }
}

/// Whether a claimant would fit with some victims gone: quota on its way up, then the place that the scheduler would find.
pub(super) struct After<'a> {
    room: &'a mut Room,
    placement: Cow<'a, place::Binding>,
    gang: &'a Gang,
    whole: bool,
    asks: &'a Resources,
    entries: &'a BTreeMap<Key, Box<Entry>>,
    ids: &'a BTreeMap<JobId, Key>,
    workloads: &'a BTreeMap<Arc<WorkloadRef>, Box<Workload>>,
    /// The queues on the way up.
    way: Vec<Way>,
}

/// A queue on the claimant's way up.
struct Way {
    used: Resources,
    real: Resources,
    /// Itself and the queues below it; `None` for all.
    holds: Option<BTreeSet<QueueName>>,
}

impl<'a> After<'a> {
    pub(super) fn new(index: &'a mut Index, head: &'a Head) -> Option<Self> {
        let paths: Vec<(&QueueName, Vec<QueueName>)> =
            index.queues.keys().map(|name| (name, path(index, name))).collect();
        let below = |at: &QueueName| {
            let below = paths.iter().filter(|(_, path)| path.contains(at)).map(|(name, _)| (*name).clone());
            (at.as_str() != ROOT_QUEUE).then(|| below.collect())
        };
        let way = |name: &QueueName| {
            let is = index.engine.entitlement_of(name);
            Way { used: is.used, real: is.real, holds: below(name) }
        };
        let way = head.path.iter().map(way).collect();
        let binding = &index.entries.get(&head.key)?.binding;
        let workload = index.workloads.get(&binding.workload)?;
        // Others of its groups who give way are taken to stay: rather no claim than one in vain.
        let peers = affinity::peers(&index.affinities, &index.entries, &index.room, binding);
        Some(Self {
            placement: affinity::with(binding.placement.as_deref()?, peers),
            room: &mut index.room,
            gang: workload.gang.as_ref().ok()?,
            whole: workload.kind == WorkloadKind::VolcanoJob,
            asks: &head.asks,
            entries: &index.entries,
            ids: &index.ids,
            workloads: &index.workloads,
            way,
        })
    }

    pub(super) fn fits(&mut self, victims: &[&Victim]) -> bool {
        self.has_quota(victims) && {
            let gone =
                victims.iter().filter_map(|victim| Some((victim.id.to_string(), self.leaving(victim)?))).collect();
            let question = Question { binding: &self.placement, gang: self.gang, whole: self.whole, previous: None };
            self.room.fits_after(question, &gone)
        }
    }

    fn has_quota(&self, victims: &[&Victim]) -> bool {
        self.way.iter().all(|Way { used, real, holds }| {
            self.asks.iter().all(|(name, asked)| {
                let freed = victims
                    .iter()
                    .filter(|victim| holds.as_ref().is_none_or(|holds| holds.contains(&victim.queue)))
                    .fold(Quantity::ZERO, |sum, victim| sum.saturating_add(victim.frees.get(name.as_str())));
                used.get(name.as_str()).minus(freed).saturating_add(asked) <= real.get(name.as_str())
            })
        })
    }

    fn leaving(&self, victim: &Victim) -> Option<EvictedPods> {
        let EvictedPart::Surplus(less) = &victim.taken else { return Some(EvictedPods::All) };
        let binding = &self.entries.get(self.ids.get(&victim.id)?)?.binding;
        let gang = self.workloads.get(&binding.workload)?.gang.as_ref().ok()?;
        let pods = |tasks: &BTreeMap<TaskName, u32>| {
            gang.tasks.iter().map(|task| tasks.get(&task.name).copied().unwrap_or(0)).collect()
        };
        Some(EvictedPods::Some(less.clusters.iter().map(|(name, tasks)| (name.to_string(), pods(tasks))).collect()))
    }
}
