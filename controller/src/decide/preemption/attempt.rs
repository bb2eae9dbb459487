//! Preemption: what an attempt makes us write, and which evicted jobs stay out of their queue meanwhile.
//!
//! Rule: Volcano's `gangreclaim` and `gangpreempt` over the whole fleet. When an attempt is made and who may evict whom
//! is decided by `caldera_core::queue::preemption`, for the simulator too; [`view`] fills in what that looks at. While
//! an attempt is open, and until its own pods are gone, an evicted job does not wait in its queue, so that it does not
//! take back what it just gave. Whose attempt is open is read from the victims' bindings, so a restart goes on where it
//! was. Only how often attempts for a preemptor failed, and why the last one did, is kept in memory.

mod view;

pub(crate) use self::view::{describe_charged_job, list_bindings};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::Gang,
    queue::{
        JobId,
        preemption::{
            AttemptRefusal, AttemptSchedule, ClosedAttempt, EvictedPart, EvictionHistory, EvictionPlan, EvictionRecord,
            Preemptor, RemovedSurplus, RunningJob, Victim,
        },
    },
    reason::Reason,
    resources::Resources,
    text::count_noun,
    time::EpochSeconds,
};
use caldera_runtime::event::EventType;
use jiff::Timestamp;

use crate::{
    decide::{
        bindings::{
            eviction::{find_last_move, is_requeue, is_withdrawal, list_unstarted_parts, waits_for_copies},
            eviction_wait::{compute_eviction_expiry, explain_eviction_wait, has_old_copies},
            jobs::{JobPhase, Jobs},
        },
        fleet::capacity::FleetCapacity,
    },
    observe::{Binding, Key, Objects, admitted_gang},
    write::Decision,
};

/// Event on a preemptor: other jobs were evicted for it, and which.
const PREEMPTION_SUCCEEDED: &str = "PreemptionSucceeded";

/// Preemption attempts, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Preemption {
    pub(crate) schedule: AttemptSchedule,
    /// Evictions that are not answered yet, with the event to record then.
    under_way: BTreeMap<Key, (String, String)>,
    /// Bindings that were evicted, or lost surplus, a short time ago, or whose namesakes were deleted then.
    recent: BTreeSet<Key>,
    /// Why the last attempts failed.
    notes: BTreeMap<JobId, String>,
}

/// Bindings that were evicted.
impl Preemption {
    /// Takes in the eviction record of a binding: whose attempt that was. Gives back when a requeued one is to be
    /// looked at.
    pub(crate) fn observe_eviction(&mut self, binding: &Binding, now: Timestamp) -> Option<Timestamp> {
        // What was in a lost cluster may have pods there however long ago it was withdrawn, until it is released anew.
        let is_kept = |eviction: &&EvictionRecord| {
            compute_eviction_expiry(eviction) > EpochSeconds::from(now)
                || (waits_for_copies(eviction) && binding.clusters.is_empty() && binding.admission.is_none())
        };
        let eviction = binding.eviction.as_deref().filter(is_kept)?;
        self.recent.insert(binding.key.clone());
        if is_withdrawal(eviction) || (waits_for_copies(eviction) && eviction.until <= EpochSeconds::from(now)) {
            return compute_eviction_expiry(eviction).to_timestamp().filter(|at| *at > now);
        }
        if is_requeue(eviction) {
            return eviction.until.to_timestamp().filter(|until| *until > now);
        }
        if eviction.until > EpochSeconds::from(now) {
            self.schedule.reopen_attempt(eviction.preemptor.as_str().into(), eviction.until);
        }
        None
    }

    /// Has a job looked at again once its old copies are gone, which was not evicted maybe.
    pub(crate) fn remember_returning_job(&mut self, key: &Key) {
        if !self.recent.contains(key) {
            self.recent.insert(key.clone());
        }
    }

    /// Takes in the answer to an eviction: the event to record if it was written.
    pub(crate) fn apply_write_answer(&mut self, key: &Key, written: bool) -> Option<(String, String)> {
        let event = self.under_way.remove(key)?;
        if written {
            return Some(event);
        }
        // What it was decided on has changed, or nobody knows: the next pass decides anew.
        self.schedule.cancel_attempt();
        None
    }

