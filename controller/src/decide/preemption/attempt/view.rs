//! What a preemption attempt is decided on: jobs that hold quota, who may preempt, and whether it would fit.
//!
//! Only the first pending jobs of each queue are preemptors, as far as there is something that they could reclaim, or a
//! preemptable job of lower priority. The accounts of queues are the engine's own. It would fit where quota on the
//! whole path and the placement, without the victims, say so.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use caldera_core::{
    fleet::EvictedPods,
    gang::{Gang, QueueName, TaskName},
    maintenance::ExpectedRun,
    place::{self, Division, spread_constraints::is_duplicated},
    queue::{
        PreemptionCandidate, PreemptionWorld,
        ledger::AdmissionStage,
        preemption::{
            ElasticGang, EvictedPart, PendingPreemptor, PlacedTask, PreemptionPolicy, Preemptor, RuleScope, RunningJob,
            Victim,
        },
    },
    resources::Resources,
    split::Strategy,
    webster::Tie,
};
use caldera_crds::workload::WorkloadKind;
use jiff::Timestamp;

use crate::{
    decide::{
        admission::{
            assess::{assess_with_admission_checks, predict_run},
            release::build_companion,
        },
        bindings::{
            binding_state::BindingState,
            job_gangs::Part,
            jobs::{JobPhase, JobState, Jobs},
        },
        fleet::{
            affinity::build_binding_to_place,
            capacity::{Companion, FleetCapacity, PlacementQuestion},
        },
    },
    observe::{Binding, Key, Objects, Workload, admitted_gang},
};

/// What a round of attempts looks at.
pub(super) struct PreemptionView<'a> {
    pub(super) objects: &'a Objects,
    pub(super) jobs: &'a Jobs,
    pub(super) capacity: &'a mut FleetCapacity,
    pub(super) now: Timestamp,
}

impl PreemptionWorld for PreemptionView<'_> {
    fn list_preemptors(
        &self,
        candidates: Vec<PreemptionCandidate>,
        policy: &PreemptionPolicy,
    ) -> Vec<PendingPreemptor> {
        let Self { objects, jobs, capacity, now } = self;
        let prospects = PreemptablePriorities::new(objects, jobs, policy);
        let mut preemptors = Vec::new();
        for candidate in candidates {
            let reclaims = policy.reclaim && candidate.may_reclaim;
            let lowest = prospects.find_lowest_priority(&candidate.queue);
            let is_reported = jobs.shadow.as_ref().is_some_and(|reported| reported.contains(&candidate.id));
            if (!reclaims && lowest.is_none()) || is_reported {
                continue;
            }
            let Some(binding) = jobs.keys.get(&candidate.id).and_then(|key| objects.bindings.get(key)) else {
                continue;
            };
            let BindingState::Pending(mut job) = assess_with_admission_checks(objects, jobs, capacity, binding, *now)
            else {
                continue;
            };
            // Those that start together ask with the lowest of their priorities.
            let unit = jobs.gangs.parts_of_leader(&candidate.id);
            job.priority = unit.iter().map(|part| part.job.priority).min().unwrap_or(job.priority);
            let workload = objects.workload_of(binding);
            // A unit is what the most modest of its parts is.
            let is_best_effort = |part: &Key| {
                let workload = objects.bindings.get(part).and_then(|binding| objects.workload_of(binding));
                workload.is_some_and(|workload| workload.best_effort)
            };
            let best_effort = is_best_effort(&binding.key) || unit.iter().any(|part| is_best_effort(&part.key));
            let never = workload.is_none_or(|workload| objects.never_preempts(&workload.class));
            if never || !(reclaims || lowest.is_some_and(|lowest| lowest < job.priority)) {
                continue;
            }
            preemptors.push(PendingPreemptor {
                id: candidate.id,
                queue_priority: objects.queues.get(&job.queue).map_or(0, |queue| queue.spec.priority),
                priority: job.priority,
                best_effort,
                created: job.created,
                asks: candidate.asks,
                queue: job.queue,
            });
        }
        preemptors
    }

    fn list_charged_jobs(&self) -> Vec<RunningJob> {
        let Self { objects, jobs, capacity, now } = self;
        list_bindings(objects, jobs)
            .filter_map(|(binding, state)| describe_charged_job(objects, jobs, capacity, binding, state, *now))
            .collect()
    }

    fn sum_ready_fleet(&mut self) -> Resources {
        self.capacity.sum_fleet().ready
    }

    fn sum_free(&mut self) -> Resources {
        self.capacity.sum_free().clone()
    }

    fn find_fit_without(&mut self, preemptor: &Preemptor) -> Option<impl FnMut(&[&Victim]) -> bool> {
        let mut fit = FitWithout::new(self.objects, self.jobs, self.capacity, preemptor, self.now)?;
        Some(move |victims: &[&Victim]| fit.fits_without(victims))
    }
}

