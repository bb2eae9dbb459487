//! What a preemption attempt is decided on: queues, jobs that hold something, who may preempt, and whether it would
//! fit.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    fleet::EvictedPods,
    gang::{Gang, QueueName, TaskName},
    place::{self, Division, spread_constraints::is_duplicated},
    quantity::Quantity,
    queue::{
        JobId,
        ledger::Stage,
        preemption::{
            ElasticGang, EvictedPart, FailedAttempts, PlacedTask, PreemptionPolicy, Preemptor, QueueAccount, RuleScope,
            RunningJob, Victim,
        },
    },
    reason::{Bound, Reason},
    resources::{ResourceName, Resources},
    split::Strategy,
    webster::Tie,
};
use caldera_crds::{names::volcano::ROOT_QUEUE, workload::WorkloadKind};
use jiff::Timestamp;

use super::super::{
    affinity::place_with_peers,
    assess::assess_now,
    binding_state::BindingState,
    capacity::{FleetCapacity, PlacementQuestion},
    jobs::{JobPhase, JobState, Jobs},
};
use crate::observe::{Binding, Key, Objects, QueueFacts, Workload};

/// A pending job that an attempt may be made for.
#[derive(Debug, Clone)]
pub(super) struct PendingHead {
    pub(super) id: JobId,
    pub(super) key: Key,
    pub(super) queue: QueueName,
    priority: i32,
    /// The whole of its minimum.
    asks: Resources,
    /// Its queue and those above it, the root last.
    path: Vec<QueueName>,
}

/// The first `each` jobs of each queue that lack quota or capacity and that an attempt could help, the most important
/// first; and when the first of those is old enough that are not yet.
pub(super) fn list_preemptors(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    policy: &PreemptionPolicy,
    each: usize,
    now: Timestamp,
) -> (Vec<PendingHead>, Option<i64>) {
    let prospects = Prospects::new(objects, jobs, policy);
    let mut reclaims_for: BTreeMap<QueueName, bool> = BTreeMap::new();
    let mut ranked: Vec<(Reverse<i32>, Reverse<i32>, i64, PendingHead)> = Vec::new();
    let mut young: Option<i64> = None;
    for (id, position) in jobs.engine.queue_heads(each) {
        let Some(reason) = jobs.engine.explain_pending_at(id.as_str(), position) else { continue };
        let (Reason::Quota { queue, .. } | Reason::InsufficientCapacity { queue, .. }) = &reason else { continue };
        // What its own queue may have at most nobody else can give it.
        let own =
            matches!(&reason, Reason::Quota { bound: Bound::Queue(at) | Bound::Guaranteed(at), .. } if at == queue);
        let deserves_more = || policy.reclaim && deserves_more(objects, jobs, queue);
        let reclaims = !own && *reclaims_for.entry(queue.clone()).or_insert_with(deserves_more);
        let lowest = prospects.lowest_priority(queue);
        if !reclaims && lowest.is_none() || jobs.engine.is_blocked_by_reservation(id.as_str()) {
            continue;
        }
        let Some(binding) = jobs.keys.get(id).and_then(|key| objects.bindings.get(key)) else { continue };
        let BindingState::Pending(job) = assess_now(objects, jobs, capacity, binding, now) else { continue };
        let workload = objects.workload_of(binding);
        let never = workload.is_none_or(|workload| objects.never_preempts(&workload.class));
        if never || !(reclaims || lowest.is_some_and(|lowest| lowest < job.priority)) {
            continue;
        }
        let since = job.created.saturating_add(policy.bounds.patience);
        if since > now.as_second() {
            young = Some(young.map_or(since, |young| young.min(since)));
            continue;
        }
        let queue_priority = objects.queues.get(&job.queue).map_or(0, |queue| queue.spec.priority);
        let (path, asks) = (objects.queue_path(&job.queue), job.ask.minimum());
        let (id, key) = (id.clone(), binding.key.clone());
        let preemptor = PendingHead { id, key, path, priority: job.priority, asks, queue: job.queue };
        ranked.push((Reverse(queue_priority), Reverse(preemptor.priority), job.created, preemptor));
    }
    ranked.sort_by(|a, b| (&a.0, &a.1, a.2, &a.3.id).cmp(&(&b.0, &b.1, b.2, &b.3.id)));
    (ranked.into_iter().map(|(.., preemptor)| preemptor).collect(), young)
}

/// Whether a queue, or one above it, has less than it deserves of something.
fn deserves_more(objects: &Objects, jobs: &Jobs, queue: &QueueName) -> bool {
    objects.queue_path(queue).iter().filter(|name| name.as_str() != ROOT_QUEUE).any(|name| {
        let is = jobs.engine.entitlement_of(name);
        is.deserved.iter().any(|(name, deserved)| is.used.get(name.as_str()) < deserved)
    })
}

