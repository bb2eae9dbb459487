//! Preemption: when an attempt is made, for which pending jobs, and what it makes us write.
//!
//! Rule: Volcano's `gangreclaim` and `gangpreempt` over the whole fleet; who may evict whom is decided by
//! `caldera_core::queue::preemption`, and [`view`] fills in what that looks at. An attempt is made once nothing more
//! can be released, after something changed, at most once a second, for the first jobs of each queue that lack quota or
//! capacity, the most important first. No second attempt is made while one is open: from its first eviction until its
//! preemptor is released or its hold window is over. Until then, and until its own pods are gone, an evicted job does
//! not wait in its queue, so that it does not take back what it just gave. All of that is read from the victims'
//! bindings, so a restart goes on where it was. Only how often attempts for a preemptor failed is kept in memory.

mod view;

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
            self, AttemptRefusal, EvictedPart, EvictionBudget, EvictionHistory, EvictionRecord, FailedAttempts,
            NoEvictions, PreemptionInput, PreemptionPolicy, RemovedPods, RunningJob, Victim,
        },
    },
    reason::Reason,
    resources::Resources,
};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use self::view::{FitWithout, PendingHead};
use super::{
    capacity::FleetCapacity,
    deadlines::{after, earliest},
    eviction::{describe_eviction, forgotten_at, is_requeue},
    jobs::{JobPhase, Jobs},
};
use crate::{
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// Between two passes.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// Jobs of one queue that an attempt is made for in one pass, and of all queues.
const HEADS: usize = 4;
const ATTEMPTS: usize = 8;
/// Between two attempts for a job whose last one failed, and only if something changed.
const AGAIN: i64 = 5;

/// Preemption attempts, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Preemption {
    pub(crate) policy: PreemptionPolicy,
    budget: Option<EvictionBudget>,
    /// EvictionHistory that are not answered yet, with the event to record then.
    under_way: BTreeMap<Key, (String, String)>,
    /// Bindings that were evicted, or lost surplus, a short time ago.
    recent: BTreeSet<Key>,
    /// Whose attempt is open, and until when.
    open: Option<(JobId, i64)>,
    failed: BTreeMap<JobId, FailedAttempts>,
    /// Why the last attempts failed.
    notes: BTreeMap<JobId, String>,
    /// Jobs whose attempts failed: not before then, and not before something changed.
    not_before: BTreeMap<JobId, (i64, u64)>,
    /// Changes seen.
    changes: u64,
    /// There is cause for a pass.
    stirred: bool,
    last_pass: Option<Timestamp>,
    due: Option<Timestamp>,
}

/// Bindings that were evicted.
impl Preemption {
    /// Takes in the eviction record of a binding: whose attempt that was. Gives back when a requeued one is to be
    /// looked at.
    pub(crate) fn observe_eviction(&mut self, binding: &Binding, now: Timestamp) -> Option<Timestamp> {
        let eviction = binding.eviction.as_deref().filter(|eviction| forgotten_at(eviction) > now.as_second())?;
        self.recent.insert(binding.key.clone());
        if is_requeue(eviction) {
            return Timestamp::from_second(eviction.until).ok().filter(|until| *until > now);
        }
        if eviction.until > now.as_second() && self.open.is_none() {
            self.open = Some((eviction.preemptor.as_str().into(), eviction.until));
        }
        None
    }

    /// Takes in the answer to an eviction: the event to record if it was written.
    pub(crate) fn follow_answer(&mut self, key: &Key, written: bool) -> Option<(String, String)> {
        let event = self.under_way.remove(key)?;
        if written {
            return Some(event);
        }
        // What it was decided on has changed, or nobody knows: the next pass decides anew.
        self.open = None;
        self.stirred = true;
        None
    }

    /// Bindings that may return to their queue, or may ask for surplus again, since their eviction does not count any
    /// more.
    pub(crate) fn list_returning(
        &mut self,
        objects: &Objects,
        jobs: &Jobs,
        capacity: &FleetCapacity,
        now: Timestamp,
    ) -> Vec<Key> {
        let mut returning = Vec::new();
        self.recent.retain(|key| {
            let (Some(binding), Some(state)) = (objects.bindings.get(key), jobs.states.get(key)) else { return false };
            let holds_back = describe_eviction(objects, jobs, capacity, binding, now).is_some();
            let evicted = |reason: &Reason| matches!(reason, Reason::Evicted { .. } | Reason::Requeued { .. });
            let was_held_back = matches!(&state.phase, JobPhase::Blocked(reason) if evicted(reason));
            let holds = matches!(state.phase, JobPhase::Holding { .. });
            // As long as `observe_eviction` would remember it.
            let until = |eviction: &EvictionRecord| if holds { forgotten_at(eviction) } else { eviction.until };
            let over = binding.eviction.as_deref().is_none_or(|eviction| until(eviction) <= now.as_second());
            let returns = if holds { !holds_back && over } else { holds_back != was_held_back };
            returning.extend(returns.then(|| key.clone()));
            holds_back || !over
        });
        returning
    }
}