    /// Bindings that may return to their queue, or may ask for surplus again, since their eviction does not count any
    /// more.
    pub(crate) fn take_returning_jobs(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Key> {
        let mut returning = Vec::new();
        self.recent.retain(|key| {
            let (Some(binding), Some(state)) = (objects.bindings.get(key), jobs.states.get(key)) else { return false };
            let holds_back = explain_eviction_wait(objects, jobs, capacity, binding, now).is_some();
            let evicted = |reason: &Reason| matches!(reason, Reason::Evicted { .. } | Reason::Requeued { .. });
            let holds = matches!(state.phase, JobPhase::Holding { .. });
            // As long as `observe_eviction` would remember it.
            let until =
                |eviction: &EvictionRecord| if holds { compute_eviction_expiry(eviction) } else { eviction.until };
            let over = binding.eviction.as_deref().is_none_or(|eviction| until(eviction) <= EpochSeconds::from(now));
            let returns = match &state.phase {
                JobPhase::Holding { .. } => !holds_back && over,
                JobPhase::Pending => holds_back,
                JobPhase::Blocked(reason) if evicted(reason) => !holds_back,
                // Whatever else it waits for comes before that, and assessing it again would change nothing.
                JobPhase::Blocked(_) | JobPhase::OutOfScope => false,
            };
            let went = jobs.cleanups.is_terminating(key)
                && !has_old_copies(objects, capacity, binding, EpochSeconds::from(now));
            returning.extend((returns || went).then(|| key.clone()));
            holds_back || !over
        });
        returning
    }
}

/// Attempts.
impl Preemption {
    /// When to ask again if nothing happens.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.schedule.due().and_then(EpochSeconds::to_timestamp)
    }

    /// Why nobody is evicted for a job, where an attempt for it failed.
    pub(crate) fn describe_failure(&self, id: &JobId) -> Option<&str> {
        self.notes.get(id).map(String::as_str)
    }

    /// Ends the open attempt if its preemptor was released or is gone, or its hold window is over. `changed` says that
    /// something changed since this was last asked.
    pub(crate) fn close_attempt(&mut self, jobs: &Jobs, changed: bool, now: Timestamp) {
        if changed {
            self.schedule.record_change();
        }
        let closed =
            self.schedule.close_attempt_if_over(|id| jobs.engine.is_pending(id.as_str()), EpochSeconds::from(now));
        if let Some(ClosedAttempt::Failed(preemptor, failed)) = closed {
            tracing::warn!(%preemptor, failed, "a preemption attempt came to nothing");
        }
    }

    /// Whether a round of attempts is due now. `releases` says that something was released in this decision.
    pub(crate) fn begin_round(&mut self, releases: bool, now: Timestamp) -> bool {
        self.schedule.begin_round(!releases && self.under_way.is_empty(), EpochSeconds::from(now))
    }

    /// Makes attempts for the first jobs of each queue, one after the other, until one succeeds.
    pub(crate) fn attempt_preemption(
        &mut self,
        objects: &Objects,
        jobs: &mut Jobs,
        capacity: &mut FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let second = EpochSeconds::from(now);
        self.notes.retain(|id, _| jobs.engine.is_pending(id.as_str()));
        let mut world = view::PreemptionView { objects, jobs, capacity, now };
        let round = jobs.engine.run_preemption_round(&mut self.schedule, &mut world, second);
        for (id, why) in round.refused {
            if why.refused == AttemptRefusal::Unneeded {
                self.notes.remove(&id);
            } else {
                tracing::debug!(job = %id, reason = why.token(), "{why}");
                self.notes.insert(id, why.to_string());
            }
        }
        let Some((preemptor, plan)) = round.evictions else { return Vec::new() };
        self.notes.remove(&preemptor.id);
        self.evict_victims(objects, jobs, &preemptor, &round.running, plan, second)
    }