/// What is cheap to tell beforehand: the lowest priority of jobs that could be preempted, by queue and in all.
struct Prospects {
    /// Only a job's own queue counts.
    near: bool,
    by_queue: BTreeMap<QueueName, i32>,
    anywhere: Option<i32>,
}

impl Prospects {
    fn new(objects: &Objects, jobs: &Jobs, policy: &PreemptionPolicy) -> Self {
        let near = policy.preempt.iter().all(|rule| rule.scope == RuleScope::SameQueue);
        let mut prospects = Self { near, by_queue: BTreeMap::new(), anywhere: None };
        if policy.preempt.is_empty() {
            return prospects;
        }
        for (binding, state) in list_bindings(objects, jobs) {
            let Some(record) = binding.admission.as_ref().filter(|_| matches!(state.phase, JobPhase::Holding { .. }))
            else {
                continue;
            };
            let says = objects.workload_of(binding).and_then(|workload| workload.preemptable);
            if says.unwrap_or(policy.unset.preempt) {
                let lowest = prospects.by_queue.entry(record.queue.clone()).or_insert(record.priority);
                *lowest = record.priority.min(*lowest);
            }
        }
        prospects.anywhere = prospects.by_queue.values().copied().min();
        prospects
    }

    fn lowest_priority(&self, queue: &QueueName) -> Option<i32> {
        if self.near { self.by_queue.get(queue).copied() } else { self.anywhere }
    }
}

fn list_bindings<'a>(objects: &'a Objects, jobs: &'a Jobs) -> impl Iterator<Item = (&'a Binding, &'a JobState)> {
    let with_state = |(key, state): (&'a Key, &'a Box<JobState>)| Some((&**objects.bindings.get(key)?, &**state));
    jobs.states.iter().filter_map(with_state)
}