/// FailedAttempts.
impl Preemption {
    /// When to ask again if nothing happens.
    pub(crate) const fn next_due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Why nobody is evicted for a job, where an attempt for it failed.
    pub(crate) fn describe_failure(&self, id: &JobId) -> Option<&str> {
        self.notes.get(id).map(String::as_str)
    }

    /// Ends the open attempt if its preemptor was released or is gone, or its hold window is over. What others give
    /// goes to nobody but the preemptor while it is open. `changed` says that something changed since the last pass.
    pub(crate) fn close_attempt(&mut self, jobs: &mut Jobs, changed: bool, now: Timestamp) {
        if changed {
            self.changes += 1;
            self.stirred = true;
        }
        if let Some((preemptor, until)) = &self.open {
            if !jobs.engine.is_pending(preemptor.as_str()) {
                self.failed.remove(preemptor);
                self.open = None;
            } else if *until <= now.as_second() {
                let attempts = self.failed.entry(preemptor.clone()).or_default();
                *attempts = attempts.failed_at(now.as_second());
                tracing::warn!(%preemptor, failed = attempts.failed, "a preemption attempt came to nothing");
                self.open = None;
            }
        }
    }

    /// Whose attempt is open.
    pub(crate) fn open_preemptor(&self) -> Option<JobId> {
        self.open.as_ref().map(|(preemptor, _)| preemptor.clone())
    }

    /// Whether a pass is due now. `releases` says that something was released in this decision.
    pub(crate) fn begin_pass(&mut self, releases: bool, now: Timestamp) -> bool {
        if let Some((_, until)) = &self.open {
            self.due = Timestamp::from_second(*until).ok();
            return false;
        }
        if self.due.is_some_and(|due| due <= now) {
            (self.stirred, self.due) = (true, None);
        }
        if releases || !self.under_way.is_empty() || !self.stirred {
            return false;
        }
        let next = self.last_pass.map_or(now, |last| after(last, PAUSE));
        if next > now {
            self.due = earliest(self.due, Some(next));
            return false;
        }
        (self.last_pass, self.stirred, self.due) = (Some(now), false, None);
        true
    }

    /// Makes attempts for the first jobs of each queue, one after the other, until one succeeds.
    pub(crate) fn attempt_preemption(
        &mut self,
        objects: &Objects,
        jobs: &mut Jobs,
        capacity: &mut FleetCapacity,
        now: Timestamp,
    ) -> Vec<Decision> {
        let second = now.as_second();
        self.notes.retain(|id, _| jobs.engine.is_pending(id.as_str()));
        self.failed.retain(|id, _| jobs.engine.is_pending(id.as_str()));
        self.not_before.retain(|id, _| jobs.engine.is_pending(id.as_str()));
        let policy = self.policy.clone();
        let budget = *self.budget.get_or_insert_with(|| EvictionBudget::start_empty(second));
        let (mut heads, young) = view::list_preemptors(objects, jobs, capacity, &policy, HEADS, now);
        young.into_iter().for_each(|at| self.look_at(at));
        heads.retain(|head| self.may_attempt(&head.id, second));
        heads.truncate(ATTEMPTS);
        if heads.is_empty() {
            return Vec::new();
        }
        let queues = view::list_accounts(objects, jobs);
        let running = view::list_holders(objects, jobs);
        let fleet = capacity.sum_fleet().ready;
        let scene = PreemptionInput {
            queues: &queues,
            running: &running,
            fleet: &fleet,
            policy: &policy,
            budget: &budget,
            now: second,
        };
        for head in heads {
            let attempts = self.failed.get(&head.id).copied().unwrap_or_default();
            let claim = view::build_attempt(jobs, capacity, &head, attempts);
            let Some(mut fit) = FitWithout::new(objects, jobs, capacity, &head) else { continue };
            match preemption::plan_evictions(&scene, &claim, |victims| fit.fits_without(victims)) {
                Ok(plan) => {
                    self.notes.remove(&head.id);
                    self.budget.get_or_insert(budget).take_evictions(policy.bounds.rate, plan.victims.len(), second);
                    return self.evict_victims(objects, jobs, &head, &running, plan, second);
                }
                Err(why) => self.note_failure(&head, &why, second),
            }
        }
        Vec::new()
    }

    fn look_at(&mut self, second: i64) {
        self.due = earliest(self.due, Timestamp::from_second(second).ok());
    }

    /// Whether an attempt may be made for a job in this pass.
    fn may_attempt(&mut self, id: &JobId, now: i64) -> bool {
        match self.not_before.get(id).copied() {
            Some((_, changes)) if changes == self.changes => false,
            Some((until, _)) if until > now => {
                self.look_at(until);
                false
            }
            _ => true,
        }
    }