/// What is cheap to tell beforehand: the lowest priority of jobs that could be preempted, by queue and in all.
struct PreemptablePriorities {
    /// Only a job's own queue counts.
    near: bool,
    by_queue: BTreeMap<QueueName, i32>,
    anywhere: Option<i32>,
}

impl PreemptablePriorities {
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
            let says = objects.workload_of(binding);
            let says = says.and_then(|workload| objects.is_preemptable(&record.queue, workload));
            if says.unwrap_or(policy.unset.preempt) {
                let lowest = prospects.by_queue.entry(record.queue.clone()).or_insert(record.priority);
                *lowest = record.priority.min(*lowest);
            }
        }
        prospects.anywhere = prospects.by_queue.values().copied().min();
        prospects
    }

    fn find_lowest_priority(&self, queue: &QueueName) -> Option<i32> {
        if self.near { self.by_queue.get(queue).copied() } else { self.anywhere }
    }
}

/// Bindings that are known, each with its state.
pub(crate) fn list_bindings<'a>(
    objects: &'a Objects,
    jobs: &'a Jobs,
) -> impl Iterator<Item = (&'a Binding, &'a JobState)> {
    jobs.states.iter().filter_map(move |(key, state)| Some((&**objects.bindings.get(key)?, &**state)))
}

/// What a binding holds, if it holds quota.
pub(crate) fn describe_charged_job(
    objects: &Objects,
    jobs: &Jobs,
    capacity: &FleetCapacity,
    binding: &Binding,
    state: &JobState,
    now: Timestamp,
) -> Option<RunningJob> {
    let charge = jobs.engine.charge_of(binding.id.as_str()).filter(|charge| !charge.is_empty())?;
    let stage = state.stage().filter(|_| state.is_confirmed());
    let workload = objects.workload_of(binding);
    let ours = matches!(stage, Some(AdmissionStage::Admitted | AdmissionStage::Placed))
        && binding.admission.is_some()
        && !binding.deleting
        && !binding.suspended
        // One that is being deleted too: a finalizer of its user's may keep it, and Karmada its copies.
        && workload.is_some()
        // Evicted now it would run again from the start, and it gives its quota back in a moment.
        && !capacity.has_only_finished_pods(binding);
    let placed = stage == Some(AdmissionStage::Placed) || stage == Some(AdmissionStage::Foreign);
    // The scheduler says when it placed a job some seconds later.
    let unsaid = if stage == Some(AdmissionStage::Placed) { now.into() } else { binding.created };
    Some(RunningJob {
        id: binding.id.clone(),
        queue: objects.queue_of(binding)?.clone(),
        namespace: Arc::clone(&binding.key.namespace),
        name: Arc::clone(&binding.key.name),
        priority: binding.admission.as_ref().map_or(0, |record| record.priority),
        preemptable: workload.and_then(|workload| objects.is_preemptable(&workload.queue, workload)),
        best_effort: workload.is_some_and(|workload| workload.best_effort),
        ours,
        created: workload.map_or(binding.created.into(), |workload| workload.submit_time_of(binding)),
        started: placed.then(|| binding.scheduled.unwrap_or(unsaid)),
        checkpoint_interval: workload.and_then(|workload| workload.checkpoint_interval),
        charge,
        // Of what is not dispatched, surplus would go on running.
        elastic: workload
            .filter(|_| ours && placed && !binding.undispatched)
            .and_then(|workload| describe_elastic(objects, binding, workload)),
        evictions: binding.eviction.as_ref().map(|eviction| eviction.eviction_history()).unwrap_or_default(),
        progressed: workload.is_some_and(|workload| workload.progress.succeeded > 0),
    })
}