/// Every queue but the root.
pub(super) fn list_accounts(objects: &Objects, jobs: &Jobs) -> BTreeMap<QueueName, QueueAccount> {
    let account = |(name, queue): (&QueueName, &QueueFacts)| {
        let is = jobs.engine.entitlement_of(name);
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
    objects.queues.iter().filter(|(name, _)| name.as_str() != ROOT_QUEUE).map(account).collect()
}

/// Every job that holds quota.
pub(super) fn list_holders(objects: &Objects, jobs: &Jobs) -> Vec<RunningJob> {
    list_bindings(objects, jobs).filter_map(|(binding, state)| describe_holder(objects, jobs, binding, state)).collect()
}

fn describe_holder(objects: &Objects, jobs: &Jobs, binding: &Binding, state: &JobState) -> Option<RunningJob> {
    let charge = jobs.engine.charge_of(binding.id.as_str()).filter(|charge| !charge.is_empty())?;
    let stage = state.stage().filter(|_| state.assumed.is_none());
    let workload = objects.workload_of(binding);
    let ours = matches!(stage, Some(Stage::Admitted | Stage::Placed))
        && binding.admission.is_some()
        && !binding.deleting
        && !binding.suspended
        && workload.is_some_and(|workload| !workload.deleting);
    let placed = stage == Some(Stage::Placed) || stage == Some(Stage::Foreign);
    Some(RunningJob {
        id: binding.id.clone(),
        queue: objects.queue_of(binding)?.clone(),
        namespace: Arc::clone(&binding.key.namespace),
        priority: binding.admission.as_ref().map_or(0, |record| record.priority),
        preemptable: workload.and_then(|workload| workload.preemptable),
        ours,
        created: binding.created,
        started: placed.then(|| binding.scheduled.unwrap_or(binding.created)),
        charge,
        elastic: workload.filter(|_| ours && placed).and_then(|workload| describe_elastic(objects, binding, workload)),
        evictions: binding.eviction.as_ref().map(|eviction| eviction.eviction_history()).unwrap_or_default(),
        progressed: workload.is_some_and(|workload| workload.progress.succeeded > 0),
    })
}

/// The pods that a placed gang could spare. Only Volcano's kinds know what to do with fewer replicas and the same
/// minimum, and of a gang of several tasks only where each task's own minimum counts: else the scheduler would not cut
/// it.
fn describe_elastic(objects: &Objects, binding: &Binding, workload: &Workload) -> Option<ElasticGang> {
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
    let tasks = gang.tasks.iter().zip(binding.pods_by_cluster(gang)).map(|(task, placed)| PlacedTask {
        name: task.name.clone(),
        request: task.request.clone(),
        priority: objects.priority_of(&task.priority_class),
        min: if binds { task.min_available } else { 0 },
        fixed: task.partition.is_some(),
        placed,
    });
    let (tasks, tie) = (tasks.collect(), Tie::of_uid(&placement.uid));
    Some(ElasticGang { tasks, min_available: gang.min_available, strategy, tie })
}

/// What an attempt for a job asks for.
pub(super) fn build_attempt(
    jobs: &Jobs,
    capacity: &mut FleetCapacity,
    head: &PendingHead,
    attempts: FailedAttempts,
) -> Preemptor {
    let mut lacks: BTreeSet<ResourceName> = BTreeSet::new();
    for name in &head.path {
        let is = jobs.engine.entitlement_of(name);
        let short = |(name, asked): &(&ResourceName, Quantity)| {
            is.used.get(name.as_str()).saturating_add(*asked) > is.real.get(name.as_str())
        };
        lacks.extend(head.asks.iter().filter(short).map(|(name, _)| name.clone()));
    }
    let free = capacity.sum_free();
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

/// Whether a preemptor would fit without some victims: quota on its path, then the place that the scheduler would find.
pub(super) struct FitWithout<'a> {
    objects: &'a Objects,
    jobs: &'a Jobs,
    capacity: &'a mut FleetCapacity,
    placement: Cow<'a, place::Binding>,
    gang: &'a Gang,
    whole: bool,
    asks: &'a Resources,
    /// The queues on its path.
    path: Vec<PathQueue>,
}

/// A queue on the preemptor's path.
struct PathQueue {
    used: Resources,
    real: Resources,
    /// Itself and the queues below it; `None` for all.
    below: Option<BTreeSet<QueueName>>,
}

impl<'a> FitWithout<'a> {
    pub(super) fn new(
        objects: &'a Objects,
        jobs: &'a Jobs,
        capacity: &'a mut FleetCapacity,
        head: &'a PendingHead,
    ) -> Option<Self> {
        let paths: Vec<(&QueueName, Vec<QueueName>)> =
            objects.queues.keys().map(|name| (name, objects.queue_path(name))).collect();
        let below = |at: &QueueName| {
            let below = paths.iter().filter(|(_, path)| path.contains(at)).map(|(name, _)| (*name).clone());
            (at.as_str() != ROOT_QUEUE).then(|| below.collect())
        };
        let on_path = |name: &QueueName| {
            let is = jobs.engine.entitlement_of(name);
            PathQueue { used: is.used, real: is.real, below: below(name) }
        };
        let path = head.path.iter().map(on_path).collect();
        let binding = objects.bindings.get(&head.key)?;
        let workload = objects.workloads.get(&binding.workload)?;
        Some(Self {
            // Others of its groups that are evicted are taken to stay: rather no attempt than one in vain.
            placement: place_with_peers(objects, capacity, binding)?,
            objects,
            jobs,
            capacity,
            gang: workload.gang.as_ref().ok()?,
            whole: workload.kind == WorkloadKind::VolcanoJob,
            asks: &head.asks,
            path,
        })
    }

    pub(super) fn fits_without(&mut self, victims: &[&Victim]) -> bool {
        self.has_quota_without(victims) && {
            let leaves = |victim: &&Victim| Some((victim.id.to_string(), self.list_leaving_pods(victim)?));
            let gone = victims.iter().filter_map(leaves).collect();
            let (binding, gang, whole) = (&*self.placement, self.gang, self.whole);
            self.capacity.fits_without(PlacementQuestion { binding, gang, whole, previous: None }, &gone)
        }
    }

    fn has_quota_without(&self, victims: &[&Victim]) -> bool {
        self.path.iter().all(|PathQueue { used, real, below }| {
            self.asks.iter().all(|(name, asked)| {
                let freed = victims
                    .iter()
                    .filter(|victim| below.as_ref().is_none_or(|below| below.contains(&victim.queue)))
                    .fold(Quantity::ZERO, |sum, victim| sum.saturating_add(victim.frees.get(name.as_str())));
                used.get(name.as_str()).minus(freed).saturating_add(asked) <= real.get(name.as_str())
            })
        })
    }

    fn list_leaving_pods(&self, victim: &Victim) -> Option<EvictedPods> {
        let EvictedPart::Surplus(less) = &victim.taken else { return Some(EvictedPods::All) };
        let binding = self.objects.bindings.get(self.jobs.keys.get(&victim.id)?)?;
        let gang = self.objects.workloads.get(&binding.workload)?.gang.as_ref().ok()?;
        let pods = |tasks: &BTreeMap<TaskName, u32>| {
            gang.tasks.iter().map(|task| tasks.get(&task.name).copied().unwrap_or(0)).collect()
        };
        Some(EvictedPods::Some(less.clusters.iter().map(|(name, tasks)| (name.to_string(), pods(tasks))).collect()))
    }
}