    fn note_failure(&mut self, head: &PendingHead, why: &NoEvictions, now: i64) {
        if why.refused == AttemptRefusal::Unneeded {
            self.notes.remove(&head.id);
            return;
        }
        tracing::debug!(job = %head.id, reason = why.token(), "{why}");
        self.notes.insert(head.id.clone(), why.to_string());
        let not_before = match why.again_at().filter(|again| *again > now) {
            Some(again) => {
                self.look_at(again);
                // Until then next to nothing else helps, and to work it out for each change would cost more than it
                // gives.
                let nothing_helps = matches!(why.refused, AttemptRefusal::Backoff { .. } | AttemptRefusal::Rate { .. });
                let at = if nothing_helps { again } else { now.saturating_add(AGAIN) };
                (at, self.changes.wrapping_sub(1))
            }
            None => {
                // To find that it takes too many costs the most, and seldom changes soon.
                let too_many = matches!(why.refused, AttemptRefusal::TooMany { .. });
                let pause = if too_many { self.policy.bounds.hold.max(AGAIN) } else { AGAIN };
                (now.saturating_add(pause), self.changes)
            }
        };
        self.not_before.insert(head.id.clone(), not_before);
    }

    /// Writes the evictions, and opens the attempt.
    fn evict_victims(
        &mut self,
        objects: &Objects,
        jobs: &mut Jobs,
        head: &PendingHead,
        running: &[RunningJob],
        plan: preemption::EvictionPlan,
        now: i64,
    ) -> Vec<Decision> {
        let (victims, frees, until) = (plan.victims.len(), plan.frees, plan.hold.until);
        tracing::info!(preemptor = %head.id, queue = %head.queue, victims, %frees, "jobs are evicted");
        let mut decisions = Vec::new();
        for victim in plan.victims {
            let Some(binding) = jobs.keys.get(&victim.id).and_then(|key| objects.bindings.get(key)) else { continue };
            let Some(holder) = running.iter().find(|holder| holder.id == victim.id) else { continue };
            let eviction = self.record_eviction(binding, holder, head, &victim, until, now);
            let event = match victim.taken {
                EvictedPart::Whole => format!("{}; it waits again with its age", eviction.message),
                EvictedPart::Surplus(_) => format!("{}; it goes on with its minimum or more", eviction.message),
            };
            let reason = eviction.reason.clone();
            let Some(decision) = decide_eviction(objects, binding, &victim, eviction) else { continue };
            self.under_way.insert(binding.key.clone(), (reason, event));
            decisions.push(decision);
        }
        self.open = Some((head.id.clone(), until));
        jobs.engine.set_preemptor(Some(head.id.clone()));
        self.due = Timestamp::from_second(until).ok();
        let preemptor = objects.bindings.get(&head.key).and_then(|binding| objects.workload_of(binding));
        decisions.extend(preemptor.map(|workload| {
            let jobs = if victims == 1 { "one job is".to_owned() } else { format!("{victims} jobs are") };
            let message = format!("{jobs} evicted for it: {frees} come free");
            Decision::event_on_workload(workload, EventType::Normal, "PreemptionSucceeded", message)
        }));
        decisions
    }

    fn record_eviction(
        &self,
        binding: &Binding,
        holder: &RunningJob,
        head: &PendingHead,
        victim: &Victim,
        until: i64,
        now: i64,
    ) -> EvictionRecord {
        let bounds = &self.policy.bounds;
        let before = binding.eviction.as_deref().filter(|_| !bounds.has_progressed(holder, now));
        EvictionRecord {
            count: EvictionHistory::after_eviction(holder, bounds, now).count,
            last: None,
            requeues: before.map_or(0, |before| before.requeues),
            at: now,
            until,
            preemptor: head.id.to_string(),
            reason: victim.why.token().to_owned(),
            message: victim.why.to_string(),
            avoid: Vec::new(),
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
            let (suspension, planned) = (binding.suspension, binding.planned);
            Some(Decision::Evict { key, resource_version, suspension, planned, eviction })
        }
        EvictedPart::Surplus(less) => {
            let gang = objects.workload_of(binding)?.gang.as_ref().ok()?;
            let admission = Box::new(cut_surplus(binding.admission.as_ref()?, gang, binding, less));
            Some(Decision::Shrink { key, resource_version, admission, eviction })
        }
    }
}

/// The record of a gang that keeps what is placed of it, less these pods. The scheduler cuts the rest.
fn cut_surplus(admission: &Admission, gang: &Gang, binding: &Binding, less: &RemovedPods) -> Admission {
    let mut tasks = BTreeMap::new();
    let mut charged = Resources::new();
    for (task, placed) in gang.tasks.iter().zip(binding.pods_by_cluster(gang)) {
        let there = placed.values().fold(0_u32, |sum, pods| sum.saturating_add(*pods));
        let keeps = there.saturating_sub(less.tasks.get(&task.name).copied().unwrap_or(0));
        charged.add(&task.request.times(u64::from(keeps)));
        tasks.insert(task.name.clone(), keeps);
    }
    Admission { tasks, charged, ..admission.clone() }
}