    /// Writes the evictions, and opens the attempt.
    fn evict_victims(
        &mut self,
        objects: &Objects,
        jobs: &mut Jobs,
        preemptor: &Preemptor,
        running: &[RunningJob],
        plan: EvictionPlan,
        now: EpochSeconds,
    ) -> Vec<Decision> {
        let (victims, frees, until) = (plan.victims.len(), plan.frees, plan.hold.until);
        let mut decisions = Vec::new();
        for victim in plan.victims {
            let Some(binding) = jobs.keys.get(&victim.id).and_then(|key| objects.bindings.get(key)) else { continue };
            let Some(charged_job) = running.iter().find(|charged_job| charged_job.id == victim.id) else { continue };
            let eviction = self.build_victim_record(binding, charged_job, preemptor, &victim, until, now);
            let event = match victim.taken {
                EvictedPart::Whole => format!("{}; it waits again with its age", eviction.message),
                EvictedPart::Surplus(_) => format!("{}; it goes on with its minimum or more", eviction.message),
            };
            let reason = eviction.reason.clone();
            let Some(decision) = decide_eviction(objects, binding, &victim, eviction) else { continue };
            self.under_way.insert(binding.key.clone(), (reason, event));
            decisions.push(decision);
        }
        jobs.engine.set_preemptor(Some(preemptor.id.clone()));
        let binding = jobs.keys.get(&preemptor.id).and_then(|key| objects.bindings.get(key));
        decisions.extend(binding.and_then(|binding| objects.workload_of(binding)).map(|workload| {
            let message = format!("{} evicted for it: {frees} come free", count_noun(victims, "job"));
            Decision::build_workload_event(workload, EventType::Normal, PREEMPTION_SUCCEEDED, message)
        }));
        decisions
    }

    fn build_victim_record(
        &self,
        binding: &Binding,
        charged_job: &RunningJob,
        preemptor: &Preemptor,
        victim: &Victim,
        until: EpochSeconds,
        now: EpochSeconds,
    ) -> EvictionRecord {
        let bounds = &self.schedule.policy.bounds;
        let before = binding.eviction.as_deref().filter(|_| !bounds.has_progressed(charged_job, now));
        EvictionRecord {
            count: EvictionHistory::after_eviction(charged_job, bounds, now).count,
            last: None,
            requeues: before.map_or(0, |before| before.requeues),
            restarts: binding.count_policy_restarts(),
            at: now,
            until,
            preemptor: preemptor.id.to_string(),
            reason: victim.why.token().to_owned(),
            message: victim.why.to_string(),
            avoid: Vec::new(),
            unstarted: list_unstarted_parts(binding),
            moved: binding.eviction.as_deref().and_then(find_last_move),
        }
    }
}

fn decide_eviction(
    objects: &Objects,
    binding: &Binding,
    victim: &Victim,
    eviction: EvictionRecord,
) -> Option<Decision> {
    let (key, resource_version) = (binding.key.clone(), Arc::clone(&binding.resource_version));
    let eviction = Box::new(eviction);
    match &victim.taken {
        EvictedPart::Whole => {
            let Binding { suspension, recorded, planned, .. } = *binding;
            let held = Vec::new();
            Some(Decision::Evict { key, resource_version, suspension, recorded, planned, held, eviction })
        }
        EvictedPart::Surplus(less) => {
            let gang = admitted_gang(binding, objects.workload_of(binding)?)?;
            let admission = Box::new(cut_surplus(binding.admission.as_ref()?, &gang, binding, less));
            Some(Decision::Shrink { key, resource_version, admission, eviction })
        }
    }
}

/// The record of a gang that keeps what is placed of it, less these pods. The scheduler cuts the rest.
fn cut_surplus(admission: &Admission, gang: &Gang, binding: &Binding, less: &RemovedSurplus) -> Admission {
    let mut tasks = BTreeMap::new();
    let mut charged = Resources::new();
    for (task, placed) in gang.tasks.iter().zip(binding.count_pods_by_cluster(gang)) {
        let there = placed.values().fold(0_u32, |sum, pods| sum.saturating_add(*pods));
        let keeps = there.saturating_sub(less.tasks.get(&task.name).copied().unwrap_or(0));
        charged.add(&task.charge().times(u64::from(keeps)));
        tasks.insert(task.name.clone(), keeps);
    }
    Admission { tasks, charged, ..admission.clone() }
}