/// The pods that a placed gang could spare. Only Volcano's kinds know what to do with fewer replicas and the same
/// minimum, and of a gang of several tasks only where each task's own minimum counts: else the scheduler would not cut
/// it.
fn describe_elastic(objects: &Objects, binding: &Binding, workload: &Workload) -> Option<ElasticGang> {
    let gang = &admitted_gang(binding, workload)?;
    let placement = binding.placement.as_deref()?;
    let division = placement.placement.division.as_ref();
    let strategy = match division? {
        Division::Duplicated => return None,
        Division::Aggregated | Division::Unsupported => Strategy::Aggregated,
        Division::StaticWeight { .. } => Strategy::StaticWeight,
        Division::DynamicWeight => Strategy::DynamicWeight,
    };
    let binds = gang.enforces_task_minimums();
    let cuts = binds || (gang.tasks.len() == 1 && gang.tasks[0].partition.is_none());
    let finished = workload.progress.succeeded > 0 || workload.progress.failed > 0;
    if workload.kind != WorkloadKind::VolcanoJob || is_duplicated(division) || !cuts || finished {
        return None;
    }
    let tasks = gang.tasks.iter().zip(binding.count_pods_by_cluster(gang)).map(|(task, placed)| PlacedTask {
        name: task.name.clone(),
        request: task.charge().into_owned(),
        priority: objects.priority_of_class(&task.priority_class),
        min: if binds { task.min_available } else { 0 },
        fixed: task.partition.is_some(),
        placed,
    });
    let (tasks, tie) = (tasks.collect(), Tie::of_uid(&placement.uid));
    Some(ElasticGang { tasks, min_available: gang.min_available, strategy, tie })
}

/// Whether the scheduler would find a place for a preemptor without some victims.
struct FitWithout<'a> {
    objects: &'a Objects,
    jobs: &'a Jobs,
    capacity: &'a mut FleetCapacity,
    placement: Cow<'a, place::Binding>,
    gang: Arc<Gang>,
    whole: bool,
    run: ExpectedRun,
    with: Vec<Companion<'a>>,
}

impl<'a> FitWithout<'a> {
    fn new(
        objects: &'a Objects,
        jobs: &'a Jobs,
        capacity: &'a mut FleetCapacity,
        preemptor: &Preemptor,
        now: Timestamp,
    ) -> Option<Self> {
        let binding = objects.bindings.get(jobs.keys.get(&preemptor.id)?)?;
        let workload = objects.workloads.get(&binding.workload)?;
        let unit = jobs.gangs.parts_of_leader(&preemptor.id);
        let with = unit.iter().skip(1).map(|part| build_companion(objects, capacity, part, now));
        let with = with.collect::<Option<_>>()?;
        Some(Self {
            with,
            // Others of its groups that are evicted are taken to stay: rather no attempt than one in vain.
            placement: build_binding_to_place(objects, capacity, binding)?,
            objects,
            jobs,
            capacity,
            gang: {
                let card = jobs.engine.pending_card(preemptor.id.as_str());
                let card = unit.first().map_or(card, Part::card);
                Arc::new(objects.gang_to_place(binding, workload)?.keep_to_card(card).into_owned())
            },
            whole: workload.kind.has_tasks(),
            run: predict_run(objects, workload, now),
        })
    }

    fn fits_without(&mut self, victims: &[&Victim]) -> bool {
        let leaves = |victim: &&Victim| Some((victim.id.to_string(), self.list_leaving_pods(victim)?));
        let gone = victims.iter().filter_map(leaves).collect();
        let (binding, gang, whole) = (&*self.placement, &*self.gang, self.whole);
        let question =
            PlacementQuestion { binding, gang, whole, previous: None, run: Some(self.run), with: &self.with };
        self.capacity.fits_without(question, &gone)
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
